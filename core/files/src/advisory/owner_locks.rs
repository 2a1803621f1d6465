//! What one owner has locked of one inode. A byte is locked by at most one holder of the lock client.

use crate::range_locks::advisory_extent;
use braid_base::BlockRange;
use braid_wire::{LockExtent, LockMode};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct OwnerLocks {
    by_holder: BTreeMap<u64, Vec<LockExtent>>,
}

/// Holders, and what each has.
pub type Holders = Vec<(u64, Vec<LockExtent>)>;

impl OwnerLocks {
    /// The owner has what these holders were granted.
    pub fn add(&mut self, granted: Holders) {
        self.by_holder.extend(granted);
    }

    /// Locks an extent, in place of what is locked there: with what is locked already, and with what these holders were granted. Returns the
    /// holders that have less now.
    pub fn lock(&mut self, extent: LockExtent, granted: Holders) -> Holders {
        let cut = match extent.mode {
            // What is exclusive becomes shared there.
            LockMode::Shared => self.cut(extent, |_| true),
            LockMode::Exclusive => self.cut_weak(extent),
        };
        self.add(granted);
        cut
    }

    /// Unlocks a range. Returns the holders that have less now.
    pub fn unlock(&mut self, range: BlockRange) -> Holders {
        self.cut(advisory_extent(range, LockMode::Exclusive), |_| true)
    }

    /// Unlocks what is too weak for a lock of an extent. Returns the holders that have less now.
    pub fn cut_weak(&mut self, extent: LockExtent) -> Holders {
        self.cut(extent, |locked| is_weak(locked, &extent))
    }

    /// What is too weak for a lock of an extent, and its holder.
    pub fn weak(&self, extent: LockExtent) -> impl Iterator<Item = (u64, LockExtent)> {
        let weak = self.all().filter(move |(_, locked)| is_weak(locked, &extent));
        weak.map(move |(holder, locked)| {
            (holder, LockExtent { range: locked.range.intersection(extent.range), ..*locked })
        })
    }

    /// What is missing for locks of these extents, besides what these holders were granted.
    pub fn missing(&self, wanted: &[LockExtent], granted: &Holders) -> Vec<LockExtent> {
        let granted = || granted.iter().flat_map(|(_, extents)| extents);
        let missing =
            wanted.iter().map(|extent| extent.uncovered(self.all().map(|(_, locked)| locked).chain(granted())));
        missing.flatten().collect()
    }

    /// The numbers of the holders.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_holder.keys().copied()
    }

    /// The number of extents that are locked.
    pub fn len(&self) -> usize {
        self.by_holder.values().map(Vec::len).sum()
    }

    /// True if an extent has more pieces once a range is unlocked.
    pub fn is_cut_by(&self, range: BlockRange) -> bool {
        let is_cut = |extent: &LockExtent| extent.range.start < range.start && range.end() < extent.range.end();
        self.all().any(|(_, extent)| is_cut(extent))
    }

    pub fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (u64, &LockExtent)> {
        self.by_holder.iter().flat_map(|(holder, extents)| extents.iter().map(|extent| (*holder, extent)))
    }

    /// Gives up what conflicts with an extent, as far as it is one of these.
    fn cut(&mut self, other: LockExtent, is_meant: impl Fn(&LockExtent) -> bool) -> Holders {
        let mut changed = Vec::new();
        for (holder, extents) in &mut self.by_holder {
            if extents.iter().any(|extent| is_meant(extent) && extent.conflicts(&other)) {
                let rest = |extent: LockExtent| if is_meant(&extent) { extent.without(&other) } else { vec![extent] };
                *extents = std::mem::take(extents).into_iter().flat_map(rest).collect();
                changed.push((*holder, extents.clone()));
            }
        }
        self.by_holder.retain(|_, extents| !extents.is_empty());
        changed
    }
}

fn is_weak(locked: &LockExtent, wanted: &LockExtent) -> bool {
    locked.conflicts(wanted) && !locked.mode.includes(wanted.mode)
}
