//! Which devices of a volume's ring are unavailable, as plans see it.
//!
//! ```text
//!              read    written
//!   usual      yes     yes
//!   stale      no      yes       it was unavailable, is back, and catches up on what it missed
//!   lost       no      no        it is out
//! ```
//!
//! What a stale device takes is right from then on; which of its blocks still lack something is not known here. So it
//! is not read at all, until whoever restores it (`RestorePlan`) is done and takes it off the list.

/// Which positions of a volume's ring can't be used as usual.
///
/// Every plan keeps its own, most often an empty one: which takes no memory, and no time to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Absence {
    /// Positions and how they are unavailable, ascending: each once.
    unavailable: Vec<(usize, Missing)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Missing {
    Lost,
    Stale,
}

impl Absence {
    /// Every device is there.
    pub fn none() -> Absence {
        Absence::default()
    }

    /// Neither read nor written: the device at `position` is out, even if it was said to be stale.
    pub fn lose(&mut self, position: usize) {
        match self.find(position) {
            Ok(index) => self.unavailable[index].1 = Missing::Lost,
            Err(index) => self.unavailable.insert(index, (position, Missing::Lost)),
        }
    }

    /// Written, but not read: the device at `position` is back and catches up. One that is lost stays lost.
    pub fn stale(&mut self, position: usize) {
        if let Err(index) = self.find(position) {
            self.unavailable.insert(index, (position, Missing::Stale));
        }
    }

    /// True if every device is read and written as usual.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.unavailable.is_empty()
    }

    /// True if the device at `position` can't be written (nor read).
    #[inline]
    pub fn is_lost(&self, position: usize) -> bool {
        !self.is_none() && self.find(position).is_ok_and(|index| self.unavailable[index].1 == Missing::Lost)
    }

    /// True if the device at `position` can't be read: it is lost or stale.
    #[inline]
    pub fn is_unreadable(&self, position: usize) -> bool {
        !self.is_none() && self.find(position).is_ok()
    }

    fn find(&self, position: usize) -> Result<usize, usize> {
        self.unavailable.binary_search_by_key(&position, |(position, _)| *position)
    }
}

/// Too much of a stripe is unavailable for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much of a stripe is unavailable, at the ring positions {positions:?}: bring one of these devices back")]
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
        absence.stale(1);
        assert!(absence.is_unreadable(1) && !absence.is_lost(1));
        assert!(absence.is_unreadable(3) && absence.is_lost(3) && !absence.is_unreadable(2));
        let mut lost = Absence::none();
        lost.stale(1);
        lost.lose(3);
        assert_eq!(absence, lost);
    }
}
