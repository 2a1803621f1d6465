//! A range table holds ranges that may overlap, and finds the entries that touch a given range.
//!
//! It holds pre-writes, intents and locks in flight: short ranges, a few thousand at most. Therefore a map by first block suffices: a lookup
//! begins before the given range, by as many blocks as the longest range in the table has.

use crate::BlockRange;
use std::collections::BTreeMap;

/// Ranges with an owner `K` and a value `V`. One owner may have many ranges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeTable<K, V> {
    by_start: BTreeMap<u64, Vec<Entry<K, V>>>,
    len: usize,
    longest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<K, V> {
    owner: K,
    count: u64,
    value: V,
}

impl<K, V> Default for RangeTable<K, V> {
    fn default() -> Self {
        RangeTable { by_start: BTreeMap::new(), len: 0, longest: 0 }
    }
}

impl<K: Eq + Copy, V> RangeTable<K, V> {
    /// Adds a range of `owner`. Panics if `owner` has a range with the same first block.
    pub fn insert(&mut self, range: BlockRange, owner: K, value: V) {
        assert!(!range.is_empty(), "an empty range touches nothing and would never be found again");
        let entries = self.by_start.entry(range.start).or_default();
        assert!(entries.iter().all(|entry| entry.owner != owner), "an owner has one range from a block");
        entries.push(Entry { owner, count: range.count, value });
        self.longest = self.longest.max(range.count);
        self.len += 1;
    }

    /// Removes `owner`'s range that begins at `start`.
    pub fn remove(&mut self, start: u64, owner: K) -> Option<V> {
        let entries = self.by_start.get_mut(&start)?;
        let index = entries.iter().position(|entry| entry.owner == owner)?;
        let entry = entries.swap_remove(index);
        if entries.is_empty() {
            self.by_start.remove(&start);
        }
        self.len -= 1;
        if self.len == 0 {
            self.longest = 0;
        }
        Some(entry.value)
    }

    /// All entries that share a block with `range`, ordered by first block.
    pub fn overlapping(&self, range: BlockRange) -> impl DoubleEndedIterator<Item = (BlockRange, K, &V)> {
        let from = (range.start + 1).saturating_sub(self.longest).min(range.end());
        self.by_start
            .range(from..range.end())
            .flat_map(|(start, entries)| {
                entries.iter().map(|entry| (BlockRange::new(*start, entry.count), entry.owner, &entry.value))
            })
            .filter(move |(held, _, _)| held.overlaps(range))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a linear search in a list.
        #[test]
        fn finds_what_a_plain_list_finds(
            steps in prop::collection::vec((0u64..60, 1u64..12, 0u8..4, any::<bool>()), 1..80),
            asked in prop::collection::vec((0u64..70, 0u64..12), 1..20),
        ) {
            let mut table = RangeTable::default();
            let mut naive: Vec<(BlockRange, u8)> = Vec::new();
            for (start, count, owner, put) in steps {
                let held = naive.iter().position(|(range, who)| range.start == start && *who == owner);
                match (put, held) {
                    (true, None) => {
                        table.insert(BlockRange::new(start, count), owner, ());
                        naive.push((BlockRange::new(start, count), owner));
                    }
                    (false, Some(index)) => {
                        prop_assert!(table.remove(start, owner).is_some());
                        naive.swap_remove(index);
                    }
                    (false, None) => prop_assert!(table.remove(start, owner).is_none()),
                    (true, Some(_)) => {}
                }
                prop_assert_eq!(table.len(), naive.len());
            }
            for (start, count) in asked {
                let range = BlockRange::new(start, count);
                let mut found: Vec<_> = table.overlapping(range).map(|(held, owner, ())| (held, owner)).collect();
                let mut expected: Vec<_> = naive.iter().copied().filter(|(held, _)| held.overlaps(range)).collect();
                found.sort();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
