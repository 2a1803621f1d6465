//! The extents of one kind in a lock table: all held or all waiting, all shared or all exclusive.
//!
//! A lock may be as short as a block or as long as a volume, so extents are ordered by size class first. A search for the extents that
//! touch a range looks back, in each size class in use, no further than an extent of that class reaches.

use braid_base::{BlockRange, ObjectId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The number of size classes. Each spans sixteen times the one below: locks of a few blocks, of some stripe units, …
const SIZES: usize = 16;

/// An extent of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<Owner> {
    pub owner: Owner,
    pub arrival: u64,
    pub range: BlockRange,
}

#[derive(Clone, Debug)]
pub(super) struct Extents<Owner> {
    by_address: BTreeMap<ExtentAddress, Extent<Owner>>,
    /// The number of extents of each size class, and the classes in use as a set of bits.
    sizes: [u32; SIZES],
    sizes_in_use: u16,
}

/// The key of an extent in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExtentAddress {
    object: ObjectId,
    position: u16,
    /// See [`size_of`].
    size: u8,
    start: u64,
    arrival: u64,
    /// The index of the extent in its lock, since extents of one lock may touch each other.
    index: u16,
}

#[derive(Clone, Copy, Debug)]
struct Extent<Owner> {
    owner: Owner,
    count: u64,
}

impl<Owner> Default for Extents<Owner> {
    fn default() -> Self {
        Extents { by_address: BTreeMap::new(), sizes: [0; SIZES], sizes_in_use: 0 }
    }
}

impl<Owner: Copy> Extents<Owner> {
    /// Adds the extent number `index` of a lock.
    pub fn insert(&mut self, object: ObjectId, position: u16, index: u16, entry: Entry<Owner>) {
        let address = ExtentAddress::new(object, (position, entry.range), index, entry.arrival);
        self.by_address.insert(address, Extent { owner: entry.owner, count: entry.range.count });
        self.sizes[address.size as usize] += 1;
        self.sizes_in_use |= 1 << address.size;
    }

    pub fn remove(&mut self, object: ObjectId, place: (u16, BlockRange), index: u16, arrival: u64) {
        let address = ExtentAddress::new(object, place, index, arrival);
        self.by_address.remove(&address).expect("a lock's extents are in the table");
        let left = &mut self.sizes[address.size as usize];
        *left -= 1;
        if *left == 0 {
            self.sizes_in_use &= !(1 << address.size);
        }
    }

    /// Visits the extents that share blocks with a range, until a visit breaks off. It examines at most `most` extents that are near.
    pub fn search<T>(
        &self,
        object: ObjectId,
        (position, range): (u16, BlockRange),
        most: usize,
        visit: &mut impl FnMut(Entry<Owner>) -> ControlFlow<T>,
    ) -> ControlFlow<T> {
        let mut left = most;
        for size in bits(self.sizes_in_use) {
            let end = ExtentAddress { object, position, size, start: range.end(), arrival: 0, index: 0 };
            let first = ExtentAddress { start: range.start.saturating_sub(reach(size)), ..end };
            for (address, extent) in self.by_address.range(first..end).take(left) {
                left -= 1;
                let found = BlockRange::new(address.start, extent.count);
                if found.overlaps(range) {
                    visit(Entry { owner: extent.owner, arrival: address.arrival, range: found })?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// True if there is an extent of this object.
    pub fn has(&self, object: ObjectId) -> bool {
        let first = ExtentAddress { object, position: 0, size: 0, start: 0, arrival: 0, index: 0 };
        self.by_address.range(first..).next().is_some_and(|(address, _)| address.object == object)
    }

    pub fn len(&self) -> usize {
        self.by_address.len()
    }
}

impl ExtentAddress {
    fn new(object: ObjectId, (position, range): (u16, BlockRange), index: u16, arrival: u64) -> ExtentAddress {
        ExtentAddress { object, position, size: size_of(range), start: range.start, arrival, index }
    }
}

/// The size class: 0 for up to 16 blocks, 1 for up to 16² blocks, and so on.
fn size_of(range: BlockRange) -> u8 {
    let last = range.count.checked_sub(1).expect("an empty extent locks nothing");
    (last.checked_ilog2().unwrap_or(0) / 4) as u8
}

/// The greatest distance between the first and the last block of an extent of this size class.
fn reach(size: u8) -> u64 {
    u64::MAX >> (60 - 4 * size)
}

fn bits(mut set: u16) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(lowest)
    })
}
