//! The steps of a device on one small write and on a read, including those of its store and its disk.

use crate::{Workload, formatted_disk, pattern};
use braid_base::limits::Settings;
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, Membership, NodeId, Now, ObjectId, Stamp,
    Time, TransactionId,
};
use braid_blocks::{Content, Linkage, Piece, Want};
use braid_device::{Device, DeviceConfig, Service};
use braid_machine::{Effect, Effects, Input, Machine};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_store::StoreConfig;
use braid_wire::{
    Action, Answer, AttributeName, Command, Message, ObjectCommand, ObjectRequest, Reply, Request, Task, Undefined,
};
use braid_world::MemoryDisk;
use bytes::Bytes;
use std::collections::BTreeMap;

const HOST: Generation = Generation(7);
const OBJECT: ObjectId = ObjectId(1);
const EPOCH: Epoch = Epoch(1);
/// Blocks of the object; transactions go round them.
const BLOCKS: u64 = 1024;
/// Blocks that are written as a whole, directly to their place.
const CHUNK_BLOCKS: u64 = 16;
/// A journal that does not fill in the counted rounds.
const JOURNAL: u64 = 16 << 20;
/// Compare-and-swaps that arrive together, each on an attribute of its own.
const SWAPS: usize = 32;
/// Time between two transactions, in nanoseconds.
const PAUSE: u64 = 100_000;

pub(crate) fn workloads() -> Vec<Workload> {
    let of = |name, prepare: fn(&mut Bench) -> Input, is_due: fn(&Reply) -> bool| {
        Workload::new(name, Bench::new, prepare, move |bench, input| {
            let told = bench.answers.len();
            bench.take(input);
            let [answer] = &bench.answers[told..] else { panic!("one answer to one request") };
            assert!(is_due(&answer.reply), "{answer:?}");
        })
    };
    let is_data = |reply: &Reply| matches!(reply, Reply::Data { .. });
    let is_written = |reply: &Reply| matches!(reply, Reply::Written { .. });
    let is_heartbeat = |reply: &Reply| matches!(reply, Reply::Heartbeat { .. });
    let swaps = Workload::new("device/32-swaps", Bench::with_attributes, Bench::swapping, |bench, inputs| {
        let told = bench.answers.len();
        inputs.into_iter().for_each(|input| bench.step(input));
        bench.end_disk();
        let swapped = |answer: &Answer| matches!(&answer.reply, Reply::Objects { answer: Ok(_), .. });
        assert!(bench.answers.len() - told == SWAPS && bench.answers[told..].iter().all(swapped));
    });
    vec![
        swaps,
        of("device/read-4KiB", Bench::reading, is_data).of_bytes(BLOCK_BYTES),
        of("device/prewrite-and-read-4KiB", Bench::prewriting, is_data).of_bytes(BLOCK_BYTES),
        of("device/write-4KiB", |bench| bench.writing(1), is_written).of_bytes(BLOCK_BYTES),
        of("device/commit", Bench::committing, is_heartbeat),
    ]
}

/// A device, its disk, and the only host that talks to it.
struct Bench {
    device: Device,
    disk: MemoryDisk,
    now: Now,
    out: Effects,
    /// Answers that the host has not read yet.
    answers: Vec<Answer>,
    sequence: u64,
    /// The host's transactions that are not finished.
    open: BTreeMap<u64, Transaction>,
    data: Bytes,
}

#[derive(Clone, Copy)]
struct Transaction {
    id: TransactionId,
    stamp: Stamp,
    range: BlockRange,
}

impl Bench {
    /// A device with an object all of whose blocks have content.
    fn new() -> Bench {
        let store = StoreConfig { array: ArrayId([7; 16]), device: DeviceId(0), size: 128 << 20 };
        let second = 1_000_000_000;
        let mut bench = Bench {
            device: Device::new(DeviceConfig {
                store,
                membership: Some(Membership::first([DeviceId(0)])),
                settings: Settings::default(),
                holder: None,
            }),
            disk: formatted_disk(&store, JOURNAL),
            now: Now { time: Time(second), clock: Clock(1000 * second) },
            out: Effects::new(),
            answers: Vec::new(),
            sequence: 0,
            open: BTreeMap::new(),
            data: pattern(CHUNK_BLOCKS as usize * BLOCK_BYTES),
        };
        bench.take(Input::Start);
        assert_eq!(*bench.device.service(), Service::Serving);
        let (object, blocks, ordering, atomicity) = (OBJECT, BLOCKS, Ordering::Timestamp, Atomicity::Implied);
        let task = Task::CreateObject { object, first: 0, blocks, ordering, redundant: true, atomicity, absent: 0 };
        let create = bench.request(Vec::new(), Command::Manage { ticket: 1, task });
        bench.take(create);
        assert!(matches!(bench.hear()[..], [Reply::Managed { result: Ok(_), .. }]));
        for _ in 0..BLOCKS / CHUNK_BLOCKS {
            let write = bench.writing(CHUNK_BLOCKS);
            bench.take(write);
        }
        bench
    }

    /// A device with an object that has attributes.
    fn with_attributes() -> Bench {
        let mut bench = Bench::new();
        bench.end_open();
        let create = bench.object_request(Action::Create);
        bench.take(create);
        assert!(matches!(bench.hear()[..], [Reply::Objects { answer: Ok(_), .. }]));
        bench
    }

    /// Compare-and-swaps, all of which swap.
    fn swapping(&mut self) -> Vec<Input> {
        self.hear();
        self.pass();
        let round = self.now.time.0;
        let swap = |name| {
            let value = |time: u64| Bytes::copy_from_slice(&time.to_be_bytes());
            let (compare, swap, undefined) = (value(round - PAUSE), value(round), Undefined::Matches);
            self.object_request(Action::CompareAndSwap { name, compare, swap, undefined, original: false })
        };
        (0..SWAPS as u32).map(|number| AttributeName::new(1, number)).map(swap).collect()
    }

    fn object_request(&mut self, action: Action) -> Input {
        self.sequence += 1;
        let request = ObjectRequest { commands: vec![ObjectCommand::new(OBJECT, action)] };
        self.request(Vec::new(), Command::Objects { sequence: self.sequence, abandoned: Vec::new(), request })
    }

    fn reading(&mut self) -> Input {
        let Transaction { id: transaction, stamp, range } = self.begin(1);
        self.open.remove(&transaction.sequence);
        let (object, ordering, extents, want) = (OBJECT, Ordering::Timestamp, vec![range], Want::Data);
        self.request(Vec::new(), Command::Read { transaction, stamp, object, ordering, extents, want })
    }

    fn prewriting(&mut self) -> Input {
        let transaction = self.begin(1);
        self.prewrite(transaction)
    }

    /// A devwrite whose pre-write was accepted.
    fn writing(&mut self, blocks: u64) -> Input {
        let transaction = self.begin(blocks);
        let prewrite = self.prewrite(transaction);
        self.take(prewrite);
        assert!(matches!(self.hear()[..], [Reply::Data { .. }]), "no other transaction writes these blocks");
        self.write(transaction)
    }

    /// The commit of a write that is durable.
    fn committing(&mut self) -> Input {
        let write = self.writing(1);
        self.take(write);
        let [Reply::Written { transaction, .. }] = self.hear()[..] else { panic!("the disk has space") };
        self.request(vec![transaction.sequence], Command::Heartbeat)
    }

    /// Finishes what earlier rounds have begun, and begins the next transaction.
    fn begin(&mut self, blocks: u64) -> Transaction {
        self.end_open();
        self.pass();
        self.sequence += 1;
        let transaction = Transaction {
            id: TransactionId { host: HOST, sequence: self.sequence },
            stamp: Stamp { clock: self.now.clock, host: HOST },
            range: BlockRange::new(self.sequence * blocks % BLOCKS, blocks),
        };
        self.open.insert(self.sequence, transaction);
        transaction
    }

    /// Finishes the open transactions.
    fn end_open(&mut self) {
        while !self.answers.is_empty() {
            for reply in self.hear() {
                self.go_on(reply);
            }
        }
    }

    fn pass(&mut self) {
        self.now = Now { time: Time(self.now.time.0 + PAUSE), clock: Clock(self.now.clock.0 + PAUSE) };
        if self.device.deadline().is_some_and(|deadline| deadline <= self.now.time) {
            self.take(Input::Wake);
        }
    }

    /// Takes the host's next step after a reply.
    fn go_on(&mut self, reply: Reply) {
        let next = match reply {
            Reply::Data { transaction, .. } => match self.open.get(&transaction.sequence) {
                Some(transaction) => self.write(*transaction),
                // The transaction only read.
                None => return,
            },
            Reply::Written { transaction, .. } => self.request(vec![transaction.sequence], Command::Heartbeat),
            Reply::Heartbeat { .. } => return,
            other => panic!("unexpected: {other:?}"),
        };
        self.take(next);
    }

    fn prewrite(&self, Transaction { id: transaction, stamp, range }: Transaction) -> Input {
        let (object, ordering, prewrites, reads) = (OBJECT, Ordering::Timestamp, vec![range], vec![range]);
        self.request(Vec::new(), Command::Prewrite { transaction, stamp, object, ordering, prewrites, reads })
    }

    fn write(&self, Transaction { id, stamp, range }: Transaction) -> Input {
        let data = self.data.slice(..range.count as usize * BLOCK_BYTES);
        let command = Command::Write {
            transaction: id,
            stamp,
            object: OBJECT,
            ordering: Ordering::Timestamp,
            participants: vec![DeviceId(0), DeviceId(1)],
            linkage: Linkage { first: range.start, last: range.end() - 1 },
            mode: WriteMode::Intent,
            pieces: vec![Piece { range, content: Content::Data(data) }],
        };
        self.request(Vec::new(), command)
    }

    fn request(&self, commits: Vec<u64>, command: Command) -> Input {
        let settled = self.open.keys().next().copied().unwrap_or(self.sequence);
        let request = Request { host: HOST, epoch: EPOCH, settled, over: Vec::new(), commits, command };
        Input::Message { to: NodeId::Device(DeviceId(0)), from: NodeId::Host(HOST), message: Message::Request(request) }
    }

    /// The answers to the host, except confirmations, which end transactions.
    fn hear(&mut self) -> Vec<Reply> {
        let answers = std::mem::take(&mut self.answers);
        for sequence in answers.iter().flat_map(|answer| &answer.confirmed) {
            self.open.remove(sequence);
        }
        answers.into_iter().map(|answer| answer.reply).collect()
    }

    /// One step of the device, and the steps after the disk's completions.
    fn take(&mut self, input: Input) {
        self.step(input);
        self.end_disk();
    }

    fn end_disk(&mut self) {
        while let Some((tag, result)) = self.disk.end_one() {
            self.step(Input::DiskDone { tag, result });
        }
    }

    fn step(&mut self, input: Input) {
        self.device.step(self.now, input, &mut self.out);
        for effect in self.out.drain() {
            match effect {
                Effect::Disk { tag, command } => self.disk.submit(tag, command),
                Effect::Send { message: Message::Answer(answer), .. } => self.answers.push(answer),
                other => panic!("a device does not do this: {other:?}"),
            }
        }
    }
}
