//! Reservations of chunks by transactions under way: a chunk is changed by many transactions in part, or by one as a whole.

use crate::block::{WHOLE_CHUNK, chunks};
use crate::journal_format::IntentRecord;
use braid_base::ObjectId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkReservation {
    /// How many transactions change the chunk in part. Zero: one transaction changes it as a whole.
    sharers: u32,
    /// The slot reserved for the chunk, if it had none.
    slot: Option<u32>,
}

/// The reservations, by object and chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkReservations {
    chunks: BTreeMap<(ObjectId, u32), ChunkReservation>,
}

impl ChunkReservations {
    /// True if no transaction under way conflicts with `intent`.
    pub fn may_reserve(&self, intent: &IntentRecord) -> bool {
        let free = |(chunk, mask)| {
            let reservation = self.chunks.get(&(intent.object, chunk));
            reservation.is_none_or(|reservation| reservation.sharers > 0 && mask != WHOLE_CHUNK)
        };
        intent.pieces.iter().flat_map(|part| chunks(part.range)).all(free)
    }

    /// Reserves the intent's chunks, and the slots in its `homes` for them.
    pub fn reserve(&mut self, intent: &IntentRecord) {
        for (chunk, whole) in intent.changed_chunks() {
            let reservation =
                self.chunks.entry((intent.object, chunk)).or_insert(ChunkReservation { sharers: 0, slot: None });
            reservation.sharers += u32::from(!whole);
        }
        for home in &intent.homes {
            if let Some(reservation) = self.chunks.get_mut(&(intent.object, home.chunk)) {
                reservation.slot = Some(home.slot);
            }
        }
    }

    /// Ends the intent's reservations. Reserved slots are added to `released`, unless the chunk is `mapped` to that slot by now.
    pub fn release(&mut self, intent: &IntentRecord, mapped: impl Fn(u32) -> Option<u32>, released: &mut Vec<u32>) {
        for (chunk, whole) in intent.changed_chunks() {
            let key = (intent.object, chunk);
            let reservation = self.chunks.get_mut(&key).expect("an intent holds its chunks until it is decided");
            reservation.sharers -= u32::from(!whole);
            if reservation.sharers > 0 {
                continue;
            }
            let spare = reservation.slot;
            self.chunks.remove(&key);
            let mapped = mapped(chunk);
            released.extend(spare.filter(|slot| mapped != Some(*slot)));
        }
    }

    /// The slot reserved for a chunk that has none.
    pub fn slot(&self, object: ObjectId, chunk: u32) -> Option<u32> {
        self.chunks.get(&(object, chunk)).and_then(|reservation| reservation.slot)
    }

    /// All reserved slots, as (object, chunk, slot).
    pub fn slots(&self) -> impl Iterator<Item = (ObjectId, u32, u32)> {
        self.chunks.iter().filter_map(|((object, chunk), reservation)| Some((*object, *chunk, reservation.slot?)))
    }
}
