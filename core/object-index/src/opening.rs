//! Opening of an object index. This reads its index nodes, and no leaves.

use crate::index::{Index, LeafEntry, Node};
use crate::node::decode;
use crate::object_index::ObjectIndex;
use crate::types::{Root, Settings, SlotRef};
use bytes::Bytes;
use std::collections::BTreeSet;

/// An object index can't be opened: an index node is damaged, or the nodes don't fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The slot of one of the damaged nodes.
    pub slot: u32,
}

/// An object index that is being opened.
#[derive(Clone, Debug)]
pub struct Opening {
    settings: Settings,
    roots: Vec<Root>,
    nodes: Vec<Option<Node>>,
}

impl Opening {
    /// Begins with the roots that became durable last.
    pub fn new(settings: Settings, roots: Vec<Root>) -> Opening {
        Opening { settings, nodes: vec![None; roots.len()], roots }
    }

    /// The nodes to read.
    pub fn places(&self) -> impl Iterator<Item = SlotRef> {
        self.roots.iter().map(|root| root.place)
    }

    /// Node `which` of [`Opening::places`] has been read.
    pub fn take(&mut self, which: usize, bytes: &Bytes) -> Result<(), Damaged> {
        let root = self.roots[which];
        let fits =
            |entry: &LeafEntry| entry.place.is_none_or(|place| place.length as usize <= self.settings.leaf_bytes);
        let leaves = decode(bytes, &root).filter(|leaves| leaves.iter().all(fits));
        let leaves = leaves.ok_or(Damaged { slot: root.place.slot })?;
        self.nodes[which] = Some(Node { first: root.first, place: Some(root.place), leaves });
        Ok(())
    }

    /// All nodes have been read: returns the object index. Slots must be below `slots`, and each may be used only once.
    pub fn finish(self, slots: u32) -> Result<ObjectIndex, Damaged> {
        let mut used = BTreeSet::new();
        let mut behind = None;
        for (node, root) in self.nodes.iter().zip(&self.roots) {
            let node = node.as_ref().expect("all nodes have been read");
            for entry in &node.leaves {
                let ascends = behind.replace(entry.first).is_none_or(|behind| behind < entry.first);
                let fresh = entry.place.is_none_or(|place| place.slot < slots && used.insert(place.slot));
                if !ascends || !fresh {
                    return Err(Damaged { slot: root.place.slot });
                }
            }
            if root.place.slot >= slots || !used.insert(root.place.slot) {
                return Err(Damaged { slot: root.place.slot });
            }
        }
        let nodes = self.nodes.into_iter().flatten().collect();
        Ok(ObjectIndex::with(self.settings, Index::new(nodes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::encode;
    use crate::types::SlotRef;
    use braid_objects::Key;
    use braid_objects::Kind;

    fn entry(index: u64, slot: Option<u32>) -> LeafEntry {
        let first = Key { kind: Kind::Attribute, of: 3, index };
        LeafEntry { first, place: slot.map(|slot| SlotRef { slot, length: 60, checksum: 9 }), lost: index % 2 == 1 }
    }

    fn opened(nodes: &[(u32, Vec<LeafEntry>)]) -> Result<ObjectIndex, Damaged> {
        let encoded: Vec<_> = nodes.iter().map(|(slot, leaves)| (leaves[0].first, encode(*slot, leaves))).collect();
        let roots = encoded.iter().map(|(first, (place, _))| Root { first: *first, place: *place }).collect();
        let mut opening = Opening::new(Settings::default(), roots);
        for (which, (_, (_, data))) in encoded.iter().enumerate().rev() {
            opening.take(which, data)?;
        }
        opening.finish(50)
    }

    #[test]
    fn nodes_are_read_as_they_were_written_and_must_fit_together() {
        let object_index = opened(&[(7, vec![entry(1, Some(3)), entry(4, None)]), (8, vec![entry(6, Some(4))])]);
        let used: BTreeSet<u32> = object_index.expect("all is well").slots().collect();
        assert_eq!(used, [3, 4, 7, 8].into());
        assert_eq!(opened(&[(7, vec![entry(6, Some(3))]), (8, vec![entry(6, None)])]).err(), Some(Damaged { slot: 8 }));
        assert_eq!(opened(&[(7, vec![entry(6, Some(3)), entry(8, Some(3))])]).err(), Some(Damaged { slot: 7 }));
        assert_eq!(opened(&[(7, vec![entry(6, Some(50))])]).err(), Some(Damaged { slot: 7 }));
        assert_eq!(opened(&[(50, vec![entry(6, Some(4))])]).err(), Some(Damaged { slot: 50 }));
    }

    #[test]
    fn a_damaged_node_is_named() {
        let leaves = vec![entry(1, Some(3)), entry(4, None)];
        let (place, data) = encode(7, &leaves);
        let root = Root { first: leaves[0].first, place };
        for at in 0..place.length as usize {
            let mut bytes = data.to_vec();
            bytes[at] ^= 4;
            let mut opening = Opening::new(Settings::default(), vec![root]);
            assert_eq!(opening.take(0, &bytes.into()), Err(Damaged { slot: 7 }), "byte {at}");
        }
        let other = Root { first: leaves[1].first, place };
        assert_eq!(Opening::new(Settings::default(), vec![other]).take(0, &data), Err(Damaged { slot: 7 }));
    }
}
