//! Tests of bad slots: a slot that can't be written is retired, and its chunk is written to another slot, without an error to the host.

use crate::crashes::steps;
use crate::protocol::*;
use crate::run::Run;
use proptest::prelude::*;

/// The bytes of some slots on the device.
fn slots(bench: &Bench, slots: Range<u64>) -> Range<u64> {
    let first = bench.disk.geometry().data_offset;
    first + slots.start * SLOT..first + slots.end * SLOT
}

#[test]
fn a_bad_slot_is_retired_for_good_and_no_write_fails() {
    let mut bench = Bench::with_object(100);
    let bad = slots(&bench, 2..3);
    // One bad sector in it is enough.
    bench.disk.bad.push(bad.start + 1024..bad.start + 1536);
    for round in 0..40 {
        bench.write(10 + round, vec![data(16, 64, 1000 * round)]);
        assert_eq!(bench.read(16, 64), Ok(patterns(1000 * round..1000 * round + 64)));
    }
    assert_eq!(bench.counter("slots_bad"), 1);
    let failed = bench.disk.writes_failed;
    assert_eq!(bench.counter("write_errors"), failed);
    assert_eq!(failed, 2, "once with its neighbours, and once alone");
    bench.store.audit();
    // The slot is known to be bad after a restart from the journal, and from a checkpoint.
    for restart in 0..2 {
        (bench, _) = bench.restart().expect("nothing is wrong");
        bench.store.audit();
        assert_eq!(bench.counter("slots_bad"), 1, "restart {restart}");
        let before = bench.counter("checkpoints");
        for round in 0.. {
            if round > 40 && bench.counter("checkpoints") > before {
                break;
            }
            bench.write(10_000 * (restart + 1) + round, vec![data(16, 64, 77), data(90, 3, round)]);
        }
        assert_eq!(bench.disk.writes_failed, failed, "a retired slot is not written again");
    }
    assert_eq!(bench.read(16, 64), Ok(patterns(77..141)));
}

#[test]
fn a_write_that_fails_but_once_costs_no_slot() {
    let mut bench = Bench::with_object(100);
    bench.disk.failing_writes = (bench.disk.geometry().data_offset, 1);
    bench.write(1, vec![data(16, 48, 500)]);
    assert_eq!(bench.disk.writes_failed, 1);
    assert_eq!((bench.counter("write_errors"), bench.counter("slots_bad")), (1, 0));
    assert_eq!(bench.read(16, 48), Ok(patterns(500..548)));
    bench.store.audit();
}

#[test]
fn a_write_that_finds_many_bad_slots_is_tried_again_by_its_host_and_gets_through() {
    let mut bench = Bench::with_object(100);
    let bad = slots(&bench, 0..12);
    bench.disk.bad.push(bad);
    let mut tries = 1;
    while let Err(failure) = bench.prepare(intent(tries, vec![data(16, 16, 600)])) {
        assert_eq!(failure, Failure::Busy, "the host may try again");
        bench.store.audit();
        assert_eq!(bench.counter("slots_bad"), 4 * tries, "one write tries four slots at most");
        tries += 1;
    }
    bench.commit(tries);
    assert_eq!(bench.read(16, 16), Ok(patterns(600..616)));
    assert_eq!(bench.counter("slots_bad"), 12);
    bench.store.audit();
}

#[test]
fn a_disk_that_takes_no_data_at_all_ends_the_store() {
    let mut bench = Bench::with_object(100);
    let end = bench.counter("slots");
    let bad = slots(&bench, 0..end);
    bench.disk.bad.push(bad);
    for sequence in 1..100 {
        bench.store.prepare(bench.now, intent(sequence, vec![data(16, 16, 500)]), &mut bench.out);
        bench.run();
        for event in std::mem::take(&mut bench.events) {
            match event {
                StoreEvent::Prepared { result, .. } => assert_eq!(result, Err(Failure::Busy)),
                StoreEvent::Unusable(error) => {
                    assert_eq!(error, StoreError::Disk(DiskError::Failed));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("the store never fails");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bad_slots_and_crashes_lose_nothing_answered(
        seed in any::<u64>(),
        bad in prop::collection::vec(0u64..60, 1..6),
        lives in prop::collection::vec(1u64..700, 1..6),
    ) {
        let mut run = Run::new(seed, 384 << 10);
        // A dirty block can't be written to another slot. So the slots are bad from the beginning, and only whole chunks are written.
        let bad: Vec<_> = bad.into_iter().map(|slot| slots(&run.bench, slot..slot + 1)).collect();
        run.only_whole_chunks = true;
        run.bench.disk.bad = bad;
        for life in lives {
            steps(&mut run, life);
            run.crash();
        }
        run.finish();
        run.bench.store.audit();
        run.crash();
        run.finish();
    }
}
