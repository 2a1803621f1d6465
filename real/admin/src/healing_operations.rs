//! How fast devices are resynchronised and volumes scrubbed, and what there is to resynchronise.

use crate::array::Array;
use crate::device_condition::DeviceCondition;
use crate::failure::Failure;
use crate::health::MonitorHealth;
use crate::snapshot::ArraySnapshot;
use braid_base::DeviceId;
use braid_control::{Moment, MonitorEntry};
use braid_machine::HostRequest;
use braid_session::{Session, require_up};
use braid_wire::{Administration, RecoveryThrottle};
use std::time::{Duration, Instant};

pub use braid_control::ThrottleReport;

/// How long a monitor that has just been started may take to say how things are.
const MONITOR_WAIT: Duration = Duration::from_secs(3);
/// The wait before another look.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// The monitor shows within half a second what is so.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);
/// The wait before another look whether it does.
const SHOWN_PAUSE: Duration = Duration::from_millis(20);

/// The throttle before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceChange {
    /// What it was.
    pub before: ThrottleReport,
    /// What it is.
    pub throttle: ThrottleReport,
}

impl Array {
    /// Changes how fast devices are resynchronised and volumes scrubbed, from what it is. Ends when the status shows it. Errors: `not-up`,
    /// `no-monitor`.
    pub async fn set_pace(&self, change: impl FnOnce(&mut ThrottleReport)) -> Result<PaceChange, Failure> {
        let folder = self.folder();
        require_up(folder)?;
        let before = self.await_monitor().await?.report.throttle;
        let mut throttle = before;
        change(&mut throttle);
        let session = Session::start(folder, "rebuild").await?;
        let ThrottleReport { bytes_per_second, share, paused } = throttle;
        let request = Administration::RecoveryThrottle(RecoveryThrottle { bytes_per_second, share, paused });
        let outcome = session.client().call(HostRequest::Administer { request }).await;
        session.leave();
        outcome?;
        // The next change goes by what is shown.
        let begun = Instant::now();
        let is_shown =
            || Ok::<_, Failure>(folder.monitor(&Moment::now())?.is_none_or(|it| it.report.throttle == throttle));
        while begun.elapsed() < SHOWN_WITHIN && !is_shown()? {
            tokio::time::sleep(SHOWN_PAUSE).await;
        }
        Ok(PaceChange { before, throttle })
    }

    async fn await_monitor(&self) -> Result<MonitorEntry, Failure> {
        let begun = Instant::now();
        loop {
            if let Some(monitor) = self.folder().monitor(&Moment::now())? {
                return Ok(monitor);
            }
            if begun.elapsed() > MONITOR_WAIT {
                let message = "the array's monitor is not running, which alone knows the pace";
                let hint = "`braid status` shows why; `braid up` starts it";
                return Err(Failure::unreachable("no-monitor", message).hint(hint));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

impl ArraySnapshot {
    /// Fails unless the monitor serves: how devices are is not known otherwise.
    pub fn require_monitor(&self) -> Result<(), Failure> {
        match self.monitor_health() {
            MonitorHealth::Serving => Ok(()),
            other => {
                let message = format!("how devices are is not known: the array's monitor is {}", other.words());
                Err(Failure::unreachable("no-monitor", message).hint("`braid status` shows it; `braid up` starts it"))
            }
        }
    }

    /// Each device that lacks something, and how it is.
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
