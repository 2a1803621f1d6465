//! What a monitor may not have heard yet, and when it looks again.

use crate::leases::Renewal;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often leases are looked at.
const PATROLS_PER_HEARTBEAT: u32 = 4;

/// The monitor's own times.
#[derive(Debug)]
pub(crate) struct Watch {
    started: Time,
    /// Since its start it has not heard all devices yet, nor waited long enough for them: it gives no lease.
    is_new: bool,
    /// The last renewals that wait for that.
    deferred: BTreeMap<DeviceId, Renewal>,
    /// What devices and hosts have said may not have been heard yet: nobody is taken for gone until then.
    unsure_until: Time,
    next_patrol: Option<Time>,
    /// The time of the last step.
    last_step: Time,
}

impl Watch {
    /// Before the start.
    pub fn new() -> Watch {
        let zero = Time(0);
        let (deferred, next_patrol) = (BTreeMap::new(), None);
        Watch { started: zero, is_new: true, deferred, unsure_until: zero, next_patrol, last_step: zero }
    }

    pub fn start(&mut self, now: Time, settings: &Settings) {
        self.started = now;
        self.unsure_until = now.after(settling(settings));
    }

    pub fn started(&self) -> Time {
        self.started
    }

    /// Another step begins.
    pub fn step(&mut self, now: Time) {
        self.last_step = now;
    }

    /// The time of the last step.
    pub fn last_step(&self) -> Time {
        self.last_step
    }

    /// True if all who are there have had the time to be heard.
    pub fn has_heard_all(&self, now: Time) -> bool {
        now >= self.unsure_until
    }

    /// Just started, the monitor may have an older record than it should: then any device that was there since knows of a later epoch. It gives
    /// no lease before it has heard all, or waited for as long as they may take.
    pub fn awaits_others(&self, settings: &Settings, mut heard: impl Iterator<Item = bool>) -> bool {
        self.is_new && self.last_step < self.started.after(settling(settings)) && heard.any(|heard| !heard)
    }

    /// Puts a renewal off until others have been heard.
    pub fn defer(&mut self, device: DeviceId, renewal: Renewal) {
        self.deferred.insert(device, renewal);
    }

    /// True until leases are given.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// All have been heard, or have had the time. Tells what they have asked for meanwhile.
    pub fn settle(&mut self) -> BTreeMap<DeviceId, Renewal> {
        self.is_new = false;
        std::mem::take(&mut self.deferred)
    }

    /// When leases are looked at again; not before the monitor serves.
    pub fn next_patrol(&self) -> Option<Time> {
        self.next_patrol
    }

    /// True if leases are to be looked at.
    pub fn is_patrol_due(&mut self, now: Time, settings: &Settings) -> bool {
        let Some(planned) = self.next_patrol.filter(|planned| *planned <= now) else { return false };
        if now.since(planned) > settings.heartbeat {
            // This monitor stood still, and what was said meanwhile has yet to be read.
            self.unsure_until = now.after(settings.heartbeat * 2);
        }
        true
    }

    /// Plans the next look at leases. One that runs out before is looked at in time: users wait for that.
    pub fn plan_patrol(&mut self, now: Time, settings: &Settings, lease_ends: impl Iterator<Item = Time>) {
        let next = now.after(settings.heartbeat / PATROLS_PER_HEARTBEAT);
        let ends = lease_ends.filter(|end| *end > now);
        let ends = ends.chain(self.is_new.then(|| self.started.after(settling(settings))));
        self.next_patrol = Some(ends.fold(next, Time::min));
    }

    /// The monitor serves from now on.
    pub fn plan_first_patrol(&mut self, now: Time, settings: &Settings) {
        self.next_patrol = Some(now.after(settings.heartbeat / PATROLS_PER_HEARTBEAT));
    }

    /// The monitor does nothing any more.
    pub fn end(&mut self) {
        self.next_patrol = None;
    }
}

/// As long as those who are there may take to be heard.
fn settling(settings: &Settings) -> Duration {
    settings.heartbeat * 4
}
