//! A directory: names and the objects that they stand for, found by hashing (device atomics, section 7.1).
//!
//! A directory is one object, its entries are attributes. The hash of a name is a number on the page of names; who comes
//! there second is chained behind, on the page of the linked list. No attributes at all: an empty directory.
//!
//! ```text
//!     page of names                      page of the linked list           page of locks        next free slot
//!   ┌──────────────────────┐           ┌──────────────────────┐          ┌──────────────┐      ┌──────────┐
//!   │ 56 0 · "dirent-56" o9│        12 │ ·  0 "dirent-20"  o7 │          │              │      │    14    │
//!   │455 ×12 "dirent-78" o3│──────▶    └──────────────────────┘          │455  whoever  │      └──────────┘
//!   └──────────────────────┘                                             └──────────────┘
//!
//!   an entry: mark bit (1) version (31) next (32) │ object (8 bytes) │ name: 16 bytes and the name
//!
//!   fast     insert:  compare names[hash]: ∅ → (0, v, 0, object, name)                     one request
//!            remove:  compare names[hash]: (0, v, 0, object, name) → ∅                     one request
//!            look up: get names[hash]; while it is another name: get list[next]            one request, and one for each step
//!
//!   slow     the slot is taken by another name, or something is chained behind it:
//!     lock      compare locks[hash]: free → ticket, if swapped: compare names[hash]: entry → entry with mark,
//!               if swapped: fetch-and-add next free slot                                   one request
//!     walk      get list[next] …                                                           one for each step
//!     apply     compare locks[hash] with ticket, names[hash] with what was seen, list[slot] with ∅;
//!               if all hold: names[hash] := …, list[slot] := …, locks[hash] := free (∅
//!               without a chain), no mark                                                  one request: all of it or nothing
//! ```
//!
//! A slot that has a chain keeps its lock's attribute: as a lock that nobody has. So whoever takes that makes nothing longer, and a directory that is full
//! can be emptied.
//!
//! The mark keeps those on the fast path away while somebody works at the chain: an entry with a mark is not equal to what they compare it with,
//! and they go and wait for the lock. A lock that does not change for a *lease* is broken: by another's compare-and-swap, from the dead one's ticket
//! to its own. The mark stays, and the chain is as it was, since the dead one has changed nothing or all.
//!
//! # What differs from the paper
//!
//! - The paper changes the chain step by step, under lock and mark. Here the whole change, the mark's end and the unlock are one request, which is
//!   done only if the lock is still held and the slot is as it was seen. So a client that dies, or is so late that its lock was broken, leaves
//!   nothing half done.
//! - The entry of a slot carries the chain's *version*: every change of the chain raises it (the first is drawn by lot). Who walks gets it again with every
//!   step, and begins anew if it has changed. So what is read of a chain is as it was at one moment, and slots of the linked list can be used again
//!   at once: the counter wraps around, and a slot that is taken is stepped over.
//! - Removing the first entry moves the second into its place, so that a slot has a name, or nothing.
//!
//! # What holds
//!
//! - *A name is there once*: whoever inserts compares the slot with empty, or has seen the whole chain, at the version that it then compares with.
//! - *No half-inserted name*: an entry becomes visible in the one request that makes it.
//! - *A chain is changed by its lock's holder only*: the request that changes it compares the lock.
//! - *Where there is a mark there is a lock*: both go in one request. So nothing stays blocked when a client dies.
//! - *What is removed is what was meant*: the comparison is with the whole entry, the object included. Who removes a name that was removed and
//!   inserted again for another object is told so ([`Changed::Other`]).
//! - *Operations take effect at one moment* between their begin and end, once; without a [idempotency record](crate::idempotency record) they may end in doubt.
//!
//! # What does not
//!
//! A [page of names](Names) is no snapshot of the directory: a name that is there throughout is told once, one that comes or goes meanwhile is told or not.
//! An object of an attribute volume has room for some hundred names, and one that an attribute volume spreads can't be a directory: it is refused at the first step
//! ([`NotTogether`](braid_wire::ObjectFailure::NotTogether)). Who chooses names on purpose so that their hashes collide makes one long chain. A directory can't be removed only if it is
//! empty.

mod chain;
mod change;
mod entry;
mod lookup;
mod names;

pub use change::{Change, Changed, Expected};
pub use entry::{Entry, NAME_BYTES_MAX};
pub use lookup::Lookup;
pub use names::{Cursor, Names, NamesPage};

use crate::asking::Asking;
use crate::idempotency_record::IdempotencyRecord;
use braid_base::ObjectId;
use braid_wire::AttributeName;
use bytes::Bytes;
use std::num::NonZeroU32;
use std::time::Duration;

/// The hash table.
pub const NAMES_PAGE: u32 = 0x0002_0001;
/// Entries that were not the first in their slot.
pub const LINKED_LIST_PAGE: u32 = 0x0002_0002;
/// A lock for each slot of the hash table.
pub const LOCKS_PAGE: u32 = 0x0002_0003;
/// How many slots of the linked list were given out: the next free one follows from it.
pub const NEXT_FREE: AttributeName = AttributeName::new(0x0002_0004, 0);

/// Attribute volumes spread the attributes of objects from here on.
const SPREAD_IN_MIRRORS: ObjectId = ObjectId(1 << 63);

/// A directory, as one client sees it. `bits` and `linked` must be the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Where it is; the object must be there, and have no other directory.
    pub object: ObjectId,
    /// The hash table has two to the power of this many slots; 32 at most.
    pub bits: u32,
    /// The linked list has so many slots.
    pub linked: NonZeroU32,
    /// A lock that does not change for so long is taken for one of a client that is dead. One that is not loses nothing but time.
    pub lease: Duration,
    /// Where this client's operations leave word that they have happened.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl Directory {
    /// The directory in this object, as large as can be, without an idempotency record.
    pub fn new(object: ObjectId) -> Directory {
        Directory { object, bits: 32, linked: NonZeroU32::MAX, lease: Duration::from_secs(2), idempotency_record: None }
    }

    /// Finds what a name stands for.
    pub fn look_up(self, name: Bytes) -> Lookup {
        Lookup::new(self, name)
    }

    /// Gives an object a name, if nothing has it.
    pub fn insert(self, name: Bytes, object: ObjectId) -> Change {
        Change::insert(self, name, object)
    }

    /// Takes a name away.
    pub fn remove(self, name: Bytes, expected: Expected) -> Change {
        Change::remove(self, name, expected)
    }

    /// Tells the names, a page at a time.
    pub fn names(self, after: Option<Cursor>, most: u32) -> Names {
        Names::new(self, after, most)
    }

    /// An attribute volume deals the attributes of such an object to its buckets by their numbers, and takes no request that names two of them, as all about a
    /// chain do. That shall be found out with the first request, not with the first collision: so the first one names two, too. A device, where
    /// all of an object is in one place, does not mind.
    fn first_asking(self, asking: Asking, slot: u32) -> Asking {
        if self.object < SPREAD_IN_MIRRORS { asking } else { asking.get(vec![lock_of(!slot)]) }
    }

    /// Where a name belongs: FNV-1a, and the mix of SplitMix64 behind it, so that every bit of the name counts in every bit of the number.
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
        // 100 each, plus or minus five standard deviations.
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
        assert_eq!(Directory { bits: 0, ..directory }.slot(b"anything"), 0);
    }

    /// A directory that was written by another version must be found again.
    #[test]
    fn a_name_has_its_slot_for_ever() {
        let directory = Directory::new(ObjectId(1));
        assert_eq!(directory.slot(b""), 0xf52a_15e8);
        assert_eq!(directory.slot(b"braid"), 0x4adf_cc77);
    }
}
