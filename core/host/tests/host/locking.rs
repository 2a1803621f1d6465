//! Locks: when a host requests them, how it proceeds meanwhile, and when it releases them.

use crate::stage::*;
use crate::story::{Told, stories, tell};
use braid_base::BlockRange;
use braid_machine::RangesRequest;
use braid_wire::locking::{LockExtent, LockMode, LockTerm};

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

/// A block's write under a lock, whose writes are sent; then, this story.
fn writing(story: &[(&str, &str)]) {
    let parts = [("w writes 0", "lock A XX"), ("grant A", "#1 read 0 4"), ("all accept", "#1 write 0 4")];
    tell(Stage::raid5(Ordering::ServerLock), &parts).goes_on(story);
}

/// A host of an array of this kind.
fn alone(story: &[(&str, &str)]) {
    tell(Stage::raid5(Ordering::ServerLock), story);
}

#[test]
fn a_revoked_lock_is_returned_after_its_last_user_and_gets_no_new_one() {
    let mut told = tell(
        Stage::raid5(Ordering::CallbackLock),
        &[
            ("w writes 0", "lock A XX cached"),
            ("grant A", "#1 read 0 4"),
            // It is in use.
            ("revoke A", ""),
            // The reader waits for the writer of its own host.
            ("r reads 0", ""),
            ("all accept", "#1 write 0 4"),
            ("all accept", "yield A, lock B S cached, w done"),
        ],
    );
    told.stage.grant(SERVER, 3, LockReply::Revoke { lock_ids: vec![77] });
    let yielded = LockCommand::Yield { lock_ids: vec![77] };
    assert_eq!(told.stage.lock_commands(), [(SERVER, yielded)], "an unknown lock is not held");
}

#[test]
fn a_restarted_server_is_told_all_held_locks_before_it_grants_new_ones() {
    let mut stage = Stage::raid5(Ordering::CallbackLock);
    for block in [0, 16] {
        stage.write_block(block, 1);
        stage.grant_one();
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
fn a_lock_is_given_back_though_no_device_can_promise_for_the_stamp_of_a_clock_that_leapt() {
    let mut stage = Stage::raid5(Ordering::ServerLock);
    let right = stage.now.clock;
    stage.now.clock = right.ahead(Duration::from_secs(365 * 86_400));
    let op = stage.write_block(0, 1);
    let held = stage.grant_one();
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

stories! {
    writing;

    fn under_a_servers_lock_a_write_locks_everything_first_and_unlocks_at_its_commit():
        "all accept" => "unlock A, w done";
        "idle?" => "no"; // The unlock is sent until it is answered.
        "pass 600ms" => "unlock A";
        "unlocked A";
        "locks?" => "0";

    fn a_lock_stays_until_an_abort_is_known_also_to_a_device_that_promised_nothing():
        // A copy of this write may be accepted when there is room again. So both devices are to promise an abort.
        "0 refuses Busy" => "#1 retract 0 4";
        "0 accepts"; // A device may still accept a write of it.
        "4 accepts" => "unlock A, lock B XX";

    fn a_device_whose_own_clock_is_far_behind_is_asked_again():
        "0 refuses TooFarAhead of 0" => "#1 retract 0 4, w ClockApart";
        "4 votes Prepared" => "#1 resolve 0 4";
        "0 votes TooFarAhead of 0";
        "4 votes Prepared";
        "pass 1s" => "#1 resolve 0";
        // The device has received a copy of the write when its clock was right again.
        "0 votes Prepared" => "#1 commit 0 4";
}

stories! {
    alone;

    fn cached_locks_are_reused_without_a_message_until_their_lease_expires():
        "array callback-lock";
        "w writes 0" => "lock A XX cached";
        "grant A" => "#1 read 0 4";
        "all accept" => "#1 write 0 4";
        "all accept" => "w done";
        "r reads 0" => "#2 read 0"; // An exclusive lock covers reads.
        "all accept =1" => "r has 1";
        "pass 4s";
        "s reads 0" => "lock B S cached";
        "locks?" => "1";

    fn a_silent_lock_server_ends_in_an_error_and_holds_up_nothing_later():
        "r reads 0" => "lock A S";
        "pass 29s" => "lock A S";
        "pass 2s" => "lock A S, unlock A, r LockServerSilent 0 in 30s";
        "s reads 0" => "lock B S";
        "grant B" => "#1 read 0";

    fn a_device_lock_that_times_out_gives_up_the_others_and_backs_off():
        "array device-lock";
        "w writes 0" => "#1 pre+read 0 4";
        "0 accepts";
        "4 refuses LockTimeout" => "#1 abort 0";
        "pass 10ms" => "#2 pre+read 0 4";
        "count restarts" => "1";

    fn several_servers_are_asked_in_turn():
        "array with 3 servers in turn";
        "r reads 0+200" => "lock A 19S";
        "grant A" => "lock B 24S at 1";
        "grant B" => "lock C 19S at 2";
        "grant C" => "#1 read 0 1 2 3 4";

    fn a_refused_lock_request_returns_the_others_and_all_are_retried_later():
        "array with 3 servers at once";
        "r reads 0+200" => "lock A 19S impatient, lock B 24S impatient at 1, lock C 19S impatient at 2";
        "grant A";
        "time out B" => "unlock A, unlock C at 2";
        "count restarts" => "1";
        "pass 70ms" => "lock D 19S impatient, lock E 24S impatient at 1, lock F 19S impatient at 2";

    fn without_a_lock_server_such_a_volume_is_not_served():
        "array with 0 servers in turn";
        "r reads 0" => "r NoLockServer";

    fn device_locks_of_a_read_are_given_back_behind_the_users_back():
        "array device-lock";
        "r reads 0" => "#1 read 0";
        "0 accepts =4" => "r has 4"; // Answered before the unlock.
        "show heartbeats";
        "pass 3ms" => "heartbeat with #1 0";
        "0 confirms #1";
        "idle?" => "yes";
}
