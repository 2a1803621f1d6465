//! The scheduler of a device decides what happens to the transactions of hosts. Its inputs are requests and the reports
//! of store and monitor. Its outputs are [`decision::Decision`]s, which the device carries out in order. It
//! sends no messages and starts no operations of the store. It uses types of the store (`Intent`, `Recovered`), of the
//! monitor's client and of `braid_locks`.
//!
//! | module | what |
//! | --- | --- |
//! | `ctx` | the scheduler's view of the rest of the device during a step |
//! | `decision` | the decisions |
//! | `dispatch` | passes each request to its handler, and resumes requests that waited for their stamps to be reserved |
//! | `stamp_checks` | read, pre-write, write: which stamps are refused (the paper's figure 4) |
//! | `locking` | device-served locks |
//! | `columns` | columns, which devices execute together: a part with its own state |
//! | `outcomes` | commit, abort, resolve, forget, and the store's reports |
//! | `interrupted` | interrupted writes, where writes take effect on arrival |
//! | `epochs` | the effects of a new membership |
//! | `transaction_recovery` | transactions that the store recovered after a restart |
//! | `order` | the state that all these decide on: ledger, stamps, waiting requests |
//! | `ledger` | the transactions, the orphans and suspects among them, and the consequences of a change of state |
//! | [`transactions`] | the states of transactions, and the blocks that undecided transactions claim |
//! | [`stamp_table`] | `rts` and `wts` of blocks, and the floor of forgotten stamps |
//! | `stamp_reservation` | the highest stamp that may be accepted, and so the admission of requests |
//! | `waiting` | requests that wait for lower stamps |
//! | `locks` | the transactions that hold locks, and the requests that wait for locks |
//! | `suspects` | the suspect transactions and their blocks |
//! | `round_robin` | the transactions to report to hosts, some at a time |

mod columns;
pub(crate) mod ctx;
pub(crate) mod decision;
mod dispatch;
mod epochs;
mod interrupted;
mod ledger;
mod locking;
mod locks;
mod order;
mod outcomes;
mod round_robin;
mod stamp_checks;
mod stamp_reservation;
pub mod stamp_table;
mod suspects;
#[cfg(test)]
mod tests;
mod transaction_recovery;
pub(crate) mod transactions;
pub(crate) mod waiting;

use braid_base::limits::Settings;
use braid_base::{Clock, Generation, ObjectId, Time, TransactionId};
use braid_wire::{Orphan, Suspect};
use columns::Columns;
use ctx::Ctx;
use ledger::Ledger;
use locks::Locks;
use order::Order;
use stamp_reservation::Reservation;
use waiting::Waiting;

/// The scheduler's state.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    order: Order,
    reservation: Reservation,
    columns: Columns,
    locks: Locks,
}

/// Counts of decisions since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub reads: u64,
    pub prewrites: u64,
    pub writes: u64,
    pub commits: u64,
    pub aborts: u64,
    pub resolves: u64,
    pub waits: u64,
    pub lock_timeouts: u64,
}

impl Scheduler {
    /// A scheduler without transactions.
    pub fn new(settings: &Settings) -> Scheduler {
        Scheduler {
            order: Order::new(settings),
            reservation: Reservation::default(),
            columns: Columns::default(),
            locks: Locks::default(),
        }
    }

    /// The transactions, for inspection.
    pub fn ledger(&self) -> &Ledger {
        &self.order.ledger
    }

    pub fn counters(&self) -> &Counters {
        &self.order.counters
    }

    /// The number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.order.waiting.len() + self.locks.waiting()
    }

    /// The number of transactions that hold locks or wait for them.
    pub fn locks(&self) -> usize {
        self.locks.len()
    }

    /// The highest stamp clock that is known to be reserved, here or on another device.
    pub fn known_stamps(&self) -> Clock {
        self.reservation.known()
    }

    /// Another device may already have accepted stamps up to this clock.
    pub fn know_stamps(&mut self, now: Time, until: Clock) {
        self.reservation.know(now, until);
    }

    /// A host is heard again after a silence: its transactions are not orphans any more.
    pub fn on_return(&mut self, host: Generation) {
        self.order.ledger.orphans.remove_of(host);
    }

    /// Some orphans and suspects, different ones each time.
    pub fn name_unresolved(&mut self, cx: &Ctx) -> (Vec<Orphan>, Vec<Suspect>) {
        (self.order.ledger.name_orphans(cx), self.order.ledger.name_suspects())
    }

    /// An object is about to be removed: its suspect transactions are forgotten.
    pub fn on_removal(&mut self, cx: &mut Ctx, object: ObjectId) {
        self.order.ledger.drop_suspects_of(cx, object);
    }

    /// True if there may be waiting requests to resume or to refuse.
    pub fn is_due(&self, now: Time) -> bool {
        self.order.ledger.have_released() || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// When the next request has waited for its locks for too long.
    pub fn deadline(&self) -> Option<Time> {
        [self.locks.deadline(), self.columns.deadline()].into_iter().flatten().min()
    }

    /// Asserts the invariants that hold between steps. `reads`: some of the transactions for which the store reads.
    pub fn invariants(&self, mut reads: impl Iterator<Item = TransactionId>) {
        assert!(reads.all(|id| self.order.reading.contains(&id)), "the scheduler knows every read of the store");
        self.order.ledger.invariants();
        self.locks.invariants();
        self.columns.invariants(&self.order);
        self.reservation.invariants(self.order.stamps.highest_ever());
        for id in self.order.waiting.in_order() {
            let waiting = self.order.waiting.get(id).expect("just listed");
            let Waiting { stamp, policy, object, blocks, .. } = waiting;
            let mut blockers = self.order.ledger.table().blockers(id, *stamp, policy, *object, blocks);
            assert!(blockers.next().is_some(), "every waiting request has a blocker: {id}");
        }
    }
}
