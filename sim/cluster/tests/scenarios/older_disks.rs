//! Scenarios in which a device has another disk than before: an empty disk, or an old copy of its own. The array must not take it for
//! the disk with the device's latest writes.

use crate::story::*;
use braid_world::Disk;

/// Replaces the disk of a device that is down; returns the old disk.
fn swap(array: &mut Cluster, number: u16, another: Disk) -> Disk {
    std::mem::replace(disk(array, device(number)), another)
}

/// The device has the wrong disk and stays out; with its own disk it is resynchronised.
fn is_refused_until_it_has(mut array: Cluster, number: u16, own: Disk) {
    let (a, b) = (braid_cluster::HostSlot(0), braid_cluster::HostSlot(1));
    let whole = content(&mut array, a, 0, 12 * BLOCK);
    write(&mut array, b, 4 * BLOCK, BLOCK);
    array.run_for(A_WHILE);
    assert!(is_out(&array, number));
    let now = content(&mut array, b, 0, 12 * BLOCK);
    assert!(now[..4 * BLOCK as usize] == whole[..4 * BLOCK as usize] && now != whole);
    array.crash(device(number));
    swap(&mut array, number, own);
    array.restart_device(DeviceId(number));
    wait_in(&mut array, number);
    assert!(content(&mut array, a, 0, 12 * BLOCK) == now);
    all_is_well(array);
}

/// The monitor's announcement reaches the device before, after, or long after the answer to the device's own question.
fn delay_news(array: &mut Cluster, number: u16, wait: Duration) {
    array.world.network.set_rule(move |_, to, message| {
        let asks = matches!(message, Message::MonitorRequest(_));
        let late = to == device(number) && is_news(message) || asks && wait.is_zero();
        if late { Verdict::Delay(wait.max(Duration::from_millis(50))) } else { Verdict::Pass }
    });
}

#[test]
fn an_empty_disk_in_place_of_a_device_s_own_is_not_let_in() {
    for ordering in KEPT_APART {
        for (down, wait) in [(100, 1), (3_000, 1), (9_000, 1), (100, 0), (3_000, 3_000), (9_000, 3_000)] {
            let (mut array, _, _) = filled_array_by(ordering);
            array.crash(device(4));
            delay_news(&mut array, 4, Duration::from_millis(wait));
            array.run_for(Duration::from_millis(down));
            let named = array.device_notes.disk_of(DeviceId(4));
            let empty = array.empty_disk(DeviceId(4), named);
            let own = swap(&mut array, 4, empty);
            array.restart_device(DeviceId(4));
            is_refused_until_it_has(array, 4, own);
        }
    }
}

#[test]
fn an_old_copy_of_a_device_s_disk_is_not_let_in() {
    for ordering in KEPT_APART {
        for down in [100, 3_000, 9_000] {
            let (mut array, _, b) = filled_array_by(ordering);
            array.crash(device(4));
            let copy = disk(&mut array, device(4)).clone();
            array.restart_device(DeviceId(4));
            array.run_for(Duration::from_secs(1));
            lose(&mut array, 0);
            write(&mut array, b, 0, 4 * BLOCK);
            bring_back(&mut array, 0);
            array.run_for(Duration::from_secs(1));
            array.crash(device(4));
            array.run_for(Duration::from_millis(down));
            let own = swap(&mut array, 4, copy);
            array.restart_device(DeviceId(4));
            is_refused_until_it_has(array, 4, own);
        }
    }
}
