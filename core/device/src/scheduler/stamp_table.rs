//! The stamps of the last read and the last write of each block, kept for a limited time (shared-array paper, sections 3
//! and 4.5.2).
//!
//! Stamps live in memory only, in two *eras*. The current era takes every new stamp. When it is old or full it becomes
//! the previous era, and the previous era before it is discarded as a whole. The *floor* is the highest discarded
//! stamp. A request at or below the floor is refused, for it might be too late. The floor never falls, whatever any
//! clock does.
//!
//! Deviation: for forgotten stamps the paper takes "now - T", which falls when the device's clock steps back.

use braid_base::{BlockRange, ObjectId, Stamp, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most ranges that an era holds stamps of, so that memory is bounded: at about 70 bytes each, two full eras take
/// some 18 MiB.
const ENTRIES_MAX: usize = 128 << 10;

/// Read and write stamps by object and block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    floor: Stamp,
    current: Era,
    previous: Era,
    current_since: Time,
    kept: Duration,
}

/// The stamps of an interval of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Era {
    objects: BTreeMap<ObjectId, RangeStamps>,
    highest: Stamp,
    entries: usize,
}

/// Disjoint ranges by first block.
type RangeStamps = BTreeMap<u64, Entry>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    end: u64,
    read: Stamp,
    write: Stamp,
}

/// Which of a block's two stamps to raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `rts`
    Read,
    /// `wts`
    Write,
}

impl Stamps {
    /// An empty table. `floor`: the highest stamp that may have been accepted before memory was lost.
    pub fn new(floor: Stamp, kept: Duration, now: Time) -> Stamps {
        Stamps { floor, current: Era::default(), previous: Era::default(), current_since: now, kept }
    }

    /// The stamp that a read of these blocks must exceed: that of the last write.
    pub fn seen_by_read(&self, object: ObjectId, ranges: &[BlockRange]) -> Stamp {
        self.highest(object, ranges, |entry| entry.write)
    }

    /// The stamp that a write of these blocks must exceed: that of the last read or write.
    pub fn seen_by_write(&self, object: ObjectId, ranges: &[BlockRange]) -> Stamp {
        self.highest(object, ranges, |entry| entry.read.max(entry.write))
    }

    /// The stamp that a request that writes and reads these blocks must exceed.
    pub fn seen(&self, object: ObjectId, writes: &[BlockRange], reads: &[BlockRange]) -> Stamp {
        let of_writes = self.seen_by_write(object, writes);
        if reads == writes { of_writes } else { of_writes.max(self.seen_by_read(object, reads)) }
    }

    /// Records an access. Stamps only rise.
    pub fn raise(&mut self, now: Time, object: ObjectId, ranges: &[BlockRange], access: Access, stamp: Stamp) {
        if now.since(self.current_since) >= self.kept || self.current.entries >= ENTRIES_MAX {
            self.begin_era(now);
        }
        for range in ranges {
            self.current.raise(object, *range, access, stamp);
        }
    }

    /// Refuses all stamps up to `stamp` from now on.
    pub fn raise_floor(&mut self, stamp: Stamp) {
        self.floor = self.floor.max(stamp);
    }

    /// All stamps up to this one are refused: see the module comment.
    pub fn floor(&self) -> Stamp {
        self.floor
    }

    /// A bound: no accepted stamp is higher.
    pub fn highest_ever(&self) -> Stamp {
        self.floor.max(self.previous.highest).max(self.current.highest)
    }

    fn begin_era(&mut self, now: Time) {
        let discarded = std::mem::replace(&mut self.previous, std::mem::take(&mut self.current));
        self.raise_floor(discarded.highest);
        self.current_since = now;
    }

    fn highest(&self, object: ObjectId, ranges: &[BlockRange], of: impl Fn(&Entry) -> Stamp) -> Stamp {
        let mut highest = self.floor;
        for era in [&self.current, &self.previous] {
            let Some(stamps) = era.objects.get(&object) else { continue };
            for range in ranges {
                // From the end: the entries are disjoint, so the last one that begins before the end is found in one descent.
                let overlapping = stamps.range(..range.end()).rev().take_while(|(_, entry)| entry.end > range.start);
                highest = overlapping.map(|(_, entry)| of(entry)).fold(highest, Stamp::max);
            }
        }
        highest
    }
}

impl Era {
    fn raise(&mut self, object: ObjectId, range: BlockRange, access: Access, stamp: Stamp) {
        if range.is_empty() {
            return;
        }
        self.highest = self.highest.max(stamp);
        let stamps = self.objects.entry(object).or_default();
        let last = stamps.range_mut(..range.end()).next_back();
        match last.filter(|(_, entry)| entry.end > range.start) {
            // A range that was accessed before as it is, or not at all: most accesses.
            Some((start, entry)) if (*start, entry.end) == (range.start, range.end()) => {
                return entry.raise(access, stamp);
            }
            Some(_) => {}
            None => {
                self.entries += 1;
                stamps.insert(range.start, Entry::new(range.end(), access, stamp));
                return;
            }
        }
        let before = stamps.len();
        split(stamps, range.start);
        split(stamps, range.end());
        // Raise the entries that are there, and collect the gaps between them.
        let mut gaps = Vec::new();
        let mut reached = range.start;
        for (start, entry) in stamps.range_mut(range.blocks()) {
            if *start > reached {
                gaps.push((reached, *start));
            }
            reached = entry.end;
            entry.raise(access, stamp);
        }
        if reached < range.end() {
            gaps.push((reached, range.end()));
        }
        for (start, end) in gaps {
            stamps.insert(start, Entry::new(end, access, stamp));
        }
        self.entries += stamps.len() - before;
    }
}

impl Entry {
    fn new(end: u64, access: Access, stamp: Stamp) -> Entry {
        let mut entry = Entry { end, read: Stamp::ZERO, write: Stamp::ZERO };
        entry.raise(access, stamp);
        entry
    }

    fn raise(&mut self, access: Access, stamp: Stamp) {
        let field = match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        };
        *field = stamp.max(*field);
    }
}

/// Cuts the entry that spans `at` in two.
fn split(stamps: &mut RangeStamps, at: u64) {
    if let Some((_, entry)) = stamps.range_mut(..at).next_back()
        && entry.end > at
    {
        let behind = *entry;
        entry.end = at;
        stamps.insert(at, behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{Clock, Generation};
    use proptest::prelude::*;

    const OBJECT: ObjectId = ObjectId(1);

    fn stamp(clock: u64) -> Stamp {
        Stamp { clock: Clock(clock), host: Generation(1) }
    }

    #[test]
    fn forgotten_stamps_count_as_the_highest_of_them() {
        let kept = Duration::from_secs(10);
        let second = 1_000_000_000;
        let mut stamps = Stamps::new(Stamp::ZERO, kept, Time(0));
        let block = [BlockRange::new(5, 1)];
        stamps.raise(Time(second), OBJECT, &block, Access::Write, stamp(100));
        stamps.raise(Time(11 * second), OBJECT, &[BlockRange::new(9, 1)], Access::Read, stamp(50));
        assert_eq!(stamps.floor(), Stamp::ZERO, "the first era is still kept");
        assert_eq!(stamps.seen_by_read(OBJECT, &block), stamp(100));
        stamps.raise(Time(22 * second), OBJECT, &[BlockRange::new(7, 1)], Access::Read, stamp(60));
        assert_eq!(stamps.floor(), stamp(100));
        stamps.raise(Time(33 * second), OBJECT, &[BlockRange::new(7, 1)], Access::Read, stamp(40));
        assert_eq!(stamps.floor(), stamp(100), "the floor never falls, though stamps do");
    }

    proptest! {
        /// Compares the table with a plain array of one pair of stamps for each block.
        #[test]
        fn knows_what_a_plain_table_knows(
            steps in prop::collection::vec((0u64..40, 1u64..9, any::<bool>(), 1u64..100), 1..60),
            asked in prop::collection::vec((0u64..45, 1u64..9), 1..12),
        ) {
            let mut stamps = Stamps::new(Stamp::ZERO, Duration::from_secs(10), Time(0));
            let mut naive = [(Stamp::ZERO, Stamp::ZERO); 64];
            for (start, count, write, clock) in steps {
                let range = BlockRange::new(start, count);
                let access = if write { Access::Write } else { Access::Read };
                stamps.raise(Time(1), OBJECT, &[range], access, stamp(clock));
                for block in range.blocks() {
                    let (read, written) = &mut naive[block as usize];
                    let field = if write { written } else { read };
                    *field = stamp(clock).max(*field);
                }
            }
            for (start, count) in asked {
                let range = BlockRange::new(start, count);
                let of = |pick: fn((Stamp, Stamp)) -> Stamp| range.blocks().map(|b| pick(naive[b as usize])).max().unwrap();
                prop_assert_eq!(stamps.seen_by_read(OBJECT, &[range]), of(|(_, write)| write));
                prop_assert_eq!(stamps.seen_by_write(OBJECT, &[range]), of(|(read, write)| read.max(write)));
            }
        }
    }
}
