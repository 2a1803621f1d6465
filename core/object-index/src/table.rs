//! Changes in memory: what keys have as their value since, or that they have none.

use crate::types::Growth;
use braid_objects::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Key, Option<Bytes>>,
    /// By how much all of this may make the leaves grow.
    pub growth: Growth,
    /// Some of it may make them shrink.
    pub shrinks: bool,
}

impl Table {
    /// What the table says of a key, if anything.
    pub fn get(&self, key: Key) -> Option<&Option<Bytes>> {
        self.entries.get(&key)
    }

    /// Has it say another thing. The value is copied: it may be a small part of something large.
    pub fn put(&mut self, key: Key, value: Option<&Bytes>) {
        self.entries.insert(key, value.map(|value| Bytes::copy_from_slice(value)));
    }

    /// The first key of a range of which it says anything.
    pub fn first(&self, keys: impl RangeBounds<Key>) -> Option<(Key, &Option<Bytes>)> {
        self.range(keys).next().map(|(key, value)| (*key, value))
    }

    /// All of a range.
    pub fn range(&self, keys: impl RangeBounds<Key>) -> std::collections::btree_map::Range<'_, Key, Option<Bytes>> {
        self.entries.range(keys)
    }

    /// True if it says nothing behind a key.
    pub fn is_empty_from(&self, from: Bound<Key>) -> bool {
        self.range((from, Bound::Unbounded)).next().is_none()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets some.
    pub fn forget(&mut self, most: usize) {
        for _ in 0..most {
            if self.entries.pop_first().is_none() {
                return;
            }
        }
    }
}

/// Changes that were merged are forgotten so many at a time.
const FORGOTTEN_AT_ONCE: usize = 64;

/// All changes in memory, by what is becoming of them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub active: Table,
    /// These are being merged.
    pub frozen: Table,
    /// Frozen changes up to here are merged.
    pub merged: Bound<Key>,
    /// Were merged, and wait to be forgotten.
    spent: Table,
}

impl Default for Tables {
    fn default() -> Self {
        let (active, frozen, spent) = Default::default();
        Tables { active, frozen, merged: Bound::Unbounded, spent }
    }
}

impl Tables {
    /// What they say of a key, if anything.
    pub fn get(&self, key: Key) -> Option<&Option<Bytes>> {
        self.active.get(key).or_else(|| self.frozen.get(key))
    }

    /// The first key of a range of which they say anything, and what; the newest counts.
    pub fn first(&self, keys: impl RangeBounds<Key> + Clone) -> Option<(Key, Option<Bytes>)> {
        let active = self.active.first(keys.clone());
        let frozen = self.frozen.first(keys).filter(|(key, _)| active.is_none_or(|(first, _)| *key < first));
        frozen.or(active).map(|(key, value)| (key, value.clone()))
    }

    /// Sets all changes so far aside: they are to be merged.
    pub fn freeze(&mut self) {
        assert!(self.frozen.len() == 0, "one merge at a time");
        self.frozen = std::mem::take(&mut self.active);
        self.merged = Bound::Unbounded;
    }

    /// True if there is something frozen that is not merged yet.
    pub fn is_to_be_merged(&self) -> bool {
        !self.frozen.is_empty_from(self.merged)
    }

    /// All that was frozen is merged.
    pub fn thaw(&mut self) {
        assert!(!self.is_to_be_merged(), "all is merged first");
        self.spent = std::mem::take(&mut self.frozen);
    }

    /// A little at a time: to forget them all at once takes too long.
    pub fn tidy(&mut self) {
        self.spent.forget(FORGOTTEN_AT_ONCE);
    }

    /// How many are not merged yet.
    pub fn pending(&self) -> usize {
        self.active.len() + self.frozen.len()
    }
}
