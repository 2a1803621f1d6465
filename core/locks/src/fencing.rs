//! Keeping out hosts that are silent: before anybody else gets what they held, the monitor has to have every device refuse them.
//!
//! The monitor is asked for all hosts together that are doomed by then, one round at a time. Once doomed, there is no way back: some
//! device may have shut the host out already.

use crate::server::LockServer;
use braid_base::{Generation, Now, Time, limits};
use braid_machine::{Effects, Ignored};
use braid_membership::client::{Ctx, Event, FenceRequest, MonitorClient, Persistence};
use braid_wire::MonitorAnswer;
use std::collections::BTreeSet;

/// All doomed hosts fit in one request.
const _: () = assert!(limits::HOSTS_MAX <= limits::FENCED_MAX);

/// The hosts that a lock server serves no more.
#[derive(Debug)]
pub(crate) struct Fencing {
    monitor: MonitorClient,
    /// Hosts taken for dead, and not yet refused by every device.
    doomed: BTreeSet<Generation>,
    /// Hosts fenced since the start.
    fenced: BTreeSet<Generation>,
    /// How many rounds there have been.
    rounds: u64,
}

impl Fencing {
    pub fn new() -> Fencing {
        let (doomed, fenced) = (BTreeSet::new(), BTreeSet::new());
        Fencing { monitor: MonitorClient::of_lock_server(), doomed, fenced, rounds: 0 }
    }

    /// Takes a host for dead.
    pub fn doom(&mut self, host: Generation) {
        self.doomed.insert(host);
    }

    /// True if the host is taken for dead, and not yet refused by every device.
    pub fn is_doomed(&self, host: Generation) -> bool {
        self.doomed.contains(&host)
    }

    /// True if the host is served no more.
    pub fn refuses(&self, host: Generation) -> bool {
        self.doomed.contains(&host) || self.fenced.contains(&host)
    }

    /// When the monitor is asked again.
    pub fn deadline(&self) -> Option<Time> {
        self.monitor.deadline()
    }

    /// Begins a round if there is somebody to fence, and none is under way. True if it has.
    fn begin_round(&mut self, cx: &mut Ctx, start: Generation) -> bool {
        if self.doomed.is_empty() || self.monitor.is_fencing() {
            return false;
        }
        self.rounds += 1;
        // Answers to an earlier start of the server must not pass for those to this one.
        let ticket = u64::from(start.0) << 32 | self.rounds;
        let request = FenceRequest { also: self.doomed.iter().copied().collect(), ..FenceRequest::default() };
        self.monitor.fence(cx, ticket, ticket, request, Persistence::Forever);
        true
    }

    /// The monitor has answered: tells which hosts are fenced now.
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
        self.doomed.remove(&host);
        if self.fenced.len() == limits::FENCED_MAX {
            // Whoever is forgotten here is still refused by the devices.
            self.fenced.pop_first();
        }
        self.fenced.insert(host);
    }

    /// Asserts that whoever is doomed is being fenced.
    pub fn invariants(&self) {
        self.monitor.invariants();
        assert_eq!(self.doomed.is_empty(), !self.monitor.is_fencing(), "whoever is doomed is being fenced");
    }
}

impl LockServer {
    /// Begins a round if there is somebody to fence, and none is under way.
    pub(crate) fn fence_doomed(&mut self, now: Now, out: &mut Effects) {
        let cx = &mut Ctx { now, settings: &self.config.settings, out };
        self.counters.messages_sent += u64::from(self.fencing.begin_round(cx, self.config.start));
    }

    pub(crate) fn on_monitor_timer(&mut self, now: Now, out: &mut Effects) {
        self.counters.messages_sent += 1;
        let event = self.fencing.monitor.wake(&mut Ctx { now, settings: &self.config.settings, out });
        assert!(event.is_none(), "the monitor is asked until it has fenced: {event:?}");
    }

    pub(crate) fn on_monitor_answer(&mut self, now: Now, answer: MonitorAnswer, out: &mut Effects) {
        self.doom_fenced(&answer);
        match self.fencing.on_answer(&Ctx { now, settings: &self.config.settings, out }, answer) {
            Some(hosts) => self.on_fenced(now, hosts, out),
            None => self.ignore(Ignored::NotAwaited, out),
        }
        self.fence_doomed(now, out);
    }

    /// Takes for dead whom the monitor says that somebody has kept out: what such a host holds is never given back, and late copies of its
    /// requests would renew its lease.
    fn doom_fenced(&mut self, answer: &MonitorAnswer) {
        let Some(membership) = &answer.membership else { return };
        for host in self.sessions.keys().filter(|host| membership.fence.refuses(**host)) {
            self.fencing.doom(*host);
        }
    }

    /// No device serves them any more: others may have what they held.
    fn on_fenced(&mut self, now: Now, hosts: Vec<Generation>, out: &mut Effects) {
        for host in hosts {
            self.counters.fenced += 1;
            self.fencing.end(host);
            self.forget(now, host, out);
        }
        self.serve_if_recovered(now, out);
    }
}
