//! Errors of calls.

use braid_base::DeviceId;
use braid_description::DescriptionError;
use braid_machine::HostError;
use braid_recipes::fencing_token::Unguardable;
use braid_session::SessionError;
use braid_wire::{ObjectFailure, ObjectRefusal};
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed.
///
/// If [`Error::may_have_happened`], the outcome of the call is unknown; after all other errors, the call has had no effect. For a write to
/// a volume that distinction does not apply: see [`Volume::write`](crate::Volume::write).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request, or one of its commands, is refused for this reason.
    #[error(transparent)]
    Object(ObjectFailure),
    /// The device has no free space. Removing objects still works.
    #[error("{}", ObjectFailure::NoSpace)]
    NoSpace,
    /// The content that the array had there is damaged.
    #[error("the content that the array has there is damaged")]
    Lost,
    /// The device or this host had too many operations in progress for the whole deadline.
    #[error("too many operations are in progress: try again later")]
    Busy,
    /// The volume is an attribute volume, and cannot be opened as a volume of blocks.
    #[error("the volume is an attribute volume: it contains attributes of objects, and no blocks")]
    IsAnAttributeVolume,
    /// The outcome is unknown: the request may have been executed or not. A request to objects on a device can still be executed only until
    /// the next request of this host is answered there. A write to a volume or attribute volume may still take effect as long as its
    /// devices are silent.
    #[error("no answer within {:?}: the request may have been executed or not", rounded(*waited))]
    TimedOut {
        /// The time since the call began.
        waited: Duration,
    },
    /// The array considered this host dead, since it was silent for too long, and has fenced it for good. Connect again. The outcome of
    /// calls that were in progress is unknown.
    #[error("the array has fenced this host, which was silent for too long: connect again")]
    Fenced,
    /// The connection was closed by [`Array::close`](crate::Array::close).
    #[error("the connection to the array is closed")]
    Closed,
    /// The array has no such device.
    #[error("the array has no device {device}")]
    NoSuchDevice {
        /// The number of the device, as given.
        device: u16,
    },
    /// The array has no volume of this name (any more).
    #[error("there is no such volume")]
    NoSuchVolume,
    /// A [guarded](crate::Request::guarded) request was refused: its sender does not hold the guard any more. It has had no effect.
    #[error("too late: another client holds it now, and the request has had no effect")]
    TooLate {
        /// The token in the fence, if it contains one; 0 if there is no holder.
        token: Option<u64>,
    },
    /// The request cannot be guarded.
    #[error(transparent)]
    Unguardable(Unguardable),
    /// The range is not within the volume, or can't be locked.
    #[error("the range is not within the volume, is empty, or ends too high")]
    OutOfRange,
    /// Other programs hold some of a range that was to be locked. They have not given it up in time.
    #[error("other programs hold some of the range, and have not given it up within {:?}", rounded(*waited))]
    RangeTaken {
        /// The time since the call began.
        waited: Duration,
    },
    /// The lock of a range was lost: its lock server restarted, or did not answer for most of a lease. Another host may have the range.
    #[error(
        "the lock was lost: its lock server restarted, or did not answer for most of a lease, and another host may have the range"
    )]
    LockLost,
    /// So many devices are unavailable that the operation is impossible. The outcome of a write is unknown.
    #[error("too many devices are unavailable: {}", list(.devices))]
    Unavailable {
        /// The devices whose return would make it possible.
        devices: Vec<u16>,
    },
    /// The array's folder, or a host on it, cannot be used.
    #[error(transparent)]
    Array(Arc<SessionError>),
    /// Any other error of the host.
    #[error(transparent)]
    Host(HostError),
    /// The device sent an answer that does not fit the request: it runs another release, or is defective. The outcome is unknown.
    #[error("the device sent an answer that does not fit the request")]
    ProtocolError,
}

/// Why a [`Request`](crate::Request) failed, and which of its commands.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{error}", .command.map(|command| format!("command {command}: ")).unwrap_or_default())]
pub struct RequestError {
    /// The index of the command that failed, from 0; none if the failure concerns no single command.
    pub command: Option<usize>,
    /// The reason.
    pub error: Error,
}

impl Error {
    pub(crate) fn of_device(device: DeviceId) -> Error {
        Error::NoSuchDevice { device: device.0 }
    }

    /// True if the outcome is unknown: a request to objects may have been executed or not.
    pub fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Error::TimedOut { .. } | Error::Fenced | Error::Closed | Error::Unavailable { .. } | Error::ProtocolError
        )
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        error.error
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> RequestError {
        RequestError { command: None, error }
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Error {
        match error {
            SessionError::Host(error) => Error::from(error),
            SessionError::Description(DescriptionError::NoSuchVolume { .. }) => Error::NoSuchVolume,
            error => Error::Array(Arc::new(error)),
        }
    }
}

impl From<ObjectFailure> for Error {
    /// Volumes have three of these failures, too.
    fn from(failure: ObjectFailure) -> Error {
        match failure {
            ObjectFailure::NoSpace => Error::NoSpace,
            ObjectFailure::Lost => Error::Lost,
            ObjectFailure::Busy => Error::Busy,
            failure => Error::Object(failure),
        }
    }
}

impl From<HostError> for RequestError {
    fn from(error: HostError) -> RequestError {
        match error {
            HostError::Objects(ObjectRefusal { command, failure }) => {
                RequestError { command: Some(command as usize), error: failure.into() }
            }
            error => RequestError { command: None, error: error.into() },
        }
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Error {
        match error {
            HostError::Objects(refusal) => refusal.failure.into(),
            HostError::TimedOut { waited, .. } | HostError::Contended { waited } => Error::TimedOut { waited },
            HostError::Fenced => Error::Fenced,
            HostError::Stopped | HostError::Disconnecting => Error::Closed,
            HostError::NoSuchVolume => Error::NoSuchVolume,
            HostError::NoSuchDevice { device } => Error::of_device(device),
            HostError::OutOfRange => Error::OutOfRange,
            HostError::RangeTaken { waited } => Error::RangeTaken { waited },
            HostError::LockLost => Error::LockLost,
            HostError::Busy => Error::Busy,
            HostError::Unavailable { devices } => {
                Error::Unavailable { devices: devices.into_iter().map(|device| device.0).collect() }
            }
            HostError::Device { failure: braid_wire::Failure::NoSpace, .. } => Error::NoSpace,
            HostError::Device { failure: braid_wire::Failure::Lost { .. }, .. } => Error::Lost,
            error => Error::Host(error),
        }
    }
}

/// Rounded for display: to a tenth of a second, or to a millisecond below one second.
fn rounded(span: Duration) -> Duration {
    if span < Duration::from_secs(1) {
        return Duration::from_millis(span.as_millis() as u64);
    }
    Duration::from_millis((span.as_millis() as u64 + 50) / 100 * 100)
}

fn list(devices: &[u16]) -> String {
    devices.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
