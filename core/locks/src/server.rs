//! The lock server's machine. It checks who may speak, and routes each message to the part that handles it.

use crate::LockServerCounters;
use crate::fence_rounds::{FenceCause, FenceDecision, Fencing};
use crate::host_list::{HostList, ListError};
use crate::sessions::{HeldLock, LockDetails, LockName, Session};
use crate::table::{LockState, LockTable};
use braid_base::limits::Settings;
use braid_base::{Generation, LockServerId, NodeId, Now, Time, Timers, was_paused};
use braid_machine::{Effects, Ignored, Input, Machine, Never, OneDisk};
use braid_two_copy_record::Progress;
use braid_wire::{LockAnswer, LockCommand, LockReply, LockRequest, LockTerm, Message, Rejection};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Configuration of a lock server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockServerConfig {
    /// Its number in the array.
    pub id: LockServerId,
    /// The generation of this start, from the control plane: higher than any before. No two processes may be the same
    /// server at a time.
    pub start: Generation,
    /// Hosts that may hold locks although the list on disk does not name them. Empty unless the list was lost. Each has
    /// to reassert its locks or be fenced before anything is granted.
    pub unlisted: BTreeSet<Generation>,
    /// How long a host that is heard may keep a lock that another host waits for, before it is fenced; none: for ever. See
    /// `serves_volumes` for which locks.
    pub evict_after: Option<Duration>,
    /// The locks are those of hostreads and hostwrites: see [`LockServerConfig::of_volumes`]. Otherwise they are those of a file system,
    /// where programs may hold the locks that are not cached for ever.
    pub serves_volumes: bool,
    /// A host holds a lock for as long as it uses what the server serves. One that has given back its last lock is ending: it is forgotten
    /// at once, and its answer says that no later start of the server waits for it.
    pub ends_without_locks: bool,
    /// Time-outs, intervals and limits.
    pub settings: Settings,
}

impl LockServerConfig {
    /// The lock server of volumes. A host releases each lock when its operation ends, at its time-out at the latest, and then only waits
    /// until its devices have undone what it wrote. So a host that keeps a lock for longer than that, though no device is unavailable, does
    /// not keep to the protocol, or can't reach its devices: it is fenced.
    pub fn of_volumes(
        id: LockServerId,
        start: Generation,
        unlisted: BTreeSet<Generation>,
        settings: Settings,
    ) -> LockServerConfig {
        let evict_after = Some(settings.request_timeout + settings.host_lease);
        LockServerConfig { id, start, unlisted, evict_after, serves_volumes: true, ends_without_locks: false, settings }
    }
}

/// A lock server.
#[derive(Clone, Debug)]
pub struct LockServer {
    pub(crate) config: LockServerConfig,
    pub(crate) service: LockService,
    pub(crate) table: LockTable<LockName>,
    pub(crate) sessions: BTreeMap<Generation, Session>,
    /// The hosts that may have held locks when the server started.
    pub(crate) recovered: BTreeSet<Generation>,
    pub(crate) list: HostList,
    pub(crate) fencing: Fencing,
    pub(crate) timers: Timers<Timer>,
    patrol: Patrol,
    /// The extents of all locks and lock requests of hosts.
    pub(crate) extents: usize,
    pub(crate) counters: LockServerCounters,
}

/// The search for silent hosts.
#[derive(Clone, Debug, Default)]
struct Patrol {
    /// A host was rejected for lack of room since the last time.
    crowded: bool,
}

/// Whether the server serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockService {
    /// Not started.
    Off,
    /// It is reading its list of hosts.
    Reading,
    /// Hosts that may hold locks have not reasserted them yet.
    Recovering,
    /// It serves.
    Serving,
    /// Its list of hosts can't be used.
    Unusable(ListError),
}

/// The timers of a lock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Look for silent hosts.
    Patrol,
    /// A timer of the monitor's client.
    Monitor,
    /// Revoke again what this host has not released.
    Revoke(Generation),
    /// Refuse this lock request: it has waited for too long.
    Impatient(LockName),
}

/// How often silent hosts are looked for within a lease.
const PATROLS_PER_LEASE: u32 = 8;
/// The number of heartbeats of silence after which the server may forget a host to admit another, if it holds nothing.
const HEARTBEATS_MISSED: u32 = 3;
/// The number of leases for which a host may be silent if no request waits for its locks.
const SILENT_LEASES_MAX: u32 = 10;
/// The most locks that one check of the invariants looks at.
const CHECKED_MAX: usize = 16;

impl LockServer {
    /// The process that contains the server, as the holder of locks: see [`LockServer::lock_own`]. No host has this generation.
    pub const OWN: Generation = Generation(0);

    /// Creates a lock server that is off.
    pub fn new(config: LockServerConfig) -> LockServer {
        LockServer {
            config,
            service: LockService::Off,
            table: LockTable::new(),
            sessions: BTreeMap::new(),
            recovered: BTreeSet::new(),
            list: HostList::default(),
            fencing: Fencing::new(),
            timers: Timers::default(),
            patrol: Patrol::default(),
            extents: 0,
            counters: LockServerCounters::default(),
        }
    }

    pub fn service(&self) -> LockService {
        self.service
    }

    pub fn counters(&self) -> &LockServerCounters {
        &self.counters
    }

    /// True if no device serves the host any more, because this server had it fenced.
    pub fn has_fenced(&self, host: Generation) -> bool {
        self.fencing.has_fenced(host)
    }

    /// The latest decisions to fence a host.
    pub fn fence_decisions(&self) -> impl Iterator<Item = FenceDecision> + '_ {
        self.fencing.decisions.iter().copied()
    }

    /// True if the host was heard, or may hold locks from before the server's start.
    pub fn has_session(&self, host: Generation) -> bool {
        self.sessions.contains_key(&host)
    }

    /// The hosts that this server knows: those that it has heard of lately, and those that may hold locks.
    pub fn hosts(&self) -> impl Iterator<Item = Generation> + '_ {
        self.sessions.keys().copied()
    }

    /// How many locks each host holds, and how many it waits for.
    pub fn lock_counts(&self) -> impl Iterator<Item = (Generation, usize, usize)> + '_ {
        self.sessions.iter().map(|(host, session)| {
            let name = |lock_id: &u64| LockName { host: *host, lock_id: *lock_id };
            let is_held = |lock_id: &&u64| self.table.state(name(lock_id)) == Some(LockState::Held);
            let held = session.lock_ids.keys().filter(is_held).count();
            (*host, held, session.lock_ids.len() - held + session.deferred.len())
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

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Effects) {
        match (from, message) {
            (NodeId::Host(host), Message::LockRequest(request)) if request.host == host => {
                self.on_request(now, host, request, out);
            }
            (NodeId::Monitor, Message::MonitorAnswer(answer)) => self.on_monitor_answer(now, answer, out),
            _ => self.ignore(Ignored::NotForUs, out),
        }
    }

    fn on_request(&mut self, now: Now, host: Generation, request: LockRequest, out: &mut Effects) {
        if !matches!(self.service, LockService::Recovering | LockService::Serving) {
            return self.ignore(Ignored::NotStarted, out);
        }
        if let Err(rejection) = self.admit(now, request.host, out) {
            return self.answer(host, LockReply::Rejected { rejection }, out);
        }
        for lock_id in request.dropped {
            self.counters.dropped += u64::from(self.give_back(now, LockName { host, lock_id }, out));
        }
        if request.start == self.config.start {
            self.on_complete(now, host, out);
        }
        match request.command {
            LockCommand::Heartbeat => self.answer(host, LockReply::Heartbeat, out),
            LockCommand::Lock { lock_id, object, extents, term } => {
                let asked = LockDetails { object, extents, term };
                self.on_lock(now, LockName { host, lock_id }, asked, request.start, out);
            }
            LockCommand::LockOver { lock_id, object, extents, over } => {
                let asked = LockDetails { object, extents, term: LockTerm::Transaction { impatient: true } };
                self.on_lock_over(now, LockName { host, lock_id }, asked, &over, request.start, out);
            }
            LockCommand::Unlock { lock_id } => {
                self.counters.unlocks += u64::from(self.give_back(now, LockName { host, lock_id }, out));
                if self.config.ends_without_locks && self.sessions[&host].is_idle() && !self.fencing.refuses(host) {
                    self.forget(now, host, out);
                    self.list.add_ending(host, lock_id);
                } else {
                    self.answer(host, LockReply::Unlocked { lock_id }, out);
                }
            }
            LockCommand::Yield { lock_ids } => {
                for lock_id in lock_ids {
                    self.counters.yields += u64::from(self.give_back(now, LockName { host, lock_id }, out));
                }
            }
        }
    }

    /// The server can be reached from now on: the silence of hosts counts from now.
    pub fn hear_all(&mut self, now: Time) {
        self.sessions.values_mut().for_each(|session| session.last_heard = now);
        self.restart_eviction_timers();
    }

    /// If this server was paused, it has not yet read what hosts sent meanwhile: their silence counts from now.
    fn look_at_own_pause(&mut self, now: Time) {
        if was_paused(self.timers.deadline_of(Timer::Patrol), now, self.config.settings.heartbeat) {
            self.hear_all(now);
            self.arm_patrol(now);
        }
    }

    /// Changes how long a host that is heard may keep a cached lock that another host waits for.
    pub fn set_evict_after(&mut self, limit: Option<Duration>) {
        self.config.evict_after = limit;
    }

    /// Something keeps hosts from giving back locks: the time in which they have to do so begins anew.
    pub fn restart_eviction_timers(&mut self) {
        self.sessions.values_mut().for_each(|session| session.overdue.clear());
    }

    /// A message of a host has come, perhaps to another part of this process: rejects hosts that are not served, and renews the lease of
    /// the others.
    pub fn admit(&mut self, now: Now, host: Generation, out: &mut Effects) -> Result<(), Rejection> {
        self.look_at_own_pause(now.time);
        if host == LockServer::OWN || self.fencing.refuses(host) {
            return Err(Rejection::Fenced);
        }
        let is_full = |server: &LockServer| server.sessions.len() >= server.config.settings.hosts_max;
        if !self.sessions.contains_key(&host) && is_full(self) {
            self.forget_idle_host(now, out);
            if is_full(self) {
                self.patrol.crowded = true;
                return Err(Rejection::TooManyHosts);
            }
        }
        // An unknown host holds nothing: it has released what it held, or was fenced.
        let session = self.sessions.entry(host).or_insert_with(|| Session::new(now.time, true));
        session.last_heard = now.time;
        if self.timers.deadline_of(Timer::Patrol).is_none() {
            self.arm_patrol(now.time);
        }
        Ok(())
    }

    /// Makes room for a new host. It forgets the host that has been silent for longest and holds nothing; most such
    /// hosts have ended.
    fn forget_idle_host(&mut self, now: Now, out: &mut Effects) {
        let silence = self.config.settings.heartbeat * HEARTBEATS_MISSED;
        let may_go =
            |(_, session): &(&Generation, &Session)| session.is_idle() && now.time.since(session.last_heard) > silence;
        let idle = self.sessions.iter().filter(may_go).min_by_key(|(_, session)| session.last_heard);
        let idle = idle.map(|(host, _)| *host).filter(|host| !self.fencing.refuses(*host));
        if let Some(host) = idle {
            self.forget(now, host, out);
        }
    }

    /// The host has reasserted all its locks.
    fn on_complete(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("it was just admitted");
        if !session.complete {
            session.complete = true;
            self.serve_if_recovered(now, out);
        }
    }

    /// Begins to serve once all hosts have reasserted their locks.
    pub(crate) fn serve_if_recovered(&mut self, now: Now, out: &mut Effects) {
        if self.service == LockService::Recovering && self.sessions.values().all(|session| session.complete) {
            self.service = LockService::Serving;
            self.ask_deferred(now, out);
        }
    }

    fn on_list_read(&mut self, now: Now, out: &mut Effects) {
        self.recovered = self.list.hosts() | &self.config.unlisted;
        for host in &self.recovered {
            let session = Session { listed: true, ..Session::new(now.time, false) };
            self.sessions.insert(*host, session);
        }
        self.service = LockService::Recovering;
        self.list.set_stale();
        self.arm_patrol(now.time);
        self.serve_if_recovered(now, out);
    }

    /// Looks for hosts that have been silent for a lease. Those without locks are forgotten. The others are fenced if a
    /// request waits for their locks, or if they take up room that another host needs.
    fn patrol(&mut self, now: Now, out: &mut Effects) {
        let lease = self.config.settings.host_lease;
        let fenced: Vec<_> = self.sessions.keys().copied().filter(|host| self.fencing.has_fenced(*host)).collect();
        fenced.into_iter().for_each(|host| self.end_fenced(now, host, out));
        self.serve_if_recovered(now, out);
        let silence = |session: &Session| now.time.since(session.last_heard);
        let silent =
            self.sessions.iter().filter(|(host, session)| silence(session) > lease && !self.fencing.refuses(**host));
        let silent: Vec<_> = silent.map(|(host, session)| (*host, silence(session))).collect();
        let crowded = std::mem::take(&mut self.patrol.crowded);
        for (host, silence) in silent {
            let session = &self.sessions[&host];
            let lock_ids = session.lock_ids.keys().map(|lock_id| LockName { host, lock_id: *lock_id });
            let held: Vec<_> = lock_ids.filter(|name| self.table.state(*name) == Some(LockState::Held)).collect();
            let lately = session.wanted_at.is_some_and(|wanted| now.time.since(wanted) <= lease);
            let in_the_way = held.iter().any(|name| self.table.wanted(*name)) || (lately && !held.is_empty());
            let for_long = !held.is_empty() && silence > lease * SILENT_LEASES_MAX;
            if !session.complete || in_the_way || for_long || (crowded && !held.is_empty()) {
                self.fencing.add(host, FenceCause::Silent);
            } else if held.is_empty() {
                self.forget(now, host, out);
            }
        }
        if self.fence_overdue(now.time) {
            self.ask_whether_devices_serve(now, out);
        }
        self.fence_pending(now, out);
        if !self.sessions.is_empty() {
            self.arm_patrol(now.time);
        }
    }

    /// Has hosts fenced that are heard, and have not given back a lock for too long. True if there are hosts that should give one back.
    fn fence_overdue(&mut self, now: Time) -> bool {
        let Some(limit) = self.config.evict_after else { return false };
        let of_volumes = self.config.serves_volumes;
        let devices_serve = !of_volumes || self.fencing.devices_serve(now, &self.config.settings);
        let mut is_any_overdue = false;
        for (host, session) in &mut self.sessions {
            let wanted = session.wanted.iter().filter(|lock_id| {
                let name = LockName { host: *host, lock_id: **lock_id };
                // The process of the server waits for moments only.
                let is_meant = |other: LockName| other.host != LockServer::OWN && other.host != *host;
                session.lock_ids.get(lock_id).is_some_and(|held| held.cached || of_volumes)
                    && self.table.state(name) == Some(LockState::Held)
                    && self.table.wanted_by(name, is_meant)
            });
            let since = |lock_id: &u64| (*lock_id, session.overdue.get(lock_id).copied().unwrap_or(now));
            session.overdue = wanted.map(since).collect();
            is_any_overdue |= !session.overdue.is_empty() && !self.fencing.refuses(*host);
            let for_long = session.overdue.values().any(|since| now.since(*since) >= limit);
            if for_long && devices_serve && !self.fencing.refuses(*host) {
                self.counters.evicted += 1;
                self.fencing.add(*host, FenceCause::KeepsLocks);
            }
        }
        is_any_overdue && of_volumes
    }

    fn arm_patrol(&mut self, now: Time) {
        self.timers.set(Timer::Patrol, now.after(self.config.settings.host_lease / PATROLS_PER_LEASE));
    }

    /// Ends the session of a host that no device serves any more. A host of a file system may keep what it has read under cached locks, until
    /// by its own clock it was not answered for most of a lease. Others are granted these when it has surely dropped that.
    pub(crate) fn end_fenced(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let Some(session) = self.sessions.get(&host) else { return };
        if self.config.serves_volumes || now.time.since(session.last_heard) > self.config.settings.host_lease {
            return self.forget(now, host, out);
        }
        let name = |lock_id: &u64| LockName { host, lock_id: *lock_id };
        let is_kept =
            |lock_id: &u64, held: &HeldLock| held.cached && self.table.state(name(lock_id)) == Some(LockState::Held);
        // First those that wait: they must not be granted.
        let ended = session.lock_ids.iter().filter(|(lock_id, held)| !is_kept(lock_id, held));
        let mut ended: Vec<_> = ended.map(|(lock_id, _)| name(lock_id)).collect();
        ended.sort_by_key(|name| self.table.state(*name) == Some(LockState::Held));
        ended.extend(session.deferred.iter().map(|(lock_id, _)| name(lock_id)));
        for name in ended {
            self.give_back(now, name, out);
        }
    }

    /// Ends a session, and grants what the host held to others.
    pub(crate) fn forget(&mut self, now: Now, host: Generation, out: &mut Effects) {
        self.give_back_all(now, host, out);
        self.timers.cancel(Timer::Revoke(host));
        let session = self.sessions.remove(&host).expect("it is there");
        self.extents -= session.extents;
        if session.listed {
            self.list.set_stale();
        }
    }

    /// The next timer of the server or its parts.
    fn next_timer(&self) -> Option<(Time, Timer)> {
        if let LockService::Unusable(_) = self.service {
            return None;
        }
        let monitor = self.fencing.deadline().map(|time| (time, Timer::Monitor));
        self.timers.next().into_iter().chain(monitor).min()
    }

    fn wake(&mut self, now: Now, out: &mut Effects) {
        while let Some((_, timer)) = self.next_timer().filter(|(time, _)| *time <= now.time) {
            self.timers.cancel(timer);
            match timer {
                Timer::Patrol => self.patrol(now, out),
                Timer::Monitor => self.on_monitor_timer(now, out),
                Timer::Revoke(host) => self.revoke_again(now, host, out),
                Timer::Impatient(lock_id) => self.on_impatient(now, lock_id, out),
            }
        }
    }

    /// Writes the list of hosts if it is not up to date.
    fn update_list(&mut self, out: &mut Effects) {
        if !self.list.is_due() {
            return;
        }
        let listed = self.sessions.iter().filter(|(_, session)| session.listed).map(|(host, _)| *host).collect();
        self.counters.list_writes += u64::from(self.list.update(listed, out));
    }

    fn answer_ending(&mut self, out: &mut Effects) {
        for (host, lock_id) in self.list.take_ending() {
            self.answer(host, LockReply::Unlocked { lock_id }, out);
        }
    }

    pub(crate) fn answer(&mut self, host: Generation, reply: LockReply, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let answer = LockAnswer { start: self.config.start, reply };
        out.send(NodeId::Host(host), Message::LockAnswer(answer));
    }

    pub(crate) fn ignore(&mut self, why: Ignored, out: &mut Effects) {
        self.counters.ignored += 1;
        out.ignore(why);
    }
}

impl Machine for LockServer {
    type Request = Never;
    type Outcome = Never;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if let LockService::Unusable(_) = self.service {
            return self.ignore(Ignored::NotStarted, out);
        }
        self.look_at_own_pause(now.time);
        match input {
            Input::Start => {
                assert_eq!(self.service, LockService::Off, "a lock server is started once");
                self.service = LockService::Reading;
                self.list.start(out);
            }
            Input::Message { from, message, .. } => {
                self.counters.messages_received += 1;
                self.on_message(now, from, message, out);
            }
            Input::DiskDone { result, .. } => match self.list.on_disk_done(result, out) {
                Ok(Progress::Read) => self.on_list_read(now, out),
                Ok(Progress::Reading | Progress::Writing) => {}
                Ok(Progress::Written) => self.ask_deferred(now, out),
                Err(error) => {
                    self.service = LockService::Unusable(error);
                }
            },
            Input::Wake => {}
        }
        self.wake(now, out);
        self.update_list(out);
        self.answer_ending(out);
    }

    fn deadline(&self) -> Option<Time> {
        self.next_timer().map(|(time, _)| time)
    }

    fn invariants(&self) {
        self.table.invariants();
        self.fencing.invariants();
        for name in self.table.owners().filter(|name| name.host != LockServer::OWN).take(CHECKED_MAX) {
            let session = &self.sessions[&name.host];
            assert!(session.listed && self.list.contains(name.host), "a host with locks is in the list: {name:?}");
            let held = self.table.state(name) == Some(LockState::Held);
            assert!(held || self.service == LockService::Serving, "no lock request waits during recovery: {name:?}");
            if held && session.lock_ids[&name.lock_id].cached && self.table.wanted(name) {
                let revoked = self.timers.deadline_of(Timer::Revoke(name.host)).is_some();
                assert!(
                    revoked && session.wanted.contains(&name.lock_id),
                    "a cached lock that another request waits for is being revoked: {name:?}"
                );
            }
        }
        for (host, session) in self.sessions.iter().take(CHECKED_MAX) {
            let coming = self.service == LockService::Recovering || self.list.is_writing();
            assert!(session.deferred.is_empty() || coming, "deferred requests are handled later: {host}");
        }
        if self.table.len() <= CHECKED_MAX {
            let lock_ids: usize = self.sessions.values().map(|session| session.lock_ids.len()).sum();
            let of_hosts = self.table.owners().filter(|name| name.host != LockServer::OWN).count();
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
