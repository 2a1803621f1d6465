//! Parity: the XOR of blocks, some of which are holes.

use super::old::Old;
use crate::UnitAddress;
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Blocks with data, and the data.
pub(super) type Source = (BlockRange, Bytes);

/// The XOR of all sources, as pieces that cover `rows`, in order. Rows without data are holes. Where only one source has data, its buffer
/// is shared, so that the copies of RAID 1 cost nothing.
pub(super) fn xor(rows: BlockRange, sources: Vec<Source>) -> Vec<Piece> {
    add_up_runs(rows, sources, |run, sources| Content::Data(xor_run(run, sources)))
}

/// The rows in which any source has content, as pieces like those of [`xor`].
pub(super) fn any(rows: BlockRange, sources: Vec<(BlockRange, ())>) -> Vec<Piece> {
    add_up_runs(rows, sources, |_, _| Content::Present)
}

/// Pieces that cover `rows`, in order: the result of `sum` for each run with sources, and holes elsewhere.
fn add_up_runs<T>(
    rows: BlockRange,
    mut sources: Vec<(BlockRange, T)>,
    sum: impl Fn(BlockRange, &[(BlockRange, T)]) -> Content,
) -> Vec<Piece> {
    sources.sort_by_key(|(range, _)| range.start);
    let mut pieces = Vec::new();
    let mut reached = rows.start;
    let mut rest = &sources[..];
    while let Some((first, _)) = rest.first() {
        // A run of sources, each of which overlaps an earlier one.
        let mut run = *first;
        let mut count = 1;
        while let Some((next, _)) = rest.get(count)
            && next.start < run.end()
        {
            run = BlockRange::between(run.start, run.end().max(next.end()));
            count += 1;
        }
        assert!(rows.contains(run), "the sources lie within the rows");
        if reached < run.start {
            pieces.push(Piece { range: BlockRange::between(reached, run.start), content: Content::Hole });
        }
        pieces.push(Piece { range: run, content: sum(run, &rest[..count]) });
        reached = run.end();
        rest = &rest[count..];
    }
    if reached < rows.end() {
        pieces.push(Piece { range: BlockRange::between(reached, rows.end()), content: Content::Hole });
    }
    pieces
}

/// Adds the content of these rows of the unit that begins at `unit`. Holes and lost blocks add nothing.
pub(super) fn push_old(sources: &mut Vec<Source>, old: &Old, unit: UnitAddress, rows: BlockRange) {
    let place = UnitAddress { block: unit.block + rows.start, ..unit };
    for piece in old.content(place, rows.count) {
        let range = BlockRange::new(rows.start + piece.range.start, piece.range.count);
        match piece.content {
            Content::Data(data) => sources.push((range, data)),
            Content::Hole | Content::Lost => {}
            Content::Present | Content::Header { .. } => unreachable!("content that covers a read is data or holes"),
        }
    }
}

/// Adds those of these rows of the unit that begins at `unit` which are lost.
pub(super) fn push_lost(lost: &mut BTreeSet<u64>, old: &Old, unit: UnitAddress, rows: BlockRange) {
    let place = UnitAddress { block: unit.block + rows.start, ..unit };
    let gone = old.content(place, rows.count).filter(|piece| piece.content == Content::Lost);
    lost.extend(gone.flat_map(|piece| BlockRange::new(rows.start + piece.range.start, piece.range.count).blocks()));
}

/// Like [`push_old`], for the answers to [`Want::Allocation`](braid_blocks::Want::Allocation).
pub(super) fn push_present(sources: &mut Vec<(BlockRange, ())>, old: &Old, unit: UnitAddress, rows: BlockRange) {
    let place = UnitAddress { block: unit.block + rows.start, ..unit };
    let present = old.content(place, rows.count).filter(|piece| piece.content != Content::Hole);
    sources.extend(present.map(|piece| (BlockRange::new(rows.start + piece.range.start, piece.range.count), ())));
}

fn xor_run(run: BlockRange, sources: &[Source]) -> Bytes {
    if let [(_, only)] = sources {
        return only.clone();
    }
    let mut sum = AlignedBuffer::with_capacity(run.count as usize * BLOCK_BYTES);
    let mut parts: Vec<&[u8]> = Vec::with_capacity(sources.len());
    for block in run.blocks() {
        parts.clear();
        for (range, data) in sources.iter().filter(|(range, _)| range.start <= block && block < range.end()) {
            parts.push(&data[(block - range.start) as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
        }
        add_up(&mut sum, &parts);
    }
    sum.freeze()
}

/// Appends the XOR of some blocks. The compiler vectorises such simple loops. Three sources are added at a time, so that the sum is
/// written less often.
fn add_up(buffer: &mut AlignedBuffer, parts: &[&[u8]]) {
    let (first, rest) = parts.split_first().expect("every block of a run has a source");
    let before = buffer.len();
    buffer.append(first);
    let sum = &mut buffer[before..];
    let mut threes = rest.chunks_exact(3);
    for parts in &mut threes {
        let others = parts[0].iter().zip(parts[1]).zip(parts[2]);
        for (byte, ((a, b), c)) in sum.iter_mut().zip(others) {
            *byte ^= a ^ b ^ c;
        }
    }
    for part in threes.remainder() {
        for (byte, other) in sum.iter_mut().zip(*part) {
            *byte ^= other;
        }
    }
}
