//! The old content of blocks: the devices' answers to the reads of a plan.

use crate::UnitAddress;
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece, Want};
use std::collections::BTreeMap;

/// Old content by device, collected from answers of any size and order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Old {
    /// The pieces by ring position, ascending and disjoint.
    pieces: BTreeMap<usize, Vec<Piece>>,
}

impl Old {
    /// No content.
    pub fn new() -> Old {
        Old::default()
    }

    /// Adds what the device at `position` answered. Devices are not trusted: invalid or repeated pieces are discarded, which
    /// [`Old::covers`] detects.
    pub fn insert(&mut self, position: usize, pieces: Vec<Piece>) {
        let known = self.pieces.entry(position).or_default();
        match known.is_empty() && pieces.iter().all(is_sound) {
            true => *known = pieces,
            false => known.extend(pieces.into_iter().filter(is_sound)),
        }
        known.sort_by_key(|piece| piece.range.start);
        known.dedup_by(|next, kept| kept.range.overlaps(next.range));
    }

    /// The same content for a plan with other positions: `positions` maps each of its positions to one of these.
    pub(super) fn seen_from(&self, positions: &[usize]) -> Old {
        let pieces = positions.iter().enumerate();
        let pieces = pieces.filter_map(|(own, here)| Some((own, self.pieces.get(here)?.clone())));
        Old { pieces: pieces.collect() }
    }

    /// True if the answers cover all of these blocks of the device, as `want` demands: with content; for [`Want::Allocation`], at least
    /// with whether there is any; for [`Want::Linkage`], with headers; for [`Want::Salvage`], with content or as lost. A plan must only
    /// be given content that covers the reads of all its shares.
    pub fn covers(&self, position: usize, ranges: &[BlockRange], want: Want) -> bool {
        ranges.iter().all(|range| {
            let mut reached = range.start;
            for piece in self.overlapping(position, *range) {
                let fits = match &piece.content {
                    Content::Hole => true,
                    Content::Data(_) => want != Want::Linkage,
                    Content::Present => want == Want::Allocation,
                    Content::Header { .. } => want == Want::Linkage,
                    Content::Lost => want == Want::Salvage,
                };
                if piece.range.start > reached || !fits {
                    return false;
                }
                reached = piece.range.end();
            }
            reached >= range.end()
        })
    }

    /// The content of `count` blocks from `place` on, in order and cut to this range. The block numbers of the pieces are relative to
    /// `place`.
    pub(super) fn content(&self, place: UnitAddress, count: u64) -> impl Iterator<Item = Piece> {
        let wanted = BlockRange::new(place.block, count);
        let mut reached = wanted.start;
        let pieces = self.overlapping(place.position, wanted).iter().map(move |piece| {
            assert!(piece.range.start <= reached, "a plan gets all that it asked to read");
            reached = piece.range.end();
            let mut cut = piece.clip(wanted);
            cut.range.start -= wanted.start;
            cut
        });
        let last = self.overlapping(place.position, wanted).last().map_or(wanted.start, |piece| piece.range.end());
        assert!(last >= wanted.end(), "a plan gets all that it asked to read");
        pieces
    }

    fn overlapping(&self, position: usize, range: BlockRange) -> &[Piece] {
        let pieces = self.pieces.get(&position).map_or(&[][..], |pieces| pieces);
        let first = pieces.partition_point(|piece| piece.range.end() <= range.start);
        let end = pieces.partition_point(|piece| piece.range.start < range.end());
        &pieces[first..end.max(first)]
    }
}

fn is_sound(piece: &Piece) -> bool {
    let bytes = piece.range.count.checked_mul(BLOCK_BYTES as u64);
    let in_bounds = !piece.range.is_empty() && piece.range.start.checked_add(piece.range.count).is_some();
    match &piece.content {
        Content::Hole | Content::Present | Content::Header { .. } | Content::Lost => in_bounds,
        Content::Data(data) => in_bounds && bytes == Some(data.len() as u64),
    }
}
