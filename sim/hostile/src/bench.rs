//! One machine under hostile messages: its disk answers, time passes, it is restarted, and its invariants are asserted after each input.

use crate::choices::Choices;
use crate::grammar::Grammar;
use crate::known::Known;
use crate::prelude::*;
use crate::subject::{DEVICES, HonestRequest, Role, Subject, VOLUME_BLOCKS, disk, settings, volumes};
use braid_layout::StripeRows;
use braid_machine::{
    ArrayRequest, ControlRequest, Effect, HostRequest, Input, JobRequest, OpId, Patience, VolumeRequest,
};
use braid_wire::{MonitorAnswer, MonitorReply, RecoveryThrottle, Request, Task};
use std::time::Duration;

/// A machine that is woken so often without a step of time would never stop.
const WAKES_MAX: u32 = 10_000;
/// A step has no more effects than this.
const EFFECTS_MAX: usize = 100_000;

/// One machine, and everything around it.
pub struct Bench {
    role: Role,
    subject: Subject,
    settings: Settings,
    disk: MemoryDisk,
    grammar: Grammar,
    starts: u32,
    next_op: u64,
    /// How many hostile messages it was given.
    pub messages: u64,
    effects: EffectsOf<Subject>,
}

impl Bench {
    /// A machine of this role that serves.
    pub fn new(role: Role, mut choices: Choices) -> Bench {
        let settings = settings(&mut choices);
        let subject = Subject::new(role, 1, settings.clone());
        let mut bench = Bench {
            role,
            subject,
            settings,
            disk: disk(role),
            grammar: Grammar::new(choices, Known::new()),
            starts: 1,
            next_op: 1,
            messages: 0,
            effects: EffectsOf::<Subject>::new(),
        };
        bench.take(Input::Start);
        bench.run_disk();
        bench.settle();
        bench
    }

    /// Gives the machine this many hostile messages, or as many as there are choices for.
    pub fn run(&mut self, messages: u64) {
        let end = self.messages + messages;
        while self.messages < end && !self.grammar.choices.is_used_up() {
            match self.grammar.choices.below(1_000) {
                0..=759 => {
                    self.messages += 1;
                    if let Some((from, message)) = self.grammar.message(self.role.node()) {
                        self.receive(from, message);
                    }
                }
                760..=869 => {
                    let most = self.grammar.choices.pick(&[1, 20, 600, 600]);
                    let millis = self.grammar.choices.below(most + 1);
                    self.pass(Duration::from_millis(millis));
                }
                870..=969 => self.be_of_use(),
                970..=997 => {
                    let commands = self.grammar.choices.below(5);
                    for _ in 0..commands {
                        self.run_one_command();
                    }
                }
                _ => self.restart(),
            }
            // Most of the time the disk is fast.
            if self.grammar.choices.chance(80) {
                self.run_disk();
            }
            if self.subject.is_misled() {
                self.restart();
            }
        }
        self.run_disk();
    }

    /// The machine crashes and starts again. It must serve requests again afterwards.
    pub fn restart(&mut self) {
        self.starts += 1;
        self.subject = Subject::new(self.role, self.starts, self.settings.clone());
        self.disk.forget_commands();
        self.take(Input::Start);
        self.run_disk();
        for _ in 0..100 {
            self.pass(Duration::from_millis(100));
            self.run_disk();
        }
        assert!(self.subject.is_misled() || self.subject.serves(), "{:?} does not serve after a restart", self.role);
        self.settle();
    }

    /// What honest nodes do at the beginning, so that the machine has something to lose.
    fn settle(&mut self) {
        match self.role {
            Role::Device => {
                self.be_monitor(Some(Membership::first((0..DEVICES).map(DeviceId))));
                self.create_objects();
            }
            Role::Host => {
                self.be_monitor(Some(Membership::first((0..DEVICES).map(DeviceId))));
                for volume in volumes() {
                    self.grammar.known.objects.insert(volume.id.object(), volume.ordering);
                }
            }
            Role::Monitor => {
                let volumes: Vec<_> = volumes().into_iter().take(6).collect();
                volumes.into_iter().for_each(|volume| self.ask_monitor(ControlRequest::AdoptVolume { volume }));
            }
            Role::LockServer | Role::MetadataServer => {
                for object in 1..5 {
                    self.grammar.known.objects.insert(ObjectId(object), Ordering::CallbackLock);
                }
            }
        }
    }

    /// One input of a node that keeps to the protocol.
    fn be_of_use(&mut self) {
        match self.role {
            Role::Device => {
                self.be_monitor(None);
                if self.grammar.choices.chance(10) {
                    self.create_objects();
                }
            }
            Role::Monitor => {
                let request = match self.grammar.choices.below(4) {
                    0 => ControlRequest::DropVolume { volume: VolumeId(self.grammar.choices.below(7)) },
                    1 => ControlRequest::NoteGenerations { last: self.grammar.generation() },
                    _ => {
                        let all = volumes();
                        let at = self.grammar.choices.below(all.len() as u64) as usize;
                        ControlRequest::AdoptVolume { volume: all[at].clone() }
                    }
                };
                self.ask_monitor(request);
            }
            Role::Host => {
                if self.grammar.choices.chance(30) {
                    self.be_monitor(None);
                }
                let request = self.host_request();
                self.ask(HonestRequest::Host(request));
            }
            Role::LockServer | Role::MetadataServer => {
                let ticket = self.grammar.ticket(300);
                self.answer_of_monitor(None, MonitorReply::Fenced { ticket });
            }
        }
    }

    /// The monitor answers the last request for a lease.
    fn be_monitor(&mut self, membership: Option<Membership>) {
        let length = self.settings.device_lease;
        let sent = self.grammar.known.sent.back().copied().unwrap_or(self.grammar.known.now.time);
        let (throttle, stamps) = (RecoveryThrottle::default(), Clock(0));
        self.answer_of_monitor(membership, MonitorReply::Lease { sent, length, throttle, stamps, level: Level::FIRST });
        self.run_disk();
    }

    fn answer_of_monitor(&mut self, membership: Option<Membership>, reply: MonitorReply) {
        let answer = MonitorAnswer { membership, unavailable: Vec::new(), reply };
        self.receive(NodeId::Monitor, Message::MonitorAnswer(answer));
    }

    fn receive(&mut self, from: NodeId, message: Message) {
        self.take(Input::Message { to: self.role.node(), from, message });
    }

    fn create_objects(&mut self) {
        for (ordering, number) in Ordering::ALL.into_iter().zip(1..) {
            for (object, atomicity) in [(number, Atomicity::Implied), (number + 10, Atomicity::Consistent)] {
                let object = ObjectId(object);
                self.grammar.known.objects.insert(object, ordering);
                let (first, blocks, redundant, absent) = (0, 64, true, 0);
                let task = Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent };
                let (host, epoch) = (Generation(6), self.grammar.known.epoch);
                let command = Command::Manage { ticket: 9_000 + object.0, task };
                let request = Request { host, epoch, settled: 0, over: Vec::new(), commits: Vec::new(), command };
                self.receive(NodeId::Host(host), Message::Request(request));
            }
        }
        self.run_disk();
    }

    fn host_request(&mut self) -> HostRequest {
        let grammar = &mut self.grammar;
        let volume = VolumeId(1 + grammar.choices.below(volumes().len() as u64 + 1));
        let patience = grammar.choices.pick(&[Patience::Host, Patience::Host, Patience::Endless]);
        let start = grammar.choices.below(VOLUME_BLOCKS);
        let count = 1 + grammar.choices.below(12);
        let (offset, length) = (start * BLOCK_BYTES as u64, count as usize * BLOCK_BYTES);
        let rows = StripeRows { stripe: grammar.choices.below(16), rows: BlockRange::new(0, 2) };
        match grammar.choices.below(20) {
            0..=6 => VolumeRequest::Read { volume, offset, length, patience }.into(),
            7..=13 => {
                let data = Bytes::from(vec![grammar.choices.below(256) as u8; length]);
                VolumeRequest::Write { volume, offset, data, patience }.into()
            }
            14 => VolumeRequest::Zero { volume, offset, length: length as u64, patience }.into(),
            15 => VolumeRequest::Allocation { volume, range: BlockRange::new(start, count), patience }.into(),
            16 => JobRequest::Scrub { volume, stripes: 0..4, repair: true, recompute: true }.into(),
            17 => JobRequest::CheckRows { volume, rows }.into(),
            18 => ArrayRequest::Fence { below: Generation(3), except: Vec::new() }.into(),
            _ => ArrayRequest::Manage { device: grammar.device(), task: Task::ListObjects }.into(),
        }
    }

    fn ask_monitor(&mut self, request: ControlRequest) {
        self.ask(HonestRequest::Monitor(request));
    }

    fn ask(&mut self, request: HonestRequest) {
        let op = OpId::front_end(self.next_op);
        self.next_op += 1;
        self.take(Input::Request { op, request });
    }

    /// Lets time pass, with all timers that expire.
    pub fn pass(&mut self, span: Duration) {
        let end = self.grammar.known.now.time.after(span);
        let mut wakes = 0;
        while let Some(deadline) = self.subject.deadline().filter(|deadline| *deadline <= end) {
            self.grammar.known.go_to(deadline.max(self.grammar.known.now.time));
            self.take(Input::Wake);
            wakes += 1;
            assert!(wakes < WAKES_MAX, "{:?} is to be woken again and again", self.role);
            if self.grammar.choices.chance(90) {
                self.run_disk();
            }
        }
        self.grammar.known.go_to(end);
    }

    fn run_disk(&mut self) {
        while self.run_one_command() {}
    }

    fn run_one_command(&mut self) -> bool {
        let Some((tag, result)) = self.disk.end_one() else { return false };
        self.take(Input::DiskDone { tag, result });
        true
    }

    fn take(&mut self, input: InputOf<Subject>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.subject.step(self.grammar.known.now, input, &mut effects);
        self.subject.invariants();
        assert!(effects.as_slice().len() < EFFECTS_MAX, "a step has {} effects", effects.as_slice().len());
        effects.drain_ignored().for_each(drop);
        for effect in effects.drain() {
            match effect {
                Effect::Disk { tag, command } => self.disk.submit(tag, command),
                Effect::Send { to, message } => self.grammar.known.hear(to, &message),
                Effect::Reply { .. } => {}
            }
        }
        self.effects = effects;
    }

    /// The epoch that the machine is known to have.
    pub fn epoch(&self) -> Epoch {
        self.grammar.known.epoch
    }
}
