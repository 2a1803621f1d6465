//! All background jobs of a host behind one interface.

use crate::ctx::{Ctx, StepId};
use crate::job::Job;
use crate::migration::{MigrationProgress, Migrations};
use crate::parity_resync::Resyncs;
use crate::rebuild_worker::Workers;
use crate::recovery_stages::Recoveries;
use crate::scrub::Scrubs;
use crate::steps::{HealingCounters, Pending, Shared, Timer};
use braid_base::{DeviceId, Epoch, Time, TransactionId, VolumeId};
use braid_blocks::Linkage;
use braid_layout::VolumeDescription;
use braid_machine::{HostOutcome, OpId};
use braid_wire::{HealingProgress, Suspect};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The background jobs of a host; see the [crate](crate).
#[derive(Clone, Debug, Default)]
pub struct Healing {
    recoveries: Recoveries,
    workers: Workers,
    resyncs: Resyncs,
    scrubs: Scrubs,
    migrations: Migrations,
    shared: Shared,
}

/// Inputs.
impl Healing {
    /// Another membership has arrived.
    pub fn on_membership(&mut self, ctx: &mut Ctx) {
        self.workers.end_unneeded(ctx, &mut self.shared);
        self.recoveries.on_membership(ctx, &mut self.shared);
        self.workers.begin(ctx, &mut self.shared);
        self.on_availability(ctx);
    }

    /// A known volume has another placement or ordering.
    pub fn on_volume_changed(&mut self, ctx: &mut Ctx) {
        self.recoveries.restart(ctx, &mut self.shared);
    }

    /// A volume is not known any more.
    pub fn on_volume_dropped(&mut self, ctx: &mut Ctx, volume: VolumeId) {
        self.stop_migrating(ctx, volume);
        self.shared.note_deleted(volume);
        self.recoveries.restart(ctx, &mut self.shared);
    }

    /// The set of unavailable devices has changed.
    pub fn on_availability(&mut self, ctx: &mut Ctx) {
        self.recoveries.review(ctx, &mut self.shared);
        self.workers.review(ctx, &mut self.shared);
    }

    /// A user's request has arrived.
    pub fn on_user(&mut self, now: Time) {
        self.shared.users.came(now);
    }

    /// A device has reported whether it serves users of other hosts.
    pub fn on_busy(&mut self, now: Time, device: DeviceId, busy: bool, heartbeat: Duration) {
        self.shared.users.note_busy(now, device, busy, heartbeat);
    }

    /// A device has named suspect transactions. None of them may still be under way at this host.
    pub fn on_suspects(&mut self, ctx: &mut Ctx, device: DeviceId, suspects: Vec<Suspect>) {
        self.resyncs.on_suspects(ctx, &mut self.shared, device, suspects);
    }

    /// A transaction of this host was interrupted, and all participants know it.
    pub fn on_interrupted(
        &mut self,
        ctx: &mut Ctx,
        transaction: TransactionId,
        volume: Rc<VolumeDescription>,
        linkage: Linkage,
    ) {
        self.resyncs.on_interrupted(ctx, &mut self.shared, transaction, volume, linkage);
    }

    /// A user's request met a checksum error in a device's block, and succeeded without the block. The stripe is repaired soon.
    pub fn on_checksum_error(&mut self, ctx: &Ctx, volume: &VolumeDescription, device: DeviceId, block: u64) {
        self.scrubs.start_stripe(ctx, &mut self.shared, volume, device, block);
    }

    /// A front end asks to scrub some stripes of a volume. `how` is `(repair, recompute)`: whether to repair checksum errors, and whether
    /// to recompute redundancy that does not match.
    pub fn scrub(&mut self, ctx: &mut Ctx, op: OpId, volume: VolumeId, stripes: Range<u64>, how: (bool, bool)) {
        self.scrubs.start(ctx, &mut self.shared, op, volume, stripes, how);
    }

    /// A front end asks to copy a volume to its migration target, from a block on. `bytes_per_second` limits the rate; 0: the recovery
    /// throttle does.
    pub fn migrate(&mut self, ctx: &mut Ctx, op: OpId, volume: VolumeId, from: u64, bytes_per_second: u64) {
        self.migrations.start(ctx, &mut self.shared, op, volume, from, bytes_per_second);
    }

    /// Ends all copying of a volume at its present position, when the steps under way have ended.
    pub fn stop_migrating(&mut self, ctx: &mut Ctx, volume: VolumeId) {
        self.migrations.stop(ctx, &mut self.shared, volume);
    }

    /// A step has ended. If no job waits for it any more, nothing happens.
    pub fn answered(&mut self, ctx: &mut Ctx, step: StepId, outcome: HostOutcome) {
        let shared = &mut self.shared;
        let Some(Pending { job, since }) = shared.steps.end(step) else { return };
        match job {
            Job::Recovery(device, step) => {
                if let Some(recovery) = self.recoveries.get_mut(device) {
                    recovery.answered(ctx, shared, step, since, outcome);
                } else {
                    let worker = self.workers.get_mut(device).expect("the steps of a recovery are dropped with it");
                    worker.answered(ctx, shared, step, outcome);
                }
            }
            Job::Resync(name) => self.resyncs.answered(ctx, shared, name, &outcome),
            Job::Scrub(id, step, tried) => self.scrubs.answered(ctx, shared, (id, step, tried), since, &outcome),
            Job::Migration(op, step) => self.migrations.answered(ctx, shared, (op, step), since, &outcome),
        }
    }

    /// When [`Healing::wake`] must be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        self.shared.timers.next().map(|(time, _)| time)
    }

    /// Continues one kind of job whose timer has expired.
    pub fn wake(&mut self, ctx: &mut Ctx) {
        let shared = &mut self.shared;
        match shared.timers.pop_due(ctx.now) {
            Some(Timer::Recover(device)) => {
                if let Some(recovery) = self.recoveries.get_mut(device) {
                    recovery.go_on(ctx, shared);
                } else if let Some(worker) = self.workers.get_mut(device) {
                    worker.go_on(ctx, shared);
                }
            }
            Some(Timer::Scrub) => self.scrubs.go_on(ctx, shared),
            Some(Timer::Migrate) => self.migrations.go_on(ctx, shared),
            None => {}
        }
    }
}

/// Progress.
impl Healing {
    /// True if a job waits for this step.
    pub fn awaits(&self, step: StepId) -> bool {
        self.shared.steps.contains(step)
    }

    /// True if no recovery of this host creates or changes objects of this volume. An administrator that tells the devices waits for that.
    pub fn is_idle_for(&self, volume: VolumeId) -> bool {
        !self.shared.steps.jobs().any(|job| matches!(job, Job::Recovery(_, step) if step.shapes(volume)))
    }

    /// Asserts that steps and jobs agree, and that every job has a step or a timer; a recovery need not while the host is `leaving`.
    pub fn invariants(&self, leaving: bool) {
        let shared = &self.shared;
        for job in shared.steps.jobs() {
            let is_known = match job {
                Job::Recovery(device, _) => {
                    let coordinates = self.recoveries.iter().any(|recovery| recovery.device == *device);
                    coordinates != self.workers.has(*device)
                }
                Job::Resync(name) => self.resyncs.has(*name),
                Job::Scrub(id, ..) => self.scrubs.has(*id),
                Job::Migration(op, _) => self.migrations.has(*op),
            };
            assert!(is_known, "every step belongs to a job: {job:?}");
        }
        self.recoveries.iter().for_each(|recovery| recovery.invariants(shared, leaving));
        self.workers.invariants(shared, leaving);
        self.resyncs.invariants(shared);
        self.scrubs.invariants(shared);
        self.migrations.invariants(shared);
    }

    /// The first device that is being recovered, and how many of its blocks remain, once that is known.
    pub fn recovers(&self) -> Option<(DeviceId, Option<u64>)> {
        let recovery = self.recoveries.iter().next()?;
        Some((recovery.device, recovery.known_left(&self.shared)))
    }

    /// The devices that are being recovered, and the progress of each, in blocks of the device.
    pub fn progress(&self) -> impl Iterator<Item = (DeviceId, HealingProgress)> + '_ {
        self.recoveries.iter().map(|recovery| (recovery.device, recovery.progress(&self.shared)))
    }

    /// The devices that have everything that they missed, and the epochs of their return.
    pub fn recovered(&self) -> impl Iterator<Item = (DeviceId, Epoch)> + '_ {
        self.recoveries.iter().filter_map(|recovery| Some((recovery.device, recovery.done_since()?)))
    }

    /// Blocks of volumes that could not be restored, because too many blocks of their rows are lost.
    pub fn not_restored(&self) -> impl Iterator<Item = (VolumeId, u64)> + '_ {
        self.recoveries.iter().flat_map(|recovery| recovery.not_restored())
    }

    /// True if a parity resync of the whole transaction is under way.
    pub fn resyncs(&self, transaction: TransactionId) -> bool {
        self.resyncs.is_under_way(transaction)
    }

    /// The scrubs for front ends: the volume, the next stripe to begin, and the end of the range.
    pub fn scrubbing(&self) -> impl Iterator<Item = (VolumeId, u64, u64)> + '_ {
        self.scrubs.progress()
    }

    /// The migrations under way.
    pub fn migrating(&self) -> impl Iterator<Item = MigrationProgress> + '_ {
        self.migrations.progress()
    }

    /// Counters of the jobs since the host started.
    pub fn counters(&self) -> HealingCounters {
        self.shared.counters
    }
}
