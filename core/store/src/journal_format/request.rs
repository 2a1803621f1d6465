//! Records of requests for objects: their changes and answers, and the roots of the object index.

use crate::block::SLOT_BYTES;
use braid_base::TransactionId;
use braid_object_index::Root;
use braid_objects::Change;
use braid_objects::key::KEY_BYTES;
use bytes::Bytes;
use std::collections::BTreeSet;

/// An executed request for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    pub name: TransactionId,
    /// The host's mark when the request was executed.
    pub settled: u64,
    /// The encoded answer.
    pub answer: Bytes,
    pub changes: Vec<Change>,
}

/// Bytes of a change in a record, besides its value.
const CHANGE_BYTES: usize = KEY_BYTES + 4;

impl Executed {
    /// Bytes that it takes in the journal. An upper bound, close to the exact number.
    pub fn journal_len(&self) -> u64 {
        40 + self.answer.len() as u64 + changes_len(&self.changes)
    }
}

/// Bytes that changes take in the journal. An upper bound, close to the exact number.
pub(crate) fn changes_len(changes: &[Change]) -> u64 {
    let value = |change: &Change| CHANGE_BYTES + change.value.as_ref().map_or(0, Bytes::len);
    8 + changes.iter().map(value).sum::<usize>() as u64
}

/// Bytes of a root in a record.
const ROOT_BYTES: u64 = KEY_BYTES as u64 + 12;

/// Bytes that so many roots take in the journal.
pub(crate) fn roots_len(roots: u64) -> u64 {
    5 + roots * ROOT_BYTES
}

/// True if each root has a slot of its own, and fits into it.
pub(super) fn are_sound(roots: &[Root]) -> bool {
    let slots: BTreeSet<u32> = roots.iter().map(|root| root.place.slot).collect();
    slots.len() == roots.len() && roots.iter().all(|root| u64::from(root.place.length) <= SLOT_BYTES)
}
