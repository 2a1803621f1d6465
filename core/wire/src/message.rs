//! The messages that hosts and devices exchange (`docs/messages.md` lists them in one table). The messages of lock servers are in
//! [`crate::locking`], those of metadata servers in [`crate::files`], those of the monitor in [`crate::monitoring`].
//!
//! Messages are datagrams: they may be lost, duplicated, delayed and reordered. A host repeats a request until it is answered; a device
//! answers a repeated request as it answered the first.
//!
//! ```text
//!   host                             device
//!    │ Prewrite (stamp, blocks, reads) │   all participants: may this transaction write here, at this stamp?
//!    │────────────────────────────────►│
//!    │◄────────────── Data / Accepted ─│   yes (and what was there), or Refused: too late, above which stamp
//!    │ Write (data)                    │   all participants
//!    │────────────────────────────────►│   intent made durable
//!    │◄─────────────────────── Written │   the last one of these commits; the user is answered
//!    │ …any request, commits: [17]     │   later, carried by the next request
//!    │────────────────────────────────►│
//!    │◄──── …any answer, confirmed [17]│   once durable
//! ```

use crate::declarations::wire;
use crate::files::{FileAnswer, FileRequest};
use crate::locking::{LockAnswer, LockRequest};
use crate::monitoring::{MonitorAnswer, MonitorRequest};
use crate::objects::{AttributeName, ObjectAnswer, ObjectFailure, ObjectRequest};
use crate::rejection::Rejection;
use crate::shards::ShardMessage;
use braid_base::{BlockRange, Clock, DeviceId, Epoch, Generation, ObjectId, Stamp, TransactionId};
use braid_blocks::{Column, Linkage, Piece, Want};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

wire! {
    /// A message between two nodes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Message {
        Request(request: Request) = 1,
        Answer(answer: Answer) = 2,
        LockRequest(request: LockRequest) = 3,
        LockAnswer(answer: LockAnswer) = 4,
        /// From a host, device or lock server to the monitor.
        MonitorRequest(request: MonitorRequest) = 5,
        MonitorAnswer(answer: MonitorAnswer) = 6,
        /// From one device to another.
        Partial(partial: Partial) = 7,
        /// From a host to a metadata server.
        FileRequest(request: FileRequest) = 8,
        FileAnswer(answer: FileAnswer) = 9,
        /// From one metadata server of a file system to another.
        Shard(message: ShardMessage) = 10,
    }

    /// What a device owes another in a write that devices execute together: a message of its own for each pair. It is not answered. A host
    /// that misses an answer repeats its request to the sender, which then sends this again.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Partial {
        /// The epoch in which the devices execute the write.
        pub epoch: Epoch,
        pub transaction: TransactionId,
        pub object: ObjectId,
        /// Content to be added, at the blocks of the receiver's object.
        pub pieces: Vec<Piece>,
    }
}

/// A message from a host to a device: a command, and what it carries besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's generation. Fencing refuses it.
    pub host: Generation,
    /// The epoch in which the host sent the request.
    pub epoch: Epoch,
    /// The settled mark: every transaction of this host with a lower sequence in which this device took part is over, that is, all its
    /// participants have confirmed the outcome. The device may forget them.
    pub settled: u64,
    /// Sequences above that mark of further transactions that are over. Each is sent once. Without this list, one unavailable participant
    /// would make the others remember every later transaction.
    pub over: Vec<u64>,
    /// Sequences of this host's own transactions that have committed. They take effect before the command. For a transaction that only
    /// holds locks on this device (ordering `device-lock`), this releases the locks.
    pub commits: Vec<u64>,
    pub command: Command,
}

wire! {
    /// A command of a host to a device.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Command {
        /// Renews the host's lease at this device. Answered by [`Reply::Heartbeat`].
        Heartbeat = 1,
        /// A devread: returns the content of these blocks at this stamp.
        Read {
            transaction: TransactionId,
            stamp: Stamp,
            object: ObjectId,
            /// The ordering that the host assumes. A device that uses another one refuses the request.
            ordering: Ordering,
            /// The blocks to read.
            extents: Vec<BlockRange>,
            /// What to return about the blocks.
            want: Want,
        } = 2,
        /// A pre-write: announces a write of `prewrites`. With `reads` it is a read-and-pre-write, answered with their content.
        Prewrite {
            transaction: TransactionId,
            stamp: Stamp,
            object: ObjectId,
            /// The ordering that the host assumes. A device that uses another one refuses the request.
            ordering: Ordering,
            /// The blocks that the transaction is going to write.
            prewrites: Vec<BlockRange>,
            /// The blocks that it needs to read first.
            reads: Vec<BlockRange>,
        } = 3,
        /// A devwrite: becomes a durable intent, which is undecided until every participant has one. The blocks are those that were
        /// pre-written.
        Write {
            transaction: TransactionId,
            stamp: Stamp,
            object: ObjectId,
            /// The ordering that the host assumes. A device that uses another one refuses the request.
            ordering: Ordering,
            /// Every device that writes in this transaction, including this one: the devices to ask if the intent is found undecided.
            participants: Vec<DeviceId>,
            /// The hostwrite's extent, kept in the header of every block.
            linkage: Linkage,
            /// Whether the write waits for a decision.
            mode: WriteMode,
            /// The new content.
            pieces: Vec<Piece>,
        } = 4,
        /// The outcome of a transaction: an abort by its own host, or the outcome that a resolver found.
        Decide {
            /// A transaction of any host.
            transaction: TransactionId,
            /// The stamp of the transaction, so that a device that does not know it can make an abort promise.
            stamp: Stamp,
            outcome: Outcome,
        } = 5,
        /// Asks what the device knows of a transaction. A device that has no intent for it answers with an abort promise: it will never
        /// make one.
        Resolve {
            /// A transaction of any host.
            transaction: TransactionId,
            stamp: Stamp,
        } = 6,
        /// All participants of this transaction have confirmed its outcome: the device may forget it.
        Forget {
            /// A transaction of any host.
            transaction: TransactionId,
        } = 7,
        /// A task for the device as a whole, without a stamp: about objects, missed writes, counters.
        Manage {
            /// Identifies the request in its answer.
            ticket: u64,
            task: Task,
        } = 8,
        /// Executes commands on objects, exactly once however often the request is sent. Answered by [`Reply::Objects`].
        Objects {
            /// Identifies the request. It is one of the host's sequence numbers, which it also uses for transactions.
            sequence: u64,
            /// The object requests that the host had abandoned when it began this one, as disjoint ascending intervals of sequence numbers:
            /// the first, and the one after the last. No interval contains a request that the host still waits for. Once this request is
            /// answered, each abandoned request has happened or never will.
            abandoned: Vec<(u64, u64)>,
            request: ObjectRequest,
        } = 9,
        /// Waits until an attribute has a different value. Answered by [`Reply::Changed`].
        Await {
            /// Identifies the request in its answer.
            ticket: u64,
            object: ObjectId,
            name: AttributeName,
            /// The value that the host knows already; empty: undefined.
            seen: Bytes,
            /// The time-out in milliseconds. When it has passed, the request is answered with the present value.
            patience: u32,
        } = 10,
        /// The transaction's own host has not decided it, and ends it. A device that has its intent undoes that and answers
        /// [`Reply::Decided`], unless it has told another host of the intent: then it answers [`Reply::Vote`].
        Retract {
            /// A transaction of the host that sends this.
            transaction: TransactionId,
            stamp: Stamp,
        } = 11,
        /// One device's part in a write that devices execute together: they read, send each other what is needed, compute parity, and make
        /// one intent each. Like an unannounced devwrite, it is answered when the intent is durable and the device has sent what it owes. A
        /// device that writes nothing does not answer. A repeated request is answered with [`Reply::Executing`] if it is still being
        /// executed.
        Execute {
            transaction: TransactionId,
            stamp: Stamp,
            object: ObjectId,
            /// The ordering that the host assumes. A device that uses another one refuses the request.
            ordering: Ordering,
            /// Every device that writes in this transaction.
            participants: Vec<DeviceId>,
            /// The hostwrite's extent, kept in the header of every block.
            linkage: Linkage,
            /// Boxed, so that other commands stay small.
            column: Box<Column>,
        } = 12,
    }

    /// How a storage transaction ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        /// Every participant had its intent: the new content is valid.
        Commit = 1,
        /// The old content is valid.
        Abort = 2,
        /// Some of its writes have taken effect on arrival, and the others never will: all its blocks on the device are suspect.
        Interrupted = 3,
    }

    /// A request about the device as a whole.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Task {
        // Byte 5 fenced hosts, up to version 2.
        /// Creates an object of this many blocks, all of them holes. Idempotent for the same description.
        CreateObject {
            object: ObjectId,
            /// Its first block, which is the first of a chunk.
            first: u64,
            /// Its length in blocks. The space is reserved at once.
            blocks: u64,
            ordering: Ordering,
            /// Whether the volume is redundant: it can be served with any one of its devices missing.
            redundant: bool,
            /// What happens to interrupted hostwrites.
            atomicity: Atomicity,
            /// The number of its first blocks that are absent until they are written, because other devices hold their content; the rest
            /// are holes.
            absent: u64,
        } = 1,
        /// Changes the ordering of the object, unless transactions on it are under way. Idempotent.
        SetOrdering {
            object: ObjectId,
            /// The new ordering.
            ordering: Ordering,
        } = 7,
        /// Changes the range of blocks of the object, unless transactions on it are under way. New blocks are holes; blocks that it loses
        /// are given back. Idempotent.
        ResizeObject {
            object: ObjectId,
            /// The new range. Its first block is the first of a chunk.
            range: BlockRange,
            /// The new blocks that are absent until they are written, because other devices hold their content.
            absent: BlockRange,
        } = 11,
        /// Removes an object with all its content.
        RemoveObject {
            object: ObjectId,
        } = 2,
        ListObjects = 3,
        /// Ends when all previously answered writes are durable. They always are: the task is kept for relaxed modes.
        Flush = 4,
        /// Lists the blocks that were written while another device was out, and which that device has therefore missed. Answered by
        /// [`Managed::Missed`].
        ListMissed {
            /// The device that was out.
            device: DeviceId,
            object: ObjectId,
            /// The block of the volume from which to list.
            from: u64,
        } = 8,
        /// Returns the device's counters.
        Inspect = 6,
        /// Lists the absent blocks of an object. Answered by [`Managed::Extents`].
        ListAbsent {
            object: ObjectId,
            /// The block of the object from which to list.
            from: u64,
        } = 9,
        /// Lists the blocks of an object that may have content, in whole chunks. Answered by [`Managed::Extents`].
        ListAllocated {
            object: ObjectId,
            /// The blocks of the object to look at.
            range: BlockRange,
        } = 10,
    }

    /// A message from a device to a host: a reply, and what it carries besides.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Answer {
        /// The epoch in which the device answers.
        pub epoch: Epoch,
        /// Sequences of the host's own transactions whose commit is now durable on this device.
        pub confirmed: Vec<u64>,
        pub reply: Reply,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Reply {
        /// The answer to a heartbeat, with transactions of dead hosts that this host should resolve or repair.
        Heartbeat {
            /// Some of the transactions to be resolved.
            orphans: Vec<Orphan>,
            /// Some of the transactions whose stripes are suspect.
            suspects: Vec<Suspect>,
            /// Whether the device has recently served users of hosts other than the sender of the heartbeat. Restores do not count.
            busy: bool,
        } = 1,
        /// The answer to a read, or to an accepted read-and-pre-write: the content, in the order of the request.
        Data {
            transaction: TransactionId,
            /// Whether the request had to wait for another transaction.
            waited: bool,
            /// The blocks with their content.
            pieces: Vec<Piece>,
        } = 2,
        /// The answer to a pre-write without reads: accepted.
        Accepted {
            transaction: TransactionId,
            /// Whether the request had to wait for another transaction.
            waited: bool,
        } = 3,
        /// The answer to a write: the intent is durable, or, in immediate mode, the write.
        Written {
            transaction: TransactionId,
            /// Whether the request had to wait for another transaction.
            waited: bool,
        } = 4,
        /// The request is refused: the transaction must be tried again as a new one, with a stamp above the one it lost to.
        Refused {
            transaction: TransactionId,
            /// The request that is refused.
            step: Step,
            refusal: Refusal,
        } = 5,
        /// The request failed, and repeating it will not help while the cause persists.
        Failed {
            transaction: TransactionId,
            /// The request that failed.
            step: Step,
            failure: Failure,
        } = 6,
        /// Unsolicited: a request waits for the decision of this transaction of the host.
        Blocked { transaction: TransactionId } = 7,
        /// The answer to a decision: it is durable on this device.
        Decided {
            transaction: TransactionId,
            /// The outcome that is valid on this device. A late abort never undoes a commit.
            outcome: Outcome,
        } = 8,
        /// The answer to a resolver.
        Vote {
            transaction: TransactionId,
            /// What the device knows of the transaction.
            vote: Vote,
        } = 9,
        /// The answer to a forget.
        Forgotten { transaction: TransactionId } = 10,
        /// The answer to a task.
        Managed { ticket: u64, result: Result<Managed, Failure> } = 11,
        /// The host or its epoch is not served. May answer any request.
        Rejected { rejection: Rejection } = 12,
        /// The answer to commands on objects. Everything that they did or saw is durable.
        Objects { sequence: u64, answer: ObjectAnswer } = 13,
        /// The answer to a request that waits for an attribute: its value, which is the known one if the time-out has passed.
        Changed {
            ticket: u64,
            /// The durable value; empty: undefined. Or a failure: the object does not exist any more.
            value: Result<Bytes, ObjectFailure>,
        } = 14,
        /// The answer to a repeated request to execute a column: it is under way.
        Executing { transaction: TransactionId, progress: Progress } = 15,
    }

    /// The request of a transaction that a refusal or failure answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Step {
        /// A read without a pre-write.
        Read = 1,
        /// A pre-write, with or without reads.
        Prewrite = 2,
        /// A write. Once its write is refused or failed, the transaction can never commit.
        Write = 3,
        /// The execution of a column. If the device writes in the transaction, the same holds.
        Execute = 4,
    }

    /// What the execution of a column waits for.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Progress {
        /// Transactions with lower stamps, or the disk.
        Waiting = 1,
        /// What these devices are to send.
        Gathering { missing: Vec<DeviceId> } = 2,
    }

    /// Why a transaction must be tried again.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refusal {
        /// A transaction with a higher stamp came first.
        TooLate {
            /// The stamp that it lost to: the next attempt must be above it.
            seen: Stamp,
        } = 1,
        /// The stamp is further ahead of this device's clock than the device accepts: the clock of the host or of the device is wrong.
        TooFarAhead {
            /// The reading of the device's clock.
            clock: braid_base::Clock,
        } = 2,
        /// The write has no valid pre-write: it expired, or the device restarted.
        NoPrewrite = 3,
        /// A table is full: try again later.
        Busy = 4,
        /// The locks were not available within the time-out, so that there may be a deadlock (ordering `device-lock`).
        LockTimeout = 5,
        /// Parity may not match the blocks, so that nothing can be computed from both until parity is resynchronised (atomicity
        /// `consistent`). The answer to the next heartbeat lists the suspect transactions.
        Suspect = 6,
    }

    /// Why a request can't be served.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum Failure {
        #[error("the object does not exist on the device")]
        NoSuchObject = 1,
        #[error("an object of that number exists already, with another description")]
        ObjectExists = 2,
        #[error("the range is not within the object")]
        OutOfRange = 3,
        /// The device has no free space. Overwrites still work.
        #[error("the device is full")]
        NoSpace = 4,
        /// The content of a block is lost: the block, or the record of its last write, is damaged.
        #[error("block {block} is damaged on the device")]
        Lost {
            /// The first such block of the object.
            block: u64,
        } = 5,
        #[error("the device's disk returned an error")]
        Disk = 6,
        #[error("on the device the volume has another ordering than this host assumes: restart the host")]
        WrongOrdering = 7,
        /// The request is invalid: too many extents, pieces that were not pre-written, and the like.
        #[error("the device rejects the request as malformed")]
        Malformed = 8,
        #[error("transactions on the object are under way: try again when they have ended")]
        InUse = 9,
        #[error("the device has too many undecided transactions: try again later")]
        Busy = 10,
        #[error("the device is being resynchronised and can't be read yet")]
        Absent = 11,
    }

    /// What a device knows of a transaction.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Vote {
        /// It has a durable intent and no decision.
        Prepared = 1,
        /// The transaction committed.
        Committed = 2,
        /// It has no intent, and promises never to make one.
        NeverPrepared = 3,
        /// It has no intent. It makes none as long as the stamp is that far ahead of its clock, but can't make an abort promise: a promise
        /// for such a stamp would make it refuse all other transactions.
        TooFarAhead { clock: Clock } = 4,
    }

    /// A transaction that is undecided or not forgotten yet, and whose host is gone or silent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Orphan {
        pub transaction: TransactionId,
        pub stamp: Stamp,
        /// The devices to ask.
        pub participants: Vec<DeviceId>,
    }

    /// An interrupted write: parity may not match the data of its stripes. A host should check them, resynchronise their parity, and have
    /// the device forget the transaction.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Suspect {
        pub transaction: TransactionId,
        /// The object that it wrote.
        pub object: ObjectId,
        /// The blocks to check.
        pub blocks: SuspectBlocks,
    }

    /// The blocks that a suspect transaction may have written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SuspectBlocks {
        /// Its write took effect on this device: the extent of the whole hostwrite, in blocks of the volume.
        Written(linkage: Linkage) = 1,
        /// It was announced on this device, and its write will not be accepted any more: blocks of the device's component.
        Announced(range: BlockRange) = 2,
    }

    /// The result of a [`Task`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Managed {
        /// The task is done, durably.
        Done = 1,
        Objects(objects: Vec<ObjectDescription>) = 2,
        /// The device's counters.
        Inspected(inspection: Inspection) = 3,
        /// Blocks of the volume, in ascending order, that were written while a device was out. Some of them may not concern that device.
        Missed {
            /// Some of the blocks.
            extents: Vec<BlockRange>,
            /// The block from which to continue; `None` if the list is complete.
            next: Option<u64>,
        } = 4,
        /// Blocks of the object, in ascending order.
        Extents {
            /// Some of the blocks.
            extents: Vec<BlockRange>,
            /// The block from which to continue; `None` if the list is complete.
            next: Option<u64>,
        } = 5,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ObjectDescription {
        pub object: ObjectId,
        /// Its first block.
        pub first: u64,
        /// Its length in blocks.
        pub blocks: u64,
        pub ordering: Ordering,
        /// Whether its volume can be served with any one of its devices missing. If not, nothing is ever dropped because a device was out:
        /// transactions wait for the device.
        pub redundant: bool,
        /// What happens to interrupted hostwrites.
        pub atomicity: Atomicity,
    }
}

impl ObjectDescription {
    /// An object of a redundant volume, with the usual ordering and atomicity.
    pub fn new(object: ObjectId, blocks: u64) -> ObjectDescription {
        let (ordering, atomicity) = (Ordering::Timestamp, Atomicity::Implied);
        ObjectDescription { object, first: 0, blocks, ordering, redundant: true, atomicity }
    }

    pub fn range(&self) -> BlockRange {
        BlockRange::new(self.first, self.blocks)
    }

    /// Whether its devwrites are intents.
    pub fn mode(&self) -> WriteMode {
        WriteMode::of(self.ordering, self.atomicity)
    }

    /// True if an interrupted write leaves its stripes suspect.
    pub fn can_be_suspect(&self) -> bool {
        self.atomicity == Atomicity::Consistent && self.ordering.policy().leaves_suspects
    }
}

/// The counters of a device: numbers of events since it started, unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Names and values, in a fixed order: `messages_received`, `disk_reads`, `intents_undecided`, …
    pub counters: Vec<(String, u64)>,
}
