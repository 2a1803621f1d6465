//! Changes of the membership, and their effects on each phase of a transaction (`docs/membership.md`). The tests play
//! the monitor.
//!
//! Block 0 is on device 0, block 1 is on device 1, and their parity is on device 4. A write of one of the blocks is a
//! small write.

use crate::stage::*;
use crate::story::{Story, Told, monitored, stories, tell};
use braid_wire::MonitorCommand;

/// A write of block 0 whose pre-writes were accepted, and whose writes are sent; then, this story.
fn writing(story: &[(&str, &str)]) -> Story {
    monitored(&[("w writes 0", "#1 pre+read 0 4"), ("all accept", "#1 write 0 4")]).told(story)
}

/// One device refuses its write while the other has its intent; the host aborts.
fn aborting(story: &[(&str, &str)]) {
    writing(&[("4 accepts", ""), ("0 refuses NoPrewrite", "#1 abort 4")]).goes_on(story);
}

#[test]
fn no_operation_begins_before_the_membership_is_known() {
    let stage = Stage::started(Ordering::Timestamp, 0, braid_host::Acquisition::Ordered, true);
    let mut told = tell(stage, &[("w writes 0", ""), ("pass 1s", "")]);
    let asked = told.stage.monitored.len();
    assert!(asked > 5, "the host asks often: {asked}");
    told.stage.news(Membership::first((0..5).map(DeviceId)));
    told.goes_on(&[("pass 1s", "#1 pre+read 0 4"), ("all accept", "#1 write 0 4"), ("all accept", "w done")]);
}

#[test]
fn an_epoch_of_the_same_devices_only_has_requests_sent_again() {
    writing(&[("0 accepts", ""), ("fence 3", "#1 write 4"), ("4 accepts", "w done")]);
    let mut told = writing(&[("0 accepts", "")]);
    let mut fenced = told.stage.next_epoch(&[]);
    fenced.fence.also.insert(Generation(3));
    told.stage.news(fenced);
    assert!(told.stage.sent.iter().all(|(_, request)| request.epoch == Epoch(2)));
}

#[test]
fn answers_of_another_epoch_are_ignored_and_a_later_epoch_is_learned() {
    let Story { mut stage, open: writes, .. } = writing(&[]);
    for epoch in [0, 2] {
        stage.pass(Duration::from_millis(100));
        stage.monitored.clear();
        stage.epoch = Epoch(epoch);
        stage.accept_all(&writes, 0);
        assert_eq!(stage.replies, [], "{epoch}");
        assert_eq!(stage.monitored.is_empty(), epoch == 0, "{epoch}: {:?}", stage.monitored);
    }
}

#[test]
fn an_earlier_membership_changes_nothing() {
    let mut stage = monitored(&[("enter 4:out", "")]).stage;
    let known = stage.host.membership().expect("the host has a membership").clone();
    stage.news(Membership::first((0..5).map(DeviceId)));
    assert_eq!(stage.host.membership(), Some(&known));
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

stories! {
    monitored;

    fn a_request_that_has_sent_no_write_starts_again_with_a_new_plan():
        "w writes 0" => "#1 pre+read 0 4";
        "0 accepts";
        // Nothing is sent to device 4. The parity is not written, so nothing need be read.
        "enter 4:out" => "#1 abort 0, #2 write 0";
        "pass 0s";
        "all accept" => "w done";

    fn a_returning_device_is_written_and_not_read():
        "enter 0:returning";
        "r reads 0" => "#1 read 1 2 3 4";
        "w writes 0" => "#2 pre 0 4, #2 read 1 2 3";
        "all accept #2" => "#2 write 0 4";
        "all accept #2" => "w done";

    fn with_an_unavailable_device_readable_data_is_read_and_other_requests_fail_at_once():
        "lack 0";
        "w writes 0" => "w Unavailable 0"; // The loss of one more device would lose the block.
        "v writes 1" => "#1 pre+read 1 4";
        "r reads 0" => "#2 read 1 2 3 4";
        "all accept #2" => "r has 0";
        "lack 0 2";
        "s reads 0" => "s Unavailable 0 2";
        "lack";
        "t reads 0" => "#3 read 0";

    fn an_operation_that_gets_its_locks_does_not_use_a_device_that_became_unavailable():
        "array monitored server-lock";
        "r reads 0" => "lock A S";
        "w writes 5" => "lock B XX";
        "lack 0" => "unlock A, unlock B, lock C SSSS, w Unavailable 0"; // Block 5 is on device 0, too.
        "pass 0s";
        "grant C" => "#1 read 1 2 3 4";
        "all accept" => "unlock C, r has 0";

    fn writes_on_arrival_are_repeated_for_a_device_that_returned_meanwhile():
        "array monitored consistent timestamp";
        "enter 4:out"; // The device of block 0's parity.
        "w writes 0" => "#1 pre 0";
        "0 accepts" => "#1 write at once 0";
        "enter 4:returning" => "#1 write at once 0";
        "0 accepts" => "#2 pre 0 4, #2 read 1 2 3"; // Device 0 may have listed what device 4 missed already.
        "pass 1ms";
        "all accept" => "#2 write at once 0 4";
        "all accept" => "w done";
}

stories! {
    writing;

    fn a_write_that_is_out_is_resolved_and_its_user_answered_when_all_that_are_left_know():
        "4 accepts";
        "enter 2:out" => "#1 resolve 0 4";
        "0 has written"; // Answers to the write are ignored.
        "0 votes Prepared";
        "4 votes Prepared" => "#1 commit 0 4";
        "0 accepts"; // Not answered while the loss of one device could undo it.
        "4 accepts" => "w done";
        "idle?" => "yes";

    fn a_write_that_can_not_commit_any_more_is_retried_once_the_remaining_devices_know():
        "0 accepts";
        "enter 2:out" => "#1 resolve 0 4";
        "0 votes NeverPrepared" => "#1 abort 0 4";
        "0 accepts";
        "pass 100ms"; // Not retried while a device may still find it committed.
        "4 accepts" => "#2 pre+read 0 4";
        "pass 100ms";

    fn a_host_that_is_kept_out_ends_all_that_it_was_asked():
        "fence 7" => "#1 retract 0 4, w Fenced";
        "r reads 0" => "r Fenced";

    fn a_committed_write_stops_waiting_for_a_device_that_is_out():
        "all accept" => "w done";
        "pass 3ms";
        "0 confirms #1";
        "idle?" => "no";
        "enter 4:out";
        "idle?" => "yes";
        "show heartbeats";
        "pass 2s" => "heartbeat 0 1 2 3 4"; // None of them has a commit.

    fn a_write_is_decided_by_the_others_when_a_device_that_does_not_answer_is_out():
        "0 accepts";
        "pass 1s" => "#1 write 4"; // Only the silent device is asked again.
        "enter 4:out" => "#1 resolve 0"; // Only this device has a vote.
        "0 votes Prepared" => "#1 commit 0"; // Not answered before the outcome is durable.
        "0 accepts" => "w done";
        "count resolved" => "1";
        "idle?" => "yes";
}

stories! {
    aborting;

    fn a_write_that_was_refused_is_tried_again_only_when_all_know_that_it_is_over():
        "pass 3s" => "#1 abort 4";
        "4 accepts" => "#2 pre+read 0 4";
        "pass 100ms";

    fn an_abort_after_writes_is_resolved_in_a_new_epoch_for_another_may_have_found_a_commit():
        "enter 0:out" => "#1 resolve 4"; // The device that refused is out.
        "4 votes Committed" => "#1 commit 4";
        "4 accepts" => "w done";
        "pass 1s";

    fn an_abort_that_meets_a_commit_gives_way():
        "4 says committed" => "#1 resolve 0 4";
        "4 votes Committed" => "#1 commit 0 4";
        "all accept" => "w done";
        "pass 1s";
}
