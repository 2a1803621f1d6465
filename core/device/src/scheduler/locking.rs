//! Device-served locks (shared-array paper, section 4.4): each device locks its own blocks. Lock requests are part of the
//! requests that hosts send anyway.
//!
//! ```text
//!   hostread                    two-phase hostwrite              single-phase hostwrite
//!   lock shared + read          lock + read                      lock
//!     … answered to the user      … all locks held: write          … all locks held: write
//!   unlock (hidden)             unlock, with the commit          unlock, with the commit
//! ```
//!
//! A read is a shared lock request. A pre-write is an exclusive lock request; blocks that it only reads are locked
//! shared. A transaction holds its locks from the grant to its end on this device. A transaction that wrote ends by its
//! commit or abort. A transaction that only read ends when its host says that it is over; this message rides on a later
//! request like a commit. A request that waits longer than a time-out is refused: there may be a deadlock across several
//! devices. Its host then releases all locks of the transaction and begins it again.
//!
//! Locks are in memory only. They are lost in a restart, or when the lease of a silent host ends. Stamps protect the
//! order in these cases: a request below the stamp of the last write of its blocks, or below the floor, is refused. So a
//! transaction that has lost its lock here is refused on another device when it reads a block that was written since.

use super::Scheduler;
use super::ctx::Ctx;
use super::stamp_table::Stamps;
use super::transactions::{State, Transaction};
use super::waiting::ReadRequest;
use braid_base::{BlockRange, Stamp, TransactionId};
use braid_locks::Locked;
use braid_machine::Ignored;
use braid_ordering::Policy;
use braid_wire::{Refusal, Reply, Step};

/// A read or pre-write, as a lock request.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub stamp: Stamp,
    pub step: Step,
    /// Blocks to lock exclusively.
    pub prewrites: Vec<BlockRange>,
    /// Blocks to lock shared, and to read once the locks are granted.
    pub reads: ReadRequest,
}

impl Scheduler {
    /// Handles a lock request: a read, or a pre-write with or without reads.
    pub(super) fn lock(&mut self, cx: &mut Ctx, id: TransactionId, policy: &'static Policy, request: LockRequest) {
        let LockRequest { stamp, step, prewrites, reads } = request;
        if let Some(transaction) = self.order.ledger.get(id) {
            // A repeated request is answered again, unless the answer is under way or the transaction is beyond this
            // state.
            return match transaction.state {
                State::Prewritten if self.locks.is_waiting(id) || self.order.reading.contains(&id) => {
                    cx.ignore(Ignored::InProgress);
                }
                State::Prewritten => self.on_locked(cx, id, step, reads),
                // The refusal may have been lost. If the request is a late copy, its host ignores the answer.
                State::Aborted | State::Suspect { .. } => cx.refuse(id, step, Refusal::NoPrewrite),
                _ => cx.ignore(Ignored::InProgress),
            };
        }
        if let Some(refusal) = too_late(&self.order.stamps, stamp, &prewrites, &reads) {
            return cx.refuse(id, step, refusal);
        }
        if self.order.ledger.table().is_full_for(id.host) {
            return cx.refuse(id, step, Refusal::Busy);
        }
        let object = reads.object;
        let asked = self.locks.ask(id, stamp, object, &prewrites, &reads.extents);
        self.order.ledger.insert(id, Transaction::new(stamp, object, Some(policy), prewrites, State::Prewritten));
        match asked {
            Locked::Granted => self.on_locked(cx, id, step, reads),
            Locked::Waits { blockers } => {
                self.order.counters.waits += 1;
                self.order.ledger.get_mut(id).expect("just taken in").waited = true;
                let reads = ReadRequest { waited: true, ..reads };
                self.locks.wait(id, step, reads, cx.now.time.after(cx.settings.lock_timeout));
                self.order.ledger.want(cx, blockers);
            }
        }
    }

    /// The locks are granted: reads, or answers at once if there is nothing to read.
    fn on_locked(&mut self, cx: &mut Ctx, id: TransactionId, step: Step, reads: ReadRequest) {
        let transaction = self.order.ledger.get(id).expect("it holds locks");
        // A transaction with a higher stamp has written since the request came: see the module comment.
        if let Some(refusal) = too_late(&self.order.stamps, transaction.stamp, &transaction.ranges, &reads) {
            self.order.promise_abort(cx, id);
            return cx.refuse(id, step, refusal);
        }
        if step == Step::Prewrite && self.order.ledger.is_suspect(reads.object, &reads.extents) {
            self.order.promise_abort(cx, id);
            return cx.refuse(id, step, Refusal::Suspect);
        }
        if step == Step::Prewrite {
            self.order.counters.prewrites += 1;
        }
        if reads.extents.is_empty() {
            return cx.answer(id.host, Reply::Accepted { transaction: id, waited: reads.waited });
        }
        self.order.serve(cx, id, step, reads);
    }

    /// Releases the locks, the places in the queue, and the columns of transactions that are decided. Resumes the requests
    /// that are granted their locks by that.
    pub(super) fn release_ended(&mut self, cx: &mut Ctx) {
        while let Some(ended) = self.order.ledger.next_ended() {
            self.columns.remove(ended.id);
            let granted = if ended.takes_locks { self.locks.release(ended.id) } else { Vec::new() };
            for id in granted {
                let (step, reads) = self.locks.take_granted(id);
                // A transaction that has ended meanwhile releases at once what it was granted.
                if !self.order.ledger.has_ended(id) {
                    self.on_locked(cx, id, step, reads);
                }
            }
        }
    }

    /// Refuses the requests that have waited for locks for longer than the time-out, and drops partials whose columns have not come.
    pub fn time_out(&mut self, cx: &mut Ctx) {
        self.columns.drop_old(cx.now.time);
        // First ends the waits of transactions that are over already.
        self.resume_waiting(cx);
        while let Some((id, step)) = self.locks.pop_timed_out(cx.now.time) {
            self.order.counters.lock_timeouts += 1;
            self.order.promise_abort(cx, id);
            cx.refuse(id, step, Refusal::LockTimeout);
        }
    }

    /// Handles the end of a transaction that holds nothing here any more. Each such transaction is remembered for a
    /// while. There can be many while a device is unavailable, because commits can't be confirmed then. In that case
    /// the floor refuses late copies of the oldest.
    pub(super) fn on_lock_over(&mut self, id: TransactionId) {
        for id in self.locks.remember_over(id) {
            if let Some(transaction) = self.order.ledger.get(id).filter(|held| held.state == State::Aborted) {
                self.order.stamps.raise_floor(transaction.stamp);
                self.order.ledger.drop_decided(id);
            }
        }
    }
}

fn too_late(stamps: &Stamps, stamp: Stamp, prewrites: &[BlockRange], reads: &ReadRequest) -> Option<Refusal> {
    let seen = stamps.seen(reads.object, prewrites, &reads.extents);
    (stamp <= seen).then_some(Refusal::TooLate { seen })
}
