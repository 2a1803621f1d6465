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
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::DAMAGED;
use crate::requester::operation;
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

/// How many returned nodes are checked at once.
const BACK: usize = 32;

impl List {
    /// Returns at most `most` items, from where another walk has ended. One round trip for a node, or for several that were inserted one
    /// after the other and are neighbours.
    pub fn walk(self, cursor: Cursor, most: usize) -> Operation<Result<Walked, RequestFailure>> {
        operation(move |mut requester| async move {
            let (mut told, mut items) = (cursor.told, Vec::new());
            let mut index = told.len();
            loop {
                // Which of the last returned nodes, before the `index`th, are still there.
                let mut look = look_back(&told[..index]).read(&mut requester, self).await?;
                let first = index.saturating_sub(BACK);
                let there = |node: &u64| look.link(*node).flatten();
                let last = (first..index).rev().find_map(|at| there(&told[at]).map(|link| (at + 1, link)));
                let mut next = match last {
                    Some((kept, link)) => {
                        told.truncate(kept);
                        link.next
                    }
                    None if first > 0 => {
                        index = first;
                        continue;
                    }
                    None if index > 0 => {
                        told.clear();
                        index = 0;
                        continue;
                    }
                    None => there(&HEAD).ok_or(DAMAGED)?.next,
                };
                // Follows links as far as the nodes were read, and reads more.
                let mut steps = 0;
                loop {
                    let link = look.link(next);
                    match link {
                        _ if next == NONE => return Ok(Walked { items, more: None }),
                        // More steps than nodes: the links form a cycle.
                        _ if steps > look.len() => return Err(DAMAGED),
                        None => {
                            look = Look::at(next, next).read(&mut requester, self).await?;
                            steps = 0;
                            continue;
                        }
                        Some(None) => break,
                        // A removed node still leads on, as long as it is there.
                        Some(Some(Link { removed: true, next: behind })) => next = behind,
                        Some(Some(_)) if items.len() == most.max(1) => {
                            return Ok(Walked { items, more: Some(Cursor { told }) });
                        }
                        Some(Some(Link { removed: false, next: behind })) => {
                            items.push((Node(next), look.item(next)));
                            told.push(next);
                            next = behind;
                        }
                    }
                    steps += 1;
                }
                index = told.len();
            }
        })
    }
}

/// Reads the last of these nodes.
fn look_back(told: &[u64]) -> Look {
    let last = &told[told.len().saturating_sub(BACK)..];
    Look::at_all(if last.is_empty() { vec![HEAD] } else { last.to_vec() })
}
