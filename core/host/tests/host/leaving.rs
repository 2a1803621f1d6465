//! Graceful disconnect: the last messages of a host, and the time that it waits for answers.

use crate::stage::*;
use crate::story::{Story, Told, raid5, stories};
use braid_machine::JobRequest;

/// A host that has written a block, and leaves; then, this story. The devices do not know of the commit yet.
fn wrote(story: &[(&str, &str)]) -> Story {
    raid5(&[("w writes 0", "#1 pre+read 0 4"), ("all accept", "#1 write 0 4"), ("all accept", "w done")]).told(story)
}

fn left(stage: &mut Stage, op: OpId) -> bool {
    match stage.outcome(op) {
        None => false,
        Some(outcome) => outcome == Ok(HostSuccess::Done) || panic!("{outcome:?}"),
    }
}

#[test]
fn a_host_asks_for_confirmations_again_and_again_but_not_for_long() {
    let Story { mut stage, .. } = wrote(&[]);
    let devices = BTreeSet::from([0, 4].map(DeviceId));
    let op = stage.ask(ArrayRequest::Disconnect);
    stage.sent.clear();
    stage.pass(Duration::from_millis(50));
    let asked: BTreeSet<_> = stage.sent.iter().map(|(device, _)| *device).collect();
    assert!(asked.is_superset(&devices) && stage.sent.len() >= 3 * devices.len(), "{:?}", stage.sent);
    assert!(!left(&mut stage, op));
    stage.pass(Duration::from_millis(960));
    assert!(left(&mut stage, op), "the host does not wait long for a silent device");
}

#[test]
fn a_disconnecting_host_refuses_requests_and_leaves_nothing() {
    let mut told = wrote(&[("d disconnects", "")]);
    let stage = &mut told.stage;
    let (device, request, patience) = (DeviceId(0), ObjectRequest { commands: Vec::new() }, Duration::from_secs(1));
    let refused = [
        stage.read_block(0),
        stage.write_block(8, 2),
        stage.ask(ObjectsRequest::Execute { device, request, patience }),
        stage.ask(JobRequest::Scrub { volume: VOLUME, stripes: 0..1, repair: true, recompute: false }),
    ];
    for asked in refused {
        assert_eq!(stage.outcome(asked), Some(Err(HostError::Disconnecting)));
    }
    assert!(stage.sent.is_empty(), "nothing is sent to devices: {:?}", stage.sent);
    let flush = stage.ask(VolumeRequest::Flush { volume: VOLUME });
    assert_eq!(stage.outcome(flush), Some(Ok(HostSuccess::Done)), "every write is durable");
    // Everything begun before is declared over, and nothing is under way.
    told.goes_on(&[("0 4 confirm #1", "forget 0 4"), ("0 4 forget", "d done"), ("idle?", "yes")]);
    let asked = told.stage.read_block(0);
    assert_eq!(told.stage.outcome(asked), Some(Err(HostError::Disconnecting)), "refused after the disconnect, too");
}

stories! {
    wrote;

    fn a_host_ends_when_its_commits_are_confirmed_and_their_devices_know_that_they_are_over():
        "show heartbeats";
        "d disconnects" => "heartbeat with #1 0 4"; // The commits are told at once.
        "0 confirms #1";
        "4 confirms #1" => "forget 0 4"; // Only the devices that keep something are told.
        "0 forgets";
        "4 forgets" => "d done";
        "idle?" => "yes";

    fn only_devices_that_have_not_confirmed_every_commit_are_asked_for_confirmations():
        "show heartbeats";
        "d disconnects" => "heartbeat with #1 0 4"; // The other devices know of no commit.
        "0 confirms #1";
        "pass 50ms" => "heartbeat 4"; // Less than the interval of heartbeats.
}

stories! {
    raid5;

    fn a_host_that_keeps_nothing_anywhere_ends_at_once():
        "r reads 0" => "#1 read 0";
        "all accept" => "r has 0";
        "d disconnects" => "d done";

    fn a_recovery_coordinator_that_disconnects_abandons_its_requests_and_reports_them_settled():
        "array monitored timestamp";
        "enter 4:returning7" => "ListObjects 0 1 2 3 4";
        "w writes 4" => "#1 read 0 1 2, #1 pre 3 4"; // Its devices have unanswered tasks.
        "all accept" => "#1 write 3 4";
        "all accept" => "w done";
        "d disconnects";
        "3 4 confirm #1" => "forget 3 4";
        "3 4 forget" => "d done";

    fn cached_locks_are_given_back_until_that_is_confirmed():
        "array callback-lock";
        "w writes 0" => "lock A XX cached";
        "grant A" => "#1 read 0 4";
        "all accept" => "#1 write 0 4";
        "all accept" => "w done";
        "d disconnects";
        "0 4 confirm #1" => "forget 0 4, unlock A";
        "0 4 forget";
        "unlocked A" => "d done";
        "locks?" => "0";

    fn a_host_for_which_there_is_no_room_tries_again_until_its_time_is_up():
        "r reads 0" => "#1 read 0";
        "s reads 0" => "#2 read 0";
        "0 rejects TooManyHosts";
        "pass 1s" => "#1 read 0, #2 read 0";
        "0 accepts #1" => "r has 0"; // The device had room again.
        "0 rejects TooManyHosts";
        "pass 30s" => "#2 read 0, s Rejected"; // The reason is reported.
}
