//! What an evaluation may look at, and what it wants changed.

use crate::key::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The map as it is, all changes included that came before, durable or not.
pub trait View {
    /// The value of a key.
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle>;
    /// The first key of a range that has a value, and that value.
    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle>;
    /// The keys of a range are going to be looked at, from the first on, so many of them at most: a view may fetch what is not here in one go.
    fn will_need(&mut self, _keys: RangeInclusive<Key>, _most: usize) {}
    /// The first key of a range that is known to have a value, and whether what was passed over before it, or to the end, is damaged: for those
    /// who take away what nobody will ask for any more. What is damaged stays.
    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        Ok(Known { key: self.first(keys)?.map(|(key, _)| key), passed_damage: false })
    }
}

/// See [`View::first_known`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// None: no other is known to have a value.
    pub key: Option<Key>,
    /// There may be others that had one.
    pub passed_damage: bool,
}

/// Why a view can't tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not in memory. The view has noted what was wanted: look again when that is there.
    NotHere,
    /// It is damaged.
    Lost,
}

/// A key's value from now on; none: nothing. A key that had no value may be among those that are to have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which key.
    pub key: Key,
    /// Its value.
    pub value: Option<Bytes>,
}

/// All in memory: for tests, models, and whatever is small.
impl View for BTreeMap<Key, Bytes> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        Ok(BTreeMap::get(self, &key).cloned())
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        Ok(self.range(keys).next().map(|(key, value)| (*key, value.clone())))
    }
}

/// Makes the changes in a map.
pub fn apply(changes: &[Change], map: &mut BTreeMap<Key, Bytes>) {
    for Change { key, value } in changes {
        match value {
            Some(value) => map.insert(*key, value.clone()),
            None => map.remove(key),
        };
    }
}
