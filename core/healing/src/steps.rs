//! The steps of all jobs that are under way, and the other state that jobs share.

use crate::ctx::{Ctx, Event, StepId};
use crate::job::{Job, RecoveryStep};
use crate::throttle::{Budget, Urgency, Users};
use braid_base::{DeviceId, Time, Timers, VolumeId};
use braid_machine::HostRequest;
use std::collections::{BTreeMap, BTreeSet};

/// The most deleted volumes that a host remembers. Only a recovery that is under way may have to remove objects of them.
const DELETED_MAX: usize = 1024;

/// Counters of the jobs since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealingCounters {
    /// Rows of stripes that linkage records proved to be whole.
    pub rows_checked: u64,
    /// Rows of stripes whose redundancy was recomputed.
    pub rows_recomputed: u64,
    /// Blocks with checksum errors.
    pub corrupt: u64,
    /// Blocks with checksum errors that were rewritten.
    pub repaired: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// Continues the recovery of a device, or this host's part in it.
    Recover(DeviceId),
    Scrub,
    /// Continues the migrations.
    Migrate,
}

/// The state that all jobs share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub steps: Steps,
    pub timers: Timers<Timer>,
    pub users: Users,
    pub counters: HealingCounters,
    /// The last volumes that were deleted while this host knew them. Their numbers are not used again.
    pub deleted: BTreeSet<VolumeId>,
}

impl Shared {
    /// Asks the host to execute a step.
    pub fn ask(&mut self, ctx: &mut Ctx, job: Job, request: impl Into<HostRequest>) {
        let step = StepId(self.steps.take_number());
        self.steps.pending.insert(step, Pending { job, since: ctx.now });
        ctx.events.push(Event::Ask { step, request: request.into() });
    }

    /// A volume is not known any more: it was deleted.
    pub fn note_deleted(&mut self, volume: VolumeId) {
        self.deleted.insert(volume);
        if self.deleted.len() > DELETED_MAX {
            self.deleted.pop_first();
        }
    }

    /// How much work may be done on a volume now.
    pub fn budget(&self, ctx: &Ctx, volume: VolumeId, urgency: Urgency) -> Budget {
        Budget::new(ctx.throttle, urgency, || self.users.are_at_work(ctx, volume))
    }
}

/// Steps that the host was asked to execute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    pending: BTreeMap<StepId, Pending>,
    next: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub job: Job,
    pub since: Time,
}

impl Steps {
    pub fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes out a step that has ended. None if no job waits for it any more.
    pub fn end(&mut self, step: StepId) -> Option<Pending> {
        self.pending.remove(&step)
    }

    /// True if a job waits for this step.
    pub fn contains(&self, step: StepId) -> bool {
        self.pending.contains_key(&step)
    }

    /// The steps under way, with their jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.pending.values().map(|pending| &pending.job)
    }

    /// The steps under way for the recovery of a device.
    pub fn of_recovery(&self, device: DeviceId) -> impl Iterator<Item = &RecoveryStep> {
        self.pending.values().filter_map(move |pending| match &pending.job {
            Job::Recovery(of, step) if *of == device => Some(step),
            _ => None,
        })
    }

    /// Drops the steps for the recovery of a device that `keeps` rejects.
    pub fn keep_of_recovery(&mut self, device: DeviceId, keeps: impl Fn(&RecoveryStep) -> bool) {
        self.pending.retain(|_, pending| match &pending.job {
            Job::Recovery(of, step) if *of == device => keeps(step),
            _ => true,
        });
    }
}
