//! The status of an array as data, as printed by `braid status --json`.

use crate::array::Array;
use crate::device_condition::{DeviceCondition, Healing, with_real_share};
use crate::doctor::{Diagnosis, Subject, Summary};
use crate::failure::Failure;
use crate::file_system_status::{self, FileSystemStatus};
use crate::health::{MonitorHealth, VolumeHealth};
use crate::lock_server_status::{LockServerStatus, lock_servers};
use crate::snapshot::{ArraySnapshot, CORRUPT_COUNTER, SnapshotReader, UNCLAIMED_COUNTER};
use crate::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::{
    AGENT, ByteRange, DeviceReport, HostEntry, MachineEntry, MonitorRole, ReportedState, RunningDaemon, RunningSet,
    SpareReport, ThrottleReport, VolumeEntry, VolumeState, WaitingReport,
};
use braid_session::addressing;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The status of an array. Its JSON form is that of `braid status --json`; later releases only add fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The version of this format.
    pub schema: u32,
    pub dir: PathBuf,
    /// The array's UUID.
    pub array: String,
    /// True if a supervisor (`braid up`) runs the array.
    pub up: bool,
    /// True if its volumes are served.
    pub ready: bool,
    /// The supervisor's process.
    pub pid: Option<u32>,
    /// The current epoch, according to the monitor's last report.
    pub epoch: Option<u32>,
    pub doctor: Summary,
    pub monitor: MonitorStatus,
    /// By how many milliseconds stamps are ahead of the clock; none if it is not unusually much.
    pub stamps_ahead_millis: Option<u64>,
    pub throttle: ThrottleReport,
    pub spares: Vec<SpareReport>,
    pub file_systems: Vec<FileSystemStatus>,
    pub volumes: Vec<VolumeStatus>,
    pub devices: Vec<DeviceStatus>,
    /// Those of an array on several; otherwise empty.
    pub machines: Vec<MachineStatus>,
    /// The nodes that `braid up` runs.
    pub nodes: Vec<NodeStatus>,
    /// The lock servers that are needed or running.
    pub lock_servers: Vec<LockServerStatus>,
    /// The hosts with leases, except the one that took the status.
    pub hosts: Vec<HostStatus>,
}

/// A process that runs some of the devices, a host and an NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    pub id: u16,
    /// Its process; none while it is down.
    pub pid: Option<u32>,
    /// Where NBD clients connect.
    pub nbd: String,
    pub restarts: u64,
    pub down: Option<String>,
    /// The devices that run in it now.
    pub devices: Vec<u16>,
}

/// A machine of an array on several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineStatus {
    pub name: String,
    pub address: String,
    /// True if its agent renews its lease.
    pub live: bool,
    /// What its monitor does.
    pub monitor: MonitorRole,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorStatus {
    #[serde(rename = "state", serialize_with = "monitor_name")]
    pub health: MonitorHealth,
    pub address: Option<String>,
    pub pid: Option<u32>,
    pub restarts: Option<u64>,
    pub counters: Option<BTreeMap<String, u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceStatus {
    pub id: u16,
    pub address: Option<String>,
    pub pid: Option<u32>,
    pub file: PathBuf,
    /// Its raw size, in bytes.
    pub size_bytes: u64,
    /// The bytes that volumes and objects can have on it in addition; none if it does not answer.
    pub free_bytes: Option<u64>,
    /// Whether it answers, as text.
    pub state: String,
    /// Its membership state, according to the monitor.
    pub member_state: Option<ReportedState>,
    /// The epoch in which that state began.
    pub since: Option<u32>,
    /// Why its disk is refused, as text.
    pub refused: Option<String>,
    #[serde(serialize_with = "condition_name")]
    pub condition: DeviceCondition,
    pub text: String,
    /// When `member_state` last changed, in milliseconds since 1970.
    pub changed_unix_millis: Option<u64>,
    pub healing: Option<HealingStatus>,
    /// Bytes that are still to be resynchronised.
    pub bytes_left: Option<u64>,
    /// The generation of the host that resynchronises it.
    pub recovery_coordinator: Option<u32>,
    pub disk: Option<String>,
    /// The name of the disk that will fill its slot.
    pub awaited_disk: Option<String>,
    /// The name of the disk that fills its slot once the others can serve without the device.
    pub next_disk: Option<String>,
    /// True if an operator has taken it out.
    pub kept_out: bool,
    /// How often it went out in a row, each time within a minute of its return; zero if it has not lately.
    pub outages: u32,
    /// For how many milliseconds it has to stay out because of that.
    pub stays_out_millis: Option<u64>,
    /// How long the requests of hosts wait for its next answer, in microseconds: the mean over time of the host that waits most.
    pub response_micros: Option<u64>,
    /// Corrupt blocks that it has read since it was started.
    pub corrupt_blocks: Option<u64>,
    pub restarts: Option<u64>,
    pub counters: Option<BTreeMap<String, u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealingStatus {
    pub bytes_done: u64,
    /// Bytes that are still missing; none while that is being determined.
    pub bytes_left: Option<u64>,
    /// The part that is done, in per cent; 100 only if nothing is left.
    pub percent: Option<u64>,
    /// Blocks that can't be reconstructed.
    pub lost_blocks: u64,
    /// The current speed.
    pub bytes_per_second: Option<u64>,
    /// The remaining time at the current speed.
    pub seconds_left: Option<u64>,
    /// True if an operator has paused it.
    pub paused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeStatus {
    pub name: String,
    /// Its usable size, in bytes.
    pub size_bytes: u64,
    /// Its URI on the supervisor's NBD server.
    pub nbd: Option<String>,
    /// Its URI on the socket of that server in the array's folder.
    pub nbd_unix: Option<String>,
    /// Its layout, such as `raid5:4+1`.
    pub layout: String,
    pub unit_bytes: u64,
    pub ordering: String,
    pub atomicity: String,
    /// Its state: `healthy`, `degraded`, `waiting`, `unavailable`, `unknown`, `not up`, or the operation under way.
    pub state: String,
    /// The devices that it is served without, or waits for.
    pub missing_devices: Vec<u16>,
    /// If it is degraded: the devices whose failure would stop a part of it.
    pub critical_devices: Vec<u16>,
    pub text: String,
    /// The ranges known to be lost.
    pub lost: Vec<ByteRange>,
    /// When its last scrub was completed, in milliseconds since 1970.
    pub scrubbed_unix_millis: Option<u64>,
    /// True if it can be used, so that its URI is useful.
    #[serde(skip)]
    pub usable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    /// Its generation; each start of a host has another one.
    pub generation: u32,
    pub pid: u32,
    /// True if the number of the process is one of another machine or container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    pub role: String,
    pub live: bool,
    /// Seconds since it last renewed its lease; none if unknown.
    pub silent_seconds: Option<u64>,
    /// Its requests that wait because something is missing; none if there are none.
    pub waiting: Option<WaitingReport>,
    pub counters: BTreeMap<String, u64>,
}

impl Array {
    /// The array's status. Devices that don't answer within a second after another one count as silent. An array that is not up is no error.
    pub async fn status(&self) -> Result<Status, Failure> {
        let mut reader = SnapshotReader::new(self.control().clone(), "admin");
        let look = reader.look().await;
        reader.leave().await;
        Ok(Status::of(&look?))
    }
}

impl Status {
    pub fn of(look: &ArraySnapshot) -> Status {
        let running = look.running.as_ref();
        let diagnosis = Diagnosis::of(look);
        Status {
            schema: 2,
            dir: look.control.local().absolute(),
            array: look.description.array.to_string(),
            up: running.is_some(),
            ready: running.is_some_and(|running| running.ready),
            pid: running.map(|running| running.supervisor),
            epoch: look.monitor.as_ref().map(|monitor| monitor.report.epoch),
            doctor: diagnosis.summary,
            monitor: MonitorStatus::of(look),
            stamps_ahead_millis: look.monitor.as_ref().and_then(|monitor| monitor.report.stamps_ahead_millis),
            throttle: with_real_share(look.throttle()),
            spares: look.monitor.as_ref().map(|monitor| monitor.report.spares.clone()).unwrap_or_default(),
            file_systems: file_system_status::file_systems(look),
            volumes: look.description.volumes.iter().map(|volume| VolumeStatus::of(look, volume)).collect(),
            devices: look.description.devices.iter().map(|entry| DeviceStatus::of(look, entry, &diagnosis)).collect(),
            machines: machines(look),
            nodes: nodes(look),
            lock_servers: lock_servers(look),
            hosts: hosts(look).map(HostStatus::of).collect(),
        }
    }

    pub fn device(&self, id: DeviceId) -> Option<&DeviceStatus> {
        self.devices.iter().find(|device| device.id == id.0)
    }

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
            address: entry.map(|monitor| addressing::absolute(look.control.local(), &monitor.report.address)),
            pid: entry.map(|monitor| monitor.process.pid),
            restarts: running.map(|running| running.restarts),
            counters: entry.map(|monitor| monitor.report.counters.clone()),
        }
    }
}

impl DeviceStatus {
    fn of(look: &ArraySnapshot, entry: &braid_control::DeviceEntry, diagnosis: &Diagnosis) -> DeviceStatus {
        let id = DeviceId(entry.id);
        let running = look.running.as_ref().and_then(|running| running.device(id));
        let (report, condition) = (look.member_state(id), look.condition(id));
        let healing = condition.healing();
        let runs = running.map_or(look.states.contains_key(&id), |running| running.pid.is_some());
        DeviceStatus {
            id: entry.id,
            address: running
                .map(|running| &running.address)
                .or(entry.address.as_ref())
                .map(|address| addressing::absolute(look.control.local(), address)),
            pid: running.and_then(|running| running.pid),
            file: entry.path(&look.control.local().absolute()),
            size_bytes: entry.size,
            free_bytes: look.counter(id, UNCLAIMED_COUNTER).map(|blocks| blocks * BLOCK_BYTES as u64),
            state: look.device_health(id).words(),
            member_state: report.map(|device| device.member_state),
            since: report.map(|device| device.since),
            refused: report.and_then(DeviceReport::refusal),
            text: device_words(&condition, diagnosis.concerns(&Subject::Device(id))),
            changed_unix_millis: report.and_then(|device| device.changed),
            healing: healing.map(HealingStatus::of),
            bytes_left: healing.and_then(|healing| healing.left),
            recovery_coordinator: report.and_then(|device| device.recovery_coordinator),
            disk: report.and_then(|device| device.disk.clone()),
            awaited_disk: report.and_then(|device| device.awaited_disk.clone()),
            next_disk: report.and_then(|device| device.next_disk.clone()),
            kept_out: report.is_some_and(|device| device.kept_out),
            outages: report.map_or(0, |device| device.outages),
            stays_out_millis: report.and_then(|device| device.stays_out_millis),
            // Hosts remember the times of a device that has ended.
            response_micros: runs.then(|| look.response_time(id)).flatten().map(|time| time.as_micros() as u64),
            corrupt_blocks: look.counter(id, CORRUPT_COUNTER),
            restarts: running.map(|running| running.restarts),
            counters: look.states.get(&id).map(|state| state.counters.iter().cloned().collect()),
            condition,
        }
    }
}

impl HealingStatus {
    pub fn of(healing: &Healing) -> HealingStatus {
        HealingStatus {
            bytes_done: healing.done,
            bytes_left: healing.left,
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
        let health = look.volume_health(volume);
        let is_served = volume.state == VolumeState::Ready && look.running.is_some();
        let served = health.as_ref().filter(|_| is_served);
        let state = match &volume.state {
            VolumeState::Creating => "being created".to_string(),
            VolumeState::Deleting => "being deleted".to_string(),
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
            VolumeState::Ready if look.running.is_none() => "not up".to_string(),
            VolumeState::Ready => served.map_or("its description is invalid", VolumeHealth::name).to_string(),
        };
        let is_for_nbd = !volume.attribute_volume && look.description.file_system_of(volume).is_none();
        VolumeStatus {
            name: volume.name.clone(),
            size_bytes: volume.bytes,
            nbd_unix: look.running.as_ref().filter(|running| is_for_nbd && running.nbd.is_some()).and_then(|_| {
                Some(braid_nbd::uri(&addressing::served_nbd_socket(look.control.local())?, &volume.name))
            }),
            nbd: look.running.as_ref().filter(|_| is_for_nbd).and_then(|running| nbd_uri(running, &volume.name)),
            layout: volume.layout.clone(),
            unit_bytes: volume.unit,
            ordering: volume.ordering.clone(),
            atomicity: volume.atomicity.clone(),
            missing_devices: served.iter().flat_map(|health| health.lacks()).map(|device| device.0).collect(),
            critical_devices: health.iter().flat_map(|health| needs(volume, health)).map(|device| device.0).collect(),
            text: volume_words(look, volume, served, &state),
            lost: look.lost(volume).to_vec(),
            state,
            scrubbed_unix_millis: look.scrubs.get(&volume.id).and_then(|scrub| scrub.ended),
            usable: braid_session::is_usable(volume),
        }
    }
}

impl HostStatus {
    fn of(host: &HostEntry) -> HostStatus {
        HostStatus {
            generation: host.generation.0,
            pid: host.process.pid,
            elsewhere: host.is_elsewhere(),
            role: host.role.clone(),
            live: host.live,
            silent_seconds: host.silent.map(|silent| silent.as_secs()),
            waiting: host.report.waiting.clone(),
            counters: host.report.counters.clone(),
        }
    }
}

/// The URI of a volume on the supervisor's NBD server.
pub fn nbd_uri(running: &RunningSet, name: &str) -> Option<String> {
    let address = running.nbd.as_ref()?.0.parse().ok()?;
    Some(braid_nbd::uri(&address, name))
}

fn nodes(look: &ArraySnapshot) -> Vec<NodeStatus> {
    let Some(running) = &look.running else { return Vec::new() };
    let status = |node: &RunningDaemon| {
        let here = running.devices.iter().filter(|device| device.pid.is_some() && device.pid == node.pid);
        NodeStatus {
            id: node.id,
            pid: node.pid,
            nbd: node.address.clone(),
            restarts: node.restarts,
            down: node.down.clone(),
            devices: here.map(|device| device.id).collect(),
        }
    };
    running.nodes.iter().map(status).collect()
}

fn machines(look: &ArraySnapshot) -> Vec<MachineStatus> {
    let Some(file) = look.control.cluster().and_then(|cluster| cluster.file().ok()) else { return Vec::new() };
    let is_live = |name: &str| {
        look.hosts.iter().any(|host| host.live && host.role == AGENT && host.report.machine.as_deref() == Some(name))
    };
    let of_machine = |(name, machine): (&String, &MachineEntry)| MachineStatus {
        name: name.clone(),
        address: machine.http(),
        live: is_live(name),
        monitor: look.monitors.get(name).copied().unwrap_or(MonitorRole::Silent),
    };
    file.machines.iter().map(of_machine).collect()
}

fn hosts(look: &ArraySnapshot) -> impl Iterator<Item = &HostEntry> {
    look.hosts.iter().filter(|host| host.report.lock_server.is_none())
}

/// The condition of a device as text. A device about which the doctor has found something is not called healthy.
fn device_words(condition: &DeviceCondition, is_concerned: bool) -> String {
    match condition {
        DeviceCondition::Healthy if is_concerned => "serves; see `braid doctor`".to_string(),
        _ => condition.words(),
    }
}

/// The health of a volume as text; its state, if it is not served.
fn volume_words(look: &ArraySnapshot, volume: &VolumeEntry, health: Option<&VolumeHealth>, state: &str) -> String {
    let mut words = match health {
        Some(health @ VolumeHealth::Degraded(devices)) => {
            let how = |device: &DeviceId| match look.condition(*device) {
                DeviceCondition::Resynchronising(healing) => {
                    format!("{device} is resynchronising ({})", healing.words())
                }
                DeviceCondition::Rebuilding(healing) => format!("{device} is being rebuilt ({})", healing.words()),
                _ => format!("without {device}"),
            };
            let devices: Vec<String> = devices.iter().map(how).collect();
            format!("degraded: {}; {}", devices.join(", "), risk(volume, health))
        }
        Some(health) => health.words(),
        None => state.to_string(),
    };
    if health.is_some() && volume.moving.is_some() {
        words += "; being migrated";
    }
    let lost: u64 = look.lost(volume).iter().map(|range| range.length).sum();
    if lost > 0 {
        if words == VolumeHealth::Healthy.words() {
            words = "served".to_string();
        }
        words += &format!("; {} are lost (`braid scrub {}` lists them)", format_size(lost), volume.name);
    }
    words
}

/// The devices whose failure would stop a part of a degraded volume.
fn needs(volume: &VolumeEntry, health: &VolumeHealth) -> Vec<DeviceId> {
    let described = volumes::describe(volume).ok().filter(|_| matches!(health, VolumeHealth::Degraded(_)));
    described.map_or(Vec::new(), |described| health.needs(&described))
}

/// The effect of another failure on a degraded volume.
fn risk(volume: &VolumeEntry, health: &VolumeHealth) -> String {
    let needs = needs(volume, health);
    if needs.len() + health.lacks().len() >= volume.devices.len() {
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
