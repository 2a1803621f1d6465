//! Views with keys that are not in memory, and maps with damage.

use crate::words::*;
use braid_objects::{Known, Obstacle, View, map_access};
use braid_wire::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// A view with only some keys in memory. Others are present after they were asked for once.
pub struct Forgetful<'a> {
    map: &'a mut BTreeMap<Key, Bytes>,
    /// Determines which keys are in memory; `None`: none are.
    seed: Option<u64>,
    fetched: BTreeSet<(Key, Key)>,
    /// The number of reads that failed because a key was not in memory.
    pub wanted: usize,
}

impl<'a> Forgetful<'a> {
    pub fn new(map: &'a mut BTreeMap<Key, Bytes>, seed: Option<u64>) -> Forgetful<'a> {
        Forgetful { map, seed, fetched: BTreeSet::new(), wanted: 0 }
    }

    fn fetch(&mut self, first: Key, last: Key) -> Result<(), Obstacle> {
        let words = [first.kind as u64, first.of, first.index, last.index];
        let mix = |mixed: u64, word: u64| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let here = self.seed.is_some_and(|seed| words.into_iter().fold(seed, mix) >> 40 & 1 == 0);
        if here || !self.fetched.insert((first, last)) {
            return Ok(());
        }
        self.wanted += 1;
        Err(Obstacle::NotHere)
    }
}

impl View for Forgetful<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        self.fetch(key, key)?;
        View::get(self.map, key)
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        self.fetch(*keys.start(), *keys.end())?;
        View::first(self.map, keys)
    }
}

/// A view in which some keys are damaged.
struct Damaged<'a> {
    map: &'a mut BTreeMap<Key, Bytes>,
    damaged: fn(Key) -> bool,
}

impl View for Damaged<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        if (self.damaged)(key) { Err(Obstacle::Lost) } else { View::get(self.map, key) }
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        match View::first(self.map, keys)? {
            Some((key, _)) if (self.damaged)(key) => Err(Obstacle::Lost),
            found => Ok(found),
        }
    }

    fn first_known(&mut self, keys: RangeInclusive<Key>) -> Result<Known, Obstacle> {
        let mut passed_damage = false;
        for (key, _) in self.map.range(keys) {
            if !(self.damaged)(*key) {
                return Ok(Known { key: Some(*key), passed_damage });
            }
            passed_damage = true;
        }
        Ok(Known { key: None, passed_damage })
    }
}

fn one(command: ObjectCommand) -> ObjectRequest {
    ObjectRequest { commands: vec![command] }
}

#[test]
fn a_command_asks_for_all_its_pages_at_once() {
    let mut objects = Objects::with_one();
    objects.acts(write(0, &[1; 5 * 4096]));
    for (request, wanted) in [
        (command(read(100, 4 * 4096)), [1, 5, 0]),
        (command(write(100, &[1; 9000])), [1, 2, 0]),
        (command(Action::Nothing).get(LOCK).get(NOTE).get(AttributeName::OBJECT_LIFE), [1, 2, 0]),
    ] {
        let mut view = Forgetful::new(&mut objects.map, None);
        for wanted in wanted {
            let before = view.wanted;
            assert_eq!(evaluate(&one(request.clone()), &mut view).is_err(), wanted > 0);
            assert_eq!(view.wanted - before, wanted, "{request:?}");
        }
    }
}

#[test]
fn damaged_blocks_are_lost_until_written_as_a_whole() {
    let mut objects = Objects::with_one();
    objects.does([command(write(0, &[1; 8192])).set(LOCK, b"mine")]);
    let mut view = Damaged { map: &mut objects.map, damaged: |key| matches!(key.kind as u8, 4 | 5) };
    for (refused, action) in [
        (true, read(0, 1)),
        (true, write(1, b"x")),
        (true, swap(LOCK, b"mine", b"")),
        (true, Action::Truncate { length: 1 }),
        (false, read(9000, 1)),
        (false, write(0, &[2; 4096])),
        // A piece that was cut off must never reappear, as it might if it became readable later.
        (true, Action::Truncate { length: 0 }),
        (true, Action::ListAttributes { after: None, page: None, most: 1 }),
        (false, Action::Stat),
        (false, Action::Remove),
    ] {
        let evaluation = evaluate(&one(command(action.clone())), &mut view).expect("all of it is here");
        let lost = ObjectRefusal { command: 0, failure: ObjectFailure::Lost };
        assert_eq!(evaluation.answer.err(), refused.then_some(lost), "{action:?}");
        assert!(!refused || evaluation.changes.is_empty());
    }
    let evaluation = evaluate(&one(set(LOCK, b"yours")), &mut view).expect("all of it is here");
    assert!(evaluation.answer.is_ok());
}

#[test]
fn damaged_pages_do_not_keep_the_rest_from_being_swept() {
    let mut objects = Objects::with_one();
    objects.does([command(write(0, &[1; 8192])).set(LOCK, b"mine")]);
    objects.does([command(Action::Create).of(2), command(write(0, &[1; 5000])).of(2)]);
    objects.does([command(Action::Remove), command(Action::Remove).of(2)]);
    let collect_from = |objects: &mut Objects, from, damaged| {
        let mut view = Damaged { map: &mut objects.map, damaged };
        let Collected { changes, next } = collect(&mut view, from, 9).expect("all of it is here");
        map_access::apply(&changes, &mut objects.map);
        (changes.len(), next)
    };
    let first_piece = |key: Key| key == Key::piece(1, 0);
    assert_eq!(collect_from(&mut objects, 0, first_piece), (2, Some(2)));
    assert_eq!(collect_from(&mut objects, 2, first_piece), (3, Some(3)));
    assert_eq!(collect_from(&mut objects, 3, first_piece), (0, None));
    // The last number, the damaged piece, and the record that its incarnation has ended.
    assert_eq!(objects.map.len(), 3);
    assert_eq!(collect_from(&mut objects, 0, |key| key.kind == Kind::Ended), (0, None));
    // After a restart the key may be readable.
    assert_eq!(collect_from(&mut objects, 0, |_| false), (2, Some(2)));
}

/// An attribute volume has such a view.
#[test]
fn zero_is_no_object_even_where_every_object_is_there() {
    let mut objects = Objects::with_one();
    let header = objects.map[&Key::header(OBJECT)].clone();
    objects.map.insert(Key::header(ObjectId(0)), header);
    assert_eq!(objects.refuses(command(Action::Stat).of(0)), ObjectFailure::NoSuchObject);
}

#[test]
fn a_header_that_is_none_is_lost() {
    for header in [&[][..], &[1], &[0; 15], &[0; 17], &[0xff; 16]] {
        let mut objects = Objects::with_one();
        objects.map.insert(Key::header(OBJECT), Bytes::copy_from_slice(header));
        objects.map.insert(Key::LAST_GIVEN, Bytes::copy_from_slice(&header[..header.len().min(15)]));
        assert_eq!(objects.refuses(command(Action::Stat)), ObjectFailure::Lost);
        assert_eq!(objects.refuses(command(Action::Create).of(0)), ObjectFailure::Lost);
    }
}

#[test]
fn a_piece_that_is_too_long_is_lost() {
    let mut objects = Objects::with_one();
    objects.acts(write(0, &[1; 5000]));
    objects.map.insert(Key::piece(1, 1), Bytes::from(vec![1; 4097]));
    assert_eq!(objects.refuses(command(read(4096, 1))), ObjectFailure::Lost);
    assert_eq!(objects.refuses(command(write(4096, b"x"))), ObjectFailure::Lost);
}

#[test]
fn when_all_numbers_are_given_the_device_is_full() {
    for (last, chosen, wished) in [
        ([0, 1], Ok(ObjectId(2)), Ok(ObjectId(9))),
        ([0, u64::MAX], Err(ObjectFailure::NoSpace), Ok(ObjectId(9))),
        ([u64::MAX, 1], Err(ObjectFailure::NoSpace), Err(ObjectFailure::NoSpace)),
    ] {
        for (number, made) in [(0, chosen), (9, wished)] {
            let mut objects = Objects::default();
            let last: Vec<u8> = last.iter().flat_map(|word: &u64| word.to_be_bytes()).collect();
            objects.map.insert(Key::LAST_GIVEN, last.into());
            let made =
                made.map(|object| vec![CommandResult { action: ActionResult::Created { object }, values: vec![] }]);
            let made = made.map_err(|failure| ObjectRefusal { command: 0, failure });
            assert_eq!(objects.ask([command(Action::Create).of(number)]), made);
        }
    }
}

proptest! {
    #[test]
    fn a_map_full_of_noise_blocks_no_request(
        noise in vec((1..6u8, 0..4u64, prop_oneof![0..4u64, Just(u64::MAX)], noise()), 0..12),
        offset in prop_oneof![0..9000u64, any::<u64>()],
    ) {
        let mut map = BTreeMap::new();
        for (kind, of, index, value) in noise {
            let bytes: Vec<u8> = [&[kind][..], &of.to_be_bytes(), &index.to_be_bytes()].concat();
            let key = Key::decode(&bytes.try_into().expect("a key's length")).expect("a kind");
            map.insert(key, Bytes::from(value));
        }
        for number in 0..4 {
            for action in [
                Action::Create,
                Action::Stat,
                read(offset, 5000),
                write(offset.min(1 << 49), &[1; 5000]),
                Action::Append { data: Bytes::from_static(&[1; 5000]) },
                Action::Truncate { length: offset.min(1 << 50) },
                swap(AttributeName::new(0, number as u32), b"", b"x"),
                Action::FetchAndAdd { name: AttributeName::new(0, number as u32), add: 1, original: true },
                Action::ListAttributes { after: None, page: None, most: 9 },
                Action::List { after: ObjectId(number), most: 9 },
            ] {
                evaluate(&one(command(action).of(number)), &mut map).expect("all of it is here").answer.ok();
            }
            collect(&mut map, 0, 5).expect("all of it is here");
        }
    }
}

/// Random bytes, or two numbers.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..9000u64, Just(1 << 50), any::<u64>()];
    let numbers =
        (0..4u64, length).prop_map(|(incarnation, length)| [incarnation.to_be_bytes(), length.to_be_bytes()].concat());
    prop_oneof![vec(any::<u8>(), 0..24), numbers]
}
