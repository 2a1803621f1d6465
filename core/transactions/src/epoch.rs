//! The effects of a new membership, or of unavailable devices, on transactions (`docs/membership.md`).
//!
//! | transaction | in a new epoch |
//! | --- | --- |
//! | no write was sent | it is aborted, and its operation is retried with a new plan |
//! | intents were sent, or it is being aborted after that | it is resolved: the devices that have been in since decide |
//! | writes were sent that take effect on arrival | it continues without the devices that are out; under ordering `none` its operation begins anew |
//! | it restores or recomputes for a device that is out | its operation fails |
//! | it is committed | it does not wait any more for devices that are out |

use crate::coordinator::Coordinator;
use crate::ctx::Ctx;
use crate::operations::OperationTimer;
use crate::transaction::{Phase, Transaction};
use crate::work::Work;
use braid_base::{DeviceId, Now};
use braid_machine::HostError;
use braid_ordering::WriteMode;
use std::collections::BTreeSet;

impl Coordinator {
    /// Another epoch has begun. `same`: with the same devices.
    pub fn on_epoch(&mut self, ctx: &mut Ctx, same: bool) {
        for sequence in self.transactions.all() {
            if same {
                self.transactions.send_phase(ctx, sequence);
            } else {
                self.take_over(ctx, sequence);
            }
        }
        if !same {
            // Devices name the transactions that are left to resolve again, in the new epoch.
            self.resolutions.drop_others(ctx);
        }
    }

    /// A device that was behind has adopted the epoch: the requests that wait for it are sent again.
    pub fn on_adoption(&mut self, now: Now, device: DeviceId) {
        self.transactions.hurry(now.time, device);
        self.resolutions.hurry(now.time);
    }

    /// Ends a transaction that was to write for one device, which has been out. Its operation fails.
    fn give_up_writing_for(&mut self, ctx: &mut Ctx, sequence: u64) {
        let op = self.transactions.of_mut(sequence).op.take();
        self.resolutions.end(ctx.id(sequence));
        self.transactions.end(ctx, sequence);
        if let Some(op) = op {
            let device = HostError::Unavailable { devices: Vec::new() };
            self.finish(op, Err(device));
        }
    }

    /// Adapts one transaction to a new epoch.
    fn take_over(&mut self, ctx: &mut Ctx, sequence: u64) {
        // The end of another transaction may have ended this one, too.
        let Some(transaction) = self.transactions.get(sequence) else { return };
        let gone: Vec<_> =
            transaction.asked.iter().copied().filter(|device| !transaction.is_still_there(ctx.view, *device)).collect();
        for device in &gone {
            ctx.links.of(*device).forget(sequence);
        }
        let counting: BTreeSet<_> =
            transaction.asked.iter().copied().filter(|device| transaction.counts(ctx.view, *device)).collect();
        let in_intents = transaction.mode() == WriteMode::Intent;
        let for_one = matches!(*transaction.work, Work::Restore(_) | Work::Recompute(_));
        let transaction = self.transactions.of_mut(sequence);
        match &mut transaction.phase {
            Phase::Locking | Phase::Reading { .. } => self.begin_anew(ctx, sequence),
            // The device may yet accept what was being written to it. If it was out again, that is written to it once
            // more, or is named as suspect.
            _ if for_one && !gone.is_empty() => self.give_up_writing_for(ctx, sequence),
            // This ordering keeps no other transaction off its blocks, and no host looks for what an interrupted write
            // leaves.
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
            Phase::Executing { .. } | Phase::Writing { .. } | Phase::Resolving => self.resolve_own(ctx, sequence),
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

    /// Ends an attempt that can't continue in this epoch. Its operation is retried at once.
    fn begin_anew(&mut self, ctx: &mut Ctx, sequence: u64) {
        let op = self.transactions.of(sequence).op;
        self.abort(ctx, sequence, None);
        if let Some(op) = op {
            self.operations.begin_anew(ctx.now, op);
        }
    }

    /// The set of unavailable devices has changed. Operations that wait for such devices are retried without them, or
    /// fail.
    pub fn on_unavailable(&mut self, ctx: &mut Ctx) {
        let unavailable = ctx.view.unavailable().clone();
        // A transaction that waits for locks would go to the devices later, with a plan from before.
        let waits = |transaction: &Transaction| match &transaction.phase {
            Phase::Locking => !transaction.asked.is_disjoint(&unavailable),
            _ => unavailable.iter().any(|device| transaction.needs(*device)),
        };
        let stuck: Vec<_> =
            self.transactions.iter().filter(|(_, held)| waits(held)).map(|(sequence, _)| sequence).collect();
        for sequence in stuck {
            let Some(transaction) = self.transactions.get(sequence) else { continue };
            let Some(op) = transaction.op else { continue };
            if matches!(transaction.phase, Phase::Locking | Phase::Reading { .. }) {
                self.begin_anew(ctx, sequence);
            } else if transaction.participants.is_disjoint(&unavailable) {
                self.lose(ctx, sequence, None);
            } else if self.operations.is_patient(op) {
                if transaction.waits_for_devices() {
                    self.lose(ctx, sequence, None);
                }
            } else {
                let devices = unavailable.iter().copied().filter(|device| transaction.needs(*device)).collect();
                self.give_up(ctx, op, HostError::Unavailable { devices });
            }
        }
    }

    /// Retries every operation that waits to be retried now.
    pub fn retry_all(&mut self, ctx: &mut Ctx) {
        for op in self.operations.waiting() {
            self.operations.take_timer(OperationTimer::Retry(op));
            self.attempt(ctx, op);
        }
    }
}
