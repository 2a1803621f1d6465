//! What scrubs have found, and how far they are: so that one that was interrupted goes on, and what is lost stays known.
//!
//! One file a volume, `scrubs/NUMBER.json`, replaced as a whole. Losing one costs a scrub from the beginning.

use crate::file::{self, Durability};
use crate::{ArrayFolder, ControlError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The last scrub of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    /// The first stripe that has not been looked at.
    pub next_stripe: u64,
    /// Stripes of the volume.
    pub stripes: u64,
    /// When it began, in milliseconds since 1970.
    pub begun: u64,
    /// When it was through; none if it was not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Whether what was lost was written again.
    pub repair: bool,
    /// Whether redundancy that did not match was computed anew.
    pub recompute: bool,
    /// What it has found so far.
    pub found: ScrubFindings,
    /// What is lost for good, as far as is known: by this scrub, the last one where this has not yet come, and by rebuilds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ByteRange>,
}

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFindings {
    /// Rows that were checked.
    pub rows: u64,
    /// Blocks that had checksum errors.
    pub lost: u64,
    /// How many of them were written again.
    pub repaired: u64,
    /// Rows in which more is lost than can be worked out.
    pub unrepairable: u64,
    /// Stripes, or parts of some, whose redundancy did not match.
    pub mismatched: u64,
    /// How often it was computed anew.
    pub recomputed: u64,
    /// Stripes, or parts of some, that could not be checked.
    pub skipped: u64,
    /// Where redundancy did not match and was not computed anew; the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mismatches: Vec<ByteRange>,
}

/// Some bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteRange {
    /// The first.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u64,
    scrub: ScrubRecord,
}

impl ArrayFolder {
    /// What is known of the last scrub of a volume. None if there was none, or if nobody can tell.
    pub fn scrub(&self, volume: u64) -> Result<Option<ScrubRecord>, ControlError> {
        match file::read::<Stored>(&self.scrub_path(volume)) {
            Ok(stored) => Ok(stored.map(|stored| stored.scrub)),
            // Not synced, so a power loss may leave it empty.
            Err(ControlError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers how far a scrub is.
    pub fn note_scrub(&self, volume: u64, scrub: &ScrubRecord) -> Result<(), ControlError> {
        let dir = self.path(SCRUBS);
        std::fs::create_dir_all(&dir).map_err(ControlError::file("create", &dir))?;
        let stored = Stored { schema: file::SCHEMA, scrub: scrub.clone() };
        let _lock = self.lock()?;
        self.replace(&self.scrub_path(volume), &stored, Durability::ThisBoot)
    }

    /// Remembers bytes that are lost, besides what a scrub has found.
    pub fn note_lost(&self, volume: u64, lost: &[ByteRange]) -> Result<(), ControlError> {
        let mut scrub = self.scrub(volume)?.unwrap_or_default();
        scrub.lost = merged(scrub.lost.iter().chain(lost).copied());
        self.note_scrub(volume, &scrub)
    }

    fn scrub_path(&self, volume: u64) -> PathBuf {
        self.path(SCRUBS).join(format!("{volume}.json"))
    }
}

/// The same bytes in as few ranges as can be, ascending; the first [`RANGES_MAX`] of them.
pub fn merged(ranges: impl Iterator<Item = ByteRange>) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = ranges.collect();
    ranges.sort_unstable();
    let mut merged: Vec<ByteRange> = Vec::new();
    for range in ranges {
        let end = range.offset.saturating_add(range.length);
        match merged.last_mut().filter(|last| range.offset <= last.offset.saturating_add(last.length)) {
            Some(last) => last.length = last.length.max(end - last.offset),
            None => merged.push(range),
        }
    }
    merged.truncate(RANGES_MAX);
    merged
}

pub(crate) const SCRUBS: &str = "scrubs";
/// Ranges that are remembered.
pub const RANGES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange { offset, length }
    }

    #[test]
    fn how_far_a_scrub_is_and_what_is_lost_is_remembered() {
        let scratch = Scratch::new("scrubs");
        let folder = scratch.array();
        assert_eq!(folder.scrub(1).unwrap(), None);
        let scrub = ScrubRecord { next_stripe: 7, stripes: 9, repair: true, ..ScrubRecord::default() };
        folder.note_scrub(1, &scrub).unwrap();
        assert_eq!((folder.scrub(1).unwrap(), folder.scrub(2).unwrap()), (Some(scrub), None));
        folder.note_lost(1, &[range(8192, 4096)]).unwrap();
        folder.note_lost(1, &[range(4096, 4096), range(20480, 4096)]).unwrap();
        let known = folder.scrub(1).unwrap().unwrap();
        assert_eq!((known.next_stripe, known.lost), (7, vec![range(4096, 8192), range(20480, 4096)]));
        std::fs::write(folder.scrub_path(1), "").unwrap();
        assert_eq!(folder.scrub(1).unwrap(), None, "as a power loss leaves it");
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let all = [range(10, 5), range(0, 5), range(4, 2), range(12, 1), range(15, 1)];
        assert_eq!(merged(all.into_iter()), [range(0, 6), range(10, 6)]);
    }
}
