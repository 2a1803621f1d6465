//! How an attempt ends: committed, aborted, refused, out of time; and how devices and lock servers hear of it.

use crate::ctx::{OperationId, Timer};
use crate::host::Host;
use crate::links::Links;
use crate::resolve::LEASES_ASKED;
use crate::transaction::{Phase, Transaction};
use braid_base::{Clock, DeviceId, Now, TransactionId};
use braid_machine::{ClockCause, Effects, HostError, HostRequest, Ignored};
use braid_ordering::{AbortNotice, RefusedWrite};
use braid_wire::{Command, Failure, Outcome, Refusal, Rejection, Step, WriteMode};
use std::collections::BTreeSet;
use std::time::Duration;

impl Host {
    /// A transaction is decided, and its user can be answered. It is over when `told` have confirmed that they know.
    pub(crate) fn tell_end(&mut self, now: Now, sequence: u64, told: BTreeSet<DeviceId>, out: &mut Effects) {
        if told.is_empty() {
            return self.end(now, sequence, out);
        }
        self.timers.cancel(Timer::Resend(sequence));
        self.release_locks(now, sequence, out);
        let transaction = self.transactions.get_mut(&sequence).expect("it is being decided");
        let wanted = transaction.wanted;
        if told.len() < transaction.asked.len() {
            settle(transaction, transaction.asked.difference(&told), sequence, &mut self.links);
        }
        let (links, mut ctx) = self.links(now, out);
        told.iter().for_each(|device| links.queue_commit(&mut ctx, *device, sequence));
        if wanted {
            links.hurry_commit(&mut ctx, &told, sequence);
        }
        let transaction = self.transactions.get_mut(&sequence).expect("it is being decided");
        transaction.phase = Phase::Committed { unconfirmed: told };
    }

    /// A transaction has read all it wanted, and writes nothing.
    pub(crate) fn end_reading(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it has read");
        transaction.op = None;
        if !transaction.participants.is_empty() {
            // A reader that insisted has pre-writes to give back.
            return self.abort(now, sequence, None, out);
        }
        let told = transaction.lock_only();
        self.tell_end(now, sequence, told, out);
    }

    /// Somebody waits for this decision: it is told at once, not when a request happens to go that way.
    pub(crate) fn on_blocked(&mut self, now: Now, device: DeviceId, id: TransactionId, out: &mut Effects) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        transaction.wanted = true;
        if let Phase::Committed { unconfirmed } = &transaction.phase {
            let unconfirmed = unconfirmed.clone();
            if unconfirmed.contains(&device) {
                // It may have been told before, and have lost that in a restart.
                self.links.of(device).queue_commit(id.sequence);
            }
            let (links, mut ctx) = self.links(now, out);
            links.hurry_commit(&mut ctx, &unconfirmed, id.sequence);
        }
    }

    /// A commit of ours is durable on this device.
    pub(crate) fn on_confirmed(&mut self, now: Now, device: DeviceId, sequence: u64, out: &mut Effects) {
        self.links.of(device).confirmed(sequence);
        let Some(transaction) = self.transactions.get_mut(&sequence) else { return };
        if let Phase::Committed { unconfirmed } = &mut transaction.phase {
            unconfirmed.remove(&device);
            if unconfirmed.is_empty() {
                self.end(now, sequence, out);
            }
        }
    }

    /// A device answers an abort of ours: it is durable, or somebody has found a commit before.
    pub(crate) fn on_abort_answered(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        outcome: Outcome,
        out: &mut Effects,
    ) {
        let Some(transaction) = self.own(id) else { return out.ignore(Ignored::NotAwaited) };
        let Phase::Aborting { unconfirmed, .. } = &mut transaction.phase else {
            return out.ignore(Ignored::NotAwaited);
        };
        if !unconfirmed.contains(&device) {
            return out.ignore(Ignored::NotAwaited);
        }
        if outcome == Outcome::Commit {
            return self.resolve_own(now, id.sequence, out);
        }
        unconfirmed.remove(&device);
        let all_know = unconfirmed.is_empty();
        // Of an abort each device can forget by itself; of a commit only when all have it.
        self.links.of(device).settle(id.sequence);
        if all_know {
            self.end_aborted(now, id.sequence, out);
        }
    }

    /// Nobody has anything of a transaction, or ever will; if its operation waits for that, it tries again, or fails.
    pub(crate) fn end_aborted(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let op = self.transactions.get_mut(&sequence).expect("it is being aborted").op.take();
        self.resync_if_interrupted(now, sequence, out);
        self.end(now, sequence, out);
        let Some(op) = op else { return };
        let operation = self.operations.get_mut(&op).expect("an attempt knows its operation");
        match operation.failure.take() {
            Some(error) => self.finish(op, Err(error), out),
            None => {
                self.try_again(now, op);
                self.await_resync(op, self.id(sequence));
            }
        }
    }

    /// What was written of it stays, and parity may not match that.
    fn resync_if_interrupted(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        if transaction.may_be_torn() && transaction.volume.layout.redundancy_units() > 0 {
            let (volume, linkage) = (transaction.volume.clone(), transaction.work.linkage());
            self.resync(now, self.id(sequence), volume, linkage, out);
        }
    }

    /// A transaction that wrote on arrival is whole, but for devices that are back since it was planned: what others have for them may
    /// have been listed before it came. So its operation writes again, reading nothing of theirs, before it is answered.
    pub(crate) fn write_again_if_missed(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let back = self.come_back_since(transaction);
        if back.is_empty() {
            return;
        }
        // One that is abandoned does not write again.
        let asked = transaction.op.filter(|op| !self.is_abandoned(*op)).and_then(|op| self.operations.get_mut(&op));
        match asked {
            Some(operation) if matches!(operation.request, HostRequest::Write { .. } | HostRequest::Zero { .. }) => {
                // To be planned anew.
                operation.damaged.extend(back);
                operation.view = 0;
                let op = operation.op;
                self.transactions.get_mut(&sequence).expect("just seen").op = None;
                self.try_again(now, op);
            }
            Some(_) => {}
            // Nobody waits for it any more: it may as well be seen in part.
            None => {
                let (volume, linkage) = (transaction.volume.clone(), transaction.work.linkage());
                self.resync(now, self.id(sequence), volume, linkage, out);
            }
        }
    }

    /// A device was visited by another transaction first, or can't take this one now.
    pub(crate) fn on_refused(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        refusal: Refusal,
        out: &mut Effects,
    ) {
        if !self.is_awaited(device, id, step) {
            return out.ignore(Ignored::NotAwaited);
        }
        if let Refusal::TooLate { seen } = refusal {
            self.stamps.learn(now.clock, seen);
        }
        let resends = |transaction: &mut Transaction| transaction.policy().refused_write == RefusedWrite::Resend;
        if self.own(id).is_some_and(resends) && step == Step::Write {
            // Others may have written already, and nothing undoes that: the same write is sent again, in its time. To begin anew
            // would take the new data for the old.
            return out.ignore(Ignored::InProgress);
        }
        if step == Step::Write && self.own(id).is_some_and(|transaction| transaction.holds_on()) {
            return self.hold_on(now, id.sequence, refusal, out);
        }
        if refusal == Refusal::Suspect {
            // What of it is suspect, the device says in answer to a heartbeat.
            self.send(now, device, Command::Heartbeat, out);
        }
        if refusal == Refusal::LockTimeout {
            self.count_restart(id.sequence);
        }
        // A device that refuses a write for want of room, or for its clock, has promised nothing: it may take a copy of it later,
        // and must be told that this is over.
        let promised = step != Step::Write || !matches!(refusal, Refusal::Busy | Refusal::TooFarAhead { .. });
        let knows = promised.then_some(device);
        if let Refusal::TooFarAhead { clock } = refusal {
            // This host's clock may have jumped ahead and back: stamps need not stay ahead with what was never accepted.
            self.stamps.retreat(now.clock);
            if let Some(error) = self.too_far_ahead(now, device, id.sequence, step, clock) {
                return self.fail(now, id.sequence, knows, error, out);
            }
        }
        self.lose(now, id.sequence, knows, out);
    }

    /// Why an operation fails whose stamp a device finds too far ahead of its clock; none if it is to be tried again. If this host's clock
    /// is ahead of the device's, and was when the operation was tried before, then one of the two is wrong. Otherwise the stamp is ahead
    /// since another device has accepted such stamps, and the monitor tells that to this one with its next lease.
    fn too_far_ahead(
        &mut self,
        now: Now,
        device: DeviceId,
        sequence: u64,
        step: Step,
        theirs: Clock,
    ) -> Option<HostError> {
        let limit = self.config.settings.stamp_ahead_max;
        let patience = self.config.settings.device_lease * LEASES_ASKED;
        let transaction = &self.transactions[&sequence];
        let stamp = transaction.stamp.clock;
        let operation = transaction.op.and_then(|op| self.operations.get_mut(&op))?;
        // If it has not been refused so for a lease, then it has waited for something else since.
        let lease = self.config.settings.device_lease;
        let before = operation.too_far_ahead.filter(|(_, last)| now.time.since(*last) <= lease);
        let first = before.map_or(now.time, |(first, _)| first);
        operation.too_far_ahead = Some((first, now.time));
        let (cause, ours, fails) = if now.clock > theirs.ahead(limit) {
            (ClockCause::Host, now.clock, before.is_some() || step == Step::Write)
        } else {
            (ClockCause::Stamps, stamp, now.time.since(first) >= patience)
        };
        fails.then_some(HostError::ClockApart { device, ahead: ours.since(theirs), limit, cause })
    }

    /// A write that was not announced is refused while its siblings may have taken effect. Its locks keep everybody away, so that it
    /// is sent again, above the stamp that it lost to; to those that have not answered.
    fn hold_on(&mut self, now: Now, sequence: u64, refusal: Refusal, out: &mut Effects) {
        match refusal {
            Refusal::TooLate { .. } => {}
            Refusal::TooFarAhead { .. } if self.stamps.retreat(now.clock) => {}
            // In its time.
            _ => return out.ignore(Ignored::InProgress),
        }
        let stamp = self.stamps.next(now.clock);
        self.transactions.get_mut(&sequence).expect("it is writing").stamp = stamp;
        self.counters.resent += 1;
        self.send_phase(now, sequence, out);
    }

    /// A device can't do what was asked.
    pub(crate) fn on_failed(
        &mut self,
        now: Now,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        failure: Failure,
        out: &mut Effects,
    ) {
        if !self.is_awaited(device, id, step) {
            return out.ignore(Ignored::NotAwaited);
        }
        let op = self.transactions[&id.sequence].op;
        let returning = !self.view().is_in(device);
        if returning || failure == Failure::Absent {
            // It is just coming back, and lacks something yet.
            return self.lose(now, id.sequence, None, out);
        }
        if let Some(op) = op
            && matches!(failure, Failure::Lost { .. })
            && self.can_do_without(op, device)
        {
            self.counters.damaged += 1;
            if let Failure::Lost { block } = failure {
                let volume = self.transactions[&id.sequence].volume.clone();
                self.heal(now, out, |healing, ctx| healing.on_checksum_error(ctx, &volume, device, block));
            }
            return self.lose(now, id.sequence, None, out);
        }
        self.fail(now, id.sequence, None, HostError::Device { device, failure }, out);
    }

    /// A device has lost blocks that an operation asked for: true if it can be planned so that they are worked out from the rest of their
    /// stripes, as it then is. What it writes there is written as always, which mends it.
    fn can_do_without(&mut self, op: OperationId, device: DeviceId) -> bool {
        let operation = &self.operations[&op];
        let replaces = match operation.request {
            HostRequest::Check { .. }
            | HostRequest::CheckRows { .. }
            | HostRequest::CrossCheck { .. }
            | HostRequest::Recompute { .. }
            | HostRequest::Reconstruct { .. } => false,
            _ => operation.volume.layout.redundancy_units() > 0 && !operation.damaged.contains(&device),
        };
        let mut damaged = operation.damaged.clone();
        damaged.insert(device);
        if !replaces || self.plan(&operation.volume, &operation.request, &damaged).is_err() {
            return false;
        }
        let operation = self.operations.get_mut(&op).expect("just seen");
        // To be planned anew.
        (operation.damaged, operation.view) = (damaged, 0);
        true
    }

    /// Locks could not be had in time, perhaps since two wait for each other: who tries again at once would meet the same one.
    pub(crate) fn count_restart(&mut self, sequence: u64) {
        self.counters.restarts += 1;
        let operation = self.transactions[&sequence].op.and_then(|op| self.operations.get_mut(&op));
        if let Some(operation) = operation {
            operation.refusals += 1;
        }
    }

    /// This attempt is lost; the operation tries again as a new transaction.
    pub(crate) fn lose(&mut self, now: Now, sequence: u64, refused_by: Option<DeviceId>, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("only what is under way is lost");
        // Not before all know that this one is over (see `Phase::Aborting`).
        let waits = transaction.wrote && transaction.policy().isolates();
        let op = if waits { None } else { transaction.op.take() };
        self.wind_up(now, sequence, refused_by, out);
        if let Some(op) = op {
            self.try_again(now, op);
            self.await_resync(op, self.id(sequence));
        }
    }

    /// This attempt has failed for good, and so has its operation. A write may be said to have failed and be found done, and is simply written
    /// again; of a request to a mirror that is not said before it is known.
    fn fail(&mut self, now: Now, sequence: u64, knows: Option<DeviceId>, error: HostError, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let Some(op) = transaction.op else { return self.abort(now, sequence, knows, out) };
        if transaction.may_have_happened() {
            self.operations.get_mut(&op).expect("an attempt knows its operation").failure = Some(error);
            return self.wind_up(now, sequence, knows, out);
        }
        self.abort(now, sequence, knows, out);
        self.finish(op, Err(error), out);
    }

    /// Has an operation tried again, in its time.
    pub(crate) fn try_again(&mut self, now: Now, op: OperationId) {
        self.counters.retries += 1;
        let is_abandoned = self.is_abandoned(op);
        let operation = self.operations.get_mut(&op).expect("an attempt knows its operation");
        operation.attempt = None;
        operation.refusals += 1;
        operation.delayed = true;
        // The first retry knows the stamp to beat, so it need not wait; those that lose again get out of each other's way.
        let wait = match operation.refusals {
            _ if is_abandoned => Duration::ZERO,
            1 => Duration::ZERO,
            more => {
                let settings = &self.config.settings;
                let most = (settings.backoff_min * 2u32.saturating_pow(more.min(16))).min(settings.backoff_max);
                Duration::from_nanos(self.rng.between(settings.backoff_min.as_nanos() as u64, most.as_nanos() as u64))
            }
        };
        self.timers.set(Timer::Retry(op), now.time.after(wait));
    }

    /// Ends an attempt that will not commit: nobody has all intents, and whoever refused its write for good has promised never to
    /// have one. Participants are told until all know; the one that refused knows. If writes are out and nobody has promised, a late
    /// copy may yet be taken, and somebody else find the transaction committed: so that is asked first.
    pub(crate) fn abort(&mut self, now: Now, sequence: u64, knows: Option<DeviceId>, out: &mut Effects) {
        self.transactions.get_mut(&sequence).expect("only what is under way is aborted").op = None;
        self.wind_up(now, sequence, knows, out);
    }

    /// The same, if its operation waits for what comes of that.
    fn wind_up(&mut self, now: Now, sequence: u64, knows: Option<DeviceId>, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        if transaction.wrote && knows.is_none() && transaction.mode() == WriteMode::Intent {
            self.counters.aborted += 1;
            return self.resolve_own(now, sequence, out);
        }
        let mut unconfirmed = match transaction.policy().abort_notice {
            AbortNotice::Never => BTreeSet::new(),
            AbortNotice::IfWritten if !transaction.wrote => BTreeSet::new(),
            AbortNotice::IfWritten | AbortNotice::Always => &transaction.participants | &transaction.lock_only(),
        };
        if let Some(device) = knows {
            unconfirmed.remove(&device);
        }
        // Of a device that was out since, nothing is left to be undone.
        let transaction = &self.transactions[&sequence];
        let counting: BTreeSet<_> =
            unconfirmed.iter().copied().filter(|device| self.counts(transaction, *device)).collect();
        unconfirmed = counting;
        let transaction = self.transactions.get_mut(&sequence).expect("just seen");
        if unconfirmed.is_empty() {
            return self.end_aborted(now, sequence, out);
        }
        for device in transaction.asked.difference(&unconfirmed) {
            self.links.of(*device).settle(sequence);
        }
        self.counters.aborted += 1;
        transaction.phase = Phase::Aborting { unconfirmed, since: now.time };
        transaction.resend_after = self.config.settings.resend_min;
        // Writes may still be on their way, to be taken if no device has promised otherwise: then locks stay until all know better.
        if !transaction.wrote {
            self.release_locks(now, sequence, out);
        }
        self.send_phase(now, sequence, out);
        self.arm_resend(now, sequence);
    }

    /// The transaction is over, everywhere.
    pub(crate) fn end(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        self.release_locks(now, sequence, out);
        let transaction = self.transactions.remove(&sequence).expect("a transaction ends once");
        self.timers.cancel(Timer::Resend(sequence));
        settle(&transaction, transaction.asked.iter(), sequence, &mut self.links);
    }

    /// An operation's time is up. What it began is undone if it can be; a write that was sent may or may not take effect.
    pub(crate) fn on_expired(&mut self, now: Now, op: OperationId, out: &mut Effects) {
        let operation = &self.operations[&op];
        let waited = now.time.since(operation.since);
        let Some(sequence) = operation.attempt else {
            return self.finish(op, Err(HostError::Contended { waited }), out);
        };
        let error = match (&self.transactions[&sequence].phase, self.transactions[&sequence].silent()) {
            (_, Some(silent)) => {
                let crowded = silent.iter().find(|device| self.links.get(**device).is_some_and(|link| link.crowded));
                let devices = silent.iter().copied().collect();
                let rejected = |device: &_| HostError::Rejected { device: *device, rejection: Rejection::TooManyHosts };
                crowded.map_or(HostError::TimedOut { devices, waited }, rejected)
            }
            (Phase::Locking, None) => self.why_no_locks(now, sequence, waited),
            _ => HostError::TimedOut { devices: self.undecided_by(sequence), waited },
        };
        self.give_up(now, op, error, out);
    }

    /// Answers an operation with an error, and undoes what it began unless its writes are out.
    pub(crate) fn give_up(&mut self, now: Now, op: OperationId, error: HostError, out: &mut Effects) {
        let attempt = self.operations[&op].attempt;
        self.finish(op, Err(error), out);
        if let Some(sequence) = attempt
            && matches!(self.transactions[&sequence].phase, Phase::Locking | Phase::Reading { .. })
        {
            self.abort(now, sequence, None, out);
        }
    }
}

/// A transaction is over at these of its devices. Those that were only read from, without a lock, hold nothing of it.
fn settle<'a>(
    transaction: &Transaction,
    devices: impl Iterator<Item = &'a DeviceId>,
    sequence: u64,
    links: &mut Links,
) {
    let locks = transaction.locks_what_it_reads();
    for device in devices {
        let link = links.of(*device);
        if locks || transaction.participants.contains(device) {
            link.settle(sequence);
        } else {
            link.settle_read(sequence);
        }
    }
}
