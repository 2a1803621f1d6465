//! Index nodes: the list of leaves, in the order of their first keys.
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 4 | `BrIx` |
//! | 4 | 4 | checksum of what follows, up to the length |
//! | 8 | 4 | length |
//! | 12 | 4 | number of leaves |
//! | 16 | 30 each | leaves: first key 17, flags 1 (1 = lost), slot + 1 (0: a range of keys without values) 4, length 4, checksum 4 |

use crate::index::LeafEntry;
use crate::types::{Root, SECTOR, SlotRef};
use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use braid_objects::Key;
use braid_objects::key::KEY_BYTES;
use bytes::{Buf, BufMut, Bytes};

const MAGIC: [u8; 4] = *b"BrIx";
const LOST: u8 = 1;
const HEADER: usize = 16;
const ENTRY: usize = KEY_BYTES + 1 + 4 + 4 + 4;

/// The most leaves that a node of so many bytes can name.
const fn leaves_in(bytes: usize) -> usize {
    (bytes - HEADER) / ENTRY
}

const _: () = assert!(leaves_in(73_728) >= 2048);

/// Encodes a node of these leaves. Returns where it is, and what to write there.
pub(crate) fn encode(slot: u32, leaves: &[LeafEntry]) -> (SlotRef, Bytes) {
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
    (SlotRef { slot, length: length as u32, checksum }, buffer.freeze())
}

/// The leaves that a node names; none if it is damaged.
pub(crate) fn decode(bytes: &Bytes, root: &Root) -> Option<Vec<LeafEntry>> {
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
    let place = slot.checked_sub(1).map(|slot| SlotRef { slot, length, checksum });
    Some(LeafEntry { first, place, lost })
}
