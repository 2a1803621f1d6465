//! The journal's head: what waits for the next batch, and room in the ring.
//!
//! One batch is in flight at a time; what comes meanwhile collects for the next (group commit). A batch holds, in this
//! order: a part of the snapshot that a checkpoint carries on, if there is one; then, once all of that is written,
//! *notes* (decisions and other small records, always all of them); then intents with their payload.

use crate::StoreEvent;
use crate::batch::{BatchHeader, HEADER};
use crate::record::{Body, IntentRecord, Part, Record};
use braid_base::{AlignedBuffer, BLOCK_BYTES, Time};
use braid_catalogue::Root;
use bytes::Bytes;
use std::collections::VecDeque;

/// A part of a snapshot.
#[derive(Debug)]
pub(crate) enum Carried {
    /// Small records, encoded.
    Notes(Vec<u8>),
    /// An undecided intent.
    Intent(IntentRecord),
}

/// A batch on its way to the disk.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// New intents, their payload now in the batch's buffer; and whether each is in force at once.
    pub intents: Vec<(IntentRecord, bool)>,
    /// Intents carried along, likewise.
    pub carried: Vec<IntentRecord>,
    /// What may be said when it is durable.
    pub events: Vec<StoreEvent>,
    /// Slots that are free when it is durable.
    pub released: Vec<u32>,
    /// True if a snapshot ends in it.
    pub ends_snapshot: bool,
    /// True if new roots of the catalogue are in it.
    pub has_roots: bool,
    /// True if there was nothing in it.
    pub mark: bool,
    sequence: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: u64,
    /// Batches begin at multiples of this, so that none shares what the disk writes at once with one that is durable.
    align: u64,
    seal: u32,
    /// Where the next batch may go, and how many bytes from the tail to there are in use.
    head: u64,
    used: u64,
    /// The tail to be, when the checkpoint at work ends: the place of the snapshot's first batch.
    snapshot_start: Option<SnapshotStart>,
    /// Bytes written since the last snapshot ended.
    since_snapshot: u64,
    last: u64,
    next: u64,

    pub flight: Option<Flight>,
    pub snapshot: VecDeque<Carried>,
    notes: Vec<u8>,
    /// Notes of what may be forgotten. They go before the others, so that they never forget what those say; lost, they cost
    /// only room.
    hints: Vec<u8>,
    /// Goes with the notes.
    pub events: Vec<StoreEvent>,
    /// Goes with the notes.
    pub released: Vec<u32>,
    intents: VecDeque<(IntentRecord, bool)>,
    /// Room promised to intents that are not in a batch yet.
    promised: u64,
    promised_intents: u64,
    /// New roots of the catalogue are among the notes.
    has_roots: bool,
    /// Notes can't wait.
    pub urgent: bool,
    /// When notes go at the latest.
    pub flush_at: Option<Time>,
    /// When a mark is to prove that the last batch was durable.
    pub mark_at: Option<Time>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotStart {
    pub offset: u64,
    pub sequence: u64,
    /// What is in use before it.
    behind: u64,
}

/// Where a batch goes, and its buffer.
pub(crate) struct Assembled {
    pub offset: u64,
    pub buffer: Bytes,
    pub blocks: u32,
}

impl Journal {
    /// A journal as recovery found it.
    pub fn new(capacity: u64, align: u64, seal: u32, tail: u64, head: u64, last: u64, next: u64) -> Journal {
        let used = (head + capacity - tail) % capacity;
        // One of an earlier release may end anywhere.
        let gap = head.next_multiple_of(align) - head;
        let gap = if used + gap < capacity { gap } else { 0 };
        let (head, used) = ((head + gap) % capacity, used + gap);
        Journal {
            capacity,
            align,
            seal,
            head,
            used,
            snapshot_start: None,
            since_snapshot: used,
            last,
            next,
            flight: None,
            snapshot: VecDeque::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            events: Vec::new(),
            released: Vec::new(),
            intents: VecDeque::new(),
            promised: 0,
            promised_intents: 0,
            has_roots: false,
            urgent: false,
            flush_at: None,
            mark_at: None,
            scratch: Vec::new(),
        }
    }

    /// Takes over a snapshot that recovery found whole.
    pub fn adopt_snapshot(&mut self, tail: u64, offset: u64, sequence: u64) {
        let behind = (offset + self.capacity - tail) % self.capacity;
        self.snapshot_start = Some(SnapshotStart { offset, sequence, behind });
        self.since_snapshot = self.used - behind;
    }

    /// The most that one intent's record may take, and about the most of a batch.
    pub fn batch_max(&self) -> u64 {
        self.capacity / 8
    }

    /// True if a record of `length` may be promised room: there must still be enough for a decision of everything
    /// undecided and for the next snapshot. `undecided` and `snapshot` are what is so far.
    pub fn has_room(&self, length: u64, as_intent: bool, undecided: usize, snapshot: u64) -> bool {
        let carried = if as_intent { length } else { 0 };
        let snapshot = snapshot + self.promised_intents + carried;
        let snapshot = snapshot + (2 + snapshot / self.batch_max()) * 2 * self.align;
        // Each in a batch of its own, followed by a mark; and a few others.
        let decisions = 2 * (undecided + self.intents.len() + 16) as u64 * self.align;
        let wasted_at_the_end = self.batch_max() + self.capacity / 32;
        let needed =
            self.promised + self.padded(length) + snapshot + decisions + self.pending_notes() + wasted_at_the_end;
        self.used + needed < self.capacity
    }

    /// Bytes of notes that wait for the next batch.
    pub fn noted(&self) -> u64 {
        self.notes.len() as u64
    }

    fn pending_notes(&self) -> u64 {
        (self.notes.len() + self.hints.len()) as u64
    }

    /// True if an intent of `length` may be undecided along with those that are: they are carried from snapshot to snapshot.
    pub fn is_within_quota(&self, length: u64, intent_bytes: u64) -> bool {
        intent_bytes + self.promised_intents + length <= self.capacity / 4
    }

    /// The room of a record that has a batch of its own.
    pub fn padded(&self, length: u64) -> u64 {
        length + HEADER as u64 + self.align
    }

    /// Sets room aside for a record that will be queued.
    pub fn promise(&mut self, length: u64, as_intent: bool) {
        self.promised += self.padded(length);
        self.promised_intents += if as_intent { length } else { 0 };
    }

    /// Takes a promise back: the record will not be queued, or is in a batch.
    pub fn fulfil(&mut self, length: u64, as_intent: bool) {
        self.promised -= self.padded(length);
        self.promised_intents -= if as_intent { length } else { 0 };
    }

    /// Queues an intent that was promised room; `applied` if it is in force at once.
    pub fn queue(&mut self, intent: IntentRecord, applied: bool) {
        self.intents.push_back((intent, applied));
        self.urgent = true;
    }

    /// Adds a note to the next batch.
    pub fn note(&mut self, record: &Record) {
        record.encode(&mut self.notes);
    }

    /// Adds a note of new roots: what they no longer name is free when it is durable.
    pub fn note_roots(&mut self, roots: Vec<Root>, released: Vec<u32>) {
        self.note(&Record::Rooted(roots));
        self.released.extend(released);
        self.has_roots = true;
        self.urgent = true;
    }

    /// Adds a note that something may be forgotten.
    pub fn hint(&mut self, record: &Record) {
        record.encode(&mut self.hints);
    }

    /// True if a checkpoint is due: the journal is half full, and not of what the last one carried along.
    pub fn is_half_full(&self) -> bool {
        self.used > self.capacity / 2 && self.since_snapshot > self.capacity / 8
    }

    /// True if a checkpoint would gain anything; the mark behind the last one, a sector, is not worth it.
    pub fn has_grown(&self) -> bool {
        self.since_snapshot > 2 * self.align
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Begins a snapshot. Notes that wait are part of it already, but follow it all the same, in its last batch: should
    /// the checkpoint not end, they are news to a replay that begins earlier. Hints don't: they could forget what the snapshot
    /// has to say.
    pub fn begin_snapshot(&mut self, carried: VecDeque<Carried>) {
        assert!(self.snapshot.is_empty() && self.flight.is_none() && !carried.is_empty());
        self.hints.clear();
        self.snapshot = carried;
        self.snapshot_start = None;
        self.since_snapshot = 0;
        self.urgent = true;
    }

    /// Where the last snapshot begins.
    pub fn snapshot_start(&self) -> SnapshotStart {
        self.snapshot_start.expect("a checkpoint writes its snapshot first")
    }

    /// Frees what is before the last snapshot: recovery begins there now.
    pub fn advance_tail(&mut self) {
        let start = self.snapshot_start.take().expect("a checkpoint writes its snapshot first");
        self.used -= start.behind;
    }

    /// True if a batch is to be written now.
    pub fn is_due(&self, now: Time) -> bool {
        let passed = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        self.flight.is_none()
            && (self.urgent || !self.snapshot.is_empty() || !self.intents.is_empty() || passed(self.flush_at))
    }

    /// True if all is quiet and the last batch is not yet known to have been durable.
    pub fn is_mark_due(&self, now: Time) -> bool {
        self.flight.is_none() && self.mark_at.is_some_and(|at| at <= now)
    }

    /// The next batch, or nothing if the ring has no room for it until a checkpoint ends.
    pub fn assemble(&mut self) -> Option<Assembled> {
        let mut records = std::mem::take(&mut self.scratch);
        records.clear();
        let room = self.batch_max() as usize;
        let mut payload = 0;
        let mut carried = 0;
        for part in &self.snapshot {
            let length = part.len();
            if carried > 0 && records.len() + payload + length > room {
                break;
            }
            match part {
                Carried::Notes(notes) => records.extend_from_slice(notes),
                Carried::Intent(intent) => {
                    intent.encode(false, &mut records);
                    payload += intent.payload_len();
                }
            }
            carried += 1;
        }
        let ends_snapshot = carried > 0 && carried == self.snapshot.len();
        let mut taken = 0;
        if carried == self.snapshot.len() {
            records.extend_from_slice(&self.hints);
            records.extend_from_slice(&self.notes);
            for (intent, applied) in &self.intents {
                if (taken > 0 || carried > 0) && records.len() + payload + intent.journal_len() as usize > room {
                    break;
                }
                intent.encode(*applied, &mut records);
                payload += intent.payload_len();
                taken += 1;
            }
        }
        // Hints may be lost. If that is all there is, nothing need prove that it was durable.
        let mark = carried == 0 && taken == 0 && self.notes.is_empty();
        let blocks = (payload / BLOCK_BYTES) as u32;
        let mut header = BatchHeader {
            sequence: self.next,
            previous: self.last,
            offset: self.head,
            records: records.len() as u32,
            payload: blocks,
            begins_snapshot: carried > 0 && self.snapshot_start.is_none(),
            ends_snapshot,
        };
        let length = header.len() as u64;
        let wasted = if self.head + length > self.capacity { self.capacity - self.head } else { 0 };
        let end = (if wasted > 0 { 0 } else { self.head } + length).next_multiple_of(self.align);
        let taken_up = end - if wasted > 0 { 0 } else { self.head };
        if self.used + wasted + taken_up >= self.capacity {
            self.scratch = records;
            if self.hints.is_empty() {
                return None;
            }
            // There may be ever so many; nothing must wait for those that may be lost.
            self.hints.clear();
            return self.assemble();
        }
        if wasted > 0 {
            header.offset = 0;
        }
        if carried > 0 && self.snapshot_start.is_none() {
            let behind = self.used + wasted;
            self.snapshot_start = Some(SnapshotStart { offset: header.offset, sequence: header.sequence, behind });
        }
        if carried == 0 || taken > 0 {
            self.since_snapshot += wasted + taken_up;
        }
        self.used += wasted + taken_up;
        self.head = end % self.capacity;
        self.next += 1;

        let mut flight = Flight { ends_snapshot, mark, sequence: header.sequence, ..Flight::default() };
        let buffer = header.encode(self.seal, &records);
        let buffer = self.fill(buffer, header.description_len(), carried, taken, &mut flight);
        if self.snapshot.is_empty() {
            self.hints.clear();
            self.notes.clear();
            flight.events = std::mem::take(&mut self.events);
            flight.released = std::mem::take(&mut self.released);
            flight.has_roots = std::mem::take(&mut self.has_roots);
            self.urgent = false;
            self.flush_at = None;
        }
        self.mark_at = None;
        self.flight = Some(flight);
        self.scratch = records;
        Some(Assembled { offset: header.offset, buffer, blocks })
    }

    /// Copies the payload into the batch, and lets the intents refer to it there: what they referred to before may be a
    /// small part of something large.
    fn fill(
        &mut self,
        mut buffer: AlignedBuffer,
        start: usize,
        carried: usize,
        taken: usize,
        flight: &mut Flight,
    ) -> Bytes {
        let mut at = start;
        let parts = self.snapshot.iter().take(carried).filter_map(|part| match part {
            Carried::Intent(intent) => Some(intent),
            Carried::Notes(_) => None,
        });
        for intent in parts.chain(self.intents.iter().take(taken).map(|(intent, _)| intent)) {
            for part in &intent.pieces {
                if let Body::Inline(data) = &part.body {
                    buffer[at..at + data.len()].copy_from_slice(data);
                    at += data.len();
                }
            }
        }
        assert_eq!(at, buffer.len(), "the batch is as long as its payload");
        let buffer = buffer.freeze();
        let mut at = start;
        for part in self.snapshot.drain(..carried) {
            if let Carried::Intent(mut intent) = part {
                point_into(&mut intent.pieces, &buffer, &mut at);
                flight.carried.push(intent);
            }
        }
        for (mut intent, applied) in self.intents.drain(..taken) {
            point_into(&mut intent.pieces, &buffer, &mut at);
            flight.intents.push((intent, applied));
        }
        for index in 0..flight.intents.len() {
            let (intent, applied) = &flight.intents[index];
            let (length, as_intent) = (intent.journal_len(), !*applied);
            self.fulfil(length, as_intent);
        }
        buffer
    }

    /// The batch in flight is durable.
    pub fn landed(&mut self) -> Flight {
        let flight = self.flight.take().expect("only a batch in flight can land");
        self.last = flight.sequence;
        flight
    }

    /// Intents that wait to be in a batch or are in the one in flight.
    pub fn on_their_way(&self) -> impl Iterator<Item = &IntentRecord> {
        let flying = self.flight.iter().flat_map(|flight| &flight.intents);
        self.intents.iter().chain(flying).map(|(intent, _)| intent)
    }

    /// Slots of intents that wait to be in a batch or are in the one in flight, and slots to be free after it.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let held = self.on_their_way().flat_map(IntentRecord::slots);
        let released = self.flight.iter().flat_map(|flight| &flight.released).chain(&self.released);
        held.chain(released.copied())
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        assert!(self.used < self.capacity, "the journal never bites its tail");
        assert!(self.head < self.capacity);
        assert!(self.last < self.next);
    }
}

impl Carried {
    fn len(&self) -> usize {
        match self {
            Carried::Notes(notes) => notes.len(),
            Carried::Intent(intent) => intent.journal_len() as usize,
        }
    }
}

fn point_into(pieces: &mut [Part], buffer: &Bytes, at: &mut usize) {
    for part in pieces {
        if let Body::Inline(data) = &mut part.body {
            let length = data.len();
            *data = buffer.slice(*at..*at + length);
            *at += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::SECTOR;
    use braid_base::{Generation, TransactionId};

    #[test]
    fn hints_for_which_there_is_no_room_keep_nothing_waiting() {
        let mut journal = Journal::new(64 << 10, SECTOR as u64, 1, 0, 0, 1, 3);
        let name = |sequence| TransactionId { host: Generation(1), sequence };
        (0..10_000).for_each(|sequence| journal.hint(&Record::Forget(name(sequence))));
        journal.note(&Record::Abort(name(1)));
        let batch = journal.assemble().expect("the note has room");
        assert_eq!(batch.buffer.len(), SECTOR);
        journal.landed();
        journal.invariants();
    }
}
