//! Requests that front ends and workloads make to a host, and their outcomes.

use crate::{FilesError, FilesRequest, FilesSuccess};
use braid_base::{
    BlockRange, DeviceId, FileSystemId, Generation, LockServerId, ObjectId, Ownership, TransactionId, VolumeId,
};
use braid_layout::{StripeRows, VolumeDescription};
use braid_wire::{
    AdminError, Administration, AttributeName, CommandResult, Failure, Managed, ObjectRefusal, ObjectRequest,
    OwnershipRefused, OwnershipRequest, Rejection, Task,
};
use bytes::Bytes;
use std::ops::Range;
use std::time::Duration;

/// Identifies a request of a front end to its host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// A request to a host. Requests that read or write a volume are one storage transaction each, with a `length` of at most
/// `limits::TRANSACTION_BYTES_MAX` if data is transferred; [`Scrub`](HostRequest::Scrub) and [`Migrate`](HostRequest::Migrate) consist of
/// many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Makes a volume known to the host, which can then read and write it. Replaces an earlier description.
    AdoptVolume {
        /// The description, from the control plane.
        volume: VolumeDescription,
    },
    /// Forgets a volume.
    DropVolume { volume: VolumeId },
    /// To a monitor: the control plane has given out the generations up to this one. A host does not need to know.
    NoteGenerations { last: Generation },
    /// A hostread: `length` bytes at `offset`.
    Read {
        volume: VolumeId,
        /// The first byte.
        offset: u64,
        /// In bytes.
        length: usize,
        patience: Patience,
    },
    /// A hostwrite of these bytes at `offset`. It is durable when answered.
    Write {
        volume: VolumeId,
        /// The first byte.
        offset: u64,
        /// The content, as one buffer.
        data: Bytes,
        patience: Patience,
    },
    /// A hostwrite of zeros, which gives whole blocks back.
    Zero {
        volume: VolumeId,
        /// The first byte.
        offset: u64,
        /// In bytes.
        length: u64,
        patience: Patience,
    },
    /// Which blocks of a volume have content.
    Allocation {
        volume: VolumeId,
        /// In blocks of the volume.
        range: BlockRange,
        patience: Patience,
    },
    /// Ends when everything answered before is durable.
    Flush { volume: VolumeId },
    /// Compares the parity of a stripe with its data.
    Check {
        volume: VolumeId,
        /// The number of the stripe.
        stripe: u64,
    },
    /// Compares the parity of some rows of a stripe with their data.
    CheckRows { volume: VolumeId, rows: StripeRows },
    /// A scrub: reads all rows of a volume, to find blocks that can't be read and redundancy that does not match. It is answered when all
    /// of the volume has been read.
    Scrub {
        volume: VolumeId,
        /// The stripes to scrub. Stripes beyond the volume's end do not exist.
        stripes: Range<u64>,
        /// Whether to reconstruct lost blocks from their rows, and write them again.
        repair: bool,
        /// Whether to recompute redundancy that does not match, from the data.
        recompute: bool,
    },
    /// Reads blocks by reconstruction from the other units of their stripe, as if the unit's device were lost.
    Reconstruct {
        volume: VolumeId,
        /// The first byte, a multiple of 4096.
        offset: u64,
        /// In bytes, a multiple of 4096, within one stripe unit.
        length: usize,
    },
    /// Resynchronises some blocks of a returning device, if it holds any of them or of their parity.
    Restore {
        volume: VolumeId,
        /// The returning device.
        device: DeviceId,
        /// Blocks of the volume, within the bounds of one transaction.
        blocks: BlockRange,
        /// Whether to mark blocks of the device as lost if too much of their row is lost to restore them.
        salvage: bool,
        /// For a volume that is migrating: whether to restore its new location rather than its old one.
        target: bool,
    },
    /// Copies some blocks of a migrating volume to its new location.
    Copy {
        volume: VolumeId,
        /// Blocks of the volume, within the bounds of one transaction.
        blocks: BlockRange,
    },
    /// A migration: copies all content of a migrating volume to its new location. It is answered when all has been copied.
    Migrate {
        volume: VolumeId,
        /// The block of the volume from which to copy. All blocks before it were copied already.
        from: u64,
        /// Bytes a second at most; 0: as fast as other background jobs.
        bytes_per_second: u64,
    },
    /// Ends all migrations of a volume on this host at the block that they have reached.
    StopMigrating { volume: VolumeId },
    /// A cross-check: finds out, from linkage records alone, whether an interrupted hostwrite is whole in some rows.
    CrossCheck {
        volume: VolumeId,
        rows: StripeRows,
        /// The transaction of the hostwrite.
        transaction: TransactionId,
        /// Whether the hostwrite is known to have written there. If not, it may also have had no effect at all.
        known: bool,
    },
    /// A parity resync: recomputes the redundancy of some rows from their data.
    Recompute { volume: VolumeId, rows: StripeRows },
    /// Executes commands on a device's objects, once or not at all.
    Objects {
        device: DeviceId,
        request: ObjectRequest,
        /// The time-out, at most the host's own.
        patience: Duration,
    },
    /// Waits until an attribute has another value.
    Await {
        device: DeviceId,
        object: ObjectId,
        name: AttributeName,
        /// The value that is known already.
        seen: Bytes,
        /// The time-out. When it has passed, the request is answered with the present value.
        patience: Duration,
    },
    /// Executes commands on the objects of an attribute volume, as one storage transaction (`docs/objects.md`).
    AttributeVolume {
        volume: VolumeId,
        request: ObjectRequest,
        /// The time-out, at most the host's own.
        patience: Duration,
    },
    /// An operation on a file system. It is served by the client of that file system (`braid_files`), which wraps the host.
    Files { file_system: FileSystemId, request: FilesRequest },
    /// The user of these operations is gone. Operations that have sent no write end at once; the others make no further attempt. Each of
    /// them is answered when it can have no effect any more, at the latest at its time-out; one of endless patience gets the host's
    /// time-out now. Later operations that touch blocks which one of them writes wait for that. This request itself ends at once.
    Abandon {
        /// The operations. Those that are answered already, or are no storage transactions, are ignored.
        ops: Vec<OpId>,
    },
    /// Graceful disconnect: when everything under way has ended, devices drop what they remember of this host's transactions and
    /// requests, and lock servers get back its cached locks. It ends when they have confirmed that, or at its time-out. Later requests
    /// that would begin something are refused with [`HostError::Disconnecting`]. So are operations of endless patience that have sent no
    /// write; the others make no further attempt, as if they were abandoned.
    Disconnect,
    /// Fences hosts. Ends when no device serves them any more.
    Fence {
        /// Every generation below this one…
        below: Generation,
        /// …except these, which are alive.
        except: Vec<Generation>,
    },
    /// Passes an operator's change on to the monitor. Ends when the change is durable, or refused.
    Administer { request: Administration },
    /// Passes a request about the ownership of a file system on to the monitor. A take-over ends when the previous owner can do nothing
    /// any more (`docs/membership.md`). If it fails with [`HostError::MonitorSilent`], it may still happen: the same request, made again
    /// by the same host, tells.
    Ownership { file_system: FileSystemId, request: OwnershipRequest },
    /// Passes a task on to one device.
    Manage { device: DeviceId, task: Task },
}

/// How long a request waits that reads, writes or zeroes a volume, or asks for its allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// The host's time-out. When it has passed, or too many devices are unavailable, the request fails, and the outcome of a write may be
    /// unknown.
    #[default]
    Host,
    /// Until devices, lock servers and the monitor are back, however long that takes. The request is answered by success, by
    /// [`HostError::Fenced`], or by an error after which nothing has happened and nothing will. It never fails because something is
    /// missing or busy: not by `TimedOut`, `Unavailable`, `Contended`, `LockServerSilent`, `LockServerRejected`, `Rejected` or
    /// `ClockApart`. One exception: a write of endless patience that was abandoned has an end like any other.
    ///
    /// A write may be written twice, if all its devices were out one after the other before its outcome was known. A write of another host
    /// in between is then overwritten. So its user must be the only one that writes there, or hold a lock.
    Endless,
}

impl HostRequest {
    /// How long the request waits.
    pub fn patience(&self) -> Patience {
        match self {
            HostRequest::Read { patience, .. }
            | HostRequest::Write { patience, .. }
            | HostRequest::Zero { patience, .. }
            | HostRequest::Allocation { patience, .. } => *patience,
            _ => Patience::Host,
        }
    }

    /// The volume whose blocks the request reads or writes; none if it does neither, or does so only by further requests.
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            HostRequest::Read { volume, .. }
            | HostRequest::Write { volume, .. }
            | HostRequest::Zero { volume, .. }
            | HostRequest::Allocation { volume, .. }
            | HostRequest::Check { volume, .. }
            | HostRequest::CheckRows { volume, .. }
            | HostRequest::Reconstruct { volume, .. }
            // A scrub is requested for a few stripes at a time, so that the volume can be put on hold in between.
            | HostRequest::Scrub { volume, .. }
            | HostRequest::Restore { volume, .. }
            | HostRequest::Copy { volume, .. }
            | HostRequest::CrossCheck { volume, .. }
            | HostRequest::AttributeVolume { volume, .. }
            | HostRequest::Recompute { volume, .. } => Some(*volume),
            HostRequest::AdoptVolume { .. }
            | HostRequest::DropVolume { .. }
            | HostRequest::NoteGenerations { .. }
            // Every write is durable when it is answered: a flush starts nothing.
            | HostRequest::Flush { .. }
            | HostRequest::Objects { .. }
            | HostRequest::Await { .. }
            | HostRequest::Files { .. }
            | HostRequest::Disconnect
            | HostRequest::Abandon { .. }
            | HostRequest::Fence { .. }
            // A migration takes long, and consists of the host's own requests.
            | HostRequest::Migrate { .. }
            | HostRequest::StopMigrating { .. }
            | HostRequest::Administer { .. }
            | HostRequest::Ownership { .. }
            | HostRequest::Manage { .. } => None,
        }
    }
}

/// The outcome of a request.
pub type HostOutcome = Result<HostSuccess, HostError>;

/// The result of a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSuccess {
    /// The bytes read, as buffers that together are as long as asked for.
    Data(Vec<Bytes>),
    /// The request is done, without a result.
    Done,
    /// Runs of blocks from the start of the range on: their lengths, and whether they have content.
    Allocation(Vec<(u64, bool)>),
    /// Whether the redundancy matches, or an interrupted hostwrite is whole.
    Checked {
        /// True if it does.
        matches: bool,
    },
    /// The result of the device's task.
    Managed(Managed),
    Scrubbed(ScrubReport),
    Migrated(MigrationReport),
    /// The results of the commands.
    Objects(Vec<CommandResult>),
    /// The value of an attribute.
    Value(Bytes),
    /// The ownership of the file system, after the change that was requested.
    Ownership(Ownership),
    Files(FilesSuccess),
}

/// How far a migration has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// All blocks of the volume before this one were copied: the volume's end, unless the migration was stopped.
    pub copied_to: u64,
    /// How many blocks were copied. The others have no content.
    pub copied: u64,
    /// How many blocks can't be read at the old location, and were therefore not copied.
    pub lost: u64,
    /// The first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX) of these, as blocks of the volume.
    pub lost_blocks: Vec<u64>,
}

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Rows that were compared.
    pub rows: u64,
    /// Blocks that were lost.
    pub lost: u64,
    /// Lost blocks that were written again.
    pub repaired: u64,
    /// Rows in which too much is lost to reconstruct it.
    pub unrepairable: u64,
    /// How often redundancy did not match the data.
    pub mismatched: u64,
    /// How often redundancy was recomputed.
    pub recomputed: u64,
    /// Stripes, or parts of stripes, that could not be compared.
    pub skipped: u64,
    /// What was not repaired: the first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX) findings.
    pub findings: Vec<Finding>,
}

/// A defect of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub found: Found,
    /// The first byte of the volume.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

/// The kinds of defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes are lost.
    Lost,
    /// The redundancy of the stripe of these bytes does not match.
    Mismatch,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The host does not know the volume.
    #[error("there is no such volume")]
    NoSuchVolume,
    /// The array has no such device.
    #[error("the array has no device {device}")]
    NoSuchDevice {
        /// The device of the request.
        device: DeviceId,
    },
    /// The volume is not migrating.
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
    /// Every attempt lost to another host until the time-out.
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
    /// A lock server does not serve this host any more.
    #[error("lock server {server}: {rejection}")]
    LockServerRejected { server: LockServerId, rejection: Rejection },
    /// The volume's ordering needs a lock server, and the array has none.
    #[error("the volume's ordering needs a lock server, and the array has none: start one with `braid lockd`")]
    NoLockServer,
    /// The monitor did not answer in time.
    #[error("the array's monitor did not answer within {}: is it running?", seconds(*waited))]
    MonitorSilent {
        /// The time-out.
        waited: Duration,
    },
    /// The array has no monitor, and only a monitor can fence hosts.
    #[error("this array has no monitor, so that no host can be fenced")]
    NoMonitor,
    /// The monitor refuses the change.
    #[error(transparent)]
    AdminError(AdminError),
    /// The monitor refuses to change the ownership of a file system.
    #[error(transparent)]
    Ownership(OwnershipRefused),
    /// A device can't serve the request.
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
    /// The array does not serve this host any more.
    #[error("this host was fenced because its lease expired: restart it")]
    Fenced,
    /// A device does not serve this host.
    #[error("device {device}: {rejection}")]
    Rejected { device: DeviceId, rejection: Rejection },
    /// The user of the request is gone. A write has taken effect or never will.
    #[error("the client that asked for it is gone")]
    Abandoned,
    /// Too many requests are in flight.
    #[error("the host has too many requests in flight: try again later")]
    Busy,
    /// The host is disconnecting, and begins nothing any more. Nothing of this request has happened.
    #[error("the host is disconnecting: start it again")]
    Disconnecting,
    /// The host has stopped.
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
