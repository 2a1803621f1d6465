//! Requests of several commands: their order, their conditions, and their atomicity.

use crate::words::*;
use braid_wire::*;

fn actions(results: Vec<CommandResult>) -> Vec<ActionResult> {
    results.into_iter().map(|result| result.action).collect()
}

#[test]
fn the_action_comes_first_then_the_sets_then_the_gets() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"free")]);
    // The swap sees the value before the set, the get the value after it.
    let result = objects.does([command(swap(LOCK, b"free", b"mine")).set(LOCK, b"after").get(LOCK)]).remove(0);
    assert_eq!(result.action, compared(true, b"free"));
    assert_eq!(result.values, ["after"]);
    // The same for the object's length.
    let result = objects.does([command(write(0, b"12345")).get(AttributeName::OBJECT_LENGTH)]).remove(0);
    assert_eq!(result.values, [&5u64.to_be_bytes()[..]]);
}

#[test]
fn of_two_sets_of_one_attribute_the_later_counts() {
    let mut objects = Objects::with_one();
    let result = objects.does([set(NOTE, b"one").set(NOTE, b"two").get(NOTE).get(NOTE).get(LOCK)]).remove(0);
    assert_eq!(result.values, ["two", "two", ""]);
}

#[test]
fn a_swap_that_does_not_match_leaves_out_the_sets_that_depend_on_it() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"theirs").set(NOTE, b"old")]);
    let before = objects.map.clone();
    let attempt = command(swap(LOCK, b"free", b"mine")).set(NOTE, b"new").sets_when(When::IfSwapped).get(NOTE);
    let result = objects.does([attempt.clone()]).remove(0);
    assert_eq!((result.action, &result.values[0][..]), (compared(false, b"theirs"), &b"old"[..]));
    assert_eq!(objects.map, before);

    objects.does([set(LOCK, b"free")]);
    let result = objects.does([attempt]).remove(0);
    assert_eq!((result.action, &result.values[0][..]), (compared(true, b"free"), &b"new"[..]));
}

#[test]
fn as_in_the_paper_sets_do_not_depend_on_the_swap_unless_asked_to() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"theirs")]);
    objects.does([command(swap(LOCK, b"free", b"mine")).set(NOTE, b"new")]);
    assert_eq!((objects.value(LOCK), objects.value(NOTE)), ("theirs".into(), "new".into()));
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
fn a_swap_that_is_skipped_does_not_count() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"red")]);
    let results = objects.does([
        command(swap(LOCK, b"other", b"x")).when(When::IfNotSwapped),
        command(Action::Nothing).when(When::IfSwapped),
    ]);
    assert_eq!(actions(results), [ActionResult::Skipped, ActionResult::Done]);
}

#[test]
fn a_failure_in_the_third_command_undoes_the_first_two() {
    let mut objects = Objects::with_one();
    objects.does([set(COUNT, &i64::MAX.to_be_bytes())]);
    let before = objects.map.clone();
    let refusal = objects.ask([command(write(0, b"data")), command(Action::Create).of(0), command(add(COUNT, 1))]);
    assert_eq!(refusal, Err(ObjectRefusal { command: 2, failure: ObjectFailure::Overflow }));
    assert_eq!(objects.map, before);
}

#[test]
fn a_failure_in_a_command_that_is_skipped_is_none() {
    let mut objects = Objects::with_one();
    let results = objects.does([command(Action::Stat).of(99).when(When::IfNotSwapped)]);
    assert_eq!(actions(results), [ActionResult::Skipped]);
}

#[test]
fn an_object_that_is_not_there_can_only_be_made() {
    let mut objects = Objects::default();
    for action in [
        Action::Nothing,
        Action::Remove,
        read(0, 0),
        write(0, b""),
        Action::Append { data: Bytes::new() },
        Action::Truncate { length: 0 },
        Action::Flush,
        Action::Stat,
        swap(LOCK, b"", b""),
        add(COUNT, 0),
        Action::ListAttributes { after: None, page: None, most: 0 },
    ] {
        for number in [0, 7, u64::MAX] {
            assert_eq!(objects.refuses(command(action.clone()).of(number)), ObjectFailure::NoSuchObject);
        }
    }
    assert_eq!(objects.acts(Action::Create), ActionResult::Created { object: OBJECT });
    assert_eq!(objects.refuses(command(Action::Create)), ObjectFailure::ObjectExists);
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
fn the_highest_numbers_are_not_to_be_wished_for() {
    let mut objects = Objects::default();
    for number in [0xff << 56, u64::MAX] {
        assert_eq!(objects.refuses(command(Action::Create).of(number)), ObjectFailure::NumberTooHigh);
    }
}

#[test]
fn behind_a_create_zero_is_the_object_just_made() {
    let mut objects = Objects::with_one();
    let results = objects.does([
        command(Action::Create).of(0).set(NOTE, b"first").get(NOTE),
        command(write(0, b"its data")).of(0),
        command(Action::Create).of(0),
        command(Action::Stat).of(0),
        command(Action::Create).of(20).set(NOTE, b"third"),
        command(Action::Nothing).of(0).get(NOTE),
    ]);
    assert_eq!(results[0].action, ActionResult::Created { object: ObjectId(8) });
    assert_eq!(results[0].values, ["first"]);
    assert_eq!(results[2].action, ActionResult::Created { object: ObjectId(9) });
    assert_eq!(results[3].action, ActionResult::Stat { length: 0, incarnation: 3 });
    assert_eq!(results[5].values, ["third"]);
    // In another request, zero is no object.
    assert_eq!(objects.refuses(command(Action::Stat).of(0)), ObjectFailure::NoSuchObject);
    let length = objects.does([command(Action::Nothing).of(8).get(AttributeName::OBJECT_LENGTH)]).remove(0).values;
    assert_eq!(length, [&8u64.to_be_bytes()[..]]);
}

#[test]
fn an_object_removed_by_the_same_request_is_absent() {
    let mut objects = Objects::with_one();
    objects.does([command(write(0, b"data")).set(NOTE, b"note")]);
    let before = objects.map.clone();
    for then in [set(NOTE, b"new"), command(Action::Nothing).get(NOTE), command(Action::Remove)] {
        let refusal = objects.ask([command(Action::Remove), then]);
        assert_eq!(refusal, Err(ObjectRefusal { command: 1, failure: ObjectFailure::NoSuchObject }));
        assert_eq!(objects.map, before);
    }
    // Not even as number zero.
    let refusal = objects.ask([command(Action::Create).of(9), command(Action::Remove).of(0), set(NOTE, b"x").of(0)]);
    assert_eq!(refusal, Err(ObjectRefusal { command: 2, failure: ObjectFailure::NoSuchObject }));
}

#[test]
fn an_object_made_again_is_empty_at_once() {
    let mut objects = Objects::with_one();
    objects.does([command(write(0, b"data")).set(NOTE, b"note")]);
    let list = command(Action::ListAttributes { after: None, page: None, most: 9 });
    let results = objects.does([command(Action::Remove), command(Action::Create), list, command(read(0, 9)).get(NOTE)]);
    assert_eq!(results[2].action, ActionResult::Attributes { found: vec![], more: false });
    assert_eq!(results[3].action, ActionResult::Data { data: Bytes::new() });
    assert_eq!(results[3].values, [""]);
}

#[test]
fn objects_are_listed_in_order() {
    let mut objects = Objects::default();
    for number in [3, 1, 1 << 62, 9] {
        objects.does([command(Action::Create).of(number)]);
    }
    let list = |after, most| command(Action::List { after: ObjectId(after), most });
    let listed = |numbers: &[u64], more| ActionResult::Objects {
        found: numbers.iter().map(|number| ObjectId(*number)).collect(),
        more,
    };
    let results = objects.does([
        list(0, 9),
        list(0, 4),
        list(0, 3),
        list(3, 1),
        list(4, 1),
        list(0, 0),
        list(1 << 62, 9),
        list(u64::MAX, 9),
        command(Action::Remove).of(3),
        command(Action::Create).of(0),
        list(1, 9),
    ]);
    let results = actions(results);
    let all = [1, 3, 9, 1 << 62];
    assert_eq!(results[0], listed(&all, false));
    assert_eq!(results[1], listed(&all, false));
    assert_eq!(results[2], listed(&all[..3], true));
    assert_eq!(results[3], listed(&[9], true));
    assert_eq!(results[4], listed(&[9], true));
    assert_eq!(results[5], listed(&[], true));
    assert_eq!(results[6], listed(&[], false));
    assert_eq!(results[7], listed(&[], false));
    assert_eq!(results[10], listed(&[9, 1 << 62, (1 << 62) + 1], false));
}

#[test]
fn a_request_without_commands_does_nothing() {
    assert_eq!(Objects::default().ask([]), Ok(vec![]));
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
