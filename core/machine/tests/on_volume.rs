//! Machines on volumes, over a host that the tests play: it answers when they say so, in any order.

use braid_base::{BLOCK_BYTES, DeviceId, Epoch, FileSystemId, Generation, NodeId, Now, Rng, Time, VolumeId};
use braid_machine::on_volume::{OnVolume, OnVolumeOutcome, OnVolumeRequest, Window};
use braid_machine::{
    DiskCommand, DiskError, DiskResult, DiskTag, Effect, Effects, EffectsOf, HostEffects, HostError, HostInput,
    HostOutcome, HostRequest, HostSuccess, Input, InputOf, JobRequest, Machine, NoDisk, OneDisk, OpId, Patience,
    VolumeRequest,
};
use braid_wire::{Answer, Failure, Message, MonitorAnswer, MonitorReply, Reply};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const BLOCK: u64 = BLOCK_BYTES as u64;
const VOLUME: VolumeId = VolumeId(5);
const WINDOW: Window = Window { volume: VOLUME, offset: 8 * BLOCK, length: 4096 * BLOCK };

/// What the test sees of the host: its content by block, and the requests that it has not answered.
#[derive(Default)]
struct Volume {
    blocks: BTreeMap<u64, Vec<u8>>,
    asked: VecDeque<(OpId, HostRequest)>,
    /// The messages that the host and the guest have got, by receiver.
    heard: Vec<(&'static str, NodeId)>,
}

struct Host(Rc<RefCell<Volume>>);

impl Machine for Host {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, _: Now, input: HostInput, out: &mut HostEffects) {
        match input {
            Input::Request { op, request } => self.0.borrow_mut().asked.push_back((op, request)),
            Input::Message { to, .. } => self.0.borrow_mut().heard.push(("host", to)),
            Input::Wake => {
                let answers: Vec<_> = ANSWERS.with_borrow_mut(std::mem::take);
                answers.into_iter().for_each(|(op, outcome)| out.reply(op, outcome));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        ANSWERS.with_borrow(|answers| (!answers.is_empty()).then_some(Time(0)))
    }

    fn invariants(&self) {}
}

thread_local! {
    /// The host's next answers.
    static ANSWERS: RefCell<Vec<(OpId, HostOutcome)>> = const { RefCell::new(Vec::new()) };
}

impl Volume {
    fn serve(&mut self, request: &HostRequest) -> HostOutcome {
        assert_eq!((request.patience(), request.volume()), (Patience::Endless, Some(VOLUME)));
        match request {
            HostRequest::Volume(VolumeRequest::Read { offset, length, .. }) => {
                let mut bytes =
                    Bytes::from((*offset..offset + *length as u64).map(|at| self.byte(at)).collect::<Vec<u8>>());
                let first = bytes.split_to(length / 2);
                Ok(HostSuccess::Data(vec![first, bytes]))
            }
            HostRequest::Volume(VolumeRequest::Write { offset, data, .. }) => {
                assert!(data.len() as u64 <= 1024 * BLOCK);
                for (at, byte) in data.iter().enumerate() {
                    let at = offset + at as u64;
                    let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK_BYTES]);
                    block[(at % BLOCK) as usize] = *byte;
                }
                Ok(HostSuccess::Done)
            }
            HostRequest::Volume(VolumeRequest::Allocation { range, .. }) => {
                // A host may tell only the first part.
                let told = range.count.min(300);
                let runs = (range.start..range.start + told).map(|block| (1, self.blocks.contains_key(&block)));
                Ok(HostSuccess::Allocation(runs.collect()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn byte(&self, at: u64) -> u8 {
        self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize])
    }
}

/// Asks a guest to issue the commands of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Issue;

/// Issues the commands of the test.
#[derive(Default)]
struct Guest {
    next: u64,
    commands: Rc<RefCell<Vec<DiskCommand>>>,
    done: Rc<RefCell<Vec<(DiskTag, DiskResult)>>>,
    volume: Rc<RefCell<Volume>>,
}

impl Machine for Guest {
    type Request = Issue;
    type Outcome = ();
    type Disk = OneDisk;

    fn step(&mut self, _: Now, input: Input<Issue>, out: &mut Effects<()>) {
        match input {
            Input::Request { op, .. } => {
                for command in self.commands.take() {
                    out.disk(DiskTag(self.next), command);
                    self.next += 1;
                }
                out.reply(op, ());
            }
            Input::DiskDone { tag, result } => self.done.borrow_mut().push((tag, result)),
            Input::Message { to, .. } => self.volume.borrow_mut().heard.push(("guest", to)),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn invariants(&self) {}
}

const GUEST: NodeId = NodeId::MetadataServer(FileSystemId(0));

type Machines = OnVolume<Guest, Host>;
type Outcome = OnVolumeOutcome<()>;

struct Bench {
    machine: Machines,
    volume: Rc<RefCell<Volume>>,
    commands: Rc<RefCell<Vec<DiskCommand>>>,
    done: Rc<RefCell<Vec<(DiskTag, DiskResult)>>>,
    now: Now,
    replies: Vec<(OpId, Outcome)>,
    next_op: u64,
}

impl Bench {
    fn new() -> Bench {
        let volume = Rc::<RefCell<Volume>>::default();
        let guest = Guest { volume: volume.clone(), ..Guest::default() };
        let (commands, done) = (guest.commands.clone(), guest.done.clone());
        let machine = OnVolume::new(Host(volume.clone()), vec![(GUEST, WINDOW, guest)]);
        let mut bench = Bench { machine, volume, commands, done, now: Now::default(), replies: Vec::new(), next_op: 0 };
        bench.take(Input::Start);
        bench
    }

    fn take(&mut self, input: InputOf<Machines>) {
        let mut out = EffectsOf::<Machines>::new();
        self.machine.step(self.now, input, &mut out);
        self.machine.invariants();
        for effect in out.drain() {
            let Effect::Reply { op, outcome } = effect else { panic!("{effect:?}") };
            self.replies.push((op, outcome));
        }
    }

    fn ask(&mut self, request: OnVolumeRequest<Issue>) -> OpId {
        self.next_op += 1;
        self.take(Input::Request { op: OpId::front_end(self.next_op), request });
        OpId::front_end(self.next_op)
    }

    /// The guest issues these commands.
    fn command(&mut self, commands: impl IntoIterator<Item = DiskCommand>) {
        self.commands.borrow_mut().extend(commands);
        let op = self.ask(OnVolumeRequest::Guest { guest: 0, request: Issue });
        assert_eq!(self.replies.pop(), Some((op, Outcome::Guest(Ok(())))), "replies of guests pass through");
    }

    fn asked(&self) -> usize {
        self.volume.borrow().asked.len()
    }

    /// The host answers one of its requests.
    fn answer(&mut self, index: usize, outcome: Option<HostOutcome>) {
        let (op, request) = self.volume.borrow_mut().asked.remove(index).expect("it was asked");
        let outcome = outcome.unwrap_or_else(|| self.volume.borrow_mut().serve(&request));
        ANSWERS.with_borrow_mut(|answers| answers.push((op, outcome)));
        self.take(Input::Wake);
    }

    fn answer_all(&mut self) {
        while self.asked() > 0 {
            self.answer(0, None);
        }
    }

    fn results(&mut self) -> Vec<(u64, DiskResult)> {
        self.done.take().into_iter().map(|(tag, result)| (tag.0, result)).collect()
    }
}

fn write(offset: u64, length: u64, fill: u8) -> DiskCommand {
    DiskCommand::Write { offset, data: vec![Bytes::from(vec![fill; length as usize])], durable: false }
}

fn read(offset: u64, length: u64) -> DiskCommand {
    DiskCommand::Read { offset, length: length as usize }
}

const DONE: DiskResult = DiskResult::Done(Ok(()));

#[test]
fn commands_go_to_the_window_and_long_ones_in_parts_of_a_transaction() {
    let mut bench = Bench::new();
    let long = 2500 * BLOCK;
    bench.command([write(512, 1024, 1), write(8 * BLOCK, 256 * BLOCK, 2), write(300 * BLOCK, long, 3)]);
    assert_eq!(bench.asked(), 1 + 1 + 3, "a megabyte is one transaction");
    bench.answer_all();
    assert_eq!(bench.results(), [(0, DONE), (1, DONE), (2, DONE)]);
    assert_eq!(bench.volume.borrow().blocks[&8][512], 1, "the first byte of the window is in block 8");
    bench.command([read(300 * BLOCK - 512, long + 512)]);
    assert_eq!(bench.asked(), 3);
    // In any order.
    [2, 0, 0].into_iter().for_each(|index| bench.answer(index, None));
    let expected = [vec![0; 512], vec![3; long as usize]].concat();
    assert_eq!(bench.results(), [(3, DiskResult::Read(Ok(expected.into())))]);
}

#[test]
fn a_sync_is_answered_at_once_and_two_buffers_are_one_write() {
    let mut bench = Bench::new();
    let data = vec![Bytes::from_static(&[1; 512]), Bytes::from_static(&[2; 512])];
    bench.command([DiskCommand::Write { offset: 0, data, durable: true }, DiskCommand::Sync]);
    assert_eq!(bench.results(), [(1, DONE)]);
    assert_eq!(bench.asked(), 1);
    bench.answer_all();
    assert_eq!(bench.results(), [(0, DONE)]);
    assert_eq!(bench.volume.borrow().blocks[&8][511..513], [1, 2]);
}

#[test]
fn a_reservation_fills_what_has_no_content_and_keeps_the_rest() {
    let mut bench = Bench::new();
    bench.command([write(3 * BLOCK, 2 * BLOCK, 9), write(1500 * BLOCK, BLOCK, 9)]);
    bench.answer_all();
    bench.results();
    let length = 2000 * BLOCK;
    bench.command([DiskCommand::Reserve { offset: 512, length }]);
    bench.answer_all();
    assert_eq!(bench.results(), [(2, DONE)]);
    let volume = bench.volume.borrow();
    assert!((8..=2008).all(|block| volume.blocks.contains_key(&block)), "also the last one, in part");
    assert_eq!(volume.blocks.len(), 2001);
    assert!([11, 12, 1508].iter().all(|block| volume.blocks[block] == vec![9; BLOCK_BYTES]));
}

#[test]
fn a_write_into_a_step_of_a_reservation_waits_and_so_does_a_step_for_writes() {
    let mut bench = Bench::new();
    bench.command([write(10 * BLOCK, BLOCK, 1)]);
    bench.command([DiskCommand::Reserve { offset: 0, length: 100 * BLOCK }]);
    assert_eq!(bench.asked(), 1, "the step waits for the write");
    bench.answer_all();
    assert_eq!(bench.results(), [(0, DONE), (1, DONE)]);
    bench.command([DiskCommand::Reserve { offset: 200 * BLOCK, length: 100 * BLOCK }]);
    bench.command([write(250 * BLOCK, BLOCK, 7), write(10 * BLOCK, BLOCK, 8)]);
    assert_eq!(bench.asked(), 2, "the first write would meet the step");
    bench.answer_all();
    assert_eq!(bench.results().len(), 3);
    assert_eq!(bench.volume.borrow().blocks[&258], vec![7; BLOCK_BYTES]);
}

#[test]
fn failures_of_the_host_are_errors_of_the_disk() {
    let mut bench = Bench::new();
    let device = braid_base::DeviceId(1);
    for (failure, error) in [(Failure::NoSpace, DiskError::NoSpace), (Failure::Lost { block: 1 }, DiskError::Failed)] {
        bench.command([read(0, 3000 * BLOCK), write(3000 * BLOCK, BLOCK, 1)]);
        let failed = || Some(Err(HostError::Device { device, failure }));
        bench.answer(1, failed());
        assert_eq!(bench.results(), [], "the other parts are under way");
        bench.answer(0, None);
        bench.answer(0, None);
        bench.answer(0, failed());
        let results: Vec<_> = bench.results().into_iter().map(|(_, result)| result).collect();
        assert_eq!(results, [DiskResult::Read(Err(error)), DiskResult::Done(Err(error))]);
    }
}

#[test]
fn a_request_refused_by_a_busy_host_is_repeated_soon() {
    let mut bench = Bench::new();
    bench.command([write(0, BLOCK, 1)]);
    for _ in 0..3 {
        bench.answer(0, Some(Err(HostError::Busy)));
        assert_eq!((bench.asked(), bench.results().len()), (0, 0));
        let deadline = bench.machine.deadline().expect("it is asked again");
        assert!(deadline > bench.now.time, "and not at once");
        bench.now.time = deadline;
        bench.take(Input::Wake);
    }
    bench.answer_all();
    assert_eq!(bench.results(), [(0, DONE)]);
    assert_eq!(bench.machine.deadline(), None);
}

#[test]
fn a_fence_ends_the_guests_and_not_the_host() {
    for error in [HostError::Fenced, HostError::Disconnecting] {
        let mut bench = Bench::new();
        bench.command([write(0, BLOCK, 1), write(BLOCK, BLOCK, 1), read(5 * BLOCK, 3000 * BLOCK)]);
        bench.answer(1, Some(Err(HostError::Busy)));
        bench.answer(0, Some(Err(error.clone())));
        assert_eq!(bench.machine.is_fenced(), error == HostError::Fenced);
        assert_eq!(bench.machine.ended(), Some(&error));
        while bench.asked() > 0 {
            bench.answer(0, None);
        }
        assert_eq!(bench.results(), [], "not even of what has happened");
        assert_eq!(bench.machine.deadline(), None);
        let op = bench.ask(OnVolumeRequest::Guest { guest: 0, request: Issue });
        assert_eq!(bench.replies.pop(), Some((op, Outcome::Guest(Err(error)))));
        bench.ask(OnVolumeRequest::Host(JobRequest::Check { volume: VOLUME, stripe: 0 }.into()));
        assert_eq!(bench.asked(), 1, "the host goes on");
    }
}

#[test]
fn a_request_for_a_guest_that_does_not_exist_is_answered() {
    let mut bench = Bench::new();
    let op = bench.ask(OnVolumeRequest::Guest { guest: 7, request: Issue });
    assert_eq!(bench.replies.pop(), Some((op, Outcome::Guest(Err(HostError::NoSuchVolume)))));
}

#[test]
#[should_panic(expected = "a command overlaps another one")]
fn a_read_beside_a_write_of_the_same_bytes_is_a_mistake() {
    Bench::new().command([write(0, 1024, 1), read(512, 512)]);
}

#[test]
#[should_panic(expected = "are not in")]
fn a_command_beyond_the_window_is_a_mistake() {
    Bench::new().command([read(WINDOW.length - 512, 1024)]);
}

/// Commands at random, in any number at a time and answered in any order: the window is like a plain disk.
#[test]
fn a_window_is_a_disk() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new();
        let sectors = 40_u64;
        let mut model = vec![0_u8; sectors as usize];
        let mut next = 0;
        for _ in 0..100 {
            // Commands that meet none of the same round, but reservations meet all.
            let mut free = vec![true; sectors as usize];
            let (mut commands, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..rng.between(1, 6) {
                let (start, count) = (rng.below(sectors), rng.between(1, 12));
                let range = start as usize..(start + count).min(sectors) as usize;
                let (offset, length) = (start * 512, range.len() as u64 * 512);
                if rng.chance(1, 5) {
                    commands.push(DiskCommand::Reserve { offset, length });
                    expected.push(DONE);
                } else if free[range.clone()].iter().all(|free| *free) {
                    free[range.clone()].fill(false);
                    if rng.chance(1, 2) {
                        let fill = rng.below(255) as u8 + 1;
                        commands.push(write(offset, length, fill));
                        model[range].fill(fill);
                        expected.push(DONE);
                    } else {
                        commands.push(read(offset, length));
                        let bytes: Vec<u8> = model[range].iter().flat_map(|fill| [*fill; 512]).collect();
                        expected.push(DiskResult::Read(Ok(bytes.into())));
                    }
                }
            }
            let count = commands.len() as u64;
            bench.command(commands);
            while bench.asked() > 0 {
                let index = rng.below(bench.asked() as u64) as usize;
                let busy = rng.chance(1, 10).then_some(Err(HostError::Busy));
                bench.answer(index, busy);
                if let Some(deadline) = bench.machine.deadline() {
                    bench.now.time = deadline;
                    bench.take(Input::Wake);
                }
            }
            let mut results = bench.results();
            results.sort_by_key(|(tag, _)| *tag);
            let expected: Vec<_> = (next..).zip(expected).collect();
            assert_eq!(results, expected, "seed {seed}");
            next += count;
        }
    }
}

#[test]
fn messages_go_to_whom_they_address_and_those_of_the_monitor_also_to_the_guests() {
    let (mut bench, host) = (Bench::new(), NodeId::Host(Generation(1)));
    let mut heard = |to: NodeId, message: Message| {
        bench.take(Input::Message { to, from: NodeId::Monitor, message });
        std::mem::take(&mut bench.volume.borrow_mut().heard)
    };
    let reply = Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false };
    let of_device = Message::Answer(Answer { epoch: Epoch(1), confirmed: Vec::new(), reply });
    let reply = MonitorReply::Changed;
    let of_monitor = Message::MonitorAnswer(MonitorAnswer { membership: None, unavailable: Vec::new(), reply });
    let other = NodeId::Device(DeviceId(9));
    assert_eq!(heard(host, of_device.clone()), [("host", host)]);
    assert_eq!(heard(GUEST, of_device.clone()), [("guest", GUEST)]);
    assert_eq!(heard(other, of_device), [("host", other)], "the host refuses it");
    assert_eq!(heard(host, of_monitor), [("host", host), ("guest", GUEST)]);
}

#[test]
#[should_panic(expected = "windows don't overlap")]
fn windows_that_overlap_are_a_mistake() {
    let host = Host(Rc::default());
    let other = Window { offset: 0, length: 9 * BLOCK, ..WINDOW };
    OnVolume::new(host, vec![(GUEST, WINDOW, Guest::default()), (GUEST, other, Guest::default())]);
}

#[test]
fn guests_that_retire_leave_nothing_undecided() {
    let mut bench = Bench::new();
    bench.command([write(0, BLOCK, 1), write(BLOCK, BLOCK, 2)]);
    assert_eq!(bench.asked(), 2);
    let mut out = EffectsOf::<Machines>::new();
    bench.machine.retire(HostError::Disconnecting, &mut out);
    assert!(!bench.machine.is_quiescent(), "two writes are at the host");
    bench.answer(0, None);
    assert!(!bench.machine.is_quiescent());
    bench.answer(0, None);
    assert!(bench.machine.is_quiescent() && bench.machine.failed().is_none());
    assert_eq!(bench.results(), [], "the guest hears nothing any more");
    let refused = bench.ask(OnVolumeRequest::Guest { guest: 0, request: Issue });
    assert_eq!(bench.replies.pop(), Some((refused, Outcome::Guest(Err(HostError::Disconnecting)))));
}

#[test]
fn guests_that_retire_while_a_write_fails_are_not_unharmed() {
    let mut bench = Bench::new();
    bench.command([write(0, BLOCK, 1)]);
    bench.machine.retire(HostError::Disconnecting, &mut Effects::new());
    bench.answer(0, Some(Err(HostError::Fenced)));
    assert!(bench.machine.is_quiescent());
    assert_eq!(bench.machine.failed(), Some(&HostError::Fenced), "its outcome is unknown");
}
