//! Chunks that transactions on their way want to change: each is changed by many in part, or by one as a whole.

use crate::block::{WHOLE_CHUNK, chunks};
use crate::record::IntentRecord;
use braid_base::ObjectId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    /// How many change it in part; none: one changes it as a whole.
    sharers: u32,
    /// Set aside for it, as it had none.
    slot: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    chunks: BTreeMap<(ObjectId, u32), Claim>,
}

impl Claims {
    /// True if nobody on its way is at odds with `intent`.
    pub fn may_claim(&self, intent: &IntentRecord) -> bool {
        let free = |(chunk, mask)| {
            let claim = self.chunks.get(&(intent.object, chunk));
            claim.is_none_or(|claim| claim.sharers > 0 && mask != WHOLE_CHUNK)
        };
        intent.pieces.iter().flat_map(|part| chunks(part.range)).all(free)
    }

    /// Claims the intent's chunks, and for its homes the slots.
    pub fn claim(&mut self, intent: &IntentRecord) {
        for (chunk, whole) in intent.claims() {
            let claim = self.chunks.entry((intent.object, chunk)).or_insert(Claim { sharers: 0, slot: None });
            claim.sharers += u32::from(!whole);
        }
        for home in &intent.homes {
            if let Some(claim) = self.chunks.get_mut(&(intent.object, home.chunk)) {
                claim.slot = Some(home.slot);
            }
        }
    }

    /// Ends the intent's claims. Slots that were set aside go to `released`, unless the chunk was `mapped` there.
    pub fn unclaim(&mut self, intent: &IntentRecord, mapped: impl Fn(u32) -> Option<u32>, released: &mut Vec<u32>) {
        for (chunk, whole) in intent.claims() {
            let key = (intent.object, chunk);
            let claim = self.chunks.get_mut(&key).expect("who claimed a chunk holds the claim to the end");
            claim.sharers -= u32::from(!whole);
            if claim.sharers > 0 {
                continue;
            }
            let spare = claim.slot;
            self.chunks.remove(&key);
            let mapped = mapped(chunk);
            released.extend(spare.filter(|slot| mapped != Some(*slot)));
        }
    }

    /// The slot set aside for a chunk that has none.
    pub fn slot(&self, object: ObjectId, chunk: u32) -> Option<u32> {
        self.chunks.get(&(object, chunk)).and_then(|claim| claim.slot)
    }

    /// All slots that are set aside: object, chunk, slot.
    pub fn slots(&self) -> impl Iterator<Item = (ObjectId, u32, u32)> {
        self.chunks.iter().filter_map(|((object, chunk), claim)| Some((*object, *chunk, claim.slot?)))
    }
}
