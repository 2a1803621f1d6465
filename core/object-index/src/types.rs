//! Small types that all parts of an object index share.

use braid_objects::Key;
use std::ops::Add;

/// Lengths are rounded up to this on the disk.
pub(crate) const SECTOR: usize = 512;

/// The least slots that a round must have: it then gets on, whatever it finds (a leaf full of the largest entries on both sides of
/// another one, and index nodes that must be cut in two).
pub const ROUND_SLOTS_MIN: u32 = 16;

/// How large things are. All but the last two must stay as they are for as long as there is anything on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most bytes of a leaf: a slot's.
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

/// Where a leaf or an index node is: in which slot, how many bytes of it, and their checksum. So one that was written elsewhere, or should
/// have been and was not, is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRef {
    /// The slot.
    pub slot: u32,
    /// Bytes in use, from its start.
    pub length: u32,
    /// Of those, but for the first eight.
    pub checksum: u32,
}

impl SlotRef {
    /// Bytes to read: whole sectors.
    pub fn read_len(&self) -> usize {
        (self.length as usize).next_multiple_of(SECTOR)
    }
}

/// Where an index node is, and the first key that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The first key.
    pub first: Key,
    /// Where the node is.
    pub place: SlotRef,
}

/// By how much changes may make the leaves grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Changes that make a leaf longer.
    pub entries: u64,
    /// By so much in all.
    pub bytes: u64,
}

impl Growth {
    /// True if nothing grows.
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

/// What an object index counts.
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
    /// Their bytes.
    pub bytes_cached: u64,
    /// Leaves that were read for lookups.
    pub leaves_read: u64,
    /// Leaves that were written.
    pub leaves_written: u64,
    /// Leaves that were found damaged.
    pub leaves_damaged: u64,
}
