//! Graceful disconnect: the last messages of a host, and the time that it waits for answers.

use crate::stage::*;
use braid_machine::JobRequest;

const HEARTBEAT: Reply = Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false };

/// A host that has written a block, and the devices that do not know of the commit yet.
fn wrote(ordering: Ordering) -> (Stage, BTreeSet<DeviceId>) {
    let mut stage = Stage::raid5(ordering);
    let op = stage.write_block(0, 1);
    if ordering == Ordering::CallbackLock {
        match stage.lock_commands()[..] {
            [(SERVER, LockCommand::Lock { lock_id, .. })] => {
                stage.grant(SERVER, 3, LockReply::Granted { lock_id, waited: false });
            }
            ref other => panic!("not one lock request: {other:?}"),
        }
    }
    let mut devices = BTreeSet::new();
    for _ in ["reads", "writes"] {
        let commands = stage.commands();
        devices = commands.iter().map(|(device, _)| *device).collect();
        stage.accept_all(&commands, 0);
    }
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Done)));
    (stage, devices)
}

/// Answers the host's last message to each device, and returns the devices.
fn forget(stage: &mut Stage) -> BTreeSet<DeviceId> {
    let sent = std::mem::take(&mut stage.sent);
    let told = sent.iter().filter_map(|(device, request)| match request.command {
        Command::Forget { transaction } => {
            assert!(request.settled > transaction.sequence, "the mark is above all its transactions");
            Some((*device, transaction))
        }
        _ => None,
    });
    let told: Vec<_> = told.collect();
    for (device, transaction) in &told {
        stage.answer(*device, Reply::Forgotten { transaction: *transaction });
    }
    told.into_iter().map(|(device, _)| device).collect()
}

fn left(stage: &mut Stage, op: OpId) -> bool {
    match stage.outcome(op) {
        None => false,
        Some(outcome) => outcome == Ok(HostSuccess::Done) || panic!("{outcome:?}"),
    }
}

#[test]
fn a_host_ends_when_its_commits_are_confirmed_and_their_devices_know_that_they_are_over() {
    let (mut stage, devices) = wrote(Ordering::Timestamp);
    let op = stage.ask(ArrayRequest::Disconnect);
    let sent = std::mem::take(&mut stage.sent);
    let told: BTreeSet<_> = sent.iter().filter(|(_, request)| request.commits == [1]).map(|sent| sent.0).collect();
    assert_eq!(told, devices, "the commits are told at once");
    let mut waiting = devices.clone();
    for device in &devices {
        assert!(forget(&mut stage).is_empty() && !left(&mut stage, op), "{waiting:?} may lack the commit");
        stage.answer_with(*device, vec![1], HEARTBEAT);
        waiting.remove(device);
    }
    assert!(!left(&mut stage, op));
    assert_eq!(forget(&mut stage), devices, "only the devices that keep something are told");
    assert!(left(&mut stage, op));
    assert!(stage.host.is_idle());
}

#[test]
fn a_recovery_coordinator_that_disconnects_abandons_its_requests_and_reports_them_settled() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let mut membership = stage.host.membership().expect("the host has a membership").clone();
    membership.epoch = membership.epoch.next();
    let since = membership.epoch;
    let returning = membership.member_mut(DeviceId(4)).expect("the device is a member");
    (returning.member_state, returning.since) = (MemberState::Returning { recovery_coordinator: Some(HOST) }, since);
    stage.news(membership);
    let asks = |command: &Command| matches!(command, Command::Manage { task: Task::ListObjects, .. });
    let asked: BTreeSet<_> =
        stage.commands().into_iter().filter(|(_, command)| asks(command)).map(|sent| sent.0).collect();
    assert!(!asked.is_empty());
    // A block of a stripe whose parity is not on the returning device.
    let op = stage.write_block(4, 1);
    let mut devices = BTreeSet::new();
    for _ in ["reads", "writes"] {
        let commands: Vec<_> = stage.commands().into_iter().filter(|(_, command)| !asks(command)).collect();
        devices = commands.iter().map(|(device, _)| *device).collect();
        stage.accept_all(&commands, 0);
    }
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Done)));
    assert!(!devices.is_disjoint(&asked), "one of {devices:?} has an unanswered task, of {asked:?}");
    let op = stage.ask(ArrayRequest::Disconnect);
    for device in &devices {
        stage.answer_with(*device, (1..20).collect(), HEARTBEAT);
    }
    // Each message says that the mark is above everything that the host has begun.
    assert_eq!(forget(&mut stage), devices);
    assert!(left(&mut stage, op));
}

#[test]
fn a_host_asks_for_confirmations_again_and_again_but_not_for_long() {
    let (mut stage, devices) = wrote(Ordering::Timestamp);
    let op = stage.ask(ArrayRequest::Disconnect);
    stage.sent.clear();
    stage.pass(Duration::from_millis(50));
    let asked: BTreeSet<_> = stage.sent.iter().map(|(device, _)| *device).collect();
    assert!(asked.is_superset(&devices) && stage.sent.len() >= 3 * devices.len(), "{:?}", stage.sent);
    assert!(!left(&mut stage, op));
    stage.pass(Duration::from_millis(960));
    assert!(left(&mut stage, op), "the host does not wait long for a silent device");
}

#[test]
fn only_devices_that_have_not_confirmed_every_commit_are_asked_for_confirmations() {
    let (mut stage, mut waiting) = wrote(Ordering::Timestamp);
    let asked = |stage: &mut Stage| -> BTreeSet<DeviceId> {
        std::mem::take(&mut stage.sent).into_iter().map(|(device, _)| device).collect()
    };
    let op = stage.ask(ArrayRequest::Disconnect);
    assert_eq!(asked(&mut stage), waiting, "the other devices know of no commit");
    let confirms = waiting.pop_first().expect("a write has participants");
    stage.answer_with(confirms, vec![1], HEARTBEAT);
    // Less than the interval of heartbeats.
    stage.pass(Duration::from_millis(50));
    assert_eq!(asked(&mut stage), waiting);
    assert!(!left(&mut stage, op));
}

#[test]
fn a_host_that_keeps_nothing_anywhere_ends_at_once() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.read_block(0);
    stage.accept_sent(0);
    assert!(stage.outcome(op).is_some());
    let op = stage.ask(ArrayRequest::Disconnect);
    assert!(left(&mut stage, op));
}

#[test]
fn cached_locks_are_given_back_until_that_is_confirmed() {
    let (mut stage, devices) = wrote(Ordering::CallbackLock);
    stage.lock_commands();
    let op = stage.ask(ArrayRequest::Disconnect);
    for device in &devices {
        stage.answer_with(*device, vec![1], HEARTBEAT);
    }
    forget(&mut stage);
    assert!(!left(&mut stage, op));
    let unlocked = |stage: &mut Stage| match stage.lock_commands()[..] {
        [(SERVER, LockCommand::Unlock { lock_id })] => lock_id,
        ref other => panic!("not one message that releases locks: {other:?}"),
    };
    let lock_id = unlocked(&mut stage);
    stage.grant(SERVER, 3, LockReply::Unlocked { lock_id });
    assert!(left(&mut stage, op));
    assert_eq!(stage.host.locks().len(), 0);
}

#[test]
fn many_cached_locks_are_given_back_in_few_messages_each_of_which_is_repeated_whole() {
    let mut stage = Stage::raid5(Ordering::CallbackLock);
    let mut lock_ids = BTreeSet::new();
    for block in 0..40 {
        // Blocks of different stripes share nothing.
        let op = stage.read_block(4 * block);
        match stage.lock_commands()[..] {
            [(SERVER, LockCommand::Lock { lock_id, .. })] => {
                lock_ids.insert(lock_id);
                stage.grant(SERVER, 3, LockReply::Granted { lock_id, waited: false });
            }
            ref other => panic!("not one lock request: {other:?}"),
        }
        stage.accept_sent(0);
        assert!(stage.outcome(op).is_some());
    }
    let op = stage.ask(ArrayRequest::Disconnect);
    let given_back = |stage: &mut Stage| -> (u64, BTreeSet<u64>) {
        match &std::mem::take(&mut stage.asked)[..] {
            [(SERVER, request)] => match request.command {
                LockCommand::Unlock { lock_id } => {
                    (lock_id, request.dropped.iter().copied().chain([lock_id]).collect())
                }
                ref other => panic!("{other:?}"),
            },
            other => panic!("not one message: {other:?}"),
        }
    };
    assert!(lock_ids.len() <= limits::COMMITS_PER_REQUEST_MAX);
    let (first, all) = given_back(&mut stage);
    assert_eq!(all, lock_ids);
    // The message is lost. Heartbeats to the server continue meanwhile.
    stage.pass(Duration::from_millis(499));
    stage.asked.clear();
    stage.pass(Duration::from_millis(2));
    stage.asked.retain(|(_, request)| !matches!(request.command, LockCommand::Heartbeat { .. }));
    assert_eq!(given_back(&mut stage), (first, all));
    stage.grant(SERVER, 3, LockReply::Unlocked { lock_id: first });
    assert!(left(&mut stage, op));
}

#[test]
fn where_there_is_no_room_for_a_host_it_tries_again_until_its_time_is_up() {
    let rejected = Reply::Rejected { rejection: Rejection::TooManyHosts };
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (op, other) = (stage.read_block(0), stage.read_block(0));
    let commands = stage.commands();
    let device = commands[0].0;
    stage.answer(device, rejected.clone());
    assert_eq!(stage.outcome(op), None);
    stage.pass(Duration::from_secs(1));
    let commands = stage.commands();
    assert!(commands.iter().all(|(asked, _)| *asked == device) && commands.len() >= 2, "{commands:?}");
    stage.accept_all(&commands[..1], 0);
    assert!(matches!(stage.outcome(op), Some(Ok(HostSuccess::Data(_)))), "the device had room again");
    stage.answer(device, rejected);
    stage.pass(Duration::from_secs(30));
    let outcome = stage.outcome(other);
    assert!(matches!(outcome, Some(Err(HostError::Rejected { .. }))), "the reason is reported: {outcome:?}");
}

#[test]
fn a_disconnecting_host_refuses_requests_and_leaves_nothing() {
    let (mut stage, devices) = wrote(Ordering::Timestamp);
    let op = stage.ask(ArrayRequest::Disconnect);
    stage.sent.clear();
    let (device, request, patience) = (DeviceId(0), ObjectRequest { commands: Vec::new() }, Duration::from_secs(1));
    let refused = [
        stage.read_block(0),
        stage.write_block(8, 2),
        stage.ask(ObjectsRequest::Execute { device, request, patience }),
        stage.ask(JobRequest::Scrub { volume: VOLUME, stripes: 0..1, repair: true, recompute: false }),
    ];
    for asked in refused {
        assert_eq!(stage.outcome(asked), Some(Err(HostError::Disconnecting)));
    }
    assert!(stage.sent.is_empty(), "nothing is sent to devices: {:?}", stage.sent);
    let flush = stage.ask(VolumeRequest::Flush { volume: VOLUME });
    assert_eq!(stage.outcome(flush), Some(Ok(HostSuccess::Done)), "every write is durable");
    for device in &devices {
        stage.answer_with(*device, vec![1], HEARTBEAT);
    }
    assert_eq!(forget(&mut stage), devices, "everything begun before is declared over, and nothing is under way");
    assert!(left(&mut stage, op));
    assert!(stage.host.is_idle());
    let asked = stage.read_block(0);
    assert_eq!(stage.outcome(asked), Some(Err(HostError::Disconnecting)), "refused after the disconnect, too");
}
