//! All leaves by first key, in memory: some tens of bytes for each. A leaf stands for the keys from its first up to the next one's.

use crate::types::{Root, SlotRef};
use braid_objects::Key;

/// A leaf, as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    pub first: Key,
    /// None: a stretch of keys of which none has a value.
    pub place: Option<SlotRef>,
    /// What the leaf does not name is unknown.
    pub lost: bool,
}

/// Some neighbouring leaves, as many as an index node on the disk names.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub first: Key,
    /// None: there is nothing to be said.
    pub place: Option<SlotRef>,
    pub leaves: Vec<LeafEntry>,
}

/// Where in the index a leaf is: in which node, as which of its leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub node: usize,
    pub leaf: usize,
}

/// See the module. It is never empty, and its first leaf stands for all keys below the second's.
#[derive(Debug)]
pub(crate) struct Index {
    nodes: Vec<Node>,
    /// Leaves that have a slot.
    leaves: usize,
    /// Some don't name all there was.
    has_lost: bool,
}

impl Index {
    pub fn new(nodes: Vec<Node>) -> Index {
        let mut index = Index { nodes, leaves: 0, has_lost: false };
        index.settle();
        index
    }

    /// Counts anew, and sees to it that there is something.
    fn settle(&mut self) {
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

    /// Leaves that have a slot.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// True if some leaf does not name all there was.
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Index nodes on the disk.
    pub fn nodes_on_disk(&self) -> usize {
        if self.nodes[0].place.is_some() { self.nodes.len() } else { 0 }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// The leaf that stands for a key.
    pub fn find(&self, key: Key) -> Position {
        let node = self.nodes.partition_point(|node| node.first <= key).saturating_sub(1);
        let leaf = self.nodes[node].leaves.partition_point(|leaf| leaf.first <= key).saturating_sub(1);
        Position { node, leaf }
    }

    pub fn at(&self, position: Position) -> LeafEntry {
        self.nodes[position.node].leaves[position.leaf]
    }

    /// The leaf behind this one.
    pub fn next(&self, Position { node, leaf }: Position) -> Option<Position> {
        if leaf + 1 < self.nodes[node].leaves.len() {
            return Some(Position { node, leaf: leaf + 1 });
        }
        (node + 1 < self.nodes.len()).then_some(Position { node: node + 1, leaf: 0 })
    }

    /// The first key behind what the leaf stands for; none: it stands for all that follows.
    pub fn upper(&self, position: Position) -> Option<Key> {
        self.next(position).map(|next| self.at(next).first)
    }

    /// Puts nodes in the place of others; runs of those ascend. If nothing at all is left, no nodes are needed: their slots.
    pub fn replace(&mut self, runs: Vec<(std::ops::Range<usize>, Vec<Node>)>) -> Vec<u32> {
        for (old, new) in runs.into_iter().rev() {
            self.nodes.splice(old, new);
        }
        let is_nothing = |node: &Node| node.leaves.iter().all(|leaf| leaf.place.is_none() && !leaf.lost);
        let mut needless = Vec::new();
        if self.nodes.iter().all(is_nothing) {
            needless.extend(self.nodes.drain(..).filter_map(|node| node.place).map(|place| place.slot));
        }
        self.settle();
        needless
    }

    /// Where the nodes are.
    pub fn roots(&self) -> Vec<Root> {
        let root = |node: &Node| node.place.map(|place| Root { first: node.first, place });
        self.nodes.iter().filter_map(root).collect()
    }

    /// All slots that it names.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let places = |node: &Node| {
            let leaves: Vec<u32> = node.leaves.iter().filter_map(|leaf| leaf.place).map(|place| place.slot).collect();
            node.place.map(|place| place.slot).into_iter().chain(leaves)
        };
        self.nodes.iter().flat_map(places)
    }
}
