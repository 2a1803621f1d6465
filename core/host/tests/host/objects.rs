//! Requests for objects: what a device has no room for, and what becomes of it.

use crate::stage::Stage;
use braid_base::{DeviceId, Epoch, ObjectId};
use braid_machine::{HostError, HostRequest, HostSuccess, OpId};
use braid_wire::{
    Action, ActionResult, AttributeName, Command, CommandResult, ObjectCommand, ObjectFailure, ObjectRefusal,
    ObjectRequest, Ordering, Rejection, Reply, When,
};
use bytes::Bytes;
use std::time::Duration;

const DEVICE: DeviceId = DeviceId(2);
const PATIENCE: Duration = Duration::from_secs(2);

/// A host that has sent an addition to a device.
fn asked() -> (Stage, OpId, u64) {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let add = ObjectCommand {
        object: ObjectId(1),
        when: When::Always,
        action: Action::FetchAndAdd { name: AttributeName::new(1, 1), add: 1, original: true },
        sets: Vec::new(),
        sets_when: When::Always,
        gets: Vec::new(),
    };
    let request = ObjectRequest { commands: vec![add] };
    let op = stage.ask(HostRequest::Objects { device: DEVICE, request, patience: PATIENCE });
    match &stage.commands()[..] {
        [(DEVICE, Command::Objects { sequence, .. })] => (stage, op, *sequence),
        other => panic!("it sends the request, and nothing else: {other:?}"),
    }
}

fn busy(sequence: u64) -> Reply {
    Reply::Objects { sequence, answer: Err(ObjectRefusal { command: 0, failure: ObjectFailure::Busy }) }
}

#[test]
fn what_a_device_has_no_room_for_is_asked_again_until_it_has() {
    let (mut stage, op, sequence) = asked();
    for _ in 0..5 {
        stage.answer(DEVICE, busy(sequence));
        assert_eq!((stage.outcome(op), stage.commands().len()), (None, 0), "it waits a little");
        stage.pass(Duration::from_millis(100));
        assert_eq!(stage.commands().len(), 1);
    }
    let results = vec![CommandResult { action: ActionResult::Added { original: Some(4) }, values: Vec::new() }];
    stage.answer(DEVICE, Reply::Objects { sequence, answer: Ok(results.clone()) });
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Objects(results))));
}

/// A refusal of one copy says nothing of the others.
#[test]
fn nobody_is_told_that_nothing_has_happened_because_there_was_no_room_in_the_end() {
    let (mut stage, op, sequence) = asked();
    stage.pass(PATIENCE - Duration::from_millis(1));
    stage.commands();
    stage.now.time = stage.now.time.after(Duration::from_millis(1));
    stage.answer(DEVICE, busy(sequence));
    let outcome = stage.outcome(op);
    assert!(matches!(outcome, Some(Err(HostError::TimedOut { .. }))), "{outcome:?}");
    assert!(stage.host.is_idle());
}

/// What rides on the next thing that the host says to the device: its mark, and what is over above that.
fn rides(stage: &mut Stage) -> (u64, Vec<u64>) {
    stage.commands();
    stage.pass(Duration::from_secs(1));
    let last = stage.requests(DEVICE).pop().expect("it is heard every second");
    (last.settled, last.over)
}

#[test]
fn who_waits_for_a_change_holds_back_no_mark() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (name, patience) = (AttributeName::new(1, 1), Duration::from_secs(600));
    stage.ask(HostRequest::Await { device: DEVICE, object: ObjectId(1), name, seen: Default::default(), patience });
    assert_eq!(rides(&mut stage), (2, vec![]));
}

#[test]
fn what_was_given_up_is_named_besides() {
    let (mut stage, op, sequence) = asked();
    stage.pass(PATIENCE);
    assert!(matches!(stage.outcome(op), Some(Err(HostError::TimedOut { .. }))));
    assert_eq!(rides(&mut stage), (sequence + 1, vec![sequence]));
}

#[test]
fn a_host_that_leaves_says_what_is_over_when_all_is_answered_and_again_until_it_is_heard() {
    let (mut stage, op, sequence) = asked();
    let leaves = stage.ask(HostRequest::TakeLeave);
    assert_eq!((stage.outcome(leaves), stage.requests(DEVICE).len()), (None, 0), "something is under way");
    let results = vec![CommandResult { action: ActionResult::Added { original: Some(4) }, values: Vec::new() }];
    stage.answer(DEVICE, Reply::Objects { sequence, answer: Ok(results) });
    assert!(matches!(stage.outcome(op), Some(Ok(_))));
    let told = |stage: &mut Stage| stage.requests(DEVICE).iter().any(|request| request.settled > sequence);
    assert!(told(&mut stage));
    // The device lives by an earlier epoch still.
    stage.answer(DEVICE, Reply::Rejected { rejection: Rejection::WrongEpoch { current: Epoch(0) } });
    assert_eq!(stage.outcome(leaves), None);
    stage.pass(Duration::from_millis(100));
    assert!(told(&mut stage));
    stage.answer(DEVICE, Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false });
    assert_eq!(stage.outcome(leaves), Some(Ok(HostSuccess::Done)));
}

#[test]
fn a_host_that_leaves_waits_for_no_device_for_long() {
    let (mut stage, op, _) = asked();
    let leaves = stage.ask(HostRequest::TakeLeave);
    stage.pass(Duration::from_secs(4));
    assert!(matches!(stage.outcome(op), Some(Err(HostError::TimedOut { .. }))));
    assert_eq!(stage.outcome(leaves), Some(Ok(HostSuccess::Done)));
}

/// A host that waits for another value than this, so long.
fn waits(patience: Duration) -> (Stage, OpId) {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (object, name, seen) = (ObjectId(1), AttributeName::new(1, 1), Bytes::from_static(b"seen"));
    let op = stage.ask(HostRequest::Await { device: DEVICE, object, name, seen, patience });
    (stage, op)
}

#[test]
fn nobody_is_told_that_nothing_has_changed_by_a_device_that_is_silent() {
    let (mut stage, op) = waits(PATIENCE);
    stage.pass(PATIENCE);
    assert_eq!(stage.outcome(op), None, "it is asked once more");
    let last = stage.commands().pop();
    assert!(matches!(last, Some((DEVICE, Command::Await { patience: 0, .. }))), "{last:?}");
    stage.pass(PATIENCE);
    let outcome = stage.outcome(op);
    assert!(matches!(outcome, Some(Err(HostError::TimedOut { .. }))), "{outcome:?}");
    assert!(stage.host.is_idle());
}

#[test]
fn a_device_that_lives_and_says_nothing_says_that_nothing_has_changed() {
    let (mut stage, op) = waits(PATIENCE);
    stage.pass(PATIENCE / 2);
    stage.answer(DEVICE, Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false });
    stage.pass(PATIENCE / 2);
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Value(Bytes::from_static(b"seen")))));
}
