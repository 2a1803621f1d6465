//! Scenarios in which the monitor dies, is cut off, or receives messages that others don't: all nodes must agree on the membership.

use crate::story::*;
use braid_world::CrashPoint;

/// Makes the monitor lose power, and restarts it after a while.
fn restart_monitor_after(array: &mut Cluster, span: Duration) {
    array.crash(NodeId::Monitor);
    array.run_for(span);
    array.restart_monitor();
}

#[test]
fn an_epoch_that_was_written_and_never_sent_is_in_effect_when_the_monitor_is_back() {
    let times = [Duration::from_millis(1), Duration::from_secs(7)];
    with_each(times, filled_timestamp_array, |array, [a, b], unavailable| {
        array.world.network.drop_if(|_, _, message| is_news(message));
        array.crash(device(4));
        let asked = array.write(a, 0, BLOCK);
        wait_until(array, "the device is out", |array| epoch(array) == 2);
        // The device returns at this moment, and knows no membership.
        array.restart_device(DeviceId(4));
        restart_monitor_after(array, unavailable);
        array.world.network.heal();
        assert_eq!(array.finish(asked), DONE);
        write(array, b, 4 * BLOCK, BLOCK);
        wait_in(array, 4);
    });
}

#[test]
fn a_monitor_that_dies_while_it_writes_an_epoch_has_either_written_it_or_not() {
    let points = [1, 2, 3].into_iter().flat_map(|count| [CrashPoint::Write(count), CrashPoint::Sync(count)]);
    for point in points {
        for device_returns in [false, true] {
            let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
            disk(&mut array, NodeId::Monitor).crash_at(point);
            array.crash(device(4));
            let asked = array.write(a, 0, BLOCK);
            // Some points are never reached, if the monitor has fewer writes.
            array.run_for(Duration::from_secs(6));
            if device_returns {
                array.restart_device(DeviceId(4));
            }
            if array.membership().is_none() {
                array.restart_monitor();
            }
            assert_eq!(array.finish(asked), DONE, "{point:?}");
            disk(&mut array, NodeId::Monitor).spare();
            write(&mut array, b, 4 * BLOCK, BLOCK);
            if !device_returns {
                wait_out(&mut array, 4);
                array.restart_device(DeviceId(4));
            }
            array.run_for(Duration::from_secs(2));
            if array.membership().is_none() {
                array.restart_monitor();
            }
            all_is_well_with(array, 4);
        }
    }
}

#[test]
fn without_its_monitor_the_array_pauses_after_a_lease_and_loses_nothing() {
    with_each(KEPT_APART, filled_array_by, |array, [a, b], ordering| {
        array.crash(NodeId::Monitor);
        let begun = array.world.now();
        while array.world.now().since(begun) < Duration::from_secs(3) {
            write(array, a, 0, BLOCK);
            write(array, b, 4 * BLOCK, 4 * BLOCK);
            array.run_for(Duration::from_millis(10));
        }
        array.run_for(Duration::from_secs(2));
        let asked = [array.write(a, 0, BLOCK), array.write(b, BLOCK, BLOCK), array.read(b, 4 * BLOCK, 4 * BLOCK)];
        array.run_for(Duration::from_secs(5));
        assert_eq!(array.requests.asked().count(), 3, "{ordering}: no device serves without a lease");
        array.restart_monitor();
        assert!(time_of(array, |array| all_succeed(array, asked, ordering)) < A_LEASE, "{ordering}");
        array.run_for(A_WHILE);
        assert_eq!(epoch(array), 1, "{ordering}: no device was silent for too long");
    });
}

#[test]
fn a_device_that_dies_while_the_monitor_is_down_is_marked_out_a_lease_after_its_return() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    array.crash(NodeId::Monitor);
    array.crash(device(0));
    let asked = array.write(a, 0, BLOCK);
    array.run_for(Duration::from_secs(9));
    array.restart_monitor();
    array.run_for(Duration::from_millis(3_900));
    assert_eq!(epoch(&array), 1, "the monitor can't know that the device has no lease");
    assert_eq!(array.finish(asked), DONE);
    assert!(is_out(&array, 0));
    write(&mut array, b, 4 * BLOCK, 4 * BLOCK);
    all_is_well_back_with(array, 0);
}

#[test]
fn a_device_that_can_not_reach_the_monitor_serves_no_more_when_it_is_out() {
    with_each(KEPT_APART, filled_array_by, |array, [a, b], ordering| {
        // This host receives nothing from the monitor either, so it continues in the old epoch.
        let cut = [array.node(b), device(0)];
        cut_off(array, NodeId::Monitor, &cut);
        let answers = watch(array, |from, _, message| {
            use Reply::{Accepted, Data, Heartbeat, Written};
            let served =
                |reply: &Reply| matches!(reply, Accepted { .. } | Data { .. } | Heartbeat { .. } | Written { .. });
            from == device(0) && is_answer(message, served)
        });
        wait_out(array, 0);
        answers.set(0);
        // Block 5 is on device 0, too, but in another stripe, because locks of a lock server would block other hosts.
        let theirs = array.write(b, 5 * BLOCK, BLOCK);
        write(array, a, 0, BLOCK);
        content(array, a, 0, 4 * BLOCK);
        array.run_for(Duration::from_secs(5));
        assert!(answers.get() == 0, "{ordering}: a device without a lease must not answer");
        array.world.network.heal();
        assert_eq!(array.finish(theirs), DONE);
        wait_in(array, 0);
    });
}

#[test]
fn a_device_that_the_monitor_hears_and_does_not_reach_is_marked_out() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    array.world.network.cut(NodeId::Monitor, device(4));
    let asked = [array.write(a, 0, BLOCK), array.read(b, 4 * BLOCK, BLOCK)];
    array.run_for(A_LEASE);
    let late = [array.write(b, BLOCK, BLOCK), array.read(a, 9 * BLOCK, BLOCK)];
    all_succeed(&mut array, asked.into_iter().chain(late), "the monitor does not reach a device");
    assert!(is_out(&array, 4));
    array.world.network.heal();
    all_is_well_with(array, 4);
}

/// Writes repeatedly; returns the longest duration of a write.
fn write_for(array: &mut Cluster, host: HostSlot, span: Duration) -> Duration {
    let end = array.world.now().after(span);
    let mut longest = Duration::ZERO;
    while array.world.now() < end {
        longest = longest.max(time_of(array, |array| write(array, host, 0, BLOCK)));
        array.run_for(Duration::from_millis(10));
    }
    longest
}

#[test]
fn a_device_that_receives_nothing_costs_users_a_lease_and_a_second() {
    with_each(0..6, filled_timestamp_array, |array, [a, b], phase| {
        array.run_for(Duration::from_millis(phase * 90));
        for from in [array.node(a), array.node(b), NodeId::Monitor] {
            array.world.network.cut(from, device(4));
        }
        let longest = write_for(array, a, Duration::from_secs(12));
        assert!(longest > Duration::from_secs(4) && longest <= A_LEASE, "{longest:?}");
        assert!(is_out(array, 4));
        array.world.network.heal();
        wait_in(array, 4);
    });
}

/// Devices that have not adopted a new epoch yet receive requests of that epoch: these must not be repeated only half a second later.
#[test]
fn an_epoch_costs_users_no_more_than_it_takes_all_devices_to_take_it_over() {
    with_each(KEPT_APART, filled_array_by, |array, [a, _], ordering| {
        array.crash(device(4));
        let longest = write_for(array, a, Duration::from_secs(8));
        assert!(longest < Duration::from_millis(4_600), "{ordering}: {longest:?}");
        array.restart_device(DeviceId(4));
        let longest = write_for(array, a, Duration::from_secs(8));
        assert!(longest < Duration::from_millis(150), "{ordering}: {longest:?}");
        assert!(is_in(array, 4));
    });
}

#[test]
fn a_device_that_hosts_cannot_reach_costs_them_one_pause_however_long_that_lasts() {
    with_each([false, true], filled_timestamp_array, |array, [a, b], back_too| {
        for host in [array.node(a), array.node(b)] {
            array.world.network.cut(host, device(4));
            if back_too {
                array.world.network.cut(device(4), host);
            }
        }
        let longest = write_for(array, a, Duration::from_secs(8));
        assert!(longest > Duration::from_secs(4) && longest < A_LEASE + Duration::from_secs(2), "{longest:?}");
        let longest = write_for(array, b, Duration::from_secs(30));
        assert!(longest < Duration::from_millis(100), "{longest:?}");
        assert_eq!((member_state(array, 4), epoch(array)), (Some(MemberState::Out), 2));
        array.world.network.heal();
        wait_in(array, 4);
    });
}

#[test]
fn a_host_that_cannot_reach_a_returning_device_does_not_keep_it_from_coming_back() {
    let array = || array_by(Ordering::Timestamp);
    with_each([false, true], array, |array, [a, b], also_another| {
        array.add_host();
        fill(array, a);
        lose(array, 4);
        write(array, b, 4 * BLOCK, 4 * BLOCK);
        // This host would be the recovery coordinator; it can't reach the device, or another device from which it has to read.
        let (oldest, cut) = (array.node(a), if also_another { 0 } else { 4 });
        cut_off(array, oldest, &[device(cut)]);
        array.run_for(Duration::from_secs(2));
        array.restart_device(DeviceId(4));
        wait_in(array, 4);
    });
}

#[test]
fn a_device_that_finds_no_space_on_its_return_is_done_without_until_it_does() {
    let (mut array, a, b) = array_of(Options::calm("raid5:2+1", 3, 16, 100));
    let stripe = 32 * BLOCK;
    lose(&mut array, 2);
    write(&mut array, a, 0, stripe);
    welcome(&mut array, 2);
    disk(&mut array, device(2)).set_full(true);
    let mut longest = Duration::ZERO;
    for number in 1..100 {
        longest = longest.max(time_of(&mut array, |array| write(array, b, number * stripe, stripe)));
    }
    assert!(longest > Duration::from_secs(4) && longest < A_LEASE + Duration::from_secs(1), "{longest:?}");
    let begun = epoch(&array);
    array.run_for(Duration::from_secs(120));
    assert!(epoch(&array) - begun < 20, "the device returns later each time: {}", epoch(&array) - begun);
    disk(&mut array, device(2)).set_full(false);
    wait_in(&mut array, 2);
    for number in 0..100 {
        content(&mut array, a, number * stripe, stripe);
    }
}

#[test]
fn one_host_of_three_that_reaches_no_device_or_not_all_has_no_device_marked_out() {
    let array = || array_by(Ordering::Timestamp);
    with_each([0..5, 4..5], array, |array, [a, b], unreached| {
        let c = array.add_host();
        fill(array, a);
        let (cut, devices) = (array.node(c), unreached.clone().map(device).collect::<Vec<_>>());
        cut_off(array, cut, &devices);
        let theirs = array.write(c, 0, BLOCK);
        array.run_for(Duration::from_secs(14));
        assert_eq!(epoch(array), 1, "not reached: {unreached:?}");
        write(array, a, 0, BLOCK);
        write(array, b, 4 * BLOCK, 4 * BLOCK);
        array.world.network.heal();
        assert_eq!(array.finish(theirs), DONE);
    });
}

#[test]
fn leases_use_clocks_that_are_never_set() {
    const YEAR: i64 = 365 * 86_400 * 1_000_000_000;
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    array.world.step_clock(NodeId::Monitor, YEAR);
    array.run_for(Duration::from_secs(6));
    array.world.step_clock(NodeId::Monitor, -2 * YEAR);
    array.run_for(Duration::from_secs(6));
    write(&mut array, b, 0, BLOCK);
    // The monitor's computer reboots, and its timers' clock starts at any value.
    for reading in [Time(0), Time(1 << 60)] {
        array.crash(NodeId::Monitor);
        array.world.reboot_clock(NodeId::Monitor, reading);
        array.run_for(Duration::from_secs(1));
        array.restart_monitor();
        array.run_for(Duration::from_secs(6));
        write(&mut array, a, 0, BLOCK);
    }
    assert_eq!(epoch(&array), 1);
    lose(&mut array, 0);
    write(&mut array, a, 0, BLOCK);
    // The device's computer reboots, too.
    array.world.reboot_clock(device(0), Time(1 << 60));
    all_is_well_back_with(array, 0);
}

#[test]
fn heartbeats_alone_change_nothing() {
    let (mut array, _, _) = filled_array_by(Ordering::Timestamp);
    let changed = watch(&mut array, |_, _, message| match message {
        Message::Request(request) => request.command != Command::Heartbeat,
        Message::MonitorAnswer(answer) => answer.membership.is_some(),
        _ => false,
    });
    array.run_for(Duration::from_secs(60));
    assert_eq!((changed.get(), epoch(&array)), (0, 1));
    all_is_well(array);
}
