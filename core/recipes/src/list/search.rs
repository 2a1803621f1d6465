//! Finding a place in the list, by looking at some nodes at once.
//!
//! Numbers are given in order, and neighbours in the list are often neighbours in number. So a look takes in the nodes around the one that is
//! wanted; all of them as they are at one moment, so that pointers among them can be followed.

use super::{HEAD, ITEMS_PAGE, Link, List, NONE, NUMBER_MAX, Node, item_name, link_name};
use crate::asking::{Asking, DAMAGED, Results};
use crate::procedure::RequestFailure;
use bytes::Bytes;
use std::collections::BTreeMap;

/// How many nodes before and behind the one wanted are looked at, too.
const AROUND: u64 = 8;

/// Some nodes, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Which were asked for, ascending.
    asked: Vec<u64>,
    links: BTreeMap<u64, Option<Link>>,
    items: BTreeMap<u64, Bytes>,
}

impl Look {
    /// At one node, and at what may come behind it.
    pub(super) fn at(node: u64, next: u64) -> Look {
        let mut asked = vec![node];
        if next != NONE {
            asked.extend(next.saturating_sub(AROUND).max(1)..next.saturating_add(AROUND).min(NUMBER_MAX + 1));
        }
        Look::at_all(asked)
    }

    /// At these.
    pub(super) fn at_all(mut asked: Vec<u64>) -> Look {
        asked.sort_unstable();
        asked.dedup();
        Look { asked, links: BTreeMap::new(), items: BTreeMap::new() }
    }

    /// Adds two commands to a request.
    pub(super) fn ask(&self, asking: Asking) -> Asking {
        let links = self.asked.iter().map(|node| link_name(*node)).collect();
        let items = self.asked.iter().map(|node| item_name(*node)).collect();
        asking.get(links).get(items)
    }

    /// Takes in what those brought.
    pub(super) fn hear(mut self, results: &Results, command: usize) -> Result<Look, RequestFailure> {
        let links = results.values(command, self.asked.len())?;
        let items = results.values(command + 1, self.asked.len())?;
        for ((node, link), item) in self.asked.iter().zip(links).zip(items) {
            self.links.insert(*node, Link::decode(*node, link)?);
            self.items.insert(*node, item.clone());
        }
        Ok(self)
    }

    /// A node's link: `None` if it was not looked at, `Some(None)` if it is not there.
    pub(super) fn link(&self, node: u64) -> Option<Option<Link>> {
        self.links.get(&node).copied()
    }

    /// Its item.
    pub(super) fn item(&self, node: u64) -> Bytes {
        self.items.get(&node).cloned().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }
}

/// Where a search is: `at` was in the list and is before what is looked for.
#[derive(Clone, Debug)]
pub(super) struct Search {
    list: List,
    at: u64,
    look: Look,
}

/// What a search has come to.
pub(super) enum Found {
    /// It has to look further: this is the request.
    Further(Asking),
    /// Behind `before` comes `next`, which is the first that is wanted, or none.
    Here { before: u64, next: u64 },
    /// Behind `before` is a node that is removed, and is to be unlinked first.
    Removed { before: u64, node: u64, next: u64 },
}

impl Search {
    /// From a node, or from the head. It begins with [`Search::request`].
    pub(super) fn from(list: List, begin: Option<Node>) -> Search {
        let at = begin.map_or(HEAD, |node| node.0);
        Search { list, at, look: Look::at(at, NONE) }
    }

    pub(super) fn request(&self) -> Asking {
        self.look.ask(Asking::of(self.list.object))
    }

    /// Begins anew where it is.
    pub(super) fn again(&mut self) -> Asking {
        self.look = Look::at(self.at, NONE);
        self.request()
    }

    /// Begins anew where it is, and looks around a node that should be behind it. Adds two commands to a request.
    pub(super) fn look_around(&mut self, node: u64, asking: Asking) -> Asking {
        self.look = Look::at(self.at, node);
        self.look.ask(asking)
    }

    /// Goes on with the answer, of which the commands from `command` on are its own, to the first node that `wanted` says true of.
    pub(super) fn go_on(
        &mut self,
        results: &Results,
        command: usize,
        wanted: impl Fn(u64, Bytes) -> bool,
    ) -> Result<Found, RequestFailure> {
        let look = self.look.clone().hear(results, command)?;
        for _ in 0..=look.len() {
            let next = match look.link(self.at) {
                Some(Some(Link { removed: false, next })) => next,
                // Where it was is no place any more.
                Some(_) if self.at != HEAD => {
                    self.at = HEAD;
                    return Ok(Found::Further(self.again()));
                }
                _ => return Err(DAMAGED),
            };
            if next == NONE {
                return Ok(Found::Here { before: self.at, next });
            }
            match look.link(next) {
                None => {
                    self.look = Look::at(self.at, next);
                    return Ok(Found::Further(self.request()));
                }
                Some(None) => return Err(DAMAGED),
                Some(Some(Link { removed: true, next: behind })) => {
                    return Ok(Found::Removed { before: self.at, node: next, next: behind });
                }
                Some(Some(_)) if wanted(next, look.item(next)) => return Ok(Found::Here { before: self.at, next }),
                Some(Some(_)) => self.at = next,
            }
        }
        // More steps than nodes: it goes round.
        Err(DAMAGED)
    }
}

const _: () =
    assert!(ITEMS_PAGE - super::LINKS_PAGE > (NUMBER_MAX >> 32) as u32, "the pages of links end before those of items");
