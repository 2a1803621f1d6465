//! Writes without pre-writes: one message for each device, where nothing must be read. The tests play the devices.

use crate::stage::*;

const OTHER: Generation = Generation(9);

/// Writes the first stripe, or another one: four blocks of data.
fn write_stripe(stage: &mut Stage, stripe: u64) -> OpId {
    stage.write(stripe * 4 * BLOCK_BYTES as u64, vec![0x5a; 4 * BLOCK_BYTES])
}

/// The transaction and the stamp of a write of a whole stripe that went out in one message to each device.
fn at_once(commands: &[(DeviceId, Command)]) -> (TransactionId, Stamp) {
    assert_eq!(commands.len(), 5, "{commands:?}");
    assert!(commands.iter().all(is_write), "{commands:?}");
    subject(&commands[0].1)
}

/// Writes a stripe that goes out in one message to each device. Returns the operation, these messages and their subject.
fn send_stripe(stage: &mut Stage, stripe: u64) -> (OpId, Vec<(DeviceId, Command)>, (TransactionId, Stamp)) {
    let op = write_stripe(stage, stripe);
    let writes = stage.commands();
    let subject = at_once(&writes);
    (op, writes, subject)
}

fn announced(commands: &[(DeviceId, Command)]) -> bool {
    commands.len() == 5 && commands.iter().all(|(_, command)| matches!(command, Command::Prewrite { .. }))
}

fn too_late(stamp: Stamp) -> Refusal {
    Refusal::TooLate { seen: Stamp { clock: Clock(stamp.clock.0 + 1_000), host: OTHER } }
}

#[test]
fn a_full_stripe_is_written_with_one_message_for_each_device() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (op, writes, _) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes[..4], 0);
    assert_eq!(stage.outcome(op), None, "the last device has no intent yet");
    stage.accept_all(&writes[4..], 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn locks_of_devices_are_taken_first() {
    let mut stage = Stage::raid5(Ordering::DeviceLock);
    write_stripe(&mut stage, 0);
    assert!(announced(&stage.commands()));
}

#[test]
fn a_refused_write_is_announced_when_it_is_tried_again() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (op, writes, (_, stamp)) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes[1..], 0);
    stage.refuse(&writes[0], Step::Write, too_late(stamp));
    let aborts = stage.commands();
    assert_eq!(aborts.len(), 4, "the refusal is a promise; the others undo their intents");
    assert!(aborts.iter().all(is_abort));
    stage.accept_all(&aborts, 0);
    stage.pass(Duration::ZERO);
    assert!(announced(&stage.commands()));
    assert_eq!(stage.outcome(op), None);
}

#[test]
fn a_stripe_is_announced_for_a_while_after_a_refusal_and_others_are_not() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (_, writes, (_, stamp)) = send_stripe(&mut stage, 0);
    stage.refuse(&writes[0], Step::Write, too_late(stamp));
    stage.commands();
    write_stripe(&mut stage, 0);
    assert!(announced(&stage.commands()), "another host writes there now");
    send_stripe(&mut stage, 1);
    stage.pass(Duration::from_millis(250));
    stage.commands();
    send_stripe(&mut stage, 0);
}

#[test]
fn a_write_without_a_promise_is_retracted_and_tried_again_when_all_have_undone_it() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (op, writes, _) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes[1..], 0);
    stage.refuse(&writes[0], Step::Write, Refusal::Busy);
    let retracted = stage.commands();
    assert_eq!(retracted.len(), 5, "the full device, too: it may accept a late copy");
    assert!(retracted.iter().all(is_retract), "{retracted:?}");
    stage.accept_all(&retracted[..4], 0);
    stage.pass(Duration::from_millis(100));
    assert!(stage.commands().is_empty(), "one device may still have its intent");
    stage.accept_all(&retracted[4..], 0);
    stage.pass(Duration::from_millis(100));
    assert!(announced(&stage.commands()));
    assert_eq!(stage.outcome(op), None);
}

#[test]
fn a_write_that_another_host_knows_of_is_resolved_and_not_retracted() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let (op, writes, (transaction, _)) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes[1..], 0);
    stage.refuse(&writes[0], Step::Write, Refusal::Busy);
    let retracted = stage.commands();
    stage.answer(retracted[1].0, Reply::Vote { transaction, vote: Vote::Prepared });
    let asked = stage.commands();
    assert_eq!(asked.len(), 5);
    for (device, command) in &asked {
        assert!(matches!(command, Command::Resolve { .. }), "{command:?}");
        // The full device has accepted a late copy.
        stage.answer(*device, Reply::Vote { transaction, vote: Vote::Prepared });
    }
    stage.accept_sent(0);
    assert_eq!(stage.outcome(op), DONE, "another host may have found it committed");
}

#[test]
fn a_clock_that_leapt_and_came_back_costs_a_retry_and_no_error() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let right = stage.now.clock;
    stage.now.clock = right.ahead(Duration::from_secs(20));
    let op = write_stripe(&mut stage, 0);
    stage.now.clock = right;
    let writes = stage.commands();
    at_once(&writes);
    stage.refuse(&writes[0], Step::Write, Refusal::TooFarAhead { clock: right });
    assert_eq!(stage.outcome(op), None, "the clock may have been stepping");
    stage.accept_sent(0);
    stage.pass(Duration::ZERO);
    let again = stage.commands();
    assert!(announced(&again));
    assert!(subject(&again[0].1).1.clock < right.ahead(Duration::from_secs(1)), "its stamps came back with its clock");
}

/// A device accepted the first write with a stamp from before a leap of the clock. No later stamp may be lower, or the host's own writes
/// would be out of order.
#[test]
fn stamps_stay_above_what_was_written_when_a_clock_comes_back() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    // The host has learned of a device whose floor is ahead of the clocks.
    let read = stage.read_block(8);
    let sent = stage.commands().pop().expect("the read");
    let seen = Stamp { clock: subject(&sent.1).1.clock.ahead(Duration::from_secs(1)), host: OTHER };
    stage.refuse(&sent, Step::Read, Refusal::TooLate { seen });
    stage.pass(Duration::ZERO);
    stage.accept_sent(0);
    assert!(matches!(stage.outcome(read), Some(Ok(HostSuccess::Data(_)))));
    let (op, writes, (_, acknowledged)) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(op), DONE);
    let right = stage.now.clock;
    stage.now.clock = right.ahead(Duration::from_secs(3_600));
    let (op, writes, (transaction, _)) = send_stripe(&mut stage, 1);
    stage.now.clock = right;
    stage.refuse(&writes[0], Step::Write, Refusal::TooFarAhead { clock: right });
    assert_eq!(stage.outcome(op), None);
    write_stripe(&mut stage, 2);
    let later = stage.commands().into_iter().find(|(_, command)| subject(command).0 > transaction);
    assert!(subject(&later.expect("the third write").1).1 > acknowledged, "{acknowledged}");
}

#[test]
fn a_write_that_reached_some_devices_is_retracted_when_another_is_unavailable() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    let (op, writes, _) = send_stripe(&mut stage, 0);
    stage.accept_all(&writes[1..], 0);
    stage.lack(&[writes[0].0.0]);
    assert!(matches!(stage.outcome(op), Some(Err(HostError::Unavailable { .. }))));
    let retracted = stage.commands();
    assert!(retracted.iter().all(is_retract), "{retracted:?}");
    assert_eq!(retracted.len(), 5);
    assert_eq!(subject(&retracted[0].1).0.host, HOST);
}
