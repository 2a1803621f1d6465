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

use super::Scheduler;
use super::ctx::Ctx;
use super::stamps::Stamps;
use super::transactions::{State, Transaction};
use super::waiting::ReadRequest;
use braid_base::{BlockRange, Stamp, TransactionId};
use braid_locks::Locked;
use braid_machine::Ignored;
use braid_ordering::Policy;
use braid_wire::{Refusal, Reply, Step};

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

impl Scheduler {
    /// Lock + read, or lock: a read, or a pre-write with or without reads.
    pub(super) fn lock(&mut self, cx: &mut Ctx, id: TransactionId, policy: &'static Policy, request: LockRequest) {
        let LockRequest { stamp, step, prewrites, reads } = request;
        if let Some(transaction) = self.ledger.get(id) {
            // Sent again: answered again, unless that is under way, or the transaction has gone on since.
            return match transaction.state {
                State::Prewritten if self.locks.is_waiting(id) || self.reading.contains(&id) => {
                    cx.ignore(Ignored::InProgress);
                }
                State::Prewritten => self.on_locked(cx, id, step, reads),
                // Its refusal may have been lost. If the request is a late copy, its host ignores the answer.
                State::Aborted | State::Suspect { .. } => cx.refuse(id, step, Refusal::NoPrewrite),
                _ => cx.ignore(Ignored::InProgress),
            };
        }
        if let Some(refusal) = too_late(&self.stamps, stamp, &prewrites, &reads) {
            return cx.refuse(id, step, refusal);
        }
        if self.ledger.table().is_full() {
            return cx.refuse(id, step, Refusal::Busy);
        }
        let object = reads.object;
        let asked = self.locks.ask(id, stamp, object, &prewrites, &reads.extents);
        self.ledger.insert(id, Transaction::new(stamp, object, Some(policy), prewrites, State::Prewritten));
        match asked {
            Locked::Granted => self.on_locked(cx, id, step, reads),
            Locked::Waits { blockers } => {
                self.counters.waits += 1;
                self.ledger.get_mut(id).expect("just taken in").waited = true;
                let reads = ReadRequest { waited: true, ..reads };
                self.locks.wait(id, step, reads, cx.now.time.after(cx.settings.lock_timeout));
                self.ledger.want(cx, &blockers);
            }
        }
    }

    /// The locks are held: reads, or says so.
    fn on_locked(&mut self, cx: &mut Ctx, id: TransactionId, step: Step, reads: ReadRequest) {
        let transaction = self.ledger.get(id).expect("it holds locks");
        // Written since it asked, by one with a higher stamp: see the module's page.
        if let Some(refusal) = too_late(&self.stamps, transaction.stamp, &transaction.ranges, &reads) {
            self.promise_abort(cx, id);
            return cx.refuse(id, step, refusal);
        }
        if step == Step::Prewrite && self.ledger.is_suspect(reads.object, &reads.extents) {
            self.promise_abort(cx, id);
            return cx.refuse(id, step, Refusal::Suspect);
        }
        if step == Step::Prewrite {
            self.counters.prewrites += 1;
        }
        if reads.extents.is_empty() {
            return cx.answer(id.host, Reply::Accepted { transaction: id, waited: reads.waited });
        }
        self.serve(cx, id, step, reads);
    }

    /// Gives back the locks of transactions that are over, or their places in the queue; on with those who can go on now.
    pub(super) fn unlock_ended(&mut self, cx: &mut Ctx) {
        while let Some(ended) = self.ledger.next_unlocked() {
            for id in self.locks.release(ended) {
                let (step, reads) = self.locks.take_granted(id);
                // One that has ended meanwhile gives back at once what it was granted.
                if !self.ledger.is_to_unlock(id) {
                    self.on_locked(cx, id, step, reads);
                }
            }
        }
    }

    /// Refuses those who have waited for too long.
    pub fn time_out_locks(&mut self, cx: &mut Ctx) {
        // Whoever is over already does not wait any more.
        self.resume_waiting(cx);
        while let Some((id, step)) = self.locks.pop_timed_out(cx.now.time) {
            self.counters.lock_timeouts += 1;
            self.promise_abort(cx, id);
            cx.refuse(id, step, Refusal::LockTimeout);
        }
    }

    /// Its host has declared a transaction over that holds nothing here any more. Each is remembered for a while; where there are
    /// many, since a commit can't be confirmed while a device is unavailable, the floor refuses late copies of the oldest.
    pub(super) fn on_lock_over(&mut self, id: TransactionId) {
        for id in self.locks.remember_over(id) {
            if let Some(transaction) = self.ledger.get(id).filter(|held| held.state == State::Aborted) {
                self.stamps.raise_floor(transaction.stamp);
                self.ledger.drop_decided(id);
            }
        }
    }
}

fn too_late(stamps: &Stamps, stamp: Stamp, prewrites: &[BlockRange], reads: &ReadRequest) -> Option<Refusal> {
    let written = stamps.seen_by_write(reads.object, prewrites);
    let seen = stamps.seen_by_read(reads.object, &reads.extents).max(written);
    (stamp <= seen).then_some(Refusal::TooLate { seen })
}
