//! The table of range locks as a lock server uses it. A lock request has the extents of one small write.

use crate::Workload;
use braid_base::{BlockRange, ObjectId, Rng};
use braid_locks::{LockTable, Locked};
use braid_wire::{LockExtent, LockMode};

/// Lock requests in the table during the measurement, as at a busy server.
const HELD: u64 = 1000;
/// The blocks of a component.
const BLOCKS: u64 = 1 << 20;
const OBJECT: ObjectId = ObjectId(1);

struct Busy {
    table: LockTable<u64>,
    rng: Rng,
    next_owner: u64,
    granted: Vec<u64>,
}

pub(crate) fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("lock-table/grant-and-release", || Busy::new(0), Busy::next_request, Busy::grant_and_release),
        Workload::new(
            "lock-table/grant-and-release-among-others",
            || Busy::new(HELD),
            Busy::next_request,
            Busy::grant_and_release,
        ),
        Workload::new(
            "lock-table/share-among-readers",
            || {
                let mut busy = Busy::new(0);
                for _ in 0..HELD {
                    let (owner, extents) = busy.next_reader();
                    assert_eq!(busy.table.lock(owner, OBJECT, &extents), Locked::Granted);
                }
                busy
            },
            Busy::next_reader,
            Busy::grant_and_release,
        ),
        Workload::new(
            "lock-table/wait-and-hand-over",
            || Busy::new(HELD),
            Busy::next_request,
            |busy, (owner, extents)| {
                busy.table.lock(owner, OBJECT, &extents);
                let next = owner + (1 << 32);
                assert!(matches!(busy.table.lock(next, OBJECT, &extents), Locked::Waits { .. }));
                busy.release(owner);
                busy.release(next);
            },
        ),
    ]
}

impl Busy {
    fn new(held: u64) -> Busy {
        let mut busy = Busy { table: LockTable::new(), rng: Rng::new(1), next_owner: 0, granted: Vec::new() };
        for _ in 0..held {
            let (owner, extents) = busy.next_request();
            if busy.table.lock(owner, OBJECT, &extents) != Locked::Granted {
                busy.release(owner);
            }
        }
        busy
    }

    /// Two data units and their parity.
    fn next_request(&mut self) -> (u64, [LockExtent; 3]) {
        self.next_owner += 1;
        let range = BlockRange::new(self.rng.below(BLOCKS), self.rng.between(1, 16));
        let first = self.rng.below(3) as u16;
        (self.next_owner, [0, 1, 2].map(|unit| LockExtent { position: first + unit, range, mode: LockMode::Exclusive }))
    }

    /// The same blocks each time, shared.
    fn next_reader(&mut self) -> (u64, [LockExtent; 3]) {
        self.next_owner += 1;
        let range = BlockRange::new(0, 16);
        (self.next_owner, [0, 1, 2].map(|position| LockExtent { position, range, mode: LockMode::Shared }))
    }

    /// Grants a lock request and releases it; some requests conflict with a held one, and wait.
    fn grant_and_release(&mut self, (owner, extents): (u64, [LockExtent; 3])) {
        self.table.lock(owner, OBJECT, &extents);
        self.release(owner);
    }

    fn release(&mut self, owner: u64) {
        self.granted.clear();
        self.table.release(owner, &mut self.granted);
    }
}
