//! The monitor's report: its address, and the states of the devices. Hosts use it to find the monitor, and tools to show the state.
//!
//! No protocol depends on the report beyond the address: hosts and devices ask the monitor itself for the membership, because the report
//! may be half a second old.

use crate::file::{self, Durability};
use crate::paths::{MONITOR, MONITOR_STATE};
use crate::{ControlError, LocalFolder, Moment, Origin, Process};
use braid_base::Level;
use braid_host_leases::LeaseTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The file, relative to the array's folder, that holds the monitor's durable state.
pub fn monitor_file() -> PathBuf {
    MONITOR_STATE.into()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorReport {
    /// The monitor's address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// The newest revision of the description whose volumes the monitor knows. The monitor takes no device out without which a volume of
    /// that revision could not be served.
    pub revision: u64,
    pub epoch: u32,
    pub devices: Vec<DeviceReport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareReport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<FileSystemReport>,
    #[serde(default, alias = "pace")]
    pub throttle: ThrottleReport,
    /// How far the array's stamps are ahead of the monitor's wall clock, in milliseconds; absent if they are not ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps_ahead_millis: Option<u64>,
    #[serde(default)]
    pub upgrade: UpgradeReport,
    /// Its metrics, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// The level of the array, and what keeps it from being raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeReport {
    pub level: Level,
    /// The highest level that the monitor knows.
    pub knows: Level,
    /// Devices, hosts and lock servers whose programs do not know the next level, or have not said so yet.
    pub older_devices: Vec<u16>,
    pub older_hosts: Vec<u32>,
    pub older_lock_servers: u16,
}

impl UpgradeReport {
    /// The next level, if this release or the monitor's knows one.
    pub fn next(&self) -> Option<Level> {
        Some(self.level.next()).filter(|next| *next <= Level::KNOWN.max(self.knows))
    }

    /// True if the level can be raised.
    pub fn is_ready(&self) -> bool {
        let all_know = self.older_devices.is_empty() && self.older_hosts.is_empty() && self.older_lock_servers == 0;
        all_know && self.next().is_some_and(|next| next <= self.knows)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareReport {
    pub disk: String,
    /// Its capacity for volumes, in bytes.
    #[serde(alias = "bytes")]
    pub size_bytes: u64,
}

/// A file system with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystemReport {
    pub id: u16,
    /// The generation of the host that owns it.
    pub owner: u32,
    /// The epoch in which that began.
    pub since: u32,
}

/// The recovery throttle: how fast devices are resynchronised and volumes scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottleReport {
    /// The limit; zero means unlimited.
    pub bytes_per_second: u64,
    /// The share of the time, in per cent, while users are active; zero means the default, and 100 means that jobs do not yield to users.
    #[serde(default)]
    pub share: u8,
    /// True while background jobs are paused.
    pub paused: bool,
}

/// The state of a device as seen by the monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReport {
    pub id: u16,
    #[serde(alias = "standing")]
    pub member_state: ReportedState,
    /// The first epoch of its uninterrupted presence, or the epoch in which it was taken out.
    pub since: u32,
    /// The host that resynchronises it while it is returning.
    #[serde(default, alias = "helper", skip_serializing_if = "Option::is_none")]
    pub recovery_coordinator: Option<u32>,
    /// Milliseconds since the monitor last heard from it; none if it has not since the monitor's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_millis: Option<u64>,
    /// The epoch that the device reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_by: Option<u32>,
    /// The epoch of its disk, if the device is refused because that epoch is older than the one in which the device last served. Zero
    /// means an empty disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<u32>,
    /// Slots of its disk that can't be written and are no longer used.
    #[serde(default)]
    pub bad_slots: u32,
    /// True if there are so many bad slots that the device is taken out as soon as the others can serve without it.
    #[serde(default)]
    pub failing: bool,
    /// When `member_state` last changed, in milliseconds since 1970, as far as this monitor knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The disk that will fill the slot as soon as the device is out.
    #[serde(default, alias = "leaves_to", skip_serializing_if = "Option::is_none")]
    pub next_disk: Option<String>,
    /// The disk that fills the slot, but has not been heard from yet.
    #[serde(default, alias = "awaits", skip_serializing_if = "Option::is_none")]
    pub awaited_disk: Option<String>,
    /// True if an operator has taken it out.
    #[serde(default, alias = "held")]
    pub kept_out: bool,
    /// Why the disk that was last heard from in its slot is refused.
    #[serde(default, alias = "unwelcome", skip_serializing_if = "Option::is_none")]
    pub join_refused: Option<String>,
    /// True if its disk is new since it was last in, so that it must be rebuilt.
    #[serde(default)]
    pub blank: bool,
    /// How often it went out in a row, each time within a minute of its return; zero if it has not lately.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outages: u32,
    /// For how many milliseconds it has to stay out because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_out_millis: Option<u64>,
    /// The progress of its resynchronisation: the current one while it is returning, otherwise the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healing: Option<HealingReport>,
}

/// The progress of a resynchronisation, as reported by the recovery coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealingReport {
    pub done: u64,
    /// Bytes that are still to be restored, as far as the recovery coordinator knows.
    pub left: u64,
    /// Blocks that can't be restored, because too many blocks of their stripes are lost.
    pub lost: u64,
    /// The recent speed; none if it is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedState {
    /// It is resynchronised and has a lease.
    #[default]
    In,
    /// It is in, but its lease has expired, and the others can't serve without it.
    #[serde(alias = "away")]
    Unavailable,
    /// It is back, and being resynchronised.
    Returning,
    /// The others serve without it.
    Out,
}

braid_base::names!(ReportedState { In => "in", Unavailable => "unavailable", Returning => "returning", Out => "out" });

/// The last report of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorEntry {
    pub process: Process,
    /// The time since the report was made; none if in another boot.
    pub age: Option<Duration>,
    pub report: MonitorReport,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    schema: u64,
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    boot: String,
    said_nanos: u64,
    report: MonitorReport,
}

impl LocalFolder {
    pub(crate) fn monitor(&self, now: &Moment) -> Result<Option<MonitorEntry>, ControlError> {
        Ok(self.found_monitor(now)?.filter(|found| !found.process.is_of_original()))
    }

    /// The monitor of the array that this folder was copied from.
    pub(crate) fn copied_monitor(&self) -> Option<Process> {
        let found = self.found_monitor(&Moment::now()).ok().flatten()?;
        Some(found.process).filter(Process::is_of_original)
    }

    fn found_monitor(&self, now: &Moment) -> Result<Option<MonitorEntry>, ControlError> {
        match file::read::<Shown>(&self.path(MONITOR)) {
            Ok(shown) => Ok(shown.map(|Shown { pid, origin, boot, said_nanos, report, .. }| {
                let age = now.since(&LeaseTime { boot, elapsed: Duration::from_nanos(said_nanos) });
                MonitorEntry { process: Process::found_in(self.dir(), pid, origin), age, report }
            })),
            // The file is not synced, so a power loss may leave it empty; or an earlier release wrote it. The monitor soon replaces it.
            Err(ControlError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn publish_monitor(&self, now: &Moment, report: MonitorReport) -> Result<(), ControlError> {
        let said_nanos = u64::try_from(now.elapsed.as_nanos()).unwrap_or(u64::MAX);
        let (pid, origin, boot) = (std::process::id(), self.own_origin(), now.boot.clone());
        let shown = Shown { schema: file::SCHEMA, pid, origin, boot, said_nanos, report };
        self.replace(&self.path(MONITOR), &shown, Durability::ThisBoot)
    }

    pub(crate) fn withdraw_monitor(&self) -> Result<(), ControlError> {
        file::remove(&self.path(MONITOR))
    }
}

impl DeviceReport {
    /// Why the device is refused, and what to do; none if it is not refused.
    pub fn refusal(&self) -> Option<String> {
        if let Some(why) = &self.join_refused {
            return Some(why.clone());
        }
        let what = match self.outdated? {
            0 => "its disk is empty, but the array has a record of its content".to_string(),
            epoch => format!("its disk is older than the array's record of it: it has epoch {epoch}"),
        };
        Some(format!("{what}; bring back the right disk"))
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn a_monitor_is_seen_while_it_says_so_and_its_silence_is_noticed() {
        let (_scratch, folder) = Scratch::with_array("monitor");
        let at = |seconds| Moment::from(LeaseTime { boot: "this".into(), elapsed: Duration::from_secs(seconds) });
        assert_eq!(folder.monitor(&at(1)).unwrap(), None);
        let device = DeviceReport {
            id: 3,
            member_state: ReportedState::Returning,
            since: 5,
            recovery_coordinator: Some(17),
            heard_millis: Some(20),
            awaited_disk: Some("00ff".into()),
            healing: Some(HealingReport { done: 7, ..HealingReport::default() }),
            ..DeviceReport::default()
        };
        let report = MonitorReport {
            address: "127.0.0.1:7000".into(),
            revision: 4,
            epoch: 5,
            devices: vec![device],
            spares: vec![SpareReport { disk: "aa".into(), size_bytes: 1 << 30 }],
            file_systems: vec![FileSystemReport { id: 3, owner: 7, since: 8 }],
            throttle: ThrottleReport { bytes_per_second: 5, share: 30, paused: true },
            stamps_ahead_millis: Some(60_000),
            upgrade: UpgradeReport { older_hosts: vec![7], ..UpgradeReport::default() },
            counters: BTreeMap::new(),
        };
        assert_eq!(report.devices[0].refusal(), None);
        let refused = |epoch| DeviceReport { outdated: Some(epoch), ..report.devices[0].clone() }.refusal();
        assert!(refused(0).is_some_and(|words| words.contains("empty")));
        assert!(refused(3).is_some_and(|words| words.contains("older") && words.contains('3')));
        let join_refused = DeviceReport { join_refused: Some("used".into()), ..report.devices[0].clone() };
        assert_eq!(join_refused.refusal().as_deref(), Some("used"));
        folder.publish_monitor(&at(1), report.clone()).unwrap();
        let seen = folder.monitor(&at(3)).unwrap().unwrap();
        assert_eq!((seen.age, seen.report), (Some(Duration::from_secs(2)), report));
        let next = Moment::from(LeaseTime { boot: "next".into(), elapsed: Duration::from_secs(3) });
        assert_eq!(folder.monitor(&next).unwrap().unwrap().age, None, "another boot");
        std::fs::write(folder.path(MONITOR), "").unwrap();
        assert_eq!(folder.monitor(&at(3)).unwrap(), None, "as a power loss leaves it");
        folder.withdraw_monitor().unwrap();
        assert!(!folder.path(MONITOR).exists());
    }
}
