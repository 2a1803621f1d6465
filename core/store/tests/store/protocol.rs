//! A store and its disk, driven step by step, and tests of single requests.

use crate::disk::TestDisk;
pub use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, Generation, Member, MemberState, Membership, Now,
    ObjectId, Rng, Stamp, TransactionId, limits,
};
pub use braid_blocks::{Content, Linkage, Piece};
pub use braid_machine::{DiskError, Effect, Effects};
pub use braid_objects::Key;
pub use braid_store::{
    FORMAT, Intent, Logged, Medium, Recovered, RecoveredWrite, Storage, Store, StoreConfig, StoreError, StoreEvent,
    Superblock,
};
pub use braid_wire::{
    Action, ActionResult, AttributeName, Failure, ObjectAnswer, ObjectCommand, ObjectDescription, ObjectFailure,
    ObjectRefusal, ObjectRequest, SetAttribute, Undefined,
};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use std::ops::Range;
pub use std::time::Duration;

pub const SIZE: u64 = 16 << 20;
pub const JOURNAL: u64 = 512 << 10;
/// The length of a slot.
pub const SLOT: u64 = 73_728;
pub const OBJECT: ObjectId = ObjectId(7);

pub fn config() -> StoreConfig {
    StoreConfig { array: ArrayId([9; 16]), device: DeviceId(2), size: SIZE }
}

pub fn transaction(sequence: u64) -> TransactionId {
    TransactionId { host: Generation(3), sequence }
}

/// A disk with an empty store, with a journal of `journal` bytes.
pub fn formatted(journal: u64) -> TestDisk {
    TestDisk::formatted(Store::format_with(&config(), DiskId(1), 77, Some(journal)).expect("it is large enough"))
}

/// Two large intents, of two hosts: one host may not fill so much of the journal.
fn large_intents() -> [Intent; 2] {
    [(1, 0), (2, 16)].map(|(sequence, start)| {
        let host = Generation(10 + sequence as u32);
        let transaction = TransactionId { host, sequence };
        Intent { transaction, ..intent(sequence, vec![data(start, 12, sequence * 1000)]) }
    })
}

/// A block's content, which is different for each value.
pub fn pattern(value: u64) -> Vec<u8> {
    (0..BLOCK_BYTES as u64 / 8).flat_map(|at| (value ^ at << 48).to_le_bytes()).collect()
}

/// Data for `count` blocks from `start` on, with values from `value` on.
pub fn data(start: u64, count: u64, value: u64) -> Piece {
    let bytes: Vec<u8> = (0..count).flat_map(|at| pattern(value + at)).collect();
    Piece { range: BlockRange::new(start, count), content: Content::Data(bytes.into()) }
}

pub fn hole(start: u64, count: u64) -> Piece {
    Piece { range: BlockRange::new(start, count), content: Content::Hole }
}

pub fn intent(sequence: u64, pieces: Vec<Piece>) -> Intent {
    Intent {
        transaction: transaction(sequence),
        stamp: Stamp { clock: Clock(sequence), host: Generation(3) },
        epoch: Epoch(1),
        participants: vec![DeviceId(1), DeviceId(2)],
        linkage: Linkage { first: 1, last: 2 },
        object: OBJECT,
        pieces,
    }
}

/// A store in service, with its disk.
pub struct Bench {
    pub store: Store,
    pub disk: TestDisk,
    pub now: Now,
    pub rng: Rng,
    pub events: VecDeque<StoreEvent>,
    pub out: Effects,
}

impl Bench {
    /// An empty store, started.
    pub fn new(seed: u64) -> Bench {
        Bench::with_journal(JOURNAL, seed)
    }

    /// An empty store with a journal of `journal` bytes.
    pub fn with_journal(journal: u64, seed: u64) -> Bench {
        let (bench, recovered) = Bench::start(formatted(journal), seed).expect("it was just made");
        assert_eq!(recovered, Recovered { disk: DiskId(1), ..Recovered::default() });
        bench
    }

    /// A store on an existing disk.
    pub fn start(disk: TestDisk, seed: u64) -> Result<(Bench, Recovered), StoreError> {
        Bench::start_on(Medium::default(), disk, seed)
    }

    /// A store on an existing disk of this kind.
    pub fn start_on(medium: Medium, disk: TestDisk, seed: u64) -> Result<(Bench, Recovered), StoreError> {
        let mut bench = Bench::power_on_with(Store::new(config()).on(medium), disk, seed);
        bench.run();
        match bench.events.pop_front() {
            Some(StoreEvent::Ready(recovered)) => Ok((bench, recovered)),
            Some(StoreEvent::Unusable(error)) => Err(error),
            event => panic!("recovery ended with {event:?}"),
        }
    }

    pub fn power_on(disk: TestDisk, seed: u64) -> Bench {
        Bench::power_on_with(Store::new(config()), disk, seed)
    }

    pub fn power_on_with(store: Store, disk: TestDisk, seed: u64) -> Bench {
        let rng = Rng::new(seed);
        let mut bench = Bench { store, disk, now: Now::default(), rng, events: VecDeque::new(), out: Effects::new() };
        bench.store.start(&mut bench.out);
        bench.perform();
        bench
    }

    /// A store with one object of `blocks` blocks.
    pub fn with_object(blocks: u64) -> Bench {
        let mut bench = Bench::new(1);
        assert_eq!(bench.create(ObjectDescription::new(OBJECT, blocks), 0), Ok(()));
        bench
    }

    /// Creates an object without content, of which the first `absent` blocks are on other devices.
    pub fn create(&mut self, description: ObjectDescription, absent: u64) -> Result<(), Failure> {
        self.store.log(1, Logged::Created { description, absent }, &mut self.out);
        self.settle();
        match self.events.pop_front() {
            Some(StoreEvent::Done { ticket: 1, result }) => result,
            event => panic!("created an object, but got {event:?}"),
        }
    }

    /// Sends effects to the disk, and collects events.
    pub fn perform(&mut self) {
        self.store.invariants();
        for effect in self.out.drain() {
            let Effect::Disk { tag, command } = effect else { panic!("a store only commands its disk") };
            self.disk.submit(tag, command);
        }
        while let Some(event) = self.store.pop_event() {
            self.events.push_back(event);
        }
    }

    /// Ends one disk command.
    pub fn end_one(&mut self) -> bool {
        let Some((tag, result)) = self.disk.end_one(&mut self.rng) else { return false };
        self.store.on_disk_done(self.now, tag, result, &mut self.out);
        self.perform();
        true
    }

    /// Runs until the disk is idle, without letting time pass.
    pub fn run(&mut self) {
        self.perform();
        while self.end_one() {}
    }

    /// Lets time pass until the next deadline.
    pub fn wake(&mut self) -> bool {
        let Some(deadline) = self.store.deadline() else { return false };
        self.now.time = self.now.time.max(deadline);
        self.store.wake(self.now, &mut self.out);
        self.perform();
        true
    }

    /// Runs until there is nothing left to do.
    pub fn settle(&mut self) {
        self.run();
        for _ in 0..1000 {
            if !self.wake() {
                self.store.audit();
                return;
            }
            self.run();
        }
        panic!("the store does not come to rest");
    }

    /// The power fails and comes back.
    pub fn restart(mut self) -> Result<(Bench, Recovered), StoreError> {
        self.disk.crash(&mut self.rng);
        let seed = self.rng.next_u64();
        Bench::start(self.disk, seed)
    }

    /// The power fails and comes back, and nothing is damaged.
    pub fn restart_here(&mut self) -> Recovered {
        self.disk.crash(&mut self.rng);
        let (again, recovered) = Bench::start(self.disk.clone(), self.rng.next_u64()).expect("nothing is damaged");
        *self = again;
        recovered
    }

    /// Ends disk commands until there is an event.
    pub fn run_to_event(&mut self) {
        while self.events.is_empty() {
            self.end_one();
        }
    }

    /// Writes until a checkpoint is almost due, and begins the write with which it is.
    pub fn fill_half_the_journal(&mut self) {
        for sequence in 10.. {
            if self.counter("journal_bytes_used") > JOURNAL / 2 - 20_000 {
                break;
            }
            self.write(sequence, vec![data(60, 3, sequence)]);
        }
        assert_eq!(self.counter("checkpoints"), 0);
        self.store.apply(self.now, intent(3, vec![data(35, 10, 9)]), &mut self.out);
        self.perform();
    }

    pub fn prepare(&mut self, intent: Intent) -> Result<(), Failure> {
        let expected = intent.transaction;
        self.store.prepare(self.now, intent, &mut self.out);
        self.run();
        match self.events.pop_front() {
            Some(StoreEvent::Prepared { transaction, result }) if transaction == expected => result,
            event => panic!("prepared {expected}, but got {event:?}"),
        }
    }

    pub fn commit(&mut self, sequence: u64) {
        self.commit_named(transaction(sequence));
    }

    fn commit_named(&mut self, transaction: TransactionId) {
        self.store.commit(self.now, transaction, &mut self.out);
        self.settle();
        assert_eq!(self.events.pop_front(), Some(StoreEvent::Committed { transaction }));
    }

    pub fn abort(&mut self, sequence: u64) {
        let transaction = transaction(sequence);
        self.store.abort(self.now, transaction, &mut self.out);
        self.run();
        assert_eq!(self.events.pop_front(), Some(StoreEvent::Aborted { transaction }));
    }

    pub fn write(&mut self, sequence: u64, pieces: Vec<Piece>) {
        assert_eq!(self.prepare(intent(sequence, pieces)), Ok(()));
        self.commit(sequence);
    }

    pub fn read(&mut self, start: u64, count: u64) -> Result<Vec<u8>, Failure> {
        self.store.read(5, OBJECT, &[BlockRange::new(start, count)], &mut self.out);
        self.run();
        match self.events.pop_front() {
            Some(StoreEvent::Read { ticket: 5, result }) => result.map(|pieces| join(&pieces)),
            event => panic!("read, but got {event:?}"),
        }
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.store.counters().iter().find(|(known, _)| *known == name).expect("there is such a counter").1
    }
}

/// The bytes of some pieces; holes are zeros.
pub fn join(pieces: &[Piece]) -> Vec<u8> {
    let bytes = |piece: &Piece| match &piece.content {
        Content::Data(data) => data.clone(),
        Content::Hole => Bytes::from(vec![0; piece.range.count as usize * BLOCK_BYTES]),
        Content::Present | Content::Header { .. } | Content::Lost => panic!("a read brings bytes"),
    };
    pieces.iter().flat_map(bytes).collect()
}

pub fn patterns(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(pattern).collect()
}

#[test]
fn bytes_and_costs_of_a_write_are_counted() {
    let mut bench = Bench::with_object(100);
    let count =
        |bench: &Bench| ["bytes_accepted", "disk_write_bytes", "disk_durable_writes"].map(|name| bench.counter(name));
    for (sequence, blocks) in [(1, 3), (2, 32)] {
        let before = count(&bench);
        bench.write(sequence, vec![data(16, blocks, 50)]);
        let after = count(&bench);
        let [accepted, written, durable] = std::array::from_fn(|index| after[index] - before[index]);
        assert_eq!(accepted, blocks * BLOCK_BYTES as u64);
        assert!(written > accepted, "headers and records come on top: {written}");
        assert!(durable > 0);
    }
    let before = count(&bench);
    bench.write(3, vec![Piece { range: BlockRange::new(16, 8), content: Content::Hole }]);
    assert_eq!(count(&bench)[0], before[0], "a hole brings no bytes");
}

#[test]
fn a_small_write_is_one_batch_and_a_whole_chunk_is_written_once() {
    let mut bench = Bench::with_object(100);
    bench.settle();
    let (writes, batches, bytes) =
        (bench.counter("disk_writes"), bench.counter("journal_batches"), bench.counter("disk_write_bytes"));
    assert_eq!(bench.prepare(intent(1, vec![data(3, 1, 5)])), Ok(()));
    assert_eq!(bench.counter("disk_writes") - writes, 1);
    assert_eq!(bench.counter("journal_batches") - batches, 1);
    assert_eq!(bench.counter("disk_write_bytes") - bytes, 512 + 4096);
    let bytes = bench.counter("disk_write_bytes");
    assert_eq!(bench.prepare(intent(2, vec![data(16, 32, 5)])), Ok(()));
    assert_eq!(bench.counter("disk_writes") - writes, 1 + 2);
    assert_eq!(bench.counter("disk_write_bytes") - bytes, 32 * 4608 + 512);
}

#[test]
fn writes_that_come_while_a_batch_is_in_flight_share_the_next_one() {
    let mut bench = Bench::with_object(100);
    bench.settle();
    let batches = bench.counter("journal_batches");
    for sequence in 1..7 {
        bench.store.prepare(bench.now, intent(sequence, vec![data(sequence, 1, 5)]), &mut bench.out);
        bench.perform();
    }
    bench.run();
    assert_eq!(bench.events.len(), 6);
    assert_eq!(bench.counter("journal_batches") - batches, 2);
}

#[test]
fn a_commit_waits_for_company_but_not_long() {
    let mut bench = Bench::with_object(100);
    assert_eq!(bench.prepare(intent(1, vec![data(3, 1, 5)])), Ok(()));
    bench.store.commit(bench.now, transaction(1), &mut bench.out);
    bench.run();
    assert_eq!(bench.events.pop_front(), None);
    let waits = bench.store.deadline().expect("a commit waits").since(bench.now.time);
    assert_eq!(waits.as_millis(), 10);
    bench.wake();
    bench.run();
    assert_eq!(bench.events.pop_front(), Some(StoreEvent::Committed { transaction: transaction(1) }));
}

#[test]
fn no_block_is_written_home_to_a_free_slot() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(16, 16, 50)]);
    let home = *bench.disk.find(&pattern(53)[..512]).last().expect("it was written there");
    // A read of the old content keeps the dirty block from being written to its slot, until the whole chunk is overwritten elsewhere.
    bench.disk.hold_reads = true;
    bench.store.read(9, OBJECT, &[BlockRange::new(19, 1)], &mut bench.out);
    bench.write(2, vec![data(19, 1, 700)]);
    let homed = bench.counter("blocks_homed");
    for sequence in 3.. {
        bench.write(sequence, vec![data(60, 3, sequence)]);
        if bench.counter("blocks_homed") > homed {
            break;
        }
    }
    assert_eq!(bench.counter("checkpoints"), 0, "the checkpoint waits for the read");
    bench.write(1000, vec![data(16, 16, 900)]);
    bench.disk.hold_reads = false;
    bench.settle();
    assert_eq!(bench.counter("checkpoints"), 1);
    assert_eq!(bench.disk.get(home, 512), &pattern(53)[..512]);
    bench.events.clear();
    assert_eq!(bench.read(16, 16), Ok(patterns(900..916)));
}

#[test]
fn a_commit_while_a_long_snapshot_is_written_is_not_overtaken_by_it() {
    for steps in 0..12 {
        let mut bench = Bench::with_object(100);
        // More than one batch holds, so that the snapshot takes several batches.
        for large in large_intents() {
            assert_eq!(bench.prepare(large), Ok(()));
        }
        bench.fill_half_the_journal();
        for _ in 0..steps {
            bench.end_one();
        }
        for large in large_intents() {
            bench.store.commit(bench.now, large.transaction, &mut bench.out);
        }
        bench.settle();
        assert_eq!(bench.counter("checkpoints"), 1);
        let (mut bench, recovered) = bench.restart().expect("nothing is wrong");
        assert_eq!(recovered.intents, [], "after {steps} steps");
        assert_eq!(bench.read(0, 12), Ok(patterns(1000..1012)));
        assert_eq!(bench.read(16, 12), Ok(patterns(2000..2012)));
    }
}

#[test]
fn immediate_writes_to_one_chunk_take_turns() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(0, 16, 50)]);
    // The second write must not rely on the slot that the first one frees.
    bench.store.apply(bench.now, intent(2, vec![hole(0, 16)]), &mut bench.out);
    bench.store.apply(bench.now, intent(3, vec![data(3, 1, 900)]), &mut bench.out);
    bench.settle();
    bench.events.clear();
    while bench.counter("checkpoints") == 0 {
        let sequence = bench.counter("journal_batches") + 10;
        bench.write(sequence, vec![data(60, 3, sequence)]);
    }
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    assert_eq!(bench.read(2, 3), Ok([vec![0; BLOCK_BYTES], pattern(900), vec![0; BLOCK_BYTES]].concat()));
}

#[test]
fn failing_time_and_again_early_in_a_checkpoint_does_not_fill_the_journal() {
    let mut bench = Bench::with_object(100);
    // Intents that every snapshot carries along: a fifth of the journal.
    for large in large_intents() {
        assert_eq!(bench.prepare(large), Ok(()));
    }
    bench.fill_half_the_journal();
    bench.run_to_event();
    assert!(bench.counter("journal_bytes_used") > JOURNAL / 2, "a checkpoint is due");
    for round in 0..60 {
        // Recovery has just ended, and the first batch of the snapshot may be written.
        bench.end_one();
        bench.disk.crash_hard();
        bench = Bench::power_on(bench.disk, round);
        bench.run_to_event();
        assert!(matches!(bench.events.pop_front(), Some(StoreEvent::Ready(_))));
    }
    bench.settle();
    assert_eq!(bench.counter("checkpoints"), 1);
    for large in large_intents() {
        bench.commit_named(large.transaction);
    }
    bench.write(5000, vec![data(80, 10, 5000)]);
    assert_eq!(bench.read(16, 12), Ok(patterns(2000..2012)));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut bench = Bench::with_object(100);
    let refused = |bench: &mut Bench, pieces| bench.prepare(intent(1, pieces)).expect_err("it makes no sense");
    assert_eq!(refused(&mut bench, vec![data(99, 2, 5)]), Failure::OutOfRange);
    assert_eq!(refused(&mut bench, vec![data(4, 2, 5), hole(5, 1)]), Failure::Malformed);
    assert_eq!(refused(&mut bench, vec![hole(5, 0)]), Failure::Malformed);
    assert_eq!(refused(&mut bench, vec![hole(u64::MAX, 2)]), Failure::OutOfRange);
    let short = Piece { range: BlockRange::new(0, 2), content: Content::Data(Bytes::from_static(&[0; 4096])) };
    assert_eq!(refused(&mut bench, vec![short]), Failure::Malformed);
    assert_eq!(bench.prepare(Intent { object: ObjectId(8), ..intent(1, vec![]) }), Err(Failure::NoSuchObject));
    assert_eq!(bench.read(99, 2), Err(Failure::OutOfRange));
    assert_eq!(bench.read(u64::MAX, 2), Err(Failure::OutOfRange));
}

#[test]
fn a_removed_objects_content_is_gone_when_it_is_made_again() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(0, 60, 5)]);
    assert_eq!(bench.prepare(intent(2, vec![data(75, 10, 5)])), Ok(()));
    let description = *bench.store.object(OBJECT).expect("it is there");
    let room = bench.store.free_blocks();
    bench.store.log(2, Logged::Removed(OBJECT), &mut bench.out);
    bench.settle();
    assert_eq!(bench.store.free_blocks(), room + 112);
    assert_eq!(bench.counter("slots_mapped"), 0);
    bench.events.clear();
    assert_eq!(bench.create(description, 0), Ok(()));
    assert_eq!(bench.read(0, 100), Ok(vec![0; 100 * BLOCK_BYTES]));
    let (mut bench, recovered) = bench.restart().expect("nothing is wrong");
    assert_eq!(recovered.intents, []);
    assert_eq!(bench.read(0, 100), Ok(vec![0; 100 * BLOCK_BYTES]));
}
