//! The transactions of a device in the order of their stamps: which are under way, which stamps their blocks have, and which requests wait
//! for lower stamps. Stamp checks, device locks and columns all decide on this state; its methods are what they share.

use super::Counters;
use super::ctx::Ctx;
use super::decision::Decision;
use super::ledger::Ledger;
use super::stamp_table::{Access, Stamps};
use super::transactions::State;
use super::waiting::{ReadRequest, Waiting, WaitingQueue, WaitingRequest};
use braid_base::limits::{self, Settings};
use braid_base::{Stamp, Time, TransactionId};
use braid_blocks::Want;
use braid_ordering::WriteMode;
use braid_ordering::{Admission, Policy};
use braid_store::Intent;
use braid_wire::{Refusal, Step};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) struct Order {
    pub ledger: Ledger,
    pub stamps: Stamps,
    pub waiting: WaitingQueue,
    /// Transactions for which the store is reading.
    pub reading: BTreeSet<TransactionId>,
    pub counters: Counters,
}

impl Order {
    pub fn new(settings: &Settings) -> Order {
        Order {
            ledger: Ledger::new(settings.device_transactions_max),
            stamps: Stamps::new(Stamp::ZERO, settings.stamps_kept, Time(0)),
            waiting: WaitingQueue::default(),
            reading: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// Handles a read, or the read half of a read-and-pre-write whose pre-write is accepted already.
    pub fn read_in_order(
        &mut self,
        cx: &mut Ctx,
        id: TransactionId,
        stamp: Stamp,
        policy: &'static Policy,
        step: Step,
        read: ReadRequest,
    ) {
        let by_stamps = policy.admission == Admission::ByStamps;
        let seen = self.stamps.seen_by_read(read.object, &read.extents);
        if by_stamps && stamp <= seen {
            return self.refuse_reading(cx, id, step, Refusal::TooLate { seen });
        }
        if step == Step::Prewrite && self.ledger.is_suspect(read.object, &read.extents) {
            return self.refuse_reading(cx, id, step, Refusal::Suspect);
        }
        let blockers: BTreeSet<_> =
            self.ledger.table().blockers(id, stamp, policy, read.object, &read.extents).collect();
        if blockers.is_empty() && self.reading.len() < limits::WAITING_MAX {
            if by_stamps {
                self.stamps.raise(cx.now.time, read.object, &read.extents, Access::Read, stamp);
            }
            return self.serve(cx, id, step, read);
        }
        let (object, blocks) = (read.object, read.extents.clone());
        let request = WaitingRequest::Read(ReadRequest { waited: true, ..read });
        if !blockers.is_empty() && self.wait(cx, id, Waiting { stamp, policy, object, blocks, request }, blockers) {
            return;
        }
        self.refuse_reading(cx, id, step, Refusal::Busy);
    }

    /// Refuses a read, and drops the pre-write that came with it. If the transaction was granted before, this may be an
    /// old copy whose answer the host ignores; then the pre-write stays until the transaction is over.
    pub fn refuse_reading(&mut self, cx: &mut Ctx, id: TransactionId, step: Step, refusal: Refusal) {
        if self.ledger.get(id).is_none_or(|transaction| !transaction.granted) {
            self.promise_abort(cx, id);
        }
        cx.refuse(id, step, refusal);
    }

    pub fn write_in_order(&mut self, cx: &mut Ctx, intent: Intent, mode: WriteMode) {
        let (id, stamp) = (intent.transaction, intent.stamp);
        // It is pre-written: its callers have just inserted or found it, have taken its write out of the queue, from which the end of a
        // transaction removes it, or have found its column under way.
        let transaction = self.ledger.get(id).expect("whoever writes has a pre-write in the ledger");
        // Only what is aborted before its blocks are known has no policy.
        let policy = transaction.policy.expect("a pre-write is on a known object");
        let ranges = transaction.ranges.clone();
        let blockers: BTreeSet<_> = self.ledger.table().blockers(id, stamp, policy, intent.object, &ranges).collect();
        if !blockers.is_empty() {
            self.ledger.get_mut(id).expect("it was pre-written").waited = true;
            let request = WaitingRequest::Write(intent, mode);
            let object = self.ledger.get(id).expect("it was pre-written").object;
            if !self.wait(cx, id, Waiting { stamp, policy, object, blocks: ranges, request }, blockers) {
                if cx.is_unannounced(object) {
                    self.put_off(cx, id);
                } else {
                    self.promise_abort(cx, id);
                }
                cx.refuse(id, Step::Write, Refusal::Busy);
            }
            return;
        }
        self.counters.writes += 1;
        self.stamps.raise(cx.now.time, intent.object, &ranges, Access::Write, stamp);
        let begun = match mode {
            WriteMode::Intent => State::Preparing { abort: false },
            WriteMode::Immediate => State::Applying,
        };
        let transaction = self.ledger.begin(id, begun);
        transaction.participants.clone_from(&intent.participants);
        transaction.epoch = intent.epoch;
        cx.decide(match mode {
            WriteMode::Intent => Decision::Prepare(intent),
            WriteMode::Immediate => {
                transaction.linkage = Some(intent.linkage);
                Decision::Apply(intent)
            }
        });
    }

    /// Puts a request aside until `blockers` are decided.
    pub fn wait(
        &mut self,
        cx: &mut Ctx,
        id: TransactionId,
        waiting: Waiting,
        blockers: BTreeSet<TransactionId>,
    ) -> bool {
        if !self.waiting.push(id, waiting) {
            return false;
        }
        self.counters.waits += 1;
        self.ledger.want(cx, blockers);
        true
    }

    pub fn is_being_read(&self, id: TransactionId) -> bool {
        self.waiting.get(id).is_some() || self.reading.contains(&id)
    }

    pub fn serve(&mut self, cx: &mut Ctx, id: TransactionId, step: Step, read: ReadRequest) {
        self.counters.reads += 1;
        // Allocation is answered at once, without the store's disk.
        if read.want != Want::Allocation {
            self.reading.insert(id);
        }
        cx.decide(Decision::Serve { transaction: id, step, read });
    }

    /// Makes an abort promise: drops a pre-write that has no intent, and the request that waits for it. The stamp stays
    /// on its blocks, so that a late copy is refused. The transaction is kept as aborted until it is settled. Does
    /// nothing for a transaction that was never pre-written here.
    pub fn promise_abort(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.waiting.take(id);
        let Some(transaction) = self.ledger.get(id) else { return };
        assert_eq!(transaction.state, State::Prewritten, "only a pre-write without an intent is dropped: {id}");
        self.leave_stamp(cx, id);
        self.ledger.advance(cx, id, State::Aborted);
    }

    /// Drops an unannounced write that is waiting. Its host sends it again.
    pub fn put_off(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.promise_abort(cx, id);
        if self.ledger.get(id).is_some() {
            self.ledger.drop_decided(id);
        }
    }

    /// Leaves the stamp of a dropped pre-write on its blocks, so that late copies of it are refused. Under device locks
    /// a stamp left here would refuse the requests that wait for the transaction's locks. There the transaction itself
    /// is remembered, and so refuses late copies, until a settled mark or the floor is above it.
    pub fn leave_stamp(&mut self, cx: &Ctx, id: TransactionId) {
        let dropped = self.ledger.get(id).expect("it is known");
        if !dropped.takes_locks() {
            self.stamps.raise(cx.now.time, dropped.object, &dropped.ranges, Access::Read, dropped.stamp);
        }
    }
}
