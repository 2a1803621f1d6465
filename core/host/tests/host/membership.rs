//! Changes of the membership, and their effects on each phase of a transaction (`docs/membership.md`). The tests play
//! the monitor.
//!
//! Block 0 is on device 0, block 1 is on device 1, and their parity is on device 4. A write of one of the blocks is a
//! small write.

use crate::stage::*;
use braid_ordering::Atomicity;
use braid_wire::MonitorCommand;

const RETURNING: MemberState = MemberState::Returning { recovery_coordinator: None };

fn lose(stage: &mut Stage, number: u16) {
    stage.enter(&[(number, MemberState::Out)]);
}

fn to(commands: &[(DeviceId, Command)]) -> Vec<u16> {
    let mut devices: Vec<u16> = commands.iter().map(|(device, _)| device.0).collect();
    devices.sort_unstable();
    devices
}

/// The commands of one kind.
fn only(commands: &[(DeviceId, Command)], is: impl Fn(&(DeviceId, Command)) -> bool) -> Vec<(DeviceId, Command)> {
    commands.iter().filter(|sent| is(sent)).cloned().collect()
}

/// A write of block 0 whose pre-writes were accepted, and whose writes are sent.
fn begin_writing(stage: &mut Stage) -> (OpId, TransactionId, Vec<(DeviceId, Command)>) {
    let op = stage.write_block(0, 0xaa);
    let first = stage.commands();
    assert_eq!((to(&first), first.iter().all(is_prewrite)), (vec![0, 4], true));
    stage.accept_all(&first, 0);
    let writes = stage.commands();
    assert_eq!(to(&writes), [0, 4]);
    (op, subject(&writes[0].1).0, writes)
}

/// All devices give the same vote on a transaction that is being resolved.
fn vote_all(stage: &mut Stage, asked: &[(DeviceId, Command)], vote: Vote) {
    for (device, command) in asked {
        stage.answer(*device, Reply::Vote { transaction: subject(command).0, vote });
    }
}

fn lacks(outcome: Option<HostOutcome>, numbers: &[u16]) -> bool {
    let these = |devices: &[DeviceId]| devices.iter().map(|id| id.0).eq(numbers.iter().copied());
    matches!(outcome, Some(Err(HostError::Unavailable { devices })) if these(&devices))
}

#[test]
fn no_operation_begins_before_the_membership_is_known() {
    let mut stage = Stage::started(Ordering::Timestamp, 0, braid_host::Acquisition::Ordered, true);
    let op = stage.write_block(0, 1);
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.commands(), []);
    let asked = stage.monitored.len();
    assert!(asked > 5, "the host asks often: {asked}");
    stage.news(Membership::first((0..5).map(DeviceId)));
    stage.pass(Duration::from_secs(1));
    for _ in 0..2 {
        let commands = stage.commands();
        stage.accept_all(&commands[..2], 0);
    }
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn a_request_that_has_sent_no_write_starts_again_with_a_new_plan() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let op = stage.write_block(0, 1);
    let first = stage.commands();
    stage.accept_all(&first[..1], 0);
    lose(&mut stage, 4);
    stage.pass(Duration::ZERO);
    let commands = stage.commands();
    assert_eq!(to(&only(&commands, is_abort)), [0], "nothing is sent to device 4");
    let again = only(&commands, is_write);
    assert_eq!(to(&again), [0], "the parity is not written, so nothing need be read");
    assert!(subject(&again[0].1).0 > subject(&first[0].1).0);
    assert!(matches!(&again[0].1, Command::Write { participants, .. } if participants[..] == [DeviceId(0)]));
    stage.accept_all(&commands, 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn a_write_that_is_out_is_resolved_and_its_user_answered_when_all_that_are_left_know() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, id, writes) = begin_writing(&mut stage);
    let parity = writes.iter().find(|(device, _)| device.0 == 4).expect("the parity is written");
    stage.accept_all(std::slice::from_ref(parity), 0);
    lose(&mut stage, 2);
    let asked = stage.commands();
    assert_eq!((to(&asked), asked.iter().all(is_resolve)), (vec![0, 4], true));
    // Answers of the old epoch, and answers to the write, are ignored.
    stage.answer(DeviceId(0), Reply::Written { transaction: id, waited: false });
    assert_eq!(stage.outcome(op), None);
    vote_all(&mut stage, &asked[..1], Vote::Prepared);
    assert_eq!((stage.commands(), stage.outcome(op)), (vec![], None));
    vote_all(&mut stage, &asked[1..], Vote::Prepared);
    let told = stage.commands();
    assert!(told.iter().all(|(_, command)| matches!(command, Command::Decide { outcome: Outcome::Commit, .. })));
    stage.accept_all(&told[..1], 0);
    assert_eq!(stage.outcome(op), None, "not answered while the loss of one device could undo it");
    stage.accept_all(&told[1..], 0);
    assert_eq!(stage.outcome(op), DONE);
    assert!(stage.host.is_idle());
}

#[test]
fn only_devices_that_have_been_in_since_are_asked() {
    for returned in [false, true] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        let (op, _, writes) = begin_writing(&mut stage);
        stage.accept_all(&writes[1..], 0);
        if returned {
            // The device was out in an epoch of which this host never heard.
            let mut later = stage.next_epoch(&[(4, RETURNING)]);
            later.epoch = later.epoch.next();
            later.member_mut(DeviceId(4)).expect("the device is a member").since = later.epoch;
            stage.news(later);
        } else {
            lose(&mut stage, 4);
        }
        let asked = only(&stage.commands(), is_resolve);
        assert_eq!(to(&asked), [0], "{returned}");
        vote_all(&mut stage, &asked, Vote::Prepared);
        let told = stage.commands();
        assert_eq!(to(&told), [0]);
        stage.accept_all(&told, 0);
        assert_eq!(stage.outcome(op), DONE);
    }
}

#[test]
fn a_write_that_can_not_commit_any_more_is_retried_once_the_remaining_devices_know() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, id, writes) = begin_writing(&mut stage);
    stage.accept_all(&writes[..1], 0);
    lose(&mut stage, 2);
    let asked = stage.commands();
    vote_all(&mut stage, &asked[..1], Vote::NeverPrepared);
    let told = stage.commands();
    assert_eq!((to(&told), told.iter().all(is_abort)), (vec![0, 4], true));
    stage.accept_all(&told[..1], 0);
    stage.pass(Duration::from_millis(100));
    assert_eq!(only(&stage.commands(), is_prewrite), [], "not retried while a device may still find it committed");
    stage.accept_all(&told[1..], 0);
    stage.pass(Duration::from_millis(100));
    let again = only(&stage.commands(), is_prewrite);
    assert_eq!(to(&again), [0, 4]);
    assert!(subject(&again[0].1).0 > id);
    assert_eq!(stage.outcome(op), None);
}

#[test]
fn a_committed_write_stops_waiting_for_a_device_that_is_out() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, id, writes) = begin_writing(&mut stage);
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(op), DONE);
    stage.pass(Duration::from_millis(3));
    stage.confirm(DeviceId(0), vec![id.sequence]);
    assert!(!stage.host.is_idle());
    lose(&mut stage, 4);
    assert!(stage.host.is_idle());
    stage.sent.clear();
    stage.pass(Duration::from_secs(2));
    assert!(stage.sent.iter().all(|(_, request)| request.commits.is_empty()));
}

/// One device refuses its write while the other has its intent; the host aborts.
fn begin_aborting(stage: &mut Stage) -> (OpId, TransactionId) {
    let (op, id, writes) = begin_writing(stage);
    let parity = writes.iter().find(|(device, _)| device.0 == 4).expect("the parity is written");
    stage.accept_all(std::slice::from_ref(parity), 0);
    let refused = Reply::Refused { transaction: id, step: Step::Write, refusal: Refusal::NoPrewrite };
    stage.answer(DeviceId(0), refused);
    let aborts = stage.commands();
    assert_eq!((to(&aborts), is_abort(&aborts[0])), (vec![4], true));
    (op, id)
}

#[test]
fn a_write_that_was_refused_is_tried_again_only_when_all_know_that_it_is_over() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (_, id) = begin_aborting(&mut stage);
    stage.pass(Duration::from_secs(3));
    let sent = stage.commands();
    assert!(only(&sent, is_prewrite).is_empty() && !only(&sent, is_abort).is_empty(), "the abort again: {sent:?}");
    stage.answer(DeviceId(4), Reply::Decided { transaction: id, outcome: Outcome::Abort });
    stage.pass(Duration::from_millis(100));
    assert_eq!(to(&only(&stage.commands(), is_prewrite)), [0, 4]);
}

#[test]
fn an_abort_after_writes_is_resolved_in_a_new_epoch_for_another_may_have_found_a_commit() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, _) = begin_aborting(&mut stage);
    lose(&mut stage, 0);
    let asked = stage.commands();
    assert_eq!((to(&asked), is_resolve(&asked[0])), (vec![4], true), "the device that refused is out");
    vote_all(&mut stage, &asked, Vote::Committed);
    stage.accept_sent(0);
    assert_eq!(stage.outcome(op), DONE);
    stage.pass(Duration::from_secs(1));
    assert_eq!(only(&stage.commands(), is_prewrite), [], "the write is not repeated");
}

#[test]
fn an_abort_that_meets_a_commit_gives_way() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, id) = begin_aborting(&mut stage);
    stage.answer(DeviceId(4), Reply::Decided { transaction: id, outcome: Outcome::Commit });
    let asked = stage.commands();
    assert!(asked.iter().all(is_resolve) && !asked.is_empty(), "{asked:?}");
    stage.answer(DeviceId(4), Reply::Vote { transaction: id, vote: Vote::Committed });
    stage.accept_sent(0);
    assert_eq!(stage.outcome(op), DONE);
    stage.pass(Duration::from_secs(1));
    assert_eq!(only(&stage.commands(), is_prewrite), []);
}

#[test]
fn an_epoch_of_the_same_devices_only_has_requests_sent_again() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, id, writes) = begin_writing(&mut stage);
    stage.accept_all(&writes[..1], 0);
    let mut fenced = stage.next_epoch(&[]);
    fenced.fence.also.insert(braid_base::Generation(3));
    stage.news(fenced);
    assert!(stage.sent.iter().all(|(_, request)| request.epoch == Epoch(2)));
    let again = stage.commands();
    assert_eq!(again, [writes[1].clone()]);
    stage.accept_all(&again, 0);
    assert_eq!((stage.outcome(op), subject(&again[0].1).0), (DONE, id));
}

#[test]
fn a_host_that_is_kept_out_ends_all_that_it_was_asked() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, _, _) = begin_writing(&mut stage);
    let mut fenced = stage.next_epoch(&[]);
    fenced.fence.also.insert(HOST);
    stage.news(fenced);
    assert_eq!(stage.outcome(op), Some(Err(HostError::Fenced)));
    let late = stage.read_block(0);
    assert_eq!(stage.outcome(late), Some(Err(HostError::Fenced)));
}

#[test]
fn answers_of_another_epoch_are_ignored_and_a_later_epoch_is_learned() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, _, writes) = begin_writing(&mut stage);
    for epoch in [0, 2] {
        stage.pass(Duration::from_millis(100));
        stage.monitored.clear();
        stage.epoch = Epoch(epoch);
        stage.accept_all(&writes, 0);
        assert_eq!(stage.outcome(op), None, "{epoch}");
        assert_eq!(stage.monitored.is_empty(), epoch == 0, "{epoch}: {:?}", stage.monitored);
    }
}

#[test]
fn an_earlier_membership_changes_nothing() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    lose(&mut stage, 4);
    let known = stage.host.membership().expect("the host has a membership").clone();
    stage.news(Membership::first((0..5).map(DeviceId)));
    assert_eq!(stage.host.membership(), Some(&known));
}

#[test]
fn a_returning_device_is_written_and_not_read() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.enter(&[(0, RETURNING)]);
    stage.read_block(0);
    assert_eq!(to(&stage.commands()), [1, 2, 3, 4]);
    let op = stage.write_block(0, 1);
    let first = stage.commands();
    let asked: Vec<_> = first.iter().filter(|(device, _)| device.0 == 0).map(|(_, command)| command).collect();
    assert!(matches!(asked[..], [Command::Prewrite { reads, .. }] if reads.is_empty()), "{asked:?}");
    stage.accept_all(&first, 0);
    let writes = only(&stage.commands(), is_write);
    assert_eq!(to(&writes), [0, 4]);
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn with_an_unavailable_device_readable_data_is_read_and_other_requests_fail_at_once() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0]);
    let (write, elsewhere) = (stage.write_block(0, 1), stage.write_block(1, 1));
    assert!(lacks(stage.outcome(write), &[0]), "refused, since the loss of one more device would lose the block");
    assert_eq!((to(&stage.commands()), stage.outcome(elsewhere)), (vec![1, 4], None));
    let read = stage.read_block(0);
    let reads = stage.commands();
    assert_eq!(to(&reads), [1, 2, 3, 4]);
    stage.accept_all(&reads, 0);
    assert!(matches!(stage.outcome(read), Some(Ok(HostSuccess::Data(_)))));
    stage.lack(&[0, 2]);
    let read = stage.read_block(0);
    assert!(lacks(stage.outcome(read), &[0, 2]));
    stage.lack(&[]);
    stage.read_block(0);
    assert_eq!(to(&only(&stage.commands(), |(_, command)| matches!(command, Command::Read { .. }))), [0]);
}

#[test]
fn an_operation_that_waits_for_an_unavailable_device_is_planned_anew_or_fails() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let read = stage.read_block(0);
    let (prewriting, first) = (stage.write_block(0, 1), stage.commands());
    assert_eq!(to(&first), [0, 0, 4]);
    stage.lack(&[0]);
    stage.pass(Duration::ZERO);
    assert!(lacks(stage.outcome(prewriting), &[0]));
    let reads = only(&stage.commands(), |(_, command)| matches!(command, Command::Read { .. }));
    assert_eq!(to(&reads), [1, 2, 3, 4]);
    stage.accept_all(&reads, 0);
    assert!(matches!(stage.outcome(read), Some(Ok(HostSuccess::Data(_)))));
    // What the other devices have is retracted, so that it blocks no reads until the device is back.
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (writing, id, writes) = begin_writing(&mut stage);
    stage.accept_all(&only(&writes, |_| true)[..1], 0);
    let missing = writes[1].0;
    stage.lack(&[missing.0]);
    assert!(lacks(stage.outcome(writing), &[missing.0]));
    let retracted = stage.commands();
    assert!(retracted.iter().all(is_retract), "{retracted:?}");
    assert_eq!(to(&retracted).len(), 2);
    stage.answer(missing, Reply::Written { transaction: id, waited: false });
    stage.accept_all(&retracted, 0);
    stage.pass(Duration::from_secs(1));
    assert!(stage.host.is_idle(), "nothing of it is left");
    assert!(stage.sent.iter().all(|(_, request)| request.commits.is_empty()), "it is not committed");
}

#[test]
fn an_operation_that_gets_its_locks_does_not_use_a_device_that_became_unavailable() {
    let mut stage = Stage::with_monitor(Ordering::ServerLock);
    let (read, write) = (stage.read_block(0), stage.write_block(5, 1));
    assert_eq!(stage.commands(), []);
    stage.lack(&[0]);
    stage.pass(Duration::ZERO);
    assert!(lacks(stage.outcome(write), &[0]), "block 5 is on device 0, too");
    let mut grants = 0;
    for (server, command) in stage.lock_commands() {
        if let LockCommand::Lock { lock_id, .. } = command {
            stage.grant(server, 1, LockReply::Granted { lock_id, waited: true });
            grants += 1;
        }
    }
    assert!(grants > 0);
    let reads = stage.commands();
    assert_eq!(to(&reads), [1, 2, 3, 4]);
    stage.accept_all(&reads, 0);
    assert!(matches!(stage.outcome(read), Some(Ok(HostSuccess::Data(_)))));
}

#[test]
fn devices_that_do_not_answer_are_named_to_the_monitor() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    for _ in 0..10 {
        (1..5).for_each(|number| stage.confirm(DeviceId(number), Vec::new()));
        stage.pass(Duration::from_millis(500));
    }
    let last = stage.monitored.last().expect("the host renews its lease");
    assert!(matches!(&last.command, MonitorCommand::Renew { silent, .. } if silent[..] == [DeviceId(0)]), "{last:?}");
    assert_eq!(last.epoch, Epoch(1));
}

#[test]
fn writes_on_arrival_are_repeated_for_a_device_that_returned_meanwhile() {
    let mut stage = Stage::promising(Atomicity::Consistent, Ordering::Timestamp);
    // The device of block 0's parity.
    lose(&mut stage, 4);
    stage.commands();
    let op = stage.write_block(0, 0xaa);
    let first = stage.commands();
    assert_eq!(to(&first), [0]);
    stage.accept_all(&first, 0);
    let write = stage.commands();
    stage.enter(&[(4, RETURNING)]);
    stage.accept_all(&write, 0);
    assert_eq!(stage.outcome(op), None, "device 0 may have listed what device 4 missed already");
    stage.pass(Duration::from_millis(1));
    let again =
        only(&stage.commands(), |(_, command)| matches!(command, Command::Prewrite { .. } | Command::Read { .. }));
    assert_eq!(to(&again), [0, 1, 2, 3, 4]);
    let reads_nothing = |command: &Command| matches!(command, Command::Prewrite { reads, .. } if reads.is_empty());
    assert!(again.iter().all(|(device, command)| device.0 != 4 || reads_nothing(command)), "{again:?}");
    stage.accept_all(&again, 0);
    let writes = stage.commands();
    assert_eq!(to(&writes), [0, 4]);
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(op), DONE);
}
