//! Devices that are silent, or that hosts cannot reach: marked out if the others can serve without them.

use crate::bench::*;
use crate::story::{Told, five, stories, tell};

#[test]
fn a_device_that_hosts_cannot_reach_gets_no_more_leases_and_is_taken_out() {
    let mut bench = Bench::new();
    let all = nodes(&[0, 1, 2, 3, 4], &[7, 8]);
    bench.pass_with(SECOND, &all);
    bench.silent = vec![DeviceId(3)];
    bench.pass_with(SECOND * 3, &all);
    assert!(!bench.gets_lease(device(3)));
    assert_eq!(bench.member_state(3), MemberState::In, "it may still be serving");
    bench.silent = vec![];
    bench.pass_with(SECOND, &all);
    assert!(bench.gets_lease(device(3)), "it was for less than a lease's length");
    bench.silent = vec![DeviceId(3)];
    bench.pass_with(LEASE + NOTICE, &all);
    assert_eq!((bench.member_state(3), bench.monitor.counters().taken_out), (MemberState::Out, 1));
    // It reaches the monitor, but that is useless to hosts.
    bench.pass_with(SECOND * 100, &all);
    assert_eq!((bench.member_state(3), bench.monitor.counters().readmitted), (MemberState::Out, 0));
    // When hosts reach it again, it returns; each time after a longer delay.
    let mut outs = Vec::new();
    for _ in 0..400 {
        bench.silent = if bench.member_state(3) == MemberState::Out { vec![] } else { vec![DeviceId(3)] };
        bench.pass_with(SECOND / 2, &all);
        outs.push(bench.member_state(3) == MemberState::Out);
    }
    let stays: Vec<_> = outs.chunk_by(|a, b| a == b).filter(|run| run[0]).map(|run| run.len() / 2).collect();
    assert!(stays.len() > 3 && stays[1..stays.len() - 1].windows(2).all(|pair| pair[1] > pair[0]), "{stays:?}");
    assert!(bench.unavailable().is_empty());
}

#[test]
fn a_device_whose_disk_is_failing_serves_on_while_the_others_need_it() {
    // Another device is out.
    five(&[("20s 0234 h7", "e2: 1 out"), ("failing 3", ""), ("20s 0234 h7", ""), ("leased 3", "yes")]);
    // If two disks fail, the others can serve without one of the devices.
    let mut told = five(&[("failing 1 3", "")]);
    for second in 0..20 {
        told.bench.pass_with(SECOND, &nodes(&[0, 1, 2, 3, 4], &[7]));
        assert!(told.bench.gets_lease(device(3)) && told.bench.unavailable().is_empty(), "after {second} s");
    }
    told.goes_on(&[("hear 0", "e2: 1 out")]);
    // No volume there has redundancy.
    let mut bench = Bench::of(2);
    bench.adopt(volume(1, RaidLevel::Raid0 { data: 2 }, &[0, 1]));
    tell(bench, &[("failing 1", ""), ("20s 01 h7", ""), ("leased 1", "yes")]);
}

#[test]
fn reports_of_few_hosts_are_not_believed_for_a_while() {
    let mut told = five(&[]);
    for round in 0..20 {
        // One host of three reports it all the time, and all three now and then.
        let others = if round % 4 == 0 { "silent 3" } else { "silent" };
        told.goes_on(&[("silent 3", ""), ("hear h7", ""), (others, ""), ("hear h8 h9", ""), ("1s 01234", "")]);
    }
    told.goes_on(&[("leased 3", "yes")]);
}

/// What suspended the monitor may have suspended devices, too. They are given as much time as the pause has taken, up to a lease.
#[test]
fn a_suspended_monitor_waits_for_devices_that_wake_after_it() {
    for (pause, patience) in [(SECOND, SECOND), (SECOND * 3, SECOND * 3), (LEASE * 4, SECOND * 4)] {
        let mut bench = Bench::new();
        bench.pass_with(SECOND * 5, &nodes(&[0, 1, 2, 3, 4], &[7]));
        // The two have been silent for a lease already when the others are suspended.
        bench.pass_with(LEASE - SECOND / 2, &nodes(&[0, 1, 2], &[7]));
        bench.now.time = bench.now.time.after(pause);
        bench.pass_with(patience - SECOND / 4, &nodes(&[0, 1, 2], &[7]));
        assert_eq!(bench.unavailable(), [], "{pause:?}");
        bench.pass_with(SECOND, &nodes(&[0, 1, 2], &[7]));
        assert_eq!(bench.unavailable(), [3, 4], "{pause:?}");
    }
}

stories! {
    five;

    fn of_two_that_fall_silent_together_none_is_taken_out():
        "hear 2";
        "500ms";
        "hear 3";
        "8800ms 014 h7" => "lacking 2 3"; // Nothing is written while they are silent, so they miss nothing.

    /// The monitor was cut off from all nodes; then it hears one after the other.
    fn the_device_heard_last_after_a_long_silence_is_not_marked_out_for_it():
        "8800ms" => "lacking 0 1 2 3 4";
        "hear 0" => "lacking 1 2 3 4";
        "200ms";
        "hear 1" => "lacking 2 3 4";
        "200ms";
        "hear 2" => "lacking 3 4";
        "200ms";
        "hear 3" => "lacking 4";
        "200ms";
        "hear 4" => "lacking none";
        "2s 01234";
        "8800ms" => "lacking 0 1 2 3 4";
        "2s 0123" => "e2: 4 out, lacking none"; // A device that stays silent is marked out.

    /// The monitor was suspended: messages that arrived meanwhile are queued, and those of some nodes are read late.
    fn a_suspended_monitor_listens_before_it_marks_a_device_out():
        "hear 0";
        "250ms";
        "hear 1234";
        "suspended for 4275ms";
        "hear 1234";
        "250ms"; // Nor does it report a device as unavailable.
        "hear 0";
        "2s 01234";

    fn a_device_that_says_it_is_of_no_use_is_taken_out_a_lease_later_and_returns_when_it_is():
        "hear 3";
        "unable 3";
        "leased 3" => "no";
        "4399ms 01234 h7 h8"; // It may still be serving.
        "1ms" => "e2: 3 out";
        "20s 01234 h7 h8";
        "unable";
        "1s 01234 h7 h8" => "e3: 3 returning h7";
        "leased 3" => "yes";

    fn reports_of_fenced_or_ended_hosts_do_not_count():
        "silent 3";
        "hear h7";
        "12s 01234"; // The host reported it once, and was not heard again.
        "fence 9 7" => "e2";
        "12s 01234 h7";

    /// A partition cuts the network between hosts and devices in half.
    fn two_devices_that_hosts_cannot_reach_keep_their_leases():
        "silent 1 3";
        "20s 01234 h7";
        "leased 1" => "yes";
        "leased 3" => "yes";
        "silent"; // Nor is a lease refused to a device that the others need, because another device is gone.
        "20s 0234 h7" => "e2: 1 out";
        "silent 3";
        "20s 0234 h7";
        "leased 3" => "yes";

    fn groups_that_share_no_stripe_each_do_without_one():
        "array 6";
        "adopt 1 raid5:2+1 012345";
        "1s 012345";
        "4600ms 1245" => "e2: 0 out 3 out"; // Changes that are due together make one epoch.

    /// The first of the messages that arrived meanwhile is one of a host: what devices sent is not read yet.
    fn a_suspended_monitor_tells_the_host_that_it_hears_first_of_no_unavailable_device():
        "5s 01234 h7";
        "suspended for 5400ms";
        "told h7" => "none";

    /// Otherwise a lock server would have no host fenced that keeps locks, as long as an empty device is dead.
    fn lock_servers_hear_only_of_unavailable_devices_on_which_volumes_lie():
        "array 4";
        "adopt 1 raid1:2 01";
        "1s 0123 h7";
        "adopt 2 raid0:2 02";
        "4600ms 01 h7" => "lacking 2 3";
        "told h7" => "2 3";
        "told s0" => "2";

    fn a_silent_device_is_taken_out_when_its_lease_has_run_out():
        "hear 2";
        "4399ms 0134 h7"; // It may still be serving.
        "1ms" => "e2: 2 out";
        "changes told to 01234 h7" => "e2 e2 e2 e2 e2 e2"; // All nodes are told.
        "asks 2" => "Changed, and e2"; // The device does not serve.
        "has 2 e2";
        "asks 2" => "Changed";
}
