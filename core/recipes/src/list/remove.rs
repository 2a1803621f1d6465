//! Removing a node. The drawing in [`list`](super) shows the steps.

use super::search::{Found, Search};
use super::{HEAD, Link, List, Node, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, Step, Steps, operation};
use braid_base::{Rng, Time};
use bytes::Bytes;

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// This operation has removed the node.
    Removed,
    /// The node was not in the list, or another client has removed it.
    Gone,
}

impl List {
    /// Removes a node. `before` is a node somewhere before it, from which the search for its predecessor begins.
    pub fn remove(self, node: Node, before: Option<Node>) -> Operation<Result<Removed, RequestFailure>> {
        operation(move |_, rng| {
            let nonce = Nonce::draw(self.idempotency_record, rng);
            let search = Search::from(self, before.filter(|before| *before != node));
            Ok(Remove { list: self, node: node.0, nonce, search, phase: Phase::Looking })
        })
    }
}

/// Removes a node. Two round trips if its predecessor is found with the first request, which is the case if `before` is the predecessor.
/// Otherwise the node is removed after two round trips, and unlinking it takes those of the search and one more.
#[derive(Clone, Debug)]
pub(super) struct Remove {
    list: List,
    node: u64,
    nonce: Nonce,
    search: Search,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Reading its link.
    Looking,
    /// Setting the mark: from then on it is removed. If the predecessor is known, the same request unlinks the node.
    Marking { unlinks: bool },
    /// It is removed; searching for its predecessor.
    Searching,
    /// Unlinking it, or another removed node.
    Unlinking { itself: bool },
}

impl Steps for Remove {
    type Output = Removed;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<Removed> {
        match (self.phase, results) {
            (Phase::Looking, _) if self.node == HEAD => Ok(Next::Done(Removed::Gone)),
            (Phase::Looking, Some(results)) => self.looked(&results),
            (Phase::Looking, None) => Ok(self.look().done()),
            (Phase::Marking { unlinks }, Some(results)) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) if unlinks && results.swapped(2)? => Ok(Next::Done(Removed::Removed)),
                (true, _) => self.search_again(),
                (false, other) => self.mark(&other, None),
            },
            (Phase::Marking { .. }, None) => unreachable!("it is inquired"),
            (Phase::Searching, Some(results)) => self.searched(&results),
            (Phase::Unlinking { itself: true }, Some(results)) if results.swapped(0)? => {
                Ok(Next::Done(Removed::Removed))
            }
            (Phase::Searching | Phase::Unlinking { .. }, _) => self.search_again(),
        }
    }

    fn inquiry(&mut self) -> Option<RequestBuilder> {
        matches!(self.phase, Phase::Marking { .. }).then(|| self.look())
    }

    /// Without an idempotency record, a node that is still there was not removed; if it is gone, this or another client may have removed
    /// it.
    fn found_out(&mut self, _: Time, _: &mut Rng, results: Results) -> Result<Step<Removed>, RequestFailure> {
        let happened = match self.nonce.tells(results.values(1, self.nonce.gets().len())?) {
            Some(told) => told,
            None => match Link::decode(self.node, &results.values(0, 1)?[0])? {
                Some(Link { removed: false, .. }) => false,
                _ => return Err(RequestFailure::Unknown),
            },
        };
        Ok(if happened { self.search_again() } else { self.looked(&results) })
    }

    /// If the node is removed, another operation will unlink it.
    fn fails(&mut self, failure: RequestFailure, in_doubt: bool) -> Result<Removed, RequestFailure> {
        match self.phase {
            Phase::Searching | Phase::Unlinking { .. } => Ok(Removed::Removed),
            _ if in_doubt => Err(RequestFailure::Unknown),
            _ => Err(failure),
        }
    }
}

impl Remove {
    /// Reads the node, and the nodes around it to find its predecessor.
    fn look(&mut self) -> RequestBuilder {
        let builder = RequestBuilder::of(self.list.object).get(vec![link_name(self.node)]).get(self.nonce.gets());
        self.search.look_around(self.node, builder)
    }

    fn looked(&mut self, results: &Results) -> Step<Removed> {
        let before = match self.search.go_on(results, 2, |node, _| node == self.node)? {
            Found::Here { before, next } if next == self.node => Some(before),
            _ => None,
        };
        self.mark(&results.values(0, 1)?[0], before)
    }

    fn mark(&mut self, value: &Bytes, before: Option<u64>) -> Step<Removed> {
        let Some(Link { removed: false, next }) = Link::decode(self.node, value)? else {
            return Ok(Next::Done(Removed::Gone));
        };
        self.phase = Phase::Marking { unlinks: before.is_some() };
        let to = Link { removed: true, next }.encode(self.node);
        let builder = RequestBuilder::of(self.list.object).swap(link_name(self.node), value, &to);
        let builder = builder.then_set(self.nonce.sets());
        Ok(match before {
            Some(before) => super::unlink(builder, before, self.node, next),
            None => builder,
        }
        .done())
    }

    fn search_again(&mut self) -> Step<Removed> {
        self.phase = Phase::Searching;
        Ok(self.search.again().done())
    }

    fn searched(&mut self, results: &Results) -> Step<Removed> {
        Ok(match self.search.go_on(results, 0, |_, _| false)? {
            Found::Further(builder) => builder.done(),
            // Another operation has unlinked it already.
            Found::Here { .. } => Next::Done(Removed::Removed),
            Found::Removed { before, node, next } => {
                self.phase = Phase::Unlinking { itself: node == self.node };
                super::unlink(RequestBuilder::of(self.list.object), before, node, next).done()
            }
        })
    }
}
