//! A test bench for the monitor: its disk is memory that executes each command at once; the test plays devices, hosts and lock servers.

pub use braid_base::limits::Settings;
pub use braid_base::{
    ArrayId, Clock, DeviceId, DiskId, Epoch, FileSystemId, Generation, Level, LockServerId, MemberState, Membership,
    NodeId, Now, Ownership, Rng, Time, VolumeId, limits,
};
pub use braid_layout::{Layout, RaidLevel, VolumeDescription};
pub use braid_machine::{ControlOutcome, ControlRequest, Effect, HostError, Input, Machine, MonitorEffects, OpId};
pub use braid_membership::leadership::CurrentId;
pub use braid_membership::record_recovery::{DeviceTestimony, Evidence, RecordSummary, recover};
pub use braid_membership::{DISK_BYTES, Monitor, MonitorConfig, MonitorError, MonitorService};
pub use braid_wire::{
    AdminError, Administration, Holder, Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest,
    OwnershipRefused, OwnershipRequest, RecoveryThrottle,
};
pub use braid_world::MemoryDisk;
pub use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use std::time::Duration;

/// The last generation that the control plane has given out.
pub const LAST_GENERATION: Generation = Generation(1 << 20);
pub const SECOND: Duration = Duration::from_secs(1);
/// The length of a lease at the monitor.
pub const LEASE: Duration = Duration::from_millis(4_400);
/// The longest delay with which the monitor notices a deadline.
pub const NOTICE: Duration = Duration::from_millis(200);

pub struct Bench {
    pub monitor: Monitor,
    pub now: Now,
    disk: MemoryDisk,
    /// While set, the disk executes nothing.
    pub stalled: bool,
    /// What each node was told, in order.
    heard: BTreeMap<NodeId, VecDeque<MonitorAnswer>>,
    /// The current epoch of each node.
    pub epochs: BTreeMap<NodeId, Epoch>,
    /// Devices that hosts report as silent.
    pub silent: Vec<DeviceId>,
    /// Fenced hosts of which devices report undecided intents.
    pub undecided: BTreeMap<NodeId, Vec<Generation>>,
    /// Devices that report that they cannot serve.
    pub unable: Vec<DeviceId>,
    /// Devices that report that their disks are failing.
    pub failing: Vec<DeviceId>,
    /// The disks of devices whose first disks were replaced. First disks have the numbers of their devices.
    pub disks: BTreeMap<DeviceId, DiskId>,
    /// The level that all nodes report to know.
    pub knows: Level,
    /// The process of the devices that ask.
    pub holder: Option<Holder>,
    outcome: Option<ControlOutcome>,
}

pub fn config(devices: u16) -> MonitorConfig {
    let devices = (0..devices).map(DeviceId).collect();
    MonitorConfig {
        array: ArrayId([1; 16]),
        devices,
        last_generation: LAST_GENERATION,
        term: None,
        settings: Settings::default(),
    }
}

pub fn volume(id: u64, scheme: RaidLevel, devices: &[u16]) -> VolumeDescription {
    VolumeDescription::new(
        VolumeId(id),
        1 << 20,
        Layout::new(scheme, devices.len(), 16).expect("the layout is valid"),
        devices.iter().copied().map(DeviceId).collect(),
    )
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

pub fn nodes(devices: &[u16], hosts: &[u32]) -> Vec<NodeId> {
    devices.iter().copied().map(device).chain(hosts.iter().copied().map(host)).collect()
}

impl Bench {
    /// Five devices with one volume that can serve without any one of them; all devices have been heard.
    pub fn new() -> Bench {
        let mut bench = Bench::of(5);
        bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &[0, 1, 2, 3, 4]));
        bench.pass_with(SECOND, &nodes(&[0, 1, 2, 3, 4], &[]));
        bench.heard.clear();
        bench
    }

    /// This many devices, without a volume.
    pub fn of(devices: u16) -> Bench {
        let mut bench = Bench::off(config(devices));
        bench.take(Input::Start);
        assert_eq!(bench.monitor.service(), MonitorService::Serving);
        bench
    }

    /// A monitor that is not started, with an empty disk.
    pub fn off(config: MonitorConfig) -> Bench {
        Bench {
            monitor: Monitor::new(config),
            now: Now { time: Time(1_000_000_000_000), clock: Clock(0) },
            disk: MemoryDisk::new(DISK_BYTES),
            stalled: false,
            heard: BTreeMap::new(),
            epochs: BTreeMap::new(),
            silent: Vec::new(),
            undecided: BTreeMap::new(),
            knows: Level::KNOWN,
            holder: None,
            unable: Vec::new(),
            failing: Vec::new(),
            disks: BTreeMap::new(),
            outcome: None,
        }
    }

    /// A monitor that is started with this disk.
    pub fn on(config: MonitorConfig, disk: Vec<u8>) -> Bench {
        let mut bench = Bench { disk: MemoryDisk::of(disk), ..Bench::off(config) };
        bench.take(Input::Start);
        bench
    }

    pub fn restart(&mut self, config: MonitorConfig) {
        self.restart_stalled(config);
        self.resume_disk();
    }

    /// Restarts the monitor with its disk, which executes one command whenever it is told to.
    pub fn restart_stalled(&mut self, config: MonitorConfig) {
        self.monitor = Monitor::new(config);
        self.disk.forget_commands();
        self.heard.clear();
        self.stalled = true;
        self.take(Input::Start);
    }

    /// Restarts the monitor with an earlier content of its disk.
    pub fn restart_with(&mut self, config: MonitorConfig, disk: Vec<u8>) {
        self.disk = MemoryDisk::of(disk);
        self.restart(config);
    }

    /// The content of the disk.
    pub fn disk(&self) -> &[u8] {
        self.disk.bytes()
    }

    pub fn adopt(&mut self, volume: VolumeDescription) {
        assert_eq!(self.request(ControlRequest::AdoptVolume { volume }), Ok(()));
    }

    pub fn request(&mut self, request: braid_machine::ControlRequest) -> ControlOutcome {
        self.take(Input::Request { op: OpId::front_end(1), request });
        self.outcome.take().expect("it is answered at once")
    }

    /// One step, and all disk commands that follow from it.
    pub fn take(&mut self, input: Input<braid_machine::ControlRequest>) {
        self.step(input);
        self.run_disk();
    }

    /// The disk executes what it was asked to do, and goes on.
    pub fn resume_disk(&mut self) {
        self.stalled = false;
        self.run_disk();
    }

    pub fn run_disk(&mut self) {
        while !self.stalled && self.run_command() {}
    }

    /// Executes one disk command, if there is one.
    pub fn run_command(&mut self) -> bool {
        let Some((tag, result)) = self.disk.end_one() else { return false };
        self.step(Input::DiskDone { tag, result });
        true
    }

    fn step(&mut self, input: Input<braid_machine::ControlRequest>) {
        let mut effects = MonitorEffects::new();
        self.monitor.step(self.now, input, &mut effects);
        self.perform(effects);
    }

    /// A leader knows whether it led after this answer.
    pub fn end_deferred(&mut self, id: CurrentId, has_led: bool) {
        let mut effects = MonitorEffects::new();
        self.monitor.end_deferred(self.now, id, has_led, &mut effects);
        self.perform(effects);
    }

    fn perform(&mut self, mut effects: MonitorEffects) {
        self.monitor.invariants();
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => self.disk.submit(tag, command),
                Effect::Send { to, message: Message::MonitorAnswer(answer) } => {
                    let is_durable = |told: &Membership| told == self.monitor.membership();
                    assert!(
                        answer.membership.as_ref().is_none_or(is_durable),
                        "what is announced is durable: {answer:?}"
                    );
                    self.heard.entry(to).or_default().push_back(answer);
                }
                Effect::Reply { outcome, .. } => self.outcome = Some(outcome),
                other => panic!("a monitor does not do this: {other:?}"),
            }
        }
    }

    /// Lets time pass, with all timers that expire.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while let Some(deadline) = self.monitor.deadline().filter(|deadline| *deadline <= end) {
            self.now.time = deadline.max(self.now.time);
            self.take(Input::Wake);
            assert_ne!(self.monitor.deadline(), Some(deadline), "it wakes itself again and again");
        }
        self.now.time = end;
    }

    /// Lets time pass, in which these nodes ask for leases often enough and adopt what they are told.
    pub fn pass_with(&mut self, span: Duration, alive: &[NodeId]) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            alive.iter().for_each(|node| self.renew(*node));
            self.pass(Settings::default().heartbeat.min(end.since(self.now.time)));
        }
    }

    /// The node asks for a lease and adopts what it is told.
    pub fn renew(&mut self, node: NodeId) {
        let epoch = self.epochs.get(&node).copied().unwrap_or_default();
        self.renew_in(epoch, node);
        let answer = self.heard.entry(node).or_default().pop_back().expect("it is answered");
        assert_ne!(
            answer.membership.as_ref().map(|membership| membership.epoch),
            Some(epoch),
            "the membership is not repeated to a node that has it"
        );
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
                knows: self.knows,
                holder: self.holder,
            },
        );
    }

    pub fn say(&mut self, node: NodeId, command: MonitorCommand) {
        let epoch = self.epochs.get(&node).copied().unwrap_or_default();
        self.say_in(epoch, node, command);
    }

    pub fn say_in(&mut self, epoch: Epoch, node: NodeId, command: MonitorCommand) {
        let message = Message::MonitorRequest(MonitorRequest { epoch, command });
        self.take(Input::Message { to: NodeId::Monitor, from: node, message });
    }

    /// The next answer to the node.
    pub fn hear(&mut self, node: NodeId) -> Option<MonitorAnswer> {
        self.heard.get_mut(&node)?.pop_front()
    }

    /// The answers about ownerships so far: the host, its ticket, and the answer.
    pub fn take_ownerships(&mut self) -> Vec<(Generation, u64, Result<Ownership, OwnershipRefused>)> {
        let mut told = Vec::new();
        for (node, answers) in &mut self.heard {
            answers.retain(|answer| match (node, &answer.reply) {
                (NodeId::Host(host), MonitorReply::Ownership { ticket, result }) => {
                    told.push((*host, *ticket, *result));
                    false
                }
                _ => true,
            });
        }
        told
    }

    /// The answer to the node if it asks for a lease now.
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

    pub fn unavailable(&self) -> Vec<u16> {
        self.monitor.unavailable().into_iter().map(|device| device.0).collect()
    }

    /// Damages a byte of the disk.
    pub fn damage(&mut self, at: usize) {
        self.disk.bytes_mut()[at] ^= 1;
    }
}
