//! Locks of the server's own process. A process that contains a lock server may lock what its hosts lock, too: a metadata server does
//! so before it removes a file that nobody has open. Such a lock waits and is granted like any other, and the cached locks of hosts that
//! are in its way are revoked. It is in memory only, and ends with the process.

use crate::server::{LockServer, LockService};
use crate::sessions::LockName;
use crate::table::Locked;
use braid_base::{Generation, Now, ObjectId};
use braid_machine::Effects;
use braid_wire::LockExtent;

/// The owner of these locks. No host has this generation.
pub(crate) const OWN: Generation = Generation(0);

impl LockServer {
    /// Requests a lock for the process itself; [`LockServer::pop_own_granted`] reports when it is granted. False if the server does not
    /// grant locks yet.
    pub fn lock_own(
        &mut self,
        now: Now,
        lock_id: u64,
        object: ObjectId,
        extents: &[LockExtent],
        out: &mut Effects,
    ) -> bool {
        if self.service != LockService::Serving {
            return false;
        }
        match self.table.lock(LockName { host: OWN, lock_id }, object, extents) {
            Locked::Granted => self.own_granted.push_back(lock_id),
            Locked::Waits { blockers } => self.want_back(now, &blockers, out),
        }
        true
    }

    /// Releases a lock of the process itself, held or waiting.
    pub fn unlock_own(&mut self, now: Now, lock_id: u64, out: &mut Effects) {
        let mut granted = Vec::new();
        self.own_granted.retain(|granted| *granted != lock_id);
        self.table.release(LockName { host: OWN, lock_id }, &mut granted);
        self.tell_granted(now, &granted, out);
    }

    /// The next lock of the process itself that has been granted.
    pub fn pop_own_granted(&mut self) -> Option<u64> {
        self.own_granted.pop_front()
    }
}
