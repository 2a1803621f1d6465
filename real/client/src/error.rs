//! What can go wrong.

use braid_base::DeviceId;
use braid_machine::HostError;
use braid_recipes::fence::Unguardable;
use braid_session::SessionError;
use braid_wire::{ObjectFailure, ObjectRefusal};
use std::sync::Arc;
use std::time::Duration;

/// Why something was not done, or may not have been.
///
/// Where [`Error::may_have_happened`], it is not known whether what was asked was done. All others mean: nothing of it was. Of a write to a volume
/// that is not known with any error: see [`Volume::write`](crate::Volume::write).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It was never made, or is removed.
    #[error("there is no object of that number")]
    NoSuchObject,
    /// One that was to be made.
    #[error("there is an object of that number already")]
    ObjectExists,
    /// The device chooses such numbers.
    #[error("{}", ObjectFailure::NumberTooHigh)]
    NumberTooHigh,
    /// Of an attribute to which something was to be added.
    #[error("the attribute has {length} bytes, and is no number of 8")]
    NotANumber {
        /// Of its value.
        length: u32,
    },
    /// The sum is no signed number of 64 bits.
    #[error("the sum does not fit into a signed number of 64 bits")]
    Overflow,
    /// Of an attribute.
    #[error("a value can have 65536 bytes at most, this one has {length}")]
    ValueTooLong {
        /// Of the value.
        length: u32,
    },
    /// The device's pages can't be set.
    #[error("page {page:#x} belongs to the device: pages below 0xf0000000 are yours")]
    ReservedPage {
        /// Which.
        page: u32,
    },
    /// Of a write or truncate.
    #[error("an object can't be that long")]
    TooLong,
    /// Of one truncate in a [`Request`](crate::Request); [`Object::truncate`](crate::Object::truncate) goes in steps.
    #[error("a truncate cuts off 4 MiB of data at most: do it in steps")]
    CutsTooMuch,
    /// Removing still works.
    #[error("the device is full")]
    NoSpace,
    /// What the array had there is damaged.
    #[error("what the device holds there is damaged")]
    Lost,
    /// Too much is under way there, or here, and was for as long as the deadline allows.
    #[error("too much is under way: try again later")]
    Busy,
    /// Too many commands, attributes or bytes for one request or its answer, or things that don't go together.
    #[error("the request is not one that a device takes: too much at once, or what does not go together")]
    Malformed,
    /// Of a request to an attribute volume.
    #[error("{}", ObjectFailure::NotTogether)]
    NotTogether,
    /// Of a request to an attribute volume.
    #[error("{}", ObjectFailure::NotInAttributeVolume)]
    NotInAttributeVolume,
    /// Of a request to a volume.
    #[error("{}", ObjectFailure::NotAnAttributeVolume)]
    NotAnAttributeVolume,
    /// Of a volume.
    #[error("the volume is an attribute volume: it keeps attributes of objects, and no blocks")]
    IsAnAttributeVolume,
    /// It may have been done or not. Of a request to objects on a device: once the next request of this host is answered there, it has been
    /// done by then, or never will be. A write to a volume or attribute volume may yet take effect as long as its devices are silent.
    #[error("no answer within {:?}: what was asked may have been done or not", rounded(*waited))]
    TimedOut {
        /// So long.
        waited: Duration,
    },
    /// The array took this host for dead, since it was silent for too long, and keeps it out for good. Connect anew; what was under way
    /// may have been done or not.
    #[error("the array took this host for dead and keeps it out: connect anew")]
    Fenced,
    /// By [`Array::close`](crate::Array::close).
    #[error("the connection to the array is closed")]
    Closed,
    /// The array has no such device.
    #[error("the array has no device {device}")]
    NoSuchDevice {
        /// As asked.
        device: u16,
    },
    /// The array has none of this name, or has no longer.
    #[error("there is no such volume")]
    NoSuchVolume,
    /// Of a [guarded](crate::Request::guarded) request: its sender no longer holds what guards it.
    #[error("too late: another client holds it now, and the request has had no effect")]
    TooLate {
        /// The token that is there now, if that is one; 0: nobody holds it.
        token: Option<u64>,
    },
    /// Of a request that was to be guarded.
    #[error(transparent)]
    Unguardable(Unguardable),
    /// Of a volume.
    #[error("the range is not within the volume")]
    OutOfRange,
    /// So many devices are unavailable that what was asked can't be done. What was being written may have been done or not.
    #[error("too many devices are unavailable: {}", list(.devices))]
    Unavailable {
        /// Those whose return would help.
        devices: Vec<u16>,
    },
    /// The array's folder, or a host on it, can't be used.
    #[error(transparent)]
    Array(Arc<SessionError>),
    /// Anything else that a host may say.
    #[error(transparent)]
    Host(HostError),
    /// The device speaks, but not of what was asked: it is of another release, or wrong. It may have been done or not.
    #[error("the device answered something else than what was asked")]
    ProtocolError,
}

/// Why nothing of a [`Request`](crate::Request) was done, or may not have been.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{error}", .command.map(|command| format!("command {command}: ")).unwrap_or_default())]
pub struct RequestError {
    /// Which command failed, from 0; none if it was not a command that did.
    pub command: Option<usize>,
    /// Why.
    pub error: Error,
}

impl Error {
    pub(crate) fn of_device(device: DeviceId) -> Error {
        Error::NoSuchDevice { device: device.0 }
    }

    /// True if what was asked of objects may have been done or not.
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
            SessionError::NoSuchVolume { .. } => Error::NoSuchVolume,
            error => Error::Array(Arc::new(error)),
        }
    }
}

impl From<ObjectFailure> for Error {
    fn from(failure: ObjectFailure) -> Error {
        match failure {
            ObjectFailure::NoSuchObject => Error::NoSuchObject,
            ObjectFailure::ObjectExists => Error::ObjectExists,
            ObjectFailure::NotANumber { length } => Error::NotANumber { length },
            ObjectFailure::Overflow => Error::Overflow,
            ObjectFailure::NumberTooHigh => Error::NumberTooHigh,
            ObjectFailure::ValueTooLong { length } => Error::ValueTooLong { length },
            ObjectFailure::ReservedPage { page } => Error::ReservedPage { page },
            ObjectFailure::TooLong => Error::TooLong,
            ObjectFailure::CutsTooMuch => Error::CutsTooMuch,
            ObjectFailure::NoSpace => Error::NoSpace,
            ObjectFailure::Lost => Error::Lost,
            ObjectFailure::Busy => Error::Busy,
            ObjectFailure::Malformed => Error::Malformed,
            ObjectFailure::NotTogether => Error::NotTogether,
            ObjectFailure::NotInAttributeVolume => Error::NotInAttributeVolume,
            ObjectFailure::NotAnAttributeVolume => Error::NotAnAttributeVolume,
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

/// As people say it: to a tenth of a second.
fn rounded(span: Duration) -> Duration {
    if span < Duration::from_secs(1) {
        return Duration::from_millis(span.as_millis() as u64);
    }
    Duration::from_millis((span.as_millis() as u64 + 50) / 100 * 100)
}

fn list(devices: &[u16]) -> String {
    devices.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
