//! Ranges of blocks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// `count` blocks from block `start` on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockRange {
    pub start: u64,
    /// The number of blocks. A range of none overlaps nothing.
    pub count: u64,
}

impl BlockRange {
    /// `count` blocks from `start` on.
    pub fn new(start: u64, count: u64) -> BlockRange {
        BlockRange { start, count }
    }

    /// The blocks from `start` up to `end`, exclusive; none if `end` is not above `start`.
    pub fn between(start: u64, end: u64) -> BlockRange {
        BlockRange { start, count: end.saturating_sub(start) }
    }

    /// The block after the last one.
    pub fn end(self) -> u64 {
        self.start.saturating_add(self.count)
    }

    /// True for a range of no blocks.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// True if the two share a block.
    pub fn overlaps(self, other: BlockRange) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The blocks in both.
    pub fn intersection(self, other: BlockRange) -> BlockRange {
        BlockRange::between(self.start.max(other.start), self.end().min(other.end()))
    }

    /// True if every block of `other` is in this one.
    pub fn contains(self, other: BlockRange) -> bool {
        other.is_empty() || (self.start <= other.start && other.end() <= self.end())
    }

    /// The block numbers.
    pub fn blocks(self) -> std::ops::Range<u64> {
        self.start..self.end()
    }
}

impl fmt::Debug for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.count)
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
