//! Scenarios in which devices are gone for good: blocks that redundancy covers are served and rebuilt, and a dead device does not
//! prevent the return of others.

use crate::story::*;

/// Three copies of each block, on three devices.
fn three_copies(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(ordered(ordering, Options::calm("raid1:3", 3, 2, 6)))
}

/// Reads each block by itself.
fn reads_all(array: &mut Cluster, host: HostSlot) {
    (0..12).for_each(|number| drop(content(array, host, number * BLOCK, BLOCK)));
}

/// An operator has a dead device's disk replaced by an empty one, which is brought at once unless the request is refused.
pub fn ask_to_replace(array: &mut Cluster, host: HostSlot, number: u16, lose: bool) -> HostOutcome {
    let (disk, blocks) = (array.device_notes.new_disk(), array.options.disk_blocks());
    let request = Administration::Replace { device: DeviceId(number), disk, blocks, lose };
    let outcome = administer(array, host, request);
    if outcome.is_ok() {
        array.swap_disk(DeviceId(number), disk);
        array.restart_device(DeviceId(number));
    }
    outcome
}

fn replace(array: &mut Cluster, host: HostSlot, number: u16) {
    assert_eq!(ask_to_replace(array, host, number, false), DONE);
}

#[test]
fn three_copies_do_without_two_and_both_are_replaced() {
    with_each_pair(KEPT_APART, [true, false], three_copies, |array, [a, b], ordering, at_once| {
        array.crash(device(1));
        if !at_once {
            wait_until(array, "the first is out", |array| is_out(array, 1));
            write(array, a, 2 * BLOCK, BLOCK);
        }
        array.crash(device(2));
        let asked = [array.write(a, 0, 2 * BLOCK), array.read(b, 4 * BLOCK, BLOCK)];
        let took = time_of(array, |array| all_succeed(array, asked, ordering));
        assert!(took <= A_LEASE, "{ordering}: no longer than for one");
        assert!([1, 2].iter().all(|number| is_out(array, *number)), "{ordering}");
        write(array, b, 5 * BLOCK, 3 * BLOCK);
        replace(array, a, 1);
        if !at_once {
            wait_in(array, 1);
            write(array, b, 6 * BLOCK, BLOCK);
        }
        replace(array, b, 2);
        write(array, a, 3 * BLOCK, 4 * BLOCK);
        wait_in(array, 1);
        wait_in(array, 2);
    });
}

#[test]
fn a_copy_that_came_back_knows_what_another_has_missed_meanwhile() {
    with_each_pair(KEPT_APART, [false, true], three_copies, |array, [a, b], _, returns_early| {
        lose(array, 1);
        lose(array, 2);
        // Only device 0 receives these writes.
        write(array, a, 0, 3 * BLOCK);
        write(array, b, 7 * BLOCK, 2 * BLOCK);
        array.run_for(Duration::from_secs(1));
        array.restart_device(DeviceId(1));
        if returns_early {
            // The device may receive some blocks before the other device is in, or not.
            array.restart_device(DeviceId(2));
            array.run_for(Duration::from_millis(1_200));
            array.crash(device(2));
        }
        wait_in(array, 1);
        // Device 0 dies, and with it its own record of the blocks that device 2 missed.
        lose(array, 0);
        write(array, a, 4 * BLOCK, BLOCK);
        array.restart_device(DeviceId(2));
        wait_in(array, 2);
        reads_all(array, b);
        array.restart_device(DeviceId(0));
        wait_in(array, 0);
    });
}

/// The coordinator pauses between the resync of one device and that of the next.
#[test]
fn two_copies_that_return_together_are_brought_everything_though_the_third_dies_in_between() {
    let array = || three_copies(Ordering::Timestamp);
    with_each(0..30, array, |array, [a, b], round| {
        lose(array, 1);
        lose(array, 2);
        fill(array, a);
        array.run_for(Duration::from_secs(1));
        array.restart_device(DeviceId(1));
        array.restart_device(DeviceId(2));
        let first_is_in = |array: &Cluster| [1, 2].iter().any(|number| is_in(array, *number));
        wait_until(array, "one of them is in", first_is_in);
        array.run_for(Duration::from_millis(round));
        array.crash(device(0));
        // The recovery coordinator dies, too.
        array.crash(array.node(a));
        wait_until(array, "the third is out", |array| is_out(array, 0));
        wait_in(array, 1);
        wait_in(array, 2);
        reads_all(array, b);
        array.restart_device(DeviceId(0));
        wait_in(array, 0);
    });
}

#[test]
fn the_last_copy_stays_in_and_nothing_is_lost() {
    let (mut array, a, b) = three_copies(Ordering::Timestamp);
    for number in 0..3 {
        array.crash(device(number));
    }
    array.run_for(A_WHILE);
    assert!((0..3).all(|number| is_in(&array, number)), "no remaining device has all blocks");
    array.restart_device(DeviceId(1));
    wait_until(&mut array, "the others are out", |array| [0, 2].iter().all(|number| is_out(array, *number)));
    array.run_for(Duration::from_millis(100));
    write(&mut array, a, 0, 4 * BLOCK);
    for number in [0, 2] {
        array.restart_device(DeviceId(number));
        wait_in(&mut array, number);
    }
    content(&mut array, b, 0, 4 * BLOCK);
    all_is_well(array);
}

#[test]
fn a_dead_device_on_which_nothing_lies_keeps_no_other_one_out() {
    for ordering in KEPT_APART {
        let options = ordered(ordering, Options { other_devices: 1, ..Options::calm("raid5:2+1", 3, 1, 6) });
        let (mut array, a, b) = filled_array_of(options);
        array.crash(device(3));
        lose(&mut array, 1);
        write(&mut array, b, 0, 4 * BLOCK);
        welcome(&mut array, 1);
        assert!(time_of(&mut array, |array| wait_in(array, 1)) < A_LEASE, "{ordering}");
        // The device crashes in the middle of a survey, too.
        array.restart_device(DeviceId(3));
        array.run_for(A_LEASE);
        lose(&mut array, 1);
        write(&mut array, a, BLOCK, BLOCK);
        array.restart_device(DeviceId(1));
        array.crash(device(3));
        wait_in(&mut array, 1);
        array.restart_device(DeviceId(3));
        all_is_well(array);
    }
}

/// Two disks of a longer ring are gone, and some stripes lie on both: the operator gives these up.
#[test]
fn units_only_on_two_lost_disks_of_a_ring_are_given_up_and_the_rest_heals() {
    let layouts = [("raid5:2+1", 5), ("raid1:2", 4)];
    let ring = |(layout, devices)| filled_array_of(Options::calm(layout, devices, 1, 20));
    with_each_pair(layouts, [false, true], ring, |array, [a, b], (layout, _), at_once| {
        array.crash(device(0));
        if !at_once {
            wait_until(array, "the first is out", |array| is_out(array, 0));
        }
        array.crash(device(1));
        array.run_for(A_WHILE);
        // If one device was lost first, it is out. No other device can replace the second one; nor either, if both were lost
        // together.
        assert!(is_out(array, 0) != at_once && is_in(array, 0) == at_once && is_in(array, 1));
        let refused = |other| Err(HostError::AdminError(AdminError::NeedsOthers { others: vec![DeviceId(other)] }));
        if at_once {
            assert_eq!(ask_to_replace(array, a, 0, false), refused(1), "{layout}");
        }
        assert_eq!(ask_to_replace(array, a, 0, at_once), DONE, "{layout}");
        assert_eq!(ask_to_replace(array, b, 1, false), refused(0), "{layout}");
        let serves = Err(HostError::AdminError(AdminError::NeedsOthers { others: vec![DeviceId(0), DeviceId(1)] }));
        if layout == "raid5:2+1" {
            assert_eq!(ask_to_replace(array, b, 2, true), serves, "{layout}: this device is alive");
        }
        array.gives_up = true;
        assert_eq!(ask_to_replace(array, b, 1, true), DONE, "{layout}");
        wait_in(array, 0);
        wait_in(array, 1);
        // Only the stripes with units on both devices have lost blocks.
        let volume = array.volume().clone();
        let blocks = volume.layout.data_units() as u64;
        for stripe in 0..volume.stripes() {
            let data = (0..blocks).map(|unit| volume.layout.data_unit(stripe, unit as usize).position);
            let parity = volume.layout.redundancy_unit(stripe, 0).position;
            let is_broken = data.clone().chain([parity]).filter(|place| [0, 1].contains(place)).count() == 2;
            for (number, place) in (stripe * blocks..).zip(data) {
                let outcome = outcome_of_read(array, a, number * BLOCK);
                if is_broken && [0, 1].contains(&place) {
                    let lost = matches!(outcome, Err(HostError::Device { failure: Failure::Lost { .. }, .. }));
                    assert!(lost, "{layout}: block {number} is lost, and reads must report that: {outcome:?}");
                } else {
                    assert!(outcome.is_ok(), "{layout}: block {number} is there: {outcome:?}");
                }
            }
        }
        // After a write the content is complete again, with its redundancy.
        fill(array, b);
    });
}
