//! Checks of what serves users: the monitor, devices, lock servers, metadata servers, and volumes.

use super::examination::Examination;
use super::finding::{Findings, Severity, Subject};
use crate::device_condition::{DeviceCondition, Healing};
use crate::health::{FileSystemHealth, MonitorHealth, VolumeHealth};
use crate::{file_system_status, lock_server_status};
use braid_base::units::format_size;
use braid_base::{DeviceId, FileSystemId, LockServerId};
use braid_control::event_texts::flapping_words;
use braid_control::{Event, MonitorRole, Process, RunningDaemon, VolumeState, shell_word};
use std::collections::BTreeSet;

/// Why processes are not checked.
pub const NOT_UP: &str = "the array is not up (`braid up` starts it)";
/// A daemon that was restarted more often than this has a problem that does not go away.
const RESTARTS_USUAL: u64 = 4;
/// The signal of `kill -9`, and of the kernel when memory runs out.
const SIGKILL: u64 = 9;

/// The monitor, the devices, the lock servers and the metadata servers.
pub fn daemons(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    let Some(running) = look.running.as_ref() else { return };
    let named = |node: &RunningDaemon| Subject::Process(format!("node {}", node.id));
    if !running.ready {
        found.note(Subject::Array, "is being started");
    }
    let mut told = BTreeSet::new();
    for suspended in examination.processes.iter().filter(|process| process.is_suspended && told.insert(process.pid)) {
        let pid = suspended.pid;
        let text = format!("is suspended (process {pid}): who needs it waits");
        let node = running.nodes.iter().find(|node| node.pid == Some(pid));
        let subject = node.map_or_else(|| suspended.subject.clone(), named);
        // A command in the background of a shell may be.
        let severity = if matches!(subject, Subject::Host(..)) { Severity::Warning } else { Severity::Error };
        found.found(severity, subject, text, format!("resume it: `kill -CONT {pid}`"));
    }
    for node in &running.nodes {
        if let Some(why) = &node.down {
            let action = "it is tried again; `braid nbd` serves the volumes meanwhile";
            found.error(named(node), format!("serves no NBD clients: {why}"), action);
        }
        restarts(named(node), Some(node), found);
    }
    if !examination.is_suspended(&Subject::Monitor) {
        monitor(look.monitor_health(), look.monitor.as_ref().map(|monitor| &monitor.process), found);
    }
    restarts(Subject::Monitor, running.monitor.as_ref(), found);
    for (machine, role) in &look.monitors {
        let subject = Subject::Process(format!("the monitor of {machine}"));
        match role {
            MonitorRole::Leads | MonitorRole::StandsBy => {}
            MonitorRole::Silent => {
                let text = "does not answer: without it, volumes stop when etcd is unavailable";
                found.warning(subject, text, format!("see whether `braid agent` runs on {machine}"));
            }
            MonitorRole::Stopped => {
                found.error(subject, "has stopped: etcd has gone back to an earlier state", "bring back etcd's data");
            }
        }
    }
    for entry in &look.description.devices {
        let id = DeviceId(entry.id);
        if !examination.is_suspended(&Subject::Device(id)) {
            device(id, &look.condition(id), &look.device_health(id).words(), found);
        }
        // Those of its node are told already.
        let own = |device: &&RunningDaemon| running.nodes.iter().all(|node| node.restarts < device.restarts);
        restarts(Subject::Device(id), running.device(id).filter(own), found);
        if let Some(report) = look.member_state(id).filter(|report| report.outages > 0) {
            let text = format!("comes and goes{}", flapping_words(report.outages, report.stays_out_millis));
            let action = format!(
                "`braid events` shows when: look for errors of its disk, its link and its power; the wait doubles each time, up to a minute; `braid device fail {}` keeps it out meanwhile",
                id.0
            );
            found.warning(Subject::Device(id), text, action);
        }
    }
    for (subject, path) in &examination.missing_sockets {
        let text = format!("is reached by nobody: the socket {} was removed", path.display());
        let action = "its process makes it again within a second; if it does not, look what is in the way";
        found.error(subject.clone(), text, action);
    }
    for server in lock_server_status::lock_servers(look) {
        let (id, pid) = (LockServerId(server.id), server.pid);
        if server.state != lock_server_status::SERVING && !examination.is_suspended(&Subject::LockServer(id)) {
            let action = "see the log of `braid up`, which restarts it";
            let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            found.error(Subject::LockServer(id), format!("{}{pid}", server.state), action);
        }
        restarts(Subject::LockServer(id), running.lock_server(id), found);
    }
    for file_system in file_system_status::file_systems(look) {
        let Some(name) = &file_system.name else { continue };
        let subject = Subject::FileSystem(name.clone());
        match &file_system.service.health {
            FileSystemHealth::Serving => {}
            FileSystemHealth::Down(_) | FileSystemHealth::NotUp => {
                let action = "programs wait: see the log of `braid up`, which restarts it";
                found.error(subject, &file_system.service.text, action);
            }
            _ => found.note(subject, &file_system.service.text),
        }
        for server in &file_system.servers {
            let called = match file_system.servers.len() {
                1 => name.clone(),
                _ => format!("{name} shard {}", server.shard),
            };
            restarts(Subject::MetadataServer(called), running.metadata_server(FileSystemId(server.id)), found);
        }
    }
}

fn monitor(health: MonitorHealth, process: Option<&Process>, found: &mut Findings) {
    let text = format!("is {}", health.words());
    let action = match (health, process) {
        (MonitorHealth::Serving, _) => return,
        (MonitorHealth::Unreported { .. }, _) => {
            return found.warning(Subject::Monitor, text, "see what is said of the folder");
        }
        (MonitorHealth::Silent(_), Some(process)) => {
            format!("see what keeps {process}, or end it: `braid up` starts another")
        }
        (MonitorHealth::Silent(_) | MonitorHealth::Down(_), _) => {
            "see the log of `braid up`, which restarts it".to_string()
        }
    };
    found.error(Subject::Monitor, format!("{text}: devices lose their leases, and stop serving"), action);
}

fn device(id: DeviceId, condition: &DeviceCondition, health: &str, found: &mut Findings) {
    let (subject, text) = (Subject::Device(id), format!("is {}", condition.words()));
    match condition {
        DeviceCondition::Healthy | DeviceCondition::DiskErrors { .. } => {}
        DeviceCondition::Leaving => found.note(subject, "serves, until the others can serve without it"),
        DeviceCondition::Silent => {
            let action = "requests wait for it for some seconds; look again then";
            found.warning(subject, format!("{text}: {health}"), action);
        }
        DeviceCondition::Unavailable => {
            let action = "see the log of `braid up`, and bring back its file or disk";
            found.error(subject, format!("{text}; {health}"), action);
        }
        DeviceCondition::Out { kept_out: true, .. } => {
            found.warning(subject, text, format!("let it return with `braid device readmit {}`", id.0));
        }
        DeviceCondition::Out { kept_out: false, .. } => {
            let action = "bring it back; or, if its disk is lost, give it another one: `braid device replace";
            found.warning(subject, format!("{text}; {health}"), format!("{action} {}`", id.0));
        }
        DeviceCondition::Resynchronising(healing) | DeviceCondition::Rebuilding(healing) => match stuck(healing) {
            None => found.note(subject, text),
            Some(action) => found.warning(subject, text, action),
        },
        DeviceCondition::AwaitingDisk { .. } => {
            found.warning(subject, text, "connect that disk, or choose another with `braid device replace`");
        }
        DeviceCondition::Refused(_) => {
            found.error(subject, text, "see `braid device list` for the disk that belongs there");
        }
        DeviceCondition::Unknown => {
            found.error(subject, "is not known to any monitor", "see what is said of the monitor");
        }
    }
}

/// What to do about a resynchronisation that does not advance.
fn stuck(healing: &Healing) -> Option<&'static str> {
    match healing {
        Healing { paused: true, .. } => Some("continue with `braid rebuild resume`"),
        Healing { lost: 1.., .. } => Some("`braid scrub` lists the ranges that are lost; restore them from a copy"),
        _ => None,
    }
}

fn restarts(subject: Subject, running: Option<&RunningDaemon>, found: &mut Findings) {
    let restarts = running.map_or(0, |running| running.restarts);
    if restarts > RESTARTS_USUAL {
        let text = format!("was restarted {restarts} times since `braid up`");
        found.warning(subject, text, "the log of `braid up` says why it ended");
    }
}

/// The crashes of daemons in the last day. Each daemon is reported once, with its last crash.
pub fn crashes(examination: &Examination, found: &mut Findings) {
    let crashes = match &examination.crashes {
        Ok(crashes) => crashes,
        Err(why) => return found.not_checked(&Subject::Array, why),
    };
    for (index, last) in crashes.iter().enumerate() {
        let is_same = |other: &Event| other.process == last.process;
        if crashes[index + 1..].iter().any(is_same) {
            continue;
        }
        let subject = match (last.device, last.process.as_deref()) {
            (Some(device), _) => Subject::Device(DeviceId(device)),
            (None, Some("the monitor")) => Subject::Monitor,
            (None, Some(process)) => Subject::Process(process.to_string()),
            (None, None) => Subject::Array,
        };
        let of_it = || crashes.iter().filter(|other| is_same(other));
        let often = match of_it().count() {
            1 => "crashed".to_string(),
            count => format!("crashed {count} times within a day, the last time"),
        };
        let named = last.process.as_deref().and_then(|process| last.text.strip_prefix(process));
        let how = named.and_then(|text| text.strip_prefix(" crashed")).map(str::to_string);
        let text = format!("{often} at {}{}", last.time, how.unwrap_or_else(|| format!(": {}", last.text)));
        // Somebody else ended it, and it was started again. If it does not serve, the check of daemons finds that.
        let is_killed = |crash: &Event| crash.figures.get("signal") == Some(&SIGKILL);
        if of_it().all(is_killed) && of_it().count() as u64 <= RESTARTS_USUAL {
            found.note(subject, text);
            continue;
        }
        let action = "`braid up` has started it again; if nobody killed it, look in the kernel's log (`dmesg`) whether memory ran out; if it \
                      panicked, keep the log of `braid up` and report it";
        found.warning(subject, text, action);
    }
}

/// Mounts that are dead: the kernel has their folders still.
pub fn mounts(examination: &Examination, found: &mut Findings) {
    for (folder, name) in &examination.dead_mounts {
        let text = format!(
            "is a dead mount of file system {name}: its process was killed, and programs get ENOTCONN (Transport endpoint is not connected)"
        );
        let word = shell_word(folder);
        let action = format!("`braid fs unmount --force {word}`, then `braid fs mount {name} {word}`");
        found.error(Subject::File(folder.clone()), text, action);
    }
}

/// The redundancy of volumes, and what is lost of them.
pub fn volumes(examination: &Examination, found: &mut Findings) {
    let look = examination.look;
    for entry in &look.description.volumes {
        let subject = Subject::Volume(entry.name.clone());
        let lost: u64 = look.lost(entry).iter().map(|range| range.length).sum();
        if lost > 0 {
            let text = format!("has lost {}, which fail to be read", format_size(lost));
            let action = format!("`braid scrub {}` lists the ranges: write them again from a copy", entry.name);
            found.error(subject.clone(), text, action);
        }
        if entry.state != VolumeState::Ready {
            found.note(subject, format!("is not ready: {}", entry.state.name()));
            continue;
        }
        if entry.moving.is_some() {
            let how = format!("`braid volume migrate {0}` continues that, and `--abort` takes it back", entry.name);
            found.note(subject.clone(), format!("is being migrated: {how}"));
        }
        if look.running.is_none() {
            found.not_checked(&subject, NOT_UP);
            continue;
        }
        let text = |health: &VolumeHealth| format!("is {}", health.words());
        match look.volume_health(entry) {
            None => found.error(subject, "has an invalid description", "correct array.json, or restore a copy of it"),
            Some(VolumeHealth::Healthy) => {}
            Some(health @ VolumeHealth::Unknown) => found.not_checked(&subject, &text(&health)),
            Some(health @ (VolumeHealth::Degraded(_) | VolumeHealth::Waiting(_))) => {
                found.warning(subject, text(&health), "see what is said of these devices");
            }
            Some(health @ VolumeHealth::Unavailable(_)) => {
                found.error(subject, text(&health), "bring back these devices");
            }
        }
    }
}
