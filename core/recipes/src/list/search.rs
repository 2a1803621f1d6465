//! Finding a position in the list by reading several nodes at once.
//!
//! Numbers are given in ascending order, and neighbours in the list often have neighbouring numbers. So each request reads the nodes around
//! the wanted one, all as of one moment, so that the pointers among them can be followed.

use super::{HEAD, ITEMS_PAGE, Link, List, NONE, NUMBER_MAX, Node, item_name, link_name};
use crate::procedure::RequestFailure;
use crate::request_builder::{DAMAGED, RequestBuilder, Results};
use crate::requester::Requester;
use bytes::Bytes;
use std::collections::BTreeMap;

/// How many nodes before and behind the wanted one are read with it.
const AROUND: u64 = 8;

/// Several nodes as of one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// The nodes that were requested, ascending.
    asked: Vec<u64>,
    /// The links and items of those that were read.
    nodes: BTreeMap<u64, (Option<Link>, Bytes)>,
}

impl Look {
    /// Reads one node, and those that may come behind it.
    pub(super) fn at(node: u64, next: u64) -> Look {
        let mut asked = vec![node];
        if next != NONE {
            asked.extend(next.saturating_sub(AROUND).max(1)..next.saturating_add(AROUND).min(NUMBER_MAX + 1));
        }
        Look::at_all(asked)
    }

    /// Reads these nodes.
    pub(super) fn at_all(mut asked: Vec<u64>) -> Look {
        asked.sort_unstable();
        asked.dedup();
        Look { asked, nodes: BTreeMap::new() }
    }

    /// Adds its two commands to a request.
    pub(super) fn ask(&self, builder: RequestBuilder) -> RequestBuilder {
        let links = self.asked.iter().map(|node| link_name(*node)).collect();
        let items = self.asked.iter().map(|node| item_name(*node)).collect();
        builder.get(links).get(items)
    }

    /// Takes in the results of those commands.
    pub(super) fn hear(mut self, results: &Results, command: usize) -> Result<Look, RequestFailure> {
        let links = results.values(command, self.asked.len())?;
        let items = results.values(command + 1, self.asked.len())?;
        for ((node, link), item) in self.asked.iter().zip(links).zip(items) {
            self.nodes.insert(*node, (Link::decode(*node, link)?, item.clone()));
        }
        Ok(self)
    }

    /// Reads the nodes.
    pub(super) async fn read(self, requester: &mut Requester, list: List) -> Result<Look, RequestFailure> {
        let results = requester.read(self.ask(RequestBuilder::of(list.object))).await?;
        self.hear(&results, 0)
    }

    /// A node's link: `None` if it was not read, `Some(None)` if it is not there.
    pub(super) fn link(&self, node: u64) -> Option<Option<Link>> {
        self.nodes.get(&node).map(|(link, _)| *link)
    }

    /// A node's item.
    pub(super) fn item(&self, node: u64) -> Bytes {
        self.nodes.get(&node).map(|(_, item)| item.clone()).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// The state of a search: `at` was in the list, and comes before the wanted position.
#[derive(Clone, Debug)]
pub(super) struct Search {
    list: List,
    at: u64,
    look: Look,
}

/// The result of a step of a search.
pub(super) enum Found {
    /// The search continues with this request.
    Further(RequestBuilder),
    /// `next`, or none, is the first wanted node, and comes directly behind `before`.
    Here { before: u64, next: u64 },
    /// Behind `before` comes a removed node, which has to be unlinked first.
    Removed { before: u64, node: u64, next: u64 },
}

impl Search {
    /// A search from a node, or from the head.
    pub(super) fn from(list: List, begin: Option<Node>) -> Search {
        let at = begin.map_or(HEAD, |node| node.0);
        Search { list, at, look: Look::at(at, NONE) }
    }

    /// Searches from the present position for the first node for which `wanted` is true, and returns it, or none, with the node directly
    /// before it. Unlinks removed nodes on its way; ends as well when it has unlinked `last`.
    pub(super) async fn find(
        &mut self,
        requester: &mut Requester,
        last: u64,
        wanted: impl Fn(u64, Bytes) -> bool,
    ) -> Result<(u64, u64), RequestFailure> {
        let mut request = self.again();
        loop {
            request = match requester.ask(request).await? {
                None => self.again(),
                Some(results) => match self.go_on(&results, 0, &wanted)? {
                    Found::Further(further) => further,
                    Found::Here { before, next } => return Ok((before, next)),
                    Found::Removed { before, node, next } => {
                        let unlink = super::unlink(RequestBuilder::of(self.list.object), before, node, next);
                        let results = requester.ask(unlink).await?;
                        if let Some(results) = results.filter(|_| node == last)
                            && results.swapped(0)?
                        {
                            return Ok((before, next));
                        }
                        self.again()
                    }
                },
            }
        }
    }

    fn request(&self) -> RequestBuilder {
        self.look.ask(RequestBuilder::of(self.list.object))
    }

    /// Restarts at the present position.
    fn again(&mut self) -> RequestBuilder {
        self.look = Look::at(self.at, NONE);
        self.request()
    }

    /// Restarts at the present position, and also reads around a node that should come later. Adds two commands to a request.
    pub(super) fn look_around(&mut self, node: u64, builder: RequestBuilder) -> RequestBuilder {
        self.look = Look::at(self.at, node);
        self.look.ask(builder)
    }

    /// Continues with an answer, whose commands from `command` on are the search's own, up to the first node for which `wanted` is true.
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
                // The node at which it was is not in the list any more.
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
        // More steps than nodes: the links form a cycle.
        Err(DAMAGED)
    }
}

const _: () =
    assert!(ITEMS_PAGE - super::LINKS_PAGE > (NUMBER_MAX >> 32) as u32, "the pages of links end before those of items");
