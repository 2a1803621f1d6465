//! What hosts and lock servers say to each other (shared array, sections 4.2 and 4.3).
//!
//! A *lock* is what one lock request asks for: extents of a volume's components, each shared or exclusive, all granted at
//! once or not at all. It is named by its host's generation and a number that the host counts up.
//!
//! ```text
//!   server-lock                                     callback-lock
//!   host                         lock server        host                          lock server
//!    │ Lock (lock, extents)          │              │ Lock (lock, extents, keep)     │
//!    │───────────────────────────────►│              │────────────────────────────────►│
//!    │◄────────────── Granted (lock) │              │◄─────────────── Granted (lock) │
//!    │   … requests to devices …      │              │   … many transactions …         │
//!    │ Unlock (lock)                 │              │◄────────────── Recall (locks)  │  somebody else wants them
//!    │───────────────────────────────►│              │ Yield (locks)                  │  as soon as they are idle
//!    │◄───────────── Unlocked (lock) │              │────────────────────────────────►│
//! ```
//!
//! A host sends a request again until it is answered; a server answers a repeated one as it answered the first. Revocations are
//! repeated until the locks are given back.
//!
//! Numbers of locks are never used again, and servers keep no record of those that are over. So a `Lock` that comes late,
//! after its `Unlock`, is granted once more, to a host that knows nothing of it. The host sees to it: a lock that it does not
//! know, it gives back at once, when it is granted (`Unlock`) and whenever it is revoked (`Yield`). For that, locks of
//! transactions are revoked, too, once they have been in the way for long; a host in whose use they are takes no notice.
//! A revocation may overtake its grant: then the lock goes back as soon as those have used it that waited for the grant.
//!
//! After a restart the server grants nothing until every host that may hold anything has said it again, or is fenced:
//!
//! ```text
//!   host                                        lock server
//!    │ anything (start: 3)                          │   the server has started again, as 4
//!    │─────────────────────────────────────────────►│
//!    │◄───────────────────────── Heartbeat (start 4)│   the host stops to take answers of start 3
//!    │ Lock (lock, Held, to start 4; start: 3)     │   each lock that it holds
//!    │─────────────────────────────────────────────►│
//!    │◄──────────────────────────── Granted (lock) │
//!    │ anything (start: 4)                          │   once all are granted: "you know all that I hold"
//!    │─────────────────────────────────────────────►│
//! ```

use braid_base::{BlockRange, Generation, ObjectId};

use crate::message::Rejection;

/// From a host to a lock server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The host's generation, which is fenced when the host is to be kept out.
    pub host: Generation,
    /// The start of the lock server that knows every lock that the host holds; zero before the first answer. It changes to
    /// that of a restarted server once this has confirmed them all.
    pub start: Generation,
    /// Claims that the host has let go since it last said so (locks whose lease ran out while they were idle). Never
    /// confirmed: if this is lost, the server finds out when it revokes them.
    pub dropped: Vec<u64>,
    /// What the host wants.
    pub command: LockCommand,
}

/// What a host wants of a lock server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockCommand {
    /// "I am alive": renews the host's lease. Answered by [`LockReply::Heartbeat`].
    Heartbeat,
    /// Locks all of these extents, or waits until it can.
    Lock {
        /// Names the lock.
        lock_id: u64,
        /// Of which volume's components.
        object: ObjectId,
        /// What is to be locked.
        extents: Vec<LockExtent>,
        /// What kind of lock it is.
        term: LockTerm,
    },
    /// Gives back locks of ended transactions. Answered by [`LockReply::Unlocked`].
    Unlock {
        /// Which.
        lock_id: u64,
    },
    /// Gives back revoked locks. Not answered: if it is lost, they are revoked again.
    Yield {
        /// Which.
        lock_ids: Vec<u64>,
    },
}

/// How long a lock is to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTerm {
    /// For one transaction: never revoked, refused rather than kept waiting beyond the time-out if `impatient` (several lock
    /// servers are asked at once, so that this may be a deadlock).
    Transaction {
        /// Whether it would rather be refused than wait for long.
        impatient: bool,
    },
    /// Until it is revoked, or the host drops it.
    Cached,
    /// The host holds this already, from an earlier start of the server.
    Held {
        /// The start that is told: a late copy means nothing to the next.
        start: Generation,
        /// Whether it is of the kind that is kept until revoked.
        cached: bool,
    },
}

/// A run of blocks to be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockExtent {
    /// Of which component: the number of the device that holds it; 0 in a device, which has but one. (Positions on a volume's ring change
    /// when it moves.)
    pub position: u16,
    /// Which blocks.
    pub range: BlockRange,
    /// Against whom.
    pub mode: LockMode,
}

/// Against whom a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Others may hold the same blocks shared: for reading.
    Shared,
    /// Nobody else holds the blocks: for writing.
    Exclusive,
}

impl LockMode {
    /// True if both can't be held by different owners at once.
    pub fn conflicts(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// From a lock server to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockAnswer {
    /// The start of the server that answers. Starts count up: answers of a lower one than the host has seen are late, and mean
    /// nothing. To a higher one it says again what it holds, within a lease.
    pub start: Generation,
    /// The reply.
    pub reply: LockReply,
}

/// What a lock server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// To a heartbeat.
    Heartbeat,
    /// The lock is the host's.
    Granted {
        /// Which.
        lock_id: u64,
        /// Whether somebody was in the way.
        waited: bool,
    },
    /// The lock is given back.
    Unlocked {
        /// Which.
        lock_id: u64,
    },
    /// Unasked: give these back as soon as they are idle; somebody else wants them.
    Revoke {
        /// Which.
        lock_ids: Vec<u64>,
    },
    /// No: the transaction must give up its other locks and try again.
    Refused {
        /// Which.
        lock_id: u64,
        /// Why.
        refusal: LockRefusal,
    },
    /// To anything, when the host is not served.
    Rejected {
        /// Why.
        rejection: Rejection,
    },
}

/// Why a lock is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRefusal {
    /// It could not be had in time, and the host was impatient.
    Timeout,
    /// The table is full: try again later.
    Busy,
    /// It makes no sense: no extents, too many, or one that is empty.
    Malformed,
}
