//! Tickets: the store operations under way. A ticket's number names an operation to the store, and the ticket says what
//! follows it.

use braid_base::{Generation, TransactionId};
use braid_wire::{Failure, Managed, Step};
use std::collections::BTreeMap;

/// What follows when a store operation is done.
#[derive(Clone, Debug)]
pub(crate) enum Ticket {
    /// Send the content to the host.
    Read { transaction: TransactionId, step: Step, waited: bool },
    /// Accept higher stamps.
    Reserve,
    /// Continue with a watcher of an attribute.
    ReadWatched { host: Generation, ticket: u64 },
    /// Keep how a task that changes an object has ended.
    Change { host: Generation, ticket: u64 },
    /// Answer a task so.
    Manage { host: Generation, ticket: u64, result: Result<Managed, Failure> },
    /// Adopt the new membership.
    Adopt,
}

/// The most tickets that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

/// The open tickets, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    pending: BTreeMap<u64, Ticket>,
    last: u64,
}

impl Tickets {
    /// Opens a ticket, and returns its number.
    pub fn open(&mut self, ticket: Ticket) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, ticket);
        self.last
    }

    /// Closes the ticket of a store operation that is done.
    pub fn close(&mut self, number: u64) -> Ticket {
        self.pending.remove(&number).expect("the store ends only operations that were asked of it")
    }

    /// Some of the transactions for which the store reads.
    pub fn reads(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.pending.values().take(CHECKED_MAX).filter_map(|ticket| match ticket {
            Ticket::Read { transaction, .. } => Some(*transaction),
            _ => None,
        })
    }

    /// Asserts that numbers are not reused, and that at most one membership is being made durable.
    pub fn invariants(&self, is_adopting: bool) {
        assert!(self.pending.last_key_value().is_none_or(|(number, _)| *number <= self.last), "numbers count up");
        if self.pending.len() <= CHECKED_MAX {
            let adopting = self.pending.values().filter(|ticket| matches!(ticket, Ticket::Adopt)).count();
            assert_eq!(adopting, usize::from(is_adopting), "one membership at a time is on its way to the disk");
        }
    }

    /// True if the store is executing this task of the host.
    pub fn has_task(&self, host: Generation, ticket: u64) -> bool {
        self.pending.values().any(|held| match held {
            Ticket::Change { host: h, ticket: t } | Ticket::Manage { host: h, ticket: t, .. } => {
                (*h, *t) == (host, ticket)
            }
            _ => false,
        })
    }
}
