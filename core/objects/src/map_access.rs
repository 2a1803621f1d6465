//! Access to the map of attributes and data. A view is the read access of an evaluation to the map. A change is what an evaluation wants written.

use crate::key::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The present map, including all earlier changes, durable or not.
pub trait View {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle>;
    /// The first key of a range that has a value, and that value.
    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle>;
    /// Announces that at most `most` keys of a range will be read, from the first on, so that the view can fetch those that are not in
    /// memory together.
    fn will_need(&mut self, _keys: RangeInclusive<Key>, _most: usize) {}
    /// The first readable key of a range that has a value, and whether damaged keys were skipped before it (or before the end). For
    /// garbage collection, which deletes keys that are not needed any more, and leaves damaged ones.
    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        Ok(Known { key: self.first(keys)?.map(|(key, _)| key), passed_damage: false })
    }
}

/// The result of [`View::first_known`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The key; `None` if no readable key has a value.
    pub key: Option<Key>,
    /// Damaged keys were skipped.
    pub passed_damage: bool,
}

/// Why a view can't read a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not in memory. The view has noted the key: evaluate again when it has been read.
    NotHere,
    /// It is damaged.
    Lost,
}

/// The new value of a key; `None` removes the key, which need not have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub value: Option<Bytes>,
}

/// A map in memory: for tests, models and small content.
impl View for BTreeMap<Key, Bytes> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        Ok(BTreeMap::get(self, &key).cloned())
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        Ok(self.range(keys).next().map(|(key, value)| (*key, value.clone())))
    }
}

pub fn apply(changes: &[Change], map: &mut BTreeMap<Key, Bytes>) {
    for Change { key, value } in changes {
        match value {
            Some(value) => map.insert(*key, value.clone()),
            None => map.remove(key),
        };
    }
}
