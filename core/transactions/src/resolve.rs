//! Resolving transactions by asking their participants: orphans of other hosts, and transactions of this host from an
//! earlier epoch.

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::resolutions::Resolved;
use crate::transaction::Phase;
use braid_base::{DeviceId, TransactionId};
use braid_machine::{HostError, Note};
use braid_wire::{Orphan, Outcome, Vote};

impl Coordinator {
    /// A device names orphans.
    pub fn on_orphans(&mut self, ctx: &mut Ctx, orphans: Vec<Orphan>) {
        for Orphan { transaction, stamp, participants } in orphans {
            let known = participants.iter().all(|device| ctx.links.has(*device));
            let taken = self.resolutions.has(transaction) || !self.resolutions.has_room(ctx);
            if self.transactions.own(ctx, transaction).is_some() || taken || !known || participants.is_empty() {
                continue;
            }
            self.resolutions.start(ctx, transaction, stamp, participants.into_iter().collect());
        }
    }

    /// Resolves a transaction of this host, by asking the participants that have a vote in this epoch.
    pub(crate) fn resolve_own(&mut self, ctx: &mut Ctx, sequence: u64) {
        self.transactions.stop_resending(sequence);
        let transaction = self.transactions.of_mut(sequence);
        transaction.phase = Phase::Resolving;
        let (voters, stamp) = (transaction.voters(ctx.view), transaction.stamp);
        if !voters.is_empty() {
            return self.resolutions.start(ctx, ctx.id(sequence), stamp, voters);
        }
        self.resolutions.end(ctx.id(sequence));
        let transaction = self.transactions.of(sequence);
        // All participants have been out since, one after the other, and none holds anything of it. Others may have
        // found it committed before, and have read and overwritten it since. So it is not retried, and its outcome
        // stays unknown, unless the patience of its operation is endless.
        if let Some(op) = transaction.op.filter(|op| self.operations.is_endless(*op)) {
            // Its user has asked for that (see `Patience::Endless`).
            self.counters.repeated += 1;
            self.operations.of_mut(op).failure = None;
        } else if let Some(op) = transaction.op {
            let devices = transaction.participants.iter().copied().collect();
            self.finish(op, Err(HostError::Unavailable { devices }));
        }
        self.end_aborted(ctx, sequence);
    }

    /// A participant votes. If it was to retract a transaction, its vote says that another host knows of its intent.
    pub(crate) fn on_vote(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, vote: Vote) {
        if let Some(transaction) = self.transactions.own(ctx, id)
            && let Phase::Aborting { unconfirmed, retracts: true, .. } = &transaction.phase
            && unconfirmed.contains(&device)
        {
            return self.resolve_own(ctx, id.sequence);
        }
        self.resolutions.on_vote(ctx, device, id, vote);
    }

    /// A device has made an outcome durable: of a transaction that is being resolved, or of an abort.
    pub(crate) fn on_decided(&mut self, ctx: &mut Ctx, device: DeviceId, id: TransactionId, decided: Outcome) {
        if !self.resolutions.has(id) {
            return self.on_abort_answered(ctx, device, id, decided);
        }
        let own = self.transactions.own(ctx, id).is_some();
        match self.resolutions.on_decided(ctx, device, id, decided) {
            Resolved::Otherwise if own => self.resolve_own(ctx, id.sequence),
            Resolved::NotYet | Resolved::Otherwise => {}
            Resolved::Known(outcome) => {
                ctx.out.note(Note::Resolved { transaction: id, outcome });
                if own {
                    self.resolutions.end(id);
                    self.on_own_resolved(ctx, id.sequence, outcome);
                } else {
                    self.resolutions.forget(ctx, id);
                }
            }
        }
    }

    /// The outcome of a transaction of this host is known, and durable on all devices with a vote.
    fn on_own_resolved(&mut self, ctx: &mut Ctx, sequence: u64, outcome: Outcome) {
        self.counters.resolved += 1;
        match outcome {
            Outcome::Abort | Outcome::Interrupted => self.end_aborted(ctx, sequence),
            Outcome::Commit => {
                self.counters.committed += 1;
                self.contention.on_committed();
                let transaction = self.transactions.of_mut(sequence);
                self.stamps.accepted(transaction.stamp);
                let (op, success) = (transaction.op.take(), transaction.take_success());
                self.transactions.end(ctx, sequence);
                if let Some(op) = op {
                    self.finish(op, Ok(success));
                }
            }
        }
    }
}
