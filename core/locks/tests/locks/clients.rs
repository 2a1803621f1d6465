//! Swarm runs with the real client: holders on several hosts request locks and release them at random. The locks are those of transactions, or
//! cached; or those of ranges, which are kept in parts and promoted.
//!
//! Safety: no two holders, of one host or of several, ever have conflicting locks; no two hosts believe that they may use conflicting parts.

use crate::bench::*;
use crate::swarm::{Actor, BLOCKS, TICK, covers, rates, swarm, touching};
use braid_base::{RangeDivision, Rng};
use braid_locks::client::{Acquisition, Ctx, Event, LockClient, LockClientConfig, Part, Retention, Wanted};
use braid_machine::{EffectsOf, HostEffects};
use proptest::prelude::*;

const PART: Part = Part(1);

/// A host of a swarm.
pub struct ClientHost {
    pub name: Generation,
    client: LockClient,
    retention: Retention,
    settings: Settings,
    rng: Rng,
    is_active: bool,
    next_tick: Option<Time>,
    holders: BTreeMap<u64, Holder>,
    /// Holders and requests have numbers of their own.
    next_holder: u64,
    next_number: u64,
    /// Where a program that proceeds in steps of two blocks is.
    place: u64,
    pub fenced: bool,
    /// What is to be done in the next step.
    asked: Vec<(u64, Vec<LockExtent>, Vec<u64>)>,
    ended: Vec<u64>,
}

pub type MakeHost = fn(Generation, Rng) -> ClientHost;

const IN_PARTS: Retention = Retention::CachedInParts { width: 0 };

struct Holder {
    extents: Vec<LockExtent>,
    has_all: bool,
    /// Others want it.
    revoked: bool,
    /// The holders that it promotes.
    over: Vec<u64>,
}

impl ClientHost {
    fn of_transactions(name: Generation, rng: Rng) -> ClientHost {
        ClientHost::of_servers(1, RangeDivision::default(), Retention::Released, name, rng)
    }

    fn caching(name: Generation, rng: Rng) -> ClientHost {
        ClientHost::of_servers(1, RangeDivision::default(), Retention::Cached, name, rng)
    }

    fn of_ranges(name: Generation, rng: Rng) -> ClientHost {
        ClientHost::of_servers(1, RangeDivision::default(), IN_PARTS, name, rng)
    }

    fn dealt(name: Generation, rng: Rng) -> ClientHost {
        ClientHost::of_servers(3, RangeDivision::RoundRobin(2), IN_PARTS, name, rng)
    }

    fn hashed(name: Generation, rng: Rng) -> ClientHost {
        ClientHost::of_servers(3, RangeDivision::Hash(1), IN_PARTS, name, rng)
    }

    fn of_servers(
        servers: u16,
        range_division: RangeDivision,
        retention: Retention,
        name: Generation,
        rng: Rng,
    ) -> ClientHost {
        let servers = (0..servers).map(LockServerId).collect();
        let config = LockClientConfig { host: name, servers, acquisition: Acquisition::Ordered };
        ClientHost {
            name,
            client: LockClient::new(config),
            retention,
            settings: Settings { range_division, ..settings() },
            rng,
            is_active: true,
            next_tick: None,
            holders: BTreeMap::new(),
            next_holder: 0,
            next_number: 0,
            place: 0,
            fenced: false,
            asked: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Requests, promotes and releases locks at random.
    fn act(&mut self) {
        if self.rng.chance(1, 3) && self.holders.len() < 6 {
            let extents: Vec<_> = (0..self.rng.between(1, 3)).map(|_| self.any_extent()).collect();
            self.want(extents, Vec::new());
        } else if self.rng.chance(1, 3) && self.holders.len() < 6 {
            self.place = (self.place + 2) % (2 * BLOCKS);
            self.want(extents(LockMode::Exclusive, &[(self.place, 1)]), Vec::new());
        }
        for (number, holder) in &self.holders {
            let is_promoting = self.asked.iter().any(|(_, _, over)| over.contains(number));
            if !holder.has_all {
                // Its program has waited for long enough.
                if self.rng.chance(1, 60) {
                    self.ended.push(*number);
                }
            } else if self.rng.chance(if holder.revoked { 2 } else { 1 }, 5) {
                self.ended.push(*number);
            } else if !is_promoting && self.retention == IN_PARTS && self.rng.chance(1, 8) {
                let exclusive = |extent: &LockExtent| LockExtent { mode: LockMode::Exclusive, ..*extent };
                self.next_holder += 1;
                let extents: Vec<_> = holder.extents.iter().map(exclusive).collect();
                self.asked.push((self.next_holder, extents, vec![*number]));
            }
        }
    }

    fn any_extent(&mut self) -> LockExtent {
        LockExtent {
            position: self.rng.below(2) as u16,
            range: BlockRange::new(self.rng.below(BLOCKS), self.rng.between(1, 3)),
            mode: if self.rng.chance(1, 2) { LockMode::Shared } else { LockMode::Exclusive },
        }
    }

    fn want(&mut self, extents: Vec<LockExtent>, over: Vec<u64>) -> u64 {
        self.next_holder += 1;
        self.asked.push((self.next_holder, extents, over));
        self.next_holder
    }

    /// Asserts that holders of this host have no conflicting locks, but those that were promoted.
    fn exclusion(&self) {
        let held: Vec<_> = self.holders.iter().filter(|(_, holder)| holder.has_all).collect();
        for (index, (number, one)) in held.iter().enumerate() {
            for (other_number, other) in &held[..index] {
                let is_promoted = one.over.contains(other_number) || other.over.contains(number);
                let conflict = touching(&one.extents, &other.extents).any(|(a, b)| a.mode.conflicts(b.mode));
                assert!(is_promoted || !conflict, "conflicting locks on {}: {number} and {other_number}", self.name);
            }
        }
    }

    /// Handles what the client tells. A holder that promotes gives up what it has as soon as another wants that.
    fn listen(&mut self, cx: &mut Ctx, client: &mut LockClient) {
        loop {
            let Some(event) = client.of_part(PART).pop_event() else {
                match client.take_turn(cx) {
                    true => continue,
                    false => return,
                }
            };
            match event {
                Event::Granted { holder } => self.holders.get_mut(&holder).expect("it asked").has_all = true,
                Event::Revoked { holder } => self.holders.get_mut(&holder).expect("it holds").revoked = true,
                Event::Delayed { .. } => {}
                Event::Denied { holder, .. } | Event::Lost { holder } => {
                    self.holders.remove(&holder);
                    client.of_part(PART).release(cx, holder);
                }
            }
        }
    }

    pub fn next_wake(&self) -> Option<Time> {
        let wakes = self.next_tick.into_iter().chain(self.client.deadline()).min();
        wakes.filter(|_| !self.fenced)
    }

    /// What it believes to hold: the numbers of locks, and their extents.
    pub fn held(&self) -> Vec<(u64, Vec<LockExtent>)> {
        let held = self.holders.iter().filter(|(_, holder)| holder.has_all);
        let mut held: Vec<_> = held.map(|(number, holder)| (*number, holder.extents.clone())).collect();
        // What several servers grant has to be excluded at each of them.
        let at_server = |(server, _, extent): (LockServerId, _, LockExtent)| LockExtent {
            position: 2 * (server.0 + 1) + extent.position,
            ..extent
        };
        held.push((0, self.client.held().map(at_server).collect()));
        held
    }

    /// It requests and releases nothing by itself any more.
    pub fn calm(&mut self) {
        self.is_active = false;
    }

    pub fn ask(&mut self, extents: Vec<LockExtent>) -> u64 {
        self.want(extents, Vec::new())
    }

    pub fn end(&mut self, number: u64) {
        self.ended.push(number);
    }

    pub fn end_all(&mut self) {
        self.ended.extend(self.holders.keys());
    }

    pub fn step(&mut self, now: Now, input: Input, out: &mut EffectsOf<Actor>) {
        if self.fenced {
            return;
        }
        let config = LockClientConfig { host: self.name, servers: Vec::new(), acquisition: Acquisition::Ordered };
        let mut client = std::mem::replace(&mut self.client, LockClient::new(config));
        let (settings, mut next) = (self.settings.clone(), self.next_number);
        let mut effects = HostEffects::default();
        let mut number = || {
            next += 1;
            next
        };
        let mut cx = Ctx { now, settings: &settings, number: &mut number, out: &mut effects };
        let cx = &mut cx;
        match input {
            Input::Message { from: NodeId::LockServer(server), message: Message::LockAnswer(answer), .. } => {
                self.fenced = answer.reply == LockReply::Rejected { rejection: Rejection::Fenced };
                client.on_answer(cx, server, answer);
            }
            _ => {
                while client.deadline().is_some_and(|due| due <= now.time) {
                    client.wake(cx);
                }
                if self.next_tick.is_none_or(|tick| tick <= now.time) {
                    self.next_tick = Some(now.time.after(TICK));
                    if self.is_active {
                        self.act();
                    }
                }
            }
        }
        self.listen(cx, &mut client);
        for number in std::mem::take(&mut self.ended) {
            self.holders.remove(&number);
            client.of_part(PART).release(cx, number);
            self.listen(cx, &mut client);
        }
        for (number, extents, over) in std::mem::take(&mut self.asked) {
            let retention = match self.retention {
                IN_PARTS => Retention::CachedInParts { width: self.rng.below(6) },
                retention => retention,
            };
            self.holders.insert(
                number,
                Holder { extents: extents.clone(), has_all: false, revoked: false, over: over.clone() },
            );
            let is_impatient = retention == Retention::Released && self.is_active && self.rng.chance(1, 2);
            let patience = if is_impatient { Patience::Impatient } else { Patience::InTurn };
            let wanted = Wanted { over, patience, ..Wanted::new(OBJECT, extents, retention) };
            client.of_part(PART).acquire(cx, number, wanted);
            self.listen(cx, &mut client);
        }
        client.invariants();
        self.exclusion();
        (self.client, self.next_number) = (client, next);
        for effect in effects.drain() {
            if let Effect::Send { to, message } = effect {
                out.send(to, message);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn locks_exclude_and_are_granted_whatever_the_weather(seed: u64, rates in rates()) {
        swarm(seed, rates, 1, if seed.is_multiple_of(2) { ClientHost::of_transactions } else { ClientHost::caching });
    }

    #[test]
    fn ranges_of_many_holders_exclude_and_are_granted_whatever_the_weather(seed: u64, rates in rates()) {
        swarm(seed, rates, 1, ClientHost::of_ranges);
    }

    #[test]
    fn ranges_that_several_servers_divide_exclude_and_are_granted_whatever_the_weather(seed: u64, rates in rates()) {
        swarm(seed, rates, 3, if seed.is_multiple_of(2) { ClientHost::dealt } else { ClientHost::hashed });
    }
}

/// Swarm runs reach every event that is counted.
#[test]
fn swarm_runs_cover_every_event() {
    covers(&[ClientHost::of_transactions, ClientHost::caching, ClientHost::of_ranges]);
    assert!(settings().host_lease > TICK * 10, "hosts without faults keep their leases");
}
