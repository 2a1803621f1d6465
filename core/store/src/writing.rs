//! Writes on their way in: waiting for room, their whole chunks going to fresh slots, then into the journal.
//!
//! ```text
//!   prepare ─► waiting ──────────────► in the journal's queue ─► in a batch ─► durable: answered
//!                 │ room, slots              ▲
//!                 └─► whole chunks written ──┘
//! ```
//!
//! Whole chunks are written durably before the record that refers to them, rather than together with it under one sync:
//! a record whose batch survived a crash is then as good as answered, and recovery need not read the slots to know. The
//! latency is that of two flushes either way, and batches never wait for bulk data.
//!
//! First come, first served: who needs more room than there is holds up the others, and so gets it.

use crate::block::{Attribution, CHUNK_BLOCKS, SLOT_BYTES, WHOLE_CHUNK, chunks, interleave, places_of};
use crate::record::{Body, Home, IntentRecord, Part, Record};
use crate::serving::{Io, Serving};
use crate::state::{SPARE_MIN, bad_slots_max};
use crate::{Intent, StoreEvent};
use braid_base::{BLOCK_BYTES, BlockRange, Time, limits};
use braid_machine::{DiskCommand, DiskError, Effects};
use braid_wire::{Content, Failure, Piece};
use bytes::Bytes;
use std::time::Duration;

/// Slots for which space is set aside at once.
pub(crate) const RESERVE_STEP: u32 = 64;
/// The most slots that one command writes.
const RUN_MAX: u64 = 16;
/// So many bad slots one write may find; then its host has to try again.
const BAD_PER_WRITE_MAX: u32 = 4;

/// A write that waits for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// All its data in one place, not yet split.
    intent: IntentRecord,
    applied: bool,
    since: Time,
}

/// How long a write may wait for room before it is refused. Two devices may each hold what the other waits for; then a
/// host must abort one of the two, and try again.
const PATIENCE: Duration = Duration::from_secs(1);

/// A write whose whole chunks are on their way to their slots.
#[derive(Debug)]
pub(crate) struct Preparing {
    pub intent: IntentRecord,
    applied: bool,
    outstanding: usize,
    failure: Option<Failure>,
    /// Bad slots that it has found.
    bad: u32,
}

/// Whole chunks that were to be written.
#[derive(Debug)]
pub(crate) struct Written {
    pub places: BlockRange,
    /// With headers, as on the disk.
    pub data: Bytes,
    /// A single one, for the second time or in another slot.
    pub alone: bool,
}

/// What a write needs.
#[derive(Debug, Default)]
struct Needs {
    /// Slots for chunks that have none.
    new: u32,
    /// Slots for whole chunks to be overwritten; without them, these go through the journal.
    over: u32,
    /// Room in the journal, with and without those slots.
    length: u64,
    length_inline: u64,
}

/// What became of the first that waits.
enum Admission {
    Admitted,
    Waits,
    Fails(Failure),
}

impl Serving {
    /// See [`Store::prepare`](crate::Store::prepare) and [`Store::apply`](crate::Store::apply).
    pub fn write(&mut self, intent: Intent, applied: bool) {
        let transaction = intent.transaction;
        let since = self.now.time;
        match self.accept(intent) {
            Ok(intent) if self.queued_bytes + intent.journal_len() > limits::WAITING_BYTES_MAX as u64 => {
                self.events.push_back(answer(intent.by.transaction, applied, Err(Failure::Busy)));
            }
            Ok(intent) => {
                self.queued_bytes += intent.journal_len();
                self.queue.push_back(Waiting { intent, applied, since });
            }
            Err(failure) => self.events.push_back(answer(transaction, applied, Err(failure))),
        }
    }

    fn accept(&self, intent: Intent) -> Result<IntentRecord, Failure> {
        let Intent { transaction, stamp, epoch, mut participants, linkage, object, pieces } = intent;
        participants.shrink_to_fit();
        if self.state.objects.get(object).is_none() {
            return Err(Failure::NoSuchObject);
        }
        let mut pieces = pieces.into_iter().map(part_of).collect::<Result<Vec<_>, _>>()?;
        pieces.sort_by_key(|part| part.range.start);
        let overlap = pieces.windows(2).any(|pair| pair[0].range.overlaps(pair[1].range));
        if overlap || participants.len() > limits::PARTICIPANTS_MAX || linkage.first > linkage.last {
            return Err(Failure::Malformed);
        }
        let by = Attribution { transaction, stamp, epoch, linkage };
        let intent = IntentRecord { by, participants, object, pieces: joined(&pieces), homes: Vec::new() };
        if self.state.fits(&intent) { Ok(intent) } else { Err(Failure::OutOfRange) }
    }

    /// Lets in as many as there is room for.
    pub fn admit(&mut self, out: &mut Effects) {
        while let Some(waiting) = self.queue.pop_front() {
            let length = waiting.intent.journal_len();
            self.queued_bytes -= length;
            let admission = match self.try_admit(&waiting, out) {
                Admission::Waits if self.now.time.since(waiting.since) >= PATIENCE => Admission::Fails(Failure::Busy),
                admission => admission,
            };
            match admission {
                Admission::Admitted => self.counters.bytes_accepted += waiting.intent.payload_len() as u64,
                Admission::Waits => {
                    self.queued_bytes += length;
                    self.queue.push_front(waiting);
                    // Whatever is decided gives room when it is durable.
                    self.journal.urgent |= !self.journal.events.is_empty();
                    return;
                }
                Admission::Fails(failure) => {
                    let event = answer(waiting.intent.by.transaction, waiting.applied, Err(failure));
                    self.events.push_back(event);
                }
            }
            self.refusals = 0;
        }
    }

    fn try_admit(&mut self, waiting: &Waiting, out: &mut Effects) -> Admission {
        let Waiting { intent, applied, .. } = waiting;
        if !self.state.fits(intent) {
            return Admission::Fails(Failure::NoSuchObject);
        }
        if !applied && self.state.is_stale(intent) {
            return Admission::Fails(Failure::Absent);
        }
        if !self.state.may_claim(intent) {
            return Admission::Waits;
        }
        let needs = self.needs(intent);
        if needs.length > self.journal.batch_max() {
            return Admission::Fails(Failure::NoSpace);
        }
        // What is kept back is for overwrites: they must not fail for want of a slot.
        let new = if needs.new == 0 { 0 } else { needs.new + self.spare_kept() };
        let in_slots = self.free_slots() >= new + needs.over;
        if !in_slots && (self.free_slots() < new || needs.length_inline > self.journal.batch_max()) {
            return self.await_slots(new, needs.over, out);
        }
        let length = if in_slots { needs.length } else { needs.length_inline };
        let (undecided, bytes) = (self.state.intents.len() + self.preparing.len(), self.state.intent_bytes());
        if !applied && !self.journal.is_within_quota(length, bytes) {
            // No checkpoint gives more: only decisions do.
            return Admission::Waits;
        }
        if !self.journal.has_room(length, !applied, undecided, self.kept_room(self.merging_needs())) {
            self.checkpoint.wanted |= self.journal.has_grown();
            return Admission::Waits;
        }
        self.enter(intent, *applied, in_slots, out);
        Admission::Admitted
    }

    /// Writes that are not durable yet.
    pub fn on_their_way(&self) -> impl Iterator<Item = &IntentRecord> {
        let waiting = self.queue.iter().map(|waiting| &waiting.intent);
        let preparing = self.preparing.values().map(|preparing| &preparing.intent);
        waiting.chain(preparing).chain(self.journal.on_their_way())
    }

    /// When the first in the queue has waited long enough.
    pub fn patience_ends(&self) -> Option<Time> {
        self.queue.front().map(|waiting| waiting.since.after(PATIENCE))
    }

    /// What a write needs; lengths are a little more than the truth.
    fn needs(&self, intent: &IntentRecord) -> Needs {
        let mut needs = Needs { length: intent.journal_len(), length_inline: 0, ..Needs::default() };
        let mut homed = None;
        for part in &intent.pieces {
            let brings_data = match part.body {
                Body::Inline(_) => true,
                Body::Lost => false,
                Body::Hole | Body::Slots(_) => continue,
            };
            for (chunk, mask) in chunks(part.range) {
                let slot = self.state.chunk(intent.object, chunk).slot;
                if mask == WHOLE_CHUNK && brings_data {
                    needs.new += u32::from(slot.is_none());
                    needs.over += u32::from(slot.is_some());
                    // Its payload, for a part of its own.
                    needs.length -= CHUNK_BLOCKS * (BLOCK_BYTES as u64 + 4);
                    needs.length += 64;
                } else if slot.is_none() && homed.replace(chunk) != Some(chunk) {
                    needs.new += u32::from(self.state.claimed_slot(intent.object, chunk).is_none());
                    needs.length += 8;
                }
            }
            needs.length += 64;
        }
        needs.length_inline = needs.length + u64::from(needs.over) * CHUNK_BLOCKS * (BLOCK_BYTES as u64 + 4);
        needs
    }

    /// There are too few free slots: more space is set aside, or some come back, or the write fails.
    fn await_slots(&mut self, new: u32, over: u32, out: &mut Effects) -> Admission {
        if self.reserving {
            return Admission::Waits;
        }
        let missing = (new + over).saturating_sub(self.free_slots());
        let left = self.slots.total() - self.slots.frontier();
        if (left == 0 || self.refused) && self.state.catalogue.may_need_less() {
            // Merging shows how few slots the catalogue takes: after a start that is not known of any change.
            self.checkpoint.merging_wanted = true;
            return Admission::Waits;
        }
        if left > 0 && self.refusals < 2 {
            // Where a generous step is refused, the bare need may still do.
            let step = if self.refusals == 0 { missing.max(RESERVE_STEP) } else { missing };
            self.reserve(step.min(left), out);
            return Admission::Waits;
        }
        let used = self.state.map.mapped() + self.state.catalogue.used_slots() as u32;
        let on_their_way = self.slots.frontier() - self.slots.free() - used - self.state.bad.len() as u32;
        if on_their_way > 0 && (new == 0 || left == 0) {
            return Admission::Waits;
        }
        Admission::Fails(Failure::NoSpace)
    }

    /// Keeps space set aside ahead of need.
    pub fn extend_ahead(&mut self, out: &mut Effects) {
        let left = self.slots.total() - self.slots.frontier();
        if self.free_slots() < self.spare_kept() + RESERVE_STEP && left > 0 && !self.reserving && !self.refused {
            self.reserve(RESERVE_STEP.min(left), out);
        }
    }

    /// Sets space aside for so many slots more.
    pub fn reserve(&mut self, slots: u32, out: &mut Effects) {
        self.reserving = true;
        let first = self.slots.frontier();
        let offset = self.offset_of(places_of(first).start);
        let length = self.offset_of(places_of(first + slots).start) - offset;
        self.disk(Io::Reserve { frontier: first + slots }, DiskCommand::Reserve { offset, length }, out);
    }

    pub fn on_reserved(&mut self, frontier: u32, done: Result<(), DiskError>) {
        self.reserving = false;
        self.refused = done.is_err();
        match done {
            Ok(()) => self.slots.extend(frontier),
            Err(_) => {
                self.refusals += 1;
                self.merging.refusals += 1;
            }
        }
    }

    /// A write goes in: it gets its slots, and its whole chunks go there.
    fn enter(&mut self, intent: &IntentRecord, applied: bool, in_slots: bool, out: &mut Effects) {
        let mut entered = IntentRecord {
            by: intent.by,
            participants: intent.participants.clone(),
            object: intent.object,
            pieces: Vec::with_capacity(intent.pieces.len()),
            homes: Vec::new(),
        };
        let mut writes: Vec<(BlockRange, Bytes)> = Vec::new();
        for part in &intent.pieces {
            match &part.body {
                Body::Inline(data) => self.split(part.range, data, in_slots, &mut entered, &mut writes),
                Body::Lost => {
                    chunks(part.range).for_each(|(chunk, _)| self.find_home(chunk, &mut entered));
                    entered.pieces.push(part.clone());
                }
                Body::Hole | Body::Slots(_) => entered.pieces.push(part.clone()),
            }
        }
        self.state.claim(&entered);
        self.journal.promise(entered.journal_len(), !applied);
        if writes.is_empty() {
            return self.journal.queue(entered, applied);
        }
        let preparing = self.id();
        let slots = entered.pieces.iter().filter(|part| matches!(part.body, Body::Slots(_)));
        for (part, (places, data)) in slots.zip(&writes) {
            let buffer = interleave(data, entered.object, part.range.start, &entered.by).freeze();
            self.write_data(preparing, *places, buffer, false, out);
            self.counters.chunks_written += places.count / CHUNK_BLOCKS;
        }
        let outstanding = writes.len();
        self.preparing.insert(preparing, Preparing { intent: entered, applied, outstanding, failure: None, bad: 0 });
    }

    /// Splits data into what goes to slots of its own and what goes through the journal.
    fn split(
        &mut self,
        range: BlockRange,
        data: &Bytes,
        in_slots: bool,
        entered: &mut IntentRecord,
        writes: &mut Vec<(BlockRange, Bytes)>,
    ) {
        // What goes through the journal, from here on, is not yet in `entered`.
        let mut inline = range.start;
        let slice = |from: u64, to: u64| {
            data.slice((from - range.start) as usize * BLOCK_BYTES..(to - range.start) as usize * BLOCK_BYTES)
        };
        let flush = |entered: &mut IntentRecord, from: u64, to: u64| {
            if from < to {
                entered.pieces.push(Part { range: BlockRange::between(from, to), body: Body::Inline(slice(from, to)) });
            }
        };
        for (chunk, mask) in chunks(range) {
            let slot = self.state.chunk(entered.object, chunk).slot;
            if mask != WHOLE_CHUNK {
                self.find_home(chunk, entered);
                continue;
            }
            if slot.is_some() && !in_slots {
                continue;
            }
            let blocks = BlockRange::new(u64::from(chunk) * CHUNK_BLOCKS, CHUNK_BLOCKS);
            flush(entered, inline, blocks.start);
            let neighbour = inline == blocks.start;
            inline = blocks.end();
            let slot = self.slots.take();
            let places = places_of(slot);
            match (entered.pieces.last_mut(), writes.last_mut()) {
                (Some(Part { range: run, body: Body::Slots(_) }), Some((held, bytes)))
                    if neighbour
                        && run.end() == blocks.start
                        && run.start >= range.start
                        && held.end() == places.start
                        && held.count < RUN_MAX * CHUNK_BLOCKS =>
                {
                    run.count += CHUNK_BLOCKS;
                    held.count += CHUNK_BLOCKS;
                    *bytes = slice(run.start, run.end());
                }
                _ => {
                    entered.pieces.push(Part { range: blocks, body: Body::Slots(slot) });
                    writes.push((places, slice(blocks.start, blocks.end())));
                }
            }
        }
        flush(entered, inline, range.end());
    }

    /// Sets a slot aside for a chunk that has none, unless that was done.
    fn find_home(&mut self, chunk: u32, entered: &mut IntentRecord) {
        let slot = self.state.chunk(entered.object, chunk).slot;
        if slot.is_none() && entered.homes.last().is_none_or(|home| home.chunk != chunk) {
            let claimed = self.state.claimed_slot(entered.object, chunk);
            let slot = claimed.unwrap_or_else(|| self.slots.take());
            entered.homes.push(Home { chunk, slot });
        }
    }

    fn write_data(&mut self, preparing: u64, places: BlockRange, data: Bytes, alone: bool, out: &mut Effects) {
        let io = Io::Data { preparing, written: Written { places, data: data.clone(), alone } };
        let offset = self.offset_of(places.start);
        self.disk(io, DiskCommand::Write { offset, data: vec![data], durable: true }, out);
    }

    pub fn on_data_written(
        &mut self,
        preparing: u64,
        written: Written,
        done: Result<(), DiskError>,
        out: &mut Effects,
    ) {
        let waiting = self.preparing.get_mut(&preparing).expect("it waits for all its writes");
        waiting.outstanding -= 1;
        match done {
            Ok(()) => {}
            Err(DiskError::NoSpace) => waiting.failure = Some(Failure::NoSpace),
            Err(DiskError::Failed) => self.write_again(preparing, written, out),
        }
        if self.broken || self.preparing[&preparing].outstanding > 0 {
            return;
        }
        let Preparing { intent, applied, failure, .. } = self.preparing.remove(&preparing).expect("just seen");
        let Some(failure) = failure else { return self.journal.queue(intent, applied) };
        self.journal.fulfil(intent.journal_len(), !applied);
        let mut released = Vec::new();
        self.state.discard(&intent, &mut released);
        released.into_iter().for_each(|slot| self.release(slot));
        self.events.push_back(answer(intent.by.transaction, applied, Err(failure)));
    }

    /// The disk has failed a write of whole chunks. Each is written alone, once more. A slot that fails then is retired, and its chunk
    /// goes to another one.
    fn write_again(&mut self, preparing: u64, written: Written, out: &mut Effects) {
        let Written { places, data, alone } = written;
        let slots = (places.start / CHUNK_BLOCKS) as u32..(places.end() / CHUNK_BLOCKS) as u32;
        if !alone {
            self.preparing.get_mut(&preparing).expect("just seen").outstanding += slots.len();
            for (slot, at) in slots.zip((0..data.len()).step_by(SLOT_BYTES as usize)) {
                let data = data.slice(at..at + SLOT_BYTES as usize);
                self.write_data(preparing, places_of(slot), data, true, out);
            }
            return;
        }
        let bad = slots.start;
        let may_have_another = self.free_slots() > 0;
        let waiting = self.preparing.get_mut(&preparing).expect("just seen");
        waiting.bad += 1;
        let goes_on = waiting.failure.is_none() && waiting.bad < BAD_PER_WRITE_MAX && may_have_another;
        let other = goes_on.then(|| self.slots.take());
        let (length, applied) = (waiting.intent.journal_len(), waiting.applied);
        waiting.intent.move_chunk(bad, other);
        let grown = waiting.intent.journal_len();
        match other {
            Some(_) => waiting.outstanding += 1,
            // Its host tries again, and finds other slots.
            None => waiting.failure = waiting.failure.take().or(Some(Failure::Busy)),
        }
        self.journal.fulfil(length, !applied);
        self.journal.promise(grown, !applied);
        if let Some(other) = other {
            self.write_data(preparing, places_of(other), data, true, out);
        }
        self.retire(bad);
    }

    /// The slot is never used again. The last of those that a disk may lose ends the store: it is not one bad place, then.
    pub fn retire(&mut self, slot: u32) {
        self.state.bad.insert(slot);
        self.journal.note(&Record::Retired(vec![slot]));
        self.linger();
        if self.state.bad.len() as u32 >= bad_slots_max(self.slots.total()) {
            self.give_up(DiskError::Failed);
        }
    }

    /// Free slots that are kept for overwrites of whole chunks. Bad ones are taken from these, so that there are as many for objects as
    /// were promised.
    pub fn spare_kept(&self) -> u32 {
        SPARE_MIN.saturating_sub(self.state.bad.len() as u32).max(SPARE_MIN / 2)
    }

    /// An intent's record is durable: what to say.
    pub fn on_intent_durable(&mut self, intent: IntentRecord, applied: bool) -> StoreEvent {
        let transaction = intent.by.transaction;
        let is_stale = !applied && self.state.is_stale(&intent);
        if is_stale || !self.state.fits(&intent) {
            // Its object was removed meanwhile, or this device was found to have been out. Its slots are free when that is durable,
            // too.
            let mut released = std::mem::take(&mut self.journal.released);
            self.state.discard(&intent, &mut released);
            self.journal.released = released;
            self.journal.urgent = true;
            let failure = if is_stale { Failure::Absent } else { Failure::NoSuchObject };
            return answer(transaction, applied, Err(failure));
        }
        if applied {
            let mut released = Vec::new();
            self.state.apply_at_once(&intent, &mut released);
            released.into_iter().for_each(|slot| self.release(slot));
        } else {
            self.state.insert_intent(intent);
        }
        answer(transaction, applied, Ok(()))
    }
}

fn part_of(piece: Piece) -> Result<Part, Failure> {
    let Piece { range, content } = piece;
    let body = match content {
        Content::Hole => Body::Hole,
        Content::Lost => Body::Lost,
        Content::Data(data) if data.len() as u64 == range.count.saturating_mul(BLOCK_BYTES as u64) => {
            Body::Inline(data)
        }
        Content::Data(_) | Content::Present | Content::Header { .. } => return Err(Failure::Malformed),
    };
    if range.is_empty() { Err(Failure::Malformed) } else { Ok(Part { range, body }) }
}

/// Joins data that meets within a chunk. A hostwrite comes in a piece for each stripe unit: where units are smaller than
/// chunks, only together do they show which chunks are whole and go to slots. All of a large write would not fit into the
/// journal.
fn joined(pieces: &[Part]) -> Vec<Part> {
    let data = |part: &Part| match &part.body {
        Body::Inline(data) => Some(data.clone()),
        _ => None,
    };
    let meet = |one: &Part, next: &Part| {
        let at = next.range.start;
        one.range.end() == at && !at.is_multiple_of(CHUNK_BLOCKS) && data(one).is_some() && data(next).is_some()
    };
    let join = |group: &[Part]| match group {
        [one] => one.clone(),
        _ => Part {
            range: BlockRange::between(group[0].range.start, group[group.len() - 1].range.end()),
            body: Body::Inline(group.iter().filter_map(data).collect::<Vec<Bytes>>().concat().into()),
        },
    };
    pieces.chunk_by(meet).map(join).collect()
}

fn answer(transaction: braid_base::TransactionId, applied: bool, result: Result<(), Failure>) -> StoreEvent {
    if applied { StoreEvent::Applied { transaction, result } } else { StoreEvent::Prepared { transaction, result } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_meets_within_a_chunk_is_joined_and_nothing_else() {
        let part = |start: u64, count: u64, body| Part { range: BlockRange::new(start, count), body };
        let data = |start: u64, count: u64| {
            let bytes = (start..start + count).flat_map(|block| [block as u8; BLOCK_BYTES]).collect::<Vec<u8>>();
            part(start, count, Body::Inline(bytes.into()))
        };
        let pieces =
            [data(2, 4), data(6, 10), data(16, 4), data(20, 12), data(33, 1), part(34, 2, Body::Hole), data(36, 1)];
        let expected = [data(2, 14), data(16, 16), data(33, 1), part(34, 2, Body::Hole), data(36, 1)];
        assert_eq!(joined(&pieces), expected);
    }
}
