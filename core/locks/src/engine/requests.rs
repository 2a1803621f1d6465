//! Lock, unlock, yield and revoke: the locks of hosts from the request to their end.
//!
//! The locks in the table are exactly those in the sessions of their hosts, and those of the process itself. A held cached lock that
//! another request waits for is being revoked.

use super::{EngineEvent, EngineTimer, FenceCause, LockEngine};
use crate::sessions::{FenceState, HeldLock, LockDetails, LockName, Session};
use crate::table::{LockState, LockTable, Locked};
use braid_base::{BLOCK_BYTES, Callbacks, Generation, ObjectId, Time, limits};
use braid_wire::{LOCK_PART_EXTENTS_MAX, LockExtent, LockMode, LockPart, LockTerm, Patience};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What becomes of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// It is granted, waits, or is deferred: events tell.
    Accepted,
    /// It was deferred before.
    InProgress,
    /// There is no room for it.
    NoRoom,
    /// A lock that is reasserted conflicts with one that another host holds.
    Conflicts,
}

impl LockEngine {
    /// A new request for a lock. If its host may not be granted anything yet, it is deferred until [`LockEngine::ask_deferred`], and the
    /// host is to be listed.
    pub fn ask(&mut self, now: Time, name: LockName, mut asked: LockDetails, may_grant: bool) -> Acceptance {
        let session = &self.sessions[&name.host];
        if session.deferred.iter().any(|(deferred, _)| *deferred == name.lock_id) {
            return Acceptance::InProgress;
        }
        let has_room = self.has_room(session, asked.extents.len()) && session.deferred.len() < limits::OPERATIONS_MAX;
        if !has_room || (asked.term == LockTerm::Lease && self.extents > self.settings.lock_extents_max / 2) {
            return Acceptance::NoRoom;
        }
        let is_served = may_grant && session.listed;
        self.count_extents(name.host, asked.extents.len());
        if is_served {
            self.enqueue(now, name, asked);
        } else {
            let session = self.sessions.get_mut(&name.host).expect("just seen");
            asked.ahead.clear();
            session.deferred.push((name.lock_id, asked));
            session.listed = true;
            self.events.push_back(EngineEvent::Listed);
        }
        Acceptance::Accepted
    }

    /// The reassertion of a lock that a host held before its server restarted. If another host holds it, one of them may be writing
    /// without right: this one is doomed.
    pub fn reassert(&mut self, now: Time, name: LockName, asked: &LockDetails, cached: bool) -> Acceptance {
        // A share does not count here: the host holds the lock already.
        let is_full = self.extents + asked.extents.len() > limits::LOCK_EXTENTS_MAX;
        if is_full || self.table.len() >= limits::LOCK_REQUESTS_MAX {
            return Acceptance::NoRoom;
        }
        // A host may hold a lock over others of its own.
        if !self.table.hold_beside(name, asked.object, &asked.extents, |other| other.host == name.host) {
            self.doom(name.host, FenceCause::Conflict);
            return Acceptance::Conflicts;
        }
        // A late copy of the first request for this lock may have come before.
        let session = self.sessions.get_mut(&name.host).expect("it was just heard");
        drop_deferred(session, &mut self.extents, name.lock_id);
        self.add_held(now, name, (cached, asked.in_parts), asked.extents.len());
        self.events.push_back(EngineEvent::Granted { name, waited: false });
        Acceptance::Accepted
    }

    /// Grants a host locks that are free, without having been asked for them, and without an event: the caller tells the host. They are
    /// cached. All are granted or none. False if none is.
    pub fn grant(&mut self, now: Time, host: Generation, object: ObjectId, locks: &[(u64, LockExtent)]) -> bool {
        let may_hold =
            |session: &&Session| session.listed && session.complete && session.fence_state == FenceState::Served;
        let Some(session) = self.sessions.get(&host).filter(may_hold) else { return false };
        let is_new = |lock_id: u64| self.table.state(LockName { host, lock_id }).is_none();
        if !locks.iter().all(|(lock_id, _)| is_new(*lock_id)) || !self.has_room(session, locks.len()) {
            return false;
        }
        for (granted, (lock_id, extent)) in locks.iter().enumerate() {
            let name = LockName { host, lock_id: *lock_id };
            if !self.table.hold_beside(name, object, &[*extent], |_| false) {
                for (lock_id, _) in &locks[..granted] {
                    self.give_back(now, LockName { host, lock_id: *lock_id });
                }
                return false;
            }
            self.add_held(now, name, (true, false), 1);
            if self.table.wanted(name) {
                self.want_back(now, &[name], None);
            }
        }
        true
    }

    /// True if a host may have one more lock of so many extents. A host has at most as much of the table as is left: so one host takes half
    /// of it at most, and leaves room for every other host.
    fn has_room(&self, session: &Session, extents: usize) -> bool {
        let left = limits::LOCK_REQUESTS_MAX.saturating_sub(self.table.len());
        let extents_left = self.settings.lock_extents_max.saturating_sub(self.extents);
        session.len() < left && session.extents + extents <= extents_left
    }

    /// A host has a lock, or a lock request, with so many extents more.
    fn count_extents(&mut self, host: Generation, extents: usize) {
        self.extents += extents;
        self.sessions.get_mut(&host).expect("a host that requests a lock has a session").extents += extents;
    }

    /// A host holds a lock that is in the table already.
    fn add_held(&mut self, now: Time, name: LockName, (cached, in_parts): (bool, bool), extents: usize) {
        self.count_extents(name.host, extents);
        let session = self.sessions.get_mut(&name.host).expect("a host that holds a lock has a session");
        let extents = extents as u16;
        let held = HeldLock { cached, waited: false, in_parts, upgrades: false, lapses: false, extents, since: now };
        session.lock_ids.insert(name.lock_id, held);
    }

    /// Asks the table for a lock whose extents are counted. A lease does not wait.
    fn enqueue(&mut self, now: Time, name: LockName, mut asked: LockDetails) {
        let is_lease = asked.term == LockTerm::Lease;
        if is_lease && !self.table.is_free(asked.object, &asked.extents) {
            let session = self.sessions.get_mut(&name.host).expect("a host that requests a lock has a session");
            session.extents -= asked.extents.len();
            self.extents -= asked.extents.len();
            return self.events.push_back(EngineEvent::TimedOut(name));
        }
        if let ([extent], 1..) = (&mut asked.extents[..], asked.width) {
            // The last byte of every range has a 64-bit offset.
            let room = (u64::MAX / BLOCK_BYTES as u64).saturating_sub(extent.range.end());
            extent.range.count += self.table.free_behind(asked.object, extent, asked.width.min(room));
        }
        if !asked.ahead.is_empty() && self.table.is_free(asked.object, &asked.extents) {
            asked.ahead.retain(|extent| self.table.is_free(asked.object, &[*extent]));
            if self.has_room(&self.sessions[&name.host], asked.ahead.len()) {
                self.count_extents(name.host, asked.ahead.len());
                asked.extents.append(&mut asked.ahead);
            }
        }
        let passes = asked.in_parts && asked.patience != Patience::InTurn;
        let is_alone = asked.over.is_empty() && !passes;
        // A host keeps its own holders of parts apart, and may keep more of these than a message names.
        let is_own = |other: &LockName| {
            other.host == name.host && self.held(*other).is_some_and(|held| held.in_parts && !held.lapses)
        };
        let mut own = match asked.in_parts && !is_alone {
            true => self.table.holders(asked.object, &asked.extents),
            false => Vec::new(),
        };
        own.retain(is_own);
        let belongs = |other: LockName| {
            own.binary_search(&other).is_ok() || (other.host == name.host && asked.over.contains(&other.lock_id))
        };
        let locked = if is_alone {
            self.table.lock(name, asked.object, &asked.extents)
        } else {
            self.table.lock_beside(name, asked.object, &asked.extents, belongs, passes)
        };
        let waited = locked != Locked::Granted;
        let cached = is_lease || asked.term == LockTerm::Cached;
        let session = self.sessions.get_mut(&name.host).expect("a host that requests a lock has a session");
        let extents = asked.extents.len() as u16;
        let (in_parts, upgrades) = (asked.in_parts, asked.patience == Patience::Upgrade);
        let held = HeldLock { cached, waited, in_parts, upgrades, lapses: is_lease, extents, since: now };
        session.lock_ids.insert(name.lock_id, held);
        match locked {
            Locked::Granted => {
                self.events.push_back(EngineEvent::Granted { name, waited });
                // It may have passed requests that wait.
                if passes && self.table.wanted(name) {
                    self.want_back(now, &[name], None);
                }
            }
            Locked::Waits { blockers } => {
                self.events.push_back(EngineEvent::Waits(name));
                let meets = |other: &LockName| {
                    let of_other = self.extents(*other).map_or(&[][..], |(_, extents)| extents);
                    other.host != name.host
                        && self.held(*other).is_some_and(|waiting| waiting.upgrades)
                        && wants_shared(of_other, &asked.extents)
                        && wants_shared(&asked.extents, of_other)
                };
                if upgrades && self.table.waiters(asked.object, &asked.extents).iter().any(meets) {
                    return self.refuse(now, name);
                }
                if asked.patience == Patience::Impatient {
                    // What is kept and not in use comes back, even if the first recall is lost.
                    let recalls = if asked.in_parts { self.settings.resend_min } else { Duration::ZERO };
                    let until = now.after(self.settings.lock_timeout + recalls);
                    self.timers.set(EngineTimer::Impatient(name), until);
                }
                self.want_back(now, &blockers, Some(name));
                if asked.in_parts {
                    // A late copy of a request that has ended may be in the way of others. So its host is asked for it again and again.
                    let session = self.sessions.get_mut(&name.host).expect("it has asked");
                    session.wanted.insert(name.lock_id);
                    let timer = EngineTimer::Revoke(name.host);
                    if self.timers.deadline_of(timer).is_none() {
                        self.timers.set(timer, now.after(self.settings.resend_min));
                    }
                }
            }
        }
    }

    /// Requests a lock for the process that contains the engine, for instance a metadata server that removes a file. It waits and is granted
    /// like any other. It is in memory only.
    pub fn lock_own(&mut self, now: Time, lock_id: u64, object: ObjectId, extents: &[LockExtent]) {
        match self.table.lock(LockName { host: LockEngine::OWN, lock_id }, object, extents) {
            Locked::Granted => self.events.push_back(EngineEvent::OwnGranted(lock_id)),
            Locked::Waits { blockers } => self.want_back(now, &blockers, None),
        }
    }

    /// Releases a lock of the process itself, held or waiting.
    pub fn unlock_own(&mut self, now: Time, lock_id: u64) {
        let mut granted = Vec::new();
        self.table.release(LockName { host: LockEngine::OWN, lock_id }, &mut granted);
        self.tell_granted(now, &granted);
    }

    /// Calls on the hosts that hold a lock which conflicts with this extent, as if another one waited for it. They keep it: it stands for
    /// something that they can give back in part. Returns these hosts, those that are doomed included, and when each was heard last.
    pub fn call_on_holders(&mut self, object: ObjectId, extent: LockExtent) -> BTreeMap<Generation, Time> {
        let mut heard = BTreeMap::new();
        for LockName { host, lock_id } in self.table.holders(object, &[extent]) {
            if host != LockEngine::OWN && self.sessions[&host].fence_state != FenceState::Fenced {
                self.revoke(host, vec![lock_id]);
                heard.insert(host, self.sessions[&host].last_heard);
            }
        }
        heard
    }

    /// Requests the locks of deferred requests, of hosts that may be granted locks now.
    pub fn ask_deferred(&mut self, now: Time, may_grant: impl Fn(Generation) -> bool) {
        let ready = self.sessions.iter().filter(|(host, session)| !session.deferred.is_empty() && may_grant(**host));
        let hosts: Vec<_> = ready.map(|(host, _)| *host).collect();
        for host in hosts {
            let session = self.sessions.get_mut(&host).expect("just listed");
            for (lock_id, asked) in std::mem::take(&mut session.deferred) {
                self.enqueue(now, LockName { host, lock_id }, asked);
            }
        }
    }

    /// Releases a lock, held or waiting, and grants the locks that waited for it. False if there is no lock of that
    /// name.
    pub fn give_back(&mut self, now: Time, name: LockName) -> bool {
        let Some(session) = self.sessions.get_mut(&name.host) else { return false };
        let Some(held) = session.lock_ids.remove(&name.lock_id) else {
            return drop_deferred(session, &mut self.extents, name.lock_id);
        };
        session.extents -= usize::from(held.extents);
        self.extents -= usize::from(held.extents);
        self.timers.cancel(EngineTimer::Impatient(name));
        let mut granted = Vec::new();
        self.table.release(name, &mut granted);
        self.tell_granted(now, &granted);
        true
    }

    /// The host keeps less of a lock that it holds: see [`LockTable::shrink`](crate::LockTable::shrink). False if there is no such lock, if
    /// the host never held so much, or if there is no room for the pieces: the lock is as it was.
    pub fn shrink(&mut self, now: Time, name: LockName, rest: &[LockExtent]) -> bool {
        if rest.is_empty() {
            return self.give_back(now, name);
        }
        let Some(session) = self.sessions.get(&name.host) else { return false };
        let Some(held) = session.lock_ids.get(&name.lock_id) else { return false };
        let before = usize::from(held.extents);
        let has_room = rest.len() <= before || self.has_room(session, rest.len() - before);
        let mut granted = Vec::new();
        if rest.len() > limits::EXTENTS_MAX || !has_room || !self.table.shrink(name, rest, &mut granted) {
            return false;
        }
        let session = self.sessions.get_mut(&name.host).expect("just seen");
        session.lock_ids.get_mut(&name.lock_id).expect("just seen").extents = rest.len() as u16;
        session.extents = session.extents + rest.len() - before;
        self.extents = self.extents + rest.len() - before;
        session.overdue.remove(&name.lock_id);
        if !self.table.wanted(name) {
            session.wanted.remove(&name.lock_id);
        }
        self.tell_granted(now, &granted);
        true
    }

    /// The host uses these extents of a lock that others want: requests that are impatient need not wait for them.
    pub fn refuse_impatient(&mut self, now: Time, name: LockName, in_use: &[LockExtent]) {
        for (by, extent) in self.table.wanted_extents(name) {
            // One that shares may be granted what one that does not has to wait for.
            if in_use.contains(&extent) && self.is_impatient(by) {
                self.refuse(now, by);
            }
        }
    }

    /// True if this request waits for a limited time.
    fn is_impatient(&self, name: LockName) -> bool {
        self.timers.deadline_of(EngineTimer::Impatient(name)).is_some()
    }

    /// Releases all locks of a host at once, so that none of its requests is granted by the release of another of its
    /// locks.
    pub(super) fn give_back_all(&mut self, now: Time, host: Generation) {
        let session = self.sessions.get_mut(&host).expect("it is there");
        let locks = std::mem::take(&mut session.lock_ids);
        let extents: usize = locks.values().map(|held| usize::from(held.extents)).sum();
        session.extents -= extents;
        self.extents -= extents;
        let mut granted = Vec::new();
        for lock_id in locks.into_keys() {
            let name = LockName { host, lock_id };
            self.timers.cancel(EngineTimer::Impatient(name));
            self.table.release(name, &mut granted);
        }
        granted.retain(|next| next.host != host);
        self.tell_granted(now, &granted);
    }

    fn tell_granted(&mut self, now: Time, granted: &[LockName]) {
        for next in granted {
            self.timers.cancel(EngineTimer::Impatient(*next));
            if let Some(session) = self.sessions.get_mut(&next.host)
                && let Some(held) = session.lock_ids.get_mut(&next.lock_id)
            {
                held.since = now;
            }
            self.events.push_back(match *next {
                LockName { host: LockEngine::OWN, lock_id } => EngineEvent::OwnGranted(lock_id),
                name => EngineEvent::Granted { name, waited: true },
            });
            // The next request in the queue waits for it already.
            if self.table.wanted(*next) {
                self.want_back(now, &[*next], None);
            }
        }
    }

    /// Requests wait for these locks, perhaps `by` is new among them: revokes those that are cached now, and the others later.
    fn want_back(&mut self, now: Time, lock_ids: &[LockName], by: Option<LockName>) {
        let of_hosts =
            lock_ids.chunk_by(|one, other| one.host == other.host).filter(|names| names[0].host != LockEngine::OWN);
        let in_groups = self.settings.callbacks == Callbacks::Group;
        let is_impatient = by.is_some_and(|by| self.is_impatient(by));
        let mut of_groups = Vec::new();
        for of_host in of_hosts {
            let host = of_host[0].host;
            let session = self.sessions.get_mut(&host).expect("a host that holds a lock has a session");
            // What lapses is in the way of no request for long.
            let stays = |name: &LockName| !session.lock_ids[&name.lock_id].lapses;
            session.wanted_at = if of_host.iter().any(stays) { Some(now) } else { session.wanted_at };
            let is_new = |lock_id: &u64| {
                let wants_more = || {
                    is_impatient
                        || by.is_none_or(|by| wants_more(&self.table, by, LockName { host, lock_id: *lock_id }))
                };
                session.wanted.insert(*lock_id) || (session.lock_ids[lock_id].in_parts && wants_more())
            };
            let new = of_host.iter().map(|name| name.lock_id).filter(is_new);
            let new: Vec<_> = new.collect();
            let cached = new.into_iter().filter(|lock_id| session.lock_ids[lock_id].cached);
            let is_of_group = |lock_id: &u64| in_groups && !is_impatient && session.lock_ids[lock_id].in_parts;
            let (by_group, by_name): (Vec<_>, Vec<_>) = cached.partition(is_of_group);
            of_groups.extend(by_group.into_iter().map(|lock_id| LockName { host, lock_id }));
            if self.timers.deadline_of(EngineTimer::Revoke(host)).is_none() {
                self.timers.set(EngineTimer::Revoke(host), now.after(self.settings.resend_min));
            }
            self.revoke(host, by_name);
        }
        self.recall_groups(&of_groups);
    }

    /// Calls on all hosts of the node groups of those that hold these locks of one object. In the range-lock paper, a mask of eight bits says which
    /// groups these are (section 3.1). What a host does not give back is called back by name, like locks that it does not know.
    fn recall_groups(&mut self, names: &[LockName]) {
        let Some((object, _)) = names.first().and_then(|name| self.table.extents(*name)) else { return };
        let bit = |host: Generation| 1u8 << (host.0 % 8);
        let mask = names.iter().fold(0, |mask, name| mask | bit(name.host));
        let wanted: BTreeSet<_> = names.iter().flat_map(|name| self.table.wanted_extents(*name)).collect();
        let served = |session: &Session| session.fence_state == FenceState::Served;
        for (host, _) in self.sessions.iter().filter(|(host, session)| mask & bit(**host) != 0 && served(session)) {
            // What this host promotes it keeps until those that come after it have their turn.
            let is_behind = |by: LockName, extent: LockExtent| {
                let held = self.table.holders(object, &[extent]).into_iter().filter(|held| held.host == *host);
                held.into_iter().any(|held| self.table.is_behind_promotion(by, held))
            };
            let by_others = wanted.iter().filter(|(by, extent)| by.host != *host && !is_behind(*by, *extent));
            let extents: BTreeSet<_> = by_others.map(|(_, extent)| *extent).collect();
            let extents: Vec<_> = extents.into_iter().take(LOCK_PART_EXTENTS_MAX).collect();
            if !extents.is_empty() {
                self.events.push_back(EngineEvent::RecallGroup { host: *host, object, extents });
            }
        }
    }

    /// Revokes again what a host has not released. The revocation or its answer was lost, or the host is using the
    /// lock. Or the host does not know the lock, which a late copy of a request brought about.
    pub(super) fn revoke_again(&mut self, now: Time, host: Generation) {
        let session = self.sessions.get_mut(&host).expect("the timer ends with the session");
        let is_wanted = |lock_id: &u64| self.table.wanted(LockName { host, lock_id: *lock_id });
        let waits = |lock_id: &u64| self.table.state(LockName { host, lock_id: *lock_id }) == Some(LockState::Waiting);
        session.wanted.retain(|lock_id| waits(lock_id) || is_wanted(lock_id));
        if !session.wanted.is_empty() {
            self.timers.set(EngineTimer::Revoke(host), now.after(self.settings.resend_min));
            // Upgrades have others refused.
            let is_named = |lock_id: &u64| is_wanted(lock_id) || session.lock_ids[lock_id].upgrades;
            let lock_ids = session.wanted.iter().copied().filter(is_named).collect();
            self.revoke(host, lock_ids);
        }
    }

    fn revoke(&mut self, host: Generation, lock_ids: Vec<u64>) {
        let session = &self.sessions[&host];
        if session.fence_state != FenceState::Served {
            return;
        }
        let is_in_parts = |lock_id: &u64| session.lock_ids.get(lock_id).is_some_and(|held| held.in_parts);
        let (in_parts, whole): (Vec<_>, Vec<_>) = lock_ids.into_iter().partition(is_in_parts);
        if !whole.is_empty() {
            self.events.push_back(EngineEvent::Revoke { host, lock_ids: whole });
        }
        let part = |lock_id| {
            let name = LockName { host, lock_id };
            // Of one that waits, nothing is wanted back yet.
            let mut wanted = if self.is_held(name) { self.table.wanted_extents(name) } else { Vec::new() };
            if wanted.len() > LOCK_PART_EXTENTS_MAX {
                wanted.sort_by_cached_key(|(by, _)| !self.is_impatient(*by));
            }
            let extents = wanted.into_iter().map(|(_, extent)| extent).take(LOCK_PART_EXTENTS_MAX);
            LockPart { lock_id, extents: extents.collect() }
        };
        let is_asked = |lock_id: &u64| {
            let wanted = self.table.wanted_extents(LockName { host, lock_id: *lock_id });
            wanted.into_iter().any(|(by, _)| self.is_impatient(by))
        };
        let asks = in_parts.iter().any(is_asked);
        let is_told =
            |part: &LockPart| !part.extents.is_empty() || !self.is_held(LockName { host, lock_id: part.lock_id });
        let parts: Vec<_> = in_parts.into_iter().map(part).filter(is_told).collect();
        if !parts.is_empty() {
            self.events.push_back(EngineEvent::Recall { host, wanted: parts, asks });
        }
    }

    /// A lock request has waited for as long as it may, or would wait in vain.
    pub(super) fn refuse(&mut self, now: Time, name: LockName) {
        assert_eq!(self.table.state(name), Some(LockState::Waiting), "a granted lock is not refused: {name:?}");
        self.give_back(now, name);
        self.events.push_back(EngineEvent::TimedOut(name));
    }
}

/// True if a request wants more of a lock that is called back in parts than others do already.
fn wants_more(table: &LockTable<LockName>, by: LockName, name: LockName) -> bool {
    let (own, of_others): (Vec<_>, Vec<_>) =
        table.wanted_extents(name).into_iter().partition(|(other, _)| *other == by);
    own.iter().any(|(_, extent)| !of_others.iter().any(|(_, other)| other.covers(extent)))
}

/// True if an upgrade wants some of what the owner of another one has: the shared extents of that, or all if it names none as shared.
fn wants_shared(wanted: &[LockExtent], by_other: &[LockExtent]) -> bool {
    let names_some = by_other.iter().any(|extent| extent.mode == LockMode::Shared);
    let mut shared = by_other.iter().filter(|extent| !names_some || extent.mode == LockMode::Shared);
    shared.any(|extent| wanted.iter().any(|wanted| wanted.conflicts(extent)))
}

/// Drops a deferred request. False if there is none of that name. `extents` counts those of all hosts.
fn drop_deferred(session: &mut Session, extents: &mut usize, lock_id: u64) -> bool {
    let Some(at) = session.deferred.iter().position(|(deferred, _)| *deferred == lock_id) else { return false };
    let (_, asked) = session.deferred.remove(at);
    session.extents -= asked.extents.len();
    *extents -= asked.extents.len();
    true
}
