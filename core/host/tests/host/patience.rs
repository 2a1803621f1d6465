//! Operations of endless patience, and what protects a write whose outcome is unknown. The tests play the devices, the lock server and
//! the monitor.
//!
//! Block 0 is on device 0, block 1 is on device 1, and their parity is on device 4. A write of one of the blocks is a small write.

use crate::stage::*;
use crate::story::{Story, Told, monitored, stories, tell};

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A write whose writes are sent; then, this story.
fn writing(stage: Stage, write: &str, story: &[(&str, &str)]) -> Story {
    tell(stage, &[(write, "#1 pre+read 0 4"), ("all accept", "#1 write 0 4")]).told(story)
}

/// A write of endless patience that got so far.
fn endless(story: &[(&str, &str)]) -> Story {
    writing(Stage::with_monitor(Ordering::Timestamp), "w writes 0 endless", story)
}

/// One that waits for devices for a minute.
fn for_a_minute(story: &[(&str, &str)]) -> Story {
    writing(Stage::with_monitor(Ordering::Timestamp), "w writes 0 minute", story)
}

#[test]
fn a_patient_request_waits_for_missing_devices_and_goes_on_by_itself() {
    for is_out in [false, true] {
        let (enter, lack, fails) = match is_out {
            true => ("enter 0:out", "lack 4", "a Unavailable 4"),
            false => ("pass 0s", "lack 0 4", "a Unavailable 0 4"),
        };
        let mut told = monitored(&[
            (enter, ""),
            (lack, ""),
            ("a writes 0", fails),
            ("b reads 0", "b Unavailable 0 4"),
            ("w writes 0 endless", ""),
            ("r reads 0 endless", ""),
            // Nothing is asked of the others meanwhile.
            ("pass 1h", ""),
            ("count prolonged", "240"),
        ]);
        let (count, longest, lacking) = told.stage.host.waiting(told.stage.now.time);
        assert!(count == 2 && longest >= AN_HOUR, "{count} have waited, {longest:?} at most");
        assert_eq!(lacking.into_iter().map(|device| device.0).collect::<Vec<_>>(), [0, 4]);
        told.stage.lack(&[]);
        if is_out {
            told.stage.enter(&[(0, MemberState::In)]);
        }
        told.goes_on(&[("serve w r", "w done, r has 0")]);
        assert_eq!(told.stage.host.waiting(told.stage.now.time).0, 0);
    }
}

#[test]
fn a_request_with_a_limit_waits_that_long_and_then_names_the_missing_devices() {
    let mut told =
        monitored(&[("lack 0 4", ""), ("w writes 0 minute", ""), ("r reads 0 minute", ""), ("pass 59s", "")]);
    assert_eq!(told.stage.host.waiting(told.stage.now.time).0, 2);
    // What can be served is.
    told.goes_on(&[("s reads 1", "#1 read 1"), ("1 accepts =3", "s has 3")]);
    told.goes_on(&[("pass 1s", "w Unavailable 0 4, r Unavailable 0 4")]);
    assert_eq!(told.stage.host.waiting(told.stage.now.time).0, 0);
    // Those that are asked later, and those whose devices return in time, succeed.
    told.goes_on(&[("w writes 0 minute", ""), ("r reads 0 minute", ""), ("pass 30s", "")]);
    told.stage.lack(&[]);
    told.goes_on(&[("serve w r", "w done, r has 0")]);
}

#[test]
fn its_intents_hold_back_nobody_while_it_waits_and_it_is_written_once_all_are_known() {
    let mut told = endless(&[("0 accepts", ""), ("lack 4", "#1 retract 0 4")]);
    assert!(told.stage.host.waiting(told.stage.now.time).2.contains(&DeviceId(4)), "it can't end without");
    told.goes_on(&[
        ("0 accepts", ""),
        // Device 4 may have an intent.
        ("pass 1h", "#1 retract 4"),
        ("lack", ""),
        ("4 accepts", "#2 pre+read 0 4"),
        ("serve w", "w done"),
    ]);
}

#[test]
fn a_silent_device_ends_its_attempts_and_never_the_operation() {
    for ordering in [Ordering::Timestamp, Ordering::DeviceLock] {
        println!("{ordering}");
        let story = [
            ("0 accepts", ""),
            ("pass 29s", "#1 write 4"),
            ("pass 2s", "#1 write 4, #1 retract 0 4"),
            ("pass 1h", "#1 retract 0 4"),
            ("serve w", "w done"),
        ];
        writing(Stage::raid5(ordering), "w writes 0 endless", &story);
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
        (0..2).for_each(|_| stage.accept_sent(0));
        assert_eq!(stage.outcome(write), DONE, "{ordering}");
    }
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
fn a_patient_write_resolved_in_a_new_epoch_is_answered_with_its_outcome() {
    let resolved = [("enter 4:out", "#1 resolve 0"), ("pass 1h", "#1 resolve 0")];
    endless(&resolved).goes_on(&[("0 votes Prepared", "#1 commit 0"), ("0 accepts", "w done")]);
    endless(&resolved).goes_on(&[
        ("0 votes NeverPrepared", "#1 abort 0"),
        ("0 accepts", "#2 pre 0"),
        ("serve w", "w done"),
    ]);
}

#[test]
fn a_patient_request_ends_when_its_user_is_gone_or_the_host_disconnects() {
    for (ends, waits, written, leaves) in [
        ("abandon w v", "v Abandoned", "w Abandoned", ""),
        ("d disconnects", "v Disconnecting", "forget 0 4, w Disconnecting", "forget 0 4, d done"),
    ] {
        endless(&[
            ("lack 1", ""),
            ("v writes 1 endless", ""),
            ("pass 20s", "#1 write 0 4"),
            // Its attempt goes on: a device may have a write of it.
            (ends, waits),
            ("0 refuses TooLate", "#1 abort 4"),
            ("all accept", written),
            // It makes no further attempt.
            ("pass 1s", leaves),
        ]);
    }
}

#[test]
fn their_number_is_bounded_below_that_of_all_operations() {
    let mut stage = Stage::with_monitor(Ordering::Timestamp);
    stage.lack(&[0, 4]);
    let all: Vec<_> = (0..=braid_base::limits::PATIENT_OPERATIONS_MAX).map(|_| stage.read_endless(0)).collect();
    assert_eq!(stage.outcome(all[all.len() - 1]), Some(Err(HostError::Busy)));
    assert_eq!(stage.outcome(all[0]), None);
    // Others have room.
    tell(stage, &[("r reads 1", "#1 read 1"), ("1 accepts", "r has 0")]);
}

stories! {
    monitored;

    fn a_request_with_a_limit_needs_no_device_that_has_answered():
        "lack 0 4";
        "w writes 0 minute";
        "pass 55s";
        "lack" => "#1 pre+read 0 4";
        "all accept" => "#1 write 0 4";
        "0 accepts";
        "lack 0";
        "pass 6s" => "#1 write 4"; // The answer of the other device is waited for.
        "4 accepts" => "w done";

    fn a_fenced_host_answers_that_at_once():
        "lack 0 4";
        "w writes 0 endless";
        "r reads 0 endless";
        "fence below 8" => "w Fenced, r Fenced";
        "w writes 0 endless" => "w Fenced";

    fn without_ordering_a_later_write_waits_for_one_of_unknown_outcome():
        "array none";
        "w writes 0" => "#1 read 0 4";
        "all accept" => "#1 write at once 0 4";
        "0 accepts";
        "pass 31s" => "#1 write at once 4, w TimedOut 4 in 30s";
        "v writes 0"; // Its copies may still arrive; a read does no harm.
        "r reads 1" => "#2 read 1";
        "pass 1s" => "#1 write at once 4, #2 read 1";
        "4 accepts";
        "serve v r" => "v done, r has 0";
}

stories! {
    for_a_minute;

    fn a_write_with_a_limit_is_never_written_twice():
        "enter 0:out 4:in" => "#1 resolve 4";
        "enter 4:out 0:in" => "w Unavailable 0 4"; // Its outcome can't be known.
        "count repeated" => "0";

    fn a_write_with_a_limit_that_is_under_way_has_the_host_s_time_out_after_it():
        "0 accepts";
        "pass 61s" => "#1 write 4, #1 retract 0 4"; // The other device is silent.
        "pass 30s" => "#1 retract 0 4, w TimedOut 0 4 in 90s";

    fn a_write_with_a_limit_that_is_under_way_fails_earlier_if_the_monitor_misses_the_device_too():
        "0 accepts";
        "pass 59s" => "#1 write 4, #1 retract 0 4";
        "lack 0 4";
        "pass 2s" => "#1 retract 0 4, w Unavailable 0 4";
}

stories! {
    endless;

    fn an_error_is_told_only_when_nothing_can_happen_any_more():
        "0 accepts";
        "4 fails NoSpace" => "#1 retract 0 4"; // The other device has an intent.
        "all accept" => "w NoSpace 4";
        "v writes 0 endless" => "#2 pre+read 0 4"; // A device that can't now may be able to later.
        "all accept" => "#2 write 0 4";
        "0 fails Disk" => "#2 retract 0 4";
        "all accept" => "#3 pre+read 0 4";
        "serve v" => "v done";

    fn a_write_is_repeated_if_all_its_devices_were_out_before_its_outcome_was_known():
        "enter 0:out 4:in" => "#1 resolve 4";
        "enter 4:out 0:in" => "#2 pre 0";
        "count repeated" => "1";
        "serve w" => "w done";
}

/// Neither time nor another host makes the host release the lock. A later write of the same host waits: at the lock server, or behind the
/// lock that is in use here.
#[test]
fn a_write_of_unknown_outcome_keeps_its_lock_until_it_is_decided() {
    let implied = ("", "write", "#1 write 4, #1 retract 0 4", "#1 retract 0 4", "all accept #1");
    let consistent = (" consistent", "write at once", "#1 write at once 4", "#1 write at once 4", "4 accepts");
    for ((atomicity, write, ends, repeats, decided), cached) in
        [(implied, ""), (consistent, ""), (implied, " cached"), (consistent, " cached")]
    {
        let ordering = if cached.is_empty() { "server-lock" } else { "callback-lock" };
        let begins = [
            (&format!("array monitored{atomicity} {ordering}")[..], ""),
            ("w writes 0", &format!("lock A XX{cached}")),
            ("grant A", "#1 read 0 4"),
            ("all accept", &format!("#1 {write} 0 4")),
            ("0 accepts", ""),
            ("pass 31s", &format!("{ends}, w TimedOut 4 in 30s")),
        ];
        let waits = format!("{repeats}, lock B XX");
        let mut told = tell(Stage::raid5(Ordering::ServerLock), &begins);
        if cached.is_empty() {
            told.goes_on(&[
                ("pass 1h", repeats),
                ("v writes 0", "lock B XX"),
                ("pass 2s", &waits),
                (decided, "unlock A"),
            ]);
        } else {
            told.goes_on(&[("revoke A", ""), ("pass 1h", repeats), ("v writes 0", ""), ("pass 2s", repeats)]);
            told.goes_on(&[(decided, "yield A, lock B XX cached")]);
        }
    }
}
