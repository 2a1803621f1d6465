//! The state that follows from the journal's records: objects, the chunk map, dirty blocks, undecided intents, decisions that must be
//! remembered. The same code runs when a transaction is decided and when recovery replays the record, so the two can't differ.
//!
//! Replay begins with a map that may be newer than the first records, because it may hold pages of a checkpoint that did not end. That
//! does no harm: every later change is replayed over it, in order. In between, the state may look inconsistent (a block without a slot),
//! so only the end result is checked.

use crate::absent::Absent;
use crate::block::{Attribution, CHUNK_BLOCKS, SLOT_BYTES, WHOLE_CHUNK, chunks};
use crate::chunk_reservations::ChunkReservations;
use crate::free_slots::spare_slots;
use crate::journal_format::request::{Executed, roots_len};
use crate::journal_format::{Body, Decision, IntentRecord, ObjectRecord, Record, membership_len, retired_len};
use crate::map::{ChunkMap, ENTRIES_PER_PAGE, Entry};
use crate::missed::Missed;
use crate::objects::Objects;
use crate::superblock::Geometry;
use crate::transactions::Transactions;
use braid_base::{BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, Membership, ObjectId, TransactionId};
use braid_journal::Answers;
use braid_object_index::{ObjectIndex, ROUND_SLOTS_MIN, Settings};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The most slots that a round of merging gets.
const ROUND_SLOTS_MAX: u32 = 256;

/// The journal's length divided by this is the most that missed extents take in a snapshot.
const MISSED_SHARE: u64 = 32;
/// The journal's length divided by this is the most that absent extents take in a snapshot.
const ABSENT_SHARE: u64 = 64;

/// A committed block that is not written to its slot yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirtyBlock {
    /// The content, or none if it was lost.
    pub data: Option<Bytes>,
    pub by: Attribution,
}

/// What the store forgot when a host declared a transaction or request over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// A commit was forgotten.
    pub decision: bool,
    /// An answer to a request for objects was forgotten.
    pub answer: bool,
}

/// Whether this device is in, and since which epoch.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    own: DeviceId,
    /// The membership that was adopted last.
    pub membership: Option<Membership>,
    /// The first epoch of this device's presence, if it has ever been out. The other devices have decided without it about anything
    /// written in earlier epochs.
    returned: Epoch,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub objects: Objects,
    pub map: ChunkMap,
    pub dirty: BTreeMap<(ObjectId, u64), DirtyBlock>,
    pub transactions: Transactions,
    pub chunk_reservations: ChunkReservations,
    /// The index of bytes and attributes of objects.
    pub object_index: ObjectIndex,
    /// The answers to requests for objects.
    pub answers: Answers,
    pub stamps_reserved: Clock,
    pub presence: Presence,
    /// What other devices have missed.
    pub missed: Missed,
    /// Blocks that are absent here, while other devices hold what belongs there.
    pub absent: Absent,
    /// Slots that could not be written. They are never used again.
    pub bad: BTreeSet<u32>,
}

/// The settings of the object index on a device of this geometry.
pub(crate) fn index_settings(geometry: &Geometry, memory: u64) -> Settings {
    let round_slots = (geometry.slots / 32).clamp(ROUND_SLOTS_MIN, ROUND_SLOTS_MAX);
    let cache_bytes = usize::try_from(memory).unwrap_or(usize::MAX);
    Settings { leaf_bytes: SLOT_BYTES as usize, round_slots, cache_bytes, ..Settings::default() }
}

impl State {
    pub fn new(geometry: &Geometry, own: DeviceId, object_memory: u64) -> State {
        let spare = spare_slots(geometry.slots);
        State {
            objects: Objects::new(geometry.slots, u64::from(geometry.slots.saturating_sub(spare))),
            map: ChunkMap::new(geometry.map_pages),
            dirty: BTreeMap::new(),
            transactions: Transactions::default(),
            chunk_reservations: ChunkReservations::default(),
            object_index: ObjectIndex::new(index_settings(geometry, object_memory)),
            answers: Answers::default(),
            stamps_reserved: Clock(0),
            presence: Presence { own, membership: None, returned: Epoch(0) },
            missed: Missed::new(geometry.journal_length / MISSED_SHARE),
            absent: Absent::new(geometry.journal_length / ABSENT_SHARE),
            bad: BTreeSet::new(),
        }
    }

    /// The map entry of a chunk; an empty one if there is no such object.
    pub fn chunk(&self, object: ObjectId, chunk: u32) -> Entry {
        self.objects.entry(object, chunk).map_or(Entry::default(), |index| self.map.get(index))
    }

    /// True if all blocks of the intent exist.
    pub fn fits(&self, intent: &IntentRecord) -> bool {
        intent.pieces.iter().all(|part| self.objects.contains(intent.object, part.range))
    }

    /// True if the other devices may have decided about the intent without this one. Such an intent must be refused.
    pub fn is_stale(&self, intent: &IntentRecord) -> bool {
        // If no other device takes part, no other device can have decided.
        intent.by.epoch < self.presence.returned
            && intent.participants.len() > 1
            && self.objects.is_redundant(intent.object)
    }

    /// Adds an undecided intent, which is durable now.
    pub fn insert_intent(&mut self, intent: IntentRecord) {
        // A membership may have been adopted while the intent was being written.
        note_unheard(&self.objects, &mut self.missed, &intent.by, intent.object, &intent.participants);
        self.transactions.insert(intent);
    }

    /// The intent takes effect, and the decision is remembered. Slots that it frees are added to `released`.
    pub fn commit(&mut self, transaction: TransactionId, released: &mut Vec<u32>) -> bool {
        let Some(intent) = self.transactions.take(transaction) else { return false };
        self.apply(&intent, released);
        self.transactions.remember(intent.by, intent.participants, intent.object);
        true
    }

    /// Drops the intent as if it had never been.
    pub fn abort(&mut self, transaction: TransactionId, released: &mut Vec<u32>) -> bool {
        let Some(intent) = self.transactions.take(transaction) else { return false };
        self.discard(&intent, released);
        true
    }

    /// The write takes effect without a decision. It is remembered if other devices may find that the hostwrite was interrupted.
    pub fn apply_at_once(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        self.apply(intent, released);
        if self.can_be_suspect(intent.object) {
            self.transactions.remember(intent.by, intent.participants.clone(), intent.object);
        }
    }

    fn can_be_suspect(&self, object: ObjectId) -> bool {
        self.objects.get(object).is_some_and(|record| record.description.can_be_suspect())
    }

    /// A commit is durable on all devices with a vote: none of them misses it if it goes out from now on. Returns the decision, if that is
    /// news.
    pub fn nobody_misses(&mut self, transaction: TransactionId) -> Option<&Decision> {
        self.transactions.nobody_misses(transaction, self.presence.own)
    }

    /// Forgets a transaction or answer, and returns what was forgotten.
    pub fn forget(&mut self, transaction: TransactionId) -> Forgotten {
        Forgotten { decision: self.transactions.forget(transaction), answer: self.answers.forget(transaction) }
    }

    /// Forgets everything of the host below `sequence`, and returns what was forgotten.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> Forgotten {
        let answer = self.answers.settle(host, sequence);
        Forgotten { decision: self.transactions.settle(host, sequence), answer }
    }

    /// Applies an executed request for objects.
    pub fn executed(&mut self, executed: Executed) {
        let Executed { name, settled, answer, changes } = executed;
        self.object_index.apply(&changes);
        // Copied, because the answer may be a small part of a large buffer.
        self.answers.keep(name, settled, Bytes::copy_from_slice(&answer));
    }

    /// Adds a new object: its first `absent` blocks are absent, the others are holes.
    pub fn create(&mut self, record: ObjectRecord, absent: u64) -> bool {
        let extents = record.extents.clone();
        let (object, BlockRange { start: first, count: blocks }) =
            (record.description.object, record.description.range());
        if !self.objects.insert(record) {
            return false;
        }
        for index in extents.iter().flat_map(|extent| extent.start..extent.start + extent.count) {
            self.map.set(index as usize, Entry::default());
        }
        // The next checkpoint writes both copies of the object's pages, whatever the disk holds there.
        for extent in extents.iter().filter(|extent| extent.count > 0) {
            let pages = ENTRIES_PER_PAGE as u32;
            (extent.start / pages..=(extent.start + extent.count - 1) / pages).for_each(|page| self.map.touch(page));
        }
        self.absent.insert(object, BlockRange::new(first, absent.min(blocks)));
        true
    }

    /// Changes an object's range of blocks. Blocks that it gains are absent if they are in `absent`. No request for the object may be
    /// under way.
    pub fn resize(&mut self, record: ObjectRecord, absent: BlockRange, released: &mut Vec<u32>) -> bool {
        let object = record.description.object;
        let Some(before) = self.objects.get(object).map(|record| record.description.range()) else { return false };
        let after = record.description.range();
        let Some((new, gone)) = self.objects.resize(record) else { return false };
        for index in gone {
            released.extend(self.map.get(index as usize).slot);
            self.map.set(index as usize, Entry::default());
        }
        for index in new {
            self.map.set(index as usize, Entry::default());
            // See `create`.
            self.map.touch(index / ENTRIES_PER_PAGE as u32);
        }
        for lost in outside(before, after) {
            self.drop_dirty(object, lost);
            self.absent.remove(object, lost);
        }
        for gained in outside(after, before) {
            self.absent.insert(object, gained.intersection(absent));
        }
        true
    }

    /// Removes an object, with its undecided intents.
    pub fn remove(&mut self, object: ObjectId, released: &mut Vec<u32>) -> bool {
        let undecided = |intent: &&IntentRecord| intent.object == object;
        let undecided: Vec<_> =
            self.transactions.intents().filter(undecided).map(|intent| intent.by.transaction).collect();
        for transaction in undecided {
            self.abort(transaction, released);
        }
        let Some(record) = self.objects.remove(object) else { return false };
        self.missed.drop_of_object(object);
        self.absent.drop_of_object(object);
        for index in record.extents.iter().flat_map(|extent| extent.start..extent.start + extent.count) {
            released.extend(self.map.get(index as usize).slot);
            self.map.set(index as usize, Entry::default());
        }
        while let Some((key, _)) = self.dirty.range((object, 0)..=(object, u64::MAX)).next() {
            let key = *key;
            self.dirty.remove(&key);
        }
        true
    }

    /// Adopts the membership that recovery found in a snapshot. Its consequences are recorded in the snapshot as well.
    pub fn carry_on(&mut self, membership: Membership, returned: Epoch) {
        self.missed.go_by(&membership, self.presence.own);
        self.presence.membership = Some(membership);
        self.presence.returned = returned;
    }

    /// The membership's record for a snapshot.
    pub fn membership_record(&self) -> Option<Record> {
        let membership = self.presence.membership.clone()?;
        Some(Record::Membership { membership, returned: self.presence.returned })
    }

    /// Adopts a membership. Participants that have been out since miss the transactions that are undecided here, or committed and not
    /// confirmed. If this device itself has been out, the others have decided without it. Returns `None` if the membership is not new;
    /// else the undecided intents that were dropped.
    pub fn adopt(&mut self, membership: Membership, released: &mut Vec<u32>) -> Option<Vec<TransactionId>> {
        let before = self.presence.membership.as_ref().map(|membership| membership.epoch);
        if before.is_some_and(|before| membership.epoch <= before) {
            return None;
        }
        let own = membership.member(self.presence.own).map(|member| member.since);
        self.missed.go_by(&membership, self.presence.own);
        self.answers.drop_fenced(&membership.fence);
        self.presence.membership = Some(membership);
        self.note_all_unheard();
        self.missed.drop_of_present();
        match own.zip(before) {
            Some((own, before)) if own > before => Some(self.return_in(own, released)),
            _ => Some(Vec::new()),
        }
    }

    /// This device has been out until `since`. Its undecided intents are dropped as by an abort, and older decisions are forgotten,
    /// because no device will ask for them.
    fn return_in(&mut self, since: Epoch, released: &mut Vec<u32>) -> Vec<TransactionId> {
        self.presence.returned = since;
        let stale = self.transactions.intents().filter(|intent| self.is_stale(intent));
        let dropped: Vec<TransactionId> = stale.map(|intent| intent.by.transaction).collect();
        for transaction in &dropped {
            self.abort(*transaction, released);
        }
        // A write that took effect on arrival may have reached this device alone. That is found out during the resync.
        let decided = |object| self.objects.is_redundant(object) && !self.can_be_suspect(object);
        let old = |decision: &&Decision| {
            let shared = decision.participants.len() > 1;
            decision.by.epoch < since && shared && decided(decision.object)
        };
        let old: Vec<TransactionId> =
            self.transactions.decisions().filter(old).map(|decision| decision.by.transaction).collect();
        for transaction in old {
            self.transactions.forget(transaction);
        }
        dropped
    }

    fn note_all_unheard(&mut self) {
        let State { transactions, objects, missed, .. } = self;
        for IntentRecord { by, object, participants, .. } in transactions.intents() {
            note_unheard(objects, missed, by, *object, participants);
        }
        for Decision { by, object, participants } in transactions.decisions() {
            note_unheard(objects, missed, by, *object, participants);
        }
    }

    /// The intent takes effect, and devices that are out miss it.
    pub fn apply(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        self.take_effect(intent, released);
        if !self.missed.is_nobody_absent() && self.objects.is_redundant(intent.object) {
            // A write in which this device is the only participant is part of its own resync. Other returning devices may have missed the
            // same hostwrite, and this is where this device learns of it.
            let is_alone = intent.participants.len() == 1;
            self.missed.add(intent.object, intent.by.linkage, intent.by.epoch, is_alone);
        }
    }

    /// The intent's content becomes the committed content.
    fn take_effect(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        for home in &intent.homes {
            let Some(index) = self.objects.entry(intent.object, home.chunk) else { continue };
            let entry = self.map.get(index);
            if entry.slot.is_none() {
                self.map.set(index, Entry { slot: Some(home.slot), ..entry });
            }
        }
        for part in &intent.pieces {
            self.absent.remove(intent.object, part.range);
            match &part.body {
                Body::Hole => self.make_hole(intent.object, part.range, released),
                Body::Slots(first) => self.swing(intent.object, part.range, *first, released),
                Body::Inline(data) => self.make_dirty(intent, part.range, Some(data)),
                Body::Lost => self.make_dirty(intent, part.range, None),
            }
        }
        self.release(intent, released);
    }

    fn make_hole(&mut self, object: ObjectId, range: BlockRange, released: &mut Vec<u32>) {
        for (chunk, mask) in chunks(range) {
            let Some(index) = self.objects.entry(object, chunk) else { continue };
            let entry = self.map.get(index);
            if mask == WHOLE_CHUNK {
                released.extend(entry.slot);
                self.map.set(index, Entry::default());
            } else {
                self.map.set(index, Entry { blocks: entry.blocks & !mask, ..entry });
            }
        }
        self.drop_dirty(object, range);
    }

    fn swing(&mut self, object: ObjectId, range: BlockRange, first: u32, released: &mut Vec<u32>) {
        for ((chunk, _), slot) in chunks(range).zip(first..) {
            let Some(index) = self.objects.entry(object, chunk) else { continue };
            released.extend(self.map.get(index).slot.filter(|old| *old != slot));
            self.map.set(index, Entry { slot: Some(slot), blocks: WHOLE_CHUNK });
        }
        self.drop_dirty(object, range);
    }

    fn make_dirty(&mut self, intent: &IntentRecord, range: BlockRange, data: Option<&Bytes>) {
        for (chunk, mask) in chunks(range) {
            let Some(index) = self.objects.entry(intent.object, chunk) else { continue };
            let entry = self.map.get(index);
            self.map.set(index, Entry { blocks: entry.blocks | mask, ..entry });
        }
        for (at, block) in range.blocks().enumerate() {
            let data = data.map(|data| data.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES));
            self.dirty.insert((intent.object, block), DirtyBlock { data, by: intent.by });
        }
    }

    fn drop_dirty(&mut self, object: ObjectId, range: BlockRange) {
        while let Some((key, _)) = self.dirty.range((object, range.start)..(object, range.end())).next() {
            let key = *key;
            self.dirty.remove(&key);
        }
    }

    /// Drops an intent that will not take effect, and frees its slots.
    pub fn discard(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        for part in &intent.pieces {
            if let Body::Slots(first) = part.body {
                released.extend(first..first + (part.range.count / CHUNK_BLOCKS) as u32);
            }
        }
        self.release(intent, released);
    }

    fn release(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        let State { chunk_reservations, objects, map, .. } = self;
        let mapped = |chunk| objects.entry(intent.object, chunk).and_then(|index| map.get(index).slot);
        chunk_reservations.release(intent, mapped, released);
    }

    /// All slots in use: slots of the map, slots reserved for chunks or written by undecided intents, slots of the object index, and bad
    /// slots. For recovery and tests.
    pub fn used_slots(&self) -> impl Iterator<Item = u32> {
        let extents = self.objects.iter().flat_map(|object| &object.extents);
        let mapped = extents.flat_map(|extent| extent.start..extent.start + extent.count);
        let mapped = mapped.filter_map(|index| self.map.get(index as usize).slot);
        // When the first of the intents that share a chunk has committed, the map names the reserved slot.
        let apart = |(object, chunk, slot)| (self.chunk(object, chunk).slot != Some(slot)).then_some(slot);
        let reserved = self.chunk_reservations.slots().filter_map(apart);
        let held = self.transactions.intents().flat_map(|intent| intent.slots());
        mapped.chain(reserved).chain(held).chain(self.object_index.slots()).chain(self.bad.iter().copied())
    }

    /// Bytes that a snapshot of the state takes in the journal. An upper bound, close to the exact number.
    pub fn snapshot_len(&self) -> u64 {
        let membership = self.presence.membership.as_ref().map_or(0, membership_len);
        let extents = self.missed.journal_room() + self.absent.journal_room();
        let membership = membership + self.answers.journal_len() + roots_len(self.object_index.statistics().nodes);
        let membership = membership + retired_len(self.bad.len());
        256 + self.objects.journal_len() + membership + extents + self.transactions.journal_len()
    }

    /// True if the host is fenced.
    pub fn is_fenced(&self, host: Generation) -> bool {
        self.presence.membership.as_ref().is_some_and(|membership| membership.fence.refuses(host))
    }
}

/// Records that participants that have been out since the transaction's epoch miss it.
fn note_unheard(objects: &Objects, missed: &mut Missed, by: &Attribution, object: ObjectId, participants: &[DeviceId]) {
    if !missed.is_nobody_absent() && objects.is_redundant(object) {
        missed.add_of(object, by.linkage, by.epoch, participants);
    }
}

/// The parts of `range` that are not in `other`.
fn outside(range: BlockRange, other: BlockRange) -> [BlockRange; 2] {
    let (start, end) = (other.start.clamp(range.start, range.end()), other.end().clamp(range.start, range.end()));
    [BlockRange::between(range.start, start), BlockRange::between(end.max(start), range.end())]
}
