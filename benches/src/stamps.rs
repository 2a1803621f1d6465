//! The table of block stamps, which a device checks and raises with every request.

use crate::Workload;
use braid_base::{BlockRange, Clock, Generation, ObjectId, Rng, Stamp, Time};
use braid_device::stamp_table::{Access, Stamps};
use std::time::Duration;

const OBJECT: ObjectId = ObjectId(1);
/// Blocks that are written at random.
const BLOCKS: u64 = 32 << 10;
/// Accesses before the first round; after these the table hardly grows any more.
const ACCESSES: u64 = 64 << 10;

struct Table {
    stamps: Stamps,
    rng: Rng,
    clock: u64,
}

pub(crate) fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("stamps/check-a-write", Table::new, Table::block, |table, block| {
            table.stamps.seen_by_write(OBJECT, &[block])
        }),
        Workload::new("stamps/raise", Table::new, Table::block, Table::raise),
    ]
}

impl Table {
    fn new() -> Table {
        let stamps = Stamps::new(Stamp::ZERO, Duration::from_secs(10), Time(0));
        let mut table = Table { stamps, rng: Rng::new(1), clock: 0 };
        for _ in 0..ACCESSES {
            let block = table.block();
            table.raise(block);
        }
        table
    }

    fn block(&mut self) -> BlockRange {
        BlockRange::new(self.rng.below(BLOCKS), 1)
    }

    fn raise(&mut self, block: BlockRange) {
        self.clock += 1;
        let stamp = Stamp { clock: Clock(self.clock), host: Generation(1) };
        self.stamps.raise(Time(0), OBJECT, &[block], Access::Write, stamp);
    }
}
