//! A lock request of a host, and the lock that it leads to.

use super::foresight::Foresight;
use super::wanted::{HolderId, Retention};
use braid_base::{Backoff, Generation, LockServerId, ObjectId};
use braid_wire::locking::{LockExtent, LockMode, LockTerm, Patience};
use std::collections::BTreeSet;

/// A lock, from when it is requested until its release is confirmed.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub server: LockServerId,
    pub object: ObjectId,
    /// What the server has granted, as far as is known here, or what was requested.
    pub extents: Vec<LockExtent>,
    pub retention: Retention,
    pub state: RequestState,
    pub parts: Parts,
    /// What is in the cache: any holder may use it.
    pub usable: Vec<LockExtent>,
    /// Holders that use the lock or wait for it.
    pub users: BTreeSet<HolderId>,
    /// No further holder may use it: it was revoked, or its lease has expired.
    pub retired: bool,
    pub resend: Backoff,
    /// Locks of the same server that do not count when it is requested.
    pub over: Vec<u64>,
    /// Other locks of the same server that are released together with it.
    pub beside: Vec<u64>,
}

/// Of a lock that is kept in parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// What other hosts want of it: no further holder may use it, and it is given back as soon as no holder does.
    pub recalled: Vec<LockExtent>,
    /// What is asked for beyond the extents.
    pub beyond: Foresight,
    /// What was granted of that, and no holder has used. All of it goes together.
    pub unused: Vec<LockExtent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    Asked {
        patience: Patience,
    },
    Held,
    /// Held, but the server has restarted since and has not confirmed it yet.
    Reasserting,
    /// Released. The server has not confirmed that.
    Releasing,
}

impl Request {
    pub fn new(
        resend: Backoff,
        server: LockServerId,
        object: ObjectId,
        extents: Vec<LockExtent>,
        state: RequestState,
    ) -> Request {
        Request {
            server,
            object,
            extents,
            retention: Retention::Released,
            state,
            parts: Parts::default(),
            usable: Vec::new(),
            users: BTreeSet::new(),
            retired: false,
            resend,
            over: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// A lock that is released, together with others.
    pub fn releasing(resend: Backoff, server: LockServerId, beside: Vec<u64>) -> Request {
        let request = Request::new(resend, server, ObjectId(0), Vec::new(), RequestState::Releasing);
        Request { retired: true, beside, ..request }
    }

    /// A holder uses these extents.
    pub fn note_use(&mut self, extents: &[LockExtent]) {
        if !self.parts.unused.is_empty() {
            self.parts.unused = without(&self.parts.unused, &whole(extents));
        }
    }

    pub fn cached(&self) -> bool {
        self.retention.caches()
    }

    pub fn is_held(&self) -> bool {
        matches!(self.state, RequestState::Held | RequestState::Reasserting)
    }

    /// True if no message about it is outstanding: it is cached and held.
    pub fn is_settled(&self) -> bool {
        self.state == RequestState::Held && self.cached()
    }

    /// How the lock is requested of the server's start `heard`.
    pub fn term(&self, heard: Generation) -> LockTerm {
        match self.state {
            RequestState::Asked { .. } if self.retention == Retention::Leased => LockTerm::Lease,
            RequestState::Asked { .. } if self.cached() => LockTerm::Cached,
            RequestState::Asked { patience } => LockTerm::Transaction { impatient: patience == Patience::Impatient },
            _ if self.retention.width().is_some() => LockTerm::HeldRange { start: heard },
            _ => LockTerm::Held { start: heard, cached: self.cached() },
        }
    }

    pub fn conflicts(&self, object: ObjectId, extents: &[LockExtent]) -> bool {
        self.object == object && self.extents.iter().any(|held| extents.iter().any(|other| held.conflicts(other)))
    }

    /// Asserts that a holder may rely on it.
    pub fn invariants(&self, number: u64, holder: HolderId) {
        assert!(self.users.contains(&holder), "a request knows its users: {number}, {holder:?}");
        assert_ne!(self.state, RequestState::Releasing, "a lock in use is not released: {number}");
    }
}

/// The same extents, exclusively.
pub(super) fn whole(extents: &[LockExtent]) -> Vec<LockExtent> {
    extents.iter().map(|extent| LockExtent { mode: LockMode::Exclusive, ..*extent }).collect()
}

/// What is left of some extents if nothing that conflicts with others is kept.
pub(super) fn without(extents: &[LockExtent], others: &[LockExtent]) -> Vec<LockExtent> {
    let cut =
        |left: Vec<LockExtent>, other: &LockExtent| left.iter().flat_map(|extent| extent.without(other)).collect();
    others.iter().fold(extents.to_vec(), cut)
}
