//! What front ends and workloads ask of a host, and how it ends.

use braid_base::{BlockRange, DeviceId, Generation, LockServerId, ObjectId, TransactionId, VolumeId};
use braid_layout::{StripeRows, VolumeDescription};
use braid_wire::{
    AdminError, Administration, AttributeName, CommandResult, Failure, Managed, ObjectRefusal, ObjectRequest,
    Rejection, Task,
};
use bytes::Bytes;
use std::ops::Range;
use std::time::Duration;

/// Names a request of a front end to its host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// What a host is asked. Each is one storage transaction; `length` is at most `limits::TRANSACTION_BYTES_MAX` where data
/// moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Takes in a volume, which may then be read and written; one that is known already is replaced.
    AdoptVolume {
        /// As the control plane has it.
        volume: VolumeDescription,
    },
    /// Forgets a volume.
    DropVolume {
        /// Which.
        volume: VolumeId,
    },
    /// hostread: `length` bytes at `offset`.
    Read {
        /// Of which volume.
        volume: VolumeId,
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: usize,
    },
    /// hostwrite: these bytes at `offset`. Durable when answered.
    Write {
        /// Of which volume.
        volume: VolumeId,
        /// In bytes.
        offset: u64,
        /// The bytes, as one buffer.
        data: Bytes,
    },
    /// A hostwrite of zeros that gives whole blocks back.
    Zero {
        /// Of which volume.
        volume: VolumeId,
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u64,
    },
    /// Where a volume has data.
    Allocation {
        /// Of which volume.
        volume: VolumeId,
        /// In blocks of the volume.
        range: BlockRange,
    },
    /// Ends when everything answered before is durable.
    Flush {
        /// Of which volume.
        volume: VolumeId,
    },
    /// Compares parity with data over some stripes.
    Check {
        /// Of which volume.
        volume: VolumeId,
        /// The first stripe.
        stripe: u64,
    },
    /// The same for some rows of a stripe.
    CheckRows {
        /// Of which volume.
        volume: VolumeId,
        /// Where.
        rows: StripeRows,
    },
    /// Goes through the volume: are all blocks there, and does its redundancy match? Takes as long as that takes, and is
    /// answered at the end.
    Scrub {
        /// Which volume.
        volume: VolumeId,
        /// Which stripes of it; what lies beyond its end is none.
        stripes: Range<u64>,
        /// Blocks that are lost are worked out from their rows, and written again.
        repair: bool,
        /// Redundancy that does not match is computed anew, from the data.
        recompute: bool,
    },
    /// Reads a stripe's blocks as reconstructed from its other units, as if the unit's device were lost.
    Reconstruct {
        /// Of which volume.
        volume: VolumeId,
        /// In bytes, a multiple of a block.
        offset: u64,
        /// In bytes, a multiple of a block, within one stripe unit.
        length: usize,
    },
    /// Brings a device that is catching up what it missed of some blocks, if it holds anything of them or of their parity.
    Restore {
        /// Of which volume.
        volume: VolumeId,
        /// Which device.
        device: DeviceId,
        /// Blocks of the volume, within one transaction's bounds.
        blocks: BlockRange,
        /// Where too much of a row is lost to restore it, it is to be lost there, too.
        salvage: bool,
        /// Where the volume moves to, rather than where it lies.
        target: bool,
    },
    /// Copies some blocks of a volume that moves to where it moves to.
    Copy {
        /// Which volume.
        volume: VolumeId,
        /// Blocks of the volume, within one transaction's bounds.
        blocks: BlockRange,
    },
    /// Copies a volume that moves to where it moves to, wherever it holds anything. Takes as long as that takes, and is answered at
    /// the end.
    Migrate {
        /// Which volume.
        volume: VolumeId,
        /// From this block of the volume on: what is before was copied.
        from: u64,
        /// Bytes a second at most; 0: as everything that heals.
        bytes_per_second: u64,
    },
    /// Has all copying of a volume end where it is.
    StopMigrating {
        /// Which volume.
        volume: VolumeId,
    },
    /// Finds out, from linkage records alone, whether a hostwrite that was cut short has taken effect as a whole in some rows.
    CrossCheck {
        /// Of which volume.
        volume: VolumeId,
        /// Where.
        rows: StripeRows,
        /// Whose hostwrite.
        transaction: TransactionId,
        /// Whether it is known to have written there; if not, it may also not have taken effect at all.
        known: bool,
    },
    /// Computes the redundancy of some rows anew, from their data.
    Recompute {
        /// Of which volume.
        volume: VolumeId,
        /// Where.
        rows: StripeRows,
    },
    /// Has commands done on a device's objects: once, or not at all.
    Objects {
        /// Which device.
        device: DeviceId,
        /// What to do.
        request: ObjectRequest,
        /// How long to try; at most the host's own limit.
        patience: Duration,
    },
    /// Waits until an attribute has another value.
    Await {
        /// On which device.
        device: DeviceId,
        /// Of which object.
        object: ObjectId,
        /// Which.
        name: AttributeName,
        /// The value that is known.
        seen: Bytes,
        /// So long at most: then it is answered as it is.
        patience: Duration,
    },
    /// Has commands done on the objects of an attribute volume, as one storage transaction (`docs/objects.md`).
    AttributeVolume {
        /// The volume that keeps them.
        volume: VolumeId,
        /// What to do.
        request: ObjectRequest,
        /// How long to try; at most the host's own limit.
        patience: Duration,
    },
    /// The user of these operations is gone: those that have no write out end, the others make no further attempt. Each is answered when
    /// nothing of it can happen any more, at the latest when its time is up. Operations that are asked for later, and touch what
    /// one of them writes, wait for that. Ends at once.
    Abandon {
        /// Which. What is answered already, or is no storage transaction, is left alone.
        ops: Vec<OpId>,
    },
    /// Graceful disconnect: once all that is under way has ended, devices drop what they keep of this host's transactions and requests, and
    /// lock servers get back its cached locks. Ends when they have confirmed that, or when its time is up. What would begin something
    /// after it is refused as [`HostError::Disconnecting`].
    Disconnect,
    /// Has hosts kept out: ends when no device serves them any more.
    Fence {
        /// Every generation below this one…
        below: Generation,
        /// …except these, which still live.
        except: Vec<Generation>,
    },
    /// Has the monitor change something: ends when that is durable, or refused.
    Administer {
        /// What.
        request: Administration,
    },
    /// Passes a task on to one device.
    Manage {
        /// Which.
        device: DeviceId,
        /// What.
        task: Task,
    },
}

/// How a request ended.
pub type HostOutcome = Result<HostSuccess, HostError>;

/// What a request brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSuccess {
    /// The bytes read: buffers that, joined, are as long as asked for.
    Data(Vec<Bytes>),
    /// Written, zeroed or flushed.
    Done,
    /// Runs of blocks from the range's start on: how many, and whether they hold data.
    Allocation(Vec<(u64, bool)>),
    /// Whether the stripe's parity matches its data, or a hostwrite is whole.
    Checked {
        /// True if it does.
        matches: bool,
    },
    /// What the device said.
    Managed(Managed),
    /// What a scrub found.
    Scrubbed(ScrubReport),
    /// What was copied.
    Migrated(MigrationReport),
    /// What each of the commands brought.
    Objects(Vec<CommandResult>),
    /// An attribute's value.
    Value(Bytes),
}

/// What was copied of a volume that moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// Everything before this block of the volume was copied: its end, unless copying was stopped.
    pub copied_to: u64,
    /// Blocks that were copied; the others hold nothing.
    pub copied: u64,
    /// How many can't be read where the volume lies, so that they were not.
    pub lost: u64,
    /// Where these are, in blocks of the volume: the first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX).
    pub lost_blocks: Vec<u64>,
}

/// What a scrub found, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Rows that were checked in the end.
    pub rows: u64,
    /// Blocks that were found to be lost.
    pub lost: u64,
    /// How many of them were written again.
    pub repaired: u64,
    /// Rows in which more is lost than can be worked out.
    pub unrepairable: u64,
    /// How often redundancy did not match its data.
    pub mismatched: u64,
    /// How often it was computed anew.
    pub recomputed: u64,
    /// Stripes, or parts of some, that could not be checked.
    pub skipped: u64,
    /// Where what was not repaired is: the first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX) places.
    pub findings: Vec<Finding>,
}

/// Something amiss in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub found: Found,
    /// The first byte of the volume.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// What a scrub may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// These bytes are lost.
    Lost,
    /// The redundancy of these bytes' stripe does not match.
    Mismatch,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The volume is not known to this host.
    #[error("there is no such volume")]
    NoSuchVolume,
    /// The array has no such device.
    #[error("the array has no device {device}")]
    NoSuchDevice {
        /// As asked.
        device: DeviceId,
    },
    /// It is not on its way to anywhere.
    #[error("the volume does not move")]
    NotMoving,
    /// It reaches beyond the volume's end, or is longer than one transaction may be.
    #[error("the range is not within the volume")]
    OutOfRange,
    /// Devices did not answer in time. A write may have happened or not: read to see.
    #[error("{} did not answer within {}", names(devices), seconds(*waited))]
    TimedOut {
        /// The silent ones.
        devices: Vec<DeviceId>,
        /// How long was waited.
        waited: Duration,
    },
    /// It lost to others again and again until its time was up.
    #[error("other hosts were ahead at every attempt for {waited:?}")]
    Contended {
        /// How long was tried.
        waited: Duration,
    },
    /// A lock server did not answer in time. Nothing was written.
    #[error("lock server {server} did not answer within {}: is it running?", seconds(*waited))]
    LockServerSilent {
        /// The silent one.
        server: LockServerId,
        /// How long was waited.
        waited: Duration,
    },
    /// A lock server serves this host no more.
    #[error("lock server {server}: {rejection}")]
    LockServerRejected {
        /// Which.
        server: LockServerId,
        /// Why.
        rejection: Rejection,
    },
    /// The volume's ordering needs a lock server, and the array has none.
    #[error("the volume is ordered by locks of a lock server, and the array has none: start one with `braid lockd`")]
    NoLockServer,
    /// The monitor did not answer in time.
    #[error("the array's monitor did not answer within {}: is it running?", seconds(*waited))]
    MonitorSilent {
        /// How long was waited.
        waited: Duration,
    },
    /// The array has no monitor, which alone keeps hosts out.
    #[error("this array has no monitor, so that no host can be kept out")]
    NoMonitor,
    /// The monitor does not change that.
    #[error(transparent)]
    AdminError(AdminError),
    /// A device can't do it.
    #[error("device {device}: {failure}")]
    Device {
        /// Which.
        device: DeviceId,
        /// Why.
        failure: Failure,
    },
    /// A device, or an attribute volume, refuses a request for objects. Nothing of it has happened.
    #[error("{0}")]
    Objects(ObjectRefusal),
    /// A device's clock is too far behind.
    #[error("{}", apart(*device, *ahead, *limit, *cause))]
    ClockApart {
        /// Which.
        device: DeviceId,
        /// How far its clock is behind.
        ahead: Duration,
        /// The most that is tolerated.
        limit: Duration,
        /// Behind what.
        cause: ClockCause,
    },
    /// Too many devices are unavailable for what was asked; the rest of the volume is served as usual. A write that was under way when they
    /// went may have happened or not.
    #[error("too many devices are unavailable here: {} must come back", names(devices))]
    Unavailable {
        /// Those whose return would help.
        devices: Vec<DeviceId>,
    },
    /// The array serves this host no more.
    #[error("this host was fenced: its lease had run out, and it must start again")]
    Fenced,
    /// A device does not serve this host.
    #[error("device {device}: {rejection}")]
    Rejected {
        /// Which.
        device: DeviceId,
        /// Why.
        rejection: Rejection,
    },
    /// Its user is gone. A write may have happened or not; it does not happen any more.
    #[error("the client that asked for it is gone")]
    Abandoned,
    /// Too much in flight.
    #[error("the host has too many requests in flight")]
    Busy,
    /// It was told to end, and begins nothing any more. Nothing of this has happened.
    #[error("the host is about to end: start it again")]
    Disconnecting,
    /// It is no longer there to ask.
    #[error("the host has stopped: start it again")]
    Stopped,
}

/// Why a stamp is too far ahead of a device's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockCause {
    /// The clock of the host that took it is.
    Host,
    /// Other devices have accepted such stamps: somebody's clock was ahead once, and the device's is behind that.
    Stamps,
}

/// Who is apart from whom.
fn apart(device: DeviceId, ahead: Duration, limit: Duration, cause: ClockCause) -> String {
    let (ahead, limit) = (rough(ahead), rough(limit));
    match cause {
        ClockCause::Host => format!(
            "the clock of this host is {ahead} ahead of the clock of device {device} (at most {limit} is tolerated): set right the one that is wrong (is the time service running?)"
        ),
        ClockCause::Stamps => format!(
            "the clock of device {device} is {ahead} behind the array's stamps (at most {limit} is tolerated), and the device has not heard of these from the monitor: set its clock right (is the time service running?)"
        ),
    }
}

/// A span as people say it, in the largest unit of which there are two.
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

/// A wait as people say it.
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
