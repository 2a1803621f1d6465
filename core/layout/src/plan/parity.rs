//! XOR of blocks some of which are holes.

use super::old::Old;
use crate::Place;
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange};
use braid_wire::{Content, Piece};
use bytes::Bytes;

/// Blocks that hold data, and the data.
pub(super) type Source = (BlockRange, Bytes);

/// What is added up at a time: the sum stays in the processor's first cache while source after source is added.
const CHUNK_BYTES: usize = 16 << 10;

/// The XOR of all sources, as pieces that cover `rows`, in order. Where no source has data there is a hole; where only
/// one has, its own bytes are shared: so the copies of RAID 1 cost nothing.
pub(super) fn xor(rows: BlockRange, mut sources: Vec<Source>) -> Vec<Piece> {
    sources.sort_by_key(|(range, _)| range.start);
    let mut pieces = Vec::new();
    let mut reached = rows.start;
    let mut rest = &sources[..];
    while let Some((first, _)) = rest.first() {
        // A run of sources each of which overlaps one before it.
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
        pieces.push(Piece { range: run, content: Content::Data(xor_run(run, &rest[..count])) });
        reached = run.end();
        rest = &rest[count..];
    }
    if reached < rows.end() {
        pieces.push(Piece { range: BlockRange::between(reached, rows.end()), content: Content::Hole });
    }
    pieces
}

/// Adds what was read of these rows of the unit that begins at `unit`; holes add nothing.
pub(super) fn push_old(sources: &mut Vec<Source>, old: &Old, unit: Place, rows: BlockRange) {
    let place = Place { block: unit.block + rows.start, ..unit };
    for piece in old.content(place, rows.count) {
        let range = BlockRange::new(rows.start + piece.range.start, piece.range.count);
        match piece.content {
            Content::Data(data) => sources.push((range, data)),
            Content::Hole => {}
            Content::Present => unreachable!("what covers a read has its content"),
        }
    }
}

fn xor_run(run: BlockRange, sources: &[Source]) -> Bytes {
    if let [(_, only)] = sources {
        return only.clone();
    }
    // Mostly the first source is as long as the run: the sum begins with it, and not with zeros to add it to.
    let (mut sum, sources) = match sources {
        [(range, first), rest @ ..] if *range == run => (AlignedBuffer::copied(first), rest),
        _ => (AlignedBuffer::zeroed(run.count as usize * BLOCK_BYTES), sources),
    };
    for (index, chunk) in sum.chunks_mut(CHUNK_BYTES).enumerate() {
        let start = index * CHUNK_BYTES;
        for (range, data) in sources {
            let source = (range.start - run.start) as usize * BLOCK_BYTES;
            let (from, to) = (start.max(source), (start + chunk.len()).min(source + data.len()));
            if from < to {
                xor_into(&mut chunk[from - start..to - start], &data[from - source..to - source]);
            }
        }
    }
    sum.freeze()
}

/// A loop this plain is turned into vector instructions, and waits for memory only.
fn xor_into(sum: &mut [u8], data: &[u8]) {
    assert_eq!(sum.len(), data.len());
    for (byte, other) in sum.iter_mut().zip(data) {
        *byte ^= other;
    }
}
