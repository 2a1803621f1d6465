//! The plan of a hostread.

use super::old::Old;
use super::{Share, Shares, Span};
use crate::layout::unit_runs;
use crate::{Layout, Place};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_wire::Content;
use bytes::Bytes;

/// What to read for some bytes of a volume, and how they are put together.
///
/// Of the copies of RAID 1 the data unit's is read; since it rotates from stripe to stripe, reads spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    layout: Layout,
    span: Span,
    shares: Vec<Share>,
}

/// A run of the volume's blocks that lies on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which blocks of the volume.
    pub blocks: BlockRange,
    /// Where the first of them lies; the others follow it.
    pub place: Place,
}

impl ReadPlan {
    /// A read of `length` bytes at `offset`. The range must be within the volume.
    pub fn new(layout: &Layout, offset: u64, length: u64) -> ReadPlan {
        let mut plan = ReadPlan { layout: *layout, span: Span::new(offset, length), shares: Vec::new() };
        let mut shares = Shares::default();
        for part in plan.parts() {
            shares.read(part.place, part.blocks.count);
        }
        plan.shares = shares.0;
        plan
    }

    /// What each device reads.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks in order, and where they lie.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        unit_runs(&self.layout, self.span.blocks())
            .map(|blocks| Part { blocks, place: self.layout.locate(blocks.start) })
    }

    /// The bytes asked for: joined, the buffers are as long as the request. They are parts of those read; holes are
    /// parts of one shared buffer of zeros.
    pub fn assemble(&self, old: &Old) -> Vec<Bytes> {
        let mut bytes = Vec::new();
        for part in self.parts() {
            for piece in old.content(part.place, part.blocks.count) {
                let start = (part.blocks.start + piece.range.start) * BLOCK_BYTES as u64;
                let end = start + piece.range.count * BLOCK_BYTES as u64;
                let (from, to) = (start.max(self.span.offset), end.min(self.span.end()));
                match piece.content {
                    Content::Data(data) => bytes.push(data.slice((from - start) as usize..(to - start) as usize)),
                    Content::Hole => push_zeros(&mut bytes, to - from),
                    Content::Present => unreachable!("what covers a read has its content"),
                }
            }
        }
        bytes
    }

    /// Where the volume has data, given answers to the same reads with `Want::Allocation`: runs of its blocks in
    /// order, how many and whether they hold data. Neighbours differ.
    pub fn allocation(&self, old: &Old) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        for part in self.parts() {
            for piece in old.content(part.place, part.blocks.count) {
                let holds_data = piece.content != Content::Hole;
                match runs.last_mut() {
                    Some((count, before)) if *before == holds_data => *count += piece.range.count,
                    _ => runs.push((piece.range.count, holds_data)),
                }
            }
        }
        runs
    }
}

/// Adds that many zeros, without memory of their own.
pub(super) fn push_zeros(bytes: &mut Vec<Bytes>, mut count: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while count > 0 {
        let some = count.min(ZEROS.len() as u64);
        bytes.push(Bytes::from_static(&ZEROS[..some as usize]));
        count -= some;
    }
}
