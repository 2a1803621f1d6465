//! What becomes of transactions when the membership changes, or devices become unavailable (`docs/membership.md`).
//!
//! | a transaction that | in a new epoch |
//! | --- | --- |
//! | has sent no write | is given up, and its operation tried again by a plan that fits |
//! | has intents out, or is being aborted after that | is resolved: the devices that have been in since decide |
//! | has writes out that take effect on arrival | goes on, without devices that are out; under ordering `none` its operation begins anew |
//! | restores or recomputes for a device that is out | is given up |
//! | is committed | waits no more for devices that are out |

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::operations::OperationTimer;
use crate::transaction::{Phase, Transaction};
use crate::work::Work;
use braid_base::{DeviceId, Now};
use braid_machine::HostError;
use braid_wire::WriteMode;
use std::collections::BTreeSet;

impl Coordinator {
    /// Another epoch begins; `same`: with the same devices.
    pub fn on_epoch(&mut self, ctx: &mut Ctx, same: bool) {
        for sequence in self.transactions.all() {
            if same {
                self.transactions.send_phase(ctx, sequence);
            } else {
                self.take_over(ctx, sequence);
            }
        }
        if !same {
            // Devices name again, in the new epoch, what is left to resolve.
            self.resolutions.drop_others(ctx);
        }
    }

    /// A device that was behind has taken over the epoch: now it takes what waits for it.
    pub fn on_adoption(&mut self, now: Now, device: DeviceId) {
        self.transactions.hurry(now.time, device);
        self.resolutions.hurry(now.time);
    }

    /// Gives up what only one device was to write, which has been out.
    fn give_up_writing_for(&mut self, ctx: &mut Ctx, sequence: u64) {
        let op = self.transactions.of_mut(sequence).op.take();
        self.resolutions.end(ctx.id(sequence));
        self.transactions.end(ctx, sequence);
        if let Some(op) = op {
            let device = HostError::Unavailable { devices: Vec::new() };
            self.finish(op, Err(device));
        }
    }

    /// Takes one transaction over into a new epoch.
    fn take_over(&mut self, ctx: &mut Ctx, sequence: u64) {
        // One that ended another has perhaps ended it, too.
        let Some(transaction) = self.transactions.get(sequence) else { return };
        let gone: Vec<_> =
            transaction.asked.iter().copied().filter(|device| !transaction.is_still_there(ctx.view, *device)).collect();
        for device in &gone {
            ctx.links.forget(*device, sequence);
        }
        let counting: BTreeSet<_> =
            transaction.asked.iter().copied().filter(|device| transaction.counts(ctx.view, *device)).collect();
        let in_intents = transaction.mode() == WriteMode::Intent;
        let for_one = matches!(*transaction.work, Work::Restore(_) | Work::Recompute(_));
        let transaction = self.transactions.of_mut(sequence);
        match &mut transaction.phase {
            Phase::Locking | Phase::Reading { .. } => self.begin_anew(ctx, sequence),
            // What a device was being brought it may yet take; if it was out again, it is brought it once more, or named as suspect.
            _ if for_one && !gone.is_empty() => self.give_up_writing_for(ctx, sequence),
            // Nobody keeps its blocks for it, nor looks for what it leaves.
            Phase::Writing { .. } if !in_intents && !transaction.volume.ordering.policy().leaves_suspects => {
                self.begin_anew(ctx, sequence);
            }
            Phase::Writing { silent, .. } if !in_intents => {
                silent.retain(|device| counting.contains(device));
                if silent.is_empty() {
                    self.on_all_written(ctx, sequence);
                } else {
                    self.transactions.send_phase(ctx, sequence);
                }
            }
            Phase::Writing { .. } | Phase::Resolving => self.resolve_own(ctx, sequence),
            Phase::Aborting { .. } if transaction.wrote && in_intents => self.resolve_own(ctx, sequence),
            Phase::Aborting { unconfirmed, .. } | Phase::Committed { unconfirmed } => {
                unconfirmed.retain(|device| !gone.contains(device));
                if unconfirmed.is_empty() && matches!(transaction.phase, Phase::Aborting { .. }) {
                    self.end_aborted(ctx, sequence);
                } else if matches!(&transaction.phase, Phase::Committed { unconfirmed } if unconfirmed.is_empty()) {
                    self.transactions.end(ctx, sequence);
                } else {
                    self.transactions.send_phase(ctx, sequence);
                }
            }
        }
    }

    /// Gives an attempt up that can't go on in this epoch; its operation tries again at once.
    fn begin_anew(&mut self, ctx: &mut Ctx, sequence: u64) {
        let op = self.transactions.of(sequence).op;
        self.abort(ctx, sequence, None);
        if let Some(op) = op {
            self.operations.begin_anew(ctx.now, op);
        }
    }

    /// Other devices than before are unavailable. What waits for them is tried otherwise, or fails.
    pub fn on_unavailable(&mut self, ctx: &mut Ctx) {
        let unavailable = ctx.view.unavailable().clone();
        // One that has yet to get its locks goes to the devices later, by a plan that was made before.
        let waits = |transaction: &Transaction| match &transaction.phase {
            Phase::Locking => !transaction.asked.is_disjoint(&unavailable),
            _ => transaction.silent().is_some_and(|silent| !silent.is_disjoint(&unavailable)),
        };
        let stuck: Vec<_> =
            self.transactions.iter().filter(|(_, held)| waits(held)).map(|(sequence, _)| sequence).collect();
        for sequence in stuck {
            let Some(transaction) = self.transactions.get(sequence) else { continue };
            let Some(op) = transaction.op else { continue };
            if matches!(transaction.phase, Phase::Locking | Phase::Reading { .. }) {
                self.begin_anew(ctx, sequence);
            } else {
                let devices = unavailable.iter().copied().filter(|device| transaction.awaits(*device)).collect();
                self.give_up(ctx, op, HostError::Unavailable { devices });
            }
        }
    }

    /// Every operation that waits to try again does so now.
    pub fn retry_all(&mut self, ctx: &mut Ctx) {
        for op in self.operations.waiting() {
            self.operations.take_timer(OperationTimer::Retry(op));
            self.attempt(ctx, op);
        }
    }
}
