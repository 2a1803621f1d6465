//! `braid status`: what runs, and how it is.

use crate::commands::Common;
use crate::failure::{Exit, Failure};
use crate::health::{DeviceHealth, MonitorHealth, VolumeHealth, is_there};
use crate::observed::LEASE_COUNTER;
use crate::output::{self, table};
use crate::session::{HOST_LEASE, LEASE, Session};
use crate::shelf::is_usable;
use crate::{counts, ordering, volumes};
use braid_base::units::format_size;
use braid_base::{DeviceId, Generation, LockServerId};
use braid_control::{
    ArrayDescription, ArrayFolder, DeviceReport, DeviceStanding, HostEntry, Moment, MonitorEntry, RunningSet,
    VolumeEntry, VolumeState,
};
use braid_machine::{HostRequest, HostSuccess};
use braid_wire::{Atomicity, Managed, Task};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a device may take to say how it is.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Show the array: its monitor, devices, lock servers, volumes and hosts, and how they are
///
/// Asks each device, and says `serving` only of those that answered and may serve. The monitor says which devices are in: one that
/// is out is done without; one that is returning is being brought what it missed; one that is away is waited for, since too many
/// others are out. A volume is healthy; or degraded: all of it is served, with less redundancy; or waiting for devices that just
/// fell silent; or unavailable: what needs the devices named there ends in errors. Ends with status 0 if the array is up, even
/// if a device is not serving at the moment, and with 3 if it is not up.
#[derive(clap::Args)]
pub struct Arguments {
    /// Show what each device, lock server and host has counted since it started, and what that means for one operation
    #[arg(long, short)]
    verbose: bool,
}

/// How a device is.
struct DeviceState {
    health: DeviceHealth,
    counters: Vec<(String, u64)>,
}

/// Asks, and shows.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let folder = common.folder();
    let description = folder.describe()?;
    let running = folder.running()?;
    let (own, states) = match &running {
        Some(_) => ask_devices(&folder, &description).await?,
        None => (None, BTreeMap::new()),
    };
    let hosts = folder.hosts(&Moment::now(), LEASE)?;
    let hosts: Vec<HostEntry> = hosts.into_iter().filter(|host| Some(host.generation) != own).collect();
    // After the devices were asked: what it says is the later word.
    let monitor = folder.monitor(&Moment::now())?;
    let view = View { folder: &folder, description: &description, running: running.as_ref(), states, hosts, monitor };
    output::print(common.json, || view.json(), || view.text(arguments.verbose));
    Ok(if running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Unreachable as u8) })
}

impl DeviceState {
    fn silent(why: &str) -> DeviceState {
        DeviceState { health: DeviceHealth::Silent(why.to_string()), counters: Vec::new() }
    }
}

struct View<'a> {
    folder: &'a ArrayFolder,
    description: &'a ArrayDescription,
    running: Option<&'a RunningSet>,
    states: BTreeMap<DeviceId, DeviceState>,
    hosts: Vec<HostEntry>,
    monitor: Option<MonitorEntry>,
}

impl View<'_> {
    fn json(&self) -> serde_json::Value {
        let devices = self.description.devices.iter().map(|entry| {
            let id = DeviceId(entry.id);
            let running = self.running.and_then(|running| running.device(id));
            let counters = self.states.get(&id).map(|state| {
                state
                    .counters
                    .iter()
                    .map(|(name, value)| (name.clone(), json!(value)))
                    .collect::<serde_json::Map<_, _>>()
            });
            json!({
                "id": entry.id,
                "address": running.map(|running| running.address.clone()).or(entry.address.clone()),
                "pid": running.and_then(|running| running.pid),
                "file": entry.path(&self.folder.absolute()),
                "size": entry.size,
                "state": self.device_health(id).words(),
                "standing": self.standing(id).map(|device| device.standing.name()),
                "since": self.standing(id).map(|device| device.since),
                "refused": self.standing(id).and_then(DeviceReport::refusal),
                "left": self.left(id),
                "helper": self.standing(id).and_then(|device| device.helper),
                "restarts": running.map(|running| running.restarts),
                "counters": counters,
            })
        });
        let volumes = self.description.volumes.iter().map(|volume| {
            json!({
                "name": volume.name,
                "size": volume.bytes,
                "nbd": self.nbd(&volume.name),
                "layout": volume.layout,
                "unit": volume.unit,
                "ordering": volume.ordering,
                "atomicity": volume.atomicity,
                "state": self.volume_state(volume).0,
                "lacks": self.volume_state(volume).1,
            })
        });
        let running = self.running.and_then(|running| running.monitor.as_ref());
        let monitor = json!({
            "state": self.monitor_health().name(),
            "address": self.monitor.as_ref().map(|monitor| monitor.report.address.clone()),
            "pid": self.monitor.as_ref().map(|monitor| monitor.pid),
            "restarts": running.map(|running| running.restarts),
            "counters": self.monitor.as_ref().map(|monitor| &monitor.report.counters),
        });
        let lock_servers = self.lock_servers().map(|(id, lease)| {
            let running = self.running.and_then(|running| running.lock_server(id));
            json!({
                "id": id.0,
                "address": self.lock_server_address(id, lease),
                "pid": lease.map(|lease| lease.pid),
                "state": self.lock_server_state(id, lease),
                "restarts": running.map(|running| running.restarts),
                "counters": lease.map(|lease| &lease.report.counters),
            })
        });
        let hosts = self.hosts().map(|host| {
            json!({
                "generation": host.generation.0,
                "pid": host.pid,
                "what": host.what,
                "live": host.live,
                "silent_seconds": host.silent.map(|silent| silent.as_secs()),
                "counters": host.report.counters,
            })
        });
        json!({
            "schema": 1,
            "dir": self.folder.absolute(),
            "array": self.description.array.to_string(),
            "up": self.running.is_some(),
            "ready": self.running.is_some_and(|running| running.ready),
            "pid": self.running.map(|running| running.supervisor),
            "epoch": self.monitor.as_ref().map(|monitor| monitor.report.epoch),
            "monitor": monitor,
            "volumes": volumes.collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
            "lock_servers": lock_servers.collect::<Vec<_>>(),
            "hosts": hosts.collect::<Vec<_>>(),
        })
    }

    fn text(&self, verbose: bool) -> String {
        let up = match self.running {
            Some(running) if running.ready => format!("up, process {}", running.supervisor),
            Some(_) => "starting".to_string(),
            None => format!("not up: `braid up --dir {}` starts it", self.folder.dir().display()),
        };
        let mut text = format!("array {} in {}: {up}\n", self.description.array, self.folder.dir().display());
        if self.running.is_some() || self.monitor.is_some() {
            let epoch = self.monitor.as_ref().map(|monitor| format!(", epoch {}", monitor.report.epoch));
            text += &format!("monitor: {}{}\n", self.monitor_health().words(), epoch.unwrap_or_default());
        }
        text += "\n";
        let mut rows = vec![row(["volume", "size", "layout", "ordering", "state", "address"])];
        for volume in &self.description.volumes {
            let address = self.nbd(&volume.name).filter(|_| is_usable(volume)).unwrap_or_default();
            let ordering = match volume.atomicity.parse() {
                Ok(Atomicity::Consistent) => format!("{}, {}", volume.ordering, volume.atomicity),
                _ => volume.ordering.clone(),
            };
            rows.push(row([
                &volume.name,
                &format_size(volume.bytes),
                &volume.layout,
                &ordering,
                &self.volume_words(volume),
                &address,
            ]));
        }
        text += &table(&rows);
        text += "\n";
        let mut rows = vec![row(["device", "size", "standing", "state", "process", "address", "file"])];
        for entry in &self.description.devices {
            let id = DeviceId(entry.id);
            let running = self.running.and_then(|running| running.device(id));
            rows.push(row([
                &id.to_string(),
                &format_size(entry.size),
                &self.standing_words(id),
                &self.device_health(id).words(),
                &running.and_then(|running| running.pid).map(|pid| pid.to_string()).unwrap_or_default(),
                running.map_or("", |running| &running.address),
                &entry.file.display().to_string(),
            ]));
        }
        text += &table(&rows);
        if self.lock_servers().next().is_some() {
            text += "\n";
            let mut rows = vec![row(["lock server", "state", "process", "address"])];
            for (id, lease) in self.lock_servers() {
                let pid = lease.map(|lease| lease.pid.to_string()).unwrap_or_default();
                let address = self.lock_server_address(id, lease).unwrap_or_default();
                rows.push(row([&id.to_string(), &self.lock_server_state(id, lease), &pid, &address]));
            }
            text += &table(&rows);
        }
        if self.hosts().next().is_some() {
            text += "\n";
            let mut rows = vec![row(["host", "lease", "process", "what"])];
            for host in self.hosts() {
                let lease = match host.silent {
                    Some(_) if host.live => "live".to_string(),
                    Some(silent) if silent <= HOST_LEASE => format!("silent for {} s", silent.as_secs()),
                    _ => "run out".to_string(),
                };
                rows.push(row([&host.generation.to_string(), &lease, &host.pid.to_string(), &host.what]));
            }
            text += &table(&rows);
        }
        if verbose {
            if let Some(monitor) = &self.monitor {
                let counters: Vec<_> = monitor.report.counters.clone().into_iter().collect();
                text += &counted("the monitor", Vec::new(), &counters);
            }
            for (id, state) in &self.states {
                let meaning = counts::of_device(&state.counters.iter().cloned().collect());
                text += &counted(&format!("device {id}"), meaning, &state.counters);
            }
            for (id, lease) in self.lock_servers().filter_map(|(id, lease)| Some((id, lease?))) {
                let counters: Vec<_> = lease.report.counters.clone().into_iter().collect();
                let meaning = counts::of_lock_server(&counters.iter().cloned().collect());
                text += &counted(&format!("lock server {id}"), meaning, &counters);
            }
            for host in self.hosts().filter(|host| !host.report.counters.is_empty()) {
                let counters: Vec<_> = host.report.counters.clone().into_iter().collect();
                let meaning = counts::of_host(&counters.iter().cloned().collect());
                text += &counted(&format!("host {} ({})", host.generation, host.what), meaning, &counters);
            }
        }
        text
    }

    /// The hosts that are not lock servers.
    fn hosts(&self) -> impl Iterator<Item = &HostEntry> {
        self.hosts.iter().filter(|host| host.report.lock_server.is_none())
    }

    /// The lock servers that are needed or run, and the lease of the latest start of each.
    fn lock_servers(&self) -> impl Iterator<Item = (LockServerId, Option<&HostEntry>)> {
        let needed = self.description.volumes.iter().any(ordering::needs_lock_server);
        self.description.lock_servers().filter_map(move |id| {
            let serves = |host: &&HostEntry| host.report.lock_server.as_ref().is_some_and(|service| service.id == id.0);
            let lease = self.hosts.iter().rev().find(serves);
            let known =
                needed || lease.is_some() || self.running.is_some_and(|running| running.lock_server(id).is_some());
            known.then_some((id, lease))
        })
    }

    fn lock_server_state(&self, id: LockServerId, lease: Option<&HostEntry>) -> String {
        match (lease, self.running.and_then(|running| running.lock_server(id))) {
            // `braid up` or somebody else runs it; one that was killed may still have its lease.
            (Some(lease), _) if lease.live && is_there(lease.pid) => SERVING.to_string(),
            (_, Some(running)) if running.pid.is_none() => {
                format!("down: {}", running.down.as_deref().unwrap_or("being started again"))
            }
            (Some(_), _) | (None, Some(_)) => "silent: its lease has run out".to_string(),
            (None, None) => "not running".to_string(),
        }
    }

    fn lock_server_address(&self, id: LockServerId, lease: Option<&HostEntry>) -> Option<String> {
        let running = self.running.and_then(|running| running.lock_server(id)).map(|running| running.address.clone());
        lease.and_then(|lease| Some(lease.report.lock_server.as_ref()?.address.clone())).or(running)
    }

    fn monitor_health(&self) -> MonitorHealth {
        MonitorHealth::of(self.monitor.as_ref(), self.running.and_then(|running| running.monitor.as_ref()))
    }

    /// How the monitor sees a device.
    fn standing(&self, id: DeviceId) -> Option<&DeviceReport> {
        self.monitor.as_ref()?.report.devices.iter().find(|device| device.id == id.0)
    }

    /// What a device that has come back has yet to be brought, as far as its helper has said.
    fn left(&self, id: DeviceId) -> Option<u64> {
        let helper = Generation(self.standing(id)?.helper?);
        let host = self.hosts.iter().find(|host| host.generation == helper)?;
        host.report.helps.as_ref().filter(|help| help.device == id.0)?.left
    }

    fn standing_words(&self, id: DeviceId) -> String {
        match self.standing(id) {
            Some(device) if device.outdated.is_some() => {
                format!("{}: {}", device.standing.name(), device.refusal().unwrap_or_default())
            }
            Some(DeviceReport { standing: DeviceStanding::Returning, helper, .. }) => match (helper, self.left(id)) {
                (Some(_), Some(left)) => format!("returning, {} to go", format_size(left)),
                (Some(host), None) => format!("returning, helped by {}", Generation(*host)),
                (None, _) => "returning, no host helps".to_string(),
            },
            Some(device) => device.standing.name().to_string(),
            None => String::new(),
        }
    }

    fn device_health(&self, id: DeviceId) -> DeviceHealth {
        match (self.states.get(&id), self.running.and_then(|running| running.device(id))) {
            (_, Some(running)) if running.pid.is_none() => {
                let why = running.down.as_deref().unwrap_or("being started again");
                DeviceHealth::Silent(format!("down: {why}"))
            }
            (Some(state), _) => state.health.clone(),
            (None, _) => DeviceHealth::Silent("not running".to_string()),
        }
    }

    /// In words, and the devices that the volume lacks.
    fn volume_state(&self, volume: &VolumeEntry) -> (String, Vec<u16>) {
        let state = match &volume.state {
            VolumeState::Creating => "being created".to_string(),
            VolumeState::Deleting => "being deleted".to_string(),
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
            VolumeState::Ready if self.running.is_none() => "not up".to_string(),
            VolumeState::Ready => match self.volume_health(volume) {
                Some(health) => {
                    let lacks = health.lacks().iter().map(|device| device.0).collect();
                    return (health.name().to_string(), lacks);
                }
                None => "not understood".to_string(),
            },
        };
        (state, Vec::new())
    }

    fn volume_words(&self, volume: &VolumeEntry) -> String {
        let ready = volume.state == VolumeState::Ready && self.running.is_some();
        match self.volume_health(volume).filter(|_| ready) {
            Some(health) => health.words(),
            None => self.volume_state(volume).0,
        }
    }

    fn volume_health(&self, volume: &VolumeEntry) -> Option<VolumeHealth> {
        let volume = volumes::describe(volume).ok()?;
        let serves = |device| self.device_health(device) == DeviceHealth::Serving;
        Some(VolumeHealth::of(&volume, self.monitor.as_ref(), serves))
    }

    fn nbd(&self, name: &str) -> Option<String> {
        let address = self.running?.nbd.as_ref()?.0.parse().ok()?;
        Some(braid_nbd::uri(&address, name))
    }
}

const SERVING: &str = "serving";

/// What each device says, and as which host it was asked.
async fn ask_devices(
    folder: &ArrayFolder,
    description: &ArrayDescription,
) -> Result<(Option<Generation>, BTreeMap<DeviceId, DeviceState>), Failure> {
    let session = Session::start(folder, "status").await?;
    let mut asked = JoinSet::new();
    for entry in &description.devices {
        let (id, client) = (DeviceId(entry.id), session.client().clone());
        asked.spawn(async move {
            let inspect = client.call(HostRequest::Manage { device: id, task: Task::Inspect });
            let state = match tokio::time::timeout(ANSWER_WAIT, inspect).await {
                Ok(Ok(HostSuccess::Managed(Managed::Inspected(inspection)))) => {
                    // One of an earlier release does not say: it answers.
                    let lease = inspection.counters.iter().find(|(name, _)| name == LEASE_COUNTER);
                    let health = match lease {
                        Some((_, 0)) => DeviceHealth::NoLease,
                        _ => DeviceHealth::Serving,
                    };
                    DeviceState { health, counters: inspection.counters }
                }
                Ok(Ok(_)) => DeviceState::silent("not understood"),
                Ok(Err(error)) => DeviceState::silent(&error.to_string()),
                Err(_) => DeviceState::silent("not reachable"),
            };
            (id, state)
        });
    }
    let states = asked.join_all().await.into_iter().collect();
    let generation = session.generation();
    session.leave();
    Ok((Some(generation), states))
}

/// What somebody has counted, under its name, with what that means first.
fn counted(who: &str, meaning: Vec<String>, counters: &[(String, u64)]) -> String {
    let mut text = format!("\n{who}\n");
    for line in meaning {
        text += &format!("  {line}\n");
    }
    let rows: Vec<_> = counters.iter().map(|(name, value)| row([&format!("  {name}"), &value.to_string()])).collect();
    text + &table(&rows)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_string).to_vec()
}
