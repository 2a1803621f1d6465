//! Reading a range of keys, one by one. Damage is reported and passed.

use crate::check::finding::{Finding, Report};
use crate::records::Damaged;
use braid_objects::{Key, NotHere, Obstacle, View};
use bytes::Bytes;
use std::ops::RangeInclusive;

/// A scan of a range of keys.
#[derive(Clone, Debug)]
pub struct Scan {
    next: Option<Key>,
    last: Key,
}

/// How many keys a scan announces.
const AHEAD: usize = 64;

impl Scan {
    pub fn over(keys: RangeInclusive<Key>) -> Scan {
        let (first, last) = keys.into_inner();
        Scan { next: (first <= last).then_some(first), last }
    }

    /// The next key with its value; `None` at the end.
    pub fn advance(&mut self, view: &mut dyn View, report: &mut Report) -> Result<Option<(Key, Bytes)>, NotHere> {
        let Some(from) = self.next else { return Ok(None) };
        let found = match view.first(from..=self.last) {
            Ok(found) => found,
            Err(Obstacle::NotHere) => {
                view.will_need(from..=self.last, AHEAD);
                return Err(NotHere);
            }
            Err(Obstacle::Lost) => {
                let found = pass_damage(view, from..=self.last)?;
                report.add(Finding::Damaged { key: from });
                found
            }
        };
        self.next = found.as_ref().and_then(|(key, _)| key.after()).filter(|next| *next <= self.last);
        Ok(found)
    }
}

/// The first readable key.
fn pass_damage(view: &mut dyn View, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, NotHere> {
    let read = |view: &mut dyn View| -> Result<Option<(Key, Bytes)>, Obstacle> {
        let Some(key) = view.first_known(keys)?.key else { return Ok(None) };
        Ok(view.get(key)?.map(|value| (key, value)))
    };
    match read(view) {
        Ok(found) => Ok(found),
        Err(Obstacle::NotHere) => Err(NotHere),
        Err(Obstacle::Lost) => Ok(None),
    }
}

/// Decodes the value of a key, and reports damage.
pub fn decode<T>(
    key: Key,
    value: &Bytes,
    report: &mut Report,
    decode: impl FnOnce(Key, &Bytes) -> Result<T, Damaged>,
) -> Option<T> {
    let decoded = decode(key, value);
    if decoded.is_err() {
        report.add(Finding::Damaged { key });
    }
    decoded.ok()
}

/// Reads and decodes the value of a single key, and reports if it is missing or damaged.
pub fn read<T>(
    view: &mut dyn View,
    key: Key,
    report: &mut Report,
    decoder: impl FnOnce(Key, &Bytes) -> Result<T, Damaged>,
) -> Result<Option<T>, NotHere> {
    match view.get(key) {
        Ok(Some(value)) => Ok(decode(key, &value, report, decoder)),
        Ok(None) => {
            report.add(Finding::Missing { key });
            Ok(None)
        }
        Err(Obstacle::NotHere) => Err(NotHere),
        Err(Obstacle::Lost) => {
            report.add(Finding::Damaged { key });
            Ok(None)
        }
    }
}
