//! A work queue holds items of work: producers put items in, and consumers claim items to work on them (device-atomics paper, section 6.2).
//! Items have no order.
//!
//! The queue is one object. An item is two attributes with the same number, which its producer draws at random: its *state*, and its work.
//! The length of the state's value encodes which state it is, so a list of the page of states shows which items are free.
//!
//! ```text
//!            put                       claim                            finish
//!    ∅ ───────────────▶ fresh ───────────────────────▶ claimed ─────────────────────────▶ ∅
//!     compare ∅ → fresh   ▲    compare (free, t) →     │  ▲  │ ▲  compare claimed → ∅
//!     if swapped: item,   │      (claimed, t + 1,      │  │  │ │  if swapped: item := ∅, and the results
//!       bell + 1          │      consumer, nonce, 0)  │  └──┘ │
//!                         │                            │ renew │ take over: the state has not changed for a lease
//!                         └── give back: (free, t) ◀───┘ b→b+1 │ compare (claimed, t, …) → (claimed, t + 1, another …)
//!                                                              └───
//!    claim:  list states from a random number on; get those seen claimed, and the bell           one request
//!            compare a free one, chosen at random → claimed; get the item                        one request
//!            nothing free: wait until the bell changes, or a claim's lease expires
//! ```
//!
//! Every arrow is one request, which is executed as a whole or not at all. So a producer that crashes leaves an item or nothing; a consumer
//! that crashes leaves a claim that does not change any more.
//!
//! *Leases* need no common clock. A consumer that finds an item claimed remembers its state and when it saw it ([`Watch`]); if the state is
//! the same one lease later, by the consumer's own clock, it takes the claim over. A consumer that works for longer than a lease renews its
//! claim in time. If a clock runs fast, or a consumer is suspended, a claim is lost, but no harm is done: everything that a consumer does
//! with an item compares the state with its own claim.
//!
//! Consumers begin at random positions, and items have random numbers, so two consumers rarely compete for the same item.
//!
//! What it guarantees, and what not, is in `docs/recipes/work-queue.md`.

mod claim;
mod hold;
mod put;
mod state;

pub use claim::{ClaimEnd, WATCHED_MAX, Watch};
pub use hold::{Finished, Renewed};

use crate::idempotency_record::IdempotencyRecord;
use braid_base::ObjectId;
use braid_wire::AttributeName;
use bytes::Bytes;
use std::time::Duration;

pub const STATES_PAGE: u32 = 0x0003_0001;
/// The page of items' work.
pub const ITEMS_PAGE: u32 = 0x0003_0002;
/// Counts the items that became free.
pub const BELL: AttributeName = AttributeName::new(0x0003_0003, 0);
/// The most bytes of an item.
pub const ITEM_BYTES_MAX: usize = braid_base::limits::ATTRIBUTE_BYTES_MAX - TICKET_BYTES;

/// An item's value begins with its producer's nonce, which distinguishes it from another item of the same number.
const TICKET_BYTES: usize = 8;

/// A queue, as one client uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The object of the queue; it must exist, and contain no other queue.
    pub object: ObjectId,
    /// How long a claim may stay unchanged before other consumers take it over. All clients must use the same value.
    pub lease: Duration,
    /// Where this client's operations record that they have taken effect.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl Queue {
    /// The queue in this object, without an idempotency record.
    pub fn new(object: ObjectId, lease: Duration) -> Queue {
        Queue { object, lease, idempotency_record: None }
    }
}

/// An item's number. After an item is finished, another item may get its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item(pub u32);

/// An item that a consumer works on, as long as its claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub item: Item,
    /// The number of claims of this item, including this one. It distinguishes later claims from earlier ones wherever work is done.
    pub token: u64,
    /// The work to be done.
    pub work: Bytes,
    /// The producer's nonce.
    of: Bytes,
    claim: state::Claim,
}

fn state_of(item: Item) -> AttributeName {
    AttributeName::new(STATES_PAGE, item.0)
}

fn work_of(item: Item) -> AttributeName {
    AttributeName::new(ITEMS_PAGE, item.0)
}

/// Splits an item's value into its nonce and its work.
fn parted(value: &Bytes) -> Option<(Bytes, Bytes)> {
    (value.len() >= TICKET_BYTES).then(|| (value.slice(..TICKET_BYTES), value.slice(TICKET_BYTES..)))
}
