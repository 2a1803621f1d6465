//! Locks: when a host requests them, how it proceeds meanwhile, and when it releases them.

use crate::stage::*;
use braid_base::BlockRange;
use braid_machine::RangesRequest;
use braid_ordering::WriteMode;
use braid_wire::locking::{LockExtent, LockMode, LockRefusal, LockTerm};

/// Grants the single lock that was requested. Returns its id.
fn grant_one(stage: &mut Stage) -> u64 {
    let asked = stage.lock_commands();
    let [(SERVER, LockCommand::Lock { lock_id, .. })] = asked[..] else { panic!("not one lock request: {asked:?}") };
    stage.grant(SERVER, 3, granted(lock_id));
    lock_id
}

/// Plays the reads of a block's write. Returns the transaction, and the devices that are to write the block and its parity.
fn play_reads(stage: &mut Stage) -> (TransactionId, [DeviceId; 2]) {
    stage.accept_sent(0);
    let writes = stage.commands();
    let [(block, write), (parity, _)] = &writes[..] else { panic!("a block and its parity: {writes:?}") };
    (subject(write).0, [*block, *parity])
}

fn granted(lock_id: u64) -> LockReply {
    LockReply::Granted { lock_id, waited: false }
}

/// Plays a block's write through its devices.
fn play_write(stage: &mut Stage) {
    for _ in ["reads", "writes"] {
        stage.accept_sent(0);
    }
}

#[test]
fn under_a_servers_lock_a_write_locks_everything_first_and_unlocks_at_its_commit() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    let op = stage.write_block(0, 1);
    assert!(stage.commands().is_empty(), "nothing is sent before the locks are granted");
    let asked = stage.lock_commands();
    let [(SERVER, LockCommand::Lock { lock_id, extents, term, .. })] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(*term, LockTerm::Transaction { impatient: false });
    assert_eq!(extents.len(), 2, "a block and its parity: {extents:?}");
    assert!(extents.iter().all(|extent| extent.mode == LockMode::Exclusive));
    stage.grant(SERVER, 3, granted(*lock_id));
    let reads = stage.commands();
    assert!(reads.iter().all(|(_, command)| matches!(command, Command::Read { .. })), "no pre-writes: {reads:?}");
    stage.accept_all(&reads, 0);
    let writes = stage.commands();
    assert!(writes.iter().all(|(_, command)| matches!(command, Command::Write { mode: WriteMode::Intent, .. })));
    assert!(stage.lock_commands().is_empty());
    stage.accept_all(&writes, 0);
    assert_eq!(stage.outcome(op), Some(Ok(HostSuccess::Done)));
    assert_eq!(stage.lock_commands(), [(SERVER, LockCommand::Unlock { lock_id: *lock_id })]);
    assert!(!stage.host.is_idle(), "the unlock is sent until it is answered");
    stage.pass(Duration::from_millis(600));
    assert!(stage.lock_commands().contains(&(SERVER, LockCommand::Unlock { lock_id: *lock_id })));
    stage.grant(SERVER, 3, LockReply::Unlocked { lock_id: *lock_id });
    assert_eq!(stage.host.locks().len(), 0);
}

#[test]
fn cached_locks_are_reused_without_a_message_until_their_lease_expires() {
    let mut stage = Stage::raid5(Ordering::CallbackLock);
    stage.write_block(0, 1);
    grant_one(&mut stage);
    play_write(&mut stage);
    let read = stage.read_block(0);
    assert!(stage.lock_commands().is_empty(), "an exclusive lock covers reads");
    stage.accept_sent(1);
    assert!(matches!(stage.outcome(read), Some(Ok(HostSuccess::Data(_)))));
    stage.pass(Duration::from_secs(4));
    stage.lock_commands();
    stage.read_block(0);
    let asked = std::mem::take(&mut stage.asked);
    assert!(matches!(asked[..], [(SERVER, ref request)] if matches!(request.command, LockCommand::Lock { .. })));
    assert_eq!(stage.host.locks().len(), 1);
}

#[test]
fn a_revoked_lock_is_returned_after_its_last_user_and_gets_no_new_one() {
    let mut stage = Stage::raid5(Ordering::CallbackLock);
    stage.write_block(0, 1);
    let first = grant_one(&mut stage);
    stage.grant(SERVER, 3, LockReply::Revoke { lock_ids: vec![first] });
    assert!(stage.lock_commands().is_empty(), "the lock is in use");
    stage.read_block(0);
    assert!(stage.lock_commands().is_empty(), "the reader waits for the writer of its own host");
    play_write(&mut stage);
    let said = stage.lock_commands();
    assert!(said.contains(&(SERVER, LockCommand::Yield { lock_ids: vec![first] })), "{said:?}");
    // The reader requests a lock.
    assert!(said.iter().any(|(_, command)| matches!(command, LockCommand::Lock { .. })), "{said:?}");
    stage.grant(SERVER, 3, LockReply::Revoke { lock_ids: vec![77] });
    let yielded = LockCommand::Yield { lock_ids: vec![77] };
    assert_eq!(stage.lock_commands(), [(SERVER, yielded)], "an unknown lock is not held");
}

#[test]
fn a_restarted_server_is_told_all_held_locks_before_it_grants_new_ones() {
    let mut stage = Stage::raid5(Ordering::CallbackLock);
    for block in [0, 16] {
        stage.write_block(block, 1);
        grant_one(&mut stage);
        play_write(&mut stage);
    }
    stage.grant(SERVER, 9, LockReply::Heartbeat { sent: Time(0) });
    let held = stage.lock_commands();
    let lock_ids: Vec<u64> = held
        .iter()
        .map(|(_, command)| match command {
            LockCommand::Lock { lock_id, term: LockTerm::Held { start, cached: true }, .. } if start.0 == 9 => *lock_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lock_ids.len(), 2);
    stage.grant(SERVER, 9, granted(lock_ids[0]));
    stage.read_block(40);
    assert_eq!(stage.asked.pop().expect("a lock").1.start.0, 3, "one lock is not granted again yet");
    stage.grant(SERVER, 9, granted(lock_ids[1]));
    stage.read_block(60);
    assert_eq!(stage.asked.pop().expect("a lock").1.start.0, 9);
    stage.lock_commands();
    stage.grant(SERVER, 3, LockReply::Revoke { lock_ids });
    assert!(stage.lock_commands().is_empty(), "messages of an earlier start are ignored");
}

#[test]
fn several_servers_are_asked_in_turn_or_all_at_once() {
    for (acquisition, at_once) in [(Acquisition::Ordered, 1), (Acquisition::Timeout, 3)] {
        let mut stage = Stage::with_lock_servers(Ordering::ServerLock, 3, acquisition);
        stage.read(0, 200 * 4096);
        let asked = stage.lock_commands();
        assert_eq!(asked.len(), at_once, "{acquisition:?}: {asked:?}");
        let mut pending = asked;
        for _ in 0..3 {
            let (server, command) = pending.remove(0);
            let LockCommand::Lock { lock_id, term, .. } = command else { panic!("{command:?}") };
            assert_eq!(term, LockTerm::Transaction { impatient: at_once > 1 });
            assert!(stage.commands().is_empty());
            stage.grant(server, 3, granted(lock_id));
            pending.extend(stage.lock_commands());
        }
        assert!(!stage.commands().is_empty(), "all its locks are granted");
    }
}

#[test]
fn a_refused_lock_request_returns_the_others_and_all_are_retried_later() {
    let mut stage = Stage::with_lock_servers(Ordering::ServerLock, 3, Acquisition::Timeout);
    stage.read(0, 200 * 4096);
    let asked = stage.lock_commands();
    let number = |command: &LockCommand| match command {
        LockCommand::Lock { lock_id, .. } => *lock_id,
        other => panic!("{other:?}"),
    };
    let (held, refused) = (number(&asked[0].1), number(&asked[1].1));
    stage.grant(asked[0].0, 3, granted(held));
    stage.grant(asked[1].0, 3, LockReply::Refused { lock_id: refused, refusal: LockRefusal::Timeout });
    let unlocked = stage.lock_commands();
    assert_eq!(unlocked.len(), 2, "{unlocked:?}");
    assert!(unlocked.iter().all(|(_, command)| matches!(command, LockCommand::Unlock { .. })));
    assert_eq!(stage.host.counters().restarts, 1);
    stage.pass(Duration::from_millis(70));
    let again = stage.lock_commands();
    assert_eq!(again.iter().filter(|(_, command)| matches!(command, LockCommand::Lock { .. })).count(), 3, "{again:?}");
}

#[test]
fn a_silent_lock_server_ends_in_an_error_and_holds_up_nothing_later() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    let op = stage.read_block(0);
    stage.pass(Duration::from_secs(31));
    let waited = Duration::from_secs(30);
    assert_eq!(stage.outcome(op), Some(Err(HostError::LockServerSilent { server: SERVER, waited })));
    stage.lock_commands();
    stage.read_block(0);
    grant_one(&mut stage);
    assert_eq!(stage.commands().len(), 1);
}

#[test]
fn without_a_lock_server_such_a_volume_is_not_served() {
    let mut stage = Stage::with_lock_servers(Ordering::CallbackLock, 0, Acquisition::Ordered);
    let op = stage.read_block(0);
    assert_eq!(stage.outcome(op), Some(Err(HostError::NoLockServer)));
}

#[test]
fn device_locks_of_a_read_are_given_back_behind_the_users_back() {
    let mut stage = Stage::raid5(Ordering::DeviceLock);
    let op = stage.read_block(0);
    let commands = stage.commands();
    let [(device, Command::Read { .. })] = &commands[..] else { panic!("lock and read: {commands:?}") };
    let (id, _) = subject(&commands[0].1);
    stage.accept_all(&commands, 4);
    assert!(matches!(stage.outcome(op), Some(Ok(HostSuccess::Data(_)))), "answered before the unlock");
    stage.pass(Duration::from_millis(3));
    let (to, request) = stage.sent.pop().expect("the unlock");
    assert_eq!((to, &request.commits[..]), (*device, &[id.sequence][..]));
    stage.confirm(*device, vec![id.sequence]);
    assert!(stage.host.is_idle());
}

#[test]
fn a_device_lock_that_times_out_gives_up_the_others_and_backs_off() {
    let mut stage = Stage::raid5(Ordering::DeviceLock);
    stage.write_block(0, 1);
    let commands = stage.commands();
    assert_eq!(commands.len(), 2);
    stage.accept_all(&commands[..1], 0);
    stage.refuse(&commands[1], Step::Prewrite, Refusal::LockTimeout);
    let undone = stage.commands();
    let [(device, Command::Decide { outcome: Outcome::Abort, .. })] = undone[..] else { panic!("{undone:?}") };
    assert_eq!(device, commands[0].0);
    assert!(stage.commands().is_empty(), "the operation backs off");
    stage.pass(Duration::from_millis(10));
    assert_eq!(stage.commands().iter().filter(|(_, command)| matches!(command, Command::Prewrite { .. })).count(), 2);
    assert_eq!(stage.host.counters().restarts, 1);
}

#[test]
fn a_lock_stays_until_an_abort_is_known_also_to_a_device_that_promised_nothing() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    stage.write_block(0, 1);
    let held = grant_one(&mut stage);
    let (transaction, [full, other]) = play_reads(&mut stage);
    // A copy of this write may be accepted when there is room again. So both devices are to promise an abort.
    stage.answer(full, Reply::Refused { transaction, step: Step::Write, refusal: Refusal::Busy });
    let asked = stage.commands();
    assert_eq!(asked.iter().map(|(device, _)| *device).collect::<Vec<_>>(), [full, other]);
    assert!(asked.iter().all(is_retract), "{asked:?}");
    let unlock = (SERVER, LockCommand::Unlock { lock_id: held });
    stage.accept_all(&asked[..1], 0);
    assert!(!stage.lock_commands().contains(&unlock), "a device may still accept a write of it");
    stage.accept_all(&asked[1..], 0);
    assert!(stage.lock_commands().contains(&unlock));
}

#[test]
fn a_lock_is_given_back_though_no_device_can_promise_for_the_stamp_of_a_clock_that_leapt() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    let right = stage.now.clock;
    stage.now.clock = right.ahead(Duration::from_secs(365 * 86_400));
    let op = stage.write_block(0, 1);
    let held = grant_one(&mut stage);
    let (transaction, [first, second]) = play_reads(&mut stage);
    for device in [first, second] {
        let refusal = Refusal::TooFarAhead { clock: right };
        stage.answer(device, Reply::Refused { transaction, step: Step::Write, refusal });
    }
    assert!(matches!(stage.outcome(op), Some(Err(HostError::ClockApart { .. }))));
    let retracted = stage.commands();
    assert!(retracted.iter().all(is_retract), "{retracted:?}");
    // The transaction is resolved if one of them says that another host knows of its intent.
    stage.answer(first, Reply::Vote { transaction, vote: Vote::Prepared });
    assert!(stage.commands().iter().all(is_resolve));
    let too_far_ahead = Reply::Vote { transaction, vote: Vote::TooFarAhead { clock: right } };
    stage.answer(first, too_far_ahead.clone());
    assert!(stage.commands().is_empty(), "this device's clock may be wrong, and the other device prepared");
    stage.answer(second, too_far_ahead.clone());
    assert!(stage.commands().is_empty(), "the monitor may yet report that other devices accepted such stamps");
    let begun = stage.now.time;
    let aborts = loop {
        stage.pass(Duration::from_millis(100));
        let asked = stage.commands();
        if asked.iter().any(|(_, command)| matches!(command, Command::Decide { .. })) {
            break asked;
        }
        for (device, _) in asked {
            stage.answer(device, too_far_ahead.clone());
        }
        assert!(stage.now.time.since(begun) < Duration::from_secs(10), "asked for two leases of devices at most");
    };
    assert_eq!(aborts.len(), 2, "{aborts:?}");
    stage.accept_all(&aborts, 0);
    assert!(stage.lock_commands().contains(&(SERVER, LockCommand::Unlock { lock_id: held })));
}

#[test]
fn a_device_whose_own_clock_is_far_behind_is_asked_again() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    stage.write_block(0, 1);
    grant_one(&mut stage);
    let (transaction, [behind, other]) = play_reads(&mut stage);
    let clock = Clock(0);
    stage.answer(behind, Reply::Refused { transaction, step: Step::Write, refusal: Refusal::TooFarAhead { clock } });
    stage.answer(other, Reply::Vote { transaction, vote: Vote::Prepared });
    stage.commands();
    stage.answer(behind, Reply::Vote { transaction, vote: Vote::TooFarAhead { clock } });
    stage.answer(other, Reply::Vote { transaction, vote: Vote::Prepared });
    assert!(stage.commands().is_empty());
    stage.pass(Duration::from_secs(1));
    let asked = stage.commands();
    assert!(!asked.is_empty() && asked.iter().all(|(device, _)| *device == behind), "{asked:?}");
    // The device has received a copy of the write when its clock was right again.
    stage.answer(behind, Reply::Vote { transaction, vote: Vote::Prepared });
    let commits = stage.commands();
    assert!(commits.iter().all(|(_, command)| matches!(command, Command::Decide { outcome: Outcome::Commit, .. })));
    assert_eq!(commits.len(), 2);
}

/// Locks of ranges at two lock servers, by pieces of 1 MiB, one of which falls silent.
#[test]
fn a_silent_lock_server_ends_the_locks_that_it_has_granted_and_no_others() {
    let mut stage = Stage::with_lock_servers(Ordering::ServerLock, 2, Acquisition::Ordered);
    let (living, silent, lease) = (LockServerId(0), LockServerId(1), Settings::default().host_lease);
    let range = |stage: &mut Stage, start, count| {
        let extents = vec![LockExtent { position: 0, range: BlockRange::new(start, count), mode: LockMode::Exclusive }];
        let wait = Some(Duration::from_secs(60));
        stage.ask(RangesRequest::Lock { object: ObjectId(2), extents, over: None, width: 0, wait })
    };
    let grants = |stage: &mut Stage, from: LockServerId| {
        for (server, command) in stage.lock_commands() {
            match command {
                LockCommand::LockRange { lock_id, extents, .. } if server == from => {
                    stage.grant(server, 3, LockReply::GrantedRange { lock_id, extents, waited: false });
                }
                _ => {}
            }
        }
    };
    let locked = |stage: &mut Stage, op| match stage.outcome(op) {
        Some(Ok(HostSuccess::RangeLocked { lock, .. })) => lock,
        other => panic!("not locked: {other:?}"),
    };
    let piece = 1 << 20;
    let one = range(&mut stage, 0, 1);
    let greets = |(server, request): &(LockServerId, LockRequest)| {
        *server == silent && matches!(request.command, LockCommand::Heartbeat { .. })
    };
    assert!(stage.asked.iter().any(greets), "all servers hear of this host");
    grants(&mut stage, living);
    let one = locked(&mut stage, one);
    let other = range(&mut stage, piece, 1);
    grants(&mut stage, silent);
    let other = locked(&mut stage, other);
    let over_both = range(&mut stage, 2 * piece - 1, 2);
    grants(&mut stage, living);
    assert_eq!(stage.outcome(over_both), None, "it is asked at the second server, too");
    let [still_held, lost] = [one, other].map(|lock| stage.ask(RangesRequest::AwaitRecall { lock }));
    for _ in 0..8 {
        stage.pass(lease / 8);
        stage.grant(living, 3, LockReply::Heartbeat { sent: stage.now.time });
    }
    assert_eq!((stage.outcome(still_held), stage.outcome(lost)), (None, Some(Err(HostError::LockLost))));
    let refused = range(&mut stage, piece - 1, 2);
    assert!(
        matches!(stage.outcome(refused), Some(Err(HostError::LockServerSilent { server, .. })) if server == silent)
    );
    let again = range(&mut stage, 5, 1);
    grants(&mut stage, living);
    locked(&mut stage, again);
    // It is heard again, and still knows this host: what is kept counts again.
    stage.grant(silent, 3, LockReply::Heartbeat { sent: stage.now.time });
    let back = range(&mut stage, piece, 1);
    assert_eq!(stage.outcome(back), None, "the program may not have noticed that its lock is lost");
    let unlocked = stage.ask(RangesRequest::Unlock { lock: other });
    assert_eq!(stage.outcome(unlocked), Some(Err(HostError::LockLost)));
    locked(&mut stage, back);
    let survey = |server| {
        let (from, object, waiting) = (Default::default(), None, true);
        RangesRequest::Survey { server, from, object, waiting, wait: lease }
    };
    let op = stage.ask(survey(silent));
    stage.ask(ArrayRequest::Abandon { ops: vec![op] });
    assert_eq!(stage.outcome(op), Some(Err(HostError::Abandoned)));
    let op = stage.ask(survey(LockServerId(7)));
    stage.pass(lease);
    assert!(matches!(stage.outcome(op), Some(Err(HostError::LockServerSilent { .. }))));
}
