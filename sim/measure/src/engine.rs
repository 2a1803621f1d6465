//! The measuring engine runs machines on modelled hardware. It uses the attack's event loop; messages are passed as values and take
//! the time that the models determine.
//!
//! The engine is built for speed: nothing is encoded, traced or lost, and the machines' invariants are checked only now and then.
//! `sim/cluster` attacks arrays, [`crate::hardware`] models the cost of messages and disk accesses, and the application makes requests and
//! uses their answers.

use crate::connections::{Connections, Way};
use crate::disk_latency::DiskModel;
use crate::hardware::{Link, NetworkModel, ProcessorCosts, Server};
use crate::locking::manager::LockManager;
use crate::parameters::{Network, Processor};
use crate::prelude::*;
use crate::sampler::Sampler;
use braid_base::LockServerId;
use braid_base::limits::Settings;
use braid_blocks::{Content, Piece};
use braid_host::{Acquisition, HostConfig};
use braid_locks::{LockServer, LockServerConfig};
use braid_machine::one_type::{step_as, step_server};
use braid_machine::{DiskResult, Effect, EffectsOf, HostRequest, Input, InputOf, Machine, OneDisk};
use braid_wire::{ActionResult, Command, Message, ObjectAnswer, ObjectCommand, Reply};
use braid_world::{Due, EventLoop, NodeIndex};

/// The machines' invariants are checked once in this many events.
const EVENTS_PER_INSPECTION: u64 = 4096;

/// Machines, and their future events and those of the application; `A` is the type of the application's events.
pub struct Engine<A> {
    events: EventLoop<Role, Event<A>>,
    /// Hosts, then devices, then lock servers.
    nodes: Vec<Node>,
    hosts: usize,
    devices: usize,
    network: NetworkModel,
    processor: Processor,
    connections: Connections,
    /// For the hardware.
    sampler: Sampler,
    effects: EffectsOf<Role>,
    handled: u64,
    messages: u64,
    results: VecDeque<EngineResult>,
}

/// A result for the application.
#[derive(Clone, Debug)]
pub enum EngineResult {
    /// The answer of a host.
    Outcome { op: OpId, outcome: HostOutcome },
    /// The answer of a lock server to a message that the application sent in place of a host.
    Locking {
        /// The node of that host.
        node: usize,
        reply: LockReply,
    },
}

/// The machine of a node.
pub enum Role {
    Host(Box<Host>),
    /// A host whose application talks to the lock server itself and receives all of its answers.
    Client(Box<Host>),
    Device(Box<Device>),
    LockServer(Box<LockServer>),
    /// Another kind of lock server.
    LockManager(Box<LockManager>),
}

impl Machine for Role {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: InputOf<Self>, out: &mut EffectsOf<Self>) {
        match self {
            Role::Host(host) | Role::Client(host) => {
                step_as(&mut **host, now, input, out, |request| request, |outcome| outcome);
            }
            Role::Device(device) => step_server(&mut **device, now, input, out),
            Role::LockServer(server) => step_server(&mut **server, now, input, out),
            Role::LockManager(manager) => step_server(&mut **manager, now, input, out),
        }
    }

    braid_machine::held_machine!(Role { Host, Client, Device, LockServer, LockManager });
}

/// The hardware on which a machine runs.
pub struct Node {
    id: NodeId,
    costs: ProcessorCosts,
    processor: Server,
    link: Link,
    disk: Option<DiskModel>,
}

impl Node {
    /// The node's disk, if it is modelled.
    pub fn disk(&self) -> Option<&DiskModel> {
        self.disk.as_ref()
    }

    /// How long the node's processor has worked until `now`.
    pub fn processor_busy(&self, now: Time) -> Duration {
        self.processor.busy(now)
    }
}

enum Event<A> {
    /// An event of the application.
    Application(A),
    /// A message has arrived at a node's link, with the number of messages that it acknowledges.
    Arrival { from: u32, message: Message, acknowledges: u64 },
    /// So many messages on this way are acknowledged.
    Acknowledged { way: Way, count: u64 },
    /// A node's processor has received the message.
    Received { from: u32, message: Message },
    /// A disk has completed a command.
    DiskDone { tag: DiskTag, read: Option<usize> },
}

impl<A> Engine<A> {
    /// Creates an engine without machines. They are added in this order: `hosts` hosts, `devices` devices, then lock servers.
    pub fn new(
        hosts: usize,
        devices: usize,
        (network, processor): (&Network, &Processor),
        sampler: Sampler,
    ) -> Engine<A> {
        Engine {
            events: EventLoop::default(),
            nodes: Vec::new(),
            hosts,
            devices,
            network: NetworkModel::new(network),
            processor: processor.clone(),
            connections: Connections::default(),
            sampler,
            effects: Effects::new(),
            handled: 0,
            messages: 0,
            results: VecDeque::new(),
        }
    }

    /// Adds a machine and starts it.
    pub fn add(&mut self, id: NodeId, machine: Role, disk: Option<DiskModel>, clock: LocalClock) {
        let (node, costs) = (self.events.add(clock), ProcessorCosts::of(id, &self.processor));
        self.nodes.push(Node { id, costs, processor: Server::default(), link: Link::default(), disk });
        self.events.start(node, machine);
        self.events.step(node, Input::Start, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        // The first heartbeats of hosts to servers are dropped: they contain nothing that the first requests do not contain.
        for effect in effects.drain().filter(|effect| matches!(effect, Effect::Disk { .. })) {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.events.arm(node);
    }

    pub fn now(&self) -> Time {
        self.events.now()
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.handled
    }

    /// The number of messages received so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// All machines with their hardware: hosts, then devices, then lock servers.
    pub fn nodes(&self) -> impl Iterator<Item = (&Role, &Node)> {
        let machine = |node| self.events.machine(node).expect("machines stay up");
        self.nodes.iter().enumerate().map(move |(node, hardware)| (machine(node), hardware))
    }

    /// The next result that the application has not taken yet.
    pub fn next_result(&mut self) -> Option<EngineResult> {
        self.results.pop_front()
    }

    /// Advances to the next event; returns it if it belongs to the application.
    pub fn advance(&mut self) -> Option<A> {
        let due = self.events.next(Time(u64::MAX)).expect("applications never end");
        self.handled += 1;
        match due {
            Due::Outside(Event::Application(event)) => return Some(event),
            Due::For(to, Event::Arrival { from, message, acknowledges }) => {
                self.on_arrival(to, from, message);
                self.on_acknowledged((to as u32, from), acknowledges);
            }
            Due::For(_, Event::Acknowledged { way, count }) => self.on_acknowledged(way, count),
            Due::For(to, Event::Received { from, message }) => self.on_received(to, from, message),
            Due::For(node, Event::DiskDone { tag, read }) => self.on_disk_done(node, tag, read),
            Due::Wake(node) => self.step(node, Input::Wake),
            Due::For(_, Event::Application(_)) | Due::Outside(_) => {
                panic!("only events of the application concern no machine")
            }
        }
        None
    }

    /// Schedules an event of the application.
    pub fn foresee(&mut self, at: Time, event: A) {
        self.events.schedule(at, Event::Application(event));
    }

    /// Has a host's processor receive a request of the application; returns when it is done.
    pub fn take_in(&mut self, host: usize) -> Time {
        let host = &mut self.nodes[host];
        let takes = host.costs.draw(host.costs.request, &mut self.sampler);
        host.processor.serve(self.events.now(), takes)
    }

    /// Sends a request to a host.
    pub fn ask(&mut self, host: usize, op: OpId, request: impl Into<HostRequest>) {
        self.step(host, Input::Request { op, request: request.into() });
    }

    /// Sends a message in place of a node's machine.
    pub fn send(&mut self, from: usize, to: NodeId, message: Message) {
        self.perform(from, Effect::Send { to, message });
    }

    /// Acknowledgements of messages wait for so long for a message that can carry them. Without this, they take no time.
    pub fn delay_acks(&mut self, delay: Duration) {
        self.connections.delay = delay;
    }

    fn on_acknowledged(&mut self, way: Way, count: u64) {
        for message in self.connections.acknowledge(way, count) {
            self.transmit(way, message);
        }
    }

    fn on_arrival(&mut self, to: NodeIndex, from: u32, message: Message) {
        let (now, node) = (self.events.now(), &mut self.nodes[to]);
        let way = (from, to as u32);
        if let Some((at, count)) = self.connections.arrive(now, way) {
            self.events.schedule_for(from as usize, at, Event::Acknowledged { way, count });
        }
        let through = self.network.receive(now, &mut node.link, data_bytes(&message));
        let takes = node.costs.draw(node.costs.receive, &mut self.sampler);
        let received = node.processor.serve(through, takes);
        if received > now {
            self.events.schedule_for(to, received, Event::Received { from, message });
        } else {
            self.on_received(to, from, message);
        }
    }

    fn on_received(&mut self, to: NodeIndex, from: u32, message: Message) {
        self.messages += 1;
        match (self.events.machine(to), message) {
            (Some(Role::Client(_)), Message::LockAnswer(answer)) => {
                self.results.push_back(EngineResult::Locking { node: to, reply: answer.reply });
            }
            (_, message) => {
                let (from, own) = (self.nodes[from as usize].id, self.nodes[to].id);
                self.step(to, Input::Message { to: own, from, message });
            }
        }
    }

    /// Completes a command: the disks of devices have no content; those of lock servers are empty when they are read.
    fn on_disk_done(&mut self, node: NodeIndex, tag: DiskTag, read: Option<usize>) {
        let result = match read {
            None => DiskResult::Done(Ok(())),
            Some(_) if self.nodes[node].disk.is_some() => DiskResult::Read(Ok(Bytes::new())),
            Some(length) => DiskResult::Read(Ok(Bytes::from(vec![0; length]))),
        };
        self.step(node, Input::DiskDone { tag, result });
    }

    fn step(&mut self, node: NodeIndex, input: InputOf<Role>) {
        let mut effects = std::mem::take(&mut self.effects);
        let machine = self.events.step(node, input, &mut effects);
        if self.handled.is_multiple_of(EVENTS_PER_INSPECTION) {
            machine.invariants();
        }
        effects.drain_ignored().for_each(drop);
        for effect in effects.drain() {
            self.perform(node, effect);
        }
        self.effects = effects;
        self.events.arm(node);
    }

    fn perform(&mut self, node: NodeIndex, effect: Effect<HostOutcome>) {
        let (now, place) = (self.events.now(), &mut self.nodes[node]);
        match effect {
            Effect::Send { to, message } => {
                let way = (node as u32, self.index(to) as u32);
                if let Some(message) = self.connections.send(way, message) {
                    self.transmit(way, message);
                }
            }
            Effect::Disk { tag, command } => {
                // A lock server writes only when it first hears of a host: that costs nothing here.
                let done = place.disk.as_mut().map_or(now, |disk| disk.issue(now, &command, &mut self.sampler));
                let read = if let DiskCommand::Read { length, .. } = command { Some(length) } else { None };
                self.events.schedule_own(node, done, Event::DiskDone { tag, read });
            }
            Effect::Reply { op, outcome } => self.results.push_back(EngineResult::Outcome { op, outcome }),
        }
    }

    fn transmit(&mut self, way: Way, message: Message) {
        let (acknowledges, (from, to)) = (self.connections.acknowledges(way), way);
        let place = &mut self.nodes[from as usize];
        let takes = place.costs.draw(place.costs.send, &mut self.sampler);
        let ready = place.processor.serve(self.events.now(), takes);
        let arrives = self.network.send(ready, &mut place.link, data_bytes(&message), &mut self.sampler);
        self.events.schedule_for(to as usize, arrives, Event::Arrival { from, message, acknowledges });
    }

    fn index(&self, id: NodeId) -> NodeIndex {
        match id {
            NodeId::Host(generation) => generation.0 as usize - 1,
            NodeId::Device(device) => self.hosts + usize::from(device.0),
            NodeId::LockServer(server) => self.hosts + self.devices + usize::from(server.0),
            NodeId::MetadataServer(_) => panic!("a modelled array has no file systems"),
            NodeId::Monitor => panic!("the membership of a modelled array never changes: no machine asks for it"),
        }
    }
}

/// Settings with which no heartbeat, lease or retry is ever due, whatever the load: no message is lost here and no node dies.
pub fn without_timeouts() -> Settings {
    let never = Duration::from_secs(1_000_000);
    let settings = Settings::default();
    Settings {
        heartbeat: never,
        host_lease: never,
        resend_min: never,
        resend_max: never,
        request_timeout: never,
        ..settings
    }
}

/// A host of an array whose membership never changes.
pub fn fixed_host(
    generation: Generation,
    devices: &[DeviceId],
    lock_servers: &[LockServerId],
    settings: &Settings,
    seed: u64,
) -> HostConfig {
    HostConfig {
        generation,
        membership: Some(Membership::first(devices.iter().copied())),
        devices: devices.to_vec(),
        lock_servers: lock_servers.to_vec(),
        acquisition: Acquisition::Ordered,
        volumes: Vec::new(),
        held: Default::default(),
        settings: settings.clone(),
        seed,
    }
}

/// A lock server of an array with so many hosts.
pub fn fixed_lock_server(id: LockServerId, hosts: usize, settings: &Settings) -> LockServerConfig {
    // Above the generations of all hosts.
    let start = Generation(hosts as u32 + 1 + u32::from(id.0));
    let config = LockServerConfig::of_volumes(id, start, Default::default(), settings.clone());
    LockServerConfig { evict_after: None, ..config }
}

/// The bytes of data that a message carries, or would carry if blocks had content.
pub fn data_bytes(message: &Message) -> u64 {
    let of = |pieces: &[Piece]| {
        let blocks = |piece: &Piece| if piece.content == Content::Present { 0 } else { piece.range.count };
        pieces.iter().map(blocks).sum::<u64>() * BLOCK_BYTES as u64
    };
    match message {
        Message::Request(request) => match &request.command {
            Command::Write { pieces, .. } => of(pieces),
            Command::Execute { column, .. } => {
                of(&column.pieces) + column.parity.iter().map(|rows| of(&rows.own)).sum::<u64>()
            }
            Command::Objects { request, .. } => request.commands.iter().map(ObjectCommand::bytes).sum::<usize>() as u64,
            _ => 0,
        },
        Message::Answer(answer) => match &answer.reply {
            Reply::Data { pieces, .. } => of(pieces),
            Reply::Objects { answer, .. } => fetched(answer),
            _ => 0,
        },
        Message::Partial(partial) => of(&partial.pieces),
        Message::LockRequest(_)
        | Message::LockAnswer(_)
        | Message::MonitorRequest(_)
        | Message::MonitorAnswer(_)
        | Message::FileRequest(_)
        | Message::FileAnswer(_)
        | Message::Shard(_) => 0,
    }
}

/// The bytes and values that the answer to an object request carries.
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
