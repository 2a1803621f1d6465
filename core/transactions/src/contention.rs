//! Where attempts were refused lately, and how often. A write without pre-writes is cheaper than one with them, unless it is refused: then
//! the devices that have accepted it must undo an intent. So writes are announced on stripes where another host writes now, and everywhere
//! while refusals are frequent.

use braid_base::{Time, VolumeId};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How long writes of a stripe are announced after a refusal.
const CONTENDED_FOR: Duration = Duration::from_millis(200);
/// The most refusals that are remembered.
const REFUSALS_MAX: usize = 64;
/// Refusals count as frequent above this share of attempts.
const FREQUENT: u32 = ALL / 50;
const ALL: u32 = 1 << 16;
/// Each attempt moves the share by one part of so many.
const ATTEMPTS: u32 = 128;

/// The refusals of a host's writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contention {
    recent: VecDeque<(Time, VolumeId, Range<u64>)>,
    /// The share of refused attempts among the last ones, in parts of [`ALL`].
    share: u32,
}

impl Contention {
    /// True if a write of these stripes is likely to be refused.
    pub fn is_likely(&mut self, now: Time, volume: VolumeId, stripes: &Range<u64>) -> bool {
        while self.recent.front().is_some_and(|(since, ..)| now.since(*since) > CONTENDED_FOR) {
            self.recent.pop_front();
        }
        let meets = |(_, other, refused): &(Time, VolumeId, Range<u64>)| {
            *other == volume && refused.start < stripes.end && stripes.start < refused.end
        };
        self.share > FREQUENT || self.recent.iter().any(meets)
    }

    /// A device has refused a write of these stripes.
    pub fn on_refused(&mut self, now: Time, volume: VolumeId, stripes: Range<u64>) {
        self.share += (ALL - self.share) / ATTEMPTS;
        if self.recent.len() == REFUSALS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, volume, stripes));
    }

    /// An attempt was not refused.
    pub fn on_committed(&mut self) {
        self.share -= self.share / ATTEMPTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(3);

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_refusal_is_remembered_for_its_stripes_for_a_while() {
        let mut contention = Contention::default();
        contention.on_refused(at(10), VOLUME, 4..6);
        assert!(contention.is_likely(at(200), VOLUME, &(5..9)));
        assert!(!contention.is_likely(at(200), VOLUME, &(6..9)), "another stripe");
        assert!(!contention.is_likely(at(200), VolumeId(4), &(4..6)), "another volume");
        assert!(!contention.is_likely(at(211), VOLUME, &(4..6)), "long ago");
    }

    #[test]
    fn frequent_refusals_count_everywhere_until_they_are_rare_again() {
        let mut contention = Contention::default();
        (0..3).for_each(|_| contention.on_refused(at(0), VOLUME, 0..1));
        assert!(contention.is_likely(at(1_000), VOLUME, &(7..8)), "three of so few are more than 2 %");
        (0..80).for_each(|_| contention.on_committed());
        assert!(!contention.is_likely(at(1_000), VOLUME, &(7..8)));
    }
}
