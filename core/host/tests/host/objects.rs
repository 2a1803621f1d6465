//! Requests for objects: refusals for lack of room, time-outs, and abandoned requests.

use crate::stage::*;

const DEVICE: DeviceId = DeviceId(2);
const PATIENCE: Duration = Duration::from_secs(2);

/// A host that has sent an addition to a device.
fn asked() -> (Stage, OpId, u64) {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = adds(&mut stage, PATIENCE);
    match &stage.commands()[..] {
        [(DEVICE, Command::Objects { sequence, .. })] => (stage, op, *sequence),
        other => panic!("not one request: {other:?}"),
    }
}

fn adds(stage: &mut Stage, patience: Duration) -> OpId {
    let add = ObjectCommand {
        object: ObjectId(1),
        when: When::Always,
        action: Action::FetchAndAdd { name: AttributeName::new(1, 1), add: 1, original: true },
        sets: Vec::new(),
        sets_when: When::Always,
        gets: Vec::new(),
    };
    let request = ObjectRequest { commands: vec![add] };
    stage.ask(ObjectsRequest::Execute { device: DEVICE, request, patience })
}

/// The requests for objects that the host sends, and the requests that each names as abandoned.
fn abandoned(stage: &mut Stage) -> Vec<(u64, Vec<(u64, u64)>)> {
    let sent = stage.commands().into_iter();
    sent.filter_map(|(_, command)| match command {
        Command::Objects { sequence, abandoned, .. } => Some((sequence, abandoned)),
        _ => None,
    })
    .collect()
}

fn results() -> Vec<CommandResult> {
    vec![CommandResult { action: ActionResult::Added { original: Some(4) }, values: Vec::new() }]
}

fn busy(sequence: u64) -> Reply {
    Reply::Objects { sequence, answer: Err(ObjectRefusal { command: 0, failure: ObjectFailure::Busy }) }
}

#[test]
fn a_request_is_repeated_until_the_device_has_room_for_it() {
    let (mut stage, op, sequence) = asked();
    for _ in 0..5 {
        stage.answer(DEVICE, busy(sequence));
        assert_eq!((stage.outcome(op), stage.commands().len()), (None, 0), "not sent again at once");
        stage.pass(Duration::from_millis(100));
        assert_eq!(stage.commands().len(), 1);
    }
    stage.answer(DEVICE, Reply::Objects { sequence, answer: Ok(results()) });
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Objects(results()))));
}

/// A refusal of one copy says nothing about the others.
#[test]
fn a_request_that_was_busy_until_its_deadline_has_an_unknown_outcome() {
    let (mut stage, op, sequence) = asked();
    stage.pass(PATIENCE - Duration::from_millis(1));
    stage.commands();
    stage.now.time = stage.now.time.after(Duration::from_millis(1));
    stage.answer(DEVICE, busy(sequence));
    let outcome = stage.outcome(op);
    assert!(matches!(outcome, Some(Err(HostError::TimedOut { .. }))), "{outcome:?}");
    assert!(stage.host.is_idle());
}

/// The settled mark in the next request to the device, and the transactions above it that are over.
fn rides(stage: &mut Stage) -> (u64, Vec<u64>) {
    stage.commands();
    stage.pass(Duration::from_secs(1));
    let last = stage.requests(DEVICE).pop().expect("the host sends something every second");
    (last.settled, last.over)
}

#[test]
fn a_wait_for_a_change_holds_back_no_mark() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (name, patience) = (AttributeName::new(1, 1), Duration::from_secs(600));
    stage.ask(ObjectsRequest::Await { device: DEVICE, object: ObjectId(1), name, seen: Default::default(), patience });
    assert_eq!(rides(&mut stage), (2, vec![]));
}

#[test]
fn later_requests_name_an_abandoned_one_until_one_of_them_is_answered() {
    let (mut stage, op, first) = asked();
    stage.pass(PATIENCE);
    assert!(matches!(stage.outcome(op), Some(Err(HostError::TimedOut { .. }))));
    assert_eq!(rides(&mut stage), (first + 1, vec![]), "the mark is above the abandoned request");
    adds(&mut stage, PATIENCE);
    let named = vec![(first, first + 1)];
    assert_eq!(abandoned(&mut stage), [(first + 1, named.clone())]);
    stage.pass(Duration::from_millis(500));
    assert_eq!(abandoned(&mut stage), [(first + 1, named.clone())], "a copy names the same");
    adds(&mut stage, PATIENCE);
    assert_eq!(abandoned(&mut stage), [(first + 2, named)]);
    stage.answer(DEVICE, Reply::Objects { sequence: first + 1, answer: Ok(results()) });
    adds(&mut stage, PATIENCE);
    assert_eq!(abandoned(&mut stage), [(first + 3, vec![])]);
}

#[test]
fn a_request_waits_until_it_has_room_to_name_abandoned_ones() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let pairs = limits::ABANDONED_MAX + 1;
    let long: Vec<OpId> = (0..pairs)
        .map(|_| {
            adds(&mut stage, PATIENCE);
            adds(&mut stage, 10 * PATIENCE)
        })
        .collect();
    stage.pass(PATIENCE);
    let op = adds(&mut stage, PATIENCE);
    assert_eq!(stage.outcome(op), Some(Err(HostError::Busy)));
    stage.pass(10 * PATIENCE);
    assert!(long.into_iter().all(|op| matches!(stage.outcome(op), Some(Err(HostError::TimedOut { .. })))));
    abandoned(&mut stage);
    adds(&mut stage, PATIENCE);
    let sent = abandoned(&mut stage);
    assert_eq!(sent.iter().map(|(_, named)| named.len()).collect::<Vec<_>>(), [1], "the intervals have joined");
}

#[test]
fn a_disconnecting_host_repeats_its_settled_mark_until_it_is_confirmed() {
    let (mut stage, op, sequence) = asked();
    let leaves = stage.ask(ArrayRequest::Disconnect);
    assert_eq!((stage.outcome(leaves), stage.requests(DEVICE).len()), (None, 0), "a request is under way");
    stage.answer(DEVICE, Reply::Objects { sequence, answer: Ok(results()) });
    assert!(matches!(stage.outcome(op), Some(Ok(_))));
    let told = |stage: &mut Stage| stage.requests(DEVICE).iter().any(|request| request.settled > sequence);
    assert!(told(&mut stage));
    // The device is still in an earlier epoch.
    stage.answer(DEVICE, Reply::Rejected { rejection: Rejection::WrongEpoch { current: Epoch(0) } });
    assert_eq!(stage.outcome(leaves), None);
    stage.pass(Duration::from_millis(100));
    // An answer to an earlier message does not confirm the last one.
    stage.answer(DEVICE, Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false });
    assert_eq!(stage.outcome(leaves), None);
    let sent = stage.requests(DEVICE);
    let last = sent.iter().rev().find_map(|request| match request.command {
        Command::Forget { transaction } if request.settled > sequence => Some(transaction),
        _ => None,
    });
    stage.answer(DEVICE, Reply::Forgotten { transaction: last.expect("the message is sent again") });
    assert_eq!(stage.outcome(leaves), Some(Ok(HostSuccess::Done)));
}

#[test]
fn a_host_that_leaves_waits_for_no_device_for_long() {
    let (mut stage, op, _) = asked();
    let leaves = stage.ask(ArrayRequest::Disconnect);
    stage.pass(Duration::from_secs(4));
    assert!(matches!(stage.outcome(op), Some(Err(HostError::TimedOut { .. }))));
    assert_eq!(stage.outcome(leaves), Some(Ok(HostSuccess::Done)));
}

/// A host that waits, for so long, until an attribute has another value.
fn waits(patience: Duration) -> (Stage, OpId) {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (object, name, seen) = (ObjectId(1), AttributeName::new(1, 1), Bytes::from_static(b"seen"));
    let op = stage.ask(ObjectsRequest::Await { device: DEVICE, object, name, seen, patience });
    (stage, op)
}

#[test]
fn a_silent_device_never_answers_that_nothing_has_changed() {
    let (mut stage, op) = waits(PATIENCE);
    stage.pass(PATIENCE);
    assert_eq!(stage.outcome(op), None, "the device is asked once more");
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
