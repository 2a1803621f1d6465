//! Scenarios with more failures than redundancy covers: requests that can be served are served, others fail with an error that says
//! why, and no data is lost.

use crate::losses::ask_to_replace;
use crate::story::*;

/// Two groups of three devices, each with stripes of two blocks: stripe 0 is on devices 0, 1 and 2, the next one on 3, 4 and 5.
fn two_groups(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    filled_array_of(ordered(ordering, Options::calm("raid5:2+1", 6, 1, 6)))
}

/// Restarts these devices. All is well when they are in.
fn all_is_well_when_restarted(mut array: Cluster, numbers: &[u16]) {
    numbers.iter().for_each(|number| array.restart_device(DeviceId(*number)));
    numbers.iter().for_each(|number| wait_in(&mut array, *number));
    all_is_well(array);
}

#[test]
fn two_failures_in_a_group_leave_what_can_be_read_and_the_other_group() {
    with_each(KEPT_APART, two_groups, |array, [a, b], ordering| {
        // Stripe 0: block 0 on device 0, block 1 on device 1, its parity on device 2.
        let there = content(array, a, BLOCK, BLOCK);
        array.crash(device(0));
        array.crash(device(2));
        let asked = [array.read(a, 0, BLOCK), array.write(b, BLOCK, BLOCK)];
        let begun = array.world.now();
        for op in asked {
            let outcome = array.finish(op);
            assert!(lacks(&outcome, &[0, 2]), "{ordering}: {outcome:?}");
        }
        let took = array.world.now().since(begun);
        assert!(took > Duration::from_secs(3) && took <= A_LEASE, "{ordering}: {took:?}");
        assert_eq!((epoch(array), content(array, b, BLOCK, BLOCK)), (1, there), "{ordering}");
        // The other group is not affected.
        write(array, b, 2 * BLOCK, 2 * BLOCK);
        write(array, a, 3 * BLOCK, BLOCK);
        for host in [a, b] {
            let (read, write) = (array.read(host, 0, 2 * BLOCK), array.write(host, BLOCK, BLOCK));
            assert!(lacks(&array.finish(read), &[0, 2]), "{ordering}: either device would suffice");
            assert!(lacks(&array.finish(write), &[0, 2]), "{ordering}: the new parity depends on block 0");
        }
        // One of the two devices is enough.
        array.restart_device(DeviceId(0));
        wait_out(array, 2);
        array.run_for(Duration::from_millis(100));
        write(array, a, 0, 2 * BLOCK);
        write(array, b, 4 * BLOCK, BLOCK);
        bring_back(array, 2);
    });
}

#[test]
fn one_failure_in_each_of_two_groups_blocks_no_request() {
    let (mut array, a, b) = two_groups(Ordering::Timestamp);
    array.crash(device(1));
    lose(&mut array, 5);
    array.run_for(Duration::from_secs(1));
    assert!(is_out(&array, 1));
    for number in 0..6 {
        write(&mut array, a, number * 2 * BLOCK, BLOCK);
        write(&mut array, b, number * 2 * BLOCK, 2 * BLOCK);
        content(&mut array, a, number * 2 * BLOCK, 2 * BLOCK);
    }
    all_is_well_when_restarted(array, &[1, 5]);
}

#[test]
fn a_device_that_missed_writes_does_not_stand_in_for_one_that_has_them() {
    with_each(KEPT_APART, two_groups, |array, [a, b], ordering| {
        lose(array, 0);
        write(array, a, 0, 2 * BLOCK);
        array.run_for(Duration::from_secs(1));
        // The device with the parity, without which block 0 can't be reconstructed now.
        array.crash(device(2));
        array.run_for(Duration::from_secs(8));
        assert!(is_in(array, 2), "no device can replace it");
        welcome(array, 0);
        array.run_for(Duration::from_secs(8));
        for host in [a, b] {
            let (old, whole) = (array.read(host, 0, BLOCK), array.read(host, 0, 2 * BLOCK));
            assert!(lacks(&array.finish(old), &[0, 2]), "{ordering}: the returned device has only old content");
            assert!(lacks(&array.finish(whole), &[0, 2]), "{ordering}");
            let write = array.write(host, BLOCK, BLOCK);
            assert!(lacks(&array.finish(write), &[2]), "{ordering}: a write must be readable afterwards");
            content(array, host, BLOCK, BLOCK);
        }
        array.restart_device(DeviceId(2));
        wait_in(array, 0);
        for host in [a, b] {
            content(array, host, 0, 2 * BLOCK);
        }
        write(array, b, 0, BLOCK);
    });
}

/// On a ring longer than a stripe, some stripes use both of two failed devices, and some only one of them.
#[test]
fn on_a_longer_ring_stripes_that_have_lost_one_device_are_read_though_not_all_can_be_written() {
    let (mut array, a, b) = filled_array_of(Options::calm("raid5:2+1", 4, 1, 8));
    lose(&mut array, 0);
    array.crash(device(1));
    array.run_for(Duration::from_secs(8));
    assert!(is_in(&array, 1));
    let layout = array.volume().layout;
    for stripe in 0..8 {
        let data = (0..2).map(|unit| layout.data_unit(stripe, unit).position);
        let mut gone: Vec<_> =
            data.chain([layout.redundancy_unit(stripe, 0).position]).filter(|place| *place < 2).collect();
        gone.sort_unstable();
        let offset = stripe * 2 * BLOCK;
        let (read, write) = (array.read(b, offset, 2 * BLOCK), array.write(a, offset, 2 * BLOCK));
        let (read, write) = (array.finish(read), array.finish(write));
        match gone[..] {
            [0] => assert_eq!(
                (read.is_ok(), write),
                (true, DONE),
                "stripe {stripe} is served without device 0, which is out"
            ),
            [1] => assert!(read.is_ok() && lacks(&write, &[1]), "stripe {stripe} is read: {write:?}"),
            _ => {
                let data_gone = (0..2).any(|unit| layout.data_unit(stripe, unit).position < 2);
                assert!(read.is_err() == data_gone && write.is_err(), "stripe {stripe}: {read:?}, {write:?}");
            }
        }
    }
    array.restart_device(DeviceId(1));
    array.run_for(Duration::from_secs(1));
    for stripe in 0..8 {
        write(&mut array, b, stripe * 2 * BLOCK, BLOCK);
    }
    all_is_well_back_with(array, 0);
}

/// One of these devices is dead and no host reaches the other one, which has a lease. Nothing lies on either.
#[test]
fn a_device_returns_whoever_is_missing_of_those_that_share_no_volume_with_it() {
    let options = Options { other_devices: 2, ..Options::calm("raid5:2+1", 6, 1, 6) };
    let (mut array, a, _) = filled_array_of(options);
    lose(&mut array, 0);
    lose(&mut array, 4);
    write(&mut array, a, 0, 2 * BLOCK);
    array.crash(device(7));
    array.run_for(A_LEASE);
    assert!(is_in(&array, 7), "nothing is gained without it");
    array.world.network.drop_if(|from, to, _| {
        let is_cut = |from, to| from == device(6) && matches!(to, NodeId::Host(_));
        is_cut(from, to) || is_cut(to, from)
    });
    bring_back(&mut array, 0);
    lose(&mut array, 1);
    assert_eq!(
        content(&mut array, a, 0, 2 * BLOCK).len() as u64,
        2 * BLOCK,
        "the next failure of its group is covered"
    );
    array.world.network.heal();
    all_is_well_when_restarted(array, &[1, 4, 7]);
}

/// More devices of the other group are missing than its redundancy covers. They may hold a write of both groups undecided.
#[test]
fn a_device_waits_until_those_of_another_group_are_back_or_given_up() {
    for are_back in [true, false] {
        let (mut array, a, b) = two_groups(Ordering::Timestamp);
        lose(&mut array, 0);
        lose(&mut array, 4);
        array.crash(device(5));
        array.run_for(A_LEASE);
        assert!(is_in(&array, 5), "the others of its group can't serve without it");
        welcome(&mut array, 0);
        array.run_for(A_WHILE);
        assert!(is_returning(&array, 0), "{:?}", member_state(&array, 0));
        write(&mut array, a, 0, 2 * BLOCK);
        content(&mut array, b, 0, 2 * BLOCK);
        if !are_back {
            array.gives_up = true;
            assert_eq!(ask_to_replace(&mut array, a, 5, true), DONE);
            wait_in(&mut array, 0);
            continue;
        }
        array.restart_device(DeviceId(5));
        wait_in(&mut array, 0);
        all_is_well_back_with(array, 4);
    }
}

/// A hostwrite on two pairs of devices: devices 0 and 1 have refused it, devices 2 and 3 have it undecided, and no host reaches these. Then
/// devices 0 and 1 go and come back, one after the other. The content of the first two blocks before and after that.
fn refuse_go_and_come(array: &mut Cluster, [a, b]: [HostSlot; 2], are_dead: bool) -> [Vec<u8>; 2] {
    let before = content(array, b, 0, 2 * BLOCK);
    let writer = array.node(a);
    let hides = |node| [device(2), device(3)].contains(&node);
    array.world.network.drop_if(move |from, to, message| {
        let is_lost = is_write(message) && !hides(to);
        from == writer && (is_lost || is_abort(message)) || to == writer && is_written(message)
    });
    array.write(a, 0, 2 * BLOCK);
    array.run_for(Duration::from_millis(20));
    array.crash(writer);
    array.world.network.drop_if(move |from, to, _| {
        let is_cut = |from, to| hides(from) && matches!(to, NodeId::Host(_));
        is_cut(from, to) || is_cut(to, from)
    });
    if are_dead {
        for number in [2, 3] {
            array.crash(device(number));
        }
    }
    array.run_for(A_WHILE);
    for number in [0, 1] {
        if is_in(array, 1 - number) {
            lose(array, number);
            array.restart_device(DeviceId(number));
            array.run_for(3 * A_WHILE);
        }
    }
    array.world.network.heal();
    if are_dead {
        for number in [2, 3] {
            array.restart_device(DeviceId(number));
        }
    }
    array.run_for(A_WHILE);
    [before, content(array, b, 0, 2 * BLOCK)]
}

#[test]
fn a_write_of_two_groups_is_whole_or_not_there_though_those_that_refused_it_go_and_come() {
    let two_pairs = |ordering| filled_array_of(ordered(ordering, Options::calm("raid1:2", 4, 1, 4)));
    with_each_pair(KEPT_APART, [true, false], two_pairs, |array, [a, b], ordering, are_dead| {
        let [before, after] = refuse_go_and_come(array, [a, b], are_dead);
        let is_new = [0, BLOCK as usize].map(|start| before[start..][..8] != after[start..][..8]);
        assert_eq!(is_new[0], is_new[1], "{ordering}, dead: {are_dead}: {:?}", array.membership());
    });
}

#[test]
fn a_write_is_in_both_placements_or_in_neither_though_those_that_refused_it_go_and_come() {
    let options = Options { other_devices: 2, ..Options::calm("raid1:2", 2, 1, 4) };
    let one_pair = |ordering| array_of(ordered(ordering, options.clone()));
    with_each_pair(KEPT_APART, [true, false], one_pair, |array, [a, b], ordering, are_dead| {
        let (layout, ring) = (array.volume().layout, [2, 3].map(DeviceId).to_vec());
        array.operator(b).begin_move(layout, ring).expect("devices have room");
        let [_, source] = refuse_go_and_come(array, [a, b], are_dead);
        // Copies skip holes, so this changes nothing where nothing was written.
        array.operator(b).end_move().expect("devices give back what they had");
        let target = content(array, b, 0, 2 * BLOCK);
        assert!(source == target, "{ordering}, dead: {are_dead}: the target differs");
    });
}
