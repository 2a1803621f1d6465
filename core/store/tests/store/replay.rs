//! Tests of a start from a journal whose snapshot already holds what later records repeat.

use crate::protocol::{Bench, OBJECT};
use braid_base::{BlockRange, Clock, ObjectId};
use braid_store::Storage;
use braid_wire::ObjectDescription;

/// Resizes an object to so many blocks.
fn resize(bench: &mut Bench, blocks: u64) {
    let (range, nothing) = (BlockRange::new(0, blocks), BlockRange::new(0, 0));
    bench.store.resize_object(1, OBJECT, range, nothing, &mut bench.out);
}

#[test]
fn a_growth_that_was_taken_back_is_replayed_over_a_snapshot_without_it() {
    let mut bench = Bench::with_object(160);
    let mut snapshots = 0;
    for round in 0..400 {
        bench.store.reserve_stamps(1, Clock(1), &mut bench.out);
        bench.perform();
        // These records wait for the batch in flight. When it ends, a snapshot may begin.
        resize(&mut bench, 320);
        resize(&mut bench, 160);
        let other = ObjectId(100 + round);
        bench.store.create_object(1, ObjectDescription::new(other, 160), 0, &mut bench.out);
        bench.run();
        if bench.counter("checkpoints") > snapshots {
            snapshots = bench.counter("checkpoints");
            let (again, _) = Bench::start(bench.disk.clone(), round).expect("nothing is damaged");
            assert_eq!(again.store.objects(), bench.store.objects());
            again.store.audit();
        }
        bench.store.remove_object(1, other, &mut bench.out);
        bench.run();
    }
    assert!(snapshots > 1, "{snapshots}");
}
