//! The rules for reads, pre-writes and writes, mainly under timestamp ordering (shared-array paper, figure 4 and section
//! 4.5.1). Device-served locks are in [`super::locking`].
//!
//! A request with stamp `s` on blocks whose stamps are `rts` and `wts`:
//!
//! | request | refused if | waits for | then |
//! | --- | --- | --- | --- |
//! | read | `s <= wts` | undecided transactions below `s` | raises `rts`; answers with the content |
//! | pre-write | `s <= rts` or `s <= wts` | nothing | claims the blocks |
//! | read-and-pre-write | its read or its pre-write is refused | what its read waits for | does both |
//! | write | its pre-write is not live, or there was none and `s <= rts` or `s <= wts` | undecided transactions below `s` | raises `wts`; becomes an intent |
//!
//! Under a lock server's locks, a request can only meet transactions that are committed and whose commit has not
//! arrived yet. Reads and writes wait for these. Writes carry stamps there, too, so that a write after a lost lock is
//! refused.
//!
//! Requests with equal stamps are duplicates. Where that still matters, they are recognized by their transaction.

use super::Scheduler;
use super::ctx::{Ctx, are_disjoint};
use super::decision::Decision;
use super::locking::LockRequest;
use super::stamp_table::Access;
use super::transactions::{State, Transaction};
use super::waiting::{ReadRequest, Waiting, WaitingRequest};
use braid_base::{BlockRange, Stamp, TransactionId};
use braid_blocks::{Content, Piece, Want};
use braid_machine::Ignored;
use braid_ordering::WriteMode;
use braid_ordering::{Admission, Ordering, Policy, UnannouncedWrite};
use braid_store::Intent;
use braid_wire::{Failure, Refusal, Reply, Step};

impl Scheduler {
    pub(super) fn on_read(&mut self, cx: &mut Ctx, id: TransactionId, stamp: Stamp, read: ReadRequest) {
        if self.order.is_being_read(id) {
            return cx.ignore(Ignored::InProgress);
        }
        let policy = match cx.check_read(&read) {
            Ok(policy) => policy,
            Err(failure) => return cx.fail(id, Step::Read, failure),
        };
        match policy.admission {
            // Allocation is answered without a lock: each answer concerns one device, and is true when it is given.
            Admission::ByLocks if read.want != Want::Allocation => {
                self.lock(cx, id, policy, LockRequest { stamp, step: Step::Read, prewrites: Vec::new(), reads: read });
            }
            // A transaction reads where it does not write, or pre-writes with reads: never both on one device.
            _ if self.order.ledger.get(id).is_some() => cx.ignore(Ignored::NotForUs),
            Admission::OnArrival => self.order.serve(cx, id, Step::Read, read),
            Admission::BehindUndecided | Admission::ByLocks | Admission::ByStamps => {
                self.order.read_in_order(cx, id, stamp, policy, Step::Read, read);
            }
        }
    }

    pub(super) fn on_prewrite(
        &mut self,
        cx: &mut Ctx,
        id: TransactionId,
        stamp: Stamp,
        prewrites: Vec<BlockRange>,
        reads: ReadRequest,
    ) {
        let object = reads.object;
        let policy = match cx.check_prewrite(&prewrites, &reads) {
            Ok(policy) => policy,
            Err(failure) => return cx.fail(id, Step::Prewrite, failure),
        };
        match policy.admission {
            Admission::ByStamps => {}
            Admission::ByLocks => {
                return self.lock(cx, id, policy, LockRequest { stamp, step: Step::Prewrite, prewrites, reads });
            }
            // These orderings have no pre-writes.
            Admission::OnArrival | Admission::BehindUndecided => {
                return cx.fail(id, Step::Prewrite, Failure::Malformed);
            }
        }
        if let Some(transaction) = self.order.ledger.get(id) {
            // A repeated request is answered again, unless the answer is under way or the transaction is beyond this
            // state.
            return match transaction.state {
                State::Prewritten if self.order.is_being_read(id) => cx.ignore(Ignored::InProgress),
                State::Prewritten if reads.extents.is_empty() => {
                    cx.answer(id.host, Reply::Accepted { transaction: id, waited: false });
                }
                State::Prewritten => self.order.read_in_order(cx, id, stamp, policy, Step::Prewrite, reads),
                State::Aborted | State::Suspect { .. } => cx.refuse(id, Step::Prewrite, Refusal::NoPrewrite),
                _ => cx.ignore(Ignored::InProgress),
            };
        }
        let seen = self.order.stamps.seen(object, &prewrites, &reads.extents);
        if stamp <= seen {
            return cx.refuse(id, Step::Prewrite, Refusal::TooLate { seen });
        }
        if self.order.ledger.is_suspect(object, &reads.extents) {
            return cx.refuse(id, Step::Prewrite, Refusal::Suspect);
        }
        if self.order.ledger.table().is_full_for(id.host) {
            return cx.refuse(id, Step::Prewrite, Refusal::Busy);
        }
        self.order.counters.prewrites += 1;
        self.order.ledger.insert(id, Transaction::new(stamp, object, Some(policy), prewrites, State::Prewritten));
        if reads.extents.is_empty() {
            cx.answer(id.host, Reply::Accepted { transaction: id, waited: false });
        } else {
            self.order.read_in_order(cx, id, stamp, policy, Step::Prewrite, reads);
        }
    }

    pub(super) fn on_write(&mut self, cx: &mut Ctx, intent: Intent, ordering: Ordering, mode: WriteMode) {
        let id = intent.transaction;
        if cx.object(intent.object).is_some_and(|object| object.mode() != mode) {
            return cx.fail(id, Step::Write, Failure::Malformed);
        }
        let Some(transaction) = self.order.ledger.get(id) else {
            // For an unknown object, the device goes by the ordering that the host names.
            let ordering = cx.object(intent.object).map_or(ordering, |object| object.ordering);
            let policy = ordering.policy();
            return match policy.unannounced_write {
                UnannouncedWrite::Apply => self.apply_at_once(cx, intent),
                _ if policy.admits_unannounced(mode) => self.write_unannounced(cx, intent, policy, mode),
                _ => self.refuse_stray_write(cx, &intent),
            };
        };
        match transaction.state {
            State::Prewritten if self.order.waiting.get(id).is_some() || self.locks.is_waiting(id) => {
                cx.ignore(Ignored::InProgress);
            }
            State::Prewritten => {
                let ours = intent.participants.contains(&cx.device);
                if !ours || !is_as_prewritten(transaction, &intent) {
                    self.order.promise_abort(cx, id);
                    return cx.fail(id, Step::Write, Failure::Malformed);
                }
                self.order.write_in_order(cx, intent, mode);
            }
            State::Prepared
            | State::Committing
            | State::Committed
            | State::Applied
            | State::Suspect { written: true } => {
                let waited = transaction.waited;
                cx.answer(id.host, Reply::Written { transaction: id, waited });
            }
            State::Aborting | State::Aborted | State::Suspect { written: false } => {
                cx.refuse(id, Step::Write, Refusal::NoPrewrite);
            }
            State::Preparing { .. } | State::Applying => cx.ignore(Ignored::InProgress),
        }
    }

    /// Handles a write that was not announced here, so this is where it may be refused as too late. Under timestamps its
    /// intent takes the place of the pre-write; under a lock server, its host holds the lock on its blocks, and the write
    /// is late only after an abort promise, or after another host's write if its own host lost the lock.
    fn write_unannounced(&mut self, cx: &mut Ctx, intent: Intent, policy: &'static Policy, mode: WriteMode) {
        let (id, object, stamp) = (intent.transaction, intent.object, intent.stamp);
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        let ours = intent.participants.contains(&cx.device);
        match cx.check_ranges(object, &ranges, false) {
            Err(failure) => return cx.fail(id, Step::Write, failure),
            Ok(_) if ours && has_content(&intent.pieces) && are_disjoint(&ranges) => {}
            Ok(_) => return cx.fail(id, Step::Write, Failure::Malformed),
        }
        let seen = self.order.stamps.seen_by_write(object, &ranges);
        if stamp <= seen {
            return cx.refuse(id, Step::Write, Refusal::TooLate { seen });
        }
        if self.order.ledger.table().is_full_for(id.host) {
            return cx.refuse(id, Step::Write, Refusal::Busy);
        }
        self.order.ledger.insert(id, Transaction::new(stamp, object, Some(policy), ranges, State::Prewritten));
        self.order.write_in_order(cx, intent, mode);
    }

    /// Resumes the requests that waited for released claims, in the order of their stamps. One pass may release more
    /// claims. This is a loop, not a call from the place where claims are released, since the chain can be as long as
    /// the queue.
    pub fn resume_waiting(&mut self, cx: &mut Ctx) {
        while self.order.ledger.take_released() {
            self.release_ended(cx);
            for id in self.order.waiting.in_order() {
                self.resume(cx, id);
            }
        }
    }

    fn resume(&mut self, cx: &mut Ctx, id: TransactionId) {
        // An earlier request of this pass may have ended it.
        let Some(waiting) = self.order.waiting.get(id) else { return };
        let Waiting { stamp, policy, object, blocks, .. } = waiting;
        if self.order.ledger.table().blockers(id, *stamp, policy, *object, blocks).next().is_some() {
            return;
        }
        let Waiting { stamp, policy, request, .. } = self.order.waiting.take(id).expect("just seen");
        match request {
            WaitingRequest::Read(read) => {
                let step = if self.order.ledger.get(id).is_some() { Step::Prewrite } else { Step::Read };
                self.order.read_in_order(cx, id, stamp, policy, step, read);
            }
            WaitingRequest::Write(intent, mode) => self.order.write_in_order(cx, intent, mode),
            WaitingRequest::Execute => self.columns.resume(cx, &mut self.order, id),
        }
    }

    /// The store has read the content for a request.
    pub fn on_content(
        &mut self,
        cx: &mut Ctx,
        transaction: TransactionId,
        step: Step,
        waited: bool,
        result: Result<Vec<Piece>, Failure>,
    ) {
        self.order.reading.remove(&transaction);
        if step == Step::Execute {
            return self.columns.on_old(cx, &mut self.order, transaction, result);
        }
        match result {
            Ok(pieces) => {
                if let Some(held) = self.order.ledger.get_mut(transaction) {
                    held.granted = true;
                }
                cx.answer(transaction.host, Reply::Data { transaction, waited, pieces });
            }
            Err(failure) => cx.fail(transaction, step, failure),
        }
    }

    /// Executes a write of an object whose writes take effect as they arrive: it claims no blocks.
    fn apply_at_once(&mut self, cx: &mut Ctx, intent: Intent) {
        let id = intent.transaction;
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        let policy = match cx.check_ranges(intent.object, &ranges, false) {
            Ok(policy) if has_content(&intent.pieces) && are_disjoint(&ranges) => policy,
            Ok(_) => return cx.fail(id, Step::Write, Failure::Malformed),
            Err(failure) => return cx.fail(id, Step::Write, failure),
        };
        if self.order.ledger.table().is_full_for(id.host) {
            return cx.refuse(id, Step::Write, Refusal::Busy);
        }
        self.order.counters.writes += 1;
        let (stamp, object) = (intent.stamp, intent.object);
        self.order.ledger.insert(id, Transaction::new(stamp, object, Some(policy), Vec::new(), State::Applying));
        cx.decide(Decision::Apply(intent));
    }

    /// Refuses a write without a live pre-write, and leaves its stamp on its blocks: a copy of the pre-write that is
    /// still on its way then comes too late. So the host may treat this refusal as final.
    fn refuse_stray_write(&mut self, cx: &mut Ctx, intent: &Intent) {
        let ranges: Vec<_> = intent.pieces.iter().map(|piece| piece.range).collect();
        if cx.check_ranges(intent.object, &ranges, false).is_ok() {
            self.order.stamps.raise(cx.now.time, intent.object, &ranges, Access::Read, intent.stamp);
        }
        cx.refuse(intent.transaction, Step::Write, Refusal::NoPrewrite);
    }
}

/// True if the intent writes blocks that were pre-written, with the same stamp. It need not write all of them: a host
/// that derives the new content from the old one announces more blocks than it changes.
fn is_as_prewritten(transaction: &Transaction, intent: &Intent) -> bool {
    let mut prewritten: Vec<BlockRange> = Vec::new();
    for range in &transaction.ranges {
        match prewritten.last_mut() {
            Some(last) if last.end() == range.start => last.count += range.count,
            _ => prewritten.push(*range),
        }
    }
    let written: Vec<BlockRange> = intent.pieces.iter().map(|piece| piece.range).collect();
    let is_prewritten = |range: &BlockRange| {
        let held = prewritten.get(prewritten.partition_point(|held| held.end() < range.end()));
        !range.is_empty() && held.is_some_and(|held| held.contains(*range))
    };
    let within = !written.is_empty() && written.iter().all(is_prewritten) && are_disjoint(&written);
    let same_place = transaction.object == intent.object && transaction.stamp == intent.stamp;
    same_place && within && has_content(&intent.pieces) && !intent.participants.is_empty()
}

fn has_content(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.content != Content::Present)
}
