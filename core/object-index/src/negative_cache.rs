//! A cache of ranges of keys that are known to have no values. A search for the first key of a range has to walk over all removed keys
//! that are not merged yet. Later searches skip the range. Such searches take items from a queue, or collect the garbage of an object.

use braid_objects::Key;
use std::collections::BTreeMap;

/// The most ranges. When there are more, all of them are forgotten.
const NEGATIVE_CACHE_MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct NegativeCache {
    /// The first key of each range, and the first key behind it that may have a value. No two ranges touch.
    negative_cache: BTreeMap<Key, Key>,
}

impl NegativeCache {
    /// The first key, from this one on, that may have a value.
    pub fn skip(&self, key: Key) -> Key {
        match self.negative_cache.range(..=key).next_back() {
            Some((_, behind)) if *behind > key => *behind,
            _ => key,
        }
    }

    /// Adds a range: no key from `from` on and below `behind` has a value.
    pub fn learn(&mut self, from: Key, behind: Key) {
        if from >= behind {
            return;
        }
        let (mut first, mut end) = (from, behind);
        if let Some((before, until)) = self.negative_cache.range(..=from).next_back()
            && *until >= from
        {
            (first, end) = (*before, end.max(*until));
        }
        while let Some((next, until)) =
            self.negative_cache.range(first..=end).next().map(|(next, until)| (*next, *until))
        {
            self.negative_cache.remove(&next);
            end = end.max(until);
        }
        if self.negative_cache.len() >= NEGATIVE_CACHE_MAX {
            self.negative_cache.clear();
        }
        self.negative_cache.insert(first, end);
    }

    /// A key has got a value.
    pub fn fill(&mut self, key: Key) {
        let Some((first, behind)) =
            self.negative_cache.range(..=key).next_back().map(|(first, behind)| (*first, *behind))
        else {
            return;
        };
        if behind <= key {
            return;
        }
        self.negative_cache.remove(&first);
        if first < key {
            self.negative_cache.insert(first, key);
        }
        if let Some(next) = key.after().filter(|next| *next < behind) {
            self.negative_cache.insert(next, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_objects::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(index: u64) -> Key {
        Key { kind: Kind::Attribute, of: 1, index }
    }

    proptest! {
        #[test]
        fn names_that_may_have_a_value_are_not_skipped(
            steps in prop::collection::vec((any::<bool>(), 0u64..100, 1u64..30), 1..60),
        ) {
            let (mut negative_cache, mut empty) = (NegativeCache::default(), BTreeSet::new());
            for (learns, at, count) in steps {
                if learns {
                    negative_cache.learn(key(at), key(at + count));
                    empty.extend(at..at + count);
                } else {
                    negative_cache.fill(key(at));
                    empty.remove(&at);
                }
                for at in 0..130 {
                    let skipped = negative_cache.skip(key(at)).index;
                    let expected = (at..).find(|at| !empty.contains(at)).expect("beyond all");
                    prop_assert_eq!(skipped, expected);
                }
            }
        }
    }

    #[test]
    fn the_negative_cache_is_bounded() {
        let mut negative_cache = NegativeCache::default();
        for at in 0..5000 {
            negative_cache.learn(key(at * 10), key(at * 10 + 5));
            assert!(negative_cache.negative_cache.len() <= NEGATIVE_CACHE_MAX);
        }
        assert_eq!(negative_cache.skip(key(49_990)), key(49_995));
    }
}
