//! Places: who may be connected, if more want to than can be served.
//!
//! Connections that have not identified themselves have few places: a newcomer takes that of the oldest of them. So however many connections
//! say nothing, a host that identifies itself at once gets in. While all these places are taken, a Unix socket lets newcomers in one after the other
//! ([`NEWCOMER_EVERY`]): peers that connect again and again take little time from those that are served. Of the places of nodes that have identified themselves, a part is kept for
//! nodes that were connected before, for longer than a moment: they find a place when they reconnect.

use braid_base::{NodeId, limits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most connections that have not identified themselves.
const STRANGERS_MAX: usize = 256;
/// How often a newcomer is let in while all these places are taken.
pub(crate) const NEWCOMER_EVERY: Duration = Duration::from_millis(10);
/// The most connections of nodes that have. A host may reconnect before the end of its previous connection has been noticed.
const NODES_MAX: usize = 2 * limits::HOSTS_MAX;
/// The most of these that nodes get which were never connected before.
const NEW_NODES_MAX: usize = NODES_MAX / 4 * 3;
/// The most connections at once.
pub(crate) const CONNECTIONS_MAX: usize = NODES_MAX + STRANGERS_MAX;
/// A node that was connected for so long is known…
const ACQUAINTANCE: Duration = Duration::from_secs(10);
/// …and for so long after its connection has ended.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The places of one listener. Connections are named by their numbers.
#[derive(Default)]
pub(crate) struct Places {
    /// Oldest first.
    strangers: VecDeque<u64>,
    nodes: BTreeSet<u64>,
    /// When nodes were connected first, and when their connection ended last.
    known: BTreeMap<NodeId, (Instant, Option<Instant>)>,
}

impl Places {
    /// A connection was accepted. Returns the one that loses its place to it, if there is none left.
    pub fn accepted(&mut self, number: u64) -> Option<u64> {
        self.strangers.push_back(number);
        if self.strangers.len() > STRANGERS_MAX { self.strangers.pop_front() } else { None }
    }

    /// True if the next connection takes the place of another.
    pub fn are_taken(&self) -> bool {
        self.strangers.len() >= STRANGERS_MAX
    }

    /// A connection has identified itself. Returns false if there is no place for its node.
    pub fn identified(&mut self, number: u64, node: NodeId, now: Instant) -> bool {
        self.strangers.retain(|stranger| *stranger != number);
        let first = self.known.get(&node).map(|(first, _)| *first);
        let is_known = first.is_some_and(|first| now.saturating_duration_since(first) >= ACQUAINTANCE);
        if self.nodes.len() >= if is_known { NODES_MAX } else { NEW_NODES_MAX } {
            return false;
        }
        self.nodes.insert(number);
        if self.known.len() >= NODES_MAX {
            let is_fresh = |ended: Instant| now.saturating_duration_since(ended) < REMEMBERED;
            self.known.retain(|_, (_, ended)| ended.is_none_or(is_fresh));
        }
        if first.is_some() || self.known.len() < NODES_MAX {
            self.known.entry(node).or_insert((now, None)).1 = None;
        }
        true
    }

    /// An accepted connection has ended.
    pub fn ended(&mut self, number: u64, node: Option<NodeId>, now: Instant) {
        if !self.nodes.remove(&number) {
            return self.strangers.retain(|stranger| *stranger != number);
        }
        let Some(node) = node else { return };
        if let Some((first, ended)) = self.known.get_mut(&node) {
            *ended = Some(now);
            if now.saturating_duration_since(*first) < ACQUAINTANCE {
                self.known.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Generation;

    fn host(number: usize) -> NodeId {
        NodeId::Host(Generation(number as u32))
    }

    #[test]
    fn silent_connections_make_room_for_new_ones() {
        let mut places = Places::default();
        let replaced: Vec<_> = (0..2176).filter_map(|number| places.accepted(number)).collect();
        assert_eq!(replaced, (0..2176 - STRANGERS_MAX as u64).collect::<Vec<_>>());
        assert!(places.are_taken());
        assert!(places.identified(2175, host(1), Instant::now()));
        assert!(!places.are_taken());
        assert_eq!(places.accepted(2176), None);
    }

    #[test]
    fn a_known_node_reconnects_when_unknown_ones_fill_the_table() {
        let (mut places, start) = (Places::default(), Instant::now());
        let (old, mut now) = (host(1), start);
        places.accepted(0);
        assert!(places.identified(0, old, now));
        now += ACQUAINTANCE;
        places.ended(0, Some(old), now);
        let is_admitted = |number: &usize| {
            places.accepted(*number as u64);
            places.identified(*number as u64, host(1000 + number), now)
        };
        assert_eq!((1..=NODES_MAX).filter(is_admitted).count(), NEW_NODES_MAX);
        assert!(places.identified(9999, old, now));
        assert!(!places.identified(9999, host(2), now));
    }
}
