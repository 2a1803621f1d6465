//! Swarm runs: hosts, a monitor and lock servers in the simulated world. The hosts do what the documentation of the messages demands, or
//! contain the real client ([`crate::clients`]). Messages are lost, doubled, delayed and
//! reordered; hosts and servers crash, and the servers' disks are corrupted.
//!
//! Safety: two hosts that are not fenced never believe that they hold conflicting locks. Liveness: after the faults
//! have ended, every lock request is granted.

use crate::bench::*;
use braid_base::{ArrayId, Callbacks, Rng};
use braid_locks::LockServerCounters;
use braid_machine::one_type::step_server;
use braid_machine::{EffectsOf, HostOutcome, Never, OneDisk};
use braid_world::{Disk, DiskOptions, LocalClock, NetworkOptions, Trace, World, WorldEvent};
use proptest::prelude::*;

pub const TICK: Duration = Duration::from_millis(100);
pub const BLOCKS: u64 = 12;
pub const SERVER: NodeId = NodeId::LockServer(LockServerId(0));
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
    Host(Box<dyn Locker>),
    Monitor(Monitor),
}

/// A host of a swarm.
pub trait Locker {
    fn name(&self) -> Generation;
    fn is_fenced(&self) -> bool;
    fn next_wake(&self) -> Option<Time>;
    fn step(&mut self, now: Now, input: Input, out: &mut EffectsOf<Actor>);
    /// What it believes to hold: the numbers of locks, and their extents. The locks of one host need not be compared.
    fn held(&self) -> Vec<(u64, Vec<LockExtent>)>;
    /// Requests and releases nothing by itself any more.
    fn calm(&mut self);
    fn ask(&mut self, extents: Vec<LockExtent>) -> u64;
    fn end(&mut self, number: u64);
    /// Ends all locks.
    fn end_all(&mut self);
}

impl Actor {
    fn host(&self) -> Option<&dyn Locker> {
        if let Actor::Host(host) = self { Some(&**host) } else { None }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockPhase {
    Requested,
    Held,
    /// Released, not yet confirmed.
    Ending,
}

#[derive(Clone, Debug)]
struct KnownLock {
    extents: Vec<LockExtent>,
    term: LockTerm,
    phase: LockPhase,
    revoked: bool,
}

/// The pairs of extents that have blocks in common.
pub fn touching<'a>(
    ones: &'a [LockExtent],
    others: &'a [LockExtent],
) -> impl Iterator<Item = (&'a LockExtent, &'a LockExtent)> {
    let pairs = ones.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.position == other.position && one.range.overlaps(other.range))
}

/// A host that does what the documentation of the messages demands.
struct Host {
    name: Generation,
    rng: Rng,
    /// Requests and releases locks at random.
    is_active: bool,
    next_tick: Option<Time>,
    /// The start that knows all its locks, and the newest start that it has heard of.
    start: Generation,
    newest: Generation,
    lock_ids: BTreeMap<u64, KnownLock>,
    unconfirmed: BTreeSet<u64>,
    dropped: Vec<u64>,
    next_lock_id: u64,
    fenced: bool,
}

struct Swarm {
    servers: u16,
    make_host: fn(Generation, Rng) -> Box<dyn Locker>,
    rng: Rng,
    rates: FaultRates,
    world: World<Actor>,
    start: Generation,
    seen: LockServerCounters,
    next_host: u32,
}

impl Swarm {
    fn new(seed: u64, rates: FaultRates, servers: u16, make_host: fn(Generation, Rng) -> Box<dyn Locker>) -> Swarm {
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
        self.world.add(NodeId::Host(name), Actor::Host(host), None, LocalClock::exact(BOOT));
        self.world.watch(NodeId::Host(name));
    }

    fn hosts(&self) -> impl Iterator<Item = &dyn Locker> {
        self.world.up().into_iter().filter_map(|node| self.world.machine(node)?.host())
    }

    fn host_mut(&mut self, name: Generation) -> &mut dyn Locker {
        match self.world.machine_mut(NodeId::Host(name)) {
            Some(Actor::Host(host)) => &mut **host,
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
        let well = self.hosts().filter(|host| !fenced.contains(&host.name()));
        let held: Vec<_> = well.flat_map(|host| host.held().into_iter().map(move |held| (host.name(), held))).collect();
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
        let well: Vec<_> = self.hosts().filter(|host| !host.is_fenced()).map(|host| host.name()).collect();
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
        let names: Vec<_> = self.hosts().map(|host| host.name()).collect();
        for name in names {
            self.host_mut(name).calm();
        }
        self.run(LATEST * 2);
    }
}

impl Locker for Host {
    fn name(&self) -> Generation {
        self.name
    }

    fn is_fenced(&self) -> bool {
        self.fenced
    }

    fn next_wake(&self) -> Option<Time> {
        self.next_tick
    }

    fn held(&self) -> Vec<(u64, Vec<LockExtent>)> {
        let held = self.lock_ids.iter().filter(|(_, lock_id)| lock_id.phase == LockPhase::Held);
        held.map(|(number, lock_id)| (*number, lock_id.extents.clone())).collect()
    }

    fn calm(&mut self) {
        self.is_active = false;
    }

    fn ask(&mut self, extents: Vec<LockExtent>) -> u64 {
        self.request(extents, LockTerm::Transaction { impatient: false })
    }

    fn end(&mut self, number: u64) {
        self.lock_ids.get_mut(&number).expect("it is there").phase = LockPhase::Ending;
        self.unconfirmed.remove(&number);
    }

    fn end_all(&mut self) {
        let held: Vec<_> = self.lock_ids.keys().copied().collect();
        held.into_iter().for_each(|number| self.end(number));
        self.check_complete();
    }

    fn step(&mut self, now: Now, input: Input, out: &mut EffectsOf<Actor>) {
        if self.fenced {
            return;
        }
        let said = match input {
            Input::Message { message: Message::LockAnswer(answer), .. } => self.hear(answer).into_iter().collect(),
            _ => {
                self.next_tick = Some(now.time.after(TICK));
                if self.is_active {
                    self.act();
                }
                self.say_all()
            }
        };
        for command in said {
            let dropped = std::mem::take(&mut self.dropped);
            let request = LockRequest { host: self.name, start: self.start, dropped, command };
            out.send(SERVER, Message::LockRequest(request));
        }
        if self.fenced {
            self.next_tick = None;
        }
    }
}

impl Host {
    fn boxed(name: Generation, rng: Rng) -> Box<dyn Locker> {
        Box::new(Host {
            name,
            rng,
            is_active: true,
            next_tick: None,
            start: Generation(0),
            newest: Generation(0),
            lock_ids: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            dropped: Vec::new(),
            next_lock_id: 0,
            fenced: false,
        })
    }

    /// Requests and releases locks at random.
    fn act(&mut self) {
        if self.rng.chance(1, 3) && self.lock_ids.len() < 6 {
            let extents = (0..self.rng.between(1, 3)).map(|_| LockExtent {
                position: self.rng.below(2) as u16,
                range: BlockRange::new(self.rng.below(BLOCKS), self.rng.between(1, 3)),
                mode: if self.rng.chance(1, 2) { LockMode::Shared } else { LockMode::Exclusive },
            });
            let extents: Vec<_> = extents.collect();
            let touches = |lock_id: &KnownLock| touching(&lock_id.extents, &extents).next().is_some();
            // The locks of one host do not touch, so that only those of different hosts have to be compared.
            if !self.lock_ids.values().any(|lock_id| lock_id.phase != LockPhase::Ending && touches(lock_id)) {
                let term = match self.rng.below(3) {
                    0 => LockTerm::Cached,
                    rng => LockTerm::Transaction { impatient: rng == 1 },
                };
                self.request(extents, term);
            }
        }
        let numbers: Vec<_> = self.lock_ids.keys().copied().collect();
        for number in numbers {
            let lock_id = &self.lock_ids[&number];
            match (lock_id.phase, lock_id.term) {
                // The user abandoned its request, or another server refused; or a transaction is over.
                (LockPhase::Requested, _) if self.rng.chance(1, 40) => self.end(number),
                (LockPhase::Held, LockTerm::Transaction { .. }) if self.rng.chance(1, 5) => self.end(number),
                (LockPhase::Held, _) if self.rng.chance(1, 80) => {
                    self.lock_ids.remove(&number);
                    self.unconfirmed.remove(&number);
                    self.dropped.push(number);
                }
                _ => {}
            }
        }
        self.check_complete();
    }

    fn request(&mut self, extents: Vec<LockExtent>, term: LockTerm) -> u64 {
        self.next_lock_id += 1;
        let lock_id = KnownLock { extents, term, phase: LockPhase::Requested, revoked: false };
        self.lock_ids.insert(self.next_lock_id, lock_id);
        self.next_lock_id
    }

    fn check_complete(&mut self) {
        if self.unconfirmed.is_empty() {
            self.start = self.newest;
        }
    }

    /// The messages that it repeats on each tick.
    fn say_all(&mut self) -> Vec<LockCommand> {
        let mut said = vec![LockCommand::Heartbeat { sent: Time(0) }];
        let revoked = |lock_id: &KnownLock| {
            lock_id.revoked && lock_id.phase == LockPhase::Held && lock_id.term == LockTerm::Cached
        };
        let lock_ids: Vec<_> =
            self.lock_ids.iter().filter(|(_, lock_id)| revoked(lock_id)).map(|(number, _)| *number).collect();
        for number in &lock_ids {
            self.lock_ids.remove(number);
            self.unconfirmed.remove(number);
        }
        if !lock_ids.is_empty() {
            self.check_complete();
            said.push(LockCommand::Yield { lock_ids });
        }
        for (&number, lock_id) in &self.lock_ids {
            let lock =
                |term| LockCommand::Lock { lock_id: number, object: OBJECT, extents: lock_id.extents.clone(), term };
            match lock_id.phase {
                LockPhase::Requested => said.push(lock(lock_id.term)),
                LockPhase::Ending => said.push(LockCommand::Unlock { lock_id: number }),
                LockPhase::Held if self.unconfirmed.contains(&number) => {
                    said.push(lock(LockTerm::Held { start: self.newest, cached: lock_id.term == LockTerm::Cached }));
                }
                LockPhase::Held => {}
            }
        }
        said
    }

    /// Forgets a lock in this phase. Nothing is said of it any more.
    fn forget(&mut self, number: u64, phase: LockPhase) -> Option<LockCommand> {
        self.lock_ids.retain(|other, known| *other != number || known.phase != phase);
        None
    }

    fn hear(&mut self, answer: LockAnswer) -> Option<LockCommand> {
        if answer.start < self.newest {
            return None;
        }
        if answer.start > self.newest {
            self.newest = answer.start;
            let held = self.lock_ids.iter().filter(|(_, lock_id)| lock_id.phase == LockPhase::Held);
            self.unconfirmed = held.map(|(number, _)| *number).collect();
            self.check_complete();
        }
        match answer.reply.clone() {
            LockReply::Heartbeat { .. } => None,
            LockReply::Granted { lock_id, .. } => match self.lock_ids.get_mut(&lock_id) {
                None => Some(LockCommand::Unlock { lock_id }),
                Some(known) => {
                    if known.phase == LockPhase::Requested {
                        known.phase = LockPhase::Held;
                    }
                    self.unconfirmed.remove(&lock_id);
                    self.check_complete();
                    None
                }
            },
            LockReply::Unlocked { lock_id } => self.forget(lock_id, LockPhase::Ending),
            LockReply::Revoke { lock_ids } => {
                let mut unknown = Vec::new();
                for number in lock_ids {
                    match self.lock_ids.get_mut(&number) {
                        None => unknown.push(number),
                        // The lock may be in use for a while yet.
                        Some(known) => known.revoked |= self.rng.chance(1, 2),
                    }
                }
                (!unknown.is_empty()).then_some(LockCommand::Yield { lock_ids: unknown })
            }
            LockReply::GrantedRange { .. }
            | LockReply::Recall { .. }
            | LockReply::RecallGroup { .. }
            | LockReply::Surveyed { .. } => {
                panic!("it asks for none of this: {answer:?}")
            }
            LockReply::Refused { lock_id, .. } => self.forget(lock_id, LockPhase::Requested),
            LockReply::Rejected { rejection } => {
                assert_eq!(rejection, Rejection::Fenced);
                self.fenced = true;
                self.lock_ids.clear();
                None
            }
        }
    }
}

/// Runs with faults and then without. Returns the counters of all servers.
pub fn swarm(
    seed: u64,
    rates: FaultRates,
    servers: u16,
    make_host: fn(Generation, Rng) -> Box<dyn Locker>,
) -> LockServerCounters {
    let mut swarm = Swarm::new(seed, rates, servers, make_host);
    swarm.run(Duration::from_secs(60));
    swarm.calm();
    let everything = |mode| vec![LockExtent { position: 1, range: BlockRange::new(0, 2 * BLOCKS), mode }];
    let mut asked = Vec::new();
    let names: Vec<_> = swarm.hosts().filter(|host| !host.is_fenced()).map(|host| host.name()).collect();
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
            if held || host.is_fenced() {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn locks_exclude_and_are_granted_whatever_the_weather(seed: u64, rates in rates()) {
        swarm(seed, rates, 1, Host::boxed);
    }
}

/// Swarm runs reach every event that is counted.
#[test]
fn swarm_runs_cover_every_event() {
    covers(1, Host::boxed, &["refused", "recalls", "shrunk"]);
    assert!(settings().host_lease > TICK * 10, "hosts without faults keep their leases");
}

/// Asserts that swarm runs with such hosts reach every event that is counted, but some.
pub fn covers(servers: u16, make_host: fn(Generation, Rng) -> Box<dyn Locker>, rare: &[&str]) {
    let mut counters = LockServerCounters::default();
    let rates = FaultRates { loss: 10, doubling: 20, delay_ms: 300, crash: 1, pause: 1, restart: 1 };
    for seed in 0..10 {
        counters.add(&swarm(seed, rates, servers, make_host));
    }
    let missing = counters.list().into_iter().filter(|(name, count)| *count == 0 && !rare.contains(name));
    assert_eq!(missing.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&str>::new(), "{:?}", counters.list());
}
