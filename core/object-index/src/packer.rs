//! The packer turns a stream of entries into leaves.
//!
//! As long as more entries come, each leaf is filled. At the end of a run, the last two leaves share the rest evenly, so that the next
//! few entries find room wherever they belong. If all new entries come last, as with keys that count up, the first of the two is filled
//! instead, because no more entries will belong there. Either way the number of leaves is minimal.

use crate::leaf::{ENTRY, Entry, HEADER, Leaf, encode};
use crate::types::SlotRef;
use braid_objects::Key;
use braid_objects::key::KEY_BYTES;
use bytes::Bytes;
use std::ops::Range;

/// The entries that are not in a leaf yet.
#[derive(Clone, Debug)]
pub(crate) struct Packer {
    /// The most bytes of entries in a leaf.
    payload: usize,
    entries: Vec<Entry>,
    values: Vec<u8>,
    /// The number of entries up to the last one that is not new.
    old: usize,
}

impl Packer {
    /// A packer for leaves of `leaf_bytes` bytes.
    pub fn new(leaf_bytes: usize) -> Packer {
        Packer { payload: leaf_bytes - HEADER, entries: Vec::new(), values: Vec::new(), old: 0 }
    }

    /// The most leaves that `bytes` bytes of entries may need.
    pub fn leaves_for(&self, bytes: usize) -> usize {
        if bytes == 0 { 0 } else { 2 * bytes.div_ceil(self.payload) + 1 }
    }

    /// Adds an entry behind all others.
    pub fn push(&mut self, key: [u8; KEY_BYTES], value: Option<&[u8]>, is_new: bool) {
        self.values.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Entry { key, end: self.values.len(), absent: value.is_none() });
        if !is_new {
            self.old = self.entries.len();
        }
    }

    /// Adds entries of a leaf, which are not new, behind all others. Returns their bytes.
    pub fn push_run(&mut self, leaf: &Leaf, run: Range<usize>) -> usize {
        let count = run.len();
        let (values, first) = leaf.values(run.clone());
        let shift = self.values.len();
        self.values.extend_from_slice(values);
        self.entries.extend(run.map(|at| {
            let entry = leaf.entry(at);
            Entry { end: entry.end - first + shift, ..entry }
        }));
        self.old = self.entries.len();
        count * ENTRY + values.len()
    }

    /// Bytes of the entries that are not in a leaf yet.
    pub fn len(&self) -> usize {
        self.size(self.entries.len())
    }

    /// True if a leaf can be filled whatever comes next.
    pub fn is_full(&self) -> bool {
        self.len() >= 2 * self.payload
    }

    /// The first key that is not in a leaf yet.
    pub fn first(&self) -> Option<Key> {
        self.entries.first().map(|entry| Key::decode(&entry.key).expect("it was a key"))
    }

    /// Makes the next leaf, in this slot. `at_end`: no more entries come.
    pub fn cut(&mut self, at_end: bool, slot: u32, first: Key, lost: bool) -> (SlotRef, Bytes, Leaf) {
        let count = self.next_cut(at_end);
        let split = self.entries[count - 1].end;
        let made = encode(slot, first, lost, &self.entries[..count], &self.values[..split]);
        self.entries.drain(..count);
        self.values.drain(..split);
        self.entries.iter_mut().for_each(|entry| entry.end -= split);
        self.old = self.old.saturating_sub(count);
        made
    }

    /// The number of entries of the next leaf.
    fn next_cut(&self, at_end: bool) -> usize {
        let all = self.entries.len();
        let fill = self.fits();
        assert!(fill > 0, "a leaf holds the largest entry");
        if fill == all || !at_end || self.size(all) - self.size(fill) > self.payload {
            return fill;
        }
        if self.old <= fill {
            return fill;
        }
        // Two leaves are needed: the split is as even as both can hold.
        let even = self.least(fill, |count| 2 * self.size(count) >= self.size(all));
        let both_fit = self.least(fill, |count| self.size(all) - self.size(count) <= self.payload);
        even.max(both_fit)
    }

    /// The number of entries that fit into one leaf.
    fn fits(&self) -> usize {
        let behind = self.least(self.entries.len() + 1, |count| self.size(count) > self.payload);
        behind - 1
    }

    /// The smallest number from 1 to `most` for which `is_true` holds; it must hold for all numbers above it.
    fn least(&self, most: usize, is_true: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = usize::midpoint(low, high);
            if middle <= self.entries.len() && !is_true(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes of the first `count` entries.
    fn size(&self, count: usize) -> usize {
        count * ENTRY + count.checked_sub(1).map_or(0, |last| self.entries[last].end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_objects::Kind;
    use proptest::prelude::*;

    const PAYLOAD: usize = 1000;

    fn key(index: usize) -> [u8; KEY_BYTES] {
        Key { kind: Kind::Attribute, of: 7, index: index as u64 }.encode()
    }

    /// The numbers of entries in the leaves that values of these lengths make.
    fn packed(values: &[(usize, bool)]) -> Vec<usize> {
        let mut packer = Packer::new(PAYLOAD + HEADER);
        let mut leaves = Vec::new();
        let mut behind = 0;
        let mut cut = |packer: &mut Packer, at_end| {
            let first = packer.first().expect("there is something");
            let leaf = packer.cut(at_end, 1, first, false).2;
            assert_eq!(first.encode(), key(behind));
            for at in 0..leaf.len() {
                assert_eq!(leaf.raw_key(at), &key(behind));
                assert_eq!(leaf.value(at).map(|value| value.len()), Some(values[behind].0));
                behind += 1;
            }
            leaves.push(leaf.len());
        };
        for (index, (length, is_new)) in values.iter().enumerate() {
            packer.push(key(index), Some(&vec![index as u8; *length]), *is_new);
            while packer.is_full() {
                cut(&mut packer, false);
            }
        }
        while packer.len() > 0 {
            cut(&mut packer, true);
        }
        assert_eq!(behind, values.len());
        leaves
    }

    /// The smallest possible number of leaves.
    fn fewest(values: &[(usize, bool)]) -> usize {
        let mut leaves = 1;
        let mut room = PAYLOAD;
        for (length, _) in values {
            if ENTRY + length > room {
                leaves += 1;
                room = PAYLOAD;
            }
            room -= ENTRY + length;
        }
        leaves
    }

    proptest! {
        #[test]
        fn there_are_as_few_leaves_as_can_be(
            values in prop::collection::vec((prop_oneof![0usize..40, 0usize..PAYLOAD - ENTRY], any::<bool>()), 1..120),
        ) {
            let bytes: usize = values.iter().map(|(length, _)| ENTRY + length).sum();
            let leaves = packed(&values).len();
            prop_assert_eq!(leaves, fewest(&values));
            prop_assert!(leaves <= Packer::new(PAYLOAD + HEADER).leaves_for(bytes));
        }
    }

    #[test]
    fn insertions_at_the_end_leave_full_leaves_and_others_leave_room() {
        let of = |old: usize, new: usize| [vec![(29, false); old], vec![(29, true); new]].concat();
        assert_eq!(packed(&of(20, 10)), [20, 10]);
        assert_eq!(packed(&of(5, 48)), [20, 20, 13]);
        let mut within = of(20, 10);
        within.reverse();
        assert_eq!(packed(&within), [15, 15]);
    }
}
