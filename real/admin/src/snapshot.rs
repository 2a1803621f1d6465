//! A snapshot of an array: the content of its folder, and the answers of its devices.

use crate::device_condition::{DeviceCondition, Known};
use crate::failure::{Failure, NO_INODES, READ_ONLY, release_lock};
use crate::health::{DeviceHealth, MonitorHealth, VolumeHealth};
use crate::volumes;
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::{
    ArrayDescription, ByteRange, ControlError, ControlPlane, DeviceReport, Event, EventKind, HostEntry, Moment,
    MonitorEntry, MonitorRole, Process, Refusal, RunningSet, ScrubRecord, ThrottleReport, VolumeEntry,
    killed_supervisor, removed, unix_millis_now,
};
use braid_machine::{ArrayRequest, HostSuccess};
use braid_session::{CLOCK_COUNTER, Session, response_counter};
use braid_wire::{Managed, Task};
use std::collections::BTreeMap;
use std::io::ErrorKind::NotFound;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long devices may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// The same for repeated snapshots.
const ANSWER_WAIT_AGAIN: Duration = Duration::from_secs(1);
/// How long a device may take to answer after another one.
const GRACE: Duration = Duration::from_secs(1);
/// The state of a device that has not answered in time.
const NO_ANSWER: &str = "silent: no answer";
/// An additional counter of devices: 1 if the device has a lease.
pub const LEASE_COUNTER: &str = "has_lease";
/// A device's counter of blocks that it has read and found corrupt.
pub const CORRUPT_COUNTER: &str = "blocks_corrupt";
/// A device's counter of blocks that volumes and objects can have on it in addition.
pub const UNCLAIMED_COUNTER: &str = "blocks_unclaimed";
/// A device's counter of absent blocks.
const ABSENT_COUNTER: &str = "blocks_absent";
/// The name of a device's counter of how long its disk's commands wait for the next one to complete, in microseconds.
const DISK_RESPONSE_COUNTER: &str = "disk_response_micros";

/// The state of an array at one time.
pub struct ArraySnapshot {
    pub control: ControlPlane,
    pub description: ArrayDescription,
    /// The processes of `braid up`; none if it is not running.
    pub running: Option<RunningSet>,
    /// The supervisor of an array that is down, if it was killed.
    pub killed: Option<Process>,
    /// Why the devices could not be asked; none if they were, or need not be.
    pub unasked: Option<Failure>,
    pub states: BTreeMap<DeviceId, DeviceState>,
    /// All hosts, except the one that took the snapshot.
    pub hosts: Vec<HostEntry>,
    /// The monitor's last report.
    pub monitor: Option<MonitorEntry>,
    /// What the monitor of each machine does, if the array is on several.
    pub monitors: BTreeMap<String, MonitorRole>,
    /// Why the folder can't be changed: then what others publish in it grows old while they serve.
    pub refusal: Option<Refusal>,
    /// The last scrub of each volume, as far as known.
    pub scrubs: BTreeMap<u64, ScrubRecord>,
    /// The latest events, or why they can't be read.
    pub events: Result<Vec<Event>, String>,
    /// The time of the snapshot, in milliseconds since 1970.
    pub now: u64,
}

pub struct DeviceState {
    pub health: DeviceHealth,
    pub counters: Vec<(String, u64)>,
    /// How far its wall clock is ahead of this machine's, in milliseconds; negative if it is behind; none if it did not tell.
    pub clock_ahead_millis: Option<i64>,
}

impl DeviceState {
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// Takes snapshots of an array, once or repeatedly.
pub struct SnapshotReader {
    control: ControlPlane,
    role: &'static str,
    /// The host that sends requests to the devices.
    session: Option<Session>,
    has_looked: bool,
}

impl SnapshotReader {
    /// A reader that has not taken a snapshot yet.
    pub fn new(control: ControlPlane, role: &'static str) -> SnapshotReader {
        SnapshotReader { control, role, session: None, has_looked: false }
    }

    pub async fn look(&mut self) -> Result<ArraySnapshot, Failure> {
        let control = self.control.clone();
        let description = control.describe().await?;
        let running = control.running().await?;
        // Of several machines, others may run.
        let may_run = running.is_some() || control.cluster().is_some();
        if !may_run || self.session.as_ref().is_some_and(Session::is_lost) {
            self.leave().await;
        }
        let (mut states, mut unasked) = (BTreeMap::new(), None);
        if may_run {
            if self.session.is_none() {
                // A host needs a lease: the state of the array is shown without one, too.
                match self.start().await {
                    Ok(session) => self.session = Some(session),
                    Err(failure) => unasked = Some(failure),
                }
            }
            if let Some(session) = &self.session {
                let wait = if self.has_looked { ANSWER_WAIT_AGAIN } else { ANSWER_WAIT };
                states = ask(session, &description, wait).await;
                self.has_looked = true;
            }
        }
        let own = self.session.as_ref().map(|session| session.generation());
        // `braid up` makes the folder of hosts again if it is missing.
        let hosts = match control.leases().hosts(Moment::now(), description.leases().lease()).await {
            Err(ControlError::File { source, .. }) if running.is_none() && source.kind() == NotFound => Vec::new(),
            hosts => hosts?,
        };
        let hosts = hosts.into_iter().filter(|host| Some(host.generation) != own).collect();
        // Read after the devices' answers, because the monitor's report takes precedence.
        let monitor = control.monitor().await?;
        let monitors = match control.cluster() {
            Some(cluster) => cluster.monitors().await?,
            None => BTreeMap::new(),
        };
        let mut scrubs = BTreeMap::new();
        for volume in &description.volumes {
            scrubs.extend(control.scrub(volume.id).await.ok().flatten().map(|scrub| (volume.id, scrub)));
        }
        let events = control.latest_events().await.map_err(|error| error.to_string());
        let (refusal, now, killed) = (control.local().refusal(), unix_millis_now(), killed_supervisor(control.local()));
        Ok(ArraySnapshot {
            control,
            description,
            running,
            killed,
            unasked,
            states,
            hosts,
            monitor,
            monitors,
            refusal,
            scrubs,
            events,
            now,
        })
    }

    /// Starts the host, unless that has to wait for a stopped process, or the folder can't be written.
    async fn start(&self) -> Result<Session, Failure> {
        if let Some(holder) = self.control.local().lock_holder() {
            let message = format!("{holder} is stopped, and holds the lock of the array's folder");
            return Err(Failure::failed("locked", message).hint(release_lock(holder.pid)));
        }
        // A host needs a new file.
        match self.control.local().refusal() {
            Some(refusal @ Refusal::ReadOnly) => Err(Failure::failed("read-only", refusal.to_string()).hint(READ_ONLY)),
            Some(refusal @ Refusal::NoInodes) => Err(Failure::failed("disk-full", refusal.to_string()).hint(NO_INODES)),
            _ => Ok(()),
        }?;
        Ok(Session::start(&self.control, self.role).await?)
    }

    /// Ends the host.
    pub async fn leave(&mut self) {
        if let Some(session) = self.session.take() {
            session.leave().await;
        }
    }
}

impl Drop for SnapshotReader {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.leave_soon();
        }
    }
}

impl ArraySnapshot {
    /// The name that a volume or file system of this number had, if it was deleted lately.
    pub fn removed(&self, kind: EventKind, id: u64) -> Option<String> {
        removed(self.events.iter().flatten(), kind, id)
    }

    pub fn member_state(&self, id: DeviceId) -> Option<&DeviceReport> {
        self.monitor.as_ref()?.report.devices.iter().find(|device| device.id == id.0)
    }

    pub fn condition(&self, id: DeviceId) -> DeviceCondition {
        let known = Known {
            health: &self.device_health(id),
            absent: self.counter(id, ABSENT_COUNTER).map(|blocks| blocks * BLOCK_BYTES as u64),
            total: self.bytes_on(id),
            throttle: self.throttle(),
            now: self.now,
        };
        DeviceCondition::of(self.member_state(id), known)
    }

    /// How long a device takes to answer: its heartbeats to the host that waits most, or the commands of its disk, whichever take longer.
    /// Requests are no measure: those of a write wait for other devices, too. None if nothing has waited recently.
    pub fn response_time(&self, id: DeviceId) -> Option<Duration> {
        let name = response_counter(id);
        let live = self.hosts.iter().filter(|host| host.live);
        let of_heartbeats = live.filter_map(|host| host.report.counters.get(&name).copied());
        let of_disk = self.counter(id, DISK_RESPONSE_COUNTER).filter(|micros| *micros > 0);
        of_heartbeats.chain(of_disk).max().map(Duration::from_micros)
    }

    /// A counter of a device; none if it has not told it.
    pub fn counter(&self, id: DeviceId, name: &str) -> Option<u64> {
        self.states.get(&id)?.counter(name)
    }

    pub fn throttle(&self) -> ThrottleReport {
        self.monitor.as_ref().map(|monitor| monitor.report.throttle).unwrap_or_default()
    }

    /// Why nothing is known from a device that has told nothing.
    pub fn why_untold(&self) -> &'static str {
        if self.unasked.is_some() { "it was not asked" } else { "it does not answer" }
    }

    pub fn monitor_health(&self) -> MonitorHealth {
        let running = self.running.as_ref().and_then(|running| running.monitor.as_ref());
        let health = MonitorHealth::of(self.monitor.as_ref(), running, self.description.leases());
        match (health, self.refusal) {
            (MonitorHealth::Silent(age), Some(refusal)) => MonitorHealth::Unreported { age: Some(age), refusal },
            (MonitorHealth::Down(None), Some(refusal)) if running.is_some() => {
                MonitorHealth::Unreported { age: None, refusal }
            }
            (health, _) => health,
        }
    }

    pub fn device_health(&self, id: DeviceId) -> DeviceHealth {
        let running = self.running.as_ref().and_then(|running| Some((running.device(id)?, running)));
        let process = running.and_then(|(device, running)| Some(running.process(device.pid?)));
        if let Some(process) = process.filter(Process::is_suspended) {
            return DeviceHealth::Silent(format!("suspended: `kill -CONT {}` resumes it", process.pid));
        }
        match (self.states.get(&id), running.map(|(device, _)| device)) {
            (_, Some(running)) if running.pid.is_none() => {
                let why = running.down.as_deref().unwrap_or("being restarted");
                DeviceHealth::Silent(format!("down: {why}"))
            }
            (Some(state), _) => state.health.clone(),
            (None, Some(_)) if self.unasked.is_some() => DeviceHealth::Unasked,
            (None, _) => DeviceHealth::Silent("not running".to_string()),
        }
    }

    /// The health of a volume; none if its entry is invalid.
    pub fn volume_health(&self, volume: &VolumeEntry) -> Option<VolumeHealth> {
        let volume = volumes::describe(volume).ok()?;
        let serves = |device: DeviceId| self.device_health(device).may_serve();
        Some(VolumeHealth::of(&volume, self.monitor.as_ref(), serves))
    }

    pub fn lost(&self, volume: &VolumeEntry) -> &[ByteRange] {
        self.scrubs.get(&volume.id).map_or(&[], |scrub| &scrub.lost)
    }

    /// Bytes of redundant volumes on a device.
    fn bytes_on(&self, id: DeviceId) -> u64 {
        let described = self.description.volumes.iter().filter_map(|entry| volumes::describe(entry).ok());
        let of = |volume: braid_layout::VolumeDescription| {
            let position = volume.devices.iter().position(|device| *device == id)?;
            let redundant = volume.layout.redundancy_units() > 0;
            redundant.then(|| volume.layout.used_blocks(position, volume.stripes()) * BLOCK_BYTES as u64)
        };
        described.filter_map(of).sum()
    }
}

impl DeviceState {
    fn silent(why: &str) -> DeviceState {
        DeviceState { health: DeviceHealth::Silent(why.to_string()), counters: Vec::new(), clock_ahead_millis: None }
    }
}

/// How far a clock is ahead that was read between two readings of this machine's clock.
fn ahead_of(clock: u64, asked: u64, answered: u64) -> i64 {
    let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
    signed(clock.saturating_sub(answered)) - signed(asked.saturating_sub(clock))
}

async fn ask(session: &Session, description: &ArrayDescription, wait: Duration) -> BTreeMap<DeviceId, DeviceState> {
    let mut asked = JoinSet::new();
    for entry in &description.devices {
        let (id, client) = (DeviceId(entry.id), session.client().clone());
        asked.spawn(async move {
            let asked = unix_millis_now();
            let answer = client.call(ArrayRequest::Manage { device: id, task: Task::Inspect }).await;
            let answered = unix_millis_now();
            let state = match answer {
                Ok(HostSuccess::Managed(Managed::Inspected(inspection))) => {
                    let (health, counters) = (DeviceHealth::Serving, inspection.counters);
                    let mut state = DeviceState { health, counters, clock_ahead_millis: None };
                    // A device of an earlier release does not have this counter; it answers, so it counts as serving.
                    if state.counter(LEASE_COUNTER) == Some(0) {
                        state.health = DeviceHealth::NoLease;
                    }
                    state.clock_ahead_millis =
                        state.counter(CLOCK_COUNTER).map(|clock| ahead_of(clock, asked, answered));
                    state
                }
                Ok(_) => DeviceState::silent("unexpected answer"),
                Err(error) => DeviceState::silent(&error.to_string()),
            };
            (id, state)
        });
    }
    let ids = description.devices.iter().map(|entry| DeviceId(entry.id));
    let mut states: BTreeMap<_, _> = ids.map(|id| (id, DeviceState::silent(NO_ANSWER))).collect();
    let mut deadline = Instant::now() + wait;
    while let Ok(Some(answer)) = tokio::time::timeout_at(deadline.into(), asked.join_next()).await {
        states.extend(answer.ok());
        deadline = deadline.min(Instant::now() + GRACE);
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_or_behind_only_beyond_the_time_of_the_request() {
        assert_eq!([900, 1_000, 1_200, 1_300, 1_450].map(|clock| ahead_of(clock, 1_000, 1_300)), [-100, 0, 0, 0, 150]);
        assert_eq!(ahead_of(u64::MAX, 1_000, 1_300), i64::MAX);
    }
}
