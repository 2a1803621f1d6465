//! Messages between hosts and lock servers (shared-array paper, sections 4.2 and 4.3).
//!
//! A *lock* is a set of extents of a volume's components that one lock request asks for, each shared or exclusive. It is granted as a whole
//! or not at all. Its name is its host's generation and a number that the host increments.
//!
//! ```text
//!   server-lock                                     callback-lock
//!   host                          lock server        host                          lock server
//!    │ Lock (lock, extents)           │              │ Lock (lock, extents, cached)   │
//!    │───────────────────────────────►│              │───────────────────────────────►│
//!    │◄─────────────── Granted (lock) │              │◄─────────────── Granted (lock) │
//!    │   … requests to devices …      │              │   … many transactions …        │
//!    │ Unlock (lock)                  │              │◄─────────────── Revoke (locks) │  another host wants them
//!    │───────────────────────────────►│              │ Yield (locks)                  │  as soon as they are idle
//!    │◄────────────── Unlocked (lock) │              │───────────────────────────────►│
//! ```
//!
//! A host repeats a request until it is answered; a server answers a repeated request as it answered the first. The server repeats a
//! revocation until the locks are given back.
//!
//! Lock numbers are never reused, and servers keep no record of released locks. Therefore a `Lock` request that is delivered after its
//! `Unlock` is granted again, to a host that does not know the lock any more. The host resolves this: it gives back a lock that it does
//! not know as soon as the lock is granted (`Unlock`) or revoked (`Yield`). For this purpose servers also revoke the locks of
//! transactions that have kept others waiting for long; a host that is using such a lock ignores the revocation. A revocation may
//! overtake its grant: then the host gives the lock back as soon as the transactions that waited for the grant have used it.
//!
//! After a restart the server grants nothing until every host that may hold locks has reported them again, or is fenced:
//!
//! ```text
//!   host                                        lock server
//!    │ anything (start: 3)                          │   the server has restarted, as start 4
//!    │─────────────────────────────────────────────►│
//!    │◄───────────────────────── Heartbeat (start 4)│   the host ignores answers of start 3 from now on
//!    │ Lock (lock, Held, to start 4; start: 3)      │   each lock that it holds
//!    │─────────────────────────────────────────────►│
//!    │◄───────────────────────────── Granted (lock) │
//!    │ anything (start: 4)                          │   once all are granted: "you know all that I hold"
//!    │─────────────────────────────────────────────►│
//! ```

use braid_base::{BlockRange, Generation, ObjectId, Time};
use serde::{Deserialize, Serialize};

use crate::declarations::wire;
use crate::rejection::Rejection;

wire! {
    /// A message from a host to a lock server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LockRequest {
        /// The host's generation. Fencing refuses it.
        pub host: Generation,
        /// The start of the lock server that knows every lock of the host; zero before the first answer. It becomes the start of a
        /// restarted server once that has confirmed all locks.
        pub start: Generation,
        /// Locks that the host has dropped since its last message (locks whose lease expired while they were idle). This is not confirmed:
        /// if the message is lost, the server revokes the locks when another host wants them.
        pub dropped: Vec<u64>,
        pub command: LockCommand,
    }

    /// A command of a host to a lock server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum LockCommand {
        /// Renews the host's lease. Answered by [`LockReply::Heartbeat`].
        Heartbeat {
            /// When it was sent, by the host's clock. The answer repeats it.
            sent: Time,
        } = 1,
        /// Locks all of these extents, and waits until that is possible.
        Lock {
            lock_id: u64,
            /// The component objects of the volume.
            object: ObjectId,
            extents: Vec<LockExtent>,
            /// How long the lock lasts.
            term: LockTerm,
        } = 2,
        /// Releases the lock of an ended transaction. Answered by [`LockReply::Unlocked`].
        Unlock { lock_id: u64 } = 3,
        /// Gives back revoked locks. Not answered: if it is lost, the server revokes them again.
        Yield { lock_ids: Vec<u64> } = 4,
        /// Locks all of these extents, waits until that is possible, and keeps the lock until it is called back, in parts (range-lock
        /// paper: a datalock). Answered by [`LockReply::GrantedRange`]. Locks of this host that are named in `over` do not count: so a
        /// shared lock is promoted while it is held, and may be called back meanwhile.
        LockRange {
            lock_id: u64,
            object: ObjectId,
            extents: Vec<LockExtent>,
            /// If the lock is granted at once, and has one extent: the most blocks by which this may be longer at its end.
            width: u64,
            /// If the lock is granted at once: extents that belong to it, too, as far as each is free.
            ahead: Vec<LockExtent>,
            /// At most [`limits::COMMITS_PER_REQUEST_MAX`](braid_base::limits::COMMITS_PER_REQUEST_MAX).
            over: Vec<u64>,
            patience: Patience,
        } = 6,
        /// Keeps only these parts of locks that were called back; of a lock without extents, nothing. Not answered: if it is lost, the
        /// server calls them back again.
        Shrink {
            rest: Vec<LockPart>,
            /// If the recall asks for it: what was called back and is in use.
            in_use: Vec<LockPart>,
        } = 7,
        /// Lists locks of all hosts, in the order of their names, from this name on. Answered by [`LockReply::Surveyed`].
        Survey {
            ticket: u64,
            from: LockName,
            /// Only those on this object.
            object: Option<ObjectId>,
            /// Only those that wait.
            waiting: bool,
        } = 8,
    }

    /// What a request for ranges waits for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Patience {
        /// All that conflicts and came before it.
        InTurn = 1,
        /// Locks that are held: it passes requests that wait. One of these may wait for another lock of its owner.
        ForHeld = 2,
        /// The same. Its owner has what it names as shared, or all of it if that is nothing, and keeps it. Of two such requests that want
        /// some of what the other one keeps, the second is refused.
        Upgrade = 3,
        /// Locks that their hosts keep and do not use. It passes requests that wait, and is refused when a host says that it uses some of
        /// it, or when it has waited for as long as recalls may take.
        Impatient = 4,
    }

    /// The name of a lock among those of all hosts.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct LockName {
        pub host: Generation,
        /// The number that its host gave it.
        pub lock_id: u64,
    }

    /// Some of the locks of a server, as they were at one time.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LockSurvey {
        /// At most [`LOCKS_SURVEYED_MAX`].
        pub locks: Vec<SurveyedLock>,
        /// Where to continue; none: there are no more.
        pub next: Option<LockName>,
        /// False if the server has started again, and waits for hosts to report what they hold: what was requested since is not listed.
        pub is_recovered: bool,
    }

    /// A lock of some host, held or waiting.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SurveyedLock {
        pub name: LockName,
        pub object: ObjectId,
        /// The first [`LOCK_PART_EXTENTS_MAX`] of them.
        pub extents: Vec<LockExtent>,
        /// The number of all.
        pub all_extents: u32,
        /// Since when it has been held, or has waited, in milliseconds.
        pub millis: u64,
        /// Some hosts with earlier locks for which it waits: at most [`LOCK_PARTS_MAX`], ascending. Empty: it is held.
        pub behind: Vec<Generation>,
    }
}

/// The most locks in one survey.
pub const LOCKS_SURVEYED_MAX: usize = 64;

wire! {
    /// How long a lock lasts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LockTerm {
        /// The lock lasts for one transaction; a host that uses it ignores revocations. If `impatient`, the request is refused when it has
        /// waited for the lock time-out, rather than kept waiting: the host asked several lock servers at once, so that there may be a
        /// deadlock.
        Transaction {
            /// Whether to refuse the request at the time-out.
            impatient: bool,
        } = 1,
        /// The lock is cached by the host until it is revoked, or until the host drops it.
        Cached = 2,
        /// The host already holds the lock, granted by an earlier start of the server.
        Held {
            /// The start that the report is for. Later starts ignore late copies of it.
            start: Generation,
            /// Whether it is a cached lock.
            cached: bool,
        } = 3,
        /// Like `Held`, for a lock of [`LockCommand::LockRange`].
        HeldRange { start: Generation } = 4,
        /// A *lease*: a shared lock that is granted at once or not at all, ends when another owner wants what conflicts with it, and lapses
        /// if the host is silent for too long. It is never reported to a restarted server.
        Lease = 5,
    }

    /// Some extents of a lock.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LockPart {
        pub lock_id: u64,
        pub extents: Vec<LockExtent>,
    }
}

/// The most locks of which one message names parts, and the most extents of each in such a message.
pub const LOCK_PARTS_MAX: usize = 16;
pub const LOCK_PART_EXTENTS_MAX: usize = 64;

/// A run of blocks to be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockExtent {
    /// The component, as the number of its device; 0 in the table of a device, which has only one component. (Positions on a volume's
    /// ring would change when the volume moves.)
    pub position: u16,
    pub range: BlockRange,
    pub mode: LockMode,
}

impl LockExtent {
    /// True if different owners can't hold both at once.
    pub fn conflicts(&self, other: &LockExtent) -> bool {
        self.position == other.position && self.range.overlaps(other.range) && self.mode.conflicts(other.mode)
    }

    /// True if an owner of this extent needs no lock on the other.
    pub fn covers(&self, other: &LockExtent) -> bool {
        self.position == other.position && self.range.contains(other.range) && self.mode.includes(other.mode)
    }

    /// What of this extent no other one covers, alone or together.
    pub fn uncovered<'a>(self, others: impl IntoIterator<Item = &'a LockExtent>) -> Vec<LockExtent> {
        others.into_iter().fold(vec![self], |left, other| {
            let is_as_strong = other.mode.includes(self.mode);
            let other = LockExtent { mode: LockMode::Exclusive, ..*other };
            let cut = |extent: LockExtent| if is_as_strong { extent.without(&other) } else { vec![extent] };
            left.into_iter().flat_map(cut).collect()
        })
    }

    /// What is left of this extent if nothing that conflicts with another one is kept: at most three pieces. An exclusive lock that others
    /// want to share is kept shared there.
    pub fn without(self, other: &LockExtent) -> Vec<LockExtent> {
        if !self.conflicts(other) {
            return vec![self];
        }
        let shared = self.range.intersection(other.range);
        let before = LockExtent { range: BlockRange::between(self.range.start, shared.start), ..self };
        let after = LockExtent { range: BlockRange::between(shared.end(), self.range.end()), ..self };
        let within = LockExtent { range: shared, mode: LockMode::Shared, ..self };
        let pieces = [before, within, after];
        let is_left =
            |piece: &LockExtent| !piece.range.is_empty() && (piece.range != shared || other.mode == LockMode::Shared);
        pieces.into_iter().filter(is_left).collect()
    }
}

/// Which other locks a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Others may hold the same blocks shared: for reading.
    Shared,
    /// No other owner holds the blocks: for writing.
    Exclusive,
}

impl LockMode {
    /// True if different owners can't hold both at once.
    pub fn conflicts(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }

    /// True if this mode is as strong as the other one.
    pub fn includes(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Shared
    }
}

wire! {
    /// A message from a lock server to a host.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LockAnswer {
        /// The start of the lock server that answers. Starts increase: a host ignores answers of an earlier start than the latest it has
        /// seen. When it sees a later one, it must report its locks to it within a lease.
        pub start: Generation,
        pub reply: LockReply,
    }

    /// A reply of a lock server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum LockReply {
        /// The answer to a heartbeat, or to a request that waits until the host has reported its locks.
        Heartbeat {
            /// When the heartbeat was sent, by the host's clock: the server counts its silence from then on, or later. 0 if this answers
            /// none.
            sent: Time,
        } = 1,
        /// The lock is granted.
        Granted {
            lock_id: u64,
            /// Whether the request had to wait for another owner.
            waited: bool,
        } = 2,
        /// The lock is released.
        Unlocked { lock_id: u64 } = 3,
        /// Unsolicited: another host wants these locks; give them back as soon as they are idle.
        Revoke { lock_ids: Vec<u64> } = 4,
        /// The lock is refused: the transaction must release its other locks and try again.
        Refused { lock_id: u64, refusal: LockRefusal } = 5,
        /// The host is not served. May answer any request.
        Rejected { rejection: Rejection } = 6,
        /// The lock of ranges is granted, perhaps with a longer extent, or with more of them, than was requested.
        GrantedRange { lock_id: u64, extents: Vec<LockExtent>, waited: bool } = 7,
        /// Unsolicited: other hosts want these extents, parts of which the host's locks cover. Give them back as soon as they are idle: all
        /// of it to a host that wants an exclusive lock, the exclusive right to one that wants to share. With `asks`, one of these is
        /// impatient: say at once what is in use. Of a request that waits, and is in the way of others, no extents are named: a host that
        /// does not know it gives it back.
        Recall { wanted: Vec<LockPart>, asks: bool } = 8,
        /// Some of the server's locks.
        Surveyed { ticket: u64, survey: LockSurvey } = 9,
        /// The same, to each host of a *node group* (range-lock paper, section 3.1): some host of the group has locks that conflict with
        /// these extents.
        RecallGroup { object: ObjectId, extents: Vec<LockExtent> } = 10,
    }

    /// Why a lock is refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LockRefusal {
        /// It was not available within the time-out, and the request was impatient; or two upgrades would wait for each other.
        Timeout = 1,
        /// The table is full: try again later.
        Busy = 2,
        /// The request is invalid: it has no extents, too many, or an empty one.
        Malformed = 3,
    }
}
