//! The write side of the journal: it collects records for the next batch, and completes their requests when that batch is durable.
//!
//! One batch is in flight at a time; records that arrive in the meantime are collected for the next one (group commit). A batch contains,
//! in this order: a part of the snapshot, while a checkpoint writes one; then, once the snapshot is complete, all *notes* (decisions and
//! other small records); then *entries* with their payload, as many as fit.

use crate::batch_format::{BatchHeader, HEADER};
use crate::circular_log::CircularLog;
use crate::codec::{Entry, Record};
use braid_base::{AlignedBuffer, BLOCK_BYTES, Time};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a note that is not urgent waits for other records.
const LINGER: Duration = Duration::from_millis(10);
/// How long after a batch an empty one is written, which records that the first one was durable, if no other batch does so before.
const MARK_AFTER: Duration = Duration::from_millis(50);

/// The most bytes that an empty batch takes: a physical sector. Batches with records leave them for the one that recovery writes.
const MARK_BYTES_MAX: u64 = 4096;

/// A part of a snapshot.
#[derive(Clone, Debug)]
pub enum Carried<E> {
    /// Small records, encoded.
    Notes(Vec<u8>),
    /// An undecided entry.
    Entry(E),
}

/// A batch that is being written.
#[derive(Clone, Debug)]
pub struct Flight<E, D> {
    /// New entries. Their payload is in the batch's buffer.
    pub entries: Vec<E>,
    /// Entries repeated by the snapshot, likewise.
    pub carried: Vec<E>,
    /// What to do when the batch is durable.
    pub then: D,
    /// True if it is the last batch of a snapshot.
    pub ends_snapshot: bool,
    /// True if the batch is a mark: it is empty, and only proves that its predecessor was durable.
    is_mark: bool,
    sequence: u64,
}

/// A journal of entries `E`. A value of `D` describes what its owner does when a batch is durable.
#[derive(Clone, Debug)]
pub struct Journal<E, D> {
    log: CircularLog,
    seal: u32,
    sequences: Sequences,
    flight: Option<Flight<E, D>>,
    snapshot: VecDeque<Carried<E>>,
    notes: Vec<u8>,
    /// Notes that something may be forgotten. They precede the others in a batch, so that they never cancel a note of the same batch. If
    /// they are lost, the only cost is space.
    hints: Vec<u8>,
    /// What to do when the batch with the notes is durable.
    pub then: D,
    entries: VecDeque<E>,
    promised: Promised,
    timer: BatchTimer,
    scratch: Vec<u8>,
}

/// The sequences of the last durable batch and of the next one.
#[derive(Clone, Debug)]
struct Sequences {
    last: u64,
    next: u64,
}

/// The space reservation for entries that are not in a batch yet.
#[derive(Clone, Debug, Default)]
struct Promised {
    entries: usize,
    bytes: u64,
    /// Bytes that these entries will take in the next snapshot.
    carried: u64,
}

/// When the next batch is written.
#[derive(Clone, Debug, Default)]
struct BatchTimer {
    /// As soon as no batch is in flight.
    urgent: bool,
    /// At this time at the latest.
    flush_at: Option<Time>,
    /// At this time, an empty batch, to prove that the last one was durable.
    mark_at: Option<Time>,
}

/// A batch to be written.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The offset in the journal.
    pub offset: u64,
    pub buffer: Bytes,
    /// Blocks of the payload.
    pub blocks: u32,
}

impl<E: Entry, D: Default> Journal<E, D> {
    /// A journal of `capacity` bytes in the state that recovery found: the offsets of tail and head, and the sequences of the last valid
    /// batch and of the next one.
    pub fn new(capacity: u64, align: u64, seal: u32, (tail, head): (u64, u64), (last, next): (u64, u64)) -> Self {
        Journal {
            log: CircularLog::new(capacity, align, tail, head),
            seal,
            sequences: Sequences { last, next },
            flight: None,
            snapshot: VecDeque::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            then: D::default(),
            entries: VecDeque::new(),
            promised: Promised::default(),
            timer: BatchTimer::default(),
            scratch: Vec::new(),
        }
    }

    /// Adopts a complete snapshot that recovery found.
    pub fn adopt_snapshot(&mut self, tail: u64, offset: u64, sequence: u64) {
        self.log.adopt_snapshot(tail, offset, sequence);
    }

    /// Bytes of the log.
    pub fn capacity(&self) -> u64 {
        self.log.capacity()
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.log.used()
    }

    /// The most bytes that one entry may take, and approximately the most of a batch.
    pub fn batch_max(&self) -> u64 {
        self.capacity() / 8
    }

    /// True if space for a record of `length` bytes can be reserved. Enough must be left for the decisions of all undecided entries and
    /// for the next snapshot. `undecided` is the number of durable undecided entries, and `snapshot` the present length of a snapshot.
    pub fn has_room(&self, length: u64, is_carried: bool, undecided: usize, snapshot: u64) -> bool {
        let carried = if is_carried { length } else { 0 };
        let snapshot = snapshot + self.promised.carried + carried;
        let snapshot = snapshot + (2 + snapshot / self.batch_max()) * 2 * self.log.align();
        // Each decision in a batch of its own, followed by a mark; and a few others.
        let decisions = 2 * (undecided + self.promised.entries + 16) as u64 * self.log.align();
        let wasted_at_the_end = self.batch_max() + self.capacity() / 32;
        let pending_notes = (self.notes.len() + self.hints.len()) as u64;
        let needed =
            self.promised.bytes + self.padded(length) + snapshot + decisions + pending_notes + wasted_at_the_end;
        self.used() + needed < self.capacity()
    }

    /// Bytes of notes that wait for the next batch.
    pub fn noted(&self) -> u64 {
        self.notes.len() as u64
    }

    /// True if an entry of `length` bytes may be undecided along with `undecided` bytes of others. This is bounded because every snapshot
    /// repeats them.
    pub fn is_within_quota(&self, length: u64, undecided: u64) -> bool {
        undecided + self.promised.carried + length <= self.capacity() / 4
    }

    /// True if an entry of `length` bytes is within its owner's share of that bound: an owner has at most as much as is left. So one owner
    /// takes half of it at most. `own` are the bytes that the owner has; it is called only if more than half is taken.
    pub fn is_within_share(&self, length: u64, undecided: u64, own: impl FnOnce() -> u64) -> bool {
        let (quota, taken) = (self.capacity() / 4, undecided + self.promised.carried);
        taken + length <= quota / 2 || own() + length <= quota.saturating_sub(taken)
    }

    /// The bytes that a record takes in a batch of its own.
    pub fn padded(&self, length: u64) -> u64 {
        length + HEADER as u64 + self.log.align()
    }

    /// Reserves space for an entry that will be queued.
    pub fn promise(&mut self, entry: &E) {
        let length = entry.room();
        self.promised.entries += 1;
        self.promised.bytes += self.padded(length);
        self.promised.carried += if entry.is_carried() { length } else { 0 };
    }

    /// Releases the reservation of an entry: it is in a batch, or will not be queued.
    pub fn fulfil(&mut self, entry: &E) {
        let length = entry.room();
        self.promised.entries -= 1;
        self.promised.bytes -= self.padded(length);
        self.promised.carried -= if entry.is_carried() { length } else { 0 };
    }

    /// Queues an entry for which space is reserved.
    pub fn queue(&mut self, entry: E) {
        self.entries.push_back(entry);
        self.timer.urgent = true;
    }

    /// Adds a note to the next batch.
    pub fn note(&mut self, record: &impl Record) {
        record.encode(&mut self.notes);
    }

    /// Adds a note that something may be forgotten.
    pub fn hint(&mut self, record: &impl Record) {
        record.encode(&mut self.hints);
    }

    /// Requests that the next batch be written as soon as possible.
    pub fn hurry(&mut self) {
        self.timer.urgent = true;
    }

    /// Requests that the next batch be written within 10 ms, so that other records may join it.
    pub fn linger(&mut self, now: Time) {
        self.timer.flush_at.get_or_insert_with(|| now.after(LINGER));
    }

    /// Requests a snapshot, because a record waits for space that it may free.
    pub fn want_room(&mut self) {
        if self.log.has_grown() {
            self.log.want_room();
        }
    }

    /// True if a snapshot is due, and may be begun.
    pub fn wants_checkpoint(&self) -> bool {
        self.log.wants_checkpoint()
    }

    /// Begins a snapshot. Notes that wait for a batch are included in the snapshot already, but are written after it, too, in its last
    /// batch: if the checkpoint does not complete, replay begins earlier and needs them. Hints are discarded: they could cancel records
    /// of the snapshot.
    pub fn begin_snapshot(&mut self, carried: VecDeque<Carried<E>>) {
        assert!(self.snapshot.is_empty() && self.flight.is_none() && !carried.is_empty());
        self.hints.clear();
        self.snapshot = carried;
        self.log.await_snapshot();
        self.timer.urgent = true;
    }

    /// The offset of the last snapshot, and the sequence of its first batch.
    pub fn snapshot_start(&self) -> (u64, u64) {
        self.log.snapshot_start()
    }

    /// Frees the space before the last snapshot: recovery begins there from now on.
    pub fn advance_tail(&mut self) {
        self.log.advance_tail();
    }

    /// When a batch must be written if nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        [self.timer.flush_at, self.timer.mark_at].into_iter().flatten().min()
    }

    /// True if a batch must be written now.
    pub fn is_due(&self, now: Time) -> bool {
        let passed = self.timer.flush_at.is_some_and(|deadline| deadline <= now);
        let waiting = self.timer.urgent || !self.snapshot.is_empty() || !self.entries.is_empty();
        self.flight.is_none() && (waiting || passed)
    }

    /// True if the next batch would hold no record, other than notes that something may be forgotten: everything else is durable.
    pub fn is_blank(&self) -> bool {
        self.flight.is_none() && self.snapshot.is_empty() && self.notes.is_empty() && self.entries.is_empty()
    }

    /// Does without a batch that was requested while it [is blank](Journal::is_blank).
    pub fn skip_batch(&mut self) {
        (self.timer.urgent, self.timer.flush_at) = (false, None);
    }

    /// True if a mark is due: no batch was written for a while, and the last one is not proven durable.
    pub fn is_mark_due(&self, now: Time) -> bool {
        self.flight.is_none() && self.timer.mark_at.is_some_and(|at| at <= now)
    }

    /// The next batch; `None` if the log has no space for it until a checkpoint ends. `kept` bytes are left for what the checkpoint under way
    /// must note before it can end.
    pub fn assemble(&mut self, kept: u64) -> Option<Assembled> {
        let mut records = std::mem::take(&mut self.scratch);
        records.clear();
        let (carried, mut payload) = self.encode_snapshot(&mut records);
        let ends_snapshot = carried > 0 && carried == self.snapshot.len();
        let mut taken = 0;
        if carried == self.snapshot.len() {
            records.extend_from_slice(&self.hints);
            records.extend_from_slice(&self.notes);
            for entry in &self.entries {
                let length = entry.room() as usize;
                if (taken > 0 || carried > 0) && records.len() + payload + length > self.batch_max() as usize {
                    break;
                }
                entry.encode(&mut records);
                payload += entry.payload_len();
                taken += 1;
            }
        }
        let begins_snapshot = carried > 0 && !self.log.has_snapshot();
        let mut header = BatchHeader {
            sequence: self.sequences.next,
            previous: self.sequences.last,
            offset: self.log.head(),
            records: records.len() as u32,
            payload: (payload / BLOCK_BYTES) as u32,
            begins_snapshot,
            ends_snapshot,
        };
        // An empty batch takes no room from others: if the power fails behind it, recovery uses its space again.
        let left = match carried {
            _ if records.is_empty() => 0,
            0 => kept + MARK_BYTES_MAX,
            _ => MARK_BYTES_MAX,
        };
        let Some(place) = self.log.find(header.len() as u64, left) else {
            self.scratch = records;
            return self.assemble_without_hints(kept);
        };
        header.offset = place.offset;
        if begins_snapshot {
            self.log.start_snapshot(place, header.sequence);
        }
        self.log.take(place, carried == 0 || taken > 0);
        self.sequences.next += 1;
        // Hints may be lost: a batch with hints alone needs no proof that it was durable.
        let is_mark = carried == 0 && taken == 0 && self.notes.is_empty();
        let buffer = header.encode(self.seal, &records, place.len());
        self.scratch = records;
        let (buffer, entries, carried) = self.fill(buffer, (header.len(), place.len()), carried, taken);
        let mut flight =
            Flight { entries, carried, then: D::default(), ends_snapshot, is_mark, sequence: header.sequence };
        if self.snapshot.is_empty() {
            self.hints.clear();
            self.notes.clear();
            flight.then = std::mem::take(&mut self.then);
            self.timer = BatchTimer::default();
        }
        self.timer.mark_at = None;
        self.flight = Some(flight);
        Some(Assembled { offset: header.offset, buffer, blocks: header.payload })
    }

    /// Encodes as much of the snapshot as fits into one batch. Returns the number of parts and the bytes of their payload.
    fn encode_snapshot(&self, records: &mut Vec<u8>) -> (usize, usize) {
        let (mut carried, mut payload) = (0, 0);
        for part in &self.snapshot {
            if carried > 0 && records.len() + payload + part.len() > self.batch_max() as usize {
                break;
            }
            match part {
                Carried::Notes(notes) => records.extend_from_slice(notes),
                Carried::Entry(entry) => {
                    entry.encode(records);
                    payload += entry.payload_len();
                }
            }
            carried += 1;
        }
        (carried, payload)
    }

    /// Tries again without hints. Their number is unbounded, and they may be lost, so that nothing must wait for them. If there are none,
    /// the end of the checkpoint frees space and triggers the next attempt: no timer is needed.
    fn assemble_without_hints(&mut self, kept: u64) -> Option<Assembled> {
        if self.hints.is_empty() {
            self.log.want_room();
            self.timer.urgent |= self.timer.flush_at.take().is_some();
            self.timer.mark_at = None;
            return None;
        }
        self.hints.clear();
        self.assemble(kept)
    }

    /// Copies the payload into the batch, and makes the entries refer to it there, because the old buffers may be small slices of large
    /// ones. Returns the batch, with zeros up to the end of its span, the new entries in it, and the entries that the snapshot repeats.
    fn fill(
        &mut self,
        mut buffer: AlignedBuffer,
        (length, span): (usize, usize),
        carried: usize,
        taken: usize,
    ) -> (Bytes, Vec<E>, Vec<E>) {
        let start = buffer.len();
        let parts = self.snapshot.iter().take(carried).filter_map(|part| match part {
            Carried::Entry(entry) => Some(entry),
            Carried::Notes(_) => None,
        });
        for data in parts.chain(self.entries.iter().take(taken)).flat_map(Entry::payload) {
            buffer.append(data);
        }
        assert_eq!(buffer.len(), length, "the batch is as long as its payload");
        buffer.append_zeros(span - length);
        let buffer = buffer.freeze();
        let mut at = start;
        let mut point_into_buffer = |mut entry: E| {
            for data in entry.payload_mut() {
                let length = data.len();
                *data = buffer.slice(at..at + length);
                at += length;
            }
            entry
        };
        let parts = self.snapshot.drain(..carried).filter_map(|part| match part {
            Carried::Entry(entry) => Some(point_into_buffer(entry)),
            Carried::Notes(_) => None,
        });
        let carried: Vec<E> = parts.collect();
        let entries: Vec<E> = self.entries.drain(..taken).map(point_into_buffer).collect();
        entries.iter().for_each(|entry| self.fulfil(entry));
        (buffer, entries, carried)
    }

    /// The batch in flight is durable. Unless it is a mark, another batch must follow soon, to prove it.
    pub fn landed(&mut self, now: Time) -> Flight<E, D> {
        let flight = self.flight.take().expect("only a batch in flight can land");
        self.sequences.last = flight.sequence;
        self.timer.mark_at = (!flight.is_mark).then(|| now.after(MARK_AFTER));
        flight
    }

    /// The batch in flight.
    pub fn flight(&self) -> Option<&Flight<E, D>> {
        self.flight.as_ref()
    }

    /// Entries that are queued, or in the batch in flight.
    pub fn on_their_way(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().chain(self.flight.iter().flat_map(|flight| &flight.entries))
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        self.log.invariants();
        assert!(self.sequences.last < self.sequences.next);
    }
}

impl<E: Entry> Carried<E> {
    fn len(&self) -> usize {
        match self {
            Carried::Notes(notes) => notes.len(),
            Carried::Entry(entry) => entry.room() as usize,
        }
    }
}
