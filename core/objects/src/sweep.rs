//! What removed objects leave behind, and how it goes: a little at a time.

use crate::key::{Key, Kind};
use crate::view::{Change, Obstacle, View};

/// Some of what is left of lives that are over is to go: `most` keys at most, which is not zero. Nothing if nothing is left.
pub fn sweep(view: &mut dyn View, most: usize) -> Result<Vec<Change>, Obstacle> {
    assert!(most > 0, "a sweep gets on");
    let ended = Key { kind: Kind::Ended, of: 0, index: 0 }..=Key { kind: Kind::Ended, of: u64::MAX, index: u64::MAX };
    let Some((ended, _)) = view.first_length(ended)? else { return Ok(Vec::new()) };
    let mut changes = Vec::new();
    for kind in [Kind::Piece, Kind::Attribute] {
        let last = Key { kind, of: ended.of, index: u64::MAX };
        let mut next = Some(Key { kind, of: ended.of, index: 0 });
        while let Some(from) = next
            && let Some((key, _)) = view.first_length(from..=last)?
        {
            if changes.len() == most {
                return Ok(changes);
            }
            changes.push(Change { key, value: None });
            next = key.index.checked_add(1).map(|index| Key { index, ..key });
        }
    }
    if changes.len() < most {
        changes.push(Change { key: ended, value: None });
    }
    Ok(changes)
}
