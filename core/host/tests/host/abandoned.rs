//! Operations whose user is gone. The tests play the devices.

use crate::stage::*;
use braid_layout::Atomicity;

const ABANDONED: Option<HostOutcome> = Some(Err(HostError::Abandoned));

fn abandon(stage: &mut Stage, ops: &[OpId]) {
    let op = stage.ask(ArrayRequest::Abandon { ops: ops.to_vec() });
    assert_eq!(stage.outcome(op), DONE);
}

fn refuse(stage: &mut Stage, sent: &(DeviceId, Command), step: Step) {
    let (_, seen) = subject(&sent.1);
    stage.refuse(sent, step, Refusal::TooLate { seen });
}

/// A write of block 0 whose writes are sent, and then abandoned.
fn abandon_write(stage: &mut Stage) -> (OpId, Vec<(DeviceId, Command)>) {
    let write = stage.write_block(0, 1);
    stage.accept_sent(0);
    let writes = stage.commands();
    assert!(writes.iter().all(is_write), "{writes:?}");
    abandon(stage, &[write]);
    (write, writes)
}

#[test]
fn a_request_without_a_write_under_way_is_abandoned_at_once_and_for_good() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (write, read) = (stage.write_block(0, 1), stage.read_block(9));
    let prewrites: Vec<_> =
        stage.commands().into_iter().filter(|(_, sent)| !matches!(sent, Command::Read { .. })).collect();
    abandon(&mut stage, &[write, read]);
    assert_eq!((stage.outcome(write), stage.outcome(read)), (ABANDONED, ABANDONED));
    // The pre-writes are aborted, even where a device accepts them late.
    stage.accept_all(&prewrites, 0);
    let commands = stage.commands();
    assert!(commands.iter().all(is_abort));
    assert_eq!(commands.len(), 2);
    stage.accept_all(&commands, 0);
    assert!(stage.host.is_idle());
}

#[test]
fn a_request_that_waits_for_a_retry_is_not_tried_again_once_abandoned() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let write = stage.write_block(0, 1);
    // The first retry comes at once, the second one after a while.
    for _ in 0..2 {
        let commands = stage.commands();
        refuse(&mut stage, &commands[0], Step::Read);
    }
    abandon(&mut stage, &[write]);
    assert_eq!(stage.outcome(write), ABANDONED);
    stage.commands();
    stage.pass(Duration::from_secs(20));
    assert!(stage.commands().iter().all(|(_, command)| matches!(command, Command::Decide { .. })));
}

#[test]
fn a_request_whose_write_is_under_way_ends_with_that_attempt() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (write, writes) = abandon_write(&mut stage);
    assert_eq!(stage.outcome(write), None, "the write may yet commit");
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(write), DONE);
}

#[test]
fn an_abandoned_request_whose_write_is_refused_makes_no_further_attempt() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (write, writes) = abandon_write(&mut stage);
    refuse(&mut stage, &writes[0], Step::Write);
    let aborts = stage.commands();
    assert_eq!(stage.outcome(write), None, "a device may still hold a write of it");
    stage.accept_all(&aborts, 0);
    assert_eq!(stage.outcome(write), ABANDONED);
    stage.pass(Duration::from_secs(5));
    assert!(!stage.commands().iter().any(is_write), "no further attempt");
    assert!(stage.host.is_idle());
}

#[test]
fn requests_to_the_same_blocks_begin_behind_it_and_others_at_once() {
    for ordering in [Ordering::Timestamp, Ordering::DeviceLock, Ordering::None] {
        let mut stage = Stage::raid5(ordering);
        let (write, writes) = abandon_write(&mut stage);
        // Its own block, and a block of the same row, which shares its parity. Block 9 lies in another row.
        let (same, neighbour, read) = (stage.write_block(0, 2), stage.write_block(1, 3), stage.read_block(0));
        assert_eq!(stage.commands(), [], "{ordering}");
        stage.read_block(9);
        assert_eq!(stage.commands().len(), 1, "{ordering}");
        stage.accept_all(&writes, 0);
        assert_eq!(stage.outcome(write), DONE);
        let begun: std::collections::BTreeSet<_> =
            stage.commands().iter().map(|(_, command)| subject(command).0.sequence).collect();
        assert_eq!(begun.len(), 3, "{ordering}: all waiting operations begin");
        assert_eq!([same, neighbour, read].map(|op| stage.outcome(op)), [None, None, None]);
    }
}

#[test]
fn no_operation_waits_for_it_longer_than_a_request_may_take() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let write = stage.write_block(0, 1);
    stage.accept_sent(0);
    abandon(&mut stage, &[write]);
    stage.pass(Duration::from_secs(10));
    let other = stage.write_block(0, 2);
    stage.pass(Duration::from_secs(21));
    assert!(matches!(stage.outcome(write), Some(Err(HostError::TimedOut { .. }))));
    stage.pass(Duration::from_secs(10));
    assert!(matches!(stage.outcome(other), Some(Err(HostError::TimedOut { .. } | HostError::Contended { .. }))));
}

#[test]
fn an_interrupted_write_that_took_effect_on_arrival_is_resynchronised_and_not_repeated() {
    let mut stage = Stage::promising(Atomicity::Consistent, Ordering::Timestamp);
    let (write, writes) = abandon_write(&mut stage);
    stage.accept_all(&writes[..1], 0);
    refuse(&mut stage, &writes[1], Step::Write);
    let told = stage.commands();
    assert!(told.iter().all(|(_, command)| matches!(command, Command::Decide { outcome: Outcome::Interrupted, .. })));
    stage.accept_all(&told, 0);
    assert_eq!(stage.outcome(write), ABANDONED);
    let repairs = stage.commands();
    assert!(!repairs.is_empty() && !repairs.iter().any(is_write), "its stripe is examined: {repairs:?}");
}

#[test]
fn an_answered_request_is_not_abandoned() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let read = stage.read_block(0);
    stage.accept_sent(0);
    assert!(stage.outcome(read).is_some());
    abandon(&mut stage, &[read, OpId::front_end(1_000)]);
    assert_eq!(stage.replies, []);
}
