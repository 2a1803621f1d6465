//! A starting monitor reads its disk, and assumes that devices have leases.

use crate::bench::*;
use crate::story::{self, stories};

/// Device 2 is out, as of epoch 2; then the monitor is stopped.
fn one_out() -> Bench {
    let mut bench = Bench::new();
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    bench
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

stories! {
    story::five;

    fn a_recovery_coordinator_has_time_to_be_heard_after_a_restart():
        "4600ms 0134" => "e2: 2 out";
        "2s 01234 h8" => "e3: 2 returning h8";
        "restart";
        "1s 01234 h7";
        "1s 01234 h7 h8";

    fn one_device_that_names_an_epoch_that_never_was_is_refused_and_the_array_goes_on():
        "has 3 e4294967280"; // A running monitor: it has announced no such epoch.
        "asks 3" => "Changed"; // It gets no lease.
        "ahead" => "3: e4294967280, 1 counted";
        "leased 0124" => "yes";
        "6s 01234" => "e2: 3 out"; // It is a dead device from now on.
        "restart";
        "hear 3"; // The same to a monitor that starts: four devices say otherwise.
        "3s 0124";
        "service" => "serving";
        "leased 0124" => "yes";
        "has 3 e1"; // With its right epoch it is heard again.
        "3s 01234" => "e3: 3 returning";
        "ahead" => "1 counted";

    /// An older copy of the record, in which device 2 was in: the device still has that epoch, and the others have continued without it.
    fn a_monitor_with_an_older_record_gives_no_lease_before_it_hears_of_the_later_epoch():
        "copy";
        "4600ms 0134" => "e2: 2 out";
        "restart from copy" => "e1: 2 in";
        "leased 2" => "no"; // It would serve old content.
        "late 0 e2";
        "2s";
        "service" => "device d0 has epoch e2, but the monitor's record ends with epoch e1";

    fn a_monitor_that_finds_its_record_to_be_old_does_not_continue_it():
        "copy";
        "4600ms 0134" => "e2: 2 out";
        "restart from copy" => "e1: 2 in";
        "1500ms";
        "late 2 e1"; // By the old record, this device may return.
        "late 0134 e2";
        "1s";
        "service" => "device d4 has epoch e2, but the monitor's record ends with epoch e1";
        "is copy" => "yes"; // It would make another membership of an epoch that there was.

    fn a_device_that_asks_early_gets_its_lease_once_all_were_heard_or_had_the_time():
        "restart";
        "late 0123 e1";
        "got leases 0123";
        "late 4 e1";
        "got leases 01234" => "0 1 2 3 4"; // No device has to ask again.
        "restart";
        "late 0123 e1";
        "2s";
        "got leases 0123" => "0 1 2 3"; // One of them is dead.
}
