//! The lock engine: which hosts hold and await which locks, whose locks others want, and which hosts are to be fenced for that.
//!
//! It knows neither messages nor disks nor the monitor. Its owner calls it, then takes the [events](EngineEvent) that follow, in order. The
//! owner also says whether a host may be granted locks yet: it may if a restarted owner would know that the host may hold some.

mod requests;
mod survey;

pub use requests::Acceptance;

use crate::sessions::{FenceState, HeldLock, LockName, Session};
use crate::table::{LockState, LockTable};
use braid_base::limits::Settings;
use braid_base::{Generation, ObjectId, Time, Timers, was_paused};
use braid_wire::{LockExtent, LockPart};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The locks of hosts, and of the process that contains the engine.
#[derive(Clone, Debug, Default)]
pub struct LockEngine {
    settings: Settings,
    of_volumes: bool,
    evict_after: Option<Duration>,
    table: LockTable<LockName>,
    sessions: BTreeMap<Generation, Session>,
    /// The extents of all locks and lock requests of hosts.
    extents: usize,
    timers: Timers<EngineTimer>,
    /// A host was rejected for lack of room since the last patrol.
    is_crowded: bool,
    events: VecDeque<EngineEvent>,
}

/// What follows from a call of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A host has a lock.
    Granted { name: LockName, waited: bool },
    /// The process that contains the engine has this lock.
    OwnGranted(u64),
    /// A request of a host waits.
    Waits(LockName),
    /// A request has waited for as long as it may, which is no time for a lease: it is gone.
    TimedOut(LockName),
    /// The host is to give back these locks.
    Revoke { host: Generation, lock_ids: Vec<u64> },
    /// The host is to give back these parts of locks. `asks`: and to say at once which of them it uses.
    Recall { host: Generation, wanted: Vec<LockPart>, asks: bool },
    /// The host is to give back what it has of these ranges, if it has any: another host of its node group has.
    RecallGroup { host: Generation, object: ObjectId, extents: Vec<LockExtent> },
    /// The host is to be fenced.
    Doom { host: Generation, cause: FenceCause },
    /// Other [hosts](LockEngine::listed) than before may hold locks.
    Listed,
}

/// Why a host is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceCause {
    /// It was silent for too long.
    Silent,
    /// It is heard, and has not given back a lock that another host waits for.
    KeepsLocks,
    /// It believes that it holds a lock that another host holds.
    Conflict,
    /// Another process had it fenced.
    Fenced,
}

/// The timers of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineTimer {
    /// Look for silent hosts: [`LockEngine::patrol`].
    Patrol,
    /// Revoke again what this host has not released.
    Revoke(Generation),
    /// Refuse this lock request: it has waited for too long.
    Impatient(LockName),
}

/// How often silent hosts are looked for within a lease.
const PATROLS_PER_LEASE: u32 = 8;
/// The number of heartbeats of silence after which a host may be forgotten to admit another, if it holds nothing.
const HEARTBEATS_MISSED: u32 = 3;
/// The number of leases for which a host may be silent if no request waits for its locks.
const SILENT_LEASES_MAX: u32 = 10;
/// The most locks that one check of the invariants looks at.
pub(crate) const CHECKED_MAX: usize = 16;

impl LockEngine {
    /// The process that contains the engine, as the holder of locks: see [`LockEngine::lock_own`]. No host has this generation.
    pub const OWN: Generation = Generation(0);

    /// An engine without hosts. See `LockServerConfig` for `of_volumes` and `evict_after`.
    pub fn new(settings: Settings, of_volumes: bool, evict_after: Option<Duration>) -> LockEngine {
        LockEngine { settings, of_volumes, evict_after, ..LockEngine::default() }
    }

    /// The next event.
    pub fn pop_event(&mut self) -> Option<EngineEvent> {
        self.events.pop_front()
    }

    /// True if the host was heard, or may hold locks from before the owner's start.
    pub fn has_session(&self, host: Generation) -> bool {
        self.sessions.contains_key(&host)
    }

    /// The hosts that are known: those that were heard lately, and those that may hold locks.
    pub fn hosts(&self) -> impl Iterator<Item = Generation> + '_ {
        self.sessions.keys().copied()
    }

    /// The hosts that may hold locks, or wait to be listed as such.
    pub fn listed(&self) -> impl Iterator<Item = Generation> + '_ {
        self.sessions.iter().filter(|(_, session)| session.listed).map(|(host, _)| *host)
    }

    /// How many locks each host holds, and how many it waits for.
    pub fn lock_counts(&self) -> impl Iterator<Item = (Generation, usize, usize)> + '_ {
        self.sessions.iter().map(|(host, session)| {
            let held = session.names(*host).filter(|name| self.is_held(*name)).count();
            (*host, held, session.len() - held)
        })
    }

    /// The number of locks and lock requests in the table.
    pub fn requests(&self) -> usize {
        self.table.len()
    }

    /// The locks of all hosts, held or waiting, for inspection.
    pub fn lock_ids(&self) -> impl Iterator<Item = (LockName, LockState)> + '_ {
        self.table.states()
    }

    pub fn state(&self, name: LockName) -> Option<LockState> {
        self.table.state(name)
    }

    /// The object and the extents of a lock, held or waiting.
    pub fn extents(&self, name: LockName) -> Option<(ObjectId, &[LockExtent])> {
        self.table.extents(name)
    }

    /// When a host was heard last, if it is known.
    pub fn last_heard(&self, host: Generation) -> Option<Time> {
        self.sessions.get(&host).map(|session| session.last_heard)
    }

    /// Since when a lock of a host has been held, or has waited; and whether it was not granted at once.
    pub fn since(&self, name: LockName) -> Option<(Time, bool)> {
        self.held(name).map(|held| (held.since, held.waited))
    }

    pub(crate) fn is_held(&self, name: LockName) -> bool {
        self.table.state(name) == Some(LockState::Held)
    }

    /// True if a host holds all these locks.
    pub fn holds(&self, host: Generation, lock_ids: &[u64]) -> bool {
        lock_ids.iter().all(|lock_id| self.is_held(LockName { host, lock_id: *lock_id }))
    }

    pub(crate) fn held(&self, name: LockName) -> Option<&HeldLock> {
        self.sessions.get(&name.host)?.lock_ids.get(&name.lock_id)
    }

    /// The session of a host that was heard.
    pub(crate) fn session(&self, host: Generation) -> &Session {
        &self.sessions[&host]
    }

    /// The owner can be reached from now on: the silence of hosts counts from now.
    pub fn hear_all(&mut self, now: Time) {
        self.sessions.values_mut().for_each(|session| session.last_heard = now);
        self.restart_eviction_timers();
    }

    /// If the owner was paused, it has not yet read what hosts sent meanwhile: their silence counts from now.
    pub fn look_at_own_pause(&mut self, now: Time) {
        if was_paused(self.timers.deadline_of(EngineTimer::Patrol), now, self.settings.heartbeat) {
            self.hear_all(now);
            self.arm_patrol(now);
        }
    }

    /// Changes how long a host that is heard may keep a cached lock that another host waits for.
    pub fn set_evict_after(&mut self, limit: Option<Duration>) {
        self.evict_after = limit;
    }

    /// Something keeps hosts from giving back locks: the time in which they have to do so begins anew.
    pub fn restart_eviction_timers(&mut self) {
        self.sessions.values_mut().for_each(|session| session.overdue.clear());
    }

    /// A message of a host that is not to be fenced has come: renews its lease. False if there are too many hosts.
    pub fn hear(&mut self, now: Time, host: Generation) -> bool {
        if !self.sessions.contains_key(&host) && self.sessions.len() >= self.settings.hosts_max {
            self.forget_idle_host(now);
            if self.sessions.len() >= self.settings.hosts_max {
                self.is_crowded = true;
                return false;
            }
        }
        // An unknown host holds nothing: it has released what it held, or was fenced.
        let session = self.sessions.entry(host).or_insert_with(|| Session::new(now, true));
        session.last_heard = now;
        if self.timers.deadline_of(EngineTimer::Patrol).is_none() {
            self.arm_patrol(now);
        }
        true
    }

    /// The owner has started, and these hosts may hold locks from before. Each has to reassert them.
    pub fn recover(&mut self, now: Time, hosts: impl Iterator<Item = (Generation, FenceState)>) {
        for (host, fence_state) in hosts {
            let session = Session { listed: true, fence_state, ..Session::new(now, false) };
            self.sessions.insert(host, session);
        }
        self.arm_patrol(now);
    }

    /// The host has reasserted all its locks. False if that is known.
    pub fn complete(&mut self, host: Generation) -> bool {
        let session = self.sessions.get_mut(&host).expect("it was just heard");
        !std::mem::replace(&mut session.complete, true)
    }

    /// True if all hosts have reasserted their locks.
    pub fn is_recovered(&self) -> bool {
        self.sessions.values().all(|session| session.complete)
    }

    /// Makes room for a new host. Forgets the host that has been silent for longest and holds nothing; most such hosts have ended.
    fn forget_idle_host(&mut self, now: Time) {
        let silence = self.settings.heartbeat * HEARTBEATS_MISSED;
        let may_go =
            |(_, session): &(&Generation, &Session)| session.is_idle() && now.since(session.last_heard) > silence;
        let idle = self.sessions.iter().filter(may_go).min_by_key(|(_, session)| session.last_heard);
        let idle = idle.filter(|(_, session)| session.fence_state == FenceState::Served).map(|(host, _)| *host);
        if let Some(host) = idle {
            self.forget(now, host);
        }
    }

    /// Looks for hosts that have been silent for a lease. What they have as leases lapses. Those without locks are forgotten. The others are doomed if a request waits for
    /// their locks, or if they take up room that another host needs. `devices_serve`: no device keeps hosts from giving back locks. True
    /// if it matters for some host whether the devices serve.
    pub fn patrol(&mut self, now: Time, devices_serve: bool) -> bool {
        self.timers.cancel(EngineTimer::Patrol);
        let lease = self.settings.host_lease;
        let silence = |session: &Session| now.since(session.last_heard);
        let is_silent = |session: &Session| silence(session) > lease && session.fence_state == FenceState::Served;
        let silent = self.sessions.iter().filter(|(_, session)| is_silent(session));
        let silent: Vec<_> = silent.map(|(host, session)| (*host, silence(session))).collect();
        let is_crowded = std::mem::take(&mut self.is_crowded);
        for (host, silence) in silent {
            // Its leases lapse: it stopped to rely on them when it was not answered for seven eighths of a lease.
            let leases = self.sessions[&host].lock_ids.iter().filter(|(_, held)| held.lapses);
            for lock_id in leases.map(|(lock_id, _)| *lock_id).collect::<Vec<_>>() {
                self.give_back(now, LockName { host, lock_id });
            }
            let session = &self.sessions[&host];
            let held: Vec<_> = session.names(host).filter(|name| self.is_held(*name)).collect();
            let lately = session.wanted_at.is_some_and(|wanted| now.since(wanted) <= lease);
            let in_the_way = held.iter().any(|name| self.table.wanted(*name)) || (lately && !held.is_empty());
            let for_long = !held.is_empty() && silence > lease * SILENT_LEASES_MAX;
            if !session.complete || in_the_way || for_long || (is_crowded && !held.is_empty()) {
                self.doom(host, FenceCause::Silent);
            } else if held.is_empty() {
                self.forget(now, host);
            }
        }
        let is_any_overdue = self.doom_overdue(now, devices_serve);
        if !self.sessions.is_empty() {
            self.arm_patrol(now);
        }
        is_any_overdue && self.of_volumes
    }

    /// Dooms hosts that are heard, and have not given back a lock for too long. True if there are hosts that should give one back.
    fn doom_overdue(&mut self, now: Time, devices_serve: bool) -> bool {
        let Some(limit) = self.evict_after else { return false };
        let mut is_any_overdue = false;
        let mut late = Vec::new();
        for (host, session) in &mut self.sessions {
            let wanted = session.wanted.iter().filter(|lock_id| {
                let name = LockName { host: *host, lock_id: **lock_id };
                // The process of the engine waits for moments only.
                let is_meant = |other: LockName| other.host != LockEngine::OWN && other.host != *host;
                // Programs may hold ranges without limit.
                let is_limited = |held: &HeldLock| !held.in_parts && (self.of_volumes || held.cached);
                session.lock_ids.get(lock_id).is_some_and(is_limited)
                    && self.table.state(name) == Some(LockState::Held)
                    && self.table.wanted_by(name, is_meant)
            });
            let since = |lock_id: &u64| (*lock_id, session.overdue.get(lock_id).copied().unwrap_or(now));
            session.overdue = wanted.map(since).collect();
            if session.fence_state == FenceState::Served {
                is_any_overdue |= !session.overdue.is_empty();
                if devices_serve && session.overdue.values().any(|since| now.since(*since) >= limit) {
                    late.push(*host);
                }
            }
        }
        late.into_iter().for_each(|host| self.doom(host, FenceCause::KeepsLocks));
        is_any_overdue
    }

    pub(crate) fn arm_patrol(&mut self, now: Time) {
        self.timers.set(EngineTimer::Patrol, now.after(self.settings.host_lease / PATROLS_PER_LEASE));
    }

    fn doom(&mut self, host: Generation, cause: FenceCause) {
        self.set_doomed(host);
        self.events.push_back(EngineEvent::Doom { host, cause });
    }

    /// The host is to be fenced, if it is known: it is told nothing any more.
    pub fn set_doomed(&mut self, host: Generation) {
        if let Some(session) = self.sessions.get_mut(&host) {
            session.fence_state = session.fence_state.max(FenceState::Doomed);
        }
    }

    /// No device serves the host any more.
    pub fn set_fenced(&mut self, now: Time, host: Generation) {
        if let Some(session) = self.sessions.get_mut(&host) {
            session.fence_state = FenceState::Fenced;
            self.end_fenced(now, host);
        }
    }

    /// Ends the sessions of fenced hosts, as far as that is due.
    pub fn end_all_fenced(&mut self, now: Time) {
        let fenced = self.sessions.iter().filter(|(_, session)| session.fence_state == FenceState::Fenced);
        let fenced: Vec<_> = fenced.map(|(host, _)| *host).collect();
        fenced.into_iter().for_each(|host| self.end_fenced(now, host));
    }

    /// Ends the session of a host that no device serves any more. Until by its own clock it was not answered for most of a lease, a host of a
    /// file system may keep what it has read under cached locks, and programs may rely on ranges. Others are granted these after that.
    fn end_fenced(&mut self, now: Time, host: Generation) {
        let session = &self.sessions[&host];
        let outlasts = |held: &HeldLock| held.lapses || (held.cached && (held.in_parts || !self.of_volumes));
        // Of one that has not reported since a restart, it is not known what it held.
        let is_forgotten = self.of_volumes && session.complete && !session.lock_ids.values().any(outlasts);
        if is_forgotten || now.since(session.last_heard) > self.settings.host_lease {
            return self.forget(now, host);
        }
        let name = |lock_id: &u64| LockName { host, lock_id: *lock_id };
        let is_kept = |lock_id: &u64, held: &HeldLock| outlasts(held) && self.is_held(name(lock_id));
        // First those that wait: they must not be granted.
        let ended = session.lock_ids.iter().filter(|(lock_id, held)| !is_kept(lock_id, held));
        let mut ended: Vec<_> = ended.map(|(lock_id, _)| name(lock_id)).collect();
        ended.sort_by_key(|name| self.is_held(*name));
        ended.extend(session.deferred.iter().map(|(lock_id, _)| name(lock_id)));
        for name in ended {
            self.give_back(now, name);
        }
    }

    /// Ends a session, and grants what the host held to others.
    pub fn forget(&mut self, now: Time, host: Generation) {
        self.give_back_all(now, host);
        self.timers.cancel(EngineTimer::Revoke(host));
        let session = self.sessions.remove(&host).expect("it is there");
        self.extents -= session.extents;
        if session.listed {
            self.events.push_back(EngineEvent::Listed);
        }
    }

    /// The next timer.
    pub fn next_timer(&self) -> Option<(Time, EngineTimer)> {
        self.timers.next()
    }

    /// Fires a timer that is due, other than the patrol's.
    pub fn wake(&mut self, now: Time, timer: EngineTimer) {
        self.timers.cancel(timer);
        match timer {
            EngineTimer::Patrol => unreachable!("its owner lets it patrol"),
            EngineTimer::Revoke(host) => self.revoke_again(now, host),
            EngineTimer::Impatient(name) => self.refuse(now, name),
        }
    }

    /// Asserts that the locks of hosts are in the table, and counted, and that those which others want are being revoked.
    pub fn invariants(&self) {
        self.table.invariants();
        for name in self.table.owners().filter(|name| name.host != LockEngine::OWN).take(CHECKED_MAX) {
            let session = &self.sessions[&name.host];
            assert!(session.listed, "a host with locks is in the list: {name:?}");
            let (object, extents) = self.table.extents(name).expect("it is in the table");
            let counted = session.lock_ids.get(&name.lock_id).map(|held| usize::from(held.extents));
            assert_eq!(counted, Some(extents.len()), "a lock in the table is counted: {name:?}");
            if self.is_held(name) && extents.len() <= CHECKED_MAX {
                let other = self.table.holders(object, extents).into_iter().find(|other| other.host != name.host);
                assert_eq!(other, None, "no other host holds what conflicts with {name:?}");
            }
            if self.is_held(name) && session.lock_ids[&name.lock_id].cached && self.table.wanted(name) {
                let revoked = self.timers.deadline_of(EngineTimer::Revoke(name.host)).is_some();
                assert!(
                    revoked && session.wanted.contains(&name.lock_id),
                    "a cached lock that another request waits for is being revoked: {name:?}"
                );
            }
        }
        if self.table.len() <= CHECKED_MAX {
            let lock_ids: usize = self.sessions.values().map(|session| session.lock_ids.len()).sum();
            let of_hosts = self.table.owners().filter(|name| name.host != LockEngine::OWN).count();
            assert_eq!(lock_ids, of_hosts, "locks of sessions are in the table");
            let extents: usize = self.sessions.values().map(|session| session.extents).sum();
            assert_eq!(extents, self.extents, "the extents of all hosts are counted");
        }
        for (host, session) in
            self.sessions.iter().take(CHECKED_MAX).filter(|(_, session)| session.len() <= CHECKED_MAX)
        {
            let of_locks: usize = session.lock_ids.values().map(|held| usize::from(held.extents)).sum();
            let of_deferred: usize = session.deferred.iter().map(|(_, asked)| asked.extents.len()).sum();
            assert_eq!(session.extents, of_locks + of_deferred, "the extents of a host are counted: {host}");
        }
    }
}
