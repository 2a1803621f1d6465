//! The garbage collection of removed objects.

use crate::words::*;
use braid_wire::*;

#[test]
fn sweeping_leaves_nothing_but_headers_and_the_last_number() {
    let mut objects = Objects::default();
    for number in 1..6 {
        let attributes = (0..number as u32).fold(command(write(9, &vec![1; 4096 * number as usize])), |sets, at| {
            sets.set(AttributeName::new(at, u32::MAX - at), b"x")
        });
        objects.does([command(Action::Create).of(number), attributes.of(number)]);
    }
    objects.does([1, 2, 4, 5].map(|number| command(Action::Remove).of(number)));
    objects.does([command(Action::Create).of(5)]);
    assert!(objects.collect(4) > 5);
    let of_others = |key: &&Key| !matches!(key.kind, Kind::Piece | Kind::Attribute) || key.of != 3;
    let left: Vec<Key> = objects.map.keys().filter(of_others).copied().collect();
    assert_eq!(left, [Key::LAST_GIVEN, Key::header(ObjectId(3)), Key::header(ObjectId(5))]);
    let kept = objects.does([command(Action::Stat).of(3).get(AttributeName::new(2, u32::MAX - 2))]).remove(0);
    assert_eq!(kept.action, ActionResult::Stat { length: 9 + 3 * 4096, incarnation: 3 });
    assert_eq!(kept.values, ["x"]);
}

#[test]
fn a_collection_takes_as_many_keys_as_it_may() {
    // Two pieces, one attribute, and the record of the incarnation.
    for (most, times) in [(1, 4), (2, 2), (3, 2), (4, 1), (100, 1)] {
        let mut objects = Objects::with_one();
        objects.does([command(write(0, &[1; 5000])).set(NOTE, b"x"), command(Action::Remove)]);
        assert_eq!(objects.collect(most), times, "{most} at a time");
        assert_eq!(objects.map.len(), 1);
    }
}
