//! Removing a node. The drawing in [`list`](super) shows the steps.

use super::search::{Found, Search};
use super::{Link, List, Node, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{CasContext, DAMAGED, RequestBuilder, Results, Step, StepEvent, Steps};
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
        Remove::new(self, node, before).begin()
    }
}

/// Removes a node. Two round trips if its predecessor is found with the first request, which is the case if `before` is the predecessor.
/// Otherwise the node is removed after two round trips, and unlinking it takes those of the search and one more.
#[derive(Clone, Debug)]
pub(super) struct Remove {
    list: List,
    node: u64,
    nonce: Option<Nonce>,
    search: Search,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Beginning,
    /// Reading its link.
    Looking,
    /// Setting the mark: from then on it is removed. If the predecessor is known, the same request unlinks the node.
    Marking {
        unlinks: bool,
    },
    /// Determining whether the mark was set.
    Doubting,
    /// It is removed; searching for its predecessor.
    Searching,
    /// Unlinking it, or another removed node.
    Unlinking {
        itself: bool,
    },
}

impl Steps for Remove {
    type Output = Removed;

    fn step(&mut self, course: &mut CasContext, _: Time, rng: &mut Rng, event: StepEvent) -> Step<Removed> {
        match (self.phase, event) {
            (Phase::Beginning, _) if self.node == super::HEAD => Ok(Next::Done(Ok(Removed::Gone))),
            (Phase::Beginning, _) => {
                self.nonce = Some(Nonce::draw(self.list.idempotency_record, rng));
                self.look(Phase::Looking)
            }
            (Phase::Looking, StepEvent::Results(results)) => self.looked(&results),
            (Phase::Looking, _) => self.look(Phase::Looking),
            (Phase::Marking { unlinks }, StepEvent::Results(results)) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) if unlinks && results.swapped(2)? => Ok(Next::Done(Ok(Removed::Removed))),
                (true, _) => self.search_again(),
                (false, other) => self.mark(&other, None),
            },
            (Phase::Marking { .. } | Phase::Doubting, StepEvent::Unknown) => {
                course.in_doubt = true;
                self.look(Phase::Doubting)
            }
            (Phase::Doubting, StepEvent::Results(results)) => {
                let happened = self.found_out(&results)?;
                course.in_doubt = false;
                if happened { self.search_again() } else { self.looked(&results) }
            }
            (Phase::Searching, StepEvent::Results(results)) => self.searched(&results),
            (Phase::Unlinking { itself: true }, StepEvent::Results(results)) if results.swapped(0)? => {
                Ok(Next::Done(Ok(Removed::Removed)))
            }
            (Phase::Searching | Phase::Unlinking { .. }, _) => self.search_again(),
            (Phase::Marking { .. } | Phase::Doubting, StepEvent::Nothing | StepEvent::Value) => {
                unreachable!("no wait was requested")
            }
        }
    }

    /// If the node is removed, another operation will unlink it.
    fn fails(&self, failure: RequestFailure) -> Result<Removed, RequestFailure> {
        let is_removed = matches!(self.phase, Phase::Searching | Phase::Unlinking { .. });
        if is_removed { Ok(Removed::Removed) } else { Err(failure) }
    }
}

impl Remove {
    pub(super) fn new(list: List, node: Node, before: Option<Node>) -> Remove {
        let search = Search::from(list, before.filter(|before| *before != node));
        Remove { list, node: node.0, nonce: None, search, phase: Phase::Beginning }
    }

    /// Reads the node, and the nodes around it to find its predecessor.
    fn look(&mut self, phase: Phase) -> Step<Removed> {
        self.phase = phase;
        let builder = RequestBuilder::of(self.list.object).get(vec![link_name(self.node)]).get(self.nonce().gets());
        Ok(self.search.look_around(self.node, builder).done())
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
            return Ok(Next::Done(Ok(Removed::Gone)));
        };
        self.phase = Phase::Marking { unlinks: before.is_some() };
        let to = Link { removed: true, next }.encode(self.node);
        let builder = RequestBuilder::of(self.list.object).swap(link_name(self.node), value, &to);
        let builder = builder.then_set(self.nonce().sets());
        Ok(match before {
            Some(before) => super::unlink(builder, before, self.node, next),
            None => builder,
        }
        .done())
    }

    /// Without an idempotency record, a node that is still there was not removed; if it is gone, this or another client may have removed
    /// it.
    fn found_out(&self, results: &Results) -> Result<bool, RequestFailure> {
        let nonce = self.nonce();
        if let Some(told) = nonce.tells(results.values(1, nonce.gets().len())?) {
            return Ok(told);
        }
        match Link::decode(self.node, &results.values(0, 1)?[0])? {
            Some(Link { removed: false, .. }) => Ok(false),
            _ => Err(RequestFailure::Unknown),
        }
    }

    fn search_again(&mut self) -> Step<Removed> {
        self.phase = Phase::Searching;
        Ok(self.search.again().done())
    }

    fn searched(&mut self, results: &Results) -> Step<Removed> {
        Ok(match self.search.go_on(results, 0, |_, _| false)? {
            Found::Further(builder) => builder.done(),
            // Another operation has unlinked it already.
            Found::Here { .. } => Next::Done(Ok(Removed::Removed)),
            Found::Removed { before, node, next } => {
                self.phase = Phase::Unlinking { itself: node == self.node };
                super::unlink(RequestBuilder::of(self.list.object), before, node, next).done()
            }
        })
    }

    fn nonce(&self) -> &Nonce {
        self.nonce.as_ref().expect("drawn in the first step")
    }
}
