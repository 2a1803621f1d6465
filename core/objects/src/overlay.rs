//! The map as a request sees it: what the request has changed lies over what was there.

use crate::evaluate::EvaluationError;
use crate::key::Key;
use crate::view::{Change, View};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// See the module.
pub(crate) struct Overlay<'a> {
    view: &'a mut dyn View,
    changed: BTreeMap<Key, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    /// Nothing is changed yet.
    pub fn new(view: &'a mut dyn View) -> Overlay<'a> {
        Overlay { view, changed: BTreeMap::new() }
    }

    /// What is changed, ascending.
    pub fn into_changes(self) -> Vec<Change> {
        self.changed.into_iter().map(|(key, value)| Change { key, value }).collect()
    }

    /// Gives a key a value, or none.
    pub fn put(&mut self, key: Key, value: Option<Bytes>) {
        self.changed.insert(key, value);
    }

    /// The value of a key.
    pub fn get(&mut self, key: Key) -> Result<Option<Bytes>, EvaluationError> {
        match self.changed.get(&key) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.view.get(key)?),
        }
    }

    /// The values of several keys. The view hears of all of them before one that is not here ends the evaluation, so that it
    /// can fetch them at once.
    pub fn get_all(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<Vec<Option<Bytes>>, EvaluationError> {
        let values: Vec<_> = keys.into_iter().map(|key| self.get(key)).collect();
        values.into_iter().collect()
    }

    /// At most so many keys of a range with the lengths of their values, and whether there are more.
    pub fn some_of(
        &mut self,
        from: Option<Key>,
        last: Key,
        most: usize,
    ) -> Result<(Vec<(Key, usize)>, bool), EvaluationError> {
        let mut found = Vec::new();
        let mut next = from;
        while let Some(from) = next
            && from <= last
        {
            let first = self.first_length(from..=last);
            if matches!(first, Err(EvaluationError::NotHere)) {
                // Those asked for, and one that tells whether there are more: but who wants only the first gets no more than that fetched.
                self.view.will_need(from..=last, most - found.len());
            }
            let Some((key, length)) = first? else { break };
            if found.len() == most {
                return Ok((found, true));
            }
            found.push((key, length));
            next = key.after();
        }
        Ok((found, false))
    }

    /// The first key that has a value, and how long that is.
    fn first_length(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, usize)>, EvaluationError> {
        let (mut from, last) = keys.into_inner();
        loop {
            let there = self.view.first(from..=last)?.map(|(key, value)| (key, value.len()));
            let changed = self.changed.range((Bound::Included(from), Bound::Included(last))).next();
            match (there, changed) {
                (there, None) => return Ok(there),
                (Some(there), Some((key, _))) if there.0 < *key => return Ok(Some(there)),
                (_, Some((key, Some(value)))) => return Ok(Some((*key, value.len()))),
                // This request has taken it away: what comes behind it?
                (_, Some((key, None))) => match key.after().filter(|next| *next <= last) {
                    Some(next) => from = next,
                    None => return Ok(None),
                },
            }
        }
    }
}
