//! The monitor's own times: for how long after its start or a pause messages may be unread, and when it checks leases next.

use crate::device_leases::Renewal;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Time, was_paused};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often leases are checked.
const PATROLS_PER_HEARTBEAT: u32 = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    started: Time,
    /// It has just started, and has neither heard all devices nor waited long enough for them: it grants no lease yet.
    is_new: bool,
    /// Until when it waits for devices that it has not heard, while it is new.
    hear_until: Time,
    /// The last deferred request for a lease of each device.
    deferred: BTreeMap<DeviceId, Renewal>,
    /// Until then, messages of devices and hosts may be on their way: the silence of a node does not count.
    unsure_until: Time,
    /// Until then, no device is called unavailable: what paused the monitor may have paused devices, which may wake later.
    patient_until: Time,
    next_patrol: Option<Time>,
    last_step: Time,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { is_new: true, ..Watch::default() }
    }

    pub fn start(&mut self, now: Time, settings: &Settings) {
        self.started = now;
        self.hear(now, settings);
    }

    /// It hears devices from now on, and has to hear all, or for as long as they may take.
    pub fn hear(&mut self, now: Time, settings: &Settings) {
        self.hear_until = now.after(startup_wait(settings));
        self.unsure_until = self.unsure_until.max(self.hear_until);
    }

    pub fn started(&self) -> Time {
        self.started
    }

    pub fn begin_step(&mut self, now: Time, settings: &Settings) {
        self.look_for_pause(now, settings);
        self.step(now);
    }

    /// If the monitor was paused, messages that arrived meanwhile are not read yet.
    fn look_for_pause(&mut self, now: Time, settings: &Settings) {
        if let Some(planned) = self.next_patrol.filter(|planned| was_paused(Some(*planned), now, settings.heartbeat)) {
            let unread = settings.heartbeat * 2;
            let longest = settings.device_lease.max(unread);
            self.listen(now, settings, now.since(planned).clamp(unread, longest));
        }
    }

    /// It does not listen now, since another monitor may lead.
    pub fn doubt(&mut self, now: Time, settings: &Settings) {
        if self.is_new {
            self.hear(now, settings);
        }
        self.listen(now, settings, settings.device_lease);
    }

    /// It has not listened until now. It is patient with devices for so long.
    fn listen(&mut self, now: Time, settings: &Settings, patience: Duration) {
        self.unsure_until = self.unsure_until.max(now.after(settings.heartbeat * 2));
        self.patient_until = self.patient_until.max(now.after(patience));
    }

    /// Notes the time of the step.
    pub fn step(&mut self, now: Time) {
        self.last_step = now;
    }

    pub fn last_step(&self) -> Time {
        self.last_step
    }

    /// True if all nodes have had time to be heard.
    pub fn has_heard_all(&self, now: Time) -> bool {
        now >= self.unsure_until
    }

    /// True if a silent device is to be called unavailable, so that requests which need it may fail.
    pub fn may_call_unavailable(&self, now: Time) -> bool {
        self.has_heard_all(now) && now >= self.patient_until
    }

    /// True while no lease is granted after a start. The monitor may have an older record than it should; then any device that was alive
    /// since then knows a later epoch. So it waits until it has heard all devices, or for the time that they may take.
    pub fn awaits_others(&self, mut heard: impl Iterator<Item = bool>) -> bool {
        self.is_new && self.last_step < self.hear_until && heard.any(|heard| !heard)
    }

    /// Defers a request for a lease until the other devices have been heard.
    pub fn defer(&mut self, device: DeviceId, renewal: Renewal) {
        self.deferred.insert(device, renewal);
    }

    /// True until leases are granted.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// All devices have been heard, or have had time to be. Returns the deferred requests.
    pub fn end_startup_wait(&mut self) -> BTreeMap<DeviceId, Renewal> {
        self.is_new = false;
        std::mem::take(&mut self.deferred)
    }

    /// When leases are checked next; none before the monitor serves.
    pub fn next_patrol(&self) -> Option<Time> {
        self.next_patrol
    }

    /// True if leases are to be checked now.
    pub fn is_patrol_due(&self, now: Time) -> bool {
        self.next_patrol.is_some_and(|planned| planned <= now)
    }

    /// Plans the next check. A lease that expires earlier is checked in time, since operations may wait for that.
    pub fn plan_patrol(&mut self, now: Time, settings: &Settings, lease_ends: impl Iterator<Item = Time>) {
        let next = now.after(settings.heartbeat / PATROLS_PER_HEARTBEAT);
        let ends = lease_ends.chain(self.is_new.then(|| self.started.after(startup_wait(settings))));
        // A monitor in doubt stays new for longer: what is over must not wake it again and again.
        self.next_patrol = Some(ends.filter(|end| *end > now).fold(next, Time::min));
    }

    /// Plans the first check: the monitor serves from now on.
    pub fn plan_first_patrol(&mut self, now: Time, settings: &Settings) {
        self.next_patrol = Some(now.after(settings.heartbeat / PATROLS_PER_HEARTBEAT));
    }

    /// The monitor has stopped.
    pub fn end(&mut self) {
        self.next_patrol = None;
    }
}

/// How long live nodes may take to be heard.
fn startup_wait(settings: &Settings) -> Duration {
    settings.heartbeat * 4
}
