//! What is shown of an array.

use crate::counts;
use braid_admin::condition::{Condition, Healing};
use braid_admin::health::{MonitorHealth, VolumeHealth, is_there};
use braid_admin::look::Look;
use braid_admin::{ordering, volumes};
use braid_base::units::format_size;
use braid_base::{DeviceId, LockServerId};
use braid_control::{DeviceReport, HostEntry, PaceReport, SpareReport, VolumeEntry, VolumeState};
use braid_session::is_usable;
use braid_terminal::output::table;
use braid_wire::Atomicity;
use serde_json::json;
use std::time::Duration;

/// What people and programs are shown of a look.
pub struct View<'a> {
    /// What was found.
    pub look: &'a Look,
}

impl View<'_> {
    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let devices = self.look.description.devices.iter().map(|entry| {
            let id = DeviceId(entry.id);
            let running = self.look.running.as_ref().and_then(|running| running.device(id));
            let (report, condition) = (self.look.standing(id), self.look.condition(id));
            let counters = self.look.states.get(&id).map(|state| {
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
                "file": entry.path(&self.look.folder.absolute()),
                "size": entry.size,
                "state": self.look.device_health(id).words(),
                "standing": report.map(|device| device.standing.name()),
                "since": report.map(|device| device.since),
                "refused": report.and_then(DeviceReport::refusal),
                "condition": condition.name(),
                "words": condition.words(),
                "changed": report.and_then(|device| device.changed),
                "healing": condition.healing().map(Healing::json),
                "left": condition.healing().and_then(|healing| healing.left),
                "helper": report.and_then(|device| device.helper),
                "disk": report.and_then(|device| device.disk.clone()),
                "awaits": report.and_then(|device| device.awaits.clone()),
                "leaves_to": report.and_then(|device| device.leaves_to.clone()),
                "held": report.is_some_and(|device| device.held),
                "restarts": running.map(|running| running.restarts),
                "counters": counters,
            })
        });
        let volumes = self.look.description.volumes.iter().map(|volume| {
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
                "needs": self.needs(volume).iter().map(|device| device.0).collect::<Vec<_>>(),
                "words": self.volume_words(volume),
                "lost": self.look.lost(volume),
                "scrubbed": self.look.scrubs.get(&volume.id).and_then(|scrub| scrub.ended),
            })
        });
        let running = self.look.running.as_ref().and_then(|running| running.monitor.as_ref());
        let monitor = json!({
            "state": self.monitor_health().name(),
            "address": self.look.monitor.as_ref().map(|monitor| monitor.report.address.clone()),
            "pid": self.look.monitor.as_ref().map(|monitor| monitor.pid),
            "restarts": running.map(|running| running.restarts),
            "counters": self.look.monitor.as_ref().map(|monitor| &monitor.report.counters),
        });
        let lock_servers = self.lock_servers().map(|(id, lease)| {
            let running = self.look.running.as_ref().and_then(|running| running.lock_server(id));
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
            "dir": self.look.folder.absolute(),
            "array": self.look.description.array.to_string(),
            "up": self.look.running.as_ref().is_some(),
            "ready": self.look.running.as_ref().is_some_and(|running| running.ready),
            "pid": self.look.running.as_ref().map(|running| running.supervisor),
            "epoch": self.look.monitor.as_ref().map(|monitor| monitor.report.epoch),
            "monitor": monitor,
            "stamps_ahead_millis": self.look.monitor.as_ref().and_then(|monitor| monitor.report.stamps_ahead_millis),
            "pace": self.look.pace(),
            "spares": self.spares(),
            "volumes": volumes.collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
            "lock_servers": lock_servers.collect::<Vec<_>>(),
            "hosts": hosts.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn text(&self, verbose: bool) -> String {
        let up = match &self.look.running {
            Some(running) if running.ready => format!("up, process {}", running.supervisor),
            Some(_) => "starting".to_string(),
            None => format!("not up: `braid up --dir {}` starts it", self.look.folder.dir().display()),
        };
        let mut text = format!("array {} in {}: {up}\n", self.look.description.array, self.look.folder.dir().display());
        if self.look.running.as_ref().is_some() || self.look.monitor.is_some() {
            let epoch = self.look.monitor.as_ref().map(|monitor| format!(", epoch {}", monitor.report.epoch));
            text += &format!("monitor: {}{}\n", self.monitor_health().words(), epoch.unwrap_or_default());
            if let Some(ahead) = self.look.monitor.as_ref().and_then(|monitor| monitor.report.stamps_ahead_millis) {
                let ahead = braid_machine::rough(Duration::from_millis(ahead));
                text += &format!(
                    "clocks: the array's stamps are {ahead} ahead of the clock, which was set back or was wrong somewhere; nothing need be done\n"
                );
            }
        }
        text += "\n";
        let mut rows = vec![row(["volume", "size", "layout", "ordering", "state", "address"])];
        for volume in &self.look.description.volumes {
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
        let mut rows = vec![row(["device", "size", "condition", "state", "process", "address", "file"])];
        for entry in &self.look.description.devices {
            let id = DeviceId(entry.id);
            let running = self.look.running.as_ref().and_then(|running| running.device(id));
            rows.push(row([
                &id.to_string(),
                &format_size(entry.size),
                &self.look.condition(id).words(),
                &self.look.device_health(id).words(),
                &running.and_then(|running| running.pid).map(|pid| pid.to_string()).unwrap_or_default(),
                running.map_or("", |running| &running.address),
                &entry.file.display().to_string(),
            ]));
        }
        text += &table(&rows);
        for spare in self.spares() {
            text += &format!("spare: disk {}, {}\n", spare.disk, format_size(spare.bytes));
        }
        let is_healing =
            |id| matches!(self.look.condition(DeviceId(id)), Condition::CatchingUp(_) | Condition::Rebuilding(_));
        let pace = self.look.pace();
        if pace != PaceReport::default() || self.look.description.devices.iter().any(|entry| is_healing(entry.id)) {
            text += &format!("healing: {}\n", braid_admin::condition::pace_words(&pace));
        }
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
                    Some(silent) if silent <= self.look.description.leases().host() => {
                        format!("silent for {} s", silent.as_secs())
                    }
                    _ => "run out".to_string(),
                };
                rows.push(row([&host.generation.to_string(), &lease, &host.pid.to_string(), &host.what]));
            }
            text += &table(&rows);
        }
        if verbose {
            if let Some(monitor) = &self.look.monitor {
                let counters: Vec<_> = monitor.report.counters.clone().into_iter().collect();
                text += &counted("the monitor", Vec::new(), &counters);
            }
            for (id, state) in &self.look.states {
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
        self.look.hosts.iter().filter(|host| host.report.lock_server.is_none())
    }

    /// The lock servers that are needed or run, and the lease of the latest start of each.
    fn lock_servers(&self) -> impl Iterator<Item = (LockServerId, Option<&HostEntry>)> {
        let needed = self.look.description.volumes.iter().any(ordering::needs_lock_server);
        self.look.description.lock_servers().filter_map(move |id| {
            let serves = |host: &&HostEntry| host.report.lock_server.as_ref().is_some_and(|service| service.id == id.0);
            let lease = self.look.hosts.iter().rev().find(serves);
            let known = needed
                || lease.is_some()
                || self.look.running.as_ref().is_some_and(|running| running.lock_server(id).is_some());
            known.then_some((id, lease))
        })
    }

    fn lock_server_state(&self, id: LockServerId, lease: Option<&HostEntry>) -> String {
        match (lease, self.look.running.as_ref().and_then(|running| running.lock_server(id))) {
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
        let running = self
            .look
            .running
            .as_ref()
            .and_then(|running| running.lock_server(id))
            .map(|running| running.address.clone());
        lease.and_then(|lease| Some(lease.report.lock_server.as_ref()?.address.clone())).or(running)
    }

    fn monitor_health(&self) -> MonitorHealth {
        MonitorHealth::of(
            self.look.monitor.as_ref(),
            self.look.running.as_ref().and_then(|running| running.monitor.as_ref()),
            self.look.description.leases(),
        )
    }

    /// In words, and the devices that the volume lacks.
    fn volume_state(&self, volume: &VolumeEntry) -> (String, Vec<u16>) {
        let state = match &volume.state {
            VolumeState::Creating => "being created".to_string(),
            VolumeState::Deleting => "being deleted".to_string(),
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => format!("changing to {to}"),
            VolumeState::Ready if self.look.running.as_ref().is_none() => "not up".to_string(),
            VolumeState::Ready => match self.look.volume_health(volume) {
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
        let ready = volume.state == VolumeState::Ready && self.look.running.as_ref().is_some();
        let mut words = match self.look.volume_health(volume).filter(|_| ready) {
            Some(VolumeHealth::Degraded(devices)) => {
                let how = |device: &DeviceId| match self.look.condition(*device) {
                    Condition::CatchingUp(healing) => format!("{device} is catching up ({})", healing.words()),
                    Condition::Rebuilding(healing) => format!("{device} is being rebuilt ({})", healing.words()),
                    _ => format!("without {device}"),
                };
                let devices: Vec<String> = devices.iter().map(how).collect();
                format!("degraded: {}; {}", devices.join(", "), self.risk(volume))
            }
            Some(health) => health.words(),
            None => self.volume_state(volume).0,
        };
        let lost: u64 = self.look.lost(volume).iter().map(|range| range.length).sum();
        if lost > 0 {
            words += &format!("; {} are lost (`braid scrub {}` says where)", format_size(lost), volume.name);
        }
        words
    }

    /// The devices whose failure would stop some of a degraded volume.
    fn needs(&self, volume: &VolumeEntry) -> Vec<DeviceId> {
        match (volumes::describe(volume), self.look.volume_health(volume)) {
            (Ok(described), Some(health @ VolumeHealth::Degraded(_))) => health.needs(&described),
            _ => Vec::new(),
        }
    }

    /// What one more failure would do to a degraded volume.
    fn risk(&self, volume: &VolumeEntry) -> String {
        let needs = self.needs(volume);
        let lacks = self.volume_state(volume).1.len();
        if needs.len() + lacks >= volume.devices.len() {
            return "one more failure stops it".to_string();
        }
        let needs: Vec<String> = needs.iter().map(DeviceId::to_string).collect();
        format!("a failure of {} stops a part of it", needs.join(" or "))
    }

    /// Disks that stand by.
    fn spares(&self) -> &[SpareReport] {
        self.look.monitor.as_ref().map_or(&[], |monitor| &monitor.report.spares)
    }

    /// Each thing of the array: what it is, its state in a word, and in words.
    pub fn parts(&self) -> Vec<(String, String, String)> {
        let (state, words) = match &self.look.running {
            Some(running) if running.ready => ("up", "up"),
            Some(_) => ("starting", "starting"),
            None => ("not up", "not up"),
        };
        let mut parts = vec![("array".to_string(), state.to_string(), words.to_string())];
        let monitor = self.monitor_health();
        parts.push(("monitor".to_string(), monitor.name().to_string(), monitor.words()));
        for entry in &self.look.description.devices {
            let (id, condition) = (DeviceId(entry.id), self.look.condition(DeviceId(entry.id)));
            let tenth = condition.healing().and_then(Healing::percent).map(|percent| percent / 10);
            let state = format!("{} {tenth:?}", condition.name());
            parts.push((format!("device {id}"), state, condition.words()));
        }
        for volume in &self.look.description.volumes {
            let (state, lacks) = self.volume_state(volume);
            let state = format!("{state} {lacks:?} {}", self.look.lost(volume).len());
            parts.push((format!("volume {}", volume.name), state, self.volume_words(volume)));
        }
        parts
    }

    fn nbd(&self, name: &str) -> Option<String> {
        let address = self.look.running.as_ref()?.nbd.as_ref()?.0.parse().ok()?;
        Some(braid_nbd::uri(&address, name))
    }
}

const SERVING: &str = "serving";

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
