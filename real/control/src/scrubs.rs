//! Records of scrubs: progress, so that an interrupted scrub can continue, and findings, so that lost ranges stay known.
//!
//! Each volume has one file, `scrubs/NUMBER.json`, which is replaced as a whole. If it is lost, the scrub starts from the beginning.

use crate::file::{self, Durability};
use crate::paths::SCRUBS;
use crate::private_files::create_private_folder;
use crate::{ControlError, LocalFolder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The record of a volume's last scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    /// The first stripe that has not been checked.
    pub next_stripe: u64,
    pub stripes: u64,
    /// When the scrub began, in milliseconds since 1970.
    pub begun: u64,
    /// When it was completed, in milliseconds since 1970; none while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// True if blocks with checksum errors were repaired.
    pub repair: bool,
    /// True if redundancy that did not match was computed anew.
    pub recompute: bool,
    pub found: ScrubFindings,
    /// Ranges known to be lost for good: found by this scrub, by the previous one where this one has not come yet, and by rebuilds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ByteRange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFindings {
    pub rows: u64,
    /// Blocks with checksum errors.
    pub lost: u64,
    /// How many of them lay on each device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_of_device: BTreeMap<u16, u64>,
    /// Blocks among them that were repaired.
    pub repaired: u64,
    /// Rows in which too much is lost to reconstruct it.
    pub unrepairable: u64,
    /// Stripes, or parts of stripes, whose redundancy did not match.
    pub mismatched: u64,
    /// Stripes, or parts of stripes, whose redundancy was computed anew.
    pub recomputed: u64,
    /// Stripes, or parts of stripes, that could not be checked.
    pub skipped: u64,
    /// Ranges whose redundancy did not match and was not computed anew; the first [`RANGES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mismatches: Vec<ByteRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteRange {
    pub offset: u64,
    pub length: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u64,
    scrub: ScrubRecord,
}

impl LocalFolder {
    pub(crate) fn scrub(&self, volume: u64) -> Result<Option<ScrubRecord>, ControlError> {
        match file::read::<Stored>(&self.scrub_path(volume)) {
            Ok(stored) => Ok(stored.map(|stored| stored.scrub)),
            // The file is not synced, so a power loss may leave it empty.
            Err(ControlError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn note_scrub(&self, volume: u64, scrub: &ScrubRecord) -> Result<(), ControlError> {
        let dir = self.path(SCRUBS);
        create_private_folder(&dir).map_err(ControlError::file("create", &dir))?;
        let stored = Stored { schema: file::SCHEMA, scrub: scrub.clone() };
        let _lock = self.lock()?;
        self.replace(&self.scrub_path(volume), &stored, Durability::ThisBoot)
    }

    pub(crate) fn note_lost(&self, volume: u64, lost: &[ByteRange]) -> Result<(), ControlError> {
        let mut scrub = self.scrub(volume)?.unwrap_or_default();
        scrub.lost = merged(scrub.lost.iter().chain(lost).copied());
        self.note_scrub(volume, &scrub)
    }

    fn scrub_path(&self, volume: u64) -> PathBuf {
        self.path(SCRUBS).join(format!("{volume}.json"))
    }
}

/// The union of the ranges, as the fewest ranges possible, ascending; the first [`RANGES_MAX`] of them.
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

/// The maximal number of ranges in a record.
pub const RANGES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange { offset, length }
    }

    #[test]
    fn progress_of_a_scrub_and_lost_ranges_are_remembered() {
        let (_scratch, folder) = Scratch::with_array("scrubs");
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
