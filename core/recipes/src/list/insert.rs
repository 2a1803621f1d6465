//! Inserting an item. The drawing in [`list`](super) shows the steps.

use super::search::{Found, Search};
use super::{HEAD, ITEM_BYTES_MAX, Link, List, NODE_COUNTER, NUMBER_MAX, Node, item_name, link_name};
use crate::idempotency_record::Nonce;
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, Step, Steps, operation, set};
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
        operation(move |_, rng| {
            if item.len() > ITEM_BYTES_MAX {
                return Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
            }
            let (nonce, search) = (Nonce::draw(self.idempotency_record, rng), Search::from(self, None));
            Ok(Insert { list: self, place, item, nonce, number: HEAD, before: HEAD, search, phase: Phase::Drawing })
        })
    }
}

/// Inserts an item. Two round trips if the position is known, and one more for each concurrent change there.
#[derive(Clone, Debug)]
pub(super) struct Insert {
    list: List,
    place: ListPosition,
    item: Bytes,
    nonce: Nonce,
    number: u64,
    /// The node behind which it links the new one.
    before: u64,
    search: Search,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Drawing a number.
    Drawing,
    Searching,
    /// Unlinking a node that another client has removed.
    Unlinking,
    Linking,
}

impl Steps for Insert {
    type Output = Inserted;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<Inserted> {
        match (self.phase, results) {
            (Phase::Drawing, Some(results)) => self.drawn(&results),
            // A number that may have been drawn is left unused.
            (Phase::Drawing, None) => self.draw(),
            (Phase::Searching, Some(results)) => self.searched(&results),
            (Phase::Searching | Phase::Unlinking, _) => self.search_again(),
            (Phase::Linking, Some(results)) => match results.compared(0)?.ok_or(DAMAGED)? {
                (true, _) => self.inserted(),
                (false, other) => self.proceed(&other),
            },
            (Phase::Linking, None) => unreachable!("it is inquired"),
        }
    }

    fn inquiry(&mut self) -> Option<RequestBuilder> {
        let links = [self.number, self.before].map(|node| vec![link_name(node)]);
        let builder = links.into_iter().fold(RequestBuilder::of(self.list.object), RequestBuilder::get);
        matches!(self.phase, Phase::Linking).then(|| builder.get(self.nonce.gets()))
    }

    /// No other operation has the number: if its node is there, this operation has inserted it. If not, it may have been removed since.
    fn found_out(&mut self, _: Time, _: &mut Rng, results: Results) -> Result<Step<Inserted>, RequestFailure> {
        let there = !results.values(0, 1)?[0].is_empty();
        let told = self.nonce.tells(results.values(2, self.nonce.gets().len())?);
        let happened = there || told.ok_or(RequestFailure::Unknown)?;
        let before = &results.values(1, 1)?[0];
        Ok(if happened { self.inserted() } else { self.proceed(before) })
    }
}

impl Insert {
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
        self.before = match self.place {
            ListPosition::First => HEAD,
            ListPosition::Behind(node) => node.0,
            ListPosition::InOrder => return self.search_again(),
        };
        self.proceed(&results.values(1, 1)?[0])
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

    /// Continues with the value of the link of the node `before`.
    fn proceed(&mut self, link: &Bytes) -> Step<Inserted> {
        match (self.place, Link::decode(self.before, link)?) {
            (ListPosition::InOrder, _) => self.search_again(),
            (_, Some(Link { removed: false, next })) => self.link(self.before, next),
            _ => Ok(Next::Done(Inserted::PlaceGone)),
        }
    }

    fn link(&mut self, before: u64, next: u64) -> Step<Inserted> {
        (self.phase, self.before) = (Phase::Linking, before);
        let (from, to) = (Link::to(next).encode(before), Link::to(self.number).encode(before));
        let mut sets = vec![
            set(link_name(self.number), &Link::to(next).encode(self.number)),
            set(item_name(self.number), &self.item),
        ];
        sets.extend(self.nonce.sets());
        Ok(RequestBuilder::of(self.list.object).swap(link_name(before), &from, &to).then_set(sets).done())
    }

    fn inserted(&self) -> Step<Inserted> {
        Ok(Next::Done(Inserted::Inserted(Node(self.number))))
    }
}
