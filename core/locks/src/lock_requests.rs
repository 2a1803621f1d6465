//! Lock, unlock, yield and revoke: the handling of lock requests by a lock server.
//!
//! The locks in the table are exactly those in the sessions of their hosts. A held cached lock that another request
//! waits for is being revoked.

use crate::fence_rounds::FenceCause;
use crate::server::{LockServer, LockService, Timer};
use crate::sessions::{HeldLock, LockDetails, LockName, Session};
use crate::table::{LockState, Locked};
use braid_base::{Generation, Now, ObjectId, Time, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{LockExtent, LockRefusal, LockReply, LockTerm, Rejection};
use std::collections::BTreeMap;

impl LockServer {
    /// Handles a lock request. `known`: the start of the server that the host assumes.
    pub(crate) fn on_lock(
        &mut self,
        now: Now,
        name: LockName,
        asked: LockDetails,
        known: Generation,
        out: &mut Effects,
    ) {
        let LockName { host, lock_id } = name;
        if !is_sound(&asked) {
            return self.refuse(name, LockRefusal::Malformed, out);
        }
        let session = &self.sessions[&host];
        match self.table.state(name) {
            Some(LockState::Held) => {
                let waited = session.lock_ids[&lock_id].waited;
                return self.answer(host, LockReply::Granted { lock_id, waited }, out);
            }
            Some(LockState::Waiting) => return self.ignore(Ignored::InProgress, out),
            None => {}
        }
        if let LockTerm::Held { start, cached } = asked.term {
            return self.on_held(now, name, asked, start, cached, out);
        }
        if known != self.config.start && (known != Generation(0) || !session.complete) {
            // The host does not know yet that the server has restarted. If it has to reassert its locks first, the
            // request is deferred; if it has done so, the request is a late copy.
            let complete = session.complete;
            self.answer(host, LockReply::Heartbeat, out);
            if complete {
                return;
            }
        }
        let session = &self.sessions[&host];
        if session.deferred.iter().any(|(deferred, _)| *deferred == lock_id) {
            return self.ignore(Ignored::InProgress, out);
        }
        if !self.has_room(session, asked.extents.len()) || session.deferred.len() >= limits::OPERATIONS_MAX {
            return self.refuse(name, LockRefusal::Busy, out);
        }
        let is_served = self.service == LockService::Serving && session.listed && self.list.contains(host);
        self.counters.locks += 1;
        self.count_extents(host, asked.extents.len());
        if is_served {
            return self.ask(now, name, asked, out);
        }
        let session = self.sessions.get_mut(&host).expect("it was just admitted");
        session.deferred.push((lock_id, asked));
        session.listed = true;
        self.list.set_stale();
    }

    /// Handles the reassertion of a lock that the host held before the server's restart.
    fn on_held(
        &mut self,
        now: Now,
        name: LockName,
        asked: LockDetails,
        start: Generation,
        cached: bool,
        out: &mut Effects,
    ) {
        let session = self.sessions.get_mut(&name.host).expect("it was just admitted");
        if start != self.config.start {
            return self.ignore(Ignored::Settled, out);
        }
        if !self.recovered.contains(&name.host) {
            // A host that holds locks, and was not in the list, was fenced before the restart.
            return self.answer(name.host, LockReply::Rejected { rejection: Rejection::Fenced }, out);
        }
        if session.complete {
            return self.ignore(Ignored::Settled, out);
        }
        // A share does not count here: the host holds the lock already.
        let is_full = self.extents + asked.extents.len() > limits::LOCK_EXTENTS_MAX;
        if is_full || self.table.len() >= limits::LOCK_REQUESTS_MAX {
            return self.refuse(name, LockRefusal::Busy, out);
        }
        // A host may hold a lock over others of its own.
        if !self.table.hold_beside(name, asked.object, &asked.extents, |other| other.host == name.host) {
            // Two hosts believe that they hold conflicting locks, and one of them may be writing without right.
            self.fencing.add(name.host, FenceCause::Conflict);
            return self.fence_pending(now, out);
        }
        // A late copy of the first request for this lock may have come before.
        drop_deferred(session, &mut self.extents, name.lock_id);
        session.lock_ids.insert(name.lock_id, HeldLock { cached, waited: false, extents: asked.extents.len() as u16 });
        self.count_extents(name.host, asked.extents.len());
        self.counters.reasserted += 1;
        self.answer(name.host, LockReply::Granted { lock_id: name.lock_id, waited: false }, out);
    }

    /// Handles a request for a lock over others of its host.
    pub(crate) fn on_lock_over(
        &mut self,
        now: Now,
        name: LockName,
        asked: LockDetails,
        over: &[u64],
        known: Generation,
        out: &mut Effects,
    ) {
        let LockName { host, lock_id } = name;
        if !is_sound(&asked) {
            return self.refuse(name, LockRefusal::Malformed, out);
        }
        if known != self.config.start {
            // The host sends the request again when it has reported its locks.
            return self.answer(host, LockReply::Heartbeat, out);
        }
        if self.table.state(name) == Some(LockState::Held) {
            return self.answer(host, LockReply::Granted { lock_id, waited: false }, out);
        }
        let session = &self.sessions[&host];
        if self.service != LockService::Serving || !session.listed || !self.list.contains(host) {
            return self.ignore(Ignored::NotStarted, out);
        }
        if self.table.state(name).is_some() || !self.has_room(session, asked.extents.len()) {
            return self.refuse(name, LockRefusal::Busy, out);
        }
        self.counters.locks += 1;
        let belongs = |other: LockName| other.host == host && over.contains(&other.lock_id);
        if !self.table.hold_beside(name, asked.object, &asked.extents, belongs) {
            return self.refuse(name, LockRefusal::Timeout, out);
        }
        let session = self.sessions.get_mut(&host).expect("just seen");
        session
            .lock_ids
            .insert(lock_id, HeldLock { cached: false, waited: false, extents: asked.extents.len() as u16 });
        self.count_extents(host, asked.extents.len());
        self.answer(host, LockReply::Granted { lock_id, waited: false }, out);
        // It is held before requests that wait for the others.
        if self.table.wanted(name) {
            self.want_back(now, &[name], out);
        }
    }

    /// Grants a host locks that are free, without having been asked for them by a message: what contains the server tells the host. They are
    /// cached. All are granted or none. False if none is.
    pub fn grant(
        &mut self,
        now: Now,
        host: Generation,
        object: ObjectId,
        locks: &[(u64, LockExtent)],
        out: &mut Effects,
    ) -> bool {
        let is_served = self.service == LockService::Serving && self.list.contains(host) && !self.fencing.refuses(host);
        let Some(session) = self.sessions.get(&host).filter(|session| is_served && session.listed && session.complete)
        else {
            return false;
        };
        let is_new = |lock_id: u64| self.table.state(LockName { host, lock_id }).is_none();
        if !locks.iter().all(|(lock_id, _)| is_new(*lock_id)) || !self.has_room(session, locks.len()) {
            return false;
        }
        for (granted, (lock_id, extent)) in locks.iter().enumerate() {
            let name = LockName { host, lock_id: *lock_id };
            if !self.table.hold_beside(name, object, &[*extent], |_| false) {
                for (lock_id, _) in &locks[..granted] {
                    self.give_back(now, LockName { host, lock_id: *lock_id }, out);
                }
                return false;
            }
            self.counters.locks += 1;
            let session = self.sessions.get_mut(&host).expect("just seen");
            session.lock_ids.insert(*lock_id, HeldLock { cached: true, waited: false, extents: 1 });
            self.count_extents(host, 1);
            if self.table.wanted(name) {
                self.want_back(now, &[name], out);
            }
        }
        true
    }

    /// True if a host holds all these locks.
    pub fn holds(&self, host: Generation, lock_ids: &[u64]) -> bool {
        let is_held = |lock_id: &u64| self.table.state(LockName { host, lock_id: *lock_id }) == Some(LockState::Held);
        lock_ids.iter().all(is_held)
    }

    /// True if a host may have one more lock of so many extents. A host has at most as much of the table as is left: so one host takes half
    /// of it at most, and leaves room for every other host.
    fn has_room(&self, session: &Session, extents: usize) -> bool {
        let left = limits::LOCK_REQUESTS_MAX.saturating_sub(self.table.len());
        let extents_left = self.config.settings.lock_extents_max.saturating_sub(self.extents);
        session.len() < left && session.extents + extents <= extents_left
    }

    /// A host has a lock, or a lock request, with so many extents more.
    fn count_extents(&mut self, host: Generation, extents: usize) {
        self.extents += extents;
        self.sessions.get_mut(&host).expect("a host that requests a lock has a session").extents += extents;
    }

    /// Asks the table for a lock whose extents are counted.
    fn ask(&mut self, now: Now, name: LockName, asked: LockDetails, out: &mut Effects) {
        let asking = self.table.lock(name, asked.object, &asked.extents);
        let waited = asking != Locked::Granted;
        let cached = asked.term == LockTerm::Cached;
        let session = self.sessions.get_mut(&name.host).expect("a host that requests a lock has a session");
        session.lock_ids.insert(name.lock_id, HeldLock { cached, waited, extents: asked.extents.len() as u16 });
        match asking {
            Locked::Granted => self.answer(name.host, LockReply::Granted { lock_id: name.lock_id, waited }, out),
            Locked::Waits { blockers } => {
                self.counters.waits += 1;
                if asked.term == (LockTerm::Transaction { impatient: true }) {
                    self.timers.set(Timer::Impatient(name), now.time.after(self.config.settings.lock_timeout));
                }
                self.want_back(now, &blockers, out);
            }
        }
    }

    /// Requests a lock for the process that contains the server, for instance a metadata server that removes a file. It waits and is
    /// granted like any other: the answer is sent to [`LockServer::OWN`]. It is in memory only. False if the server does not grant locks
    /// yet.
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
        match self.table.lock(LockName { host: LockServer::OWN, lock_id }, object, extents) {
            Locked::Granted => self.answer(LockServer::OWN, LockReply::Granted { lock_id, waited: false }, out),
            Locked::Waits { blockers } => self.want_back(now, &blockers, out),
        }
        true
    }

    /// Releases a lock of the process itself, held or waiting.
    pub fn unlock_own(&mut self, now: Now, lock_id: u64, out: &mut Effects) {
        let mut granted = Vec::new();
        self.table.release(LockName { host: LockServer::OWN, lock_id }, &mut granted);
        self.tell_granted(now, &granted, out);
    }

    /// Calls on the hosts that hold a lock which conflicts with this extent, as if another one waited for it. They keep it: it stands for
    /// something that they can give back in part. Returns these hosts, those that are being fenced included, and when each was heard last;
    /// none if the server does not grant locks yet.
    pub fn call_on_holders(
        &mut self,
        object: ObjectId,
        extent: LockExtent,
        out: &mut Effects,
    ) -> Option<BTreeMap<Generation, Time>> {
        if self.service != LockService::Serving {
            return None;
        }
        let mut heard = BTreeMap::new();
        for LockName { host, lock_id } in self.table.holders(object, &[extent]) {
            if host != LockServer::OWN && !self.fencing.has_fenced(host) {
                self.revoke(host, vec![lock_id], out);
                heard.insert(host, self.sessions[&host].last_heard);
            }
        }
        Some(heard)
    }

    /// Requests the locks of deferred requests, as far as their hosts can be granted anything now.
    pub(crate) fn ask_deferred(&mut self, now: Now, out: &mut Effects) {
        if self.service != LockService::Serving {
            return;
        }
        let listed =
            self.sessions.iter().filter(|(host, session)| !session.deferred.is_empty() && self.list.contains(**host));
        let hosts: Vec<_> = listed.map(|(host, _)| *host).collect();
        for host in hosts {
            let session = self.sessions.get_mut(&host).expect("just listed");
            for (lock_id, asked) in std::mem::take(&mut session.deferred) {
                self.ask(now, LockName { host, lock_id }, asked, out);
            }
        }
    }

    /// Releases a lock, held or waiting, and grants the locks that waited for it. False if there is no lock of that
    /// name.
    pub(crate) fn give_back(&mut self, now: Now, name: LockName, out: &mut Effects) -> bool {
        let Some(session) = self.sessions.get_mut(&name.host) else { return false };
        let Some(held) = session.lock_ids.remove(&name.lock_id) else {
            return drop_deferred(session, &mut self.extents, name.lock_id);
        };
        session.extents -= usize::from(held.extents);
        self.extents -= usize::from(held.extents);
        self.timers.cancel(Timer::Impatient(name));
        let mut granted = Vec::new();
        self.table.release(name, &mut granted);
        self.tell_granted(now, &granted, out);
        true
    }

    /// Releases all locks of a host at once, so that none of its requests is granted by the release of another of its
    /// locks.
    pub(crate) fn give_back_all(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("it is there");
        let locks = std::mem::take(&mut session.lock_ids);
        let extents: usize = locks.values().map(|held| usize::from(held.extents)).sum();
        session.extents -= extents;
        self.extents -= extents;
        let lock_ids: Vec<_> = locks.into_keys().collect();
        let mut granted = Vec::new();
        for lock_id in lock_ids {
            let name = LockName { host, lock_id };
            self.timers.cancel(Timer::Impatient(name));
            self.table.release(name, &mut granted);
        }
        granted.retain(|next| next.host != host);
        self.tell_granted(now, &granted, out);
    }

    fn tell_granted(&mut self, now: Now, granted: &[LockName], out: &mut Effects) {
        for next in granted {
            self.timers.cancel(Timer::Impatient(*next));
            self.answer(next.host, LockReply::Granted { lock_id: next.lock_id, waited: true }, out);
            // The next request in the queue waits for it already.
            if self.table.wanted(*next) {
                self.want_back(now, &[*next], out);
            }
        }
    }

    /// Requests wait for these locks: revokes those that are cached now, and the others later.
    fn want_back(&mut self, now: Now, lock_ids: &[LockName], out: &mut Effects) {
        let of_hosts =
            lock_ids.chunk_by(|one, other| one.host == other.host).filter(|names| names[0].host != LockServer::OWN);
        for of_host in of_hosts {
            let host = of_host[0].host;
            let session = self.sessions.get_mut(&host).expect("a host that holds a lock has a session");
            session.wanted_at = Some(now.time);
            let new = of_host.iter().map(|name| name.lock_id).filter(|lock_id| session.wanted.insert(*lock_id));
            let new: Vec<_> = new.collect();
            let cached = new.into_iter().filter(|lock_id| session.lock_ids[lock_id].cached).collect();
            if self.timers.deadline_of(Timer::Revoke(host)).is_none() {
                self.timers.set(Timer::Revoke(host), now.time.after(self.config.settings.resend_min));
            }
            self.revoke(host, cached, out);
        }
    }

    /// Revokes again what a host has not released. The revocation or its answer was lost, or the host is using the
    /// lock. Or the host does not know the lock, which a late copy of a request brought about.
    pub(crate) fn revoke_again(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("the timer ends with the session");
        session.wanted.retain(|lock_id| self.table.wanted(LockName { host, lock_id: *lock_id }));
        if !session.wanted.is_empty() {
            self.timers.set(Timer::Revoke(host), now.time.after(self.config.settings.resend_min));
            let lock_ids = session.wanted.iter().copied().collect();
            self.revoke(host, lock_ids, out);
        }
    }

    fn revoke(&mut self, host: Generation, lock_ids: Vec<u64>, out: &mut Effects) {
        if self.fencing.refuses(host) {
            return;
        }
        self.counters.revocations += lock_ids.len() as u64;
        for batch in lock_ids.chunks(limits::COMMITS_PER_REQUEST_MAX) {
            self.answer(host, LockReply::Revoke { lock_ids: batch.to_vec() }, out);
        }
    }

    /// A lock request has waited for as long as it may.
    pub(crate) fn on_impatient(&mut self, now: Now, name: LockName, out: &mut Effects) {
        assert_eq!(self.table.state(name), Some(LockState::Waiting), "a granted lock has no timer: {name:?}");
        self.give_back(now, name, out);
        self.counters.timeouts += 1;
        let reply = LockReply::Refused { lock_id: name.lock_id, refusal: LockRefusal::Timeout };
        self.answer(name.host, reply, out);
    }

    fn refuse(&mut self, LockName { host, lock_id }: LockName, refusal: LockRefusal, out: &mut Effects) {
        self.counters.refused += 1;
        self.answer(host, LockReply::Refused { lock_id, refusal }, out);
    }
}

/// Drops a deferred request. False if there is none of that name. `extents` counts those of all hosts.
fn drop_deferred(session: &mut Session, extents: &mut usize, lock_id: u64) -> bool {
    let Some(at) = session.deferred.iter().position(|(deferred, _)| *deferred == lock_id) else { return false };
    let (_, asked) = session.deferred.remove(at);
    session.extents -= asked.extents.len();
    *extents -= asked.extents.len();
    true
}

fn is_sound(asked: &LockDetails) -> bool {
    let sound = |position: u16| usize::from(position) < limits::DEVICES_MAX;
    let count = asked.extents.len();
    (1..=limits::EXTENTS_MAX).contains(&count)
        && asked.extents.iter().all(|extent| sound(extent.position) && !extent.range.is_empty())
}
