//! A starting monitor reads its disk, and assumes that devices have leases.

use crate::bench::*;
use crate::story::{self, Told, stories};
use braid_machine::{DiskError, DiskResult, DiskTag};

/// Device 2 is out, as of epoch 2; then the monitor is stopped.
fn one_out() -> Bench {
    let mut bench = Bench::new();
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    bench
}

fn five() -> braid_layout::VolumeDescription {
    volume(1, RaidLevel::Raid5 { data: 4 }, &[0, 1, 2, 3, 4])
}

#[test]
fn the_first_membership_is_durable_before_any_request_is_answered() {
    let mut bench = Bench::off(config(3));
    bench.stalled = true;
    bench.take(Input::Start);
    for _ in 0..2 {
        assert!(bench.run_command());
        assert_eq!(bench.monitor.service(), MonitorService::Reading);
        bench.renew_in(Epoch(0), device(1));
        assert_eq!(bench.hear(device(1)), None);
    }
    assert!(bench.run_command());
    assert_eq!(bench.monitor.service(), MonitorService::Serving);
    // The name of its disk is durable first, too.
    bench.renew_in(Epoch(0), device(1));
    let first = bench.hear(device(1)).expect("it is answered");
    assert_eq!((first.membership, first.reply), (None, MonitorReply::Changed));
    for _ in 0..2 {
        assert_eq!(bench.hear(device(1)), None);
        assert!(bench.run_command());
    }
    let told = bench.hear(device(1)).expect("it is told");
    assert_eq!((told.membership.as_ref(), told.reply), (Some(bench.membership()), MonitorReply::Changed));
    assert!(!bench.gets_lease(device(1)), "other devices may know a later epoch");
    bench.pass(SECOND * 2);
    assert!(bench.gets_lease(device(1)));
    assert_eq!((bench.epoch(), bench.membership().members.len()), (1, 3));
}

#[test]
fn every_device_is_taken_to_have_a_lease_after_a_restart() {
    let mut told = story::five(&[("4600ms 0134", "e2: 2 out"), ("1s 0134", ""), ("restart", "")]);
    let leases: Vec<_> = told.bench.monitor.leases().map(|lease| lease.runs_until.is_some()).collect();
    assert_eq!((told.bench.epoch(), leases), (2, vec![true, true, false, true, true]));
    told.goes_on(&[("8800ms 014", "lacking 3")]);
}

#[test]
fn one_copy_of_the_record_is_enough_and_is_written_twice_again() {
    let mut bench = one_out();
    bench.damage(100);
    bench.stalled = true;
    bench.restart(config(5));
    bench.damage(DISK_BYTES as usize / 2 + 100);
    bench.restart(config(5));
    assert_eq!((bench.epoch(), bench.member_state(2)), (2, MemberState::Out));
    for slot in [100, DISK_BYTES as usize / 2 + 100] {
        bench.damage(slot);
    }
    bench.restart(config(5));
    assert_eq!(bench.monitor.service(), MonitorService::Unusable(MonitorError::Damaged));
    assert_eq!(bench.monitor.deadline(), None);
}

/// Its disk is slow: when it knows the members, all of them have had time to be heard.
#[test]
fn a_monitor_that_rewrites_a_damaged_record_can_be_asked_which_devices_are_unavailable() {
    let mut bench = one_out();
    bench.damage(100);
    bench.restart_stalled(config(5));
    let mut rewriting = 0;
    loop {
        bench.pass(LEASE);
        assert!(bench.run_command(), "the disk has the monitor's next command");
        if bench.monitor.service() == MonitorService::Serving {
            break;
        }
        rewriting += usize::from(bench.epoch() == 2);
        assert_eq!(bench.unavailable(), []);
    }
    assert!(rewriting > 0, "it has read the record, and does not serve before it is written again");
}

#[test]
fn the_record_of_another_array_is_refused_and_says_which_devices_there_are() {
    let mut bench = one_out();
    let mut refused = |config: MonitorConfig| {
        bench.restart(config);
        match bench.monitor.service() {
            MonitorService::Unusable(error) => error,
            other => panic!("{other:?}"),
        }
    };
    let other = MonitorConfig { array: ArrayId([2; 16]), ..config(5) };
    assert_eq!(refused(other), MonitorError::OtherArray { found: ArrayId([1; 16]) });
    for devices in [4, 6] {
        bench.restart(config(devices));
        let members: Vec<_> = bench.membership().members.iter().map(|member| member.device.0).collect();
        assert_eq!((members, bench.member_state(2)), (vec![0, 1, 2, 3, 4], MemberState::Out));
    }
}

/// The disk was lost, or is an old copy.
#[test]
fn a_monitor_that_is_behind_as_many_devices_as_agree_with_it_stops() {
    let mut bench = Bench::new();
    bench.restart(config(5));
    bench.adopt(five());
    bench.renew_in(Epoch(2), host(7));
    bench.renew_in(Epoch(2), device(9));
    bench.renew(device(0));
    bench.renew_in(Epoch(2), device(3));
    bench.pass(SECOND);
    assert_eq!(bench.monitor.service(), MonitorService::Serving, "it waits for the others");
    bench.hear(device(3));
    bench.pass(SECOND);
    let behind = MonitorError::Behind { device: DeviceId(3), theirs: Epoch(2), ours: Epoch(1) };
    assert_eq!(bench.monitor.service(), MonitorService::Unusable(behind));
    assert!(behind.to_string().contains("d3 has epoch e2"), "{behind}");
    assert_eq!((bench.hear(device(3)), bench.monitor.deadline()), (None, None));
}

#[test]
fn one_device_that_names_an_epoch_that_never_was_is_refused_and_the_array_goes_on() {
    let mut bench = Bench::new();
    let ahead = |bench: &Bench| {
        bench.monitor.leases().filter_map(|lease| Some((lease.device.0, lease.ahead?.0))).collect::<Vec<_>>()
    };
    // A running monitor: it has announced no such epoch.
    bench.renew_in(Epoch(u32::MAX - 15), device(3));
    let told = bench.hear(device(3)).expect("it is answered");
    assert_eq!((told.membership, told.reply), (None, MonitorReply::Changed), "it gets no lease");
    assert_eq!((ahead(&bench), bench.monitor.counters().ahead), (vec![(3, u32::MAX - 15)], 1));
    assert!([0, 1, 2, 4].iter().all(|number| bench.gets_lease(device(*number))));
    // It is a dead device from now on.
    let others = nodes(&[0, 1, 2, 4], &[]);
    for _ in 0..6 {
        bench.pass_with(SECOND, &others);
        bench.renew_in(Epoch(u32::MAX - 15), device(3));
    }
    assert_eq!((bench.epoch(), bench.member_state(3)), (2, MemberState::Out));
    // The same to a monitor that starts: four devices say otherwise.
    bench.restart(config(5));
    bench.adopt(five());
    bench.renew_in(Epoch(u32::MAX - 15), device(3));
    bench.pass_with(SECOND * 3, &others);
    assert_eq!(bench.monitor.service(), MonitorService::Serving);
    assert!([0, 1, 2, 4].iter().all(|number| bench.gets_lease(device(*number))));
    // With its right epoch it is heard again.
    bench.pass_with(SECOND * 3, &nodes(&[0, 1, 2, 3, 4], &[]));
    assert_eq!((ahead(&bench), bench.member_state(3)), (vec![], MemberState::Returning { recovery_coordinator: None }));
}

#[test]
fn a_monitor_whose_disk_fails_stops() {
    let mut bench = Bench::new();
    bench.stalled = true;
    bench.fence(1, &[1]);
    bench.take(Input::DiskDone { tag: DiskTag(1), result: DiskResult::Done(Err(DiskError::Failed)) });
    assert_eq!(bench.monitor.service(), MonitorService::Unusable(MonitorError::Disk(DiskError::Failed)));
    let mut effects = MonitorEffects::new();
    bench.monitor.step(bench.now, Input::Wake, &mut effects);
    assert!(effects.is_empty() && bench.monitor.deadline().is_none());
}

#[test]
fn volumes_that_make_no_sense_are_not_adopted() {
    let mut bench = Bench::of(3);
    let mut ask = |volume| bench.request(ControlRequest::AdoptVolume { volume });
    let one = volume(1, RaidLevel::Raid1 { copies: 2 }, &[0, 7]);
    assert_eq!(ask(one), Err(HostError::NoSuchDevice { device: DeviceId(7) }));
    let twice = volume(1, RaidLevel::Raid1 { copies: 2 }, &[1, 1]);
    assert_eq!(ask(twice), Err(HostError::NoSuchVolume));
    for id in 0..braid_base::limits::OBJECTS_MAX as u64 {
        bench.adopt(volume(id, RaidLevel::Raid1 { copies: 2 }, &[0, 1]));
    }
    bench.adopt(volume(0, RaidLevel::Raid1 { copies: 2 }, &[0, 2]));
    let mut ask = |volume| bench.request(ControlRequest::AdoptVolume { volume });
    let more = volume(5_000, RaidLevel::Raid1 { copies: 2 }, &[0, 1]);
    assert_eq!(ask(more.clone()), Err(HostError::Busy));
    bench.request(ControlRequest::DropVolume { volume: VolumeId(0) }).expect("it is forgotten");
    bench.adopt(more);
}

/// An older copy of the record, in which device 2 was in: the device still has that epoch, and the others have continued without it.
#[test]
fn a_monitor_with_an_older_record_gives_no_lease_before_it_hears_of_the_later_epoch() {
    let mut bench = Bench::new();
    let (older, epoch) = (bench.disk().to_vec(), bench.epoch());
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[]));
    assert_eq!((bench.epoch(), bench.member_state(2)), (epoch + 1, MemberState::Out));
    bench.restart_with(config(5), older);
    bench.adopt(five());
    assert!(!bench.gets_lease(device(2)), "it would serve old content");
    bench.renew_in(Epoch(epoch + 1), device(0));
    bench.pass(SECOND * 2);
    let behind = MonitorError::Behind { device: DeviceId(0), theirs: Epoch(epoch + 1), ours: Epoch(epoch) };
    assert_eq!(bench.monitor.service(), MonitorService::Unusable(behind));
}

#[test]
fn a_device_that_asks_early_gets_its_lease_once_all_were_heard_or_had_the_time() {
    let leased = |bench: &mut Bench, number: u16| {
        let told = std::iter::from_fn(|| bench.hear(device(number)));
        told.filter(|answer| matches!(answer.reply, MonitorReply::Lease { .. })).count()
    };
    let mut bench = Bench::new();
    bench.restart(config(5));
    bench.adopt(five());
    let ask = |bench: &mut Bench, number: u16| bench.renew_in(Epoch(1), device(number));
    (0..4).for_each(|number| ask(&mut bench, number));
    assert_eq!((0..4).map(|number| leased(&mut bench, number)).sum::<usize>(), 0);
    ask(&mut bench, 4);
    assert!((0..5).all(|number| leased(&mut bench, number) == 1), "no device has to ask again");
    bench.restart(config(5));
    bench.adopt(five());
    (0..4).for_each(|number| ask(&mut bench, number));
    bench.pass(SECOND * 2);
    assert!((0..4).all(|number| leased(&mut bench, number) == 1), "one of them is dead");
}

#[test]
fn a_monitor_that_finds_its_record_to_be_old_does_not_continue_it() {
    let mut bench = Bench::new();
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[]));
    let (older, epoch) = (bench.disk().to_vec(), bench.epoch());
    assert_eq!(bench.member_state(2), MemberState::Out);
    bench.restart_with(config(5), older.clone());
    bench.adopt(five());
    bench.pass(SECOND * 3 / 2);
    // By the old record, this device may return.
    bench.renew_in(Epoch(1), device(2));
    [0, 1, 3, 4].into_iter().for_each(|number| bench.renew_in(Epoch(epoch + 1), device(number)));
    bench.pass(SECOND);
    assert!(matches!(bench.monitor.service(), MonitorService::Unusable(MonitorError::Behind { .. })));
    assert!(bench.disk() == older, "it would make another membership of an epoch that there was");
}

stories! {
    story::five;

    fn a_device_that_is_not_heard_after_a_restart_is_taken_out_a_lease_later():
        "restart";
        "4300ms 0134";
        "200ms 0134" => "e2: 2 out";

    fn a_recovery_coordinator_has_time_to_be_heard_after_a_restart():
        "4600ms 0134" => "e2: 2 out";
        "2s 01234 h8" => "e3: 2 returning h8";
        "restart";
        "1s 01234 h7";
        "1s 01234 h7 h8";
}
