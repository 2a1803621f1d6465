//! A host's storage transactions. The tests play the devices.

use crate::stage::*;
use crate::story::{raid5, stories};
use braid_wire::Orphan;

#[test]
fn a_small_write_reads_and_prewrites_then_writes_data_and_parity() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.write_block(0, 0xaa);
    let first = stage.commands();
    assert_eq!(first.len(), 2, "the devices of the data and of the parity");
    assert!(first.iter().all(|(_, command)| matches!(
        command, Command::Prewrite { prewrites, reads, .. } if prewrites == reads
    )));
    stage.accept_all(&first[..1], 0x10);
    stage.accept_all(&first[1..], 0x11);
    let second = stage.commands();
    let byte_of = |(_, command): &(DeviceId, Command)| {
        let Command::Write { pieces, participants, .. } = command else { panic!("{command:?}") };
        assert_eq!(participants.len(), 2);
        let Content::Data(bytes) = &pieces[0].content else { panic!("{pieces:?}") };
        bytes[0]
    };
    let written: Vec<u8> = second.iter().map(byte_of).collect();
    // The parity changes where the data changes: 0x10 ^ 0x11 ^ 0xaa, whichever of the two was which.
    assert_eq!(written.len(), 2);
    assert!(written.contains(&0xaa) && written.contains(&0xab), "the new data and the new parity: {written:?}");
    assert_eq!(stage.outcome(op), None, "not answered before both have their intent");
    stage.accept_all(&second[..1], 0);
    assert_eq!(stage.outcome(op), None, "not answered when one has its intent");
    stage.accept_all(&second[1..], 0);
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Done)));
    let counted: std::collections::BTreeMap<_, _> = stage.host.counters().list().into_iter().collect();
    // Five heartbeats, two pre-writes, two writes. The heartbeats were not answered.
    assert_eq!((counted["operations"], counted["committed"], counted["small_bands"]), (1, 1, 1));
    assert_eq!((counted["requests_sent"], counted["answers"]), (9, 4));
}

#[test]
fn a_confirmed_commit_is_settled_and_an_unconfirmed_one_is_repeated() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    stage.write_block(0, 1);
    let mut devices = Vec::new();
    for _ in 0..2 {
        let commands = stage.commands();
        devices = commands.iter().map(|(device, _)| *device).collect();
        stage.accept_all(&commands, 0);
    }
    stage.pass(Duration::from_millis(3));
    stage.sent.clear();
    stage.confirm(devices[0], vec![1]);
    stage.pass(Duration::from_secs(2));
    let told = |stage: &Stage, device: DeviceId| {
        stage.sent.iter().filter(|(to, request)| *to == device && request.commits == [1]).count()
    };
    assert_eq!(told(&stage, devices[0]), 0);
    assert!(told(&stage, devices[1]) >= 1, "the commit is sent again until it is confirmed");
    let of_last = |(device, _): &&(DeviceId, _)| *device == devices[1];
    // Not settled while one has not confirmed.
    assert!(stage.sent.iter().filter(of_last).all(|(_, request)| request.settled == 1));
    stage.confirm(devices[1], vec![1]);
    stage.sent.clear();
    stage.pass(Duration::from_secs(1));
    assert!(stage.sent.iter().all(|(_, request)| request.settled == 2), "settled everywhere: {:?}", stage.sent);
    assert!(stage.host.is_idle());
}

#[test]
fn a_late_writer_retries_above_the_stamp_it_lost_to() {
    let told = raid5(&[
        ("w writes 0", "#1 pre+read 0 4"),
        ("4 accepts", ""),
        // Only the device that accepted is told.
        ("0 refuses TooLate by 1ms", "#1 abort 4, #2 pre+read 0 4"),
        ("pass 0s", ""),
        ("all accept #1", ""),
        ("all accept", "#2 write 0 4"),
        ("all accept", "w done"),
        ("count retries", "1"),
        ("count committed", "1"),
        ("0 4 confirm #2", ""),
        // All know that the first transaction is over.
        ("idle?", "yes"),
    ]);
    assert!(told.stamp(2).clock > told.stamp(1).clock.ahead(Duration::from_millis(1)), "above the stamp it lost to");
    assert!(told.transaction(2) > told.transaction(1), "as a new transaction");
}

#[test]
fn an_operation_that_a_host_with_a_clock_ahead_overtakes_each_time_gets_a_head_start() {
    let (lead, round_trip) = (Duration::from_millis(20), Duration::from_millis(10));
    let mut stage = Stage::raid5(Ordering::Timestamp);
    stage.write_block(0, 1);
    let mut commands = stage.commands();
    for attempt in 0..20 {
        while commands.is_empty() {
            stage.pass(Duration::from_millis(1));
            commands = stage.commands();
        }
        stage.pass(round_trip);
        // The other host has stamped its own write a few milliseconds ago.
        let age = Duration::from_millis(if attempt % 2 == 0 { 8 } else { 4 });
        let seen = Stamp { clock: Clock(stage.now.clock.ahead(lead).0 - age.as_nanos() as u64), host: Generation(8) };
        if subject(&commands[0].1).1 > seen {
            assert!(attempt > 10, "the operation waits first: {attempt}");
            return;
        }
        for sent in &commands {
            assert!(matches!(sent.1, Command::Prewrite { .. }), "{:?}", sent.0);
            stage.refuse(sent, Step::Prewrite, Refusal::TooLate { seen });
        }
        let (aborts, again): (Vec<_>, Vec<_>) = stage.commands().into_iter().partition(is_abort);
        stage.accept_all(&aborts, 0);
        commands = again;
    }
    panic!("refused each time");
}

#[test]
fn a_reader_that_keeps_losing_reads_with_prewrites_and_gives_them_back() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.read_block(0);
    loop {
        let commands = stage.commands();
        let [sent @ (_, command)] = &commands[..] else { panic!("one device: {commands:?}") };
        let (_, stamp) = subject(command);
        if let Command::Prewrite { prewrites, reads, .. } = command {
            assert_eq!(prewrites, reads);
            stage.accept_all(&commands, 5);
            break;
        }
        assert!(matches!(command, Command::Read { .. }));
        let seen = Stamp { clock: Clock(stamp.clock.0 + 5), host: Generation(9) };
        stage.refuse(sent, Step::Read, Refusal::TooLate { seen });
        stage.pass(Duration::from_millis(70));
    }
    let outcome = stage.outcome(op).expect("it was served").expect("with data");
    assert_eq!(outcome, HostSuccess::Data(vec![vec![5; BLOCK_BYTES].into()]));
    let given_back = stage.commands();
    assert!(matches!(given_back[..], [(_, Command::Decide { outcome: Outcome::Abort, .. })]), "{given_back:?}");
}

/// A device with this clock refuses the read.
fn refuse_as_too_far_ahead(stage: &mut Stage, clock: Clock) {
    let read = stage.commands().pop().expect("the read");
    stage.refuse(&read, Step::Read, Refusal::TooFarAhead { clock });
    stage.pass(Duration::from_millis(64));
}

#[test]
fn a_clock_far_ahead_is_named() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    stage.now.clock = stage.now.clock.ahead(Duration::from_secs(365 * 86_400));
    let op = stage.read_block(0);
    refuse_as_too_far_ahead(&mut stage, Clock(0));
    assert_eq!(stage.outcome(op), None, "the clock may have been stepping");
    refuse_as_too_far_ahead(&mut stage, Clock(0));
    let Some(Err(error @ HostError::ClockApart { .. })) = stage.outcome(op) else { panic!("expected ClockApart") };
    assert!(error.to_string().contains("the clock of this host is"), "{error}");
}

#[test]
fn a_host_waits_for_a_device_that_does_not_accept_stamps_accepted_elsewhere_yet() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.read_block(0);
    let read = stage.commands().pop().expect("the read");
    let (_, stamp) = subject(&read.1);
    let seen = Stamp { clock: stamp.clock.ahead(Duration::from_secs(3_600)), host: Generation(3) };
    stage.refuse(&read, Step::Read, Refusal::TooLate { seen });
    let begun = stage.now.time;
    let outcome = loop {
        let Some(read) = stage.commands().pop() else {
            stage.pass(Duration::from_millis(1));
            continue;
        };
        let (_, stamp) = subject(&read.1);
        assert!(stamp.clock > seen.clock && stamp.clock < seen.clock.ahead(Duration::from_secs(1)), "{stamp}");
        stage.refuse(&read, Step::Read, Refusal::TooFarAhead { clock: stage.now.clock });
        stage.pass(Duration::from_millis(64));
        if let Some(outcome) = stage.outcome(op) {
            break outcome;
        }
    };
    let Err(error @ HostError::ClockApart { .. }) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("behind the array's stamps"), "{error}");
    let waited = stage.now.time.since(begun);
    assert!(waited >= Duration::from_secs(8) && waited < Duration::from_secs(10), "about two leases: {waited:?}");
}

#[test]
fn a_wait_for_something_else_is_not_counted_as_a_wait_for_stamps() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.read_block(0);
    let right = stage.now.clock;
    refuse_as_too_far_ahead(&mut stage, right);
    // The device accepts the next attempt, which waits there for longer than two leases.
    let read = stage.commands().pop().expect("the read, again");
    for _ in 0..9 {
        stage.pass(Duration::from_secs(1));
        stage.commands();
    }
    let (_, seen) = subject(&read.1);
    stage.refuse(&read, Step::Read, Refusal::TooLate { seen });
    stage.pass(Duration::from_millis(64));
    let right = stage.now.clock;
    refuse_as_too_far_ahead(&mut stage, right);
    assert_eq!(stage.outcome(op), None, "the device may not know yet which stamps were accepted meanwhile");
}

#[test]
fn a_device_that_leaves_out_blocks_is_not_believed() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    let op = stage.read_block(0);
    let (device, command) = stage.commands().pop().expect("the read");
    let (transaction, _) = subject(&command);
    stage.answer(device, Reply::Data { transaction, waited: false, pieces: Vec::new() });
    assert_eq!(stage.outcome(op), Some(Err(HostError::Device { device, failure: Failure::Malformed })));
}

/// The votes of a dead host's participants, and the outcome that follows from them.
#[test]
fn the_votes_decide_what_becomes_of_an_orphan() {
    use Vote::{Committed, NeverPrepared, Prepared};
    let table: [(&[Vote], Outcome); 5] = [
        (&[Prepared, Prepared], Outcome::Commit),
        (&[Prepared, NeverPrepared], Outcome::Abort),
        (&[NeverPrepared], Outcome::Abort),
        (&[Committed], Outcome::Commit),
        (&[Prepared, Committed], Outcome::Commit),
    ];
    for (votes, expected) in table {
        let mut stage = Stage::raid5(Ordering::Timestamp);
        let transaction = TransactionId { host: Generation(3), sequence: 8 };
        let participants = vec![DeviceId(0), DeviceId(1)];
        let stamp = Stamp { clock: Clock(5), host: Generation(3) };
        let orphans = vec![Orphan { transaction, stamp, participants }];
        stage.answer(DeviceId(0), Reply::Heartbeat { orphans: orphans.clone(), suspects: Vec::new(), busy: false });
        stage.answer(DeviceId(1), Reply::Heartbeat { orphans, suspects: Vec::new(), busy: false });
        assert_eq!(stage.commands().len(), 2, "each participant is asked, once");
        for (index, vote) in votes.iter().enumerate() {
            assert!(stage.commands().is_empty(), "{votes:?}: not decided before vote {index}");
            stage.answer(DeviceId(index as u16), Reply::Vote { transaction, vote: *vote });
        }
        let told = stage.commands();
        assert_eq!(told.len(), 2);
        for (device, command) in &told {
            assert_eq!(*command, Command::Decide { transaction, stamp, outcome: expected }, "{votes:?}");
            stage.answer(*device, Reply::Decided { transaction, outcome: expected });
        }
        let forget = stage.commands();
        assert_eq!(forget.len(), 2, "forgotten only when the outcome is durable on both");
        for (device, command) in &forget {
            assert_eq!(*command, Command::Forget { transaction });
            stage.answer(*device, Reply::Forgotten { transaction });
        }
        assert!(stage.host.is_idle());
    }
}

#[test]
fn a_host_does_not_resolve_what_it_is_itself_about() {
    let mut stage = Stage::raid5(Ordering::Timestamp);
    stage.write_block(0, 1);
    let commands = stage.commands();
    let (transaction, stamp) = subject(&commands[0].1);
    assert_eq!(transaction.host, HOST);
    let orphans = vec![Orphan { transaction, stamp, participants: vec![DeviceId(0)] }];
    stage.answer(DeviceId(0), Reply::Heartbeat { orphans, suspects: Vec::new(), busy: false });
    assert!(stage.commands().is_empty());
}

stories! {
    raid5;

    fn a_fenced_host_serves_nothing_any_more():
        "r reads 0" => "#1 read 0";
        "2 rejects Fenced" => "r Fenced";
        "w writes 0" => "w Fenced";

    fn commits_ride_on_the_next_request_and_otherwise_go_after_the_linger():
        "show heartbeats";
        "w writes 0" => "#1 pre+read 0 4";
        "all accept" => "#1 write 0 4";
        "all accept" => "w done"; // A commit has no message of its own.
        "r reads 0" => "#2 read with #1 0";
        "pass 3ms" => "heartbeat with #1 4"; // The other device is told after the linger.

    fn an_operation_ends_in_time_though_a_device_is_silent_and_its_pre_writes_are_given_up():
        "w writes 0" => "#1 pre+read 0 4";
        "0 accepts";
        "pass 30s" => "#1 pre+read 4, #1 abort 0 4, w TimedOut 4 in 30s";
        "0 accepts";
        "idle?" => "no"; // The silent device may have a pre-write.
        "pass 10s" => "#1 abort 4";
        "idle?" => "yes"; // A device drops pre-writes of a host that is silent for a lease.
}
