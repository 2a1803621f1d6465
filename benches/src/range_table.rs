//! The range table, which holds the operations in flight by their block ranges.

use crate::Workload;
use braid_base::{BlockRange, RangeTable, Rng};

/// Ranges in the table during the measurement, as at a busy device.
const HELD: u64 = 1000;
/// The blocks in which they lie.
const BLOCKS: u64 = 1 << 20;
/// The most blocks of a range.
const LONGEST: u64 = 16;

struct Busy {
    table: RangeTable<u64, ()>,
    rng: Rng,
    next_owner: u64,
}

pub(crate) fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("range-table/insert-and-remove", Busy::new, Busy::entry, |busy, (range, owner)| {
            busy.table.insert(range, owner, ());
            busy.table.remove(range.start, owner)
        }),
        Workload::new("range-table/overlapping", Busy::new, Busy::range, |busy, range| {
            busy.table.overlapping(range).count()
        }),
    ]
}

impl Busy {
    fn new() -> Busy {
        let mut busy = Busy { table: RangeTable::default(), rng: Rng::new(1), next_owner: 0 };
        for _ in 0..HELD {
            let (range, owner) = busy.entry();
            busy.table.insert(range, owner, ());
        }
        busy
    }

    fn entry(&mut self) -> (BlockRange, u64) {
        self.next_owner += 1;
        (self.range(), self.next_owner)
    }

    fn range(&mut self) -> BlockRange {
        BlockRange::new(self.rng.below(BLOCKS), self.rng.between(1, LONGEST))
    }
}
