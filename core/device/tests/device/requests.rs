//! Requests for objects that their hosts declare over or have abandoned, and late copies of tasks.

use crate::bench::*;
use braid_wire::{Action, ActionResult, AttributeName, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When};

const A: Generation = Generation(10);
const B: Generation = Generation(11);
const HERE: ObjectId = ObjectId(40);
const COUNTER: AttributeName = AttributeName::new(1, 1);
const WORD: AttributeName = AttributeName::new(1, 2);

fn asks(sequence: u64, action: Action, sets: Vec<SetAttribute>) -> Command {
    asks_knowing(sequence, Vec::new(), action, sets)
}

/// The same of a host that has abandoned other requests.
fn asks_knowing(sequence: u64, abandoned: Vec<(u64, u64)>, action: Action, sets: Vec<SetAttribute>) -> Command {
    let (when, sets_when) = (When::Always, When::Always);
    let command = ObjectCommand { object: HERE, when, action, sets, sets_when, gets: Vec::new() };
    Command::Objects { sequence, abandoned, request: ObjectRequest { commands: vec![command] } }
}

fn addition(sequence: u64) -> Command {
    asks(sequence, Action::FetchAndAdd { name: COUNTER, add: 1, original: true }, Vec::new())
}

/// A compare-and-swap that does not match, and returns what it found.
fn swap(sequence: u64) -> Command {
    let (compare, swap) = (Bytes::from_static(b"other"), Bytes::from_static(b"mine"));
    let undefined = Undefined::IsEmpty;
    asks(sequence, Action::CompareAndSwap { name: WORD, compare, swap, undefined, original: true }, Vec::new())
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    // The ends of the tasks that created the objects need not be kept.
    bench.settle(Generation(99), 1 << 32);
    bench.say(B, asks(1, Action::Create, Vec::new()));
    bench.say(B, asks(2, Action::Nothing, vec![SetAttribute { name: WORD, value: vec![7; 16 << 10].into() }]));
    assert!(bench.hear(B).is_some() && bench.hear(B).is_some());
    bench.settle(B, 3);
    bench
}

fn added(bench: &mut Bench, host: Generation) -> i64 {
    match bench.hear(host) {
        Some(Reply::Objects { answer: Ok(results), .. }) => match results[0].action {
            ActionResult::Added { original: Some(original) } => original,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_to_requests_that_are_over_are_not_kept_for_the_sake_of_one_that_is_not() {
    let mut bench = bench();
    bench.settle(A, 7);
    for sequence in 8..300 {
        assert!(matches!(bench.ask(A, swap(sequence)), Some(Reply::Objects { answer: Ok(_), .. })), "{sequence}");
        bench.say_over(A, vec![sequence]);
        assert_eq!(bench.counter("answers_kept"), 0);
    }
    assert_eq!(bench.ask(A, addition(100)), None, "the request is over");
    bench.say(A, addition(7));
    assert_eq!(added(&mut bench, A), 0);
}

#[test]
fn an_abandoned_request_has_no_effect_on_a_device_that_forgot_its_host() {
    for (mark, restarts) in [(5, false), (6, false), (5, true), (6, true)] {
        let mut bench = bench();
        bench.settle(A, mark);
        assert!(bench.ask(A, asks_knowing(6, vec![(5, 6)], Action::Stat, Vec::new())).is_some());
        match restarts {
            true => bench.restart(),
            false => bench.pass(Duration::from_secs(60)),
        }
        bench.forget_mark(A);
        assert_eq!(bench.ask(A, addition(5)), None, "{mark} {restarts}");
        bench.say(A, addition(7));
        assert_eq!(added(&mut bench, A), 0);
    }
}

#[test]
fn a_wait_for_a_change_is_served_though_the_mark_has_passed_it() {
    let mut bench = bench();
    bench.settle(A, 9);
    let patience = 1000;
    bench.say(A, Command::Await { ticket: 8, object: HERE, name: COUNTER, seen: Bytes::new(), patience });
    bench.say(B, addition(3));
    assert!(matches!(bench.hear(A), Some(Reply::Changed { ticket: 8, value: Ok(_) })));
}

/// Otherwise a copy could create an object again that another host has removed, or remove one that another host has created.
#[test]
fn a_late_copy_of_a_task_changes_nothing_and_is_answered_as_the_task_was() {
    let object = ObjectId(70);
    let created = creation(object, 64, Ordering::Timestamp, true);
    let ordered = |ordering| Task::SetOrdering { object, ordering };
    let resized = |blocks| {
        let (range, absent) = (BlockRange::new(0, blocks), BlockRange::new(0, 0));
        Task::ResizeObject { object, range, absent }
    };
    let removed = Task::RemoveObject { object };
    for (before, task, meanwhile, result) in [
        (None, created.clone(), removed.clone(), Ok(Managed::Done)),
        (Some(created.clone()), removed.clone(), created.clone(), Ok(Managed::Done)),
        (Some(created.clone()), ordered(Ordering::None), ordered(Ordering::Timestamp), Ok(Managed::Done)),
        (Some(created.clone()), resized(128), resized(256), Ok(Managed::Done)),
        (
            Some(created.clone()),
            creation(object, 32, Ordering::None, true),
            removed.clone(),
            Err(Failure::ObjectExists),
        ),
    ] {
        let mut bench = Bench::new();
        let manage = |bench: &mut Bench, host, ticket, task: &Task| {
            (bench.manage(host, ticket, task.clone()), bench.device.store().object(object).cloned())
        };
        before.iter().for_each(|before| assert_eq!(manage(&mut bench, B, 1, before).0, Ok(Managed::Done)));
        assert_eq!(manage(&mut bench, A, 1, &task).0, result);
        let (_, left) = manage(&mut bench, B, 2, &meanwhile);
        let answered = (result, left);
        assert_eq!(manage(&mut bench, A, 1, &task), answered, "{task:?} comes again after {meanwhile:?}");
        bench.restart();
        assert_eq!(manage(&mut bench, A, 1, &task), answered, "{task:?} comes again after a restart");
    }
}
