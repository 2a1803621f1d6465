//! The loop that runs machines on modelled hardware: it moves messages between them as values, and charges what they cost.
//!
//! Nothing is encoded, traced or lost here, and the machines' invariants are looked at now and then only: attacks are the business
//! of `sim/cluster`, this is for speed. What a message or access costs is the business of [`crate::models`]; what hosts are asked, and
//! what becomes of the answers, is the application's.

use crate::dice::Dice;
use crate::models::{DiskModel, Link, NetworkModel, ProcessorCosts, Server};
use crate::queue::EventQueue;
use braid_base::{BLOCK_BYTES, NodeId, Time};
use braid_device::Device;
use braid_host::Host;
use braid_locks::LockServer;
use braid_machine::{
    DiskCommand, DiskResult, DiskTag, Effect, Effects, HostOutcome, HostRequest, Input, Machine, OpId,
};
use braid_wire::{
    Action, ActionResult, Command, Content, LockReply, Message, ObjectAnswer, ObjectRequest, Piece, Reply,
};
use braid_world::LocalClock;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// The machines' invariants are looked at once in so many events.
const EVENTS_PER_INSPECTION: u64 = 4096;

/// Machines, and what is going to happen to them and to the application, whose own events are `A`s.
pub struct Engine<A> {
    now: Time,
    queue: EventQueue<Event<A>>,
    /// Hosts, then devices, then lock servers.
    nodes: Vec<Node>,
    hosts: usize,
    devices: usize,
    network: NetworkModel,
    /// Of the hardware.
    dice: Dice,
    effects: Effects,
    events: u64,
    messages: u64,
    told: VecDeque<Told>,
}

/// What the application is told.
#[derive(Clone, Debug)]
pub enum Told {
    /// A host's answer.
    Outcome {
        /// To which request.
        op: OpId,
        /// The answer.
        outcome: HostOutcome,
    },
    /// A lock server's, to a message that the application sent in a host's place.
    Locking {
        /// At which node.
        node: usize,
        /// The answer.
        reply: LockReply,
    },
}

/// A participant of one kind or the other.
pub enum Role {
    /// A host.
    Host(Box<Host>),
    /// A host beside an application that speaks to the lock server itself, and gets all of its answers.
    Client(Box<Host>),
    /// A device.
    Device(Box<Device>),
    /// A lock server.
    LockServer(Box<LockServer>),
    /// Another kind of lock server.
    LockManager(Box<dyn Machine>),
}

impl Role {
    fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Role::Host(host) | Role::Client(host) => &mut **host,
            Role::Device(device) => &mut **device,
            Role::LockServer(server) => &mut **server,
            Role::LockManager(manager) => &mut **manager,
        }
    }
}

/// Where a machine runs.
pub struct Node {
    id: NodeId,
    machine: Role,
    costs: ProcessorCosts,
    processor: Server,
    link: Link,
    disk: Option<DiskModel>,
    clock: LocalClock,
    /// When it is to be woken, at the latest.
    armed: Option<Time>,
}

impl Node {
    /// What runs there.
    pub fn role(&self) -> &Role {
        &self.machine
    }

    /// Its disk, if that is modelled.
    pub fn disk(&self) -> Option<&DiskModel> {
        self.disk.as_ref()
    }

    /// How long its processor has worked until `now`.
    pub fn processor_busy(&self, now: Time) -> Duration {
        self.processor.busy(now)
    }
}

enum Event<A> {
    /// Something of the application's.
    Application(A),
    /// A message is at a node's link.
    Arrival { to: u32, from: u32, message: Message },
    /// A node's processor has taken the message in.
    Received { to: u32, from: u32, message: Message },
    /// A disk is done.
    DiskDone { node: u32, tag: DiskTag, read: Option<usize> },
    /// A machine's deadline.
    Wake { node: u32 },
}

impl<A> Engine<A> {
    /// No machines yet: first come so many hosts, then so many devices, then lock servers.
    pub fn new(hosts: usize, devices: usize, network: NetworkModel, dice: Dice) -> Engine<A> {
        Engine {
            now: Time(0),
            queue: EventQueue::default(),
            nodes: Vec::new(),
            hosts,
            devices,
            network,
            dice,
            effects: Effects::new(),
            events: 0,
            messages: 0,
            told: VecDeque::new(),
        }
    }

    /// Adds a machine, and starts it.
    pub fn add(
        &mut self,
        id: NodeId,
        machine: Role,
        costs: ProcessorCosts,
        disk: Option<DiskModel>,
        clock: LocalClock,
    ) {
        let (processor, link) = (Server::default(), Link::default());
        self.nodes.push(Node { id, machine, costs, processor, link, disk, clock, armed: None });
        let node = self.nodes.len() - 1;
        let now = self.nodes[node].clock.now(self.now);
        self.nodes[node].machine.machine().step(now, Input::Start, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        // The first heartbeats of all hosts to all servers say nothing that their first requests don't say.
        for effect in effects.drain().filter(|effect| matches!(effect, Effect::Disk { .. })) {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.arm(node);
    }

    /// True time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How much has happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Messages that were received.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// All nodes: hosts, then devices, then lock servers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What the application has to hear since it last asked.
    pub fn told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// Lets the next thing happen; hands over what is the application's.
    pub fn advance(&mut self) -> Option<A> {
        let (at, event) = self.queue.pop().expect("applications never end");
        self.now = at;
        self.events += 1;
        match event {
            Event::Application(event) => return Some(event),
            Event::Arrival { to, from, message } => self.on_arrival(to, from, message),
            Event::Received { to, from, message } => self.on_received(to, from, message),
            Event::DiskDone { node, tag, read } => self.on_disk_done(node as usize, tag, read),
            Event::Wake { node } => self.on_wake(node as usize),
        }
        None
    }

    /// Foresees something of the application's.
    pub fn foresee(&mut self, at: Time, event: A) {
        self.queue.push(at, Event::Application(event));
    }

    /// A host's processor takes in a request of an application: when it has.
    pub fn take_in(&mut self, host: usize) -> Time {
        let host = &mut self.nodes[host];
        let takes = host.costs.draw(host.costs.request, &mut self.dice);
        host.processor.serve(self.now, takes)
    }

    /// Asks a host for something.
    pub fn ask(&mut self, host: usize, op: OpId, request: HostRequest) {
        self.step(host, Input::Request { op, request });
    }

    /// Sends a message in the place of a node's machine.
    pub fn send(&mut self, from: usize, to: NodeId, message: Message) {
        self.perform(from, Effect::Send { to, message });
    }

    fn on_arrival(&mut self, to: u32, from: u32, message: Message) {
        let node = &mut self.nodes[to as usize];
        let through = self.network.receive(self.now, &mut node.link, data_bytes(&message));
        let takes = node.costs.draw(node.costs.receive, &mut self.dice);
        let received = node.processor.serve(through, takes);
        if received > self.now {
            self.queue.push(received, Event::Received { to, from, message });
        } else {
            self.on_received(to, from, message);
        }
    }

    fn on_received(&mut self, to: u32, from: u32, message: Message) {
        self.messages += 1;
        let node = to as usize;
        match (&self.nodes[node].machine, message) {
            (Role::Client(_), Message::LockAnswer(answer)) => {
                self.told.push_back(Told::Locking { node, reply: answer.reply });
            }
            (_, message) => {
                let from = self.nodes[from as usize].id;
                self.step(node, Input::Message { from, message });
            }
        }
    }

    /// The disks of devices hold nothing; those of lock servers are empty when they are read.
    fn on_disk_done(&mut self, node: usize, tag: DiskTag, read: Option<usize>) {
        let result = match read {
            None => DiskResult::Done(Ok(())),
            Some(_) if self.nodes[node].disk.is_some() => DiskResult::Read(Ok(Bytes::new())),
            Some(length) => DiskResult::Read(Ok(Bytes::from(vec![0; length]))),
        };
        self.step(node, Input::DiskDone { tag, result });
    }

    fn on_wake(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        if place.armed != Some(self.now) {
            return;
        }
        place.armed = None;
        match place.machine.machine().deadline() {
            // It was put off since: no need to disturb.
            Some(deadline) if place.clock.when(deadline) > self.now => self.arm(node),
            Some(_) => self.step(node, Input::Wake),
            None => {}
        }
    }

    fn step(&mut self, node: usize, input: Input) {
        let place = &mut self.nodes[node];
        let now = place.clock.now(self.now);
        let mut effects = std::mem::take(&mut self.effects);
        let machine = place.machine.machine();
        machine.step(now, input, &mut effects);
        if self.events.is_multiple_of(EVENTS_PER_INSPECTION) {
            machine.invariants();
        }
        effects.drain_ignored().for_each(drop);
        for effect in effects.drain() {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.arm(node);
    }

    fn perform(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                let to = self.index(to);
                let place = &mut self.nodes[node];
                let takes = place.costs.draw(place.costs.send, &mut self.dice);
                let ready = place.processor.serve(self.now, takes);
                let arrives = self.network.send(ready, &mut place.link, data_bytes(&message), &mut self.dice);
                self.queue.push(arrives, Event::Arrival { to, from: node as u32, message });
            }
            Effect::Disk { tag, command } => {
                // What a lock server writes is when it first hears of a host: that costs nothing here.
                let disk = self.nodes[node].disk.as_mut();
                let done = disk.map_or(self.now, |disk| disk.issue(self.now, &command, &mut self.dice));
                let read = if let DiskCommand::Read { length, .. } = command { Some(length) } else { None };
                self.queue.push(done, Event::DiskDone { node: node as u32, tag, read });
            }
            Effect::Reply { op, outcome } => self.told.push_back(Told::Outcome { op, outcome }),
        }
    }

    /// Sees to it that the machine is woken at its deadline. A wake that comes too early finds that out by itself, so that
    /// deadlines that only move away, as most do, cost nothing.
    fn arm(&mut self, node: usize) {
        let place = &mut self.nodes[node];
        let Some(deadline) = place.machine.machine().deadline() else { return };
        // A moment passes at least: nobody is woken in the instant in which he asks.
        let at = place.clock.when(deadline).max(Time(self.now.0 + 1_000));
        if place.armed.is_none_or(|armed| at < armed) {
            place.armed = Some(at);
            self.queue.push(at, Event::Wake { node: node as u32 });
        }
    }

    fn index(&self, id: NodeId) -> u32 {
        match id {
            NodeId::Host(generation) => generation.0 - 1,
            NodeId::Device(device) => self.hosts as u32 + u32::from(device.0),
            NodeId::LockServer(server) => (self.hosts + self.devices) as u32 + u32::from(server.0),
            NodeId::Monitor => panic!("who is in a modelled array never changes: nobody asks"),
        }
    }
}

/// The bytes of data that a message carries, or would if blocks had any content.
pub fn data_bytes(message: &Message) -> u64 {
    let of = |pieces: &[Piece]| {
        let blocks = |piece: &Piece| if piece.content == Content::Present { 0 } else { piece.range.count };
        pieces.iter().map(blocks).sum::<u64>() * BLOCK_BYTES as u64
    };
    match message {
        Message::Request(request) => match &request.command {
            Command::Write { pieces, .. } => of(pieces),
            Command::Objects { request, .. } => brought(request),
            _ => 0,
        },
        Message::Answer(answer) => match &answer.reply {
            Reply::Data { pieces, .. } => of(pieces),
            Reply::Objects { answer, .. } => fetched(answer),
            _ => 0,
        },
        Message::LockRequest(_) | Message::LockAnswer(_) | Message::MonitorRequest(_) | Message::MonitorAnswer(_) => 0,
    }
}

/// The bytes and values that a request for objects brings.
fn brought(request: &ObjectRequest) -> u64 {
    let of = |command: &braid_wire::ObjectCommand| {
        let action = match &command.action {
            Action::Write { data, .. } | Action::Append { data } => data.len(),
            Action::CompareAndSwap { compare, swap, .. } => compare.len() + swap.len(),
            _ => 0,
        };
        action + command.sets.iter().map(|set| set.value.len()).sum::<usize>()
    };
    request.commands.iter().map(of).sum::<usize>() as u64
}

/// The bytes and values that its answer brings.
fn fetched(answer: &ObjectAnswer) -> u64 {
    let of = |result: &braid_wire::CommandResult| {
        let action = match &result.action {
            ActionResult::Data { data } => data.len(),
            ActionResult::Compared { original: Some(original), .. } => original.len(),
            _ => 0,
        };
        action + result.values.iter().map(Bytes::len).sum::<usize>()
    };
    answer.iter().flatten().map(of).sum::<usize>() as u64
}
