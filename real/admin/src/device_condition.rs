//! The condition of each device, as a word for programs and as text for display: derived from the monitor's report, from the device's own
//! answer, and from the progress of its recovery coordinator.

use crate::health::DeviceHealth;
use braid_base::units::format_size;
use braid_control::event_texts::flapping_words;
use braid_control::{DeviceReport, ReportedState, ThrottleReport};
use braid_wire::RecoveryThrottle;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCondition {
    /// It is up to date, and serves.
    Healthy,
    /// It is in, but does not answer, or has no lease: requests wait for it until it answers or is taken out.
    Silent,
    /// It is in and serves, but some slots of its disk can't be written. `failing`: so many that it is taken out as soon as the others can
    /// serve without it.
    DiskErrors { bad_slots: u32, failing: bool },
    /// It is in and serves until the others can serve without it; then another disk fills its slot.
    Leaving,
    /// It does not answer, and the others can't serve without it.
    Unavailable,
    /// The others serve without it.
    Out {
        /// True if an operator has taken it out.
        kept_out: bool,
        /// For how long, if known.
        since: Option<Duration>,
        /// How often it went out in a row, if it comes and goes.
        outages: u32,
        /// How long it has to stay out because of that, in milliseconds.
        stays_out_millis: Option<u64>,
    },
    /// It is back, and is resynchronised.
    Resynchronising(Healing),
    /// Its disk is new, and it is being rebuilt.
    Rebuilding(Healing),
    /// It is out, and this disk will fill its slot. `refused`: why the one that is connected now is refused.
    AwaitingDisk { disk: String, refused: Option<String> },
    /// The disk that is connected is refused, for this reason.
    Refused(String),
    /// No monitor has reported on it.
    Unknown,
}

/// The progress of a returning device, in bytes of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// Bytes that are up to date.
    pub done: u64,
    /// Bytes that are still missing; none while that is being determined.
    pub left: Option<u64>,
    /// Blocks that can't be reconstructed.
    pub lost: u64,
    /// The current speed.
    pub bytes_per_second: Option<u64>,
    /// True if an operator has paused it.
    pub paused: bool,
    /// True if no host coordinates it.
    pub alone: bool,
}

/// What is known of a device besides the monitor's report.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Whether it answers.
    pub health: &'a DeviceHealth,
    /// Bytes that are absent according to the device.
    pub absent: Option<u64>,
    /// Bytes of redundant volumes on it.
    pub total: u64,
    pub throttle: ThrottleReport,
    /// The current time in milliseconds since 1970.
    pub now: u64,
}

impl DeviceCondition {
    pub fn of(report: Option<&DeviceReport>, known: Known) -> DeviceCondition {
        let Some(report) = report else { return DeviceCondition::Unknown };
        // Until the new disk is heard from, the previous one may still answer.
        if let Some(disk) = &report.awaited_disk {
            return DeviceCondition::AwaitingDisk { disk: disk.clone(), refused: report.refusal() };
        }
        if let Some(why) = report.refusal() {
            return DeviceCondition::Refused(why);
        }
        match report.member_state {
            ReportedState::In if !known.health.may_serve() => DeviceCondition::Silent,
            ReportedState::In if report.next_disk.is_some() => DeviceCondition::Leaving,
            ReportedState::In if report.bad_slots > 0 || report.failing => {
                DeviceCondition::DiskErrors { bad_slots: report.bad_slots, failing: report.failing }
            }
            ReportedState::In => DeviceCondition::Healthy,
            // No redundant volume lies on it, so that no device needs it.
            ReportedState::Unavailable if known.total == 0 => DeviceCondition::Silent,
            ReportedState::Unavailable => DeviceCondition::Unavailable,
            ReportedState::Out => {
                let since = report.changed.map(|changed| Duration::from_millis(known.now.saturating_sub(changed)));
                let DeviceReport { kept_out, outages, stays_out_millis, .. } = *report;
                DeviceCondition::Out { kept_out, since, outages, stays_out_millis }
            }
            ReportedState::Returning => {
                let absent = known.absent.filter(|absent| *absent > 0);
                let healing = Healing::of(report, absent, known);
                if report.blank || absent.is_some() {
                    DeviceCondition::Rebuilding(healing)
                } else {
                    DeviceCondition::Resynchronising(healing)
                }
            }
        }
    }

    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            DeviceCondition::Healthy => "healthy",
            DeviceCondition::Silent => "silent",
            DeviceCondition::DiskErrors { failing: false, .. } => "disk-errors",
            DeviceCondition::DiskErrors { failing: true, .. } => "failing",
            DeviceCondition::Leaving => "leaving",
            DeviceCondition::Unavailable => "unavailable",
            DeviceCondition::Out { .. } => "out",
            DeviceCondition::Resynchronising(_) => "resynchronising",
            DeviceCondition::Rebuilding(_) => "rebuilding",
            DeviceCondition::AwaitingDisk { .. } => "awaiting-disk",
            DeviceCondition::Refused(_) => "refused",
            DeviceCondition::Unknown => "unknown",
        }
    }

    /// The progress of its resynchronisation, if it is returning.
    pub fn healing(&self) -> Option<&Healing> {
        match self {
            DeviceCondition::Resynchronising(healing) | DeviceCondition::Rebuilding(healing) => Some(healing),
            _ => None,
        }
    }

    pub fn words(&self) -> String {
        match self {
            DeviceCondition::DiskErrors { bad_slots, failing: false } => {
                format!("serves; {bad_slots} slots of its disk can't be written")
            }
            DeviceCondition::DiskErrors { bad_slots: 0, failing: true } => {
                "lacks blocks that it should have, and must be rebuilt; the others can't serve without it yet"
                    .to_string()
            }
            DeviceCondition::DiskErrors { bad_slots, failing: true } => {
                format!(
                    "its disk is failing: {bad_slots} slots can't be written, and the others can't serve without it yet"
                )
            }
            DeviceCondition::Leaving => "healthy, leaves as soon as the others can serve without it".to_string(),
            DeviceCondition::Unavailable => "unavailable: the others can't serve without it".to_string(),
            DeviceCondition::Out { kept_out, since, outages, stays_out_millis } => {
                let since = since.map(|since| format!(" for {}", span(since))).unwrap_or_default();
                let why = if *kept_out { ", taken out by an operator" } else { "" };
                format!("out{since}{why}{}", flapping_words(*outages, *stays_out_millis))
            }
            DeviceCondition::Resynchronising(healing) => format!("resynchronising: {}", healing.words()),
            DeviceCondition::Rebuilding(healing) => format!("rebuilding: {}", healing.words()),
            DeviceCondition::AwaitingDisk { disk, refused: None } => format!("out, awaiting disk {disk}"),
            DeviceCondition::AwaitingDisk { disk, refused: Some(why) } => {
                format!("out, awaiting disk {disk} (the connected disk is refused: {why})")
            }
            DeviceCondition::Refused(why) => format!("refused: {why}"),
            DeviceCondition::Healthy | DeviceCondition::Silent | DeviceCondition::Unknown => self.name().to_string(),
        }
    }
}

impl Healing {
    fn of(report: &DeviceReport, absent: Option<u64>, known: Known) -> Healing {
        let said = report.healing.clone().unwrap_or_default();
        // A new disk reports all blocks that are absent; the recovery coordinator examines a part at a time.
        let (done, left) = match absent {
            Some(absent) => (known.total.saturating_sub(absent), Some(absent)),
            None if (said.done, said.left) == (0, 0) => (0, None),
            None if report.blank => (known.total.saturating_sub(said.left), Some(said.left)),
            None => (said.done, Some(said.left)),
        };
        let (lost, bytes_per_second) = (said.lost, said.bytes_per_second);
        let (paused, alone) = (known.throttle.paused, report.recovery_coordinator.is_none());
        Healing { done, left, lost, bytes_per_second, paused, alone }
    }

    /// The part that is done, in per cent; 100 only if nothing is left.
    pub fn percent(&self) -> Option<u64> {
        let left = self.left?;
        let all = u128::from(self.done) + u128::from(left);
        Some((u128::from(self.done) * 100).checked_div(all).unwrap_or(100) as u64)
    }

    pub fn time_left(&self) -> Option<Duration> {
        let rate = self.bytes_per_second.filter(|rate| *rate > 0 && !self.paused)?;
        self.left.map(|left| Duration::from_secs(left.div_ceil(rate)))
    }

    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        match (self.percent(), self.left) {
            (Some(percent), Some(left)) => parts.push(format!("{percent} %, {} to go", format_size(left))),
            _ => parts.push("determining what is missing".to_string()),
        }
        match self.time_left() {
            _ if self.paused => parts.push("paused".to_string()),
            _ if self.alone => parts.push("no host coordinates it".to_string()),
            Some(time) => parts.push(format!("{} left", span(time))),
            None => {}
        }
        if self.lost > 0 {
            parts.push(format!("{} blocks are lost", self.lost));
        }
        parts.join(", ")
    }
}

pub fn throttle_words(throttle: &ThrottleReport) -> String {
    let rate = format!("at most {}/s", format_size(throttle.bytes_per_second));
    let limit = match (throttle.share, throttle.bytes_per_second) {
        (0, limit) => {
            let rate = if limit == 0 { "unlimited".to_string() } else { rate };
            let (least, share) = (format_size(RecoveryThrottle::RESYNC_RATE), RecoveryThrottle::SHARE_DEFAULT);
            format!(
                "{rate}; while users are active, a resync keeps {least}/s or a third of its speed, and other jobs take {share} % of the time"
            )
        }
        (100.., 0) => "unlimited, also while users are active".to_string(),
        (100.., _) => format!("also while users are active, {rate}"),
        (share, 0) => format!("{share} % of the time while users are active, unlimited while they are idle"),
        (share, _) => format!("{share} % of the time while users are active, {rate}"),
    };
    if throttle.paused { format!("paused (when resumed: {limit})") } else { limit }
}

/// The throttle as it is reported to users: with the default share instead of zero, which stands for it.
pub fn with_real_share(throttle: ThrottleReport) -> ThrottleReport {
    let share = if throttle.share == 0 { RecoveryThrottle::SHARE_DEFAULT } else { throttle.share };
    ThrottleReport { share, ..throttle }
}

pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReportedState::{In, Out, Returning, Unavailable};
    use braid_control::HealingReport;

    fn known<'a>(health: &'a DeviceHealth, absent: u64) -> Known<'a> {
        Known { health, absent: Some(absent), total: 1000 << 20, throttle: ThrottleReport::default(), now: 300_000 }
    }

    fn words(report: DeviceReport) -> String {
        DeviceCondition::of(Some(&report), known(&DeviceHealth::Serving, 0)).words()
    }

    #[test]
    fn a_device_is_described_by_its_state() {
        let stands = |member_state| DeviceReport { member_state, ..DeviceReport::default() };
        assert_eq!(words(stands(In)), "healthy");
        assert_eq!(DeviceCondition::of(Some(&stands(In)), known(&DeviceHealth::NoLease, 0)), DeviceCondition::Silent);
        assert_eq!(DeviceCondition::of(None, known(&DeviceHealth::Serving, 0)), DeviceCondition::Unknown);
        let replaced = words(DeviceReport { next_disk: Some("x".into()), ..stands(In) });
        assert!(replaced.starts_with("healthy,"), "{replaced}");
        assert_eq!(words(stands(Unavailable)), "unavailable: the others can't serve without it");
        let empty = Known { total: 0, ..known(&DeviceHealth::NoLease, 0) };
        let condition = DeviceCondition::of(Some(&stands(Unavailable)), empty);
        assert_eq!(condition, DeviceCondition::Silent, "no redundant volume lies on it");
        assert_eq!(words(stands(Out)), "out");
        assert_eq!(words(DeviceReport { changed: Some(60_000), ..stands(Out) }), "out for 4 min");
        let flaps = DeviceReport { outages: 4, stays_out_millis: Some(7_200), ..stands(Out) };
        assert!(words(flaps).ends_with(
            "; it went out 4 times, each time within a minute of its return, and stays out for 8 s at least"
        ));
        let held = DeviceReport { kept_out: true, changed: Some(290_000), ..stands(Out) };
        assert_eq!(words(held), "out for 10 s, taken out by an operator");
        assert_eq!(words(DeviceReport { awaited_disk: Some("7f".into()), ..stands(Out) }), "out, awaiting disk 7f");
        assert!(words(DeviceReport { outdated: Some(0), ..stands(Out) }).starts_with("refused: its disk is empty"));
    }

    #[test]
    fn the_default_of_the_throttle_is_reported_as_its_real_share() {
        let usual = ThrottleReport::default();
        assert_eq!(with_real_share(usual).share, 25);
        assert!(throttle_words(&usual).contains("25 % of the time"), "{}", throttle_words(&usual));
        let other = ThrottleReport { share: 10, ..usual };
        assert_eq!(with_real_share(other), other);
    }

    #[test]
    fn progress_of_a_returning_device_follows_from_its_missing_blocks() {
        let healing = HealingReport { done: 30 << 20, left: 10 << 20, lost: 0, bytes_per_second: Some(1 << 20) };
        let returning =
            DeviceReport { member_state: Returning, recovery_coordinator: Some(3), ..DeviceReport::default() };
        let helped = DeviceReport { healing: Some(healing), ..returning.clone() };
        assert_eq!(words(helped.clone()), "resynchronising: 75 %, 10 MiB to go, 10 s left");
        assert_eq!(words(returning.clone()), "resynchronising: determining what is missing");
        assert_eq!(words(DeviceReport { blank: true, ..returning.clone() }), "rebuilding: determining what is missing");
        // The device's own report of absent blocks takes precedence.
        let serving = DeviceHealth::Serving;
        let rebuilt = DeviceCondition::of(Some(&helped), known(&serving, 250 << 20));
        assert_eq!(rebuilt.words(), "rebuilding: 75 %, 250 MiB to go, 4 min left");
        let paused = Known {
            throttle: ThrottleReport { paused: true, ..ThrottleReport::default() },
            ..known(&serving, 250 << 20)
        };
        assert_eq!(DeviceCondition::of(Some(&helped), paused).words(), "rebuilding: 75 %, 250 MiB to go, paused");
        let alone = DeviceReport { recovery_coordinator: None, ..helped };
        assert_eq!(words(alone), "resynchronising: 75 %, 10 MiB to go, no host coordinates it");
        let nearly = Healing { done: 999, left: Some(1), lost: 2, ..Healing::default() };
        assert_eq!(nearly.words(), "99 %, 1 B to go, 2 blocks are lost");
        assert_eq!(Healing { left: Some(0), ..Healing::default() }.percent(), Some(100));
    }
}
