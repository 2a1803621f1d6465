//! The recovery throttle, and the devices that must be resynchronised.

use crate::array::Array;
use crate::device_condition::DeviceCondition;
use crate::failure::Failure;
use crate::health::MonitorHealth;
use crate::snapshot::ArraySnapshot;
use crate::waiting::await_until;
use braid_base::DeviceId;
use braid_control::MonitorEntry;
use braid_machine::ArrayRequest;
use braid_session::{Session, require_up};
use braid_wire::{Administration, RecoveryThrottle};
use std::time::Duration;

pub use braid_control::ThrottleReport;

/// How long a monitor that has just been started may take to publish its report.
const MONITOR_WAIT: Duration = Duration::from_secs(3);
/// The monitor publishes a change within half a second.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);

/// The throttle before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleChange {
    /// The previous throttle.
    pub before: ThrottleReport,
    /// The new throttle.
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
