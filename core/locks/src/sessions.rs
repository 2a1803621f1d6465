//! A lock engine's data on each host.

use braid_base::{Generation, ObjectId, Time};
pub use braid_wire::LockName;
use braid_wire::{LockExtent, LockTerm, Patience};
use std::collections::{BTreeMap, BTreeSet};

/// The session of one host, named by its generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// When its last message came.
    pub last_heard: Time,
    pub fence_state: FenceState,
    /// The host has reasserted all locks that it holds from before the server's restart.
    pub complete: bool,
    /// The host has to be in the list on disk, since it may hold locks.
    pub listed: bool,
    /// The locks that it holds or waits for, as in the table.
    pub lock_ids: BTreeMap<u64, HeldLock>,
    /// Its lock requests from when nothing could be granted to it yet, in order.
    pub deferred: Vec<(u64, LockDetails)>,
    /// The extents of all of these.
    pub extents: usize,
    /// Locks that it holds and that other requests wait for, or did a moment ago. They are revoked until they are
    /// released.
    pub wanted: BTreeSet<u64>,
    /// Since when other hosts have waited for cached locks of this one, as far as the patrol has seen it.
    pub overdue: BTreeMap<u64, Time>,
    /// When a request last came to wait for any of these. That request may be gone, and others come in vain: some wait
    /// for moments only.
    pub wanted_at: Option<Time>,
}

/// Whether a host is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FenceState {
    #[default]
    Served,
    /// It is to be fenced: some device may still serve it.
    Doomed,
    /// No device serves it.
    Fenced,
}

/// What the engine knows of a lock beyond the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    /// Cached locks are revoked as soon as a request waits for them; others only after a while.
    pub cached: bool,
    /// The lock was not granted at once.
    pub waited: bool,
    /// A cached lock that is called back in parts: its host keeps what no other host wants.
    pub in_parts: bool,
    /// It was requested over shared locks that its owner keeps.
    pub upgrades: bool,
    /// A lease: it lapses if its host is silent, and the host is not fenced for it.
    pub lapses: bool,
    pub extents: u16,
    /// Since when it has been held, or has waited.
    pub since: Time,
}

/// A host's lock request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockDetails {
    pub object: ObjectId,
    pub extents: Vec<LockExtent>,
    pub term: LockTerm,
    /// Cached locks only: it is called back in parts.
    pub in_parts: bool,
    /// If it is granted at once: its only extent may be longer by so many blocks, and these belong to it, too, as far as each is free.
    pub width: u64,
    pub ahead: Vec<LockExtent>,
    /// Locks of its host that do not count: it is granted over them.
    pub over: Vec<u64>,
    pub patience: Patience,
}

impl LockDetails {
    /// A lock as it was requested before there were locks of ranges.
    pub fn whole(object: ObjectId, extents: Vec<LockExtent>, term: LockTerm) -> LockDetails {
        let is_impatient = term == LockTerm::Transaction { impatient: true };
        let patience = if is_impatient { Patience::Impatient } else { Patience::InTurn };
        LockDetails { object, extents, term, in_parts: false, width: 0, ahead: Vec::new(), over: Vec::new(), patience }
    }
}

impl Session {
    /// The locks that it holds or waits for. `host` is its own generation.
    pub fn names(&self, host: Generation) -> impl Iterator<Item = LockName> + '_ {
        self.lock_ids.keys().map(move |lock_id| LockName { host, lock_id: *lock_id })
    }

    /// The number of its locks and lock requests.
    pub fn len(&self) -> usize {
        self.lock_ids.len() + self.deferred.len()
    }

    /// The session of a host that was just heard for the first time.
    pub fn new(now: Time, complete: bool) -> Session {
        Session { last_heard: now, complete, ..Default::default() }
    }

    /// True if the host holds nothing and asks for nothing.
    pub fn is_idle(&self) -> bool {
        self.complete && self.lock_ids.is_empty() && self.deferred.is_empty()
    }
}
