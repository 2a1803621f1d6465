//! Which devices of a volume's ring are away, as plans see it.
//!
//! ```text
//!              read    written
//!   usual      yes     yes
//!   stale      no      yes       it was away, is back, and catches up on what it missed
//!   lost       no      no        it is out
//! ```
//!
//! What a stale device takes is right from then on; which of its blocks still lack something is not known here. So it
//! is not read at all, until whoever restores it (`RestorePlan`) is done and takes it off the list.

use std::collections::BTreeSet;

/// Which positions of a volume's ring can't be used as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Absence {
    lost: BTreeSet<usize>,
    /// None of the lost ones.
    stale: BTreeSet<usize>,
}

impl Absence {
    /// Every device is there.
    pub fn none() -> Absence {
        Absence::default()
    }

    /// Neither read nor written from now on: the device at `position` is out. What was said of it before is forgotten.
    pub fn lose(&mut self, position: usize) {
        self.stale.remove(&position);
        self.lost.insert(position);
    }

    /// Written, but not read: the device at `position` is back and catches up. One that is lost stays lost.
    pub fn stale(&mut self, position: usize) {
        if !self.is_lost(position) {
            self.stale.insert(position);
        }
    }

    /// True if every device is read and written as usual.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.lost.is_empty() && self.stale.is_empty()
    }

    /// True if the device at `position` can't be written (nor read).
    #[inline]
    pub fn is_lost(&self, position: usize) -> bool {
        !self.lost.is_empty() && self.lost.contains(&position)
    }

    /// True if the device at `position` can't be read: it is lost or stale.
    #[inline]
    pub fn is_unreadable(&self, position: usize) -> bool {
        self.is_lost(position) || (!self.stale.is_empty() && self.stale.contains(&position))
    }
}

/// Too much of a stripe is away for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much of a stripe is away, at the ring positions {positions:?}: bring one of these devices back")]
pub struct Unavailable {
    /// The devices that stand in the way, by their positions on the ring, ascending.
    pub positions: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_lost_or_stale_and_lost_wins() {
        let mut absence = Absence::none();
        assert!(absence.is_none() && !absence.is_unreadable(3));
        absence.stale(3);
        assert!(!absence.is_none() && absence.is_unreadable(3) && !absence.is_lost(3));
        absence.lose(3);
        absence.stale(3);
        assert!(absence.is_unreadable(3) && absence.is_lost(3) && !absence.is_unreadable(2));
        let mut lost = Absence::none();
        lost.lose(3);
        assert_eq!(absence, lost);
    }
}
