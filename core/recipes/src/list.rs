//! A linked list that many change at once, without locks (device atomics, section 6.1).
//!
//! The list is one object; its nodes are attributes. A node has a number that no other node of the list has or had, and two attributes:
//! its *link* (8 bytes) and its *item* (what it is for; never changed). Node 0 is the head: it has a link only, and an undefined one is the
//! end. So an object without attributes is an empty list.
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
//! Whoever inserts in order or unlinks also unlinks marked nodes that it comes by; so what a client that died left marked goes with the next.
//!
//! The paper makes nodes objects, sets up the new node's pointer first and then changes the one before it. Here both happen in one request, so
//! that a client that dies leaves no node that nobody points to. (It may leave a number unused.) One object per node is not needed for that the
//! device chooses numbers: a counter does.
//!
//! # What holds
//!
//! - *A number is one node*: the counter gives each once (2^60 of them), so a pointer never comes to mean another node. A link may go back to a
//!   value that it had, and that does no harm: what a comparison needs to be true is only that these two are neighbours now.
//! - *A marked link stays as it is*: every comparison is with an unmarked one. So nothing is inserted behind a removed node, and what a marked node
//!   points to can't be unlinked before it.
//! - *What is linked is there*: a node's attributes go in the request that unlinks it. A link that is there points to a node that is there.
//! - *Order stays*: two nodes that are both in the list never change places.
//! - *An operation happens once*, at its comparison: see [`idempotency_record`](crate::idempotency record) for how an operation whose answer was lost finds out.
//!
//! Walking the list ([`Walk`]) needs no lock and no snapshot: every item that is in the list throughout is told, and no item
//! twice; one that comes or goes meanwhile is told or not. Those that are in the list at the end are told in its order.
//!
//! # What does not
//!
//! A walk is no snapshot: it may tell an item that was inserted after another was removed. Progress is lock-free, not wait-free: somebody always
//! gets on, and who always loses may try for ever. Finding a place takes a round trip for every few nodes.

mod insert;
mod remove;
mod search;
mod walk;

pub use insert::{Insert, Inserted, ListPosition};
pub use remove::{Remove, Removed};
pub use walk::{Cursor, Walk, Walked};

use crate::asking::{Asking, DAMAGED};
use crate::idempotency_record::IdempotencyRecord;
use crate::procedure::RequestFailure;
use braid_base::ObjectId;
use braid_wire::AttributeName;
use bytes::Bytes;

/// Links lie on pages from this one on, by the upper half of a node's number.
pub const LINKS_PAGE: u32 = 0x1000_0000;
/// Items likewise.
pub const ITEMS_PAGE: u32 = 0x2000_0000;
/// How many numbers were given to nodes.
pub const NODE_COUNTER: AttributeName = AttributeName::new(0x0004_0000, 0);
/// The most bytes of an item: more belongs into an object of its own.
pub const ITEM_BYTES_MAX: usize = 4096;

/// A list, as one client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Where it is; the object must be there, and have no other list.
    pub object: ObjectId,
    /// Where this client's operations leave word that they have happened.
    pub idempotency_record: Option<IdempotencyRecord>,
}

impl List {
    /// The list in this object, without an idempotency record.
    pub fn new(object: ObjectId) -> List {
        List { object, idempotency_record: None }
    }

    /// Inserts an item.
    pub fn insert(self, place: ListPosition, item: Bytes) -> Insert {
        Insert::new(self, place, item)
    }

    /// Removes a node. `before`: a node somewhere before it, to begin from when it is unlinked.
    pub fn remove(self, node: Node, before: Option<Node>) -> Remove {
        Remove::new(self, node, before)
    }

    /// Tells at most so many items, from where another walk has ended.
    pub fn walk(self, cursor: Cursor, most: usize) -> Walk {
        Walk::new(self, cursor, most)
    }
}

/// A node's number, which no other node of its list has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u64);

/// Behind the last node there is none, and the head is before the first.
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

    /// One of a node that is in.
    fn to(next: u64) -> Link {
        Link { removed: false, next }
    }

    /// As node `of` has it: an empty list's head is undefined, so that nobody needs to make it.
    fn encode(self, of: u64) -> Bytes {
        if of == HEAD && self == Link::to(NONE) {
            return Bytes::new();
        }
        let mark = if self.removed { Link::MARK } else { 0 };
        Bytes::copy_from_slice(&(mark | self.next).to_be_bytes())
    }

    /// `None`: there is no such node (any more).
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

/// Adds to a request what takes a marked node out of the chain, and its attributes with it, if all comparisons so far have held: two commands.
fn unlink(asking: Asking, before: u64, node: u64, next: u64) -> Asking {
    let (from, to) = (Link::to(node).encode(before), Link::to(next).encode(before));
    let gone = |name| crate::asking::set(name, &Bytes::new());
    asking.then_swap(link_name(before), &from, &to).then_set(vec![gone(link_name(node)), gone(item_name(node))])
}
