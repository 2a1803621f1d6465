//! The index: all leaves by first key, in memory, at some tens of bytes for each leaf. A leaf covers the keys from its first key up to
//! the first key of the next leaf.

use crate::types::{Root, SlotRef};
use braid_objects::Key;

/// A leaf's entry in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    pub first: Key,
    /// Where the leaf is. None: no key of its range has a value.
    pub place: Option<SlotRef>,
    /// The leaf lost entries: the values of keys that it does not name are unknown.
    pub lost: bool,
}

/// Neighbouring leaves that one index node on the disk names.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub first: Key,
    /// Where the node is. None: it is not on the disk, because the index is empty.
    pub place: Option<SlotRef>,
    pub leaves: Vec<LeafEntry>,
}

/// The position of a leaf in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub node: usize,
    pub leaf: usize,
}

/// The index. It is never empty: its first leaf covers all keys below the second leaf's first key.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    nodes: Vec<Node>,
    /// The number of leaves that have a slot.
    leaves: usize,
    /// Some leaf has lost entries.
    has_lost: bool,
}

impl Index {
    pub fn new(nodes: Vec<Node>) -> Index {
        let mut index = Index { nodes, leaves: 0, has_lost: false };
        index.recount_leaves();
        index
    }

    /// Counts the leaves anew, and adds an empty leaf if there is none.
    fn recount_leaves(&mut self) {
        (self.leaves, self.has_lost) = (0, false);
        for leaf in self.nodes.iter().flat_map(|node| &node.leaves) {
            self.leaves += usize::from(leaf.place.is_some());
            self.has_lost |= leaf.lost;
        }
        if self.nodes.is_empty() {
            let nothing = LeafEntry { first: Key::FIRST, place: None, lost: false };
            self.nodes.push(Node { first: Key::FIRST, place: None, leaves: vec![nothing] });
        }
    }

    /// The number of leaves that have a slot.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// True if some leaf has lost entries.
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    pub fn nodes_on_disk(&self) -> usize {
        if self.nodes[0].place.is_some() { self.nodes.len() } else { 0 }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// The leaf that covers a key.
    pub fn find(&self, key: Key) -> Position {
        let node = self.nodes.partition_point(|node| node.first <= key).saturating_sub(1);
        let leaf = self.nodes[node].leaves.partition_point(|leaf| leaf.first <= key).saturating_sub(1);
        Position { node, leaf }
    }

    pub fn at(&self, position: Position) -> LeafEntry {
        self.nodes[position.node].leaves[position.leaf]
    }

    /// The next leaf in key order.
    pub fn next(&self, Position { node, leaf }: Position) -> Option<Position> {
        if leaf + 1 < self.nodes[node].leaves.len() {
            return Some(Position { node, leaf: leaf + 1 });
        }
        (node + 1 < self.nodes.len()).then_some(Position { node: node + 1, leaf: 0 })
    }

    /// The first key that the leaf no longer covers; none if it covers all that follow.
    pub fn upper(&self, position: Position) -> Option<Key> {
        self.next(position).map(|next| self.at(next).first)
    }

    /// Replaces runs of nodes by others; the runs must ascend. If the index is empty then, it needs no nodes: returns their slots.
    pub fn replace(&mut self, runs: Vec<(std::ops::Range<usize>, Vec<Node>)>) -> Vec<u32> {
        for (old, new) in runs.into_iter().rev() {
            self.nodes.splice(old, new);
        }
        let is_nothing = |node: &Node| node.leaves.iter().all(|leaf| leaf.place.is_none() && !leaf.lost);
        let mut needless = Vec::new();
        if self.nodes.iter().all(is_nothing) {
            needless.extend(self.nodes.drain(..).filter_map(|node| node.place).map(|place| place.slot));
        }
        self.recount_leaves();
        needless
    }

    /// The roots: where the index nodes are.
    pub fn roots(&self) -> Vec<Root> {
        let root = |node: &Node| node.place.map(|place| Root { first: node.first, place });
        self.nodes.iter().filter_map(root).collect()
    }

    /// All slots of leaves and index nodes.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let places = |node: &Node| {
            let leaves: Vec<u32> = node.leaves.iter().filter_map(|leaf| leaf.place).map(|place| place.slot).collect();
            node.place.map(|place| place.slot).into_iter().chain(leaves)
        };
        self.nodes.iter().flat_map(places)
    }
}
