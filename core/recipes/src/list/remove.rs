//! Removing a node. The drawing in [`list`](super) shows the steps.

use super::search::{Found, Search};
use super::{HEAD, Link, List, Node, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results};
use crate::requester::{Outcome, operation};

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// This operation has removed the node.
    Removed,
    /// The node was not in the list, or another client has removed it.
    Gone,
}

impl List {
    /// Removes a node. `before` is a node somewhere before it, from which the search for its predecessor begins. Two round trips if the
    /// predecessor is found with the first request, which is the case if `before` is the predecessor. Otherwise the node is removed after
    /// two round trips, and unlinking it takes those of the search and one more.
    pub fn remove(self, node: Node, before: Option<Node>) -> Operation<Result<Removed, RequestFailure>> {
        operation(move |mut requester| async move {
            let nonce = requester.draw(|rng| Nonce::draw(self.idempotency_record, rng));
            let mut search = Search::from(self, before.filter(|before| *before != node));
            let node = node.0;
            if node == HEAD {
                return Ok(Removed::Gone);
            }
            // Reads the node, and the nodes around it to find its predecessor.
            let builder = RequestBuilder::of(self.object).get(vec![link_name(node)]).get(nonce.gets());
            let look = |search: &mut Search| search.look_around(node, builder.clone());
            let looked = |search: &mut Search, results: &Results| -> Result<_, RequestFailure> {
                let before = match search.go_on(results, 2, |other, _| other == node)? {
                    Found::Here { before, next } if next == node => Some(before),
                    _ => None,
                };
                Ok((results.values(0, 1)?[0].clone(), before))
            };
            let results = requester.read(look(&mut search)).await?;
            let (mut value, mut before) = looked(&mut search, &results)?;
            // Sets the mark: from then on it is removed. If the predecessor is known, the same request unlinks the node.
            loop {
                let Some(Link { removed: false, next }) = Link::decode(node, &value)? else { return Ok(Removed::Gone) };
                let to = Link { removed: true, next }.encode(node);
                let marks = RequestBuilder::of(self.object).swap(link_name(node), &value, &to).then_set(nonce.sets());
                let request = match before {
                    Some(before) => super::unlink(marks, before, node, next),
                    None => marks,
                };
                (value, before) = match requester.change(request, look(&mut search)).await? {
                    Outcome::Answered(results) => match results.compared(0)?.ok_or(DAMAGED)? {
                        (true, _) if before.is_some() && results.swapped(2)? => return Ok(Removed::Removed),
                        (true, _) => break,
                        (false, other) => (other, None),
                    },
                    Outcome::Inquired(results) => {
                        if has_happened(node, &nonce, &results).ok_or(RequestFailure::Unknown)? {
                            break;
                        }
                        looked(&mut search, &results)?
                    }
                };
            }
            // If that fails, another operation will unlink it.
            let _ = search.find(&mut requester, node, |_, _| false).await;
            Ok(Removed::Removed)
        })
    }
}

/// Whether the node was removed, if that can be determined. Without an idempotency record, a node that is still there was not removed; if it
/// is gone, this or another client may have removed it.
fn has_happened(node: u64, nonce: &Nonce, results: &Results) -> Option<bool> {
    let told = nonce.tells(results.values(1, nonce.gets().len()).ok()?);
    let link = Link::decode(node, &results.values(0, 1).ok()?[0]);
    told.or_else(|| matches!(link, Ok(Some(Link { removed: false, .. }))).then_some(false))
}
