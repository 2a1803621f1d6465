//! The fault model and its budget. [`Swarm`](crate::Swarm) draws the single faults.
//!
//! A [`FaultKind`] is a kind of event that may occur at any time, in any order and together with others. Messages have faults of their
//! own ([`NetworkOptions`]): lost, duplicated, late, reordered, damaged (which is the same as lost). A [`Budget`] is what a swarm run
//! may not exceed; `docs/fault-model.md` gives the reasons.
//!
//! A fault names a node, and hits all that share its place ([`Topology::place`](crate::Topology::place)).
//!
//! Every fault ends. Each seed switches some kinds off entirely and draws weights for the others, so that over many seeds every
//! combination occurs.

use crate::disk::CrashPoint;
use crate::network::NetworkOptions;
use braid_base::{DeviceId, NodeId, Rng};
use braid_wire::RecoveryThrottle;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Declares the kinds of faults, each with its name on the command line.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident $name:literal,)*) => {
        /// A kind of fault, which occurs at a moment of a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultKind {
            $($(#[doc = $doc])* $kind,)*
        }

        braid_base::names!(FaultKind { $($kind => $name),* });
    };
}

kinds! {
    /// A host dies, and returns as a new generation with an empty memory.
    HostCrash "host-crash",
    /// A device loses power, at a disk command or between two, and returns with its durable state.
    DeviceCrash "device-crash",
    /// A lock server or the monitor loses power.
    ServerCrash "server-crash",
    /// All nodes lose power at the same time.
    Blackout "blackout",
    /// A node dies and returns repeatedly.
    Flap "flap",
    /// A node does nothing for a while and does not notice it.
    Stall "stall",
    /// A node needs a long time for each input.
    SlowNode "slow-node",
    /// All messages between some nodes are lost, in one direction or both.
    Cut "cut",
    /// A wall clock is stepped, within the budget.
    ClockStep "clock-step",
    /// A node's clocks run fast or slow.
    ClockRate "clock-rate",
    /// The wall clock of one node at a time is off by up to a year for a while.
    ClockLeap "clock-leap",
    /// All wall clocks are off by the same amount, up to a year, for a while.
    CommonLeap "common-leap",
    /// A disk is slow.
    SlowDisk "slow-disk",
    /// A disk has no space.
    FullDisk "full-disk",
    /// A write or a sync fails once, or every later write of a sector fails.
    DiskError "disk-error",
    /// A bit of a sector flips.
    Corruption "corruption",
    /// A sector becomes unreadable.
    Unreadable "unreadable",
    /// A write lands in the wrong place, and the disk reports success.
    Misdirected "misdirected",
    /// The disk of a device fails for good, and the operator replaces it with an empty one.
    Replace "replace",
    /// No fault: an operator has the volume scrubbed and repaired, or sets or pauses the recovery throttle for a while.
    Chore "chore",
    /// A host is cut off from a device, dies or not, and is fenced; another host reads the blocks concerned, and then the device dies.
    Fence "fence",
}

impl FaultKind {
    /// The highest weight that may be drawn, relative to the other kinds.
    fn weight_max(self) -> u64 {
        match self {
            FaultKind::HostCrash | FaultKind::DeviceCrash | FaultKind::ServerCrash | FaultKind::Cut => 10,
            FaultKind::Blackout | FaultKind::ClockLeap | FaultKind::CommonLeap => 2,
            // One at a time, and never while anything is damaged.
            FaultKind::Replace => 20,
            // Often there is no range that may be damaged.
            FaultKind::Corruption | FaultKind::Unreadable | FaultKind::Misdirected => 20,
            _ => 5,
        }
    }
}

/// A fault that occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node dies, and returns after `unavailable`, a host as a new generation.
    Crash {
        node: NodeId,
        /// If set, the node dies at this disk command, otherwise now.
        at: Option<CrashPoint>,
        unavailable: Duration,
        /// Whether the whole computer reboots, so that the timers' clock of the node restarts.
        reboot: bool,
    },
    /// All of these nodes die at the same time. They return one after the other, and each computer reboots.
    Blackout {
        /// The nodes, each with the time for which it is down.
        nodes: Vec<(NodeId, Duration)>,
    },
    /// A node dies and returns `times` times.
    Flap {
        node: NodeId,
        times: u32,
        /// How long the node is down each time.
        down: Duration,
        /// How long the node is up in between.
        up: Duration,
    },
    /// A node does nothing for a while and does not notice it.
    Stall { node: NodeId, span: Duration },
    /// Each input keeps a node busy for a while.
    SlowNode {
        node: NodeId,
        /// The processing time of each input.
        busy: Duration,
        /// How long the fault lasts.
        span: Duration,
    },
    /// All messages between these nodes are lost for a while.
    Cut {
        shape: CutShape,
        /// Sender and receiver.
        pairs: Vec<(NodeId, NodeId)>,
        span: Duration,
    },
    /// A wall clock is stepped.
    ClockStep {
        node: NodeId,
        /// The step, in nanoseconds.
        by: i64,
    },
    /// Clocks run fast or slow for a while; then the wall clock must be set to a value within the budget.
    ClockRate {
        node: NodeId,
        /// The rate, in millionths.
        ppm: i64,
        span: Duration,
    },
    /// A wall clock is stepped far, and back after a while.
    ClockLeap {
        node: NodeId,
        /// The step, in nanoseconds.
        by: i64,
        span: Duration,
    },
    /// All wall clocks are stepped by the same amount, and back after a while.
    CommonLeap {
        /// The step, in nanoseconds.
        by: i64,
        span: Duration,
    },
    /// A disk is slow for a while.
    SlowDisk {
        node: NodeId,
        /// The factor by which every command takes longer.
        times: u32,
        span: Duration,
    },
    /// A disk has no free space for a while.
    FullDisk { node: NodeId, span: Duration },
    /// The next write to a disk fails.
    FailedWrite { node: NodeId },
    /// The next sync of a disk fails.
    FailedSync { node: NodeId },
    /// Every write of one sector fails from now on.
    BadSector {
        node: NodeId,
        /// The number of the sector among those that may hold data, modulo their count.
        sector: u64,
    },
    /// A bit flips in one of these bytes of a disk.
    Corruption(Damageable),
    /// One sector among these bytes of a disk becomes unreadable.
    Unreadable(Damageable),
    /// The next write of these bytes of a disk is misdirected.
    Misdirected {
        /// The bytes that the write should reach.
        meant: Damageable,
        /// The first byte that it overwrites instead.
        hit: u64,
    },
    /// A device gets an empty disk.
    Replace {
        node: NodeId,
        /// How long the device is down meanwhile.
        unavailable: Duration,
    },
    /// A host scrubs the volume and repairs it.
    Scrub { node: NodeId },
    /// A host is fenced while its last messages to a device are lost. Then another host reads the blocks concerned, and the device
    /// dies.
    Fence {
        /// The host.
        node: NodeId,
        device: NodeId,
        /// For how long the messages to the device are lost before the host is fenced.
        deaf: Duration,
        /// Whether the host dies then; otherwise it continues until it learns that it is fenced.
        dies: bool,
        /// How long the device is down.
        unavailable: Duration,
    },
    /// The recovery throttle is set for a while.
    RecoveryThrottle { throttle: RecoveryThrottle, span: Duration },
}

/// The shape of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShape {
    /// Two nodes, one direction.
    PairOneWay,
    Pair,
    /// One node and some or all others, one direction.
    NodeOneWay,
    Node,
    /// Two halves, one direction.
    HalvesOneWay,
    Halves,
}

impl Fault {
    /// The name under which the fault is counted.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Crash { node: NodeId::Host(_), .. } => "host crash",
            Fault::Crash { node: NodeId::Device(_), at: None, .. } => "device crash",
            Fault::Crash { node: NodeId::Device(_), .. } => "device crash at a disk command",
            Fault::Crash { node: NodeId::LockServer(_), at: None, .. } => "lock server crash",
            Fault::Crash { node: NodeId::LockServer(_), .. } => "lock server crash at a disk command",
            Fault::Crash { node: NodeId::Monitor, at: None, .. } => "monitor crash",
            Fault::Crash { node: NodeId::Monitor, .. } => "monitor crash at a disk command",
            Fault::Crash { node: NodeId::MetadataServer(_), .. } => "candidate crash",
            Fault::Blackout { .. } => "blackout",
            Fault::Flap { .. } => "flap",
            Fault::Stall { .. } => "stall",
            Fault::SlowNode { .. } => "slow node",
            Fault::Cut { shape, .. } => match shape {
                CutShape::PairOneWay => "cut of a pair, one way",
                CutShape::Pair => "cut of a pair",
                CutShape::NodeOneWay => "cut of a node, one way",
                CutShape::Node => "cut of a node",
                CutShape::HalvesOneWay => "cut in halves, one way",
                CutShape::Halves => "cut in halves",
            },
            Fault::ClockStep { .. } => "clock step",
            Fault::ClockRate { .. } => "clock rate",
            Fault::ClockLeap { .. } => "clock leap",
            Fault::CommonLeap { .. } => "common leap",
            Fault::SlowDisk { .. } => "slow disk",
            Fault::FullDisk { .. } => "full disk",
            Fault::FailedWrite { .. } => "failed write",
            Fault::FailedSync { .. } => "failed sync",
            Fault::BadSector { .. } => "bad sector",
            Fault::Corruption(_) => "corruption",
            Fault::Unreadable(_) => "unreadable sector",
            Fault::Misdirected { .. } => "misdirected write",
            Fault::Replace { .. } => "replaced disk",
            Fault::Scrub { .. } => "scrub",
            Fault::Fence { .. } => "fence",
            Fault::RecoveryThrottle { .. } => "throttle changed",
        }
    }
}

/// What a swarm run may not exceed, so that all guarantees must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The kinds that may occur.
    pub kinds: BTreeSet<FaultKind>,
    /// The largest skew of a wall clock in nanoseconds, except while it leaps.
    pub skew_max: u64,
    /// The largest rate error of clocks, in millionths.
    pub rate_ppm_max: u64,
    /// The longest duration of a fault.
    pub span_max: Duration,
}

/// Which faults a run has, and how often they occur.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// The mean time between two faults, not counting those of messages.
    pub every: Duration,
    /// The relative frequency of each kind; a kind that is missing here does not occur.
    pub weights: BTreeMap<FaultKind, u64>,
    /// The largest skew of a wall clock in nanoseconds, at the start or after a step.
    pub skew_max: u64,
    /// The largest permanent drift of clocks, in millionths.
    pub drift_ppm_max: u64,
    /// The largest temporary rate error of clocks, in millionths.
    pub rate_ppm_max: u64,
    /// The longest duration of a fault.
    pub span_max: Duration,
    /// The network during the swarm run.
    pub network: NetworkOptions,
    /// If set, the only device that may die.
    pub frail: Option<DeviceId>,
}

impl FaultOptions {
    /// Options without faults.
    pub fn none() -> FaultOptions {
        FaultOptions {
            every: Duration::from_secs(1),
            weights: BTreeMap::new(),
            skew_max: 0,
            drift_ppm_max: 0,
            rate_ppm_max: 0,
            span_max: Duration::ZERO,
            network: NetworkOptions::clean(),
            frail: None,
        }
    }

    /// Draws options within a budget.
    pub fn draw(rng: &mut Rng, budget: &Budget) -> FaultOptions {
        let mut weight = |most: u64| if rng.chance(1, 2) { 0 } else { rng.between(1, most) };
        // Every kind draws its weight, allowed or not, so that the rest of a seed is the same under any budget. The kinds in `apart`
        // are the exception: they draw from random sources of their own, here or elsewhere.
        let apart = [FaultKind::CommonLeap, FaultKind::Chore, FaultKind::Fence, FaultKind::DiskError];
        let faults = FaultKind::ALL.iter().copied().filter(|kind| !apart.contains(kind));
        let mut weights: Vec<_> = faults.map(|kind| (kind, weight(kind.weight_max()))).collect();
        let network = NetworkOptions {
            latency_min: Duration::from_micros(10),
            loss: weight(1_000),
            double: weight(1_000),
            damage: weight(200),
            delay: weight(300),
            ..NetworkOptions::clean()
        };
        // Random sources of their own, so that they change nothing else of a seed.
        for (kind, none, of) in [(FaultKind::CommonLeap, 1, 2), (FaultKind::Chore, 1, 2), (FaultKind::DiskError, 2, 3)]
        {
            let own = &mut rng.named(kind.name());
            weights.push((kind, if own.chance(none, of) { 0 } else { own.between(1, kind.weight_max()) }));
        }
        FaultOptions {
            every: Duration::from_millis(rng.between(30, 2_000)),
            weights: weights.into_iter().filter(|(kind, weight)| *weight > 0 && budget.kinds.contains(kind)).collect(),
            skew_max: [0, budget.skew_max / 1_000, budget.skew_max][rng.below(3) as usize],
            drift_ppm_max: [0, 200][rng.below(2) as usize].min(budget.rate_ppm_max),
            rate_ppm_max: budget.rate_ppm_max,
            span_max: budget.span_max,
            network: NetworkOptions {
                latency_max: Duration::from_micros(rng.between(50, 3_000)),
                delay_max: Duration::from_millis([5, 100, 6_000][rng.below(3) as usize]).min(budget.span_max),
                in_order: rng.chance(1, 3),
                ..network
            },
            frail: None,
        }
    }

    /// The kind that a number below the sum of the weights chooses.
    pub fn chosen_by(&self, mut number: u64) -> Option<FaultKind> {
        let chosen = self.weights.iter().find(|(_, weight)| {
            let is_here = number < **weight;
            number = number.saturating_sub(**weight);
            is_here
        });
        chosen.map(|(kind, _)| *kind)
    }

    /// True if this kind may occur.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.weights.get(&kind).is_some_and(|weight| *weight > 0)
    }
}

/// A byte range of a disk that may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damageable {
    pub node: NodeId,
    pub bytes: Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget {
            kinds: FaultKind::ALL.iter().copied().collect(),
            skew_max: 1_000_000,
            rate_ppm_max: 45_000,
            span_max: Duration::from_secs(5),
        }
    }

    #[test]
    fn random_faults_keep_to_the_budget() {
        for seed in 0..200 {
            let kinds = [FaultKind::Corruption, FaultKind::Cut].into();
            let drawn = FaultOptions::draw(&mut Rng::new(seed), &Budget { kinds, ..budget() });
            assert!(drawn.weights.keys().all(|kind| [FaultKind::Corruption, FaultKind::Cut].contains(kind)));
            assert!(drawn.skew_max <= 1_000_000 && drawn.network.delay_max <= Duration::from_secs(5));
            let all = FaultOptions::draw(&mut Rng::new(seed), &budget());
            assert_eq!(
                (all.every, &all.network),
                (drawn.every, &drawn.network),
                "a narrower budget must change nothing else"
            );
        }
    }
}
