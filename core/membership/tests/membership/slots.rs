//! The disks of slots: only the recorded disk gets leases, an operator's request replaces it, and the record survives a restart of the
//! monitor.

use crate::bench::*;
use crate::story::{Story, Told, five, stories};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];
const HOST: u32 = 7;

/// Five devices that have been heard for long enough; then, this story.
fn when_steady(parts: &[(&str, &str)]) -> Story {
    five(&[("2s 01234 h7", "")]).told(parts)
}

/// Device 2 is out, and its slot waits for the new disk; then, this story.
fn while_awaiting(parts: &[(&str, &str)]) -> Story {
    when_steady(&[
        ("replace 2 77", "done"),
        ("slot 2", "disk 2, then 77"),
        ("4800ms 01234 h7", "e2: 2 out"),
        ("slot 2", "awaits 77, refuses OtherDisk expected 77"),
    ])
    .told(parts)
}

#[test]
fn slots_are_all_there_after_a_restart() {
    let mut told = while_awaiting(&[
        ("throttle 5000 20", "done"),
        ("spare 90 600", "done"),
        ("restart", ""),
        ("slot 2", "awaits 77"),
        ("3s 0134 h7", ""),
    ]);
    let throttle = RecoveryThrottle { bytes_per_second: 5_000, share: 20, paused: true };
    let (sent, length) = (told.bench.now.time, config(5).settings.device_lease);
    let lease = MonitorReply::Lease { sent, length, throttle, stamps: Clock(0), level: Level::FIRST };
    assert_eq!(told.bench.answer_to(host(HOST)).reply, lease);
    told.goes_on(&[
        ("put 1 55", ""),
        ("asks 1", "JoinRefused OtherDisk expected 0"),
        ("spare 77 5", "DiskInUse device 2"),
        ("unspare 90", "done"),
    ]);
}

#[test]
fn a_device_beside_one_that_is_no_member_stays_in() {
    let mut bench = Bench::off(config(5));
    // Before the monitor serves, it does not know which devices there are.
    bench.adopt(volume(1, RaidLevel::Raid1 { copies: 2 }, &[0, 7]));
    bench.take(Input::Start);
    bench.silent = vec![DeviceId(0)];
    bench.pass_with(LEASE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!(bench.member_state(0), MemberState::In);
}

stories! {
    while_awaiting;

    fn a_replacement_withdrawn_twice_restores_the_first_disk():
        "replace 2 78" => "done";
        "slot 2" => "awaits 78";
        "readmit 2" => "done";
        "slot 2" => "disk 2";
}

stories! {
    when_steady;

    fn an_operator_is_answered_when_it_is_durable():
        "stall";
        "fail 3 as 5" => "no answer";
        "fail 3 as 5" => "no answer";
        "write";
        "answers to h7"; // One copy is not enough.
        "write";
        "answers to h7" => "5: done"; // It was the same request.
        "resume";
        "fail 3" => "done"; // It is done already.
        "4800ms 01234 h7" => "e2: 3 out";
        "slot 3" => "disk 3, kept out";
        "5s 01234 h7";
        "readmit 3" => "done, e3: 3 returning h7";
        "2s 01234 h7";

    fn a_disk_that_the_others_need_is_not_replaced():
        "3s 0123 h7";
        "replace 2 77" => "NeedsOthers others 4";

    fn volumes_without_redundancy_lose_nothing_unasked():
        "adopt 2 raid0:2 12";
        "replace 2 77" => "WouldLose volume 2";
        "replace 2 77 191 lose" => "TooSmall blocks 191 needed 192"; // 256 blocks over four devices, and over two.
        "replace 2 77 192 lose" => "done";

    fn a_device_that_holds_nothing_redundant_is_replaced_as_well():
        "array 2";
        "adopt 2 raid0:2 01";
        "3s 01 h7";
        "fail 0" => "NothingGained";
        "replace 0 77 500 lose" => "done";
        "4800ms 01 h7" => "e2: 0 out";
        "slot 0" => "awaits 77, refuses OtherDisk expected 77";

    fn a_device_whose_witness_is_given_up_does_not_come_back_with_older_content_unasked():
        "array 2";
        "adopt 2 raid1:2 01";
        "3s 01 h7";
        // The first device goes out; later writes are on the second alone, which then fails for good.
        "8800ms 1 h7" => "e2: 0 out";
        "8800ms h7" => "lacking 1";
        "replace 1 77" => "NeedsOthers others 0";
        "replace 1 77 500 lose" => "done, e3: 1 out, lacking none";
        "slot 1" => "awaits 77";
        "17600ms 0 h7";
        "slot 0" => "disk 0, kept out";
        "readmit 0" => "done, e4: 0 returning h7"; // The operator accepts the content of the first.
        "2s 0 h7";

    fn a_late_request_has_no_effect_when_another_one_was_answered_or_its_host_is_fenced():
        "add 7 77 as 50" => "done, e2: 7 out";
        "remove 7 as 51" => "done, e3";
        "add 7 77 as 50" => "no answer"; // It comes late.
        "add 7 77 as 52" => "done, e4: 7 out";
        "remove 7 as 3 by h8" => "done, e5";
        // A duplicate of what was granted, and is undone: it is only answered again.
        "add 7 77 as 52" => "done";
        "member 7" => "no";
        // One request waits while the record with the fence is written; another one comes later.
        "stall";
        "fence 6 7";
        "add 7 77 as 53" => "no answer";
        "resume" => "e6";
        "1s 01234";
        "refuses 7" => "yes";
        "add 7 77 as 54" => "no answer";
        "1s 01234";
        "member 7" => "no";

    fn a_late_copy_has_no_effect_after_a_restart_of_the_monitor():
        "add 7 77 as 50" => "done, e2: 7 out";
        "restart";
        "2s 01234 h7";
        "remove 7 as 3 by h8" => "done, e3";
        "restart";
        "2s 01234 h7";
        "add 7 77 as 50" => "done"; // It was granted, and is only answered again.
        "member 7" => "no";
        "stall"; // A refusal is durable before it is answered.
        "add 8 3 as 51" => "no answer";
        "resume";
        "answers to h7" => "51: DiskInUse device 3";
        "restart";
        "2s 01234 h7";
        "add 8 77 as 51" => "no answer"; // It was refused.
        "member 8" => "no";
        "add 8 77 as 52" => "done, e4: 8 out";

    fn a_device_is_added_and_removed_while_all_goes_on():
        "add 5 3" => "DiskInUse device 3";
        "add 4 77" => "DeviceExists device 4";
        "add 7 77" => "done, e2: 7 out"; // Nothing has changed for the others.
        "add 7 77" => "done"; // It is done already.
        "slot 7" => "awaits 77";
        "put 7 78";
        "asks 7" => "JoinRefused OtherDisk expected 0";
        "put 7 77";
        "3s 012347 h7" => "e3: 7 returning h7";
        "h7 resynchronised 7 e3" => "e4: 7 in since e3";
        "adopt 2 raid1:2 70";
        "remove 7" => "HoldsVolume volume 2";
        "adopt 2 raid1:2 10";
        "1s 012347 h7";
        "leased 7" => "yes";
        "remove 7" => "done, e5";
        "remove 7" => "done"; // It is done already.
        "late 7 e1";
        "heard 7" => "no"; // The device is unknown.
        "restart";
        "member 7" => "no";
        "add 7 77" => "no answer"; // A monitor that has just started has not heard all devices yet.
        "3s 01234 h7" => "e6: 7 out"; // Then it is asked again.
        "slot 7" => "awaits 77";

    fn a_device_may_get_another_disk_in_the_record_that_adds_it():
        "stall";
        "spare 90 1" => "no answer";
        // A record is being written: these are decided together after it.
        "add 9 77" => "no answer";
        "replace 9 78" => "no answer";
        "resume" => "e2: 9 out";
        "slot 9" => "awaits 78";

    fn reports_on_the_old_disk_do_not_let_the_new_one_in():
        "4600ms 0134 h7" => "e2: 2 out";
        // The old disk is heard again, and at the same moment another is assigned to its slot.
        "1s 0134 h7";
        "hear 2";
        "replace 2 77" => "done";
        "3s 0134 h7";
        "slot 2" => "awaits 77";
}

stories! {
    five;

    fn another_disk_gets_no_lease_and_no_membership_and_does_not_hear_which_disk_is_right():
        "put 2 77";
        "asks 2" => "JoinRefused OtherDisk expected 0";
        "slot 2" => "disk 2, refuses OtherDisk expected 2";
        "has 2 e900"; // Whatever epoch it has: it comes from another array, or from an earlier time.
        "asks 2" => "JoinRefused OtherDisk expected 0";
        "put 2 77";
        "4600ms 0134" => "e2: 2 out";
        "memberships told to 2" => "0";
        "put 2 2";
        "3s 01234 h7" => "e3: 2 returning h7"; // Its own disk has returned.

    fn a_volume_is_not_adopted_on_a_device_that_is_being_removed():
        "array 6";
        "adopt 1 raid5:4+1 01234";
        "3s 012345 h7";
        "stall";
        "remove 5" => "no answer";
        "adopt 2 raid1:2 05" => "NoSuchDevice device 5";
        "resume" => "e2";
        "member 5" => "no";
}
