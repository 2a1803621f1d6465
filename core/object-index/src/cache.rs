//! A cache of recently used leaves, bounded in bytes. Eviction is by second chance (the clock algorithm): a hand goes around the leaves,
//! clears the mark of each leaf that was used since it last came by, and evicts the first leaf without a mark. That is nearly as good as
//! least-recently-used, and a use only sets a mark.

use crate::leaf::Leaf;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes that a leaf costs beside its content.
const OVERHEAD: usize = 128;

/// The cached leaves, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    leaves: BTreeMap<u32, Cached>,
    bytes: usize,
    bytes_max: usize,
    /// The slot that the hand visited last.
    hand: u32,
}

#[derive(Clone, Debug)]
struct Cached {
    leaf: Leaf,
    used: bool,
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        Cache { bytes_max, ..Cache::default() }
    }

    /// The leaf in a slot. It is marked as used.
    pub fn get(&mut self, slot: u32) -> Option<&Leaf> {
        let cached = self.leaves.get_mut(&slot)?;
        cached.used = true;
        Some(&cached.leaf)
    }

    /// The leaf in a slot, without marking it.
    pub fn peek(&self, slot: u32) -> Option<&Leaf> {
        self.leaves.get(&slot).map(|cached| &cached.leaf)
    }

    /// Adds a leaf, and evicts others.
    pub fn insert(&mut self, slot: u32, leaf: Leaf) {
        self.remove(slot);
        self.bytes += leaf.bytes() + OVERHEAD;
        self.leaves.insert(slot, Cached { leaf, used: true });
        while self.bytes > self.bytes_max && self.leaves.len() > 1 {
            self.evict(slot);
        }
    }

    /// Moves the hand until a leaf is evicted, other than the one in slot `except`.
    fn evict(&mut self, except: u32) {
        loop {
            let behind = (Bound::Excluded(self.hand), Bound::Unbounded);
            let next = self.leaves.range(behind).next().or_else(|| self.leaves.iter().next());
            let slot = *next.expect("there is more than one").0;
            self.hand = slot;
            let cached = self.leaves.get_mut(&slot).expect("just found");
            if !std::mem::replace(&mut cached.used, false) && slot != except {
                self.remove(slot);
                return;
            }
        }
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(cached) = self.leaves.remove(&slot) {
            self.bytes -= cached.leaf.bytes() + OVERHEAD;
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.leaves.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::encode;
    use braid_objects::Key;

    #[test]
    fn used_nodes_stay_cached_and_the_bound_holds() {
        let leaf = || encode(0, Key::FIRST, false, &[], &[7; 1000]).2;
        let one = leaf().bytes() + OVERHEAD;
        let mut cache = Cache::new(one * 10);
        for slot in 0..1000 {
            cache.insert(slot, leaf());
            assert!(cache.bytes() <= one * 10);
            assert!(cache.get(slot).is_some(), "the latest leaf stays");
            if slot > 0 {
                assert!(cache.get(0).is_some(), "a leaf in constant use stays: {slot}");
            }
        }
        assert_eq!(cache.len(), 10);
        cache.remove(0);
        assert!(cache.peek(0).is_none());
        assert_eq!(cache.bytes(), one * 9);
    }

    #[test]
    fn a_node_above_the_bound_is_cached_alone() {
        let mut cache = Cache::new(100);
        for slot in 0..5 {
            cache.insert(slot, encode(0, Key::FIRST, false, &[], &[7; 1000]).2);
            assert_eq!(cache.len(), 1);
        }
    }
}
