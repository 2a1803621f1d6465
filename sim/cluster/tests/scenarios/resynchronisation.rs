//! Scenarios of a resynchronisation: the recovery coordinator dies, the device is taken out again, and all hosts write to the device
//! meanwhile.

use crate::story::*;

/// The number of stripes, each with a unit on every device.
const STRIPES: u64 = 24;

/// Device 4 is out, and has missed a part of every other stripe.
fn long_list(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    let (mut array, a, b) = filled_array_of(ordered(ordering, Options::calm("raid5:4+1", 5, 1, STRIPES)));
    lose(&mut array, 4);
    // Every other stripe, so that the missed blocks are many separate runs.
    for stripe in (0..STRIPES).step_by(2) {
        write(&mut array, a, stripe * 4 * BLOCK, 2 * BLOCK);
        write(&mut array, b, (stripe * 4 + 2) * BLOCK, BLOCK);
    }
    array.run_for(Duration::from_secs(1));
    (array, a, b)
}

/// From now on, device 4 accepts only `count` devwrites.
fn let_through(array: &mut Cluster, mut count: usize) {
    array.world.network.drop_if(move |_, to, message| {
        let is_meant = to == device(4) && is_write(message);
        let is_one_too_many = is_meant && count == 0;
        count -= usize::from(is_meant && !is_one_too_many);
        is_one_too_many
    });
}

fn recovery_coordinator(array: &Cluster) -> Option<NodeId> {
    match member_state(array, 4) {
        Some(MemberState::Returning { recovery_coordinator }) => recovery_coordinator.map(NodeId::Host),
        _ => None,
    }
}

#[test]
fn a_recovery_coordinator_that_dies_is_followed_by_another() {
    with_each_pair(KEPT_APART, [0, 1, 5], long_list, |array, [a, b], _, passed| {
        let_through(array, passed);
        welcome(array, 4);
        array.run_for(Duration::from_millis(50));
        assert_eq!(recovery_coordinator(array), Some(array.node(a)));
        replace_host(array, a);
        array.world.network.heal();
        let next = array.node(b);
        wait_until(array, "another host is the recovery coordinator", |array| {
            recovery_coordinator(array) == Some(next)
        });
        wait_in(array, 4);
    });
}

#[test]
fn a_suspended_recovery_coordinator_is_followed_by_another_and_does_no_harm_when_resumed() {
    let (mut array, a, b) = long_list(Ordering::Timestamp);
    let_through(&mut array, 3);
    welcome(&mut array, 4);
    array.run_for(Duration::from_millis(50));
    let sleeper = array.node(a);
    array.world.stall(sleeper, Duration::from_secs(20));
    array.world.network.heal();
    wait_in(&mut array, 4);
    write(&mut array, b, 0, 4 * BLOCK);
    // The device is out again when the old coordinator wakes and reports, about the first return, that the resync is complete.
    lose(&mut array, 4);
    write(&mut array, b, 4 * BLOCK, 8 * BLOCK);
    welcome(&mut array, 4);
    array.run_for(Duration::from_secs(20));
    all_is_well_with(array, 4);
}

#[test]
fn a_device_that_fails_again_during_its_resync_begins_again() {
    with_each_pair(KEPT_APART, [1, 7], long_list, |array, [a, b], ordering, passed| {
        let_through(array, passed);
        welcome(array, 4);
        write(array, b, 3 * BLOCK, BLOCK);
        array.run_for(Duration::from_millis(300));
        lose(array, 4);
        array.world.network.heal();
        write(array, a, 8 * BLOCK, 4 * BLOCK);
        array.run_for(Duration::from_millis(300));
        let brought = note_blocks_written(array, 4);
        bring_back(array, 4);
        // In every fifth stripe, its block is the fourth.
        let before = (0..STRIPES).filter(|stripe| stripe % 2 == 0 && stripe % 5 != 4);
        assert_eq!(brought.take(), before.collect(), "{ordering}: all missed blocks are still on record");
    });
}

#[test]
fn the_last_resynchronised_blocks_are_there_when_the_device_dies_once_it_is_in() {
    let array = || long_list(Ordering::Timestamp);
    with_each([0, 1, 2, 5, 20], array, |array, [a, b], after| {
        // The device receives no commit until the monitor has it as in.
        let soon = Duration::from_millis(20);
        array.world.network.delay_if(soon, |_, to, message| to == device(4) && carries_commits(message));
        array.restart_device(DeviceId(4));
        wait_until(array, "the device is in", |array| is_in(array, 4));
        array.run_for(Duration::from_micros(after * 100));
        lose(array, 4);
        array.world.network.heal();
        write(array, b, 0, BLOCK);
        bring_back(array, 4);
        content(array, a, 0, 4 * BLOCK);
    });
}

#[test]
fn all_hosts_write_to_a_device_during_its_resync() {
    with_each(KEPT_APART, long_list, |array, [a, b], ordering| {
        // The coordinator's job steps take some time.
        array.world.network.delay_if(Duration::from_millis(2), |_, to, message| to == device(4) && is_write(message));
        array.restart_device(DeviceId(4));
        let mut round = 0;
        while !is_in(array, 4) {
            round += 1;
            let (one, other) = (round * 7 % (STRIPES * 4), round * 5 % (STRIPES * 4 - 8));
            let ours = array.write(a, one * BLOCK, BLOCK);
            let theirs = array.write(b, other * BLOCK, (1 + round % 8) * BLOCK);
            assert_eq!((array.finish(ours), array.finish(theirs)), (DONE, DONE), "{ordering}");
            assert!(round < 5_000, "{ordering}: the device is never resynchronised");
        }
        assert!(round > 20, "{ordering}: there was time to write");
        write(array, a, 0, 16 * BLOCK);
    });
}

#[test]
fn a_recovery_coordinator_that_does_not_know_the_volume_does_not_finish() {
    let (mut array, a, b) = long_list(Ordering::Timestamp);
    let volume = array.volume().clone();
    for host in [a, b] {
        assert_eq!(array.perform(host, ArrayRequest::DropVolume { volume: volume.id }), DONE);
    }
    array.restart_device(DeviceId(4));
    array.run_for(A_WHILE);
    assert!(is_returning(&array, 4), "{:?}", member_state(&array, 4));
    for host in [a, b] {
        assert_eq!(array.perform(host, ArrayRequest::AdoptVolume { volume: volume.clone() }), DONE);
    }
    all_is_well_with(array, 4);
}

/// The administrator of a new volume has died, and another host continues while device 4 returns. Device 4 is told first. The answers to the
/// survey are from different moments: device 0 has no part yet.
#[test]
fn a_survey_during_a_creation_removes_nothing_of_the_new_volume() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    array.add_host();
    fill(&mut array, a);
    let volume = another_volume(&array, [0, 4]);
    let id = volume.id;
    // What is lost: creations at device 0, at device 4, the survey of device 4, and the lists of what it missed.
    let lost = Rc::new(Cell::new([true, true, true, true]));
    let is_lost = lost.clone();
    array.world.network.drop_if(move |_, to, message| {
        let Some(Command::Manage { task, .. }) = command_of(message) else { return false };
        let [at_0, at_4, survey, lists] = is_lost.get();
        match task {
            Task::CreateObject { .. } => (at_0 && to == device(0)) || (at_4 && to == device(4)),
            Task::ListObjects => survey && to == device(4),
            Task::ListMissed { .. } => lists,
            _ => false,
        }
    });
    let has_part = move |array: &Cluster, number: u16| {
        array.device(DeviceId(number)).is_some_and(|machine| machine.store().object(id.object()).is_some())
    };
    array.operator(b).begin_creation(volume);
    array.run_for(Duration::from_millis(100));
    array.crash(array.node(b));
    lose(&mut array, 4);
    welcome(&mut array, 4);
    lost.set([true, false, true, true]);
    wait_until(&mut array, "device 4 is told by another host", |array| has_part(array, 4));
    lost.set([true, false, false, true]);
    array.run_for(Duration::from_secs(3));
    assert!(has_part(&array, 4) && !has_part(&array, 0), "the survey is over");
    lost.set([false, false, false, true]);
    wait_until(&mut array, "device 0 is told", |array| has_part(array, 0));
    array.run_for(Duration::from_secs(1));
    lost.set([false; 4]);
    wait_in(&mut array, 4);
    array.run_for(A_WHILE);
    assert!(has_part(&array, 4) && has_part(&array, 0));
    all_is_well(array);
}

#[test]
fn resync_in_an_array_without_hosts_waits_for_one() {
    let (mut array, a, b) = long_list(Ordering::Timestamp);
    [a, b].into_iter().for_each(|slot| array.crash(array.node(slot)));
    array.run_for(Duration::from_secs(5));
    welcome(&mut array, 4);
    array.run_for(Duration::from_secs(20));
    assert_eq!(member_state(&array, 4), Some(MemberState::Returning { recovery_coordinator: None }));
    [a, b].into_iter().for_each(|slot| take_slot(&mut array, slot));
    all_is_well_with(array, 4);
}

#[test]
fn another_device_that_fails_during_a_resync_is_waited_for() {
    with_each(KEPT_APART, long_list, |array, [a, b], ordering| {
        let_through(array, 4);
        welcome(array, 4);
        array.run_for(Duration::from_millis(50));
        array.crash(device(1));
        array.world.network.heal();
        array.run_for(Duration::from_secs(8));
        assert!(is_in(array, 1), "{ordering}: device 4 can't replace it yet");
        assert!(is_returning(array, 4), "{ordering}");
        let (read, written) = (array.read(b, BLOCK, BLOCK), array.write(a, BLOCK, BLOCK));
        assert!(lacks(&array.finish(read), &[1, 4]), "{ordering}");
        assert!(lacks(&array.finish(written), &[1]), "{ordering}");
        restart(array, 1);
        wait_in(array, 4);
    });
}

#[test]
fn power_fails_everywhere_during_a_resync() {
    let array = || long_list(Ordering::Timestamp);
    with_each(0..8, array, |array, [a, b], round| {
        array.restart_device(DeviceId(4));
        wait_until(array, "the device has a recovery coordinator", |array| recovery_coordinator(array).is_some());
        array.write(a, 0, 8 * BLOCK);
        array.write(b, 9 * BLOCK, BLOCK);
        array.run_for(Duration::from_micros(200 * round));
        power_fails_everywhere(array, [a, b]);
        wait_in(array, 4);
    });
}
