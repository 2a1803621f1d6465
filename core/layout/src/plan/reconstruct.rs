//! Reconstruction computes a unit's blocks without its device.

use super::old::Old;
use super::read::push_zeros;
use super::stripe::Stripe;
use super::{Share, Shares, Span};
use crate::{Absence, Layout, Unavailable};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Want};
use bytes::Bytes;

/// The plan of a reconstruction: it reads the blocks of the other data units and of a redundancy unit, the XOR of which is the unit's
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconstructPlan {
    layout: Layout,
    absence: Absence,
    blocks: BlockRange,
    shares: Vec<Share>,
}

impl ReconstructPlan {
    /// A reconstruction of `length` bytes at `offset`: whole blocks within one stripe unit of the volume. It does not matter whether that
    /// unit can be read.
    pub fn new(
        layout: &Layout,
        absence: &Absence,
        offset: u64,
        length: u64,
    ) -> Result<ReconstructPlan, ReconstructError> {
        let block_bytes = BLOCK_BYTES as u64;
        if !offset.is_multiple_of(block_bytes) || !length.is_multiple_of(block_bytes) || length == 0 {
            return Err(ReconstructError::NotBlocks);
        }
        if layout.redundancy_units() == 0 {
            return Err(ReconstructError::NoRedundancy);
        }
        let blocks = Span::new(offset, length).blocks();
        let (stripe, unit, row) = Stripe::of(layout, absence, blocks.start);
        if row + blocks.count > layout.unit_blocks() {
            return Err(ReconstructError::SeveralUnits { unit_bytes: layout.unit_blocks() * block_bytes });
        }
        let mut shares = Shares::default();
        stripe.read_sources(unit, BlockRange::new(row, blocks.count), &mut shares)?;
        Ok(ReconstructPlan { layout: *layout, absence: absence.clone(), blocks, shares: shares.0 })
    }

    /// The work of each device. The unit's own device has no share.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The bytes asked for, computed from the rest of the stripe.
    pub fn compute(&self, old: &Old) -> Vec<Bytes> {
        let (stripe, unit, row) = Stripe::of(&self.layout, &self.absence, self.blocks.start);
        let mut bytes = Vec::new();
        for piece in stripe.worked_out(unit, BlockRange::new(row, self.blocks.count), old, Want::Data) {
            match piece.content {
                Content::Data(data) => bytes.push(data),
                _ => push_zeros(&mut bytes, piece.range.count * BLOCK_BYTES as u64),
            }
        }
        bytes
    }
}

/// Why a range can't be reconstructed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconstructError {
    #[error(
        "only whole blocks of 4096 bytes can be reconstructed: choose an offset and a length that are multiples of it"
    )]
    NotBlocks,
    #[error("a reconstruction stays within one stripe unit of {unit_bytes} bytes: cut the range there")]
    SeveralUnits {
        /// The volume's stripe unit.
        unit_bytes: u64,
    },
    /// The layout is RAID 0.
    #[error("the volume's layout has no redundancy: nothing can be reconstructed")]
    NoRedundancy,
    /// Other units that are needed can't be read.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}
