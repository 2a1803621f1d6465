//! A read-only view of a device's journal, for tools that inspect a disk which no device serves.

use crate::StoreError;
use crate::journal_format::Record;
use crate::superblock::Superblock;
use braid_base::{Epoch, Generation, Membership, ObjectId};
use braid_wire::ObjectDescription;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What a journal says of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalView {
    /// The membership that the device adopted last, as a start would find it; none if it never adopted one.
    pub membership: Option<Membership>,
    /// The highest generation that the journal names: of hosts that wrote, and of hosts that are fenced.
    pub generation: Generation,
    /// The objects of blocks that the device has, as a start would find them.
    pub objects: BTreeMap<ObjectId, ObjectDescription>,
}

impl JournalView {
    /// Reads the whole journal that `superblock` describes, by the rules of recovery: an incomplete last batch does not count, and a
    /// damaged record that had been durable is an error.
    pub fn read(superblock: &Superblock, journal: &Bytes) -> Result<JournalView, StoreError> {
        let found = superblock.read_journal(journal)?;
        let mut ctx = JournalView { membership: None, generation: Generation(0), objects: BTreeMap::new() };
        for (index, record) in found.records.iter().enumerate() {
            ctx.generation = ctx.generation.max(highest_host(record));
            ctx.follow_object(record);
            let adopted = match record {
                Record::Adopted(membership) => membership,
                // The membership in a later snapshot was adopted before that snapshot, so it adds nothing.
                Record::Membership { membership, .. } if index < found.snapshot_records => membership,
                _ => continue,
            };
            if ctx.membership.as_ref().map_or(Epoch(0), |known| known.epoch) < adopted.epoch {
                ctx.membership = Some(adopted.clone());
            }
        }
        Ok(ctx)
    }

    fn follow_object(&mut self, record: &Record) {
        match record {
            Record::Created { object, .. } | Record::Object(object) | Record::Resized { object, .. } => {
                self.objects.insert(object.description.object, object.description);
            }
            Record::Reordered { object, ordering } => {
                self.objects.entry(*object).and_modify(|known| known.ordering = *ordering);
            }
            Record::Removed(object) => {
                self.objects.remove(object);
            }
            _ => {}
        }
    }
}

/// The highest generation that a record names; zero if it names none.
fn highest_host(record: &Record) -> Generation {
    match record {
        Record::Intent(intent) | Record::Applied(intent) => intent.by.transaction.host.max(intent.by.stamp.host),
        Record::Decided(decision) => decision.by.transaction.host.max(decision.by.stamp.host),
        Record::Commit(name) | Record::Abort(name) | Record::Forget(name) => name.host,
        Record::Settled { host, .. } | Record::Answers { host, .. } | Record::Over { host, .. } => *host,
        Record::Objects(executed) => executed.name.host,
        Record::Adopted(membership) | Record::Membership { membership, .. } => {
            let fence = &membership.fence;
            // A fence "below" a number fences the generation before that number.
            let below = Generation(fence.below.0.saturating_sub(1));
            fence.also.iter().chain(&fence.except).copied().fold(below, Generation::max)
        }
        _ => Generation(0),
    }
}
