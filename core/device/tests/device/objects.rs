//! Requests for objects that hold attributes, and limits on the hosts that wait for an attribute to change.

use crate::bench::*;
use braid_wire::*;

const NAME: AttributeName = AttributeName::new(1, 1);

fn command(action: Action) -> ObjectCommand {
    ObjectCommand::new(ObjectId(1), action)
}

fn objects(sequence: u64, command: ObjectCommand) -> Command {
    Command::Objects { sequence, abandoned: Vec::new(), request: ObjectRequest { commands: vec![command] } }
}

fn set(sequence: u64, value: &Bytes) -> Command {
    let sets = vec![SetAttribute { name: NAME, value: value.clone() }];
    objects(sequence, ObjectCommand { sets, ..command(Action::Nothing) })
}

/// Waits until the attribute has another value.
fn wait(ticket: u64, seen: &Bytes) -> Command {
    Command::Await { ticket, object: ObjectId(1), name: NAME, seen: seen.clone(), patience: 20_000 }
}

/// A device with an object.
fn with_object() -> Bench {
    let mut bench = Bench::new();
    bench.check_every_step = false;
    assert!(matches!(bench.ask(A, objects(1, command(Action::Create))), Some(Reply::Objects { answer: Ok(_), .. })));
    bench
}

fn is_busy(reply: Option<Reply>) -> bool {
    matches!(reply, Some(Reply::Changed { value: Err(ObjectFailure::Busy), .. }))
}

#[test]
fn a_request_that_no_device_would_accept_waits_for_nothing() {
    let mut bench = with_object();
    bench.stalled = true;
    assert_eq!(bench.ask(A, set(2, &Bytes::from_static(b"x"))), None, "the change is not durable");
    let data = Bytes::from(vec![1; 4 << 20]);
    bench.say(A, objects(3, command(Action::Write { offset: 0, data })));
    let answer = Err(ObjectRefusal { command: 0, failure: ObjectFailure::Malformed });
    assert_eq!(bench.hear(A), Some(Reply::Objects { sequence: 3, answer }));
}

#[test]
fn one_host_leaves_others_room_to_wait() {
    let mut bench = with_object();
    for ticket in 0..limits::WATCHERS_PER_HOST_MAX as u64 {
        bench.say(A, wait(ticket, &Bytes::new()));
    }
    assert_eq!(bench.hear(A), None);
    assert!(is_busy(bench.ask(A, wait(u64::MAX, &Bytes::new()))));
    // A repeated wait replaces the earlier one.
    bench.say(A, wait(0, &Bytes::new()));
    bench.say(B, wait(0, &Bytes::new()));
    assert_eq!((bench.hear(A), bench.hear(B)), (None, None));
}

#[test]
fn waiting_requests_keep_within_their_limit() {
    let mut bench = with_object();
    let frame = Bytes::from(vec![1; limits::ATTRIBUTE_BYTES_MAX + 1]);
    let value = frame.slice(1..);
    bench.ask(A, set(2, &value));
    let most = (limits::WATCHED_BYTES_MAX / value.len()) as u64;
    for ticket in 0..most {
        bench.say(A, wait(ticket, &value));
    }
    assert_eq!(bench.hear(A), None);
    assert!(is_busy(bench.ask(B, wait(0, &value))));
    bench.say(B, wait(1, &Bytes::new()));
    assert!(matches!(bench.hear(B), Some(Reply::Changed { value: Ok(_), .. })), "the value differs from the known one");
    bench.say(A, set(3, &Bytes::new()));
    for _ in 0..most {
        let reply = bench.hear(A);
        assert!(matches!(reply, Some(Reply::Changed { value: Ok(_), .. } | Reply::Objects { .. })), "{reply:?}");
    }
    assert_eq!(bench.ask(B, wait(2, &Bytes::new())), None, "there is room again");
    drop(value);
    // The frame that a value came with is not kept.
    bench.say(B, set(4, &Bytes::from_static(b"y")));
    bench.say(B, wait(3, &frame.slice(1..4)));
    bench.say(B, wait(4, &Bytes::from_static(b"y")));
    assert!(frame.is_unique());
}

#[test]
fn a_request_that_changes_nothing_wakes_no_waiter() {
    let mut bench = with_object();
    bench.ask(A, set(2, &Bytes::from_static(b"x")));
    for ticket in 0..50 {
        bench.say(B, wait(ticket, &Bytes::from_static(b"x")));
    }
    let looks = |bench: &Bench| bench.counter("object_requests");
    let swap = |compare: &'static [u8], swap: &'static [u8]| Action::CompareAndSwap {
        name: NAME,
        compare: Bytes::from_static(compare),
        swap: Bytes::from_static(swap),
        undefined: Undefined::IsEmpty,
        original: false,
    };
    let actions =
        [Action::Stat, Action::Create, Action::Truncate { length: limits::OBJECT_BYTES_MAX + 1 }, swap(b"y", b"z")];
    for (action, sequence) in actions.into_iter().zip(10..) {
        let before = looks(&bench);
        assert!(matches!(bench.ask(A, objects(sequence, command(action.clone()))), Some(Reply::Objects { .. })));
        assert!(looks(&bench) - before <= 1, "{} looks for {action:?}", looks(&bench) - before);
    }
    bench.say(A, objects(20, command(swap(b"x", b"z"))));
    for ticket in 0..50 {
        let value = Ok(Bytes::from_static(b"z"));
        assert_eq!(bench.hear(B), Some(Reply::Changed { ticket, value }));
    }
}
