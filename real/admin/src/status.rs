//! The status of an array, as data: what `braid status --json` prints.

use crate::device_condition::{DeviceCondition, Healing};
use crate::health::{MonitorHealth, VolumeHealth, is_there};
use crate::snapshot::ArraySnapshot;
use crate::{ordering, volumes};
use braid_base::units::format_size;
use braid_base::{DeviceId, LockServerId};
use braid_control::{
    ByteRange, DeviceReport, HostEntry, ReportedState, RunningSet, SpareReport, ThrottleReport, VolumeEntry,
    VolumeState,
};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The status of an array. Its JSON form is that of `braid status --json`; fields are only ever added to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Of this form.
    pub schema: u32,
    /// The array's folder.
    pub dir: PathBuf,
    /// The array's UUID.
    pub array: String,
    /// True if a supervisor (`braid up`) runs the array.
    pub up: bool,
    /// True if its volumes are served.
    pub ready: bool,
    /// The supervisor's process.
    pub pid: Option<u32>,
    /// The epoch of the membership, as the monitor last said.
    pub epoch: Option<u32>,
    /// The monitor.
    pub monitor: MonitorStatus,
    /// By how many milliseconds stamps are ahead of the clock, if that is unusually much.
    pub stamps_ahead_millis: Option<u64>,
    /// How fast devices are resynchronised, and volumes scrubbed.
    pub throttle: ThrottleReport,
    /// Disks that stand by.
    pub spares: Vec<SpareReport>,
    /// All volumes.
    pub volumes: Vec<VolumeStatus>,
    /// All devices.
    pub devices: Vec<DeviceStatus>,
    /// The lock servers that are needed or run.
    pub lock_servers: Vec<LockServerStatus>,
    /// The hosts that have leases, but for the one that asked.
    pub hosts: Vec<HostStatus>,
}

/// The status of the monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorStatus {
    /// How it is.
    #[serde(rename = "state", serialize_with = "monitor_name")]
    pub health: MonitorHealth,
    /// Where it listens.
    pub address: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: Option<u64>,
    /// What it has counted since it started.
    pub counters: Option<BTreeMap<String, u64>>,
}

/// The status of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceStatus {
    /// Its number.
    pub id: u16,
    /// Where it listens.
    pub address: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// Its file or disk.
    pub file: PathBuf,
    /// Its raw size, in bytes.
    pub size: u64,
    /// Whether it answers, in words.
    pub state: String,
    /// Whether it is in the array, as the monitor sees it.
    pub member_state: Option<ReportedState>,
    /// Since which epoch.
    pub since: Option<u32>,
    /// Why what is there may not serve, in words.
    pub refused: Option<String>,
    /// How it is.
    #[serde(serialize_with = "condition_name")]
    pub condition: DeviceCondition,
    /// The same in words.
    pub words: String,
    /// When that last changed, in milliseconds since 1970.
    pub changed: Option<u64>,
    /// How far its resynchronisation is.
    pub healing: Option<HealingStatus>,
    /// Bytes that it lacks.
    pub left: Option<u64>,
    /// The host that resynchronises it, by its generation.
    pub recovery_coordinator: Option<u32>,
    /// The name of its disk.
    pub disk: Option<String>,
    /// The name of the disk that is to fill its slot.
    pub awaits: Option<String>,
    /// The name of the disk that takes its place once the others can do without it.
    pub leaves_to: Option<String>,
    /// An operator has taken it out.
    pub held: bool,
    /// How often it was started again.
    pub restarts: Option<u64>,
    /// What it has counted since it started.
    pub counters: Option<BTreeMap<String, u64>>,
}

/// How far the resynchronisation of a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealingStatus {
    /// Bytes that it has of those that it was to be brought.
    pub done: u64,
    /// Bytes that it lacks; none while that is being found out.
    pub left: Option<u64>,
    /// How much is done, in hundredths; 100 only when nothing is left.
    pub percent: Option<u64>,
    /// Blocks that can't be worked out.
    pub lost_blocks: u64,
    /// How fast it goes.
    pub bytes_per_second: Option<u64>,
    /// How long it will take, if it goes on like this.
    pub seconds_left: Option<u64>,
    /// An operator has it wait.
    pub paused: bool,
}

/// The status of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its usable size, in bytes.
    pub size: u64,
    /// Where the supervisor's NBD server serves it, as a URI.
    pub nbd: Option<String>,
    /// Its layout: `raid5:4+1`.
    pub layout: String,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// How its hosts are kept apart.
    pub ordering: String,
    /// What a failure may leave of a write.
    pub atomicity: String,
    /// How it is, in a word: `healthy`, `degraded`, `waiting`, `unavailable`, `unknown`, `not up`, or what is done with it.
    pub state: String,
    /// The devices that it lacks.
    pub lacks: Vec<u16>,
    /// The devices whose failure would stop some of it, if it is degraded.
    pub needs: Vec<u16>,
    /// How it is, in words.
    pub words: String,
    /// What of it is known to be lost.
    pub lost: Vec<ByteRange>,
    /// When it was last scrubbed to its end, in milliseconds since 1970.
    pub scrubbed: Option<u64>,
    /// True if it can be used, so that an address makes sense.
    #[serde(skip)]
    pub usable: bool,
}

/// The status of a lock server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockServerStatus {
    /// Its number.
    pub id: u16,
    /// Where it listens.
    pub address: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// How it is, in words; `serving` if it serves.
    pub state: String,
    /// How often it was started again.
    pub restarts: Option<u64>,
    /// What it has counted since it started.
    pub counters: Option<BTreeMap<String, u64>>,
}

/// The status of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    /// Its generation: each start of a host has its own.
    pub generation: u32,
    /// Its process.
    pub pid: u32,
    /// What it is for.
    pub what: String,
    /// Its lease has not run out.
    pub live: bool,
    /// For how long it has not renewed its lease; none if that is not known.
    pub silent_seconds: Option<u64>,
    /// What it has counted since it started.
    pub counters: BTreeMap<String, u64>,
}

/// A lock server that serves says so with this word.
const SERVING: &str = "serving";

impl Status {
    /// From one look at the array.
    pub fn of(look: &ArraySnapshot) -> Status {
        let running = look.running.as_ref();
        Status {
            schema: 2,
            dir: look.folder.absolute(),
            array: look.description.array.to_string(),
            up: running.is_some(),
            ready: running.is_some_and(|running| running.ready),
            pid: running.map(|running| running.supervisor),
            epoch: look.monitor.as_ref().map(|monitor| monitor.report.epoch),
            monitor: MonitorStatus::of(look),
            stamps_ahead_millis: look.monitor.as_ref().and_then(|monitor| monitor.report.stamps_ahead_millis),
            throttle: look.throttle(),
            spares: look.monitor.as_ref().map(|monitor| monitor.report.spares.clone()).unwrap_or_default(),
            volumes: look.description.volumes.iter().map(|volume| VolumeStatus::of(look, volume)).collect(),
            devices: look.description.devices.iter().map(|entry| DeviceStatus::of(look, entry)).collect(),
            lock_servers: lock_servers(look),
            hosts: hosts(look).map(HostStatus::of).collect(),
        }
    }

    /// The device of that number.
    pub fn device(&self, id: DeviceId) -> Option<&DeviceStatus> {
        self.devices.iter().find(|device| device.id == id.0)
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&VolumeStatus> {
        self.volumes.iter().find(|volume| volume.name == name)
    }
}

impl MonitorStatus {
    fn of(look: &ArraySnapshot) -> MonitorStatus {
        let running = look.running.as_ref().and_then(|running| running.monitor.as_ref());
        let entry = look.monitor.as_ref();
        MonitorStatus {
            health: look.monitor_health(),
            address: entry.map(|monitor| monitor.report.address.clone()),
            pid: entry.map(|monitor| monitor.pid),
            restarts: running.map(|running| running.restarts),
            counters: entry.map(|monitor| monitor.report.counters.clone()),
        }
    }
}

impl DeviceStatus {
    fn of(look: &ArraySnapshot, entry: &braid_control::DeviceEntry) -> DeviceStatus {
        let id = DeviceId(entry.id);
        let running = look.running.as_ref().and_then(|running| running.device(id));
        let (report, condition) = (look.member_state(id), look.condition(id));
        let healing = condition.healing();
        DeviceStatus {
            id: entry.id,
            address: running.map(|running| running.address.clone()).or(entry.address.clone()),
            pid: running.and_then(|running| running.pid),
            file: entry.path(&look.folder.absolute()),
            size: entry.size,
            state: look.device_health(id).words(),
            member_state: report.map(|device| device.member_state),
            since: report.map(|device| device.since),
            refused: report.and_then(DeviceReport::refusal),
            words: condition.words(),
            changed: report.and_then(|device| device.changed),
            healing: healing.map(HealingStatus::of),
            left: healing.and_then(|healing| healing.left),
            recovery_coordinator: report.and_then(|device| device.recovery_coordinator),
            disk: report.and_then(|device| device.disk.clone()),
            awaits: report.and_then(|device| device.awaits.clone()),
            leaves_to: report.and_then(|device| device.leaves_to.clone()),
            held: report.is_some_and(|device| device.held),
            restarts: running.map(|running| running.restarts),
            counters: look.states.get(&id).map(|state| state.counters.iter().cloned().collect()),
            condition,
        }
    }
}

impl HealingStatus {
    /// Of what is known.
    pub fn of(healing: &Healing) -> HealingStatus {
        HealingStatus {
            done: healing.done,
            left: healing.left,
            percent: healing.percent(),
            lost_blocks: healing.lost,
            bytes_per_second: healing.bytes_per_second,
            seconds_left: healing.time_left().map(|time| time.as_secs()),
            paused: healing.paused,
        }
    }
}

impl VolumeStatus {
    fn of(look: &ArraySnapshot, volume: &VolumeEntry) -> VolumeStatus {
        let (state, lacks) = volume_state(look, volume);
        VolumeStatus {
            name: volume.name.clone(),
            size: volume.bytes,
            nbd: look.running.as_ref().and_then(|running| nbd_uri(running, &volume.name)),
            layout: volume.layout.clone(),
            unit: volume.unit,
            ordering: volume.ordering.clone(),
            atomicity: volume.atomicity.clone(),
            state,
            lacks,
            needs: needs(look, volume).iter().map(|device| device.0).collect(),
            words: volume_words(look, volume),
            lost: look.lost(volume).to_vec(),
            scrubbed: look.scrubs.get(&volume.id).and_then(|scrub| scrub.ended),
            usable: braid_session::is_usable(volume),
        }
    }
}

impl HostStatus {
    fn of(host: &HostEntry) -> HostStatus {
        HostStatus {
            generation: host.generation.0,
            pid: host.pid,
            what: host.what.clone(),
            live: host.live,
            silent_seconds: host.silent.map(|silent| silent.as_secs()),
            counters: host.report.counters.clone(),
        }
    }
}

/// Where the supervisor's NBD server serves a volume.
pub fn nbd_uri(running: &RunningSet, name: &str) -> Option<String> {
    let address = running.nbd.as_ref()?.0.parse().ok()?;
    Some(braid_nbd::uri(&address, name))
}

/// The hosts that are not lock servers.
fn hosts(look: &ArraySnapshot) -> impl Iterator<Item = &HostEntry> {
    look.hosts.iter().filter(|host| host.report.lock_server.is_none())
}

/// The lock servers that are needed or run, by the lease of the latest start of each.
fn lock_servers(look: &ArraySnapshot) -> Vec<LockServerStatus> {
    let needed = look.description.volumes.iter().any(ordering::needs_lock_server);
    let status = |id: LockServerId| {
        let serves = |host: &&HostEntry| host.report.lock_server.as_ref().is_some_and(|service| service.id == id.0);
        let lease = look.hosts.iter().rev().find(serves);
        let running = look.running.as_ref().and_then(|running| running.lock_server(id));
        let state = match (lease, running) {
            // The supervisor or somebody else runs it; one that was killed may still have its lease.
            (Some(lease), _) if lease.live && is_there(lease.pid) => SERVING.to_string(),
            (_, Some(running)) if running.pid.is_none() => {
                format!("down: {}", running.down.as_deref().unwrap_or("being started again"))
            }
            (Some(_), _) | (None, Some(_)) => "silent: its lease has run out".to_string(),
            (None, None) => "not running".to_string(),
        };
        let address = lease.and_then(|lease| Some(lease.report.lock_server.as_ref()?.address.clone()));
        let status = LockServerStatus {
            id: id.0,
            address: address.or_else(|| running.map(|running| running.address.clone())),
            pid: lease.map(|lease| lease.pid),
            state,
            restarts: running.map(|running| running.restarts),
            counters: lease.map(|lease| lease.report.counters.clone()),
        };
        (needed || lease.is_some() || running.is_some()).then_some(status)
    };
    look.description.lock_servers().filter_map(status).collect()
}

/// In a word, and the devices that the volume lacks.
fn volume_state(look: &ArraySnapshot, volume: &VolumeEntry) -> (String, Vec<u16>) {
    let state = match &volume.state {
        VolumeState::Creating => "being created".to_string(),
        VolumeState::Deleting => "being deleted".to_string(),
        VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
        VolumeState::Ready if look.running.is_none() => "not up".to_string(),
        VolumeState::Ready => match look.volume_health(volume) {
            Some(health) => {
                let lacks = health.lacks().iter().map(|device| device.0).collect();
                return (health.name().to_string(), lacks);
            }
            None => "not understood".to_string(),
        },
    };
    (state, Vec::new())
}

fn volume_words(look: &ArraySnapshot, volume: &VolumeEntry) -> String {
    let ready = volume.state == VolumeState::Ready && look.running.is_some();
    let mut words = match look.volume_health(volume).filter(|_| ready) {
        Some(VolumeHealth::Degraded(devices)) => {
            let how = |device: &DeviceId| match look.condition(*device) {
                DeviceCondition::CatchingUp(healing) => format!("{device} is catching up ({})", healing.words()),
                DeviceCondition::Rebuilding(healing) => format!("{device} is being rebuilt ({})", healing.words()),
                _ => format!("without {device}"),
            };
            let devices: Vec<String> = devices.iter().map(how).collect();
            format!("degraded: {}; {}", devices.join(", "), risk(look, volume))
        }
        Some(health) => health.words(),
        None => volume_state(look, volume).0,
    };
    let lost: u64 = look.lost(volume).iter().map(|range| range.length).sum();
    if lost > 0 {
        words += &format!("; {} are lost (`braid scrub {}` says where)", format_size(lost), volume.name);
    }
    words
}

/// The devices whose failure would stop some of a degraded volume.
fn needs(look: &ArraySnapshot, volume: &VolumeEntry) -> Vec<DeviceId> {
    match (volumes::describe(volume), look.volume_health(volume)) {
        (Ok(described), Some(health @ VolumeHealth::Degraded(_))) => health.needs(&described),
        _ => Vec::new(),
    }
}

/// What one more failure would do to a degraded volume.
fn risk(look: &ArraySnapshot, volume: &VolumeEntry) -> String {
    let needs = needs(look, volume);
    let lacks = volume_state(look, volume).1.len();
    if needs.len() + lacks >= volume.devices.len() {
        return "one more failure stops it".to_string();
    }
    let needs: Vec<String> = needs.iter().map(DeviceId::to_string).collect();
    format!("a failure of {} stops a part of it", needs.join(" or "))
}

fn monitor_name<S: Serializer>(health: &MonitorHealth, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(health.name())
}

fn condition_name<S: Serializer>(condition: &DeviceCondition, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(condition.name())
}
