//! The faults of a swarm run: each next fault is drawn from a random source, within the [`FaultOptions`] of the run.

use crate::disk::CrashPoint;
use crate::faults::{CutShape, Damageable, Fault, FaultKind, FaultOptions};
use braid_base::{NodeId, Rng};
use braid_wire::RecoveryThrottle;
use std::ops::Range;
use std::time::Duration;

/// The state of the simulated array, as far as a swarm run must know it.
pub trait Topology {
    fn up(&self) -> Vec<NodeId>;

    /// How far the wall clock of a node is ahead, in nanoseconds.
    fn skew(&self, node: NodeId) -> i64;

    /// The name of a node's place, which others may share: a fault hits all nodes at a place.
    fn place(&self, node: NodeId) -> NodeId {
        node
    }

    /// Byte ranges that may be damaged now, one of them at a time, without exceeding the array's redundancy; only the array's model
    /// knows them. Two ranges of one node may be damaged at once.
    fn damageable(&self) -> Vec<Damageable> {
        Vec::new()
    }

    /// The devices whose disks may be replaced now.
    fn replaceable(&self) -> Vec<NodeId> {
        Vec::new()
    }
}

/// By how much a wall clock leaps: a minute, an hour, a year.
const LEAPS: [i64; 3] = [60_000_000_000, 3_600_000_000_000, 31_536_000_000_000_000];

/// Draws faults; see the module.
#[derive(Clone, Debug)]
pub struct Swarm {
    options: FaultOptions,
    rng: Rng,
}

impl Swarm {
    /// Creates a swarm run with a random source of its own.
    pub fn new(options: FaultOptions, rng: Rng) -> Swarm {
        Swarm { options, rng }
    }

    /// The time until the next fault.
    pub fn pause(&mut self) -> Duration {
        Duration::from_nanos(self.rng.below(2 * self.options.every.as_nanos() as u64) + 1)
    }

    /// Draws the skew of a wall clock in nanoseconds: within the budget, whatever the skew was before.
    pub fn skew(&mut self) -> i64 {
        self.either_way(self.options.skew_max)
    }

    /// Draws the drift of a clock, in millionths.
    pub fn drift_ppm(&mut self) -> i64 {
        self.either_way(self.options.drift_ppm_max)
    }

    /// Draws the next fault; `None` if no fault is possible now.
    pub fn next(&mut self, topology: &impl Topology) -> Option<Fault> {
        let total: u64 = self.options.weights.values().sum();
        if total == 0 {
            return None;
        }
        let kind = self.options.chosen_by(self.rng.below(total))?;
        self.draw(kind, topology)
    }

    /// Draws a fault of this kind; `None` if none is possible now.
    pub fn draw(&mut self, kind: FaultKind, topology: &impl Topology) -> Option<Fault> {
        let nodes = topology.up();
        let of = |wanted: NodeKind| nodes.iter().copied().filter(|node| kind_of(*node) == wanted).collect::<Vec<_>>();
        let disks = || nodes.iter().copied().filter(|node| kind_of(*node) != NodeKind::Host).collect::<Vec<_>>();
        let dies = |node: &NodeId| self.options.frail.is_none_or(|device| *node == NodeId::Device(device));
        let frail: Vec<_> = of(NodeKind::Device).into_iter().filter(dies).collect();
        Some(match kind {
            FaultKind::HostCrash => self.crash(&of(NodeKind::Host), |_| None)?,
            FaultKind::DeviceCrash => self.crash(&frail, |rng| {
                let count = rng.between(1, 12);
                [None, Some(CrashPoint::Write(count)), Some(CrashPoint::Sync(count))][rng.below(3) as usize]
            })?,
            // A server writes seldom: when it hears of a host, and when it forgets one; all its writes are durable.
            FaultKind::ServerCrash => self.crash(&of(NodeKind::Server), |rng| {
                let count = rng.between(1, 2);
                [None, Some(CrashPoint::Write(count))][rng.below(2) as usize]
            })?,
            FaultKind::Blackout => {
                Fault::Blackout { nodes: nodes.into_iter().map(|node| (node, self.span())).collect() }
            }
            FaultKind::Flap => Fault::Flap {
                node: self.pick(&nodes)?,
                times: self.rng.between(2, 8) as u32,
                down: self.short(),
                up: self.short(),
            },
            FaultKind::Stall => Fault::Stall { node: self.pick(&nodes)?, span: self.span() },
            FaultKind::SlowNode => {
                let busy = Duration::from_micros([100, 1_000, 10_000][self.rng.below(3) as usize]);
                Fault::SlowNode { node: self.pick(&nodes)?, busy, span: self.span() }
            }
            FaultKind::Cut => self.cut(&nodes, topology)?,
            FaultKind::ClockStep => {
                let node = self.pick(&nodes)?;
                Fault::ClockStep { node, by: self.skew() - topology.skew(node) }
            }
            FaultKind::ClockRate => {
                let (node, ppm) = (self.pick(&nodes)?, self.either_way(self.options.rate_ppm_max));
                Fault::ClockRate { node, ppm, span: self.span() }
            }
            // One clock at a time, so that the others show the effect of its stamps; or all clocks at once.
            FaultKind::ClockLeap | FaultKind::CommonLeap => {
                let least = LEAPS[0] / 2;
                if nodes.iter().any(|node| topology.skew(*node).abs() > least) {
                    return None;
                }
                let far = LEAPS[self.rng.below(3) as usize];
                // All mostly ahead: a node whose clock is behind only waits for it.
                let (ahead, of) = if kind == FaultKind::ClockLeap { (1, 2) } else { (3, 4) };
                let by = if self.rng.chance(ahead, of) { far } else { -far };
                match kind {
                    FaultKind::ClockLeap => Fault::ClockLeap { node: self.pick(&nodes)?, by, span: self.span() },
                    _ => Fault::CommonLeap { by, span: self.span() },
                }
            }
            FaultKind::SlowDisk => {
                let times = self.rng.between(2, 200) as u32;
                Fault::SlowDisk { node: self.pick(&disks())?, times, span: self.span() }
            }
            FaultKind::FullDisk => Fault::FullDisk { node: self.pick(&of(NodeKind::Device))?, span: self.span() },
            FaultKind::Replace => {
                Fault::Replace { node: self.pick(&topology.replaceable())?, unavailable: self.span() }
            }
            FaultKind::DiskError => {
                let node = self.pick(&of(NodeKind::Device))?;
                match self.rng.below(4) {
                    0 | 1 => Fault::FailedWrite { node },
                    2 => Fault::FailedSync { node },
                    _ => Fault::BadSector { node, sector: self.rng.next_u64() },
                }
            }
            FaultKind::Fence => Fault::Fence {
                node: self.pick(&of(NodeKind::Host))?,
                device: self.pick(&of(NodeKind::Device))?,
                deaf: Duration::from_micros(self.rng.between(1, 10_000)),
                dies: self.rng.chance(3, 4),
                unavailable: self.span(),
            },
            FaultKind::Chore if self.rng.chance(1, 2) => Fault::Scrub { node: self.pick(&of(NodeKind::Host))? },
            FaultKind::Chore => {
                let throttle = RecoveryThrottle {
                    bytes_per_second: [0, 0, 1 << 16, 1 << 20][self.rng.below(4) as usize],
                    share: [0, 1, 30, 100][self.rng.below(4) as usize],
                    paused: self.rng.chance(1, 3),
                };
                Fault::RecoveryThrottle { throttle, span: self.span() }
            }
            FaultKind::Corruption => Fault::Corruption(self.pick(&topology.damageable())?),
            FaultKind::Unreadable => Fault::Unreadable(self.pick(&topology.damageable())?),
            FaultKind::Misdirected => {
                let places = topology.damageable();
                let meant = self.pick(&places)?;
                let length = |bytes: &Range<u64>| bytes.end - bytes.start;
                let alike = |other: &&Damageable| {
                    other.node == meant.node
                        && length(&other.bytes) == length(&meant.bytes)
                        && (other.bytes.end <= meant.bytes.start || meant.bytes.end <= other.bytes.start)
                };
                let victims: Vec<u64> = places.iter().filter(alike).map(|other| other.bytes.start).collect();
                Fault::Misdirected { hit: self.pick(&victims)?, meant }
            }
        })
    }

    fn crash(&mut self, nodes: &[NodeId], at: impl FnOnce(&mut Rng) -> Option<CrashPoint>) -> Option<Fault> {
        let (node, at) = (self.pick(nodes)?, at(&mut self.rng));
        Some(Fault::Crash { node, at, unavailable: self.span(), reboot: self.rng.chance(1, 2) })
    }

    /// Cuts whole places off from others. Within a place no message is lost.
    fn cut(&mut self, nodes: &[NodeId], topology: &impl Topology) -> Option<Fault> {
        let place = |node: &NodeId| topology.place(*node);
        let whole = |some: Vec<NodeId>| -> Vec<NodeId> {
            let is_there = |node: &&NodeId| some.iter().any(|one| place(one) == place(node));
            nodes.iter().filter(is_there).copied().collect()
        };
        let one_way = self.rng.chance(1, 2);
        let (shape, some, others) = match self.rng.below(4) {
            0 => {
                let (one, other) = (self.pick(nodes)?, self.pick(nodes)?);
                (if one_way { CutShape::PairOneWay } else { CutShape::Pair }, vec![one], vec![other])
            }
            1 => {
                let shape = if one_way { CutShape::HalvesOneWay } else { CutShape::Halves };
                let (some, others) = nodes.iter().partition(|_| self.rng.chance(1, 2));
                (shape, some, others)
            }
            _ => {
                let (one, everybody) = (self.pick(nodes)?, self.rng.chance(1, 3));
                let others = nodes.iter().copied().filter(|_| everybody || self.rng.chance(1, 2)).collect();
                (if one_way { CutShape::NodeOneWay } else { CutShape::Node }, vec![one], others)
            }
        };
        let backwards = self.rng.chance(1, 2);
        let (some, others) = (whole(some), whole(others));
        let is_half = matches!(shape, CutShape::Halves | CutShape::HalvesOneWay);
        let mut pairs = Vec::new();
        for one in &some {
            let is_apart = |other: &&NodeId| place(other) != place(one) && !(is_half && some.contains(other));
            for other in others.iter().filter(is_apart) {
                if !one_way || !backwards {
                    pairs.push((*one, *other));
                }
                if !one_way || backwards {
                    pairs.push((*other, *one));
                }
            }
        }
        (!pairs.is_empty()).then(|| Fault::Cut { shape, pairs, span: self.span() })
    }

    /// Draws a duration: mostly short, sometimes longer than any lease.
    pub fn span(&mut self) -> Duration {
        let most = [20, 20, 20, 500, 500, 500, 3_000, 3_000, 9_000][self.rng.below(9) as usize];
        Duration::from_millis(self.rng.between(1, most)).min(self.options.span_max)
    }

    fn short(&mut self) -> Duration {
        let most = [20, 500][self.rng.below(2) as usize];
        Duration::from_millis(self.rng.between(1, most)).min(self.options.span_max)
    }

    fn either_way(&mut self, most: u64) -> i64 {
        self.rng.below(2 * most + 1) as i64 - most as i64
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> Option<T> {
        (!among.is_empty()).then(|| among[self.rng.below(among.len() as u64) as usize].clone())
    }
}

/// A node's role, as far as a swarm run distinguishes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    /// A host: it loses everything when it dies.
    Host,
    /// A device: it stores data.
    Device,
    /// A server with other durable state.
    Server,
}

fn kind_of(node: NodeId) -> NodeKind {
    match node {
        NodeId::Host(_) => NodeKind::Host,
        NodeId::Device(_) => NodeKind::Device,
        _ => NodeKind::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, Generation, LockServerId};
    use std::collections::BTreeSet;

    struct Plain(i64);

    /// Each device shares its place with a host, but the first.
    struct Shared;

    impl Topology for Shared {
        fn up(&self) -> Vec<NodeId> {
            Plain(0).up()
        }

        fn skew(&self, _: NodeId) -> i64 {
            0
        }

        fn place(&self, node: NodeId) -> NodeId {
            match node {
                NodeId::Host(Generation(host @ 1..3)) => NodeId::Device(DeviceId(host as u16)),
                node => node,
            }
        }
    }

    impl Topology for Plain {
        fn up(&self) -> Vec<NodeId> {
            let hosts = (1..4).map(|host| NodeId::Host(Generation(host)));
            let devices = (0..3).map(|device| NodeId::Device(DeviceId(device)));
            hosts.chain(devices).chain([NodeId::LockServer(LockServerId(0)), NodeId::Monitor]).collect()
        }

        fn skew(&self, node: NodeId) -> i64 {
            if node == NodeId::Host(Generation(2)) { self.0 } else { 0 }
        }

        fn damageable(&self) -> Vec<Damageable> {
            let place =
                |device, start| Damageable { node: NodeId::Device(DeviceId(device)), bytes: start..start + 4608 };
            vec![place(0, 0), place(0, 9216), place(1, 4608)]
        }

        fn replaceable(&self) -> Vec<NodeId> {
            vec![NodeId::Device(DeviceId(1))]
        }
    }

    fn swarm(weights: impl IntoIterator<Item = FaultKind>, seed: u64) -> Swarm {
        let options = FaultOptions {
            weights: weights.into_iter().map(|kind| (kind, 1)).collect(),
            skew_max: 1_000_000,
            rate_ppm_max: 45_000,
            span_max: Duration::from_secs(5),
            ..FaultOptions::none()
        };
        Swarm::new(options, Rng::new(seed))
    }

    #[test]
    fn every_kind_comes_with_all_its_forms_and_ends_in_time() {
        let mut names = BTreeSet::new();
        for kind in FaultKind::ALL.iter().copied() {
            let mut swarm = swarm([kind], 7);
            for _ in 0..300 {
                let fault = swarm.next(&Plain(0)).into_iter().collect::<Vec<_>>();
                for fault in fault {
                    names.insert(fault.name());
                    match fault {
                        Fault::Stall { span, .. } | Fault::SlowNode { span, .. } | Fault::Cut { span, .. } => {
                            assert!(span <= Duration::from_secs(5));
                        }
                        Fault::ClockRate { ppm, .. } => assert!(ppm.abs() <= 45_000),
                        Fault::Misdirected { meant, hit } => {
                            assert_eq!(meant.node, NodeId::Device(DeviceId(0)));
                            assert!(hit != meant.bytes.start && [0, 9216].contains(&hit));
                        }
                        Fault::Blackout { nodes } => assert_eq!(nodes.len(), 8),
                        _ => {}
                    }
                }
            }
        }
        assert_eq!(names.len(), 33, "{names:?}");
    }

    #[test]
    fn halves_are_two_sides_of_one_cut() {
        let mut swarm = swarm([FaultKind::Cut], 3);
        for _ in 0..300 {
            let Some(Fault::Cut { shape, pairs, .. }) = swarm.next(&Plain(0)) else { continue };
            let cut: BTreeSet<_> = pairs.iter().copied().collect();
            let from: BTreeSet<_> = pairs.iter().map(|(from, _)| *from).collect();
            match shape {
                CutShape::Halves => assert!(cut.iter().all(|(from, to)| cut.contains(&(*to, *from)))),
                CutShape::HalvesOneWay => {
                    let others = Plain(0).up().into_iter().filter(|node| !from.contains(node)).count();
                    assert_eq!(cut.len(), from.len() * others);
                }
                CutShape::PairOneWay => assert_eq!(cut.len(), 1),
                CutShape::Pair => assert_eq!(cut.len(), 2),
                _ => {}
            }
        }
    }

    #[test]
    fn a_cut_concerns_all_at_a_place_and_nothing_within_it() {
        let mut swarm = swarm([FaultKind::Cut], 3);
        let place = |node| Shared.place(node);
        let together = |node| Shared.up().into_iter().filter(move |other| place(*other) == place(node));
        let mut largest = 0;
        for _ in 0..300 {
            let Some(Fault::Cut { pairs, .. }) = swarm.next(&Shared) else { continue };
            let cut: BTreeSet<_> = pairs.into_iter().collect();
            largest = largest.max(cut.len());
            for (from, to) in &cut {
                assert_ne!(place(*from), place(*to));
                assert!(together(*from).all(|from| together(*to).all(|to| cut.contains(&(from, to)))));
            }
        }
        assert!(largest >= 30, "halves: {largest}");
    }

    #[test]
    fn clocks_leap_one_at_a_time_or_all_together() {
        for kind in [FaultKind::ClockLeap, FaultKind::CommonLeap] {
            let mut swarm = swarm([kind], 1);
            assert!((0..50).all(|_| swarm.next(&Plain(0)).is_some()));
            assert!((0..50).all(|_| swarm.next(&Plain(-LEAPS[0])).is_none()));
        }
    }

    #[test]
    fn a_clock_is_set_to_where_it_may_be_however_far_it_was_off() {
        let mut swarm = swarm([FaultKind::ClockStep], 1);
        for _ in 0..300 {
            let Some(Fault::ClockStep { node, by }) = swarm.next(&Plain(77_000_000)) else {
                panic!("clocks can be set")
            };
            assert!((Plain(77_000_000).skew(node) + by).abs() <= 1_000_000);
        }
    }
}
