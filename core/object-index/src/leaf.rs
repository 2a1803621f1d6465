//! A leaf: the entries of a range of keys, in order. Lookups are by binary search without unpacking; values are slices of the leaf.
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 4 | `BrLf` |
//! | 4 | 4 | checksum of what follows, up to the length |
//! | 8 | 4 | length |
//! | 12 | 4 | number of entries |
//! | 16 | 4 | flags: 1 = lost |
//! | 20 | 4 | zero |
//! | 24 | 17 | the first key that the leaf covers |
//! | 41 | 7 | zero |
//! | 48 | 21 each | entries: key 17; end of the value 4, counted from the first value; its highest bit: the key is known to have no value |
//! | | | values |

use crate::types::{SECTOR, SlotRef};
use braid_base::AlignedBuffer;
use braid_base::checksum::crc32c;
use braid_objects::Key;
use braid_objects::key::KEY_BYTES;
use bytes::{BufMut, Bytes};
use std::ops::Range;

const MAGIC: [u8; 4] = *b"BrLf";
const LOST: u32 = 1;
const ABSENT: u32 = 1 << 31;
/// Bytes before the entries.
pub(crate) const HEADER: usize = 48;
/// Bytes of an entry without its value.
pub(crate) const ENTRY: usize = KEY_BYTES + 4;

/// A leaf in memory, in the form that it has on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    bytes: Bytes,
    count: usize,
    lost: bool,
}

impl Leaf {
    /// Decodes the leaf at `place` from what was read there; none if it is damaged. The content is validated here, and trusted
    /// afterwards.
    pub fn decode(bytes: &Bytes, place: SlotRef) -> Option<Leaf> {
        let length = place.length as usize;
        if length < HEADER || bytes.len() < length {
            return None;
        }
        let bytes = bytes.slice(..length);
        let whole = bytes[..4] == MAGIC && word(&bytes, 4) == place.checksum && crc32c(&bytes[8..]) == place.checksum;
        let count = word(&bytes, 12) as usize;
        if !whole || word(&bytes, 8) as usize != length || count > (length - HEADER) / ENTRY {
            return None;
        }
        let leaf = Leaf { count, lost: word(&bytes, 16) & LOST != 0, bytes };
        leaf.is_sound().then_some(leaf)
    }

    fn is_sound(&self) -> bool {
        let values = self.bytes.len() - self.values_at();
        let mut end = 0;
        for at in 0..self.count {
            let ascends = at == 0 || self.raw_key(at - 1) < self.raw_key(at);
            let here = self.end(at);
            if !ascends || here < end || here > values || Key::decode(self.raw_key(at)).is_none() {
                return false;
            }
            end = here;
        }
        end == values
    }

    /// True if the leaf has lost entries: the values of keys that it does not name are unknown.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The value that the leaf records for a key, or that the key has no value; none if it records nothing of the key.
    pub fn get(&self, key: Key) -> Option<Option<Bytes>> {
        let at = self.from(key);
        self.is_at(at, &key.encode()).then(|| self.value(at))
    }

    /// Bytes of a key's entry; none if the leaf does not name the key. An entry without a value counts zero bytes.
    pub fn entry_len(&self, key: Key) -> Option<usize> {
        let at = self.from(key);
        self.is_at(at, &key.encode()).then(|| self.span(at).map_or(0, |span| ENTRY + span.len()))
    }

    /// The index of the first entry whose key is not below this one.
    pub fn from(&self, key: Key) -> usize {
        let key = key.encode();
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if *self.raw_key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub fn key(&self, at: usize) -> Key {
        Key::decode(self.raw_key(at)).expect("keys are validated when the leaf is decoded")
    }

    /// An entry's encoded key. Encoded keys have the same order as keys.
    pub fn raw_key(&self, at: usize) -> &[u8; KEY_BYTES] {
        let at = HEADER + at * ENTRY;
        self.bytes[at..at + KEY_BYTES].try_into().expect("a key's bytes")
    }

    /// An entry's value; none if the key is known to have no value.
    pub fn value(&self, at: usize) -> Option<Bytes> {
        self.span(at).map(|span| self.bytes.slice(span))
    }

    /// The values of neighbouring entries, and the offset among all values where they begin.
    pub fn values(&self, run: Range<usize>) -> (&[u8], usize) {
        let (values, start) = (self.values_at(), self.start(run.start));
        (&self.bytes[values + start..values + self.start(run.end)], start)
    }

    /// An entry, with the end of its value among all values.
    pub fn entry(&self, at: usize) -> Entry {
        Entry { key: *self.raw_key(at), end: self.end(at), absent: self.raw_end(at) & ABSENT != 0 }
    }

    /// True if entry `at` exists and has this key.
    pub fn is_at(&self, at: usize, key: &[u8; KEY_BYTES]) -> bool {
        at < self.count && self.raw_key(at) == key
    }

    /// Bytes of an entry with its value.
    pub fn size(&self, at: usize) -> usize {
        ENTRY + self.end(at) - self.start(at)
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.end(at - 1) }
    }

    fn span(&self, at: usize) -> Option<Range<usize>> {
        let values = self.values_at();
        (self.raw_end(at) & ABSENT == 0).then(|| values + self.start(at)..values + self.end(at))
    }

    fn values_at(&self) -> usize {
        HEADER + self.count * ENTRY
    }

    fn end(&self, at: usize) -> usize {
        (self.raw_end(at) & !ABSENT) as usize
    }

    fn raw_end(&self, at: usize) -> u32 {
        word(&self.bytes, HEADER + at * ENTRY + KEY_BYTES)
    }
}

/// An entry to be encoded. Its value ends at `end` among the values that are given with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub key: [u8; KEY_BYTES],
    pub end: usize,
    pub absent: bool,
}

/// Encodes a leaf of these entries, whose values follow each other in `values`. Returns where it is, what to write, and the leaf.
pub(crate) fn encode(slot: u32, first: Key, lost: bool, entries: &[Entry], values: &[u8]) -> (SlotRef, Bytes, Leaf) {
    let length = HEADER + entries.len() * ENTRY + values.len();
    let mut buffer = AlignedBuffer::zeroed(length.next_multiple_of(SECTOR));
    let mut to = &mut buffer[..];
    to.put_slice(&MAGIC);
    to.put_u32_le(0);
    to.put_u32_le(length as u32);
    to.put_u32_le(entries.len() as u32);
    to.put_u32_le(if lost { LOST } else { 0 });
    to.put_u32_le(0);
    to.put_slice(&first.encode());
    to.put_bytes(0, HEADER - 24 - KEY_BYTES);
    for entry in entries {
        to.put_slice(&entry.key);
        to.put_u32_le(entry.end as u32 | if entry.absent { ABSENT } else { 0 });
    }
    to.put_slice(values);
    let checksum = crc32c(&buffer[8..length]);
    buffer[4..8].copy_from_slice(&checksum.to_le_bytes());
    let data = buffer.freeze();
    let leaf = Leaf { bytes: data.slice(..length), count: entries.len(), lost };
    (SlotRef { slot, length: length as u32, checksum }, data, leaf)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_objects::Kind;
    use proptest::prelude::*;

    fn key(index: u64) -> Key {
        Key { kind: Kind::Attribute, of: 7, index }
    }

    fn leaf(lost: bool) -> (SlotRef, Bytes, Leaf) {
        let entry = |index, end, absent| Entry { key: key(index).encode(), end, absent };
        let entries = [entry(10, 3, false), entry(11, 3, true), entry(20, 3, false), entry(21, 8, false)];
        encode(4, key(9), lost, &entries, b"onethree")
    }

    #[test]
    fn encoded_names_are_found() {
        let (place, data, made) = leaf(true);
        assert_eq!((data.len() % SECTOR, place.slot), (0, 4));
        let read = Leaf::decode(&data, place).expect("it is whole");
        for leaf in [made, read] {
            assert!(leaf.is_lost());
            assert_eq!(leaf.get(key(10)), Some(Some(Bytes::from_static(b"one"))));
            assert_eq!(leaf.get(key(11)), Some(None));
            assert_eq!(leaf.get(key(12)), None);
            assert_eq!(leaf.get(key(20)), Some(Some(Bytes::new())));
            assert_eq!(leaf.get(key(21)), Some(Some(Bytes::from_static(b"three"))));
            assert_eq!((leaf.from(key(0)), leaf.from(key(12)), leaf.from(key(22))), (0, 2, 4));
            assert_eq!(leaf.entry_len(key(21)), Some(ENTRY + 5));
            assert_eq!((leaf.entry_len(key(11)), leaf.entry_len(key(12))), (Some(0), None));
        }
    }

    #[test]
    fn a_leaf_of_another_time_or_place_is_damaged() {
        let (place, data, _) = leaf(false);
        assert!(Leaf::decode(&data, SlotRef { checksum: place.checksum ^ 1, ..place }).is_none());
        assert!(Leaf::decode(&data, SlotRef { length: place.length - 1, ..place }).is_none());
        assert!(Leaf::decode(&data, SlotRef { length: 4096, ..place }).is_none());
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_noticed_and_garbage_does_not_panic(at in 0usize..140, bit in 0u32..8) {
            let (place, data, _) = leaf(false);
            let mut bytes = data.to_vec();
            bytes[at] ^= 1 << bit;
            prop_assert!(Leaf::decode(&bytes.clone().into(), place).is_none());
            // A leaf with a valid checksum is validated as well before it is trusted.
            let checksum = crc32c(&bytes[8..place.length as usize]);
            bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
            if let Some(leaf) = Leaf::decode(&bytes.into(), SlotRef { checksum, ..place }) {
                (0..leaf.len()).for_each(|at| drop((leaf.key(at), leaf.value(at))));
            }
        }
    }
}
