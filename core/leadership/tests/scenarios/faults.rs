//! What fails, and how faults are drawn. A run has a few kinds of faults, so that some runs have one kind often. Some *plots* are several
//! faults that belong together, where chance would seldom bring them: what begins while the registry is unreachable, and ends when one
//! candidate reaches it first.

use crate::world::{DEVICES, End, Event, FIRST_DEVICE, World};
use braid_base::Rng;
use braid_leadership::Input;
use braid_world::RegistryPath;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The registry is unreachable for one candidate.
    Cut,
    /// Answers to one candidate are lost.
    AnswersLost,
    /// Each answer to one candidate takes up to seconds.
    Slow,
    /// Some calls take effect up to ten seconds late, and some answers are as late.
    Late,
    NoQuorum,
    Full,
    ReadsRefused,
    WritesRefused,
    Pause,
    Crash,
    /// Two candidates don't reach each other, in one direction or both.
    Link,
    /// Messages between candidates and to devices take up to seconds.
    SlowLinks,
    /// A device does not reach a candidate, or any.
    DeviceCut,
    Resign,
    /// The registry returns to one candidate before the others.
    ReturnsToOne,
    /// Candidates restart while the registry is unreachable, and it returns to them.
    RestartsInside,
    /// A leader that is cut off comes back when another one has led, has restarted, and the registry is unreachable.
    StaleLeader,
    GoesBack,
}

/// All but those that end the availability of a run.
#[rustfmt::skip]
pub const ALL: [Kind; 17] = {
    use Kind::*;
    [Cut, AnswersLost, Slow, Late, NoQuorum, Full, ReadsRefused, WritesRefused, Pause, Crash, Link, SlowLinks, DeviceCut, Resign,
     ReturnsToOne, RestartsInside, StaleLeader]
};

/// One change of the world.
pub enum Fault {
    /// The way of one candidate to the registry.
    Path(usize, RegistryPath),
    NoQuorum(bool),
    Full(bool),
    Cut(End, End, bool),
    Latency(Duration),
    Crash(usize),
    GoBack(usize),
}

fn millis(rng: &mut Rng, low: u64, high: u64) -> Duration {
    Duration::from_millis(rng.between(low, high))
}

impl World {
    pub fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Path(node, path) => self.registry.paths[node] = path,
            Fault::NoQuorum(true) => self.registry.outages += 1,
            Fault::NoQuorum(false) => self.registry.outages -= 1,
            Fault::Full(begins) => self.registry.is_full = begins,
            Fault::Cut(from, to, true) => _ = self.cuts.insert((from, to)),
            Fault::Cut(from, to, false) => _ = self.cuts.remove(&(from, to)),
            Fault::Latency(latency) => self.latency = latency,
            Fault::Crash(node) => (self.nodes[node].candidate, self.nodes[node].grants) = (None, None),
            Fault::GoBack(steps) => {
                self.registry.go_back(steps);
                self.checks.gone_back(self.now, self.registry.value());
            }
        }
    }

    fn later(&mut self, after: Duration, fault: Fault) {
        self.queue.push(self.now.after(after), Event::Fault(fault));
    }

    fn path(&mut self, node: usize, from: Duration, to: Duration, path: RegistryPath) {
        self.later(from, Fault::Path(node, path));
        self.later(to, Fault::Path(node, RegistryPath::default()));
    }

    pub fn cut_off(&mut self, node: usize, from: Duration, to: Duration) {
        self.path(node, from, to, RegistryPath { loses_calls: true, loses_answers: true, ..RegistryPath::default() });
    }

    pub fn restart(&mut self, node: usize, at: Duration, after: Duration) {
        self.later(at, Fault::Crash(node));
        self.queue.push(self.now.after(at + after), Event::Start { node });
    }

    /// A fault of this kind begins now, and its end is planned.
    pub fn begin(&mut self, kind: Kind) {
        let rng = &mut self.rng.fork();
        let candidates = self.nodes.len();
        let leader = self.leader().filter(|_| rng.chance(2, 3));
        let node = leader.unwrap_or(rng.below(candidates as u64) as usize);
        let other = (node + 1 + rng.below(candidates as u64 - 1) as usize) % candidates;
        let (now, long) = (Duration::ZERO, millis(rng, 300, 9_000));
        let good = RegistryPath::default();
        match kind {
            Kind::Cut => self.cut_off(node, now, long),
            Kind::AnswersLost => self.path(node, now, long, RegistryPath { loses_answers: true, ..good }),
            Kind::Slow => self.path(node, now, long, RegistryPath { latency: millis(rng, 300, 4_000), ..good }),
            Kind::Late => {
                let (late_calls, late_answers) = (rng.below(80), rng.below(80));
                self.path(node, now, long, RegistryPath { late_calls, late_answers, ..good });
            }
            Kind::NoQuorum => self.during(long, Fault::NoQuorum),
            Kind::Full => self.during(long, Fault::Full),
            Kind::ReadsRefused => self.path(node, now, long, RegistryPath { refuses_reads: true, ..good }),
            Kind::WritesRefused => self.path(node, now, long, RegistryPath { refuses_writes: true, ..good }),
            Kind::Pause => self.nodes[node].paused = self.now.after(long),
            Kind::Crash => self.restart(node, now, long / 3),
            Kind::Link => {
                self.during(long, |begins| Fault::Cut(node, other, begins));
                if rng.chance(1, 2) {
                    self.during(long, |begins| Fault::Cut(other, node, begins));
                }
            }
            Kind::SlowLinks => {
                let usual = self.latency.min(Duration::from_millis(3));
                self.fault(Fault::Latency(millis(rng, 100, 4_000)));
                self.later(long, Fault::Latency(usual));
            }
            Kind::DeviceCut => {
                let device = FIRST_DEVICE + rng.below(DEVICES as u64) as usize;
                let only = rng.chance(2, 3).then_some(node);
                for node in (0..candidates).filter(|node| only.is_none_or(|only| only == *node)) {
                    self.during(long, |begins| Fault::Cut(device, node, begins));
                }
            }
            Kind::Resign => self.input(node, Input::Resign),
            Kind::ReturnsToOne => {
                let outage = millis(rng, 800, 5_000);
                for node in 0..candidates {
                    self.cut_off(node, now, outage + millis(rng, 1_000, 4_000));
                }
                self.later(outage, Fault::Path(other, good));
            }
            Kind::RestartsInside => {
                let outage = millis(rng, 2_000, 5_000);
                self.cut_off(node, now, outage + Duration::from_secs(4));
                for other in (0..candidates).filter(|other| *other != node) {
                    self.cut_off(other, now, outage);
                    self.restart(other, outage - millis(rng, 0, 300), millis(rng, 0, 50));
                }
            }
            Kind::StaleLeader => {
                let (outage, end) = (Duration::from_secs(9), Duration::from_secs(14));
                self.cut_off(node, now, end);
                for other in (0..candidates).filter(|other| *other != node) {
                    self.restart(other, millis(rng, 4_000, 12_000), millis(rng, 0, 500));
                    self.cut_off(other, outage, end);
                }
            }
            Kind::GoesBack => {
                // While a copy is restored, no lease is granted, and those that were have ended.
                let restored = millis(rng, 6_000, 8_000);
                self.fault(Fault::NoQuorum(true));
                self.later(restored, Fault::GoBack(rng.between(1, 60) as usize));
                self.later(restored, Fault::NoQuorum(false));
            }
        }
    }

    fn during(&mut self, long: Duration, fault: impl Fn(bool) -> Fault) {
        self.fault(fault(true));
        self.later(long, fault(false));
    }

    /// All faults end, and what is down starts.
    pub fn heal(&mut self) {
        self.is_calm = true;
        for node in 0..self.nodes.len() {
            self.registry.paths[node] = RegistryPath::default();
            self.nodes[node].paused = self.now;
            self.start(node);
        }
        (self.registry.outages, self.registry.is_full) = (0, false);
        self.latency = Duration::from_millis(3);
        self.cuts.clear();
    }
}
