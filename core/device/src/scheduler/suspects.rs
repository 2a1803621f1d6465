//! Which transactions are suspect, and on which blocks.

use super::in_turn::InTurn;
use braid_base::{BlockRange, ObjectId, RangeTable, TransactionId};
use std::collections::BTreeMap;

/// The transactions of a device that are suspect. They are in its table of transactions, which bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    ids: InTurn,
    blocks: BTreeMap<ObjectId, RangeTable<TransactionId, ()>>,
}

impl Suspects {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Takes one in that is suspect on these blocks.
    pub fn insert(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        self.ids.insert(id);
        for range in ranges {
            self.blocks.entry(object).or_default().insert(*range, id, ());
        }
    }

    /// Takes out one that may be among them.
    pub fn remove(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        if !self.ids.remove(id) {
            return;
        }
        let Some(blocks) = self.blocks.get_mut(&object) else { return };
        for range in ranges {
            blocks.remove(range.start, id);
        }
        if blocks.is_empty() {
            self.blocks.remove(&object);
        }
    }

    /// True if parity may not match these blocks.
    pub fn touch(&self, object: ObjectId, ranges: &[BlockRange]) -> bool {
        let blocks = self.blocks.get(&object);
        blocks.is_some_and(|blocks| ranges.iter().any(|range| blocks.overlapping(*range).next().is_some()))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.ids.iter()
    }

    /// The next ones to be named, at most so many.
    pub fn name(&mut self, most: usize) -> Vec<TransactionId> {
        self.ids.name(most)
    }
}
