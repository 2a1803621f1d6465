//! Tests of a full disk: overwrites and decisions continue.

use crate::crashes::steps;
use crate::object_index::checkpoint;
use crate::protocol::*;
use crate::requests::{create, removal, send, set};
use crate::run::Run;
use proptest::prelude::*;

const JOURNAL: u64 = 1 << 20;

/// A store with one object, on a disk with space for `slots` slots.
fn with_space(slots: u64) -> Bench {
    let mut disk = formatted(JOURNAL);
    disk.space = disk.geometry().data_offset + slots * SLOT;
    let (mut bench, _) = Bench::start(disk, 3).expect("nothing is wrong");
    assert_eq!(bench.create(ObjectDescription::new(OBJECT, 1600), 0), Ok(()));
    bench
}

#[test]
fn a_full_disk_refuses_new_chunks_and_takes_overwrites_and_decisions() {
    let mut bench = with_space(100);
    let mut chunks = 0;
    while bench.prepare(intent(1000 + chunks, vec![data(16 * chunks, 16, chunks)])) == Ok(()) {
        bench.commit(1000 + chunks);
        chunks += 1;
    }
    assert!((30..=36).contains(&chunks), "all but the spare slots: {chunks}");
    assert!(bench.disk.reserves_refused > 0);
    assert_eq!(
        bench.prepare(intent(2, vec![data(16 * chunks + 3, 1, 9)])),
        Err(Failure::NoSpace),
        "a small write to a new chunk fails, too"
    );
    // Many rounds: more slots than the spare ones, if these were not freed again.
    for round in 0..20 {
        for start in [0, 160, 320] {
            let sequence = 2000 + round * 1000 + start;
            assert_eq!(bench.prepare(intent(sequence, vec![data(start, 160, sequence)])), Ok(()));
            assert_eq!(bench.prepare(intent(sequence + 1, vec![data(490, 3, sequence)])), Ok(()));
            bench.abort(sequence + 1);
            bench.commit(sequence);
            assert_eq!(bench.read(start, 160), Ok(patterns(sequence..sequence + 160)));
        }
    }
    // Freed slots can be used by other writes.
    bench.write(50_000, vec![hole(0, 32)]);
    bench.write(50_001, vec![data(16 * chunks, 16, 77)]);
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    assert_eq!(bench.read(16 * chunks, 16), Ok(patterns(77..93)));
    assert_eq!(bench.read(0, 32), Ok(vec![0; 32 * BLOCK_BYTES]));
}

#[test]
fn overwrites_without_any_free_slot_go_through_the_journal() {
    let mut bench = with_space(130);
    for chunk in 0..66 {
        bench.write(1000 + chunk, vec![data(16 * chunk, 16, chunk)]);
    }
    for quarter in 0..4 {
        assert_eq!(bench.prepare(intent(2000 + quarter, vec![data(256 * quarter, 256, 5000)])), Ok(()));
    }
    assert_eq!(bench.counter("slots_free"), 0);
    let through_journal = bench.counter("journal_blocks");
    assert_eq!(bench.prepare(intent(3000, vec![data(1024, 16, 7000)])), Ok(()));
    assert_eq!(bench.counter("journal_blocks") - through_journal, 16);

    // An old slot is free only when the commit is durable: a crash may bring its content back.
    bench.store.commit(bench.now, transaction(2000), &mut bench.out);
    bench.run();
    assert_eq!(bench.counter("slots_free"), 0);
    let (mut bench, recovered) = bench.restart().expect("nothing is wrong");
    assert_eq!(recovered.intents.len(), 5);
    assert_eq!(bench.read(0, 16), Ok(patterns(0..16)));
    for sequence in [2000, 2001, 2002, 2003, 3000] {
        bench.commit(sequence);
    }
    assert_eq!(bench.counter("slots_free"), 64);
    assert_eq!(bench.read(256, 256), Ok(patterns(5000..5256)));
    assert_eq!(bench.read(1024, 16), Ok(patterns(7000..7016)));
}

/// A store with space for `slots` slots, with a volume, and with an object that has 300 attributes of 1000 bytes, most of them in leaves.
fn with_attributes(slots: u64) -> Bench {
    let mut bench = with_space(slots);
    create(&mut bench, 1, 1);
    for index in 1..=300 {
        assert!(set(&mut bench, 1 + index, index, vec![1; 1000]).is_ok());
    }
    checkpoint(&mut bench, 1000);
    assert!(bench.counter("index_leaves") > 0);
    bench
}

#[test]
fn overwritten_catalogue_nodes_take_no_room_from_volumes_after_a_start() {
    let mut bench = with_attributes(130);
    for index in 1..=60 {
        assert!(set(&mut bench, 2000 + index, 5 * index, vec![2; 1000]).is_ok());
    }
    // No leaf is in memory: each of these changes might be one that splits its leaf.
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    assert!(bench.counter("index_changes") >= 60);
    bench.store.prepare(bench.now, intent(1, vec![data(0, 16, 1)]), &mut bench.out);
    bench.settle();
    let prepared = StoreEvent::Prepared { transaction: transaction(1), result: Ok(()) };
    assert_eq!(bench.events.pop_front(), Some(prepared));
}

#[test]
fn a_removal_on_a_full_disk_waits_for_slots_that_overwrites_hold() {
    let mut bench = with_attributes(135);
    for chunk in 0..30 {
        bench.write(1000 + chunk, vec![data(16 * chunk, 16, chunk)]);
    }
    bench.settle();
    for chunk in 0..30 {
        assert_eq!(bench.prepare(intent(2000 + chunk, vec![data(16 * chunk, 16, chunk)])), Ok(()));
    }
    assert!(bench.counter("slots_set_aside") < bench.counter("slots"), "the disk has no space for these");
    send(&mut bench, 5000, vec![removal(1)]);
    bench.run();
    assert_eq!(bench.events.pop_front(), None, "the removal waits for slots");
    for chunk in 0..30 {
        bench.store.abort(bench.now, transaction(2000 + chunk), &mut bench.out);
    }
    bench.settle();
    let answered = bench.events.iter().find(|event| matches!(event, StoreEvent::Executed { .. }));
    assert!(matches!(answered, Some(StoreEvent::Executed { answer: Ok(_), .. })), "{answered:?}");
}

#[test]
fn objects_can_not_promise_more_than_there_is() {
    let mut bench = Bench::new(1);
    let room = bench.store.free_blocks();
    assert!(room * 4096 < SIZE && room > 1000);
    let mut create = |object, blocks| bench.create(ObjectDescription::new(ObjectId(object), blocks), 0);
    assert_eq!(create(1, room - 16), Ok(()));
    assert_eq!(create(1, room - 16), Ok(()), "it is there already");
    assert_eq!(create(1, 16), Err(Failure::ObjectExists));
    assert_eq!(create(2, 17), Err(Failure::NoSpace));
    assert_eq!(create(2, u64::MAX), Err(Failure::NoSpace));
    assert_eq!(create(2, 16), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_full_disk_loses_nothing_and_does_not_get_stuck(
        seed in any::<u64>(),
        slots in 64u64..90,
        lives in prop::collection::vec(1u64..900, 1..4),
    ) {
        let mut run = Run::new(seed, JOURNAL);
        run.may_be_full = true;
        for life in lives {
            run.bench.disk.space = run.bench.disk.geometry().data_offset + slots * SLOT;
            steps(&mut run, life);
            run.crash();
        }
        run.finish();
    }
}
