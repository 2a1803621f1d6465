//! The workload of clients: reads and writes of every size and alignment, on ranges that several clients share.

use crate::prelude::*;
use braid_check::history::CELL_BYTES;

/// The next operation of a client. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOperation {
    /// A hostread.
    Read { offset: u64, length: u64 },
    /// A hostwrite.
    Write { offset: u64, length: u64 },
    /// A hostwrite of zeros.
    Zero { offset: u64, length: u64 },
    /// A request for the allocated blocks.
    Allocation {
        /// The blocks in question.
        range: BlockRange,
    },
}

/// A generator of operations.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: Rng,
    bytes: u64,
    unit: u64,
    stripe: u64,
    reads: u64,
    zeros: u64,
    hot: u64,
}

impl Workload {
    /// A generator for a volume of this many stripes.
    pub fn new(layout: &Layout, stripes: u64, mut rng: Rng) -> Workload {
        let unit = layout.unit_blocks() * BLOCK_BYTES as u64;
        let stripe = layout.stripe_blocks() * BLOCK_BYTES as u64;
        let (reads, zeros) = (rng.between(20, 70), [0, 5, 20][rng.below(3) as usize]);
        let hot = rng.below(stripes) * stripe;
        Workload { rng, bytes: stripes * stripe, unit, stripe, reads, zeros, hot }
    }

    /// The volume has so many bytes now: it may have grown.
    pub fn follow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes / self.stripe * self.stripe);
    }

    /// The next operation.
    pub fn operation(&mut self) -> ClientOperation {
        let (offset, length) = self.range();
        let kind = self.rng.below(100);
        if kind < 3 {
            let block = BLOCK_BYTES as u64;
            return ClientOperation::Allocation {
                range: BlockRange::between(offset / block, (offset + length).div_ceil(block)),
            };
        }
        if kind < self.reads {
            return ClientOperation::Read { offset, length };
        }
        if self.rng.chance(self.zeros, 100) {
            ClientOperation::Zero { offset, length }
        } else {
            ClientOperation::Write { offset, length }
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let block = BLOCK_BYTES as u64;
        let start =
            if self.rng.chance(1, 2) { self.hot + self.rng.below(self.stripe) } else { self.rng.below(self.bytes) };
        let down = |to: u64| start / to * to;
        let (offset, length) = match self.rng.below(12) {
            0..4 => (down(block), block),
            4 | 5 => (down(block), block * self.rng.between(1, self.stripe / block)),
            6 => (down(self.unit), self.unit),
            7 => (down(self.stripe), self.stripe),
            8 => (down(self.stripe), self.stripe * self.rng.between(1, 3)),
            9 => (start, self.rng.between(1, 2 * self.stripe)),
            _ => (start, self.rng.between(1, 2 * block)),
        };
        let cell = CELL_BYTES as u64;
        let (offset, length) = (offset / cell * cell, length.div_ceil(cell) * cell);
        (offset, length.min(self.bytes - offset))
    }
}
