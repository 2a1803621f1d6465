//! The format of the journal's records (`docs/disk-format.md`). Records are written in batches, whose format is in
//! `core/journal/src/batch_format.rs`. The format number of the store is `FORMAT` in `core/store/src/superblock.rs`. Decoding
//! trusts nothing: a record that makes no sense counts as damaged.

mod fields;
mod intent;
mod object;
pub(crate) mod request;

pub(crate) use intent::{Body, Home, IntentRecord, Part, Queued};
pub(crate) use object::{MapExtent, ObjectRecord};

use crate::block::Attribution;
use braid_base::{BlockRange, Clock, DeviceId, Epoch, Generation, Membership, ObjectId, TransactionId};
use braid_journal::{AnswersRecord, DecodeError, Payload};
use braid_object_index::Root;
use braid_objects::Change;
use braid_ordering::Ordering;
use bytes::{Buf, BufMut, Bytes};
use fields::{
    put_attribution, put_devices, put_extents, put_membership, put_named, put_ordering, take_attribution, take_devices,
    take_extent, take_extents, take_membership, take_ordering, take_transaction,
};
use intent::{APPLIED, INTENT};
use object::{put_object, take_object};
use request::{
    Executed, put_answers, put_changes, put_executed, put_roots, take_answers, take_changes, take_executed, take_roots,
};

/// A commit that must be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub by: Attribution,
    pub participants: Vec<DeviceId>,
    pub object: ObjectId,
}

impl Decision {
    /// Bytes that it takes in the journal.
    pub fn journal_len(&self) -> u64 {
        (1 + ATTRIBUTION + 2 + 2 * self.participants.len() + 8) as u64
    }
}

/// Bytes that a membership takes in the journal.
pub(crate) fn membership_len(membership: &Membership) -> u64 {
    let fence = &membership.fence;
    (1 + 4 + 4 + 4 + MEMBER_MAX * membership.members.len() + 12 + 4 * (fence.except.len() + fence.also.len())) as u64
}

/// Bytes that a record of so many retired slots takes in the journal.
pub(crate) fn retired_len(slots: usize) -> u64 {
    (1 + 4 + 4 * slots) as u64
}

/// The most extents in one record of missed or absent blocks.
pub(crate) const MISSED_PER_RECORD: usize = 512;

/// Bytes that so many missed or absent extents take in the journal.
pub(crate) fn missed_len(extents: usize) -> u64 {
    (extents.div_ceil(MISSED_PER_RECORD) * (1 + 2 + 8 + 4) + 16 * extents) as u64
}

/// A record of the journal. Records marked "snapshot" repeat, at the journal's head, what earlier records said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An undecided intent.
    Intent(IntentRecord),
    /// A write that took effect at once, without a decision.
    Applied(IntentRecord),
    Commit(TransactionId),
    Abort(TransactionId),
    /// Snapshot: a commit that must still be remembered.
    Decided(Decision),
    Forget(TransactionId),
    /// All commits of the host below this sequence may be forgotten.
    Settled {
        host: Generation,
        sequence: u64,
    },
    Stamps(Clock),
    /// A membership that was adopted.
    Adopted(Membership),
    /// Snapshot: the membership that was adopted last, and the epoch in which this device last returned.
    Membership {
        membership: Membership,
        returned: Epoch,
    },
    /// Snapshot: what a device that is out has missed, in blocks of the volume.
    Missed {
        device: DeviceId,
        object: ObjectId,
        extents: Vec<BlockRange>,
    },
    /// A new object: its map entries are to be emptied, and its first `absent` blocks are absent.
    Created {
        object: ObjectRecord,
        absent: u64,
    },
    /// Snapshot: an object. Its map entries are on the disk.
    Object(ObjectRecord),
    /// Snapshot: the absent blocks of an object.
    Absent {
        object: ObjectId,
        extents: Vec<BlockRange>,
    },
    Removed(ObjectId),
    /// An object whose range of blocks changes. Map entries that it gains are to be emptied, entries that it loses are freed. `absent`:
    /// the absent part of the blocks that it gains.
    Resized {
        object: ObjectRecord,
        absent: BlockRange,
    },
    Reordered {
        object: ObjectId,
        ordering: Ordering,
    },
    /// A request for objects was executed.
    Objects(Executed),
    /// Snapshot: answers to a host's requests.
    Answers {
        host: Generation,
        settled: u64,
        kept: Vec<(u64, Bytes)>,
    },
    /// A host's requests that are over: all below its mark, and intervals above it, each as its first sequence and the first behind it.
    Over {
        host: Generation,
        settled: u64,
        intervals: Vec<(u64, u64)>,
    },
    /// Keys that garbage collection of removed objects has removed.
    Collected(Vec<Change>),
    /// The new roots of the object index.
    Rooted(Vec<Root>),
    /// Slots that could not be written and are never used again. Also part of a snapshot.
    Retired(Vec<u32>),
}

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

/// Bytes of an attribution, and the most bytes of a member.
const ATTRIBUTION: usize = 12 + 12 + 4 + 16;
const MEMBER_MAX: usize = 2 + 1 + 4 + 4;

impl braid_journal::Record for Record {
    fn encode(&self, to: &mut Vec<u8>) {
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
            Record::Over { host, settled, intervals } => {
                put_named(to, OVER, TransactionId { host: *host, sequence: *settled });
                to.put_u32_le(intervals.len() as u32);
                for (first, behind) in intervals {
                    to.put_u64_le(*first);
                    to.put_u64_le(*behind);
                }
            }
            Record::Collected(changes) => {
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

    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Record, DecodeError> {
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
                let interval = |from: &mut &[u8]| {
                    let (first, behind) = (from.try_get_u64_le()?, from.try_get_u64_le()?);
                    (first < behind).then_some((first, behind)).ok_or(DecodeError)
                };
                let intervals = (0..from.try_get_u32_le()?).map(|_| interval(from)).collect::<Result<_, _>>()?;
                Record::Over { host, settled, intervals }
            }
            SWEPT => Record::Collected(take_changes(from)?),
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
            _ => return Err(DecodeError),
        })
    }
}

impl Record {
    /// True for the kinds of records that a snapshot consists of.
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
}

impl From<AnswersRecord> for Record {
    fn from(record: AnswersRecord) -> Record {
        match record {
            AnswersRecord::Over { host, settled, intervals } => Record::Over { host, settled, intervals },
            AnswersRecord::Kept { host, settled, kept } => Record::Answers { host, settled, kept },
        }
    }
}

#[cfg(test)]
mod tests;
