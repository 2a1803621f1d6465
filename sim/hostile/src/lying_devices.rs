//! A host among devices of which one lies: it says other content than it has, that it has written what it has not, that transactions are
//! orphans, and anything else that the grammar composes.
//!
//! The host and the honest devices are the real machines; the bench plays the monitor and the network, which loses, doubles and reorders
//! messages now and then. What must hold:
//!
//! * No answer crashes the host or another device, or breaks an invariant of theirs.
//! * An honest device holds in each block what a host wrote there last, or what it wrote later without an answer. So an acknowledged write
//!   of a mirror is on each of its honest devices.
//! * When the device stops lying, every operation ends.
//!
//! One kind of lie is exempt from the second rule: about the outcome of a transaction in which the device takes part ([`Lies::All`]).
//! Two-phase commit counts on every participant's vote, and no device can check that of another (`docs/fault-model.md`).

use crate::choices::Choices;
use crate::grammar::{Grammar, legal};
use crate::known::Known;
use crate::prelude::*;
use crate::subject::{DEVICES, HOST, HonestRequest, Subject, device, device_disk, host, volume};
use braid_blocks::{Content, Want};
use braid_layout::{SitePolicy, VolumeDescription};
use braid_locks::{LockServer, LockServerConfig};
use braid_machine::{Effect, Input, OpId, Patience, VolumeRequest};
use braid_wire::{Answer, MonitorAnswer, MonitorReply, RecoveryThrottle, Reply, Request, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Which lies the device tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// All, also about the outcomes of transactions.
    All,
    /// All but those.
    ButOutcomes,
}

/// The host that looks at the devices in the end.
const READER: Generation = Generation(9);
/// When the device stops lying, all operations end within this time.
const END_WITHIN: Duration = Duration::from_secs(120);
const LOCK_SERVER: NodeId = NodeId::LockServer(LockServerId(0));

struct Node {
    machine: Subject,
    disk: MemoryDisk,
}

/// A host, its devices and its lock server.
pub struct LyingDevice {
    nodes: BTreeMap<NodeId, Node>,
    messages: VecDeque<(NodeId, NodeId, Message)>,
    grammar: Grammar,
    liar: DeviceId,
    lies: Lies,
    /// The device lies at present.
    is_lying: bool,
    settings: Settings,
    volumes: Vec<VolumeDescription>,
    /// What each block may hold: the last byte that was written, and later ones whose outcome is not known.
    possible: BTreeMap<(VolumeId, u64), BTreeSet<u8>>,
    under_way: BTreeMap<OpId, Write>,
    next_op: u64,
    /// Answers to the reader.
    read: VecDeque<Reply>,
    /// How many writes were acknowledged.
    pub acknowledged: u64,
    /// How many answers of the device were lies.
    pub lied: u64,
}

/// An operation under way; a read writes no blocks.
struct Write {
    volume: VolumeId,
    blocks: BlockRange,
    value: Option<u8>,
}

/// The volumes: every redundant level, every ordering that excludes interrupted writes, and both sites of parity.
fn volumes() -> Vec<VolumeDescription> {
    let mut volumes = Vec::new();
    for ordering in [Ordering::Timestamp, Ordering::DeviceLock, Ordering::ServerLock, Ordering::CallbackLock] {
        for (level, devices) in [("raid1:3", 0..3), ("raid1:2", 1..3), ("raid5:2+1", 0..3)] {
            volumes.push(volume(volumes.len() as u64 + 1, level, devices, ordering, Atomicity::Implied));
        }
    }
    let number = volumes.len() as u64 + 1;
    let parallel = volume(number, "raid5:2+1", 0..3, Ordering::Timestamp, Atomicity::Implied);
    volumes.push(VolumeDescription { parity_site: SitePolicy::AtParity, ..parallel });
    volumes
}

impl LyingDevice {
    pub fn new(mut choices: Choices, lies: Lies) -> LyingDevice {
        let (settings, volumes) = (Settings { object_memory: 1 << 20, ..Settings::default() }, volumes());
        let liar = DeviceId(choices.below(3) as u16);
        let mut nodes: BTreeMap<NodeId, Node> = BTreeMap::new();
        for number in (0..DEVICES).map(DeviceId) {
            let machine = Subject::Device(Box::new(device(number, settings.clone())));
            nodes.insert(NodeId::Device(number), Node { machine, disk: device_disk(number) });
        }
        let config = LockServerConfig::of_volumes(LockServerId(0), Generation(1), BTreeSet::new(), settings.clone());
        let disk = MemoryDisk::new(braid_locks::DISK_BYTES);
        nodes.insert(LOCK_SERVER, Node { machine: Subject::LockServer(Box::new(LockServer::new(config))), disk });
        let machine = Subject::Host(Box::new(host(settings.clone(), volumes.clone(), 5)));
        nodes.insert(NodeId::Host(HOST), Node { machine, disk: MemoryDisk::new(0) });
        let mut known = Known::new();
        volumes.iter().for_each(|volume| _ = known.objects.insert(volume.id.object(), volume.ordering));
        let mut array = LyingDevice {
            nodes,
            messages: VecDeque::new(),
            grammar: Grammar::new(choices, known),
            liar,
            lies,
            is_lying: false,
            settings,
            volumes,
            possible: BTreeMap::new(),
            under_way: BTreeMap::new(),
            next_op: 1,
            read: VecDeque::new(),
            acknowledged: 0,
            lied: 0,
        };
        let all: Vec<NodeId> = array.nodes.keys().copied().collect();
        all.into_iter().for_each(|node| array.step(node, Input::Start));
        array.pass(Duration::from_secs(2));
        array.create_objects();
        array
    }

    fn create_objects(&mut self) {
        for volume in self.volumes.clone() {
            for device in volume.devices.clone() {
                let range = volume.object_on(device).expect("it is one of its devices");
                let (object, first, blocks, absent) = (volume.id.object(), range.start, range.count, 0);
                let (ordering, atomicity, redundant) = (volume.ordering, volume.atomicity, true);
                let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent };
                self.ask_as_reader(device, Command::Manage { ticket: 1_000 + object.0, task });
                let reply = self.read.pop_front();
                assert!(matches!(reply, Some(Reply::Managed { result: Ok(_), .. })), "{object} on {device}");
            }
        }
    }

    /// Runs this many operations while the device lies; then it is honest again, and everything ends.
    pub fn run(&mut self, operations: u64) {
        self.is_lying = true;
        for _ in 0..operations {
            if self.grammar.choices.is_used_up() {
                break;
            }
            self.begin_operation();
            let millis = self.grammar.choices.pick(&[0, 1, 5, 60, 700]);
            self.pass(Duration::from_millis(millis));
        }
        self.is_lying = false;
        let end = self.now().time.after(END_WITHIN);
        while !self.under_way.is_empty() && self.now().time < end {
            self.pass(Duration::from_millis(500));
        }
        assert!(self.under_way.is_empty(), "{} operations do not end", self.under_way.len());
        self.pass(Duration::from_secs(10));
        if self.lies == Lies::ButOutcomes {
            self.check_honest_devices();
        }
    }

    fn begin_operation(&mut self) {
        let at = self.grammar.choices.below(self.volumes.len() as u64) as usize;
        let volume = self.volumes[at].id;
        let blocks = BlockRange::new(self.grammar.choices.below(20), 1 + self.grammar.choices.below(5));
        let busy = |write: &Write| write.volume == volume && write.blocks.overlaps(blocks);
        if self.under_way.values().any(busy) {
            return;
        }
        let (offset, length) = (blocks.start * BLOCK_BYTES as u64, blocks.count as usize * BLOCK_BYTES);
        let value = self.grammar.choices.chance(75).then(|| 1 + self.grammar.choices.below(255) as u8);
        let patience = Patience::Host;
        let request = match value {
            Some(value) => VolumeRequest::Write { volume, offset, data: Bytes::from(vec![value; length]), patience },
            None => VolumeRequest::Read { volume, offset, length, patience },
        };
        for block in blocks.blocks().filter(|_| value.is_some()) {
            self.possible.entry((volume, block)).or_insert_with(|| [0].into()).extend(value);
        }
        let op = OpId::front_end(self.next_op);
        self.next_op += 1;
        self.under_way.insert(op, Write { volume, blocks, value });
        self.step(NodeId::Host(HOST), Input::Request { op, request: HonestRequest::Host(request.into()) });
    }

    fn on_reply(&mut self, op: OpId, is_done: bool) {
        let Some(Write { volume, blocks, value: Some(value) }) = self.under_way.remove(&op) else { return };
        if is_done {
            self.acknowledged += 1;
            for block in blocks.blocks() {
                self.possible.insert((volume, block), [value].into());
            }
        }
    }

    /// Every block of an honest device has what it may have.
    fn check_honest_devices(&mut self) {
        for ((volume, block), possible) in self.possible.clone() {
            let volume = self.volumes.iter().find(|known| known.id == volume).expect("it is one of them").clone();
            let place = volume.layout.locate(block);
            let copies = if volume.layout.data_units() == 1 { volume.devices.len() } else { 1 };
            for copy in 0..copies {
                let position = if copies > 1 { copy } else { place.position };
                let device = volume.devices[position];
                if device == self.liar {
                    continue;
                }
                let found = self.read_block(&volume, device, place.block);
                assert!(
                    possible.contains(&found),
                    "block {block} of {:?} on the honest {device} holds {found}, not one of {possible:?}; {} lied",
                    volume.id,
                    self.liar
                );
            }
        }
    }

    fn read_block(&mut self, volume: &VolumeDescription, device: DeviceId, block: u64) -> u8 {
        for _ in 0..40 {
            let sequence = self.next_op;
            self.next_op += 1;
            let transaction = TransactionId { host: READER, sequence };
            let stamp = Stamp { clock: self.now().clock.ahead(Duration::from_secs(2)), host: READER };
            let (object, ordering, want) = (volume.id.object(), volume.ordering, Want::Data);
            let extents = vec![BlockRange::new(block, 1)];
            self.read.clear();
            self.ask_as_reader(device, Command::Read { transaction, stamp, object, ordering, extents, want });
            self.pass(Duration::from_millis(300));
            for reply in std::mem::take(&mut self.read) {
                if let Reply::Data { pieces, transaction: of, .. } = reply
                    && of == transaction
                {
                    self.ask_as_reader(device, Command::Heartbeat);
                    return match &pieces[0].content {
                        Content::Data(bytes) => bytes[0],
                        Content::Hole => 0,
                        other => panic!("no content: {other:?}"),
                    };
                }
            }
        }
        panic!("{device} does not let block {block} of {:?} be read", volume.id)
    }

    fn ask_as_reader(&mut self, device: DeviceId, command: Command) {
        let (host, settled) = (READER, if matches!(command, Command::Heartbeat) { self.next_op } else { 0 });
        let request = Request { host, epoch: Epoch(1), settled, over: Vec::new(), commits: Vec::new(), command };
        let to = NodeId::Device(device);
        let input = Input::Message { to, from: NodeId::Host(READER), message: Message::Request(request) };
        self.step(to, input);
    }

    /// Lets time pass: messages are delivered, and timers expire.
    fn pass(&mut self, span: Duration) {
        let end = self.now().time.after(span);
        loop {
            self.deliver_all();
            let next = self.nodes.iter().filter_map(|(node, held)| Some((held.machine.deadline()?, *node))).min();
            let Some((time, node)) = next.filter(|(time, _)| *time <= end) else { break };
            self.grammar.known.go_to(time.max(self.now().time));
            self.step(node, Input::Wake);
        }
        self.grammar.known.go_to(end);
    }

    fn deliver_all(&mut self) {
        let mut delivered = 0;
        while !self.messages.is_empty() {
            let near = (self.messages.len() as u64).min(3);
            let at = if self.is_lying { self.grammar.choices.below(near) as usize } else { 0 };
            let (from, to, message) = self.messages.remove(at).expect("it is one of the first");
            delivered += 1;
            assert!(delivered < 100_000, "messages cause messages without end");
            if self.is_lying && self.grammar.choices.chance(1) {
                continue;
            }
            if self.is_lying && self.grammar.choices.chance(1) {
                self.step(to, Input::Message { to, from, message: message.clone() });
            }
            self.step(to, Input::Message { to, from, message });
            // Each message takes a moment.
            self.grammar.known.go_to(self.now().time.after(Duration::from_micros(20)));
        }
    }

    fn now(&self) -> Now {
        self.grammar.known.now
    }

    fn step(&mut self, node: NodeId, input: InputOf<Subject>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(held) = self.nodes.get_mut(&node) else { return };
            let mut effects = EffectsOf::<Subject>::new();
            held.machine.step(self.grammar.known.now, input, &mut effects);
            held.machine.invariants();
            let (mut sent, mut replies) = (Vec::new(), Vec::new());
            for effect in effects.drain() {
                match effect {
                    Effect::Disk { tag, command } => held.disk.submit(tag, command),
                    Effect::Send { to, message } => sent.push((to, message)),
                    Effect::Reply { op, outcome } => replies.push((op, outcome)),
                }
            }
            while let Some((tag, result)) = held.disk.end_one() {
                inputs.push_back(Input::DiskDone { tag, result });
            }
            for (to, message) in sent {
                self.send(node, to, message);
            }
            replies.iter().for_each(|(op, outcome)| self.on_reply(*op, *outcome));
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        if from == NodeId::Host(HOST) {
            self.grammar.known.hear(to, &message);
        }
        match (to, message) {
            (NodeId::Monitor, Message::MonitorRequest(request)) => {
                let MonitorCommand::Renew { sent, .. } = request.command else { return };
                let membership = Membership::first((0..DEVICES).map(DeviceId));
                let membership = Some(membership).filter(|membership| membership.epoch != request.epoch);
                let (length, throttle, stamps) = (self.settings.device_lease, RecoveryThrottle::default(), Clock(0));
                let reply = MonitorReply::Lease { sent, length, throttle, stamps, level: Level::FIRST };
                let answer = MonitorAnswer { membership, unavailable: Vec::new(), reply };
                self.messages.push_back((NodeId::Monitor, from, Message::MonitorAnswer(answer)));
            }
            (NodeId::Host(READER), Message::Answer(answer)) => self.read.push_back(answer.reply),
            (to, Message::Answer(answer)) if self.is_lying && from == NodeId::Device(self.liar) => {
                self.send_lie(from, to, answer);
            }
            (to, message) => self.messages.push_back((from, to, message)),
        }
    }

    /// The device that lies sends this answer, or another one, or none, or one more.
    fn send_lie(&mut self, from: NodeId, to: NodeId, truth: Answer) {
        let is_honest = self.lies == Lies::ButOutcomes && is_about_outcomes(&truth);
        let lied = match self.grammar.choices.below(10) {
            _ if is_honest => vec![truth.clone()],
            0..=2 => vec![truth.clone()],
            3 => Vec::new(),
            4 => vec![truth.clone(), self.grammar.lie(truth.clone())],
            _ => vec![self.grammar.lie(truth.clone())],
        };
        for answer in lied {
            let is_lie = answer != truth;
            if is_lie && self.lies == Lies::ButOutcomes && is_about_outcomes(&answer) {
                continue;
            }
            self.lied += u64::from(is_lie);
            if let Some((from, message)) = legal(from, to, Message::Answer(answer)) {
                self.messages.push_back((from, to, message));
            }
        }
    }
}

/// True for answers that say how transactions end: votes, outcomes, orphans.
fn is_about_outcomes(answer: &Answer) -> bool {
    matches!(answer.reply, Reply::Vote { .. } | Reply::Decided { .. } | Reply::Heartbeat { .. })
}
