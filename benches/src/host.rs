//! The steps of a host on a small write and on a read. The benchmark plays the devices, which grant every request.

use crate::{Workload, pattern};
use braid_base::limits::Settings;
use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, Membership, NodeId, Now, Time, VolumeId,
};
use braid_blocks::{Content, Piece};
use braid_host::{Host, HostConfig};
use braid_layout::{Layout, VolumeDescription};
use braid_machine::{Effect, HostEffects, HostInput, Input, Machine, OpId, Patience, VolumeRequest};
use braid_wire::{Answer, Command, Message, Reply, Request};
use bytes::Bytes;
use std::collections::VecDeque;

const VOLUME: VolumeId = VolumeId(1);
const EPOCH: Epoch = Epoch(1);
/// The volume's size; requests go round it.
const BLOCKS: u64 = 16 << 10;
/// Time between two requests, in nanoseconds.
const PAUSE: u64 = 100_000;

pub(crate) fn workloads() -> Vec<Workload> {
    // The effects at the end of a round: requests to this many devices, or one reply.
    let of = |name, prepare: fn(&mut Stage) -> Vec<HostInput>, effects| {
        let run = move |stage: &mut Stage, inputs| assert_eq!(stage.take_all(inputs), effects);
        Workload::new(name, Stage::new, prepare, run).of_bytes(BLOCK_BYTES)
    };
    vec![
        of("host/read-4KiB-begins", |stage| vec![stage.read()], 1),
        of("host/read-4KiB-is-answered", Stage::reading, 1),
        of("host/write-4KiB-begins", |stage| vec![stage.write()], 2),
        of("host/write-4KiB-computes-parity", Stage::prewritten, 2),
        of("host/write-4KiB-commits", Stage::writing, 1),
    ]
}

/// A host, its front end, and the devices.
struct Stage {
    host: Host,
    now: Now,
    out: HostEffects,
    /// Requests to devices that are not answered yet.
    asked: VecDeque<(DeviceId, Request)>,
    data: Bytes,
    next: u64,
}

impl Stage {
    /// A host with five devices and a volume with RAID 5 of 4+1.
    fn new() -> Stage {
        let devices: Vec<_> = (0..5).map(DeviceId).collect();
        let scheme = "raid5:4+1".parse().expect("the scheme is valid");
        let volume = VolumeDescription::new(
            VOLUME,
            BLOCKS * BLOCK_BYTES as u64,
            Layout::new(scheme, devices.len(), Layout::UNIT_BLOCKS_DEFAULT).expect("the ring has enough devices"),
            devices.clone(),
        );
        let config = HostConfig {
            generation: Generation(7),
            membership: Some(Membership::first(devices.iter().copied())),
            devices,
            lock_servers: Vec::new(),
            acquisition: Default::default(),
            volumes: vec![volume],
            held: Default::default(),
            settings: Settings::default(),
            seed: 1,
        };
        let second = 1_000_000_000;
        let mut stage = Stage {
            host: Host::new(config),
            now: Now { time: Time(second), clock: Clock(1000 * second) },
            out: HostEffects::new(),
            asked: VecDeque::new(),
            data: pattern(BLOCK_BYTES),
            next: 0,
        };
        stage.take(Input::Start);
        stage
    }

    fn read(&mut self) -> HostInput {
        let offset = self.begin();
        self.request(VolumeRequest::Read { volume: VOLUME, offset, length: BLOCK_BYTES, patience: Patience::Host })
    }

    fn write(&mut self) -> HostInput {
        let offset = self.begin();
        self.request(VolumeRequest::Write { volume: VOLUME, offset, data: self.data.clone(), patience: Patience::Host })
    }

    /// The devices' answers to a read.
    fn reading(&mut self) -> Vec<HostInput> {
        let read = self.read();
        self.after(vec![read])
    }

    /// The devices' answers to the pre-writes of a write.
    fn prewritten(&mut self) -> Vec<HostInput> {
        let write = self.write();
        self.after(vec![write])
    }

    /// The devices' answers to the devwrites of a write.
    fn writing(&mut self) -> Vec<HostInput> {
        let old = self.prewritten();
        self.after(old)
    }

    /// Finishes what earlier rounds have begun. Returns the offset of the next request.
    fn begin(&mut self) -> u64 {
        self.now = Now { time: Time(self.now.time.0 + PAUSE), clock: Clock(self.now.clock.0 + PAUSE) };
        if self.host.deadline().is_some_and(|deadline| deadline <= self.now.time) {
            self.take(Input::Wake);
        }
        while let Some((device, request)) = self.asked.pop_front() {
            let answer = answer(device, request);
            self.take(answer);
        }
        self.next += 1;
        self.next % BLOCKS * BLOCK_BYTES as u64
    }

    fn request(&self, request: VolumeRequest) -> HostInput {
        Input::Request { op: OpId::front_end(self.next), request: request.into() }
    }

    /// Hands these inputs to the host; returns the devices' answers to the requests that the host then sends.
    fn after(&mut self, inputs: Vec<HostInput>) -> Vec<HostInput> {
        self.take_all(inputs);
        let asked = std::mem::take(&mut self.asked);
        assert!(!asked.is_empty(), "the host sends requests to its devices");
        asked.into_iter().map(|(device, request)| answer(device, request)).collect()
    }

    fn take_all(&mut self, inputs: Vec<HostInput>) -> usize {
        inputs.into_iter().map(|input| self.take(input)).sum()
    }

    /// One step. Returns the number of effects.
    fn take(&mut self, input: HostInput) -> usize {
        self.host.step(self.now, input, &mut self.out);
        let effects = self.out.as_slice().len();
        for effect in self.out.drain() {
            match effect {
                Effect::Send { to: NodeId::Device(device), message: Message::Request(request) } => {
                    self.asked.push_back((device, request));
                }
                Effect::Reply { outcome: Ok(_), .. } => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        effects
    }
}

/// The answer of a device that grants every request.
fn answer(device: DeviceId, request: Request) -> HostInput {
    let reply = match request.command {
        Command::Heartbeat => Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false },
        Command::Prewrite { transaction, reads: extents, .. } | Command::Read { transaction, extents, .. } => {
            Reply::Data { transaction, waited: false, pieces: extents.into_iter().map(old).collect() }
        }
        Command::Write { transaction, .. } => Reply::Written { transaction, waited: false },
        other => panic!("unexpected: {other:?}"),
    };
    let answer = Answer { epoch: EPOCH, confirmed: request.commits, reply };
    Input::Message { to: NodeId::Host(Generation(7)), from: NodeId::Device(device), message: Message::Answer(answer) }
}

fn old(range: BlockRange) -> Piece {
    Piece { range, content: Content::Data(pattern(range.count as usize * BLOCK_BYTES)) }
}
