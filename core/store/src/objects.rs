//! The objects of a device, and which entries of the chunk map are theirs.

use crate::block::CHUNK_BLOCKS;
use crate::record::{MapExtent, ObjectRecord};
use braid_base::{BlockRange, ObjectId, limits};
use braid_wire::{Failure, ObjectDescription, Ordering};
use std::collections::BTreeMap;

/// The object table.
#[derive(Debug)]
pub(crate) struct Objects {
    objects: BTreeMap<ObjectId, Object>,
    /// Entries of the map that are nobody's: first entry and count, no two runs touching.
    free: BTreeMap<u32, u32>,
    /// Chunks that more objects may have.
    room: u64,
    /// What all records take in the journal.
    journal_len: u64,
}

#[derive(Debug)]
struct Object {
    record: ObjectRecord,
    /// The first chunk of each extent.
    firsts: Vec<u32>,
}

impl Objects {
    /// No objects yet: a map of so many entries, of which objects may use `room`.
    pub fn new(entries: u32, room: u64) -> Objects {
        Objects { objects: BTreeMap::new(), free: [(0, entries)].into(), room, journal_len: 0 }
    }

    /// The object, if there is one.
    pub fn get(&self, object: ObjectId) -> Option<&ObjectRecord> {
        self.objects.get(&object).map(|object| &object.record)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &ObjectRecord> {
        self.objects.values().map(|object| &object.record)
    }

    /// Which entry of the map describes a chunk.
    pub fn entry(&self, object: ObjectId, chunk: u32) -> Option<usize> {
        let object = self.objects.get(&object)?;
        let which = object.firsts.partition_point(|first| *first <= chunk) - 1;
        let extent = object.record.extents.get(which)?;
        let within = chunk - object.firsts[which];
        (within < extent.count).then(|| (extent.start + within) as usize)
    }

    /// True if `range` is within the object.
    pub fn contains(&self, object: ObjectId, range: BlockRange) -> bool {
        let whole = |object: &Object| BlockRange::new(0, object.record.description.blocks).contains(range);
        self.objects.get(&object).is_some_and(whole)
    }

    /// Chunks that more objects may have.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Bytes that all objects take in a snapshot.
    pub fn journal_len(&self) -> u64 {
        self.journal_len
    }

    /// Finds room for an object: the record with which to [`insert`](Objects::insert) it.
    pub fn place(&self, description: ObjectDescription) -> Result<ObjectRecord, Failure> {
        let chunks = description.blocks.div_ceil(CHUNK_BLOCKS);
        if self.objects.len() >= limits::OBJECTS_MAX || chunks > self.room {
            return Err(Failure::NoSpace);
        }
        let mut missing = chunks as u32;
        let mut extents = Vec::new();
        for (start, count) in &self.free {
            if missing == 0 {
                break;
            }
            let count = missing.min(*count);
            extents.push(MapExtent { start: *start, count });
            missing -= count;
        }
        assert_eq!(missing, 0, "the map has an entry for each slot");
        Ok(ObjectRecord { description, extents })
    }

    /// Takes in an object; false if its entries are not free, or it is there already.
    pub fn insert(&mut self, record: ObjectRecord) -> bool {
        let chunks = record.description.blocks.div_ceil(CHUNK_BLOCKS);
        if self.objects.contains_key(&record.description.object) || chunks > self.room {
            return false;
        }
        if !record.extents.iter().all(|extent| self.claim(*extent)) {
            return false;
        }
        let first = |at: &mut u32, extent: &MapExtent| Some(std::mem::replace(at, *at + extent.count));
        let firsts = record.extents.iter().scan(0, first).collect();
        self.room -= chunks;
        self.journal_len += record.journal_len();
        self.objects.insert(record.description.object, Object { record, firsts });
        true
    }

    /// Orders an object otherwise; false if there is none of that name.
    pub fn set_ordering(&mut self, object: ObjectId, ordering: Ordering) -> bool {
        let known = self.objects.get_mut(&object);
        known.map(|object| object.record.description.ordering = ordering).is_some()
    }

    /// Takes out an object.
    pub fn remove(&mut self, object: ObjectId) -> Option<ObjectRecord> {
        let record = self.objects.remove(&object)?.record;
        self.journal_len -= record.journal_len();
        self.room += record.description.blocks.div_ceil(CHUNK_BLOCKS);
        for extent in &record.extents {
            self.give_back(*extent);
        }
        Some(record)
    }

    fn claim(&mut self, wanted: MapExtent) -> bool {
        let Some((start, count)) = self.free.range(..=wanted.start).next_back().map(|(start, count)| (*start, *count))
        else {
            return false;
        };
        let (end, wanted_end) = (start + count, u64::from(wanted.start) + u64::from(wanted.count));
        if wanted_end > u64::from(end) {
            return false;
        }
        self.free.remove(&start);
        let wanted_end = wanted_end as u32;
        for (start, end) in [(start, wanted.start), (wanted_end, end)] {
            if start < end {
                self.free.insert(start, end - start);
            }
        }
        true
    }

    fn give_back(&mut self, extent: MapExtent) {
        let (mut start, mut count) = (extent.start, extent.count);
        if let Some(behind) = self.free.remove(&(start + count)) {
            count += behind;
        }
        if let Some((before, length)) = self.free.range(..start).next_back().map(|(start, count)| (*start, *count))
            && before + length == start
        {
            start = before;
            count += length;
        }
        self.free.insert(start, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_wire::Atomicity;

    fn description(object: u64, chunks: u64) -> ObjectDescription {
        let blocks = chunks * CHUNK_BLOCKS - 1;
        ObjectDescription {
            object: ObjectId(object),
            blocks,
            ordering: Ordering::Timestamp,
            redundant: true,
            atomicity: Atomicity::Implied,
        }
    }

    #[test]
    fn a_removed_objects_room_is_used_again_in_parts() {
        let mut objects = Objects::new(100, 90);
        for object in 0..9 {
            let record = objects.place(description(object, 10)).expect("there is room");
            assert!(objects.insert(record));
        }
        assert_eq!(objects.place(description(10, 1)), Err(Failure::NoSpace));
        for object in [1, 3, 4] {
            assert!(objects.remove(ObjectId(object)).is_some());
        }
        let record = objects.place(description(10, 25)).expect("there is room");
        let pieces: Vec<_> = record.extents.iter().map(|extent| (extent.start, extent.count)).collect();
        assert_eq!(pieces, [(10, 10), (30, 15)]);
        assert!(objects.insert(record.clone()));
        assert!(!objects.insert(record), "it is there already");
        assert_eq!(objects.entry(ObjectId(10), 9), Some(19));
        assert_eq!(objects.entry(ObjectId(10), 10), Some(30));
        assert_eq!(objects.entry(ObjectId(10), 24), Some(44));
        assert_eq!(objects.entry(ObjectId(10), 25), None);
        assert!(objects.contains(ObjectId(10), BlockRange::new(398, 1)));
        assert!(!objects.contains(ObjectId(10), BlockRange::new(398, 2)));
    }
}
