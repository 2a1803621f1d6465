//! Word that an operation has happened, for those who did not hear the answer.
//!
//! A request that was not answered may have been done or not. Who looks again finds what is there now, and that may be another's work:
//! a name that is not in the directory was never inserted, or was, and has been removed since. So a client may have an attribute of its own in
//! the structure's object, its *receipt*. Each operation writes its ticket there in the same request in which it takes effect:
//!
//! ```text
//!   client                                    device
//!     │  compare and swap … → …                 │
//!     │  if swapped: receipt := ticket          │   both, or neither
//!     │ ──────────────────────────────────────▶ │
//!     │            (no answer)                  │
//!     │  get receipt                            │
//!     │ ──────────────────────────────────────▶ │
//!     │ ◀─────────────────── ticket: it is done; anything else: it is not, and never will be
//! ```
//!
//! With a receipt no operation of this crate ends in doubt while the device answers at all. Without one it is a few bytes less to write, and an
//! operation says that it does not know ([`Trouble::Unknown`](crate::Trouble)) in the rare case that it can't find out.

use crate::asking::set;
use braid_base::Rng;
use braid_wire::{AttributeName, SetAttribute};
use bytes::Bytes;

/// The page of all receipts in a structure's object.
pub const RECEIPTS_PAGE: u32 = 0x0001_0000;

/// A client's receipt in an object: a number that no other client uses there, not even one that is dead, since its last request may be under way
/// yet: who starts anew takes another. It serves one operation at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(pub u32);

impl Receipt {
    /// The attribute. Who will not come back may set it to nothing.
    pub fn attribute(self) -> AttributeName {
        AttributeName::new(RECEIPTS_PAGE, self.0)
    }
}

/// One operation's ticket, and where it is written when the operation takes effect.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    receipt: Option<Receipt>,
    ticket: Bytes,
}

impl Ticket {
    /// One that nobody else has, as far as dice go.
    pub(crate) fn draw(receipt: Option<Receipt>, dice: &mut Rng) -> Ticket {
        Ticket { receipt, ticket: Bytes::copy_from_slice(&dice.next_u64().to_be_bytes()) }
    }

    /// It, as a value.
    pub(crate) fn value(&self) -> &Bytes {
        &self.ticket
    }

    /// What the request that takes effect sets, too.
    pub(crate) fn sets(&self) -> Vec<SetAttribute> {
        self.receipt.iter().map(|receipt| set(receipt.attribute(), &self.ticket)).collect()
    }

    /// What to get in order to find out, if there is a receipt.
    pub(crate) fn gets(&self) -> Vec<AttributeName> {
        self.receipt.iter().map(|receipt| receipt.attribute()).collect()
    }

    /// Whether the operation has taken effect, by the values of these; `None` without a receipt.
    pub(crate) fn tells(&self, values: &[Bytes]) -> Option<bool> {
        self.receipt.map(|_| values.first() == Some(&self.ticket))
    }
}
