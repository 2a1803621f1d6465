//! Writes that devices execute together. The tests play the devices; block 0 is on device 0, its parity on device 4.

use crate::stage::*;
use braid_wire::Progress;

const DATA: DeviceId = DeviceId(0);
const PARITY: DeviceId = DeviceId(4);

/// Begins a write of a block. Returns its columns.
fn begin(stage: &mut Stage) -> (OpId, TransactionId, Vec<(DeviceId, Command)>) {
    let op = stage.write_block(0, 1);
    let columns = stage.commands();
    assert!(is_executed(&columns, &[0, 4]), "{columns:?}");
    let (transaction, _) = subject(&columns[0].1);
    (op, transaction, columns)
}

/// True if exactly these devices are sent columns.
fn is_executed(commands: &[(DeviceId, Command)], devices: &[u16]) -> bool {
    let to: Vec<u16> = commands.iter().map(|(device, _)| device.0).collect();
    to == devices && commands.iter().all(|(_, command)| matches!(command, Command::Execute { .. }))
}

fn is_announced(commands: &[(DeviceId, Command)]) -> bool {
    !commands.is_empty() && commands.iter().all(|(_, command)| matches!(command, Command::Prewrite { .. }))
}

fn is_retracted(commands: &[(DeviceId, Command)]) -> bool {
    commands.len() == 2 && commands.iter().all(is_retract)
}

fn gathering(transaction: TransactionId, missing: &[DeviceId]) -> Reply {
    Reply::Executing { transaction, progress: Progress::Gathering { missing: missing.to_vec() } }
}

#[test]
fn a_small_write_takes_one_message_to_each_of_two_devices() {
    let mut stage = Stage::at_parity();
    let (op, _, columns) = begin(&mut stage);
    stage.accept_all(&columns[..1], 0);
    assert_eq!(stage.outcome(op), None, "the parity is not durable");
    stage.accept_all(&columns[1..], 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn only_what_must_read_is_executed_by_devices() {
    let mut stage = Stage::at_parity();
    let mut write = |bytes: usize, offset: u64| {
        stage.write(offset, vec![1; bytes]);
        stage.commands()
    };
    let whole = write(4 * BLOCK_BYTES, 0);
    assert!(whole.iter().all(is_write), "{whole:?}");
    assert!(is_announced(&write(100, 4 * BLOCK_BYTES as u64)), "a part of a block");
    // Three of four units: the fourth only contributes.
    assert!(is_executed(&write(3 * BLOCK_BYTES, 8 * BLOCK_BYTES as u64), &[0, 1, 2, 3, 4]));
}

#[test]
fn a_repeated_request_goes_to_those_that_owe_something_as_well() {
    let mut stage = Stage::at_parity();
    let (op, _, columns) = begin(&mut stage);
    stage.accept_all(&columns[..1], 0);
    while stage.sent.is_empty() {
        stage.pass(Duration::from_millis(50));
    }
    let mut again = stage.commands();
    again.sort_by_key(|(device, _)| *device);
    assert!(is_executed(&again, &[0, 4]), "{again:?}");
    stage.accept_all(&again, 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn devices_that_can_t_reach_each_other_are_not_needed_to() {
    let mut stage = Stage::at_parity();
    let (op, transaction, columns) = begin(&mut stage);
    stage.accept_all(&columns[..1], 0);
    for _ in 0..2 {
        stage.answer(PARITY, gathering(transaction, &[DATA]));
        assert!(is_executed(&stage.commands(), &[0]), "the sender is asked again");
    }
    stage.answer(PARITY, gathering(transaction, &[DATA]));
    let retracted = stage.commands();
    assert!(is_retracted(&retracted), "{retracted:?}");
    stage.accept_all(&retracted, 0);
    stage.pass(Duration::from_millis(100));
    let announced = stage.commands();
    assert!(is_announced(&announced), "{announced:?}");
    stage.accept_all(&announced, 0);
    stage.accept_sent(0);
    assert_eq!(stage.outcome(op), DONE);
    stage.write_block(0, 1);
    let announced = stage.commands();
    assert!(is_announced(&announced), "for a while, columns are not sent to these two");
    stage.accept_all(&announced, 0);
    stage.accept_sent(0);
    for _ in 0..11 {
        stage.pass(Duration::from_secs(1));
        stage.accept_sent(0);
    }
    stage.write_block(0, 1);
    let commands = stage.commands();
    assert!(is_executed(&commands, &[0, 4]), "{commands:?}");
}

#[test]
fn a_device_that_waits_is_not_hurried() {
    let mut stage = Stage::at_parity();
    let (op, transaction, columns) = begin(&mut stage);
    for _ in 0..9 {
        stage.answer(PARITY, Reply::Executing { transaction, progress: Progress::Waiting });
    }
    assert!(stage.commands().is_empty());
    stage.accept_all(&columns, 0);
    assert_eq!(stage.outcome(op), DONE);
}

#[test]
fn a_refusal_by_a_device_that_only_contributes_promises_nothing() {
    let mut stage = Stage::at_parity();
    stage.write(0, vec![1; 3 * BLOCK_BYTES]);
    let columns = stage.commands();
    let (_, seen) = subject(&columns[3].1);
    stage.refuse(&columns[3], Step::Execute, Refusal::TooLate { seen });
    let retracted = stage.commands();
    let to: Vec<u16> = retracted.iter().map(|(device, _)| device.0).collect();
    assert_eq!(to, [0, 1, 2, 4], "every participant may have its intent");
    assert!(retracted.iter().all(is_retract), "{retracted:?}");
}

#[test]
fn a_write_does_without_a_contributor_that_can_not_read() {
    let mut stage = Stage::at_parity();
    stage.write(0, vec![1; 3 * BLOCK_BYTES]);
    let columns = stage.commands();
    let (transaction, _) = subject(&columns[0].1);
    let lost = Failure::Lost { block: 0 };
    stage.answer(DeviceId(3), Reply::Failed { transaction, step: Step::Execute, failure: lost });
    // The stripe is repaired as well.
    let mut retracted = stage.commands();
    retracted.retain(is_retract);
    assert_eq!(retracted.len(), 4);
    stage.accept_all(&retracted, 0);
    stage.pass(Duration::from_millis(100));
    let mut again = stage.commands();
    again.retain(|(_, command)| matches!(command, Command::Execute { .. } | Command::Prewrite { .. }));
    assert!(!again.is_empty() && again.iter().all(|(device, _)| *device != DeviceId(3)), "{again:?}");
}

#[test]
fn in_a_new_epoch_the_participants_decide() {
    let mut stage = Stage::at_parity();
    let (op, transaction, columns) = begin(&mut stage);
    stage.accept_all(&columns[..1], 0);
    let mut next = Membership { epoch: Epoch(2), ..Membership::first((0..5).map(DeviceId)) };
    let gone = next.member_mut(PARITY).expect("a member");
    (gone.member_state, gone.since) = (MemberState::Out, Epoch(2));
    stage.news(next);
    let asked: Vec<_> = stage.commands();
    assert!(matches!(&asked[..], [(DATA, Command::Resolve { .. })]), "{asked:?}");
    stage.answer(DATA, Reply::Vote { transaction, vote: Vote::Prepared });
    stage.accept_sent(0);
    assert_eq!(stage.outcome(op), DONE, "all that count have their intents");
}
