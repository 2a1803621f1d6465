//! Device-served locks (shared array, section 4.4): each device locks its own blocks, on requests that are made anyhow.
//!
//! ```text
//!   hostread                    two-phase hostwrite              single-phase hostwrite
//!   lock shared + read          lock + read                      lock
//!     … answered to the user      … all locks held: write          … all locks held: write
//!   unlock (hidden)             unlock, with the commit          unlock, with the commit
//! ```
//!
//! A read is a lock request (shared), and so is a pre-write (exclusive, its reads shared). A transaction holds its locks from
//! the grant to its end here: the commit or abort of what it wrote; for one that only read, the word that it is over, which
//! rides on a later request like a commit. Locks that can't be had within a time-out are refused: there may be a deadlock over
//! several devices, and the host gives up all its locks and begins again.
//!
//! Locks live in memory. What a restart, or the end of a silent host's lease, would let through is caught by stamps: a
//! request below the stamp of the last write of its blocks, or below the floor, is refused. So a transaction that read here,
//! lost its lock, and reads on another device what was written since, fails there.

use crate::device::Device;
use crate::transactions::{State, Transaction};
use crate::waiting::ReadRequest;
use braid_base::{BlockRange, Now, ObjectId, Stamp, Timers, TransactionId};
use braid_locks::{Asked, LockState, LockTable};
use braid_machine::{Effects, Ignored};
use braid_wire::locking::{LockExtent, LockMode};
use braid_wire::{Ordering, Refusal, Reply, Step};
use std::collections::{BTreeMap, VecDeque};

/// The most that are remembered though their hosts have declared them over, while an earlier one keeps its host's mark back.
const OVER_MAX: usize = 4096;

/// The locks of a device.
#[derive(Debug, Default)]
pub(crate) struct Locking {
    pub table: LockTable<TransactionId>,
    /// Requests that wait for their locks.
    waiting: BTreeMap<TransactionId, (Step, ReadRequest)>,
    /// When they have waited for too long.
    pub timeouts: Timers<TransactionId>,
    /// Transactions that are over here, and whose locks are to be given back.
    pub ended: Vec<TransactionId>,
    /// Transactions that their hosts have declared over above their marks, kept to refuse late copies of their requests by. Some
    /// have been forgotten since.
    over: VecDeque<TransactionId>,
    /// Requests refused for having waited too long.
    pub timed_out: u64,
}

/// A read or pre-write, as a request for locks.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub stamp: Stamp,
    pub step: Step,
    /// What to lock exclusively.
    pub prewrites: Vec<BlockRange>,
    /// What to lock shared, and to read once the locks are there.
    pub reads: ReadRequest,
}

impl Locking {
    /// How many requests wait for locks.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True if the transaction waits for its locks.
    pub fn is_waiting(&self, id: TransactionId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Asserts that whoever waits has a deadline.
    pub fn invariants(&self) {
        self.table.invariants();
        for id in self.waiting.keys() {
            assert_eq!(self.table.state(*id), Some(LockState::Waiting), "{id} waits for locks");
            assert!(self.timeouts.deadline_of(*id).is_some(), "every wait has a deadline: {id}");
        }
    }
}

impl Device {
    /// Lock + read, or lock: a read, or a pre-write with or without reads.
    pub(crate) fn lock(&mut self, now: Now, id: TransactionId, request: LockRequest, out: &mut Effects) {
        let LockRequest { stamp, step, prewrites, reads } = request;
        if let Some(transaction) = self.transactions.get(id) {
            // Sent again: answered again, unless that is under way, or the transaction has gone on since.
            return match transaction.state {
                State::Prewritten if self.locking.is_waiting(id) || self.tickets.is_reading(id) => {
                    self.ignore(Ignored::InProgress, out);
                }
                State::Prewritten => self.on_locked(now, id, step, reads, out),
                // Its refusal may have been lost; a late copy of what is over finds nobody who waits for the answer.
                State::Aborted | State::Suspect { .. } => self.refuse(id, step, Refusal::NoPrewrite, out),
                _ => self.ignore(Ignored::InProgress, out),
            };
        }
        if let Some(refusal) = self.too_late(stamp, &prewrites, &reads) {
            return self.refuse(id, step, refusal, out);
        }
        if self.transactions.is_full() {
            return self.refuse(id, step, Refusal::Busy, out);
        }
        self.sessions.lock(id.host, stamp);
        let extents = extents(&prewrites, &reads.extents);
        let object = reads.object;
        self.transactions
            .insert(id, Transaction::new(stamp, object, Ordering::DeviceLock, prewrites, State::Prewritten));
        match self.locking.table.lock(id, object, &extents) {
            Asked::Granted => self.on_locked(now, id, step, reads, out),
            Asked::Waits { blockers } => {
                self.counters.waits += 1;
                self.transactions.get_mut(id).expect("just taken in").waited = true;
                let reads = ReadRequest { waited: true, ..reads };
                self.locking.waiting.insert(id, (step, reads));
                self.locking.timeouts.set(id, now.time.after(self.config.settings.lock_timeout));
                self.want(&blockers, out);
            }
        }
    }

    /// The locks are held: reads, or says so.
    fn on_locked(&mut self, now: Now, id: TransactionId, step: Step, reads: ReadRequest, out: &mut Effects) {
        let transaction = self.transactions.get(id).expect("it holds locks");
        // Written since it asked, by one with a higher stamp: see the module's page.
        if let Some(refusal) = self.too_late(transaction.stamp, &transaction.ranges, &reads) {
            self.refuse_for_ever(now, id, out);
            return self.refuse(id, step, refusal, out);
        }
        if step == Step::Prewrite && self.is_suspect(reads.object, &reads.extents) {
            self.refuse_for_ever(now, id, out);
            return self.refuse(id, step, Refusal::Suspect, out);
        }
        if step == Step::Prewrite {
            self.counters.prewrites += 1;
        }
        if reads.extents.is_empty() {
            return self.answer(id.host, Reply::Accepted { transaction: id, waited: reads.waited }, out);
        }
        self.serve(id, step, reads, out);
    }

    fn too_late(&self, stamp: Stamp, prewrites: &[BlockRange], reads: &ReadRequest) -> Option<Refusal> {
        let written = self.stamps.seen_by_write(reads.object, prewrites);
        let seen = self.stamps.seen_by_read(reads.object, &reads.extents).max(written);
        (stamp <= seen).then_some(Refusal::TooLate { seen })
    }

    /// Gives back the locks of transactions that are over, or their places in the queue; on with those who can go on now.
    pub(crate) fn unlock_ended(&mut self, now: Now, out: &mut Effects) {
        while let Some(ended) = self.locking.ended.pop() {
            self.locking.waiting.remove(&ended);
            self.locking.timeouts.cancel(ended);
            let mut granted = Vec::new();
            self.locking.table.release(ended, &mut granted);
            for id in granted {
                self.locking.timeouts.cancel(id);
                let waited = self.locking.waiting.remove(&id);
                let (step, reads) = waited.expect("whoever is granted something had waited for it");
                // One that has ended meanwhile gives back at once what it was granted.
                if !self.locking.ended.contains(&id) {
                    self.on_locked(now, id, step, reads, out);
                }
            }
        }
    }

    /// Whether the host's word that a transaction is over means an unlock: it wrote nothing here.
    pub(crate) fn only_holds_locks(&self, id: TransactionId) -> bool {
        let holds = |held: &Transaction| {
            held.ordering == Ordering::DeviceLock && held.state == State::Prewritten && held.ranges.is_empty()
        };
        self.transactions.get(id).is_some_and(holds)
    }

    /// Refuses those who have waited for too long.
    pub(crate) fn time_out_locks(&mut self, now: Now, out: &mut Effects) {
        // Whoever is over already does not wait any more.
        self.resume_waiting(now, out);
        while let Some(id) = self.locking.timeouts.pop_due(now.time) {
            let (step, _) = self.locking.waiting[&id];
            self.locking.timed_out += 1;
            self.refuse_for_ever(now, id, out);
            self.refuse(id, step, Refusal::LockTimeout, out);
        }
    }

    /// Its host has declared a transaction over that holds nothing here any more. Each is remembered for a while; where there are
    /// many, since a commit can't be confirmed while a device is away, the floor refuses late copies of the oldest.
    pub(crate) fn on_lock_over(&mut self, id: TransactionId) {
        self.locking.over.push_back(id);
        if self.locking.over.len() <= OVER_MAX {
            return;
        }
        for id in self.locking.over.drain(..OVER_MAX / 2).collect::<Vec<_>>() {
            if let Some(transaction) = self.transactions.get(id).filter(|held| held.state == State::Aborted) {
                self.stamps.raise_floor(transaction.stamp);
                self.drop_decided(id);
            }
        }
    }

    /// Takes the locks of an intent from before a restart.
    pub(crate) fn relock(&mut self, id: TransactionId, object: ObjectId, ranges: &[BlockRange]) {
        let held = self.locking.table.hold(id, object, &extents(ranges, &[]));
        assert!(held, "undecided intents do not overlap: {id}");
    }
}

fn extents(prewrites: &[BlockRange], reads: &[BlockRange]) -> Vec<LockExtent> {
    let extent = |range: &BlockRange, mode| LockExtent { position: 0, range: *range, mode };
    let exclusive = prewrites.iter().map(|range| extent(range, LockMode::Exclusive));
    exclusive.chain(reads.iter().map(|range| extent(range, LockMode::Shared))).collect()
}
