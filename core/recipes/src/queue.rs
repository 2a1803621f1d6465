//! A work queue: items that many put in, and many others take out to work on (device atomics, section 6.2). No order among items.
//!
//! The queue is one object. An item is two attributes of the same number, which its producer draws by lot: its *state* and what is to be done. The
//! length of a state tells what it is, so that a list of the page of states says which items are free.
//!
//! ```text
//!            put                       claim                            finish
//!    ∅ ───────────────▶ fresh ───────────────────────▶ claimed ─────────────────────────▶ ∅
//!     compare ∅ → fresh   ▲    compare (free, t) →     │  ▲  │ ▲  compare claimed → ∅
//!     if swapped: item,   │      (claimed, t + 1,      │  │  │ │  if swapped: item := ∅, and the results
//!       bell + 1          │      consumer, ticket, 0)  │  └──┘ │
//!                         │                            │ renew │ take over: the state has not changed for a lease
//!                         └── give back: (free, t) ◀───┘ b→b+1 │ compare (claimed, t, …) → (claimed, t + 1, another …)
//!                                                              └───
//!    claim:  list states from a random number on; get those seen claimed, and the bell           one request
//!            compare a free one, chosen by lot → claimed; get the item                           one request
//!            nothing free: wait until the bell changes, or a claim's lease is over
//! ```
//!
//! Every arrow is one request, which is done as a whole or not at all. So a producer that dies leaves an item or nothing; a consumer that dies leaves a claim
//! that does not change any more.
//!
//! *Leases* need no common clock: whoever finds an item claimed remembers its state and when it saw it ([`Watch`]); if it is the same a lease
//! later, by its own clock, the claim is taken over. Who works longer than that renews its claim in time. A clock that runs fast, or a consumer that
//! stands still, costs a claim, and nothing else: all that a consumer does with an item compares the state with its own claim.
//!
//! Consumers begin at random places, and items lie at random numbers: so they rarely fight for the same item.
//!
//! # What holds
//!
//! - *An item has one claim at a time*: a claim begins by a comparison with the state before it, whole.
//! - *Tokens rise*: an item's claims have the numbers 1, 2, 3 …; who keeps the highest that it saw can refuse what is late ([`Claimed::token`]).
//! - *Who lost its claim can't finish*: finishing compares the claim. What it sets at the same time on the queue's object happens exactly once for
//!   each item, whatever happens to consumers. What consumers do elsewhere may happen again after a death: that is what tokens are for.
//! - *No item is lost*: an item goes only with the request that finishes it.
//! - *What is finished stays so*: a comparison with a state that is gone never holds.
//! - *An operation happens once*: see [`idempotency_record`](crate::idempotency record) for how one whose answer was lost finds out.
//!
//! # What does not
//!
//! Items have no order, and none is promised to be next: but each claim that looks begins anywhere, so none waits for ever by design. An item that kills every
//! consumer comes back each time: its token tells how often. Not more than [`WATCHED_MAX`] claims are watched by a consumer at once; those
//! of the living drop out, and others come in.

mod claim;
mod hold;
mod put;
mod state;

pub use claim::{Claim, ClaimEnd, WATCHED_MAX, Watch};
pub use hold::{Finish, Finished, GiveBack, Renew, Renewed};
pub use put::Put;

use crate::idempotency_record::IdempotencyRecord;
use braid_base::ObjectId;
use braid_wire::{AttributeName, SetAttribute};
use bytes::Bytes;
use std::time::Duration;

/// How items stand.
pub const STATES_PAGE: u32 = 0x0003_0001;
/// What is to be done.
pub const ITEMS_PAGE: u32 = 0x0003_0002;
/// Counts what became free to take.
pub const BELL: AttributeName = AttributeName::new(0x0003_0003, 0);
/// The most bytes of an item.
pub const ITEM_BYTES_MAX: usize = braid_base::limits::ATTRIBUTE_BYTES_MAX - TICKET_BYTES;

/// Before each item stands its producer's ticket, so that it is told from another at the same number.
const TICKET_BYTES: usize = 8;

/// A queue, as one client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Where it is; the object must be there, and have no other queue.
    pub object: ObjectId,
    /// How long a claim may stay as it is before others take it over. The same for all.
    pub lease: Duration,
    /// Where this client's operations leave word that they have happened.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl Queue {
    /// The queue in this object, without an idempotency record.
    pub fn new(object: ObjectId, lease: Duration) -> Queue {
        Queue { object, lease, idempotency_record: None }
    }

    /// Puts an item in.
    pub fn put(self, item: Bytes) -> Put {
        Put::new(self, item)
    }

    /// Takes an item to work on. Waits for one so long at most. `watch` is what the last claim gave back, or a new one.
    pub fn claim(self, consumer: u64, watch: Watch, patience: Duration) -> Claim {
        Claim::new(self, consumer, watch, patience)
    }

    /// Goes on working. Tries for half a lease; who begins within the other half knows in time.
    pub fn renew(self, claimed: Claimed) -> Renew {
        Renew::new(self, claimed)
    }

    /// Is through with an item. `results` are set on the queue's object if, and only if, the claim still holds.
    pub fn finish(self, claimed: Claimed, results: Vec<SetAttribute>) -> Finish {
        Finish::new(self, claimed, results)
    }

    /// Leaves an item to others. Tries for half a lease.
    pub fn give_back(self, claimed: Claimed) -> GiveBack {
        GiveBack::new(self, claimed)
    }
}

/// An item's number. After an item is finished, another may come to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item(pub u32);

/// An item that a consumer works on, as long as its claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Which.
    pub item: Item,
    /// How many claims of this item there were, this one included. It tells later claims from earlier ones wherever work is done.
    pub token: u64,
    /// What is to be done.
    pub work: Bytes,
    /// The producer's ticket.
    of: Bytes,
    claim: state::Claim,
}

fn state_of(item: Item) -> AttributeName {
    AttributeName::new(STATES_PAGE, item.0)
}

fn work_of(item: Item) -> AttributeName {
    AttributeName::new(ITEMS_PAGE, item.0)
}

/// An item's ticket and what is to be done.
fn parted(value: &Bytes) -> Option<(Bytes, Bytes)> {
    (value.len() >= TICKET_BYTES).then(|| (value.slice(..TICKET_BYTES), value.slice(TICKET_BYTES..)))
}
