//! The output of `braid status`, as text and as JSON.

use crate::metrics;
use crate::report;
use braid_admin::device_condition::{Healing, with_real_share};
use braid_admin::file_system_status::FileSystemStatus;
use braid_admin::health::MonitorHealth;
use braid_admin::lock_server_status::LockServerStatus;
use braid_admin::snapshot::ArraySnapshot;
use braid_admin::status::{DeviceStatus, HostStatus, MachineStatus, NodeStatus, Status, VolumeStatus};
use braid_base::units::format_size;
use braid_base::{DeviceId, Generation, LockServerId};
use braid_control::{DeviceEntry, Process, Refusal, ThrottleReport, WaitingReport, shell_word};
use braid_ordering::Atomicity;
use braid_session::Metrics;
use braid_shell::StoppedRecording;
use braid_terminal::output::{table, titled};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A snapshot of the array, as text and as JSON.
pub struct View<'a> {
    look: &'a ArraySnapshot,
    /// The snapshot as data.
    status: Status,
}

impl<'a> View<'a> {
    pub fn of(look: &'a ArraySnapshot) -> View<'a> {
        View { look, status: Status::of(look) }
    }

    /// The process of a participant; none if it runs elsewhere, where its number is another one.
    pub fn process(&self, name: &str) -> Option<u32> {
        if self.look.running.as_ref().is_some_and(|running| running.supervisor().is_elsewhere())
            && !name.starts_with('h')
        {
            return None;
        }
        let status = &self.status;
        let mut hosts = status.hosts.iter().filter(|host| !host.elsewhere);
        let has_ended = |pid: &u32| Process::own().sibling(*pid).has_ended();
        // The lease of an earlier process may not be over yet.
        let mut of_host = |role: &str| {
            let live = hosts.by_ref().filter(|host| host.live && host.role == role);
            live.map(|host| host.pid).find(|pid| !has_ended(pid))
        };
        let numbered = |letter: char| name.strip_prefix(letter).unwrap_or_default();
        let recorded = match name {
            "up" => status.pid,
            "monitor" => status.monitor.pid,
            _ if name.starts_with("node ") => {
                let node = status.nodes.iter().find(|node| name == format!("node {}", node.id));
                node.map_or_else(|| of_host(name), |node| node.pid)
            }
            _ if name.starts_with("mds ") => of_host(name),
            _ => {
                let device = |number: u16| status.devices.iter().find(|device| device.id == number)?.pid;
                let server = |number: u16| status.lock_servers.iter().find(|server| server.id == number)?.pid;
                let host = |number: u32| hosts.find(|host| host.generation == number).map(|host| host.pid);
                let devices = braid_terminal::arguments::device(name).ok().and_then(device);
                let servers = || numbered('l').parse().ok().and_then(server);
                let hosts = || numbered('h').parse().ok().and_then(host);
                devices.or_else(servers).or_else(hosts)
            }
        };
        // A daemon may have been started again, and that could not be recorded.
        recorded.filter(|pid| !has_ended(pid))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(&self.status).expect("our own types have a JSON form")
    }

    pub fn text(&self, verbose: bool) -> String {
        let View { look, status } = self;
        let (dir, word) = (look.control.place().display(), shell_word(look.control.place()));
        let up = match status.pid {
            Some(pid) if status.ready => format!("up, process {pid}"),
            Some(_) => "starting".to_string(),
            None if look.control.cluster().is_some() => format!("not up: start it with `braid agent --array {word}`"),
            None => format!("not up: start it with `braid up --dir {word}`"),
        };
        let mut text = format!("array {} in {dir}: {up}\n", status.array);
        if status.up || look.monitor.is_some() {
            let name = if status.monitor.health == MonitorHealth::Serving { "epoch" } else { "last known epoch" };
            let epoch = status.epoch.map(|epoch| format!("; {name} {epoch}"));
            text += &format!("monitor: {}{}\n", status.monitor.health.words(), epoch.unwrap_or_default());
            if let Some(ahead) = status.stamps_ahead_millis {
                let ahead = braid_machine::rough(Duration::from_millis(ahead));
                text += &format!(
                    "clocks: the array's stamps are {ahead} ahead of the clock, because some clock was wrong or was set back; no action is needed\n"
                );
            }
        }
        if !status.doctor.is_healthy() {
            text += &format!("doctor: {}: `braid doctor --array {word}` says what to do\n", status.doctor.words());
        }
        let of_machine = |machine: &MachineStatus| {
            let agent = if machine.live { "live" } else { "silent" };
            [machine.name.clone(), machine.address.clone(), agent.to_string(), machine.monitor.to_string()]
        };
        text += &section(["machine", "address", "agent", "monitor"], &status.machines, of_machine);
        text += &memory_words(status);
        text += &recording_words(status);
        text += "\n";
        text += &volume_table(status);
        text += "\n";
        text += &device_table(look, status);
        for spare in &status.spares {
            text += &format!("spare: disk {}, {}\n", spare.disk, format_size(spare.size_bytes));
        }
        if status.throttle != with_real_share(ThrottleReport::default())
            || status.devices.iter().any(|device| device.healing.is_some())
        {
            text += &format!("healing: {}\n", braid_admin::device_condition::throttle_words(&status.throttle));
        }
        if !status.file_systems.is_empty() {
            text += "\n";
            text += &file_system_table(&status.file_systems, &status.dir);
        }
        let of_node = |node: &NodeStatus| {
            let pid = node.pid.map_or_else(|| "down".to_string(), |pid| pid.to_string());
            let clients = node.down.as_ref().map_or_else(|| node.nbd.clone(), |why| format!("not served: {why}"));
            [node.id.to_string(), pid, report::device_list(&node.devices), clients]
        };
        text += &section(["node", "pid", "devices", "NBD clients at"], &status.nodes, of_node);
        let of_server = |server: &LockServerStatus| {
            let pid = server.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let address = within(&status.dir, server.address.as_deref());
            [LockServerId(server.id).to_string(), server.state.clone(), pid, address]
        };
        text += &section(["lock server", "state", "pid", "address"], &status.lock_servers, of_server);
        let of_host = |host: &HostStatus| {
            let lease = match host.silent_seconds {
                Some(_) if host.live => "live".to_string(),
                Some(silent) if Duration::from_secs(silent) <= look.description.leases().host() => {
                    format!("silent for {silent} s")
                }
                Some(_) if look.refusal == Some(Refusal::ReadOnly) => "not renewed".to_string(),
                _ => "expired".to_string(),
            };
            let generation = Generation(host.generation).to_string();
            [generation, lease, pid_text(host.pid, host.elsewhere), host.role.clone()]
        };
        text += &section(["host", "lease", "pid", "role"], &status.hosts, of_host);
        for host in &status.hosts {
            let waiting = host.waiting.as_ref().filter(|_| host.live);
            text += &waiting.map(|waiting| waits(host, waiting)).unwrap_or_default();
        }
        if verbose {
            text += &all_counted(look, status);
        }
        text
    }

    /// Each part of the array: its name, its state as a word, and its state as text.
    pub fn parts(&self) -> Vec<(String, String, String)> {
        let status = &self.status;
        let state = match (status.up, status.ready) {
            (_, true) => "up",
            (true, false) => "starting",
            (false, false) => "not up",
        };
        let mut parts = vec![("array".to_string(), state.to_string(), state.to_string())];
        let monitor = &status.monitor.health;
        parts.push(("monitor".to_string(), monitor.name().to_string(), monitor.words()));
        for device in &status.devices {
            let tenth = device.condition.healing().and_then(Healing::percent).map(|percent| percent / 10);
            let state = format!("{} {tenth:?}", device.condition.name());
            parts.push((format!("device {}", DeviceId(device.id)), state, device.text.clone()));
        }
        for volume in &status.volumes {
            let state = format!("{} {:?} {}", volume.state, volume.missing_devices, volume.lost.len());
            parts.push((format!("volume {}", volume.name), state, volume.text.clone()));
        }
        for file_system in &status.file_systems {
            let name = file_system.called();
            let state = file_system.service.health.name().to_string();
            parts.push((format!("file system {name}"), state, file_system.service.text.clone()));
        }
        parts
    }
}

/// A table after an empty line, or nothing if it has no rows.
fn section<T>(titles: [&str; 4], rows: &[T], row: impl Fn(&T) -> [String; 4]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", titled(titles, rows.iter().map(row))) }
}

/// The processes with metrics, by their names.
fn all_with_counters(status: &Status) -> impl Iterator<Item = (String, &BTreeMap<String, u64>)> {
    let devices = status.devices.iter().map(|device| (DeviceId(device.id).to_string(), device.counters.as_ref()));
    let servers = status.lock_servers.iter();
    let servers = servers.map(|server| (LockServerId(server.id).to_string(), server.counters.as_ref()));
    let hosts = status.hosts.iter().map(|host| (Generation(host.generation).to_string(), Some(&host.counters)));
    let monitor = std::iter::once(("the monitor".to_string(), status.monitor.counters.as_ref()));
    let all = monitor.chain(devices).chain(servers).chain(hosts);
    all.filter_map(|(name, counters)| Some((name, counters?)))
}

/// The recordings that have stopped before their processes.
fn recording_words(status: &Status) -> String {
    let stopped = all_with_counters(status).filter_map(|(name, counters)| {
        let why = StoppedRecording::of(*counters.get("recording_stopped")?)?;
        let size = format_size(*counters.get("recorded_bytes")?);
        Some(format!("recording: that of {name} has stopped after {size}: {}\n", why.words()))
    });
    stopped.collect()
}

/// The process that holds most of its memory budget for its peers, if that is more than half.
fn memory_words(status: &Status) -> String {
    let held = all_with_counters(status).filter_map(|(name, counters)| {
        let (used, budget) = (*counters.get("memory_used_bytes")?, *counters.get("memory_budget_bytes")?);
        (used > budget / 2).then_some((used, budget, name))
    });
    let most = held.max().map(|(used, budget, name)| {
        let (used, budget) = (format_size(used), format_size(budget));
        format!("memory: {name} holds {used} for its peers, of a budget of {budget} (`--memory`)\n")
    });
    most.unwrap_or_default()
}

fn volume_table(status: &Status) -> String {
    let of_volume = |volume: &VolumeStatus| {
        let address = volume.nbd.as_deref().filter(|_| volume.usable).unwrap_or_default();
        let ordering = match volume.atomicity.parse() {
            Ok(Atomicity::Consistent) => format!("{}, {}", volume.ordering, volume.atomicity),
            _ => volume.ordering.clone(),
        };
        let (size, address) = (format_size(volume.size_bytes), address.to_string());
        [volume.name.clone(), size, volume.layout.clone(), ordering, volume.text.clone(), address]
    };
    titled(["volume", "size", "layout", "ordering", "state", "address"], status.volumes.iter().map(of_volume))
}

/// That requests of a host wait, and for what.
fn waits(host: &HostStatus, waiting: &WaitingReport) -> String {
    let devices: Vec<String> = waiting.devices.iter().map(|device| DeviceId(*device).to_string()).collect();
    let what = if devices.is_empty() { "the array".to_string() } else { devices.join(", ") };
    let (host, requests, seconds) = (Generation(host.generation), waiting.requests, waiting.longest_millis / 1000);
    format!("host {host}: {requests} requests wait for {what}, for up to {seconds} s\n")
}

/// The file systems, their metadata servers, and how many hosts use them.
pub fn file_system_table(file_systems: &[FileSystemStatus], dir: &Path) -> String {
    let titles = ["file system", "size", "state", "owner", "pid", "address", "hosts"];
    let of_file_system = |file_system: &FileSystemStatus| {
        let service = &file_system.service;
        [
            file_system.called(),
            file_system.size_bytes.map(format_size).unwrap_or_default(),
            service.text.clone(),
            service.owner.map(|owner| Generation(owner).to_string()).unwrap_or_default(),
            service.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            within(dir, service.address.as_deref()),
            file_system.hosts.len().to_string(),
        ]
    };
    titled(titles, file_systems.iter().map(of_file_system))
}

/// The number of a process. A number of another machine or container names nothing here.
pub fn pid_text(pid: u32, elsewhere: bool) -> String {
    if elsewhere { format!("{pid} elsewhere") } else { pid.to_string() }
}

/// An address, that of a socket in the array's folder relative to the folder.
pub fn within(dir: &Path, address: Option<&str>) -> String {
    let address = address.unwrap_or_default();
    match address.strip_prefix(&format!("unix:{}/", dir.display())) {
        Some(rest) => format!("unix:{rest}"),
        None => address.to_string(),
    }
}

fn device_table(look: &ArraySnapshot, status: &Status) -> String {
    let titles = ["device", "size", "condition", "state", "pid", "address", "free", "answers in", "file"];
    let of_device = |(entry, device): (&DeviceEntry, &DeviceStatus)| {
        let running = look.running.as_ref().and_then(|running| running.device(DeviceId(device.id)));
        [
            DeviceId(device.id).to_string(),
            format_size(device.size_bytes),
            device.text.clone(),
            device.state.clone(),
            device.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            running.map(|running| &running.address).or(entry.address.as_ref()).cloned().unwrap_or_default(),
            device.free_bytes.map(format_size).unwrap_or_default(),
            device.response_micros.map(|micros| format!("{:.1}ms", micros as f64 / 1000.0)).unwrap_or_default(),
            match look.control.runs(entry) {
                false if look.control.cluster().is_some() => format!("{}:{}", entry.domain, entry.file.display()),
                _ => entry.file.display().to_string(),
            },
        ]
    };
    titled(titles, look.description.devices.iter().zip(&status.devices).map(of_device))
}

/// The counters of all nodes since their start, and the resulting cost of one operation.
fn all_counted(look: &ArraySnapshot, status: &Status) -> String {
    let mut text = String::new();
    if let Some(counters) = &status.monitor.counters {
        text += &counted("the monitor", |_| Vec::new(), counters);
    }
    for (id, state) in &look.states {
        text += &counted(&format!("device {id}"), metrics::of_device, state.counters.iter().map(|(n, v)| (n, v)));
    }
    for server in &status.lock_servers {
        if let Some(counters) = &server.counters {
            let who = format!("lock server {}", LockServerId(server.id));
            text += &counted(&who, metrics::of_lock_server, counters);
        }
    }
    for host in status.hosts.iter().filter(|host| !host.counters.is_empty()) {
        let who = format!("host {} ({})", Generation(host.generation), host.role);
        text += &counted(&who, metrics::of_host, &host.counters);
    }
    text
}

/// The counters of a node under its name, after text about their meaning.
fn counted<'a>(
    who: &str,
    meaning: fn(&Metrics) -> Vec<String>,
    counters: impl IntoIterator<Item = (&'a String, &'a u64)> + Clone,
) -> String {
    let known = counters.clone().into_iter().map(|(name, value)| (name.clone(), *value)).collect();
    let meaning: String = meaning(&known).iter().map(|line| format!("  {line}\n")).collect();
    let rows: Vec<_> = counters.into_iter().map(|(name, value)| [format!("  {name}"), value.to_string()]).collect();
    format!("\n{who}\n{meaning}{}", table(&rows))
}
