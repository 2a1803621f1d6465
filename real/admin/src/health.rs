//! The health of the monitor, devices and volumes, derived from the monitor's report and from the devices' answers.
//!
//! The monitor reports which devices are up to date; only a device itself can show that it serves. The health of a volume is what its users
//! see: it is served with full redundancy, with less, or only in part.

use braid_base::DeviceId;
use braid_control::{DeviceReport, Leases, MonitorEntry, Refusal, ReportedState, RunningDaemon};
use braid_layout::VolumeDescription;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorHealth {
    /// It publishes a report twice a second.
    Serving,
    /// It has published no report for this long: it is suspended, or the array's folder can't be written.
    Silent(Duration),
    /// It may well serve, but its last report is of this age, or of a process that has ended, because the array's folder can't be changed.
    Unreported { age: Option<Duration>, refusal: Refusal },
    /// It is not running, for this reason if known.
    Down(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceHealth {
    Serving,
    /// It answers but does not serve: its lease has expired, and the monitor has not granted another one.
    NoLease,
    /// Its process was started. It was not asked, because no host can be started.
    Unasked,
    /// It does not answer, for this reason.
    Silent(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeHealth {
    /// All of its devices are in and serve.
    Healthy,
    /// All of it is served, but another failure may stop a part of it: these devices are out, or being resynchronised.
    Degraded(Vec<DeviceId>),
    /// Unknown, because the monitor has ended. Devices serve until their leases expire.
    Unknown,
    /// Requests that need these devices wait until the devices return or are taken out.
    Waiting(Vec<DeviceId>),
    /// Requests that need these devices fail until some of them return.
    Unavailable(Vec<DeviceId>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileSystemHealth {
    Serving,
    /// A metadata server takes it over: it waits for the monitor or a lease, or reads its journal.
    TakingOver,
    /// No metadata server is running, for this reason if known. Users wait.
    Down(Option<String>),
    /// It is checked, and not served meanwhile.
    Checked,
    Creating,
    Deleting,
    /// The array is not up.
    #[default]
    NotUp,
}

impl FileSystemHealth {
    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            FileSystemHealth::Serving => "serving",
            FileSystemHealth::TakingOver => "taking over",
            FileSystemHealth::Down(_) => "not served",
            FileSystemHealth::Checked => "being checked",
            FileSystemHealth::Creating => "being created",
            FileSystemHealth::Deleting => "being deleted",
            FileSystemHealth::NotUp => "not up",
        }
    }

    pub fn words(&self) -> String {
        match self {
            FileSystemHealth::Down(why) => {
                format!("not served: its metadata server is down: {}", why.as_deref().unwrap_or("not running"))
            }
            other => other.name().to_string(),
        }
    }
}

impl MonitorHealth {
    /// Derived from the monitor's last report, and from what `braid up` publishes about it.
    pub fn of(entry: Option<&MonitorEntry>, running: Option<&RunningDaemon>, leases: Leases) -> MonitorHealth {
        match (entry, running) {
            (Some(MonitorEntry { process, age: Some(age), .. }), _) if !process.has_ended() => {
                match *age <= leases.lease() {
                    true => MonitorHealth::Serving,
                    false => MonitorHealth::Silent(*age),
                }
            }
            (_, running) => MonitorHealth::Down(running.and_then(|running| running.down.clone())),
        }
    }

    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            MonitorHealth::Serving => "serving",
            MonitorHealth::Silent(_) => "silent",
            MonitorHealth::Unreported { .. } => "unreported",
            MonitorHealth::Down(_) => "not running",
        }
    }

    pub fn words(&self) -> String {
        match self {
            MonitorHealth::Silent(age) => format!("silent for {} s", age.as_secs()),
            MonitorHealth::Unreported { age: Some(age), refusal } => {
                format!("running; its report is {} s old, since {refusal}", age.as_secs())
            }
            MonitorHealth::Unreported { age: None, refusal } => {
                format!("down or just started: its process has ended, and the next can't be recorded, since {refusal}")
            }
            MonitorHealth::Down(Some(why)) => format!("down: {why}"),
            other => other.name().to_string(),
        }
    }
}

impl DeviceHealth {
    /// True if nothing says that it does not serve.
    pub fn may_serve(&self) -> bool {
        matches!(self, DeviceHealth::Serving | DeviceHealth::Unasked)
    }

    pub fn words(&self) -> String {
        match self {
            DeviceHealth::Serving => "serving".to_string(),
            DeviceHealth::NoLease => "waiting for the monitor".to_string(),
            DeviceHealth::Unasked => "not asked".to_string(),
            DeviceHealth::Silent(why) => why.clone(),
        }
    }
}

impl VolumeHealth {
    /// Derived from the monitor's report on devices, and from which of them serve.
    pub fn of(
        volume: &VolumeDescription,
        monitor: Option<&MonitorEntry>,
        serves: impl Fn(DeviceId) -> bool,
    ) -> VolumeHealth {
        let reports: BTreeMap<u16, &DeviceReport> = match monitor {
            Some(entry) => entry.report.devices.iter().map(|device| (device.id, device)).collect(),
            None => BTreeMap::new(),
        };
        let member_state =
            |device: &DeviceId| reports.get(&device.0).map_or(ReportedState::In, |report| report.member_state);
        let those = |is: &dyn Fn(ReportedState, DeviceId) -> bool| -> Vec<DeviceId> {
            volume.holders().into_iter().filter(|device| is(member_state(device), *device)).collect()
        };
        let unavailable = those(&|member_state, _| member_state == ReportedState::Unavailable);
        let out = those(&|member_state, _| member_state == ReportedState::Out);
        let incomplete =
            those(&|member_state, _| matches!(member_state, ReportedState::Out | ReportedState::Returning));
        // A device that returns to a volume without redundancy has missed no write to it: none was possible meanwhile.
        let redundant = volume.layout.redundancy_units() > 0;
        let too_many = if redundant { breaks_a_stripe(volume, &incomplete) } else { !out.is_empty() };
        if !unavailable.is_empty() || too_many {
            return VolumeHealth::Unavailable(those(&|member_state, _| match member_state {
                ReportedState::In => false,
                ReportedState::Returning => redundant,
                ReportedState::Unavailable | ReportedState::Out => true,
            }));
        }
        let silent = those(&|member_state, device| {
            matches!(member_state, ReportedState::In | ReportedState::Returning) && !serves(device)
        });
        match (silent.is_empty(), incomplete.is_empty() || !redundant) {
            (false, _) => VolumeHealth::Waiting(silent),
            (true, _) if monitor.is_none() => VolumeHealth::Unknown,
            (true, false) => VolumeHealth::Degraded(incomplete),
            (true, true) => VolumeHealth::Healthy,
        }
    }

    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            VolumeHealth::Healthy => "healthy",
            VolumeHealth::Degraded(_) => "degraded",
            VolumeHealth::Unknown => "unknown",
            VolumeHealth::Waiting(_) => "waiting",
            VolumeHealth::Unavailable(_) => "unavailable",
        }
    }

    /// The devices that it is served without, or that it waits for.
    pub fn lacks(&self) -> &[DeviceId] {
        match self {
            VolumeHealth::Healthy | VolumeHealth::Unknown => &[],
            VolumeHealth::Degraded(devices) | VolumeHealth::Waiting(devices) | VolumeHealth::Unavailable(devices) => {
                devices
            }
        }
    }

    /// The further devices whose failure would stop a part of it.
    pub fn needs(&self, volume: &VolumeDescription) -> Vec<DeviceId> {
        let lacks = self.lacks();
        let is_needed = |device: &&DeviceId| breaks_a_stripe(volume, &[lacks, &[**device]].concat());
        volume.devices.iter().filter(|device| !lacks.contains(device)).filter(is_needed).copied().collect()
    }

    pub fn words(&self) -> String {
        let devices: Vec<String> = self.lacks().iter().map(|device| device.to_string()).collect();
        let devices = devices.join(", ");
        match self {
            VolumeHealth::Healthy => self.name().to_string(),
            VolumeHealth::Unknown => "unknown: no monitor is running".to_string(),
            VolumeHealth::Degraded(_) => format!("degraded: without {devices}"),
            VolumeHealth::Waiting(_) => format!("waiting for {devices}"),
            VolumeHealth::Unavailable(_) => format!("unavailable: needs {devices}"),
        }
    }
}

/// True if some stripe has units on more of these devices than it has redundancy units.
fn breaks_a_stripe(volume: &VolumeDescription, devices: &[DeviceId]) -> bool {
    volume.placements().any(|(layout, ring)| {
        let missing = |place: &usize| devices.contains(&ring[*place]);
        layout.stripes_of_the_ring().any(|stripe| stripe.filter(missing).count() > layout.redundancy_units())
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use braid_base::VolumeId;
    use braid_control::{MonitorReport, Process};
    use braid_layout::{Layout, RaidLevel};

    pub(crate) fn volume(scheme: RaidLevel, devices: u16) -> VolumeDescription {
        let layout = Layout::new(scheme, devices.into(), 16).unwrap();
        VolumeDescription::new(VolumeId(1), 1 << 20, layout, (0..devices).map(DeviceId).collect())
    }

    fn monitor(member_states: &[(u16, ReportedState)]) -> MonitorEntry {
        let device = |(id, member_state): &(u16, ReportedState)| DeviceReport {
            id: *id,
            member_state: *member_state,
            ..DeviceReport::default()
        };
        let report = MonitorReport { devices: member_states.iter().map(device).collect(), ..MonitorReport::default() };
        MonitorEntry { process: Process::own(), age: Some(Duration::ZERO), report }
    }

    fn health(volume: &VolumeDescription, member_states: &[(u16, ReportedState)], silent: &[u16]) -> String {
        VolumeHealth::of(volume, Some(&monitor(member_states)), |device| !silent.contains(&device.0)).words()
    }

    #[test]
    fn a_volume_is_as_its_users_see_it() {
        use ReportedState::{In, Out, Returning, Unavailable};
        let five = volume("raid5:4+1".parse().unwrap(), 5);
        assert_eq!(health(&five, &[(0, In), (1, In)], &[]), "healthy");
        assert_eq!(health(&five, &[(1, In)], &[1]), "waiting for d1");
        assert_eq!(health(&five, &[(1, Out)], &[1]), "degraded: without d1");
        assert_eq!(health(&five, &[(1, Returning)], &[]), "degraded: without d1");
        assert_eq!(health(&five, &[(1, Returning)], &[1]), "waiting for d1");
        assert_eq!(health(&five, &[(1, Out), (3, Unavailable)], &[1, 3]), "unavailable: needs d1, d3");
        assert_eq!(health(&five, &[(1, Returning), (3, Out)], &[3]), "unavailable: needs d1, d3");
        assert_eq!(health(&five, &[(9, Out)], &[9]), "healthy", "of another volume");
        // Two mirrored pairs: one device of each may be out.
        let mirrors = volume("raid1:2".parse().unwrap(), 4);
        assert_eq!(health(&mirrors, &[(0, Out), (2, Out)], &[]), "degraded: without d0, d2");
        assert_eq!(VolumeHealth::Degraded(vec![DeviceId(2)]).needs(&mirrors), [DeviceId(3)]);
        assert_eq!(VolumeHealth::Degraded(vec![DeviceId(2)]).needs(&five), [0, 1, 3, 4].map(DeviceId));
        assert_eq!(health(&mirrors, &[(0, Out), (1, Out)], &[]), "unavailable: needs d0, d1");
        let three = volume("raid1:3".parse().unwrap(), 3);
        assert_eq!(health(&three, &[(1, Out), (2, Out)], &[1, 2]), "degraded: without d1, d2");
        assert_eq!(VolumeHealth::Degraded(vec![DeviceId(2)]).needs(&three), []);
        assert_eq!(VolumeHealth::Degraded(vec![DeviceId(1), DeviceId(2)]).needs(&three), [DeviceId(0)]);
        let stripes = volume("raid0:3".parse().unwrap(), 3);
        assert_eq!(health(&stripes, &[(0, Unavailable)], &[]), "unavailable: needs d0");
        assert_eq!(health(&stripes, &[(0, Out)], &[]), "unavailable: needs d0");
        assert_eq!(health(&stripes, &[(0, Returning)], &[]), "healthy");
        assert_eq!(VolumeHealth::of(&five, None, |_| true), VolumeHealth::Unknown, "without a monitor");
        assert_eq!(VolumeHealth::of(&five, None, |device| device.0 != 2).words(), "waiting for d2");
    }
}
