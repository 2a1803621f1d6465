//! What the array's monitor lets others know: where it listens, and who is in the array.
//!
//! It is for those who look for the monitor, and for people. Whoever goes by the membership asks the monitor itself: what
//! stands here may be half a second old.

use crate::file::{self, Durability};
use crate::{ArrayFolder, ControlError, Moment};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where the monitor keeps what it must not forget: a file in the array's folder.
pub fn monitor_file() -> PathBuf {
    "monitor.state".into()
}

/// What the monitor shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorReport {
    /// Where it listens: `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// The newest revision of the description whose volumes it knows. It takes no device out that a volume of that revision
    /// can't do without.
    pub revision: u64,
    /// The epoch that rules.
    pub epoch: u32,
    /// How each device stands.
    pub devices: Vec<DeviceReport>,
    /// Disks that stand by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<SpareReport>,
    /// How fast devices are resynchronised.
    #[serde(default, alias = "pace")]
    pub throttle: ThrottleReport,
    /// How far the array's stamps are ahead of the monitor's wall clock, in milliseconds; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps_ahead_millis: Option<u64>,
    /// What it has counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// A disk that stands by for a slot whose device stays out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareReport {
    /// Its name.
    pub disk: String,
    /// What volumes may take of it, in bytes.
    pub bytes: u64,
}

/// How fast devices are resynchronised, and volumes gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottleReport {
    /// Zero: as fast as it goes.
    pub bytes_per_second: u64,
    /// Per cent of the time while users would feel it; zero: what is usual, 100: it gives way to nobody.
    #[serde(default)]
    pub share: u8,
    /// Not at all, for now.
    pub paused: bool,
}

/// How the monitor sees a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReport {
    /// Its number.
    pub id: u16,
    /// Whether it is in.
    #[serde(alias = "standing")]
    pub member_state: ReportedState,
    /// The first epoch of its presence, or that in which it was taken out.
    pub since: u32,
    /// The host that resynchronises it while it was out.
    #[serde(default, alias = "helper", skip_serializing_if = "Option::is_none")]
    pub recovery_coordinator: Option<u32>,
    /// How long ago the monitor heard it; none if it has not since its own start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_millis: Option<u64>,
    /// The epoch that it lives by, as far as the monitor has heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_by: Option<u32>,
    /// It is not let in, since its disk is older than it should be: the disk has this epoch, and the device has lived by a later one. Zero is
    /// an empty disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<u32>,
    /// Slots of its disk that can't be written, and are not used any more.
    #[serde(default)]
    pub bad_slots: u32,
    /// These are so many that it is done without as soon as the others can.
    #[serde(default)]
    pub failing: bool,
    /// When its standing last changed, in milliseconds since 1970, as far as this monitor knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    /// The disk that fills its slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The disk that is to fill it as soon as it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_to: Option<String>,
    /// The disk that fills it, and has not been heard of yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
    /// An operator has taken it out.
    #[serde(default)]
    pub held: bool,
    /// Why what was last heard in its place may not serve.
    #[serde(default, alias = "unwelcome", skip_serializing_if = "Option::is_none")]
    pub join_refused: Option<String>,
    /// Its disk is another than when it was last in, so that it lacks all that lies on it.
    #[serde(default)]
    pub blank: bool,
    /// What it is being brought, while it is returning; or was, when it last was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healing: Option<HealingReport>,
}

/// How far a returning device is, as its recovery coordinator said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealingReport {
    /// Bytes of it that this recovery coordinator has brought.
    pub done: u64,
    /// Bytes that it lacks, as far as its recovery coordinator knows.
    pub left: u64,
    /// Blocks that can't be restored: too much of their rows is lost.
    pub lost: u64,
    /// How fast it went lately; none if that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// Whether a device is in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedState {
    /// It has everything, and a lease.
    In,
    /// It is in, but its lease has run out, and the others can't do without it.
    #[serde(alias = "away")]
    Unavailable,
    /// It is back, and being resynchronised.
    Returning,
    /// The others do without it.
    Out,
}

/// The monitor, as it was when it last said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorEntry {
    /// Its process.
    pub pid: u32,
    /// How long ago that was; none if in another boot.
    pub age: Option<Duration>,
    /// What it said.
    pub report: MonitorReport,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    schema: u64,
    pid: u32,
    boot: String,
    said_nanos: u64,
    report: MonitorReport,
}

impl ArrayFolder {
    /// The monitor that runs, or that did and was killed.
    pub fn monitor(&self, now: &Moment) -> Result<Option<MonitorEntry>, ControlError> {
        match file::read::<Shown>(&self.path(MONITOR)) {
            Ok(shown) => Ok(shown.map(|Shown { pid, boot, said_nanos, report, .. }| {
                let age = now.since(&Moment { boot, elapsed: Duration::from_nanos(said_nanos) });
                MonitorEntry { pid, age, report }
            })),
            // Not synced, so a power loss may leave it empty; or an earlier release wrote it. It is soon written anew.
            Err(ControlError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets others see the monitor. Only the process that has its state file locked may call this.
    pub fn publish_monitor(&self, now: &Moment, report: MonitorReport) -> Result<(), ControlError> {
        let said_nanos = u64::try_from(now.elapsed.as_nanos()).unwrap_or(u64::MAX);
        let shown = Shown { schema: file::SCHEMA, pid: std::process::id(), boot: now.boot.clone(), said_nanos, report };
        self.replace(&self.path(MONITOR), &shown, Durability::ThisBoot)
    }

    /// The monitor has ended. Only the process that has its state file locked may call this.
    pub fn withdraw_monitor(&self) -> Result<(), ControlError> {
        file::remove(&self.path(MONITOR))
    }
}

pub(crate) const MONITOR: &str = "monitor.json";

impl DeviceReport {
    /// Why it is not let in, if it is not.
    pub fn refusal(&self) -> Option<String> {
        if let Some(why) = &self.join_refused {
            return Some(why.clone());
        }
        let what = match self.outdated? {
            0 => "its disk is empty, and was not".to_string(),
            epoch => format!("its disk is older than the array's record of it: it has epoch {epoch}"),
        };
        Some(format!("{what}; bring the right one back"))
    }
}

impl Default for DeviceReport {
    /// A device that is in, of which nothing else is known.
    fn default() -> DeviceReport {
        DeviceReport {
            bad_slots: 0,
            failing: false,
            id: 0,
            member_state: ReportedState::In,
            since: 1,
            recovery_coordinator: None,
            heard_millis: None,
            lives_by: None,
            outdated: None,
            changed: None,
            disk: None,
            leaves_to: None,
            awaits: None,
            held: false,
            join_refused: None,
            blank: false,
            healing: None,
        }
    }
}

impl ReportedState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            ReportedState::In => "in",
            ReportedState::Unavailable => "unavailable",
            ReportedState::Returning => "returning",
            ReportedState::Out => "out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn a_monitor_is_seen_while_it_says_so_and_its_silence_is_noticed() {
        let scratch = Scratch::new("monitor");
        let folder = scratch.array();
        let at = |seconds| Moment { boot: "this".into(), elapsed: Duration::from_secs(seconds) };
        assert_eq!(folder.monitor(&at(1)).unwrap(), None);
        let device = DeviceReport {
            id: 3,
            member_state: ReportedState::Returning,
            since: 5,
            recovery_coordinator: Some(17),
            heard_millis: Some(20),
            awaits: Some("00ff".into()),
            healing: Some(HealingReport { done: 7, ..HealingReport::default() }),
            ..DeviceReport::default()
        };
        let report = MonitorReport {
            address: "127.0.0.1:7000".into(),
            revision: 4,
            epoch: 5,
            devices: vec![device],
            spares: vec![SpareReport { disk: "aa".into(), bytes: 1 << 30 }],
            throttle: ThrottleReport { bytes_per_second: 5, share: 30, paused: true },
            stamps_ahead_millis: Some(60_000),
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
        let next = Moment { boot: "next".into(), elapsed: Duration::from_secs(3) };
        assert_eq!(folder.monitor(&next).unwrap().unwrap().age, None, "another boot");
        std::fs::write(folder.path(MONITOR), "").unwrap();
        assert_eq!(folder.monitor(&at(3)).unwrap(), None, "as a power loss leaves it");
        folder.withdraw_monitor().unwrap();
        assert!(!folder.path(MONITOR).exists());
    }
}
