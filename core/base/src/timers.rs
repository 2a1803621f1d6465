//! One timer a key, the earliest first.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Deadlines by key. Setting a key again moves its deadline.
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
    /// Wakes `key` at `time`, and no longer at the time set before.
    pub fn set(&mut self, key: K, time: Time) {
        if let Some(before) = self.by_key.insert(key, time) {
            self.by_time.remove(&(before, key));
        }
        self.by_time.insert((time, key));
    }

    /// Forgets `key`'s deadline, if it has one.
    pub fn cancel(&mut self, key: K) {
        if let Some(time) = self.by_key.remove(&key) {
            self.by_time.remove(&(time, key));
        }
    }

    /// When `key` is to be woken.
    pub fn deadline_of(&self, key: K) -> Option<Time> {
        self.by_key.get(&key).copied()
    }

    /// How many keys have a deadline.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True if none has.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<(Time, K)> {
        self.by_time.first().copied()
    }

    /// Takes out one key whose deadline has come.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        let (time, key) = self.next()?;
        if time > now {
            return None;
        }
        self.cancel(key);
        Some(key)
    }
}
