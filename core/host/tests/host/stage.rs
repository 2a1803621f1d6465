//! A host on a stage: the test plays the devices, and sees every message.

pub use braid_base::limits::Settings;
pub use braid_base::{
    BLOCK_BYTES, Clock, DeviceId, Epoch, Generation, LockServerId, MemberState, Membership, NodeId, Now, ObjectId,
    Stamp, Time, TransactionId, VolumeId, limits,
};
pub use braid_blocks::{Content, Piece};
pub use braid_host::{Acquisition, Host, HostConfig};
use braid_layout::Atomicity;
pub use braid_layout::{Layout, RaidLevel, SitePolicy, VolumeDescription};
pub use braid_machine::{
    ArrayRequest, Effect, HostEffects, HostError, HostInput, HostOutcome, HostRequest, HostSuccess, Input, Machine,
    ObjectsRequest, OpId, Patience, VolumeRequest,
};
pub use braid_ordering::Ordering;
pub use braid_wire::locking::{LockAnswer, LockCommand, LockReply, LockRequest};
pub use braid_wire::{
    Action, ActionResult, Answer, AttributeName, Command, CommandResult, Failure, Message, MonitorAnswer, MonitorReply,
    MonitorRequest, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest, Outcome, Refusal, Rejection, Reply,
    Request, Step, Task, Vote, When,
};
pub use bytes::Bytes;
pub use std::collections::BTreeSet;
pub use std::time::Duration;

pub const HOST: Generation = Generation(7);
pub const VOLUME: VolumeId = VolumeId(1);
pub const SERVER: LockServerId = LockServerId(0);
pub const DONE: Option<HostOutcome> = Some(Ok(HostSuccess::Done));
const EPOCH: Epoch = Epoch(1);

pub struct Stage {
    pub host: Host,
    pub now: Now,
    /// Requests to devices that the test has not examined yet.
    pub sent: Vec<(DeviceId, Request)>,
    /// The same for lock servers.
    pub asked: Vec<(LockServerId, LockRequest)>,
    pub replies: Vec<(OpId, HostOutcome)>,
    /// Requests to the monitor, if the test plays one.
    pub monitored: Vec<MonitorRequest>,
    /// The epoch in the answers of devices.
    pub epoch: Epoch,
    next_op: u64,
}

impl Stage {
    /// An array of five devices, RAID 5 of 4+1 with stripe units of one block. The host has sent its first heartbeats.
    pub fn raid5(ordering: Ordering) -> Stage {
        Stage::with_lock_servers(ordering, 1, Acquisition::Ordered)
    }

    /// The same with `servers` lock servers.
    pub fn with_lock_servers(ordering: Ordering, servers: u16, acquisition: Acquisition) -> Stage {
        let mut stage = Stage::started(ordering, servers, acquisition, false);
        assert_eq!(stage.sent.len(), 5, "a heartbeat to every device");
        stage.sent.clear();
        stage
    }

    /// The same in an array with a monitor, played by the test. All devices are in.
    pub fn with_monitor(ordering: Ordering) -> Stage {
        Stage::promising(Atomicity::Implied, ordering)
    }

    /// The same with the given atomicity.
    pub fn promising(atomicity: Atomicity, ordering: Ordering) -> Stage {
        Stage::joined("raid5:4+1", (ordering, atomicity), SitePolicy::Originator)
    }

    /// A host that was just started.
    pub fn started(ordering: Ordering, servers: u16, acquisition: Acquisition, has_monitor: bool) -> Stage {
        let kind = (ordering, Atomicity::Implied);
        Stage::of("raid5:4+1", kind, servers, acquisition, has_monitor, SitePolicy::Originator)
    }

    /// The same array with an attribute volume: RAID 1 on devices 0 and 1, two buckets.
    pub fn attribute_volume(ordering: Ordering, atomicity: Atomicity) -> Stage {
        Stage::joined("raid1:2", (ordering, atomicity), SitePolicy::Originator)
    }

    /// The same array with a volume whose parity devices compute.
    pub fn at_parity() -> Stage {
        Stage::joined("raid5:4+1", (Ordering::Timestamp, Atomicity::Implied), SitePolicy::AtParity)
    }

    /// A host that knows from the monitor that all devices are in.
    fn joined(scheme: &str, kind: (Ordering, Atomicity), parity_site: SitePolicy) -> Stage {
        let mut stage = Stage::of(scheme, kind, 1, Acquisition::Ordered, true, parity_site);
        stage.news(Membership::first((0..5).map(DeviceId)));
        stage.sent.clear();
        stage
    }

    fn of(
        scheme: &str,
        (ordering, atomicity): (Ordering, Atomicity),
        servers: u16,
        acquisition: Acquisition,
        has_monitor: bool,
        parity_site: SitePolicy,
    ) -> Stage {
        let devices: Vec<_> = (0..5).map(DeviceId).collect();
        let scheme: RaidLevel = scheme.parse().expect("a scheme");
        let (blocks, unit) = if scheme.data_units() == 1 { (64, 32) } else { (256, 1) };
        let volume = VolumeDescription {
            ordering,
            atomicity,
            parity_site,
            ..VolumeDescription::new(
                VOLUME,
                blocks * BLOCK_BYTES as u64,
                Layout::new(scheme, scheme.width(), unit).expect("a layout"),
                devices[..scheme.width()].to_vec(),
            )
        };
        let config = HostConfig {
            generation: HOST,
            membership: (!has_monitor).then(|| Membership::first(devices.iter().copied())),
            devices,
            lock_servers: (0..servers).map(LockServerId).collect(),
            acquisition,
            volumes: vec![volume],
            held: Default::default(),
            settings: Settings::default(),
            seed: 1,
        };
        let second = 1_000_000_000;
        let mut stage = Stage {
            host: Host::new(config),
            now: Now { time: Time(second), clock: Clock(1_000 * second) },
            sent: Vec::new(),
            asked: Vec::new(),
            replies: Vec::new(),
            monitored: Vec::new(),
            epoch: EPOCH,
            next_op: 0,
        };
        stage.take(Input::Start);
        stage
    }

    /// The next epoch, in which devices have other states.
    pub fn next_epoch(&self, states: &[(u16, MemberState)]) -> Membership {
        let mut membership = self.host.membership().expect("the host has a membership").clone();
        membership.epoch = membership.epoch.next();
        let epoch = membership.epoch;
        for (number, member_state) in states {
            let member = membership.member_mut(DeviceId(*number)).expect("the device is a member");
            if *member_state != MemberState::In {
                member.since = epoch;
            }
            member.member_state = *member_state;
        }
        membership
    }

    /// The monitor begins that epoch.
    pub fn enter(&mut self, states: &[(u16, MemberState)]) {
        self.news(self.next_epoch(states));
    }

    /// The monitor sends a membership, and devices adopt it.
    pub fn news(&mut self, membership: Membership) {
        self.epoch = membership.epoch;
        self.hear(Some(membership), &[]);
    }

    /// The monitor tells which devices are unavailable.
    pub fn lack(&mut self, unavailable: &[u16]) {
        self.hear(None, unavailable);
    }

    fn hear(&mut self, membership: Option<Membership>, unavailable: &[u16]) {
        let unavailable = unavailable.iter().copied().map(DeviceId).collect();
        let answer = MonitorAnswer { membership, unavailable, reply: MonitorReply::Changed };
        self.receive(NodeId::Monitor, Message::MonitorAnswer(answer));
    }

    fn receive(&mut self, from: NodeId, message: Message) {
        self.take(Input::Message { to: NodeId::Host(HOST), from, message });
    }

    pub fn take(&mut self, input: HostInput) {
        let mut effects = HostEffects::new();
        self.host.step(self.now, input, &mut effects);
        self.host.invariants();
        for effect in effects.drain() {
            match effect {
                Effect::Send { to: NodeId::Device(device), message: Message::Request(request) } => {
                    self.sent.push((device, request));
                }
                Effect::Send { to: NodeId::LockServer(server), message: Message::LockRequest(request) } => {
                    self.asked.push((server, request));
                }
                Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } => {
                    self.monitored.push(request);
                }
                Effect::Reply { op, outcome } => self.replies.push((op, outcome)),
                other => panic!("not an effect of a host: {other:?}"),
            }
        }
    }

    pub fn ask(&mut self, request: impl Into<HostRequest>) -> OpId {
        self.next_op += 1;
        let op = OpId::front_end(self.next_op);
        self.take(Input::Request { op, request: request.into() });
        op
    }

    pub fn write(&mut self, offset: u64, data: Vec<u8>) -> OpId {
        let data = Bytes::from(data);
        self.ask(VolumeRequest::Write { volume: VOLUME, offset, data, patience: Patience::Host })
    }

    pub fn write_block(&mut self, block: u64, fill: u8) -> OpId {
        self.write(block * BLOCK_BYTES as u64, vec![fill; BLOCK_BYTES])
    }

    pub fn read(&mut self, offset: u64, length: usize) -> OpId {
        self.ask(VolumeRequest::Read { volume: VOLUME, offset, length, patience: Patience::Host })
    }

    pub fn read_block(&mut self, block: u64) -> OpId {
        self.read(block * BLOCK_BYTES as u64, BLOCK_BYTES)
    }

    /// A write of endless patience.
    pub fn write_endless(&mut self, block: u64, fill: u8) -> OpId {
        let (offset, data) = (block * BLOCK_BYTES as u64, Bytes::from(vec![fill; BLOCK_BYTES]));
        self.ask(VolumeRequest::Write { volume: VOLUME, offset, data, patience: Patience::Endless })
    }

    /// A read of endless patience.
    pub fn read_endless(&mut self, block: u64) -> OpId {
        let offset = block * BLOCK_BYTES as u64;
        self.ask(VolumeRequest::Read { volume: VOLUME, offset, length: BLOCK_BYTES, patience: Patience::Endless })
    }

    /// Lets time pass, and fires every timer that becomes due.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while let Some(deadline) = self.host.deadline().filter(|deadline| *deadline <= end) {
            self.go_to(deadline.max(self.now.time));
            self.take(Input::Wake);
        }
        self.go_to(end);
    }

    fn go_to(&mut self, time: Time) {
        self.now.clock = self.now.clock.ahead(time.since(self.now.time));
        self.now.time = time;
    }

    pub fn answer(&mut self, device: DeviceId, reply: Reply) {
        self.answer_with(device, Vec::new(), reply);
    }

    pub fn answer_with(&mut self, device: DeviceId, confirmed: Vec<u64>, reply: Reply) {
        let answer = Answer { epoch: self.epoch, confirmed, reply };
        self.receive(NodeId::Device(device), Message::Answer(answer));
    }

    /// A device confirms commits, and has nothing else to say.
    pub fn confirm(&mut self, device: DeviceId, commits: Vec<u64>) {
        self.answer_with(device, commits, Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false });
    }

    /// A device refuses a command that was sent to it.
    pub fn refuse(&mut self, (device, command): &(DeviceId, Command), step: Step, refusal: Refusal) {
        let (transaction, _) = subject(command);
        self.answer(*device, Reply::Refused { transaction, step, refusal });
    }

    pub fn grant(&mut self, server: LockServerId, start: u32, reply: LockReply) {
        let answer = LockAnswer { start: Generation(start), reply };
        self.receive(NodeId::LockServer(server), Message::LockAnswer(answer));
    }

    /// Grants the single lock that was requested. Returns its id.
    pub fn grant_one(&mut self) -> u64 {
        let asked = self.lock_commands();
        let [(SERVER, LockCommand::Lock { lock_id, .. })] = asked[..] else {
            panic!("not one lock request: {asked:?}")
        };
        self.grant(SERVER, 3, LockReply::Granted { lock_id, waited: false });
        lock_id
    }

    /// Takes out the commands to lock servers so far.
    pub fn lock_commands(&mut self) -> Vec<(LockServerId, LockCommand)> {
        std::mem::take(&mut self.asked).into_iter().map(|(server, request)| (server, request.command)).collect()
    }

    /// Takes out the requests so far to one device.
    pub fn requests(&mut self, to: DeviceId) -> Vec<Request> {
        let sent = std::mem::take(&mut self.sent).into_iter();
        sent.filter(|(device, _)| *device == to).map(|(_, request)| request).collect()
    }

    /// Takes out the commands so far, heartbeats aside.
    pub fn commands(&mut self) -> Vec<(DeviceId, Command)> {
        let sent = std::mem::take(&mut self.sent);
        let commands = sent.into_iter().map(|(device, request)| (device, request.command));
        commands.filter(|(_, command)| *command != Command::Heartbeat).collect()
    }

    /// Takes out the commands so far, and plays devices that accept them all.
    pub fn accept_sent(&mut self, fill: u8) {
        let commands = self.commands();
        self.accept_all(&commands, fill);
    }

    /// Plays devices that accept all `commands`, and answer reads with blocks full of `fill`.
    pub fn accept_all(&mut self, commands: &[(DeviceId, Command)], fill: u8) {
        for (device, command) in commands {
            let reply = match command {
                Command::Prewrite { transaction, reads, .. } if reads.is_empty() => {
                    Reply::Accepted { transaction: *transaction, waited: false }
                }
                Command::Prewrite { transaction, reads: extents, .. } | Command::Read { transaction, extents, .. } => {
                    let piece = |range: &braid_base::BlockRange| {
                        let bytes = vec![fill; range.count as usize * BLOCK_BYTES];
                        Piece { range: *range, content: Content::Data(bytes.into()) }
                    };
                    let pieces = extents.iter().map(piece).collect();
                    Reply::Data { transaction: *transaction, waited: false, pieces }
                }
                Command::Write { transaction, .. } | Command::Execute { transaction, .. } => {
                    Reply::Written { transaction: *transaction, waited: false }
                }
                Command::Decide { transaction, outcome, .. } => {
                    Reply::Decided { transaction: *transaction, outcome: *outcome }
                }
                Command::Retract { transaction, .. } => {
                    Reply::Decided { transaction: *transaction, outcome: Outcome::Abort }
                }
                other => panic!("not accepted here: {other:?}"),
            };
            self.answer(*device, reply);
        }
    }

    /// The outcome of a request, if it has ended.
    pub fn outcome(&mut self, op: OpId) -> Option<HostOutcome> {
        let index = self.replies.iter().position(|(answered, _)| *answered == op)?;
        Some(self.replies.remove(index).1)
    }
}

pub fn subject(command: &Command) -> (TransactionId, Stamp) {
    match command {
        Command::Read { transaction, stamp, .. }
        | Command::Prewrite { transaction, stamp, .. }
        | Command::Execute { transaction, stamp, .. }
        | Command::Write { transaction, stamp, .. }
        | Command::Decide { transaction, stamp, .. }
        | Command::Retract { transaction, stamp }
        | Command::Resolve { transaction, stamp } => (*transaction, *stamp),
        other => panic!("a command without a stamp: {other:?}"),
    }
}

pub fn is_abort((_, command): &(DeviceId, Command)) -> bool {
    matches!(command, Command::Decide { outcome: Outcome::Abort, .. })
}

pub fn is_retract((_, command): &(DeviceId, Command)) -> bool {
    matches!(command, Command::Retract { .. })
}

pub fn is_resolve((_, command): &(DeviceId, Command)) -> bool {
    matches!(command, Command::Resolve { .. })
}
