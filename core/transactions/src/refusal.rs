//! Refusals and failures of devices, and their consequences for the attempt.

use crate::coordinator::Coordinator;
use crate::ctx::{Ctx, Event};
use crate::transaction::Transaction;
use braid_base::{DeviceId, TransactionId};
use braid_machine::{HostError, Ignored, Note};
use braid_ordering::RefusedWrite;
use braid_wire::{Command, Failure, Refusal, Step};

impl Coordinator {
    /// A device has accepted another transaction first, or can't accept this one now.
    pub(crate) fn on_refused(
        &mut self,
        ctx: &mut Ctx,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        refusal: Refusal,
    ) {
        if !self.transactions.own(ctx, id).is_some_and(|transaction| transaction.awaits_answer(device, step)) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        ctx.out.note(Note::Refused { transaction: id, device, step, refusal });
        if let Some(op) = self.transactions.of(id.sequence).op {
            self.operations.of_mut(op).refusals.for_lack_of_room = refusal == Refusal::Busy;
        }
        if let Refusal::TooLate { seen } = refusal {
            self.stamps.learn(ctx.now.clock, seen);
            let transaction = self.transactions.of(id.sequence);
            if let Some(op) = transaction.op {
                let (by, ordering) = (seen.clock.since(transaction.stamp.clock), transaction.volume.ordering);
                self.operations.of_mut(op).refusals.on_too_late(by, ordering.needs_lock_server());
            }
        }
        let resends = |transaction: &mut Transaction| transaction.policy().refused_write == RefusedWrite::Resend;
        if self.transactions.own(ctx, id).is_some_and(resends) && step == Step::Write {
            // Other devices may have written already, and nothing undoes that. The same write is sent again, later. A
            // new attempt would read the new data as the old.
            return ctx.out.ignore(Ignored::InProgress);
        }
        if step == Step::Write && self.transactions.own(ctx, id).is_some_and(|transaction| transaction.holds_on()) {
            return self.hold_on(ctx, id.sequence, refusal);
        }
        let transaction = self.transactions.of(id.sequence);
        if transaction.work.writes() {
            self.contention.on_refused(ctx.now.time, transaction.volume.id, transaction.stripes());
        }
        if refusal == Refusal::Suspect {
            // The device names the suspect transaction in its answer to a heartbeat.
            ctx.send(device, Command::Heartbeat);
        }
        if refusal == Refusal::LockTimeout {
            self.count_restart(id.sequence);
        }
        // A device that refuses a write for lack of room, or because of its clock, has made no abort promise. It may
        // accept a copy of the write later, and must be told that the transaction is over.
        // A device that only contributes promises nothing: an earlier copy of the request may have been served.
        let is_late = !matches!(refusal, Refusal::Busy | Refusal::TooFarAhead { .. });
        let promised = match step {
            Step::Read | Step::Prewrite => true,
            Step::Write => is_late,
            Step::Execute => is_late && self.transactions.of(id.sequence).participants.contains(&device),
        };
        let knows = promised.then_some(device);
        if let Refusal::TooFarAhead { clock } = refusal {
            // This host's clock may have jumped ahead and back. Its stamps need not stay above stamps that were never
            // accepted.
            self.stamps.retreat(ctx.now.clock);
            let transaction = self.transactions.of(id.sequence);
            let operation = transaction.op.map(|op| self.operations.of_mut(op));
            let fails = operation.and_then(|operation| {
                let announced = step == Step::Write && !transaction.at_once;
                operation.on_too_far_ahead(ctx.now, ctx.settings, transaction.stamp, announced, (device, clock))
            });
            if let Some(error) = fails {
                return self.fail(ctx, id.sequence, knows, error);
            }
        }
        self.lose(ctx, id.sequence, knows);
    }

    /// Handles the refusal of an unannounced write whose siblings may have taken effect. The transaction's locks
    /// exclude all other hosts, so the write is sent again, to the devices that have not answered, with a stamp above
    /// the one that it lost to.
    fn hold_on(&mut self, ctx: &mut Ctx, sequence: u64, refusal: Refusal) {
        match refusal {
            Refusal::TooLate { .. } => {}
            Refusal::TooFarAhead { .. } if self.stamps.retreat(ctx.now.clock) => {}
            // Sent again by the resend timer.
            _ => return ctx.out.ignore(Ignored::InProgress),
        }
        let stamp = self.stamps.next(ctx.now.clock);
        let transaction = self.transactions.of_mut(sequence);
        let is_too_far_ahead = matches!(refusal, Refusal::TooFarAhead { .. });
        if is_too_far_ahead && stamp >= transaction.stamp {
            // The clock of this host is ahead: at once, the answer would be the same. Sent again by the resend timer.
            return ctx.out.ignore(Ignored::InProgress);
        }
        transaction.stamp = stamp;
        self.counters.resent += 1;
        self.transactions.send_phase(ctx, sequence);
    }

    /// A device can't execute a request.
    pub(crate) fn on_failed(
        &mut self,
        ctx: &mut Ctx,
        device: DeviceId,
        id: TransactionId,
        step: Step,
        failure: Failure,
    ) {
        if !self.transactions.own(ctx, id).is_some_and(|transaction| transaction.awaits_answer(device, step)) {
            return ctx.out.ignore(Ignored::NotAwaited);
        }
        let op = self.transactions.of(id.sequence).op;
        let returning = !ctx.view.is_in(device);
        if returning || failure == Failure::Absent {
            // The device is returning, and not resynchronised yet.
            return self.lose(ctx, id.sequence, None);
        }
        if let Some(op) = op
            && matches!(failure, Failure::Lost { .. })
            && self.operations.can_do_without(ctx.view, op, device)
        {
            self.counters.damaged += 1;
            ctx.links.count_corrupt(device);
            if let Failure::Lost { block } = failure {
                let volume = self.transactions.of(id.sequence).volume.clone();
                self.events.push_back(Event::Damaged { volume, device, block });
            }
            return self.lose(ctx, id.sequence, None);
        }
        self.fail(ctx, id.sequence, None, HostError::Device { device, failure });
    }
}
