//! The world of the attack: nodes that lose power, stall or become slow, a network that loses and damages frames, and disks that
//! forget.

use crate::clock::LocalClock;
use crate::disk::Disk;
use crate::event_loop::{Due, EventLoop, NodeIndex};
use crate::network::{Network, NetworkOptions};
use crate::places::Places;
use crate::trace::Trace;
use braid_base::{ArrayId, NodeId, Now, Rng, Time};
use braid_machine::{
    Disk as _, DiskCommand, DiskTag, Effect, Effects, EffectsOf, HostOutcome, Ignored, Input, InputOf, Machine, OpId,
};
use braid_wire::{Frame, Message};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The resources that a run may use. A run that exceeds them counts as one that does not terminate, and panics. Machines that send each
/// other messages endlessly let time pass, so that no other check detects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub events: u64,
    /// The longest real time. It depends on the computer, so it is far more than any run needs.
    pub real_time: Duration,
}

/// A bound, and what the run has used of it.
struct Bounded {
    bound: Bound,
    events: u64,
    since: Instant,
}

/// An event that the world reports to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorldEvent {
    /// A machine answered a request.
    Reply { node: NodeId, op: OpId, outcome: HostOutcome },
    /// A time that the owner had asked for ([`World::alarm`]).
    Alarm(u64),
    /// A node's power failed at the crash point of its disk, or before an input ([`World::crash_before`]); then that of the others at its
    /// place.
    PowerFailed(NodeId),
    /// A node is suspended when a read ends ([`World::suspend_after_read`]).
    Suspended { node: NodeId, span: Duration },
    /// A watched node has taken a step ([`World::watch`]).
    Stepped(NodeId),
}

/// Nodes, the network between them, and the events to come.
pub struct World<M: Machine> {
    array: ArrayId,
    events: EventLoop<M, Event<M::Request>>,
    bounded: Option<Bounded>,
    nodes: BTreeMap<NodeId, Node>,
    /// The nodes, by their numbers in the event loop.
    ids: Vec<NodeId>,
    pub network: Network,
    pub trace: Trace,
    ignored: BTreeMap<Ignored, u64>,
    rng: Rng,
    effects: EffectsOf<M>,
    world_events: VecDeque<WorldEvent>,
    /// The nodes that serve under a further name.
    services: Services,
    pub places: Places,
}

/// The nodes that serve under further names.
#[derive(Debug, Default)]
struct Services {
    /// The node that serves under each name now.
    nodes: BTreeMap<NodeId, NodeId>,
    /// The name of each node that serves, or has served.
    names: BTreeMap<NodeId, NodeId>,
    /// The nodes that some senders still take for a service.
    detours: BTreeMap<(NodeId, NodeId), NodeId>,
    /// All of these nodes get what is sent to this name, and what they send comes from it.
    group: Option<(NodeId, Vec<NodeId>)>,
}

impl Services {
    /// The node that gets what is sent to `to`.
    fn receiver(&self, from: NodeId, to: NodeId) -> NodeId {
        self.detours.get(&(from, to)).or_else(|| self.nodes.get(&to)).copied().unwrap_or(to)
    }

    /// The nodes that get what is sent to `to`, if these are several.
    fn members(&self, to: NodeId) -> Option<Vec<NodeId>> {
        self.group.as_ref().filter(|(name, _)| *name == to).map(|(_, members)| members.clone())
    }

    /// The sender that the receiver sees.
    fn name(&self, from: NodeId, to: NodeId) -> NodeId {
        if let Some((name, _)) = self.group.as_ref().filter(|(_, members)| members.contains(&from)) {
            return *name;
        }
        let name = self.names.get(&from).filter(|_| matches!(to, NodeId::Host(_) | NodeId::MetadataServer(_)));
        name.copied().unwrap_or(from)
    }
}

/// The surroundings of a machine, which the attack disturbs.
struct Node {
    /// The node's number in the event loop.
    index: NodeIndex,
    disk: Option<Disk>,
    /// How long each input keeps the node busy.
    busy: Duration,
    /// Inputs that the node has taken since it was added, over all its starts.
    inputs: u64,
    /// Power fails before the input with this number.
    crash_before: Option<u64>,
    /// The node is suspended when a later read ends.
    suspend: Option<Suspension>,
    /// Each step is reported.
    watched: bool,
}

/// A node is to be suspended when a read of its disk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Which of the reads from now on, from 1.
    pub read: u64,
    /// How long this read takes at least.
    pub takes: Duration,
    /// How long the node is suspended.
    pub span: Duration,
}

#[derive(Debug)]
enum Event<R> {
    Start,
    Arrival {
        /// The node, or the service, that it is sent to.
        to: NodeId,
        frame: Bytes,
    },
    DiskDone(DiskTag),
    /// The node is suspended for so long.
    Suspend(Duration),
    Request(OpId, R),
    Alarm(u64),
}

impl Node {
    /// The node gives its disk a read: returns the suspension that is planned for its end.
    fn next_suspension(&mut self) -> Option<Suspension> {
        let planned = self.suspend.as_mut()?;
        planned.read = planned.read.saturating_sub(1);
        if planned.read == 0 { self.suspend.take() } else { None }
    }
}

impl Bounded {
    fn count(&mut self, now: Time) {
        self.events += 1;
        let Bound { events, real_time } = self.bound;
        let (taken, simulated) = (self.since.elapsed(), now.since(Time(0)));
        assert!(self.events <= events, "the run does not terminate: more than {events} events in {simulated:?}");
        assert!(
            taken <= real_time,
            "the run does not terminate: {taken:?} of real time for {} events in {simulated:?}",
            self.events
        );
    }
}

impl<M: Machine<Request: Debug, Outcome = HostOutcome>> World<M> {
    /// Creates an empty world; `seed` determines every random choice.
    pub fn new(array: ArrayId, seed: u64, network: NetworkOptions, trace: Trace) -> World<M> {
        let mut rng = Rng::new(seed);
        World {
            array,
            events: EventLoop::default(),
            bounded: None,
            nodes: BTreeMap::new(),
            ids: Vec::new(),
            network: Network::new(network, rng.fork()),
            trace,
            ignored: BTreeMap::new(),
            rng,
            effects: Effects::new(),
            world_events: VecDeque::new(),
            services: Services::default(),
            places: Places::default(),
        }
    }

    pub fn now(&self) -> Time {
        self.events.now()
    }

    /// Limits the run from now on.
    pub fn bound(&mut self, bound: Bound) {
        self.bounded = Some(Bounded { bound, events: 0, since: Instant::now() });
    }

    /// The inputs that machines have ignored, and how often.
    pub fn ignored(&self) -> &BTreeMap<Ignored, u64> {
        &self.ignored
    }

    /// Adds a node and starts it.
    pub fn add(&mut self, node: NodeId, machine: M, disk: Option<Disk>, clock: LocalClock) {
        let index = self.events.add(clock);
        self.ids.push(node);
        let fresh =
            Node { index, disk, busy: Duration::ZERO, inputs: 0, crash_before: None, suspend: None, watched: false };
        assert!(self.nodes.insert(node, fresh).is_none(), "{node} is in the world already");
        self.start(node, machine);
    }

    /// Starts a node that is down: `machine` has an empty memory, and the disk is as the crash left it.
    pub fn start(&mut self, node: NodeId, machine: M) {
        let index = self.node(node).index;
        self.events.start(index, machine);
        self.events.schedule_own(index, self.now(), Event::Start);
    }

    /// From now on, a node is at the place of another one, as slow and with its clocks: they crash, stall and are slow together.
    pub fn share_place(&mut self, node: NodeId, other: NodeId) {
        self.places.leave(node);
        self.node_mut(node).busy = self.node(other).busy;
        self.set_clock_rate(node, self.clock_rate(other));
        self.step_clock(node, self.skew(other) - self.skew(node));
        self.places.share(node, other);
    }

    /// A node takes the part of one that will not return, and its place if that was shared.
    pub fn succeed(&mut self, node: NodeId, earlier: NodeId) {
        if let Some(place) = self.places.leave(earlier) {
            self.share_place(node, place);
        }
    }

    /// The nodes at the place of this one that are up.
    pub fn up_together(&self, node: NodeId) -> Vec<NodeId> {
        self.places.together(node).into_iter().filter(|node| self.is_up(*node)).collect()
    }

    /// Makes power fail at a node's place now. Returns the nodes that have lost power.
    pub fn crash(&mut self, node: NodeId) -> Vec<NodeId> {
        let fallen = self.up_together(node);
        fallen.iter().for_each(|node| self.crash_alone(*node));
        fallen
    }

    /// Ends a node at once as a loss of power does, and no other at its place.
    pub fn crash_alone(&mut self, node: NodeId) {
        if let Some(disk) = self.end(node) {
            disk.crash();
        }
        self.trace.event(self.now(), Some(node), &[1], format_args!("crash"));
    }

    /// Ends a node's machine without a loss of power: its disk completes the commands in flight.
    pub fn stop(&mut self, node: NodeId) {
        if let Some(disk) = self.end(node) {
            disk.stop();
        }
        self.trace.event(self.now(), Some(node), &[14], format_args!("stops"));
    }

    /// Removes the machine; returns the node's disk.
    fn end(&mut self, node: NodeId) -> Option<&mut Disk> {
        let index = self.node(node).index;
        self.events.end(index);
        let place = self.node_mut(node);
        (place.crash_before, place.suspend) = (None, None);
        place.disk.as_mut()
    }

    /// Makes power fail at a node's place instead of the node's `count`-th input from now on. The messages and disk commands that it had
    /// emitted before are in flight then.
    pub fn crash_before(&mut self, node: NodeId, count: u64) {
        let place = self.node_mut(node);
        place.crash_before = Some(place.inputs + count);
    }

    /// Suspends a node when a read of its disk ends: its content is the first input that the node takes afterwards.
    pub fn suspend_after_read(&mut self, node: NodeId, suspension: Suspension) {
        self.node_mut(node).suspend = Some(suspension);
    }

    /// Cancels [`World::crash_before`] and [`World::suspend_after_read`].
    pub fn spare(&mut self, node: NodeId) {
        if let Some(place) = self.nodes.get_mut(&node) {
            (place.crash_before, place.suspend) = (None, None);
        }
    }

    /// How many inputs a node has taken, over all its starts.
    pub fn inputs(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |place| place.inputs)
    }

    /// Restarts the timers' clock of a node that is down, as a computer that boots does.
    pub fn reboot_clock(&mut self, node: NodeId, reading: Time) {
        let (now, index) = (self.now(), self.node(node).index);
        assert!(self.events.machine(index).is_none(), "clocks start over only while a node is down");
        self.events.clock_mut(index).reboot(now, reading);
    }

    /// Moves a node's wall clock by this many nanoseconds.
    pub fn step_clock(&mut self, node: NodeId, by: i64) {
        for node in self.places.together(node) {
            let index = self.node(node).index;
            self.events.clock_mut(index).step(by);
            self.trace.event(self.now(), Some(node), &[2, by as u64], format_args!("clock steps by {by} ns"));
        }
    }

    /// How far a node's wall clock is ahead of true time, in nanoseconds.
    pub fn skew(&self, node: NodeId) -> i64 {
        self.clock(node).map_or(0, |clock| clock.ahead(self.now()))
    }

    /// Makes both clocks of a node run fast by `ppm` millionths from now on (slow, if negative).
    pub fn set_clock_rate(&mut self, node: NodeId, ppm: i64) {
        for node in self.places.together(node) {
            let (now, index) = (self.now(), self.node(node).index);
            self.events.clock_mut(index).set_rate(now, ppm);
            self.trace.event(now, Some(node), &[12, ppm as u64], format_args!("clock runs fast by {ppm} millionths"));
            // Its deadline now comes at another point of true time.
            self.events.arm(index);
        }
    }

    /// How fast a node's clocks run, in millionths.
    pub fn clock_rate(&self, node: NodeId) -> i64 {
        self.clock(node).map_or(0, LocalClock::rate_ppm)
    }

    /// Makes each input keep the node busy for this long; other inputs wait meanwhile. Zero ends it.
    pub fn slow_down(&mut self, node: NodeId, busy: Duration) {
        for node in self.places.together(node) {
            self.node_mut(node).busy = busy;
            let facts = [13, busy.as_nanos() as u64];
            self.trace.event(self.now(), Some(node), &facts, format_args!("takes {busy:?} for each input"));
        }
    }

    /// The readings of a node's clocks.
    pub fn local(&self, node: NodeId) -> Option<Now> {
        self.clock(node).map(|clock| clock.now(self.now()))
    }

    /// True if any node is stalled.
    pub fn is_any_stalled(&self) -> bool {
        self.nodes.values().any(|place| self.events.is_stalled(place.index))
    }

    /// True if this node is stalled.
    pub fn is_stalled(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|place| self.events.is_stalled(place.index))
    }

    /// Stalls a node's place for a while: a node takes the inputs of that time afterwards.
    pub fn stall(&mut self, node: NodeId, span: Duration) {
        let until = self.now().after(span);
        for node in self.places.together(node) {
            self.events.stall(self.node(node).index, until);
            self.trace.event(self.now(), Some(node), &[3, until.0], format_args!("stalls for {span:?}"));
        }
    }

    /// Sends a request to a machine. If the node is down, there will be no answer.
    pub fn request(&mut self, node: NodeId, op: OpId, request: impl Into<M::Request>) {
        if self.is_up(node) {
            self.events.schedule_own(self.node(node).index, self.now(), Event::Request(op, request.into()));
        }
    }

    /// Asks for [`WorldEvent::Alarm`] at `at`.
    pub fn alarm(&mut self, at: Time, token: u64) {
        self.events.schedule(at.max(self.now()), Event::Alarm(token));
    }

    /// Reports each step of this node as [`WorldEvent::Stepped`].
    pub fn watch(&mut self, node: NodeId) {
        self.node_mut(node).watched = true;
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.machine(node).is_some()
    }

    pub fn machine(&self, node: NodeId) -> Option<&M> {
        self.events.machine(self.nodes.get(&node)?.index)
    }

    /// The machine of a node, if it is up, for a scripted machine to be controlled.
    pub fn machine_mut(&mut self, node: NodeId) -> Option<&mut M> {
        self.events.machine_mut(self.nodes.get(&node)?.index)
    }

    /// All nodes that were ever added, up or down.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub fn up(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|node| self.is_up(*node)).collect()
    }

    pub fn disk(&self, node: NodeId) -> Option<&Disk> {
        self.nodes.get(&node)?.disk.as_ref()
    }

    pub fn disk_mut(&mut self, node: NodeId) -> Option<&mut Disk> {
        self.nodes.get_mut(&node)?.disk.as_mut()
    }

    /// Runs the world until an event that its owner is told of, but not beyond `until`.
    pub fn next(&mut self, until: Time) -> Option<WorldEvent> {
        loop {
            if let Some(event) = self.world_events.pop_front() {
                return Some(event);
            }
            match self.events.next(until)? {
                Due::Outside(event) => {
                    let Event::Alarm(token) = event else { panic!("only alarms concern no node: {event:?}") };
                    self.trace.event(self.now(), None, &[4, token], format_args!("alarm {token}"));
                    self.world_events.push_back(WorldEvent::Alarm(token));
                }
                Due::For(index, event) => self.happen(index, Some(event)),
                Due::Wake(index) => self.happen(index, None),
            }
        }
    }

    /// Handles an event at a node that is up, or its deadline.
    fn happen(&mut self, index: NodeIndex, event: Option<Event<M::Request>>) {
        let node = self.ids[index];
        let place = self.node_mut(node);
        if place.crash_before.is_some_and(|count| place.inputs + 1 >= count) {
            return self.lose_power(node);
        }
        // An event that is postponed until a node has time for it counts once.
        let now = self.now();
        if let Some(bounded) = &mut self.bounded {
            bounded.count(now);
        }
        let Some(input) = self.input(node, event) else { return };
        self.step(node, input);
    }

    fn lose_power(&mut self, node: NodeId) {
        let fallen = self.crash(node);
        self.world_events.extend(fallen.into_iter().map(WorldEvent::PowerFailed));
    }

    /// The input that the event is to the machine; `None` if it does not reach the machine.
    fn input(&mut self, node: NodeId, event: Option<Event<M::Request>>) -> Option<InputOf<M>> {
        let (now, to) = (self.now(), Some(node));
        let Some(event) = event else {
            self.trace.event(now, to, &[10], format_args!("wake"));
            return Some(Input::Wake);
        };
        match event {
            Event::Alarm(_) => None,
            Event::Arrival { to: meant, frame } => {
                let digest = u64::from(braid_base::checksum::crc32c(&frame[..64]));
                match Frame::decode(frame) {
                    Ok(Frame { from, message, .. }) => {
                        self.trace.event(now, to, &[5, digest], format_args!("message from {from}: {message:?}"));
                        Some(Input::Message { to: meant, from, message })
                    }
                    Err(error) => {
                        self.trace.event(now, to, &[6, digest], format_args!("frame dropped: {error}"));
                        None
                    }
                }
            }
            Event::Start => {
                self.trace.event(now, to, &[7], format_args!("start"));
                Some(Input::Start)
            }
            Event::DiskDone(tag) => {
                let result = self.disk_mut(node).expect("a command went to it").complete(tag);
                self.trace.event(now, to, &[8, tag.0], format_args!("disk {}: {result:?}", tag.0));
                Some(Input::DiskDone { tag, result: M::Disk::result(result)? })
            }
            Event::Suspend(span) => {
                self.stall(node, span);
                self.world_events.push_back(WorldEvent::Suspended { node, span });
                None
            }
            Event::Request(op, request) => {
                self.trace.event(now, to, &[9, op.number], format_args!("request {}: {request:?}", op.number));
                Some(Input::Request { op, request })
            }
        }
    }

    fn step(&mut self, node: NodeId, input: InputOf<M>) {
        let now = self.now();
        let place = self.node_mut(node);
        place.inputs += 1;
        let (index, busy) = (place.index, place.busy);
        let mut effects = std::mem::take(&mut self.effects);
        self.events.step(index, input, &mut effects).invariants();
        if !busy.is_zero() {
            self.events.stall(index, now.after(busy));
        }
        for why in effects.drain_ignored() {
            *self.ignored.entry(why).or_default() += 1;
            self.trace.note(now, Some(node), format_args!("ignored: {why:?}"));
        }
        for note in effects.drain_notes() {
            self.trace.note(now, Some(node), format_args!("{note:?}"));
        }
        for effect in effects.drain() {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.events.arm(index);
        if self.node(node).watched {
            self.world_events.push_back(WorldEvent::Stepped(node));
        }
    }

    fn perform(&mut self, node: NodeId, effect: Effect<HostOutcome, M::Disk>) {
        // Power failed at an earlier effect of the same step: the later effects never happened.
        if !self.is_up(node) {
            return;
        }
        let now = self.now();
        match effect {
            Effect::Send { to, message } => self.send(node, to, message),
            Effect::Reply { op, outcome } => {
                let facts = [11, op.number, u64::from(outcome.is_ok())];
                self.trace.event(now, Some(node), &facts, format_args!("reply {}: {outcome:?}", op.number));
                self.world_events.push_back(WorldEvent::Reply { node, op, outcome });
            }
            Effect::Disk { tag, command } => {
                self.trace.note(now, Some(node), format_args!("to disk {}: {command:?}", tag.0));
                let place = self.node_mut(node);
                let disk = place.disk.as_mut().expect("only machines with a disk command it");
                let command = M::Disk::command(command);
                let reads = matches!(command, DiskCommand::Read { .. });
                let (mut takes, power_fails) = disk.issue(tag, command);
                let index = place.index;
                if reads && let Some(suspension) = place.next_suspension() {
                    takes = takes.max(suspension.takes);
                    // At the same time as the end of the read, and before it.
                    self.events.schedule_own(index, now.after(takes), Event::Suspend(suspension.span));
                }
                self.events.schedule_own(index, now.after(takes), Event::DiskDone(tag));
                if power_fails {
                    self.lose_power(node);
                }
            }
        }
    }

    /// Names the node that serves as `service` from now on. What is sent to the service reaches this node, and what the node sends to
    /// hosts comes from the service. That also holds for nodes that served before.
    pub fn set_service(&mut self, service: NodeId, node: NodeId) {
        self.services.nodes.insert(service, node);
        self.services.names.insert(node, service);
        self.services.detours.retain(|(_, of), _| *of != service);
    }

    /// The node that serves under this name: the node of this name, if no other one does.
    pub fn serving(&self, service: NodeId) -> NodeId {
        self.services.nodes.get(&service).copied().unwrap_or(service)
    }

    /// What this node sends comes from the service, although nobody may have heard of it yet.
    pub fn speak_for(&mut self, service: NodeId, node: NodeId) {
        self.services.names.insert(node, service);
    }

    /// What `from` sends to a service reaches this node until another one is named: `from` has not heard of the present one yet.
    pub fn detour(&mut self, from: NodeId, service: NodeId, node: NodeId) {
        self.services.detours.insert((from, service), node);
    }

    /// Everybody hears which node serves as `service`.
    pub fn end_detours(&mut self, service: NodeId) {
        self.services.detours.retain(|(_, of), _| *of != service);
    }

    /// From now on, what is sent to this name reaches all of these nodes, and what they send comes from it.
    pub fn set_group(&mut self, name: NodeId, members: Vec<NodeId>) {
        self.services.group = Some((name, members));
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        match self.services.members(to) {
            Some(members) => members.into_iter().for_each(|node| self.carry(from, to, (node, to), message.clone())),
            None => {
                let receiver = self.services.receiver(from, to);
                self.carry(from, to, (receiver, receiver), message);
            }
        }
    }

    /// Sends a message to a node, which has this name on the wire.
    fn carry(&mut self, sender: NodeId, meant: NodeId, (to, named): (NodeId, NodeId), message: Message) {
        let flights = self.network.send(self.now(), sender, to, &message);
        if flights.is_empty() {
            return self.trace.note(self.now(), Some(sender), format_args!("lost on the way to {to}: {message:?}"));
        }
        let from = self.services.name(sender, named);
        // A real connection would be closed.
        assert!(message.is_allowed(from, meant), "{from} does not send {meant} such a message: {message:?}");
        let frame = Frame { array: self.array, from, to: named, message }.encode().to_bytes();
        for flight in flights {
            let mut frame = frame.clone();
            if flight.damaged {
                let mut damaged = frame.to_vec();
                let bit = self.rng.below(damaged.len() as u64 * 8) as usize;
                damaged[bit / 8] ^= 1 << (bit % 8);
                frame = damaged.into();
            }
            // A message to an unknown node is lost.
            if let Some(place) = self.nodes.get(&to) {
                self.events.schedule_for(place.index, flight.at, Event::Arrival { to: meant, frame });
            }
        }
    }

    fn clock(&self, node: NodeId) -> Option<&LocalClock> {
        Some(self.events.clock(self.nodes.get(&node)?.index))
    }

    fn node(&self, node: NodeId) -> &Node {
        self.nodes.get(&node).unwrap_or_else(|| panic!("{node} is not in the world"))
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).unwrap_or_else(|| panic!("{node} is not in the world"))
    }
}
