//! The lock server's machine: a lock engine with messages, a disk and the monitor. It checks who may speak, decodes requests, keeps the list
//! of hosts on disk, has the monitor fence hosts, and encodes answers.

use crate::LockServerCounters;
use crate::engine::{CHECKED_MAX, EngineEvent, EngineTimer, FenceCause, LockEngine};
use crate::fence_rounds::{FenceDecision, Fencing};
use crate::host_list::{HostList, ListError};
use crate::sessions::{FenceState, LockName};
use crate::table::LockState;
use braid_base::limits::{self, Settings};
use braid_base::{Generation, Level, LockServerId, NodeId, Now, Time};
use braid_machine::{Effects, Ignored, Input, Machine, Never, OneDisk};
use braid_two_copy_record::Progress;
use braid_wire::{LOCK_PARTS_MAX, LockAnswer, LockRefusal, LockReply, LockRequest, Message, Rejection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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
    pub(crate) engine: LockEngine,
    /// The hosts that may have held locks when the server started.
    pub(crate) recovered: BTreeSet<Generation>,
    pub(crate) list: HostList,
    pub(crate) fencing: Fencing,
    /// It grants nothing before.
    pub(crate) opens: Time,
    /// Locks that the process which contains the server has been granted.
    pub(crate) own_granted: Vec<u64>,
    pub(crate) counters: LockServerCounters,
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

/// What is due. Of several at a time, the first is done first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Patrol,
    /// A timer of the monitor's client.
    Monitor,
    /// Another timer of the engine.
    Engine(EngineTimer),
}

impl LockServer {
    /// Creates a lock server that is off.
    pub fn new(config: LockServerConfig) -> LockServer {
        LockServer {
            service: LockService::Off,
            engine: LockEngine::new(config.settings.clone(), config.serves_volumes, config.evict_after),
            recovered: BTreeSet::new(),
            list: HostList::default(),
            fencing: Fencing::new(),
            opens: Time(0),
            own_granted: Vec::new(),
            counters: LockServerCounters::default(),
            config,
        }
    }

    /// The generation of this start.
    pub fn start(&self) -> Generation {
        self.config.start
    }

    pub fn service(&self) -> LockService {
        self.service
    }

    pub fn counters(&self) -> &LockServerCounters {
        &self.counters
    }

    /// The locks and hosts, for inspection.
    pub fn engine(&self) -> &LockEngine {
        &self.engine
    }

    /// True if no device serves the host any more, because this server had it fenced.
    pub fn has_fenced(&self, host: Generation) -> bool {
        self.fencing.has_fenced(host)
    }

    /// The latest decisions to fence a host.
    pub fn fence_decisions(&self) -> impl Iterator<Item = FenceDecision> + '_ {
        self.fencing.decisions.iter().copied()
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

    fn on_request(&mut self, now: Now, host: Generation, mut request: LockRequest, out: &mut Effects) {
        if !matches!(self.service, LockService::Recovering | LockService::Serving) {
            return self.ignore(Ignored::NotStarted, out);
        }
        if let Err(rejection) = self.admit(now, host, out) {
            return self.answer(host, LockReply::Rejected { rejection }, out);
        }
        self.counters.dropped += self.give_back(now, host, std::mem::take(&mut request.dropped), out);
        if request.start == self.config.start && self.engine.complete(host) {
            self.serve_if_recovered(now, out);
        }
        self.on_command(now, request, out);
    }

    /// A message of a host has come, perhaps to another part of this process: rejects hosts that are not served, and renews the lease of
    /// the others.
    pub fn admit(&mut self, now: Now, host: Generation, out: &mut Effects) -> Result<(), Rejection> {
        self.engine.look_at_own_pause(now.time);
        if host == LockEngine::OWN || self.fencing.refuses(host) {
            return Err(Rejection::Fenced);
        }
        let is_heard = self.engine.hear(now.time, host);
        self.tell(out);
        if is_heard { Ok(()) } else { Err(Rejection::TooManyHosts) }
    }

    /// Begins to serve once all hosts have reasserted their locks.
    pub(crate) fn serve_if_recovered(&mut self, now: Now, out: &mut Effects) {
        let is_open = self.opens <= now.time;
        if self.service == LockService::Recovering && is_open && self.engine.is_recovered() {
            self.service = LockService::Serving;
            self.ask_deferred(now, out);
        }
    }

    /// Requests the locks of deferred requests, as far as their hosts can be granted anything now.
    fn ask_deferred(&mut self, now: Now, out: &mut Effects) {
        if self.service == LockService::Serving {
            self.engine.ask_deferred(now.time, |host| self.list.contains(host));
            self.tell(out);
        }
    }

    fn on_list_read(&mut self, now: Now, out: &mut Effects) {
        self.recovered = self.list.hosts() | &self.config.unlisted;
        let hosts = self.recovered.iter().map(|host| (*host, self.fencing.fence_state(*host)));
        self.engine.recover(now.time, hosts);
        self.service = LockService::Recovering;
        self.list.set_stale();
        self.serve_if_recovered(now, out);
    }

    /// Looks for hosts that are silent or keep locks, and has them fenced.
    fn patrol(&mut self, now: Now, out: &mut Effects) {
        self.engine.end_all_fenced(now.time);
        self.tell(out);
        self.serve_if_recovered(now, out);
        let devices_serve = !self.config.serves_volumes || self.fencing.devices_serve(now.time, &self.config.settings);
        let asks = self.engine.patrol(now.time, devices_serve);
        self.tell(out);
        if asks {
            self.ask_whether_devices_serve(now, out);
        }
        self.fence_pending(now, out);
    }

    /// The next timer of the server or its parts.
    fn next_timer(&self) -> Option<(Time, Due)> {
        if let LockService::Unusable(_) = self.service {
            return None;
        }
        let of_engine = self.engine.next_timer().map(|(time, timer)| match timer {
            EngineTimer::Patrol => (time, Due::Patrol),
            timer => (time, Due::Engine(timer)),
        });
        let monitor = self.fencing.deadline().map(|time| (time, Due::Monitor));
        of_engine.into_iter().chain(monitor).min()
    }

    fn wake(&mut self, now: Now, out: &mut Effects) {
        while let Some((_, due)) = self.next_timer().filter(|(time, _)| *time <= now.time) {
            match due {
                Due::Patrol => self.patrol(now, out),
                Due::Monitor => self.on_monitor_timer(now, out),
                Due::Engine(timer) => self.engine.wake(now.time, timer),
            }
            self.tell(out);
        }
    }

    /// Does what follows from calls of the engine: tells hosts, and notes who is to be listed or fenced.
    pub(crate) fn tell(&mut self, out: &mut Effects) {
        while let Some(event) = self.engine.pop_event() {
            match event {
                EngineEvent::Granted { name, waited } => self.answer_granted(name, waited, out),
                EngineEvent::OwnGranted(lock_id) => self.own_granted.push(lock_id),
                EngineEvent::Waits(_) => self.counters.waits += 1,
                EngineEvent::TimedOut(LockName { host, lock_id }) => {
                    self.counters.timeouts += 1;
                    self.answer(host, LockReply::Refused { lock_id, refusal: LockRefusal::Timeout }, out);
                }
                EngineEvent::Revoke { host, lock_ids } => {
                    self.counters.revocations += lock_ids.len() as u64;
                    for batch in lock_ids.chunks(limits::COMMITS_PER_REQUEST_MAX) {
                        self.answer(host, LockReply::Revoke { lock_ids: batch.to_vec() }, out);
                    }
                }
                EngineEvent::Recall { host, wanted, asks } => {
                    self.counters.recalls += wanted.len() as u64;
                    for batch in wanted.chunks(LOCK_PARTS_MAX) {
                        self.answer(host, LockReply::Recall { wanted: batch.to_vec(), asks }, out);
                    }
                }
                EngineEvent::RecallGroup { host, object, extents } => {
                    self.counters.recalls += 1;
                    self.answer(host, LockReply::RecallGroup { object, extents }, out);
                }
                EngineEvent::Doom { host, cause } => {
                    self.counters.evicted += u64::from(cause == FenceCause::KeepsLocks);
                    self.fencing.add(host, cause);
                }
                EngineEvent::Listed => self.list.set_stale(),
            }
        }
    }

    /// Answers a lock request whose lock is held, unless it has ended meanwhile.
    pub(crate) fn answer_granted(&mut self, name: LockName, waited: bool, out: &mut Effects) {
        let LockName { host, lock_id } = name;
        let Some(held) = self.engine.held(name) else { return };
        let reply = if held.in_parts {
            let (_, extents) = self.engine.extents(name).expect("it is held");
            LockReply::GrantedRange { lock_id, extents: extents.to_vec(), waited }
        } else {
            LockReply::Granted { lock_id, waited }
        };
        self.answer(host, reply, out);
    }

    /// Writes the list of hosts if it is not up to date.
    fn update_list(&mut self, out: &mut Effects) {
        if self.list.is_due() {
            self.counters.list_writes += u64::from(self.list.update(self.engine.listed().collect(), out));
        }
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
        self.engine.look_at_own_pause(now.time);
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

    fn level(&self) -> Level {
        self.fencing.level()
    }

    fn deadline(&self) -> Option<Time> {
        self.next_timer().map(|(time, _)| time)
    }

    fn invariants(&self) {
        self.engine.invariants();
        self.fencing.invariants();
        for (name, state) in self.engine.lock_ids().filter(|(name, _)| name.host != LockEngine::OWN).take(CHECKED_MAX) {
            // If the list was lost, and nothing is on disk yet, the next start takes it for lost, too.
            let is_taken_for_holder = self.config.unlisted.contains(&name.host) && self.list.hosts().is_empty();
            let is_known = self.list.contains(name.host) || is_taken_for_holder;
            assert!(is_known, "a host with locks is in the list: {name:?}");
            let held = state == LockState::Held;
            assert!(held || self.service == LockService::Serving, "no lock request waits during recovery: {name:?}");
        }
        let coming = self.service == LockService::Recovering || self.list.is_writing();
        for host in self.engine.hosts().take(CHECKED_MAX) {
            assert!(
                self.engine.session(host).deferred.is_empty() || coming,
                "deferred requests are handled later: {host}"
            );
            let is_served = self.engine.session(host).fence_state == FenceState::Served;
            assert!(!(is_served && self.fencing.refuses(host)), "a host that is refused is told nothing: {host}");
        }
    }
}
