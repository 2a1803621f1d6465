//! Small types that all modules of the object index share.

use braid_objects::Key;
use std::ops::Add;

/// Lengths on the disk are rounded up to this.
pub(crate) const SECTOR: usize = 512;

/// The smallest number of slots of a round. With these it makes progress in any case, even for a leaf full of the largest entries on both
/// sides of another one, and index nodes that must be split.
pub const ROUND_SLOTS_MIN: u32 = 16;

/// Sizes and limits. All but the last two must not change as long as the object index has anything on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most bytes of a leaf, which is the size of a slot.
    pub leaf_bytes: usize,
    /// The most leaves that an index node names.
    pub node_leaves: usize,
    /// The most bytes of leaves in memory.
    pub cache_bytes: usize,
    /// Slots that a round of merging gets; at least [`ROUND_SLOTS_MIN`].
    pub round_slots: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { leaf_bytes: 73_728, node_leaves: 2048, cache_bytes: 64 << 20, round_slots: ROUND_SLOTS_MIN }
    }
}

/// The location of a leaf or an index node: its slot, its length, and its checksum. So a leaf from another place, or a write that never
/// reached the disk, is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRef {
    pub slot: u32,
    /// Bytes in use from the slot's start.
    pub length: u32,
    /// The checksum of these bytes without the first eight.
    pub checksum: u32,
}

impl SlotRef {
    /// Bytes to read: whole sectors.
    pub fn read_len(&self) -> usize {
        (self.length as usize).next_multiple_of(SECTOR)
    }
}

/// The location of an index node, and the first key that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub first: Key,
    pub place: SlotRef,
}

/// How much changes may make the leaves grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// The number of changes that make a leaf longer.
    pub entries: u64,
    /// The bytes that they add in all.
    pub bytes: u64,
}

impl Growth {
    /// True if no leaf grows.
    pub fn is_none(&self) -> bool {
        self.entries == 0
    }
}

impl Add for Growth {
    type Output = Growth;

    fn add(self, other: Growth) -> Growth {
        Growth { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

/// Counters of an object index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Leaves on the disk.
    pub leaves: u64,
    /// Index nodes on the disk.
    pub nodes: u64,
    /// Changes in memory that are not merged yet.
    pub pending: u64,
    /// Leaves in memory.
    pub leaves_cached: u64,
    /// Bytes of the leaves in memory.
    pub bytes_cached: u64,
    /// Leaves that were read for lookups.
    pub leaves_read: u64,
    /// Leaves that were written.
    pub leaves_written: u64,
    /// Leaves that were found damaged.
    pub leaves_damaged: u64,
}
