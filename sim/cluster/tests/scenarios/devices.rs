//! Scenarios in which devices are added to a running array and removed from it, unnoticed by the users of volumes.

use crate::story::*;

#[test]
fn a_device_is_added_and_removed_under_load_and_nothing_changes_for_the_volume() {
    let (mut array, a, b) = filled_array_by(Ordering::Timestamp);
    let volume = array.volume().clone();
    array.add_device(DeviceId(9));
    let add = Administration::AddDevice { device: DeviceId(9), disk: array.device_notes.disk_of(DeviceId(9)) };
    assert_eq!(administer(&mut array, a, add), DONE);
    // One host learns of the change late, one host is new, and the monitor restarts.
    array.world.network.cut(array.node(b), NodeId::Monitor);
    write(&mut array, a, 0, 4 * BLOCK);
    restart_monitor(&mut array);
    let c = array.add_host();
    let inspect = ArrayRequest::Manage { device: DeviceId(9), task: Task::Inspect };
    wait_in(&mut array, 9);
    array.world.network.heal();
    for host in [a, b, c] {
        write(&mut array, host, 5 * BLOCK, BLOCK);
        wait_knows(&mut array, host, &inspect);
    }
    let refused = administer(&mut array, a, Administration::RemoveDevice { device: DeviceId(4) });
    assert_eq!(refused, Err(HostError::AdminError(AdminError::HoldsVolume { volume: volume.id })));
    let under_way = array.write(b, 0, BLOCK);
    assert_eq!(administer(&mut array, a, Administration::RemoveDevice { device: DeviceId(9) }), DONE);
    assert_eq!((array.finish(under_way), member_state(&array, 9)), (DONE, None));
    array.run_for(A_WHILE);
    for host in [a, b, c] {
        assert_eq!(array.perform(host, inspect.clone()), Err(HostError::NoSuchDevice { device: DeviceId(9) }));
    }
    lose(&mut array, 2);
    write(&mut array, c, 0, 8 * BLOCK);
    all_is_well_back_with(array, 2);
}

/// Asks repeatedly until the host knows the device and the device answers.
fn wait_knows(array: &mut Cluster, host: HostSlot, inspect: &ArrayRequest) {
    for _ in 0..100 {
        match array.perform(host, inspect.clone()) {
            Ok(HostSuccess::Managed(_)) => return,
            Err(HostError::NoSuchDevice { .. }) => array.run_for(Duration::from_millis(50)),
            other => panic!("{other:?}"),
        }
    }
    panic!("the host never learns of the device");
}
