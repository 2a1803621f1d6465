//! One seed, from options to verdict: clients work while things go wrong; then everything heals, and must come to rest with
//! nothing lost.

use crate::cluster::{Asked, Cluster, Failed, HostSlot};
use crate::options::Options;
use crate::role::Role;
use crate::workload::Workload;
use braid_base::{NodeId, Rng, Time};
use braid_host::HostCounters;
use braid_locks::LockServerCounters;
use braid_machine::{HostError, HostOutcome, Ignored};
use braid_wire::{Atomicity, Ordering};
use braid_world::{Fault, Happening, LocalClock, NetworkCounts, Storm, Trace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The longest stall and the longest delay of a message, which end on their own after healing.
const AFTERMATH: Duration = Duration::from_secs(16);

/// What the stores count that says how they were tried; losses of power at a disk command take their counts along.
const COUNTED: [&str; 4] = ["journal_batches", "chunks_written", "blocks_homed", "checkpoints"];

/// How a run went that found nothing wrong.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Runs that this sums up.
    pub runs: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Events.
    pub events: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// How long the slowest operation took that was answered.
    pub slowest: Duration,
    /// Operations that ended in an error, by its name, or whose host died.
    pub unknown: BTreeMap<&'static str, u64>,
    /// Faults by name, other than those of messages.
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults of messages.
    pub network: NetworkCounts,
    /// Inputs that machines dropped, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
    /// What hosts counted.
    pub hosts: HostCounters,
    /// What lock servers counted; what they had before a loss of power at a disk command is lost.
    pub lock_servers: LockServerCounters,
    /// What the stores of devices counted.
    pub stores: BTreeMap<&'static str, u64>,
    /// Steps of the search for an order.
    pub search_steps: u64,
    /// Tells this run from any other.
    pub digest: u64,
}

/// What a run found wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which check, or `panic`.
    pub check: &'static str,
    /// Of which run.
    pub seed: u64,
    /// By which ordering.
    pub ordering: Ordering,
    /// With which atomicity.
    pub atomicity: Atomicity,
    /// When.
    pub at: Time,
    /// At which event.
    pub event: u64,
    /// What it saw.
    pub details: String,
    /// The last lines of the trace, if any were kept.
    pub trace: Vec<String>,
}

/// Runs `options` from beginning to end, keeping so many lines of its trace.
pub fn run(options: Options, lines: usize) -> Result<Report, Box<Failure>> {
    catch_panics_quietly();
    let (seed, ordering, atomicity) = (options.seed, options.ordering, options.atomicity);
    QUIET.set(true);
    let built = catch_unwind(AssertUnwindSafe(|| Run::new(options, Trace::keeping(lines))));
    QUIET.set(false);
    let mut run = built.map_err(|_| {
        let details = LAST_PANIC.take();
        Failure {
            check: "panic-at-start",
            seed,
            ordering,
            atomicity,
            at: Time(0),
            event: 0,
            details,
            trace: Vec::new(),
        }
    })?;
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| run.go_to_the_end()));
    QUIET.set(false);
    let failed = match outcome {
        Ok(Ok(())) => return Ok(run.report()),
        Ok(Err(failed)) => failed,
        Err(_) => Failed { check: "panic", details: LAST_PANIC.take() },
    };
    let world = &run.cluster.world;
    Err(Box::new(Failure {
        check: failed.check,
        seed,
        ordering,
        atomicity,
        at: world.now(),
        event: world.trace.events(),
        details: failed.details,
        trace: world.trace.lines().map(str::to_string).collect(),
    }))
}

/// A run under way.
struct Run {
    cluster: Cluster,
    storm: Storm,
    workload: Workload,
    rng: Rng,
    /// What each alarm is for.
    agenda: BTreeMap<u64, Agenda>,
    next_token: u64,
    /// Of nodes that are to lose power at a disk command: for how long, and whether clocks start over.
    crash_plans: BTreeMap<NodeId, (Duration, bool)>,
    issued: u64,
    storming: bool,
    report: Report,
}

/// Something that is going to happen.
enum Agenda {
    /// A client has thought enough.
    Wish { slot: HostSlot, node: NodeId, client: usize },
    /// The next fault.
    Fault,
    /// A node comes back.
    Return { node: NodeId, reboot: bool },
    /// A cut ends.
    Join(Vec<(NodeId, NodeId)>),
    /// A disk is fast again.
    Quicken(NodeId),
}

impl Run {
    fn new(options: Options, trace: Trace) -> Run {
        let mut rng = Rng::new(options.seed.wrapping_mul(3) ^ 0x5707);
        let storm = Storm::new(options.faults.clone(), rng.fork());
        let workload = Workload::new(&options.layout, options.stripes, rng.fork());
        Run {
            cluster: Cluster::new(options, trace),
            storm,
            workload,
            rng,
            agenda: BTreeMap::new(),
            next_token: 0,
            crash_plans: BTreeMap::new(),
            issued: 0,
            storming: true,
            report: Report { runs: 1, ..Report::default() },
        }
    }

    fn go_to_the_end(&mut self) -> Result<(), Failed> {
        self.rise();
        let options = &self.cluster.options;
        let until = self.cluster.world.now().after(options.storm);
        let enough = options.operations;
        while self.issued < enough
            && let Some(happening) = self.cluster.world.next(until)
        {
            self.on_happening(happening)?;
        }
        self.heal();
        self.come_to_rest()?;
        self.count_machines();
        self.report.search_steps = self.cluster.check_all()?;
        Ok(())
    }

    /// Sets the clocks wrong, the network to its faults, and the clients to work.
    fn rise(&mut self) {
        let network = self.cluster.options.faults.network.clone();
        self.cluster.world.network.set_options(network);
        for node in self.cluster.world.up() {
            let by = self.storm.skew();
            self.cluster.world.step_clock(node, by);
        }
        for slot in self.cluster.slots() {
            self.wake_clients(slot);
        }
        let pause = self.storm.pause();
        self.plan(pause, Agenda::Fault);
    }

    fn heal(&mut self) {
        self.storming = false;
        self.cluster.world.network.heal();
        let devices = self.cluster.devices().into_iter().map(NodeId::Device);
        let servers = self.cluster.lock_servers().into_iter().map(NodeId::LockServer);
        for node in devices.chain(servers).chain([NodeId::Monitor]) {
            let disk = self.cluster.world.disk_mut(node).expect("it has a disk");
            disk.slow_down(1);
            disk.spare();
            self.restart(node);
        }
        for slot in self.cluster.slots() {
            self.replace_if_down(slot);
        }
    }

    /// Everything that was asked is answered in its time, and soon after nothing is left under way.
    fn come_to_rest(&mut self) -> Result<(), Failed> {
        let settings = self.cluster.options.settings.clone();
        let answered = self.cluster.world.now().after(AFTERMATH + settings.request_timeout + settings.host_lease);
        while self.cluster.asked().next().is_some() {
            let Some(happening) = self.cluster.world.next(answered) else {
                let late: Vec<&Asked> = self.cluster.asked().collect();
                return Err(Failed { check: "unanswered", details: format!("{late:?}") });
            };
            self.on_happening(happening)?;
        }
        let at_rest = self
            .cluster
            .world
            .now()
            .after(AFTERMATH + 6 * settings.host_lease + 4 * settings.resend_max + 4 * settings.readmission_max);
        loop {
            let pause = self.cluster.world.now().after(Duration::from_millis(100));
            while let Some(happening) = self.cluster.world.next(pause) {
                self.on_happening(happening)?;
            }
            self.replace_fenced();
            match self.cluster.check_nothing_is_left() {
                // What is asked next is asked of an array that is well.
                Ok(()) if !self.cluster.world.is_any_stalled() => return Ok(()),
                Ok(()) => {}
                Err(failed) if self.cluster.world.now() > at_rest => return Err(failed),
                Err(_) => {}
            }
        }
    }

    fn on_happening(&mut self, happening: Happening) -> Result<(), Failed> {
        self.cluster.check_exclusion()?;
        match happening {
            Happening::Reply { op, outcome, .. } => {
                if let Some(asked) = self.cluster.on_reply(op, &outcome)? {
                    self.count_answer(&outcome);
                    let took = self.cluster.world.now().since(asked.since);
                    self.report.slowest = self.report.slowest.max(took);
                    match outcome {
                        Err(HostError::Fenced) => self.replace_fenced(),
                        _ => self.think(asked.node, asked.client),
                    }
                }
            }
            Happening::PowerFailed(node) => {
                let (away, reboot) = self.crash_plans.remove(&node).expect("power fails where it was planned");
                self.count_fault(match node {
                    NodeId::LockServer(_) => "lock server crash at a disk command",
                    NodeId::Monitor => "monitor crash at a disk command",
                    _ => "device crash at a disk command",
                });
                self.plan(away, Agenda::Return { node, reboot });
            }
            Happening::Alarm(token) => {
                let agenda = self.agenda.remove(&token).expect("alarms have their reasons");
                if self.storming {
                    self.on_agenda(agenda);
                }
            }
        }
        Ok(())
    }

    fn on_agenda(&mut self, agenda: Agenda) {
        match agenda {
            Agenda::Wish { slot, node, client } => {
                if self.cluster.node(slot) == node && self.cluster.world.machine(node).is_some() {
                    self.issued += 1;
                    let wish = self.workload.wish();
                    self.cluster.wish(slot, client, wish);
                }
            }
            Agenda::Fault => {
                let up = self.cluster.world.up();
                let world = &self.cluster.world;
                if let Some(fault) = self.storm.next(&up, |node| world.skew(node)) {
                    self.on_fault(fault);
                }
                let pause = self.storm.pause();
                self.plan(pause, Agenda::Fault);
            }
            Agenda::Return { node, reboot } => self.bring_back(node, reboot),
            Agenda::Join(pairs) => pairs.iter().for_each(|(from, to)| self.cluster.world.network.join(*from, *to)),
            Agenda::Quicken(node) => {
                if let Some(disk) = self.cluster.world.disk_mut(node) {
                    disk.slow_down(1);
                }
            }
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, at: Some(point), away, reboot } => {
                self.crash_plans.insert(node, (away, reboot));
                self.cluster.world.disk_mut(node).expect("it has a disk").crash_at(point);
            }
            Fault::Crash { node, at: None, away, reboot } => {
                self.count_fault(match node {
                    NodeId::Host(_) => "host crash",
                    NodeId::Device(_) => "device crash",
                    NodeId::LockServer(_) => "lock server crash",
                    NodeId::Monitor => "monitor crash",
                });
                self.crash(node);
                self.plan(away, Agenda::Return { node, reboot });
            }
            Fault::Stall { node, span } => {
                self.count_fault("stall");
                self.cluster.world.stall(node, span);
            }
            Fault::Cut { pairs, span } => {
                self.count_fault("cut");
                pairs.iter().for_each(|(from, to)| self.cluster.world.network.cut(*from, *to));
                self.plan(span, Agenda::Join(pairs));
            }
            Fault::ClockStep { node, by } => {
                self.count_fault("clock step");
                self.cluster.world.step_clock(node, by);
            }
            Fault::SlowDisk { node, times, span } => {
                self.count_fault("slow disk");
                self.cluster.world.disk_mut(node).expect("it has a disk").slow_down(times);
                self.plan(span, Agenda::Quicken(node));
            }
        }
    }

    fn bring_back(&mut self, node: NodeId, reboot: bool) {
        match node {
            NodeId::Device(_) | NodeId::LockServer(_) | NodeId::Monitor => {
                if reboot && self.cluster.world.machine(node).is_none() {
                    self.cluster.world.reboot_clock(node, Time(self.rng.below(1_000_000_000)));
                }
                self.restart(node);
            }
            NodeId::Host(_) => {
                if let Some(slot) = self.cluster.slot(node) {
                    self.replace_if_down(slot);
                    self.wake_clients(slot);
                }
            }
        }
    }

    /// Starts a device, a lock server or the monitor, if it is down.
    fn restart(&mut self, node: NodeId) {
        match node {
            _ if self.cluster.world.machine(node).is_some() => {}
            NodeId::Device(device) => self.cluster.restart_device(device),
            NodeId::LockServer(server) => self.cluster.restart_lock_server(server),
            NodeId::Monitor => self.cluster.restart_monitor(),
            NodeId::Host(_) => unreachable!("a host comes back as another"),
        }
    }

    /// Power fails at a node; what a host was asked is of unknown outcome.
    fn crash(&mut self, node: NodeId) {
        self.count_machine(node);
        if matches!(node, NodeId::Host(_)) {
            let lost = self.cluster.asked().filter(|asked| asked.node == node).count() as u64;
            *self.report.unknown.entry("host died").or_default() += lost;
        }
        self.cluster.crash(node);
    }

    /// Hosts that have heard that they are fenced end themselves, and others take their places.
    fn replace_fenced(&mut self) {
        for slot in self.cluster.fenced() {
            self.count_fault("host fenced");
            self.crash(self.cluster.node(slot));
            self.replace_if_down(slot);
            self.wake_clients(slot);
        }
    }

    fn replace_if_down(&mut self, slot: HostSlot) {
        if self.cluster.world.machine(self.cluster.node(slot)).is_none() {
            let boot = Time(self.rng.below(1_000_000_000_000));
            self.cluster.replace_host(slot, LocalClock::exact(boot).drifting(self.storm.drift_ppm()));
            let (node, by) = (self.cluster.node(slot), self.storm.skew());
            self.cluster.world.step_clock(node, by);
        }
    }

    fn wake_clients(&mut self, slot: HostSlot) {
        let node = self.cluster.node(slot);
        (0..self.cluster.options.clients).for_each(|client| self.think(node, client));
    }

    fn think(&mut self, node: NodeId, client: usize) {
        if let Some(slot) = self.cluster.slot(node).filter(|_| self.storming) {
            let most = self.cluster.options.think_max.as_nanos() as u64;
            let span = Duration::from_nanos(self.rng.below(most) + 1);
            self.plan(span, Agenda::Wish { slot, node, client });
        }
    }

    fn plan(&mut self, span: Duration, agenda: Agenda) {
        let at = self.cluster.world.now().after(span);
        self.next_token += 1;
        self.agenda.insert(self.next_token, agenda);
        self.cluster.world.alarm(at, self.next_token);
    }

    fn count_fault(&mut self, kind: &'static str) {
        *self.report.faults.entry(kind).or_default() += 1;
    }

    fn count_answer(&mut self, outcome: &HostOutcome) {
        let error = match outcome {
            Ok(_) => return self.report.done += 1,
            Err(HostError::TimedOut { .. }) => "timed out",
            Err(HostError::Contended { .. }) => "contended",
            Err(HostError::LockServerSilent { .. }) => "lock server silent",
            Err(HostError::Fenced) => "fenced",
            Err(HostError::Unavailable { .. }) => "unavailable",
            Err(_) => "other error",
        };
        *self.report.unknown.entry(error).or_default() += 1;
    }

    fn count_machines(&mut self) {
        self.cluster.world.up().into_iter().for_each(|node| self.count_machine(node));
    }

    /// Adds what a machine has counted, before it dies or the run ends.
    fn count_machine(&mut self, node: NodeId) {
        match self.cluster.world.machine(node) {
            Some(Role::Host(host)) => self.report.hosts.add(&host.counters()),
            Some(Role::Device(device)) => {
                for (name, count) in device.store().counters().into_iter().filter(|(name, _)| COUNTED.contains(name)) {
                    *self.report.stores.entry(name).or_default() += count;
                }
            }
            Some(Role::LockServer(server)) => self.report.lock_servers.add(server.counters()),
            _ => {}
        }
    }

    fn report(self) -> Report {
        let world = &self.cluster.world;
        Report {
            simulated: world.now().since(Time(0)),
            events: world.trace.events(),
            network: world.network.counts(),
            ignored: world.ignored().clone(),
            digest: world.trace.digest(),
            ..self.report
        }
    }
}

impl Report {
    /// Adds another run's figures.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.simulated += other.simulated;
        self.events += other.events;
        self.done += other.done;
        self.slowest = self.slowest.max(other.slowest);
        self.search_steps += other.search_steps;
        self.digest ^= other.digest.rotate_left(self.runs as u32);
        other.unknown.iter().for_each(|(name, count)| *self.unknown.entry(name).or_default() += count);
        other.faults.iter().for_each(|(name, count)| *self.faults.entry(name).or_default() += count);
        other.ignored.iter().for_each(|(why, count)| *self.ignored.entry(*why).or_default() += count);
        other.stores.iter().for_each(|(name, count)| *self.stores.entry(name).or_default() += count);
        self.hosts.add(&other.hosts);
        self.lock_servers.add(&other.lock_servers);
        let (sum, more) = (&mut self.network, &other.network);
        sum.sent += more.sent;
        sum.lost += more.lost;
        sum.cut += more.cut;
        sum.doubled += more.doubled;
        sum.damaged += more.damaged;
        sum.delayed += more.delayed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = &self.network;
        writeln!(
            f,
            "{} runs, {:.0} s of simulated time, {} events, digest {:016x}",
            self.runs,
            self.simulated.as_secs_f64(),
            self.events,
            self.digest
        )?;
        let slowest = self.slowest;
        writeln!(f, "  operations  {} done in at most {slowest:?}, of unknown outcome: {:?}", self.done, self.unknown)?;
        writeln!(f, "  faults      {:?}", self.faults)?;
        writeln!(
            f,
            "  messages    {} sent, {} lost, {} at a cut, {} doubled, {} damaged, {} delayed",
            network.sent, network.lost, network.cut, network.doubled, network.damaged, network.delayed
        )?;
        writeln!(f, "  hosts       {:?}", self.hosts)?;
        writeln!(f, "  lock servers {:?}", self.lock_servers)?;
        writeln!(f, "  stores      {:?}", self.stores)?;
        write!(f, "  ignored     {:?}; {} steps to order the histories", self.ignored, self.search_steps)
    }
}

impl fmt::Display for Failure {
    /// What a failing run says, and all that it says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let seconds = self.at.0 as f64 / 1e9;
        writeln!(f, "FAILED {}  seed {}  at {seconds:.6}s  event {}", self.check, self.seed, self.event)?;
        for line in self.details.lines() {
            writeln!(f, "  {line}")?;
        }
        let attack = "cargo run --release -p braid-cluster --bin attack --";
        write!(
            f,
            "reproduce: {attack} --seed {} --ordering {} --atomicity {}",
            self.seed, self.ordering, self.atomicity
        )
    }
}

thread_local! {
    /// What the last panic of this thread said.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether this thread is within a run.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A panic in a run is a finding like others: it is kept for the failure's text instead of being printed.
fn catch_panics_quietly() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            LAST_PANIC.set(info.to_string());
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
}
