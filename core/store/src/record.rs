//! What the journal says, record by record. Decoding trusts nothing: a record that makes no sense is damage.

use crate::block::{Attribution, CHUNK_BLOCKS};
use crate::request_record::{
    Executed, put_answers, put_changes, put_executed, put_roots, take_answers, take_changes, take_executed, take_roots,
};
use braid_base::checksum::crc32c;
use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, FenceTable, Generation, Member, Membership, ObjectId, Stamp,
    Standing, TransactionId, limits,
};
use braid_catalogue::Root;
use braid_objects::Change;
use braid_wire::{Atomicity, Linkage, ObjectDescription, Ordering};
use bytes::{Buf, BufMut, Bytes, TryGetError};
use std::collections::BTreeSet;

/// A devwrite as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IntentRecord {
    pub by: Attribution,
    pub participants: Vec<DeviceId>,
    pub object: ObjectId,
    /// By first block; no two share one.
    pub pieces: Vec<Part>,
    /// Slots set aside for chunks that have none and are written in part only.
    pub homes: Vec<Home>,
}

/// Some blocks of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub range: BlockRange,
    pub body: Body,
}

/// Where the new content of some blocks is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// There is none.
    Hole,
    /// In the journal, and here.
    Inline(Bytes),
    /// In whole slots, from this one on.
    Slots(u32),
    /// Nowhere: it was in the journal, and rotted there.
    Lost,
}

/// A slot for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub chunk: u32,
    pub slot: u32,
}

/// An object, and where in the chunk map it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub description: ObjectDescription,
    pub extents: Vec<MapExtent>,
}

impl ObjectRecord {
    /// Its room in the journal.
    pub fn journal_len(&self) -> u64 {
        (1 + 8 + 8 + 8 + 1 + 1 + 1 + 4 + 8 * self.extents.len()) as u64
    }
}

/// A commit to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub by: Attribution,
    pub participants: Vec<DeviceId>,
    pub object: ObjectId,
}

impl Decision {
    /// Its room in the journal.
    pub fn journal_len(&self) -> u64 {
        (1 + ATTRIBUTION + 2 + 2 * self.participants.len() + 8) as u64
    }
}

/// The room of a membership in the journal.
pub(crate) fn membership_len(membership: &Membership) -> u64 {
    let fence = &membership.fence;
    (1 + 4 + 4 + 4 + MEMBER_MAX * membership.members.len() + 12 + 4 * (fence.except.len() + fence.also.len())) as u64
}

/// The room of so many retired slots.
pub(crate) fn retired_len(slots: usize) -> u64 {
    (1 + 4 + 4 * slots) as u64
}

/// The most extents in one record of what was missed, or is absent.
pub(crate) const MISSED_PER_RECORD: usize = 512;

/// The room of so many extents that were missed, or are absent.
pub(crate) fn missed_len(extents: usize) -> u64 {
    (extents.div_ceil(MISSED_PER_RECORD) * (1 + 2 + 8 + 4) + 16 * extents) as u64
}

/// Neighbouring entries of the chunk map; an object's extents follow each other by chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapExtent {
    pub start: u32,
    pub count: u32,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Undecided.
    Intent(IntentRecord),
    /// Written and in force at once.
    Applied(IntentRecord),
    Commit(TransactionId),
    Abort(TransactionId),
    /// A commit of old, carried along until it may be forgotten.
    Decided(Decision),
    Forget(TransactionId),
    /// All commits of the host below this sequence may be forgotten.
    Settled {
        host: Generation,
        sequence: u64,
    },
    Stamps(Clock),
    /// A membership, adopted here.
    Adopted(Membership),
    /// The one adopted last, carried along; and the epoch in which this device was last found to have returned.
    Membership {
        membership: Membership,
        returned: Epoch,
    },
    /// What a device that is out has missed, carried along; in blocks of the volume.
    Missed {
        device: DeviceId,
        object: ObjectId,
        extents: Vec<BlockRange>,
    },
    /// An object made just now: its map entries are to be emptied. So many of its first blocks are absent.
    Created {
        object: ObjectRecord,
        absent: u64,
    },
    /// An object carried along: its map entries are on the disk.
    Object(ObjectRecord),
    /// What of an object is not here yet, carried along.
    Absent {
        object: ObjectId,
        extents: Vec<BlockRange>,
    },
    Removed(ObjectId),
    /// An object that consists of other blocks from now on: the map entries that it had not are to be emptied, those that it has no more
    /// given back. So much of what it had not is absent.
    Resized {
        object: ObjectRecord,
        absent: BlockRange,
    },
    Reordered {
        object: ObjectId,
        ordering: Ordering,
    },
    /// A request for objects, done.
    Objects(Executed),
    /// Answers to a host's requests, carried along.
    Answers {
        host: Generation,
        settled: u64,
        kept: Vec<(u64, Bytes)>,
    },
    /// A host's requests that are over: all below its mark, and stretches above, by where each begins and what is behind it.
    Over {
        host: Generation,
        settled: u64,
        stretches: Vec<(u64, u64)>,
    },
    /// What removed objects had left, and is gone now.
    Swept(Vec<Change>),
    /// Where the index of all that objects hold is from now on.
    Rooted(Vec<Root>),
    /// Slots that could not be written, and are never used again; also carried along.
    Retired(Vec<u32>),
}

/// A record or batch that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl From<TryGetError> for Nonsense {
    fn from(_: TryGetError) -> Nonsense {
        Nonsense
    }
}

const INTENT: u8 = 1;
const APPLIED: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;
const DECIDED: u8 = 5;
const FORGET: u8 = 6;
const SETTLED: u8 = 7;
const STAMPS: u8 = 8;
const ADOPTED: u8 = 9;
const CREATED: u8 = 10;
const OBJECT: u8 = 11;
const REMOVED: u8 = 12;
const REORDERED: u8 = 13;
const MEMBERSHIP: u8 = 14;
const MISSED: u8 = 15;
const CREATED_ABSENT: u8 = 16;
const ABSENT: u8 = 17;
const RESIZED: u8 = 18;
const OBJECTS: u8 = 19;
const ANSWERS: u8 = 20;
const ROOTED: u8 = 21;
const SWEPT: u8 = 22;
const OVER: u8 = 23;
const RETIRED: u8 = 24;

const STANDING_IN: u8 = 0;
const STANDING_RETURNING: u8 = 1;
const STANDING_HELPED: u8 = 2;
const STANDING_OUT: u8 = 3;

/// Bytes of an attribution, and the most of a member.
const ATTRIBUTION: usize = 12 + 12 + 4 + 16;
const MEMBER_MAX: usize = 2 + 1 + 4 + 4;

const PART_HOLE: u8 = 0;
const PART_INLINE: u8 = 1;
const PART_SLOTS: u8 = 2;
const PART_LOST: u8 = 3;

impl IntentRecord {
    /// The bytes that travel in the journal as payload.
    pub fn payload_len(&self) -> usize {
        let inline = |part: &Part| if let Body::Inline(data) = &part.body { data.len() } else { 0 };
        self.pieces.iter().map(inline).sum()
    }

    /// Its room in the journal, description and payload; a little more than the truth.
    pub fn journal_len(&self) -> u64 {
        let payload = self.payload_len();
        let description = 96
            + 2 * self.participants.len()
            + 21 * self.pieces.len()
            + 8 * self.homes.len()
            + payload / BLOCK_BYTES * 4;
        (description + payload) as u64
    }

    /// Appends the record; `as_applied` says which kind.
    pub fn encode(&self, as_applied: bool, to: &mut Vec<u8>) {
        to.put_u8(if as_applied { APPLIED } else { INTENT });
        put_attribution(to, &self.by);
        put_devices(to, &self.participants);
        to.put_u64_le(self.object.0);
        to.put_u32_le(self.pieces.len() as u32);
        for part in &self.pieces {
            to.put_u8(match part.body {
                Body::Hole => PART_HOLE,
                Body::Inline(_) => PART_INLINE,
                Body::Slots(_) => PART_SLOTS,
                Body::Lost => PART_LOST,
            });
            to.put_u64_le(part.range.start);
            to.put_u64_le(part.range.count);
            match &part.body {
                Body::Inline(data) => data.chunks_exact(BLOCK_BYTES).for_each(|block| to.put_u32_le(crc32c(block))),
                Body::Slots(first) => to.put_u32_le(*first),
                Body::Hole | Body::Lost => {}
            }
        }
        to.put_u32_le(self.homes.len() as u32);
        for home in &self.homes {
            to.put_u32_le(home.chunk);
            to.put_u32_le(home.slot);
        }
    }

    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<IntentRecord, Nonsense> {
        let by = take_attribution(from)?;
        let participants = take_devices(from)?;
        let object = ObjectId(from.try_get_u64_le()?);
        let mut pieces = Vec::new();
        let mut behind = 0;
        for _ in 0..from.try_get_u32_le()? {
            let kind = from.try_get_u8()?;
            let range = BlockRange::new(from.try_get_u64_le()?, from.try_get_u64_le()?);
            if range.is_empty() || range.start < behind || range.start.checked_add(range.count).is_none() {
                return Err(Nonsense);
            }
            behind = range.end();
            match kind {
                PART_HOLE => pieces.push(Part { range, body: Body::Hole }),
                PART_LOST => pieces.push(Part { range, body: Body::Lost }),
                PART_SLOTS => {
                    let whole = |at: u64| at.is_multiple_of(CHUNK_BLOCKS);
                    if !whole(range.start) || !whole(range.count) {
                        return Err(Nonsense);
                    }
                    let first = from.try_get_u32_le()?;
                    if range.count / CHUNK_BLOCKS > u64::from(u32::MAX - first) {
                        return Err(Nonsense);
                    }
                    pieces.push(Part { range, body: Body::Slots(first) });
                }
                PART_INLINE => payload.take(range, from, &mut pieces)?,
                _ => return Err(Nonsense),
            }
        }
        let homes = (0..from.try_get_u32_le()?)
            .map(|_| Ok(Home { chunk: from.try_get_u32_le()?, slot: from.try_get_u32_le()? }))
            .collect::<Result<_, Nonsense>>()?;
        Ok(IntentRecord { by, participants, object, pieces, homes })
    }
}

/// The payload of a batch while its records are decoded.
pub(crate) struct Payload {
    pub bytes: Bytes,
    /// Whether all blocks taken so far were whole.
    pub whole: bool,
}

impl Payload {
    /// Takes the payload of an inline part: its whole blocks in one piece where they can be, the damaged ones apart.
    fn take(&mut self, range: BlockRange, from: &mut &[u8], pieces: &mut Vec<Part>) -> Result<(), Nonsense> {
        let blocks = usize::try_from(range.count).map_err(|_| Nonsense)?;
        if blocks > self.bytes.len() / BLOCK_BYTES {
            return Err(Nonsense);
        }
        let data = self.bytes.split_to(blocks * BLOCK_BYTES);
        let mut start = 0;
        for (index, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            if crc32c(block) == from.try_get_u32_le()? {
                continue;
            }
            self.whole = false;
            push_inline(pieces, range.start, &data, start, index);
            pieces.push(Part { range: BlockRange::new(range.start + index as u64, 1), body: Body::Lost });
            start = index + 1;
        }
        push_inline(pieces, range.start, &data, start, blocks);
        Ok(())
    }
}

fn push_inline(pieces: &mut Vec<Part>, first: u64, data: &Bytes, start: usize, end: usize) {
    if start < end {
        let range = BlockRange::new(first + start as u64, (end - start) as u64);
        pieces.push(Part { range, body: Body::Inline(data.slice(start * BLOCK_BYTES..end * BLOCK_BYTES)) });
    }
}

impl Record {
    /// Appends the record, without the payload that an intent may have.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Record::Intent(intent) => intent.encode(false, to),
            Record::Applied(intent) => intent.encode(true, to),
            Record::Commit(transaction) => put_named(to, COMMIT, *transaction),
            Record::Abort(transaction) => put_named(to, ABORT, *transaction),
            Record::Forget(transaction) => put_named(to, FORGET, *transaction),
            Record::Decided(decision) => {
                to.put_u8(DECIDED);
                put_attribution(to, &decision.by);
                put_devices(to, &decision.participants);
                to.put_u64_le(decision.object.0);
            }
            Record::Settled { host, sequence } => {
                put_named(to, SETTLED, TransactionId { host: *host, sequence: *sequence });
            }
            Record::Stamps(until) => {
                to.put_u8(STAMPS);
                to.put_u64_le(until.0);
            }
            Record::Adopted(membership) => put_membership(to, ADOPTED, membership),
            Record::Membership { membership, returned } => {
                put_membership(to, MEMBERSHIP, membership);
                to.put_u32_le(returned.0);
            }
            Record::Missed { device, object, extents } => {
                to.put_u8(MISSED);
                to.put_u16_le(device.0);
                to.put_u64_le(object.0);
                put_extents(to, extents);
            }
            Record::Absent { object, extents } => {
                to.put_u8(ABSENT);
                to.put_u64_le(object.0);
                put_extents(to, extents);
            }
            Record::Created { object, absent: 0 } => put_object(to, CREATED, object),
            Record::Created { object, absent } => {
                put_object(to, CREATED_ABSENT, object);
                to.put_u64_le(*absent);
            }
            Record::Object(object) => put_object(to, OBJECT, object),
            Record::Resized { object, absent } => {
                put_object(to, RESIZED, object);
                to.put_u64_le(absent.start);
                to.put_u64_le(absent.count);
            }
            Record::Removed(object) => {
                to.put_u8(REMOVED);
                to.put_u64_le(object.0);
            }
            Record::Objects(executed) => {
                put_named(to, OBJECTS, executed.name);
                put_executed(to, executed);
            }
            Record::Answers { host, settled, kept } => {
                put_named(to, ANSWERS, TransactionId { host: *host, sequence: *settled });
                put_answers(to, kept);
            }
            Record::Over { host, settled, stretches } => {
                put_named(to, OVER, TransactionId { host: *host, sequence: *settled });
                to.put_u32_le(stretches.len() as u32);
                for (first, behind) in stretches {
                    to.put_u64_le(*first);
                    to.put_u64_le(*behind);
                }
            }
            Record::Swept(changes) => {
                to.put_u8(SWEPT);
                put_changes(to, changes);
            }
            Record::Rooted(roots) => {
                to.put_u8(ROOTED);
                put_roots(to, roots);
            }
            Record::Retired(slots) => {
                to.put_u8(RETIRED);
                to.put_u32_le(slots.len() as u32);
                slots.iter().for_each(|slot| to.put_u32_le(*slot));
            }
            Record::Reordered { object, ordering } => {
                to.put_u8(REORDERED);
                to.put_u64_le(object.0);
                put_ordering(to, *ordering);
            }
        }
    }

    /// True for the kinds that a snapshot is made of.
    pub fn may_be_carried(&self) -> bool {
        use Record::{Absent, Answers, Decided, Intent, Membership, Missed, Object, Over, Retired, Rooted, Stamps};
        matches!(
            self,
            Stamps(_)
                | Membership { .. }
                | Object(_)
                | Decided(_)
                | Missed { .. }
                | Absent { .. }
                | Answers { .. }
                | Over { .. }
                | Rooted(_)
                | Retired(_)
                | Intent(_)
        )
    }

    /// The next record of a batch's description.
    pub fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Record, Nonsense> {
        Ok(match from.try_get_u8()? {
            INTENT => Record::Intent(IntentRecord::decode(from, payload)?),
            APPLIED => Record::Applied(IntentRecord::decode(from, payload)?),
            COMMIT => Record::Commit(take_transaction(from)?),
            ABORT => Record::Abort(take_transaction(from)?),
            FORGET => Record::Forget(take_transaction(from)?),
            DECIDED => Record::Decided(Decision {
                by: take_attribution(from)?,
                participants: take_devices(from)?,
                object: ObjectId(from.try_get_u64_le()?),
            }),
            SETTLED => {
                let TransactionId { host, sequence } = take_transaction(from)?;
                Record::Settled { host, sequence }
            }
            OBJECTS => Record::Objects(take_executed(take_transaction(from)?, from)?),
            ANSWERS => {
                let TransactionId { host, sequence: settled } = take_transaction(from)?;
                Record::Answers { host, settled, kept: take_answers(from)? }
            }
            OVER => {
                let TransactionId { host, sequence: settled } = take_transaction(from)?;
                let stretch = |from: &mut &[u8]| {
                    let (first, behind) = (from.try_get_u64_le()?, from.try_get_u64_le()?);
                    (first < behind).then_some((first, behind)).ok_or(Nonsense)
                };
                let stretches = (0..from.try_get_u32_le()?).map(|_| stretch(from)).collect::<Result<_, _>>()?;
                Record::Over { host, settled, stretches }
            }
            SWEPT => Record::Swept(take_changes(from)?),
            RETIRED => {
                let slots = (0..from.try_get_u32_le()?).map(|_| from.try_get_u32_le());
                Record::Retired(slots.collect::<Result<_, _>>()?)
            }
            ROOTED => Record::Rooted(take_roots(from)?),
            STAMPS => Record::Stamps(Clock(from.try_get_u64_le()?)),
            ADOPTED => Record::Adopted(take_membership(from)?),
            MEMBERSHIP => {
                Record::Membership { membership: take_membership(from)?, returned: Epoch(from.try_get_u32_le()?) }
            }
            MISSED => Record::Missed {
                device: DeviceId(from.try_get_u16_le()?),
                object: ObjectId(from.try_get_u64_le()?),
                extents: take_extents(from)?,
            },
            ABSENT => Record::Absent { object: ObjectId(from.try_get_u64_le()?), extents: take_extents(from)? },
            CREATED => Record::Created { object: take_object(from)?, absent: 0 },
            CREATED_ABSENT => Record::Created { object: take_object(from)?, absent: from.try_get_u64_le()? },
            OBJECT => Record::Object(take_object(from)?),
            RESIZED => Record::Resized { object: take_object(from)?, absent: take_extent(from)? },
            REMOVED => Record::Removed(ObjectId(from.try_get_u64_le()?)),
            REORDERED => Record::Reordered { object: ObjectId(from.try_get_u64_le()?), ordering: take_ordering(from)? },
            _ => return Err(Nonsense),
        })
    }
}

fn put_named(to: &mut Vec<u8>, kind: u8, transaction: TransactionId) {
    to.put_u8(kind);
    put_transaction(to, transaction);
}

fn put_transaction(to: &mut Vec<u8>, transaction: TransactionId) {
    to.put_u32_le(transaction.host.0);
    to.put_u64_le(transaction.sequence);
}

fn take_transaction(from: &mut &[u8]) -> Result<TransactionId, Nonsense> {
    Ok(TransactionId { host: Generation(from.try_get_u32_le()?), sequence: from.try_get_u64_le()? })
}

fn put_stamp(to: &mut Vec<u8>, stamp: Stamp) {
    to.put_u64_le(stamp.clock.0);
    to.put_u32_le(stamp.host.0);
}

fn take_stamp(from: &mut &[u8]) -> Result<Stamp, Nonsense> {
    Ok(Stamp { clock: Clock(from.try_get_u64_le()?), host: Generation(from.try_get_u32_le()?) })
}

fn put_attribution(to: &mut Vec<u8>, by: &Attribution) {
    put_transaction(to, by.transaction);
    put_stamp(to, by.stamp);
    to.put_u32_le(by.epoch.0);
    to.put_u64_le(by.linkage.first);
    to.put_u64_le(by.linkage.last);
}

fn take_attribution(from: &mut &[u8]) -> Result<Attribution, Nonsense> {
    Ok(Attribution {
        transaction: take_transaction(from)?,
        stamp: take_stamp(from)?,
        epoch: Epoch(from.try_get_u32_le()?),
        linkage: Linkage { first: from.try_get_u64_le()?, last: from.try_get_u64_le()? },
    })
}

fn put_membership(to: &mut Vec<u8>, kind: u8, membership: &Membership) {
    to.put_u8(kind);
    to.put_u32_le(membership.epoch.0);
    to.put_u32_le(membership.members.len() as u32);
    for member in &membership.members {
        to.put_u16_le(member.device.0);
        to.put_u32_le(member.since.0);
        match member.standing {
            Standing::In => to.put_u8(STANDING_IN),
            Standing::Returning { helper: None } => to.put_u8(STANDING_RETURNING),
            Standing::Returning { helper: Some(helper) } => {
                to.put_u8(STANDING_HELPED);
                to.put_u32_le(helper.0);
            }
            Standing::Out => to.put_u8(STANDING_OUT),
        }
    }
    to.put_u32_le(membership.fence.below.0);
    put_generations(to, &membership.fence.except);
    put_generations(to, &membership.fence.also);
}

fn take_membership(from: &mut &[u8]) -> Result<Membership, Nonsense> {
    let epoch = Epoch(from.try_get_u32_le()?);
    let members: Vec<Member> = (0..from.try_get_u32_le()?).map(|_| take_member(from)).collect::<Result<_, _>>()?;
    // They are looked up by halving.
    if !members.is_sorted_by(|one, next| one.device < next.device) {
        return Err(Nonsense);
    }
    let fence = FenceTable {
        below: Generation(from.try_get_u32_le()?),
        except: take_generations(from)?,
        also: take_generations(from)?,
    };
    Ok(Membership { epoch, members, fence })
}

fn take_member(from: &mut &[u8]) -> Result<Member, Nonsense> {
    let (device, since) = (DeviceId(from.try_get_u16_le()?), Epoch(from.try_get_u32_le()?));
    let standing = match from.try_get_u8()? {
        STANDING_IN => Standing::In,
        STANDING_RETURNING => Standing::Returning { helper: None },
        STANDING_HELPED => Standing::Returning { helper: Some(Generation(from.try_get_u32_le()?)) },
        STANDING_OUT => Standing::Out,
        _ => return Err(Nonsense),
    };
    Ok(Member { device, standing, since })
}

fn put_devices(to: &mut Vec<u8>, devices: &[DeviceId]) {
    to.put_u16_le(devices.len() as u16);
    devices.iter().for_each(|device| to.put_u16_le(device.0));
}

fn take_devices(from: &mut &[u8]) -> Result<Vec<DeviceId>, Nonsense> {
    let count = usize::from(from.try_get_u16_le()?);
    if count > limits::PARTICIPANTS_MAX {
        return Err(Nonsense);
    }
    (0..count).map(|_| Ok(DeviceId(from.try_get_u16_le()?))).collect()
}

fn put_extents(to: &mut Vec<u8>, extents: &[BlockRange]) {
    to.put_u32_le(extents.len() as u32);
    for extent in extents {
        to.put_u64_le(extent.start);
        to.put_u64_le(extent.count);
    }
}

fn take_extents(from: &mut &[u8]) -> Result<Vec<BlockRange>, Nonsense> {
    (0..from.try_get_u32_le()?).map(|_| take_extent(from)).collect()
}

fn take_extent(from: &mut &[u8]) -> Result<BlockRange, Nonsense> {
    let extent = BlockRange::new(from.try_get_u64_le()?, from.try_get_u64_le()?);
    extent.start.checked_add(extent.count).map(|_| extent).ok_or(Nonsense)
}

fn put_generations(to: &mut Vec<u8>, generations: &BTreeSet<Generation>) {
    to.put_u32_le(generations.len() as u32);
    generations.iter().for_each(|generation| to.put_u32_le(generation.0));
}

fn take_generations(from: &mut &[u8]) -> Result<BTreeSet<Generation>, Nonsense> {
    (0..from.try_get_u32_le()?).map(|_| Ok(Generation(from.try_get_u32_le()?))).collect()
}

fn put_ordering(to: &mut Vec<u8>, ordering: Ordering) {
    to.put_u8(match ordering {
        Ordering::Timestamp => 0,
        Ordering::None => 1,
        Ordering::ServerLock => 2,
        Ordering::CallbackLock => 3,
        Ordering::DeviceLock => 4,
    });
}

fn take_ordering(from: &mut &[u8]) -> Result<Ordering, Nonsense> {
    Ok(match from.try_get_u8()? {
        0 => Ordering::Timestamp,
        1 => Ordering::None,
        2 => Ordering::ServerLock,
        3 => Ordering::CallbackLock,
        4 => Ordering::DeviceLock,
        _ => return Err(Nonsense),
    })
}

fn put_object(to: &mut Vec<u8>, kind: u8, object: &ObjectRecord) {
    to.put_u8(kind);
    to.put_u64_le(object.description.object.0);
    to.put_u64_le(object.description.first);
    to.put_u64_le(object.description.blocks);
    put_ordering(to, object.description.ordering);
    to.put_u8(u8::from(object.description.redundant));
    to.put_u8(match object.description.atomicity {
        Atomicity::Implied => 0,
        Atomicity::Consistent => 1,
    });
    to.put_u32_le(object.extents.len() as u32);
    for extent in &object.extents {
        to.put_u32_le(extent.start);
        to.put_u32_le(extent.count);
    }
}

fn take_object(from: &mut &[u8]) -> Result<ObjectRecord, Nonsense> {
    let description = ObjectDescription {
        object: ObjectId(from.try_get_u64_le()?),
        first: from.try_get_u64_le()?,
        blocks: from.try_get_u64_le()?,
        ordering: take_ordering(from)?,
        redundant: match from.try_get_u8()? {
            0 => false,
            1 => true,
            _ => return Err(Nonsense),
        },
        atomicity: match from.try_get_u8()? {
            0 => Atomicity::Implied,
            1 => Atomicity::Consistent,
            _ => return Err(Nonsense),
        },
    };
    let extents = (0..from.try_get_u32_le()?)
        .map(|_| Ok(MapExtent { start: from.try_get_u32_le()?, count: from.try_get_u32_le()? }))
        .collect::<Result<Vec<_>, Nonsense>>()?;
    let chunks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
    let end = description.first.checked_add(description.blocks);
    let possible = |end: u64| end <= u64::from(u32::MAX) * CHUNK_BLOCKS;
    if !description.first.is_multiple_of(CHUNK_BLOCKS) || !end.is_some_and(possible) {
        return Err(Nonsense);
    }
    if chunks != description.blocks.div_ceil(CHUNK_BLOCKS) {
        return Err(Nonsense);
    }
    Ok(ObjectRecord { description, extents })
}

#[cfg(test)]
mod tests;
