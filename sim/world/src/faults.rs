//! The fault model, and its budget. The random source is [`Swarm`](crate::Swarm run)'s.
//!
//! What may go wrong, all at once and in any order, is a [`FaultKind`]; messages have faults of their own
//! ([`NetworkOptions`]): lost, doubled, late, out of order, damaged (which is lost). [`Budget`] says what a swarm run may not
//! exceed; `docs/fault-model.md` says why.
//!
//! Every fault ends. Of the kinds, a seed switches some off entirely and draws weights for the others, so that every
//! combination has its day.

use crate::disk::CrashPoint;
use crate::network::NetworkOptions;
use braid_base::{DeviceId, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// What kind of thing goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A host dies, and comes back as a new generation, with nothing.
    HostCrash,
    /// A device loses power, at a command to its disk or in between, and comes back with what was durable.
    DeviceCrash,
    /// A lock server or the monitor loses power.
    ServerCrash,
    /// Everything loses power at once.
    Blackout,
    /// A node dies and comes back again and again.
    Flap,
    /// A node does nothing for a while, and knows nothing of it.
    Stall,
    /// A node takes long for each input.
    SlowNode,
    /// Nothing passes between some nodes, in one direction or both.
    Cut,
    /// A wall clock is set, within the budget.
    ClockStep,
    /// A node's clocks run fast or slow.
    ClockRate,
    /// A wall clock is off by up to a year for a while, one at a time.
    ClockLeap,
    /// All wall clocks are off by the same, up to a year, for a while.
    CommonLeap,
    /// A disk is slow.
    SlowDisk,
    /// A disk has no space.
    FullDisk,
    /// A write or a sync fails once, or every write of a sector does from then on.
    DiskError,
    /// Disks write 4 KiB at once, and a loss of power may hurt all of that. Not of a moment.
    LargeSectors,
    /// Disks are behind a cache, which shows what failed to get to them. Not of a moment.
    PageCache,
    /// A bit of a sector flips.
    Corruption,
    /// A sector can't be read.
    Unreadable,
    /// A write lands elsewhere, and is said to be done.
    Misdirected,
    /// A device's disk is gone for good, and its operator puts an empty one in its place.
    Replace,
    /// The volume moves. Not of a moment: it begins before a swarm run and ends behind it.
    Migrate,
    /// No fault: an operator has the volume scrubbed and repaired, or has healing go at another pace, or stand still for a while.
    Chore,
    /// A host is cut off from a device, dies or not, and is kept out; another one reads what is there then, and the device dies.
    Fence,
    /// No fault: clients have commands done on the devices' objects, too. Not of a moment.
    Objects,
    /// No fault: the volume is an attribute volume, on which clients have commands done. Not of a moment.
    AttributeVolumes,
    /// No fault: other volumes lie on the same devices, laid out and ordered each in its way. Not of a moment.
    Volumes,
    /// No kind of its own: faults come one at a time, and the next one when nothing is left of the last. Not of a moment.
    Calm,
    /// Clients lose their connections to a host, and ask again on others. Not a fault of a node: it is thrown apart.
    Reconnect,
    /// No fault: hosts end in good order, and others take their places. Not of a moment.
    Leave,
    /// Devices die for good, as many as redundancy covers. Not drawn like others: once in a run.
    Dead,
    /// Blocks are corrupted or can't be read while a device is out or returning. Not drawn like others: more than redundancy covers may be lost.
    DamageDegraded,
    /// Records of devices, and of the monitor, corruption or can't be read when their machine starts. Not drawn like others: a device may be lost with it.
    RecordDamage,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 33] = [
        FaultKind::HostCrash,
        FaultKind::DeviceCrash,
        FaultKind::ServerCrash,
        FaultKind::Blackout,
        FaultKind::Flap,
        FaultKind::Stall,
        FaultKind::SlowNode,
        FaultKind::Cut,
        FaultKind::ClockStep,
        FaultKind::ClockRate,
        FaultKind::ClockLeap,
        FaultKind::CommonLeap,
        FaultKind::SlowDisk,
        FaultKind::FullDisk,
        FaultKind::DiskError,
        FaultKind::LargeSectors,
        FaultKind::PageCache,
        FaultKind::Corruption,
        FaultKind::Unreadable,
        FaultKind::Misdirected,
        FaultKind::Replace,
        FaultKind::Migrate,
        FaultKind::Chore,
        FaultKind::Fence,
        FaultKind::Objects,
        FaultKind::AttributeVolumes,
        FaultKind::Volumes,
        FaultKind::Calm,
        FaultKind::Reconnect,
        FaultKind::Leave,
        FaultKind::Dead,
        FaultKind::DamageDegraded,
        FaultKind::RecordDamage,
    ];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::HostCrash => "host-crash",
            FaultKind::DeviceCrash => "device-crash",
            FaultKind::ServerCrash => "server-crash",
            FaultKind::Blackout => "blackout",
            FaultKind::Flap => "flap",
            FaultKind::Stall => "stall",
            FaultKind::SlowNode => "slow-node",
            FaultKind::Cut => "cut",
            FaultKind::ClockStep => "clock-step",
            FaultKind::ClockRate => "clock-rate",
            FaultKind::ClockLeap => "clock-leap",
            FaultKind::CommonLeap => "common-leap",
            FaultKind::SlowDisk => "slow-disk",
            FaultKind::FullDisk => "full-disk",
            FaultKind::DiskError => "disk-error",
            FaultKind::LargeSectors => "large-sectors",
            FaultKind::PageCache => "page-cache",
            FaultKind::Corruption => "corruption",
            FaultKind::Unreadable => "unreadable",
            FaultKind::Misdirected => "misdirected",
            FaultKind::Replace => "replace",
            FaultKind::Migrate => "migrate",
            FaultKind::Chore => "chore",
            FaultKind::Fence => "fence",
            FaultKind::Objects => "objects",
            FaultKind::AttributeVolumes => "attribute-volumes",
            FaultKind::Volumes => "volumes",
            FaultKind::Calm => "calm",
            FaultKind::Reconnect => "reconnect",
            FaultKind::Leave => "leave",
            FaultKind::Dead => "dead",
            FaultKind::DamageDegraded => "damage-degraded",
            FaultKind::RecordDamage => "record-damage",
        }
    }

    /// The highest weight that random source give it, beside the others'.
    fn weight_max(self) -> u64 {
        match self {
            FaultKind::HostCrash | FaultKind::DeviceCrash | FaultKind::ServerCrash | FaultKind::Cut => 10,
            FaultKind::Blackout | FaultKind::ClockLeap | FaultKind::CommonLeap => 2,
            // One at a time, and never while anything is damaged.
            FaultKind::Replace => 20,
            // Often there is nothing to damage.
            FaultKind::Corruption | FaultKind::Unreadable | FaultKind::Misdirected => 20,
            _ => 5,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchFault(String);

impl fmt::Display for NoSuchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no fault '{}': choose among", self.0)?;
        // Not joined: for an array of so many that takes the compiler minutes to optimize.
        let separators = std::iter::once(" ").chain(std::iter::repeat(", "));
        FaultKind::ALL.iter().zip(separators).try_for_each(|(kind, separator)| write!(f, "{separator}{}", kind.name()))
    }
}

impl std::error::Error for NoSuchFault {}

impl FromStr for FaultKind {
    type Err = NoSuchFault;

    fn from_str(text: &str) -> Result<FaultKind, NoSuchFault> {
        // Names of the release before.
        let name = match text {
            "rot" => "corruption",
            "mirrors" => "attribute-volumes",
            _ => text,
        };
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| NoSuchFault(text.to_string()))
    }
}

/// One thing going wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node dies, and is to come back (a host as a new generation) after `unavailable`.
    Crash {
        /// Which.
        node: NodeId,
        /// Not now, but at this command to its disk.
        at: Option<CrashPoint>,
        /// For how long.
        unavailable: Duration,
        /// Whether the whole machine boots anew, so that its timers' clock starts over.
        reboot: bool,
    },
    /// All of these die at once, and come back one after the other, each machine booted anew.
    Blackout {
        /// Which, and for how long each.
        nodes: Vec<(NodeId, Duration)>,
    },
    /// A node dies and comes back so many times.
    Flap {
        /// Which.
        node: NodeId,
        /// How often.
        times: u32,
        /// For how long each time.
        down: Duration,
        /// How long it is up in between.
        up: Duration,
    },
    /// A node does nothing for a while, and knows nothing of it.
    Stall {
        /// Which.
        node: NodeId,
        /// For how long.
        span: Duration,
    },
    /// Each input keeps a node busy.
    SlowNode {
        /// Which.
        node: NodeId,
        /// For how long each time.
        busy: Duration,
        /// For how long altogether.
        span: Duration,
    },
    /// Nothing passes between these for a while.
    Cut {
        /// In which form.
        shape: CutShape,
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
    /// Clocks run fast or slow for a while; then the wall clock must be set to where it may be.
    ClockRate {
        /// Whose.
        node: NodeId,
        /// By so many millionths.
        ppm: i64,
        /// For how long.
        span: Duration,
    },
    /// A wall clock jumps far, and back after a while.
    ClockLeap {
        /// Whose.
        node: NodeId,
        /// How far, in nanoseconds.
        by: i64,
        /// For how long.
        span: Duration,
    },
    /// All wall clocks jump alike, and back after a while.
    CommonLeap {
        /// How far, in nanoseconds.
        by: i64,
        /// For how long.
        span: Duration,
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
    /// A disk has no more space for a while.
    FullDisk {
        /// Whose.
        node: NodeId,
        /// For how long.
        span: Duration,
    },
    /// The next write to a disk fails.
    FailedWrite {
        /// Whose.
        node: NodeId,
    },
    /// The next sync of a disk fails.
    FailedSync {
        /// Whose.
        node: NodeId,
    },
    /// Every write of one sector fails from now on.
    BadSector {
        /// Whose.
        node: NodeId,
        /// Which, of those where data may be; beyond the last it begins anew.
        sector: u64,
    },
    /// A bit flips somewhere in these bytes of a disk.
    Corruption(Damageable),
    /// Somewhere in these bytes of a disk a sector can't be read.
    Unreadable(Damageable),
    /// What is next written to these bytes of a disk lands elsewhere.
    Misdirected {
        /// Where it is meant to go.
        meant: Damageable,
        /// The first byte of where it goes.
        hit: u64,
    },
    /// A device is to get an empty disk.
    Replace {
        /// Which.
        node: NodeId,
        /// How long it is off then.
        unavailable: Duration,
    },
    /// A host is to scrub the volume, and to repair what it finds.
    Scrub {
        /// Which.
        node: NodeId,
    },
    /// A host is kept out, while its last messages to a device are lost; what it leaves is read, and the device dies.
    Fence {
        /// Which host.
        node: NodeId,
        /// Which device.
        device: NodeId,
        /// How long that hears nothing of it before.
        deaf: Duration,
        /// Whether the host dies then; or else it goes on until it hears of it.
        dies: bool,
        /// How long the device is off.
        unavailable: Duration,
    },
    /// Healing is to go at another pace for a while.
    RecoveryThrottle {
        /// At most so many bytes a second; zero: any.
        bytes_per_second: u64,
        /// With this share of its time, in per cent; zero: the usual.
        share: u8,
        /// Not at all.
        paused: bool,
        /// For how long.
        span: Duration,
    },
}

/// Between whom nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShape {
    /// Two nodes, one way.
    PairOneWay,
    /// Two nodes.
    Pair,
    /// One node and some or all others, one way.
    NodeOneWay,
    /// One node and some or all others.
    Node,
    /// Two halves, one way.
    HalvesOneWay,
    /// Two halves.
    Halves,
}

impl Fault {
    /// What is counted.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Crash { node: NodeId::Host(_), .. } => "host crash",
            Fault::Crash { node: NodeId::Device(_), at: None, .. } => "device crash",
            Fault::Crash { node: NodeId::Device(_), .. } => "device crash at a disk command",
            Fault::Crash { node: NodeId::LockServer(_), at: None, .. } => "lock server crash",
            Fault::Crash { node: NodeId::LockServer(_), .. } => "lock server crash at a disk command",
            Fault::Crash { node: NodeId::Monitor, at: None, .. } => "monitor crash",
            Fault::Crash { node: NodeId::Monitor, .. } => "monitor crash at a disk command",
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
            Fault::RecoveryThrottle { .. } => "another pace",
        }
    }
}

/// What a swarm run may not exceed, so that all that is promised must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Kinds that there may be.
    pub kinds: BTreeSet<FaultKind>,
    /// The most that a wall clock is off, in nanoseconds, but for one that leaps.
    pub skew_max: u64,
    /// The most that clocks run fast or slow, in millionths.
    pub rate_ppm_max: u64,
    /// No fault lasts longer.
    pub span_max: Duration,
}

/// Which faults a run has, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultOptions {
    /// The mean time between two faults other than of messages.
    pub every: Duration,
    /// How often each kind comes, relative to the others; what is not in here does not.
    pub weights: BTreeMap<FaultKind, u64>,
    /// The most that a wall clock is off, in nanoseconds, from the start or after a step.
    pub skew_max: u64,
    /// The most that clocks drift all the time, in millionths.
    pub drift_ppm_max: u64,
    /// The most that they do for a while.
    pub rate_ppm_max: u64,
    /// No fault lasts longer.
    pub span_max: Duration,
    /// How the network behaves meanwhile.
    pub network: NetworkOptions,
    /// If given, the only device that dies.
    pub frail: Option<DeviceId>,
}

impl FaultOptions {
    /// Nothing goes wrong.
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

    /// What the random source choose within a budget.
    pub fn draw(rng: &mut Rng, budget: &Budget) -> FaultOptions {
        let mut weight = |most: u64| if rng.chance(1, 2) { 0 } else { rng.between(1, most) };
        // Every kind throws its random source, allowed or not: so the rest of a seed is the same under any budget.
        // But for those that are no faults: they throw theirs last, or elsewhere.
        let apart = [
            FaultKind::CommonLeap,
            FaultKind::Migrate,
            FaultKind::Chore,
            FaultKind::Fence,
            FaultKind::Objects,
            FaultKind::AttributeVolumes,
            FaultKind::Volumes,
            FaultKind::Calm,
            FaultKind::Dead,
            FaultKind::DamageDegraded,
            FaultKind::RecordDamage,
            FaultKind::DiskError,
            FaultKind::LargeSectors,
            FaultKind::PageCache,
            FaultKind::Reconnect,
            FaultKind::Leave,
        ];
        let faults = FaultKind::ALL.into_iter().filter(|kind| !apart.contains(kind));
        let mut weights: Vec<_> = faults.map(|kind| (kind, weight(kind.weight_max()))).collect();
        let network = NetworkOptions {
            latency_min: Duration::from_micros(10),
            latency_max: Duration::ZERO,
            in_order: false,
            loss: weight(1_000),
            double: weight(1_000),
            damage: weight(200),
            delay: weight(300),
            delay_max: Duration::ZERO,
            held: 0,
            held_max: Duration::ZERO,
        };
        let own_rng = &mut Rng::new(rng.clone().next_u64() ^ 0xc0_99_0e);
        let leap = if own_rng.chance(1, 2) { 0 } else { own_rng.between(1, FaultKind::CommonLeap.weight_max()) };
        weights.push((FaultKind::CommonLeap, leap));
        // A random source of their own: they change nothing else of a seed.
        let own_rng = &mut rng.clone();
        weights.push((
            FaultKind::Chore,
            if own_rng.chance(1, 2) { 0 } else { own_rng.between(1, FaultKind::Chore.weight_max()) },
        ));
        weights.push((
            FaultKind::DiskError,
            if own_rng.chance(2, 3) { 0 } else { own_rng.between(1, FaultKind::DiskError.weight_max()) },
        ));
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

    /// True if this kind may come.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.weights.get(&kind).is_some_and(|weight| *weight > 0)
    }
}

/// Bytes of a disk that may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damageable {
    /// Whose disk.
    pub node: NodeId,
    /// Which bytes.
    pub bytes: Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget {
            kinds: FaultKind::ALL.into_iter().collect(),
            skew_max: 1_000_000,
            rate_ppm_max: 45_000,
            span_max: Duration::from_secs(5),
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in FaultKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "flood".parse::<FaultKind>().unwrap_err().to_string();
        assert!(error.contains("flood") && error.contains("host-crash, device-crash"), "{error}");
    }

    #[test]
    fn dice_keep_to_the_budget() {
        for seed in 0..200 {
            let kinds = [FaultKind::Corruption, FaultKind::Cut].into();
            let drawn = FaultOptions::draw(&mut Rng::new(seed), &Budget { kinds, ..budget() });
            assert!(drawn.weights.keys().all(|kind| [FaultKind::Corruption, FaultKind::Cut].contains(kind)));
            assert!(drawn.skew_max <= 1_000_000 && drawn.network.delay_max <= Duration::from_secs(5));
            let all = FaultOptions::draw(&mut Rng::new(seed), &budget());
            assert_eq!(
                (all.every, &all.network),
                (drawn.every, &drawn.network),
                "a narrower budget changes nothing else"
            );
        }
    }
}
