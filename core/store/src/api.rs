//! The types of the interface between a device and its store: arguments of the device's calls, and the events that the store returns.

use braid_base::{ArrayId, BlockRange, Clock, DeviceId, DiskId, Epoch, Membership, ObjectId, Stamp, TransactionId};
use braid_blocks::{Linkage, Piece};
use braid_objects::Found;
use braid_ordering::Ordering;
use braid_wire::{Failure, ObjectAnswer, ObjectDescription};
use serde::{Deserialize, Serialize};

/// The identity that a store is created or opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreConfig {
    /// The array that the device belongs to.
    pub array: ArrayId,
    /// The device's number in the array.
    pub device: DeviceId,
    /// Size of the file or disk, in bytes.
    pub size: u64,
}

/// Properties of the disk that the store depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    /// The physical sector size in bytes: the unit that the disk writes at once. If it is larger than a logical sector, a loss of power
    /// during a write may damage the sectors beside those that were written. A power of two, up to 4096.
    pub physical_sector: u32,
    /// True if reads and writes go through a cache that may, after a failed write, return data that is not on the disk.
    pub cached: bool,
}

impl Default for Medium {
    fn default() -> Self {
        Medium { physical_sector: 512, cached: false }
    }
}

/// A devwrite that is passed to the store. Its blocks overlap no other undecided intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub transaction: TransactionId,
    /// The position of the transaction in the order.
    pub stamp: Stamp,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// All devices that write in the transaction.
    pub participants: Vec<DeviceId>,
    /// The hostwrite's extent.
    pub linkage: Linkage,
    pub object: ObjectId,
    /// The new content: holes and data.
    pub pieces: Vec<Piece>,
}

/// A change that needs no data on the disk: it is logged at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    /// None: the end tells that everything requested before is durable.
    Nothing,
    /// A new object. Its first `absent` blocks are absent until they are written, because other devices hold what belongs there; the
    /// others are holes.
    Created { description: ObjectDescription, absent: u64 },
    /// Another ordering of an existing object.
    Reordered { object: ObjectId, ordering: Ordering },
    /// Another range of blocks of an object, for which no request is under way. Blocks that it gains are holes, or absent; blocks that
    /// it loses are freed.
    Resized { object: ObjectId, range: BlockRange, absent: BlockRange },
    /// An object is gone, with its undecided intents.
    Removed(ObjectId),
    /// Stamps up to this one may have been accepted.
    StampsReserved(Clock),
    /// How a request of a host has ended: kept for as long as the answers of [`Storage::execute`](crate::Storage::execute). Ends with
    /// `Busy` if there is no room.
    Ended { name: TransactionId, settled: u64, answer: ObjectAnswer },
}

/// A devwrite that recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredWrite {
    pub transaction: TransactionId,
    /// The position of the transaction in the order.
    pub stamp: Stamp,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// All devices that write in the transaction.
    pub participants: Vec<DeviceId>,
    /// The hostwrite's extent.
    pub linkage: Linkage,
    pub object: ObjectId,
    /// The blocks that an undecided intent writes; none for a commit.
    pub ranges: Vec<BlockRange>,
}

/// What recovery found on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Intents that are durable and undecided.
    pub intents: Vec<RecoveredWrite>,
    /// Commits that must still be remembered.
    pub commits: Vec<RecoveredWrite>,
    /// No stamp with a higher clock reading was ever accepted.
    pub stamps_reserved: Clock,
    /// The membership that was adopted last, if any was.
    pub membership: Option<Membership>,
    /// The disk's name.
    pub disk: DiskId,
}

/// What the store tells its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// Recovery is over.
    Ready(Recovered),
    /// The store can't be served from: recovery failed, or the disk did.
    Unusable(StoreError),
    /// Answers [`Store::read`](crate::Store): the pieces in the order of the request.
    Read {
        /// The caller's ticket.
        ticket: u64,
        /// The content, or what is wrong with the first damaged block.
        result: Result<Vec<Piece>, Failure>,
    },
    /// Answers a prepare: the intent is durable, or it does not exist at all.
    Prepared { transaction: TransactionId, result: Result<(), Failure> },
    /// Answers an immediate write: it is durable, or it did not happen.
    Applied { transaction: TransactionId, result: Result<(), Failure> },
    /// The commit is durable.
    Committed { transaction: TransactionId },
    /// The abort is durable.
    Aborted { transaction: TransactionId },
    /// The membership and its consequences are durable, or it was already known.
    Adopted {
        /// The caller's ticket.
        ticket: u64,
        /// Undecided intents that were dropped, because this device has been out since they were written. An intent that was not durable
        /// yet is refused in its own answer instead.
        dropped: Vec<TransactionId>,
    },
    /// Answers [`Storage::execute`](crate::Storage::execute): the request is done and durable, or it is refused. After
    /// [`ObjectFailure::Busy`](braid_wire::ObjectFailure::Busy) it may be tried again.
    Executed {
        name: TransactionId,
        answer: ObjectAnswer,
        /// What a procedure has found now. None if the request is not executed, or was executed before: then there is only its answer.
        found: Option<Found>,
    },
    /// Answers [`Storage::read_objects`](crate::Storage::read_objects). What the answer reports is durable.
    ObjectsRead {
        /// The caller's ticket.
        ticket: u64,
        answer: ObjectAnswer,
        /// What a procedure has found; none if it is not executed.
        found: Option<Found>,
    },
    /// Any other request with a ticket is done and durable, or it failed.
    Done {
        /// The caller's ticket.
        ticket: u64,
        result: Result<(), Failure>,
    },
}

/// Why a store can't be opened or served from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("there is no Braid device here: make one with `braid device create`")]
    NotBraid,
    #[error("both copies of the superblock are damaged: the device must be replaced and rebuilt")]
    SuperblockDamaged,
    #[error("the device has format {found}, this release knows up to {known}: use a newer release")]
    NewerFormat {
        /// The format on the disk.
        found: u32,
        /// The newest format that this release knows.
        known: u32,
    },
    #[error(
        "the device has format {found}, this release reads {known}: make the device anew, or use the release that made it"
    )]
    OlderFormat {
        /// The format on the disk.
        found: u32,
        /// The format that this release reads.
        known: u32,
    },
    #[error("the device belongs to array {found}, not to {expected}")]
    OtherArray {
        /// The array in the superblock.
        found: ArrayId,
        /// The array in the configuration.
        expected: ArrayId,
    },
    #[error("this is device {found}, not {expected}")]
    OtherDevice {
        /// The device in the superblock.
        found: DeviceId,
        /// The device in the configuration.
        expected: DeviceId,
    },
    #[error("the device was made with {expected} bytes, but only {found} are there")]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes in the superblock.
        expected: u64,
    },
    #[error("a device must have at least {min} bytes")]
    TooSmall {
        /// The smallest size, in bytes.
        min: u64,
    },
    /// A part that had been durable is damaged, and its content is recorded nowhere else.
    #[error(
        "the {part} is damaged at byte {offset}: what it recorded is lost, and the device must be replaced and rebuilt"
    )]
    Damaged {
        /// The damaged part: journal, chunk map or index.
        part: &'static str,
        /// The byte on the device where the part begins, or where the damage is.
        offset: u64,
    },
    #[error("the disk failed: {0}")]
    Disk(#[from] braid_machine::DiskError),
}
