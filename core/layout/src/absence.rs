//! An absence lists the devices of a volume's ring that plans must not use as usual.
//!
//! ```text
//!              read    written
//!   normal     yes     yes
//!   stale      no      yes       it is returning, and is being resynchronised
//!   lost       no      no        it is out
//! ```
//!
//! Blocks that are written to a stale device are valid from then on, but the layout does not know which of its other blocks are stale.
//! Therefore the device is not read at all until its resynchronisation (`RestorePlan`) is complete and it is removed from the list.

/// The positions of a volume's ring that can't be used as usual.
///
/// Every plan has its own copy. It is usually empty, takes no memory then, and no time to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Absence {
    /// Positions and their state, ascending, each once.
    unavailable: Vec<(usize, Missing)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Missing {
    Lost,
    Stale,
}

impl Absence {
    /// All devices are usable.
    pub fn none() -> Absence {
        Absence::default()
    }

    /// Marks the device at `position` as lost: neither read nor written. Overrides stale.
    pub fn lose(&mut self, position: usize) {
        match self.find(position) {
            Ok(index) => self.unavailable[index].1 = Missing::Lost,
            Err(index) => self.unavailable.insert(index, (position, Missing::Lost)),
        }
    }

    /// Marks the device at `position` as stale: written, but not read. A lost device stays lost.
    pub fn stale(&mut self, position: usize) {
        if let Err(index) = self.find(position) {
            self.unavailable.insert(index, (position, Missing::Stale));
        }
    }

    /// True if all devices are read and written as usual.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.unavailable.is_empty()
    }

    /// True if the device at `position` can be neither written nor read.
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

/// Too many units of a stripe are unavailable for the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many units of a stripe are unavailable, at the ring positions {positions:?}: bring one of these devices back"
)]
pub struct Unavailable {
    /// The ring positions of the unavailable devices, ascending.
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
