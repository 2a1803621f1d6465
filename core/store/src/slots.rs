//! Which slots are free. Slots below the frontier have their space set aside on the disk; the frontier moves ahead of
//! need, and where the disk has no more to give, what is below it goes on being used.

use std::collections::BTreeSet;

/// A set of small numbers that finds the next member in a few steps, however many there are.
#[derive(Debug)]
struct Bits {
    /// A bit a number; above it, a bit for each word below that is not empty; and so on up to a single word.
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

/// The slots of a device.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Bits,
    total: u32,
    frontier: u32,
    cursor: u32,
    /// Nobody's any more, but with a command still in flight.
    pub releasing: BTreeSet<u32>,
}

impl Slots {
    /// All slots: those that `used` names are taken, and space is set aside for them and those below.
    pub fn new(total: u32, used: impl Iterator<Item = u32>) -> Slots {
        let mut taken = Bits::new(total);
        let mut frontier = 0;
        for slot in used.filter(|slot| *slot < total) {
            if !taken.contains(slot) {
                taken.insert(slot);
                frontier = frontier.max(slot + 1);
            }
        }
        let mut free = Bits::new(total);
        (0..frontier).filter(|slot| !taken.contains(*slot)).for_each(|slot| free.insert(slot));
        Slots { free, total, frontier, cursor: 0, releasing: BTreeSet::new() }
    }

    /// Takes a free slot; neighbours one after the other where it can.
    pub fn take(&mut self) -> u32 {
        let slot = self.free.next(self.cursor).or_else(|| self.free.next(0)).expect("the caller made sure of a slot");
        self.free.remove(slot);
        self.cursor = slot + 1;
        slot
    }

    /// Gives a slot back.
    pub fn give_back(&mut self, slot: u32) {
        assert!(slot < self.frontier, "slot {slot} was never set aside");
        self.free.insert(slot);
    }

    /// Space for every slot below `frontier` is set aside now.
    pub fn extend(&mut self, frontier: u32) {
        (self.frontier..frontier).for_each(|slot| self.free.insert(slot));
        self.frontier = frontier;
    }

    /// Slots that can be taken.
    pub fn free(&self) -> u32 {
        self.free.count
    }

    /// True if `slot` can be taken.
    pub fn is_free(&self, slot: u32) -> bool {
        self.free.contains(slot)
    }

    /// Space is set aside for all slots below this one.
    pub fn frontier(&self) -> u32 {
        self.frontier
    }

    /// All slots of the device.
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
        let mut slots = Slots::new(100, [2, 5].into_iter());
        assert_eq!((slots.free(), slots.frontier()), (4, 6));
        assert_eq!((0..4).map(|_| slots.take()).collect::<Vec<_>>(), [0, 1, 3, 4]);
        slots.extend(8);
        assert_eq!(slots.take(), 6);
        slots.give_back(1);
        assert_eq!((slots.take(), slots.take()), (7, 1));
    }
}
