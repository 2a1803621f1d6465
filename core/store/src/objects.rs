//! The table of a device's objects, with the entries of the chunk map that belong to each.

use crate::block::CHUNK_BLOCKS;
use crate::journal_format::{MapExtent, ObjectRecord};
use braid_base::{BlockRange, ObjectId, limits};
use braid_ordering::Ordering;
use braid_wire::{Failure, ObjectDescription};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct Objects {
    objects: BTreeMap<ObjectId, Object>,
    /// Free entries of the map: first entry and count. No two runs touch.
    free: BTreeMap<u32, u32>,
    /// How many chunks more objects may have.
    room: u64,
    /// Bytes that all records take in the journal.
    journal_len: u64,
}

#[derive(Clone, Debug)]
struct Object {
    record: ObjectRecord,
    /// The first chunk of each extent, counted from the object's first chunk.
    firsts: Vec<u32>,
}

impl Objects {
    /// An empty table for a map of `entries` entries, of which objects may use `room`.
    pub fn new(entries: u32, room: u64) -> Objects {
        Objects { objects: BTreeMap::new(), free: [(0, entries)].into(), room, journal_len: 0 }
    }

    pub fn get(&self, object: ObjectId) -> Option<&ObjectRecord> {
        self.objects.get(&object).map(|object| &object.record)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ObjectRecord> {
        self.objects.values().map(|object| &object.record)
    }

    /// The index of the map entry of a chunk.
    pub fn entry(&self, object: ObjectId, chunk: u32) -> Option<usize> {
        let object = self.objects.get(&object)?;
        let chunk = chunk.checked_sub(first_chunk(&object.record.description))?;
        let which = object.firsts.partition_point(|first| *first <= chunk).checked_sub(1)?;
        let extent = object.record.extents.get(which)?;
        let within = chunk - object.firsts[which];
        (within < extent.count).then(|| (extent.start + within) as usize)
    }

    /// True if `range` is within the object.
    pub fn contains(&self, object: ObjectId, range: BlockRange) -> bool {
        let whole = |object: &Object| object.record.description.range().contains(range);
        self.objects.get(&object).is_some_and(whole)
    }

    /// How many chunks more objects may have.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Bytes that all objects take in a snapshot.
    pub fn journal_len(&self) -> u64 {
        self.journal_len
    }

    /// Finds map entries for an object, and returns the record with which to [`insert`](Objects::insert) it. `kept_back` chunks of the
    /// room must stay free.
    pub fn place(&self, description: ObjectDescription, kept_back: u64) -> Result<ObjectRecord, Failure> {
        let chunks = description.blocks.div_ceil(CHUNK_BLOCKS);
        if self.objects.len() >= limits::OBJECTS_MAX || chunks > self.room.saturating_sub(kept_back) {
            return Err(Failure::NoSpace);
        }
        let mut free = self.free_entries();
        let extents = take(&mut free, chunks as u32);
        Ok(ObjectRecord { description, extents })
    }

    /// Finds map entries for an object whose range of blocks changes, and returns its new record. Chunks that it keeps keep their
    /// entries.
    pub fn place_resized(&self, object: ObjectId, range: BlockRange, kept_back: u64) -> Result<ObjectRecord, Failure> {
        let held = self.objects.get(&object).ok_or(Failure::NoSuchObject)?;
        let description = ObjectDescription { first: range.start, blocks: range.count, ..held.record.description };
        let (before, after) = (chunks_of(&held.record.description), chunks_of(&description));
        let kept = before.start.max(after.start)..before.end.min(after.end);
        let kept = if kept.is_empty() { after.end..after.end } else { kept };
        let new = (after.len() - kept.len()) as u64;
        if new > self.room.saturating_sub(kept_back) + (before.len() - kept.len()) as u64 {
            return Err(Failure::NoSpace);
        }
        // The entries that it loses are free only after the change, so the map may be too full although there is room.
        let mut free = self.free_entries();
        let free_in_all: u64 = free.iter().map(|extent| u64::from(extent.count)).sum();
        if new > free_in_all {
            return Err(Failure::NoSpace);
        }
        let mut extents = take(&mut free, kept.start - after.start);
        if !kept.is_empty() {
            extents.extend(held.part(kept.start - before.start..kept.end - before.start));
        }
        extents.extend(take(&mut free, after.end - kept.end));
        Ok(ObjectRecord { description, extents })
    }

    /// Replaces an object's record. Returns the entries that it gains, and those that it loses; none if an entry is not free. Replay may
    /// begin with a snapshot that shows what later records repeat: by then the entries of a growth that was taken back may be another
    /// object's.
    pub fn resize(&mut self, record: ObjectRecord) -> Option<(Vec<u32>, Vec<u32>)> {
        let object = record.description.object;
        let before = self.objects.get(&object)?.record.clone();
        let (old, new) = (entries_of(&before), entries_of(&record));
        self.remove(object);
        if !self.insert(record) {
            assert!(self.insert(before), "what fails to be inserted leaves its old map entries free");
            return None;
        }
        Some((new.difference(&old).copied().collect(), old.difference(&new).copied().collect()))
    }

    fn free_entries(&self) -> VecDeque<MapExtent> {
        self.free.iter().map(|(start, count)| MapExtent { start: *start, count: *count }).collect()
    }

    /// Adds an object. Returns false if its entries are not free, or if it exists already.
    pub fn insert(&mut self, record: ObjectRecord) -> bool {
        let chunks = record.description.blocks.div_ceil(CHUNK_BLOCKS);
        if self.objects.contains_key(&record.description.object) || chunks > self.room {
            return false;
        }
        if let Some(taken) = record.extents.iter().position(|extent| !self.reserve(*extent)) {
            record.extents[..taken].iter().for_each(|extent| self.give_back(*extent));
            return false;
        }
        let first = |at: &mut u32, extent: &MapExtent| Some(std::mem::replace(at, *at + extent.count));
        let firsts = record.extents.iter().scan(0, first).collect();
        self.room -= chunks;
        self.journal_len += record.journal_len();
        self.objects.insert(record.description.object, Object { record, firsts });
        true
    }

    /// True if the object is part of a volume that has redundancy.
    pub fn is_redundant(&self, object: ObjectId) -> bool {
        self.get(object).is_some_and(|record| record.description.redundant)
    }

    /// Changes an object's ordering. Returns false if there is no such object.
    pub fn set_ordering(&mut self, object: ObjectId, ordering: Ordering) -> bool {
        let known = self.objects.get_mut(&object);
        known.map(|object| object.record.description.ordering = ordering).is_some()
    }

    pub fn remove(&mut self, object: ObjectId) -> Option<ObjectRecord> {
        let record = self.objects.remove(&object)?.record;
        self.journal_len -= record.journal_len();
        self.room += record.description.blocks.div_ceil(CHUNK_BLOCKS);
        for extent in &record.extents {
            self.give_back(*extent);
        }
        Some(record)
    }

    fn reserve(&mut self, wanted: MapExtent) -> bool {
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

impl Object {
    /// The map entries of some of the object's chunks, counted from its first chunk.
    fn part(&self, chunks: Range<u32>) -> Vec<MapExtent> {
        let cut = |(first, extent): (&u32, &MapExtent)| {
            let (start, end) = (chunks.start.max(*first), chunks.end.min(first + extent.count));
            (start < end).then(|| MapExtent { start: extent.start + (start - first), count: end - start })
        };
        self.firsts.iter().zip(&self.record.extents).filter_map(cut).collect()
    }
}

/// The number of an object's first chunk.
fn first_chunk(description: &ObjectDescription) -> u32 {
    (description.first / CHUNK_BLOCKS) as u32
}

/// The numbers of an object's chunks.
fn chunks_of(description: &ObjectDescription) -> Range<u32> {
    let first = first_chunk(description);
    first..first + description.blocks.div_ceil(CHUNK_BLOCKS) as u32
}

fn entries_of(record: &ObjectRecord) -> BTreeSet<u32> {
    record.extents.iter().flat_map(|extent| extent.start..extent.start + extent.count).collect()
}

/// Takes the first `missing` of these entries.
fn take(free: &mut VecDeque<MapExtent>, mut missing: u32) -> Vec<MapExtent> {
    let mut extents = Vec::new();
    while missing > 0 {
        let first = free.front_mut().expect("the map has an entry for each slot");
        let count = missing.min(first.count);
        extents.push(MapExtent { start: first.start, count });
        missing -= count;
        (first.start, first.count) = (first.start + count, first.count - count);
        if first.count == 0 {
            free.pop_front();
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(object: u64, chunks: u64) -> ObjectDescription {
        let blocks = chunks * CHUNK_BLOCKS - 1;
        ObjectDescription::new(ObjectId(object), blocks)
    }

    #[test]
    fn a_removed_objects_room_is_used_again_in_parts() {
        let mut objects = Objects::new(100, 90);
        for object in 0..9 {
            let record = objects.place(description(object, 10), 0).expect("there is room");
            assert!(objects.insert(record));
        }
        assert_eq!(objects.place(description(10, 1), 0), Err(Failure::NoSpace));
        for object in [1, 3, 4] {
            assert!(objects.remove(ObjectId(object)).is_some());
        }
        let record = objects.place(description(10, 25), 0).expect("there is room");
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

    #[test]
    fn a_resized_object_keeps_the_entries_of_what_it_keeps() {
        let mut objects = Objects::new(100, 90);
        for object in [1, 2] {
            let record = objects.place(description(object, 10), 0).expect("there is room");
            assert!(objects.insert(record));
        }
        let one = ObjectId(1);
        let chunks = |first: u64, count: u64| BlockRange::new(first * CHUNK_BLOCKS, count * CHUNK_BLOCKS);
        let mut resize = |range| {
            let record = objects.place_resized(one, range, 0)?;
            let (new, old) = objects.resize(record).expect("it is there");
            let entries: Vec<_> = (0..40).map(|chunk| objects.entry(one, chunk)).collect();
            Ok((new.len(), old.len(), entries))
        };
        let (new, old, entries) = resize(chunks(0, 30)).unwrap();
        assert_eq!((new, old), (20, 0));
        assert_eq!(entries[9..12], [Some(9), Some(20), Some(21)]);
        let (new, old, entries) = resize(chunks(5, 25)).unwrap();
        assert_eq!((new, old), (0, 5));
        assert_eq!((entries[4], entries[5], entries[29], entries[30]), (None, Some(5), Some(39), None));
        let (new, old, entries) = resize(chunks(2, 5)).unwrap();
        assert_eq!((new, old), (3, 23));
        assert_eq!((entries[2], entries[5], entries[6], entries[7]), (Some(0), Some(5), Some(6), None));
        for (elsewhere, gained, lost) in [(chunks(20, 2), 2, 5), (chunks(3, 4), 4, 2), (chunks(200, 80), 80, 4)] {
            let (new, old, _) = resize(elsewhere).unwrap();
            assert_eq!((new, old), (gained, lost), "nothing is kept");
        }
        assert_eq!(resize(chunks(200, 81)), Err(Failure::NoSpace));
        assert_eq!(objects.room(), 0);
    }
}
