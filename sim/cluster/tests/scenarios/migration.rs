//! Scenarios in which a volume is migrated to another layout and other devices while it is used.

use crate::story::*;

/// A RAID 1 volume of 40 blocks on devices 0 and 1, with five more devices in the array.
fn mirror(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array_of(ordered(ordering, Options { other_devices: 5, ..Options::calm("raid1:2", 2, 4, 10) }))
}

fn ring(devices: &[u16]) -> Vec<DeviceId> {
    devices.iter().copied().map(DeviceId).collect()
}

/// The number of blocks copied, none of which may be lost.
fn copied(outcome: HostOutcome) -> u64 {
    match outcome {
        Ok(HostSuccess::Migrated(report)) if report.lost == 0 => report.copied,
        other => panic!("{other:?}"),
    }
}

fn wait_idle(array: &mut Cluster) {
    wait_until(array, "no operation is in progress", |array| {
        let mut hosts = array.slots().filter_map(|slot| array.role(slot).and_then(Role::host));
        hosts.all(|host| host.is_idle_for(array.volume().id))
    });
    // Users have their answers; devices learn of the commits.
    array.run_for(Duration::from_secs(1));
}

/// Both hosts write concurrently to several places: parts of stripes and whole stripes, some of them zeros.
fn write_about(array: &mut Cluster, hosts: [HostSlot; 2], round: u64) {
    let mut writes = Vec::new();
    for step in 0..6 {
        let host = hosts[(step % 2) as usize];
        let start = (round * 7 + step * 5) % 36;
        let (offset, length) = match step % 3 {
            0 => (start * BLOCK, 3 * BLOCK),
            1 => (start * BLOCK + 512, BLOCK),
            _ => (start * BLOCK, BLOCK),
        };
        writes.push(array.write(host, offset, length));
    }
    all_succeed(array, writes, "both hosts write");
}

#[test]
fn a_volume_moves_under_the_writes_of_two_hosts_whatever_orders_them() {
    with_each(KEPT_APART, mirror, |array, [a, b], _| {
        write_about(array, [a, b], 0);
        wait_idle(array);
        // To another ring, with devices that are on both rings, and back.
        for (to, devices) in [
            (layout("raid5:3+1", 4, 2), ring(&[1, 2, 3, 4])),
            (layout("raid5:4+1", 5, 4), ring(&[4, 3, 2, 1, 0])),
            (layout("raid1:2", 2, 4), ring(&[0, 1])),
        ] {
            array.operator(b).begin_move(to, devices).expect("devices have room");
            write_about(array, [a, b], 1);
            let copy = array.operator(a).copy_all(0);
            for round in 2..5 {
                write_about(array, [a, b], round);
            }
            assert!(copied(array.finish(copy)) > 0);
            write_about(array, [a, b], 5);
            wait_idle(array);
            array.operator(b).end_move().expect("devices give back what they had");
            write_about(array, [a, b], 6);
            wait_idle(array);
        }
    });
}

#[test]
fn a_move_that_is_given_up_leaves_everything_where_it_was() {
    let (mut array, a, b) = mirror(Ordering::Timestamp);
    write_about(&mut array, [a, b], 0);
    wait_idle(&mut array);
    for _ in 0..2 {
        array.operator(a).begin_move(layout("raid5:2+1", 3, 1), ring(&[0, 1, 5])).expect("devices have room");
        let copy = array.operator(a).copy_all(0);
        write_about(&mut array, [a, b], 1);
        copied(array.finish(copy));
        wait_idle(&mut array);
        array.operator(a).give_up_move().expect("devices give back what they had");
        let late = array.operator(a).copy_all(0);
        assert_eq!(array.finish(late), Err(HostError::NotMoving));
        write_about(&mut array, [a, b], 2);
        wait_idle(&mut array);
    }
    all_is_well(array);
}

#[test]
fn a_device_of_either_ring_goes_and_comes_back_while_a_volume_moves() {
    let array = || mirror(Ordering::Timestamp);
    with_each([0, 1, 3], array, |array, [a, b], gone| {
        write_about(array, [a, b], 0);
        wait_idle(array);
        array.operator(a).begin_move(layout("raid5:3+1", 4, 2), ring(&[1, 2, 3, 4])).expect("devices have room");
        write_about(array, [a, b], 1);
        lose(array, gone);
        let copy = array.operator(a).copy_all(0);
        write_about(array, [a, b], 2);
        assert!(copied(array.finish(copy)) > 0);
        welcome(array, gone);
        write_about(array, [a, b], 3);
        wait_in(array, gone);
        wait_idle(array);
        array.operator(b).end_move().expect("devices give back what they had");
        write_about(array, [a, b], 4);
    });
}
