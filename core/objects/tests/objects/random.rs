//! Random sequences of requests have the same effects and answers as in the model.

use crate::model::Model;
use crate::views::Forgetful;
use crate::words::*;
use braid_objects::NotHere;
use braid_wire::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::iter::once;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn requests_do_what_they_do_to_the_model(requests in vec(request(), 1..24)) {
        let (mut objects, mut model) = (Objects::default(), Model::default());
        for request in once(beginning()).chain(requests) {
            let answer = objects.ask(request.commands.clone());
            prop_assert_eq!(&answer, &model.ask(&request), "{:?}", request);
        }
        same(&mut objects, &model);

        objects.collect(3);
        let incarnations: Vec<u64> = model.objects.values().map(|object| object.incarnation).collect();
        for key in objects.map.keys() {
            match key.kind {
                Kind::Last => prop_assert_eq!(key.of, 0),
                Kind::Header => prop_assert!(model.objects.contains_key(&key.of)),
                Kind::Piece | Kind::Attribute => prop_assert!(incarnations.contains(&key.of), "{:?}", key),
                _ => prop_assert!(false, "{:?}", key),
            }
        }
        same(&mut objects, &model);

        objects.does(model.objects.keys().map(|number| command(Action::Remove).of(*number)));
        objects.collect(5);
        prop_assert!(objects.map.keys().all(|key| key.kind == Kind::Last));
    }

    /// Keys that are not in memory the first time are fetched, and then the request is evaluated again.
    #[test]
    fn fetching_from_disk_changes_no_answer(requests in vec(request(), 1..8), seed in any::<u64>()) {
        let mut objects = Objects::default();
        for request in once(beginning()).chain(requests) {
            let straight = evaluate(&request, &mut objects.map).expect("all of it is here");
            let mut view = Forgetful::new(&mut objects.map, Some(seed));
            let fetched = loop {
                let wanted = view.wanted;
                match evaluate(&request, &mut view) {
                    Ok(evaluation) => break evaluation,
                    Err(NotHere) => prop_assert!(view.wanted > wanted, "something is wanted each time"),
                }
            };
            prop_assert_eq!(&fetched, &straight);
            objects.ask(request.commands).ok();
        }
    }
}

/// Checks that enough of the random requests succeed: a comparison of refused requests alone would prove little.
#[test]
fn most_requests_are_done_and_each_failure_is_met() {
    let mut runner = TestRunner::deterministic();
    let (mut requests_done, mut done, mut failures) = (0u32, BTreeMap::new(), BTreeMap::new());
    for _ in 0..400 {
        let requests = vec(request(), 24).new_tree(&mut runner).expect("requests").current();
        let mut model = Model::default();
        for request in once(beginning()).chain(requests) {
            match model.ask(&request) {
                Ok(results) => {
                    requests_done += 1;
                    results.into_iter().for_each(|result| *done.entry(kind(result.action)).or_insert(0) += 1);
                }
                Err(refusal) => *failures.entry(kind(refusal.failure)).or_insert(0) += 1,
            }
        }
    }
    let refused = failures.values().sum::<u32>();
    assert!(requests_done > refused, "{requests_done} {failures:?}");
    let results =
        ["Skipped", "Done", "Created", "Data", "Appended", "Stat", "Compared", "Added", "Attributes", "Objects"];
    assert!(results.iter().all(|result| done.get(*result) > Some(&50)), "{done:?}");
    let met = "NoSuchObject ObjectExists NumberTooHigh NotANumber Overflow ValueTooLong ReservedPage TooLong Malformed";
    assert!(met.split(' ').all(|failure| failures.contains_key(failure)), "{failures:?}");
}

/// The name of a variant.
fn kind(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").split([' ', '(']).next().expect("a name").to_string()
}

/// Everything that requests can observe is the same.
fn same(objects: &mut Objects, model: &Model) {
    let mut numbers = Vec::new();
    loop {
        let after = numbers.last().copied().unwrap_or(ObjectId(0));
        let ActionResult::Objects { found, more } = objects.acts(Action::List { after, most: 2 }) else {
            panic!("a list")
        };
        numbers.extend(found);
        if !more {
            break;
        }
    }
    assert_eq!(numbers, model.objects.keys().map(|number| ObjectId(*number)).collect::<Vec<_>>());
    for (number, object) in &model.objects {
        let mut act = |action| objects.does([command(action).of(*number)]).remove(0).action;
        let length = object.bytes.len() as u64;
        assert_eq!(act(Action::Stat), ActionResult::Stat { length, incarnation: object.incarnation });
        for (at, bytes) in (0..).step_by(256 << 10).zip(object.bytes.chunks(256 << 10)) {
            let data = Bytes::copy_from_slice(bytes);
            assert_eq!(act(Action::Read { offset: at, length: 256 << 10 }), ActionResult::Data { data });
        }
        let mut names = Vec::new();
        loop {
            let after = names.last().map(|(name, _)| *name);
            let list = act(Action::ListAttributes { after, page: None, most: 3 });
            let ActionResult::Attributes { found, more } = list else { panic!("a list") };
            names.extend(found);
            if !more {
                break;
            }
        }
        let expected =
            |(name, value): (&(u32, u32), &Vec<u8>)| (AttributeName::new(name.0, name.1), value.len() as u32);
        assert_eq!(names, object.attributes.iter().map(expected).collect::<Vec<_>>());
        for (name, value) in &object.attributes {
            let get = command(Action::Nothing).of(*number).get(AttributeName::new(name.0, name.1));
            assert_eq!(objects.does([get])[0].values[0], value);
        }
    }
}

/// Some objects exist from the start, so that most requests find one.
fn beginning() -> ObjectRequest {
    ObjectRequest { commands: (1..4).map(|number| command(Action::Create).of(number)).collect() }
}

fn request() -> impl Strategy<Value = ObjectRequest> {
    vec(any_command(), 0..7).prop_map(|commands| ObjectRequest { commands })
}

fn any_command() -> impl Strategy<Value = ObjectCommand> {
    let attached = (vec((name(), value()), 0..3), when(), vec(name(), 0..3));
    let none = Just((vec![], When::Always, vec![]));
    // Most objects to be created do not exist yet.
    let made = prop_oneof![6 => Just(0u64), 6 => 4..9u64, 8 => 1..4u64, 1 => odd_number()];
    let target = prop_oneof![20 => (object(), action()), 2 => (made.prop_map(ObjectId), Just(Action::Create))];
    (target, when(), prop_oneof![3 => none, 2 => attached]).prop_map(
        |((object, action), when, (sets, sets_when, gets))| {
            // Mostly commands that can be combined.
            let alone = matches!(action, Action::Remove | Action::List { .. }) && sets.len() < 2;
            let (sets, gets) = if alone { (vec![], vec![]) } else { (sets, gets) };
            let sets = sets.into_iter().map(|(name, value)| SetAttribute { name, value }).collect();
            ObjectCommand { object, when, action, sets, sets_when, gets }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let undefined = prop_oneof![Just(Undefined::Matches), Just(Undefined::IsEmpty)];
    let most = || prop_oneof![4 => 0..4u32, 1 => Just(u32::MAX)];
    let length = prop_oneof![4 => 0..20_000u32, 1 => 250_000..263_000u32, 1 => Just(u32::MAX)];
    prop_oneof![
        3 => Just(Action::Nothing),
        1 => Just(Action::Remove),
        1 => Just(Action::Flush),
        2 => Just(Action::Stat),
        3 => (place(), length).prop_map(|(offset, length)| Action::Read { offset, length }),
        3 => (place(), data()).prop_map(|(offset, data)| Action::Write { offset, data }),
        1 => data().prop_map(|data| Action::Append { data }),
        2 => place().prop_map(|length| Action::Truncate { length: if length < 1 << 50 { length } else { length + 1 } }),
        8 => (name(), value(), value(), undefined, any::<bool>()).prop_map(
            |(name, compare, swap, undefined, original)| Action::CompareAndSwap { name, compare, swap, undefined, original }
        ),
        4 => (name(), number(), any::<bool>()).prop_map(|(name, add, original)| Action::FetchAndAdd { name, add, original }),
        5 => (prop::option::of(name()), prop::option::of(page()), most())
            .prop_map(|(after, page, most)| Action::ListAttributes { after, page, most }),
        1 => (object(), most()).prop_map(|(after, most)| Action::List { after, most }),
    ]
}

fn object() -> impl Strategy<Value = ObjectId> {
    prop_oneof![2 => Just(0u64), 60 => 1..4u64, 1 => 4..9u64, 1 => odd_number()].prop_map(ObjectId)
}

fn odd_number() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![(0xff << 56) - 1, 0xff << 56, u64::MAX])
}

pub fn when() -> impl Strategy<Value = When> {
    prop_oneof![4 => Just(When::Always), 1 => Just(When::IfSwapped), 1 => Just(When::IfNotSwapped)]
}

fn page() -> impl Strategy<Value = u32> {
    prop_oneof![120 => 0..3u32, 12 => Just(0xefff_ffff), 1 => Just(0xf000_0000), 1 => Just(0xf000_0001), 1 => Just(u32::MAX)]
}

fn name() -> impl Strategy<Value = AttributeName> {
    let number = prop_oneof![8 => 0..3u32, 1 => Just(u32::MAX)];
    (page(), number).prop_map(|(page, number)| AttributeName::new(page, number))
}

/// Few values, so that comparisons often succeed, of all significant lengths.
fn value() -> impl Strategy<Value = Bytes> {
    let of = |length, byte| Bytes::from(vec![byte; length]);
    prop_oneof![
        16 => Just(Bytes::new()),
        24 => (0..2u8).prop_map(move |byte| of(1, byte)),
        12 => number().prop_map(|number| Bytes::copy_from_slice(&number.to_be_bytes())),
        1 => Just(of(7, 0)),
        1 => Just(of(9, 0)),
        2 => Just(of(64 << 10, 3)),
        1 => Just(of((64 << 10) + 1, 3)),
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![4 => -2..3i64, 1 => Just(i64::MAX), 1 => Just(i64::MIN), 1 => any::<i64>()]
}

/// Within a few pieces of the start, often at the edges of pieces, and sometimes beyond all bounds.
fn place() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![0u64, 1, 4095, 4096, 4097, 8191, 8192, 8193, 300 << 10]);
    prop_oneof![12 => 0..20_000u64, 12 => edges, 1 => prop::sample::select(vec![1 << 50, u64::MAX - 1])]
}

fn data() -> impl Strategy<Value = Bytes> {
    let length = prop_oneof![8 => 0..10_000usize, 2 => Just(4096usize), 2 => Just(8192usize), 1 => Just(256usize << 10), 1 => Just((256 << 10) + 1)];
    (length, 1..255u8).prop_map(|(length, first)| (0..length).map(|at| first ^ (at / 7) as u8).collect())
}
