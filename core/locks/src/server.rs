//! The lock server's machine: who may speak, and where each message goes.

use crate::LockServerCounters;
use crate::fencing::Fencing;
use crate::host_list::{HostList, ListError};
use crate::sessions::{LockDetails, LockName, Session};
use crate::table::{LockState, LockTable};
use braid_base::limits::Settings;
use braid_base::{Generation, LockServerId, NodeId, Now, Time, Timers};
use braid_machine::{Effects, Ignored, Input, Machine};
use braid_record::Progress;
use braid_wire::{LockAnswer, LockCommand, LockReply, LockRequest, Message, Rejection};
use std::collections::{BTreeMap, BTreeSet};

/// How a lock server is to run.
#[derive(Clone, Debug)]
pub struct LockServerConfig {
    /// Its number in the array.
    pub id: LockServerId,
    /// This start of it, from the control plane: higher than any before. No two processes may be one server at a time.
    pub start: Generation,
    /// Hosts that may hold something though the list on disk does not name them: none, unless the list was lost. They have to say what they
    /// hold, or are fenced, before anything is granted.
    pub unlisted: BTreeSet<Generation>,
    /// Waits and spans.
    pub settings: Settings,
}

/// A lock server.
pub struct LockServer {
    pub(crate) config: LockServerConfig,
    pub(crate) service: LockService,
    pub(crate) table: LockTable<LockName>,
    pub(crate) sessions: BTreeMap<Generation, Session>,
    /// The hosts that may have held something when the server started.
    pub(crate) recovered: BTreeSet<Generation>,
    pub(crate) list: HostList,
    /// The hosts that are to be in the list are others than when it was last written.
    pub(crate) list_is_stale: bool,
    pub(crate) fencing: Fencing,
    pub(crate) timers: Timers<Timer>,
    next_patrol: Time,
    /// A host was turned away for want of room since silent hosts were looked for.
    crowded: bool,
    pub(crate) counters: LockServerCounters,
}

/// Whether the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockService {
    /// Not started.
    Off,
    /// It reads its list of hosts.
    Reading,
    /// Hosts that may hold something have yet to say what.
    Recovering,
    /// It serves.
    Serving,
    /// It can't.
    Unusable(ListError),
}

/// What to do later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Look for silent hosts.
    Patrol,
    /// The monitor's client has something to do.
    Monitor,
    /// Recall once more what this host has not given back.
    Revoke(Generation),
    /// Refuse this lock.
    Impatient(LockName),
}

/// How often silent hosts are looked for, as a part of the lease.
const PATROLS_PER_LEASE: u32 = 8;
/// A host that was silent for so many heartbeats may be forgotten for another, if it holds nothing.
const HEARTBEATS_MISSED: u32 = 3;
/// A host that holds something in nobody's way may be silent for so many leases.
const SILENT_LEASES_MAX: u32 = 10;
/// The most locks that one look at the invariants checks.
const CHECKED_MAX: usize = 16;

impl LockServer {
    /// A lock server that is off.
    pub fn new(config: LockServerConfig) -> LockServer {
        LockServer {
            config,
            service: LockService::Off,
            table: LockTable::new(),
            sessions: BTreeMap::new(),
            recovered: BTreeSet::new(),
            list: HostList::default(),
            list_is_stale: false,
            fencing: Fencing::new(),
            timers: Timers::default(),
            next_patrol: Time(0),
            crowded: false,
            counters: LockServerCounters::default(),
        }
    }

    /// Whether it serves.
    pub fn service(&self) -> LockService {
        self.service
    }

    /// What it has done.
    pub fn counters(&self) -> &LockServerCounters {
        &self.counters
    }

    /// What hosts hold or wait for, to look at.
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
        if let Err(rejection) = self.admit(now, &request, out) {
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
            LockCommand::Unlock { lock_id } => {
                self.counters.unlocks += u64::from(self.give_back(now, LockName { host, lock_id }, out));
                self.answer(host, LockReply::Unlocked { lock_id }, out);
            }
            LockCommand::Yield { lock_ids } => {
                for lock_id in lock_ids {
                    self.counters.yields += u64::from(self.give_back(now, LockName { host, lock_id }, out));
                }
            }
        }
    }

    /// Refuses hosts that are not served, and renews the lease of those that are.
    fn admit(&mut self, now: Now, request: &LockRequest, out: &mut Effects) -> Result<(), Rejection> {
        if self.fencing.refuses(request.host) {
            return Err(Rejection::Fenced);
        }
        let is_full = |server: &LockServer| server.sessions.len() >= server.config.settings.hosts_max;
        if !self.sessions.contains_key(&request.host) && is_full(self) {
            self.forget_idle_host(now, out);
            if is_full(self) {
                self.crowded = true;
                return Err(Rejection::TooManyHosts);
            }
        }
        // A host that is not known holds nothing: what it might have held, it has given back, or was fenced for.
        let session = self.sessions.entry(request.host).or_insert_with(|| Session::new(now.time, true));
        session.last_heard = now.time;
        if self.timers.deadline_of(Timer::Patrol).is_none() {
            self.arm_patrol(now.time);
        }
        Ok(())
    }

    /// Makes room for a host: forgets the one that has been silent for longest and holds nothing. Most such hosts have ended.
    fn forget_idle_host(&mut self, now: Now, out: &mut Effects) {
        let silence = self.config.settings.heartbeat * HEARTBEATS_MISSED;
        let is_idle = |(_, session): &(&Generation, &Session)| {
            let holds_nothing = session.complete && session.lock_ids.is_empty() && session.deferred.is_empty();
            holds_nothing && now.time.since(session.last_heard) > silence
        };
        let idle = self.sessions.iter().filter(is_idle).min_by_key(|(_, session)| session.last_heard);
        let idle = idle.map(|(host, _)| *host).filter(|host| !self.fencing.is_doomed(*host));
        if let Some(host) = idle {
            self.forget(now, host, out);
        }
    }

    /// The host has said all that it holds.
    fn on_complete(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("it was just admitted");
        if !session.complete {
            session.complete = true;
            self.serve_if_recovered(now, out);
        }
    }

    /// Begins to serve once it is known what every host holds.
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
        self.list_is_stale = true;
        self.arm_patrol(now.time);
        self.serve_if_recovered(now, out);
    }

    /// Looks for hosts that have been silent for a lease. Those who hold nothing are forgotten; the others are fenced if what they hold is
    /// in somebody's way, or they take up the room that another host needs.
    fn patrol(&mut self, now: Now, out: &mut Effects) {
        let lease = self.config.settings.host_lease;
        if now.time.since(self.next_patrol) > self.config.settings.heartbeat {
            // This server stood still, and what hosts said meanwhile has yet to be read: their silence begins now.
            self.sessions.values_mut().for_each(|session| session.last_heard = now.time);
        }
        let silence = |session: &Session| now.time.since(session.last_heard);
        let silent =
            self.sessions.iter().filter(|(host, session)| silence(session) > lease && !self.fencing.is_doomed(**host));
        let silent: Vec<_> = silent.map(|(host, session)| (*host, silence(session))).collect();
        let crowded = std::mem::take(&mut self.crowded);
        for (host, silence) in silent {
            let session = &self.sessions[&host];
            let lock_ids = session.lock_ids.keys().map(|lock_id| LockName { host, lock_id: *lock_id });
            let held: Vec<_> = lock_ids.filter(|name| self.table.state(*name) == Some(LockState::Held)).collect();
            let lately = session.wanted_at.is_some_and(|wanted| now.time.since(wanted) <= lease);
            let in_the_way = held.iter().any(|name| self.table.wanted(*name)) || (lately && !held.is_empty());
            let for_long = !held.is_empty() && silence > lease * SILENT_LEASES_MAX;
            if !session.complete || in_the_way || for_long || (crowded && !held.is_empty()) {
                self.fencing.doom(host);
            } else if held.is_empty() {
                self.forget(now, host, out);
            }
        }
        self.fence_doomed(now, out);
        if !self.sessions.is_empty() {
            self.arm_patrol(now.time);
        }
    }

    fn arm_patrol(&mut self, now: Time) {
        self.next_patrol = now.after(self.config.settings.host_lease / PATROLS_PER_LEASE);
        self.timers.set(Timer::Patrol, self.next_patrol);
    }

    /// Ends a session; what the host held or waited for goes to others.
    pub(crate) fn forget(&mut self, now: Now, host: Generation, out: &mut Effects) {
        self.give_back_all(now, host, out);
        self.timers.cancel(Timer::Revoke(host));
        let session = self.sessions.remove(&host).expect("it is there");
        self.list_is_stale |= session.listed;
    }

    /// What is to be done next, and when: the least of the server's own deadlines and those of its parts.
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

    /// Writes the list of hosts anew if others are to be in it.
    fn update_list(&mut self, out: &mut Effects) {
        if !self.list_is_stale || self.list.is_writing() {
            return;
        }
        self.list_is_stale = false;
        let listed = self.sessions.iter().filter(|(_, session)| session.listed).map(|(host, _)| *host).collect();
        self.counters.list_writes += u64::from(self.list.update(listed, out));
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
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if let LockService::Unusable(_) = self.service {
            return self.ignore(Ignored::NotStarted, out);
        }
        match input {
            Input::Start => {
                assert_eq!(self.service, LockService::Off, "a lock server is started once");
                self.service = LockService::Reading;
                self.list.start(out);
            }
            Input::Message { from, message } => {
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
            Input::Request { .. } => panic!("a lock server takes no requests of front ends"),
            Input::Wake => {}
        }
        self.wake(now, out);
        self.update_list(out);
    }

    fn deadline(&self) -> Option<Time> {
        self.next_timer().map(|(time, _)| time)
    }

    fn invariants(&self) {
        self.table.invariants();
        self.fencing.invariants();
        for name in self.table.owners().take(CHECKED_MAX) {
            let session = &self.sessions[&name.host];
            assert!(session.listed && self.list.contains(name.host), "who holds or waits is in the list: {name:?}");
            let held = self.table.state(name) == Some(LockState::Held);
            assert!(held || self.service == LockService::Serving, "nobody waits during recovery: {name:?}");
            if held && session.lock_ids[&name.lock_id].cached && self.table.wanted(name) {
                let revoked = self.timers.deadline_of(Timer::Revoke(name.host)).is_some();
                assert!(
                    revoked && session.wanted.contains(&name.lock_id),
                    "a kept lock in the way is revoked: {name:?}"
                );
            }
        }
        for (host, session) in self.sessions.iter().take(CHECKED_MAX) {
            let coming = self.service == LockService::Recovering || self.list.is_writing();
            assert!(session.deferred.is_empty() || coming, "what is deferred has its time to come: {host}");
        }
        if self.table.len() <= CHECKED_MAX {
            let lock_ids: usize = self.sessions.values().map(|session| session.lock_ids.len()).sum();
            assert_eq!(lock_ids, self.table.len(), "locks of sessions are in the table");
        }
    }
}
