//! What the journal's records amount to: objects, the chunk map, blocks that are in the journal still, undecided
//! intents, decisions that may not yet be forgotten. The same code runs when a transaction is decided and when recovery
//! replays that, so the two can't differ.
//!
//! Replay begins with a map that may be newer than the first records: pages of a checkpoint that did not end. That does
//! no harm, since every change since is replayed over it, in order; but in between, things may look odd (a block without
//! a slot), so only the end result is checked.

use crate::absent::Absent;
use crate::block::{Attribution, CHUNK_BLOCKS, SLOT_BYTES, WHOLE_CHUNK, chunks};
use crate::claims::Claims;
use crate::map::{ChunkMap, ENTRIES_PER_PAGE, Entry};
use crate::missed::Missed;
use crate::objects::Objects;
use crate::record::{Body, Decision, IntentRecord, ObjectRecord, Record, membership_len, retired_len};
use crate::request_record::{Executed, roots_len};
use crate::slots::spare_slots;
use crate::superblock::Geometry;
use crate::transactions::Transactions;
use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, MemberState, Membership, ObjectId, TransactionId,
};
use braid_journal::Answers;
use braid_object_index::{ObjectIndex, ROUND_SLOTS_MIN, Settings};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Slots that a round of merging gets at most, as far as there are enough.
const ROUND_SLOTS_MAX: u32 = 256;

/// Extents that others have missed may take this part of the journal in a snapshot.
const MISSED_SHARE: u64 = 32;
/// Extents that are absent may take this part.
const ABSENT_SHARE: u64 = 64;

/// A committed block that is not at home yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirtyBlock {
    /// Its content; none if that was lost.
    pub data: Option<Bytes>,
    pub by: Attribution,
}

/// What there was to forget of what a host has declared over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// That a transaction was committed.
    pub decision: bool,
    /// What was answered to a request for objects.
    pub answer: bool,
}

/// Whether this device is in, and since when.
#[derive(Debug)]
pub(crate) struct Presence {
    own: DeviceId,
    /// The last one adopted.
    pub membership: Option<Membership>,
    /// The first epoch of this device's presence, if it has ever been out: the others have decided without it what was written
    /// before.
    returned: Epoch,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub objects: Objects,
    pub map: ChunkMap,
    pub dirty: BTreeMap<(ObjectId, u64), DirtyBlock>,
    pub transactions: Transactions,
    pub claims: Claims,
    /// What objects hold: bytes and attributes.
    pub object_index: ObjectIndex,
    /// Of requests for these.
    pub answers: Answers,
    pub stamps_reserved: Clock,
    pub presence: Presence,
    /// What others have missed.
    pub missed: Missed,
    /// What is not here yet of objects that others hold.
    pub absent: Absent,
    /// Slots that could not be written: nobody's, for good.
    pub bad: BTreeSet<u32>,
}

/// How the map of what objects hold lies on a device.
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
            claims: Claims::default(),
            object_index: ObjectIndex::new(index_settings(geometry, object_memory)),
            answers: Answers::default(),
            stamps_reserved: Clock(0),
            presence: Presence { own, membership: None, returned: Epoch(0) },
            missed: Missed::new(geometry.journal_length / MISSED_SHARE),
            absent: Absent::new(geometry.journal_length / ABSENT_SHARE),
            bad: BTreeSet::new(),
        }
    }

    /// Where a chunk is; nowhere if there is no such object.
    pub fn chunk(&self, object: ObjectId, chunk: u32) -> Entry {
        self.objects.entry(object, chunk).map_or(Entry::default(), |index| self.map.get(index))
    }

    /// True if all of the intent's blocks exist.
    pub fn fits(&self, intent: &IntentRecord) -> bool {
        intent.pieces.iter().all(|part| self.objects.contains(intent.object, part.range))
    }

    /// True if the others may have decided about the intent without this device: then it must not be made.
    pub fn is_stale(&self, intent: &IntentRecord) -> bool {
        // What nobody else took part in, nobody else can have decided.
        intent.by.epoch < self.presence.returned
            && intent.participants.len() > 1
            && self.objects.is_redundant(intent.object)
    }

    /// An undecided intent, now durable.
    pub fn insert_intent(&mut self, intent: IntentRecord) {
        // It may have been on its way while a membership was adopted.
        note_unheard(&self.objects, &mut self.missed, &intent.by, intent.object, &intent.participants);
        self.transactions.insert(intent);
    }

    /// The intent takes effect and the decision is remembered; slots that are nobody's any more go to `released`.
    pub fn commit(&mut self, transaction: TransactionId, released: &mut Vec<u32>) -> bool {
        let Some(intent) = self.transactions.take(transaction) else { return false };
        self.apply(&intent, released);
        self.transactions.remember(intent.by, intent.participants, intent.object);
        true
    }

    /// The intent never was.
    pub fn abort(&mut self, transaction: TransactionId, released: &mut Vec<u32>) -> bool {
        let Some(intent) = self.transactions.take(transaction) else { return false };
        self.discard(&intent, released);
        true
    }

    /// The intent takes effect without a decision. Where others may find that it was cut short, it is remembered.
    pub fn apply_at_once(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        self.apply(intent, released);
        if self.can_be_suspect(intent.object) {
            self.transactions.remember(intent.by, intent.participants.clone(), intent.object);
        }
    }

    fn can_be_suspect(&self, object: ObjectId) -> bool {
        self.objects.get(object).is_some_and(|record| record.description.can_be_suspect())
    }

    /// Tells what there was to forget.
    pub fn forget(&mut self, transaction: TransactionId) -> Forgotten {
        Forgotten { decision: self.transactions.forget(transaction), answer: self.answers.forget(transaction) }
    }

    /// Tells what there was to forget.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> Forgotten {
        let answer = self.answers.settle(host, sequence);
        Forgotten { decision: self.transactions.settle(host, sequence), answer }
    }

    /// A request for objects was done.
    pub fn executed(&mut self, executed: Executed) {
        let Executed { name, settled, answer, changes } = executed;
        self.object_index.apply(&changes);
        // A copy of its own: what it came with may be a small part of something large.
        self.answers.keep(name, settled, Bytes::copy_from_slice(&answer));
    }

    /// Takes in a new object: so many blocks absent, then holes.
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
        // Whatever the disk holds there, the next checkpoint writes the object's pages, both copies of each.
        for extent in extents.iter().filter(|extent| extent.count > 0) {
            let pages = ENTRIES_PER_PAGE as u32;
            (extent.start / pages..=(extent.start + extent.count - 1) / pages).for_each(|page| self.map.touch(page));
        }
        self.absent.insert(object, BlockRange::new(first, absent.min(blocks)));
        true
    }

    /// Has an object consist of other blocks; of those that it had not, some are absent. Nothing is under way about it.
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

    /// Removes an object, with what is undecided about it.
    pub fn remove(&mut self, object: ObjectId, released: &mut Vec<u32>) -> bool {
        let doomed = |intent: &&IntentRecord| intent.object == object;
        let doomed: Vec<_> = self.transactions.intents().filter(doomed).map(|intent| intent.by.transaction).collect();
        for transaction in doomed {
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

    /// Lives by a membership that recovery found in a snapshot, with all that followed from it.
    pub fn carry_on(&mut self, membership: Membership, returned: Epoch) {
        self.missed.go_by(&membership, self.presence.own);
        self.presence.membership = Some(membership);
        self.presence.returned = returned;
    }

    /// What a snapshot says of the membership.
    pub fn membership_record(&self) -> Option<Record> {
        let membership = self.presence.membership.clone()?;
        Some(Record::Membership { membership, returned: self.presence.returned })
    }

    /// Lives by a membership from now on. What is undecided, or committed and unconfirmed, is missed by those of its devices that have
    /// been out since. If this device itself has, the others have decided without it. Nothing if it is no news; else which
    /// undecided intents are gone.
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

    /// This device has been out until `since`: what was undecided goes as by an abort, and nobody asks it for older decisions.
    fn return_in(&mut self, since: Epoch, released: &mut Vec<u32>) -> Vec<TransactionId> {
        self.presence.returned = since;
        let stale = self.transactions.intents().filter(|intent| self.is_stale(intent));
        let dropped: Vec<TransactionId> = stale.map(|intent| intent.by.transaction).collect();
        for transaction in &dropped {
            self.abort(*transaction, released);
        }
        // What took effect on arrival may be here alone: that is found out when the device is whole again.
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

    /// The intent takes effect, and those who are out miss it.
    pub fn apply(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        self.take_effect(intent, released);
        if !self.missed.is_nobody_absent() && self.objects.is_redundant(intent.object) {
            // What this device alone is brought it had missed itself. Others may have missed it as well, and be on their way back, too: this
            // is where it comes to know that of them.
            let is_alone = intent.participants.len() == 1;
            self.missed.add(intent.object, intent.by.linkage, intent.by.epoch, is_alone);
        }
    }

    /// The intent's content becomes the committed one.
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
        self.unclaim(intent, released);
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

    /// An intent that will not take effect gives its slots back.
    pub fn discard(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        for part in &intent.pieces {
            if let Body::Slots(first) = part.body {
                released.extend(first..first + (part.range.count / CHUNK_BLOCKS) as u32);
            }
        }
        self.unclaim(intent, released);
    }

    fn unclaim(&mut self, intent: &IntentRecord, released: &mut Vec<u32>) {
        let State { claims, objects, map, .. } = self;
        let mapped = |chunk| objects.entry(intent.object, chunk).and_then(|index| map.get(index).slot);
        claims.unclaim(intent, mapped, released);
    }

    /// All slots that hold, or are to hold, anything: of the map, and of those on their way; and those that never will. For recovery and tests.
    pub fn used_slots(&self) -> impl Iterator<Item = u32> {
        let extents = self.objects.iter().flat_map(|object| &object.extents);
        let mapped = extents.flat_map(|extent| extent.start..extent.start + extent.count);
        let mapped = mapped.filter_map(|index| self.map.get(index as usize).slot);
        // A chunk has its slot from its claim as soon as the first that shares it has committed.
        let apart = |(object, chunk, slot)| (self.chunk(object, chunk).slot != Some(slot)).then_some(slot);
        let claimed = self.claims.slots().filter_map(apart);
        let held = self.transactions.intents().flat_map(|intent| intent.slots());
        mapped.chain(claimed).chain(held).chain(self.object_index.slots()).chain(self.bad.iter().copied())
    }

    /// Bytes that a snapshot of all this takes in the journal; a little more than the truth.
    pub fn snapshot_len(&self) -> u64 {
        let membership = self.presence.membership.as_ref().map_or(0, membership_len);
        let extents = self.missed.journal_room() + self.absent.journal_room();
        let membership = membership + self.answers.journal_len() + roots_len(self.object_index.statistics().nodes);
        let membership = membership + retired_len(self.bad.len());
        256 + self.objects.journal_len() + membership + extents + self.transactions.journal_len()
    }

    /// True if a host does nothing any more.
    pub fn is_fenced(&self, host: Generation) -> bool {
        self.presence.membership.as_ref().is_some_and(|membership| membership.fence.refuses(host))
    }

    /// True unless this device is in, and yet lacks something.
    pub fn is_whole_if_in(&self) -> bool {
        let own = self.presence.membership.as_ref().and_then(|membership| membership.member(self.presence.own));
        self.absent.blocks() == 0 || own.is_none_or(|own| own.member_state != MemberState::In)
    }
}

/// Puts on record that those participants miss the transaction that have been out since.
fn note_unheard(objects: &Objects, missed: &mut Missed, by: &Attribution, object: ObjectId, participants: &[DeviceId]) {
    if !missed.is_nobody_absent() && objects.is_redundant(object) {
        missed.add_of(object, by.linkage, by.epoch, participants);
    }
}

/// What lies in `range` and not in `other`.
fn outside(range: BlockRange, other: BlockRange) -> [BlockRange; 2] {
    let (start, end) = (other.start.clamp(range.start, range.end()), other.end().clamp(range.start, range.end()));
    [BlockRange::between(range.start, start), BlockRange::between(end.max(start), range.end())]
}
