//! Tests of the object index on the disk: leaves and index nodes, damage to them, their room, and the garbage of removed objects.

use crate::protocol::*;
use crate::requests::{ask, command, create, get, removal, send, set, setting, with_object};

fn value(index: u64, length: usize) -> Vec<u8> {
    vec![index as u8; length]
}

/// Sets an attribute until the store has made a checkpoint.
pub fn checkpoint(bench: &mut Bench, from: u64) {
    let before = bench.counter("checkpoints");
    for sequence in from..from + 200 {
        if bench.counter("checkpoints") > before && bench.counter("index_changes") <= 1 {
            return;
        }
        set(bench, sequence, 0, value(sequence, 10_000)).expect("there is room");
        bench.settle();
    }
    panic!("no checkpoint is made");
}

/// An object with 399 attributes of 1000 bytes, most of them in leaves, none of which is in memory.
fn at_rest() -> Bench {
    let mut bench = with_object();
    for index in 1..400 {
        set(&mut bench, 10 + index, index, value(index, 1000)).expect("there is room");
    }
    checkpoint(&mut bench, 1000);
    bench.restart().expect("nothing is wrong").0
}

#[test]
fn leaves_are_read_only_when_asked_for() {
    let mut bench = at_rest();
    assert!(bench.counter("leaves_read") <= 1, "garbage collection reads one leaf at most");
    let leaves = bench.counter("index_leaves");
    assert!((5..9).contains(&leaves), "{leaves} leaves for 400 kB");
    for index in 1..400 {
        assert_eq!(get(&mut bench, 5000 + index, index), Ok(value(index, 1000).into()));
    }
    assert_eq!(bench.counter("leaves_read"), leaves);
    assert_eq!(get(&mut bench, 5999, 5999), Ok(Vec::new().into()));
    assert_eq!(bench.counter("leaves_read"), leaves, "all are in memory");
}

#[test]
fn a_store_with_little_memory_reads_leaves_again_and_knows_as_much() {
    let mut bench = at_rest();
    bench.disk.crash(&mut bench.rng);
    let memory = 2 * SLOT;
    bench.store = Store::new(config()).with_object_memory(memory);
    bench.store.start(&mut bench.out);
    bench.run();
    assert!(matches!(bench.events.pop_front(), Some(StoreEvent::Ready(_))));
    let leaves = bench.counter("index_leaves");
    bench.disk.failing_reads = bench.disk.find(b"BrLf");
    for round in 0..3 {
        for index in 1..400 {
            assert_eq!(get(&mut bench, 5000 + 400 * round + index, index), Ok(value(index, 1000).into()));
            assert!(bench.counter("index_bytes_cached") <= memory);
        }
    }
    assert!(bench.counter("leaves_read") >= 3 * (leaves - 2), "the cache does not hold all leaves");
    assert_eq!(bench.counter("leaves_damaged"), 0, "a read that fails once is repeated");
}

#[test]
fn the_leaves_that_several_requests_need_are_read_together() {
    let mut bench = at_rest();
    bench.disk.hold_reads = true;
    for index in 0..30 {
        let gets = vec![AttributeName::new(1, 1 + 13 * index as u32)];
        send(&mut bench, 7000 + index, vec![command(ObjectId(1), Action::Nothing, Vec::new(), gets)]);
        bench.run();
    }
    // The leaf with the object's header first, then all others at once.
    for held in [false, true] {
        bench.disk.hold_reads = false;
        bench.end_one();
        bench.disk.hold_reads = held;
    }
    assert_eq!(bench.counter("leaves_read"), bench.counter("index_leaves"));
    assert!(bench.events.is_empty() || bench.events.len() < 8);
    bench.disk.hold_reads = false;
    bench.run();
    assert_eq!(bench.events.len(), 30);
}

#[test]
fn entries_of_a_corrupt_leaf_are_lost_until_they_are_set_anew() {
    let mut bench = at_rest();
    let leaves = bench.disk.find(b"BrLf");
    // Corrupts the second half of a leaf without the object's header.
    let lost_names = |bench: &mut Bench, from: u64| -> Vec<u64> {
        let lost = |index: &u64| match get(bench, from + index, *index) {
            Err(ObjectFailure::Lost) => true,
            found => {
                assert_eq!(found, Ok(value(*index, 1000).into()));
                false
            }
        };
        (1..400).filter(lost).collect()
    };
    let victim = leaves.iter().copied().find(|at| {
        let first = bench.disk.get(*at, 512)[24 + 16];
        first > 0
    });
    bench.disk.corrupt(victim.expect("there are several") + 1024);
    let lost = lost_names(&mut bench, 10_000);
    assert!((20..80).contains(&lost.len()), "{lost:?}");
    assert_eq!(bench.counter("leaves_damaged"), 1);
    // New values are known, in memory and in leaves; the rest stays lost.
    for (at, index) in lost.iter().enumerate().filter(|(at, _)| at % 2 == 0) {
        let new = if at % 4 == 0 { value(*index, 1000) } else { Vec::new() };
        assert!(set(&mut bench, 20_000 + index, *index, new).is_ok());
    }
    for round in 0..2 {
        for (at, index) in lost.iter().enumerate() {
            let expected = match at % 4 {
                0 => Ok(value(*index, 1000).into()),
                2 => Ok(Vec::new().into()),
                _ => Err(ObjectFailure::Lost),
            };
            assert_eq!(get(&mut bench, 30_000 + 1000 * round + index, *index), expected);
        }
        checkpoint(&mut bench, 40_000 + 1000 * round);
        bench = bench.restart().expect("nothing is wrong").0;
    }
}

#[test]
fn a_corrupt_index_makes_the_store_unusable() {
    let mut bench = at_rest();
    let nodes = bench.disk.find(b"BrIx");
    // Nodes of earlier rounds may be there as well.
    nodes.iter().for_each(|at| bench.disk.corrupt(at + 17));
    let error = bench.restart().err().expect("it can't be opened");
    assert!(matches!(error, StoreError::Damaged { part: "index of the object index", .. }), "{error}");
}

fn volume(object: u64, blocks: u64) -> ObjectDescription {
    ObjectDescription::new(ObjectId(object), blocks)
}

/// Sets attributes of 30,000 bytes until there is no room. Returns the index of the first one that is refused.
fn fill(bench: &mut Bench) -> u64 {
    for index in 1..1000 {
        match set(bench, 100_000 + index, index, value(index, 30_000)) {
            Ok(_) => {}
            Err(refusal) => {
                assert_eq!(refusal.failure, ObjectFailure::NoSpace);
                return index;
            }
        }
    }
    panic!("the device never becomes full");
}

#[test]
fn a_full_catalogue_refuses_to_grow_and_takes_overwrites_and_removals() {
    let mut bench = with_object();
    let before = bench.store.free_blocks();
    let count = fill(&mut bench);
    assert!(count > 120, "{count} of 30 kB each, on 16 MB");
    // It was not done, and is not done when it is sent again.
    assert!(set(&mut bench, 100_000 + count, count, value(1, 30_000)).is_err());
    assert_eq!(get(&mut bench, 99_999, count), Ok(Vec::new().into()));
    // Many rounds: more than the free slots could take.
    for round in 0..6 {
        for index in (1..count).step_by(3) {
            let new = value(index + round, 30_000 - round as usize);
            assert!(set(&mut bench, 200_000 + round * 1000 + index, index, new).is_ok(), "{round} {index}");
        }
        bench.settle();
    }
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    bench.settle();
    for index in (1..count).step_by(3) {
        assert_eq!(get(&mut bench, 300_000 + index, index), Ok(value(index + 5, 29_995).into()));
    }
    let free = bench.store.free_blocks();
    assert_eq!(bench.create(volume(8, free + 16), 0), Err(Failure::NoSpace));
    remove(&mut bench, 400_000, 1);
    bench.settle();
    // Everything is garbage-collected, and a checkpoint frees the slots.
    create(&mut bench, 400_001, 1);
    checkpoint(&mut bench, 500_000);
    assert!(bench.counter("keys_collected") >= count, "{}", bench.counter("keys_collected"));
    let free = bench.store.free_blocks();
    assert!(free + 30 * 16 > before, "{free} of {before}");
    assert_eq!(bench.create(volume(8, free), 0), Ok(()));
}

#[test]
fn slots_promised_to_volumes_are_kept_for_them() {
    let mut bench = Bench::new(1);
    let room = bench.store.free_blocks();
    assert_eq!(bench.create(volume(7, room), 0), Ok(()));
    let make = command(ObjectId(1), Action::Create, Vec::new(), Vec::new());
    let refused = ask(&mut bench, 1, make).map_err(|refusal| refusal.failure);
    assert_eq!(refused, Err(ObjectFailure::NoSpace));
    for chunk in 0..room / 16 {
        bench.write(1000 + chunk, vec![data(16 * chunk, 16, chunk)]);
    }
    // And volumes do not get the slots of the object index.
    let mut bench = with_object();
    let count = fill(&mut bench);
    let room = bench.store.free_blocks();
    assert_eq!(bench.create(volume(7, room), 0), Ok(()));
    for chunk in 0..room / 16 {
        bench.write(1000 + chunk, vec![data(16 * chunk, 16, chunk)]);
    }
    for index in 1..count {
        assert!(set(&mut bench, 200_000 + index, index, value(index, 29_000)).is_ok(), "{index}");
    }
    bench.settle();
}

#[test]
fn a_device_without_objects_loses_nothing_to_them() {
    let mut bench = Bench::new(1);
    let geometry = bench.disk.geometry();
    assert_eq!(bench.store.free_blocks(), u64::from(geometry.slots - 64) * 16);
    assert!(u64::from(geometry.slots) * SLOT > SIZE * 9 / 10);
    bench.settle();
    assert_eq!(bench.counter("index_leaves") + bench.counter("leaves_written"), 0);
}

#[test]
fn remains_of_a_removed_object_are_swept_step_by_step_whatever_happens_in_between() {
    let mut bench = at_rest();
    send(&mut bench, 5000, vec![removal(1)]);
    bench.perform();
    bench.run_to_event();
    assert!(bench.counter("keys_collected") < 400, "not all at once: {}", bench.counter("keys_collected"));
    // It ends even if the power fails early every time.
    for _ in 0..60 {
        bench.restart_here();
        for _ in 0..3 {
            bench.end_one();
        }
    }
    bench.settle();
    assert_eq!(get(&mut bench, 5001, 7), Err(ObjectFailure::NoSuchObject));
    create(&mut bench, 5002, 1);
    checkpoint(&mut bench, 6000);
    bench.settle();
    assert!(bench.counter("index_leaves") <= 2, "{}", bench.counter("index_leaves"));
    assert_eq!(get(&mut bench, 7000, 7), Ok(Vec::new().into()));
}

#[test]
fn starting_reads_the_index_and_no_leaf() {
    let reads = |attributes: u64| {
        let mut bench = with_object();
        for index in 1..=attributes {
            let sets = (0..8).map(|part| SetAttribute {
                name: AttributeName::new(2 + part, index as u32),
                value: value(index, 4000).into(),
            });
            let sets = command(ObjectId(1), Action::Nothing, sets.collect(), Vec::new());
            assert!(ask(&mut bench, 10 + index, sets).is_ok());
        }
        checkpoint(&mut bench, 10_000);
        let before = bench.disk.reads;
        let leaves = bench.counter("index_leaves");
        let (bench, _) = bench.restart().expect("nothing is wrong");
        (leaves, bench.disk.reads - before)
    };
    let (few, many) = (reads(2), reads(150));
    assert!(many.0 > few.0 + 40, "{many:?}");
    assert_eq!(many.1, few.1, "leaves and reads: {few:?} {many:?}");
}

/// Two objects of about 200 attributes each, in leaves of which none is in memory.
fn two_at_rest() -> Bench {
    let mut bench = with_object();
    create(&mut bench, 2, 2);
    for index in 1..400u64 {
        assert!(ask(&mut bench, 10 + index, setting(1 + index / 200, index, value(index, 1000))).is_ok());
    }
    checkpoint(&mut bench, 1000);
    bench.restart().expect("nothing is wrong").0
}

fn remove(bench: &mut Bench, sequence: u64, object: u64) {
    assert!(ask(bench, sequence, removal(object)).is_ok());
}

#[test]
fn a_corrupt_leaf_of_a_removed_object_does_not_stop_garbage_collection() {
    let mut bench = two_at_rest();
    // A leaf of the first object without the objects' headers.
    let victim = bench.disk.find(b"BrLf").into_iter().find(|at| {
        let first = bench.disk.get(*at, 512)[24..41].to_vec();
        first[0] == 5 && first[8] == 1
    });
    bench.disk.corrupt(victim.expect("there are several") + 1024);
    for object in [1, 2] {
        remove(&mut bench, 2000 + object, object);
        bench.settle();
    }
    assert_eq!(bench.counter("leaves_damaged"), 1);
    let collected = bench.counter("keys_collected");
    assert!((300..400).contains(&collected), "all but those of one leaf: {collected}");
    // After a restart, collection tries that leaf again, and continues all the same.
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    create(&mut bench, 3000, 3);
    let sets = (0..50).map(|index| SetAttribute { name: AttributeName::new(1, index), value: value(1, 50).into() });
    assert!(ask(&mut bench, 3001, command(ObjectId(3), Action::Nothing, sets.collect(), Vec::new())).is_ok());
    let before = bench.counter("keys_collected");
    remove(&mut bench, 3002, 3);
    bench.settle();
    assert_eq!(bench.counter("keys_collected") - before, 51);
}

#[test]
fn remains_of_a_removed_object_are_swept_beside_constant_load() {
    let mut bench = two_at_rest();
    assert_eq!(get(&mut bench, 1999, 1), Ok(value(1, 1000).into()));
    for sequence in 2000.. {
        if bench.counter("keys_collected") >= 200 {
            return;
        }
        assert!(sequence < 3000, "nothing is collected: {}", bench.counter("keys_collected"));
        let command = match sequence {
            2000 => removal(2),
            _ => setting(1, 1, value(sequence, 10)),
        };
        let name = TransactionId { host: Generation(5), sequence };
        let request = ObjectRequest { commands: vec![command] };
        bench.store.execute(bench.now, name, sequence - 3, Vec::new(), request, &mut bench.out);
        bench.perform();
        // The next request is there while one is being written.
        if sequence > 2000 {
            bench.end_one();
        }
    }
}

#[test]
fn a_request_without_space_waits_for_that_of_removed_objects() {
    let mut bench = with_object();
    create(&mut bench, 2, 2);
    let count = fill(&mut bench);
    // A removal and the next request, without a pause in between.
    send(&mut bench, 200_000, vec![removal(1)]);
    send(&mut bench, 200_001, [count, count + 1].map(|index| setting(2, index, value(1, 30_000))).to_vec());
    bench.settle();
    let answers: Vec<_> = bench.events.drain(..).collect();
    let ok = |event: &StoreEvent| matches!(event, StoreEvent::Executed { answer: Ok(_), .. });
    assert!(answers.len() == 2 && answers.iter().all(ok), "{answers:?}");
}

#[test]
fn a_list_has_the_leaves_ahead_of_it_read_together() {
    let mut bench = with_object();
    for index in 1..80 {
        set(&mut bench, 10 + index, index, value(index, 60_000)).expect("there is room");
        bench.settle();
    }
    checkpoint(&mut bench, 1000);
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    let list = |most| command(ObjectId(1), Action::ListAttributes { after: None, page: None, most }, vec![], vec![]);
    // The leaf with the header was read at the start.
    let before = bench.counter("leaves_read");
    bench.disk.hold_reads = true;
    send(&mut bench, 7000, vec![list(1000)]);
    bench.run();
    assert_eq!(bench.counter("leaves_read") - before, 16);
    bench.disk.hold_reads = false;
    bench.run();
    assert!(matches!(bench.events.pop_front(), Some(StoreEvent::Executed { answer: Ok(_), .. })));
    // A request for one attribute reads one leaf.
    let (mut bench, _) = bench.restart().expect("nothing is wrong");
    assert!(ask(&mut bench, 7001, list(1)).is_ok());
    assert!(bench.counter("leaves_read") <= 3, "{}", bench.counter("leaves_read"));
}
