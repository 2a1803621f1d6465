//! How each device is, in one word for programs and some more for people: from what the monitor says of it, what it says itself, and
//! how far its recovery coordinator is.

use crate::health::DeviceHealth;
use braid_base::units::format_size;
use braid_control::{DeviceReport, ReportedState, ThrottleReport};
use std::time::Duration;

/// How a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceCondition {
    /// It has everything, and serves.
    Healthy,
    /// It is in, and does not answer, or has no lease: it is waited for, or soon taken out.
    Silent,
    /// It is in and serves, but some slots of its disk can't be written.
    DiskErrors {
        /// How many.
        bad_slots: u32,
        /// So many that it is done without as soon as the others can.
        failing: bool,
    },
    /// It is in and serves, until the others can do without it: another disk takes its place then.
    Leaving,
    /// It does not answer, and the others can't do without it.
    Unavailable,
    /// The others do without it.
    Out {
        /// An operator wants it so.
        held: bool,
        /// For how long, if that is known.
        since: Option<Duration>,
    },
    /// It is back, and is resynchronised.
    CatchingUp(Healing),
    /// Its disk is a new one, and it is brought all that lies there.
    Rebuilding(Healing),
    /// It is out, and another disk is to fill its slot.
    AwaitingDisk {
        /// Which.
        disk: String,
        /// Why what is there may not serve.
        refused: Option<String>,
    },
    /// What is there may not serve; why.
    Refused(String),
    /// No monitor has said anything of it.
    Unknown,
}

/// How far a returning device is, in bytes of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// What it has of that which it is to be brought.
    pub done: u64,
    /// What it lacks; none while that is being found out.
    pub left: Option<u64>,
    /// Blocks that can't be worked out.
    pub lost: u64,
    /// How fast it goes.
    pub bytes_per_second: Option<u64>,
    /// An operator has it wait.
    pub paused: bool,
    /// No host helps it.
    pub alone: bool,
}

/// What is known of a device from elsewhere than its report.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Whether it answers.
    pub health: &'a DeviceHealth,
    /// Bytes that it says are absent there.
    pub absent: Option<u64>,
    /// Bytes of redundant volumes that lie on it.
    pub total: u64,
    /// How fast it is to go.
    pub throttle: ThrottleReport,
    /// Milliseconds since 1970.
    pub now: u64,
}

impl DeviceCondition {
    /// Of a device of which the monitor says this, if it says anything.
    pub fn of(report: Option<&DeviceReport>, known: Known) -> DeviceCondition {
        let Some(report) = report else { return DeviceCondition::Unknown };
        // Until that one comes, the disk before may still be there.
        if let Some(disk) = &report.awaits {
            return DeviceCondition::AwaitingDisk { disk: disk.clone(), refused: report.refusal() };
        }
        if let Some(why) = report.refusal() {
            return DeviceCondition::Refused(why);
        }
        match report.member_state {
            ReportedState::In if *known.health != DeviceHealth::Serving => DeviceCondition::Silent,
            ReportedState::In if report.leaves_to.is_some() => DeviceCondition::Leaving,
            ReportedState::In if report.bad_slots > 0 => {
                DeviceCondition::DiskErrors { bad_slots: report.bad_slots, failing: report.failing }
            }
            ReportedState::In => DeviceCondition::Healthy,
            // No redundant volume lies there: no device needs it.
            ReportedState::Unavailable if known.total == 0 => DeviceCondition::Silent,
            ReportedState::Unavailable => DeviceCondition::Unavailable,
            ReportedState::Out => {
                let since = report.changed.map(|changed| Duration::from_millis(known.now.saturating_sub(changed)));
                DeviceCondition::Out { held: report.held, since }
            }
            ReportedState::Returning => {
                let absent = known.absent.filter(|absent| *absent > 0);
                let healing = Healing::of(report, absent, known);
                if report.blank || absent.is_some() {
                    DeviceCondition::Rebuilding(healing)
                } else {
                    DeviceCondition::CatchingUp(healing)
                }
            }
        }
    }

    /// In a word, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            DeviceCondition::Healthy => "healthy",
            DeviceCondition::Silent => "silent",
            DeviceCondition::DiskErrors { failing: false, .. } => "disk-errors",
            DeviceCondition::DiskErrors { failing: true, .. } => "failing",
            DeviceCondition::Leaving => "leaving",
            DeviceCondition::Unavailable => "unavailable",
            DeviceCondition::Out { .. } => "out",
            DeviceCondition::CatchingUp(_) => "catching-up",
            DeviceCondition::Rebuilding(_) => "rebuilding",
            DeviceCondition::AwaitingDisk { .. } => "awaiting-disk",
            DeviceCondition::Refused(_) => "refused",
            DeviceCondition::Unknown => "unknown",
        }
    }

    /// What it is being brought, if it is.
    pub fn healing(&self) -> Option<&Healing> {
        match self {
            DeviceCondition::CatchingUp(healing) | DeviceCondition::Rebuilding(healing) => Some(healing),
            _ => None,
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            DeviceCondition::DiskErrors { bad_slots, failing: false } => {
                format!("serves; {bad_slots} slots of its disk can't be written")
            }
            DeviceCondition::DiskErrors { bad_slots, failing: true } => {
                format!(
                    "its disk is failing: {bad_slots} slots can't be written, and the others can't do without it yet"
                )
            }
            DeviceCondition::Leaving => "healthy, and leaves when the others can do without it".to_string(),
            DeviceCondition::Unavailable => "away: the others can't do without it".to_string(),
            DeviceCondition::Out { held, since } => {
                let since = since.map(|since| format!(" for {}", span(since))).unwrap_or_default();
                let why = if *held { ", as an operator asked" } else { "" };
                format!("out{since}{why}")
            }
            DeviceCondition::CatchingUp(healing) => format!("catching up: {}", healing.words()),
            DeviceCondition::Rebuilding(healing) => format!("rebuilding: {}", healing.words()),
            DeviceCondition::AwaitingDisk { disk, refused: None } => format!("out, awaiting disk {disk}"),
            DeviceCondition::AwaitingDisk { disk, refused: Some(why) } => {
                format!("out, awaiting disk {disk} (what is there is refused: {why})")
            }
            DeviceCondition::Refused(why) => format!("refused: {why}"),
            DeviceCondition::Healthy | DeviceCondition::Silent | DeviceCondition::Unknown => self.name().to_string(),
        }
    }
}

impl Healing {
    fn of(report: &DeviceReport, absent: Option<u64>, known: Known) -> Healing {
        let said = report.healing.clone().unwrap_or_default();
        // What the device says is absent is all that it lacks, but for what it missed; its recovery coordinator looks at a part at a time.
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

    /// How much of it is done, in hundredths; 100 only when nothing is left.
    pub fn percent(&self) -> Option<u64> {
        let left = self.left?;
        let all = u128::from(self.done) + u128::from(left);
        Some((u128::from(self.done) * 100).checked_div(all).unwrap_or(100) as u64)
    }

    /// How long it will take, if it goes on like this.
    pub fn time_left(&self) -> Option<Duration> {
        let rate = self.bytes_per_second.filter(|rate| *rate > 0 && !self.paused)?;
        self.left.map(|left| Duration::from_secs(left.div_ceil(rate)))
    }

    /// In words.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        match (self.percent(), self.left) {
            (Some(percent), Some(left)) => parts.push(format!("{percent} %, {} to go", format_size(left))),
            _ => parts.push("finding out what it lacks".to_string()),
        }
        match self.time_left() {
            _ if self.paused => parts.push("paused".to_string()),
            _ if self.alone => parts.push("no host helps".to_string()),
            Some(time) => parts.push(format!("{} left", span(time))),
            None => {}
        }
        if self.lost > 0 {
            parts.push(format!("{} blocks are lost", self.lost));
        }
        parts.join(", ")
    }
}

/// A pace in words.
pub fn throttle_words(throttle: &ThrottleReport) -> String {
    let rate = format!("at most {}/s", format_size(throttle.bytes_per_second));
    let limit = match (throttle.share, throttle.bytes_per_second) {
        (0, 0) => "as fast as users leave room for".to_string(),
        (0, _) => rate,
        (100.., 0) => "as fast as it goes, whatever users feel".to_string(),
        (100.., _) => format!("as fast as it goes, whatever users feel, {rate}"),
        (share, 0) => format!("with {share} % of the time while users are at work"),
        (share, _) => format!("with {share} % of the time while users are at work, {rate}"),
    };
    if throttle.paused { format!("paused ({limit} when it goes on)") } else { limit }
}

/// A span of time as people say it.
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
    fn a_device_is_told_of_as_it_is() {
        let stands = |member_state| DeviceReport { member_state, ..DeviceReport::default() };
        assert_eq!(words(stands(In)), "healthy");
        assert_eq!(DeviceCondition::of(Some(&stands(In)), known(&DeviceHealth::NoLease, 0)), DeviceCondition::Silent);
        assert_eq!(DeviceCondition::of(None, known(&DeviceHealth::Serving, 0)), DeviceCondition::Unknown);
        assert_eq!(
            words(DeviceReport { leaves_to: Some("x".into()), ..stands(In) }).split(',').next(),
            Some("healthy")
        );
        assert_eq!(words(stands(Unavailable)), "away: the others can't do without it");
        let empty = Known { total: 0, ..known(&DeviceHealth::NoLease, 0) };
        assert_eq!(
            DeviceCondition::of(Some(&stands(Unavailable)), empty),
            DeviceCondition::Silent,
            "no redundant volume lies there"
        );
        assert_eq!(words(stands(Out)), "out");
        assert_eq!(words(DeviceReport { changed: Some(60_000), ..stands(Out) }), "out for 4 min");
        let held = DeviceReport { held: true, changed: Some(290_000), ..stands(Out) };
        assert_eq!(words(held), "out for 10 s, as an operator asked");
        assert_eq!(words(DeviceReport { awaits: Some("7f".into()), ..stands(Out) }), "out, awaiting disk 7f");
        assert!(words(DeviceReport { outdated: Some(0), ..stands(Out) }).starts_with("refused: its disk is empty"));
    }

    #[test]
    fn how_far_a_returning_device_is_follows_from_what_it_lacks() {
        let healing = HealingReport { done: 30 << 20, left: 10 << 20, lost: 0, bytes_per_second: Some(1 << 20) };
        let returning =
            DeviceReport { member_state: Returning, recovery_coordinator: Some(3), ..DeviceReport::default() };
        let helped = DeviceReport { healing: Some(healing), ..returning.clone() };
        assert_eq!(words(helped.clone()), "catching up: 75 %, 10 MiB to go, 10 s left");
        assert_eq!(words(returning.clone()), "catching up: finding out what it lacks");
        assert_eq!(words(DeviceReport { blank: true, ..returning.clone() }), "rebuilding: finding out what it lacks");
        // The device knows best what is absent there.
        let serving = DeviceHealth::Serving;
        let rebuilt = DeviceCondition::of(Some(&helped), known(&serving, 250 << 20));
        assert_eq!(rebuilt.words(), "rebuilding: 75 %, 250 MiB to go, 4 min left");
        let paused = Known {
            throttle: ThrottleReport { paused: true, ..ThrottleReport::default() },
            ..known(&serving, 250 << 20)
        };
        assert_eq!(DeviceCondition::of(Some(&helped), paused).words(), "rebuilding: 75 %, 250 MiB to go, paused");
        let alone = DeviceReport { recovery_coordinator: None, ..helped };
        assert_eq!(words(alone), "catching up: 75 %, 10 MiB to go, no host helps");
        let nearly = Healing { done: 999, left: Some(1), lost: 2, ..Healing::default() };
        assert_eq!(nearly.words(), "99 %, 1 B to go, 2 blocks are lost");
        assert_eq!(Healing { left: Some(0), ..Healing::default() }.percent(), Some(100));
    }
}
