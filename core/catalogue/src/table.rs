//! Changes in memory: what keys have as their value since, or that they have none.

use crate::room::Growth;
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
