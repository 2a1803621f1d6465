//! Transactions that were cut short where devwrites take effect on arrival (atomicity `consistent`; shared array, section 5).
//!
//! ```text
//!   announced ── its host is silent, kept out, or says so ──► suspect ─┐  somebody finds the stripes right, or repairs them
//!   written   ── the same, before its host said "over" ─────► suspect ─┴─► forgotten
//! ```
//!
//! A device can't know whether the other devwrites of a transaction arrived: it names it to hosts, in heartbeat answers. Until it is
//! told to forget it, it lets nobody read suspect blocks in order to compute parity from them. Plain reads go on, and so do
//! writes that need nothing old.
//!
//! What was written is remembered durably until its host says that it is over, so that a restart of the device does not hide it.
//! What was only announced is lost with a restart; then whoever has written it names it.

use super::Scheduler;
use super::ctx::Ctx;
use super::stamps::Access;
use super::waiting::{Waiting, WaitingRequest};
use braid_base::TransactionId;

impl Scheduler {
    /// True if its host may have sent writes of it: all that it asked for here was answered.
    fn is_announced(&self, cx: &Ctx, id: TransactionId) -> bool {
        let transaction = self.ledger.get(id).expect("it is known");
        let reads = |waiting: &Waiting| matches!(waiting.request, WaitingRequest::Read(_));
        let being_read = self.reading.contains(&id) || self.waiting.get(id).is_some_and(reads);
        let answered = !being_read && !self.locks.is_waiting(id);
        answered && !transaction.ranges.is_empty() && cx.can_be_suspect(transaction.object)
    }

    /// True if its write will still be taken in another epoch: nobody decides without it, so that its host goes on.
    pub(super) fn outlives_epoch(&self, cx: &Ctx, id: TransactionId) -> bool {
        let transaction = self.ledger.get(id).expect("it is known");
        let announced = !transaction.ranges.is_empty() && !self.locks.is_waiting(id);
        announced && cx.can_be_suspect(transaction.object) && !cx.is_unannounced(transaction.object)
    }

    /// Drops a write that was not announced, and waits: its host sends it again.
    pub(super) fn put_off(&mut self, cx: &mut Ctx, id: TransactionId) {
        self.promise_abort(cx, id);
        if self.ledger.get(id).is_some() {
            self.ledger.drop_decided(id);
        }
    }

    /// Drops a pre-write whose host does not go on with it. If that may have written elsewhere, it is suspect.
    pub(super) fn cut_short(&mut self, cx: &mut Ctx, id: TransactionId) {
        if !self.is_announced(cx, id) {
            return self.promise_abort(cx, id);
        }
        self.waiting.take(id);
        self.leave_stamp(cx, id);
        self.ledger.suspect(cx, id);
    }

    /// Late copies of a pre-write that is dropped must not pass for new: its stamp stays on its blocks. Under device locks what comes of
    /// it later is refused by its being remembered, until a mark or the floor is above it: a stamp left here would refuse those who wait
    /// for its locks.
    pub(super) fn leave_stamp(&mut self, cx: &Ctx, id: TransactionId) {
        let dropped = self.ledger.get(id).expect("it is known");
        if !dropped.takes_locks() {
            self.stamps.raise(cx.now.time, dropped.object, &dropped.ranges, Access::Read, dropped.stamp);
        }
    }
}
