//! The format of the journal's records (`docs/disk-format.md`). Records are written in batches, whose format is in
//! `core/journal/src/batch_format.rs`. The format number of the store is `FORMAT` in `core/store/src/superblock.rs`. Decoding
//! trusts nothing: a record that makes no sense counts as damaged.

mod fields;
mod intent;
mod object;
pub(crate) mod request;

pub(crate) use fields::{Field, structs};
pub(crate) use intent::{Body, Home, IntentRecord, Part, Queued};
pub(crate) use object::{MapExtent, ObjectRecord};

use crate::block::Attribution;
use braid_base::{BlockRange, Clock, DeviceId, Epoch, Generation, Membership, ObjectId, TransactionId};
use braid_journal::{AnswersRecord, DecodeError, Payload};
use braid_object_index::Root;
use braid_objects::Change;
use braid_ordering::Ordering;
use bytes::{Buf, BufMut, Bytes};
use intent::{APPLIED, INTENT};
use request::Executed;

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
    /// A decision: the intent takes effect.
    Commit(TransactionId),
    /// A decision: the intent has no effect.
    Abort(TransactionId),
    /// Snapshot: a commit that must still be remembered.
    Decided(Decision),
    /// A decision that need not be remembered any more.
    Forget(TransactionId),
    /// All commits of the host below this sequence may be forgotten.
    Settled { host: Generation, sequence: u64 },
    /// Stamps up to this one are reserved.
    Stamps(Clock),
    /// A membership that was adopted.
    Adopted(Membership),
    /// Snapshot: the membership that was adopted last, and the epoch in which this device last returned.
    Membership { membership: Membership, returned: Epoch },
    /// Snapshot: what a device that is out has missed, in blocks of the volume.
    Missed { device: DeviceId, object: ObjectId, extents: Vec<BlockRange> },
    /// A new object: its map entries are to be emptied, and its first `absent` blocks are absent.
    Created { object: ObjectRecord, absent: u64 },
    /// Snapshot: an object. Its map entries are on the disk.
    Object(ObjectRecord),
    /// Snapshot: the absent blocks of an object.
    Absent { object: ObjectId, extents: Vec<BlockRange> },
    /// An object that was removed.
    Removed(ObjectId),
    /// An object whose range of blocks changes. Map entries that it gains are to be emptied, entries that it loses are freed. `absent`:
    /// the absent part of the blocks that it gains.
    Resized { object: ObjectRecord, absent: BlockRange },
    /// An object that has another ordering.
    Reordered { object: ObjectId, ordering: Ordering },
    /// A request for objects was executed.
    Objects(Executed),
    /// Snapshot: answers to a host's requests. Also how a task has ended.
    Answers { host: Generation, settled: u64, kept: Vec<(u64, Bytes)> },
    /// A host's requests that are over: all below its mark, and intervals above it, each as its first sequence and the first behind it.
    Over { host: Generation, settled: u64, intervals: Vec<(u64, u64)> },
    /// Keys that garbage collection of removed objects has removed.
    Collected(Vec<Change>),
    /// The new roots of the object index.
    Rooted(Vec<Root>),
    /// Slots that could not be written and are never used again. Also part of a snapshot.
    Retired(Vec<u32>),
}

/// Before a new object could have absent blocks, its record did not tell how many.
const CREATED: u8 = 10;

/// Bytes of an attribution, and the most bytes of a member.
const ATTRIBUTION: usize = 12 + 12 + 4 + 16;
const MEMBER_MAX: usize = 2 + 1 + 4 + 4;

/// Declares the records that are a byte for their kind and then their fields.
macro_rules! records {
    ($($kind:literal => $name:ident $(($inner:ident))? $({ $($field:ident),* })?,)*) => {
        impl Record {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $(Record::$name $(($inner))? $({ $($field),* })? => {
                        to.put_u8($kind);
                        $($inner.put(to);)?
                        $($($field.put(to);)*)?
                    })*
                    Record::Intent(_) | Record::Applied(_) => unreachable!("an intent has an encoding of its own"),
                }
            }

            fn take(kind: u8, from: &mut &[u8]) -> Result<Record, DecodeError> {
                match kind {
                    $($kind => Ok(Record::$name
                        $(({ let $inner = Field::take(from)?; $inner }))?
                        $({ $($field: Field::take(from)?),* })?
                    ),)*
                    _ => Err(DecodeError),
                }
            }
        }
    };
}

records! {
    3 => Commit(transaction),
    4 => Abort(transaction),
    5 => Decided(decision),
    6 => Forget(transaction),
    7 => Settled { host, sequence },
    8 => Stamps(until),
    9 => Adopted(membership),
    11 => Object(object),
    12 => Removed(object),
    13 => Reordered { object, ordering },
    14 => Membership { membership, returned },
    15 => Missed { device, object, extents },
    16 => Created { object, absent },
    17 => Absent { object, extents },
    18 => Resized { object, absent },
    19 => Objects(executed),
    20 => Answers { host, settled, kept },
    21 => Rooted(roots),
    22 => Collected(changes),
    23 => Over { host, settled, intervals },
    24 => Retired(slots),
}

impl braid_journal::Record for Record {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Record::Intent(intent) => intent.encode(false, to),
            Record::Applied(intent) => intent.encode(true, to),
            Record::Created { object, absent: 0 } => {
                to.put_u8(CREATED);
                object.put(to);
            }
            record => record.put(to),
        }
    }

    fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<Record, DecodeError> {
        let record = match from.try_get_u8()? {
            INTENT => Record::Intent(IntentRecord::decode(from, payload)?),
            APPLIED => Record::Applied(IntentRecord::decode(from, payload)?),
            CREATED => Record::Created { object: Field::take(from)?, absent: 0 },
            kind => Record::take(kind, from)?,
        };
        let is_sound = match &record {
            Record::Over { intervals, .. } => intervals.iter().all(|(first, behind)| first < behind),
            Record::Rooted(roots) => request::are_sound(roots),
            _ => true,
        };
        is_sound.then_some(record).ok_or(DecodeError)
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
