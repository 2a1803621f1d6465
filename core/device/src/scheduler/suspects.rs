//! The index of suspect transactions, by name and by block.

use super::round_robin::RoundRobin;
use braid_base::{BlockRange, ObjectId, RangeTable, TransactionId};
use std::collections::BTreeMap;

/// The suspect transactions of a device. They are also in its table of transactions, which bounds their number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    ids: RoundRobin,
    blocks: BTreeMap<ObjectId, RangeTable<TransactionId, ()>>,
}

impl Suspects {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds a transaction that is suspect on these blocks.
    pub fn insert(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        self.ids.insert(id);
        for range in ranges {
            self.blocks.entry(object).or_default().insert(*range, id, ());
        }
    }

    /// Removes a transaction, if it is suspect.
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

    pub fn iter(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.ids.iter()
    }

    /// The next ones to name to a host, at most `most`.
    pub fn name(&mut self, most: usize) -> Vec<TransactionId> {
        self.ids.name(most)
    }
}
