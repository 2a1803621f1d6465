//! The queue of writes: they wait for room, their whole chunks are written to free slots, and their records go into the journal.
//!
//! ```text
//!   prepare ─► waiting ────────────────► in the journal's queue ─► in a batch ─► durable: answered
//!                 │ for room and slots         ▲
//!                 └─► whole chunks written ────┘
//! ```
//!
//! Whole chunks are written durably before the record that refers to them, instead of together with it under one sync. So a record whose
//! batch survived a crash is as good as answered, and recovery need not read the slots to find out. The latency is that of two flushes
//! either way, and batches never wait for bulk data.
//!
//! Writes are served first come, first served. If a write needs more room than there is, later writes wait behind it until it has that room.

use crate::block::{Attribution, CHUNK_BLOCKS, SLOT_BYTES, WHOLE_CHUNK, chunks, interleave, places_of};
use crate::ctx::Ctx;
use crate::disk_queue::{Io, Written, slots_of};
use crate::free_slots::bad_slots_max;
use crate::journal_format::{Body, Home, IntentRecord, Part, Queued, Record};
use crate::{Intent, StoreEvent};
use braid_base::{BLOCK_BYTES, BlockRange, Time, limits};
use braid_blocks::{Content, Piece};
use braid_machine::DiskError;
use braid_wire::Failure;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most slots that one command writes.
const RUN_MAX: u64 = 16;
/// The most bad slots that one write may find. After that, its host has to try again.
const BAD_PER_WRITE_MAX: u32 = 4;

/// How long a write may wait for room before it is refused. Two devices may each hold room that the other one's write waits for; then a
/// host must abort one of the two writes and try again.
const PATIENCE: Duration = Duration::from_secs(1);

/// The queue, and the writes whose chunks are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteQueue {
    waiting: VecDeque<Waiting>,
    /// Bytes of the records of waiting writes.
    waiting_bytes: u64,
    preparing: BTreeMap<u64, Preparing>,
    /// How often the disk refused space to the first waiting write.
    pub refusals: u32,
    pub counters: WriteCounters,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WriteCounters {
    /// Bytes of the blocks in accepted writes. The disk writes more than that for them.
    pub bytes_accepted: u64,
    pub chunks_written: u64,
}

/// A write that waits for room.
#[derive(Clone, Debug)]
struct Waiting {
    /// All its data is inline, not yet split.
    intent: IntentRecord,
    applied: bool,
    since: Time,
}

/// A write whose whole chunks are being written to their slots.
#[derive(Clone, Debug)]
struct Preparing {
    queued: Queued,
    outstanding: usize,
    failure: Option<Failure>,
    /// The number of bad slots that it has found.
    bad: u32,
}

/// The slots and the room that a write needs.
#[derive(Clone, Debug, Default)]
struct Needs {
    /// Slots for chunks that have none.
    new: u32,
    /// Slots for whole chunks that are overwritten. Without these slots the chunks go through the journal.
    over: u32,
    /// Bytes in the journal, with and without the slots for overwritten chunks.
    length: u64,
    length_inline: u64,
}

/// The outcome of an attempt to admit the first waiting write.
#[derive(Clone, Debug)]
enum Admission {
    Admitted,
    Waits,
    Fails(Failure),
}

impl WriteQueue {
    /// See [`Storage::prepare`](crate::Storage::prepare) and [`Storage::apply`](crate::Storage::apply).
    pub fn write(&mut self, intent: Intent, applied: bool, ctx: &mut Ctx) {
        let transaction = intent.transaction;
        let refused = match accept(intent, ctx) {
            Ok(intent) if self.waiting_bytes + intent.journal_len() > limits::WAITING_BYTES_MAX as u64 => Failure::Busy,
            Ok(intent) => {
                self.waiting_bytes += intent.journal_len();
                return self.waiting.push_back(Waiting { intent, applied, since: ctx.now });
            }
            Err(failure) => failure,
        };
        ctx.tell(answer(transaction, applied, Err(refused)));
    }

    /// Admits as many writes as there is room for.
    pub fn admit(&mut self, ctx: &mut Ctx) {
        while let Some(waiting) = self.waiting.pop_front() {
            let length = waiting.intent.journal_len();
            self.waiting_bytes -= length;
            let admission = match self.try_admit(&waiting, ctx) {
                Admission::Waits if ctx.now.since(waiting.since) >= PATIENCE => Admission::Fails(Failure::Busy),
                admission => admission,
            };
            match admission {
                Admission::Admitted => self.counters.bytes_accepted += waiting.intent.payload_len() as u64,
                Admission::Waits => {
                    self.waiting_bytes += length;
                    self.waiting.push_front(waiting);
                    return ctx.hurry_decisions();
                }
                Admission::Fails(failure) => {
                    ctx.tell(answer(waiting.intent.by.transaction, waiting.applied, Err(failure)));
                }
            }
            self.refusals = 0;
        }
    }

    fn try_admit(&mut self, waiting: &Waiting, ctx: &mut Ctx) -> Admission {
        let Waiting { intent, applied, .. } = waiting;
        if !ctx.state.fits(intent) {
            return Admission::Fails(Failure::NoSuchObject);
        }
        if !applied && ctx.state.is_stale(intent) {
            return Admission::Fails(Failure::Absent);
        }
        if !ctx.state.chunk_reservations.may_reserve(intent) {
            return Admission::Waits;
        }
        let needs = needs(intent, ctx);
        if needs.length > ctx.journal.batch_max() {
            return Admission::Fails(Failure::NoSpace);
        }
        // The slots kept back are for overwrites, which must not fail for lack of a slot.
        let new = if needs.new == 0 { 0 } else { needs.new + ctx.state.spare_kept() };
        let in_slots = ctx.free_slots() >= new + needs.over;
        if !in_slots && (ctx.free_slots() < new || needs.length_inline > ctx.journal.batch_max()) {
            return self.await_slots(new, needs.over, ctx);
        }
        let length = if in_slots { needs.length } else { needs.length_inline };
        let undecided = ctx.state.transactions.intent_bytes();
        if !applied && !ctx.journal.is_within_quota(length, undecided) {
            // A checkpoint does not help here: only decisions give room under this quota.
            return Admission::Waits;
        }
        if !applied && !ctx.journal.is_within_share(length, undecided, || self.undecided_of(intent, ctx)) {
            // Other hosts do not wait behind it.
            let host = intent.by.transaction.host;
            let holds_up = self.waiting.iter().any(|other| other.intent.by.transaction.host != host);
            return if holds_up { Admission::Fails(Failure::Busy) } else { Admission::Waits };
        }
        let kept = ctx.kept_room(ctx.state.merging_needs());
        if !ctx.has_room(length, !applied, kept) {
            return Admission::Waits;
        }
        self.enter(intent, *applied, in_slots, ctx);
        Admission::Admitted
    }

    /// Bytes of the undecided intents of the host of this one, durable or on their way.
    fn undecided_of(&self, intent: &IntentRecord, ctx: &Ctx) -> u64 {
        let host = intent.by.transaction.host;
        let preparing = self.preparing.values().map(|preparing| &preparing.queued);
        let on_their_way = preparing.chain(ctx.journal.on_their_way()).filter(|queued| !queued.applied);
        let intents = on_their_way.map(|queued| &queued.intent).filter(|intent| intent.by.transaction.host == host);
        intents.map(IntentRecord::journal_len).sum::<u64>() + ctx.state.transactions.intent_bytes_of(host)
    }

    /// Writes that are not durable yet, and that the journal has not taken over.
    pub fn on_their_way(&self) -> impl Iterator<Item = &IntentRecord> {
        let waiting = self.waiting.iter().map(|waiting| &waiting.intent);
        waiting.chain(self.preparing.values().map(|preparing| &preparing.queued.intent))
    }

    /// Slots that are being written.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.preparing.values().flat_map(|preparing| preparing.queued.intent.slots())
    }

    /// The number of writes that wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the first waiting write has waited too long.
    pub fn patience_ends(&self) -> Option<Time> {
        self.waiting.front().map(|waiting| waiting.since.after(PATIENCE))
    }

    /// There are too few free slots: reserves more disk space, waits for slots to be freed, or fails the write.
    fn await_slots(&mut self, new: u32, over: u32, ctx: &mut Ctx) -> Admission {
        if ctx.slots.is_reserving {
            return Admission::Waits;
        }
        let missing = (new + over).saturating_sub(ctx.free_slots());
        let left = ctx.slots.left();
        if (left == 0 || ctx.slots.is_refused) && ctx.state.object_index.may_need_less() {
            // Merging shows how few slots the object index takes. After a start that is not known, because of the replayed changes.
            ctx.slots.is_merging_wanted = true;
            return Admission::Waits;
        }
        if left > 0 && self.refusals < 2 {
            ctx.reserve_missing(missing, self.refusals);
            return Admission::Waits;
        }
        if ctx.slots_on_their_way() > 0 && (new == 0 || left == 0) {
            return Admission::Waits;
        }
        Admission::Fails(Failure::NoSpace)
    }

    /// Admits a write: gives it its slots, and writes its whole chunks there.
    fn enter(&mut self, intent: &IntentRecord, applied: bool, in_slots: bool, ctx: &mut Ctx) {
        let Entering { intent, writes, .. } = Entering::new(intent, in_slots, ctx);
        ctx.state.chunk_reservations.reserve(&intent);
        let queued = Queued { intent, applied };
        ctx.journal.promise(&queued);
        if writes.is_empty() {
            return ctx.journal.queue(queued);
        }
        let preparing = ctx.disk.id();
        let Queued { intent, .. } = &queued;
        let slots = intent.pieces.iter().filter(|part| matches!(part.body, Body::Slots(_)));
        for (part, (places, data)) in slots.zip(&writes) {
            let buffer = interleave(data, intent.object, part.range.start, &intent.by).freeze();
            write_data(preparing, *places, buffer, false, ctx);
            self.counters.chunks_written += places.count / CHUNK_BLOCKS;
        }
        self.preparing.insert(preparing, Preparing { queued, outstanding: writes.len(), failure: None, bad: 0 });
    }

    /// A write of whole chunks has ended, or failed.
    pub fn on_data_written(&mut self, preparing: u64, written: Written, done: Result<(), DiskError>, ctx: &mut Ctx) {
        let waiting = self.preparing.get_mut(&preparing).expect("a preparing write waits for all its commands");
        waiting.outstanding -= 1;
        match done {
            Ok(()) => {}
            Err(DiskError::NoSpace) => waiting.failure = Some(Failure::NoSpace),
            Err(DiskError::Failed) => self.write_again(preparing, written, ctx),
        }
        if ctx.outbox.is_broken || self.preparing[&preparing].outstanding > 0 {
            return;
        }
        let Preparing { queued, failure, .. } = self.preparing.remove(&preparing).expect("just seen");
        let Some(failure) = failure else { return ctx.journal.queue(queued) };
        ctx.journal.fulfil(&queued);
        ctx.state.discard(&queued.intent, &mut ctx.slots.released);
        ctx.tell(answer(queued.intent.by.transaction, queued.applied, Err(failure)));
    }

    /// The disk has failed a write of whole chunks. Each chunk is written alone, once more. If that fails, the slot is retired and the
    /// chunk is written to another slot.
    fn write_again(&mut self, preparing: u64, written: Written, ctx: &mut Ctx) {
        let Written { places, data, alone } = written;
        let slots = slots_of(places);
        let waiting = self.preparing.get_mut(&preparing).expect("just seen");
        if !alone {
            waiting.outstanding += slots.len();
            for (slot, at) in slots.zip((0..data.len()).step_by(SLOT_BYTES as usize)) {
                let data = data.slice(at..at + SLOT_BYTES as usize);
                write_data(preparing, places_of(slot), data, true, ctx);
            }
            return;
        }
        let bad = slots.start;
        waiting.bad += 1;
        let goes_on = waiting.failure.is_none() && waiting.bad < BAD_PER_WRITE_MAX && ctx.free_slots() > 0;
        let other = goes_on.then(|| ctx.slots.take());
        ctx.journal.fulfil(&waiting.queued);
        waiting.queued.intent.move_chunk(bad, other);
        ctx.journal.promise(&waiting.queued);
        match other {
            Some(other) => {
                waiting.outstanding += 1;
                write_data(preparing, places_of(other), data, true, ctx);
            }
            // The host tries again, and gets other slots then.
            None => waiting.failure = waiting.failure.take().or(Some(Failure::Busy)),
        }
        self.retire(bad, ctx);
    }

    /// Retires a slot: it is never used again. When as many slots are bad as a disk may lose, the store fails, because the damage is not
    /// local then.
    fn retire(&mut self, slot: u32, ctx: &mut Ctx) {
        ctx.state.bad.insert(slot);
        ctx.journal.note(&Record::Retired(vec![slot]));
        ctx.linger(!self.waiting.is_empty());
        if ctx.state.bad.len() as u32 >= bad_slots_max(ctx.slots.total()) {
            ctx.outbox.give_up(DiskError::Failed);
        }
    }
}

/// An intent's record is durable: returns the answer.
pub(crate) fn on_intent_durable(queued: Queued, ctx: &mut Ctx) -> StoreEvent {
    let Queued { intent, applied } = queued;
    let transaction = intent.by.transaction;
    let is_stale = !applied && ctx.state.is_stale(&intent);
    if is_stale || !ctx.state.fits(&intent) {
        // The object was removed meanwhile, or this device was found to have been out. The slots are free when that is durable, too.
        ctx.state.discard(&intent, &mut ctx.journal.then.released);
        ctx.journal.hurry();
        let failure = if is_stale { Failure::Absent } else { Failure::NoSuchObject };
        return answer(transaction, applied, Err(failure));
    }
    if applied {
        ctx.state.apply_at_once(&intent, &mut ctx.slots.released);
    } else {
        ctx.state.insert_intent(intent);
    }
    answer(transaction, applied, Ok(()))
}

fn accept(intent: Intent, ctx: &Ctx) -> Result<IntentRecord, Failure> {
    let Intent { transaction, stamp, epoch, mut participants, linkage, object, pieces } = intent;
    participants.shrink_to_fit();
    if ctx.state.objects.get(object).is_none() {
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
    if ctx.state.fits(&intent) { Ok(intent) } else { Err(Failure::OutOfRange) }
}

/// The needs of a write. The lengths are upper bounds, close to the exact numbers.
fn needs(intent: &IntentRecord, ctx: &Ctx) -> Needs {
    let mut needs = Needs { length: intent.journal_len(), length_inline: 0, ..Needs::default() };
    let mut homed = None;
    for part in &intent.pieces {
        let brings_data = match part.body {
            Body::Inline(_) => true,
            Body::Lost => false,
            Body::Hole | Body::Slots(_) => continue,
        };
        for (chunk, mask) in chunks(part.range) {
            let slot = ctx.state.chunk(intent.object, chunk).slot;
            if mask == WHOLE_CHUNK && brings_data {
                needs.new += u32::from(slot.is_none());
                needs.over += u32::from(slot.is_some());
                // The chunk's payload leaves the journal, and a part of its own is added.
                needs.length -= CHUNK_BLOCKS * (BLOCK_BYTES as u64 + 4);
                needs.length += 64;
            } else if slot.is_none() && homed.replace(chunk) != Some(chunk) {
                needs.new += u32::from(ctx.state.chunk_reservations.slot(intent.object, chunk).is_none());
                needs.length += 8;
            }
        }
        needs.length += 64;
    }
    needs.length_inline = needs.length + u64::from(needs.over) * CHUNK_BLOCKS * (BLOCK_BYTES as u64 + 4);
    needs
}

/// A write that is admitted: the intent with its slots, and the chunks to be written there.
#[derive(Clone, Debug)]
struct Entering {
    intent: IntentRecord,
    writes: Vec<(BlockRange, Bytes)>,
    /// There are slots for overwritten chunks, too.
    in_slots: bool,
}

impl Entering {
    fn new(waiting: &IntentRecord, in_slots: bool, ctx: &mut Ctx) -> Entering {
        let intent = IntentRecord {
            by: waiting.by,
            participants: waiting.participants.clone(),
            object: waiting.object,
            pieces: Vec::with_capacity(waiting.pieces.len()),
            homes: Vec::new(),
        };
        let mut entering = Entering { intent, writes: Vec::new(), in_slots };
        for part in &waiting.pieces {
            match &part.body {
                Body::Inline(data) => entering.split(part.range, data, ctx),
                Body::Lost => {
                    chunks(part.range).for_each(|(chunk, _)| entering.find_home(chunk, ctx));
                    entering.intent.pieces.push(part.clone());
                }
                Body::Hole | Body::Slots(_) => entering.intent.pieces.push(part.clone()),
            }
        }
        entering
    }

    /// Splits data into whole chunks, which are written to slots, and the rest, which goes through the journal.
    fn split(&mut self, range: BlockRange, data: &Bytes, ctx: &mut Ctx) {
        // The first block that goes through the journal and is not in the intent yet.
        let mut inline = range.start;
        let slice = |from: u64, to: u64| {
            data.slice((from - range.start) as usize * BLOCK_BYTES..(to - range.start) as usize * BLOCK_BYTES)
        };
        let flush = |intent: &mut IntentRecord, from: u64, to: u64| {
            if from < to {
                intent.pieces.push(Part { range: BlockRange::between(from, to), body: Body::Inline(slice(from, to)) });
            }
        };
        for (chunk, mask) in chunks(range) {
            let slot = ctx.state.chunk(self.intent.object, chunk).slot;
            if mask != WHOLE_CHUNK {
                self.find_home(chunk, ctx);
                continue;
            }
            if slot.is_some() && !self.in_slots {
                continue;
            }
            let blocks = BlockRange::new(u64::from(chunk) * CHUNK_BLOCKS, CHUNK_BLOCKS);
            flush(&mut self.intent, inline, blocks.start);
            let neighbour = inline == blocks.start;
            inline = blocks.end();
            let slot = ctx.slots.take();
            let places = places_of(slot);
            match (self.intent.pieces.last_mut(), self.writes.last_mut()) {
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
                    self.intent.pieces.push(Part { range: blocks, body: Body::Slots(slot) });
                    self.writes.push((places, slice(blocks.start, blocks.end())));
                }
            }
        }
        flush(&mut self.intent, inline, range.end());
    }

    /// Reserves a slot for a chunk that has none, unless one is reserved already.
    fn find_home(&mut self, chunk: u32, ctx: &mut Ctx) {
        let slot = ctx.state.chunk(self.intent.object, chunk).slot;
        if slot.is_none() && self.intent.homes.last().is_none_or(|home| home.chunk != chunk) {
            let reserved = ctx.state.chunk_reservations.slot(self.intent.object, chunk);
            let slot = reserved.unwrap_or_else(|| ctx.slots.take());
            self.intent.homes.push(Home { chunk, slot });
        }
    }
}

fn write_data(preparing: u64, places: BlockRange, data: Bytes, alone: bool, ctx: &mut Ctx) {
    let io = Io::Data { preparing, written: Written { places, data: data.clone(), alone } };
    ctx.disk.write_places(io, places.start, data, true, ctx.out);
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

/// Joins data that meets within a chunk. A hostwrite arrives as one piece for each stripe unit. If units are smaller than chunks, only
/// the joined pieces show which chunks are whole and can go to slots. Without that, all of a large write would go through the journal,
/// and it might not fit.
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
