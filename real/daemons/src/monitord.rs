//! The monitor daemon: its state in the array's folder, the volumes that it must know, and serving it.

use crate::daemon::{self, Platform, Stage};
use crate::membership_events::MembershipEvents;
use crate::published_metrics::{Awaited, ServerView};
use crate::recording;
use braid_admin::failure::{Failure, disk_failure};
use braid_admin::state_from_devices;
use braid_admin::volumes;
use braid_base::limits::Settings;
use braid_base::{
    ArrayId, BLOCK_BYTES, DeviceId, Epoch, FileSystemId, Generation, Level, MemberState, NodeId, Now, Ownership,
    VolumeId,
};
use braid_control::{
    ArrayDescription, ControlPlane, DeviceReport, Event, FileSystemReport, HealingReport, MonitorReport, ReportedState,
    SpareReport, ThrottleReport, UpgradeReport, VolumeState, monitor_file, until_next,
};
use braid_layout::VolumeDescription;
use braid_machine::{ControlOutcome, ControlRequest};
use braid_membership::{DISK_BYTES, Monitor, MonitorConfig, MonitorError, MonitorService, OlderPrograms};
use braid_recording::RecordingRequest;
use braid_session::HEARTBEAT;
use braid_session::addressing::published;
use braid_shell::{Address, Addresses, Client, Counters, Disk, Node};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How far stamps may be ahead of a clock in normal operation: the difference between two roughly correct clocks, plus what devices
/// reserve.
/// Beyond this, some clock of the array is or was wrong.
const STAMPS_AHEAD_USUAL: Duration = Duration::from_secs(10);

/// How far stamps are ahead, if it is more than usual.
fn stamps_ahead(ahead: Duration) -> Option<u64> {
    (ahead > STAMPS_AHEAD_USUAL).then_some(ahead.as_millis() as u64)
}

/// How long the daemon of a replaced disk may take to end.
const REPLACED_END_WAIT: Duration = Duration::from_secs(15);

/// The most events that wait to be written to the log.
const UNTOLD_MAX: usize = 1024;

/// The monitor of an array. The lock on its state file keeps other processes from running it.
pub struct MonitorDaemon {
    control: ControlPlane,
    array: ArrayId,
    devices: Vec<DeviceId>,
    last_generation: Generation,
    settings: Settings,
    disk: Disk,
}

impl MonitorDaemon {
    /// Opens and locks the state file, which is created if it is missing. Spares fill the slots of devices that have been out for
    /// `spare_after`.
    pub async fn open(control: &ControlPlane, spare_after: Option<Duration>) -> Result<MonitorDaemon, Failure> {
        let description = control.describe().await?;
        let in_use = Failure::failed("monitor-in-use", "the array's monitor is already running, in another process")
            .hint("`braid status` shows which process it is");
        let path = control.local().dir().join(monitor_file());
        if description.populated && !path.exists() {
            // An empty state would mean that all devices are completely resynchronised.
            let message = format!("{}: the monitor's state is missing", path.display());
            let hint =
                format!("stop `braid up` if it is running, then: {}", state_from_devices::advice(control.local()));
            return Err(Failure::data_lost("monitor-state-lost", message).hint(hint));
        }
        let disk = daemon::open_state(control.local(), &monitor_file(), DISK_BYTES, in_use)?;
        let devices = description.devices.iter().map(|device| DeviceId(device.id)).collect();
        let last_generation = Generation(control.leases().last_generation().await?.unwrap_or_default());
        let mut settings = description.leases().settings();
        settings.spare_after = spare_after.unwrap_or(settings.spare_after);
        let (control, array) = (control.clone(), description.array);
        Ok(MonitorDaemon { control, array, devices, last_generation, settings, disk })
    }

    /// Serves at `listen` until `stop` completes. Calls `serving` with the address once it accepts requests.
    pub async fn serve(
        self,
        listen: &Address,
        recording: Option<RecordingRequest>,
        serving: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let MonitorDaemon { control, array, devices, last_generation, settings, disk } = self;
        let platform = Platform::bind(disk, listen, true).await?;
        let (address, path) = (platform.address(), platform.disk_path());
        let lease = settings.device_lease;
        let config = MonitorConfig { array, devices, last_generation, term: None, settings };
        let counters = Arc::new(Counters::default());
        let recorder = recording::begin(recording.as_ref(), recording::MONITOR, &config, &counters)?;
        let monitor = Monitor::new(config);
        let us = Node { array, id: NodeId::Monitor };
        // The monitor makes no connections: all others connect to it.
        let (_, nobody) = watch::channel(Addresses::new());
        let (view, seen, client, running) = platform.serve(monitor, (recorder, counters), us, nobody, stop);
        // A killed monitor has left its last report.
        let last = control.monitor().await?.map(|entry| entry.report);
        let publisher = ReportPublisher {
            control: control.clone(),
            view,
            client,
            seen: seen.clone(),
            pause: HEARTBEAT,
            address: published(&control, &address),
            last_generation,
            known: BTreeMap::new(),
            refused: RefusedDevices::default(),
            membership_events: MembershipEvents::after(last),
            untold: Vec::new(),
            telling: None,
        };
        let stage = |(service, _): &(MonitorService, Awaited)| match service {
            MonitorService::Off | MonitorService::Reading => Stage::Starting,
            MonitorService::Serving => Stage::Serving,
            // The record is intact, as far as it could be read: it can't be written, or read, now.
            MonitorService::Unusable(MonitorError::Disk(error)) => Stage::Unusable(disk_failure(*error).of(&path)),
            MonitorService::Unusable(error) => {
                let failure = Failure::data_lost("monitor-state-damaged", error.to_string()).of(&path);
                Stage::Unusable(failure.hint(format!(
                    "stop `braid up` if it is running, then: {}",
                    state_from_devices::advice(control.local())
                )))
            }
        };
        let outcome = daemon::run(running, publisher.keep(lease), seen, stage, || serving(&address)).await;
        if let Err(error) = control.withdraw_monitor().await {
            tracing::warn!("monitor: {error}");
        }
        outcome
    }
}

/// Devices that are refused, with the reason that was logged last, if one was, and since when they are refused.
#[derive(Default)]
struct RefusedDevices(BTreeMap<u16, (Option<String>, Instant)>);

impl RefusedDevices {
    /// Why devices are refused, as far as that was not logged.
    fn take(&mut self, devices: &[DeviceReport], now: Instant) -> Vec<(DeviceId, String)> {
        let mut before = std::mem::take(&mut self.0);
        let mut told = Vec::new();
        for device in devices {
            let Some(why) = device.refusal() else { continue };
            let (logged, since) = before.remove(&device.id).unwrap_or((None, now));
            // The daemon of a disk that was just replaced is refused until it has ended.
            let ends = device.awaited_disk.is_some() && now.duration_since(since) < REPLACED_END_WAIT;
            if !ends && logged.as_ref() != Some(&why) {
                told.push((DeviceId(device.id), why.clone()));
            }
            self.0.insert(device.id, (if ends { logged } else { Some(why) }, since));
        }
        told
    }
}

/// Keeps the monitor's knowledge of volumes up to date, and publishes its report.
struct ReportPublisher {
    control: ControlPlane,
    view: ServerView<Monitor>,
    client: Client<ControlRequest, ControlOutcome>,
    seen: watch::Receiver<(MonitorService, Awaited)>,
    /// The time to the next report, if there is nothing new.
    pause: Duration,
    address: String,
    /// The last generation that the monitor knows to be given out.
    last_generation: Generation,
    known: BTreeMap<VolumeId, VolumeDescription>,
    refused: RefusedDevices,
    membership_events: MembershipEvents,
    /// Events that wait to be written to the log, oldest first.
    untold: Vec<Event>,
    /// The task that writes to the log. It may wait for the folder's lock; nothing else waits for the task.
    telling: Option<JoinHandle<()>>,
}

impl ReportPublisher {
    /// Tells the monitor about new and deleted volumes, and publishes how it sees the devices. Devices have leases of this length. Never
    /// returns.
    async fn keep(mut self, lease: Duration) -> Failure {
        let mut revision = None;
        let mut shown: Option<(Instant, (u64, Awaited))> = None;
        loop {
            match self.control.describe().await {
                Ok(description) if revision == Some(description.revision) => {}
                Ok(description) => match self.follow(&description).await {
                    Ok(()) => revision = Some(description.revision),
                    Err(failure) => tracing::warn!("the monitor can't follow the volumes: {failure}"),
                },
                Err(error) => tracing::warn!("the monitor can't look up the volumes: {error}"),
            }
            self.follow_generations().await;
            // Other processes wait for this to be published.
            let now = (revision.unwrap_or_default(), self.seen.borrow_and_update().1);
            let is_due = shown.is_none_or(|(when, last)| when.elapsed() >= HEARTBEAT || last != now);
            // Until the membership has been read there is nothing to publish.
            if is_due && now.1.0 != Epoch(0) {
                let mut report = self.report(now.0);
                for (device, why) in self.refused.take(&report.devices, Instant::now()) {
                    tracing::error!("device {device} is refused: {why}");
                }
                let events = self.membership_events.take(&mut report, Instant::now());
                let is_calm =
                    |device: &DeviceReport| device.member_state == ReportedState::In && device.healing.is_none();
                // While nothing happens, the report is no older than half of a lease.
                self.pause = if report.devices.iter().all(is_calm) { lease / 2 } else { HEARTBEAT };
                match self.control.publish_monitor(report).await {
                    Ok(()) => shown = Some((Instant::now(), now)),
                    Err(error) => tracing::warn!("the monitor can't publish its report: {error}"),
                }
                self.untold.extend(events);
            }
            self.tell();
            tokio::select! {
                () = self.control.changed_or_rests(HEARTBEAT) => {}
                _ = self.seen.changed() => {}
                () = tokio::time::sleep(until_next(self.pause)) => {}
            }
        }
    }

    /// Starts writing the waiting events to the log, unless that is under way.
    fn tell(&mut self) {
        let surplus = self.untold.len().saturating_sub(UNTOLD_MAX);
        if surplus > 0 {
            tracing::warn!("{surplus} events could not be written to the log in time, and were discarded");
            self.untold.drain(..surplus);
        }
        if self.untold.is_empty() || self.telling.as_ref().is_some_and(|telling| !telling.is_finished()) {
            return;
        }
        let events = std::mem::take(&mut self.untold);
        let control = self.control.clone();
        self.telling = Some(tokio::spawn(async move {
            if let Err(error) = control.record(events).await {
                tracing::warn!("the monitor can't write events to the log: {error}");
            }
        }));
    }

    /// Tells the monitor which volumes have changed. Volumes whose creation is under way count, because they may soon have content.
    async fn follow(&mut self, description: &ArrayDescription) -> Result<(), Failure> {
        let mut there = BTreeMap::new();
        for entry in description.volumes.iter().filter(|entry| entry.state != VolumeState::Deleting) {
            let volume = volumes::describe_widest(entry)?;
            there.insert(volume.id, volume);
        }
        for volume in there.values().filter(|volume| self.known.get(&volume.id) != Some(volume)) {
            self.client.call(ControlRequest::AdoptVolume { volume: volume.clone() }).await?;
        }
        for volume in self.known.keys().copied().filter(|id| !there.contains_key(id)) {
            self.client.call(ControlRequest::DropVolume { volume }).await?;
        }
        self.known = there;
        Ok(())
    }

    /// Tells the monitor which generations were given out: it accepts no fence of later ones.
    async fn follow_generations(&mut self) {
        let last = match self.control.leases().last_generation().await {
            Ok(last) => Generation(last.unwrap_or_default()),
            Err(error) => return tracing::warn!("the monitor can't look up the last generation: {error}"),
        };
        if last > self.last_generation {
            match self.client.call(ControlRequest::NoteGenerations { last }).await {
                Ok(_) => self.last_generation = last,
                Err(error) => tracing::warn!("the monitor was not told of the last generation: {error}"),
            }
        }
    }

    fn report(&self, revision: u64) -> MonitorReport {
        let counters = self.view.counters().into_map();
        self.view.look(|monitor| report_of(monitor, (revision, &self.address), counters))
    }
}

/// The report of a monitor at this address that knows the volumes of this revision.
pub(crate) fn report_of(
    monitor: &Monitor,
    (revision, address): (u64, &str),
    counters: BTreeMap<String, u64>,
) -> MonitorReport {
    let Now { time: now, clock } = braid_shell::now();
    let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
    let (membership, unavailable) = (monitor.membership(), monitor.unavailable());
    let slots: BTreeMap<_, _> = monitor.slots().map(|slot| (slot.device, slot)).collect();
    let device = |lease: braid_membership::DeviceLease| {
        let slot = slots.get(&lease.device);
        let name = |disk: Option<braid_base::DiskId>| disk.map(|disk| disk.to_string());
        let member = membership.member(lease.device)?;
        let (member_state, recovery_coordinator) = match member.member_state {
            MemberState::In if unavailable.contains(&lease.device) => (ReportedState::Unavailable, None),
            MemberState::In => (ReportedState::In, None),
            MemberState::Returning { recovery_coordinator } => {
                (ReportedState::Returning, recovery_coordinator.map(|host| host.0))
            }
            MemberState::Out => (ReportedState::Out, None),
        };
        let progress = slot.and_then(|slot| slot.progress).filter(|_| member_state != ReportedState::Out);
        let progress = progress.or((member_state == ReportedState::Returning).then(Default::default));
        let heard = lease.heard.map(|heard| now.since(heard).as_millis() as u64);
        Some(DeviceReport {
            id: lease.device.0,
            member_state,
            since: member.since.0,
            recovery_coordinator,
            heard_millis: heard,
            lives_by: heard.map(|_| lease.epoch.0),
            outdated: lease.outdated.map(|epoch| epoch.0),
            bad_slots: lease.bad_slots,
            failing: lease.failing,
            outages: lease.outages,
            stays_out_millis: lease.stays_out_until.map(|until| until.since(now).as_millis() as u64),
            disk: slot.and_then(|slot| name(slot.disk)),
            next_disk: slot.and_then(|slot| name(slot.next_disk)),
            awaited_disk: slot.and_then(|slot| name(slot.awaited_disk)),
            kept_out: slot.is_some_and(|slot| slot.kept_out),
            join_refused: slot.and_then(|slot| slot.join_refused).map(|why| why.to_string()).or_else(|| {
                let ahead = lease.ahead?;
                let ours = membership.epoch;
                Some(format!("it names epoch {ahead}, but the array has had no epoch above {ours}: replace its disk"))
            }),
            healing: progress.map(|progress| HealingReport {
                done: bytes(progress.done),
                left: bytes(progress.left),
                lost: progress.lost,
                bytes_per_second: None,
            }),
            // `MembershipEvents` fills in what depends on earlier reports.
            ..DeviceReport::default()
        })
    };
    let spare =
        |(disk, blocks): (braid_base::DiskId, u64)| SpareReport { disk: disk.to_string(), size_bytes: bytes(blocks) };
    let file_system = |(id, ownership): (FileSystemId, Ownership)| {
        Some(FileSystemReport { id: id.0, owner: ownership.owner?.0, since: ownership.since.0 })
    };
    let throttle = monitor.throttle();
    MonitorReport {
        address: address.to_string(),
        revision,
        epoch: membership.epoch.0,
        devices: monitor.leases().filter_map(device).collect(),
        spares: monitor.spares().map(spare).collect(),
        file_systems: monitor.owners().filter_map(file_system).collect(),
        throttle: ThrottleReport {
            bytes_per_second: throttle.bytes_per_second,
            share: throttle.share,
            paused: throttle.paused,
        },
        upgrade: upgrade(monitor),
        stamps_ahead_millis: stamps_ahead(monitor.stamps().since(clock)),
        counters,
    }
}

fn upgrade(monitor: &Monitor) -> UpgradeReport {
    let OlderPrograms { devices, hosts, lock_servers } = monitor.older_programs();
    UpgradeReport {
        level: monitor.level(),
        knows: Level::KNOWN,
        older_devices: devices.iter().map(|device| device.0).collect(),
        older_hosts: hosts.iter().map(|host| host.0).collect(),
        older_lock_servers: lock_servers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_disk_is_told_of_once_and_that_of_a_replaced_one_only_if_it_stays() {
        let (begun, mut refused) = (Instant::now(), RefusedDevices::default());
        // After so many seconds: why the disk is refused, whether another one is awaited, and what is told.
        for (seconds, why, is_awaited, told) in [
            (0, Some("replaced"), true, None),
            (14, Some("replaced"), true, None),
            (15, Some("replaced"), true, Some("replaced")),
            (16, Some("replaced"), true, None),
            (17, Some("other"), true, Some("other")),
            (18, None, true, None),
            (19, Some("other"), true, None),
            (20, Some("other"), false, Some("other")),
        ] {
            let awaited_disk = is_awaited.then(|| "new".to_string());
            let device =
                DeviceReport { id: 3, join_refused: why.map(String::from), awaited_disk, ..Default::default() };
            let found = refused.take(&[device], begun + Duration::from_secs(seconds));
            assert_eq!(found, Vec::from_iter(told.map(|why| (DeviceId(3), why.to_string()))), "{seconds}");
        }
    }
}
