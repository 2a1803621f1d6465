//! Who wants locks, which, and what becomes of them afterwards.

use braid_base::ObjectId;
use braid_wire::locking::{LockExtent, Patience};

/// A part of the owner that has lock holders. The owner gives each of its parts its own number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part(pub u8);

/// The name of a holder among those of all parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct HolderId {
    pub part: Part,
    /// The number that the part gave it.
    pub number: u64,
}

/// The locks that a holder needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub object: ObjectId,
    pub extents: Vec<LockExtent>,
    /// The blocks of a stripe unit. Lock servers divide the volume among themselves by stripes.
    pub unit_blocks: u64,
    /// What becomes of the locks after their holder.
    pub retention: Retention,
    /// What is waited for, also among the holders of this host. Locks that are cached as a whole are waited for in turn. Who passes others may
    /// be granted what conflicts with [rivals](super::PartLocks::rivals): the part has to look.
    pub patience: Patience,
    /// Of locks that are kept in parts: other holders of the part, whose locks on the object do not count. The locks are granted over them.
    pub over: Vec<u64>,
}

impl Wanted {
    /// Locks on the usual terms, on an object that only one lock server serves.
    pub fn new(object: ObjectId, extents: Vec<LockExtent>, retention: Retention) -> Wanted {
        Wanted { object, extents, unit_blocks: 1, retention, patience: Patience::InTurn, over: Vec::new() }
    }
}

/// What becomes of locks when their holder releases them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// They are released.
    Released,
    /// They are cached for later holders, until they are revoked or their lease ends.
    Cached,
    /// They are cached until they are recalled, and what no other host wants is kept (range-lock paper: datalocks, and childlocks below
    /// them). Locks that follow each other, or with equal gaps, are granted together with up to `width` blocks that are likely to follow.
    CachedInParts { width: u64 },
    /// They are leases: shared, granted at once or not at all, and lost without warning when another owner wants what conflicts with them, or
    /// their server may not have heard this host for long. Holders of this host are not kept apart by them: the server does that.
    Leased,
}

impl Retention {
    pub(super) fn caches(self) -> bool {
        !matches!(self, Retention::Released | Retention::Leased)
    }

    /// True if each lock server is asked for its own ranges.
    pub(super) fn is_of_ranges(self) -> bool {
        matches!(self, Retention::CachedInParts { .. } | Retention::Leased)
    }

    /// None unless the locks are kept in parts.
    pub(super) fn width(self) -> Option<u64> {
        if let Retention::CachedInParts { width } = self { Some(width) } else { None }
    }
}
