//! The host's side of its background jobs: it runs them, and executes their steps ([`braid_healing`]).

use crate::host::Host;
use braid_base::{DeviceId, Now, VolumeId};
use braid_healing::{Ctx, Event, Healing, MigrationProgress};
use braid_machine::HostEffects;
use braid_transactions::OperationId;
use braid_wire::{Command, HealingProgress, Suspect};

impl Host {
    /// Runs `what` on the background jobs, and then executes the events that they emitted, in order.
    pub(crate) fn heal(&mut self, now: Now, out: &mut HostEffects, what: impl FnOnce(&mut Healing, &mut Ctx)) {
        let Host { config, monitor, volumes, held, coordinator, healing, .. } = self;
        let mut ctx = Ctx {
            now: now.time,
            host: config.generation,
            membership: monitor.view().membership(),
            unavailable: monitor.view().unavailable(),
            volumes,
            held,
            throttle: monitor.throttle(),
            heartbeat: config.settings.heartbeat,
            has_users: coordinator.has_users(),
            fenced: coordinator.is_fenced(),
            leaving: self.requests.is_disconnecting(),
            events: Vec::new(),
        };
        what(healing, &mut ctx);
        for event in ctx.events {
            match event {
                Event::Ask { step, request } => self.start(now, OperationId::Job(step.0), request, out),
                Event::Ended { op, outcome } => out.reply(op, outcome),
                Event::Forget { transaction, devices } => {
                    let (_, mut ctx) = self.requests(now, out);
                    for device in devices {
                        ctx.send(device, Command::Forget { transaction });
                    }
                }
                Event::Resynced { transaction } => self.coordinator.on_resynced(now, transaction),
                Event::Recovered => self.report_at_once(now, out),
            }
        }
    }

    /// A device names interrupted transactions. This host's own that are still under way are skipped: they may yet
    /// complete.
    pub(crate) fn on_suspects(
        &mut self,
        now: Now,
        device: DeviceId,
        mut suspects: Vec<Suspect>,
        out: &mut HostEffects,
    ) {
        suspects.retain(|Suspect { transaction, .. }| {
            transaction.host != self.config.generation || !self.coordinator.has(transaction.sequence)
        });
        if !suspects.is_empty() {
            self.heal(now, out, |healing, ctx| healing.on_suspects(ctx, device, suspects));
        }
    }

    /// The first device whose recovery this host coordinates, and the number of blocks left to examine, once that is
    /// known.
    pub fn coordinates_recovery(&self) -> Option<(DeviceId, Option<u64>)> {
        self.healing.recovers()
    }

    /// The devices whose recovery this host coordinates, with the progress in blocks of the device.
    pub fn healing(&self) -> impl Iterator<Item = (DeviceId, HealingProgress)> + '_ {
        self.healing.progress()
    }

    /// The blocks of volumes that could not be restored on devices that this host recovers, because too much of their
    /// rows is lost.
    pub fn not_restored(&self) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
        self.healing.not_restored()
    }

    /// The scrubs under way: volume, first stripe that has not been begun, and end.
    pub fn scrubbing(&self) -> impl Iterator<Item = (VolumeId, u64, u64)> + '_ {
        self.healing.scrubbing()
    }

    /// The migrations under way.
    pub fn migrating(&self) -> impl Iterator<Item = MigrationProgress> + '_ {
        self.healing.migrating()
    }
}
