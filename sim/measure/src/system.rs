//! An array on modelled hardware: the same machines as everywhere, and a loop that moves messages between them as values.
//!
//! Nothing is encoded, traced or lost here, and the machines' invariants are looked at now and then only: attacks are the business
//! of `sim/cluster`, this is for speed. What a message or access costs is the business of [`crate::models`].

use crate::dice::Dice;
use crate::models::{DiskModel, Link, NetworkModel, ProcessorCosts, Server};
use crate::parameters::{self, Arrivals, Parameters, milliseconds};
use crate::queue::EventQueue;
use crate::storage::ModelStorage;
use crate::tally::{Tally, Totals, Workers};
use crate::workload::Requests;
use braid_base::limits::Settings;
use braid_base::{ArrayId, BLOCK_BYTES, DeviceId, Generation, LockServerId, Membership, NodeId, Rng, Time, VolumeId};
use braid_device::{Device, DeviceConfig};
use braid_host::{Acquisition, Host, HostConfig};
use braid_layout::{Atomicity, Layout, Scheme, VolumeDescription};
use braid_locks::{LockServer, LockServerConfig};
use braid_machine::{DiskCommand, DiskResult, DiskTag, Effect, Effects, Input, Machine, OpId};
use braid_store::StoreConfig;
use braid_wire::{Command, Content, Message, ObjectDescription, Ordering, Piece, Reply};
use braid_world::LocalClock;
use bytes::Bytes;
use std::time::Duration;

const ARRAY: ArrayId = ArrayId(*b"a modelled array");
/// The machines' invariants are looked at once in so many events.
const EVENTS_PER_INSPECTION: u64 = 4096;

/// An array, its hosts, what they are asked, and what is going to happen.
pub struct System {
    now: Time,
    queue: EventQueue<Event>,
    /// Hosts, then devices, then lock servers.
    nodes: Vec<Node>,
    hosts: usize,
    devices: usize,
    network: NetworkModel,
    requests: Requests,
    arrivals: Arrivals,
    streams_per_host: usize,
    /// Of what is asked.
    workload_dice: Dice,
    /// Of the hardware.
    dice: Dice,
    operations: Vec<Operation>,
    free: Vec<u32>,
    effects: Effects,
    /// What was seen.
    pub tally: Tally,
}

struct Node {
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

enum Role {
    Host(Box<Host>),
    Device(Box<Device>),
    LockServer(Box<LockServer>),
}

impl Role {
    fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Role::Host(host) => &mut **host,
            Role::Device(device) => &mut **device,
            Role::LockServer(server) => &mut **server,
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Operation {
    stream: u32,
    since: Time,
}

enum Event {
    /// A stream asks its host for something.
    Asked { stream: u32 },
    /// The host's processor has taken the request in.
    Taken { operation: u32 },
    /// A message is at a node's link.
    Arrival { to: u32, from: u32, message: Message },
    /// A node's processor has taken the message in.
    Received { to: u32, from: u32, message: Message },
    /// A disk is done.
    DiskDone { node: u32, tag: DiskTag, read: Option<usize> },
    /// A machine's deadline.
    Wake { node: u32 },
}

impl System {
    /// The array that the parameters describe, at rest. The seed decides all that happens.
    pub fn new(parameters: &Parameters, ordering: Ordering, seed: u64) -> System {
        let mut seeds = Rng::new(seed);
        let mut clocks = Dice::new(seeds.next_u64());
        let volumes = volumes(parameters, ordering);
        let settings = settings(parameters);
        let devices: Vec<DeviceId> = (0..parameters.system.devices as u16).map(DeviceId).collect();
        let lock_servers: Vec<LockServerId> = match ordering.needs_lock_server() {
            true => (0..parameters.system.lock_servers as u16).map(LockServerId).collect(),
            false => Vec::new(),
        };
        let mut system = System {
            now: Time(0),
            queue: EventQueue::default(),
            nodes: Vec::new(),
            hosts: parameters.system.hosts as usize,
            devices: parameters.system.devices as usize,
            network: NetworkModel::new(&parameters.network),
            requests: Requests::new(parameters),
            arrivals: parameters.workload.arrivals,
            streams_per_host: parameters.workload.streams_per_host as usize,
            workload_dice: Dice::new(seeds.next_u64()),
            dice: Dice::new(seeds.next_u64()),
            operations: Vec::new(),
            free: Vec::new(),
            effects: Effects::new(),
            tally: Tally::new(&parameters.run, parameters.system.hosts),
        };
        let membership = Membership::first(devices.iter().copied());
        for number in 1..=parameters.system.hosts as u32 {
            let host = Host::new(HostConfig {
                generation: Generation(number),
                membership: Some(membership.clone()),
                devices: devices.clone(),
                lock_servers: lock_servers.clone(),
                acquisition: match parameters.system.lock_acquisition {
                    parameters::LockAcquisition::Ordered => Acquisition::Ordered,
                    parameters::LockAcquisition::Timeout => Acquisition::Timeout,
                },
                volumes: volumes.clone(),
                settings: settings.clone(),
                seed: seeds.next_u64(),
            });
            let costs = ProcessorCosts::host(&parameters.processor);
            let id = NodeId::Host(Generation(number));
            system.add(id, Role::Host(Box::new(host)), costs, None, clock(parameters, &mut clocks));
        }
        for (volume, device) in
            volumes.iter().flat_map(|volume| volume.devices.iter().map(move |device| (volume, device)))
        {
            let object = ObjectDescription {
                object: volume.id.object(),
                first: 0,
                blocks: volume.component_blocks(),
                ordering,
                redundant: true,
                atomicity: volume.atomicity,
            };
            let store = StoreConfig { array: ARRAY, device: *device, size: u64::MAX };
            let config = DeviceConfig { store, membership: Some(membership.clone()), settings: settings.clone() };
            let machine = Device::over(config, Box::new(ModelStorage::new(object)));
            let costs = ProcessorCosts::device(&parameters.processor);
            let disk = Some(DiskModel::new(&parameters.disk));
            let id = NodeId::Device(*device);
            system.add(id, Role::Device(Box::new(machine)), costs, disk, clock(parameters, &mut clocks));
        }
        for server in lock_servers {
            let machine = LockServer::new(LockServerConfig {
                id: server,
                // Above all hosts.
                start: Generation(parameters.system.hosts as u32 + 1 + u32::from(server.0)),
                settings: settings.clone(),
            });
            let costs = ProcessorCosts::lock_server(&parameters.processor);
            let id = NodeId::LockServer(server);
            system.add(id, Role::LockServer(Box::new(machine)), costs, None, clock(parameters, &mut clocks));
        }
        for stream in 0..(system.hosts * system.streams_per_host) as u32 {
            // Streams begin anywhere in their thinking.
            let first = milliseconds(system.workload_dice.between(0.0, parameters.workload.think_ms));
            system.queue.push(Time(0).after(first), Event::Asked { stream });
        }
        system
    }

    /// Runs until everything that was to be measured is.
    pub fn run(&mut self) {
        while !self.tally.is_over() {
            let (at, event) = self.queue.pop().expect("streams never end");
            self.now = at;
            self.tally.events += 1;
            self.handle(event);
        }
    }

    /// What nodes have counted so far.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for node in &self.nodes {
            match &node.machine {
                Role::Host(host) => {
                    let counters = host.counters();
                    totals.delayed += counters.delayed;
                    totals.restarts += counters.restarts;
                }
                Role::LockServer(_) => totals.lock_servers_busy += node.processor.busy(self.now),
                Role::Device(_) => {
                    totals.disks_busy += node.disk.as_ref().map_or(Duration::ZERO, |disk| disk.busy(self.now))
                }
            }
        }
        totals
    }

    /// How many share the work.
    pub fn workers(&self) -> Workers {
        let disks = self.nodes.iter().filter_map(|node| node.disk.as_ref());
        let lock_servers = self.nodes.len() - self.hosts - self.devices;
        Workers { disks: disks.map(DiskModel::arms).sum(), lock_servers }
    }

    /// True time.
    pub fn now(&self) -> Time {
        self.now
    }

    fn add(&mut self, id: NodeId, machine: Role, costs: ProcessorCosts, disk: Option<DiskModel>, clock: LocalClock) {
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

    fn handle(&mut self, event: Event) {
        match event {
            Event::Asked { stream } => self.on_asked(stream),
            Event::Taken { operation } => {
                let host = self.operations[operation as usize].stream as usize / self.streams_per_host;
                let request = self.requests.next(&mut self.workload_dice);
                self.step(host, Input::Request { op: OpId(u64::from(operation)), request });
            }
            Event::Arrival { to, from, message } => self.on_arrival(to, from, message),
            Event::Received { to, from, message } => self.on_received(to, from, message),
            Event::DiskDone { node, tag, read } => {
                self.on_disk_done(node as usize, tag, read);
            }
            Event::Wake { node } => self.on_wake(node as usize),
        }
    }

    fn on_asked(&mut self, stream: u32) {
        if self.arrivals == Arrivals::Open && self.tally.is_full() {
            return self.think(stream);
        }
        let operation = Operation { stream, since: self.now };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.operations[slot as usize] = operation;
                slot
            }
            None => {
                self.operations.push(operation);
                (self.operations.len() - 1) as u32
            }
        };
        self.tally.asked();
        let host = &mut self.nodes[stream as usize / self.streams_per_host];
        let takes = host.costs.draw(host.costs.request, &mut self.dice);
        let taken = host.processor.serve(self.now, takes);
        self.queue.push(taken, Event::Taken { operation: slot });
        if self.arrivals == Arrivals::Open {
            self.think(stream);
        }
    }

    fn think(&mut self, stream: u32) {
        let span = self.requests.think(&mut self.workload_dice);
        self.queue.push(self.now.after(span), Event::Asked { stream });
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
        self.tally.message();
        let from = self.nodes[from as usize].id;
        self.step(to as usize, Input::Message { from, message });
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
        if self.tally.events.is_multiple_of(EVENTS_PER_INSPECTION) {
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
            Effect::Reply { op, outcome } => {
                let slot = op.0 as u32;
                let Operation { stream, since } = self.operations[slot as usize];
                self.free.push(slot);
                let totals = if self.tally.is_at_edge() { self.totals() } else { Totals::default() };
                self.tally.answered(self.now, since, &outcome, totals);
                if self.arrivals == Arrivals::Closed {
                    self.think(stream);
                }
            }
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
            _ => 0,
        },
        Message::Answer(answer) => match &answer.reply {
            Reply::Data { pieces, .. } => of(pieces),
            _ => 0,
        },
        Message::LockRequest(_) | Message::LockAnswer(_) | Message::MonitorRequest(_) | Message::MonitorAnswer(_) => 0,
    }
}

/// The volumes, each on the devices that follow those of the one before.
fn volumes(parameters: &Parameters, ordering: Ordering) -> Vec<VolumeDescription> {
    let (system, count) = (&parameters.system, parameters.volumes());
    let scheme = Scheme::Raid5 { data: system.data_units as usize };
    let unit_blocks = system.unit_kib * 1024 / BLOCK_BYTES as u64;
    let width = system.devices / count;
    let layout = Layout::new(scheme, width as usize, unit_blocks).expect("parameters are checked");
    let volume = |number: u64| VolumeDescription {
        id: VolumeId(1 + number),
        bytes: parameters.stripes() * layout.stripe_blocks() * BLOCK_BYTES as u64,
        layout,
        devices: (number * width..(number + 1) * width).map(|device| DeviceId(device as u16)).collect(),
        ordering,
        atomicity: match parameters.protocol.atomicity {
            parameters::Atomicity::Consistent => Atomicity::Consistent,
            parameters::Atomicity::Implied => Atomicity::Implied,
        },
        moving: None,
    };
    (0..count).map(volume).collect()
}

/// Nothing is lost here and nobody dies: heartbeats, leases and repetitions never matter, whatever the load.
fn settings(parameters: &Parameters) -> Settings {
    let (protocol, never) = (&parameters.protocol, Duration::from_secs(1_000_000));
    Settings {
        heartbeat: never,
        host_lease: never,
        resend_min: never,
        resend_max: never,
        request_timeout: never,
        lock_timeout: milliseconds(protocol.lock_timeout_ms),
        lock_lease: milliseconds(protocol.lock_lease_ms),
        backoff_min: milliseconds(protocol.backoff_min_ms),
        backoff_max: milliseconds(protocol.backoff_max_ms),
        commit_linger: milliseconds(protocol.commit_linger_ms),
        ..Settings::default()
    }
}

fn clock(parameters: &Parameters, dice: &mut Dice) -> LocalClock {
    let drift = parameters.clock.drift_ppm;
    let mut clock = LocalClock::exact(Time(0)).drifting(dice.between(-drift, drift).round() as i64);
    let skew = parameters.clock.skew_ms * 1e6;
    clock.step(dice.between(-skew, skew) as i64);
    clock
}
