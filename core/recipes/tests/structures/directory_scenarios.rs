//! Scenarios of the directory, one by one.

use crate::bench::*;
use crate::directory::{Contents, OBJECT, contents, small};
use crate::sequential::Alone;
use braid_objects::attribute_volume::{FIRST_SPREAD_OBJECT, place_of};
use braid_recipes::directory::{Changed, Directory, Expected, LOCKS_PAGE, NAMES_PAGE, NEXT_FREE};
use std::num::NonZeroU32;

fn alone() -> Alone {
    Alone::with(Space::with(&[OBJECT]))
}

fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn with(directory: Directory, names: &[(&str, u64)]) -> Alone {
    let mut alone = alone();
    for (text, object) in names {
        assert_eq!(alone.run(directory.insert(name(text), ObjectId(*object))), Ok(Changed::Inserted));
    }
    alone
}

#[test]
fn without_collisions_everything_is_one_round_trip() {
    let directory = Directory::new(OBJECT);
    let mut alone = alone();
    let twenty = name("a-name-of-20-letters");
    assert_eq!(alone.count(directory.insert(twenty.clone(), ObjectId(7))), (Ok(Changed::Inserted), 1));
    let slot = AttributeName::new(NAMES_PAGE, directory.slot(&twenty));
    assert_eq!(alone.space.value(OBJECT, slot).len(), 36, "sixteen bytes and the name");
    assert_eq!(alone.count(directory.insert(twenty.clone(), ObjectId(8))), (Ok(Changed::Exists(ObjectId(7))), 1));
    let (found, trips) = alone.count(directory.look_up(twenty.clone()));
    let entry = found.unwrap().unwrap();
    assert_eq!((entry.object, trips), (ObjectId(7), 1));
    assert_eq!(alone.count(directory.look_up(name("nobody"))), (Ok(None), 1));
    assert_eq!(alone.count(directory.remove(name("nobody"), Expected::Anything)), (Ok(Changed::Absent), 1));
    let removal = directory.remove(twenty.clone(), Expected::Seen(entry));
    assert_eq!(alone.count(removal), (Ok(Changed::Removed(ObjectId(7))), 1));
    alone.run(directory.insert(twenty.clone(), ObjectId(9))).unwrap();
    let removal = directory.remove(twenty, Expected::Anything);
    assert_eq!(alone.count(removal), (Ok(Changed::Removed(ObjectId(9))), 2));
    assert_eq!(alone.space.attributes(OBJECT, LOCKS_PAGE), []);
}

#[test]
fn a_collision_costs_two_more_and_one_for_each_entry_behind_the_first() {
    let directory = small(0);
    let mut alone = with(directory, &[("anna", 1)]);
    assert_eq!(alone.count(directory.insert(name("bert"), ObjectId(2))), (Ok(Changed::Inserted), 3));
    assert_eq!(alone.count(directory.insert(name("carl"), ObjectId(3))), (Ok(Changed::Inserted), 4));
    for (text, trips) in [("anna", 1), ("carl", 2), ("bert", 3), ("nobody", 3)] {
        assert_eq!(alone.count(directory.look_up(name(text))).1, trips, "{text}");
    }
    assert_eq!(alone.count(directory.remove(name("bert"), Expected::Anything)).1, 5);
    assert_eq!(alone.count(directory.remove(name("anna"), Expected::Anything)).1, 4);
    assert_eq!(contents(&alone.space, directory), Contents::from([(name("carl"), ObjectId(3))]));
}

#[test]
fn slots_of_the_linked_list_come_round_and_a_full_one_says_so() {
    let directory = Directory { linked: NonZeroU32::new(3).unwrap(), ..small(0) };
    let mut alone = with(directory, &[("first", 100), ("stays", 101)]);
    // The counter wraps around many times; the one slot in use is skipped.
    for number in 0..20 {
        let text = format!("name-{number}");
        assert_eq!(alone.run(directory.insert(name(&text), ObjectId(number))), Ok(Changed::Inserted));
        assert_eq!(alone.run(directory.look_up(name(&text))).unwrap().unwrap().object, ObjectId(number));
        let removed = alone.run(directory.remove(name(&text), Expected::Anything));
        assert_eq!(removed, Ok(Changed::Removed(ObjectId(number))));
    }
    assert!(alone.space.number(OBJECT, NEXT_FREE) > 20);
    for text in ["two", "three"] {
        assert_eq!(alone.run(directory.insert(name(text), ObjectId(1))), Ok(Changed::Inserted));
    }
    assert_eq!(alone.run(directory.insert(name("four"), ObjectId(1))), Ok(Changed::Full));
    let lock = alone.space.value(OBJECT, AttributeName::new(LOCKS_PAGE, 0));
    assert_eq!(lock, [0; 12][..], "it has released the lock");
    assert_eq!(contents(&alone.space, directory).len(), 4);
}

#[test]
fn races_for_an_empty_slot_do_not_count_as_slots_in_use() {
    let directory = small(0);
    let mut alone = with(directory, &[("other", 1)]);
    let (mut insertion, rng) = (directory.insert(name("anna"), ObjectId(2)), &mut Rng::new(5));
    let (mut answer, mut requests) = (Answer::None, 0);
    let end = loop {
        let request = match insertion.resume(alone.now, rng, answer) {
            Next::Done(end) => break end,
            Next::Ask { request, .. } => request,
            _ => panic!("the lock is free, or its own"),
        };
        // Another client empties the slot before each lock, and fills it before each change.
        if (1..200).contains(&requests) {
            let (change, changed) = match requests % 2 {
                1 => (directory.remove(name("other"), Expected::Anything), Changed::Removed(ObjectId(1))),
                _ => (directory.insert(name("other"), ObjectId(1)), Changed::Inserted),
            };
            assert_eq!(alone.run(change), Ok(changed));
        }
        answer = Answer::Results(alone.space.execute(&request).unwrap());
        requests += 1;
    };
    assert_eq!((end, requests), (Ok(Changed::Inserted), 201));
    assert_eq!(contents(&alone.space, directory).len(), 1);
}

#[test]
fn a_directory_that_is_full_can_be_emptied() {
    for (bits, room) in [0, 2, 8].into_iter().flat_map(|bits| (1500..1600).step_by(9).map(move |room| (bits, room))) {
        let directory = Directory { linked: NonZeroU32::new(1000).unwrap(), ..small(bits) };
        let mut alone = with(directory, &[("a-name-of-20-letters", 1)]);
        alone.space.leave_room_for(room);
        let mut names: Vec<Bytes> = (0..).map(|number| name(&format!("{number:0>20}"))).take(100).collect();
        let full = names.iter().position(|name| {
            let outcome = alone.run(directory.insert(name.clone(), ObjectId(7)));
            assert!(matches!(outcome, Ok(Changed::Inserted) | Err(RequestFailure::Refused(ObjectFailure::NoSpace))));
            outcome.is_err()
        });
        let full = full.expect("the space is used up eventually");
        assert!(full > 10, "{full}");
        names.truncate(full);
        alone.space.leave_room_for(0);
        for (number, name) in names.into_iter().enumerate() {
            // A refused operation may have left a lock behind.
            alone.rng = Rng::new(number as u64 + 2);
            let removed = alone.run(directory.remove(name, Expected::Anything));
            assert_eq!(removed, Ok(Changed::Removed(ObjectId(7))), "{number} of {full}, {bits} bits, room for {room}");
        }
        assert_eq!(contents(&alone.space, directory).len(), 1);
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_and_damage_is_no_panic() {
    let directory = small(0);
    let mut alone = alone();
    let long = Bytes::from(vec![b'x'; 256]);
    let refused = alone.run(directory.insert(long, ObjectId(1)));
    assert_eq!(refused, Err(RequestFailure::TooLong { most: 255 }));
    assert_eq!(alone.run(directory.insert(Bytes::new(), ObjectId(1))), Err(RequestFailure::NoName));
    let longest = Bytes::from(vec![b'x'; 255]);
    assert_eq!(alone.run(directory.insert(longest, ObjectId(1))), Ok(Changed::Inserted));
    let lost = RequestFailure::Refused(ObjectFailure::Lost);
    // A value that is too short, and a pointer to nothing.
    for damaged in [&b"short"[..], b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01other"] {
        alone.space.set(OBJECT, AttributeName::new(NAMES_PAGE, 0), damaged);
        alone.rng = Rng::new(damaged.len() as u64);
        assert_eq!(alone.run(directory.look_up(name("anna"))), Err(lost));
        assert_eq!(alone.run(directory.insert(name("anna"), ObjectId(1))), Err(lost));
        assert_eq!(alone.run(directory.names(None, 10)), Err(lost));
        alone.pass(Duration::from_secs(10));
    }
}

#[test]
fn without_an_idempotency_record_another_client_s_entry_is_not_taken_for_its_own() {
    for idempotency_record in [None, Some(IdempotencyRecord(1))] {
        let directory = Directory { idempotency_record, ..small(0) };
        let insert = || directory.insert(name("anna"), ObjectId(1));
        // Another client makes the same change, even with the same object, and its request arrives first.
        let another = |space: &mut Space| {
            let mut another = Alone { rng: Rng::new(5), ..Alone::with(space.clone()) };
            let inserted =
                another.run(Directory { idempotency_record: None, ..directory }.insert(name("anna"), ObjectId(1)));
            assert_eq!(inserted, Ok(Changed::Inserted));
            *space = another.space;
        };
        let said = alone().run_losing(insert(), false, another);
        let expected = idempotency_record.map_or(Err(RequestFailure::Unknown), |_| Ok(Changed::Exists(ObjectId(1))));
        assert_eq!(said, expected);
        assert_eq!(
            alone().run_losing(insert(), false, |_| ()),
            idempotency_record.map_or(Err(RequestFailure::Unknown), |_| Ok(Changed::Inserted))
        );
        assert_eq!(alone().run_losing(insert(), true, |_| ()), Ok(Changed::Inserted), "it recognises its own entry");
    }
}

/// The failure of a first request on an attribute volume, if it is refused.
fn first_refusal<T>(mut procedure: impl Procedure<Output = Result<T, RequestFailure>>) -> Option<RequestFailure> {
    let rng = &mut Rng::new(1);
    let Next::Ask { request, .. } = procedure.resume(Time(0), rng, Answer::None) else {
        panic!("it begins with a request")
    };
    let refusal = place_of(&request, 1_000).err()?;
    match procedure.resume(Time(0), rng, Answer::RequestFailure(RequestFailure::Refused(refusal.failure))) {
        Next::Done(Err(failure)) => Some(failure),
        _ => panic!("a permanent refusal ends the operation"),
    }
}

#[test]
fn in_an_object_of_an_attribute_volume_every_operation_is_refused_at_its_first_step() {
    for (object, refused) in
        [(ObjectId(5), false), (ObjectId(FIRST_SPREAD_OBJECT.0 - 1), false), (FIRST_SPREAD_OBJECT, true)]
    {
        for idempotency_record in [None, Some(IdempotencyRecord(3))] {
            let directory = Directory { idempotency_record, ..Directory::new(object) };
            let (anna, expected) =
                (name("anna"), refused.then_some(RequestFailure::Refused(ObjectFailure::NotTogether)));
            assert_eq!(first_refusal(directory.insert(anna.clone(), ObjectId(1))), expected);
            assert_eq!(first_refusal(directory.remove(anna.clone(), Expected::Anything)), expected);
            assert_eq!(first_refusal(directory.look_up(anna)), expected);
            assert_eq!(first_refusal(directory.names(None, 10)), expected);
        }
    }
    // On a device, an object is in one place, whatever its number.
    let mut alone = Alone::with(Space::with(&[FIRST_SPREAD_OBJECT]));
    let directory = Directory::new(FIRST_SPREAD_OBJECT);
    assert_eq!(alone.count(directory.insert(name("anna"), ObjectId(1))), (Ok(Changed::Inserted), 1));
    let (found, trips) = alone.count(directory.look_up(name("anna")));
    let entry = found.unwrap().expect("it was just inserted");
    assert_eq!((entry.object, trips), (ObjectId(1), 1));
    let removal = directory.remove(name("anna"), Expected::Seen(entry));
    assert_eq!(alone.count(removal), (Ok(Changed::Removed(ObjectId(1))), 1));
}
