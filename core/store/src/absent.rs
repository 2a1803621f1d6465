//! Absent blocks: blocks of objects that were created on this device while the other devices held the content that belongs there
//! (`docs/healing.md`). They can't be read here until they are rebuilt.
//!
//! The set follows from the journal's records, live and in replay. An object is created absent as a whole; a block is present from the
//! commit of the transaction that writes it. The room for the set in a snapshot is bounded: when there are too many runs, the closest
//! neighbours are joined, and the blocks between them become absent again. So a rebuild may write more blocks than are absent, but never
//! fewer.

use crate::journal_format::{MISSED_PER_RECORD, Record, missed_len};
use braid_base::{BlockRange, Extents, ObjectId};
use std::collections::BTreeMap;

/// The absent blocks of each object.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    /// No entry is empty. As a rule there are no entries at all, and then a commit costs nothing here.
    objects: BTreeMap<ObjectId, Extents>,
    /// Bytes that the extents take in a snapshot. `budget` is about the most that they may take.
    bytes: u64,
    budget: u64,
}

impl Absent {
    /// An empty set. Its extents may take about `budget` bytes of a snapshot.
    pub fn new(budget: u64) -> Absent {
        Absent { objects: BTreeMap::new(), bytes: 0, budget }
    }

    /// Marks blocks as absent.
    pub fn insert(&mut self, object: ObjectId, blocks: BlockRange) {
        if !blocks.is_empty() {
            self.change(object, |extents| extents.insert(blocks));
        }
    }

    /// Marks blocks as present.
    pub fn remove(&mut self, object: ObjectId, blocks: BlockRange) {
        if !self.objects.is_empty() && self.objects.contains_key(&object) {
            self.change(object, |extents| extents.remove(blocks));
        }
    }

    /// Drops the extents of a removed object.
    pub fn drop_of_object(&mut self, object: ObjectId) {
        if let Some(extents) = self.objects.remove(&object) {
            self.bytes -= missed_len(extents.len());
        }
    }

    fn change(&mut self, object: ObjectId, act: impl FnOnce(&mut Extents)) {
        let extents = self.objects.entry(object).or_default();
        // `missed_len` of no extents is zero.
        let before = missed_len(extents.len());
        act(extents);
        self.bytes = self.bytes - before + missed_len(extents.len());
        if extents.is_empty() {
            self.objects.remove(&object);
        }
        while self.bytes > self.budget {
            let largest = self.objects.values_mut().max_by_key(|extents| extents.len());
            let Some(largest) = largest.filter(|extents| extents.len() > 1) else { return };
            let before = missed_len(largest.len());
            largest.coarsen(largest.len() / 2);
            self.bytes = self.bytes - before + missed_len(largest.len());
        }
    }

    /// True if any of these blocks is absent.
    pub fn has_any_of(&self, object: ObjectId, blocks: BlockRange) -> bool {
        self.of(object, blocks.start).next().is_some_and(|run| run.start < blocks.end() && !blocks.is_empty())
    }

    /// The absent runs of an object from block `from` on, in ascending order; no two touch.
    pub fn of(&self, object: ObjectId, from: u64) -> impl Iterator<Item = BlockRange> {
        self.objects.get(&object).into_iter().flat_map(move |extents| extents.from(from))
    }

    /// The number of absent blocks of all objects.
    pub fn blocks(&self) -> u64 {
        self.objects.values().map(Extents::blocks).sum()
    }

    /// The room to reserve for the extents in a snapshot, even if there are none: when an object is created absent, the journal may be as
    /// full as it ever gets.
    pub fn journal_room(&self) -> u64 {
        self.bytes.max(self.budget)
    }

    /// The records of the set for a snapshot.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.objects.iter().flat_map(|(object, extents)| {
            let all: Vec<BlockRange> = extents.from(0).collect();
            let record = |part: &[BlockRange]| Record::Absent { object: *object, extents: part.to_vec() };
            all.chunks(MISSED_PER_RECORD).map(record).collect::<Vec<_>>()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(6);

    #[test]
    fn beyond_the_budget_more_is_absent_than_was_and_never_less() {
        let mut absent = Absent::new(missed_len(8));
        absent.insert(OBJECT, BlockRange::new(0, 1_000));
        for at in 0..100 {
            absent.remove(OBJECT, BlockRange::new(at * 10, 1 + at % 3));
            assert!(absent.bytes <= absent.budget, "{at}");
            assert!(
                absent.has_any_of(OBJECT, BlockRange::new(at * 10 + 3, 1)),
                "a block that was never written stays absent"
            );
        }
        let bytes: u64 = absent.objects.values().map(|extents| missed_len(extents.len())).sum();
        assert_eq!(absent.bytes, bytes);
        absent.remove(OBJECT, BlockRange::new(0, 1_000));
        assert_eq!((absent.blocks(), absent.bytes, absent.records().count()), (0, 0, 0));
    }

    #[test]
    fn absent_blocks_are_listed_one_by_one() {
        let mut absent = Absent::new(1 << 20);
        absent.insert(OBJECT, BlockRange::new(0, 100));
        absent.remove(OBJECT, BlockRange::new(10, 20));
        let any = |start, count| absent.has_any_of(OBJECT, BlockRange::new(start, count));
        assert!(any(9, 1) && any(9, 5) && any(29, 2) && any(30, 1) && any(99, 50));
        assert!(!any(10, 20) && !any(10, 0) && !any(5, 0) && !any(100, 5));
        assert!(!absent.has_any_of(ObjectId(7), BlockRange::new(0, 100)));
    }
}
