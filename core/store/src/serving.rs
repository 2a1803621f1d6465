//! A store in service: what it knows, what it has in flight, and who hears of what.

use crate::block::{CHUNK_BLOCKS, STRIDE, chunks, places_of};
use crate::checkpoint::Checkpoint;
use crate::counters::Counters;
use crate::executing::{Requests, Sweeping, Unwritten};
use crate::journal::{Flight, Journal};
use crate::leaves::Leaves;
use crate::merging::Merging;
use crate::missed::{extent_of, merged};
use crate::reading::ReadOperation;
use crate::record::{IntentRecord, Record};
use crate::settling::Unsaid;
use crate::slots::Slots;
use crate::state::State;
use crate::superblock::{Geometry, Superblock};
use crate::writing::{Preparing, Waiting, Written};
use crate::{StoreError, StoreEvent};
use braid_base::{BlockRange, Clock, DeviceId, Membership, Now, ObjectId, RangeTable, Time, TransactionId, limits};
use braid_catalogue::Place;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag, Effects};
use braid_wire::{Failure, ObjectDescription, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a commit waits for a batch to ride on.
const COMMIT_LINGER: Duration = Duration::from_millis(10);
/// How long after a batch its durability is put on record, if no other batch does it.
const MARK_AFTER: Duration = Duration::from_millis(50);

/// What a disk command was for.
#[derive(Debug)]
pub(crate) enum Io {
    /// The batch in flight.
    Batch,
    /// Space for the slots up to this one.
    Reserve { frontier: u32 },
    /// Part of a read.
    Read { operation: u64, part: usize, places: BlockRange },
    /// Whole chunks of an intent.
    Data { preparing: u64, written: Written },
    /// Blocks on their way home, by place.
    Home { places: BlockRange },
    /// A step of the checkpoint that ends with this one command.
    CheckpointStep,
    /// Map pages of the checkpoint, among others.
    CheckpointPages,
    /// A leaf of the catalogue, for a lookup; and whether that is the second try.
    Leaf { place: Place, again: bool },
    /// The same, for merging.
    MergeRead { place: Place, again: bool },
    /// A leaf or index node that merging has made.
    MergeWrite { slot: u32 },
    /// All of a round.
    MergeSync,
}

impl Io {
    /// Where in the data area the command is at work.
    fn places(&self) -> Option<BlockRange> {
        match self {
            Io::Read { places, .. } | Io::Home { places } => Some(*places),
            Io::Data { written, .. } => Some(written.places),
            Io::Leaf { place, .. } | Io::MergeRead { place, .. } => Some(places_of(place.slot)),
            Io::MergeWrite { slot } => Some(places_of(*slot)),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Serving {
    pub superblock: Superblock,
    pub state: State,
    pub slots: Slots,
    pub journal: Journal,
    pub checkpoint: Checkpoint,
    pub reads: BTreeMap<u64, ReadOperation>,
    pub queue: VecDeque<Waiting>,
    /// Requests for objects that wait for room.
    pub requests: Requests,
    pub unwritten: Unwritten,
    pub sweeping: Sweeping,
    pub unsaid: Unsaid,
    pub leaves: Leaves,
    pub merging: Merging,
    /// The records of those, in bytes.
    pub queued_bytes: u64,
    pub preparing: BTreeMap<u64, Preparing>,
    pub reserving: bool,
    pub refused: bool,
    /// How often the disk refused space to the first that waits.
    pub refusals: u32,
    /// Commands in flight to the data area, by place.
    pub places: RangeTable<u64, ()>,
    pub events: VecDeque<StoreEvent>,
    pub counters: Counters,
    pub next_id: u64,
    io: BTreeMap<DiskTag, Io>,
    pub now: Now,
    pub broken: bool,
}

impl Serving {
    /// Takes over from recovery.
    pub fn new(superblock: Superblock, state: State, journal: Journal, next_tag: u64) -> Serving {
        let slots = Slots::new(superblock.geometry.slots, state.used_slots());
        Serving {
            superblock,
            state,
            slots,
            journal,
            checkpoint: Checkpoint::default(),
            reads: BTreeMap::new(),
            queue: VecDeque::new(),
            requests: Requests::default(),
            unwritten: Unwritten::default(),
            sweeping: Sweeping::default(),
            unsaid: Unsaid::default(),
            leaves: Leaves::default(),
            merging: Merging::default(),
            queued_bytes: 0,
            preparing: BTreeMap::new(),
            reserving: false,
            refused: false,
            refusals: 0,
            places: RangeTable::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            next_id: next_tag,
            io: BTreeMap::new(),
            now: Now::default(),
            broken: false,
        }
    }

    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Lets the clock run.
    pub fn observe(&mut self, now: Now) {
        self.now = now;
    }

    /// Lets the clock run; then does whatever can be done.
    pub fn advance(&mut self, now: Option<Now>, out: &mut Effects) {
        if let Some(now) = now {
            self.now = now;
        }
        if self.broken {
            return;
        }
        self.unsaid.observe(self.now.time);
        self.admit(out);
        // Before the others, who may leave no room, and after, when they have left nothing else to do.
        self.sweep(out);
        self.execute_waiting(out);
        self.sweep(out);
        self.begin_checkpoint_if_due();
        self.send_home(out);
        if now.is_some() || self.merging.wants_slots {
            self.merge_on(out);
        }
        self.write_batch(out);
        self.extend_ahead(out);
    }

    /// When there is something to do though nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        if self.broken {
            return None;
        }
        if self.merging.goes_on {
            // At once, but others come in between.
            return Some(self.now.time);
        }
        if self.journal.flight.is_some() {
            return None;
        }
        let patience = [self.patience_ends(), self.requests_patience_ends()];
        let unsaid = self.unsaid.deadline(self.now.time);
        [self.journal.flush_at, self.journal.mark_at, unsaid].into_iter().chain(patience).flatten().min()
    }

    /// See [`Store::commit`](crate::Store::commit).
    pub fn commit(&mut self, transaction: TransactionId) {
        let mut released = std::mem::take(&mut self.journal.released);
        let known = self.state.commit(transaction, &mut released);
        self.journal.released = released;
        self.decide(known, Record::Commit(transaction), StoreEvent::Committed { transaction });
    }

    /// See [`Store::abort`](crate::Store::abort).
    pub fn abort(&mut self, transaction: TransactionId) {
        let mut released = std::mem::take(&mut self.journal.released);
        let known = self.state.abort(transaction, &mut released);
        self.journal.released = released;
        self.decide(known, Record::Abort(transaction), StoreEvent::Aborted { transaction });
        self.journal.urgent = true;
    }

    /// The intent of a removed object is gone already: its decision is as durable as the removal.
    fn decide(&mut self, known: bool, note: Record, event: StoreEvent) {
        if known {
            self.journal.note(&note);
        }
        self.journal.events.push(event);
        self.linger();
    }

    pub fn linger(&mut self) {
        if self.journal.flush_at.is_none() {
            self.journal.flush_at = Some(self.now.time.after(COMMIT_LINGER));
        }
        // Slots and room come back with decisions: who waits for them need not wait longer.
        self.journal.urgent |= !self.queue.is_empty() || !self.requests.is_empty();
    }

    pub fn create_object(&mut self, ticket: u64, description: ObjectDescription, absent: u64) {
        let there = self.state.objects.get(description.object).map(|record| record.description);
        let result = match there {
            Some(there) if there == description => Ok(()),
            Some(_) => Err(Failure::ObjectExists),
            None => self.state.objects.place(description, self.claimed_slots()).map(|record| {
                self.journal.note(&Record::Created { object: record.clone(), absent });
                assert!(self.state.create(record, absent), "its place was free");
            }),
        };
        self.tell_when_durable(ticket, result);
    }

    pub fn set_ordering(&mut self, ticket: u64, object: ObjectId, ordering: Ordering) {
        let known = self.state.objects.set_ordering(object, ordering);
        if known {
            self.journal.note(&Record::Reordered { object, ordering });
        }
        self.tell_when_durable(ticket, if known { Ok(()) } else { Err(Failure::NoSuchObject) });
    }

    pub fn resize_object(&mut self, ticket: u64, object: ObjectId, range: BlockRange, absent: BlockRange) {
        let mut released = std::mem::take(&mut self.journal.released);
        let claimed = self.claimed_slots();
        let result = self.state.objects.place_resized(object, range, claimed).map(|record| {
            self.journal.note(&Record::Resized { object: record.clone(), absent });
            assert!(self.state.resize(record, absent, &mut released), "its place was free");
        });
        self.journal.released = released;
        self.tell_when_durable(ticket, result);
    }

    pub fn remove_object(&mut self, ticket: u64, object: ObjectId) {
        let mut released = std::mem::take(&mut self.journal.released);
        let known = self.state.remove(object, &mut released);
        self.journal.released = released;
        if known {
            self.journal.note(&Record::Removed(object));
        }
        self.tell_when_durable(ticket, if known { Ok(()) } else { Err(Failure::NoSuchObject) });
    }

    pub fn reserve_stamps(&mut self, ticket: u64, until: Clock) {
        self.state.stamps_reserved = self.state.stamps_reserved.max(until);
        self.journal.note(&Record::Stamps(until));
        self.tell_when_durable(ticket, Ok(()));
    }

    /// See [`Storage::adopt`](crate::Storage::adopt).
    pub fn adopt(&mut self, ticket: u64, membership: Membership) {
        let record = Record::Adopted(membership.clone());
        let mut released = std::mem::take(&mut self.journal.released);
        let dropped = self.state.adopt(membership, &mut released);
        self.journal.released = released;
        if dropped.is_some() {
            self.journal.note(&record);
            self.drop_fenced_requests();
        }
        self.journal.events.push(StoreEvent::Adopted { ticket, dropped: dropped.unwrap_or_default() });
        self.journal.urgent = true;
    }

    /// See [`Storage::missed`](crate::Storage::missed).
    pub fn missed(&self, device: DeviceId, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        let Some(membership) = &self.state.membership else { return (Vec::new(), None) };
        let is_redundant = self.state.objects.get(object).is_some_and(|record| record.description.redundant);
        // What is still on its way into the journal may be decided after this answer as well.
        let undecided = self.state.intents.values().chain(self.on_their_way());
        let unheard = |intent: &&IntentRecord| {
            is_redundant && intent.object == object && !membership.has_been_in_since(device, intent.by.epoch)
        };
        // Of the recorded ones no more than can be answered; the answer ends where the next one begins.
        let mut extents: Vec<BlockRange> =
            self.state.missed.of(device, object, from).take(limits::EXTENTS_MAX + 1).collect();
        let end = extents.get(limits::EXTENTS_MAX).map(|extent| extent.start);
        extents.truncate(limits::EXTENTS_MAX);
        let answered = BlockRange::between(from, end.unwrap_or(u64::MAX));
        extents.extend(undecided.filter(unheard).map(|intent| extent_of(intent.by.linkage).intersection(answered)));
        let mut extents = merged(extents);
        let next = extents.get(limits::EXTENTS_MAX).map(|extent| extent.start).or(end);
        extents.truncate(limits::EXTENTS_MAX);
        (extents, next)
    }

    /// See [`Storage::absent`](crate::Storage::absent).
    pub fn absent(&self, object: ObjectId, from: u64) -> (Vec<BlockRange>, Option<u64>) {
        some_of(self.state.absent.of(object, from))
    }

    /// See [`Storage::allocated`](crate::Storage::allocated).
    pub fn allocated(&self, object: ObjectId, range: BlockRange) -> (Vec<BlockRange>, Option<u64>) {
        let Some(record) = self.state.objects.get(object) else { return (Vec::new(), None) };
        let range = range.intersection(record.description.range());
        let mut chunks = chunks(range).map(|(chunk, _)| chunk).peekable();
        // Neighbours together.
        let runs = std::iter::from_fn(|| {
            let holds = |chunk: &u32| self.state.chunk(object, *chunk).blocks != 0;
            let first = chunks.find(holds)?;
            let mut end = first + 1;
            while chunks.next_if(|chunk| *chunk == end && holds(chunk)).is_some() {
                end += 1;
            }
            let (first, end) = (u64::from(first) * CHUNK_BLOCKS, u64::from(end) * CHUNK_BLOCKS);
            Some(BlockRange::between(first, end).intersection(range))
        });
        some_of(runs)
    }

    pub fn flush(&mut self, ticket: u64) {
        self.tell_when_durable(ticket, Ok(()));
    }

    /// Refusals wait too: what they are due to may not be durable yet.
    fn tell_when_durable(&mut self, ticket: u64, result: Result<(), Failure>) {
        self.journal.events.push(StoreEvent::Done { ticket, result });
        self.journal.urgent = true;
    }

    /// Gives the disk a command, and remembers what for.
    pub fn disk(&mut self, io: Io, command: DiskCommand, out: &mut Effects) {
        let tag = DiskTag(self.next_id);
        self.next_id += 1;
        if let Some(places) = io.places() {
            self.places.insert(places, tag.0, ());
        }
        self.counters.count(&command);
        self.io.insert(tag, io);
        out.disk(tag, command);
    }

    /// Where a place begins on the device.
    pub fn offset_of(&self, place: u64) -> u64 {
        self.geometry().data_offset + place * STRIDE as u64
    }

    pub fn on_disk_done(&mut self, now: Now, tag: DiskTag, result: DiskResult, out: &mut Effects) {
        self.now = now;
        let Some(io) = self.io.remove(&tag) else { return };
        if self.broken {
            return;
        }
        if let Some(places) = io.places() {
            self.places.remove(places.start, tag.0);
        }
        self.counters.count_result(&result);
        let (done, bytes) = match result {
            DiskResult::Done(done) => (done, None),
            DiskResult::Read(Ok(bytes)) => (Ok(()), Some(bytes)),
            DiskResult::Read(Err(error)) => (Err(error), None),
        };
        match io {
            Io::Read { operation, part, places } => {
                self.on_read(operation, part, places, bytes, out);
                self.on_places_quiet(places, out);
            }
            Io::Data { preparing, written } => {
                let places = written.places;
                self.on_data_written(preparing, written, done, out);
                self.on_places_quiet(places, out);
            }
            Io::Reserve { frontier } => self.on_reserved(frontier, done),
            Io::Leaf { place, again } => {
                self.on_leaf(place, again, bytes, out);
                self.on_places_quiet(places_of(place.slot), out);
            }
            Io::MergeRead { place, again } => {
                self.on_merge_read(place, again, bytes, out);
                self.on_places_quiet(places_of(place.slot), out);
            }
            Io::Batch
            | Io::Home { .. }
            | Io::CheckpointStep
            | Io::CheckpointPages
            | Io::MergeWrite { .. }
            | Io::MergeSync
                if done.is_err() =>
            {
                return self.give_up(done.expect_err("just seen"));
            }
            Io::Batch => self.on_batch_durable(out),
            Io::Home { places } => {
                self.on_home_written(places);
                self.on_places_quiet(places, out);
            }
            Io::CheckpointStep => self.on_checkpoint_step(out),
            Io::CheckpointPages => self.on_checkpoint_pages(out),
            Io::MergeWrite { .. } => self.on_merge_written(out),
            Io::MergeSync => self.on_round_durable(),
        }
        self.advance(None, out);
    }

    /// Without its journal or its map a store is none.
    pub fn give_up(&mut self, error: DiskError) {
        self.broken = true;
        self.events.push_back(StoreEvent::Unusable(StoreError::Disk(error)));
    }

    fn write_batch(&mut self, out: &mut Effects) {
        let mark_due = self.journal.is_mark_due(self.now.time);
        let unsaid_due = self.unsaid.is_due(self.now.time);
        if self.journal.flight.is_some() || !self.journal.is_due(self.now.time) && !mark_due && !unsaid_due {
            return;
        }
        if mark_due || unsaid_due {
            self.say_what_is_over();
        }
        let Some(batch) = self.journal.assemble() else {
            // Its completion tries again; no clock need.
            self.checkpoint.wanted = true;
            self.journal.urgent |= self.journal.flush_at.take().is_some();
            self.journal.mark_at = None;
            return;
        };
        self.counters.batches += 1;
        if self.journal.noted() == 0 {
            self.unwritten = Unwritten { noted: false, in_flight: self.unwritten.noted };
        }
        self.counters.journal_bytes += batch.buffer.len() as u64;
        self.counters.journal_blocks += u64::from(batch.blocks);
        let offset = self.geometry().journal_offset + batch.offset;
        self.disk(Io::Batch, DiskCommand::Write { offset, data: vec![batch.buffer], durable: true }, out);
    }

    fn on_batch_durable(&mut self, out: &mut Effects) {
        let Flight { intents, carried, events, released, ends_snapshot, has_roots, mark, .. } = self.journal.landed();
        self.unwritten.in_flight = false;
        self.journal.mark_at = (!mark).then(|| self.now.time.after(MARK_AFTER));
        for intent in carried {
            if let Some(held) = self.state.intents.get_mut(&intent.by.transaction) {
                *held = intent;
            }
        }
        let mut told = Vec::with_capacity(intents.len());
        for (intent, applied) in intents {
            told.push(self.on_intent_durable(intent, applied));
        }
        self.events.extend(told.into_iter().chain(events));
        for slot in released {
            self.release(slot);
        }
        if ends_snapshot {
            self.on_snapshot_durable(out);
        }
        if has_roots {
            self.on_roots_durable(out);
        }
    }

    /// Gives a slot back as soon as nothing is in flight to it.
    pub fn release(&mut self, slot: u32) {
        self.checkpoint.drop_slot(slot);
        if self.places.overlapping(places_of(slot)).next().is_some() {
            self.slots.releasing.insert(slot);
        } else {
            self.slots.give_back(slot);
        }
    }

    /// A command to these places has ended: others may have waited for that.
    fn on_places_quiet(&mut self, places: BlockRange, out: &mut Effects) {
        if !self.slots.releasing.is_empty() {
            let first = (places.start / CHUNK_BLOCKS) as u32;
            let behind = places.end().div_ceil(CHUNK_BLOCKS) as u32;
            let quiet: Vec<u32> = self.slots.releasing.range(first..behind).copied().collect();
            for slot in quiet {
                if self.places.overlapping(places_of(slot)).next().is_none() {
                    self.slots.releasing.remove(&slot);
                    self.slots.give_back(slot);
                }
            }
        }
        self.send_home(out);
    }

    /// Asserts what must hold between steps.
    pub fn invariants(&self) {
        self.journal.invariants();
        self.requests.invariants();
        let mapped = self.state.map.mapped() + self.state.bad.len() as u32;
        let held = u64::from(mapped + self.slots.free()) + self.state.catalogue.used_slots();
        assert!(held <= u64::from(self.slots.frontier()), "a slot is used or free, not both");
        assert!(self.slots.frontier() <= self.slots.total());
        assert!(self.state.is_whole_if_in(), "what is in has nothing absent");
    }

    /// Asserts that every slot is accounted for, once. Takes as long as the device is large: for tests.
    pub fn audit(&self) {
        let mut owners = vec![0u32; self.slots.frontier() as usize];
        let preparing = self.preparing.values().flat_map(|preparing| preparing.intent.slots());
        let held = self.state.used_slots().chain(self.journal.slots()).chain(preparing);
        let free = (0..self.slots.frontier()).filter(|slot| self.slots.is_free(*slot));
        for slot in held.chain(self.slots.releasing.iter().copied()).chain(free) {
            owners[slot as usize] += 1;
        }
        for (slot, owners) in owners.iter().enumerate() {
            assert_eq!(*owners, 1, "slot {slot} has {owners} owners");
        }
    }

    /// A fresh identity for an operation.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

/// As many as an answer may name, and where to ask on.
fn some_of(mut extents: impl Iterator<Item = BlockRange>) -> (Vec<BlockRange>, Option<u64>) {
    let some = extents.by_ref().take(limits::EXTENTS_MAX).collect();
    (some, extents.next().map(|extent| extent.start))
}
