//! Garbage collection deletes what removed objects leave behind, a limited number of keys at a time.

use crate::evaluate::NotHere;
use crate::key::{Key, Kind};
use crate::map_access::{Change, Known, Obstacle, View};

/// A step of a garbage collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The keys to delete.
    pub changes: Vec<Change>,
    /// The incarnation from which to continue; `None` if nothing is left.
    pub next: Option<u64>,
}

/// Selects at most `most` keys (at least one) of ended incarnations from `from` on for deletion. Damaged keys are kept, and so is the
/// record that their incarnation has ended: a garbage collection after a restart may be able to read them.
pub fn collect(view: &mut dyn View, from: u64, most: usize) -> Result<Collected, NotHere> {
    assert!(most > 0, "a step of a garbage collection must be able to delete a key");
    let last = Key { kind: Kind::Ended, of: u64::MAX, index: u64::MAX };
    let Known { key: ended, .. } = known(view, Key::ended(from), last)?;
    let Some(ended) = ended else { return Ok(Collected { changes: Vec::new(), next: None }) };
    let mut changes = Vec::new();
    let mut damaged = false;
    for kind in [Kind::Piece, Kind::Attribute] {
        let last = Key { kind, of: ended.of, index: u64::MAX };
        let mut next = Some(Key { kind, of: ended.of, index: 0 });
        while let Some(from) = next {
            let Known { key, passed_damage } = known(view, from, last)?;
            damaged |= passed_damage;
            let Some(key) = key else { break };
            if changes.len() == most {
                return Ok(Collected { changes, next: Some(ended.of) });
            }
            changes.push(Change { key, value: None });
            next = key.index.checked_add(1).map(|index| Key { index, ..key });
        }
    }
    if !damaged && changes.len() == most {
        return Ok(Collected { changes, next: Some(ended.of) });
    }
    if !damaged {
        changes.push(Change { key: ended, value: None });
    }
    Ok(Collected { changes, next: ended.of.checked_add(1) })
}

/// Finds the first key of a range. Damaged keys are only skipped if the plain search fails, because a view remembers of other searches
/// what it has skipped.
fn known(view: &mut dyn View, from: Key, last: Key) -> Result<Known, NotHere> {
    let found = match view.first(from..=last) {
        Ok(found) => Ok(Known { key: found.map(|(key, _)| key), passed_damage: false }),
        Err(Obstacle::Lost) => view.first_known(from..=last),
        Err(Obstacle::NotHere) => Err(Obstacle::NotHere),
    };
    match found {
        Ok(known) => Ok(known),
        Err(Obstacle::NotHere) => Err(NotHere),
        Err(Obstacle::Lost) => Ok(Known { key: None, passed_damage: true }),
    }
}
