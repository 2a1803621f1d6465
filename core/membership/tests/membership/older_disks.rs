//! A device comes with an older disk than it had, or with an empty one: no other device would resynchronise what that disk lacks.

use crate::bench::*;

const ALL: [u16; 5] = [0, 1, 2, 3, 4];

fn outdated(bench: &Bench, number: u16) -> Option<u32> {
    let lease = bench.monitor.leases().find(|lease| lease.device == DeviceId(number));
    lease.expect("it is a device of the array").outdated.map(|epoch| epoch.0)
}

/// Device 2 was out and is in again: its epoch is 4, and it has been a member since epoch 3.
fn back_once() -> Bench {
    let mut bench = Bench::new();
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[7]));
    bench.pass_with(SECOND * 3, &nodes(&ALL, &[7]));
    bench.say(host(7), MonitorCommand::Resynchronised { device: DeviceId(2), since: Epoch(3) });
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    assert_eq!((bench.epoch(), bench.member_state(2), bench.since(2)), (4, MemberState::In, 3));
    bench
}

#[test]
fn a_new_array_of_empty_disks_is_let_in_one_after_the_other() {
    let mut bench = Bench::of(5);
    bench.pass(SECOND * 2);
    for number in ALL {
        assert_eq!(bench.answer_to(device(number)).reply, MonitorReply::Changed, "its disk is recorded first");
        assert!(bench.gets_lease(device(number)), "no device has adopted an epoch yet");
        assert!(
            bench.gets_lease(device(number)),
            "its first answer was lost, or it crashed before it had adopted the membership"
        );
    }
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert!(ALL.iter().all(|number| outdated(&bench, *number).is_none()));
}

#[test]
fn a_disk_that_was_never_used_is_let_in_after_an_absence() {
    let mut bench = Bench::of(5);
    bench.adopt(volume(1, braid_layout::RaidLevel::Raid5 { data: 4 }, &ALL));
    bench.pass_with(LEASE * 2, &nodes(&[0, 1, 3, 4], &[7]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    bench.pass_with(SECOND * 2, &nodes(&ALL, &[7]));
    assert_eq!(bench.member_state(2), MemberState::Returning { recovery_coordinator: Some(Generation(7)) });
}

#[test]
fn an_empty_disk_in_place_of_one_that_was_in_is_refused_and_the_rest_goes_on_without_it() {
    let mut bench = Bench::new();
    bench.epochs.remove(&device(2));
    let answer = bench.answer_to(device(2));
    assert_eq!((answer.reply, outdated(&bench, 2)), (MonitorReply::Changed, Some(0)));
    let others = nodes(&[0, 1, 3, 4], &[7]);
    for _ in 0..40 {
        bench.renew_in(Epoch(0), device(2));
        bench.pass_with(SECOND / 2, &others);
    }
    assert_eq!(
        (bench.member_state(2), bench.epoch(), outdated(&bench, 2)),
        (MemberState::Out, 2, Some(0)),
        "it stays out"
    );
    assert!(!bench.gets_lease(device(2)) && bench.unavailable().is_empty());
    // The right disk returns, with the epoch that it had when it left.
    bench.epochs.insert(device(2), Epoch(1));
    bench.pass_with(SECOND * 2, &nodes(&ALL, &[7]));
    assert_eq!(
        (bench.member_state(2), outdated(&bench, 2)),
        (MemberState::Returning { recovery_coordinator: Some(Generation(7)) }, None)
    );
}

#[test]
fn an_older_disk_is_refused_in_every_member_state() {
    let mut bench = back_once();
    for epoch in 0..4 {
        bench.renew_in(Epoch(epoch), device(2));
        assert_eq!(outdated(&bench, 2), Some(epoch));
    }
    assert!(bench.gets_lease(device(2)) && outdated(&bench, 2).is_none(), "it is the right one");
    // Another device that shares its stripes is out: then it is unavailable, and nothing is lost.
    bench.pass_with(LEASE * 2, &nodes(&[0, 1, 2, 3], &[7]));
    assert_eq!(bench.member_state(4), MemberState::Out);
    for _ in 0..20 {
        bench.renew_in(Epoch(3), device(2));
        bench.pass_with(SECOND / 2, &nodes(&[0, 1, 3], &[7]));
    }
    assert_eq!((bench.member_state(2), bench.unavailable()), (MemberState::In, vec![2]));
}

#[test]
fn the_record_outlives_the_monitor() {
    for wait in [SECOND / 5, LEASE * 2] {
        let mut bench = Bench::new();
        bench.restart(config(5));
        bench.adopt(volume(1, braid_layout::RaidLevel::Raid5 { data: 4 }, &ALL));
        bench.pass_with(wait, &nodes(&[0, 1, 3, 4], &[7]));
        bench.renew_in(Epoch(0), device(2));
        assert_eq!(outdated(&bench, 2), Some(0));
        bench.pass_with(LEASE * 2, &nodes(&[0, 1, 3, 4], &[7]));
        assert_eq!(bench.member_state(2), MemberState::Out);
    }
}

/// Its lease still runs when another disk is put in; the other devices must not rely on it because of that.
#[test]
fn devices_are_not_taken_out_for_another_with_the_wrong_disk() {
    let mut bench = Bench::new();
    let others = nodes(&[0, 1, 4], &[7]);
    bench.renew(device(3));
    bench.pass_with(SECOND, &[others.clone(), vec![device(2)]].concat());
    while bench.now.time < braid_base::Time(1_000_000_000_000).after(SECOND * 8) {
        bench.renew_in(Epoch(0), device(2));
        bench.pass_with(SECOND / 4, &others);
        assert_eq!(bench.epoch(), 1);
    }
    assert_eq!(bench.unavailable(), [2, 3]);
}

/// A recovery coordinator may have nothing to resynchronise, and report so before the device has adopted the epoch of its return.
#[test]
fn a_device_is_marked_in_only_after_it_has_named_an_epoch_since_its_return() {
    let mut bench = Bench::new();
    let others = nodes(&[0, 1, 3, 4], &[7]);
    bench.pass_with(LEASE + NOTICE, &others);
    for _ in 0..6 {
        bench.renew_in(Epoch(1), device(2));
        bench.pass_with(SECOND / 2, &others);
    }
    let helped = MemberState::Returning { recovery_coordinator: Some(Generation(7)) };
    assert_eq!((bench.member_state(2), bench.since(2)), (helped, 3));
    let command = MonitorCommand::Resynchronised { device: DeviceId(2), since: Epoch(3) };
    bench.say(host(7), command.clone());
    assert_eq!(bench.member_state(2), helped);
    bench.epochs.insert(device(2), Epoch(3));
    bench.renew(device(2));
    bench.say(host(7), command);
    assert_eq!(bench.member_state(2), MemberState::In);
}

/// Messages are reordered.
#[test]
fn a_late_copy_of_a_renewal_does_not_make_a_device_outdated_or_useless() {
    let mut bench = back_once();
    let steady =
        |bench: &Bench| outdated(bench, 2).is_none() && bench.monitor.leases().all(|held| held.runs_until.is_some());
    let sent = bench.now.time;
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    for (epoch, silent) in [(Epoch(3), Vec::new()), (Epoch(4), vec![DeviceId(2)])] {
        let late = MonitorCommand::Renew {
            sent,
            silent,
            disk: Some(braid_base::DiskId(2)),
            bad_slots: 0,
            failing: false,
            undecided: Vec::new(),
            stamps: braid_base::Clock(0),
        };
        bench.say_in(epoch, device(2), late);
        assert!(steady(&bench));
    }
    // So another device can be marked out at the same time.
    let others = nodes(&[0, 1, 2, 3], &[7]);
    let until = bench.now.time.after(LEASE - SECOND / 4);
    while bench.now.time < until {
        bench.pass_with(SECOND / 4, &others);
    }
    let late = MonitorCommand::Renew {
        sent,
        silent: Vec::new(),
        disk: Some(braid_base::DiskId(2)),
        bad_slots: 0,
        failing: false,
        undecided: Vec::new(),
        stamps: braid_base::Clock(0),
    };
    bench.say_in(Epoch(3), device(2), late);
    bench.pass(NOTICE * 2);
    assert_eq!(bench.member_state(4), MemberState::Out);
}
