//! A part of a volume that is restored at once.

use braid_base::{BLOCK_BYTES, BlockRange};

/// Some stripes, and how many blocks of the device that brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// Blocks of the volume: whole stripes.
    pub blocks: BlockRange,
    pub weight: u64,
    /// Whether anything is likely to be moved.
    pub moves: bool,
}

impl Portion {
    /// What counts against the budget.
    pub fn bytes(&self) -> u64 {
        if self.moves { self.weight * BLOCK_BYTES as u64 } else { 0 }
    }

    /// About so many blocks of the device, and what is left. It is cut where stripes end.
    pub fn cut(self, blocks: u64, stripe: u64) -> (Portion, Option<Portion>) {
        let all = self.blocks;
        if !self.moves || self.weight <= blocks {
            return (self, None);
        }
        let count = (all.count * blocks / self.weight / stripe).max(1) * stripe;
        if count >= all.count {
            return (self, None);
        }
        let weight = (self.weight * count).div_ceil(all.count).min(self.weight);
        let first = Portion { blocks: BlockRange::new(all.start, count), weight, moves: true };
        let blocks = BlockRange::between(all.start + count, all.end());
        (first, Some(Portion { blocks, weight: self.weight - weight, moves: true }))
    }
}
