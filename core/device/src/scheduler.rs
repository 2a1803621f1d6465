//! The scheduler of a device: it decides what becomes of the hosts' transactions. It takes requests, and what the store and the monitor
//! report, and gives [`decision::Decision`]s, in order, which the device carries out. It knows neither the store nor the network.
//!
//! | module | what |
//! | --- | --- |
//! | `ctx` | what the scheduler knows of the rest of the device during a step |
//! | `decision` | what it wants done |
//! | `admission` | takes in requests, and those again that waited for their stamps to be reserved |
//! | `ordering` | read, pre-write, write: the stamp checks of the paper's figure 4 |
//! | `locking` | device-served locks |
//! | `deciding` | commit, abort, resolve, forget, and what the store reports |
//! | `interrupted` | what was cut short where writes take effect on arrival |
//! | `epochs` | what a new membership ends |
//! | `recovery` | what the store held before a restart |
//! | `ledger` | the transactions, the orphans and suspects among them, and what follows when one moves on |
//! | [`transactions`] | the states of transactions, and their claims on blocks |
//! | [`stamps`] | `rts` and `wts` of blocks, and the floor of what is forgotten |
//! | `reservation` | how high stamps may be that are accepted, and so which requests are let in |
//! | `waiting` | requests that wait for lower stamps |
//! | `locks` | which transactions hold locks, and which requests wait for theirs |
//! | `suspects` | which transactions are suspect, and on which blocks |
//! | `in_turn` | transactions that are named to hosts, some at a time |

mod admission;
pub(crate) mod ctx;
mod deciding;
pub(crate) mod decision;
mod epochs;
mod in_turn;
mod interrupted;
mod ledger;
mod locking;
mod locks;
mod ordering;
mod recovery;
mod reservation;
pub mod stamps;
mod suspects;
#[cfg(test)]
mod tests;
pub(crate) mod transactions;
pub(crate) mod waiting;

use braid_base::limits::Settings;
use braid_base::{Clock, Generation, ObjectId, Stamp, Time, TransactionId};
use braid_wire::{Orphan, Suspect};
use ctx::Ctx;
use ledger::Ledger;
use locks::Locks;
use reservation::Reservation;
use stamps::Stamps;
use std::collections::BTreeSet;
use waiting::{Waiting, WaitingQueue};

/// What a device holds of transactions.
#[derive(Debug)]
pub(crate) struct Scheduler {
    ledger: Ledger,
    stamps: Stamps,
    reservation: Reservation,
    waiting: WaitingQueue,
    locks: Locks,
    /// Transactions for which the store is reading.
    reading: BTreeSet<TransactionId>,
    counters: Counters,
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
    /// One that holds nothing.
    pub fn new(settings: &Settings) -> Scheduler {
        Scheduler {
            ledger: Ledger::new(settings.device_transactions_max),
            stamps: Stamps::new(Stamp::ZERO, settings.stamps_kept, Time(0)),
            reservation: Reservation::default(),
            waiting: WaitingQueue::default(),
            locks: Locks::default(),
            reading: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// The transactions, to look at.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What it has decided since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many requests wait for others.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.locks.waiting()
    }

    /// How many transactions hold locks, or wait for them.
    pub fn locks(&self) -> usize {
        self.locks.len()
    }

    /// The highest stamp clock that is known to be reserved, here or on another device.
    pub fn known_stamps(&self) -> Clock {
        self.reservation.known()
    }

    /// Stamps up to this clock may be accepted already, on another device.
    pub fn know_stamps(&mut self, now: Time, until: Clock) {
        self.reservation.know(now, until);
    }

    /// A host is back from a silence, and looks after its transactions again.
    pub fn on_return(&mut self, host: Generation) {
        self.ledger.remove_orphans_of(host);
    }

    /// Names some orphans and suspects, others each time.
    pub fn name_unresolved(&mut self, cx: &Ctx) -> (Vec<Orphan>, Vec<Suspect>) {
        (self.ledger.name_orphans(cx), self.ledger.name_suspects())
    }

    /// An object is about to be removed.
    pub fn on_removal(&mut self, cx: &mut Ctx, object: ObjectId) {
        self.ledger.drop_suspects_of(cx, object);
    }

    /// True if requests may wait that are to be resumed or refused.
    pub fn is_due(&self, now: Time) -> bool {
        self.ledger.have_released() || self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// When a request has waited for its locks for too long.
    pub fn deadline(&self) -> Option<Time> {
        self.locks.deadline()
    }

    /// Asserts what holds between steps. `reads`: some of the transactions for which the store reads.
    pub fn invariants(&self, mut reads: impl Iterator<Item = TransactionId>) {
        assert!(reads.all(|id| self.reading.contains(&id)), "what the store reads is waited for");
        self.ledger.invariants();
        self.locks.invariants();
        self.reservation.invariants(self.stamps.highest_ever());
        for id in self.waiting.in_order() {
            let waiting = self.waiting.get(id).expect("just listed");
            let Waiting { stamp, policy, object, blocks, .. } = waiting;
            let is_blocked = self.ledger.table().is_blocked(id, *stamp, policy, *object, blocks);
            assert!(is_blocked, "every waiting request has a blocker: {id}");
        }
    }
}
