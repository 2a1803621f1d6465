//! A plan says which device reads and writes what for one request (the RAIDmap of the parallel-RAID paper).
//!
//! First, a plan gives the work of each device ([`Share`]); then, from the answers of the devices ([`Old`]), it computes the result. It
//! holds no data in between, and can be used again when the request is retried.
//!
//! The length of a plan is proportional to the number of stripes of its request. Front ends split requests to
//! `limits::TRANSACTION_BYTES_MAX`, including those that transfer no data (zeros, allocation): then no share has more than
//! `limits::EXTENTS_MAX` ranges.
//!
//! With devices unavailable ([`crate::Absence`]), a block that can't be read is reconstructed from the rest of its row. The [`Method`]
//! for a band of a write then depends on the unavailable unit (Table III of the paper, extended to cases that it leaves open):
//!
//! | method without failures | data unit unavailable, updated | data unit unavailable, not updated | parity lost | parity stale |
//! | --- | --- | --- | --- | --- |
//! | small | large | small | no parity, nothing read | large |
//! | large | large | small | no parity, nothing read | large |
//! | full | full | – | no parity, nothing read | full |
//!
//! Lost units are not written; stale units are written. If a part of a block is updated, its old content is read in addition, unless the
//! method reads it anyway. If the unit of that block is unavailable, this means reading the whole row and its parity. Parity always
//! includes the intended content of a lost unit: therefore the unit can be reconstructed at once, and restored later ([`RestorePlan`]).

mod band;
mod check;
mod moving;
mod old;
mod parity;
mod parity_resync;
mod raidmap;
mod read;
mod reconstruct;
mod restore;
mod stripe;
mod update;
mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::layouts;

pub use band::{Method, Methods};
pub use check::CheckPlan;
pub use moving::MovePlan;
pub use old::Old;
pub use parity_resync::{CrossCheckPlan, RecomputePlan, StripeRows};
pub use raidmap::{ParitySite, RaidMap};
pub use read::{Part, ReadPlan};
pub use reconstruct::{ReconstructError, ReconstructPlan};
pub use restore::RestorePlan;
pub use update::UpdatePlan;
pub use write::{New, PlannedBand, WritePlan};

use crate::UnitAddress;
use braid_base::{BLOCK_BYTES, BlockRange};

/// The work of one device in a plan. Ranges are blocks of its component, ascending, and merged where they touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The ring position of the device.
    pub position: usize,
    /// The blocks that it will write.
    pub prewrites: Vec<BlockRange>,
    /// The blocks that must be read from it first.
    pub reads: Vec<BlockRange>,
}

/// Shares under construction, ascending by position.
#[derive(Default)]
struct Shares(Vec<Share>);

impl Shares {
    /// Adds a read. Blocks that are read already are not read twice.
    fn read(&mut self, place: UnitAddress, count: u64) {
        push_united(&mut self.of(place.position).reads, BlockRange::new(place.block, count));
    }

    fn prewrite(&mut self, place: UnitAddress, count: u64) {
        push_merged(&mut self.of(place.position).prewrites, BlockRange::new(place.block, count));
    }

    fn of(&mut self, position: usize) -> &mut Share {
        let index = self.0.binary_search_by_key(&position, |share| share.position).unwrap_or_else(|index| {
            self.0.insert(index, Share { position, prewrites: Vec::new(), reads: Vec::new() });
            index
        });
        &mut self.0[index]
    }
}

/// Adds a range. Ranges are added in ascending order, except those that reconstruct an unavailable unit.
fn push_united(ranges: &mut Vec<BlockRange>, range: BlockRange) {
    match ranges.last_mut() {
        Some(last) if range.start < last.start => unite(ranges, range),
        Some(last) if range.start <= last.end() => last.count = last.count.max(range.end() - last.start),
        _ => ranges.push(range),
    }
}

/// Adds a range at any position.
#[cold]
fn unite(ranges: &mut Vec<BlockRange>, range: BlockRange) {
    let first = ranges.partition_point(|other| other.end() < range.start);
    let behind = ranges.partition_point(|other| other.start <= range.end());
    let touching = &ranges[first..behind];
    let start = touching.first().map_or(range.start, |first| first.start.min(range.start));
    let end = touching.last().map_or(range.end(), |last| last.end().max(range.end()));
    ranges.splice(first..behind, [BlockRange::between(start, end)]);
}

fn push_merged(ranges: &mut Vec<BlockRange>, range: BlockRange) {
    match ranges.last_mut() {
        Some(last) if range.start <= last.end() => {
            assert_eq!(
                last.end(),
                range.start,
                "a plan pre-writes a component in ascending order, and each block once"
            );
            last.count += range.count;
        }
        _ => ranges.push(range),
    }
}

/// The bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: u64,
    length: u64,
}

impl Span {
    fn new(offset: u64, length: u64) -> Span {
        assert!(offset.checked_add(length).is_some(), "a request is within its volume");
        Span { offset, length }
    }

    fn end(self) -> u64 {
        self.offset + self.length
    }

    /// The volume's blocks that it touches.
    fn blocks(self) -> BlockRange {
        if self.length == 0 {
            return BlockRange::new(self.offset / BLOCK_BYTES as u64, 0);
        }
        BlockRange::between(self.offset / BLOCK_BYTES as u64, self.end().div_ceil(BLOCK_BYTES as u64))
    }

    /// The blocks that it covers only in part: none, the first, the last, or both.
    fn edges(self) -> impl Iterator<Item = u64> {
        let blocks = self.blocks();
        let block_bytes = BLOCK_BYTES as u64;
        let cut_in_front = !self.offset.is_multiple_of(block_bytes);
        let cut_behind = !self.end().is_multiple_of(block_bytes);
        let first = (!blocks.is_empty() && (cut_in_front || (cut_behind && blocks.count == 1))).then_some(blocks.start);
        let last = (blocks.count > 1 && cut_behind).then(|| blocks.end() - 1);
        first.into_iter().chain(last)
    }
}
