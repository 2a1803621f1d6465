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
    /// Locks an extent, in place of what is locked there: with what is locked already, and with what a holder was granted. Returns the
    /// holders that have less now.
    pub fn lock(&mut self, extent: LockExtent, granted: Option<(u64, Vec<LockExtent>)>) -> Holders {
        let cut = match extent.mode {
            // What is exclusive becomes shared there.
            LockMode::Shared => self.cut(extent, |_| true),
            LockMode::Exclusive => self.cut_weak(extent),
        };
        self.by_holder.extend(granted);
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

    /// The holders of what is too weak for a lock of an extent.
    pub fn over(&self, extent: LockExtent) -> Vec<u64> {
        let is_over = |extents: &Vec<LockExtent>| extents.iter().any(|locked| is_weak(locked, &extent));
        self.by_holder.iter().filter(|(_, extents)| is_over(extents)).map(|(holder, _)| *holder).collect()
    }

    /// What is missing for a lock of an extent.
    pub fn missing(&self, wanted: LockExtent) -> Vec<LockExtent> {
        wanted.uncovered(self.all())
    }

    /// The number of holders.
    pub fn holders(&self) -> usize {
        self.by_holder.len()
    }

    /// The number of extents that are locked.
    pub fn len(&self) -> usize {
        self.by_holder.values().map(Vec::len).sum()
    }

    /// The number of pieces once an extent is locked.
    pub fn pieces_with(&self, extent: LockExtent) -> usize {
        let mut after = self.clone();
        after.lock(extent, Some((u64::MAX, self.missing(extent))));
        after.pieces()
    }

    /// The number of pieces once a range is unlocked.
    pub fn pieces_without(&self, range: BlockRange) -> usize {
        let mut after = self.clone();
        after.unlock(range);
        after.pieces()
    }

    /// The number of extents, if adjacent ones of one mode are joined.
    fn pieces(&self) -> usize {
        let mut all: Vec<_> = self.all().collect();
        all.sort_unstable_by_key(|extent| extent.range.start);
        all.chunk_by(|one, next| one.mode == next.mode && one.range.end() == next.range.start).count()
    }

    pub fn is_empty(&self) -> bool {
        self.by_holder.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &LockExtent> {
        self.by_holder.values().flatten()
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
