//! `braid status`: what runs, and how it is.

use crate::commands::Common;
use crate::failure::{Exit, Failure};
use crate::output::{self, table};
use crate::session::{LEASE, Session};
use crate::{counts, ordering};
use braid_base::units::format_size;
use braid_base::{DeviceId, Generation, LockServerId};
use braid_control::{ArrayDescription, ArrayFolder, HostEntry, Moment, RunningSet, VolumeState};
use braid_machine::{HostRequest, HostSuccess};
use braid_wire::{Managed, Task};
use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a device may take to say how it is.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Show the array: its devices, lock servers, volumes and hosts, and whether they serve
///
/// Asks each device, and says `serving` only of those that answered. Ends with status 0 if the array is up, even if
/// a device is not serving at the moment, and with 3 if it is not up.
#[derive(clap::Args)]
pub struct Arguments {
    /// Show what each device, lock server and host has counted since it started, and what that means for one operation
    #[arg(long, short)]
    verbose: bool,
}

/// How a device is.
struct DeviceState {
    /// `serving`, or in words why not.
    state: String,
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
    let view = View { folder: &folder, description: &description, running: running.as_ref(), states, hosts };
    output::print(common.json, || view.json(), || view.text(arguments.verbose));
    Ok(if running.is_some() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Unreachable as u8) })
}

struct View<'a> {
    folder: &'a ArrayFolder,
    description: &'a ArrayDescription,
    running: Option<&'a RunningSet>,
    states: BTreeMap<DeviceId, DeviceState>,
    hosts: Vec<HostEntry>,
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
                "state": self.device_state(id),
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
                "state": self.volume_state(volume),
            })
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
        let mut text = format!("array {} in {}: {up}\n\n", self.description.array, self.folder.dir().display());
        let mut rows = vec![row(["volume", "size", "layout", "ordering", "state", "address"])];
        for volume in &self.description.volumes {
            let address = self.nbd(&volume.name).unwrap_or_default();
            rows.push(row([
                &volume.name,
                &format_size(volume.bytes),
                &volume.layout,
                &volume.ordering,
                &self.volume_state(volume),
                &address,
            ]));
        }
        text += &table(&rows);
        text += "\n";
        let mut rows = vec![row(["device", "size", "state", "process", "address", "file"])];
        for entry in &self.description.devices {
            let id = DeviceId(entry.id);
            let running = self.running.and_then(|running| running.device(id));
            rows.push(row([
                &id.to_string(),
                &format_size(entry.size),
                &self.device_state(id),
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
                let lease = if host.live { "live" } else { "run out" };
                rows.push(row([&host.generation.to_string(), lease, &host.pid.to_string(), &host.what]));
            }
            text += &table(&rows);
        }
        if verbose {
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

    fn device_state(&self, id: DeviceId) -> String {
        match (self.states.get(&id), self.running.and_then(|running| running.device(id))) {
            (_, Some(running)) if running.pid.is_none() => {
                format!("down: {}", running.down.as_deref().unwrap_or("being started again"))
            }
            (Some(state), _) => state.state.clone(),
            (None, _) => "not running".to_string(),
        }
    }

    fn volume_state(&self, volume: &braid_control::VolumeEntry) -> String {
        let away: Vec<String> = volume
            .devices
            .iter()
            .map(|id| DeviceId(*id))
            .filter(|id| self.states.get(id).is_none_or(|state| state.state != SERVING))
            .map(|id| id.to_string())
            .collect();
        match &volume.state {
            VolumeState::Creating => "being created".to_string(),
            VolumeState::Deleting => "being deleted".to_string(),
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
            VolumeState::Ready if self.running.is_none() => "not up".to_string(),
            VolumeState::Ready if away.is_empty() => "available".to_string(),
            VolumeState::Ready => format!("waiting for {}", away.join(", ")),
        }
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
                    DeviceState { state: SERVING.to_string(), counters: inspection.counters }
                }
                Ok(Ok(_)) => DeviceState { state: "not understood".to_string(), counters: Vec::new() },
                Ok(Err(error)) => DeviceState { state: error.to_string(), counters: Vec::new() },
                Err(_) => DeviceState { state: "not reachable".to_string(), counters: Vec::new() },
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

/// True if there is such a process.
fn is_there(pid: u32) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_string).to_vec()
}
