//! A lock server that may run on any machine of an array on several machines, one start after the other. No file goes with it: what the
//! next start must know it asks the leading monitor, which has the leases of all hosts and servers (`braid_host_leases`).
//!
//! | question | answer |
//! | --- | --- |
//! | who may grant? | a start, while its *lease* runs: from when it sent a renewal that the leader has answered. Without it, it takes no message, sends none and judges no silence. So what a stopped process says late was said in its lease |
//! | when does the next start begin? | when no [`earlier`] start has a lease that is not over. It has the leader end those: the leader does so when it has not heard one for a lease and a tenth, which it also waits after a change of the leader (`docs/leadership.md`); that is durable, and nothing renews such a lease |
//! | two next starts? | the generations of starts are given one after the other, and each start takes its own before it asks for others: so the later one sees the earlier one, and waits for it |
//! | who may hold locks? | all hosts that have leases then ([`holders`]). Those that have none are fenced, or have given everything back. Each has to report its locks or is fenced, as after the loss of the list ([`crate::host_list`]) |
//! | hosts that never asked for a lock? | need not report: they are [`idle`]. A host that says so may have asked the earlier start since, if it said that before the lease was over. So the description is replaced when the lease is over, and what a host says counts that has seen that revision |
//! | hosts that start later? | have asked no earlier start, since none serves |
//! | locks of hosts that are fenced? | a start grants nothing for a lease of hosts: by then programs know that they have lost what no start has confirmed |
//! | what must not go back? | starts are generations, and tokens of programs are, too: the leader gives them, and they rise |
//!
//! A lock server of an array in a folder needs none of this, and [never ends](LeasedLockServer::endless): the lock on the file keeps starts
//! apart, and the list of hosts is there.

use crate::server::{LockServer, LockServerConfig, LockService};
use braid_base::{Generation, Level, Now, Time};
use braid_machine::{Abandon, ControlOutcome, Effect, Effects, Ignored, Input, Machine, OneDisk, OpId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A lock server that serves while its lease runs.
#[derive(Clone, Debug)]
pub struct LeasedLockServer {
    server: LockServer,
    /// When its lease ends, by its own clock.
    until: Time,
    /// The last step found that it has ended.
    is_silent: bool,
}

/// What its process tells a lock server when the leader has renewed its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// A lease after the renewal was sent.
    pub until: Time,
    /// Hosts that [need not report](idle).
    pub idle: Vec<Generation>,
}

impl Abandon for Renewed {
    fn abandon(_: Vec<OpId>) -> Option<Renewed> {
        None
    }
}

impl LeasedLockServer {
    /// One without a lease. `unlisted` of the configuration are its [`holders`].
    pub fn new(config: LockServerConfig) -> LeasedLockServer {
        let server = LockServer { opens: Time(u64::MAX), ..LockServer::new(config) };
        LeasedLockServer { server, until: Time(0), is_silent: true }
    }

    /// One that needs no lease.
    pub fn endless(config: LockServerConfig) -> LeasedLockServer {
        LeasedLockServer { server: LockServer::new(config), until: Time(u64::MAX), is_silent: false }
    }

    pub fn server(&self) -> &LockServer {
        &self.server
    }

    /// True while its lease runs.
    pub fn has_lease(&self, now: Time) -> bool {
        now < self.until
    }

    /// True if it may grant locks.
    pub fn serves(&self, now: Time) -> bool {
        self.has_lease(now) && self.server.service() == LockService::Serving
    }

    fn renew(&mut self, now: Now, Renewed { until, idle }: &Renewed, out: &mut Effects) {
        if self.until == Time(0) {
            self.server.opens = now.time.after(self.server.config.settings.host_lease);
        }
        if !self.has_lease(now.time) {
            // It has heard no host meanwhile.
            self.server.engine.hear_all(now.time);
            self.server.engine.arm_patrol(now.time);
        }
        self.until = self.until.max(*until);
        for host in self.server.recovered.iter().filter(|host| idle.contains(host)) {
            if self.server.engine.has_session(*host) {
                self.server.engine.complete(*host);
            }
        }
        if self.has_lease(now.time) {
            self.server.serve_if_recovered(now, out);
        }
    }
}

impl Machine for LeasedLockServer {
    type Request = Renewed;
    type Outcome = ControlOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, mut input: Input<Renewed>, out: &mut Effects<ControlOutcome>) {
        let mut effects = Effects::new();
        if let Input::Request { op, request } = input {
            self.renew(now, &request, &mut effects);
            out.reply(op, Ok(()));
            input = Input::Wake;
        }
        self.is_silent = !self.has_lease(now.time);
        if self.is_silent && matches!(input, Input::Message { .. } | Input::Wake) {
            return out.ignore(Ignored::NoLease);
        }
        if self.is_silent {
            // A disk command has ended, and no silence is judged.
            self.server.engine.hear_all(now.time);
            self.server.engine.arm_patrol(now.time);
        }
        let input = input.convert(|_| unreachable!("it was taken"), |result| result);
        self.server.step(now, input, &mut effects);
        effects.drain_ignored().for_each(|why| out.ignore(why));
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } if !self.is_silent => out.send(to, message),
                // As if it was lost.
                Effect::Send { .. } => {}
                Effect::Disk { tag, command } => out.disk(tag, command),
                Effect::Reply { outcome, .. } => match outcome {},
            }
        }
    }

    fn level(&self) -> Level {
        self.server.level()
    }

    /// Without a lease it has nothing to do: what was due is done with the next one.
    fn deadline(&self) -> Option<Time> {
        self.server.deadline().filter(|due| !self.is_silent && self.has_lease(*due))
    }

    fn invariants(&self) {
        self.server.invariants();
    }
}

/// A process with a lease, as the leader shows it to a lock server that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub host: Generation,
    pub kind: Kind,
    /// The leader has ended its lease.
    pub is_over: bool,
    /// The revision of the description that it had applied when it last spoke.
    pub revision: u64,
    /// How often it had asked lock servers by then, if it said so.
    pub requests: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A start of the same lock server.
    Start,
    /// Another lock server, which holds no locks.
    OtherLockServer,
    Host,
}

/// A start of the same lock server whose lease has to be over before `start` begins.
pub fn earlier(start: Generation, seen: &[Seen]) -> Option<Generation> {
    let is_earlier = |other: &&Seen| other.kind == Kind::Start && other.host < start && !other.is_over;
    seen.iter().find(is_earlier).map(|other| other.host)
}

/// The hosts that may hold locks, when there is no earlier start any more.
pub fn holders(seen: &[Seen]) -> BTreeSet<Generation> {
    seen.iter().filter(|other| other.kind == Kind::Host).map(|other| other.host).collect()
}

/// The hosts that have never asked any start for a lock. `since`: the revision that the description was given after no earlier start had a
/// lease.
pub fn idle(since: u64, seen: &[Seen]) -> Vec<Generation> {
    let is_idle = |other: &&Seen| other.revision >= since && other.requests == Some(0);
    seen.iter().filter(is_idle).map(|other| other.host).collect()
}
