//! An overlay is the map as a request sees it: the changes of the request so far take precedence over the stored map.

use crate::key::Key;
use crate::map_access::{Change, Obstacle, View};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// A view with the changes of a request.
pub struct Overlay<'a> {
    view: &'a mut dyn View,
    changed: BTreeMap<Key, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    /// An overlay without changes.
    pub fn new(view: &'a mut dyn View) -> Overlay<'a> {
        Overlay { view, changed: BTreeMap::new() }
    }

    /// The changes, ascending by key.
    pub fn into_changes(self) -> Vec<Change> {
        self.changed.into_iter().map(|(key, value)| Change { key, value }).collect()
    }

    /// Gives a key a value, or removes it.
    pub fn put(&mut self, key: Key, value: Option<Bytes>) {
        self.changed.insert(key, value);
    }

    pub fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        match self.changed.get(&key) {
            Some(value) => Ok(value.clone()),
            None => self.view.get(key),
        }
    }

    /// The values of several keys. All of them are requested from the view before a missing one ends the evaluation, so that the view can
    /// fetch them at once.
    pub fn get_all(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Vec<Option<Bytes>>, Obstacle> {
        let values: Vec<_> = keys.into_iter().map(|key| self.get(key)).collect();
        values.into_iter().collect()
    }

    /// At most `most` keys of a range with their values, and whether there are more.
    pub fn some_of(
        &mut self,
        from: Option<Key>,
        last: Key,
        most: usize,
    ) -> Result<(Vec<(Key, Bytes)>, bool), Obstacle> {
        let mut found = Vec::new();
        let mut next = from;
        while let Some(from) = next
            && from <= last
        {
            let first = self.first(from..=last);
            if first == Err(Obstacle::NotHere) {
                // One more than asked for would show whether there are more; but a request for the first key alone fetches no more than
                // that.
                self.view.will_need(from..=last, most - found.len());
            }
            let Some((key, value)) = first? else { break };
            if found.len() == most {
                return Ok((found, true));
            }
            found.push((key, value));
            next = key.after();
        }
        Ok((found, false))
    }

    /// The first key of a range that has a value, and that value.
    pub fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        let (mut from, last) = keys.into_inner();
        loop {
            let there = self.view.first(from..=last)?;
            let changed = self.changed.range((Bound::Included(from), Bound::Included(last))).next();
            match (there, changed) {
                (there, None) => return Ok(there),
                (Some(there), Some((key, _))) if there.0 < *key => return Ok(Some(there)),
                (_, Some((key, Some(value)))) => return Ok(Some((*key, value.clone()))),
                // This request has removed the key: continue with the next one.
                (_, Some((key, None))) => match key.after().filter(|next| *next <= last) {
                    Some(next) => from = next,
                    None => return Ok(None),
                },
            }
        }
    }
}
