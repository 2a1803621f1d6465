//! Scenarios of hosts that sleep and wake, and of clocks that are set wrong: a node that missed something must learn of it before it
//! does harm.

use crate::story::*;

const AN_HOUR: Duration = Duration::from_secs(3_600);
const YEAR: i64 = 365 * 86_400 * 1_000_000_000;

/// A host starts to write block 0, its devwrites are delayed by more than an hour, and it sleeps for an hour.
fn fall_asleep_writing(array: &mut Cluster, host: HostSlot) -> OpId {
    let sleeper = array.node(host);
    let late = AN_HOUR + Duration::from_secs(10);
    array.world.network.delay_if(late, move |from, _, message| from == sleeper && is_write(message));
    let asked = array.write(host, 0, BLOCK);
    array.run_for(Duration::from_millis(20));
    array.world.stall(sleeper, AN_HOUR);
    array.world.network.heal();
    asked
}

#[test]
fn a_host_that_sleeps_for_an_hour_does_no_harm_when_it_wakes_nor_do_its_late_packets() {
    with_each([Ordering::Timestamp, Ordering::DeviceLock], array_by, |array, [a, b], _| {
        fill(array, b);
        let asked = fall_asleep_writing(array, a);
        array.run_for(Duration::from_secs(10));
        // Other hosts write there, and device 4, which has the parity, crashes and returns.
        write(array, b, 0, 4 * BLOCK);
        lose(array, 4);
        write(array, b, 0, BLOCK);
        bring_back(array, 4);
        write(array, b, BLOCK, BLOCK);
        array.run_for(AN_HOUR);
        array.finish(asked).ok();
        // The packets sent an hour ago arrive.
        array.run_for(Duration::from_secs(20));
        write(array, a, 2 * BLOCK, BLOCK);
    });
}

#[test]
fn a_host_that_sleeps_for_an_hour_with_locks_is_kept_out_when_it_wakes() {
    with_each([Ordering::ServerLock, Ordering::CallbackLock], array_by, |array, [a, b], ordering| {
        fill(array, b);
        fall_asleep_writing(array, a);
        write(array, b, 0, 4 * BLOCK);
        lose(array, 4);
        write(array, b, 0, BLOCK);
        array.run_for(AN_HOUR);
        assert_eq!(array.fenced(), [a], "{ordering}");
        bring_back(array, 4);
        assert_eq!(outcome_of_read(array, a, 0), Err(HostError::Fenced), "{ordering}");
        replace_host(array, a);
        array.run_for(Duration::from_secs(20));
    });
}

#[test]
fn a_device_suspended_past_its_lease_serves_no_request_before_it_is_renewed() {
    with_each([Duration::from_secs(6), AN_HOUR], filled_timestamp_array, |array, [a, b], span| {
        // Requests of the old epoch wait for the device, and one host continues in that epoch.
        array.world.stall(device(0), span);
        let late = array.node(b);
        array.world.network.cut(NodeId::Monitor, late);
        let theirs = array.read(b, 5 * BLOCK, BLOCK);
        write(array, a, 0, BLOCK);
        write(array, a, 5 * BLOCK, BLOCK);
        array.run_for(span);
        array.world.network.heal();
        array.finish(theirs).ok();
        wait_in(array, 0);
        content(array, b, 0, 8 * BLOCK);
    });
}

/// Writes zeros to block 9, not as part of the history: if they took effect, the final check would find them.
fn refused_for_its_clock(array: &mut Cluster, host: HostSlot) {
    let outcome = zero(array, host, 9 * BLOCK, BLOCK);
    assert!(matches!(outcome, Err(HostError::ClockApart { .. })), "{outcome:?}");
}

#[test]
fn a_host_whose_clock_jumps_a_year_ahead_and_steps_back_continues_without_harm() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    let jumper = array.node(b);
    for degraded in [false, true] {
        if degraded {
            lose(&mut array, 4);
        }
        array.world.step_clock(jumper, YEAR);
        refused_for_its_clock(&mut array, b);
        write(&mut array, a, 0, BLOCK);
        array.world.step_clock(jumper, -YEAR);
        let begun = array.world.now();
        write(&mut array, b, 0, 2 * BLOCK);
        write(&mut array, a, BLOCK, BLOCK);
        content(&mut array, b, 0, 4 * BLOCK);
        assert!(array.world.now().since(begun) < Duration::from_secs(1));
    }
    all_is_well_back_with(array, 4);
}

#[test]
fn a_device_whose_clock_jumps_a_year_ahead_and_steps_back_goes_on() {
    with_each([false, true], filled_timestamp_array, |array, [a, b], restarted| {
        array.world.step_clock(device(4), YEAR);
        if restarted {
            restart(array, 4);
        }
        for round in 0..6 {
            write(array, a, round * BLOCK, 2 * BLOCK);
            content(array, b, 4 * BLOCK, 4 * BLOCK);
            array.run_for(Duration::from_secs(4));
        }
        array.world.step_clock(device(4), -YEAR);
        if restarted {
            restart(array, 4);
        }
        for round in 0..6 {
            write(array, b, round * BLOCK, 2 * BLOCK);
            content(array, a, 4 * BLOCK, 4 * BLOCK);
        }
        assert_eq!(epoch(array), 1);
    });
}

#[test]
fn a_device_whose_clock_is_a_year_behind_refuses_and_says_why_until_it_is_set_right() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    array.world.step_clock(device(4), -YEAR);
    array.run_for(Duration::from_secs(20));
    // Block 9 is on device 4.
    refused_for_its_clock(&mut array, a);
    refused_for_its_clock(&mut array, b);
    write(&mut array, a, 5 * BLOCK, BLOCK);
    array.world.step_clock(device(4), YEAR);
    write(&mut array, b, 8 * BLOCK, 4 * BLOCK);
    assert_eq!(epoch(&array), 1);
    all_is_well(array);
}

#[test]
fn clocks_that_run_at_different_rates_make_no_lease_end_too_late() {
    let (mut array, a, _) = array_by(Ordering::Timestamp);
    // One per cent fast: far more than any real clock deviates.
    let fast = array.add_host_with(LocalClock::exact(array.world.now()).drifting(10_000));
    fill(&mut array, a);
    for number in [0, 4] {
        lose(&mut array, number);
        write(&mut array, fast, 0, 4 * BLOCK);
        array.restart_device(DeviceId(number));
        wait_in(&mut array, number);
        write(&mut array, a, 0, BLOCK);
    }
    all_is_well(array);
}

/// Steps all wall clocks by the same amount.
fn step_all(array: &mut Cluster, by: i64) {
    for node in array.world.nodes() {
        array.world.step_clock(node, by);
    }
}

/// Both hosts write and read blocks that were used while the clocks were ahead, and blocks that were not; each operation must end
/// within seconds.
fn goes_on_at_once(array: &mut Cluster, hosts: [HostSlot; 2], what: &str) {
    let begun = array.world.now();
    for (round, host) in hosts.into_iter().cycle().take(4).enumerate() {
        write(array, host, round as u64 * BLOCK, BLOCK);
        write(array, host, (6 + round as u64) * BLOCK, 2 * BLOCK);
        content(array, host, 0, 12 * BLOCK);
    }
    let took = array.world.now().since(begun);
    assert!(took < Duration::from_secs(5), "{what}: {took:?}");
}

#[test]
fn an_array_goes_on_at_once_when_all_its_clocks_were_ahead_and_are_set_right() {
    for ordering in KEPT_APART {
        for ahead in [60_000_000_000, 3_600_000_000_000, YEAR] {
            for restarted in [false, true] {
                let (mut array, a, b) = filled_array_by(ordering);
                step_all(&mut array, ahead);
                // Two of the five devices see a stamp of that time.
                write(&mut array, a, 0, BLOCK);
                array.run_for(Duration::from_millis(2));
                step_all(&mut array, -ahead);
                if restarted {
                    (0..5).for_each(|number| array.crash(device(number)));
                    restart_monitor(&mut array);
                    (0..5).for_each(|number| array.restart_device(DeviceId(number)));
                }
                goes_on_at_once(&mut array, [b, a], &format!("{ordering}, {ahead} ns, restarted: {restarted}"));
                // The same holds when devices remember only the highest stamp.
                array.run_for(Duration::from_secs(25));
                goes_on_at_once(&mut array, [a, b], &format!("{ordering}, {ahead} ns, later"));
                all_is_well(array);
            }
        }
    }
}

#[test]
fn writes_left_while_all_clocks_were_ahead_are_resolved_when_they_are_right() {
    with_each([Ordering::Timestamp, Ordering::ServerLock], filled_array_by, |array, [a, b], _| {
        step_all(array, 3_600_000_000_000);
        // Data is on device 0 and parity on device 4, whose devwrite never arrives.
        die_between_two_writes(array, a);
        step_all(array, -3_600_000_000_000);
        let took = time_of(array, |array| drop(content(array, b, 0, BLOCK)));
        assert!(took < Duration::from_secs(10), "it takes a lease, or ten seconds if a host holds locks: {took:?}");
        write(array, b, 0, BLOCK);
    });
}

#[test]
fn a_host_whose_clock_stays_wrong_is_refused_at_once_also_after_all_clocks_were() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    step_all(&mut array, 60_000_000_000);
    write(&mut array, a, 0, BLOCK);
    step_all(&mut array, -60_000_000_000);
    write(&mut array, a, 0, 4 * BLOCK);
    let jumper = array.node(b);
    array.world.step_clock(jumper, YEAR);
    let took = time_of(&mut array, |array| refused_for_its_clock(array, b));
    assert!(took < Duration::from_secs(1));
    write(&mut array, a, 0, 4 * BLOCK);
    array.world.step_clock(jumper, -YEAR);
    write(&mut array, b, 0, BLOCK);
    all_is_well(array);
}

#[test]
fn a_write_whose_stamp_stays_too_far_ahead_is_sent_again_at_intervals_only() {
    for ordering in [Ordering::ServerLock, Ordering::CallbackLock] {
        let options = Options {
            ordering,
            atomicity: Atomicity::Consistent,
            lock_servers: 1,
            ..Options::calm("raid5:4+1", 5, 1, 3)
        };
        let (mut array, _, b) = filled_array_of(options);
        // Devices hear of stamps that others have accepted from the monitor.
        (0..5).for_each(|number| array.world.network.cut(NodeId::Monitor, device(number)));
        step_all(&mut array, 60_000_000_000);
        // Two of the five devices accept a stamp of that time, and no later stamp of this host is lower.
        write(&mut array, b, 4 * BLOCK, BLOCK);
        step_all(&mut array, -60_000_000_000);
        let (writer, sent) = (array.node(b), Rc::new(Cell::new(0)));
        let count = sent.clone();
        array.world.network.set_rule(move |from, to, message| {
            if to == writer && is_written(message) {
                // The host does not hear yet that the two devices accept this stamp, too.
                return Verdict::Delay(Duration::from_millis(500));
            }
            if from != writer || !is_write(message) {
                return Verdict::Pass;
            }
            count.set(count.get() + 1);
            assert!(count.get() < 100, "every refusal sends the write again");
            Verdict::Double
        });
        // A whole stripe is written without reads. The other three devices refuse it.
        let asked = array.write(b, 0, 4 * BLOCK);
        array.run_for(Duration::from_secs(1));
        assert!(sent.get() > 5, "{ordering}: it is sent again");
        array.world.network.heal();
        assert_eq!(array.finish(asked), DONE, "{ordering}");
        all_is_well(array);
    }
}
