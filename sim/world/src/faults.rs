//! The fault model, its budget, and the dice.
//!
//! What may go wrong, all at once and in any order:
//!
//! * **messages**: lost, doubled, late, out of order, damaged (which is lost); one-way and two-way cuts between any two
//!   nodes, for a while ([`NetworkOptions`]);
//! * **hosts**: die at any moment and come back as a new generation, with nothing; stall for longer than their lease and
//!   then go on as if nothing had been;
//! * **devices and lock servers**: die at any moment, also in the midst of a write or sync, and come back with exactly what was durable
//!   (the rest as the dice say, [`Disk`](crate::Disk)); stall; have a slow disk;
//! * **clocks**: skewed from the start, drifting up to 200 ppm, stepping forwards and back.
//!
//! The budget: no device loses what it had made durable, and every fault ends. (Loss of devices comes with redundancy that
//! is used; rot has its own tests at the store.) Skews stay within what devices tolerate, since beyond it a host is
//! refused, which is right but tests little: scripted scenarios go there.
//!
//! Of the kinds of faults, a seed switches some off entirely and draws weights for the others, so that every combination
//! has its day.

use crate::disk::CrashPoint;
use crate::network::NetworkOptions;
use braid_base::{NodeId, Rng};
use std::time::Duration;

/// One thing going wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node dies, and is to come back (a host as a new generation) after `away`.
    Crash {
        /// Which.
        node: NodeId,
        /// Not now, but at this command to its disk.
        at: Option<CrashPoint>,
        /// For how long.
        away: Duration,
        /// Whether the whole machine boots anew, so that its timers' clock starts over.
        reboot: bool,
    },
    /// A node does nothing for a while, and knows nothing of it.
    Stall {
        /// Which.
        node: NodeId,
        /// For how long.
        span: Duration,
    },
    /// Nothing passes between these for a while.
    Cut {
        /// From, to.
        pairs: Vec<(NodeId, NodeId)>,
        /// For how long.
        span: Duration,
    },
    /// A wall clock jumps.
    ClockStep {
        /// Whose.
        node: NodeId,
        /// How far, in nanoseconds.
        by: i64,
    },
    /// A disk is slow for a while.
    SlowDisk {
        /// Whose.
        node: NodeId,
        /// How many times slower.
        times: u32,
        /// For how long.
        span: Duration,
    },
}

/// Which faults a run has, and how often. Weights are relative; zero switches a kind off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// The mean time between two faults other than of messages.
    pub every: Duration,
    /// A host dies.
    pub host_crash: u64,
    /// A device dies.
    pub device_crash: u64,
    /// A lock server dies.
    pub lock_server_crash: u64,
    /// A node stalls.
    pub stall: u64,
    /// Whether devices, and the monitor that gives them leases, may be the ones that stall.
    pub stall_devices: bool,
    /// A cut.
    pub cut: u64,
    /// A clock steps.
    pub clock_step: u64,
    /// A slow disk.
    pub slow_disk: u64,
    /// The most that a wall clock is off, in nanoseconds, from the start or after a step.
    pub skew_max: u64,
    /// The most that clocks drift, in millionths.
    pub drift_ppm_max: u64,
    /// How the network behaves meanwhile.
    pub network: NetworkOptions,
}

impl FaultOptions {
    /// Nothing goes wrong.
    pub fn none() -> FaultOptions {
        FaultOptions {
            every: Duration::from_secs(1),
            host_crash: 0,
            device_crash: 0,
            lock_server_crash: 0,
            stall: 0,
            stall_devices: true,
            cut: 0,
            clock_step: 0,
            slow_disk: 0,
            skew_max: 0,
            drift_ppm_max: 0,
            network: NetworkOptions::clean(),
        }
    }

    /// What the dice choose; `skew_max` is the budget for clocks, in nanoseconds.
    pub fn draw(rng: &mut Rng, skew_max: u64) -> FaultOptions {
        let mut weight = |most: u64| if rng.chance(1, 2) { 0 } else { rng.between(1, most) };
        let (host_crash, device_crash, stall) = (weight(10), weight(10), weight(5));
        let (cut, clock_step, slow_disk) = (weight(10), weight(5), weight(5));
        let network = NetworkOptions {
            latency_min: Duration::from_micros(10),
            latency_max: Duration::ZERO,
            in_order: false,
            loss: weight(1_000),
            double: weight(1_000),
            damage: weight(200),
            delay: weight(300),
            delay_max: Duration::ZERO,
        };
        FaultOptions {
            every: Duration::from_millis(rng.between(30, 2_000)),
            host_crash,
            device_crash,
            lock_server_crash: device_crash,
            stall,
            stall_devices: true,
            cut,
            clock_step,
            slow_disk,
            skew_max: [0, skew_max / 1_000, skew_max][rng.below(3) as usize],
            drift_ppm_max: [0, 200][rng.below(2) as usize],
            network: NetworkOptions {
                latency_max: Duration::from_micros(rng.between(50, 3_000)),
                delay_max: Duration::from_millis([5, 100, 6_000][rng.below(3) as usize]),
                in_order: rng.chance(1, 3),
                ..network
            },
        }
    }
}

/// The dice that decide what goes wrong next.
#[derive(Clone, Debug)]
pub struct Storm {
    options: FaultOptions,
    rng: Rng,
}

impl Storm {
    /// A storm with dice of its own.
    pub fn new(options: FaultOptions, rng: Rng) -> Storm {
        Storm { options, rng }
    }

    /// How long until the next fault.
    pub fn pause(&mut self) -> Duration {
        Duration::from_nanos(self.rng.below(2 * self.options.every.as_nanos() as u64) + 1)
    }

    /// How far a wall clock is to be off, in nanoseconds: within the budget, whatever it was before.
    pub fn skew(&mut self) -> i64 {
        let most = self.options.skew_max;
        self.rng.below(2 * most + 1) as i64 - most as i64
    }

    /// How much a clock is to drift, in millionths.
    pub fn drift_ppm(&mut self) -> i64 {
        let most = self.options.drift_ppm_max;
        self.rng.below(2 * most + 1) as i64 - most as i64
    }

    /// What goes wrong now among `nodes`, all those that are up; nothing, if nothing can. `skew` says how far the wall clock
    /// of a node is off.
    pub fn next(&mut self, nodes: &[NodeId], skew: impl Fn(NodeId) -> i64) -> Option<Fault> {
        let options = self.options.clone();
        let hosts = |node: &&NodeId| matches!(node, NodeId::Host(_));
        let devices = |node: &&NodeId| matches!(node, NodeId::Device(_));
        let lock_servers = |node: &&NodeId| matches!(node, NodeId::LockServer(_));
        let weights = [
            options.host_crash,
            options.device_crash,
            options.stall,
            options.cut,
            options.clock_step,
            options.slow_disk,
            if nodes.iter().any(|node| lock_servers(&node)) { options.lock_server_crash } else { 0 },
        ];
        let total: u64 = weights.iter().sum();
        if total == 0 {
            return None;
        }
        let mut drawn = self.rng.below(total);
        let kind = weights.iter().position(|weight| {
            let here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            here
        })?;
        match kind {
            0 => self.pick(nodes.iter().filter(hosts)).map(|node| self.crash(node, None)),
            1 => self.pick(nodes.iter().filter(devices)).map(|node| {
                let count = self.rng.between(1, 12);
                let at = [None, Some(CrashPoint::Write(count)), Some(CrashPoint::Sync(count))];
                let at = at[self.rng.below(3) as usize];
                self.crash(node, at)
            }),
            2 => {
                let spared =
                    |node: &&NodeId| !options.stall_devices && matches!(node, NodeId::Device(_) | NodeId::Monitor);
                let node = self.pick(nodes.iter().filter(|node| !spared(node)))?;
                Some(Fault::Stall { node, span: self.span() })
            }
            3 => self.pick(nodes.iter()).and_then(|one| {
                let others: Vec<NodeId> = nodes.iter().copied().filter(|node| *node != one).collect();
                self.cut(one, &others)
            }),
            4 => self.pick(nodes.iter()).map(|node| Fault::ClockStep { node, by: self.skew() - skew(node) }),
            5 => self.pick(nodes.iter().filter(|node| !hosts(node))).map(|node| Fault::SlowDisk {
                node,
                times: self.rng.between(2, 200) as u32,
                span: self.span(),
            }),
            _ => self.pick(nodes.iter().filter(lock_servers)).map(|node| {
                // It writes seldom: when it hears of a host, and when it forgets one; all its writes are durable.
                let at = [None, Some(CrashPoint::Write(self.rng.between(1, 2)))];
                let at = at[self.rng.below(2) as usize];
                self.crash(node, at)
            }),
        }
    }

    fn crash(&mut self, node: NodeId, at: Option<CrashPoint>) -> Fault {
        Fault::Crash { node, at, away: self.span(), reboot: self.rng.chance(1, 2) }
    }

    /// Cuts `one` off from some of the others, in one direction or both.
    fn cut(&mut self, one: NodeId, others: &[NodeId]) -> Option<Fault> {
        let everybody = self.rng.chance(1, 3);
        let direction = self.rng.below(3);
        let mut pairs = Vec::new();
        for other in others {
            if everybody || self.rng.chance(1, 2) {
                if direction != 0 {
                    pairs.push((one, *other));
                }
                if direction != 1 {
                    pairs.push((*other, one));
                }
            }
        }
        (!pairs.is_empty()).then(|| Fault::Cut { pairs, span: self.span() })
    }

    /// Mostly short, sometimes longer than any lease.
    fn span(&mut self) -> Duration {
        let most = [20, 20, 20, 500, 500, 500, 3_000, 3_000, 9_000][self.rng.below(9) as usize];
        Duration::from_millis(self.rng.between(1, most))
    }

    fn pick<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeId>) -> Option<NodeId> {
        let nodes: Vec<&NodeId> = nodes.collect();
        (!nodes.is_empty()).then(|| *nodes[self.rng.below(nodes.len() as u64) as usize])
    }
}
