//! Every message that hosts and devices exchange (`docs/messages.md` has them in one table). Those of lock servers are in
//! [`crate::locking`], those of the monitor in [`crate::monitoring`].
//!
//! Messages are datagrams: they may be lost, doubled, late and reordered. A host sends a request again until it
//! is answered; a device answers a repeated request as it answered the first.
//!
//! ```text
//!   host                             device
//!    │ Prewrite (stamp, blocks, reads) │   all participants: may this transaction write here, at this stamp?
//!    │────────────────────────────────►│
//!    │◄────────────── Data / Accepted ─│   yes (and what was there), or Refused: too late, above which stamp
//!    │ Write (data)                    │   all participants
//!    │────────────────────────────────►│   intent made durable
//!    │◄─────────────────────── Written │   the last one of these commits; the user is answered
//!    │ …any request, commits: [17]     │   lazily, riding on the next request
//!    │────────────────────────────────►│
//!    │◄──── …any answer, confirmed [17]│   once durable
//! ```

use crate::locking::{LockAnswer, LockRequest};
use crate::monitoring::{MonitorAnswer, MonitorRequest};
use crate::objects::{AttributeName, ObjectAnswer, ObjectFailure, ObjectRequest};
use braid_base::{BlockRange, Clock, DeviceId, Epoch, Generation, ObjectId, Stamp, TransactionId};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use bytes::Bytes;

/// What one node says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From a host to a device.
    Request(Request),
    /// From a device to a host.
    Answer(Answer),
    /// From a host to a lock server.
    LockRequest(LockRequest),
    /// From a lock server to a host.
    LockAnswer(LockAnswer),
    /// To the monitor.
    MonitorRequest(MonitorRequest),
    /// From the monitor.
    MonitorAnswer(MonitorAnswer),
}

/// From a host to a device: a command, and what rides on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's generation, which is fenced when the host is to be kept out.
    pub host: Generation,
    /// The epoch in which the host sent it.
    pub epoch: Epoch,
    /// Every transaction of this host with a lower sequence, of those in which this device took part, is over:
    /// all its participants have confirmed the outcome. The device may forget them.
    pub settled: u64,
    /// Sequences of further such transactions, above that mark: told once, so that one participant that is unavailable does not
    /// make the others remember everything since.
    pub over: Vec<u64>,
    /// Sequences of this host's own transactions that have committed. They take effect before the command. Of a transaction
    /// that only holds locks on this device (ordering `device-lock`), the unlock.
    pub commits: Vec<u64>,
    /// What the host wants.
    pub command: Command,
}

/// What a host wants of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// "I am alive": renews the host's lease at this device. Answered by [`Reply::Heartbeat`].
    Heartbeat,
    /// devread: the content of these blocks at this stamp.
    Read {
        /// The reading transaction.
        transaction: TransactionId,
        /// Where it stands in the order.
        stamp: Stamp,
        /// Which object.
        object: ObjectId,
        /// How the host takes it to be ordered; a device that has it otherwise refuses.
        ordering: Ordering,
        /// Which of its blocks.
        extents: Vec<BlockRange>,
        /// The bytes, or only where there are any.
        want: Want,
    },
    /// Announces a write of `prewrites`; with `reads`, a read-and-pre-write, answered with their content.
    Prewrite {
        /// The writing transaction.
        transaction: TransactionId,
        /// Where it stands in the order.
        stamp: Stamp,
        /// Which object.
        object: ObjectId,
        /// How the host takes it to be ordered; a device that has it otherwise refuses.
        ordering: Ordering,
        /// The blocks that it is going to write.
        prewrites: Vec<BlockRange>,
        /// The blocks that it needs to see first.
        reads: Vec<BlockRange>,
    },
    /// devwrite: becomes a durable intent, undecided until every participant has one. The blocks are those
    /// pre-written.
    Write {
        /// The writing transaction.
        transaction: TransactionId,
        /// Where it stands in the order.
        stamp: Stamp,
        /// Which object.
        object: ObjectId,
        /// How the host takes it to be ordered; a device that has it otherwise refuses.
        ordering: Ordering,
        /// Every device that writes in this transaction, this one included: whoever finds the intent undecided
        /// asks them.
        participants: Vec<DeviceId>,
        /// The hostwrite's extent, kept in the header of every block.
        linkage: Linkage,
        /// Whether it waits for a decision.
        mode: WriteMode,
        /// The new content.
        pieces: Vec<Piece>,
    },
    /// The outcome of a transaction: the sender's own abort, or what a resolver found.
    Decide {
        /// Which transaction; of any host.
        transaction: TransactionId,
        /// Its stamp, so that a device that never heard of it can refuse it for ever.
        stamp: Stamp,
        /// What became of it.
        outcome: Outcome,
    },
    /// Asks what the device knows of a transaction. A device that has no intent for it promises, by answering,
    /// never to make one.
    Resolve {
        /// Which transaction; of any host.
        transaction: TransactionId,
        /// Its stamp.
        stamp: Stamp,
    },
    /// All participants of this transaction have confirmed its outcome: the device need not remember it.
    Forget {
        /// Which transaction; of any host.
        transaction: TransactionId,
    },
    /// Business that has no stamps: objects, what others missed, counters.
    Manage {
        /// Names the request; the answer carries it.
        ticket: u64,
        /// What to do.
        task: Task,
    },
    /// Has commands on objects done, once, however often it is sent. Answered by [`Reply::Objects`].
    Objects {
        /// Names the request among those of the host; of the transactions' sequences.
        sequence: u64,
        /// What the host had given up of requests like this one when it began it, in stretches: where each begins, and what is behind it,
        /// ascending and apart. They take in nothing that the host still waits for. By the answer they have happened or never will.
        abandoned: Vec<(u64, u64)>,
        /// What to do.
        request: ObjectRequest,
    },
    /// Waits until an attribute's value is another one. Answered by [`Reply::Changed`].
    Await {
        /// Names the request; the answer carries it.
        ticket: u64,
        /// Of which object.
        object: ObjectId,
        /// Which.
        name: AttributeName,
        /// The value that is known already; no bytes: undefined.
        seen: Bytes,
        /// So long at most, in milliseconds; then it is answered as it is.
        patience: u32,
    },
}

/// What a read is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The content.
    Data,
    /// Only which blocks have any ([`Content::Present`]) and which were never written or were given back.
    Allocation,
    /// Only who wrote the blocks last, and as part of what ([`Content::Header`]); of what was given back, a hole.
    Linkage,
    /// The content as far as it is there; of blocks that are damaged, that they are ([`Content::Lost`]).
    Salvage,
}

/// A storage transaction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every participant had its intent: the new content stands.
    Commit,
    /// The old content stands.
    Abort,
    /// Some of its writes have taken effect on arrival, and the others never will: whatever the device has of it is suspect.
    Interrupted,
}

/// The linkage record of the shared-array paper (section 5): which hostwrite a block was last part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// The hostwrite's first block in its volume.
    pub first: u64,
    /// Its last block.
    pub last: u64,
}

/// Blocks and what is, or shall be, in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which blocks of the object.
    pub range: BlockRange,
    /// Their content.
    pub content: Content,
}

/// What is in some blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: they read as zeros and take no space.
    Hole,
    /// Something, which was not asked for.
    Present,
    /// What this hostwrite of this transaction brought.
    Header {
        /// Whose.
        transaction: TransactionId,
        /// All that it wrote.
        linkage: Linkage,
    },
    /// These bytes: a block's worth for each block.
    Data(Bytes),
    /// It was lost: in answer to a read that wants what is left; and in a write, of what nothing can restore.
    Lost,
}

/// Requests that concern the device as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Makes an object with room for so many blocks, all of them holes. Done again with the same description,
    /// it changes nothing.
    CreateObject {
        /// Its name.
        object: ObjectId,
        /// Its first block: a whole chunk's.
        first: u64,
        /// Its length in blocks, set aside at once.
        blocks: u64,
        /// How its requests are ordered.
        ordering: Ordering,
        /// Whether its volume does without any one of its devices.
        redundant: bool,
        /// What becomes of hostwrites that are cut short.
        atomicity: Atomicity,
        /// So many of its first blocks are absent until they are written, since others hold what belongs there; the rest are holes.
        absent: u64,
    },
    /// Orders the object's requests otherwise from now on, unless transactions on it are under way. Again the same, it changes
    /// nothing.
    SetOrdering {
        /// Its name.
        object: ObjectId,
        /// How its requests are to be ordered.
        ordering: Ordering,
    },
    /// Has the object consist of other blocks from now on, unless transactions on it are under way. What it had not is holes, and what it
    /// loses is given back. Again the same, it changes nothing.
    ResizeObject {
        /// Its name.
        object: ObjectId,
        /// Its blocks from now on; the first is a whole chunk's.
        range: BlockRange,
        /// Of those that it had not, these are absent until they are written, since others hold what belongs there.
        absent: BlockRange,
    },
    /// Removes an object and all it holds.
    RemoveObject {
        /// Its name.
        object: ObjectId,
    },
    /// Lists the objects.
    ListObjects,
    /// Ends when everything answered before is durable, which it is anyhow: kept for relaxed modes.
    Flush,
    /// What was written while another device was out, which that device has therefore missed. Answered by [`Managed::Missed`].
    ListMissed {
        /// The device that was out.
        device: DeviceId,
        /// Of which object.
        object: ObjectId,
        /// From this block of the volume on.
        from: u64,
    },
    /// What the device has done and holds.
    Inspect,
    /// Which blocks of an object are absent. Answered by [`Managed::Extents`].
    ListAbsent {
        /// Of which object.
        object: ObjectId,
        /// From this block of it on.
        from: u64,
    },
    /// Which blocks of an object may hold something, in whole chunks. Answered by [`Managed::Extents`].
    ListAllocated {
        /// Of which object.
        object: ObjectId,
        /// Among these of its blocks.
        range: BlockRange,
    },
}

/// From a device to a host: a reply, and what rides on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The epoch in which the device answers.
    pub epoch: Epoch,
    /// Sequences of the host's own transactions whose commit is now durable here.
    pub confirmed: Vec<u64>,
    /// The reply.
    pub reply: Reply,
}

/// What a device says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a heartbeat, with transactions of dead hosts that somebody should resolve or repair.
    Heartbeat {
        /// Some of those to be resolved, if there are any.
        orphans: Vec<Orphan>,
        /// Some of those whose stripes are suspect, if there are any.
        suspects: Vec<Suspect>,
        /// Whether it has lately served users: hosts other than the asker, and than those that help devices.
        busy: bool,
    },
    /// To a read, or to a read-and-pre-write that was accepted: the content, in the order asked for.
    Data {
        /// The transaction that asked.
        transaction: TransactionId,
        /// Whether somebody was in the way, so that it had to wait.
        waited: bool,
        /// Blocks and content.
        pieces: Vec<Piece>,
    },
    /// To a pre-write without reads: accepted.
    Accepted {
        /// The transaction that asked.
        transaction: TransactionId,
        /// Whether somebody was in the way, so that it had to wait.
        waited: bool,
    },
    /// To a write: the intent is durable (or, for an immediate one, the write is).
    Written {
        /// The transaction that asked.
        transaction: TransactionId,
        /// Whether somebody was in the way, so that it had to wait.
        waited: bool,
    },
    /// No; the transaction must be tried again as a new one, above what it lost to.
    Refused {
        /// The transaction that asked.
        transaction: TransactionId,
        /// What it had asked for.
        step: Step,
        /// Why.
        refusal: Refusal,
    },
    /// No, and trying again as things stand will not help.
    Failed {
        /// The transaction that asked.
        transaction: TransactionId,
        /// What it had asked for.
        step: Step,
        /// Why.
        failure: Failure,
    },
    /// Unasked: somebody waits for the decision of this transaction of yours.
    Blocked {
        /// Which one.
        transaction: TransactionId,
    },
    /// To a decision: durable here.
    Decided {
        /// Which transaction.
        transaction: TransactionId,
        /// The outcome that stands here. A late abort never undoes a commit.
        outcome: Outcome,
    },
    /// To a resolver.
    Vote {
        /// Which transaction.
        transaction: TransactionId,
        /// What is known of it here.
        vote: Vote,
    },
    /// To a forget.
    Forgotten {
        /// Which transaction.
        transaction: TransactionId,
    },
    /// To a task.
    Managed {
        /// The request's ticket.
        ticket: u64,
        /// How it went.
        result: Result<Managed, Failure>,
    },
    /// To anything, when the host or its epoch is not served.
    Rejected {
        /// Why.
        rejection: Rejection,
    },
    /// To commands on objects: durable, all that they saw included.
    Objects {
        /// The request's.
        sequence: u64,
        /// What became of it.
        answer: ObjectAnswer,
    },
    /// To who waits for an attribute: its value, which may be the one that was known, if the time is up.
    Changed {
        /// The request's.
        ticket: u64,
        /// The value, durable; no bytes: undefined. Or that there is no such object any more.
        value: Result<Bytes, ObjectFailure>,
    },
}

/// Which request of a transaction a refusal or failure answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A read without a pre-write.
    Read,
    /// A pre-write, with or without reads.
    Prewrite,
    /// A write. Once refused or failed here, the transaction can never commit.
    Write,
}

/// Why a transaction must try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A transaction with a higher stamp was here first.
    TooLate {
        /// The stamp it lost to: try above it.
        seen: Stamp,
    },
    /// The stamp is further ahead of this device's clock than it accepts: the host's clock, or the device's, is
    /// wrong.
    TooFarAhead {
        /// The device's clock.
        clock: braid_base::Clock,
    },
    /// A write came without its live pre-write: it expired, or the device restarted.
    NoPrewrite,
    /// A table is full: try again later.
    Busy,
    /// The locks could not be had in time: this may be a deadlock (ordering `device-lock`).
    LockTimeout,
    /// Parity may not match what was asked for, so that nothing can be computed from both until it is repaired (atomicity
    /// `consistent`). The next heartbeat is answered with what is suspect.
    Suspect,
}

/// Why a request can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// The object does not exist on this device.
    #[error("the object does not exist on the device")]
    NoSuchObject,
    /// An object of this name exists with another description.
    #[error("an object of that name exists already, with another description")]
    ObjectExists,
    /// The blocks are not within the object.
    #[error("the range is not within the object")]
    OutOfRange,
    /// No space for it. Overwrites still work.
    #[error("the device is full")]
    NoSpace,
    /// The content of a block was lost: it, or the record of its last write, is damaged.
    #[error("block {block} is damaged on the device")]
    Lost {
        /// The first such block of the object.
        block: u64,
    },
    /// The disk answered with an error.
    #[error("the device's disk failed")]
    Disk,
    /// Transactions on the object are under way.
    #[error("transactions on the object are under way: try again when they are over")]
    InUse,
    /// Too much is undecided: the same later will do.
    #[error("the device has too much undecided")]
    Busy,
    /// The device is catching up with what it missed, and can't tell old from new yet.
    #[error("the device is catching up and can't be read yet")]
    Absent,
    /// The object is ordered otherwise than the request assumes.
    #[error("on the device the volume has another ordering than this host assumes: start the host again")]
    WrongOrdering,
    /// The request makes no sense: too many extents, pieces that were not pre-written, and the like.
    #[error("the device does not understand the request")]
    Malformed,
}

/// Why a device or lock server does not serve a host at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    /// The host's generation was fenced.
    #[error("this host was fenced: its lease had run out, and it must start again")]
    Fenced,
    /// Another epoch rules.
    #[error("the request was of another epoch than the one that rules there")]
    WrongEpoch {
        /// The device's.
        current: Epoch,
    },
    /// The device keeps too many hosts in mind.
    #[error("too many hosts are served there")]
    TooManyHosts,
}

/// What a device knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It has a durable intent and no decision.
    Prepared,
    /// It committed.
    Committed,
    /// It has none, and will never make one.
    NeverPrepared,
    /// It has none. It makes none as long as the stamp is so far ahead of its clock, but can't promise more: a promise for such a stamp
    /// would keep everybody else away.
    TooFarAhead {
        /// Its clock's reading.
        clock: Clock,
    },
}

/// An undecided or unforgotten transaction whose host is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Which one.
    pub transaction: TransactionId,
    /// Its stamp.
    pub stamp: Stamp,
    /// Whom to ask.
    pub participants: Vec<DeviceId>,
}

/// A transaction that was cut short, so that parity may not match its data: somebody should find out, repair it, and have the
/// device forget the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Which one.
    pub transaction: TransactionId,
    /// The object that it wrote.
    pub object: ObjectId,
    /// What of it.
    pub blocks: SuspectBlocks,
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectBlocks {
    /// Its write has taken effect on this device: all that it was to write, in blocks of the volume.
    Written(Linkage),
    /// It was announced on this device, and its write will not be taken any more: these blocks of the device's component.
    Announced(BlockRange),
}

/// The result of a [`Task`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Managed {
    /// It is done, durably.
    Done,
    /// The objects.
    Objects(Vec<ObjectDescription>),
    /// Counters and sizes.
    Inspected(Inspection),
    /// Blocks of the volume, ascending, that were written while a device was out; some of them it may have nothing to do with.
    Missed {
        /// Some of them.
        extents: Vec<BlockRange>,
        /// Ask again from this block on; none if these were the last.
        next: Option<u64>,
    },
    /// Blocks of the object, ascending.
    Extents {
        /// Some of them.
        extents: Vec<BlockRange>,
        /// Ask again from this block on; none if these were the last.
        next: Option<u64>,
    },
}

/// An object as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectDescription {
    /// Its name.
    pub object: ObjectId,
    /// Its first block.
    pub first: u64,
    /// Its length in blocks.
    pub blocks: u64,
    /// How its requests are ordered.
    pub ordering: Ordering,
    /// Whether its volume does without any one of its devices. Of one that does not, nothing is ever dropped because a device was
    /// out: its transactions wait for the device.
    pub redundant: bool,
    /// What becomes of hostwrites that are cut short.
    pub atomicity: Atomicity,
}

impl ObjectDescription {
    /// Its blocks.
    pub fn range(&self) -> BlockRange {
        BlockRange::new(self.first, self.blocks)
    }

    /// How its devwrites are made.
    pub fn mode(&self) -> WriteMode {
        WriteMode::of(self.ordering, self.atomicity)
    }

    /// True if what was cut short leaves its stripes suspect.
    pub fn can_be_suspect(&self) -> bool {
        self.atomicity == Atomicity::Consistent && self.ordering.policy().leaves_suspects
    }
}

/// What a device has done since it started, and what it holds. Counts of events unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Name and value, in a fixed order: `messages_received`, `disk_reads`, `intents_undecided`, …
    pub counters: Vec<(String, u64)>,
}
