//! The steps of all jobs that are under way, and what else the jobs share.

use crate::ctx::{Ctx, Event, StepId};
use crate::job::{Job, RecoveryStep};
use crate::throttle::{Budget, Users};
use braid_base::{DeviceId, Time, Timers, VolumeId};
use braid_machine::HostRequest;
use std::collections::BTreeMap;

/// What jobs have found and done since the host started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealingCounters {
    /// Rows of stripes that linkage records showed to be whole.
    pub rows_checked: u64,
    /// Rows of stripes whose redundancy was computed anew.
    pub rows_recomputed: u64,
    /// Blocks with checksum errors.
    pub corrupt: u64,
    /// Those of them that were written again.
    pub repaired: u64,
}

/// Why jobs wake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// The recovery of a device goes on.
    Recover(DeviceId),
    /// Scrubs go on.
    Scrub,
    /// Migrations go on.
    Migrate,
}

/// What all jobs share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub steps: Steps,
    pub timers: Timers<Timer>,
    pub users: Users,
    pub counters: HealingCounters,
}

impl Shared {
    /// Has the host execute a step.
    pub fn ask(&mut self, ctx: &mut Ctx, job: Job, request: HostRequest) {
        let step = StepId(self.steps.take_number());
        self.steps.pending.insert(step, Pending { job, since: ctx.now });
        ctx.events.push(Event::Ask { step, request });
    }

    /// How hard to work on a volume now. What `hastens` gives way to nobody, unless a share is asked for.
    pub fn budget(&self, ctx: &Ctx, volume: VolumeId, hastens: bool) -> Budget {
        Budget::new(ctx.throttle, hastens, || self.users.are_at_work(ctx, volume))
    }
}

/// Steps that the host has been asked to execute.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pending: BTreeMap<StepId, Pending>,
    next: u64,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub job: Job,
    pub since: Time,
}

impl Steps {
    /// Takes the next number.
    pub fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A step has ended. None if nobody waits for it any more.
    pub fn end(&mut self, step: StepId) -> Option<Pending> {
        self.pending.remove(&step)
    }

    /// What is under way, and for whom.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.pending.values().map(|pending| &pending.job)
    }

    /// What is under way for the recovery of a device.
    pub fn of_recovery(&self, device: DeviceId) -> impl Iterator<Item = &RecoveryStep> {
        self.pending.values().filter_map(move |pending| match &pending.job {
            Job::Recovery(of, step) if *of == device => Some(step),
            _ => None,
        })
    }

    /// Drops the steps for the recovery of a device that need not be waited for.
    pub fn keep_of_recovery(&mut self, device: DeviceId, keeps: impl Fn(&RecoveryStep) -> bool) {
        self.pending.retain(|_, pending| match &pending.job {
            Job::Recovery(of, step) if *of == device => keeps(step),
            _ => true,
        });
    }
}
