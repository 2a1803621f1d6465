//! Requests for objects: what a device has no room for, and what becomes of it.

use crate::stage::Stage;
use braid_base::{DeviceId, ObjectId};
use braid_machine::{HostError, HostRequest, HostSuccess, OpId};
use braid_wire::{
    Action, ActionResult, AttributeName, Command, CommandResult, ObjectCommand, ObjectFailure, ObjectRefusal,
    ObjectRequest, Ordering, Reply, When,
};
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
