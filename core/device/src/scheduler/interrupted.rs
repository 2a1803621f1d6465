//! Interrupted writes, where devwrites take effect on arrival (atomicity `consistent`; shared-array paper, section 5).
//!
//! ```text
//!   announced ── its host is silent, fenced, or says so ────► suspect ─┐  a host verifies the stripes, or repairs them
//!   written   ── the same, before its host said "over" ─────► suspect ─┴─► forgotten
//! ```
//!
//! A device can't know whether the other devwrites of a transaction arrived, so it names the transaction to hosts, in
//! heartbeat answers. Until a host tells it to forget the transaction, it refuses reads of suspect blocks whose content
//! is to be used for parity. Plain reads continue, and so do writes that need no old content.
//!
//! A write is remembered durably until its host says that it is over, so that a restart of the device does not hide it.
//! A pre-write is lost with a restart. Then the devices that have written name the transaction.

use super::Scheduler;
use super::ctx::Ctx;
use super::waiting::{Waiting, WaitingRequest};
use braid_base::TransactionId;

impl Scheduler {
    /// True if the transaction's host may have sent writes of it: all its requests to this device were answered.
    fn is_announced(&self, cx: &Ctx, id: TransactionId) -> bool {
        let transaction = self.order.ledger.get(id).expect("it is known");
        let reads = |waiting: &Waiting| matches!(waiting.request, WaitingRequest::Read(_));
        let being_read = self.order.reading.contains(&id) || self.order.waiting.get(id).is_some_and(reads);
        let answered = !being_read && !self.locks.is_waiting(id);
        answered && !transaction.ranges.is_empty() && cx.can_be_suspect(transaction.object)
    }

    /// True if the device will still accept the transaction's write in another epoch. No device decides such a
    /// transaction without its write, so its host continues with it.
    pub(super) fn outlives_epoch(&self, cx: &Ctx, id: TransactionId) -> bool {
        let transaction = self.order.ledger.get(id).expect("it is known");
        let announced = !transaction.ranges.is_empty() && !self.locks.is_waiting(id);
        announced && cx.can_be_suspect(transaction.object) && !cx.is_unannounced(transaction.object)
    }

    /// Drops a pre-write whose host does not continue with it. If the host may have written elsewhere, the transaction
    /// becomes suspect.
    pub(super) fn cut_short(&mut self, cx: &mut Ctx, id: TransactionId) {
        if !self.is_announced(cx, id) {
            return self.order.promise_abort(cx, id);
        }
        self.order.waiting.take(id);
        self.order.leave_stamp(cx, id);
        self.order.ledger.suspect(cx, id);
    }
}
