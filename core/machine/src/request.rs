//! Requests that front ends and workloads make to a host, in families, and requests of the control plane to a monitor.

use crate::{HostError, Never};
use braid_base::{BlockRange, DeviceId, FileSystemId, Generation, LockServerId, ObjectId, TransactionId, VolumeId};
use braid_layout::{StripeRows, VolumeDescription};
use braid_wire::{Administration, AttributeName, LockExtent, LockName, ObjectRequest, OwnershipRequest, Task};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// Identifies a request in its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct OpId {
    pub part: Part,
    /// Each part numbers its own requests.
    pub number: u64,
}

/// The part of a process that makes a request: a number, by which requests compare quickly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part(u32);

impl Part {
    /// A front end, or a workload.
    pub const FRONT_END: Part = Part(0);
    /// A server, of the host that it contains or of the monitor.
    pub const SERVER: Part = Part(1);
    /// Machines whose disks are windows of volumes ([`OnVolume`](crate::on_volume::OnVolume)).
    pub const ON_VOLUME: Part = Part(2);

    /// The client of a file system, or of a shard of it.
    pub const fn files(file_system: FileSystemId) -> Part {
        Part(Part::ON_VOLUME.0 + 1 + file_system.0 as u32)
    }
}

impl OpId {
    /// A request of a front end.
    pub const fn front_end(number: u64) -> OpId {
        OpId { part: Part::FRONT_END, number }
    }
}

/// Recordings name requests: those of front ends alone, because other parts are inside of the machine that is recorded.
impl From<OpId> for u64 {
    fn from(op: OpId) -> u64 {
        assert_eq!(op.part, Part::FRONT_END, "only a front end asks from outside");
        op.number
    }
}

impl From<u64> for OpId {
    fn from(number: u64) -> OpId {
        OpId::front_end(number)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostRequest {
    Volume(VolumeRequest),
    Objects(ObjectsRequest),
    Array(ArrayRequest),
    Job(JobRequest),
    Ranges(RangesRequest),
}

/// A request about the blocks of a volume. Requests that read or write are one storage transaction each, with a `length` of at most
/// `limits::TRANSACTION_BYTES_MAX` if data is transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeRequest {
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
    Allocation { volume: VolumeId, range: BlockRange, patience: Patience },
    /// Ends when everything answered before is durable.
    Flush { volume: VolumeId },
}

/// A request about objects that hold bytes and attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectsRequest {
    /// Executes commands on a device's objects, once or not at all.
    Execute {
        device: DeviceId,
        request: ObjectRequest,
        /// The time-out, at most the host's own.
        patience: Duration,
    },
    /// Executes commands on the objects of an attribute volume, as one storage transaction (`docs/objects.md`).
    ExecuteOnVolume {
        volume: VolumeId,
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
}

/// A request about the host, its devices, or the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrayRequest {
    /// Makes a volume known to the host, which can then read and write it. Replaces an earlier description.
    AdoptVolume {
        /// The description, from the control plane.
        volume: VolumeDescription,
    },
    /// Forgets a volume.
    DropVolume { volume: VolumeId },
    /// Puts a volume on hold until it is adopted or dropped: its description is about to change. Ends all migrations of it on this host at
    /// the block that they have reached, and completes no survey of a returning device. Requests for it wait outside of the host.
    HoldVolume { volume: VolumeId },
    /// Passes a task on to one device.
    Manage { device: DeviceId, task: Task },
    /// Passes an operator's change on to the monitor. Ends when the change is durable, or refused.
    Administer { request: Administration },
    /// Passes a request about the ownership of a file system on to the monitor. A take-over ends when the previous owner can do nothing
    /// any more (`docs/membership.md`). If it fails with [`HostError::MonitorSilent`], it may still happen: the same request, made again
    /// by the same host, tells.
    Ownership { file_system: FileSystemId, request: OwnershipRequest },
    /// Fences hosts. Ends when no device serves them any more.
    Fence {
        /// Every generation below this one…
        below: Generation,
        /// …except these, which are alive.
        except: Vec<Generation>,
    },
    /// The user of these operations is gone. Operations that have sent no write end at once; the others make no further attempt. Each of
    /// them is answered when it can have no effect any more, at the latest at its time-out; a patient one gets the host's
    /// time-out now. Later operations that touch blocks which one of them writes wait for that. This request itself ends at once.
    Abandon {
        /// The operations. Those that are answered already, or are no storage transactions, are ignored.
        ops: Vec<OpId>,
    },
    /// Graceful disconnect: when everything under way has ended, devices drop what they remember of this host's transactions and
    /// requests, and lock servers get back its cached locks. It ends when they have confirmed that, or at its time-out. Later requests
    /// that would begin something are refused with [`HostError::Disconnecting`]. So are patient operations that have sent no
    /// write; the others make no further attempt, as if they were abandoned.
    Disconnect,
    /// Asks the monitor for the membership. The answer is not older than the request.
    Membership,
}

/// A job that checks, repairs or moves a volume, or a step of one. [`Scrub`](JobRequest::Scrub) and [`Migrate`](JobRequest::Migrate) consist
/// of many transactions, the others of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRequest {
    /// Compares the parity of a stripe with its data.
    Check { volume: VolumeId, stripe: u64 },
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
    /// A cross-check: finds out, from linkage records alone, whether an interrupted hostwrite is whole in some rows.
    CrossCheck {
        volume: VolumeId,
        rows: StripeRows,
        transaction: TransactionId,
        /// Whether the hostwrite is known to have written there. If not, it may also have had no effect at all.
        known: bool,
    },
    /// A parity resync: recomputes the redundancy of some rows from their data.
    Recompute { volume: VolumeId, rows: StripeRows },
}

/// A request about locks of ranges (`docs/range-locks.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangesRequest {
    /// Locks ranges of an object. Answered by [`HostSuccess::RangeLocked`](crate::HostSuccess::RangeLocked).
    Lock {
        object: ObjectId,
        /// At least one, and at most `LOCK_PART_EXTENTS_MAX`, none of them empty.
        extents: Vec<LockExtent>,
        /// A lock of the same object that this one replaces: it is promoted or demoted.
        over: Option<u64>,
        /// By how much this host may be granted more than was asked for, where locks to come can be foreseen.
        width: u64,
        /// How long to wait; none: without limit.
        wait: Option<Duration>,
    },
    /// Takes a *lease* of ranges of an object: they are locked shared at once, or not at all. [`HostSuccess::RangeLocked`](crate::HostSuccess::RangeLocked)
    /// names it like a lock. It is lost as soon as another program wants what conflicts with it; its host is not fenced for it.
    Lease {
        object: ObjectId,
        extents: Vec<LockExtent>,
        /// How long to wait for the lock servers.
        wait: Duration,
    },
    /// Ends a lock, or a request for one.
    Unlock { lock: u64 },
    /// Whether the lock, or the lease, is still there. Answered at once.
    Confirm { lock: u64 },
    /// Answered as soon as another program, on this host or another one, wants some of the lock.
    AwaitRecall { lock: u64 },
    /// Lists locks of a lock server, of all hosts. Answered by [`HostSuccess::LocksSurveyed`](crate::HostSuccess::LocksSurveyed).
    Survey {
        server: LockServerId,
        /// The first name: after the first survey, where the one before said to continue.
        from: LockName,
        /// Only those on this object.
        object: Option<ObjectId>,
        /// Only those that wait.
        waiting: bool,
        /// How long to wait for the answer.
        wait: Duration,
    },
}

/// How long a request waits that reads, writes or zeroes a volume, or asks for its allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Until devices, lock servers and the monitor are back, for so long; and then as [`Patience::Host`], with a time-out of its own. It is
    /// never written twice: if its outcome can't be known any more, it fails.
    For(Duration),
}

/// A request of the control plane to a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Makes a volume known. Replaces an earlier description.
    AdoptVolume { volume: VolumeDescription },
    /// Forgets a volume.
    DropVolume { volume: VolumeId },
    /// The control plane has given out the generations up to this one.
    NoteGenerations { last: Generation },
}

/// The outcome of a request to a monitor.
pub type ControlOutcome = Result<(), HostError>;

/// A request that a front end may abandon, because its user is gone.
pub trait Abandon: Sized {
    /// The request that abandons these operations; none if the machine ends all of its operations at once.
    fn abandon(ops: Vec<OpId>) -> Option<Self>;
}

impl Abandon for HostRequest {
    fn abandon(ops: Vec<OpId>) -> Option<HostRequest> {
        Some(ArrayRequest::Abandon { ops }.into())
    }
}

impl Abandon for ControlRequest {
    fn abandon(_: Vec<OpId>) -> Option<ControlRequest> {
        None
    }
}

impl Abandon for Never {
    fn abandon(_: Vec<OpId>) -> Option<Never> {
        None
    }
}

impl HostRequest {
    /// How long the request waits.
    pub fn patience(&self) -> Patience {
        match self {
            HostRequest::Volume(
                VolumeRequest::Read { patience, .. }
                | VolumeRequest::Write { patience, .. }
                | VolumeRequest::Zero { patience, .. }
                | VolumeRequest::Allocation { patience, .. },
            ) => *patience,
            _ => Patience::Host,
        }
    }

    /// The volume whose blocks the request reads or writes; none if it does neither, or does so only by further requests.
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            HostRequest::Volume(request) => request.volume(),
            HostRequest::Objects(ObjectsRequest::ExecuteOnVolume { volume, .. }) => Some(*volume),
            HostRequest::Objects(ObjectsRequest::Execute { .. } | ObjectsRequest::Await { .. }) => None,
            HostRequest::Array(_) | HostRequest::Ranges(_) => None,
            HostRequest::Job(request) => request.volume(),
        }
    }
}

impl VolumeRequest {
    fn volume(&self) -> Option<VolumeId> {
        match self {
            VolumeRequest::Read { volume, .. }
            | VolumeRequest::Write { volume, .. }
            | VolumeRequest::Zero { volume, .. }
            | VolumeRequest::Allocation { volume, .. } => Some(*volume),
            // Every write is durable when it is answered: a flush starts nothing.
            VolumeRequest::Flush { .. } => None,
        }
    }
}

impl JobRequest {
    fn volume(&self) -> Option<VolumeId> {
        match self {
            JobRequest::Check { volume, .. }
            | JobRequest::CheckRows { volume, .. }
            | JobRequest::Reconstruct { volume, .. }
            // A scrub is requested for a few stripes at a time, so that the volume can be put on hold in between.
            | JobRequest::Scrub { volume, .. }
            | JobRequest::Restore { volume, .. }
            | JobRequest::Copy { volume, .. }
            | JobRequest::CrossCheck { volume, .. }
            | JobRequest::Recompute { volume, .. } => Some(*volume),
            // A migration takes long, and consists of the host's own requests.
            JobRequest::Migrate { .. } => None,
        }
    }
}

/// Each family is a request by itself.
macro_rules! families {
    ($($family:ident($request:ty)),*) => {$(
        impl From<$request> for HostRequest {
            fn from(request: $request) -> HostRequest {
                HostRequest::$family(request)
            }
        }
    )*};
}
families!(Volume(VolumeRequest), Objects(ObjectsRequest), Array(ArrayRequest), Ranges(RangesRequest), Job(JobRequest));
