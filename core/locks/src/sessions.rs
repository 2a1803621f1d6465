//! What a lock server knows of each host.

use braid_base::{Generation, ObjectId, Time};
use braid_wire::{LockExtent, LockTerm};
use std::collections::{BTreeMap, BTreeSet};

/// Names a lock among those of all hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockName {
    /// Whose it is.
    pub host: Generation,
    /// Its number there.
    pub lock_id: u64,
}

/// One host, by its generation.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// When its last message came.
    pub last_heard: Time,
    /// It has said all that it holds from before the server's restart, if anything.
    pub complete: bool,
    /// It is to be in the list on disk, since it may hold something.
    pub listed: bool,
    /// What it holds or waits for, as in the table.
    pub lock_ids: BTreeMap<u64, HeldLock>,
    /// What it asked for when nothing could be granted to it yet, in that order.
    pub deferred: Vec<(u64, LockDetails)>,
    /// What it holds and others wait for, or did a moment ago: revoked until it is given back.
    pub wanted: BTreeSet<u64>,
    /// When somebody last came to wait for any of that. He may have gone since, and come again in vain: some wait for moments only.
    pub wanted_at: Option<Time>,
}

/// Beside what the table knows of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    /// Revoked as soon as somebody wants it; others only once they have been in the way for long.
    pub cached: bool,
    /// It was not granted at once.
    pub waited: bool,
}

/// What a host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockDetails {
    pub object: ObjectId,
    pub extents: Vec<LockExtent>,
    pub term: LockTerm,
}

impl Session {
    /// Of a host just heard of.
    pub fn new(now: Time, complete: bool) -> Session {
        Session {
            last_heard: now,
            complete,
            listed: false,
            lock_ids: BTreeMap::new(),
            deferred: Vec::new(),
            wanted: BTreeSet::new(),
            wanted_at: None,
        }
    }
}
