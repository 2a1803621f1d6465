//! Changes in memory: the new value of each changed key, or that it has none.

use crate::types::Growth;
use braid_objects::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// Changes by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Key, Option<Bytes>>,
    /// How much these changes may make the leaves grow.
    pub growth: Growth,
    /// Some of these changes may make the leaves shrink.
    pub shrinks: bool,
}

impl Table {
    /// The change of a key, if there is one.
    pub fn get(&self, key: Key) -> Option<&Option<Bytes>> {
        self.entries.get(&key)
    }

    /// Changes a key. The value is copied, because it may be a small part of a large buffer.
    pub fn put(&mut self, key: Key, value: Option<&Bytes>) {
        self.entries.insert(key, value.map(|value| Bytes::copy_from_slice(value)));
    }

    /// The first changed key of a range.
    pub fn first(&self, keys: impl RangeBounds<Key>) -> Option<(Key, &Option<Bytes>)> {
        self.range(keys).next().map(|(key, value)| (*key, value))
    }

    pub fn range(&self, keys: impl RangeBounds<Key>) -> std::collections::btree_map::Range<'_, Key, Option<Bytes>> {
        self.entries.range(keys)
    }

    /// True if no key from `from` on is changed.
    pub fn is_empty_from(&self, from: Bound<Key>) -> bool {
        self.range((from, Bound::Unbounded)).next().is_none()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops the first `most` changes.
    pub fn forget(&mut self, most: usize) {
        for _ in 0..most {
            if self.entries.pop_first().is_none() {
                return;
            }
        }
    }
}

/// The number of merged changes that are dropped at once.
const FORGOTTEN_AT_ONCE: usize = 64;

/// All changes in memory, by their state.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub active: Table,
    /// Changes that are being merged.
    pub frozen: Table,
    /// Frozen changes up to this key are merged.
    pub merged: Bound<Key>,
    /// Merged changes that are yet to be dropped.
    spent: Table,
}

impl Default for Tables {
    fn default() -> Self {
        let (active, frozen, spent) = Default::default();
        Tables { active, frozen, merged: Bound::Unbounded, spent }
    }
}

impl Tables {
    /// The newest change of a key, if there is one.
    pub fn get(&self, key: Key) -> Option<&Option<Bytes>> {
        self.active.get(key).or_else(|| self.frozen.get(key))
    }

    /// The first changed key of a range, with its newest change.
    pub fn first(&self, keys: impl RangeBounds<Key> + Clone) -> Option<(Key, Option<Bytes>)> {
        let active = self.active.first(keys.clone());
        let frozen = self.frozen.first(keys).filter(|(key, _)| active.is_none_or(|(first, _)| *key < first));
        frozen.or(active).map(|(key, value)| (key, value.clone()))
    }

    /// Freezes all changes so far, so that they can be merged.
    pub fn freeze(&mut self) {
        assert!(self.frozen.len() == 0, "one merge at a time");
        self.frozen = std::mem::take(&mut self.active);
        self.merged = Bound::Unbounded;
    }

    /// True if some frozen change is not merged yet.
    pub fn is_to_be_merged(&self) -> bool {
        !self.frozen.is_empty_from(self.merged)
    }

    /// All frozen changes are merged.
    pub fn thaw(&mut self) {
        assert!(!self.is_to_be_merged(), "all frozen changes are merged");
        self.spent = std::mem::take(&mut self.frozen);
    }

    /// Drops some merged changes. To drop all of them at once would take too long.
    pub fn tidy(&mut self) {
        self.spent.forget(FORGOTTEN_AT_ONCE);
    }

    /// The number of changes that are not merged yet.
    pub fn pending(&self) -> usize {
        self.active.len() + self.frozen.len()
    }
}
