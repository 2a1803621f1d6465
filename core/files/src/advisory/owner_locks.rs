//! What one owner has locked of one inode, and the holds that cover it.

use braid_base::{BlockRange, Extents};
use braid_wire::LockMode;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct OwnerLocks {
    shared: Extents,
    exclusive: Extents,
    holds: BTreeMap<u64, Hold>,
}

/// A lock that the server has granted.
#[derive(Clone, Debug)]
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

    /// The holds over which a lock is to be asked for: none, unless some of them are too weak for it.
    pub fn over(&self, range: BlockRange, mode: LockMode) -> Vec<u64> {
        let has_weak = self.holds.values().any(|hold| hold.is_weak(range, mode));
        if has_weak { self.touching(range) } else { Vec::new() }
    }

    /// The holds that touch a range.
    pub fn touching(&self, range: BlockRange) -> Vec<u64> {
        let touching = self.holds.iter().filter(|(_, hold)| hold.ranges.iter().any(|held| held.overlaps(range)));
        touching.map(|(holder, _)| *holder).collect()
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

    /// What is locked within these ranges, and covered by no hold.
    pub fn uncovered(&self, ranges: &[BlockRange]) -> Vec<BlockRange> {
        let mut uncovered = within(&self.shared, ranges);
        within(&self.exclusive, ranges).from(0).for_each(|range| uncovered.insert(range));
        self.held().for_each(|held| uncovered.remove(held));
        uncovered.from(0).collect()
    }

    /// Takes out the holds that are not needed beside the others.
    pub fn take_unused(&mut self) -> Vec<u64> {
        let unused =
            self.unfit().into_iter().filter(|(_, [exclusive, shared])| exclusive.is_empty() && shared.is_empty());
        let unused: Vec<u64> = unused.map(|(holder, _)| holder).collect();
        unused.iter().for_each(|holder| drop(self.holds.remove(holder)));
        unused
    }

    /// What is to be held instead of a part of a hold that does not fit what is locked: its ranges in one mode.
    pub fn excess(&self) -> Option<(LockMode, Vec<BlockRange>)> {
        self.unfit().into_iter().find_map(|(_, [exclusive, shared])| match exclusive.is_empty() {
            false => Some((LockMode::Exclusive, exclusive.from(0).collect())),
            true if shared.is_empty() => None,
            true => Some((LockMode::Shared, shared.from(0).collect())),
        })
    }

    /// The holds that do not fit what is locked. For each, what is locked within it, exclusively and shared, and not covered by holds that
    /// fit. Holds that fit do not overlap, because only what no hold covers is requested.
    fn unfit(&self) -> Vec<(u64, [Extents; 2])> {
        let (fit, unfit): (Vec<_>, Vec<_>) = self.holds.iter().partition(|(_, hold)| self.fits(hold));
        if unfit.is_empty() {
            return Vec::new();
        }
        let [mut strong, mut any] = [Extents::default(), Extents::default()];
        for (_, hold) in fit {
            hold.ranges.iter().for_each(|range| any.insert(*range));
            if hold.mode == LockMode::Exclusive {
                hold.ranges.iter().for_each(|range| strong.insert(*range));
            }
        }
        let needs = |locked: &Extents, cover: &Extents, hold: &Hold| {
            let mut needs = within(locked, &hold.ranges);
            within(cover, &hold.ranges).from(0).for_each(|covered| needs.remove(covered));
            needs
        };
        let needs = |(holder, hold): (&u64, &Hold)| {
            (*holder, [needs(&self.exclusive, &strong, hold), needs(&self.shared, &any, hold)])
        };
        unfit.into_iter().map(needs).collect()
    }

    /// True if all of a hold is locked, in its mode.
    fn fits(&self, hold: &Hold) -> bool {
        let locked = if hold.mode == LockMode::Exclusive { &self.exclusive } else { &self.shared };
        within(locked, &hold.ranges).blocks() == hold.ranges.iter().map(|range| range.count).sum::<u64>()
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

fn within(locked: &Extents, ranges: &[BlockRange]) -> Extents {
    let mut within = Extents::default();
    for range in ranges {
        let locked = locked.from(range.start).take_while(|locked| locked.start < range.end());
        locked.for_each(|locked| within.insert(locked.intersection(*range)));
    }
    within
}
