//! A world of candidates, one registry, links, and devices that take leases, in true time.
//!
//! Each leader has a small model of the monitor: it grants leases, and takes a device for free when its own grants to it and the wait of a new
//! leader are over. Then it writes that. When the write takes effect, the device must have no lease.

use crate::checks::{Checks, Reads};
use crate::faults::Fault;
use braid_base::{Rng, Time};
use braid_leadership::times::PROMISE;
use braid_leadership::{
    Answer, CallId, Candidate, CandidateId, Effect, Head, Input, Mark, Message, Nonce, QuestionId, Times, WriteId,
};
use braid_world::{Arrived, EventQueue, LocalClock, Operation, Registry, RegistryAnswer, RegistryCall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const DEVICES: usize = 2;

/// An end of a link: a candidate by its number, or a device above this one.
pub type End = usize;
pub const FIRST_DEVICE: End = 100;

pub enum Event {
    Wake { node: usize, life: u64 },
    Arrive { of: CallOf, call: RegistryCall<Head>, write: Option<WriteId> },
    Answer { of: CallOf, answer: RegistryAnswer<Head> },
    Message { to: usize, from: usize, message: Message },
    Tick { device: usize },
    Renew { device: usize, node: usize, sent: Time },
    Grant { device: usize, sent: Time },
    Start { node: usize },
    Request,
    Fault(Fault),
}

/// Which call of which life of a candidate, and when it was sent.
#[derive(Clone, Copy)]
pub struct CallOf {
    node: usize,
    life: u64,
    call: CallId,
    sent: Time,
    /// The term of the head that it makes, if it swaps.
    makes: Option<Nonce>,
}

/// A machine with a candidate, if it is up.
pub struct Node {
    pub candidate: Option<Candidate>,
    pub clock: LocalClock,
    pub paused: Time,
    life: u64,
    seen: Option<Mark>,
    pub grants: Option<Grants>,
    reads: Reads,
    /// When the latest call was sent that has shown each term.
    proofs: BTreeMap<Nonce, Time>,
}

/// A leader's part that grants leases.
pub struct Grants {
    pub head: Head,
    /// When each device has no lease any more, by the leader's clock.
    free: [Time; DEVICES],
    /// The write that says so.
    freeing: [Option<WriteId>; DEVICES],
}

pub struct Device {
    pub clock: LocalClock,
    /// By its own clock.
    leased: Time,
    /// How long it was without a lease, at most.
    pub pause: Duration,
}

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub queue: EventQueue<Event>,
    pub registry: Registry<Head>,
    pub nodes: Vec<Node>,
    pub devices: Vec<Device>,
    /// What is lost on its way from one end to another.
    pub cuts: BTreeSet<(End, End)>,
    /// The longest time that a message takes.
    pub latency: Duration,
    /// Planned faults don't happen any more.
    pub is_calm: bool,
    pub checks: Checks,
    frees: BTreeMap<WriteId, usize>,
    next: u64,
}

impl World {
    /// Candidates of which all are up, with these rates of their clocks and those of the devices, in millionths.
    pub fn new(mut rng: Rng, candidates: usize, mut rate: impl FnMut(&mut Rng) -> i64) -> World {
        let ids = (0..candidates).map(|node| CandidateId(node as u16)).collect();
        let registry = Registry::new(Head::first(ids), candidates, rng.fork());
        let mut clock = || LocalClock::exact(Time(rng.below(1 << 50))).drifting(rate(&mut rng));
        let node = |clock| Node {
            candidate: None,
            clock,
            paused: Time(0),
            life: 0,
            seen: None,
            grants: None,
            reads: Reads::default(),
            proofs: BTreeMap::new(),
        };
        let nodes = (0..candidates).map(|_| node(clock())).collect();
        let device = |clock| Device { clock, leased: Time(0), pause: Duration::ZERO };
        let devices = (0..DEVICES).map(|_| device(clock())).collect();
        let mut world = World {
            now: Time(0),
            rng,
            queue: EventQueue::default(),
            registry,
            nodes,
            devices,
            cuts: BTreeSet::new(),
            latency: Duration::from_millis(3),
            is_calm: false,
            checks: Checks::default(),
            frees: BTreeMap::new(),
            next: 0,
        };
        (0..candidates).for_each(|node| world.start(node));
        (0..DEVICES).for_each(|device| world.queue.push(Time(1), Event::Tick { device }));
        world
    }

    pub fn start(&mut self, node: usize) {
        let nonces = self.rng.fork();
        let place = &mut self.nodes[node];
        if place.candidate.is_some() {
            return;
        }
        let local = place.clock.now(self.now).time;
        place.life += 1;
        (place.paused, place.reads, place.proofs) = (self.now, Reads::default(), BTreeMap::new());
        // The file that keeps it may be lost.
        place.seen = place.seen.filter(|_| self.rng.chance(3, 4));
        place.candidate = Some(Candidate::new(local, CandidateId(node as u16), Times::default(), nonces, place.seen));
        self.input(node, Input::Wake);
    }

    /// The node that leads, as far as it knows, with the latest term.
    pub fn leader(&self) -> Option<usize> {
        let term = |node: &usize| Some(self.nodes[*node].grants.as_ref()?.head.term);
        (0..self.nodes.len()).filter(|node| term(node).is_some()).max_by_key(term)
    }

    /// The leader that may grant leases now.
    pub fn granting(&self) -> Option<usize> {
        let may_grant = |node: &usize| {
            let place = &self.nodes[*node];
            place.candidate.as_ref().is_some_and(|candidate| candidate.may_grant(place.clock.now(self.now).time))
        };
        self.leader().filter(may_grant)
    }

    pub fn run(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some((time, event)) = self.queue.pop_until(end) {
            self.now = time;
            self.on_event(event);
        }
        self.now = end;
    }

    /// Puts an event of a paused node off.
    fn is_paused(&self, event: &Event) -> Option<Time> {
        let node = match event {
            Event::Wake { node, .. } | Event::Renew { node, .. } | Event::Message { to: node, .. } => *node,
            Event::Answer { of, .. } => of.node,
            _ => return None,
        };
        Some(self.nodes[node].paused).filter(|until| *until > self.now)
    }

    fn on_event(&mut self, event: Event) {
        if let Some(until) = self.is_paused(&event) {
            return self.queue.push(until, event);
        }
        match event {
            Event::Wake { node, life } => {
                let place = &self.nodes[node];
                let deadline = place.candidate.as_ref().and_then(Candidate::deadline);
                let is_due = deadline.is_some_and(|deadline| deadline <= place.clock.now(self.now).time);
                if place.life == life && is_due {
                    self.input(node, Input::Wake);
                }
            }
            Event::Arrive { of, call, write } => self.arrive(of, call, write),
            Event::Answer { of, answer } => self.answer(of, answer),
            Event::Message { to, from, message } => {
                self.input(to, Input::Message { from: CandidateId(from as u16), message });
            }
            Event::Tick { device } => self.tick(device),
            Event::Renew { device, node, sent } => self.renew(device, node, sent),
            Event::Grant { device, sent } => {
                let device = &mut self.devices[device];
                device.leased = device.leased.max(sent.after(Times::default().lease));
            }
            Event::Start { node } => self.start(node),
            Event::Request => self.request(),
            Event::Fault(fault) if !self.is_calm => self.fault(fault),
            Event::Fault(_) => {}
        }
    }

    /// Something is sent from one end to another, unless it is lost.
    fn send(&mut self, from: End, to: End, event: Event) {
        if !self.cuts.contains(&(from, to)) {
            let delay = Duration::from_nanos(self.rng.below(self.latency.as_nanos() as u64));
            self.queue.push(self.now.after(delay), event);
        }
    }

    pub fn input(&mut self, node: usize, input: Input) {
        let place = &mut self.nodes[node];
        let Some(candidate) = &mut place.candidate else { return };
        let local = place.clock.now(self.now).time;
        let effects = candidate.step(local, input);
        let seen = candidate.seen();
        let order = |mark: Mark| (mark.term, mark.seq);
        assert!(seen.map(order) >= place.seen.map(order), "it takes an older head for new");
        place.seen = seen;
        if let Some(deadline) = candidate.deadline() {
            let at = place.clock.when(deadline).max(self.now.after(Duration::from_micros(1)));
            self.queue.push(at, Event::Wake { node, life: place.life });
        }
        effects.into_iter().for_each(|effect| self.perform(node, local, effect));
        self.free(node, local);
    }

    /// Has the leader write that a device is free, if it is.
    fn free(&mut self, node: usize, local: Time) {
        for device in 0..DEVICES {
            let write = WriteId(self.next);
            let Some(grants) = &mut self.nodes[node].grants else { return };
            if grants.free[device] <= local && grants.freeing[device].is_none() {
                grants.freeing[device] = Some(write);
                self.next += 1;
                self.frees.insert(write, device);
                self.input(node, Input::Write { write, candidates: None });
            }
        }
    }

    fn perform(&mut self, node: usize, local: Time, effect: Effect) {
        let id = CandidateId(node as u16);
        let place = &mut self.nodes[node];
        match effect {
            Effect::Read { call } => self.call(node, call, Operation::Read, None),
            Effect::Swap { call, expected, head, write } => {
                if head.nonce != expected.nonce {
                    self.checks.takes_over(self.now, id, &expected, place.reads.seen(Some(&expected)));
                }
                self.call(node, call, Operation::Swap { expected, value: head }, write);
            }
            Effect::Send { to, message } => {
                if let Message::Promise { .. } = message {
                    let until = place.clock.when(local.after(PROMISE));
                    self.checks.promised(id, until);
                }
                let to = usize::from(to.0);
                self.send(node, to, Event::Message { to, from: node, message });
            }
            Effect::Won { head, wait, follows } => {
                self.checks.won(self.now, &head, follows, place.reads.seen(None));
                place.grants = Some(Grants { head, free: [local.after(wait); DEVICES], freeing: [None; DEVICES] });
            }
            Effect::Written(write) | Effect::RefusedWrite(write) => {
                self.checks.told(write, matches!(effect, Effect::Written(_)));
                if let (Some(grants), Some(device)) = (&mut place.grants, self.frees.get(&write)) {
                    (grants.freeing[*device], grants.free[*device]) = (None, local.after(Times::default().lease));
                }
            }
            Effect::Current(question) => {
                let grants = place.grants.as_ref().expect("a leader answers");
                self.checks.current(question, grants.head.nonce);
            }
            Effect::RefusedQuestion(_) => {}
            Effect::Ended | Effect::Lost { .. } | Effect::Stopped { .. } => {
                self.checks.ends(&effect);
                place.grants = None;
            }
        }
    }

    fn call(&mut self, node: usize, call: CallId, operation: Operation<Head>, write: Option<WriteId>) {
        let makes = match &operation {
            Operation::Swap { value, .. } => Some(value.nonce),
            Operation::Read => None,
        };
        let of = CallOf { node, life: self.nodes[node].life, call, sent: self.now, makes };
        if let Some((at, call)) = self.registry.send(self.now, node, operation) {
            self.queue.push(at, Event::Arrive { of, call, write });
        }
    }

    fn arrive(&mut self, of: CallOf, call: RegistryCall<Head>, write: Option<WriteId>) {
        let swap = match &call.operation {
            Operation::Swap { expected, value } => Some((expected.clone(), value.clone())),
            Operation::Read => None,
        };
        match self.registry.arrive(self.now, call) {
            Arrived::Later(at, call) => self.queue.push(at, Event::Arrive { of, call, write }),
            Arrived::Answered(answer, at) => {
                if let (RegistryAnswer::Swapped, Some((expected, head))) = (&answer, swap) {
                    self.checks.swapped(self.now, &expected, &head, write);
                    if let Some(device) = write.and_then(|write| self.frees.get(&write)) {
                        self.checks.count("devices taken for free");
                        let Device { clock, leased, .. } = &self.devices[*device];
                        assert!(
                            *leased <= clock.now(self.now).time,
                            "device {device} has a lease, and is taken for free"
                        );
                    }
                }
                if let Some(at) = at {
                    self.queue.push(at, Event::Answer { of, answer });
                }
            }
        }
    }

    fn answer(&mut self, of: CallOf, answer: RegistryAnswer<Head>) {
        let place = &mut self.nodes[of.node];
        if place.life != of.life || place.candidate.is_none() {
            return;
        }
        let (answer, found) = match answer {
            RegistryAnswer::Value(head) => (Answer::Head(Some(head.clone())), Some(head)),
            RegistryAnswer::Differs(head) => (Answer::Differs(head.clone()), Some(head)),
            RegistryAnswer::Swapped => (Answer::Swapped, None),
            RegistryAnswer::Failed => {
                return self.input(of.node, Input::Answer { call: of.call, answer: Answer::Failed });
            }
        };
        if let Some(head) = &found {
            place.reads.add(place.clock.now(self.now).time, head);
        }
        if let Some(nonce) = found.map(|head| head.nonce).or(of.makes) {
            let proof = place.proofs.entry(nonce).or_default();
            *proof = of.sent.max(*proof);
        }
        self.input(of.node, Input::Answer { call: of.call, answer });
    }

    fn tick(&mut self, device: usize) {
        let place = &mut self.devices[device];
        let local = place.clock.now(self.now).time;
        if place.leased > Time(0) {
            place.pause = place.pause.max(local.since(place.leased));
        }
        for node in 0..self.nodes.len() {
            self.send(FIRST_DEVICE + device, node, Event::Renew { device, node, sent: local });
        }
        self.queue.push(self.now.after(Duration::from_millis(500)), Event::Tick { device });
    }

    fn renew(&mut self, device: usize, node: usize, sent: Time) {
        let place = &mut self.nodes[node];
        let local = place.clock.now(self.now).time;
        let (Some(candidate), Some(grants)) = (&place.candidate, &mut place.grants) else { return };
        if grants.freeing[device].is_none() && candidate.may_grant(local) {
            let proof = place.proofs.get(&grants.head.nonce).copied().unwrap_or_default();
            self.checks.grants(self.now, &grants.head, Times::default().doubt, proof);
            let ends = local.after(Times::default().lease * 11 / 10);
            grants.free[device] = grants.free[device].max(ends);
            self.send(node, FIRST_DEVICE + device, Event::Grant { device, sent });
        }
    }

    /// A program asks a candidate, and writes something there.
    fn request(&mut self) {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        if self.nodes[node].paused <= self.now && self.nodes[node].candidate.is_some() {
            let (question, write) = (QuestionId(self.next), WriteId(self.next + 1));
            self.next += 2;
            self.checks.asked.insert(question, self.now);
            self.input(node, Input::Question(question));
            if self.rng.chance(1, 2) {
                self.input(node, Input::Write { write, candidates: None });
            }
        }
        let next = Duration::from_millis(self.rng.between(1, 200));
        self.queue.push(self.now.after(next), Event::Request);
    }
}
