//! The free slots. Disk space is reserved for the slots below the frontier. The frontier moves ahead of need; when the disk has no more
//! space, the slots below it stay in use.

use std::collections::BTreeSet;
use std::ops::Range;

/// A set of small numbers. It finds the next member in a few steps, whatever its size.
#[derive(Clone, Debug, Default)]
struct Bits {
    /// The lowest level has a bit for each number; each level above has a bit for each word of the level below that is not empty, up to a
    /// single word.
    levels: Vec<Vec<u64>>,
    count: u32,
}

impl Bits {
    fn new(length: u32) -> Bits {
        let mut levels = Vec::new();
        let mut words = length as usize;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
            if words == 1 {
                return Bits { levels, count: 0 };
            }
        }
    }

    fn contains(&self, number: u32) -> bool {
        self.levels[0][number as usize / 64] >> (number % 64) & 1 == 1
    }

    fn insert(&mut self, number: u32) {
        assert!(!self.contains(number), "slot {number} is free already");
        self.count += 1;
        let mut at = number as usize;
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    fn remove(&mut self, number: u32) {
        assert!(self.contains(number), "slot {number} is not free");
        self.count -= 1;
        let mut at = number as usize;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The first member from `from` on.
    fn next(&self, from: u32) -> Option<u32> {
        let mut at = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(at / 64)? & (u64::MAX << (at % 64));
            if word != 0 {
                at = at / 64 * 64 + word.trailing_zeros() as usize;
                for below in self.levels[..height].iter().rev() {
                    at = at * 64 + below[at].trailing_zeros() as usize;
                }
                return Some(at as u32);
            }
            at = at / 64 + 1;
        }
        None
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    free: Bits,
    total: u32,
    frontier: u32,
    cursor: u32,
    /// Released slots to which a command is still in flight.
    releasing: BTreeSet<u32>,
    /// Slots that were released during this step.
    pub released: Vec<u32>,
    /// A reservation of disk space is in flight.
    pub is_reserving: bool,
    /// The last reservation was refused.
    pub is_refused: bool,
    /// A request or write waits for merging, which shows how few slots the object index takes.
    pub is_merging_wanted: bool,
}

/// The least and the most number of slots that objects can't have: they are room for undecided overwrites of whole chunks.
pub(crate) const SPARE_MIN: u32 = 64;
const SPARE_MAX: u32 = 1024;

/// A disk counts as failed when it has lost one in so many of these slots.
const BAD_SHARE: u32 = 4;

/// The number of slots, of so many in all, that objects can't have.
pub(crate) fn spare_slots(slots: u32) -> u32 {
    (slots / 16).clamp(SPARE_MIN, SPARE_MAX)
}

/// The number of bad slots, of so many in all, at which the disk counts as failed.
pub(crate) fn bad_slots_max(slots: u32) -> u32 {
    spare_slots(slots) / BAD_SHARE
}

/// The number of bad slots from which the disk is reported to be failing, so that it can be replaced while it still serves.
pub(crate) fn failing_from(slots: u32) -> u32 {
    bad_slots_max(slots) / 2
}

impl Slots {
    /// The slots that `used` names are taken. Disk space is reserved for all slots up to the highest of them. None if a slot does not exist
    /// or has two owners, as when the disk has lost a write that it had reported durable.
    pub fn new(total: u32, used: impl Iterator<Item = u32>) -> Option<Slots> {
        let mut taken = Bits::new(total);
        let mut frontier = 0;
        for slot in used {
            if slot >= total || taken.contains(slot) {
                return None;
            }
            taken.insert(slot);
            frontier = frontier.max(slot + 1);
        }
        let mut free = Bits::new(total);
        (0..frontier).filter(|slot| !taken.contains(*slot)).for_each(|slot| free.insert(slot));
        Some(Slots { free, total, frontier, ..Slots::default() })
    }

    /// Takes a free slot; if possible, the neighbour of the slot taken before.
    pub fn take(&mut self) -> u32 {
        let slot = self
            .free
            .next(self.cursor)
            .or_else(|| self.free.next(0))
            .expect("the caller has checked that a slot is free");
        self.free.remove(slot);
        self.cursor = slot + 1;
        slot
    }

    pub fn give_back(&mut self, slot: u32) {
        assert!(slot < self.frontier, "slot {slot} has no reserved space");
        self.free.insert(slot);
    }

    /// Frees a slot as soon as no command to it is in flight.
    pub fn release(&mut self, slot: u32, is_busy: bool) {
        if is_busy {
            self.releasing.insert(slot);
        } else {
            self.give_back(slot);
        }
    }

    /// Commands to these slots have ended: frees the released slots that waited for that.
    pub fn free_completed(&mut self, slots: Range<u32>, is_busy: impl Fn(u32) -> bool) {
        if self.releasing.is_empty() {
            return;
        }
        let quiet: Vec<u32> = self.releasing.range(slots).copied().filter(|slot| !is_busy(*slot)).collect();
        for slot in quiet {
            self.releasing.remove(&slot);
            self.give_back(slot);
        }
    }

    /// A reservation of disk space has ended.
    pub fn on_reserved(&mut self, frontier: u32, is_done: bool) {
        self.is_reserving = false;
        self.is_refused = !is_done;
        if is_done {
            self.extend(frontier);
        }
    }

    /// Slots that are free, or will be.
    pub fn unused(&self) -> impl Iterator<Item = u32> {
        let free = (0..self.frontier).filter(|slot| self.free.contains(*slot));
        free.chain(self.releasing.iter().copied())
    }

    /// The number of slots without reserved disk space.
    pub fn left(&self) -> u32 {
        self.total - self.frontier
    }

    /// Disk space for every slot below `frontier` is reserved now.
    fn extend(&mut self, frontier: u32) {
        (self.frontier..frontier).for_each(|slot| self.free.insert(slot));
        self.frontier = frontier;
    }

    pub fn free(&self) -> u32 {
        self.free.count
    }

    /// Disk space is reserved for all slots below this one.
    pub fn frontier(&self) -> u32 {
        self.frontier
    }

    /// The number of slots of the device.
    pub fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_set_finds(
            length in 1u32..20_000,
            toggles in prop::collection::vec(any::<u32>(), 0..200),
            asked in prop::collection::vec(any::<u32>(), 1..50),
        ) {
            let (mut bits, mut naive) = (Bits::new(length), BTreeSet::new());
            for number in toggles.into_iter().map(|number| number % length) {
                if naive.insert(number) {
                    bits.insert(number);
                } else {
                    naive.remove(&number);
                    bits.remove(number);
                }
            }
            prop_assert_eq!(bits.count as usize, naive.len());
            for from in asked.into_iter().map(|from| from % (length + 2)) {
                prop_assert_eq!(bits.next(from), naive.range(from..).next().copied());
            }
        }
    }

    #[test]
    fn slots_below_the_highest_used_one_are_free_and_set_aside() {
        assert!(Slots::new(100, [2, 5, 2].into_iter()).is_none(), "a slot has one owner");
        let mut slots = Slots::new(100, [2, 5].into_iter()).expect("each is named once");
        assert_eq!((slots.free(), slots.frontier()), (4, 6));
        assert_eq!((0..4).map(|_| slots.take()).collect::<Vec<_>>(), [0, 1, 3, 4]);
        slots.extend(8);
        assert_eq!(slots.take(), 6);
        slots.give_back(1);
        assert_eq!((slots.take(), slots.take()), (7, 1));
    }
}
