//! Idempotency records, by which a client learns that an operation has taken effect even if it did not receive the answer.
//!
//! A request without an answer may have been executed or not. Reading the present state does not always tell, since other clients may have
//! changed it: a name that is not in the directory was never inserted, or was inserted and removed since. So a client may have an attribute
//! of its own in the structure's object, its *idempotency record*. Each operation writes its nonce there in the same request in which it
//! takes effect:
//!
//! ```text
//!   client                                               device
//!     │  compare and swap … → …                            │
//!     │  if swapped: idempotency record := nonce           │   both, or neither
//!     │ ─────────────────────────────────────────────────▶ │
//!     │            (no answer)                             │
//!     │  get idempotency record                            │
//!     │ ─────────────────────────────────────────────────▶ │
//!     │ ◀───────────────── nonce: it is done; anything else: it is not, and never will be
//! ```
//!
//! With an idempotency record, the outcome of every operation of this crate becomes known as soon as the device answers. Without one, an
//! operation writes a few bytes less, and reports [`RequestFailure::Unknown`](crate::RequestFailure::Unknown) in the rare case that it
//! cannot determine its outcome.

use crate::request_builder::set;
use braid_base::Rng;
use braid_wire::{AttributeName, SetAttribute};
use bytes::Bytes;

/// The page of all idempotency records in a structure's object.
pub const IDEMPOTENCY_RECORDS_PAGE: u32 = 0x0001_0000;

/// A client's idempotency record in an object. The number must not be used there by any other client, nor by an earlier start of this one,
/// whose last request may still be on its way: a program that restarts takes another number. A record serves one operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord(pub u32);

impl IdempotencyRecord {
    /// The attribute. A client that will not return may clear it.
    pub fn attribute(self) -> AttributeName {
        AttributeName::new(IDEMPOTENCY_RECORDS_PAGE, self.0)
    }
}

/// One operation's nonce, and where it is written when the operation takes effect.
#[derive(Clone, Debug)]
pub(crate) struct Nonce {
    idempotency_record: Option<IdempotencyRecord>,
    nonce: Bytes,
}

impl Nonce {
    /// A random nonce, unique for practical purposes.
    pub(crate) fn draw(idempotency_record: Option<IdempotencyRecord>, rng: &mut Rng) -> Nonce {
        Nonce { idempotency_record, nonce: Bytes::copy_from_slice(&rng.next_u64().to_be_bytes()) }
    }

    pub(crate) fn value(&self) -> &Bytes {
        &self.nonce
    }

    /// What the request that takes effect must also set.
    pub(crate) fn sets(&self) -> Vec<SetAttribute> {
        self.idempotency_record
            .iter()
            .map(|idempotency_record| set(idempotency_record.attribute(), &self.nonce))
            .collect()
    }

    /// What to read to determine the outcome; nothing without an idempotency record.
    pub(crate) fn gets(&self) -> Vec<AttributeName> {
        self.idempotency_record.iter().map(|idempotency_record| idempotency_record.attribute()).collect()
    }

    /// Whether the operation has taken effect, given the values of [`Nonce::gets`]; `None` without an idempotency record.
    pub(crate) fn tells(&self, values: &[Bytes]) -> Option<bool> {
        self.idempotency_record.map(|_| values.first() == Some(&self.nonce))
    }
}
