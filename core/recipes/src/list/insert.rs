//! Inserting an item. The drawing in [`list`](super) shows the steps.

use super::search::{Found, Search};
use super::{HEAD, ITEM_BYTES_MAX, Link, List, NODE_COUNTER, NUMBER_MAX, Node, item_name, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{CasContext, DAMAGED, RequestBuilder, Results, Step, StepEvent, Steps, set};
use braid_base::{Rng, Time};
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
    pub fn insert(self, place: ListPosition, item: Bytes) -> Operation<Result<Inserted, RequestFailure>> {
        Insert::new(self, place, item).begin()
    }
}

/// Inserts an item. Two round trips if the position is known, and one more for each concurrent change there.
#[derive(Clone, Debug)]
pub(super) struct Insert {
    list: List,
    place: ListPosition,
    item: Bytes,
    nonce: Option<Nonce>,
    number: u64,
    search: Search,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Beginning,
    /// Drawing a number.
    Drawing,
    Searching,
    /// Unlinking a node that another client has removed.
    Unlinking,
    /// Linking the node behind `before`.
    Linking {
        before: u64,
    },
    /// Determining whether the link has happened.
    Doubting {
        before: u64,
    },
}

impl Steps for Insert {
    type Output = Inserted;

    fn step(&mut self, course: &mut CasContext, _: Time, rng: &mut Rng, event: StepEvent) -> Step<Inserted> {
        match (self.phase, event) {
            (Phase::Beginning, _) if self.item.len() > ITEM_BYTES_MAX => {
                Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX })
            }
            (Phase::Beginning, _) => {
                self.nonce = Some(Nonce::draw(self.list.idempotency_record, rng));
                self.draw()
            }
            (Phase::Drawing, StepEvent::Results(results)) => self.drawn(&results),
            // A number that may have been drawn is left unused.
            (Phase::Drawing, _) => self.draw(),
            (Phase::Searching, StepEvent::Results(results)) => self.searched(&results),
            (Phase::Unlinking | Phase::Searching, _) => self.search_again(),
            (Phase::Linking { before }, StepEvent::Results(results)) => self.linked(before, &results),
            (Phase::Linking { before } | Phase::Doubting { before }, StepEvent::Unknown) => {
                course.in_doubt = true;
                self.outcome_unknown(before)
            }
            (Phase::Doubting { before }, StepEvent::Results(results)) => {
                let happened = self.found_out(&results)?;
                course.in_doubt = false;
                if happened {
                    return Ok(Next::Done(Ok(Inserted::Inserted(Node(self.number)))));
                }
                self.proceed(Link::decode(before, &results.values(1, 1)?[0])?, before)
            }
            (Phase::Linking { .. } | Phase::Doubting { .. }, StepEvent::Nothing | StepEvent::Value) => {
                unreachable!("no wait was requested")
            }
        }
    }
}

impl Insert {
    pub(super) fn new(list: List, place: ListPosition, item: Bytes) -> Insert {
        let search = Search::from(list, None);
        Insert { list, place, item, nonce: None, number: HEAD, search, phase: Phase::Beginning }
    }

    fn draw(&mut self) -> Step<Inserted> {
        self.phase = Phase::Drawing;
        let builder = RequestBuilder::of(self.list.object).then_add(NODE_COUNTER, 1);
        Ok(match self.place {
            ListPosition::First => builder.get(vec![link_name(HEAD)]),
            ListPosition::Behind(node) => builder.get(vec![link_name(node.0)]),
            ListPosition::InOrder => builder,
        }
        .done())
    }

    fn drawn(&mut self, results: &Results) -> Step<Inserted> {
        let count = results.added(0)?.and_then(|count| u64::try_from(count).ok()).ok_or(DAMAGED)?;
        if count >= NUMBER_MAX {
            return Err(RequestFailure::Refused(ObjectFailure::NoSpace));
        }
        self.number = count + 1;
        let before = match self.place {
            ListPosition::First => HEAD,
            ListPosition::Behind(node) => node.0,
            ListPosition::InOrder => return self.search_again(),
        };
        self.proceed(Link::decode(before, &results.values(1, 1)?[0])?, before)
    }

    fn search_again(&mut self) -> Step<Inserted> {
        self.phase = Phase::Searching;
        Ok(self.search.again().done())
    }

    fn searched(&mut self, results: &Results) -> Step<Inserted> {
        let item = self.item.clone();
        Ok(match self.search.go_on(results, 0, |_, other| other > item)? {
            Found::Further(builder) => builder.done(),
            Found::Here { before, next } => return self.link(before, next),
            Found::Removed { before, node, next } => {
                self.phase = Phase::Unlinking;
                super::unlink(RequestBuilder::of(self.list.object), before, node, next).done()
            }
        })
    }

    /// Continues with the link of the node `before`; none if that node is gone.
    fn proceed(&mut self, link: Option<Link>, before: u64) -> Step<Inserted> {
        match (self.place, link) {
            (ListPosition::InOrder, _) => self.search_again(),
            (_, Some(Link { removed: false, next })) => self.link(before, next),
            _ => Ok(Next::Done(Ok(Inserted::PlaceGone))),
        }
    }

    fn link(&mut self, before: u64, next: u64) -> Step<Inserted> {
        self.phase = Phase::Linking { before };
        let (from, to) = (Link::to(next).encode(before), Link::to(self.number).encode(before));
        let mut sets = vec![
            set(link_name(self.number), &Link::to(next).encode(self.number)),
            set(item_name(self.number), &self.item),
        ];
        sets.extend(self.nonce().sets());
        Ok(RequestBuilder::of(self.list.object).swap(link_name(before), &from, &to).then_set(sets).done())
    }

    fn linked(&mut self, before: u64, results: &Results) -> Step<Inserted> {
        match results.compared(0)?.ok_or(DAMAGED)? {
            (true, _) => Ok(Next::Done(Ok(Inserted::Inserted(Node(self.number))))),
            (false, other) => self.proceed(Link::decode(before, &other)?, before),
        }
    }

    fn outcome_unknown(&mut self, before: u64) -> Step<Inserted> {
        self.phase = Phase::Doubting { before };
        let builder =
            RequestBuilder::of(self.list.object).get(vec![link_name(self.number)]).get(vec![link_name(before)]);
        Ok(builder.get(self.nonce().gets()).done())
    }

    /// No other operation has the number: if its node is there, this operation has inserted it. If not, it may have been removed since.
    fn found_out(&self, results: &Results) -> Result<bool, RequestFailure> {
        let nonce = self.nonce();
        let there = !results.values(0, 1)?[0].is_empty();
        let told = nonce.tells(results.values(2, nonce.gets().len())?);
        if there { Ok(true) } else { told.ok_or(RequestFailure::Unknown) }
    }

    fn nonce(&self) -> &Nonce {
        self.nonce.as_ref().expect("drawn in the first step")
    }
}
