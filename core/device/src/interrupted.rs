//! Transactions that were cut short where devwrites take effect on arrival (atomicity `consistent`; shared array, section 5).
//!
//! ```text
//!   announced ── its host is silent, kept out, or says so ──► suspect ─┐  somebody finds the stripes right, or mends them
//!   written   ── the same, before its host said "over" ─────► suspect ─┴─► forgotten
//! ```
//!
//! A device can't know whether the other devwrites of a transaction arrived: it names it to hosts, in heartbeat answers. Until it is
//! told to forget it, it lets nobody read suspect blocks in order to compute parity from them. Plain reads go on, and so do
//! writes that need nothing old.
//!
//! What was written is remembered durably until its host says that it is over, so that a restart of the device does not hide it.
//! What was only announced is lost with a restart; then whoever has written it names it.

use crate::device::Device;
use crate::transactions::State;
use crate::waiting::{Waiting, WaitingRequest};
use braid_base::{BlockRange, Now, ObjectId, TransactionId, limits};
use braid_machine::Effects;
use braid_wire::{ObjectDescription, Ordering, Suspect, SuspectBlocks};

impl Device {
    /// How many transactions are suspect in it.
    pub fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// True if parity may not match these blocks.
    pub(crate) fn is_suspect(&self, object: ObjectId, ranges: &[BlockRange]) -> bool {
        self.suspects.touch(object, ranges)
    }

    /// True if what is cut short on this object leaves its stripes suspect.
    pub(crate) fn can_be_suspect(&self, object: ObjectId) -> bool {
        self.store.object(object).is_some_and(|object| object.can_be_suspect())
    }

    /// True if its host may have sent writes of it: all that it asked for here was answered.
    fn is_announced(&self, id: TransactionId) -> bool {
        let transaction = self.transactions.get(id).expect("it is known");
        let reads = |waiting: &Waiting| matches!(waiting.request, WaitingRequest::Read(_));
        let being_read = self.tickets.is_reading(id) || self.waiting.get(id).is_some_and(reads);
        let answered = !being_read && !self.locking.is_waiting(id);
        answered && !transaction.ranges.is_empty() && self.can_be_suspect(transaction.object)
    }

    /// True if its write will still be taken in another epoch: nobody decides without it, so that its host goes on.
    pub(crate) fn outlives_epoch(&self, id: TransactionId) -> bool {
        let transaction = self.transactions.get(id).expect("it is known");
        let announced = !transaction.ranges.is_empty() && !self.locking.is_waiting(id);
        announced && self.can_be_suspect(transaction.object) && !self.is_unannounced(transaction.object)
    }

    /// True if its writes take effect on arrival, and are not announced: hosts hold locks of a lock server.
    pub(crate) fn is_unannounced(&self, object: ObjectId) -> bool {
        let by_lock_server = |object: &&ObjectDescription| object.ordering.needs_lock_server();
        self.store.object(object).filter(by_lock_server).is_some_and(|object| object.can_be_suspect())
    }

    /// Drops a write that was not announced, and waits: its host sends it again.
    pub(crate) fn put_off(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        self.refuse_for_ever(now, id, out);
        if self.transactions.get(id).is_some() {
            self.drop_decided(id);
        }
    }

    /// Drops a pre-write whose host does not go on with it. If that may have written elsewhere, it is suspect.
    pub(crate) fn cut_short(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        if self.is_announced(id) {
            self.suspect(now, id, out);
        } else {
            self.refuse_for_ever(now, id, out);
        }
    }

    /// Takes what is announced, or has been written, for cut short.
    pub(crate) fn suspect(&mut self, now: Now, id: TransactionId, out: &mut Effects) {
        let transaction = self.transactions.get(id).expect("it is known");
        let (object, stamp, ranges) = (transaction.object, transaction.stamp, transaction.ranges.clone());
        let (state, by_locks) = (transaction.state, transaction.ordering == Ordering::DeviceLock);
        let written = match state {
            State::Prewritten => false,
            State::Applied => true,
            other => panic!("only what may have been cut short is suspect: {id} is {other:?}"),
        };
        self.waiting.take(id);
        if !written && !by_locks {
            // Late copies of its pre-write must not pass for new, as with any that is dropped.
            self.stamps.raise(now.time, object, &ranges, crate::stamps::Access::Read, stamp);
        }
        self.suspects.insert(id, object, &ranges);
        self.advance(now, id, State::Suspect { written }, out);
    }

    /// Names some of them, others each time.
    pub(crate) fn name_suspects(&mut self) -> Vec<Suspect> {
        let named = self.suspects.name(limits::ORPHANS_PER_ANSWER_MAX);
        named.into_iter().map(|id| self.describe(id)).collect()
    }

    fn describe(&self, id: TransactionId) -> Suspect {
        let transaction = self.transactions.get(id).expect("what is suspect is a transaction");
        let blocks = match (transaction.state, transaction.linkage) {
            (State::Suspect { written: true }, Some(linkage)) => SuspectBlocks::Written(linkage),
            _ => {
                let first = transaction.ranges.first().expect("what was announced has blocks").start;
                let end = transaction.ranges.iter().map(|range| range.end()).max().unwrap_or(first);
                SuspectBlocks::Announced(BlockRange::between(first, end))
            }
        };
        Suspect { transaction: id, object: transaction.object, blocks }
    }

    /// Of an object that is removed nothing is suspect.
    pub(crate) fn drop_suspects_of(&mut self, object: ObjectId) {
        let of_it = |id: &TransactionId| self.transactions.get(*id).is_some_and(|held| held.object == object);
        for id in self.suspects.iter().filter(of_it).collect::<Vec<_>>() {
            self.store.forget(id);
            self.drop_decided(id);
        }
    }

    /// Asserts that they are transactions, and known to be suspect.
    pub(crate) fn suspects_invariants(&self) {
        for id in self.suspects.iter() {
            let state = self.transactions.get(id).map(|held| held.state);
            assert!(
                matches!(state, Some(State::Suspect { .. })),
                "what is suspect is a transaction: {id} is {state:?}"
            );
        }
    }
}
