//! A linked list that many clients change at once without locks (device-atomics paper, section 6.1).
//!
//! The list is one object; its nodes are attributes. Each node has a number that no other node of the list has or had, and two attributes:
//! its *link* (8 bytes) and its *item* (its content, which never changes). Node 0 is the head: it has only a link. An undefined head means
//! that the list ends there, so an object without attributes is an empty list.
//!
//! ```text
//!                 ┌─────────┐      ┌─────────┐      ┌─────────┐
//!   link 0 ─────▶ │ 7: 3    │ ───▶ │ 3: 9 ×  │ ───▶ │ 9: 0    │      × removed (mark bit), not yet unlinked
//!   (the head)    │ "apple" │      │ "pear"  │      │ "plum"  │
//!                 └─────────┘      └─────────┘      └─────────┘
//!
//!   link = mark bit (1) | next node's number (63)
//!
//!   insert behind p:   n := fetch-and-add the counter                                        one request, with link p
//!                      compare link p: (unmarked, next) → (unmarked, n)                      one request: all of it
//!                        if swapped: link n := (unmarked, next), item n := item                           or nothing
//!                      else: p is marked or gone → it is gone; p has another next → again
//!
//!   remove n:          compare link n: (unmarked, next) → (marked, next)                     n is out from here on
//!   (Harris)           find p with link p = (unmarked, n)
//!                      compare link p: (unmarked, n) → (unmarked, next)                      one request: all of it
//!                        if swapped: link n := ∅, item n := ∅                                             or nothing
//!                      (both comparisons go in one request if p is known)
//! ```
//!
//! An operation that inserts in order or unlinks a node also unlinks marked nodes on its way. So a node that a crashed client left marked
//! is unlinked by a later operation.
//!
//! Differences from the paper: the paper makes nodes objects, first sets the new node's pointer, and then changes the node before it. Here
//! both happen in one request, so that a client that crashes leaves no unreachable node. (It may leave a number unused.) The paper lets the
//! device choose the numbers of its objects; here a counter provides them.
//!
//! What it guarantees, and what not, is in `docs/recipes/linked-list.md`.

mod insert;
mod remove;
mod search;
mod walk;

pub use insert::{Inserted, ListPosition};
pub use remove::Removed;
pub use walk::{Cursor, Walked};

use crate::idempotency_record::IdempotencyRecord;
use crate::procedure::RequestFailure;
use crate::request_builder::{DAMAGED, RequestBuilder};
use braid_base::ObjectId;
use braid_wire::AttributeName;
use bytes::Bytes;

/// The first page of links. The page of a node's link is given by the upper half of its number.
pub const LINKS_PAGE: u32 = 0x1000_0000;
/// The first page of items, likewise.
pub const ITEMS_PAGE: u32 = 0x2000_0000;
/// The number of nodes so far.
pub const NODE_COUNTER: AttributeName = AttributeName::new(0x0004_0000, 0);
/// The most bytes of an item. Larger contents belong in an object of their own.
pub const ITEM_BYTES_MAX: usize = 4096;

/// A list, as one client uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The object of the list; it must exist, and contain no other list.
    pub object: ObjectId,
    /// Where this client's operations record that they have taken effect.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl List {
    /// The list in this object, without an idempotency record.
    pub fn new(object: ObjectId) -> List {
        List { object, idempotency_record: None }
    }
}

/// A node's number, which no other node of its list has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

/// The number that stands for no node: behind the last node, or before the head.
const NONE: u64 = 0;
const HEAD: u64 = 0;
const NUMBER_MAX: u64 = (1 << 60) - 1;

fn link_name(node: u64) -> AttributeName {
    AttributeName::new(LINKS_PAGE + (node >> 32) as u32, node as u32)
}

fn item_name(node: u64) -> AttributeName {
    AttributeName::new(ITEMS_PAGE + (node >> 32) as u32, node as u32)
}

/// A node's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    removed: bool,
    next: u64,
}

impl Link {
    const MARK: u64 = 1 << 63;

    /// The link of a node that is not removed.
    fn to(next: u64) -> Link {
        Link { removed: false, next }
    }

    /// The link as a value of node `of`: an empty list's head is undefined, so that it need not be created.
    fn encode(self, of: u64) -> Bytes {
        if of == HEAD && self == Link::to(NONE) {
            return Bytes::new();
        }
        let mark = if self.removed { Link::MARK } else { 0 };
        Bytes::copy_from_slice(&(mark | self.next).to_be_bytes())
    }

    /// `None` if there is no such node (any more).
    fn decode(of: u64, value: &Bytes) -> Result<Option<Link>, RequestFailure> {
        if value.is_empty() {
            return Ok((of == HEAD).then_some(Link::to(NONE)));
        }
        let word = u64::from_be_bytes(value[..].try_into().map_err(|_| DAMAGED)?);
        let link = Link { removed: word & Link::MARK != 0, next: word & !Link::MARK };
        if link.next > NUMBER_MAX || link.next == of && of != HEAD || link.removed && of == HEAD {
            return Err(DAMAGED);
        }
        Ok(Some(link))
    }
}

/// Appends two commands that unlink a marked node and remove its attributes, if all comparisons before have held.
fn unlink(builder: RequestBuilder, before: u64, node: u64, next: u64) -> RequestBuilder {
    let (from, to) = (Link::to(node).encode(before), Link::to(next).encode(before));
    let gone = |name| crate::request_builder::set(name, &Bytes::new());
    builder.then_swap(link_name(before), &from, &to).then_set(vec![gone(link_name(node)), gone(item_name(node))])
}
