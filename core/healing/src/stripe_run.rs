//! A run of stripes: the part of a volume that one step restores.

use braid_base::{BLOCK_BYTES, BlockRange};

/// Some stripes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeRun {
    /// Blocks of the volume: whole stripes.
    pub blocks: BlockRange,
    pub weight: u64,
    /// True if blocks with content are likely to be restored, and not only holes.
    pub moves: bool,
}

impl StripeRun {
    /// The bytes that count against the budget.
    pub fn bytes(&self) -> u64 {
        if self.moves { self.weight * BLOCK_BYTES as u64 } else { 0 }
    }

    /// Splits off about `blocks` blocks of the device, and returns them and the rest. The cut is at the end of a stripe.
    pub fn cut(self, blocks: u64, stripe: u64) -> (StripeRun, Option<StripeRun>) {
        let all = self.blocks;
        if !self.moves || self.weight <= blocks {
            return (self, None);
        }
        let count = (all.count * blocks / self.weight / stripe).max(1) * stripe;
        if count >= all.count {
            return (self, None);
        }
        let weight = (self.weight * count).div_ceil(all.count).min(self.weight);
        let first = StripeRun { blocks: BlockRange::new(all.start, count), weight, moves: true };
        let blocks = BlockRange::between(all.start + count, all.end());
        (first, Some(StripeRun { blocks, weight: self.weight - weight, moves: true }))
    }
}
