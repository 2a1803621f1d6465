//! Scenarios of intents, commits, aborts and clocks, with timestamp ordering.

use crate::story::*;

const SECOND: i64 = 1_000_000_000;

fn array() -> (Cluster, HostSlot, HostSlot) {
    array_by(Ordering::Timestamp)
}

#[test]
fn a_commit_is_hurried_only_to_the_device_where_a_request_waits_for_it() {
    let (mut array, a, b) = array();
    let writer = array.node(a);
    let to_4 = watch(&mut array, move |from, to, message| {
        let is_told = from == writer && carries_commits(message);
        assert!(!is_told || to == device(4), "{to} is told");
        is_told
    });
    write(&mut array, a, 0, BLOCK);
    // Both blocks have their parity on device 4.
    write(&mut array, b, BLOCK, BLOCK);
    assert_eq!(to_4.get(), 1);
    all_is_well(array);
}

#[test]
fn a_host_that_sleeps_through_its_lease_does_not_write_twice() {
    let (mut array, a, b) = array();
    // One answer to its devwrites is late, and the host falls asleep: other hosts resolve the transaction, commit it, and write
    // again.
    array.world.network.drop_if(|from, _, message| from == device(0) && is_written(message));
    let first = array.write(a, 0, BLOCK);
    array.run_for(Duration::from_millis(20));
    let sleeper = array.node(a);
    array.world.stall(sleeper, Duration::from_secs(10));
    array.world.network.heal();
    assert_eq!(outcome_of_write(&mut array, b, 0, BLOCK), DONE, "the transaction of the sleeping host was resolved");
    assert_eq!(array.finish(first), DONE, "the sleeping host learns that it is committed");
    all_is_well(array);
}

/// An array whose second host has a wall clock that is off by `by`.
fn array_with_clock_off(by: i64) -> (Cluster, HostSlot, HostSlot) {
    let (mut array, a, _) = array();
    let mut clock = LocalClock::exact(Time(77));
    clock.step(by);
    let off = array.add_host_with(clock);
    array.run_for(Duration::from_millis(100));
    (array, a, off)
}

#[test]
fn a_host_whose_clock_is_an_hour_behind_or_four_seconds_ahead_is_served_beside_others() {
    with_each([-3_600 * SECOND, 4 * SECOND], array_with_clock_off, |array, [a, off], ahead| {
        let (first, second) = if ahead < 0 { (a, off) } else { (off, a) };
        for round in 0..8 {
            write(array, first, round * BLOCK, 2 * BLOCK);
            write(array, second, round * BLOCK, BLOCK);
        }
    });
}

#[test]
fn a_host_whose_clock_is_an_hour_ahead_gets_the_error_that_clocks_differ() {
    let (mut array, a, fast) = array_with_clock_off(3_600 * SECOND);
    write(&mut array, a, 0, BLOCK);
    let outcome = outcome_of_read(&mut array, fast, 0);
    assert!(matches!(outcome, Err(HostError::ClockApart { .. })), "{outcome:?}");
    assert!(outcome.unwrap_err().to_string().contains("clock of this host"), "the error names the host's clock");
    assert_eq!(outcome_of_write(&mut array, a, 0, BLOCK), DONE, "other hosts are not affected");
    array.world.step_clock(array.node(fast), -3_600 * SECOND);
    all_is_well(array);
}
