//! Swarm runs: hosts with the real client ([`crate::clients`]), a monitor and lock servers in the simulated world. Messages are lost, doubled,
//! delayed and reordered; hosts and servers crash, and the servers' disks are corrupted.
//!
//! Safety: two hosts that are not fenced never believe that they hold conflicting locks. Liveness: after the faults
//! have ended, every lock request is granted.

use crate::bench::*;
use crate::clients::{ClientHost, MakeHost};
use braid_base::{ArrayId, Callbacks, Rng};
use braid_locks::LockServerCounters;
use braid_machine::one_type::step_server;
use braid_machine::{EffectsOf, HostOutcome, Never, OneDisk};
use braid_world::{Disk, DiskOptions, LocalClock, NetworkOptions, Trace, World, WorldEvent};
use proptest::prelude::Strategy;

pub const TICK: Duration = Duration::from_millis(100);
pub const BLOCKS: u64 = 12;
/// The longest delay of a message.
const LATEST: Duration = Duration::from_secs(20);
const BOOT: Time = Time(1_000_000_000);

pub const TICKS: u64 = 0;
/// And the number of the server.
const SERVER_UP: u64 = 1;

/// Fault probabilities, in percent.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    pub loss: u64,
    pub doubling: u64,
    pub delay_ms: u64,
    /// The probabilities below are per tick.
    pub crash: u64,
    pub pause: u64,
    pub restart: u64,
}

const CALM: FaultRates = FaultRates { loss: 0, doubling: 0, delay_ms: 5, crash: 0, pause: 0, restart: 0 };

impl FaultRates {
    fn network(self) -> NetworkOptions {
        let latency_max = Duration::from_millis(self.delay_ms);
        NetworkOptions::unreliable(self.loss, self.doubling, latency_max, LATEST.min(latency_max * 100))
    }
}

/// A node of the world.
pub enum Actor {
    Server(Box<LockServer>),
    Host(Box<ClientHost>),
    Monitor(Monitor),
}

impl Actor {
    fn host(&self) -> Option<&ClientHost> {
        if let Actor::Host(host) = self { Some(host) } else { None }
    }
}

impl Machine for Actor {
    type Request = Never;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input, out: &mut EffectsOf<Self>) {
        match self {
            Actor::Server(server) => step_server(&mut **server, now, input, out),
            Actor::Host(host) => host.step(now, input, out),
            Actor::Monitor(monitor) => monitor.step(input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Actor::Server(server) => server.deadline(),
            Actor::Host(host) => host.next_wake(),
            Actor::Monitor(_) => None,
        }
    }

    fn invariants(&self) {
        if let Actor::Server(server) = self {
            server.invariants();
        }
    }
}

/// Fences the hosts that it is asked to fence.
#[derive(Default)]
pub struct Monitor {
    fenced: BTreeSet<Generation>,
}

impl Monitor {
    fn step(&mut self, input: Input, out: &mut EffectsOf<Actor>) {
        let Input::Message { from, message: Message::MonitorRequest(request), .. } = input else { return };
        let (ticket, hosts) = fence(request);
        self.fenced.extend(hosts);
        out.send(from, fenced(ticket));
    }
}

/// The pairs of extents that have blocks in common.
pub fn touching<'a>(
    ones: &'a [LockExtent],
    others: &'a [LockExtent],
) -> impl Iterator<Item = (&'a LockExtent, &'a LockExtent)> {
    let pairs = ones.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.position == other.position && one.range.overlaps(other.range))
}

struct Swarm {
    servers: u16,
    make_host: MakeHost,
    rng: Rng,
    rates: FaultRates,
    world: World<Actor>,
    start: Generation,
    seen: LockServerCounters,
    next_host: u32,
}

impl Swarm {
    fn new(seed: u64, rates: FaultRates, servers: u16, make_host: MakeHost) -> Swarm {
        let mut rng = Rng::new(seed);
        let world = World::new(ArrayId([1; 16]), rng.next_u64(), rates.network(), Trace::keeping(0));
        let (start, seen) = (Generation(1), LockServerCounters::default());
        let mut swarm = Swarm { servers, make_host, rng, rates, world, start, seen, next_host: 100 };
        let clock = LocalClock::exact(BOOT);
        let options = DiskOptions { latency_min: Duration::ZERO, latency_max: Duration::from_millis(20), space: None };
        swarm.world.add(NodeId::Monitor, Actor::Monitor(Monitor::default()), None, clock.clone());
        for id in (0..servers).map(LockServerId) {
            let disk = Disk::new(options.clone(), swarm.rng.fork());
            let server = Actor::Server(Box::new(LockServer::new(strict(id, start))));
            swarm.world.add(NodeId::LockServer(id), server, Some(disk), clock.clone());
        }
        (0..4).for_each(|_| swarm.new_host());
        swarm.world.alarm(swarm.world.now().after(TICK), TICKS);
        swarm
    }

    fn new_host(&mut self) {
        self.next_host += 1;
        let name = Generation(self.next_host);
        let host = (self.make_host)(name, self.rng.fork());
        self.world.add(NodeId::Host(name), Actor::Host(Box::new(host)), None, LocalClock::exact(BOOT));
        self.world.watch(NodeId::Host(name));
    }

    fn hosts(&self) -> impl Iterator<Item = &ClientHost> {
        self.world.up().into_iter().filter_map(|node| self.world.machine(node)?.host())
    }

    fn host_mut(&mut self, name: Generation) -> &mut ClientHost {
        match self.world.machine_mut(NodeId::Host(name)) {
            Some(Actor::Host(host)) => host,
            _ => panic!("{name} is up"),
        }
    }

    fn server(&self, id: LockServerId) -> Option<&LockServer> {
        match self.world.machine(NodeId::LockServer(id))? {
            Actor::Server(server) => Some(server),
            _ => panic!("a lock server's place"),
        }
    }

    fn fenced(&self) -> &BTreeSet<Generation> {
        match self.world.machine(NodeId::Monitor) {
            Some(Actor::Monitor(monitor)) => &monitor.fenced,
            _ => panic!("the monitor stays up"),
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.world.now().after(span);
        while let Some(event) = self.world.next(end) {
            match event {
                WorldEvent::Stepped(_) => self.exclusion(),
                WorldEvent::Alarm(TICKS) => {
                    self.tick();
                    self.world.alarm(self.world.now().after(TICK), TICKS);
                }
                WorldEvent::Alarm(number) => {
                    let id = LockServerId((number - SERVER_UP) as u16);
                    self.start.0 += 1;
                    let server = Actor::Server(Box::new(LockServer::new(strict(id, self.start))));
                    self.world.start(NodeId::LockServer(id), server);
                }
                other => panic!("not an event of this test: {other:?}"),
            }
        }
    }

    fn server_down(&mut self) {
        let id = LockServerId(if self.servers > 1 { self.rng.below(self.servers.into()) as u16 } else { 0 });
        let node = NodeId::LockServer(id);
        let Some(counters) = self.server(id).map(|server| *server.counters()) else { return };
        self.seen.add(&counters);
        let corrupts = self.world.disk(node).expect("it has one").is_idle() && self.rng.chance(1, 2);
        self.world.crash(node);
        if corrupts {
            // Corrupts one of the two slots.
            self.world.disk_mut(node).expect("it has one").corrupt(0..DISK_BYTES);
        }
        let unavailable = Duration::from_millis(self.rng.below(6_000));
        self.world.alarm(self.world.now().after(unavailable), SERVER_UP + u64::from(id.0));
    }

    /// Asserts that two hosts that are not fenced hold no conflicting locks.
    fn exclusion(&self) {
        let fenced = self.fenced();
        let well = self.hosts().filter(|host| !fenced.contains(&host.name));
        let held: Vec<_> = well.flat_map(|host| host.held().into_iter().map(move |held| (host.name, held))).collect();
        for (index, (host, (lock_id, extents))) in held.iter().enumerate() {
            for (other, (other_id, others)) in held[..index].iter().filter(|(other, _)| other != host) {
                let conflict = touching(extents, others).any(|(a, b)| a.mode.conflicts(b.mode));
                let (one, other) = ((host, lock_id, extents), (other, other_id, others));
                assert!(!conflict, "conflicting locks are held: {one:?} and {other:?}");
            }
        }
    }

    fn tick(&mut self) {
        if self.rng.chance(self.rates.restart, 100) {
            self.server_down();
        }
        let well: Vec<_> = self.hosts().filter(|host| !host.fenced).map(|host| host.name).collect();
        for name in well.into_iter().map(NodeId::Host) {
            if self.world.is_stalled(name) {
                continue;
            }
            if self.rng.chance(self.rates.crash, 100) {
                self.world.crash(name);
                self.new_host();
            } else if self.rng.chance(self.rates.pause, 100) {
                self.world.stall(name, Duration::from_millis(self.rng.below(12_000)));
            }
        }
    }

    /// Ends the faults. Everything under way arrives before anything else: late messages of dead hosts would renew
    /// their leases.
    fn calm(&mut self) {
        self.rates = CALM;
        self.world.network.set_options(CALM.network());
        let names: Vec<_> = self.hosts().map(|host| host.name).collect();
        for name in names {
            self.host_mut(name).calm();
        }
        self.run(LATEST * 2);
    }
}

/// Runs with faults and then without. Returns the counters of all servers.
pub fn swarm(seed: u64, rates: FaultRates, servers: u16, make_host: MakeHost) -> LockServerCounters {
    let mut swarm = Swarm::new(seed, rates, servers, make_host);
    swarm.run(Duration::from_secs(60));
    swarm.calm();
    let everything = |mode| vec![LockExtent { position: 1, range: BlockRange::new(0, 2 * BLOCKS), mode }];
    let mut asked = Vec::new();
    let names: Vec<_> = swarm.hosts().filter(|host| !host.fenced).map(|host| host.name).collect();
    for name in names {
        let host = swarm.host_mut(name);
        host.end_all();
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            asked.push((name, host.ask(everything(mode))));
        }
    }
    // Each host releases what it is granted.
    let mut granted = BTreeSet::new();
    for _ in 0..600 {
        swarm.run(TICK);
        for (name, number) in &asked {
            let host = swarm.host_mut(*name);
            let held = host.held().iter().any(|(held, _)| held == number);
            if held || host.fenced {
                granted.insert((*name, *number));
            }
            if held {
                host.end(*number);
            }
        }
    }
    assert_eq!(asked.len(), granted.len(), "every lock request is granted: {asked:?}, {granted:?}");
    let mut counters = swarm.seen;
    for id in 0..servers {
        let server = swarm.server(LockServerId(id)).expect("it is up again");
        assert_eq!(server.service(), LockService::Serving);
        counters.add(server.counters());
    }
    counters
}

pub fn rates() -> impl Strategy<Value = FaultRates> {
    (0u64..30, 0u64..30, 1u64..2_000, 1u64..2, 0u64..2, 0u64..3).prop_map(
        |(loss, doubling, delay_ms, crash, pause, restart)| FaultRates {
            loss,
            doubling,
            delay_ms,
            crash,
            pause,
            restart,
        },
    )
}

/// A server that is soon tired of hosts that keep locks. Every second start of it calls on node groups.
fn strict(id: LockServerId, start: Generation) -> LockServerConfig {
    let callbacks = Callbacks::ALL[(start.0 as usize + usize::from(id.0)) % 2];
    let evict_after = Some(settings().host_lease / 4);
    LockServerConfig { id, evict_after, settings: Settings { callbacks, ..settings() }, ..config(start) }
}

/// Asserts that swarm runs with hosts of these kinds reach every event that is counted, but a refusal: it needs a conflict of two hosts.
pub fn covers(kinds: &[MakeHost]) {
    let mut counters = LockServerCounters::default();
    let rates = FaultRates { loss: 10, doubling: 20, delay_ms: 300, crash: 1, pause: 1, restart: 1 };
    for seed in 0..10 {
        kinds.iter().for_each(|make_host| counters.add(&swarm(seed, rates, 1, *make_host)));
    }
    let missing = counters.list().into_iter().filter(|(name, count)| *count == 0 && *name != "refused");
    assert_eq!(missing.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&str>::new(), "{:?}", counters.list());
}
