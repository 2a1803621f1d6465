//! What the store is doing for whom.

use braid_base::{Generation, TransactionId};
use braid_wire::Step;
use std::collections::BTreeMap;

/// What to do when the store is done with something.
#[derive(Clone, Debug)]
pub(crate) enum Ticket {
    /// Send the content to the reader.
    Read { transaction: TransactionId, step: Step, waited: bool },
    /// More stamps may be accepted.
    Reserve,
    /// Go on with a wait for an attribute.
    Look { host: Generation, ticket: u64 },
    /// Answer a task.
    Manage { host: Generation, ticket: u64 },
    /// Live by the new membership.
    Adopt,
}

/// The most tickets that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

/// Tickets that the store holds, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    pending: BTreeMap<u64, Ticket>,
    last: u64,
}

impl Tickets {
    /// A number for the store.
    pub fn open(&mut self, ticket: Ticket) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, ticket);
        self.last
    }

    /// The store is done with that.
    pub fn close(&mut self, number: u64) -> Ticket {
        self.pending.remove(&number).expect("the store is done with what it was asked for")
    }

    /// Some of the transactions for which the store reads.
    pub fn reads(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.pending.values().take(CHECKED_MAX).filter_map(|ticket| match ticket {
            Ticket::Read { transaction, .. } => Some(*transaction),
            _ => None,
        })
    }

    /// Asserts that no number is given twice, and that one membership at a time is made durable.
    pub fn invariants(&self, is_adopting: bool) {
        assert!(self.pending.last_key_value().is_none_or(|(number, _)| *number <= self.last), "numbers count up");
        if self.pending.len() <= CHECKED_MAX {
            let adopting = self.pending.values().filter(|ticket| matches!(ticket, Ticket::Adopt)).count();
            assert_eq!(adopting, usize::from(is_adopting), "one membership at a time is on its way to the disk");
        }
    }

    /// True if the store is at a task of the host.
    pub fn has_task(&self, host: Generation, ticket: u64) -> bool {
        let is_it = |held: &Ticket| matches!(held, Ticket::Manage { host: h, ticket: t } if (*h, *t) == (host, ticket));
        self.pending.values().any(is_it)
    }
}
