//! What one owner has locked of one inode, and the holds that cover it.

use braid_base::{BlockRange, Extents};
use braid_wire::LockMode;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct OwnerLocks {
    shared: Extents,
    exclusive: Extents,
    holds: BTreeMap<u64, Hold>,
}

/// A lock that the server has granted.
#[derive(Debug)]
struct Hold {
    ranges: Vec<BlockRange>,
    mode: LockMode,
}

impl OwnerLocks {
    /// Locks a range, in place of what is locked there.
    pub fn lock(&mut self, range: BlockRange, mode: LockMode) {
        self.unlock(range);
        match mode {
            LockMode::Shared => self.shared.insert(range),
            LockMode::Exclusive => self.exclusive.insert(range),
        }
    }

    pub fn unlock(&mut self, range: BlockRange) {
        self.shared.remove(range);
        self.exclusive.remove(range);
    }

    /// Unlocks everything.
    pub fn clear(&mut self) {
        self.shared = Extents::default();
        self.exclusive = Extents::default();
    }

    /// The server has granted a hold.
    pub fn hold(&mut self, holder: u64, ranges: Vec<BlockRange>, mode: LockMode) {
        self.holds.insert(holder, Hold { ranges, mode });
    }

    /// Takes out the holds that are too weak for a lock of this mode.
    pub fn take_weak(&mut self, range: BlockRange, mode: LockMode) -> Vec<(u64, Vec<BlockRange>)> {
        let weak = self.holds.extract_if(.., |_, hold| hold.is_weak(range, mode));
        weak.map(|(holder, hold)| (holder, hold.ranges)).collect()
    }

    /// The holds that are too weak for a lock of this mode.
    pub fn weak(&self, range: BlockRange, mode: LockMode) -> Vec<u64> {
        self.holds.iter().filter(|(_, hold)| hold.is_weak(range, mode)).map(|(holder, _)| *holder).collect()
    }

    /// What no hold covers of a range, and of what was given up for it.
    pub fn missing(&self, range: BlockRange, mode: LockMode, yielded: &[BlockRange]) -> Vec<BlockRange> {
        let mut missing = Extents::default();
        missing.insert(range);
        yielded.iter().for_each(|range| missing.insert(*range));
        let strong = self.holds.values().filter(|hold| !hold.is_weak(range, mode));
        strong.flat_map(|hold| &hold.ranges).for_each(|held| missing.remove(*held));
        missing.from(0).collect()
    }

    /// Takes out those of these shared holds in whose place there are exclusive ones.
    pub fn take_replaced(&mut self, shared: &[u64]) -> Vec<u64> {
        let mut exclusive = Extents::default();
        let strong = self.holds.values().filter(|hold| hold.mode == LockMode::Exclusive);
        strong.flat_map(|hold| &hold.ranges).for_each(|held| exclusive.insert(*held));
        let is_covered = |range: &BlockRange| exclusive.from(range.start).next().is_some_and(|by| by.contains(*range));
        let is_replaced = |holder: &u64| self.holds.get(holder).is_some_and(|hold| hold.ranges.iter().all(is_covered));
        let replaced: Vec<u64> = shared.iter().copied().filter(is_replaced).collect();
        replaced.iter().for_each(|holder| drop(self.holds.remove(holder)));
        replaced
    }

    /// What is locked within these ranges, and covered by no hold.
    pub fn uncovered(&self, ranges: &[BlockRange]) -> Vec<BlockRange> {
        let mut uncovered = Extents::default();
        for range in ranges {
            for locked in [&self.shared, &self.exclusive] {
                let locked = locked.from(range.start).take_while(|locked| locked.start < range.end());
                locked.for_each(|locked| uncovered.insert(locked.intersection(*range)));
            }
        }
        self.held().for_each(|held| uncovered.remove(held));
        uncovered.from(0).collect()
    }

    /// Takes out the holds that cover nothing that is locked.
    pub fn take_unused(&mut self) -> Vec<u64> {
        let is_locked = |range: &BlockRange| {
            let first = |locked: &Extents| locked.from(range.start).next();
            [&self.shared, &self.exclusive].into_iter().filter_map(first).any(|locked| locked.overlaps(*range))
        };
        let unused =
            self.holds.iter().filter(|(_, hold)| !hold.ranges.iter().any(is_locked)).map(|(holder, _)| *holder);
        let unused: Vec<_> = unused.collect();
        unused.iter().for_each(|holder| drop(self.holds.remove(holder)));
        unused
    }

    /// The numbers of the holds.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        self.holds.keys().copied()
    }

    /// The number of holds and of runs that are locked.
    pub fn len(&self) -> usize {
        self.holds.len() + self.shared.len() + self.exclusive.len()
    }

    /// True if nothing is locked or held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn invariants(&self) {
        for mode in [LockMode::Shared, LockMode::Exclusive] {
            let mut covered = Extents::default();
            for (holder, hold) in self.holds.iter().filter(|(_, hold)| hold.mode == mode) {
                for range in &hold.ranges {
                    let before = covered.blocks();
                    covered.insert(*range);
                    assert_eq!(covered.blocks(), before + range.count, "holds of one mode do not overlap: {holder}");
                }
            }
        }
    }

    fn held(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.holds.values().flat_map(|hold| hold.ranges.iter().copied())
    }
}

impl Hold {
    /// True if it touches the range, and does not allow a lock of this mode.
    fn is_weak(&self, range: BlockRange, mode: LockMode) -> bool {
        let touches = self.ranges.iter().any(|held| held.overlaps(range));
        mode == LockMode::Exclusive && self.mode == LockMode::Shared && touches
    }
}
