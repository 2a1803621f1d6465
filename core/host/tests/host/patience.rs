//! Operations of endless patience, and what protects a write whose outcome is unknown. The tests play the devices, the lock server and
//! the monitor.
//!
//! Block 0 is on device 0, block 1 is on device 1, and their parity is on device 4. A write of one of the blocks is a small write.

use crate::stage::*;
use braid_layout::Atomicity;

const A_MINUTE: Duration = Duration::from_secs(60);
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// Plays devices that accept everything, until the operation is answered.
fn serve(stage: &mut Stage, op: OpId, fill: u8) -> HostOutcome {
    for _ in 0..40 {
        stage.accept_sent(fill);
        if let Some(outcome) = stage.outcome(op) {
            return outcome;
        }
        stage.pass(Duration::from_millis(250));
    }
    panic!("not answered");
}

/// A write whose pre-writes were accepted, and whose writes are sent.
fn begin_writing(stage: &mut Stage, op: OpId) -> (OpId, Vec<(DeviceId, Command)>) {
    stage.accept_sent(0);
    let writes = stage.commands();
    assert!(writes.iter().all(is_write), "{writes:?}");
    assert_eq!(writes.len(), 2);
    (op, writes)
}

/// A write of endless patience that got so far.
fn begin_endless(stage: &mut Stage) -> (OpId, Vec<(DeviceId, Command)>) {
    let write = stage.write_endless(0, 1);
    begin_writing(stage, write)
}

#[test]
fn a_patient_request_waits_for_missing_devices_and_goes_on_by_itself() {
    for is_out in [false, true] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        if is_out {
            stage.enter(&[(0, MemberState::Out)]);
            stage.lack(&[4]);
        } else {
            stage.lack(&[0, 4]);
        }
        let bounded = [stage.write_block(0, 1), stage.read_block(0)];
        for op in bounded {
            assert!(matches!(stage.outcome(op), Some(Err(HostError::Unavailable { .. }))));
        }
        let (write, read) = (stage.write_endless(0, 1), stage.read_endless(0));
        stage.pass(AN_HOUR);
        assert_eq!((stage.outcome(write), stage.outcome(read)), (None, None));
        assert_eq!(stage.commands(), [], "nothing is asked of the others meanwhile");
        let (count, longest, lacking) = stage.host.waiting(stage.now.time);
        assert!(count == 2 && longest >= AN_HOUR, "{count} have waited, {longest:?} at most");
        assert_eq!(lacking.into_iter().map(|device| device.0).collect::<Vec<_>>(), [0, 4]);
        assert_eq!(stage.host.counters().prolonged, 2 * 120);
        stage.lack(&[]);
        if is_out {
            stage.enter(&[(0, MemberState::In)]);
        }
        assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
        assert!(serve(&mut stage, read, 7).is_ok());
        assert_eq!(stage.host.waiting(stage.now.time).0, 0);
    }
}

/// A write of block 0 and a read of it that wait for devices for a minute.
fn ask_for_a_minute(stage: &mut Stage) -> [OpId; 2] {
    let patience = Patience::For(A_MINUTE);
    let (offset, data) = (0, bytes::Bytes::from(vec![1; BLOCK_BYTES]));
    let write = stage.ask(VolumeRequest::Write { volume: VOLUME, offset, data, patience });
    [write, stage.ask(VolumeRequest::Read { volume: VOLUME, offset, length: BLOCK_BYTES, patience })]
}

#[test]
fn a_request_with_a_limit_waits_that_long_and_then_names_the_missing_devices() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let ops = ask_for_a_minute(&mut stage);
    stage.pass(A_MINUTE - Duration::from_secs(1));
    assert_eq!(ops.map(|op| stage.outcome(op)), [None, None]);
    assert_eq!(stage.host.waiting(stage.now.time).0, 2);
    let elsewhere = stage.read_block(1);
    assert!(serve(&mut stage, elsewhere, 3).is_ok(), "what can be served is");
    stage.pass(Duration::from_secs(1));
    for op in ops {
        let outcome = stage.outcome(op);
        assert!(matches!(outcome, Some(Err(HostError::Unavailable { .. }))), "{outcome:?}");
    }
    assert_eq!(stage.host.waiting(stage.now.time).0, 0);
    // Those that are asked later, and those whose devices return in time, succeed.
    let ops = ask_for_a_minute(&mut stage);
    stage.pass(A_MINUTE / 2);
    stage.lack(&[]);
    assert_eq!(serve(&mut stage, ops[0], 0), Ok(HostSuccess::Done));
    assert!(serve(&mut stage, ops[1], 7).is_ok());
}

#[test]
fn a_write_with_a_limit_that_is_under_way_has_the_host_s_time_out_after_it() {
    for is_known in [false, true] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        let [write, _] = ask_for_a_minute(&mut stage);
        let (write, writes) = begin_writing(&mut stage, write);
        stage.accept_all(&writes[..1], 0);
        // The other device is silent; whether the monitor says so makes the difference.
        stage.pass(A_MINUTE - Duration::from_secs(1));
        assert_eq!(stage.outcome(write), None);
        if is_known {
            stage.lack(&[0, 4]);
        }
        stage.pass(Duration::from_secs(2));
        let outcome = stage.outcome(write);
        assert_eq!(matches!(outcome, Some(Err(HostError::Unavailable { .. }))), is_known, "{outcome:?}");
        assert_eq!(outcome.is_some(), is_known);
        stage.pass(Duration::from_secs(30));
        if !is_known {
            let outcome = stage.outcome(write);
            assert!(matches!(outcome, Some(Err(HostError::TimedOut { .. }))), "{outcome:?}");
        }
    }
}

#[test]
fn a_request_with_a_limit_needs_no_device_that_has_answered() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let [write, _] = ask_for_a_minute(&mut stage);
    stage.pass(A_MINUTE - Duration::from_secs(5));
    stage.lack(&[]);
    let (write, writes) = begin_writing(&mut stage, write);
    stage.accept_all(&writes[..1], 0);
    stage.lack(&[writes[0].0.0]);
    stage.pass(Duration::from_secs(6));
    assert_eq!(stage.outcome(write), None, "the answer of the other device is waited for");
    let again: Vec<_> = stage.commands().into_iter().filter(|sent| sent.0 == writes[1].0).take(1).collect();
    stage.accept_all(&again, 0);
    assert_eq!(stage.outcome(write), DONE);
}

#[test]
fn a_write_with_a_limit_is_never_written_twice() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let [write, _] = ask_for_a_minute(&mut stage);
    let (write, _) = begin_writing(&mut stage, write);
    for (number, other) in [(0, 4), (4, 0)] {
        stage.enter(&[(number, MemberState::Out), (other, MemberState::In)]);
    }
    assert!(matches!(stage.outcome(write), Some(Err(HostError::Unavailable { .. }))), "its outcome can't be known");
    assert_eq!(stage.host.counters().repeated, 0);
}

#[test]
fn its_intents_hold_back_nobody_while_it_waits_and_it_is_written_once_all_are_known() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (write, writes) = begin_endless(&mut stage);
    stage.accept_all(&writes[..1], 0);
    stage.lack(&[4]);
    let told = stage.commands();
    assert!(told.iter().all(is_retract), "{told:?}");
    assert_eq!(told.iter().map(|(device, _)| device.0).collect::<Vec<_>>(), [0, 4]);
    assert!(stage.host.waiting(stage.now.time).2.contains(&DeviceId(4)), "it can't end without");
    stage.accept_all(&told[..1], 0);
    stage.pass(AN_HOUR);
    assert_eq!(stage.outcome(write), None, "device 4 may have an intent");
    assert!(!stage.commands().iter().any(is_write));
    stage.lack(&[]);
    stage.accept_all(&told[1..], 0);
    assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
}

#[test]
fn a_silent_device_ends_its_attempts_and_never_the_operation() {
    for ordering in [Ordering::Timestamp, Ordering::DeviceLock] {
        let mut stage = Stage::raid5(ordering);
        let (write, writes) = begin_endless(&mut stage);
        stage.accept_all(&writes[..1], 0);
        stage.pass(Duration::from_secs(29));
        assert!(!stage.commands().iter().any(is_retract));
        stage.pass(Duration::from_secs(2));
        let told = stage.commands();
        assert!(told.iter().any(|(device, sent)| device.0 == 0 && matches!(sent, Command::Retract { .. })), "{told:?}");
        stage.pass(AN_HOUR);
        assert_eq!(stage.outcome(write), None, "{ordering}");
        assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done), "{ordering}");
    }
}

#[test]
fn a_silent_lock_server_is_waited_for() {
    for ordering in [Ordering::ServerLock, Ordering::CallbackLock] {
        let mut stage = Stage::raid5(ordering);
        let write = stage.write_endless(0, 1);
        stage.pass(AN_HOUR);
        assert_eq!(stage.outcome(write), None);
        // The server has restarted meanwhile.
        let asked = stage.lock_commands();
        let lock_id = asked.iter().find_map(|(_, command)| match command {
            LockCommand::Lock { lock_id, .. } => Some(*lock_id),
            _ => None,
        });
        stage.grant(SERVER, 9, LockReply::Granted { lock_id: lock_id.expect("a request"), waited: false });
        assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done), "{ordering}");
    }
}

#[test]
fn refusals_without_end_end_nothing() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (write, bounded) = (stage.write_endless(0, 1), stage.write_block(9, 1));
    let begun = stage.now.time;
    while stage.now.time.since(begun) < Duration::from_secs(100) {
        for sent in stage.commands() {
            if let Command::Prewrite { stamp: seen, .. } = sent.1 {
                stage.refuse(&sent, Step::Read, Refusal::TooLate { seen });
            } else {
                stage.accept_all(&[sent], 0);
            }
        }
        stage.pass(Duration::from_millis(50));
    }
    assert!(matches!(stage.outcome(bounded), Some(Err(HostError::Contended { .. } | HostError::TimedOut { .. }))));
    assert_eq!(stage.outcome(write), None);
    assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
}

#[test]
fn a_fenced_host_answers_that_at_once() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let (write, read) = (stage.write_endless(0, 1), stage.read_endless(0));
    let mut membership = stage.next_epoch(&[]);
    membership.fence.below = braid_base::Generation(8);
    stage.news(membership);
    assert_eq!(stage.outcome(write), Some(Err(HostError::Fenced)));
    assert_eq!(stage.outcome(read), Some(Err(HostError::Fenced)));
    let later = stage.write_endless(0, 1);
    assert_eq!(stage.outcome(later), Some(Err(HostError::Fenced)));
}

#[test]
fn an_impossible_request_is_refused_at_once_even_without_devices() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let (length, patience) = (BLOCK_BYTES, Patience::Endless);
    let beyond = stage.ask(VolumeRequest::Read { volume: VOLUME, offset: 1 << 40, length, patience });
    assert_eq!(stage.outcome(beyond), Some(Err(HostError::OutOfRange)));
    let other = braid_base::VolumeId(9);
    let nowhere = stage.ask(VolumeRequest::Zero { volume: other, offset: 0, length: 4096, patience });
    assert_eq!(stage.outcome(nowhere), Some(Err(HostError::NoSuchVolume)));
}

#[test]
fn an_error_is_told_only_when_nothing_can_happen_any_more() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (write, writes) = begin_endless(&mut stage);
    let (transaction, _) = subject(&writes[0].1);
    stage.accept_all(&writes[..1], 0);
    let (device, failure) = (writes[1].0, Failure::NoSpace);
    stage.answer(device, Reply::Failed { transaction, step: Step::Write, failure });
    assert_eq!(stage.outcome(write), None, "the other device has an intent");
    let told = stage.commands();
    assert!(!told.is_empty());
    stage.accept_all(&told, 0);
    assert_eq!(stage.outcome(write), Some(Err(HostError::Device { device, failure })));
    // A device that can't now may be able to later.
    let (write, writes) = begin_endless(&mut stage);
    let (transaction, _) = subject(&writes[0].1);
    stage.answer(writes[0].0, Reply::Failed { transaction, step: Step::Write, failure: Failure::Disk });
    stage.commands().into_iter().for_each(|command| stage.accept_all(&[command], 0));
    assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
}

#[test]
fn a_write_is_repeated_if_all_its_devices_were_out_before_its_outcome_was_known() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (write, _) = begin_endless(&mut stage);
    for (number, other) in [(0, 4), (4, 0)] {
        stage.enter(&[(number, MemberState::Out), (other, MemberState::In)]);
    }
    assert_eq!(stage.outcome(write), None);
    assert_eq!(stage.host.counters().repeated, 1);
    stage.commands();
    assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
}

#[test]
fn a_patient_write_resolved_in_a_new_epoch_is_answered_with_its_outcome() {
    for (vote, repeats) in [(Vote::Prepared, false), (Vote::NeverPrepared, true)] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        let (write, writes) = begin_endless(&mut stage);
        let (transaction, _) = subject(&writes[0].1);
        stage.enter(&[(4, MemberState::Out)]);
        stage.commands();
        stage.pass(AN_HOUR);
        stage.answer(DeviceId(0), Reply::Vote { transaction, vote });
        let told = stage.commands();
        let told: Vec<_> =
            told.into_iter().filter(|(_, command)| matches!(command, Command::Decide { .. })).take(1).collect();
        stage.accept_all(&told, 0);
        let done = stage.outcome(write) == DONE;
        assert_eq!(done, !repeats, "{vote:?}");
        if repeats {
            assert_eq!(serve(&mut stage, write, 0), Ok(HostSuccess::Done));
        }
    }
}

#[test]
fn a_patient_request_ends_when_its_user_is_gone_or_the_host_disconnects() {
    for disconnects in [false, true] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        let (sent, writes) = begin_endless(&mut stage);
        stage.lack(&[1]);
        let waits = stage.write_endless(1, 1);
        stage.pass(Duration::from_secs(20));
        let error = match disconnects {
            false => {
                stage.ask(ArrayRequest::Abandon { ops: vec![sent, waits] });
                HostError::Abandoned
            }
            true => {
                stage.ask(ArrayRequest::Disconnect);
                HostError::Disconnecting
            }
        };
        assert_eq!(stage.outcome(waits), Some(Err(error.clone())));
        assert_eq!(stage.outcome(sent), None, "a device may have a write of it");
        let mut aborts: Vec<_> = stage.commands();
        aborts.retain(is_retract);
        assert_eq!((writes.len(), aborts.len()), (2, 0), "its attempt goes on");
        let (_, seen) = subject(&writes[0].1);
        stage.refuse(&writes[0], Step::Write, Refusal::TooLate { seen });
        let mut told = stage.commands();
        told.retain(|(_, command)| matches!(command, Command::Decide { .. }));
        stage.accept_all(&told, 0);
        stage.pass(Duration::from_secs(1));
        assert_eq!(stage.outcome(sent), Some(Err(error)), "it makes no further attempt");
        assert!(!stage.commands().iter().any(is_write));
    }
}

#[test]
fn their_number_is_bounded_below_that_of_all_operations() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let all: Vec<_> = (0..=braid_base::limits::PATIENT_OPERATIONS_MAX).map(|_| stage.read_endless(0)).collect();
    assert_eq!(stage.outcome(all[all.len() - 1]), Some(Err(HostError::Busy)));
    assert_eq!(stage.outcome(all[0]), None);
    let read = stage.read_block(1);
    assert!(serve(&mut stage, read, 0).is_ok(), "others have room");
}

#[test]
fn a_write_of_unknown_outcome_keeps_its_locks_until_it_is_decided() {
    for (ordering, atomicity) in [
        (Ordering::ServerLock, Atomicity::Implied),
        (Ordering::ServerLock, Atomicity::Consistent),
        (Ordering::CallbackLock, Atomicity::Implied),
        (Ordering::CallbackLock, Atomicity::Consistent),
    ] {
        let mut stage = Stage::promising(atomicity, ordering);
        let write = stage.write_block(0, 1);
        let [(SERVER, LockCommand::Lock { lock_id, .. })] = stage.lock_commands()[..] else { panic!("one lock") };
        stage.grant(SERVER, 3, LockReply::Granted { lock_id, waited: false });
        let (write, writes) = begin_writing(&mut stage, write);
        let (transaction, _) = subject(&writes[0].1);
        stage.accept_all(&writes[..1], 0);
        stage.pass(Duration::from_secs(31));
        assert!(matches!(stage.outcome(write), Some(Err(HostError::TimedOut { .. }))));
        // Neither time nor another host makes it release the lock.
        if ordering == Ordering::CallbackLock {
            stage.grant(SERVER, 3, LockReply::Revoke { lock_ids: vec![lock_id] });
        }
        stage.pass(AN_HOUR);
        let returns = |(_, command): &(LockServerId, LockCommand)| {
            matches!(command, LockCommand::Unlock { .. } | LockCommand::Yield { .. })
        };
        assert!(!stage.lock_commands().iter().any(returns), "{ordering} {atomicity}");
        // A later write of the same host waits: at the lock server, or behind the lock that is in use here.
        stage.commands();
        stage.write_block(0, 2);
        let new = |sent: &[(DeviceId, Command)]| {
            sent.iter().any(|(_, command)| subject(command).0.sequence > transaction.sequence)
        };
        assert!(!new(&stage.commands()), "{ordering} {atomicity}: a later write overtakes it");
        let asked = stage.lock_commands();
        assert_eq!(asked.len(), usize::from(ordering == Ordering::ServerLock), "{asked:?}");
        stage.pass(Duration::from_secs(2));
        let rest: Vec<_> = stage.commands().into_iter().filter(|(device, _)| *device == writes[1].0).take(1).collect();
        stage.accept_all(&rest, 0);
        if let (_, Command::Retract { .. }) = &rest[0] {
            let other = (writes[0].0, rest[0].1.clone());
            stage.accept_all(&[other], 0);
        }
        assert!(stage.lock_commands().iter().any(returns), "{ordering} {atomicity}: decided");
    }
}

#[test]
fn without_ordering_a_later_write_waits_for_one_of_unknown_outcome() {
    let mut stage = Stage::raid5(Ordering::None);
    let write = stage.write_block(0, 1);
    let (write, writes) = begin_writing(&mut stage, write);
    stage.accept_all(&writes[..1], 0);
    stage.pass(Duration::from_secs(31));
    assert!(matches!(stage.outcome(write), Some(Err(HostError::TimedOut { .. }))));
    stage.commands();
    let old = subject(&writes[0].1).0;
    let (later, elsewhere) = (stage.write_block(0, 2), stage.read_block(1));
    let begun: Vec<_> = stage.commands().iter().map(|(device, _)| device.0).collect();
    assert_eq!(begun, [1], "its copies may still arrive; a read does no harm");
    stage.pass(Duration::from_secs(1));
    let again = stage.commands();
    let again: Vec<_> = again.into_iter().filter(|sent| is_write(sent) && subject(&sent.1).0 == old).take(1).collect();
    stage.accept_all(&again, 0);
    assert_eq!(serve(&mut stage, later, 0), Ok(HostSuccess::Done));
    assert!(serve(&mut stage, elsewhere, 0).is_ok());
}
