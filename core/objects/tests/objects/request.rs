//! Requests of several commands: examples of their conditions, numbers of new objects, and what of them need be remembered. Random requests
//! are compared with a model (`random.rs`).

use crate::words::*;
use braid_wire::*;

fn actions(results: Vec<CommandResult>) -> Vec<ActionResult> {
    results.into_iter().map(|result| result.action).collect()
}

/// An example for conditions, for which the paper has none (section 5): one round trip instead of three.
fn append_under_lock(entry: &'static [u8]) -> [ObjectCommand; 3] {
    let append = Action::Append { data: Bytes::from_static(entry) };
    [
        command(swap_empty(LOCK, b"", b"me")),
        command(append).when(When::IfSwapped).set(NOTE, entry).get(AttributeName::OBJECT_LENGTH),
        command(swap(LOCK, b"me", b"")).when(When::IfSwapped),
    ]
}

#[test]
fn a_lock_is_taken_used_and_given_back_in_one_request() {
    let mut objects = Objects::with_one();
    let results = objects.does(append_under_lock(b"entry"));
    assert_eq!(results[1].values, [&5u64.to_be_bytes()[..]]);
    let expected = [compared(true, b""), ActionResult::Appended { offset: 0 }, compared(true, b"me")];
    assert_eq!(actions(results), expected);
    assert_eq!((objects.value(LOCK), objects.value(NOTE)), ("".into(), "entry".into()));

    objects.does([set(LOCK, b"somebody else")]);
    let before = objects.map.clone();
    let results = objects.does(append_under_lock(b"more"));
    assert_eq!(results[1].values, [""; 0]);
    assert_eq!(actions(results), [compared(false, b"somebody else"), ActionResult::Skipped, ActionResult::Skipped]);
    assert_eq!(objects.map, before);
}

#[test]
fn conditions_ask_for_all_swaps_so_far() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"red")]);
    let note = |when: When, value| set(NOTE, value).when(when).get(NOTE);
    let told = |results: &[CommandResult]| results.iter().map(|result| result.values.concat()).collect::<Vec<_>>();
    // Before the first swap, `IfSwapped` holds.
    let results = objects.does([
        note(When::IfSwapped, b"0"),
        note(When::IfNotSwapped, b"1"),
        command(swap(LOCK, b"red", b"green")),
        note(When::IfSwapped, b"2"),
        note(When::IfNotSwapped, b"3"),
        command(swap(LOCK, b"red", b"blue")),
        note(When::IfSwapped, b"4"),
        note(When::IfNotSwapped, b"5"),
        // A later success does not cancel the failure.
        command(swap(LOCK, b"green", b"blue")),
        note(When::IfSwapped, b"6"),
        note(When::Always, b"7"),
    ]);
    assert_eq!(told(&results), [&b"0"[..], b"", b"", b"2", b"", b"", b"", b"5", b"", b"", b"7"]);
    assert_eq!(objects.value(LOCK), "blue");
}

#[test]
fn a_number_that_the_device_chooses_was_never_used_before() {
    let mut objects = Objects::default();
    let mut make = |number| match objects.does([command(Action::Create).of(number)]).remove(0).action {
        ActionResult::Created { object } => (object.0, objects.does([command(Action::Remove).of(object.0)])).0,
        other => panic!("{other:?}"),
    };
    assert_eq!([make(0), make(0), make(10), make(5), make(0), make(11), make(0)], [1, 2, 10, 5, 11, 11, 12]);
    let highest = 0xfeff_ffff_ffff_ffff;
    assert_eq!(make(highest), highest);
    assert_eq!([make(0), make(0), make(3)], [highest + 1, highest + 2, 3]);
}

#[test]
fn only_what_changes_nothing_whatever_it_finds_need_not_be_remembered() {
    let mut objects = Objects::with_one();
    let mut only_asks = |command: ObjectCommand| {
        let request = ObjectRequest { commands: vec![command] };
        evaluate(&request, &mut objects.map).expect("all of it is here").only_asks
    };
    for asks in [
        Action::Nothing,
        Action::Flush,
        Action::Stat,
        read(0, 1),
        Action::ListAttributes { after: None, page: None, most: 1 },
        Action::List { after: ObjectId(0), most: 1 },
    ] {
        assert!(only_asks(command(asks.clone())), "{asks:?}");
        if !matches!(asks, Action::List { .. }) {
            assert!(only_asks(command(asks.clone()).get(NOTE)));
            assert!(!only_asks(command(asks).set(NOTE, b"")));
        }
    }
    for acts in [
        Action::Create,
        Action::Remove,
        write(0, b""),
        Action::Append { data: Bytes::new() },
        Action::Truncate { length: 0 },
        swap_empty(LOCK, b"not this", b"x"),
        add(COUNT, 0),
    ] {
        assert!(!only_asks(command(acts.clone())), "{acts:?}");
        // Nor if it fails, because a late copy might succeed.
        assert!(!only_asks(command(acts.clone()).of(99)));
        assert!(!only_asks(command(acts).when(When::IfNotSwapped)));
    }
    // Requests that no device ever accepts.
    assert!(only_asks(command(Action::Create).of(u64::MAX)));
}

#[test]
fn every_key_is_changed_once() {
    let mut objects = Objects::with_one();
    let again = (0..9u8).map(|value| command(write(0, &[value])).set(NOTE, &[value]));
    let request = ObjectRequest { commands: again.collect() };
    let evaluation = evaluate(&request, &mut objects.map).expect("all of it is here");
    let keys: BTreeMap<_, _> = evaluation.changes.iter().map(|change| (change.key, ())).collect();
    assert_eq!((keys.len(), evaluation.changes.len()), (3, 3));
}
