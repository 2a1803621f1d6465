//! The course of an attempt at an operation: locks, reads and pre-writes, writes. The last answer ends each phase.

use crate::coordinator::Coordinator;
use crate::ctx::{Ctx, OperationId};
use crate::transaction::{Phase, Transaction, share_of};
use crate::work::{Conclusion, plan};
use braid_base::limits;
use braid_base::{BlockRange, DeviceId, Stamp, TransactionId};
use braid_blocks::{Piece, Want};
use braid_layout::Old;
use braid_machine::{HostError, HostRequest, HostSuccess, Ignored, VolumeRequest};
use braid_ordering::WriteMode;
use braid_wire::Failure;
use std::collections::BTreeSet;
use std::rc::Rc;

impl Coordinator {
    /// Begins a new transaction for an operation.
    pub(crate) fn attempt(&mut self, ctx: &mut Ctx, op: OperationId) {
        if self.operations.is_abandoned(op) {
            let error = self.operations.of_mut(op).failure.take().expect("it was abandoned for a reason");
            return self.finish(op, Err(error));
        }
        let Some(view) = ctx.view.version() else {
            // No membership is known yet.
            return self.operations.retry_at(op, ctx.now.time.after(ctx.settings.heartbeat));
        };
        if self.operations.of(op).awaits_resync.is_some() {
            return self.operations.retry_at(op, ctx.now.time.after(ctx.settings.heartbeat));
        }
        let operation = self.operations.of(op);
        if operation.view != view {
            match plan(ctx.view, &operation.volume, &operation.request, &operation.damaged) {
                Err(HostError::Unavailable { devices }) if self.operations.is_patient(op) => {
                    return self.operations.wait_for_devices(ctx.now.time, ctx.settings, op, devices);
                }
                Err(error) => return self.finish(op, Err(error)),
                Ok(work) if work.shares().is_empty() => {
                    return self.finish(op, Ok(work.result(&Old::new())));
                }
                Ok(work) => {
                    let operation = self.operations.of_mut(op);
                    (operation.work, operation.view) = (Rc::new(work), view);
                }
            }
        }
        self.operations.lacks_nothing(op);
        if self.operations.awaits_others(op, &self.transactions) {
            return self.operations.retry_at(op, ctx.now.time.after(ctx.settings.heartbeat));
        }
        let sequence = ctx.links.take_sequence();
        let patience = ctx.settings.reader_patience;
        let operation = self.operations.of_mut(op);
        operation.attempt = Some(sequence);
        let (volume, work, head_start) =
            (operation.volume.clone(), operation.work.clone(), operation.refusals.head_start);
        // A read that was refused again and again is sent with pre-writes, which hold off writers with higher stamps.
        let insists = volume.ordering.policy().reads_insist
            && work.want() == Want::Data
            && !work.writes()
            && operation.refusals.in_a_row >= patience;
        let (mut asked, mut participants) = (BTreeSet::new(), BTreeSet::new());
        for share in work.shares() {
            let device = volume.device_at(share.position);
            asked.insert(device);
            if insists || !share.prewrites.is_empty() {
                participants.insert(device);
            }
            ctx.links.of(device).begin(sequence);
        }
        // Allocation is read without a lock: each answer concerns one device, and is true when it is given.
        let locks = volume.ordering.needs_lock_server() && work.want() != Want::Allocation;
        let transaction = Transaction {
            op: Some(op),
            stamp: Stamp::ZERO,
            head_start,
            epoch: ctx.view.epoch(),
            volume,
            work,
            asked,
            participants,
            wanted: BTreeSet::new(),
            at_once: false,
            wrote: false,
            success: HostSuccess::Done,
            lost_locks: false,
            resend: ctx.settings.resend(),
            phase: Phase::Locking,
        };
        self.transactions.open(sequence, transaction);
        if locks { self.acquire(ctx, sequence) } else { self.begin(ctx, sequence) }
    }

    /// Sends the first requests to devices, once all locks of lock servers are granted.
    pub(crate) fn begin(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.transactions.of_mut(sequence);
        let stamp = self.stamps.next_with(ctx.now.clock, transaction.head_start);
        transaction.stamp = stamp;
        // A refusal costs more than with pre-writes: the devices that have accepted the write must undo an intent.
        let can_be_at_once = transaction.can_write_at_once()
            && transaction.op.is_some_and(|op| self.operations.of(op).refusals.in_a_row == 0)
            && !self.contention.is_likely(ctx.now.time, transaction.volume.id, &transaction.stripes());
        if can_be_at_once
            && let Some(columns) = transaction.columns()
            && self.cuts.allow(ctx.now.time, &columns)
        {
            self.counters.count_bands(transaction.work.methods());
            self.counters.executed += 1;
            return self.transactions.execute(ctx, sequence, columns);
        }
        transaction.at_once = can_be_at_once && transaction.reads_nothing();
        let is_announced = transaction.announces() && !transaction.at_once;
        let silent = if is_announced { transaction.asked.clone() } else { transaction.readers() };
        let reads = !silent.is_empty();
        transaction.resend.reset();
        transaction.phase = Phase::Reading { silent, old: Old::new() };
        if reads {
            self.transactions.send_phase(ctx, sequence);
            self.transactions.arm_resend(ctx, sequence);
        } else {
            self.on_all_read(ctx, sequence);
        }
    }

    /// A device has answered a read, a pre-write or both.
    pub(crate) fn on_data(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, pieces: Vec<Piece>) {
        let Some(transaction) = self.transactions.own(ctx, id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        let stamp = transaction.stamp;
        let Phase::Reading { silent, old } = &mut transaction.phase else { return ctx.out.ignore(Ignored::NotAwaited) };
        if !silent.remove(&device) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        let all_here = silent.is_empty();
        let share = share_of(&transaction.work, &transaction.volume, device);
        old.insert(share.position, pieces);
        let covered = old.covers(share.position, &share.reads, transaction.work.want());
        self.stamps.accepted(stamp);
        if !covered {
            return self.on_short_answer(ctx, device, id.sequence);
        }
        if all_here {
            self.on_all_read(ctx, id.sequence);
        }
    }

    /// Handles an answer that leaves out blocks that were asked for. A device may do so in a list of allocation that
    /// grew too long for a frame; otherwise the device is faulty.
    fn on_short_answer(&mut self, ctx: &mut Ctx, device: DeviceId, sequence: u64) {
        let op = self.transactions.of(sequence).op;
        if let Some(operation) = op.map(|op| self.operations.of_mut(op))
            && let HostRequest::Volume(VolumeRequest::Allocation { range, .. }) = &mut operation.request
            && range.count > limits::EXTENTS_MAX as u64
        {
            *range = BlockRange::new(range.start, limits::EXTENTS_MAX as u64);
            // Forces a new plan.
            operation.view = 0;
            return self.lose(ctx, sequence, None);
        }
        self.abort(ctx, sequence, None);
        if let Some(op) = op {
            self.finish(op, Err(HostError::Device { device, failure: Failure::Malformed }));
        }
    }

    /// Everything is read: a read ends, and a write is sent if there is anything to write.
    fn on_all_read(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.transactions.of_mut(sequence);
        let Phase::Reading { old, .. } = &transaction.phase else { unreachable!("only reading ends so") };
        match transaction.work.conclude(old) {
            Conclusion::Write(pieces, success) => {
                self.counters.count_bands(transaction.work.methods());
                let volume = &transaction.volume;
                let pieces =
                    pieces.into_iter().map(|(position, pieces)| (volume.device_at(position), pieces)).collect();
                let silent = transaction.participants.clone();
                transaction.phase = Phase::Writing { silent, pieces };
                transaction.wrote = true;
                transaction.success = success;
                transaction.resend.reset();
                self.transactions.send_phase(ctx, sequence);
                self.transactions.arm_resend(ctx, sequence);
            }
            Conclusion::Answer(outcome) => {
                let op = transaction.op.take();
                if transaction.participants.is_empty() {
                    let told = transaction.lock_only();
                    self.transactions.tell_end(ctx, sequence, told);
                } else {
                    // A read with pre-writes has to abort them.
                    self.abort(ctx, sequence, None);
                }
                if let Some(op) = op {
                    self.finish(op, outcome);
                }
            }
        }
    }

    /// A device has made its intent durable, or has written where writes take effect on arrival.
    pub(crate) fn on_written(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId) {
        let Some(transaction) = self.transactions.own(ctx, id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        let stamp = transaction.stamp;
        let (Phase::Writing { silent, .. } | Phase::Executing { silent, .. }) = &mut transaction.phase else {
            return ctx.out.ignore(Ignored::NotAwaited);
        };
        if !silent.remove(&device) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        let all_have = silent.is_empty();
        self.stamps.accepted(stamp);
        if all_have {
            self.on_all_written(ctx, id.sequence);
        }
    }

    /// All participants have prepared, or have written where that takes effect on arrival: the transaction is
    /// committed, whatever happens now.
    pub(crate) fn on_all_written(&mut self, ctx: &mut Ctx, sequence: u64) {
        if self.transactions.of(sequence).may_be_interrupted() {
            self.write_again_if_missed(ctx, sequence);
        }
        let transaction = self.transactions.of_mut(sequence);
        if let Phase::Executing { columns, .. } = &transaction.phase {
            self.cuts.end(columns);
        }
        let op = transaction.op.take();
        let success = transaction.take_success();
        let told = match transaction.mode() {
            WriteMode::Intent if transaction.locks_what_it_reads() => transaction.asked.clone(),
            WriteMode::Intent => transaction.participants.clone(),
            WriteMode::Immediate => {
                let transaction = self.transactions.of(sequence);
                transaction.lock_only().into_iter().filter(|device| transaction.counts(ctx.view, *device)).collect()
            }
        };
        self.counters.committed += 1;
        self.contention.on_committed();
        self.transactions.tell_end(ctx, sequence, told);
        if let Some(op) = op {
            self.finish(op, Ok(success));
        }
    }
}
