//! A monitor on a bench: its disk is memory that does at once what it is told, the test plays devices, hosts and lock servers.

use braid_base::limits::Settings;
use braid_base::{
    ArrayId, Clock, DeviceId, DiskId, Epoch, Generation, LockServerId, MemberState, Membership, NodeId, Now, Time,
    VolumeId,
};
use braid_layout::{Atomicity, Layout, Scheme, VolumeDescription};
use braid_machine::{
    DiskCommand, DiskResult, DiskTag, Effect, Effects, HostOutcome, HostRequest, HostSuccess, Input, Machine, OpId,
};
use braid_membership::{DISK_BYTES, Monitor, MonitorConfig, MonitorService};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Ordering};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub const SECOND: Duration = Duration::from_secs(1);
/// What a lease runs at the monitor.
pub const LEASE: Duration = Duration::from_millis(4_400);
/// How late the monitor may notice what time brings.
pub const NOTICE: Duration = Duration::from_millis(200);

pub struct Bench {
    pub monitor: Monitor,
    pub now: Now,
    disk: Vec<u8>,
    commands: VecDeque<(DiskTag, DiskCommand)>,
    /// While set, the disk does nothing.
    pub stalled: bool,
    /// What each node was told, in order.
    heard: BTreeMap<NodeId, VecDeque<MonitorAnswer>>,
    /// The epoch that each node lives by.
    pub epochs: BTreeMap<NodeId, Epoch>,
    /// Devices that hosts say they can't reach.
    pub silent: Vec<DeviceId>,
    /// Fenced hosts of which devices say that they hold something undecided.
    pub undecided: BTreeMap<NodeId, Vec<Generation>>,
    /// Devices that say that they are of no use.
    pub unable: Vec<DeviceId>,
    /// Devices that say that their disks are failing.
    pub failing: Vec<DeviceId>,
    /// The disks of devices that have not their first ones, which are named like them.
    pub disks: BTreeMap<DeviceId, DiskId>,
    outcome: Option<HostOutcome>,
}

pub fn config(devices: u16) -> MonitorConfig {
    let devices = (0..devices).map(DeviceId).collect();
    MonitorConfig { array: ArrayId([1; 16]), devices, settings: Settings::default() }
}

pub fn volume(id: u64, scheme: Scheme, devices: &[u16]) -> VolumeDescription {
    VolumeDescription {
        id: VolumeId(id),
        bytes: 1 << 20,
        layout: Layout::new(scheme, devices.len(), 16).expect("it can be laid so"),
        devices: devices.iter().copied().map(DeviceId).collect(),
        ordering: Ordering::Timestamp,
        atomicity: Atomicity::Implied,
        moving: None,
    }
}

pub fn device(number: u16) -> NodeId {
    NodeId::Device(DeviceId(number))
}

pub fn host(number: u32) -> NodeId {
    NodeId::Host(Generation(number))
}

pub fn lock_server(number: u16) -> NodeId {
    NodeId::LockServer(LockServerId(number))
}

/// Several devices and hosts.
pub fn nodes(devices: &[u16], hosts: &[u32]) -> Vec<NodeId> {
    devices.iter().copied().map(device).chain(hosts.iter().copied().map(host)).collect()
}

impl Bench {
    /// Five devices with one volume that does without any one of them, all heard of.
    pub fn new() -> Bench {
        let mut bench = Bench::of(5);
        bench.adopt(volume(1, Scheme::Raid5 { data: 4 }, &[0, 1, 2, 3, 4]));
        bench.pass_with(SECOND, &nodes(&[0, 1, 2, 3, 4], &[]));
        bench.heard.clear();
        bench
    }

    /// So many devices, without a volume.
    pub fn of(devices: u16) -> Bench {
        let mut bench = Bench::off(config(devices));
        bench.take(Input::Start);
        assert_eq!(bench.monitor.service(), MonitorService::Serving);
        bench
    }

    /// A monitor that is to be started, with an empty disk.
    pub fn off(config: MonitorConfig) -> Bench {
        Bench {
            monitor: Monitor::new(config),
            now: Now { time: Time(1_000_000_000_000), clock: Clock(0) },
            disk: vec![0; DISK_BYTES as usize],
            commands: VecDeque::new(),
            stalled: false,
            heard: BTreeMap::new(),
            epochs: BTreeMap::new(),
            silent: Vec::new(),
            undecided: BTreeMap::new(),
            unable: Vec::new(),
            failing: Vec::new(),
            disks: BTreeMap::new(),
            outcome: None,
        }
    }

    /// A monitor that is started with this disk.
    pub fn on(config: MonitorConfig, disk: Vec<u8>) -> Bench {
        let mut bench = Bench { disk, ..Bench::off(config) };
        bench.take(Input::Start);
        bench
    }

    /// Off and on again: the disk keeps what it has.
    pub fn restart(&mut self, config: MonitorConfig) {
        self.monitor = Monitor::new(config);
        self.commands.clear();
        self.heard.clear();
        self.stalled = false;
        self.take(Input::Start);
    }

    /// The same, with what the disk had before.
    pub fn restart_with(&mut self, config: MonitorConfig, disk: Vec<u8>) {
        self.disk = disk;
        self.restart(config);
    }

    /// What the disk has.
    pub fn disk(&self) -> &[u8] {
        &self.disk
    }

    pub fn adopt(&mut self, volume: VolumeDescription) {
        assert_eq!(self.request(HostRequest::AdoptVolume { volume }), Ok(HostSuccess::Done));
    }

    pub fn request(&mut self, request: HostRequest) -> HostOutcome {
        self.take(Input::Request { op: OpId(1), request });
        self.outcome.take().expect("it is answered at once")
    }

    /// One step, and all that its disk commands bring about.
    pub fn take(&mut self, input: Input) {
        self.step(input);
        self.run_disk();
    }

    pub fn run_disk(&mut self) {
        while !self.stalled && self.run_command() {}
    }

    /// Does one disk command, if there is one.
    pub fn run_command(&mut self) -> bool {
        let Some((tag, command)) = self.commands.pop_front() else { return false };
        let result = match command {
            DiskCommand::Read { offset, length } => {
                DiskResult::Read(Ok(Bytes::copy_from_slice(&self.disk[offset as usize..][..length])))
            }
            DiskCommand::Write { offset, data, durable: true } => {
                let data = data.concat();
                self.disk[offset as usize..][..data.len()].copy_from_slice(&data);
                DiskResult::Done(Ok(()))
            }
            other => panic!("a monitor does not do this: {other:?}"),
        };
        self.step(Input::DiskDone { tag, result });
        true
    }

    fn step(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.monitor.step(self.now, input, &mut effects);
        self.monitor.invariants();
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => self.commands.push_back((tag, command)),
                Effect::Send { to, message: Message::MonitorAnswer(answer) } => {
                    self.heard.entry(to).or_default().push_back(answer);
                }
                Effect::Reply { outcome, .. } => self.outcome = Some(outcome),
                other => panic!("a monitor does not do this: {other:?}"),
            }
        }
    }

    /// Lets time pass, with every timer on the way.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while let Some(deadline) = self.monitor.deadline().filter(|deadline| *deadline <= end) {
            self.now.time = deadline.max(self.now.time);
            self.take(Input::Wake);
        }
        self.now.time = end;
    }

    /// Lets time pass, in which these renew often enough, and live by what they are told.
    pub fn pass_with(&mut self, span: Duration, alive: &[NodeId]) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            alive.iter().for_each(|node| self.renew(*node));
            self.pass(Settings::default().heartbeat.min(end.since(self.now.time)));
        }
    }

    /// The node renews, and lives by what it is told.
    pub fn renew(&mut self, node: NodeId) {
        let epoch = self.epochs.get(&node).copied().unwrap_or_default();
        self.renew_in(epoch, node);
        let answer = self.heard.entry(node).or_default().pop_back().expect("it is answered");
        assert_ne!(answer.membership.as_ref().map(|membership| membership.epoch), Some(epoch), "it has that");
        if let Some(membership) = answer.membership {
            self.epochs.insert(node, membership.epoch);
        }
    }

    pub fn renew_in(&mut self, epoch: Epoch, node: NodeId) {
        let silent = match node {
            NodeId::Host(_) => self.silent.clone(),
            NodeId::Device(device) => self.unable.iter().copied().filter(|unable| *unable == device).collect(),
            _ => Vec::new(),
        };
        let disk = match node {
            NodeId::Device(device) => Some(self.disks.get(&device).copied().unwrap_or(DiskId(u64::from(device.0)))),
            _ => None,
        };
        let undecided = self.undecided.get(&node).cloned().unwrap_or_default();
        let failing = self.failing.iter().any(|failing| node == NodeId::Device(*failing));
        self.say_in(
            epoch,
            node,
            MonitorCommand::Renew {
                sent: self.now.time,
                silent,
                disk,
                bad_slots: if failing { 3 } else { 0 },
                failing,
                undecided,
                stamps: Clock(0),
            },
        );
    }

    pub fn say(&mut self, node: NodeId, command: MonitorCommand) {
        let epoch = self.epochs.get(&node).copied().unwrap_or_default();
        self.say_in(epoch, node, command);
    }

    pub fn say_in(&mut self, epoch: Epoch, node: NodeId, command: MonitorCommand) {
        let message = Message::MonitorRequest(MonitorRequest { epoch, command });
        self.take(Input::Message { from: node, message });
    }

    /// The next thing that the node was told.
    pub fn hear(&mut self, node: NodeId) -> Option<MonitorAnswer> {
        self.heard.get_mut(&node)?.pop_front()
    }

    /// What the node is answered now, when it renews.
    pub fn answer_to(&mut self, node: NodeId) -> MonitorAnswer {
        self.heard.remove(&node);
        let epoch = self.epochs.get(&node).copied().unwrap_or_default();
        self.renew_in(epoch, node);
        self.hear(node).expect("it is answered")
    }

    /// True if the device gets a lease now.
    pub fn gets_lease(&mut self, node: NodeId) -> bool {
        matches!(self.answer_to(node).reply, MonitorReply::Lease { sent, .. } if sent == self.now.time)
    }

    pub fn membership(&self) -> &Membership {
        self.monitor.membership()
    }

    pub fn epoch(&self) -> u32 {
        self.membership().epoch.0
    }

    pub fn member_state(&self, device: u16) -> MemberState {
        self.membership().member(DeviceId(device)).expect("it is there").member_state
    }

    pub fn since(&self, device: u16) -> u32 {
        self.membership().member(DeviceId(device)).expect("it is there").since.0
    }

    pub fn unavailable(&self) -> Vec<u16> {
        self.monitor.unavailable().into_iter().map(|device| device.0).collect()
    }

    /// Bytes of the disk are others.
    pub fn damage(&mut self, at: usize) {
        self.disk[at] ^= 1;
    }
}
