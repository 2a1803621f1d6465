//! Transactions that are named to hosts, some at a time and others each time: one that can't be dealt with now must not hide the rest.

use braid_base::{Generation, TransactionId};
use std::collections::BTreeSet;
use std::ops::Bound;

/// A set of transactions, and which of them was named last.
#[derive(Clone, Debug, Default)]
pub(crate) struct InTurn {
    ids: BTreeSet<TransactionId>,
    last_named: Option<TransactionId>,
}

impl InTurn {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.ids.iter().copied()
    }

    pub fn insert(&mut self, id: TransactionId) {
        self.ids.insert(id);
    }

    /// Takes one out. False if it is not among them.
    pub fn remove(&mut self, id: TransactionId) -> bool {
        self.ids.remove(&id)
    }

    /// Takes out those of one host.
    pub fn remove_of(&mut self, host: Generation) {
        self.ids.retain(|id| id.host != host);
    }

    /// The next ones, at most so many.
    pub fn name(&mut self, most: usize) -> Vec<TransactionId> {
        let behind = (self.last_named.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = self.last_named.into_iter().flat_map(|last| self.ids.range(..=last));
        let named: Vec<_> = self.ids.range(behind).chain(before).take(most).copied().collect();
        self.last_named = named.last().copied().or(self.last_named);
        named
    }
}
