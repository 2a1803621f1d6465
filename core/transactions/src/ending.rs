//! The end of an attempt: commit, abort or time-out, and the messages about it to devices and lock servers.

use crate::coordinator::Coordinator;
use crate::ctx::{Ctx, Event, OperationId};
use crate::locking::why_no_locks;
use crate::operations::OperationTimer;
use crate::transaction::{Phase, Transaction};
use braid_base::{DeviceId, TransactionId};
use braid_machine::{HostError, HostRequest, Ignored, Note, VolumeRequest};
use braid_ordering::WriteMode;
use braid_ordering::{AbortNotice, RefusedWrite};
use braid_wire::{Failure, Outcome, Rejection};
use std::collections::BTreeSet;

impl Coordinator {
    /// A device has answered an abort: the abort is durable, or another host has committed the transaction before.
    pub(crate) fn on_abort_answered(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, outcome: Outcome) {
        let Some(transaction) = self.transactions.own(ctx, id) else { return ctx.out.ignore(Ignored::NotAwaited) };
        let Phase::Aborting { unconfirmed, .. } = &mut transaction.phase else {
            return ctx.out.ignore(Ignored::NotAwaited);
        };
        if !unconfirmed.contains(&device) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        if outcome == Outcome::Commit {
            return self.resolve_own(ctx, id.sequence);
        }
        unconfirmed.remove(&device);
        let all_know = unconfirmed.is_empty();
        // Each device may forget an abort by itself, but a commit only when all devices have it.
        ctx.links.of(device).settle(id.sequence);
        if all_know {
            self.end_aborted(ctx, id.sequence);
        }
    }

    /// The transaction has left nothing on any device, and never will. If its operation waits for that, it is retried
    /// or fails.
    pub(crate) fn end_aborted(&mut self, ctx: &mut Ctx, sequence: u64) {
        let op = self.transactions.of_mut(sequence).op.take();
        let is_interrupted = self.report_interrupted(ctx.id(sequence));
        self.transactions.end(ctx, sequence);
        let Some(op) = op else { return };
        match self.operations.of_mut(op).failure.take() {
            Some(error) => self.finish(op, Err(error)),
            None => {
                self.try_again(ctx, op);
                self.operations.of_mut(op).awaits_resync = is_interrupted.then_some(ctx.id(sequence));
            }
        }
    }

    /// Reports an interrupted write if the transaction may have written anything: that stays, and parity may not match
    /// it. Returns whether it did.
    fn report_interrupted(&mut self, id: TransactionId) -> bool {
        let transaction = self.transactions.of(id.sequence);
        let is_interrupted = transaction.may_be_interrupted() && transaction.volume.layout.redundancy_units() > 0;
        if is_interrupted {
            let (volume, linkage) = (transaction.volume.clone(), transaction.work.linkage());
            self.events.push_back(Event::Interrupted { transaction: id, volume, linkage });
        }
        is_interrupted
    }

    /// A transaction that wrote on arrival is complete, except on devices that came back since it was planned: another
    /// device may have listed what these missed before the write reached it. So its operation writes again, without
    /// reading from these devices, before it is answered.
    pub(crate) fn write_again_if_missed(&mut self, ctx: &mut Ctx, sequence: u64) {
        let transaction = self.transactions.of(sequence);
        let back = transaction.come_back_since(ctx.view);
        if back.is_empty() {
            return;
        }
        // An abandoned operation does not write again.
        let op = transaction.op.filter(|op| !self.operations.is_abandoned(*op));
        match op.map(|op| self.operations.of_mut(op)) {
            Some(operation)
                if matches!(
                    operation.request,
                    HostRequest::Volume(VolumeRequest::Write { .. } | VolumeRequest::Zero { .. })
                ) =>
            {
                // Forces a new plan.
                operation.damaged.extend(back);
                operation.view = 0;
                let op = operation.op;
                self.transactions.of_mut(sequence).op = None;
                self.try_again(ctx, op);
            }
            Some(_) => {}
            // No user waits for the outcome any more. The transaction is reported as interrupted, although it may be
            // complete.
            None => {
                self.report_interrupted(ctx.id(sequence));
            }
        }
    }

    /// Locks were not granted in time, perhaps because of a deadlock. Counted as a refusal, so that the retry backs off
    /// and does not meet the same transaction again.
    pub(crate) fn count_restart(&mut self, sequence: u64) {
        self.counters.restarts += 1;
        if let Some(op) = self.transactions.of(sequence).op {
            self.operations.of_mut(op).refusals.in_a_row += 1;
        }
    }

    /// Ends a lost attempt. Its operation is retried as a new transaction.
    pub(crate) fn lose(&mut self, ctx: &mut Ctx, sequence: u64, refused_by: Option<DeviceId>) {
        let transaction = self.transactions.of_mut(sequence);
        // If writes were sent, not before all devices concerned know that this attempt is over (see `Phase::Aborting`).
        let op = if transaction.wrote { None } else { transaction.op.take() };
        self.wind_up(ctx, sequence, refused_by);
        if let Some(op) = op {
            self.try_again(ctx, op);
        }
    }

    /// Ends an attempt that has failed for good, and its operation with it. A plain write may be reported as failed and
    /// still be found done; its user simply writes again. A request to an attribute volume, or a write of endless
    /// patience, is reported as failed only once that is known to be true.
    pub(crate) fn fail(&mut self, ctx: &mut Ctx, sequence: u64, knows: Option<DeviceId>, error: HostError) {
        let transaction = self.transactions.of(sequence);
        let Some(op) = transaction.op else { return self.abort(ctx, sequence, knows) };
        let is_endless = self.operations.is_endless(op);
        // Only writes of endless patience are written again, if some of their writes may have taken effect.
        let is_patient = self.operations.is_patient(op) && !transaction.may_stay_in_part();
        if (is_patient && may_pass(ctx, transaction, &error)) || (is_endless && transaction.may_stay_in_part()) {
            return self.lose(ctx, sequence, knows);
        }
        if transaction.may_have_happened() || (is_endless && transaction.wrote) {
            self.operations.of_mut(op).failure = Some(error);
            return self.wind_up(ctx, sequence, knows);
        }
        self.abort(ctx, sequence, knows);
        self.finish(op, Err(error));
    }

    /// Retries an operation after its back-off.
    pub(crate) fn try_again(&mut self, ctx: &mut Ctx, op: OperationId) {
        self.counters.retries += 1;
        let user = if let OperationId::User(op) = op { Some(op) } else { None };
        ctx.out.note(Note::Retried { op: user });
        self.operations.try_again(ctx.now, ctx.settings, ctx.rng, op);
    }

    /// Ends an attempt that will not commit: not all participants have intents, and a device that refused the write for
    /// good has made an abort promise. The other participants are told until all know; `knows` is the device that
    /// refused. If intents were sent and no device has promised, all participants are asked to promise: the transaction
    /// is retracted. That fails if another host may have found it prepared on a device; then it is resolved.
    pub(crate) fn abort(&mut self, ctx: &mut Ctx, sequence: u64, knows: Option<DeviceId>) {
        self.transactions.of_mut(sequence).op = None;
        self.wind_up(ctx, sequence, knows);
    }

    /// The same, if the operation waits for the result.
    fn wind_up(&mut self, ctx: &mut Ctx, sequence: u64, knows: Option<DeviceId>) {
        let transaction = self.transactions.of(sequence);
        let retracts = transaction.wrote && knows.is_none() && transaction.mode() == WriteMode::Intent;
        let told = match transaction.policy().abort_notice {
            AbortNotice::Never => BTreeSet::new(),
            AbortNotice::IfWritten if !transaction.wrote => BTreeSet::new(),
            AbortNotice::IfWritten | AbortNotice::Always => &transaction.participants | &transaction.lock_only(),
        };
        // A device that has been out since has nothing to undo.
        let counts = |device: &DeviceId| Some(*device) != knows && transaction.counts(ctx.view, *device);
        let unconfirmed: BTreeSet<_> = told.into_iter().filter(counts).collect();
        let transaction = self.transactions.of_mut(sequence);
        if unconfirmed.is_empty() {
            return if retracts { self.resolve_own(ctx, sequence) } else { self.end_aborted(ctx, sequence) };
        }
        for device in transaction.asked.difference(&unconfirmed) {
            ctx.links.of(*device).settle(sequence);
        }
        self.counters.aborted += 1;
        transaction.phase = Phase::Aborting { unconfirmed, since: ctx.now.time, retracts };
        transaction.resend.reset();
        // A device may yet accept a write that is still on its way. In that case the locks are kept until every device
        // has confirmed the abort.
        if !transaction.wrote {
            ctx.release_locks(sequence);
        }
        self.transactions.send_phase(ctx, sequence);
        self.transactions.arm_resend(ctx, sequence);
    }

    /// An operation's time is up. What it has begun is undone if possible. A write that was sent may or may not have
    /// taken effect.
    pub(crate) fn on_expired(&mut self, ctx: &mut Ctx, op: OperationId) {
        if self.operations.has_waited_enough(ctx.now.time, op) {
            return end_patience(self, ctx, op);
        }
        if self.operations.is_patient(op) {
            self.counters.prolonged += 1;
            self.operations.prolong(ctx.now.time, ctx.settings, op);
            // Its intents would hold back other hosts.
            let attempt = self.operations.of(op).attempt;
            if let Some(sequence) = attempt.filter(|sequence| self.transactions.of(*sequence).waits_for_devices()) {
                self.lose(ctx, sequence, None);
            }
            return;
        }
        let operation = self.operations.of(op);
        let waited = ctx.now.time.since(operation.since);
        let Some(sequence) = operation.attempt else {
            return self.finish(op, Err(HostError::Contended { waited }));
        };
        let error = match (&self.transactions.of(sequence).phase, self.transactions.of(sequence).silent()) {
            (_, Some(silent)) => {
                let crowded = silent.iter().find(|device| ctx.links.is_crowded(**device));
                let devices = silent.iter().copied().collect();
                let rejected = |device: &_| HostError::Rejected { device: *device, rejection: Rejection::TooManyHosts };
                crowded.map_or(HostError::TimedOut { devices, waited }, rejected)
            }
            (Phase::Locking, None) => why_no_locks(ctx, sequence, waited),
            _ => {
                let transaction = self.transactions.of(sequence);
                HostError::TimedOut { devices: self.resolutions.undecided_by(ctx.id(sequence), transaction), waited }
            }
        };
        self.give_up(ctx, op, error);
    }

    /// Answers an operation with an error, and undoes what it has begun unless its writes took effect on arrival. Intents
    /// are retracted: they would hold back other hosts for as long as one device does not answer this host. Until the
    /// transaction is decided, it keeps its locks.
    pub(crate) fn give_up(&mut self, ctx: &mut Ctx, op: OperationId, error: HostError) {
        let attempt = self.operations.of(op).attempt;
        self.finish(op, Err(error));
        let Some(sequence) = attempt else { return };
        let transaction = self.transactions.of(sequence);
        let undone = match transaction.phase {
            Phase::Locking | Phase::Reading { .. } | Phase::Executing { .. } => true,
            Phase::Writing { .. } => transaction.mode() == WriteMode::Intent,
            Phase::Committed { .. } | Phase::Aborting { .. } | Phase::Resolving => false,
        };
        if undone {
            self.abort(ctx, sequence, None);
        } else if matches!(transaction.phase, Phase::Writing { .. })
            && transaction.policy().refused_write == RefusedWrite::Resend
        {
            self.transactions.insist(sequence);
        }
    }
}

/// The patience of an operation is over. If devices are missing that it needs, it fails; otherwise it has the host's time-out
/// from now on.
fn end_patience(coordinator: &mut Coordinator, ctx: &mut Ctx, op: OperationId) {
    coordinator.operations.end_patience(ctx.now.time, op, ctx.settings.request_timeout);
    if let Some(sequence) = coordinator.operations.of(op).attempt {
        let transaction = coordinator.transactions.of(sequence);
        let devices: Vec<_> =
            ctx.view.unavailable().iter().copied().filter(|device| transaction.will_need(*device)).collect();
        if !devices.is_empty() {
            coordinator.give_up(ctx, op, HostError::Unavailable { devices });
        }
        return;
    }
    coordinator.operations.take_timer(OperationTimer::Retry(op));
    coordinator.attempt(ctx, op);
}

/// True if an error may be over later, so that a patient user waits.
fn may_pass(ctx: &Ctx, transaction: &Transaction, error: &HostError) -> bool {
    let HostError::Device { failure, .. } = error else { return matches!(error, HostError::ClockApart { .. }) };
    let is_missing = |device: &DeviceId| !ctx.view.is_in(*device) || ctx.view.unavailable().contains(device);
    match failure {
        Failure::Disk | Failure::InUse | Failure::Busy | Failure::Absent => true,
        // Missing devices can reconstruct the block when they are back.
        Failure::Lost { .. } => transaction.volume.holders().iter().any(is_missing),
        Failure::NoSuchObject
        | Failure::ObjectExists
        | Failure::OutOfRange
        | Failure::NoSpace
        | Failure::WrongOrdering
        | Failure::Malformed => false,
    }
}
