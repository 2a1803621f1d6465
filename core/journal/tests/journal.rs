//! A journal whose records are numbers, as an example of an owner: durable records are recovered, whatever happens to the others.

use braid_base::{BLOCK_BYTES, Time};
use braid_journal::{Carried, Damaged, DecodeError, Entry, Found, Journal, Payload, Record, SECTOR, first_batch, read};
use bytes::{Buf, BufMut, Bytes};

const SEAL: u32 = 77;
const CAPACITY: usize = 128 << 10;

/// A number. Some have a block as payload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    number: u32,
    block: Option<Bytes>,
}

impl Record for Word {
    fn encode(&self, to: &mut Vec<u8>) {
        to.put_u32_le(self.number);
        to.put_u8(u8::from(self.block.is_some()));
    }

    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Self, DecodeError> {
        let number = from.try_get_u32_le()?;
        let block = if from.try_get_u8()? == 1 { Some(payload.take(1)?) } else { None };
        if block.iter().any(|block| block.iter().any(|byte| *byte != block[0])) {
            payload.is_damaged();
        }
        Ok(Word { number, block })
    }
}

impl Entry for Word {
    fn encode(&self, to: &mut Vec<u8>) {
        Record::encode(self, to);
    }

    fn room(&self) -> u64 {
        (5 + self.payload_len()) as u64
    }

    fn payload_len(&self) -> usize {
        self.block.as_ref().map_or(0, Bytes::len)
    }

    fn is_carried(&self) -> bool {
        true
    }

    fn payload(&self) -> impl Iterator<Item = &Bytes> {
        self.block.iter()
    }

    fn payload_mut(&mut self) -> impl Iterator<Item = &mut Bytes> {
        self.block.iter_mut()
    }
}

fn note(number: u32) -> Word {
    Word { number, block: None }
}

fn entry(number: u32) -> Word {
    Word { number, block: Some(vec![number as u8; BLOCK_BYTES].into()) }
}

/// A journal and its disk. What is done when a batch is durable is a list of numbers.
struct Bench {
    journal: Journal<Word, Vec<u32>>,
    disk: Vec<u8>,
    tail: (u64, u64),
}

impl Bench {
    fn new() -> Bench {
        let mut disk = vec![0; CAPACITY];
        let first = first_batch(SEAL);
        disk[..first.len()].copy_from_slice(&first);
        let ends = (0, first.len() as u64);
        let journal = Journal::new(CAPACITY as u64, SECTOR as u64, SEAL, ends, (1, 3));
        Bench { journal, disk, tail: (0, 1) }
    }

    /// Writes the next batch. Returns what was to be done, and the range of the batch.
    fn write(&mut self) -> Option<(Vec<u32>, std::ops::Range<usize>)> {
        let batch = self.journal.assemble(0)?;
        let at = batch.offset as usize..batch.offset as usize + batch.buffer.len();
        self.disk[at.clone()].copy_from_slice(&batch.buffer);
        let flight = self.journal.landed(Time(0));
        self.journal.invariants();
        Some((flight.then, at))
    }

    fn enter(&mut self, word: Word) {
        self.journal.promise(&word);
        self.journal.queue(word);
    }

    fn read(&self) -> Result<Found<Word>, Damaged> {
        read(&Bytes::copy_from_slice(&self.disk), SEAL, self.tail.0, self.tail.1)
    }

    fn numbers(&self) -> Vec<u32> {
        self.read().expect("nothing is damaged").records.iter().map(|word| word.number).collect()
    }
}

#[test]
fn durable_records_follow_each_other_and_are_found_again() {
    let mut bench = Bench::new();
    bench.journal.note(&note(1));
    bench.journal.then.push(10);
    bench.enter(entry(2));
    bench.enter(entry(3));
    assert!(bench.journal.is_due(Time(0)));
    let (followed, _) = bench.write().expect("there is room");
    assert_eq!((followed, bench.numbers()), (vec![10], vec![1, 2, 3]));
    assert!(!bench.journal.is_due(Time(0)));
    assert!(bench.journal.deadline().is_some_and(|at| bench.journal.is_mark_due(at)));
    let found = bench.read().expect("nothing is damaged");
    assert_eq!(found.records[1], entry(2));
}

#[test]
fn a_torn_last_batch_never_was_and_a_damaged_one_before_it_is_an_error() {
    let mut bench = Bench::new();
    bench.journal.note(&note(1));
    let (_, first) = bench.write().expect("there is room");
    bench.enter(entry(2));
    let (_, last) = bench.write().expect("there is room");
    bench.disk[last.end - 1] ^= 1;
    assert_eq!(bench.numbers(), [1]);
    bench.disk[last.end - 1] ^= 1;
    assert_eq!(bench.numbers(), [1, 2]);
    bench.disk[first.start + 64] ^= 1;
    assert_eq!(bench.read().err(), Some(Damaged(last.start as u64)), "the last batch proves that it was durable");
}

#[test]
fn a_ring_is_written_round_and_round_as_long_as_snapshots_free_it() {
    let mut bench = Bench::new();
    let mut rounds = 0;
    for number in 0..1_000 {
        bench.journal.note(&note(number));
        if bench.journal.wants_checkpoint() {
            let carried = [Carried::Notes(Vec::new()), Carried::Entry(entry(number))];
            bench.journal.begin_snapshot(carried.into());
            bench.write().expect("there is room");
            bench.tail = bench.journal.snapshot_start();
            bench.journal.advance_tail();
            assert_eq!(bench.numbers(), [number, number], "what the snapshot repeats, and the note after it");
            rounds += 1;
        } else {
            bench.write().expect("there is room");
        }
    }
    assert!(rounds > 3, "{rounds}");
    assert_eq!(bench.numbers().last(), Some(&999));
}

#[test]
fn hints_for_which_there_is_no_room_keep_nothing_waiting() {
    let mut bench = Bench::new();
    (0..40_000).for_each(|number| bench.journal.hint(&note(number)));
    bench.journal.note(&note(5));
    let (_, batch) = bench.write().expect("the note has room");
    assert_eq!((batch.len(), bench.numbers()), (SECTOR, vec![5]));
}
