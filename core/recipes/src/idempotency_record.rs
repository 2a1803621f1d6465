//! Word that an operation has happened, for those who did not hear the answer.
//!
//! A request that was not answered may have been done or not. Who looks again finds what is there now, and that may be another's work:
//! a name that is not in the directory was never inserted, or was, and has been removed since. So a client may have an attribute of its own in
//! the structure's object, its *idempotency record*. Each operation writes its ticket there in the same request in which it takes effect:
//!
//! ```text
//!   client                                    device
//!     │  compare and swap … → …                 │
//!     │  if swapped: idempotency record := ticket          │   both, or neither
//!     │ ──────────────────────────────────────▶ │
//!     │            (no answer)                  │
//!     │  get idempotency record                            │
//!     │ ──────────────────────────────────────▶ │
//!     │ ◀─────────────────── ticket: it is done; anything else: it is not, and never will be
//! ```
//!
//! With an idempotency record no operation of this crate ends in doubt while the device answers at all. Without one it is a few bytes less to write, and an
//! operation says that it does not know ([`RequestFailure::Unknown`](crate::Trouble)) in the rare case that it can't find out.

use crate::asking::set;
use braid_base::Rng;
use braid_wire::{AttributeName, SetAttribute};
use bytes::Bytes;

/// The page of all idempotency records in a structure's object.
pub const RECEIPTS_PAGE: u32 = 0x0001_0000;

/// A client's idempotency record in an object: a number that no other client uses there, not even one that is dead, since its last request may be under way
/// yet: who starts anew takes another. It serves one operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord(pub u32);

impl IdempotencyRecord {
    /// The attribute. Who will not come back may set it to nothing.
    pub fn attribute(self) -> AttributeName {
        AttributeName::new(RECEIPTS_PAGE, self.0)
    }
}

/// One operation's ticket, and where it is written when the operation takes effect.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    idempotency_record: Option<IdempotencyRecord>,
    ticket: Bytes,
}

impl Ticket {
    /// One that nobody else has, as far as random source go.
    pub(crate) fn draw(idempotency_record: Option<IdempotencyRecord>, rng: &mut Rng) -> Ticket {
        Ticket { idempotency_record, ticket: Bytes::copy_from_slice(&rng.next_u64().to_be_bytes()) }
    }

    /// It, as a value.
    pub(crate) fn value(&self) -> &Bytes {
        &self.ticket
    }

    /// What the request that takes effect sets, too.
    pub(crate) fn sets(&self) -> Vec<SetAttribute> {
        self.idempotency_record
            .iter()
            .map(|idempotency_record| set(idempotency_record.attribute(), &self.ticket))
            .collect()
    }

    /// What to get in order to find out, if there is an idempotency record.
    pub(crate) fn gets(&self) -> Vec<AttributeName> {
        self.idempotency_record.iter().map(|idempotency_record| idempotency_record.attribute()).collect()
    }

    /// Whether the operation has taken effect, by the values of these; `None` without an idempotency record.
    pub(crate) fn tells(&self, values: &[Bytes]) -> Option<bool> {
        self.idempotency_record.map(|_| values.first() == Some(&self.ticket))
    }
}
