//! The rounds in which a lock server has silent hosts fenced. Before a silent host's locks are granted to another host, the monitor has to make every
//! device refuse the silent host.
//!
//! A host that is to be fenced, and is not fenced by every device yet, is *pending*. The server asks the monitor to fence
//! all pending hosts together, one round at a time. A host stays pending even if it is heard again: a device may refuse
//! it already.

use crate::engine::FenceCause;
use crate::server::LockServer;
use crate::sessions::FenceState;
use braid_base::limits::{self, Settings};
use braid_base::{Generation, Level, Now, Time};
use braid_machine::{Effects, Ignored, OpId, Part};
use braid_membership::client::{Ctx, Event, FenceRequest, MonitorClient, Persistence, Report};
use braid_wire::MonitorAnswer;
use std::collections::{BTreeSet, VecDeque};

/// All pending hosts fit in one request.
const _: () = assert!(limits::HOSTS_MAX < limits::FENCED_MAX);
/// The most pending hosts in all if one of them has no session.
const PENDING_MAX: usize = limits::FENCED_MAX - limits::HOSTS_MAX;

/// The hosts that a lock server refuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fencing {
    monitor: MonitorClient,
    /// Hosts that are to be fenced, and that some device may still serve.
    pending: BTreeSet<Generation>,
    /// Hosts fenced since the start.
    fenced: BTreeSet<Generation>,
    /// The number of rounds so far.
    rounds: u64,
    /// The latest decisions to fence a host.
    pub decisions: VecDeque<FenceDecision>,
    /// When the monitor last said that no device is unavailable.
    devices_served: Option<Time>,
}

/// A decision to fence a host, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceDecision {
    /// Counted from 1.
    pub number: u64,
    pub host: Generation,
    pub cause: FenceCause,
}

/// The most decisions that are kept.
const DECISIONS_MAX: usize = 64;

impl Fencing {
    pub fn new() -> Fencing {
        Fencing { monitor: MonitorClient::of_lock_server(), ..Fencing::default() }
    }

    /// Marks a host as one that has to be fenced.
    pub fn add(&mut self, host: Generation, cause: FenceCause) {
        if self.pending.insert(host) {
            let number = self.decisions.back().map_or(1, |last| last.number + 1);
            self.decisions.push_back(FenceDecision { number, host, cause });
            if self.decisions.len() > DECISIONS_MAX {
                self.decisions.pop_front();
            }
        }
    }

    /// True if the server refuses the host.
    pub fn refuses(&self, host: Generation) -> bool {
        self.pending.contains(&host) || self.fenced.contains(&host)
    }

    /// True if the host was fenced since the start.
    pub fn has_fenced(&self, host: Generation) -> bool {
        self.fenced.contains(&host)
    }

    /// Whether a host may be served.
    pub fn fence_state(&self, host: Generation) -> FenceState {
        match (self.pending.contains(&host), self.fenced.contains(&host)) {
            (_, true) => FenceState::Fenced,
            (true, false) => FenceState::Doomed,
            (false, false) => FenceState::Served,
        }
    }

    /// True if the monitor has said lately that no device is unavailable.
    pub fn devices_serve(&self, now: Time, settings: &Settings) -> bool {
        self.devices_served.is_some_and(|at| now.since(at) <= settings.heartbeat * 4)
    }

    /// The level of the array, as far as the monitor has said.
    pub fn level(&self) -> Level {
        self.monitor.level()
    }

    /// When to ask the monitor again.
    pub fn deadline(&self) -> Option<Time> {
        self.monitor.deadline()
    }

    /// Begins a round if there are pending hosts and no round is under way. True if it did.
    fn begin_round(&mut self, cx: &mut Ctx, start: Generation) -> bool {
        if self.pending.is_empty() || self.monitor.is_fencing() {
            return false;
        }
        self.rounds += 1;
        // Answers to an earlier start of the server must not pass for answers to this one.
        let ticket = u64::from(start.0) << 32 | self.rounds;
        let request = FenceRequest { also: self.pending.iter().copied().collect(), ..FenceRequest::default() };
        self.monitor.fence(cx, ticket, OpId { part: Part::SERVER, number: ticket }, request, Persistence::Forever);
        true
    }

    /// The monitor has answered. Returns the hosts that are fenced now.
    fn on_answer(&mut self, cx: &Ctx, answer: MonitorAnswer) -> Option<Vec<Generation>> {
        self.monitor.on_answer(cx.now.time, answer);
        let mut fenced = None;
        while let Some(event) = self.monitor.next_event(cx) {
            if let Event::Fenced { also, .. } = event {
                fenced = Some(also);
            }
        }
        fenced
    }

    /// No device serves the host any more.
    fn end(&mut self, host: Generation) {
        self.pending.remove(&host);
        if self.fenced.len() == limits::FENCED_MAX {
            // The devices refuse a host that is forgotten here, too.
            self.fenced.pop_first();
        }
        self.fenced.insert(host);
    }

    /// Asserts that pending hosts are being fenced.
    pub fn invariants(&self) {
        self.monitor.invariants();
        assert_eq!(self.pending.is_empty(), !self.monitor.is_fencing(), "pending hosts are being fenced");
    }
}

impl LockServer {
    /// Begins a round if there are pending hosts and no round is under way.
    pub(crate) fn fence_pending(&mut self, now: Now, out: &mut Effects) {
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.counters.messages_sent += u64::from(self.fencing.begin_round(cx, self.config.start));
    }

    /// Asks the monitor whether all devices serve: hosts that keep locks may be waiting for a device that does not.
    pub(crate) fn ask_whether_devices_serve(&mut self, now: Now, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.fencing.monitor.report(cx, Report::default());
    }

    /// Has hosts fenced that have no session, because they have left something else behind in the process that contains the server. Those
    /// beyond the bound have to be named again later.
    pub fn fence_absent(&mut self, now: Now, hosts: &[Generation], out: &mut Effects) {
        for host in hosts {
            if !self.fencing.refuses(*host) && self.fencing.pending.len() < PENDING_MAX {
                self.fencing.add(*host, FenceCause::Silent);
                self.engine.set_doomed(*host);
            }
        }
        self.fence_pending(now, out);
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let event = self.fencing.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out });
        assert!(event.is_none(), "the monitor is asked until it has fenced: {event:?}");
    }

    pub(crate) fn on_monitor_answer(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        self.add_fenced_elsewhere(&answer);
        if answer.unavailable.is_empty() {
            self.fencing.devices_served = Some(now.time);
        } else if self.config.serves_volumes {
            self.engine.restart_eviction_timers();
        }
        match self.fencing.on_answer(&Ctx { now, settings: &self.config.settings, out }, answer) {
            Some(hosts) => self.on_fenced(now, hosts, out),
            None => self.ignore(Ignored::NotAwaited, out),
        }
        self.fence_pending(now, out);
    }

    /// Adds hosts that were fenced at the request of another process, as the monitor's membership shows. Such a host
    /// never releases its locks, and late copies of its requests would renew its lease.
    fn add_fenced_elsewhere(&mut self, answer: &MonitorAnswer) {
        let Some(membership) = &answer.membership else { return };
        let is_new = |host: &Generation| membership.fence.refuses(*host) && !self.fencing.has_fenced(*host);
        let fenced: Vec<_> = self.engine.hosts().filter(is_new).collect();
        for host in fenced {
            self.fencing.add(host, FenceCause::Fenced);
            self.engine.set_doomed(host);
        }
    }

    /// No device serves these hosts any more.
    fn on_fenced(&mut self, now: Now, hosts: Vec<Generation>, out: &mut Effects) {
        for host in hosts {
            self.counters.fenced += 1;
            self.fencing.end(host);
            self.engine.set_fenced(now.time, host);
        }
        self.tell(out);
        self.serve_if_recovered(now, out);
    }
}
