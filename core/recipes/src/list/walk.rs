//! Walking a list that other clients change.
//!
//! A walk remembers the nodes that it has returned, in the order of the list. If the node that it is about to read is gone, it goes back to
//! the last returned node that is still there, and continues with the present successor of that node:
//!
//! ```text
//!   returned: 7 3 9      list: 7 → 5 → 2 → 4         9 and 3 are gone: continue behind 7, with 5
//! ```
//!
//! Nodes never change places. A node behind 7 that was returned before would be remembered and still there, contrary to the choice of 7: so
//! nothing is returned twice. The nodes that are still to be returned come behind all those returned so far, hence behind 7.

use super::search::Look;
use super::{HEAD, Link, List, NONE, Node};
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{DAMAGED, RequestBuilder, Results, Step, Steps, operation};
use braid_base::{Rng, Time};
use bytes::Bytes;

/// The position of a walk: the nodes returned so far, eight bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    told: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The items, in the order of the list.
    pub items: Vec<(Node, Bytes)>,
    /// Where to continue; none at the end of the list.
    pub more: Option<Cursor>,
}

/// Walks the list. One round trip for a node, or for several that were inserted one after the other and are neighbours.
impl List {
    /// Returns at most `most` items, from where another walk has ended.
    pub fn walk(self, cursor: Cursor, most: usize) -> Operation<Result<Walked, RequestFailure>> {
        operation(move |_, _| {
            let (index, look) = (cursor.told.len(), look_back(&cursor.told));
            let phase = Phase::Back { index, look };
            Ok(Walk { list: self, cursor, most: most.max(1), items: Vec::new(), phase })
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Walk {
    list: List,
    cursor: Cursor,
    most: usize,
    items: Vec<(Node, Bytes)>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Reading a node that should be there, and others around it.
    Going { next: u64, look: Look },
    /// Determining which of the last returned nodes, before the `index`th, are still there.
    Back { index: usize, look: Look },
}

/// How many returned nodes are checked at once.
const BACK: usize = 32;

impl Steps for Walk {
    type Output = Walked;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<Walked> {
        match (self.phase.clone(), results) {
            (Phase::Going { next, look }, Some(results)) => self.go(next, look.hear(&results, 0)?),
            (Phase::Back { index, look }, Some(results)) => self.resumed(index, look, &results),
            (Phase::Going { look, .. } | Phase::Back { look, .. }, None) => {
                Ok(look.ask(RequestBuilder::of(self.list.object)).done())
            }
        }
    }
}

impl Walk {
    /// Follows links as far as the nodes were read.
    fn go(&mut self, mut next: u64, look: Look) -> Step<Walked> {
        for _ in 0..=look.len() {
            if next == NONE {
                return self.over(false);
            }
            match look.link(next) {
                None => {
                    let look = Look::at(next, next);
                    let builder = look.ask(RequestBuilder::of(self.list.object));
                    self.phase = Phase::Going { next, look };
                    return Ok(builder.done());
                }
                Some(None) => return self.back(self.cursor.told.len()),
                // A removed node still leads on, as long as it is there.
                Some(Some(Link { removed: true, next: behind })) => next = behind,
                Some(Some(Link { removed: false, next: behind })) => {
                    if self.items.len() == self.most {
                        return self.over(true);
                    }
                    self.items.push((Node(next), look.item(next)));
                    self.cursor.told.push(next);
                    next = behind;
                }
            }
        }
        Err(DAMAGED)
    }

    fn back(&mut self, index: usize) -> Step<Walked> {
        let look = look_back(&self.cursor.told[..index]);
        let builder = look.ask(RequestBuilder::of(self.list.object));
        self.phase = Phase::Back { index, look };
        Ok(builder.done())
    }

    fn resumed(&mut self, index: usize, look: Look, results: &Results) -> Step<Walked> {
        let look = look.hear(results, 0)?;
        let first = index.saturating_sub(BACK);
        let there = |node: &u64| look.link(*node).flatten();
        let last = (first..index).rev().find_map(|at| there(&self.cursor.told[at]).map(|link| (at + 1, link)));
        match last {
            Some((kept, link)) => {
                self.cursor.told.truncate(kept);
                self.go(link.next, look)
            }
            None if first > 0 => self.back(first),
            None if index > 0 => {
                self.cursor.told.clear();
                self.back(0)
            }
            None => self.go(there(&HEAD).ok_or(DAMAGED)?.next, look),
        }
    }

    fn over(&mut self, more: bool) -> Step<Walked> {
        let cursor = std::mem::take(&mut self.cursor);
        let items = std::mem::take(&mut self.items);
        Ok(Next::Done(Walked { items, more: more.then_some(cursor) }))
    }
}

/// Reads the last of these nodes.
fn look_back(told: &[u64]) -> Look {
    let last = &told[told.len().saturating_sub(BACK)..];
    Look::at_all(if last.is_empty() { vec![HEAD] } else { last.to_vec() })
}
