//! A set of transactions that are reported to hosts, some at a time and different ones each time. So a transaction that
//! can't be dealt with now does not hide the others.

use braid_base::{Generation, TransactionId};
use std::collections::BTreeSet;
use std::ops::Bound;

/// The set, and the transaction that was reported last.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundRobin {
    ids: BTreeSet<TransactionId>,
    last_named: Option<TransactionId>,
}

impl RoundRobin {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.ids.iter().copied()
    }

    pub fn insert(&mut self, id: TransactionId) {
        self.ids.insert(id);
    }

    /// False if the transaction is not in the set.
    pub fn remove(&mut self, id: TransactionId) -> bool {
        self.ids.remove(&id)
    }

    pub fn remove_of(&mut self, host: Generation) {
        self.ids.retain(|id| id.host != host);
    }

    /// The next ones in turn, at most `most`.
    pub fn name(&mut self, most: usize) -> Vec<TransactionId> {
        let behind = (self.last_named.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = self.last_named.into_iter().flat_map(|last| self.ids.range(..=last));
        let named: Vec<_> = self.ids.range(behind).chain(before).take(most).copied().collect();
        self.last_named = named.last().copied().or(self.last_named);
        named
    }
}
