//! A place is what some nodes share: one process, or one machine. They fail, stall and have a wrong clock together.
//!
//! Most nodes share their place with no other. The world knows of a place only which nodes are there.

use braid_base::NodeId;
use std::collections::BTreeMap;

/// The places that nodes share. Each is named by one of its nodes, which stays.
#[derive(Clone, Debug, Default)]
pub struct Places(BTreeMap<NodeId, NodeId>);

impl Places {
    /// The name of a node's place.
    pub fn of(&self, node: NodeId) -> NodeId {
        self.0.get(&node).copied().unwrap_or(node)
    }

    /// All nodes at the place of this one, which comes first.
    pub fn together(&self, node: NodeId) -> Vec<NodeId> {
        let is_there = |other: &NodeId| *other != node && self.of(*other) == self.of(node);
        [node].into_iter().chain(self.0.keys().copied().filter(is_there)).collect()
    }

    /// True if others are at its place, too.
    pub fn is_shared(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// A node is where another one is from now on.
    pub(crate) fn share(&mut self, node: NodeId, other: NodeId) {
        let place = self.of(other);
        self.0.extend([(place, place), (node, place)]);
    }

    /// A node is at no shared place any more; returns the name of the one where it was.
    pub(crate) fn leave(&mut self, node: NodeId) -> Option<NodeId> {
        self.0.remove(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, Generation};

    #[test]
    fn nodes_are_together_until_one_leaves() {
        let (host, next) = (NodeId::Host(Generation(1)), NodeId::Host(Generation(2)));
        let [first, second, third] = [0, 1, 2].map(|number| NodeId::Device(DeviceId(number)));
        let mut places = Places::default();
        assert_eq!(places.together(host), [host]);
        places.share(host, second);
        places.share(first, host);
        assert_eq!(places.together(first), [first, host, second]);
        assert_eq!([first, second, host, third].map(|node| places.of(node)), [second, second, second, third]);
        assert_eq!(places.leave(host), Some(second));
        places.share(next, second);
        assert_eq!((places.together(host), places.together(second)), (vec![host], vec![second, next, first]));
    }
}
