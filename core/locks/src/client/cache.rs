//! The index of cached locks that a holder may use.

use braid_base::{BlockRange, LockServerId, ObjectId, RangeTable, Time};
use braid_wire::locking::{LockExtent, LockMode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The extents of cached locks at each server. An extent is identified by the number of its lock request and its index in that request.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    by_place: BTreeMap<(OfServer, u16), RangeTable<(u64, u16), LockMode>>,
    /// The objects of which other hosts have wanted something lately.
    recalled: BTreeMap<ObjectId, Time>,
}

/// A recall is recent for so long.
const RECENT: Duration = Duration::from_secs(1);
const RECALLED_MAX: usize = 1024;

/// An object at a server: several servers may grant the same ranges, and each of them counts.
type OfServer = (LockServerId, ObjectId);

impl Cache {
    pub fn insert(&mut self, number: u64, place: OfServer, extents: &[LockExtent]) {
        for (index, extent) in extents.iter().enumerate() {
            let table = self.by_place.entry((place, extent.position)).or_default();
            table.insert(extent.range, (number, index as u16), extent.mode);
        }
    }

    pub fn remove(&mut self, number: u64, place: OfServer, extents: &[LockExtent]) {
        for (index, extent) in extents.iter().enumerate() {
            let place = (place, extent.position);
            let table = self.by_place.get_mut(&place).expect("it was cached there");
            table.remove(extent.range.start, (number, index as u16)).expect("it was cached there");
            if table.is_empty() {
                self.by_place.remove(&place);
            }
        }
    }

    /// The numbers of cached lock requests that together cover all of these extents. `None` if an extent is not covered.
    pub fn covering(&self, place: OfServer, extents: &[LockExtent]) -> Option<BTreeSet<u64>> {
        let mut used = BTreeSet::new();
        for extent in extents {
            let table = self.by_place.get(&(place, extent.position))?;
            let mut reached = extent.range.start;
            for (range, (number, _), mode) in table.overlapping(extent.range) {
                if *mode == LockMode::Exclusive || extent.mode == LockMode::Shared {
                    if range.start > reached {
                        return None;
                    }
                    reached = reached.max(range.end());
                    used.insert(number);
                }
            }
            if reached < extent.range.end() {
                return None;
            }
        }
        Some(used)
    }

    /// The extents that may be used and share blocks with a range, the last one first.
    pub fn cached(&self, place: OfServer, position: u16, range: BlockRange) -> impl Iterator<Item = BlockRange> {
        let table = self.by_place.get(&(place, position)).into_iter();
        table.flat_map(move |table| table.overlapping(range).rev()).map(|(range, _, _)| range)
    }

    /// Another host wants something of an object.
    pub fn note_recall(&mut self, object: ObjectId, now: Time) {
        self.recalled.insert(object, now);
        if self.recalled.len() > RECALLED_MAX {
            self.recalled.retain(|_, since| now.since(*since) < RECENT);
            // Those that are left are recent for a shorter time.
            while self.recalled.len() > RECALLED_MAX / 2 {
                self.recalled.pop_first();
            }
        }
    }

    pub fn is_recalled(&self, object: ObjectId, now: Time) -> bool {
        self.recalled.get(&object).is_some_and(|since| now.since(*since) < RECENT)
    }

    /// The numbers of cached lock requests that conflict with these extents.
    pub fn conflicting(&self, place: OfServer, extents: &[LockExtent]) -> BTreeSet<u64> {
        let mut conflicting = BTreeSet::new();
        for extent in extents {
            let Some(table) = self.by_place.get(&(place, extent.position)) else { continue };
            let of = table.overlapping(extent.range).filter(|(_, _, mode)| mode.conflicts(extent.mode));
            conflicting.extend(of.map(|(_, (number, _), _)| number));
        }
        conflicting
    }
}
