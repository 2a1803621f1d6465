//! A storm: hosts, a monitor and a lock server whose messages are lost, doubled, late and reordered; hosts and the server crash, and its disk rots.
//!
//! What must hold all the time: two hosts that are not fenced never believe that they hold what conflicts. And
//! when the storm is over, everybody gets what he asks for.

use crate::bench::{OBJECT, config, fenced, settings};
use braid_base::{BlockRange, Clock, Generation, NodeId, Now, Rng, Time};
use braid_locks::{DISK_BYTES, LockServer, LockServerCounters, LockService};
use braid_machine::{DiskCommand, DiskResult, DiskTag, Effect, Effects, Input, Machine};
use braid_wire::{
    LockAnswer, LockCommand, LockExtent, LockMode, LockReply, LockRequest, LockTerm, Message, MonitorCommand, Rejection,
};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);
const BLOCKS: u64 = 12;
const SERVER: NodeId = NodeId::LockServer(braid_base::LockServerId(0));

/// What the dice decide, in percent.
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
    /// The server that knows all its claims, and the newest that it has heard of.
    start: Generation,
    newest: Generation,
    claims: BTreeMap<u64, Claim>,
    unconfirmed: BTreeSet<u64>,
    dropped: Vec<u64>,
    next_claim: u64,
    /// Says and hears nothing until then; a crashed one for ever.
    away_until: Option<Time>,
    fenced: bool,
}

enum Event {
    Deliver { from: NodeId, to: NodeId, message: Message },
    Disk { start: Generation, tag: DiskTag, command: DiskCommand },
    Tick,
    ServerUp,
}

struct Storm {
    rng: Rng,
    weather: Weather,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    server: Option<LockServer>,
    start: Generation,
    disk: Vec<u8>,
    hosts: BTreeMap<Generation, Host>,
    /// Whom the monitor has fenced.
    fenced: BTreeSet<Generation>,
    seen: LockServerCounters,
    next_host: u32,
}

impl Storm {
    fn new(seed: u64, weather: Weather) -> Storm {
        let mut storm = Storm {
            rng: Rng::new(seed),
            weather,
            now: Time(1_000_000_000),
            events: BTreeMap::new(),
            next_event: 0,
            server: None,
            start: Generation(0),
            disk: vec![0; DISK_BYTES as usize],
            hosts: BTreeMap::new(),
            fenced: BTreeSet::new(),
            seen: LockServerCounters::default(),
            next_host: 100,
        };
        (0..4).for_each(|_| storm.new_host());
        storm.server_up();
        storm.at(storm.now, Event::Tick);
        storm
    }

    fn new_host(&mut self) {
        self.next_host += 1;
        let name = Generation(self.next_host);
        let host = Host {
            name,
            start: Generation(0),
            newest: Generation(0),
            claims: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            dropped: Vec::new(),
            next_claim: 0,
            away_until: None,
            fenced: false,
        };
        self.hosts.insert(name, host);
    }

    fn at(&mut self, time: Time, event: Event) {
        self.next_event += 1;
        self.events.insert((time, self.next_event), event);
    }

    fn run(&mut self, span: Duration) {
        let end = self.now.after(span);
        loop {
            let next = self.events.first_key_value().map(|((time, _), _)| *time);
            let deadline = self.server.as_ref().and_then(Machine::deadline).map(|deadline| deadline.max(self.now));
            let time = next.into_iter().chain(deadline).min().expect("ticks follow ticks");
            if time > end {
                self.now = end;
                return;
            }
            self.now = time;
            if next == Some(time) {
                let (_, event) = self.events.pop_first().expect("just seen");
                self.on_event(event);
            } else {
                self.step(Input::Wake);
            }
            self.exclusion();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.tick();
                self.at(self.now.after(TICK), Event::Tick);
            }
            Event::ServerUp => self.server_up(),
            Event::Disk { start, tag, command } if start == self.start && self.server.is_some() => {
                let result = self.perform(command, true);
                self.step(Input::DiskDone { tag, result });
            }
            // It was in flight when the server crashed: done or not, or torn.
            Event::Disk { command, .. } => {
                self.perform(command, false);
            }
            Event::Deliver { from, to: SERVER, message } => self.step(Input::Message { from, message }),
            Event::Deliver { to: NodeId::Monitor, message, .. } => self.on_monitor(message),
            Event::Deliver { to: NodeId::Host(host), message: Message::LockAnswer(answer), .. } => {
                self.on_host(host, answer);
            }
            Event::Deliver { to, message, .. } => panic!("{message:?} to {to}"),
        }
    }

    fn perform(&mut self, command: DiskCommand, whole: bool) -> DiskResult {
        match command {
            DiskCommand::Read { offset, length } => {
                DiskResult::Read(Ok(Bytes::copy_from_slice(&self.disk[offset as usize..][..length])))
            }
            DiskCommand::Write { offset, data, .. } => {
                let data = data.concat();
                let length = if whole { data.len() } else { self.rng.between(0, 16) as usize * 512 };
                self.disk[offset as usize..][..length].copy_from_slice(&data[..length]);
                DiskResult::Done(Ok(()))
            }
            other => panic!("a lock server does not do this: {other:?}"),
        }
    }

    fn server_up(&mut self) {
        self.start.0 += 1;
        self.server = Some(LockServer::new(config(self.start)));
        self.step(Input::Start);
    }

    fn server_down(&mut self) {
        let Some(server) = self.server.take() else { return };
        self.seen.add(server.counters());
        // Its disk commands end before it is back.
        let flying: Vec<_> =
            self.events.iter().filter(|(_, event)| matches!(event, Event::Disk { .. })).map(|(key, _)| *key).collect();
        if flying.is_empty() && self.rng.chance(1, 2) {
            // One of its two slots rots.
            let at = self.rng.below(DISK_BYTES) as usize;
            self.disk[at] ^= 1;
        }
        for key in flying {
            let event = self.events.remove(&key).expect("just listed");
            self.on_event(event);
        }
        let away = Duration::from_millis(self.rng.below(6_000));
        self.at(self.now.after(away), Event::ServerUp);
    }

    fn step(&mut self, input: Input) {
        let Some(server) = &mut self.server else { return };
        let mut effects = Effects::new();
        server.step(Now { time: self.now, clock: Clock(0) }, input, &mut effects);
        server.invariants();
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => {
                    let time = self.now.after(Duration::from_micros(self.rng.below(20_000)));
                    self.at(time, Event::Disk { start: self.start, tag, command });
                }
                Effect::Send { to, message } => self.send(SERVER, to, message),
                Effect::Reply { .. } => panic!("nobody asked"),
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        if self.rng.chance(self.weather.loss, 100) {
            return;
        }
        let copies = if self.rng.chance(self.weather.doubling, 100) { 2 } else { 1 };
        for _ in 0..copies {
            // Now and then very late.
            let stretch = if self.rng.chance(self.weather.doubling, 400) { 100 } else { 1 };
            let delay = Duration::from_micros(self.rng.below(self.weather.delay_ms * 1_000 * stretch));
            self.at(self.now.after(delay), Event::Deliver { from, to, message: message.clone() });
        }
    }

    fn on_monitor(&mut self, message: Message) {
        let Message::MonitorRequest(request) = message else { panic!("not for the monitor: {message:?}") };
        let MonitorCommand::Fence { ticket, also, .. } = request.command else {
            panic!("a lock server only fences");
        };
        self.fenced.extend(also);
        self.send(NodeId::Monitor, SERVER, fenced(ticket));
    }

    /// Two that are not fenced do not hold what conflicts.
    fn exclusion(&self) {
        let held: Vec<_> = self
            .hosts
            .values()
            .filter(|host| !self.fenced.contains(&host.name))
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
        let names: Vec<_> = self.hosts.keys().copied().collect();
        for name in names {
            let host = self.hosts.get_mut(&name).expect("just listed");
            if host.away_until.is_some_and(|until| until > self.now) || host.fenced {
                continue;
            }
            host.away_until = None;
            if self.rng.chance(self.weather.crash, 100) {
                host.away_until = Some(Time(u64::MAX));
                self.new_host();
                continue;
            }
            if self.rng.chance(self.weather.pause, 100) {
                host.away_until = Some(self.now.after(Duration::from_millis(self.rng.below(12_000))));
                continue;
            }
            if self.weather.crash > 0 {
                host.act(&mut self.rng);
            }
            let requests: Vec<_> = host.say_all().into_iter().map(|command| host.request(command)).collect();
            for request in requests {
                self.send(NodeId::Host(name), SERVER, Message::LockRequest(request));
            }
        }
    }

    fn on_host(&mut self, name: Generation, answer: LockAnswer) {
        let host = self.hosts.get_mut(&name).expect("it was made");
        if host.fenced || host.away_until.is_some_and(|until| until > self.now) {
            return;
        }
        if let Some(command) = host.hear(answer, &mut self.rng) {
            let request = host.request(command);
            self.send(NodeId::Host(name), SERVER, Message::LockRequest(request));
        }
    }
}

impl Host {
    fn request(&mut self, command: LockCommand) -> LockRequest {
        let dropped = std::mem::take(&mut self.dropped);
        LockRequest { host: self.name, start: self.start, dropped, command }
    }

    /// Begins and ends claims as the dice will.
    fn act(&mut self, rng: &mut Rng) {
        if rng.chance(1, 3) && self.claims.len() < 6 {
            let extents = (0..rng.between(1, 3)).map(|_| LockExtent {
                position: rng.below(2) as u16,
                range: BlockRange::new(rng.below(BLOCKS), rng.between(1, 3)),
                mode: if rng.chance(1, 2) { LockMode::Shared } else { LockMode::Exclusive },
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
                let term = match rng.below(3) {
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
                (Standing::Asked, _) if rng.chance(1, 40) => self.end(number),
                (Standing::Held, LockTerm::Transaction { .. }) if rng.chance(1, 5) => self.end(number),
                (Standing::Held, _) if rng.chance(1, 80) => {
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

    fn hear(&mut self, answer: LockAnswer, rng: &mut Rng) -> Option<LockCommand> {
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
                        Some(known) => known.recalled |= rng.chance(1, 2),
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
    // What is still in the air is lost: late words of the dead would renew their leases.
    storm.events.retain(|_, event| !matches!(event, Event::Deliver { .. }));
    storm.weather = CALM;
    let everything = |mode| vec![LockExtent { position: 1, range: BlockRange::new(0, 2 * BLOCKS), mode }];
    let mut asked = Vec::new();
    for host in storm.hosts.values_mut().filter(|host| !host.fenced && host.away_until != Some(Time(u64::MAX))) {
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
            let host = storm.hosts.get_mut(name).expect("it was made");
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
    let server = storm.server.as_ref().expect("it is up again");
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
