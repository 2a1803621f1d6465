//! Inserting an item. The drawing in [`list`](super) shows the steps.

use super::search::Search;
use super::{HEAD, ITEM_BYTES_MAX, Link, List, NODE_COUNTER, NONE, NUMBER_MAX, Node, item_name, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, set};
use crate::requester::{Outcome, operation};
use braid_wire::ObjectFailure;
use bytes::Bytes;

/// The position of a new item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPosition {
    /// Before all others.
    First,
    /// Directly behind this node.
    Behind(Node),
    /// Before the first item that is greater, by its bytes. If all items of a list were inserted so, they are sorted.
    InOrder,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The item was inserted as this node.
    Inserted(Node),
    /// The node to insert behind is not in the list (any more).
    PlaceGone,
}

impl List {
    /// Inserts an item. Two round trips if the position is known, and one more for each concurrent change there.
    pub fn insert(self, place: ListPosition, item: Bytes) -> Operation<Result<Inserted, RequestFailure>> {
        operation(move |mut requester| async move {
            if item.len() > ITEM_BYTES_MAX {
                return Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
            }
            let nonce = requester.draw(|rng| Nonce::draw(self.idempotency_record, rng));
            let builder = || RequestBuilder::of(self.object);
            let mut search = Search::from(self, None);
            let mut before = match place {
                ListPosition::First | ListPosition::InOrder => HEAD,
                ListPosition::Behind(node) => node.0,
            };
            // A number that may have been drawn without an answer is left unused.
            let draw = builder().then_add(NODE_COUNTER, 1);
            let is_in_order = place == ListPosition::InOrder;
            let draw = if is_in_order { draw } else { draw.get(vec![link_name(before)]) };
            let results = requester.read(draw).await?;
            let count = results.added(0)?.and_then(|count| u64::try_from(count).ok()).ok_or(DAMAGED)?;
            if count >= NUMBER_MAX {
                return Err(RequestFailure::Refused(ObjectFailure::NoSpace));
            }
            let number = count + 1;
            let mut link = if is_in_order { None } else { Link::decode(before, &results.values(1, 1)?[0])? };
            loop {
                let next = match link {
                    _ if is_in_order => {
                        let found = search.find(&mut requester, NONE, |_, other| other > item).await?;
                        before = found.0;
                        found.1
                    }
                    Some(Link { removed: false, next }) => next,
                    _ => return Ok(Inserted::PlaceGone),
                };
                let (from, to) = (Link::to(next).encode(before), Link::to(number).encode(before));
                let mut sets =
                    vec![set(link_name(number), &Link::to(next).encode(number)), set(item_name(number), &item)];
                sets.extend(nonce.sets());
                let insert = builder().swap(link_name(before), &from, &to).then_set(sets);
                let inquiry = builder().get(vec![link_name(number)]).get(vec![link_name(before)]).get(nonce.gets());
                let (happened, value) = match requester.change(insert, inquiry).await? {
                    Outcome::Answered(results) => results.compared(0)?.ok_or(DAMAGED)?,
                    Outcome::Inquired(results) => inquired(&nonce, &results).ok_or(RequestFailure::Unknown)?,
                };
                if happened {
                    return Ok(Inserted::Inserted(Node(number)));
                }
                link = Link::decode(before, &value)?;
            }
        })
    }
}

/// Whether the node was inserted, if that can be determined, and the link of the node before it. No other operation has the number: if its
/// node is there, this operation has inserted it. If not, it may have been removed since.
fn inquired(nonce: &Nonce, results: &Results) -> Option<(bool, Bytes)> {
    let there = !results.values(0, 1).ok()?[0].is_empty();
    let told = nonce.tells(results.values(2, nonce.gets().len()).ok()?);
    Some((there || told?, results.values(1, 1).ok()?[0].clone()))
}
