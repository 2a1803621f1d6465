//! A device's store: intents are made durable and decided, and blocks are read.

use crate::{Workload, formatted_disk, pattern};
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, Now, ObjectId, Stamp, Time, TransactionId,
};
use braid_blocks::{Content, Linkage, Piece};
use braid_machine::{Effect, Effects};
use braid_store::{Intent, Logged, Storage, Store, StoreConfig, StoreEvent};
use braid_wire::ObjectDescription;
use braid_world::MemoryDisk;
use bytes::Bytes;

const HOST: Generation = Generation(7);
const OBJECT: ObjectId = ObjectId(1);
/// Blocks of the object; requests go round them.
const BLOCKS: u64 = 1024;
const CHUNK_BLOCKS: u64 = 16;
/// The smallest allowed journal, so that it fills often, and a journal that does not fill in the counted rounds.
const SMALL_JOURNAL: u64 = 512 << 10;
const LARGE_JOURNAL: u64 = 16 << 20;
/// Writes in a round that includes its share of checkpoints.
const MANY: usize = 32;
/// Time between two writes, in nanoseconds.
const PAUSE: u64 = 100_000;

pub(crate) fn workloads() -> Vec<Workload> {
    let write = |name, count| {
        let begin = move || Bench::new(LARGE_JOURNAL, count);
        Workload::new(name, begin, Bench::next_intent, Bench::write).of_bytes(count as usize * BLOCK_BYTES)
    };
    let read = |name, count| {
        let begin = move || Bench::written(count);
        Workload::new(name, begin, Bench::next_range, Bench::read).of_bytes(count as usize * BLOCK_BYTES)
    };
    let begin = || Bench::new(SMALL_JOURNAL, 1);
    let prepare = |bench: &mut Bench| -> [Intent; MANY] { std::array::from_fn(|_| bench.next_intent()) };
    let with_checkpoints = Workload::new("store/32-writes-and-checkpoints", begin, prepare, |bench, intents| {
        intents.into_iter().for_each(|intent| bench.write(intent));
    });
    vec![
        write("store/write-4KiB", 1),
        write("store/write-64KiB", CHUNK_BLOCKS),
        with_checkpoints.of_bytes(MANY * BLOCK_BYTES),
        read("store/read-4KiB", 1),
        read("store/read-64KiB", CHUNK_BLOCKS),
    ]
}

struct Bench {
    store: Store,
    disk: MemoryDisk,
    now: Now,
    out: Effects,
    /// Blocks of a request.
    count: u64,
    data: Bytes,
    next: u64,
}

impl Bench {
    fn new(journal: u64, count: u64) -> Bench {
        let config = StoreConfig { array: ArrayId([7; 16]), device: DeviceId(0), size: 128 << 20 };
        let mut bench = Bench {
            store: Store::new(config),
            disk: formatted_disk(&config, journal),
            now: Now::default(),
            out: Effects::new(),
            count,
            data: pattern(count as usize * BLOCK_BYTES),
            next: 0,
        };
        bench.store.start(&mut bench.out);
        assert!(matches!(bench.event(), StoreEvent::Ready(_)), "the store was just made");
        let description = ObjectDescription::new(OBJECT, BLOCKS);
        bench.store.log(1, Logged::Created { description, absent: 0 }, &mut bench.out);
        assert_eq!(bench.event(), StoreEvent::Done { ticket: 1, result: Ok(()) });
        bench
    }

    /// A store with content in every block, in its place on the disk: whole chunks are written directly there.
    fn written(count: u64) -> Bench {
        let mut bench = Bench::new(LARGE_JOURNAL, CHUNK_BLOCKS);
        for _ in 0..BLOCKS / CHUNK_BLOCKS {
            let intent = bench.next_intent();
            bench.write(intent);
        }
        Bench { count, ..bench }
    }

    fn next_range(&mut self) -> BlockRange {
        self.next += 1;
        BlockRange::new(self.next * self.count % BLOCKS, self.count)
    }

    fn next_intent(&mut self) -> Intent {
        let range = self.next_range();
        Intent {
            transaction: TransactionId { host: HOST, sequence: self.next },
            stamp: Stamp { clock: Clock(self.next), host: HOST },
            epoch: Epoch(1),
            participants: vec![DeviceId(0), DeviceId(1)],
            linkage: Linkage { first: range.start, last: range.end() - 1 },
            object: OBJECT,
            pieces: vec![Piece { range, content: Content::Data(self.data.clone()) }],
        }
    }

    /// Makes an intent durable, and commits it. The commit becomes durable with the batch of the next write.
    fn write(&mut self, intent: Intent) {
        let transaction = intent.transaction;
        self.now.time = Time(self.now.time.0 + PAUSE);
        self.store.prepare(self.now, intent, &mut self.out);
        while !matches!(self.event(), StoreEvent::Prepared { result: Ok(()), .. }) {}
        self.store.commit(self.now, transaction, &mut self.out);
        self.store.settle(HOST, transaction.sequence);
    }

    fn read(&mut self, range: BlockRange) -> Vec<Piece> {
        self.store.read(range.start, OBJECT, &[range], &mut self.out);
        loop {
            match self.event() {
                StoreEvent::Read { result: Ok(pieces), .. } => return pieces,
                StoreEvent::Committed { .. } => {}
                event => panic!("unexpected: {event:?}"),
            }
        }
    }

    fn event(&mut self) -> StoreEvent {
        loop {
            if let Some(event) = self.store.pop_event() {
                return event;
            }
            for effect in self.out.drain() {
                let Effect::Disk { tag, command } = effect else { panic!("a store only commands its disk") };
                self.disk.submit(tag, command);
            }
            let (tag, result) = self.disk.end_one().expect("the store has a command in progress");
            self.store.on_disk_done(self.now, tag, result, &mut self.out);
        }
    }
}
