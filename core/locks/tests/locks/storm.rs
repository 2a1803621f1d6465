//! A storm: hosts, a monitor and a lock server in the simulated world. Messages are lost, doubled, late and reordered; hosts and the server
//! crash, and its disk rots.
//!
//! What must hold all the time: two hosts that are not fenced never believe that they hold what conflicts. And
//! when the storm is over, everybody gets what he asks for.

use crate::bench::{OBJECT, config, fence, fenced, settings};
use braid_base::{ArrayId, BlockRange, Generation, LockServerId, NodeId, Now, Rng, Time};
use braid_locks::{DISK_BYTES, LockServer, LockServerCounters, LockService};
use braid_machine::{Effects, Input, Machine};
use braid_wire::{LockAnswer, LockCommand, LockExtent, LockMode, LockReply, LockRequest, LockTerm, Message, Rejection};
use braid_world::{Disk, DiskOptions, Happening, LocalClock, NetworkOptions, Trace, World};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);
const BLOCKS: u64 = 12;
const SERVER: NodeId = NodeId::LockServer(LockServerId(0));
/// The latest message is so late.
const LATEST: Duration = Duration::from_secs(20);
const BOOT: Time = Time(1_000_000_000);

/// Alarms of the world.
const TICKS: u64 = 0;
const SERVER_UP: u64 = 1;

/// How bad it is, in percent.
#[derive(Clone, Copy, Debug)]
struct Weather {
    loss: u64,
    doubling: u64,
    delay_ms: u64,
    /// For each tick.
    crash: u64,
    pause: u64,
    restart: u64,
}

const CALM: Weather = Weather { loss: 0, doubling: 0, delay_ms: 5, crash: 0, pause: 0, restart: 0 };

impl Weather {
    fn network(self) -> NetworkOptions {
        NetworkOptions {
            latency_min: Duration::ZERO,
            latency_max: Duration::from_millis(self.delay_ms),
            in_order: false,
            loss: self.loss * 100,
            double: self.doubling * 100,
            // Now and then very late.
            delay: self.doubling * 25,
            delay_max: LATEST.min(Duration::from_millis(self.delay_ms * 100)),
            ..NetworkOptions::clean()
        }
    }
}

/// Who takes part.
enum Actor {
    Server(Box<LockServer>),
    Host(Host),
    Monitor(Monitor),
}

impl Actor {
    fn host(&self) -> Option<&Host> {
        if let Actor::Host(host) = self { Some(host) } else { None }
    }
}

impl Machine for Actor {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match self {
            Actor::Server(server) => server.step(now, input, out),
            Actor::Host(host) => host.step(now, input, out),
            Actor::Monitor(monitor) => monitor.step(input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Actor::Server(server) => server.deadline(),
            Actor::Host(host) => host.next_tick,
            Actor::Monitor(_) => None,
        }
    }

    fn invariants(&self) {
        if let Actor::Server(server) = self {
            server.invariants();
        }
    }
}

/// Fences whom it is told to.
#[derive(Default)]
struct Monitor {
    fenced: BTreeSet<Generation>,
}

impl Monitor {
    fn step(&mut self, input: Input, out: &mut Effects) {
        let Input::Message { from, message: Message::MonitorRequest(request) } = input else { return };
        let (ticket, hosts) = fence(request);
        self.fenced.extend(hosts);
        out.send(from, fenced(ticket));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Asked,
    Held,
    /// Given back, not yet confirmed.
    Ending,
}

#[derive(Clone, Debug)]
struct Claim {
    extents: Vec<LockExtent>,
    term: LockTerm,
    standing: Standing,
    recalled: bool,
}

/// A host as the messages' documentation asks for.
struct Host {
    name: Generation,
    rng: Rng,
    /// Begins and ends claims as its rng has it.
    is_active: bool,
    next_tick: Option<Time>,
    /// The server that knows all its claims, and the newest that it has heard of.
    start: Generation,
    newest: Generation,
    claims: BTreeMap<u64, Claim>,
    unconfirmed: BTreeSet<u64>,
    dropped: Vec<u64>,
    next_claim: u64,
    fenced: bool,
}

struct Storm {
    rng: Rng,
    weather: Weather,
    world: World<Actor>,
    start: Generation,
    seen: LockServerCounters,
    next_host: u32,
}

impl Storm {
    fn new(seed: u64, weather: Weather) -> Storm {
        let mut rng = Rng::new(seed);
        let world = World::new(ArrayId([1; 16]), rng.next_u64(), weather.network(), Trace::keeping(0));
        let (start, seen) = (Generation(1), LockServerCounters::default());
        let mut storm = Storm { rng, weather, world, start, seen, next_host: 100 };
        let clock = LocalClock::exact(BOOT);
        let options = DiskOptions { latency_min: Duration::ZERO, latency_max: Duration::from_millis(20), space: None };
        let disk = Disk::new(options, storm.rng.fork());
        let server = Actor::Server(Box::new(LockServer::new(config(start))));
        storm.world.add(NodeId::Monitor, Actor::Monitor(Monitor::default()), None, clock.clone());
        storm.world.add(SERVER, server, Some(disk), clock);
        (0..4).for_each(|_| storm.new_host());
        storm.world.alarm(storm.world.now().after(TICK), TICKS);
        storm
    }

    fn new_host(&mut self) {
        self.next_host += 1;
        let name = Generation(self.next_host);
        let host = Host {
            name,
            rng: self.rng.fork(),
            is_active: true,
            next_tick: None,
            start: Generation(0),
            newest: Generation(0),
            claims: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            dropped: Vec::new(),
            next_claim: 0,
            fenced: false,
        };
        self.world.add(NodeId::Host(name), Actor::Host(host), None, LocalClock::exact(BOOT));
        self.world.watch(NodeId::Host(name));
    }

    /// The hosts that are up.
    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.world.up().into_iter().filter_map(|node| self.world.machine(node)?.host())
    }

    fn host_mut(&mut self, name: Generation) -> &mut Host {
        match self.world.machine_mut(NodeId::Host(name)) {
            Some(Actor::Host(host)) => host,
            _ => panic!("{name} is up"),
        }
    }

    fn server(&self) -> Option<&LockServer> {
        match self.world.machine(SERVER)? {
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
        while let Some(happening) = self.world.next(end) {
            match happening {
                Happening::Stepped(_) => self.exclusion(),
                Happening::Alarm(TICKS) => {
                    self.tick();
                    self.world.alarm(self.world.now().after(TICK), TICKS);
                }
                Happening::Alarm(SERVER_UP) => {
                    self.start.0 += 1;
                    self.world.start(SERVER, Actor::Server(Box::new(LockServer::new(config(self.start)))));
                }
                other => panic!("nobody asked: {other:?}"),
            }
        }
    }

    fn server_down(&mut self) {
        let Some(counters) = self.server().map(|server| *server.counters()) else { return };
        self.seen.add(&counters);
        let rots = self.world.disk(SERVER).expect("it has one").is_idle() && self.rng.chance(1, 2);
        self.world.crash(SERVER);
        if rots {
            // One of its two slots rots.
            self.world.disk_mut(SERVER).expect("it has one").rot(0..DISK_BYTES);
        }
        let away = Duration::from_millis(self.rng.below(6_000));
        self.world.alarm(self.world.now().after(away), SERVER_UP);
    }

    /// Two that are not fenced do not hold what conflicts.
    fn exclusion(&self) {
        let fenced = self.fenced();
        let held: Vec<_> = self
            .hosts()
            .filter(|host| !fenced.contains(&host.name))
            .flat_map(|host| host.claims.iter().map(move |(number, claim)| (host.name, *number, claim)))
            .filter(|(_, _, claim)| claim.standing == Standing::Held)
            .collect();
        for (index, one) in held.iter().enumerate() {
            for other in &held[..index] {
                let conflict = one.2.extents.iter().any(|a| {
                    other
                        .2
                        .extents
                        .iter()
                        .any(|b| a.position == b.position && a.mode.conflicts(b.mode) && a.range.overlaps(b.range))
                });
                assert!(!conflict, "both are held: {one:?} and {other:?}");
            }
        }
    }

    fn tick(&mut self) {
        if self.rng.chance(self.weather.restart, 100) {
            self.server_down();
        }
        let well: Vec<_> = self.hosts().filter(|host| !host.fenced).map(|host| host.name).collect();
        for name in well.into_iter().map(NodeId::Host) {
            if self.world.is_stalled(name) {
                continue;
            }
            if self.rng.chance(self.weather.crash, 100) {
                self.world.crash(name);
                self.new_host();
            } else if self.rng.chance(self.weather.pause, 100) {
                self.world.stall(name, Duration::from_millis(self.rng.below(12_000)));
            }
        }
    }

    /// The wind drops. All that is on its way arrives before anything else: late words of the dead would renew their leases.
    fn calm(&mut self) {
        self.weather = CALM;
        self.world.network.set_options(CALM.network());
        let names: Vec<_> = self.hosts().map(|host| host.name).collect();
        for name in names {
            self.host_mut(name).is_active = false;
        }
        self.run(LATEST * 2);
    }
}

impl Host {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
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

    /// Begins and ends claims as its rng has it.
    fn act(&mut self) {
        if self.rng.chance(1, 3) && self.claims.len() < 6 {
            let extents = (0..self.rng.between(1, 3)).map(|_| LockExtent {
                position: self.rng.below(2) as u16,
                range: BlockRange::new(self.rng.below(BLOCKS), self.rng.between(1, 3)),
                mode: if self.rng.chance(1, 2) { LockMode::Shared } else { LockMode::Exclusive },
            });
            let extents: Vec<_> = extents.collect();
            let touches = |claim: &Claim| {
                claim
                    .extents
                    .iter()
                    .any(|a| extents.iter().any(|b| a.position == b.position && a.range.overlaps(b.range)))
            };
            // Its own claims are apart, so that only those of different hosts have to be compared.
            if !self.claims.values().any(|claim| claim.standing != Standing::Ending && touches(claim)) {
                let term = match self.rng.below(3) {
                    0 => LockTerm::Kept,
                    dice => LockTerm::Transaction { impatient: dice == 1 },
                };
                self.ask(extents, term);
            }
        }
        let numbers: Vec<_> = self.claims.keys().copied().collect();
        for number in numbers {
            let claim = &self.claims[&number];
            match (claim.standing, claim.term) {
                // A user gave up, or another server refused; or a transaction is over.
                (Standing::Asked, _) if self.rng.chance(1, 40) => self.end(number),
                (Standing::Held, LockTerm::Transaction { .. }) if self.rng.chance(1, 5) => self.end(number),
                (Standing::Held, _) if self.rng.chance(1, 80) => {
                    self.claims.remove(&number);
                    self.unconfirmed.remove(&number);
                    self.dropped.push(number);
                }
                _ => {}
            }
        }
        self.check_complete();
    }

    fn ask(&mut self, extents: Vec<LockExtent>, term: LockTerm) -> u64 {
        self.next_claim += 1;
        let claim = Claim { extents, term, standing: Standing::Asked, recalled: false };
        self.claims.insert(self.next_claim, claim);
        self.next_claim
    }

    fn end(&mut self, number: u64) {
        self.claims.get_mut(&number).expect("it is there").standing = Standing::Ending;
        self.unconfirmed.remove(&number);
    }

    fn check_complete(&mut self) {
        if self.unconfirmed.is_empty() {
            self.start = self.newest;
        }
    }

    /// What it has to say, again and again.
    fn say_all(&mut self) -> Vec<LockCommand> {
        let mut said = vec![LockCommand::Heartbeat];
        let recalled =
            |claim: &Claim| claim.recalled && claim.standing == Standing::Held && claim.term == LockTerm::Kept;
        let claims: Vec<_> =
            self.claims.iter().filter(|(_, claim)| recalled(claim)).map(|(number, _)| *number).collect();
        for number in &claims {
            self.claims.remove(number);
            self.unconfirmed.remove(number);
        }
        if !claims.is_empty() {
            self.check_complete();
            said.push(LockCommand::Yield { claims });
        }
        for (&number, claim) in &self.claims {
            let lock = |term| LockCommand::Lock { claim: number, object: OBJECT, extents: claim.extents.clone(), term };
            match claim.standing {
                Standing::Asked => said.push(lock(claim.term)),
                Standing::Ending => said.push(LockCommand::Unlock { claim: number }),
                Standing::Held if self.unconfirmed.contains(&number) => {
                    said.push(lock(LockTerm::Held { start: self.newest, kept: claim.term == LockTerm::Kept }));
                }
                Standing::Held => {}
            }
        }
        said
    }

    fn hear(&mut self, answer: LockAnswer) -> Option<LockCommand> {
        if answer.start < self.newest {
            return None;
        }
        if answer.start > self.newest {
            self.newest = answer.start;
            let held = self.claims.iter().filter(|(_, claim)| claim.standing == Standing::Held);
            self.unconfirmed = held.map(|(number, _)| *number).collect();
            self.check_complete();
        }
        match answer.reply {
            LockReply::Heartbeat => None,
            LockReply::Granted { claim, .. } => match self.claims.get_mut(&claim) {
                None => Some(LockCommand::Unlock { claim }),
                Some(known) => {
                    if known.standing == Standing::Asked {
                        known.standing = Standing::Held;
                    }
                    self.unconfirmed.remove(&claim);
                    self.check_complete();
                    None
                }
            },
            LockReply::Unlocked { claim } => {
                if self.claims.get(&claim).is_some_and(|known| known.standing == Standing::Ending) {
                    self.claims.remove(&claim);
                }
                None
            }
            LockReply::Recall { claims } => {
                let mut unknown = Vec::new();
                for number in claims {
                    match self.claims.get_mut(&number) {
                        None => unknown.push(number),
                        // In use for a while yet, perhaps.
                        Some(known) => known.recalled |= self.rng.chance(1, 2),
                    }
                }
                (!unknown.is_empty()).then_some(LockCommand::Yield { claims: unknown })
            }
            LockReply::Refused { claim, .. } => {
                if self.claims.get(&claim).is_some_and(|known| known.standing == Standing::Asked) {
                    self.claims.remove(&claim);
                }
                None
            }
            LockReply::Rejected { rejection } => {
                assert_eq!(rejection, Rejection::Fenced);
                self.fenced = true;
                self.claims.clear();
                None
            }
        }
    }
}

/// A storm, then calm; what the servers have counted.
fn storm(seed: u64, weather: Weather) -> LockServerCounters {
    let mut storm = Storm::new(seed, weather);
    storm.run(Duration::from_secs(60));
    storm.calm();
    let everything = |mode| vec![LockExtent { position: 1, range: BlockRange::new(0, 2 * BLOCKS), mode }];
    let mut asked = Vec::new();
    let names: Vec<_> = storm.hosts().filter(|host| !host.fenced).map(|host| host.name).collect();
    for host in names {
        let host = storm.host_mut(host);
        let held: Vec<_> = host.claims.keys().copied().collect();
        held.into_iter().for_each(|number| host.end(number));
        host.check_complete();
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            asked.push((host.name, host.ask(everything(mode), LockTerm::Transaction { impatient: false })));
        }
    }
    // Each gives back what it has got.
    let mut granted = BTreeSet::new();
    for _ in 0..600 {
        storm.run(TICK);
        for (name, number) in &asked {
            let host = storm.host_mut(*name);
            let held = host.claims.get(number).is_some_and(|claim| claim.standing == Standing::Held);
            if held || host.fenced {
                granted.insert((*name, *number));
            }
            if held {
                host.end(*number);
            }
        }
    }
    assert_eq!(asked.len(), granted.len(), "everybody gets what he asks for: {asked:?}, {granted:?}");
    let server = storm.server().expect("it is up again");
    assert_eq!(server.service(), LockService::Serving);
    let mut counters = storm.seen;
    counters.add(server.counters());
    counters
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u64..30, 0u64..30, 1u64..2_000, 1u64..2, 0u64..2, 0u64..3).prop_map(
        |(loss, doubling, delay_ms, crash, pause, restart)| Weather { loss, doubling, delay_ms, crash, pause, restart },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn locks_exclude_and_are_granted_whatever_the_weather(seed: u64, weather in weather()) {
        storm(seed, weather);
    }
}

/// The storm does what it is there for.
#[test]
fn everything_happens_in_storms() {
    let mut counters = LockServerCounters::default();
    let weather = Weather { loss: 10, doubling: 20, delay_ms: 300, crash: 1, pause: 1, restart: 1 };
    for seed in 0..10 {
        counters.add(&storm(seed, weather));
    }
    let rare = ["refused"];
    let missing: Vec<_> =
        counters.list().into_iter().filter(|(name, count)| *count == 0 && !rare.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {:?}", counters.list());
    assert!(settings().host_lease > TICK * 10, "hosts that are well keep their leases");
}
