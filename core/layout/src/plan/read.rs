//! The plan of a hostread.

use super::old::Old;
use super::stripe::Stripe;
use super::{Share, Shares, Span};
use crate::layout::unit_runs;
use crate::{Absence, Layout, Unavailable, UnitAddress};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece, Want};
use bytes::Bytes;

/// The reads for a range of a volume, and how their results are combined.
///
/// For RAID 1 the data unit is read; since it rotates from stripe to stripe, reads are distributed over the copies. A block that can't be
/// read is reconstructed from the rest of its row, in RAID 1 from another copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    layout: Layout,
    absence: Absence,
    span: Span,
    shares: Vec<Share>,
}

/// A run of the volume's blocks on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The blocks of the volume.
    pub blocks: BlockRange,
    /// The address of the first of them; the others follow it.
    pub place: UnitAddress,
}

impl ReadPlan {
    /// A read of `length` bytes at `offset`. The range must be within the volume.
    pub fn new(layout: &Layout, absence: &Absence, offset: u64, length: u64) -> Result<ReadPlan, Unavailable> {
        let span = Span::new(offset, length);
        let mut plan = ReadPlan { layout: *layout, absence: absence.clone(), span, shares: Vec::new() };
        let mut shares = Shares::default();
        for part in plan.parts() {
            if absence.is_unreadable(part.place.position) {
                let (stripe, unit, row) = Stripe::of(layout, absence, part.blocks.start);
                stripe.read_sources(unit, BlockRange::new(row, part.blocks.count), &mut shares)?;
            } else {
                shares.read(part.place, part.blocks.count);
            }
        }
        plan.shares = shares.0;
        Ok(plan)
    }

    /// The work of each device.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks in order, and their addresses, whether they can be read there or not.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        unit_runs(&self.layout, self.span.blocks())
            .map(|blocks| Part { blocks, place: self.layout.locate(blocks.start) })
    }

    /// The bytes asked for, as buffers that together have the length of the request. The buffers are slices of those read; holes are
    /// slices of one shared buffer of zeros.
    pub fn assemble(&self, old: &Old) -> Vec<Bytes> {
        let mut bytes = Vec::new();
        self.for_each_piece(old, Want::Data, |blocks, content| {
            let (start, end) = (blocks.start * BLOCK_BYTES as u64, blocks.end() * BLOCK_BYTES as u64);
            let (from, to) = (start.max(self.span.offset), end.min(self.span.end()));
            match content {
                Content::Data(data) => bytes.push(data.slice((from - start) as usize..(to - start) as usize)),
                Content::Hole => push_zeros(&mut bytes, to - from),
                Content::Present | Content::Header { .. } | Content::Lost => {
                    unreachable!("content that covers a read is data or holes")
                }
            }
        });
        bytes
    }

    /// The content of the blocks, as pieces that cover them in order, in blocks of the volume.
    pub fn pieces(&self, old: &Old) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.for_each_piece(old, Want::Data, |range, content| pieces.push(Piece { range, content }));
        pieces
    }

    /// The blocks of the volume that have content, given answers to the same reads with `Want::Allocation`: runs in order, with their
    /// length and whether they have content. Neighbouring runs differ.
    ///
    /// A block that can't be read is reported as content if any other block of its row has content, although it may be a hole: its
    /// neighbours do not show more. A block that is reported as a hole always reads as zeros.
    pub fn allocation(&self, old: &Old) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        self.for_each_piece(old, Want::Allocation, |blocks, content| {
            let holds_data = content != Content::Hole;
            match runs.last_mut() {
                Some((count, before)) if *before == holds_data => *count += blocks.count,
                _ => runs.push((blocks.count, holds_data)),
            }
        });
        runs
    }

    /// Calls `see` for the volume's blocks in order, with their content.
    fn for_each_piece(&self, old: &Old, want: Want, mut see: impl FnMut(BlockRange, Content)) {
        for part in self.parts() {
            let mut see = |from: u64, piece: Piece| {
                let start = part.blocks.start + piece.range.start - from;
                see(BlockRange::new(start, piece.range.count), piece.content);
            };
            if self.absence.is_unreadable(part.place.position) {
                let (stripe, unit, row) = Stripe::of(&self.layout, &self.absence, part.blocks.start);
                let rows = BlockRange::new(row, part.blocks.count);
                stripe.worked_out(unit, rows, old, want).into_iter().for_each(|piece| see(row, piece));
            } else {
                old.content(part.place, part.blocks.count).for_each(|piece| see(0, piece));
            }
        }
    }
}

/// Appends zeros that share one static buffer.
pub(super) fn push_zeros(bytes: &mut Vec<Bytes>, mut count: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while count > 0 {
        let some = count.min(ZEROS.len() as u64);
        bytes.push(Bytes::from_static(&ZEROS[..some as usize]));
        count -= some;
    }
}
