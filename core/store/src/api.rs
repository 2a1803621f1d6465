//! What the device says to its store, and what the store says back.

use braid_base::{ArrayId, BlockRange, Clock, DeviceId, DiskId, Epoch, Membership, ObjectId, Stamp, TransactionId};
use braid_wire::{Failure, Linkage, ObjectAnswer, Piece};

/// Whose store this is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The array that the device belongs to.
    pub array: ArrayId,
    /// Its number in there.
    pub device: DeviceId,
    /// Bytes of the file or disk.
    pub size: u64,
}

/// What a store must know of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// Bytes that the disk writes at once. Where that is more than a sector, a loss of power during a write may hurt the sectors beside
    /// those that were written. A power of two, up to 4096.
    pub physical_sector: u32,
    /// Reads and writes go through a cache that may show, after a write has failed, what is not on the disk.
    pub cached: bool,
}

impl Default for Medium {
    fn default() -> Self {
        Medium { physical_sector: 512, cached: false }
    }
}

/// A devwrite on its way into the store. Its blocks overlap no other undecided intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Whose it is.
    pub transaction: TransactionId,
    /// Where that stands in the order.
    pub stamp: Stamp,
    /// The epoch it was written in.
    pub epoch: Epoch,
    /// All devices that write in it.
    pub participants: Vec<DeviceId>,
    /// The hostwrite's extent.
    pub linkage: Linkage,
    /// The object.
    pub object: ObjectId,
    /// The new content: holes and data.
    pub pieces: Vec<Piece>,
}

/// An undecided intent that recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredIntent {
    /// Whose it is.
    pub transaction: TransactionId,
    /// Where that stands in the order.
    pub stamp: Stamp,
    /// The epoch it was written in.
    pub epoch: Epoch,
    /// All devices that write in it.
    pub participants: Vec<DeviceId>,
    /// The hostwrite's extent.
    pub linkage: Linkage,
    /// The object.
    pub object: ObjectId,
    /// Its blocks.
    pub ranges: Vec<BlockRange>,
}

/// A commit that recovery found, and that nobody has yet allowed to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredCommit {
    /// Which transaction.
    pub transaction: TransactionId,
    /// Its stamp.
    pub stamp: Stamp,
    /// The epoch it was written in.
    pub epoch: Epoch,
    /// All devices that wrote in it.
    pub participants: Vec<DeviceId>,
    /// The hostwrite's extent.
    pub linkage: Linkage,
    /// The object.
    pub object: ObjectId,
}

/// What a start found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Durable and undecided.
    pub intents: Vec<RecoveredIntent>,
    /// Decided and not yet to be forgotten.
    pub commits: Vec<RecoveredCommit>,
    /// No stamp with a higher clock reading was ever accepted.
    pub stamps_reserved: Clock,
    /// The last one adopted, if any was.
    pub membership: Option<Membership>,
    /// Which disk this is.
    pub disk: DiskId,
}

/// What the store tells its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// Recovery is over.
    Ready(Recovered),
    /// The store can't be served from.
    Unusable(StoreError),
    /// To [`Store::read`](crate::Store): the pieces in the order asked for.
    Read {
        /// The caller's.
        ticket: u64,
        /// The content; or what is wrong with the first block that is damaged.
        result: Result<Vec<Piece>, Failure>,
    },
    /// To a prepare: the intent is durable, or it is not there at all.
    Prepared {
        /// Which.
        transaction: TransactionId,
        /// Why not.
        result: Result<(), Failure>,
    },
    /// To an immediate write: it is durable, or did not happen.
    Applied {
        /// Which.
        transaction: TransactionId,
        /// Why not.
        result: Result<(), Failure>,
    },
    /// The commit is durable.
    Committed {
        /// Which.
        transaction: TransactionId,
    },
    /// The abort is durable.
    Aborted {
        /// Which.
        transaction: TransactionId,
    },
    /// The membership is durable, and what follows from it; or it was no news.
    Adopted {
        /// The caller's.
        ticket: u64,
        /// Undecided intents that are gone: this device has been out since they were written. Any that was not durable by then is
        /// refused in its own answer.
        dropped: Vec<TransactionId>,
    },
    /// To [`Storage::execute`](crate::Storage::execute): it is done, durably; or refused, and [`ObjectFailure::Busy`](braid_wire::ObjectFailure::Busy) may be tried again.
    Executed {
        /// Which.
        name: TransactionId,
        /// What came of it.
        answer: ObjectAnswer,
    },
    /// To [`Storage::look`](crate::Storage::look): what is told is durable.
    Looked {
        /// The caller's.
        ticket: u64,
        /// What there is.
        answer: ObjectAnswer,
    },
    /// Any other request that had a ticket is done and durable.
    Done {
        /// The caller's.
        ticket: u64,
        /// Why not.
        result: Result<(), Failure>,
    },
}

/// Why a store can't be opened or served from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No superblock of ours.
    #[error("there is no Braid device here: make one with `braid device create`")]
    NotBraid,
    /// Ours, but both copies are damaged.
    #[error("both copies of the superblock are damaged: the device must be replaced and rebuilt")]
    SuperblockDamaged,
    /// Made by a later release.
    #[error("the device has format {found}, this release knows up to {known}: use a newer release")]
    NewerFormat {
        /// On disk.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Made by an earlier release, in a format that this one does not read.
    #[error(
        "the device has format {found}, this release reads {known}: make the device anew, or use the release that made it"
    )]
    OlderFormat {
        /// On disk.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// It belongs to another array.
    #[error("the device belongs to array {found}, not to {expected}")]
    OtherArray {
        /// On disk.
        found: ArrayId,
        /// Asked for.
        expected: ArrayId,
    },
    /// It is another device of this array.
    #[error("this is device {found}, not {expected}")]
    OtherDevice {
        /// On disk.
        found: DeviceId,
        /// Asked for.
        expected: DeviceId,
    },
    /// The file is shorter than when it was made.
    #[error("the device was made with {expected} bytes, but only {found} are there")]
    Truncated {
        /// On disk.
        found: u64,
        /// By the superblock.
        expected: u64,
    },
    /// A size that can't hold a store.
    #[error("a device must have at least {min} bytes")]
    TooSmall {
        /// The least.
        min: u64,
    },
    /// A part that had been durable is damaged, and what it said can't be known from elsewhere.
    #[error(
        "the {part} is damaged at byte {offset}: what it recorded is lost, and the device must be replaced and rebuilt"
    )]
    Damaged {
        /// Journal or map.
        part: &'static str,
        /// Where.
        offset: u64,
    },
    /// The disk does not read or write.
    #[error("the disk failed: {0}")]
    Disk(#[from] braid_machine::DiskError),
}
