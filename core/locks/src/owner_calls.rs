//! What the process that contains a lock server asks of it by calls: a metadata server, whose inodes the locks are on. Its hosts' messages
//! come to both, and renew one lease.
//!
//! | call | what for |
//! | --- | --- |
//! | [`admit`](LockServer::admit) | a host has sent a message to another part of the process |
//! | [`grant`](LockServer::grant) | a host gets locks with the answer of another part |
//! | [`lock_own`](LockServer::lock_own), [`unlock_own`](LockServer::unlock_own), [`take_own_granted`](LockServer::take_own_granted) | the process itself locks an inode that it changes |
//! | [`call_on_holders`](LockServer::call_on_holders) | hosts are to give back some of what their locks stand for |
//! | [`hear_all`](LockServer::hear_all), [`restart_eviction_timers`](LockServer::restart_eviction_timers) | hosts could not do their part, and are not to be fenced for it |
//! | [`set_evict_after`](LockServer::set_evict_after) | the configuration has changed |
//! | [`fence_absent`](LockServer::fence_absent) | hosts without a session have left something behind |

use crate::server::{LockServer, LockService};
use braid_base::{Generation, Now, ObjectId, Time};
use braid_machine::Effects;
use braid_wire::LockExtent;
use std::collections::BTreeMap;
use std::time::Duration;

impl LockServer {
    /// See [`LockEngine::grant`](crate::LockEngine::grant).
    pub fn grant(
        &mut self,
        now: Now,
        host: Generation,
        object: ObjectId,
        locks: &[(u64, LockExtent)],
        out: &mut Effects,
    ) -> bool {
        let is_granted = self.may_grant(host) && self.engine.grant(now.time, host, object, locks);
        self.counters.locks += if is_granted { locks.len() as u64 } else { 0 };
        self.tell(out);
        is_granted
    }

    /// See [`LockEngine::lock_own`](crate::LockEngine::lock_own). The server serves.
    pub fn lock_own(&mut self, now: Now, lock_id: u64, object: ObjectId, extent: LockExtent, out: &mut Effects) {
        assert_eq!(self.service, LockService::Serving, "nothing is granted before hosts have reported their locks");
        self.engine.lock_own(now.time, lock_id, object, &[extent]);
        self.tell(out);
    }

    /// See [`LockEngine::unlock_own`](crate::LockEngine::unlock_own).
    pub fn unlock_own(&mut self, now: Now, lock_id: u64, out: &mut Effects) {
        self.engine.unlock_own(now.time, lock_id);
        self.tell(out);
    }

    /// The locks that the process itself was granted since this was called last.
    pub fn take_own_granted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.own_granted)
    }

    /// See [`LockEngine::call_on_holders`](crate::LockEngine::call_on_holders). None if some hosts have not reported their locks yet.
    pub fn call_on_holders(
        &mut self,
        object: ObjectId,
        extent: LockExtent,
        out: &mut Effects,
    ) -> Option<BTreeMap<Generation, Time>> {
        let is_serving = self.service == LockService::Serving;
        let heard = is_serving.then(|| self.engine.call_on_holders(object, extent));
        self.tell(out);
        heard
    }

    /// See [`LockEngine::hear_all`](crate::LockEngine::hear_all).
    pub fn hear_all(&mut self, now: Time) {
        self.engine.hear_all(now);
    }

    /// See [`LockEngine::restart_eviction_timers`](crate::LockEngine::restart_eviction_timers).
    pub fn restart_eviction_timers(&mut self) {
        self.engine.restart_eviction_timers();
    }

    /// See [`LockEngine::set_evict_after`](crate::LockEngine::set_evict_after).
    pub fn set_evict_after(&mut self, limit: Option<Duration>) {
        self.engine.set_evict_after(limit);
    }
}
