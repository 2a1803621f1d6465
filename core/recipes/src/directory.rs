//! A directory is a hash table from names to objects (device-atomics paper, section 7.1).
//!
//! A directory is one object, and its entries are attributes. The hash of a name is a number on the page of names, its *slot*. Further
//! names with the same hash are chained behind the first, on the page of the linked list. An object without attributes is an empty
//! directory.
//!
//! ```text
//!     page of names                      page of the linked list           page of locks        next free slot
//!   ┌──────────────────────┐           ┌──────────────────────┐          ┌──────────────┐      ┌──────────┐
//!   │ 56 0 · "dirent-56" o9│        12 │ ·  0 "dirent-20"  o7 │          │              │      │    14    │
//!   │455 ×12 "dirent-78" o3│──────▶    └──────────────────────┘          │455  a nonce  │      └──────────┘
//!   └──────────────────────┘                                             └──────────────┘
//!
//!   an entry: mark bit (1) version (31) next (32) │ object (8 bytes) │ name: 16 bytes and the name
//!
//!   fast     insert:  compare names[hash]: ∅ → (0, v, 0, object, name)                     one request
//!            remove:  compare names[hash]: (0, v, 0, object, name) → ∅                     one request
//!            look up: get names[hash]; while it is another name: get list[next]            one request, and one for each step
//!
//!   slow     the slot is taken by another name, or something is chained behind it:
//!     lock      compare locks[hash]: free → nonce, if swapped: compare names[hash]: entry → entry with mark,
//!               if swapped: fetch-and-add next free slot                                   one request
//!     walk      get list[next] …                                                           one for each step
//!     apply     compare locks[hash] with nonce, names[hash] with what was seen, list[slot] with ∅;
//!               if all hold: names[hash] := …, list[slot] := …, locks[hash] := free (∅
//!               without a chain), no mark                                                  one request: all of it or nothing
//! ```
//!
//! A slot with a chain keeps its lock's attribute even while the lock is free. So taking the lock makes no value longer, and entries can be
//! removed from a directory whose device is full.
//!
//! The mark keeps operations off the fast path while a client changes the chain: an entry with a mark does not equal the value they compare
//! with, so they wait for the lock. A lock that does not change for a *lease* is broken: another client swaps the crashed client's nonce
//! for its own. The mark stays, and the chain is intact, since the crashed client has changed either nothing or everything.
//!
//! # Differences from the paper
//!
//! - The paper changes the chain step by step, under lock and mark. Here the whole change, the end of the mark and the unlock are one request,
//!   which is executed only if the lock is still held and the slot is unchanged. So a client that crashes, or is so late that its lock was
//!   broken, leaves no incomplete change.
//! - The entry of a slot contains the chain's *version*: every change of the chain raises it (the first one is random). A client that walks the
//!   chain reads it again with every step, and restarts if it has changed. So what was read of a chain is consistent, and slots of the
//!   linked list can be reused at once: the counter wraps around, and a slot in use is skipped.
//! - Removing the first entry moves the second into its place, so that a slot contains a name or nothing.
//!
//! What it guarantees, and what not, is in `docs/recipes/directory.md`.

mod chain;
mod change;
mod entry;
mod lookup;
mod names;

pub use change::{Changed, Expected};
pub use entry::{Entry, NAME_BYTES_MAX};
pub use names::{Cursor, NamesPage};

use crate::idempotency_record::IdempotencyRecord;
use crate::request_builder::RequestBuilder;
use braid_base::ObjectId;
use braid_wire::AttributeName;
use std::num::NonZeroU32;
use std::time::Duration;

/// The page of the hash table.
pub const NAMES_PAGE: u32 = 0x0002_0001;
/// The page of entries that are not the first in their slot.
pub const LINKED_LIST_PAGE: u32 = 0x0002_0002;
/// The page of locks, one for each slot of the hash table.
pub const LOCKS_PAGE: u32 = 0x0002_0003;
/// How many slots of the linked list were given out, from which the next free one follows.
pub const NEXT_FREE: AttributeName = AttributeName::new(0x0002_0004, 0);

/// The first object whose attributes an attribute volume spreads over all its buckets.
const FIRST_SPREAD_OBJECT: ObjectId = ObjectId(1 << 63);

/// A directory, as one client uses it. `bits` and `linked` must be the same for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The object of the directory; it must exist, and contain no other directory.
    pub object: ObjectId,
    /// The hash table has two to the power of this many slots; 32 at most.
    pub bits: u32,
    /// The number of slots of the linked list.
    pub linked: NonZeroU32,
    /// The client of a lock that does not change for this long is considered dead. If it is alive, it loses time and nothing else.
    pub lease: Duration,
    /// Where this client's operations record that they have taken effect.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl Directory {
    /// The directory in this object, of maximum size, without an idempotency record.
    pub fn new(object: ObjectId) -> Directory {
        Directory { object, bits: 32, linked: NonZeroU32::MAX, lease: Duration::from_secs(2), idempotency_record: None }
    }

    /// An attribute volume distributes the attributes of such an object over its buckets by their numbers, and refuses a request that uses
    /// attributes of two buckets, as all requests on a chain do. The first request of an operation therefore uses two attributes as well,
    /// so that it fails at once instead of at the first collision. On a device, where an object is in one place, that has no effect.
    fn first_request(self, builder: RequestBuilder, slot: u32) -> RequestBuilder {
        if self.object < FIRST_SPREAD_OBJECT { builder } else { builder.get(vec![lock_of(!slot)]) }
    }

    /// The slot of a name: FNV-1a, followed by the mix of SplitMix64, so that every bit of the name influences every bit of the number.
    pub fn slot(self, name: &[u8]) -> u32 {
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed >> 32) >> (32 - self.bits.min(32))) as u32
    }
}

fn names_at(slot: u32) -> AttributeName {
    AttributeName::new(NAMES_PAGE, slot)
}

fn linked_at(slot: NonZeroU32) -> AttributeName {
    AttributeName::new(LINKED_LIST_PAGE, slot.get())
}

fn lock_of(slot: u32) -> AttributeName {
    AttributeName::new(LOCKS_PAGE, slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spread_over_all_slots() {
        let directory = Directory { bits: 8, ..Directory::new(ObjectId(1)) };
        let mut counts = [0_u32; 256];
        for number in 0..25_600_u32 {
            counts[directory.slot(format!("file-{number}").as_bytes()) as usize] += 1;
        }
        // 100 each, within five standard deviations.
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
        assert_eq!(Directory { bits: 0, ..directory }.slot(b"anything"), 0);
    }

    /// A directory written by another version must be readable.
    #[test]
    fn a_name_has_its_slot_for_ever() {
        let directory = Directory::new(ObjectId(1));
        assert_eq!(directory.slot(b""), 0xf52a_15e8);
        assert_eq!(directory.slot(b"braid"), 0x4adf_cc77);
    }
}
