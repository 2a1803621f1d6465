//! The recovery throttle, and the devices that must be resynchronised: following them until they are in.

use crate::array::{Array, await_until};
use crate::device_condition::{DeviceCondition, Healing, span};
use crate::failure::Failure;
use crate::health::MonitorHealth;
use crate::snapshot::{ArraySnapshot, SnapshotReader};
use braid_base::DeviceId;
pub use braid_control::ThrottleReport;
use braid_control::{ByteRange, EventKind, MonitorEntry, merged};
use braid_machine::ArrayRequest;
use braid_session::{Session, require_up};
use braid_wire::{Administration, RecoveryThrottle};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a monitor that has just been started may take to publish its report.
const MONITOR_WAIT: Duration = Duration::from_secs(3);
/// The monitor publishes a change within half a second.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleChange {
    pub before: ThrottleReport,
    pub throttle: ThrottleReport,
}

impl Array {
    /// Changes the recovery throttle from its current value. Returns when the status shows the new value. Errors: `not-up`,
    /// `no-monitor`.
    pub async fn set_throttle(&self, change: impl FnOnce(&mut ThrottleReport)) -> Result<ThrottleChange, Failure> {
        let control = self.control();
        require_up(control).await?;
        let before = self.await_monitor().await?.report.throttle;
        let mut throttle = before;
        change(&mut throttle);
        let session = Session::start(control, "rebuild").await?;
        let ThrottleReport { bytes_per_second, share, paused } = throttle;
        let request = Administration::RecoveryThrottle(RecoveryThrottle { bytes_per_second, share, paused });
        let outcome = session.client().call(ArrayRequest::Administer { request }).await;
        session.leave().await;
        outcome?;
        // Wait until the new value is shown, because the next change starts from it.
        let is_shown = async || Ok(control.monitor().await?.is_none_or(|it| it.report.throttle == throttle));
        await_until(control, SHOWN_WITHIN, is_shown).await?;
        Ok(ThrottleChange { before, throttle })
    }

    async fn await_monitor(&self) -> Result<MonitorEntry, Failure> {
        let control = self.control();
        await_until(control, MONITOR_WAIT, async || Ok(control.monitor().await?.is_some())).await?;
        control.monitor().await?.ok_or_else(|| {
            let message = "the recovery throttle is unknown, because the array's monitor is not running";
            Failure::unreachable("no-monitor", message).hint("`braid status` shows why; start it with `braid up`")
        })
    }
}

impl ArraySnapshot {
    /// Fails unless the monitor serves, because otherwise the state of devices is unknown.
    pub fn require_monitor(&self) -> Result<(), Failure> {
        match self.monitor_health() {
            MonitorHealth::Serving => Ok(()),
            other => {
                let message =
                    format!("the state of devices is unknown, because the array's monitor is {}", other.words());
                Err(Failure::unreachable("no-monitor", message)
                    .hint("`braid status` shows its state; start it with `braid up`"))
            }
        }
    }

    /// The devices that are being resynchronised or must be, with their conditions.
    pub fn lacking(&self) -> impl Iterator<Item = (DeviceId, DeviceCondition)> {
        let all = self.description.devices.iter().map(|entry| (DeviceId(entry.id), self.condition(DeviceId(entry.id))));
        all.filter(|(_, condition)| {
            !matches!(
                condition,
                DeviceCondition::Healthy
                    | DeviceCondition::DiskErrors { .. }
                    | DeviceCondition::Silent
                    | DeviceCondition::Unknown
            )
        })
    }
}

/// The interval of snapshots.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Progress is reported twice a second. What is left when a device is first seen may be that old: over a shorter time than this the rate
/// would be wrong.
const RATE_OVER_MIN: u64 = 2_000;
/// How long a followed device may be out before following fails.
const OUT_MAX: Duration = Duration::from_secs(60);

/// Follows devices that are being rebuilt or resynchronised. The hosts do that work whether or not it is followed.
pub struct RecoveryFollower {
    reader: SnapshotReader,
    /// The only device to follow; none for all.
    only: Option<DeviceId>,
    followed: BTreeMap<DeviceId, FollowedDevice>,
    snapshot: ArraySnapshot,
}

#[derive(Clone, Debug)]
pub struct FollowedDevice {
    pub condition: DeviceCondition,
    pub rebuild: bool,
    begun: Instant,
    /// When it began to return, and from when to when `restored` was restored, in milliseconds since 1970, as far as known.
    returned: Option<u64>,
    from: Option<u64>,
    until: Option<u64>,
    /// Its progress when it was first known.
    first: Option<Healing>,
    last: Healing,
    /// Since when it is out, so that it is not being resynchronised.
    out: Option<Instant>,
    ended: Option<Instant>,
    lost: BTreeMap<u64, Vec<ByteRange>>,
}

/// Ranges of a volume that could not be reconstructed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostInVolume {
    /// The volume's name; none if it was deleted, and the log of events does not know it any more.
    pub volume: Option<String>,
    pub ranges: Vec<ByteRange>,
}

impl Array {
    /// Begins to follow one device, or all that are being rebuilt or resynchronised; follows none if all are in. Errors: `no-such-device`,
    /// `nothing-to-rebuild` (devices are out, and not being resynchronised), `no-monitor`, `not-up`.
    pub async fn follow_recovery(&self, only: Option<DeviceId>) -> Result<RecoveryFollower, Failure> {
        require_up(self.control()).await?;
        let mut reader = SnapshotReader::new(self.control().clone(), "rebuild");
        let snapshot = reader.look().await?;
        let followed = begin(&snapshot, only)?;
        let mut follower = RecoveryFollower { reader, only, followed, snapshot };
        follower.note_snapshot();
        Ok(follower)
    }
}

impl RecoveryFollower {
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &FollowedDevice)> {
        self.followed.iter().map(|(id, device)| (*id, device))
    }

    /// True if all of them are in.
    pub fn is_complete(&self) -> bool {
        self.followed.values().all(|device| device.ended.is_some())
    }

    /// Waits a moment, and updates the devices; those that have returned meanwhile are followed, too. If a device stays out, the error is
    /// `device-out`. This future may be dropped at any time.
    pub async fn advance(&mut self) -> Result<(), Failure> {
        tokio::time::sleep(LOOK_EVERY).await;
        self.snapshot = self.reader.look().await?;
        if self.only.is_none() {
            for (id, condition) in self.snapshot.lacking().filter(|(_, condition)| condition.healing().is_some()) {
                self.followed.entry(id).or_insert_with(|| FollowedDevice::new(condition)).ended = None;
            }
        }
        self.note_snapshot();
        match self.devices().find(|(_, device)| device.has_gone()) {
            None => Ok(()),
            Some((id, _)) => {
                let message = format!("device {id} went out, and did not return within {}", span(OUT_MAX));
                Err(Failure::unreachable("device-out", message)
                    .hint("its progress is kept; `braid status` shows why it is out"))
            }
        }
    }

    pub fn lost(&self, device: &FollowedDevice) -> Vec<LostInVolume> {
        let volumes = &self.snapshot.description.volumes;
        let name = |id: u64| {
            let there = volumes.iter().find(|volume| volume.id == id).map(|volume| volume.name.clone());
            there.or_else(|| self.snapshot.removed(EventKind::VolumeDeleted, id))
        };
        device.lost.iter().map(|(id, ranges)| LostInVolume { volume: name(*id), ranges: ranges.clone() }).collect()
    }

    fn note_snapshot(&mut self) {
        for (id, device) in &mut self.followed {
            device.note(*id, &self.snapshot);
        }
    }
}

/// The devices to follow: none if all are in. Fails if some are not in, and none of them is being rebuilt or resynchronised.
fn begin(look: &ArraySnapshot, only: Option<DeviceId>) -> Result<BTreeMap<DeviceId, FollowedDevice>, Failure> {
    if let Some(id) = only.filter(|id| !look.description.devices.iter().any(|entry| entry.id == id.0)) {
        return Err(Failure::unreachable("no-such-device", format!("the array has no device {id}")));
    }
    look.require_monitor()?;
    let mut followed = BTreeMap::new();
    let mut idle = Vec::new();
    for (id, condition) in look.lacking().filter(|(id, _)| only.is_none_or(|only| only == *id)) {
        match condition {
            DeviceCondition::Resynchronising(_)
            | DeviceCondition::Rebuilding(_)
            | DeviceCondition::AwaitingDisk { .. }
            | DeviceCondition::Leaving => {
                followed.insert(id, FollowedDevice::new(condition));
            }
            other => idle.push(format!("device {id} is {}", other.words())),
        }
    }
    if !followed.is_empty() || idle.is_empty() {
        return Ok(followed);
    }
    let message = format!("nothing to rebuild now: {}", idle.join("; "));
    Err(Failure::failed("nothing-to-rebuild", message)
        .hint("a device that is out is resynchronised when it returns; `braid device replace` gives it another disk"))
}

impl FollowedDevice {
    fn new(condition: DeviceCondition) -> FollowedDevice {
        FollowedDevice {
            rebuild: !matches!(condition, DeviceCondition::Resynchronising(_)),
            condition,
            begun: Instant::now(),
            returned: None,
            from: None,
            until: None,
            first: None,
            last: Healing::default(),
            out: None,
            ended: None,
            lost: BTreeMap::new(),
        }
    }

    /// Bytes restored while it was followed.
    pub fn restored(&self) -> u64 {
        self.first.as_ref().and_then(|first| first.left).unwrap_or(0)
    }

    /// How long it was followed, until it was in.
    pub fn took(&self) -> Duration {
        self.ended.map_or(self.begun.elapsed(), |ended| ended - self.begun)
    }

    /// Restored bytes per second, without the time in which the device was awaited; none if that is unknown, or if following began when
    /// the device was almost in.
    pub fn bytes_per_second(&self) -> Option<u64> {
        // The monitor knows when the device began to return, and when it was in.
        let least = if self.from == self.returned { 1 } else { RATE_OVER_MIN };
        let millis = self.until?.checked_sub(self.from?).filter(|millis| *millis >= least)?;
        u64::try_from(u128::from(self.restored()) * 1000 / u128::from(millis)).ok()
    }

    /// Blocks that could not be reconstructed.
    pub fn lost_blocks(&self) -> u64 {
        self.last.lost
    }

    /// Takes over the device's state from a snapshot.
    fn note(&mut self, id: DeviceId, look: &ArraySnapshot) {
        self.condition = look.condition(id);
        let recoveries = look.hosts.iter().filter_map(|host| host.report.coordinates_recovery.as_ref());
        for recovery in recoveries.filter(|recovery| recovery.device == id.0) {
            for (volume, ranges) in &recovery.lost {
                let known = self.lost.remove(volume).unwrap_or_default();
                self.lost.insert(*volume, merged(known.into_iter().chain(ranges.iter().copied())));
            }
        }
        self.rebuild |= matches!(self.condition, DeviceCondition::Rebuilding(_));
        let changed = look.member_state(id).and_then(|report| report.changed);
        if let Some(healing) = self.condition.healing() {
            self.returned = self.returned.or(changed);
            if healing.left.is_some() && self.first.is_none() {
                (self.first, self.from) = (Some(healing.clone()), Some(look.now));
            }
            let lost = self.last.lost.max(healing.lost);
            self.last = Healing { lost, ..healing.clone() };
        }
        // It is in with its old disk: the rebuild onto the next one has not begun.
        let is_to_be_replaced = look.member_state(id).is_some_and(|report| report.next_disk.is_some());
        match self.condition {
            _ if is_to_be_replaced => self.out = None,
            DeviceCondition::Healthy | DeviceCondition::DiskErrors { .. } | DeviceCondition::Silent => {
                self.ended.get_or_insert_with(Instant::now);
                self.until = self.until.or(changed);
                if self.first.is_none() {
                    self.from = self.returned;
                    // It was in before its progress was known.
                    let healed = look.member_state(id).and_then(|report| report.healing.as_ref());
                    let done = healed.map_or(0, |healed| healed.done);
                    self.first = Some(Healing { left: Some(done), ..Healing::default() });
                }
                self.out = None;
            }
            DeviceCondition::Out { .. } | DeviceCondition::Refused(_) | DeviceCondition::Unavailable => {
                self.out.get_or_insert_with(Instant::now);
            }
            _ => self.out = None,
        }
    }

    fn has_gone(&self) -> bool {
        self.out.is_some_and(|since| since.elapsed() > OUT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_that_comes_late_tells_no_rate() {
        let followed = |from, until| {
            let mut device = FollowedDevice::new(DeviceCondition::Healthy);
            device.first = Some(Healing { left: Some(64 << 20), ..Healing::default() });
            (device.returned, device.from, device.until) = (Some(1_000), Some(from), Some(until));
            device.bytes_per_second()
        };
        assert_eq!(followed(9_990, 10_000), None, "what was left may have been restored before");
        assert_eq!(followed(6_000, 10_000), Some(16 << 20));
        assert_eq!(followed(1_000, 1_500), Some(128 << 20), "all of it was followed");
        assert_eq!(followed(1_000, 1_000), None);
    }
}
