//! Why a request to a host failed.

use crate::FilesError;
use braid_base::{DeviceId, LockServerId};
use braid_wire::{AdminError, Failure, FileError, ObjectFailure, ObjectRefusal, OwnershipRefused, Rejection};
use std::time::Duration;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("there is no such volume")]
    NoSuchVolume,
    #[error("the array has no device {device}")]
    NoSuchDevice {
        /// The device of the request.
        device: DeviceId,
    },
    #[error("the volume is not migrating")]
    NotMoving,
    /// The range reaches beyond the volume's end, or is longer than one transaction may be.
    #[error("the range is not within the volume")]
    OutOfRange,
    /// Devices did not answer in time. A write may or may not have taken effect: read the blocks to find out.
    #[error("{} did not answer within {}", names(devices), seconds(*waited))]
    TimedOut {
        /// The devices that did not answer.
        devices: Vec<DeviceId>,
        /// The time-out.
        waited: Duration,
    },
    #[error("other hosts were ahead at every attempt for {waited:?}: try again later")]
    Contended {
        /// The time-out.
        waited: Duration,
    },
    /// A lock server did not answer in time. Nothing was written.
    #[error("lock server {server} did not answer within {}: is it running?", seconds(*waited))]
    LockServerSilent {
        /// The lock server that did not answer.
        server: LockServerId,
        /// The time-out.
        waited: Duration,
    },
    #[error("lock server {server}: {rejection}")]
    LockServerRejected { server: LockServerId, rejection: Rejection },
    #[error("this needs a lock server, and the array has none: start one with `braid lockd`")]
    NoLockServer,
    #[error("other programs hold some of the range, and have not given it up within {}", seconds(*waited))]
    RangeTaken {
        /// The time that was allowed.
        waited: Duration,
    },
    #[error(
        "the lock was lost: its lock server restarted, or did not answer for most of a lease, and another host may have the range"
    )]
    LockLost,
    #[error("there is no such lock")]
    NoSuchLock,
    #[error("the array's monitor did not answer within {}: is it running?", seconds(*waited))]
    MonitorSilent {
        /// The time-out.
        waited: Duration,
    },
    #[error("this array has no monitor, so that no host can be fenced")]
    NoMonitor,
    /// The monitor refuses the change.
    #[error(transparent)]
    AdminError(AdminError),
    /// The monitor refuses to change the ownership of a file system.
    #[error(transparent)]
    Ownership(OwnershipRefused),
    #[error("device {device}: {failure}")]
    Device { device: DeviceId, failure: Failure },
    /// A device, or an attribute volume, refuses an object request. Nothing of it has happened.
    #[error("{0}")]
    Objects(ObjectRefusal),
    /// An operation on a file system failed.
    #[error(transparent)]
    Files(FilesError),
    /// A device's clock is too far behind.
    #[error("{}", apart(*device, *ahead, *limit, *cause))]
    ClockApart {
        device: DeviceId,
        /// How far its clock is behind.
        ahead: Duration,
        /// The most that is tolerated.
        limit: Duration,
        /// What it is behind.
        cause: ClockCause,
    },
    /// Too many devices are unavailable for this request; the rest of the volume is served as usual. A write that was under way when the
    /// devices failed may or may not have taken effect.
    #[error("too many devices are unavailable here: {} must come back", names(devices))]
    Unavailable {
        /// The devices whose return would make the request possible.
        devices: Vec<DeviceId>,
    },
    #[error("this host was fenced because its lease expired: restart it")]
    Fenced,
    /// A device does not serve this host.
    #[error("device {device}: {rejection}")]
    Rejected { device: DeviceId, rejection: Rejection },
    /// The user of the request is gone. A write has taken effect or never will.
    #[error("the client that asked for it is gone")]
    Abandoned,
    #[error("the host has too many requests in flight: try again later")]
    Busy,
    /// The host is disconnecting, and begins nothing any more. Nothing of this request has happened.
    #[error("the host is disconnecting: start it again")]
    Disconnecting,
    #[error("the host has stopped: start it again")]
    Stopped,
}

/// Why a stamp is too far ahead of a device's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockCause {
    /// The clock of the host that took the stamp is ahead.
    Host,
    /// Other devices have accepted such stamps, because some clock was ahead earlier, and this device's clock is behind them.
    Stamps,
}

impl HostError {
    /// True if a device, an attribute volume or a file system has no space left for what was to be written.
    pub fn is_want_of_space(&self) -> bool {
        match self {
            HostError::Device { failure, .. } => *failure == Failure::NoSpace,
            HostError::Objects(refusal) => refusal.failure == ObjectFailure::NoSpace,
            HostError::Files(FilesError::Refused(error)) => *error == FileError::NoSpace,
            _ => false,
        }
    }
}

/// The message for [`HostError::ClockApart`].
fn apart(device: DeviceId, ahead: Duration, limit: Duration, cause: ClockCause) -> String {
    let (ahead, limit) = (rough(ahead), rough(limit));
    match cause {
        ClockCause::Host => format!(
            "the clock of this host is {ahead} ahead of the clock of device {device} (at most {limit} is tolerated): correct the wrong one (is the time service running?)"
        ),
        ClockCause::Stamps => format!(
            "the clock of device {device} is {ahead} behind the array's stamps (at most {limit} is tolerated), and the device has not heard of these from the monitor: correct its clock (is the time service running?)"
        ),
    }
}

/// A duration in the largest unit of which it has at least two.
pub fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    let of = |unit: u64, name: &str| format!("{} {name}", seconds / unit);
    match seconds {
        0..2 => format!("{} ms", span.as_millis()),
        2..120 => of(1, "s"),
        120..7_200 => of(60, "minutes"),
        7_200..172_800 => of(3_600, "hours"),
        _ => of(86_400, "days"),
    }
}

/// A time-out in seconds, or in milliseconds below one second.
fn seconds(waited: Duration) -> String {
    match waited.as_secs() {
        0 => format!("{} ms", waited.as_millis()),
        _ => format!("{:.0} s", waited.as_secs_f64()),
    }
}

fn names(devices: &[DeviceId]) -> String {
    let mut text = String::new();
    for (index, device) in devices.iter().enumerate() {
        let joint = match index {
            0 if devices.len() > 1 => "devices ",
            0 => "device ",
            _ => ", ",
        };
        text.push_str(joint);
        text.push_str(&device.to_string());
    }
    text
}
