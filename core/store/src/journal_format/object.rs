//! The journal's record of an object of blocks.

use super::fields::{put_ordering, take_ordering};
use crate::block::CHUNK_BLOCKS;
use braid_base::ObjectId;
use braid_journal::DecodeError;
use braid_ordering::Atomicity;
use braid_wire::ObjectDescription;
use bytes::{Buf, BufMut};

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
}

/// Neighbouring entries of the chunk map. An object's extents are in the order of its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapExtent {
    pub start: u32,
    pub count: u32,
}

pub(super) fn put_object(to: &mut Vec<u8>, kind: u8, object: &ObjectRecord) {
    to.put_u8(kind);
    to.put_u64_le(object.description.object.0);
    to.put_u64_le(object.description.first);
    to.put_u64_le(object.description.blocks);
    put_ordering(to, object.description.ordering);
    to.put_u8(u8::from(object.description.redundant));
    to.put_u8(match object.description.atomicity {
        Atomicity::Implied => 0,
        Atomicity::Consistent => 1,
    });
    to.put_u32_le(object.extents.len() as u32);
    for extent in &object.extents {
        to.put_u32_le(extent.start);
        to.put_u32_le(extent.count);
    }
}

pub(super) fn take_object(from: &mut &[u8]) -> Result<ObjectRecord, DecodeError> {
    let description = ObjectDescription {
        object: ObjectId(from.try_get_u64_le()?),
        first: from.try_get_u64_le()?,
        blocks: from.try_get_u64_le()?,
        ordering: take_ordering(from)?,
        redundant: match from.try_get_u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError),
        },
        atomicity: match from.try_get_u8()? {
            0 => Atomicity::Implied,
            1 => Atomicity::Consistent,
            _ => return Err(DecodeError),
        },
    };
    let extents = (0..from.try_get_u32_le()?)
        .map(|_| Ok(MapExtent { start: from.try_get_u32_le()?, count: from.try_get_u32_le()? }))
        .collect::<Result<Vec<_>, DecodeError>>()?;
    let chunks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
    let end = description.first.checked_add(description.blocks);
    let possible = |end: u64| end <= u64::from(u32::MAX) * CHUNK_BLOCKS;
    if !description.first.is_multiple_of(CHUNK_BLOCKS) || !end.is_some_and(possible) {
        return Err(DecodeError);
    }
    if chunks != description.blocks.div_ceil(CHUNK_BLOCKS) {
        return Err(DecodeError);
    }
    Ok(ObjectRecord { description, extents })
}
