//! The crash matrix: two hosts write concurrently in a tiny array, and one node loses power, at each of its steps in turn.
//!
//! ```text
//!   written before ─► A and B write at once ─► power fails at X instead of its n-th input ─► X returns ─► rest, and every check
//! ```
//!
//! A *case* is an array and a pair of writes. A *point* of it is a node, the number of an input since the writes began, and what the
//! node's disk keeps of unsynced writes. Each case is first run without a crash, to count the inputs of each node. A step of a
//! machine lies between two inputs, so these points cover the whole run.

use crate::at_rest;
use crate::building;
use crate::cluster::{Cluster, Failed, HostSlot, failed};
use crate::object_workload::{COUNTER, command};
use crate::options::Options;
use crate::prelude::*;
use crate::swarm::caught;
use crate::workload::ClientOperation;
use braid_wire::{Action, Undefined, When};
use braid_world::Keeps;
use std::str::FromStr;

/// How long a node that lost power is down, if the array is not to take it out.
const AWAY: Duration = Duration::from_millis(20);
const AWAY_LONG: Duration = Duration::from_millis(1_500);
/// The longest time until nothing is in progress.
const REST: Duration = Duration::from_secs(60);
/// How long the case waits until the array has taken out a device: more than two leases.
const TAKEN_OUT: Duration = Duration::from_secs(1);

/// The arrays: scheme, number of devices, blocks of a unit. Each volume has two stripes.
pub const ARRAYS: [(&str, usize, u64); 4] =
    [("raid5:2+1", 3, 1), ("raid5:4+1", 5, 1), ("raid5:2+1", 4, 2), ("raid1:2", 2, 1)];

/// The shape of a host's write. All but the last overlap in the first stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Half of the first block.
    Part,
    /// The first unit: in RAID 5 4+1 a small write.
    Small,
    /// All units but the first: a large write.
    Large,
    /// The whole stripe.
    Full,
    /// The last unit of the first stripe, and the second stripe.
    Across,
    /// Not a write: an addition to an attribute of an object, and a swap with a command that depends on it.
    Object,
}

braid_base::names!(Shape {
    Part => "part",
    Small => "small",
    Large => "large",
    Full => "full",
    Across => "across",
    Object => "object"
});

impl Shape {
    /// The write; `None` for an object request, which concerns no blocks.
    fn operation(self, layout: &Layout) -> Option<ClientOperation> {
        let unit = layout.unit_blocks() * BLOCK_BYTES as u64;
        let stripe = layout.stripe_blocks() * BLOCK_BYTES as u64;
        let (offset, length) = match self {
            Shape::Part => (0, BLOCK_BYTES as u64 / 2),
            Shape::Small => (0, unit),
            Shape::Large => (unit, stripe - unit),
            Shape::Full => (0, stripe),
            Shape::Across => (stripe - unit, stripe + unit),
            Shape::Object => return None,
        };
        Some(ClientOperation::Write { offset, length })
    }
}

/// A node of the array; A and B are the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatrixNode {
    A,
    B,
    Server(NodeId),
}

impl fmt::Display for MatrixNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatrixNode::A => f.write_str("A"),
            MatrixNode::B => f.write_str("B"),
            MatrixNode::Server(node) => write!(f, "{node}"),
        }
    }
}

/// An array, and the concurrent writes of two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// An index of [`ARRAYS`].
    pub array: usize,
    pub ordering: Ordering,
    /// Where both hosts have parity computed.
    pub site: SitePolicy,
    /// The write of each host.
    pub writes: (Shape, Shape),
    /// A device that is down from the start and returns at the end.
    pub without: Option<DeviceId>,
}

/// The point at which a node loses power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub node: MatrixNode,
    /// The number of the input since the writes began, counted from 1; the node loses power instead of taking it.
    pub at: u64,
    /// What its disk keeps of unsynced writes.
    pub keeps: Keeps,
    /// Whether it is down until the array has taken it out.
    pub long: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = match self.keeps {
            Keeps::Random => "",
            Keeps::Nothing => ":nothing",
            Keeps::Everything => ":everything",
        };
        write!(f, "{}:{}{keeps}{}", self.node, self.at, if self.long { ":long" } else { "" })
    }
}

/// The text is not a point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write the node, the number of the input, what the disk keeps, and `long` for a long absence, as in A:7, d1:12:nothing or d2:9:long"
)]
pub struct NoPoint;

impl FromStr for Point {
    type Err = NoPoint;

    fn from_str(text: &str) -> Result<Point, NoPoint> {
        let mut words = text.split(':');
        let numbered = |word: &str, letter: char| word.strip_prefix(letter)?.parse::<u16>().ok();
        let node = match words.next() {
            Some("A") => MatrixNode::A,
            Some("B") => MatrixNode::B,
            Some("monitor") => MatrixNode::Server(NodeId::Monitor),
            Some(word) => numbered(word, 'd')
                .map(|number| NodeId::Device(DeviceId(number)))
                .or_else(|| numbered(word, 'l').map(|number| NodeId::LockServer(LockServerId(number))))
                .map(MatrixNode::Server)
                .ok_or(NoPoint)?,
            None => return Err(NoPoint),
        };
        let at = words.next().and_then(|word| word.parse().ok()).ok_or(NoPoint)?;
        let mut point = Point { node, at, keeps: Keeps::Random, long: false };
        for word in words {
            match word {
                "nothing" => point.keeps = Keeps::Nothing,
                "everything" => point.keeps = Keeps::Everything,
                "long" => point.long = true,
                _ => return Err(NoPoint),
            }
        }
        Ok(point)
    }
}

impl Case {
    /// All pairs of writes in one array with this ordering, at each parity site that makes a difference. The order of a pair does not matter, since A and B are alike. A write and
    /// an object request do not interact, so these pairs are left out.
    pub fn all(array: usize, ordering: Ordering, without: Option<DeviceId>) -> Vec<Case> {
        let pairs = Shape::ALL.into_iter().flat_map(|a| Shape::ALL.into_iter().map(move |b| (a, b)));
        let meet = |a: Shape, b: Shape| (a == Shape::Object) == (b == Shape::Object);
        let half =
            pairs.filter(|(a, b)| a <= b && meet(*a, *b) && !(is_copied(array) && [*a, *b].contains(&Shape::Large)));
        let cases = half.flat_map(|writes| {
            let is_executed = [writes.0, writes.1].into_iter().any(|shape| is_executed(array, ordering, shape));
            let sites = [Some(SitePolicy::Originator), is_executed.then_some(SitePolicy::AtParity)];
            sites.into_iter().flatten().map(move |site| Case { array, ordering, site, writes, without })
        });
        cases.collect()
    }

    /// Every point at which power may fail in this case.
    pub fn points(&self) -> Result<Vec<Point>, Box<Broken>> {
        let inputs = self.run(None, 0)?;
        let ways: fn(&MatrixNode) -> &'static [(Keeps, bool)] = |node| match node {
            MatrixNode::A | MatrixNode::B => &[(Keeps::Random, false)],
            // Only devices depend on what was synced; the random source adds torn writes.
            MatrixNode::Server(NodeId::Device(_)) => {
                &[(Keeps::Nothing, false), (Keeps::Everything, false), (Keeps::Random, false), (Keeps::Random, true)]
            }
            MatrixNode::Server(_) => &[(Keeps::Nothing, false), (Keeps::Everything, false)],
        };
        let one = |(node, count): (MatrixNode, u64)| {
            let at =
                move |at| ways(&node).iter().map(move |(keeps, long)| Point { node, at, keeps: *keeps, long: *long });
            (1..=count).flat_map(at)
        };
        Ok(inputs.into_iter().flat_map(one).collect())
    }

    /// Runs the case, with or without a crash; returns the number of inputs of each node until nothing was in progress.
    pub fn run(&self, crash: Option<Point>, lines: usize) -> Result<BTreeMap<MatrixNode, u64>, Box<Broken>> {
        let mut play = None;
        let outcome = caught(|| {
            let play = play.insert(Play::new(self.options(), lines));
            play.go(self, crash)
        });
        outcome.map_err(|failed| {
            let world = play.as_ref().map(|play: &Play| &play.cluster.world);
            let trace = world.map_or_else(Vec::new, |world| world.trace.lines().map(str::to_string).collect());
            Box::new(Broken { case: self.clone(), crash, failed, trace })
        })
    }

    fn options(&self) -> Options {
        let (scheme, devices, unit_blocks) = ARRAYS[self.array];
        let settings = Settings {
            readmission_min: Duration::from_millis(50),
            readmission_max: Duration::from_millis(400),
            request_timeout: Duration::from_secs(3),
            lock_lease: Duration::from_millis(20),
            ..short_leases()
        };
        Options {
            ordering: self.ordering,
            sites: vec![self.site],
            lock_servers: u16::from(self.ordering.needs_lock_server()),
            hosts: 2,
            journal_bytes: Some(1 << 20),
            settings,
            ..Options::calm(scheme, devices, unit_blocks, 2)
        }
    }
}

/// Settings with which little time passes until a dead node is out.
pub(crate) fn short_leases() -> Settings {
    Settings {
        host_lease: Duration::from_millis(400),
        device_lease: Duration::from_millis(400),
        heartbeat: Duration::from_millis(50),
        resend_min: Duration::from_millis(5),
        resend_max: Duration::from_millis(200),
        ..Settings::default()
    }
}

/// In RAID 1 every write covers the whole stripe.
fn is_copied(array: usize) -> bool {
    ARRAYS[array].0.starts_with("raid1")
}

/// True if devices can execute the write together: it has whole blocks, and something must be read for it.
fn is_executed(array: usize, ordering: Ordering, shape: Shape) -> bool {
    let has_parity = !is_copied(array) && ordering == Ordering::Timestamp;
    has_parity && [Shape::Small, Shape::Large, Shape::Across].contains(&shape)
}

impl fmt::Display for Case {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.writes;
        write!(f, "--on {} --ordering {} --writes {}+{}", self.array, self.ordering, a.name(), b.name())?;
        if self.site != SitePolicy::Originator {
            write!(f, " --site {}", self.site)?;
        }
        self.without.map_or(Ok(()), |device| write!(f, " --without {}", device.0))
    }
}

/// A point after which a check failed.
#[derive(Clone, Debug)]
pub struct Broken {
    pub case: Case,
    /// The crash, if there was one.
    pub crash: Option<Point>,
    /// The failed check.
    pub failed: Failed,
    /// The last lines of the trace, if any were kept.
    pub trace: Vec<String>,
}

impl Broken {
    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let crash = self.crash.map_or_else(String::new, |point| format!(" --crash {point}"));
        format!("braid sim matrix {}{crash}", self.case)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crash = self.crash.map_or_else(|| "nobody".to_string(), |point| point.to_string());
        let (a, b) = self.case.writes;
        let (scheme, devices, _) = ARRAYS[self.case.array];
        write!(
            f,
            "FAILED {}  {scheme} on {devices} devices, {}, {}, {}+{}, crash of {crash}",
            self.failed.check,
            self.case.ordering,
            self.case.site,
            a.name(),
            b.name()
        )?;
        self.failed.details.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// A case in progress.
struct Play {
    cluster: Cluster,
    /// The node that is down, and when it returns.
    down: Option<(NodeId, Time)>,
    /// How long the node that loses power is down.
    unavailable: Duration,
    /// Writes that were refused, or ended with another error.
    refused: Vec<String>,
}

impl Play {
    fn new(options: Options, lines: usize) -> Play {
        Play {
            cluster: Cluster::new(options, Trace::keeping(lines)),
            down: None,
            unavailable: AWAY,
            refused: Vec::new(),
        }
    }

    fn go(&mut self, case: &Case, crash: Option<Point>) -> Result<BTreeMap<MatrixNode, u64>, Failed> {
        let layout = self.cluster.volume().layout;
        let (a, b) = (HostSlot(0), HostSlot(1));
        self.cluster.write(a, 0, 2 * layout.stripe_blocks() * BLOCK_BYTES as u64);
        self.come_to_rest()?;
        let device = self.cluster.devices().into_iter().find(|device| case.without != Some(*device));
        let device = device.expect("a device is up");
        if [case.writes.0, case.writes.1].contains(&Shape::Object) {
            self.cluster.make_objects(a, device, [1]);
        }
        if let Some(device) = case.without {
            self.cluster.crash(NodeId::Device(device));
            self.pass(self.cluster.world.now().after(TAKEN_OUT))?;
        }
        let nodes = self.nodes(case);
        let before: BTreeMap<MatrixNode, u64> = nodes.iter().map(|node| (*node, self.inputs(*node))).collect();
        if let Some(Point { node, at, keeps, long }) = crash {
            self.unavailable = if long { AWAY_LONG } else { AWAY };
            let node = self.node(node);
            if let Some(disk) = self.cluster.world.disk_mut(node) {
                disk.set_keeps(keeps);
            }
            self.cluster.world.crash_before(node, at);
        }
        for (slot, shape) in [(a, case.writes.0), (b, case.writes.1)] {
            match shape.operation(&layout) {
                Some(operation) => drop(self.cluster.operation(slot, 0, operation)),
                None => self.ask_of_object(slot, device),
            }
        }
        self.come_to_rest_without(case.without)?;
        // The array can serve without any single device.
        if !self.refused.is_empty() && (case.without.is_none() || crash.is_none()) {
            return failed("refused", self.refused.join("\n"));
        }
        // (Another host may be in a crashed host's slot by now, and count from its own start.)
        let taken = |node| self.inputs(node).saturating_sub(before[&node]);
        let taken = nodes.into_iter().map(|node| (node, taken(node))).collect();
        if let Some(device) = case.without {
            self.cluster.restart_device(device);
        }
        self.come_to_rest()?;
        self.cluster.check_all()?;
        Ok(taken)
    }

    fn ask_of_object(&mut self, slot: HostSlot, device: DeviceId) {
        let object = ObjectId(1);
        let word = AttributeName::new(1, 2);
        let own = Bytes::from(format!("host {}", slot.0));
        let add = command(object, Action::FetchAndAdd { name: COUNTER, add: 1, original: true });
        let (compare, undefined) = (Bytes::new(), Undefined::IsEmpty);
        let swap = Action::CompareAndSwap { name: word, compare, swap: own.clone(), undefined, original: true };
        let swap = ObjectCommand { gets: vec![word], ..command(object, swap) };
        let append = ObjectCommand { when: When::IfSwapped, ..command(object, Action::Append { data: own }) };
        self.cluster.have_done(slot, device, vec![add]);
        self.cluster.have_done(slot, device, vec![swap, append]);
    }

    fn nodes(&self, case: &Case) -> Vec<MatrixNode> {
        let devices = self.cluster.devices().into_iter().filter(|device| case.without != Some(*device));
        let lock_servers = self.cluster.lock_servers().into_iter().map(NodeId::LockServer);
        let servers = devices.map(NodeId::Device).chain(lock_servers).chain([NodeId::Monitor]);
        [MatrixNode::A, MatrixNode::B].into_iter().chain(servers.map(MatrixNode::Server)).collect()
    }

    fn node(&self, node: MatrixNode) -> NodeId {
        match node {
            MatrixNode::A => self.cluster.node(HostSlot(0)),
            MatrixNode::B => self.cluster.node(HostSlot(1)),
            MatrixNode::Server(node) => node,
        }
    }

    fn inputs(&self, node: MatrixNode) -> u64 {
        self.cluster.world.inputs(self.node(node))
    }

    fn come_to_rest(&mut self) -> Result<(), Failed> {
        self.come_to_rest_without(None)
    }

    /// Runs until all requests are answered, no node is down and nothing is in progress.
    fn come_to_rest_without(&mut self, without: Option<DeviceId>) -> Result<(), Failed> {
        let patience = self.cluster.world.now().after(REST);
        loop {
            self.pass(self.cluster.world.now().after(Duration::from_millis(1)))?;
            for slot in self.cluster.fenced() {
                self.cluster.crash(self.cluster.node(slot));
                self.replace(slot);
            }
            let waiting = self.cluster.requests.asked().next().is_some() || self.down.is_some();
            let rest = if waiting { Err(None) } else { at_rest::check_rest(&self.cluster, without).map_err(Some) };
            match rest {
                Ok(()) => return Ok(()),
                Err(_) if self.cluster.world.now() < patience => {}
                Err(Some(failed)) => return Err(failed),
                Err(None) => {
                    return failed("unanswered", format!("{:?}", self.cluster.requests.asked().collect::<Vec<_>>()));
                }
            }
        }
    }

    fn pass(&mut self, until: Time) -> Result<(), Failed> {
        while let Some(event) = self.cluster.world.next(until) {
            self.cluster.check_moment()?;
            match event {
                WorldEvent::Reply { node, op, outcome } => {
                    self.cluster.on_reply(op, &outcome)?;
                    self.refused.extend(outcome.err().map(|error| format!("{node}: {error}")));
                }
                WorldEvent::PowerFailed(node) => {
                    self.cluster.requests.forget(node);
                    self.down = Some((node, self.cluster.world.now().after(self.unavailable)));
                }
                WorldEvent::Alarm(_) | WorldEvent::Suspended { .. } | WorldEvent::Stepped(_) => {}
            }
        }
        match self.down {
            Some((node, until)) if until <= self.cluster.world.now() => {
                self.down = None;
                self.bring_back(node);
            }
            _ => {}
        }
        Ok(())
    }

    fn bring_back(&mut self, node: NodeId) {
        match self.cluster.slot(node) {
            Some(slot) => self.replace(slot),
            None => building::restart(&mut self.cluster, node),
        }
    }

    fn replace(&mut self, slot: HostSlot) {
        self.cluster.replace_host(slot, LocalClock::exact(self.cluster.world.now()));
    }
}
