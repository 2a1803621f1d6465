//! A timer table holds one deadline for each key, and finds the earliest.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Deadlines by key. Setting a key again replaces its deadline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timers<K: Ord> {
    by_time: BTreeSet<(Time, K)>,
    by_key: BTreeMap<K, Time>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Sets `key`'s deadline, and replaces an earlier setting.
    pub fn set(&mut self, key: K, time: Time) {
        if let Some(before) = self.by_key.insert(key, time) {
            self.by_time.remove(&(before, key));
        }
        self.by_time.insert((time, key));
    }

    /// Removes `key`'s deadline, if it has one.
    pub fn cancel(&mut self, key: K) {
        if let Some(time) = self.by_key.remove(&key) {
            self.by_time.remove(&(time, key));
        }
    }

    /// `key`'s deadline, if it has one.
    pub fn deadline_of(&self, key: K) -> Option<Time> {
        self.by_key.get(&key).copied()
    }

    /// The number of keys with a deadline.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if no key has a deadline.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The earliest deadline and its key.
    pub fn next(&self) -> Option<(Time, K)> {
        self.by_time.first().copied()
    }

    /// Removes and returns the key with the earliest deadline, if that has passed.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let (time, key) = self.next()?;
        if time > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }
}
