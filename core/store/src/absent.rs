//! What is not here yet: blocks of objects that were made on this device while others held what belongs there (`docs/healing.md`).
//!
//! It follows from the journal's records, live and in replay: an object is made absent as a whole, and what a transaction writes is here
//! from its commit on. In a snapshot its room is bounded: where too many runs come together, those that lie closest become one, and
//! what is between them is absent again. So more may be brought to this device than it lacks, and never less.

use crate::record::{MISSED_PER_RECORD, Record, missed_len};
use braid_base::{BlockRange, Extents, ObjectId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct Absent {
    /// None of them empty. None at all, as a rule: then commits cost nothing here.
    objects: BTreeMap<ObjectId, Extents>,
    /// What they take in a snapshot, and about the most that they may.
    bytes: u64,
    budget: u64,
}

impl Absent {
    /// Nothing. Extents may take about `budget` bytes of a snapshot.
    pub fn new(budget: u64) -> Absent {
        Absent { objects: BTreeMap::new(), bytes: 0, budget }
    }

    /// These blocks are not here.
    pub fn insert(&mut self, object: ObjectId, blocks: BlockRange) {
        if !blocks.is_empty() {
            self.change(object, |extents| extents.insert(blocks));
        }
    }

    /// These blocks are here now.
    pub fn remove(&mut self, object: ObjectId, blocks: BlockRange) {
        if !self.objects.is_empty() && self.objects.contains_key(&object) {
            self.change(object, |extents| extents.remove(blocks));
        }
    }

    /// Forgets an object that is removed.
    pub fn drop_of_object(&mut self, object: ObjectId) {
        if let Some(extents) = self.objects.remove(&object) {
            self.bytes -= missed_len(extents.len());
        }
    }

    fn change(&mut self, object: ObjectId, act: impl FnOnce(&mut Extents)) {
        let extents = self.objects.entry(object).or_default();
        // Of none, nothing is counted.
        let before = missed_len(extents.len());
        act(extents);
        self.bytes = self.bytes - before + missed_len(extents.len());
        if extents.len() == 0 {
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

    /// True if any of these blocks is not here.
    pub fn has_any_of(&self, object: ObjectId, blocks: BlockRange) -> bool {
        self.of(object, blocks.start).next().is_some_and(|run| run.start < blocks.end() && !blocks.is_empty())
    }

    /// What of an object is not here, from block `from` on; ascending and apart.
    pub fn of(&self, object: ObjectId, from: u64) -> impl Iterator<Item = BlockRange> {
        self.objects.get(&object).into_iter().flat_map(move |extents| extents.from(from))
    }

    /// How many blocks there are in all.
    pub fn blocks(&self) -> u64 {
        self.objects.values().map(Extents::blocks).sum()
    }

    /// The room to be kept for them in a snapshot, whether there are any or not: when an object is made absent, the journal may be as
    /// full as it ever is.
    pub fn journal_room(&self) -> u64 {
        self.bytes.max(self.budget)
    }

    /// What a snapshot says of them.
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
            assert!(absent.has_any_of(OBJECT, BlockRange::new(at * 10 + 3, 1)), "nobody has brought that");
        }
        let bytes: u64 = absent.objects.values().map(|extents| missed_len(extents.len())).sum();
        assert_eq!(absent.bytes, bytes);
        absent.remove(OBJECT, BlockRange::new(0, 1_000));
        assert_eq!((absent.blocks(), absent.bytes, absent.records().count()), (0, 0, 0));
    }

    #[test]
    fn what_is_absent_is_told_block_by_block() {
        let mut absent = Absent::new(1 << 20);
        absent.insert(OBJECT, BlockRange::new(0, 100));
        absent.remove(OBJECT, BlockRange::new(10, 20));
        let any = |start, count| absent.has_any_of(OBJECT, BlockRange::new(start, count));
        assert!(any(9, 1) && any(9, 5) && any(29, 2) && any(30, 1) && any(99, 50));
        assert!(!any(10, 20) && !any(10, 0) && !any(5, 0) && !any(100, 5));
        assert!(!absent.has_any_of(ObjectId(7), BlockRange::new(0, 100)));
    }
}
