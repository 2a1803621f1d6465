//! A bench for one device. Its disk is memory that executes commands at once; the test plays the hosts.

pub use braid_base::limits::Settings;
pub use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, Generation, Level, MemberState, Membership,
    NodeId, Now, ObjectId, Stamp, Time, TransactionId, limits,
};
pub use braid_blocks::{Content, Linkage, Piece, Want};
pub use braid_device::{Device, DeviceConfig, Service};
pub use braid_machine::{Effect, Effects, Input, Machine};
pub use braid_ordering::{Atomicity, Ordering, WriteMode};
pub use braid_store::{Store, StoreConfig};
pub use braid_wire::{
    Answer, Command, Failure, Managed, Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Outcome,
    Partial, RecoveryThrottle, Refusal, Rejection, Reply, Request, Step, Task, Vote,
};
pub use braid_world::MemoryDisk;
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, VecDeque};
pub use std::time::Duration;

pub const OBJECT: ObjectId = ObjectId(1);
pub const UNORDERED: ObjectId = ObjectId(2);
pub const LOCKED: ObjectId = ObjectId(3);
pub const SERVED: ObjectId = ObjectId(4);
/// Objects ordered by timestamps and by device locks, whose writes take effect on arrival.
pub const ARRIVING: ObjectId = ObjectId(5);
pub const LOCKED_ARRIVING: ObjectId = ObjectId(6);
pub const BLOCKS: u64 = 256;
pub const A: Generation = Generation(1);
pub const B: Generation = Generation(2);
pub const BLOCK: BlockRange = BlockRange { start: 5, count: 1 };
pub const EPOCH: Epoch = Epoch(1);
/// The devices of the array. The device on the bench is the first.
pub const DEVICES: [DeviceId; 4] = [DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)];
const SIZE: u64 = 64 << 20;

pub struct Bench {
    pub device: Device,
    pub now: Now,
    disk: MemoryDisk,
    /// While set, the disk executes nothing.
    pub stalled: bool,
    /// Unset in tests with very many steps: the check of the invariants examines everything.
    pub check_every_step: bool,
    /// The answers to each host, in order.
    pub heard: BTreeMap<Generation, VecDeque<Answer>>,
    /// What the device has sent to other devices.
    pub partials: VecDeque<(DeviceId, Partial)>,
    settled: BTreeMap<Generation, u64>,
    /// The epoch that hosts put into their requests.
    pub epoch: Epoch,
    /// The test plays the monitor. Otherwise the membership never changes.
    has_monitor: bool,
    pub renewals: VecDeque<MonitorRequest>,
    /// When the device last asked for a lease.
    pub asked: Time,
    /// The highest stamp clock that the monitor tells.
    pub told_stamps: Clock,
}

impl Bench {
    /// A device with an object for each ordering.
    pub fn new() -> Bench {
        let mut bench = Bench::started(false);
        bench.create_objects();
        bench
    }

    /// The same in an array with a monitor, played by the test. The device has a lease and is in epoch 1, in which four
    /// devices are in.
    pub fn with_monitor() -> Bench {
        let mut bench = Bench::started(true);
        bench.tell(Some(Membership::first(DEVICES)));
        bench.create_objects();
        bench
    }

    /// The same with transactions of hosts: each with its number, and a stamp so many microseconds from now.
    pub fn with_actors<const N: usize>(self, actors: [(Generation, u64, i64); N]) -> (Bench, [Actor; N]) {
        let actors = actors.map(|(host, sequence, micros)| actor(&self, host, sequence, micros));
        (self, actors)
    }

    /// A device that is started for the first time.
    pub fn started(has_monitor: bool) -> Bench {
        let config = StoreConfig { array: ArrayId([7; 16]), device: DeviceId(0), size: SIZE };
        let disk = MemoryDisk::with(SIZE, Store::format(&config, DiskId(1), 77).expect("the size is valid"));
        let second = 1_000_000_000;
        let mut bench = Bench {
            device: device(has_monitor),
            now: Now { time: Time(second), clock: Clock(1_000 * second) },
            disk,
            stalled: false,
            check_every_step: true,
            heard: BTreeMap::new(),
            partials: VecDeque::new(),
            settled: BTreeMap::new(),
            epoch: EPOCH,
            has_monitor,
            renewals: VecDeque::new(),
            asked: Time(0),
            told_stamps: Clock(0),
        };
        bench.take(Input::Start);
        if has_monitor {
            // The device asks for the membership, which is due.
            bench.take(Input::Wake);
        }
        bench
    }

    fn create_objects(&mut self) {
        for (object, ordering, atomicity) in [
            (OBJECT, Ordering::Timestamp, Atomicity::Implied),
            (UNORDERED, Ordering::None, Atomicity::Implied),
            (LOCKED, Ordering::DeviceLock, Atomicity::Implied),
            (SERVED, Ordering::ServerLock, Atomicity::Implied),
            (ARRIVING, Ordering::Timestamp, Atomicity::Consistent),
            (LOCKED_ARRIVING, Ordering::DeviceLock, Atomicity::Consistent),
        ] {
            let (first, blocks, redundant, absent) = (0, BLOCKS, true, 0);
            let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent };
            assert_eq!(self.manage(Generation(99), object.0, task), Ok(Managed::Done));
        }
    }

    /// The monitor grants the lease that was last asked for, and sends the membership if it has changed.
    pub fn tell(&mut self, membership: Option<Membership>) {
        if let Some(membership) = &membership {
            self.epoch = membership.epoch;
        }
        self.tell_late(membership, self.asked);
    }

    /// The same, as the answer to a request that was sent at `sent`.
    pub fn tell_late(&mut self, membership: Option<Membership>, sent: Time) {
        self.tell_lease(membership, sent, Settings::default().device_lease);
    }

    /// The same, with a lease of the given length.
    pub fn tell_lease(&mut self, membership: Option<Membership>, sent: Time, length: Duration) {
        let reply = MonitorReply::Lease {
            sent,
            length,
            throttle: RecoveryThrottle::default(),
            stamps: self.told_stamps,
            level: Level::FIRST,
        };
        let answer = MonitorAnswer { membership, unavailable: Vec::new(), reply };
        self.receive(NodeId::Monitor, Message::MonitorAnswer(answer));
    }

    /// The monitor sends a membership without a lease.
    pub fn tell_only(&mut self, membership: &Membership) {
        let membership = Some(membership.clone());
        let answer = MonitorAnswer { membership, unavailable: Vec::new(), reply: MonitorReply::Changed };
        self.receive(NodeId::Monitor, Message::MonitorAnswer(answer));
    }

    /// The monitor tells the device of the next epoch, with some changes, and grants a lease.
    pub fn enter(&mut self, change: impl FnOnce(&mut Membership)) {
        let mut membership = self.device.membership().expect("a membership is adopted").clone();
        membership.epoch = membership.epoch.next();
        change(&mut membership);
        self.tell(Some(membership));
    }

    /// Lets time pass while the monitor keeps renewing the lease.
    pub fn pass_with_lease(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            self.pass(Duration::from_millis(500).min(end.since(self.now.time)));
            self.tell(None);
        }
    }

    /// The epoch in the device's last report.
    pub fn epoch_told(&self) -> Option<Epoch> {
        self.renewals.back().map(|request| request.epoch)
    }

    /// Power cycle: the disk keeps its content, and the device recovers from it.
    pub fn restart(&mut self) {
        self.device = device(self.has_monitor);
        self.disk.forget_commands();
        self.renewals.clear();
        self.heard.clear();
        self.stalled = false;
        self.take(Input::Start);
        assert_eq!(*self.device.service(), Service::Serving);
        if self.has_monitor {
            self.take(Input::Wake);
        }
    }

    fn receive(&mut self, from: NodeId, message: Message) {
        self.take(Input::Message { to: NodeId::Device(DeviceId(0)), from, message });
    }

    /// Takes one step, and executes the disk commands that follow from it.
    pub fn take(&mut self, input: Input) {
        self.step(input);
        self.run_disk();
    }

    /// The disk executes what it was asked to do, and goes on.
    pub fn resume_disk(&mut self) {
        self.stalled = false;
        self.run_disk();
    }

    /// Executes the disk commands.
    pub fn run_disk(&mut self) {
        while !self.stalled
            && let Some((tag, result)) = self.disk.end_one()
        {
            self.step(Input::DiskDone { tag, result });
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.device.step(self.now, input, &mut effects);
        if self.check_every_step {
            self.device.invariants();
        }
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => self.disk.submit(tag, command),
                Effect::Send { to: NodeId::Host(host), message: Message::Answer(answer) } => {
                    self.heard.entry(host).or_default().push_back(answer);
                }
                Effect::Send { to: NodeId::Device(to), message: Message::Partial(partial) } => {
                    self.partials.push_back((to, partial));
                }
                Effect::Send { to: NodeId::Monitor, message: Message::MonitorRequest(request) } if self.has_monitor => {
                    let MonitorCommand::Renew { sent, .. } = request.command else { panic!("{request:?}") };
                    self.asked = sent;
                    self.renewals.push_back(request);
                }
                other => panic!("not an effect of a device: {other:?}"),
            }
        }
    }

    /// Lets time pass, and fires every timer that becomes due.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while let Some(deadline) = self.device.deadline().filter(|deadline| *deadline <= end) {
            self.go_to(deadline.max(self.now.time));
            self.take(Input::Wake);
        }
        self.go_to(end);
    }

    /// The device is suspended for a while: no timer fires, and its disk ends what it was asked to do.
    pub fn suspend(&mut self, span: Duration) {
        self.go_to(self.now.time.after(span));
    }

    fn go_to(&mut self, time: Time) {
        self.now.clock = self.now.clock.ahead(time.since(self.now.time));
        self.now.time = time;
    }

    pub fn say(&mut self, host: Generation, command: Command) {
        self.say_with(host, Vec::new(), command);
    }

    pub fn say_with(&mut self, host: Generation, commits: Vec<u64>, command: Command) {
        self.send(host, Vec::new(), commits, command);
    }

    /// Says that these transactions above the settled mark are over.
    pub fn say_over(&mut self, host: Generation, over: Vec<u64>) {
        self.send(host, over, Vec::new(), Command::Heartbeat);
    }

    /// The host's next requests are late copies, from before it settled anything.
    pub fn forget_mark(&mut self, host: Generation) {
        self.settled.remove(&host);
    }

    fn send(&mut self, host: Generation, over: Vec<u64>, commits: Vec<u64>, command: Command) {
        let settled = self.settled.get(&host).copied().unwrap_or(0);
        let request = Request { host, epoch: self.epoch, settled, over, commits, command };
        self.receive(NodeId::Host(host), Message::Request(request));
    }

    /// Another device sends its part.
    pub fn arrive(&mut self, from: DeviceId, partial: Partial) {
        self.receive(NodeId::Device(from), Message::Partial(partial));
    }

    /// Raises the settled mark in the host's requests: its transactions below `sequence` are over.
    pub fn settle(&mut self, host: Generation, sequence: u64) {
        self.settled.insert(host, sequence);
        self.say(host, Command::Heartbeat);
    }

    /// The next answer to the host, heartbeats aside.
    pub fn hear(&mut self, host: Generation) -> Option<Reply> {
        let heard = self.heard.get_mut(&host)?;
        loop {
            let reply = heard.pop_front()?.reply;
            if !matches!(reply, Reply::Heartbeat { .. }) {
                return Some(reply);
            }
        }
    }

    /// Says a command, and hears what the device has answered first since the host last heard.
    pub fn ask(&mut self, host: Generation, command: Command) -> Option<Reply> {
        self.say(host, command);
        self.hear(host)
    }

    /// Asks for a task, and hears how it ended.
    pub fn manage(&mut self, host: Generation, ticket: u64, task: Task) -> Result<Managed, Failure> {
        match self.ask(host, Command::Manage { ticket, task }) {
            Some(Reply::Managed { ticket: of, result }) if of == ticket => result,
            other => panic!("not the answer to the task: {other:?}"),
        }
    }

    /// A counter of the store.
    pub fn counter(&self, name: &str) -> u64 {
        self.device.store().counters().into_iter().find(|(other, _)| *other == name).expect("it is counted").1
    }

    /// A stamp `micros` microseconds from now.
    pub fn stamp(&self, host: Generation, micros: i64) -> Stamp {
        Stamp { clock: Clock(self.now.clock.0.saturating_add_signed(micros * 1_000)), host }
    }
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new()
    }
}

fn device(has_monitor: bool) -> Device {
    let store = StoreConfig { array: ArrayId([7; 16]), device: DeviceId(0), size: SIZE };
    let membership = (!has_monitor).then(|| Membership::first(DEVICES));
    Device::new(DeviceConfig { store, membership, settings: Settings::default(), holder: None })
}

/// Sets the state of a member, from this epoch on if that begins a presence or an absence.
pub fn stands(membership: &mut Membership, number: u16, member_state: MemberState) {
    let epoch = membership.epoch;
    let member = membership.member_mut(DeviceId(number)).expect("the device is a member");
    if member_state != MemberState::In {
        member.since = epoch;
    }
    member.member_state = member_state;
}

/// A transaction under test; it makes the requests of its host.
#[derive(Clone, Copy)]
pub struct Actor {
    pub id: TransactionId,
    pub stamp: Stamp,
    pub object: ObjectId,
    pub ordering: Ordering,
}

impl Actor {
    pub fn new(host: Generation, sequence: u64, stamp: Stamp) -> Actor {
        Actor { id: TransactionId { host, sequence }, stamp, object: OBJECT, ordering: Ordering::Timestamp }
    }

    /// The same on an object with another ordering.
    pub fn on(self, object: ObjectId, ordering: Ordering) -> Actor {
        Actor { object, ordering, ..self }
    }

    pub fn read(self, range: BlockRange) -> Command {
        self.read_of(vec![range], Want::Data)
    }

    pub fn read_of(self, extents: Vec<BlockRange>, want: Want) -> Command {
        let (transaction, stamp, object, ordering) = (self.id, self.stamp, self.object, self.ordering);
        Command::Read { transaction, stamp, object, ordering, extents, want }
    }

    pub fn prewrite(self, range: BlockRange) -> Command {
        self.prewrite_reading(range, Vec::new())
    }

    pub fn read_and_prewrite(self, range: BlockRange) -> Command {
        self.prewrite_reading(range, vec![range])
    }

    pub fn prewrite_reading(self, range: BlockRange, reads: Vec<BlockRange>) -> Command {
        let (transaction, stamp, object, ordering) = (self.id, self.stamp, self.object, self.ordering);
        Command::Prewrite { transaction, stamp, object, ordering, prewrites: vec![range], reads }
    }

    pub fn write(self, range: BlockRange, fill: u8) -> Command {
        self.write_as(WriteMode::Intent, range, fill)
    }

    pub fn write_as(self, mode: WriteMode, range: BlockRange, fill: u8) -> Command {
        Command::Write {
            transaction: self.id,
            stamp: self.stamp,
            object: self.object,
            ordering: self.ordering,
            participants: vec![DeviceId(0), DeviceId(1)],
            linkage: Linkage { first: range.start, last: range.end() - 1 },
            mode,
            pieces: vec![Piece { range, content: filled(range, fill) }],
        }
    }

    pub fn decide(self, outcome: Outcome) -> Command {
        Command::Decide { transaction: self.id, stamp: self.stamp, outcome }
    }

    pub fn retract(self) -> Command {
        Command::Retract { transaction: self.id, stamp: self.stamp }
    }

    pub fn resolve(self) -> Command {
        Command::Resolve { transaction: self.id, stamp: self.stamp }
    }
}

/// Announces a write, which is accepted, and writes.
pub fn prepare(bench: &mut Bench, actor: Actor, range: BlockRange, fill: u8) {
    assert!(matches!(bench.ask(actor.id.host, actor.prewrite(range)), Some(Reply::Accepted { .. })));
    assert!(matches!(bench.ask(actor.id.host, actor.write(range, fill)), Some(Reply::Written { .. })));
}

/// A transaction of a host, with a stamp `micros` microseconds from now.
pub fn actor(bench: &Bench, host: Generation, sequence: u64, micros: i64) -> Actor {
    Actor::new(host, sequence, bench.stamp(host, micros))
}

/// The answer to a pre-write that had not to wait.
pub fn accepted(actor: Actor) -> Option<Reply> {
    Some(Reply::Accepted { transaction: actor.id, waited: false })
}

/// The answer to a write that had not to wait.
pub fn written(actor: Actor) -> Option<Reply> {
    Some(Reply::Written { transaction: actor.id, waited: false })
}

/// The answer to a request that is refused.
pub fn refused(actor: Actor, step: Step, refusal: Refusal) -> Option<Reply> {
    Some(Reply::Refused { transaction: actor.id, step, refusal })
}

/// The answer to a request that fails.
pub fn failed(actor: Actor, step: Step, failure: Failure) -> Option<Reply> {
    Some(Reply::Failed { transaction: actor.id, step, failure })
}

/// Blocks that are full of this byte.
pub fn filled(range: BlockRange, fill: u8) -> Content {
    Content::Data(Bytes::from(vec![fill; range.count as usize * BLOCK_BYTES]))
}

/// Creates an object without absent blocks.
pub fn creation(object: ObjectId, blocks: u64, ordering: Ordering, redundant: bool) -> Task {
    Task::CreateObject { object, first: 0, blocks, ordering, redundant, atomicity: Atomicity::Implied, absent: 0 }
}

/// The content in a data reply: one byte for each block, zero for holes.
pub fn fills(reply: &Reply) -> Vec<u8> {
    let Reply::Data { pieces, .. } = reply else { panic!("not data: {reply:?}") };
    let of = |piece: &Piece| match &piece.content {
        Content::Data(bytes) => bytes.iter().step_by(BLOCK_BYTES).copied().collect(),
        Content::Hole => vec![0; piece.range.count as usize],
        Content::Present | Content::Header { .. } | Content::Lost => panic!("only asked for allocation"),
    };
    pieces.iter().flat_map(of).collect()
}
