//! The journal's record of an object of blocks.

use crate::block::CHUNK_BLOCKS;
use braid_wire::ObjectDescription;

/// An object, with the entries of the chunk map that describe its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub description: ObjectDescription,
    pub extents: Vec<MapExtent>,
}

impl ObjectRecord {
    /// Bytes that it takes in the journal.
    pub fn journal_len(&self) -> u64 {
        (1 + 8 + 8 + 8 + 1 + 1 + 1 + 4 + 8 * self.extents.len()) as u64
    }

    /// True if the object begins with a chunk, has an entry for each of its chunks, and ends where an object may.
    pub(super) fn is_sound(&self) -> bool {
        let ObjectDescription { first, blocks, .. } = self.description;
        let chunks: u64 = self.extents.iter().map(|extent| u64::from(extent.count)).sum();
        let is_possible = |end: u64| end <= u64::from(u32::MAX) * CHUNK_BLOCKS;
        first.is_multiple_of(CHUNK_BLOCKS)
            && first.checked_add(blocks).is_some_and(is_possible)
            && chunks == blocks.div_ceil(CHUNK_BLOCKS)
    }
}

/// Neighbouring entries of the chunk map. An object's extents are in the order of its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapExtent {
    pub start: u32,
    pub count: u32,
}
