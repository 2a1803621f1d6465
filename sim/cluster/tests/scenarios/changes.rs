//! Scenarios of a volume with several orderings, one after the other and never mixed.

use crate::story::*;

fn array(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array_of(Options { ordering, lock_servers: 1, ..Options::calm("raid5:4+1", 5, 1, 3) })
}

#[test]
fn a_host_with_an_old_ordering_is_refused_and_harms_no_data() {
    with_each(Ordering::ALL, array, |array, [a, b], real| {
        for mistaken in Ordering::ALL.into_iter().filter(|ordering| *ordering != real) {
            write(array, a, 0, BLOCK);
            let volume = VolumeDescription { ordering: mistaken, ..array.volume().clone() };
            assert_eq!(array.perform(b, ArrayRequest::AdoptVolume { volume }), DONE);
            let read = outcome_of_read(array, b, 0);
            for outcome in [read, zero(array, b, 0, BLOCK), zero(array, b, 0, 4 * BLOCK)] {
                let is_refused = matches!(outcome, Err(HostError::Device { failure: Failure::WrongOrdering, .. }));
                assert!(is_refused, "{real}, taken for {mistaken}: {outcome:?}");
            }
        }
        // The zeros must not take effect.
        array.crash(array.node(b));
        content(array, a, 0, BLOCK);
    });
}

#[test]
fn an_administrator_that_was_suspended_and_taken_over_changes_nothing() {
    let (mut array, a, b) = array(Ordering::Timestamp);
    // All devices but one are told by the administrator, which then is suspended.
    let administrator = array.node(a);
    array.world.network.drop_if(move |from, to, message| from == administrator && to == device(0) && is_task(message));
    let volume = array.volume().id;
    array.operator(a).begin_set_ordering(volume, Ordering::DeviceLock);
    array.run_for(Duration::from_secs(2));
    assert_eq!(array.volume().ordering, Ordering::Timestamp, "a device is missing");
    array.world.stall(administrator, Duration::from_secs(10));
    wait_until(&mut array, "another host completes the change", |array| {
        array.volume().ordering == Ordering::DeviceLock
    });
    array.run_for(Duration::from_secs(10));
    assert_eq!(array.operator(b).set_ordering(Ordering::ServerLock), Ok(()));
    write(&mut array, b, 0, BLOCK);
    // Now the device would hear what the administrator has asked for.
    array.world.network.heal();
    array.run_for(Duration::from_secs(8));
    write(&mut array, b, 0, 4 * BLOCK);
    all_is_well(array);
}

#[test]
fn a_change_that_waits_for_a_device_keeps_no_other_volume_on_hold() {
    let (mut array, a, _) = array(Ordering::Timestamp);
    let volume = another_volume(&array, [1, 2]);
    let (first, second) = (array.volume().id, volume.id);
    array.operator(a).begin_creation(volume);
    array.run_for(Duration::from_secs(1));
    // Devices 0 and 1 are not told of the changes, and the administrator of both dies. Then only device 0 is not.
    array.world.network.drop_if(|_, to, message| is_task(message) && (to == device(0) || to == device(1)));
    for volume in [first, second] {
        array.operator(a).begin_set_ordering(volume, Ordering::DeviceLock);
    }
    array.run_for(Duration::from_secs(2));
    array.crash(array.node(a));
    array.world.network.heal();
    array.world.network.drop_if(|_, to, message| is_task(message) && to == device(0));
    let orderings = |array: &Cluster| array.volumes().iter().map(|volume| volume.ordering).collect::<Vec<_>>();
    assert_eq!(orderings(&array), [Ordering::Timestamp; 2]);
    wait_until(&mut array, "the second volume is settled", |array| orderings(array)[1] == Ordering::DeviceLock);
    assert_eq!(orderings(&array)[0], Ordering::Timestamp, "a device is missing");
    array.world.network.heal();
    wait_until(&mut array, "the first volume is settled", |array| orderings(array)[0] == Ordering::DeviceLock);
    all_is_well(array);
}
