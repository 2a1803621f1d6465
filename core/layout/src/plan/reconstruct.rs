//! The plan that works out a unit's blocks without its device.

use super::old::Old;
use super::parity::{push_old, xor};
use super::read::push_zeros;
use super::{Share, Shares, Span};
use crate::{Layout, Place};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_wire::Content;
use bytes::Bytes;

/// Reads the other data units' blocks and the first redundancy unit's, the XOR of which is what the unit holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconstructPlan {
    layout: Layout,
    stripe: u64,
    unit: usize,
    rows: BlockRange,
    shares: Vec<Share>,
}

impl ReconstructPlan {
    /// A reconstruction of `length` bytes at `offset`: whole blocks within one stripe unit of the volume.
    pub fn new(layout: &Layout, offset: u64, length: u64) -> Result<ReconstructPlan, ReconstructError> {
        let block_bytes = BLOCK_BYTES as u64;
        if !offset.is_multiple_of(block_bytes) || !length.is_multiple_of(block_bytes) || length == 0 {
            return Err(ReconstructError::NotBlocks);
        }
        if layout.redundancy_units() == 0 {
            return Err(ReconstructError::NoRedundancy);
        }
        let blocks = Span::new(offset, length).blocks();
        let (within, unit_blocks) = (blocks.start % layout.stripe_blocks(), layout.unit_blocks());
        let rows = BlockRange::new(within % unit_blocks, blocks.count);
        if rows.end() > unit_blocks {
            return Err(ReconstructError::SeveralUnits { unit_bytes: unit_blocks * block_bytes });
        }
        let stripe = blocks.start / layout.stripe_blocks();
        let unit = (within / unit_blocks) as usize;
        let mut plan = ReconstructPlan { layout: *layout, stripe, unit, rows, shares: Vec::new() };
        let mut shares = Shares::default();
        for unit in plan.sources() {
            shares.read(Place { block: unit.block + rows.start, ..unit }, rows.count);
        }
        plan.shares = shares.0;
        Ok(plan)
    }

    /// What each device reads. The unit's own device has no share.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The bytes asked for, as the rest of the stripe has them.
    pub fn compute(&self, old: &Old) -> Vec<Bytes> {
        let mut sources = Vec::new();
        for unit in self.sources() {
            push_old(&mut sources, old, unit, self.rows);
        }
        let mut bytes = Vec::new();
        for piece in xor(self.rows, sources) {
            match piece.content {
                Content::Data(data) => bytes.push(data),
                _ => push_zeros(&mut bytes, piece.range.count * BLOCK_BYTES as u64),
            }
        }
        bytes
    }

    /// Where the units begin that stand in for the one.
    fn sources(&self) -> impl Iterator<Item = Place> {
        let others = (0..self.layout.data_units()).filter(|unit| *unit != self.unit);
        let data = others.map(|unit| self.layout.data_unit(self.stripe, unit));
        data.chain([self.layout.redundancy_unit(self.stripe, 0)])
    }
}

/// Why a range can't be reconstructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconstructError {
    /// It does not begin and end with a block.
    #[error(
        "only whole blocks of 4096 bytes can be reconstructed: choose an offset and a length that are multiples of it"
    )]
    NotBlocks,
    /// It reaches into the next stripe unit.
    #[error("a reconstruction stays within one stripe unit of {unit_bytes} bytes: cut the range there")]
    SeveralUnits {
        /// The volume's stripe unit.
        unit_bytes: u64,
    },
    /// RAID 0.
    #[error("the volume's layout has no redundancy: nothing can be reconstructed")]
    NoRedundancy,
}
