//! Buckets, and requests to them, compared with the same requests on objects in memory.

use crate::random::when;
use crate::words::*;
use braid_base::BLOCK_BYTES;
use braid_objects::BucketAddress;
use braid_objects::attribute_volume::{Effect, FIRST_SPREAD_OBJECT, buckets, carry_out, place_of};
use braid_objects::bucket::{BUCKET_BLOCKS, BUCKET_BYTES, Blocks, BucketError, Entries, Full, decode, encode};
use braid_wire::*;
use proptest::prelude::*;

const PLACE: BucketAddress = BucketAddress { bucket: 3, buckets: 8 };

fn one(object: u64, action: Action) -> ObjectRequest {
    ObjectRequest { commands: vec![command(action).of(object)] }
}

fn set(object: u64, page: u32, number: u32, value: Bytes) -> ObjectRequest {
    let set = command(Action::Nothing).of(object).set(AttributeName::new(page, number), &value);
    ObjectRequest { commands: vec![set] }
}

fn get(object: u64, page: u32, number: u32) -> ObjectRequest {
    ObjectRequest { commands: vec![command(Action::Nothing).of(object).get(AttributeName::new(page, number))] }
}

fn add_one(page: u32, number: u32) -> Action {
    add(AttributeName::new(page, number), 1)
}

fn filled(byte: u8, length: usize) -> Bytes {
    vec![byte; length].into()
}

/// A volume in memory.
struct AttributeVolume {
    buckets: u64,
    held: BTreeMap<u64, Blocks>,
}

impl AttributeVolume {
    fn new(buckets: u64) -> AttributeVolume {
        AttributeVolume { buckets, held: BTreeMap::new() }
    }

    fn ask(&mut self, request: &ObjectRequest) -> ObjectAnswer {
        let place = place_of(request, self.buckets)?;
        let held = self.held.entry(place.bucket).or_default();
        match carry_out(request, place, held) {
            Effect::Nothing(answer) => answer,
            Effect::Write(blocks, results) => {
                assert_ne!(*blocks, *held);
                *held = *blocks;
                Ok(results)
            }
        }
    }
}

fn refused(command: u32, failure: ObjectFailure) -> ObjectAnswer {
    Err(ObjectRefusal { command, failure })
}

fn entries() -> impl Strategy<Value = Entries> {
    let key = (1u64..4, 0u32..3, 0u32..5)
        .prop_map(|(object, page, number)| Key::attribute(object, AttributeName::new(page, number)));
    let length = prop_oneof![1usize..40, 1usize..9000, 60_000..=limits::ATTRIBUTE_BYTES_MAX];
    // A block of zeros is equivalent to a hole.
    let value = (1u8.., length).prop_map(|(byte, length)| filled(byte, length));
    prop::collection::btree_map(key, value, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn attributes_in_a_bucket_are_found_again(entries in entries()) {
        let length = 40 + entries.values().map(|value| 21 + value.len()).sum::<usize>();
        match encode(PLACE, &entries) {
            Err(Full) => prop_assert!(length > BUCKET_BYTES),
            Ok(blocks) => {
                let used = if entries.is_empty() { 0 } else { length.div_ceil(BLOCK_BYTES) };
                prop_assert!(blocks.iter().take(used).all(|block| block.as_ref().is_some_and(|block| block.len() == BLOCK_BYTES)));
                prop_assert!(blocks.iter().skip(used).all(Option::is_none), "what is not used is a hole");
                prop_assert!(decode(PLACE, &blocks) == Ok(entries));
            }
        }
    }

    #[test]
    fn a_single_wrong_byte_is_noticed_and_so_is_a_block_of_another_time(
        held in entries().prop_filter("not empty", |entries| !entries.is_empty()),
        (block, at, by) in (0..BUCKET_BLOCKS, 0..BLOCK_BYTES, 1u8..),
    ) {
        let Ok(blocks) = encode(PLACE, &held) else { return Ok(()) };
        let mut wrong = blocks.clone();
        let mut bytes = wrong[block].take().map_or(vec![0; BLOCK_BYTES], |bytes| bytes.to_vec());
        bytes[at] ^= by;
        wrong[block] = Some(bytes.into());
        let expected = if block == 0 && (at < 8 || (12..16).contains(&at)) { BucketError::Foreign } else { BucketError::Damaged };
        prop_assert_eq!(decode(PLACE, &wrong), Err(expected));

        let mut torn = blocks.clone();
        torn[block] = None;
        let expected = match (&blocks[block], block) {
            (None, _) => Ok(held),
            (Some(_), 0) if blocks[1].is_none() => Ok(Entries::new()),
            (Some(_), 0) => Err(BucketError::Foreign),
            (Some(_), _) => Err(BucketError::Damaged),
        };
        prop_assert!(decode(PLACE, &torn) == expected);
    }

    #[test]
    fn any_requests_bring_what_they_bring_on_a_device(
        requests in vec(requests(), 1..60),
        buckets in 1u64..5,
    ) {
        let mut attribute_volume = AttributeVolume::new(buckets);
        let mut model: BTreeMap<Key, Bytes> = BTreeMap::new();
        for object in OBJECTS {
            model.insert(Key::header(ObjectId(object)), [object.to_be_bytes(), [0; 8]].concat().into());
        }
        for request in requests {
            let expected = evaluate(&request, &mut model).unwrap();
            prop_assert_eq!(attribute_volume.ask(&request), expected.answer, "{:?}", request);
            apply(&expected.changes, &mut model);
        }
    }
}

const OBJECTS: [u64; 4] = [1, 2, FIRST_SPREAD_OBJECT.0, FIRST_SPREAD_OBJECT.0 + 5];

/// Requests that an attribute volume accepts: of one object, and if that is spread, of one number.
fn requests() -> impl Strategy<Value = ObjectRequest> {
    let value =
        || prop_oneof![Just(Bytes::new()), (0u8..3, 1usize..12).prop_map(|(byte, length)| filled(byte, length))];
    let of_one = move |object: u64, number: u32| {
        let name = move || {
            (0u32..3, 0u32..4).prop_map(move |(page, other)| {
                AttributeName::new(page, if object >= FIRST_SPREAD_OBJECT.0 { number } else { other })
            })
        };
        let undefined = prop_oneof![Just(Undefined::Matches), Just(Undefined::IsEmpty)];
        let swap = (name(), value(), value(), undefined, any::<bool>()).prop_map(
            |(name, compare, swap, undefined, original)| Action::CompareAndSwap {
                name,
                compare,
                swap,
                undefined,
                original,
            },
        );
        let add = (name(), -3i64..9).prop_map(|(name, add)| Action::FetchAndAdd { name, add, original: true });
        let list = (prop::option::of(name()), prop::option::of(0u32..3)).prop_map(move |(after, page)| {
            match object >= FIRST_SPREAD_OBJECT.0 {
                true => Action::Flush,
                false => Action::ListAttributes { after, page, most: 3 },
            }
        });
        let action = prop_oneof![swap, add, list, Just(Action::Nothing), Just(Action::Create)];
        let sets = vec((name(), value()).prop_map(|(name, value)| SetAttribute { name, value }), 0..3);
        let gets = vec(name(), 0..3);
        let command = (when(), action, sets, when(), gets).prop_map(move |(when, action, sets, sets_when, gets)| {
            ObjectCommand { object: ObjectId(object), when, action, sets, sets_when, gets }
        });
        vec(command, 1..4).prop_map(|commands| ObjectRequest { commands })
    };
    (prop::sample::select(OBJECTS.to_vec()), 0u32..3).prop_flat_map(move |(object, number)| of_one(object, number))
}

#[test]
fn attributes_of_one_object_go_together_and_of_one_that_is_spread_those_of_one_number() {
    let both = |object: u64, other: u64, number: u32| ObjectRequest {
        commands: vec![command(add_one(1, 7)).of(object), command(add_one(2, number)).of(other)],
    };
    let refused = |command| Err(ObjectRefusal { command, failure: ObjectFailure::NotTogether });
    let list = |object| one(object, Action::ListAttributes { after: None, page: Some(1), most: 9 });
    // With a single bucket everything is in it, but requests are refused as in a larger attribute volume.
    for buckets in [1, 1000] {
        assert!(place_of(&both(5, 5, 8), buckets).is_ok());
        assert!(place_of(&list(5), buckets).is_ok());
        assert_eq!(place_of(&both(5, 6, 7), buckets), refused(1));
        let spread = FIRST_SPREAD_OBJECT.0 + 1;
        assert!(place_of(&both(spread, spread, 7), buckets).is_ok());
        assert_eq!(place_of(&both(spread, spread, 8), buckets), refused(1));
        assert_eq!(place_of(&both(spread, spread + 1, 7), buckets), refused(1));
        assert_eq!(place_of(&list(spread), buckets), refused(0));
    }
}

#[test]
fn objects_are_all_there_are_not_made_or_removed_and_hold_no_bytes() {
    let mut attribute_volume = AttributeVolume::new(4);
    let stat = attribute_volume.ask(&one(77, Action::Stat)).unwrap();
    assert_eq!(stat[0].action, ActionResult::Stat { length: 0, incarnation: 77 });
    assert_eq!(attribute_volume.ask(&one(77, Action::Create)), refused(0, ObjectFailure::ObjectExists));
    assert_eq!(attribute_volume.ask(&get(0, 1, 1)), refused(0, ObjectFailure::NoSuchObject));
    for action in [
        Action::Remove,
        Action::Read { offset: 0, length: 1 },
        Action::Write { offset: 0, data: filled(1, 1) },
        Action::Append { data: filled(1, 1) },
        Action::Truncate { length: 0 },
        Action::List { after: ObjectId(0), most: 1 },
    ] {
        assert_eq!(attribute_volume.ask(&one(77, action)), refused(0, ObjectFailure::NotInAttributeVolume));
    }
    assert_eq!(attribute_volume.ask(&one(0, Action::Create)), refused(0, ObjectFailure::NotInAttributeVolume));
}

#[test]
fn a_full_bucket_stays_as_it_is_until_something_is_removed() {
    let mut attribute_volume = AttributeVolume::new(1);
    attribute_volume.ask(&set(1, 1, 1, filled(1, limits::ATTRIBUTE_BYTES_MAX))).unwrap();
    attribute_volume.ask(&set(2, 1, 1, filled(2, 60_000))).unwrap();
    let before = attribute_volume.held.clone();
    assert_eq!(attribute_volume.ask(&set(3, 1, 1, filled(3, 8_000))), refused(0, ObjectFailure::NoSpace));
    assert_eq!(attribute_volume.held, before);
    attribute_volume.ask(&set(2, 1, 1, Bytes::new())).unwrap();
    attribute_volume.ask(&set(3, 1, 1, filled(3, 8_000))).unwrap();
    assert_eq!(attribute_volume.ask(&get(1, 1, 1)).unwrap()[0].values, [filled(1, limits::ATTRIBUTE_BYTES_MAX)]);
    attribute_volume.ask(&set(1, 1, 1, Bytes::new())).unwrap();
    attribute_volume.ask(&set(3, 1, 1, Bytes::new())).unwrap();
    assert!(attribute_volume.held[&0].iter().all(Option::is_none), "an empty bucket takes no room");
}

#[test]
fn blocks_that_are_no_bucket_are_refused_and_left_alone() {
    let request = one(9, add_one(1, 1));
    let foreign = |at: usize| {
        let mut blocks = Blocks::default();
        blocks[at] = Some(filled(0x5a, BLOCK_BYTES));
        blocks
    };
    let not_an_attribute_volume = Effect::Nothing(refused(0, ObjectFailure::NotAnAttributeVolume));
    assert_eq!(carry_out(&request, PLACE, &foreign(0)), not_an_attribute_volume);
    assert_eq!(carry_out(&request, PLACE, &foreign(31)), not_an_attribute_volume);
    // Blocks of zeros are equivalent to holes.
    let mut zeros = Blocks::default();
    zeros[4] = Some(filled(0, BLOCK_BYTES));
    assert!(matches!(carry_out(&get(9, 1, 1), PLACE, &zeros), Effect::Nothing(Ok(_))));
    let Effect::Write(bucket, _) = carry_out(&request, PLACE, &zeros) else { panic!("it is empty") };
    for place in [BucketAddress { bucket: 4, ..PLACE }, BucketAddress { buckets: 16, ..PLACE }] {
        assert_eq!(carry_out(&request, place, &bucket), not_an_attribute_volume, "it belongs elsewhere");
    }
    let mut damaged = *bucket;
    damaged[0] = damaged[0].take().map(|block| [&block[..50], b"x", &block[51..]].concat().into());
    assert_eq!(carry_out(&request, PLACE, &damaged), Effect::Nothing(refused(0, ObjectFailure::Lost)));
    assert_eq!(buckets(31), 0);
    assert_eq!(place_of(&request, 0), Err(ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume }));
}

#[test]
fn numbers_spread_over_the_buckets_as_they_always_have() {
    let mut counts = [0u32; 16];
    for number in 0..1600 {
        counts[place_of(&get(FIRST_SPREAD_OBJECT.0 + 7, 1, number), 16).unwrap().bucket as usize] += 1;
    }
    assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    // The location of attributes is part of the disk format: it must never change.
    let places =
        [get(7, 1, 0), get(7, 2, 1), get(8, 1, 0), get(FIRST_SPREAD_OBJECT.0, 1, 4), get(FIRST_SPREAD_OBJECT.0, 9, 9)];
    let places = places.map(|request| place_of(&request, 1 << 20).unwrap().bucket);
    assert_eq!(places, [756_556, 756_556, 279_598, 33_177, 628_765]);
}
