//! Index nodes: which leaves there are, in order of their first keys. And how a catalogue is opened: its nodes are read, its leaves are not.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | `BrIx` |
//! | 4 | 4 | checksum of what follows, up to the length |
//! | 8 | 4 | length |
//! | 12 | 4 | leaves |
//! | 16 | 30 each | leaves: first key 17, flags 1 (1 = lost), slot + 1 (0: a stretch of keys without any) 4, length 4, checksum 4 |

use crate::catalogue::{Catalogue, Settings};
use crate::index::{Index, LeafEntry, Node};
use crate::leaf::SECTOR;
use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use braid_objects::Key;
use braid_objects::key::KEY_BYTES;
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;

const MAGIC: [u8; 4] = *b"BrIx";
const LOST: u8 = 1;
const HEADER: usize = 16;
const ENTRY: usize = KEY_BYTES + 1 + 4 + 4 + 4;

/// Where a leaf or an index node is: in which slot, how many bytes of it, and their checksum. So one that was written elsewhere, or should
/// have been and was not, is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The slot.
    pub slot: u32,
    /// Bytes in use, from its start.
    pub length: u32,
    /// Of those, but for the first eight.
    pub checksum: u32,
}

impl Place {
    /// Bytes to read: whole sectors.
    pub fn read_len(&self) -> usize {
        (self.length as usize).next_multiple_of(SECTOR)
    }
}

/// Where an index node is, and the first key that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The first key.
    pub first: Key,
    /// Where the node is.
    pub place: Place,
}

/// A catalogue can't be opened: an index node is damaged, or the nodes don't fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The slot of one of them.
    pub slot: u32,
}

/// A catalogue that is being opened.
#[derive(Debug)]
pub struct Opening {
    settings: Settings,
    roots: Vec<Root>,
    nodes: Vec<Option<Node>>,
}

impl Opening {
    /// Begins with the roots that were durable last.
    pub fn new(settings: Settings, roots: Vec<Root>) -> Opening {
        Opening { settings, nodes: vec![None; roots.len()], roots }
    }

    /// What to read.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.roots.iter().map(|root| root.place)
    }

    /// The node at this place has been read.
    pub fn take(&mut self, which: usize, bytes: &Bytes) -> Result<(), Damaged> {
        let root = self.roots[which];
        let fits =
            |entry: &LeafEntry| entry.place.is_none_or(|place| place.length as usize <= self.settings.leaf_bytes);
        let leaves = decode(bytes, &root).filter(|leaves| leaves.iter().all(fits));
        let leaves = leaves.ok_or(Damaged { slot: root.place.slot })?;
        self.nodes[which] = Some(Node { first: root.first, place: Some(root.place), leaves });
        Ok(())
    }

    /// All have: here is the catalogue. `slots` is how many there are; each may be used once.
    pub fn finish(self, slots: u32) -> Result<Catalogue, Damaged> {
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
        Ok(Catalogue::with(self.settings, Index::new(nodes)))
    }
}

/// The most leaves that a node of so many bytes names.
pub(crate) const fn leaves_in(bytes: usize) -> usize {
    (bytes - HEADER) / ENTRY
}

/// A node of these leaves: where it is, and what to write there.
pub(crate) fn encode(slot: u32, leaves: &[LeafEntry]) -> (Place, Bytes) {
    let length = HEADER + leaves.len() * ENTRY;
    let mut buffer = AlignedBuffer::zeroed(length.next_multiple_of(SECTOR));
    let mut to = &mut buffer[..];
    to.put_slice(&MAGIC);
    to.put_u32_le(0);
    to.put_u32_le(length as u32);
    to.put_u32_le(leaves.len() as u32);
    for LeafEntry { first, place, lost } in leaves {
        to.put_slice(&first.encode());
        to.put_u8(if *lost { LOST } else { 0 });
        to.put_u32_le(place.map_or(0, |place| place.slot + 1));
        to.put_u32_le(place.map_or(0, |place| place.length));
        to.put_u32_le(place.map_or(0, |place| place.checksum));
    }
    let checksum = crc32c(&buffer[8..length]);
    buffer[4..8].copy_from_slice(&checksum.to_le_bytes());
    (Place { slot, length: length as u32, checksum }, buffer.freeze())
}

fn decode(bytes: &Bytes, root: &Root) -> Option<Vec<LeafEntry>> {
    let length = root.place.length as usize;
    if length < HEADER || bytes.len() < length || bytes[..4] != MAGIC {
        return None;
    }
    let mut from = &bytes[4..length];
    let checksum = from.get_u32_le();
    if checksum != root.place.checksum || crc32c(from) != checksum || from.get_u32_le() as usize != length {
        return None;
    }
    let count = from.get_u32_le() as usize;
    if count == 0 || from.len() != count * ENTRY {
        return None;
    }
    let leaves: Vec<LeafEntry> = (0..count).map(|_| take_entry(&mut from)).collect::<Option<_>>()?;
    (leaves[0].first == root.first).then_some(leaves)
}

fn take_entry(from: &mut &[u8]) -> Option<LeafEntry> {
    let mut key = [0; KEY_BYTES];
    from.copy_to_slice(&mut key);
    let first = Key::decode(&key)?;
    let lost = from.get_u8() & LOST != 0;
    let (slot, length, checksum) = (from.get_u32_le(), from.get_u32_le(), from.get_u32_le());
    let place = slot.checked_sub(1).map(|slot| Place { slot, length, checksum });
    Some(LeafEntry { first, place, lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_objects::Kind;

    fn entry(index: u64, slot: Option<u32>) -> LeafEntry {
        let first = Key { kind: Kind::Attribute, of: 3, index };
        LeafEntry { first, place: slot.map(|slot| Place { slot, length: 60, checksum: 9 }), lost: index % 2 == 1 }
    }

    fn opened(nodes: &[(u32, Vec<LeafEntry>)]) -> Result<Catalogue, Damaged> {
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
        let catalogue = opened(&[(7, vec![entry(1, Some(3)), entry(4, None)]), (8, vec![entry(6, Some(4))])]);
        let used: BTreeSet<u32> = catalogue.expect("all is well").slots().collect();
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
