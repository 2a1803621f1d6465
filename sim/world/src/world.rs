//! The loop: pops the earliest event, lets its machine take a step, and schedules what follows.

use crate::clock::LocalClock;
use crate::disk::Disk;
use crate::network::{Network, NetworkOptions};
use crate::trace::Trace;
use braid_base::{ArrayId, NodeId, Now, Rng, Time};
use braid_machine::{Effect, Effects, HostOutcome, HostRequest, Ignored, Input, Machine, OpId};
use braid_wire::Frame;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many events without time passing are a machine that spins.
const EVENTS_AT_ONCE_MAX: u64 = 1_000_000;

/// What a run may take at most. One that takes more counts as one that does not come to an end, and panics: machines that speak to each
/// other for ever let time pass, so that no other check sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// How many events.
    pub events: u64,
    /// How much real time. It depends on the machine that runs it, so it is far more than any run takes.
    pub real_time: Duration,
}

/// A bound, and what was taken of it.
struct Bounded {
    bound: Bound,
    events: u64,
    since: Instant,
}

/// Something that the world's owner should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A machine answered a request.
    Reply {
        /// Which machine.
        node: NodeId,
        /// Which request.
        op: OpId,
        /// How it ended.
        outcome: HostOutcome,
    },
    /// A moment that the owner had asked for ([`World::alarm`]).
    Alarm(u64),
    /// A node's power failed at the crash point of its disk, or before an input ([`World::crash_before`]).
    PowerFailed(NodeId),
    /// A node that is watched has taken a step ([`World::watch`]).
    Stepped(NodeId),
}

/// Nodes, the network between them, and what is going to happen.
pub struct World<M> {
    array: ArrayId,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    events_at_once: u64,
    bounded: Option<Bounded>,
    nodes: BTreeMap<NodeId, Node<M>>,
    /// Between all nodes.
    pub network: Network,
    /// What happened.
    pub trace: Trace,
    ignored: BTreeMap<Ignored, u64>,
    rng: Rng,
    effects: Effects,
    happenings: std::collections::VecDeque<Happening>,
    watched: Option<NodeId>,
}

struct Node<M> {
    /// None while it is down.
    machine: Option<M>,
    disk: Option<Disk>,
    clock: LocalClock,
    /// How long each input keeps it busy.
    busy: Duration,
    /// Inputs that it took, over all its lives.
    inputs: u64,
    /// Power fails before the input of this number.
    crash_before: Option<u64>,
    /// Counts starts: events of an earlier life concern nobody.
    life: u64,
    armed: Option<(Time, u64)>,
    stalled_until: Time,
}

#[derive(Debug)]
enum Event {
    Arrival {
        to: NodeId,
        frame: Bytes,
    },
    /// A machine's own: only in the life in which it was scheduled.
    Own {
        node: NodeId,
        life: u64,
        own: Own,
    },
    Alarm(u64),
}

#[derive(Debug)]
enum Own {
    Start,
    DiskDone(braid_machine::DiskTag),
    Request(OpId, HostRequest),
    Wake,
}

impl Bounded {
    fn count(&mut self, now: Time) {
        self.events += 1;
        let Bound { events, real_time } = self.bound;
        let (taken, simulated) = (self.since.elapsed(), now.since(Time(0)));
        assert!(self.events <= events, "the run does not come to an end: more than {events} events in {simulated:?}");
        assert!(
            taken <= real_time,
            "the run does not come to an end: {taken:?} of real time for {} events in {simulated:?}",
            self.events
        );
    }
}

impl<M: Machine> World<M> {
    /// An empty world, whose every die is decided by `seed`.
    pub fn new(array: ArrayId, seed: u64, network: NetworkOptions, trace: Trace) -> World<M> {
        let mut rng = Rng::new(seed);
        World {
            array,
            now: Time(0),
            queue: BTreeMap::new(),
            next_event: 0,
            events_at_once: 0,
            bounded: None,
            nodes: BTreeMap::new(),
            network: Network::new(network, rng.fork()),
            trace,
            ignored: BTreeMap::new(),
            rng,
            effects: Effects::new(),
            happenings: Default::default(),
            watched: None,
        }
    }

    /// True time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Bounds what happens from now on.
    pub fn bound(&mut self, bound: Bound) {
        self.bounded = Some(Bounded { bound, events: 0, since: Instant::now() });
    }

    /// What the machines have ignored, and how often.
    pub fn ignored(&self) -> &BTreeMap<Ignored, u64> {
        &self.ignored
    }

    /// Brings in a node, and starts it.
    pub fn add(&mut self, node: NodeId, machine: M, disk: Option<Disk>, clock: LocalClock) {
        let fresh = Node {
            machine: None,
            disk,
            clock,
            busy: Duration::ZERO,
            inputs: 0,
            crash_before: None,
            life: 0,
            armed: None,
            stalled_until: Time(0),
        };
        assert!(self.nodes.insert(node, fresh).is_none(), "{node} is in the world already");
        self.start(node, machine);
    }

    /// Starts a node that is down: `machine` has an empty memory, the disk is as the crash left it.
    pub fn start(&mut self, node: NodeId, machine: M) {
        let (now, place) = (self.now, self.node_mut(node));
        assert!(place.machine.is_none(), "{node} is up already");
        place.machine = Some(machine);
        place.life += 1;
        place.armed = None;
        place.stalled_until = now;
        let life = place.life;
        self.schedule(now, Event::Own { node, life, own: Own::Start });
    }

    /// Power fails at a node, now.
    pub fn crash(&mut self, node: NodeId) {
        let place = self.node_mut(node);
        place.machine = None;
        place.crash_before = None;
        if let Some(disk) = &mut place.disk {
            disk.crash();
        }
        self.trace.event(self.now, Some(node), &[1], format_args!("crash"));
    }

    /// A node's machine ends, and power stays: what it had its disk do is done.
    pub fn stop(&mut self, node: NodeId) {
        let place = self.node_mut(node);
        place.machine = None;
        place.crash_before = None;
        if let Some(disk) = &mut place.disk {
            disk.stop();
        }
        self.trace.event(self.now, Some(node), &[14], format_args!("stops"));
    }

    /// Lets power fail at a node instead of its `count`-th input from now on: so what that node had sent and commanded before is
    /// under way.
    pub fn crash_before(&mut self, node: NodeId, count: u64) {
        let place = self.node_mut(node);
        place.crash_before = Some(place.inputs + count);
    }

    /// How many inputs a node has taken, over all its lives.
    pub fn inputs(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |place| place.inputs)
    }

    /// Starts the timers' clock of a node that is down over, as a machine does that boots.
    pub fn reboot_clock(&mut self, node: NodeId, reading: Time) {
        let now = self.now;
        let place = self.node_mut(node);
        assert!(place.machine.is_none(), "clocks start over only while a node is down");
        place.clock.reboot(now, reading);
    }

    /// Moves a node's wall clock by so many nanoseconds.
    pub fn step_clock(&mut self, node: NodeId, by: i64) {
        self.node_mut(node).clock.step(by);
        self.trace.event(self.now, Some(node), &[2, by as u64], format_args!("clock steps by {by} ns"));
    }

    /// By how many nanoseconds a node's wall clock is ahead of true time.
    pub fn skew(&self, node: NodeId) -> i64 {
        self.nodes.get(&node).map_or(0, |place| place.clock.ahead(self.now))
    }

    /// Lets both clocks of a node run fast by `ppm` millionths from now on (slow, if negative).
    pub fn set_clock_rate(&mut self, node: NodeId, ppm: i64) {
        let now = self.now;
        self.node_mut(node).clock.set_rate(now, ppm);
        self.trace.event(now, Some(node), &[12, ppm as u64], format_args!("clock runs fast by {ppm} millionths"));
        // Its deadline comes at another moment now.
        self.arm(node);
    }

    /// By how many millionths a node's clocks run fast.
    pub fn clock_rate(&self, node: NodeId) -> i64 {
        self.nodes.get(&node).map_or(0, |place| place.clock.rate_ppm())
    }

    /// From now on, each input keeps the node busy for so long; what comes meanwhile waits. Zero: it is quick again.
    pub fn slow_down(&mut self, node: NodeId, busy: Duration) {
        self.node_mut(node).busy = busy;
        let facts = [13, busy.as_nanos() as u64];
        self.trace.event(self.now, Some(node), &facts, format_args!("takes {busy:?} for each input"));
    }

    /// What a node's clocks say.
    pub fn local(&self, node: NodeId) -> Option<Now> {
        Some(self.nodes.get(&node)?.clock.now(self.now))
    }

    /// True if any node still stalls.
    pub fn is_any_stalled(&self) -> bool {
        self.nodes.keys().any(|node| self.is_stalled(*node))
    }

    /// True if this node does nothing at present.
    pub fn is_stalled(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|place| place.machine.is_some() && place.stalled_until > self.now)
    }

    /// A node does nothing for a while; what comes meanwhile it finds afterwards.
    pub fn stall(&mut self, node: NodeId, span: Duration) {
        let until = self.now.after(span);
        let place = self.node_mut(node);
        place.stalled_until = place.stalled_until.max(until);
        self.trace.event(self.now, Some(node), &[3, until.0], format_args!("stalls for {span:?}"));
    }

    /// Asks a machine for something; if it is down, nobody will ever answer.
    pub fn request(&mut self, node: NodeId, op: OpId, request: HostRequest) {
        let Some(place) = self.nodes.get(&node).filter(|place| place.machine.is_some()) else { return };
        let life = place.life;
        self.schedule(self.now, Event::Own { node, life, own: Own::Request(op, request) });
    }

    /// Asks for [`Happening::Alarm`] at `at`.
    pub fn alarm(&mut self, at: Time, token: u64) {
        self.schedule(at.max(self.now), Event::Alarm(token));
    }

    /// Tells of each step that this node takes, by [`Happening::Stepped`].
    pub fn watch(&mut self, node: NodeId) {
        self.watched = Some(node);
    }

    /// The machine of a node, if it is up.
    pub fn machine(&self, node: NodeId) -> Option<&M> {
        self.nodes.get(&node)?.machine.as_ref()
    }

    /// All nodes that were ever added, up or down.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Every node that is up.
    pub fn up(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, place)| place.machine.is_some()).map(|(node, _)| *node).collect()
    }

    /// The disk of a node.
    pub fn disk(&self, node: NodeId) -> Option<&Disk> {
        self.nodes.get(&node)?.disk.as_ref()
    }

    /// The disk of a node, to do something to it.
    pub fn disk_mut(&mut self, node: NodeId) -> Option<&mut Disk> {
        self.nodes.get_mut(&node)?.disk.as_mut()
    }

    /// Lets the world run until something happens that its owner should hear of, but not beyond `until`.
    pub fn next(&mut self, until: Time) -> Option<Happening> {
        loop {
            if let Some(happening) = self.happenings.pop_front() {
                return Some(happening);
            }
            let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) else {
                self.now = self.now.max(until);
                return None;
            };
            let ((time, number), event) = entry.remove_entry();
            self.events_at_once = if time > self.now { 0 } else { self.events_at_once + 1 };
            assert!(self.events_at_once < EVENTS_AT_ONCE_MAX, "time stands still: a machine wakes itself for ever");
            self.now = time;
            self.handle(number, event);
        }
    }

    fn handle(&mut self, number: u64, event: Event) {
        let node = match &event {
            Event::Alarm(token) => {
                self.trace.event(self.now, None, &[4, *token], format_args!("alarm {token}"));
                return self.happenings.push_back(Happening::Alarm(*token));
            }
            Event::Arrival { to, .. } => *to,
            Event::Own { node, .. } => *node,
        };
        // Nobody by that name, or nobody at home: lost.
        let Some(place) = self.nodes.get_mut(&node).filter(|place| place.machine.is_some()) else { return };
        match &event {
            Event::Own { life, .. } if *life != place.life => return,
            Event::Own { own: Own::Wake, .. } if place.armed != Some((self.now, number)) => return,
            _ => {}
        }
        if place.stalled_until > self.now {
            let (at, number) = (place.stalled_until, self.next_event);
            if matches!(event, Event::Own { own: Own::Wake, .. }) {
                place.armed = Some((at, number));
            }
            return self.schedule(at, event);
        }
        if place.crash_before.is_some_and(|count| place.inputs + 1 >= count) {
            self.crash(node);
            return self.happenings.push_back(Happening::PowerFailed(node));
        }
        // What is put off until a node has time for it counts once.
        if let Some(bounded) = &mut self.bounded {
            bounded.count(self.now);
        }
        let Some(input) = self.input(node, event) else { return };
        self.step(node, input);
    }

    /// What the event is to the machine; nothing, if it does not reach it.
    fn input(&mut self, node: NodeId, event: Event) -> Option<Input> {
        let place = self.nodes.get_mut(&node).expect("it was just found");
        match event {
            Event::Alarm(_) => None,
            Event::Arrival { frame, .. } => {
                let digest = u64::from(braid_base::checksum::crc32c(&frame[..64]));
                match Frame::decode(frame) {
                    Ok(Frame { from, message, .. }) => {
                        self.trace.event(
                            self.now,
                            Some(node),
                            &[5, digest],
                            format_args!("message from {from}: {message:?}"),
                        );
                        Some(Input::Message { from, message })
                    }
                    Err(error) => {
                        self.trace.event(self.now, Some(node), &[6, digest], format_args!("frame dropped: {error}"));
                        None
                    }
                }
            }
            Event::Own { own: Own::Start, .. } => {
                self.trace.event(self.now, Some(node), &[7], format_args!("start"));
                Some(Input::Start)
            }
            Event::Own { own: Own::DiskDone(tag), .. } => {
                let result = place.disk.as_mut().expect("a command went to it").complete(tag);
                self.trace.event(self.now, Some(node), &[8, tag.0], format_args!("disk {}: {result:?}", tag.0));
                Some(Input::DiskDone { tag, result })
            }
            Event::Own { own: Own::Request(op, request), .. } => {
                self.trace.event(self.now, Some(node), &[9, op.0], format_args!("request {}: {request:?}", op.0));
                Some(Input::Request { op, request })
            }
            Event::Own { own: Own::Wake, .. } => {
                place.armed = None;
                self.trace.event(self.now, Some(node), &[10], format_args!("wake"));
                Some(Input::Wake)
            }
        }
    }

    fn step(&mut self, node: NodeId, input: Input) {
        let place = self.nodes.get_mut(&node).expect("it was just found");
        let local: Now = place.clock.now(self.now);
        let machine = place.machine.as_mut().expect("it is up");
        place.inputs += 1;
        let mut effects = std::mem::take(&mut self.effects);
        machine.step(local, input, &mut effects);
        machine.invariants();
        if !place.busy.is_zero() {
            place.stalled_until = place.stalled_until.max(self.now.after(place.busy));
        }
        for why in effects.drain_ignored() {
            *self.ignored.entry(why).or_default() += 1;
            self.trace.note(self.now, Some(node), format_args!("ignored: {why:?}"));
        }
        for effect in effects.drain() {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.arm(node);
        if self.watched == Some(node) {
            self.happenings.push_back(Happening::Stepped(node));
        }
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        let place = self.nodes.get_mut(&node).expect("its machine made the step");
        // Power failed at an earlier effect of the same step: the later ones never happened.
        if place.machine.is_none() {
            return;
        }
        match effect {
            Effect::Send { to, message } => self.send(node, to, message),
            Effect::Reply { op, outcome } => {
                let facts = [11, op.0, u64::from(outcome.is_ok())];
                self.trace.event(self.now, Some(node), &facts, format_args!("reply {}: {outcome:?}", op.0));
                self.happenings.push_back(Happening::Reply { node, op, outcome });
            }
            Effect::Disk { tag, command } => {
                self.trace.note(self.now, Some(node), format_args!("to disk {}: {command:?}", tag.0));
                let disk = place.disk.as_mut().expect("only machines with a disk command it");
                let (takes, power_fails) = disk.issue(tag, command);
                let life = place.life;
                self.schedule(self.now.after(takes), Event::Own { node, life, own: Own::DiskDone(tag) });
                if power_fails {
                    self.crash(node);
                    self.happenings.push_back(Happening::PowerFailed(node));
                }
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: braid_wire::Message) {
        let flights = self.network.send(self.now, from, to, &message);
        if flights.is_empty() {
            return self.trace.note(self.now, Some(from), format_args!("lost on the way to {to}: {message:?}"));
        }
        let frame = Frame { array: self.array, from, to, message }.encode().to_bytes();
        for flight in flights {
            let mut bytes = frame.clone();
            if flight.damaged {
                let mut damaged = bytes.to_vec();
                let bit = self.rng.below(damaged.len() as u64 * 8) as usize;
                damaged[bit / 8] ^= 1 << (bit % 8);
                bytes = damaged.into();
            }
            self.schedule(flight.at, Event::Arrival { to, frame: bytes });
        }
    }

    /// Sees to it that the machine is woken at its deadline.
    fn arm(&mut self, node: NodeId) {
        let number = self.next_event;
        let now = self.now;
        let place = self.nodes.get_mut(&node).expect("it is in the world");
        let Some(machine) = &place.machine else { return };
        // A moment passes at least: nobody is woken in the instant in which he asks.
        let at = machine.deadline().map(|deadline| place.clock.when(deadline).max(Time(now.0 + 1_000)));
        match (at, place.armed) {
            (Some(at), Some((armed, _))) if at == armed => {}
            (Some(at), _) => {
                place.armed = Some((at, number));
                let life = place.life;
                self.schedule(at, Event::Own { node, life, own: Own::Wake });
            }
            (None, _) => place.armed = None,
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.queue.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node<M> {
        self.nodes.get_mut(&node).unwrap_or_else(|| panic!("{node} is not in the world"))
    }
}
