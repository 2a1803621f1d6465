//! The disks of slots: only the recorded disk gets leases, an operator's request replaces it, and the record survives a restart of the
//! monitor.

use crate::bench::*;
use braid_membership::SlotShown;
use braid_wire::{AdminError, JoinRefused};
use std::sync::atomic::{AtomicU64, Ordering};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];
const NEW: DiskId = DiskId(77);
const HOST: u32 = 7;

/// Five devices that have been heard for long enough.
fn steady() -> Bench {
    let mut bench = Bench::new();
    bench.pass_with(SECOND * 2, &nodes(&ALL, &[HOST]));
    bench
}

/// The answer to an operator's request; none while there is no answer.
fn ask(bench: &mut Bench, request: Administration) -> Option<Result<(), AdminError>> {
    static TICKETS: AtomicU64 = AtomicU64::new(5);
    ask_again(bench, TICKETS.fetch_add(1, Ordering::Relaxed), request)
}

fn ask_again(bench: &mut Bench, ticket: u64, request: Administration) -> Option<Result<(), AdminError>> {
    while bench.hear(host(HOST)).is_some() {}
    bench.say(host(HOST), MonitorCommand::Administer { ticket, request });
    let answers = std::iter::from_fn(|| bench.hear(host(HOST)));
    let mut replies = answers.filter_map(|answer| match answer.reply {
        MonitorReply::Administered { ticket: of, result } if of == ticket => Some(result),
        _ => None,
    });
    replies.next()
}

fn replace(device: u16, disk: DiskId) -> Administration {
    Administration::Replace { device: DeviceId(device), disk, blocks: 1_000, lose: false }
}

fn slot(bench: &Bench, device: u16) -> SlotShown {
    bench.monitor.slots().find(|slot| slot.device == DeviceId(device)).expect("it is there")
}

/// Device 2 is out, and its slot waits for the new disk.
fn awaiting() -> Bench {
    let mut bench = steady();
    assert_eq!(ask(&mut bench, replace(2, NEW)), Some(Ok(())));
    assert_eq!((slot(&bench, 2).disk, slot(&bench, 2).awaited_disk), (Some(DiskId(2)), None));
    bench.pass_with(LEASE + NOTICE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!((bench.member_state(2), slot(&bench, 2).awaited_disk), (MemberState::Out, Some(NEW)));
    bench
}

/// A disk is put into a device: it has no epoch.
fn put(bench: &mut Bench, number: u16, disk: DiskId) {
    bench.disks.insert(DeviceId(number), disk);
    bench.epochs.remove(&device(number));
}

#[test]
fn a_replacement_withdrawn_twice_restores_the_first_disk() {
    let mut bench = awaiting();
    assert_eq!(ask(&mut bench, replace(2, DiskId(78))), Some(Ok(())));
    assert_eq!(slot(&bench, 2).awaited_disk, Some(DiskId(78)));
    assert_eq!(ask(&mut bench, Administration::Readmit { device: DeviceId(2) }), Some(Ok(())));
    assert_eq!((slot(&bench, 2).disk, slot(&bench, 2).awaited_disk), (Some(DiskId(2)), None));
}

#[test]
fn another_disk_gets_no_lease_and_no_membership_and_does_not_hear_which_disk_is_right() {
    let mut bench = Bench::new();
    put(&mut bench, 2, NEW);
    let answer = bench.answer_to(device(2));
    let why = JoinRefused::OtherDisk { expected: DiskId(2) };
    assert_eq!((answer.membership, answer.reply), (None, MonitorReply::JoinRefused(why.without_names())));
    assert_eq!(slot(&bench, 2).join_refused, Some(why));
    // Whatever epoch it has: it comes from another array, or from an earlier time.
    bench.epochs.insert(device(2), Epoch(900));
    assert_eq!(bench.answer_to(device(2)).reply, MonitorReply::JoinRefused(why.without_names()));
    bench.epochs.remove(&device(2));
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    while let Some(answer) = bench.hear(device(2)) {
        assert_eq!(answer.membership, None);
    }
    bench.disks.remove(&DeviceId(2));
    bench.pass_with(SECOND * 3, &nodes(&ALL, &[HOST]));
    assert!(matches!(bench.member_state(2), MemberState::Returning { .. }), "its own disk has returned");
}

#[test]
fn the_old_disk_serves_until_it_is_out_and_never_again() {
    let mut bench = steady();
    assert_eq!(ask(&mut bench, replace(2, NEW)), Some(Ok(())));
    // The others need it while another device is missing.
    let mut bench_without = steady();
    bench_without.pass_with(SECOND * 3, &nodes(&[0, 1, 2, 3], &[HOST]));
    assert_eq!(
        ask(&mut bench_without, replace(2, NEW)),
        Some(Err(AdminError::NeedsOthers { others: vec![DeviceId(4)] }))
    );
    assert!(bench.gets_lease(device(2)), "until it may go out");
    bench.pass_with(LEASE + NOTICE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    bench.pass_with(SECOND * 10, &nodes(&[0, 1, 3, 4], &[HOST]));
    let why = JoinRefused::OtherDisk { expected: NEW };
    assert_eq!(bench.answer_to(device(2)).reply, MonitorReply::JoinRefused(why.without_names()));
}

#[test]
fn a_new_disk_returns_and_lives_by_no_epoch_before_that() {
    let mut bench = awaiting();
    put(&mut bench, 2, NEW);
    bench.pass_with(SECOND / 2, &nodes(&ALL, &[HOST]));
    assert_eq!(bench.epochs.get(&device(2)), None, "it was told of none");
    bench.pass_with(SECOND * 3, &nodes(&ALL, &[HOST]));
    assert!(matches!(bench.member_state(2), MemberState::Returning { .. }));
    assert_eq!((slot(&bench, 2).disk, slot(&bench, 2).awaited_disk), (Some(NEW), None));
    assert_eq!(bench.epochs[&device(2)], bench.membership().epoch);
    assert!(bench.gets_lease(device(2)));
}

#[test]
fn a_disk_with_a_past_is_refused_as_used() {
    let mut bench = awaiting();
    put(&mut bench, 2, NEW);
    bench.epochs.insert(device(2), Epoch(1));
    let why = JoinRefused::Used { epoch: Epoch(1) };
    assert_eq!(bench.answer_to(device(2)).reply, MonitorReply::JoinRefused(why.without_names()));
    bench.pass(SECOND * 5);
    assert_eq!(bench.member_state(2), MemberState::Out);
}

#[test]
fn reports_on_the_old_disk_do_not_let_the_new_one_in() {
    let mut bench = Bench::new();
    bench.pass_with(LEASE + NOTICE, &nodes(&[0, 1, 3, 4], &[HOST]));
    assert_eq!(bench.member_state(2), MemberState::Out);
    // The old disk is heard again, and at the same moment another is assigned to its slot.
    bench.pass_with(SECOND, &nodes(&[0, 1, 3, 4], &[HOST]));
    bench.renew(device(2));
    assert_eq!(ask(&mut bench, replace(2, NEW)), Some(Ok(())));
    bench.pass_with(SECOND * 3, &nodes(&[0, 1, 3, 4], &[HOST]));
    assert_eq!((bench.member_state(2), slot(&bench, 2).awaited_disk), (MemberState::Out, Some(NEW)));
}

#[test]
fn slots_are_all_there_after_a_restart() {
    let mut bench = awaiting();
    let throttle = RecoveryThrottle { bytes_per_second: 5_000, share: 20, paused: true };
    assert_eq!(ask(&mut bench, Administration::RecoveryThrottle(throttle)), Some(Ok(())));
    assert_eq!(ask(&mut bench, Administration::AddSpare { disk: DiskId(90), blocks: 600 }), Some(Ok(())));
    bench.restart(config(5));
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &ALL));
    assert_eq!(slot(&bench, 2).awaited_disk, Some(NEW));
    bench.pass_with(SECOND * 3, &nodes(&[0, 1, 3, 4], &[HOST]));
    let answer = bench.answer_to(host(HOST)).reply;
    let length = config(5).settings.device_lease;
    assert_eq!(answer, MonitorReply::Lease { sent: bench.now.time, length, throttle, stamps: Clock(0) });
    put(&mut bench, 1, DiskId(55));
    assert!(matches!(bench.answer_to(device(1)).reply, MonitorReply::JoinRefused(JoinRefused::OtherDisk { .. })));
    let add = |disk| Administration::AddSpare { disk, blocks: 5 };
    assert_eq!(ask(&mut bench, add(NEW)), Some(Err(AdminError::DiskInUse { device: DeviceId(2) })));
    assert_eq!(ask(&mut bench, Administration::RemoveSpare { disk: DiskId(90) }), Some(Ok(())));
}

#[test]
fn an_operator_is_answered_when_it_is_durable() {
    let mut bench = steady();
    bench.stalled = true;
    let request = Administration::Fail { device: DeviceId(3) };
    assert_eq!(ask_again(&mut bench, 5, request), None);
    bench.say(host(HOST), MonitorCommand::Administer { ticket: 5, request });
    let answered = |bench: &mut Bench| {
        let answers = std::iter::from_fn(|| bench.hear(host(HOST)));
        answers.filter(|answer| matches!(answer.reply, MonitorReply::Administered { .. })).count()
    };
    assert!(bench.run_command());
    assert_eq!(answered(&mut bench), 0, "one copy is not enough");
    assert!(bench.run_command());
    assert_eq!(answered(&mut bench), 1, "it was the same request");
    bench.stalled = false;
    assert_eq!(ask(&mut bench, request), Some(Ok(())), "it is done already");
    bench.pass_with(LEASE + NOTICE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!((bench.member_state(3), slot(&bench, 3).kept_out), (MemberState::Out, true));
    bench.pass_with(SECOND * 5, &nodes(&ALL, &[HOST]));
    assert_eq!(bench.member_state(3), MemberState::Out);
    assert_eq!(ask(&mut bench, Administration::Readmit { device: DeviceId(3) }), Some(Ok(())));
    bench.pass_with(SECOND * 2, &nodes(&ALL, &[HOST]));
    assert!(matches!(bench.member_state(3), MemberState::Returning { .. }));
}

#[test]
fn volumes_without_redundancy_lose_nothing_unasked() {
    let mut bench = steady();
    bench.adopt(volume(2, RaidLevel::Raid0 { data: 2 }, &[1, 2]));
    let would_lose = AdminError::WouldLose { volume: braid_base::VolumeId(2) };
    assert_eq!(ask(&mut bench, replace(2, NEW)), Some(Err(would_lose)));
    // 256 blocks over four devices, and over two.
    let small = Administration::Replace { device: DeviceId(2), disk: NEW, blocks: 64 + 127, lose: true };
    assert_eq!(ask(&mut bench, small), Some(Err(AdminError::TooSmall { blocks: 191, needed: 192 })));
    let fits = Administration::Replace { device: DeviceId(2), disk: NEW, blocks: 192, lose: true };
    assert_eq!(ask(&mut bench, fits), Some(Ok(())));
    // A device that holds nothing else is replaced as well.
    let mut bench = Bench::of(2);
    bench.adopt(volume(2, RaidLevel::Raid0 { data: 2 }, &[0, 1]));
    bench.pass_with(SECOND * 3, &nodes(&[0, 1], &[HOST]));
    assert_eq!(ask(&mut bench, Administration::Fail { device: DeviceId(0) }), Some(Err(AdminError::NothingGained)));
    let lose = Administration::Replace { device: DeviceId(0), disk: NEW, blocks: 500, lose: true };
    assert_eq!(ask(&mut bench, lose), Some(Ok(())));
    bench.pass_with(LEASE + NOTICE * 2, &nodes(&[0, 1], &[HOST]));
    assert_eq!((bench.member_state(0), slot(&bench, 0).awaited_disk), (MemberState::Out, Some(NEW)));
}

#[test]
fn a_device_whose_witness_is_given_up_does_not_come_back_with_older_content_unasked() {
    let mut bench = Bench::of(2);
    bench.adopt(volume(2, RaidLevel::Raid1 { copies: 2 }, &[0, 1]));
    bench.pass_with(SECOND * 3, &nodes(&[0, 1], &[HOST]));
    // The first device goes out; later writes are on the second alone, which then fails for good.
    bench.pass_with(LEASE * 2, &nodes(&[1], &[HOST]));
    assert_eq!(bench.member_state(0), MemberState::Out);
    bench.pass_with(LEASE * 2, &nodes(&[], &[HOST]));
    assert_eq!(bench.member_state(1), MemberState::In);
    let lose = Administration::Replace { device: DeviceId(1), disk: NEW, blocks: 500, lose: true };
    assert_eq!(ask(&mut bench, lose), Some(Ok(())));
    assert_eq!((bench.member_state(1), slot(&bench, 1).awaited_disk), (MemberState::Out, Some(NEW)));
    bench.pass_with(LEASE * 4, &nodes(&[0], &[HOST]));
    assert_eq!((bench.member_state(0), slot(&bench, 0).kept_out), (MemberState::Out, true));
    // The operator accepts the content of the first.
    assert_eq!(ask(&mut bench, Administration::Readmit { device: DeviceId(0) }), Some(Ok(())));
    bench.pass_with(SECOND * 2, &nodes(&[0], &[HOST]));
    assert!(matches!(bench.member_state(0), MemberState::Returning { .. }));
}

#[test]
fn a_refused_change_does_not_happen_later() {
    let mut bench = steady();
    bench.pass_with(SECOND * 3, &nodes(&[0, 1, 2, 3], &[HOST]));
    let refused = Some(Err(AdminError::NeedsOthers { others: vec![DeviceId(4)] }));
    assert_eq!(ask_again(&mut bench, 5, replace(2, NEW)), refused);
    bench.pass_with(SECOND * 3, &nodes(&ALL, &[HOST]));
    // A late duplicate of the same request; then a different one.
    assert_eq!(ask_again(&mut bench, 5, replace(2, NEW)), None);
    bench.pass_with(LEASE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!((bench.member_state(2), slot(&bench, 2).next_disk), (MemberState::In, None));
    bench.say(host(HOST), MonitorCommand::Administer { ticket: 6, request: replace(2, NEW) });
    assert_eq!(slot(&bench, 2).next_disk, Some(NEW));
}

#[test]
fn a_late_request_has_no_effect_when_another_one_was_answered_or_its_host_is_fenced() {
    let mut bench = steady();
    let remove = Administration::RemoveDevice { device: DeviceId(7) };
    assert_eq!(ask_again(&mut bench, 50, add(7, NEW)), Some(Ok(())));
    assert_eq!(ask_again(&mut bench, 51, remove), Some(Ok(())));
    assert_eq!(ask_again(&mut bench, 50, add(7, NEW)), None, "it comes late");
    assert_eq!(bench.membership().member(DeviceId(7)), None);
    assert_eq!(ask_again(&mut bench, 52, add(7, NEW)), Some(Ok(())));
    bench.say(host(HOST + 1), MonitorCommand::Administer { ticket: 3, request: remove });
    assert_eq!(bench.membership().member(DeviceId(7)), None);
    // A duplicate of what was granted, and is undone: it is only answered again.
    assert_eq!(ask_again(&mut bench, 52, add(7, NEW)), Some(Ok(())));
    assert_eq!(bench.membership().member(DeviceId(7)), None);
    // One request waits while the record with the fence is written; another one comes later.
    bench.stalled = true;
    bench.fence(6, &[HOST]);
    bench.say(host(HOST), MonitorCommand::Administer { ticket: 53, request: add(7, NEW) });
    while bench.run_command() {}
    bench.stalled = false;
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert!(bench.membership().fence.refuses(braid_base::Generation(HOST)));
    assert_eq!(ask_again(&mut bench, 54, add(7, NEW)), None);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.membership().member(DeviceId(7)), None);
}

/// Restarts the monitor, which hears all nodes.
fn restart(bench: &mut Bench) {
    bench.restart(config(5));
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &ALL));
    bench.pass_with(SECOND * 2, &nodes(&ALL, &[HOST]));
}

#[test]
fn a_late_copy_has_no_effect_after_a_restart_of_the_monitor() {
    let mut bench = steady();
    let remove = Administration::RemoveDevice { device: DeviceId(7) };
    assert_eq!(ask_again(&mut bench, 50, add(7, NEW)), Some(Ok(())));
    restart(&mut bench);
    bench.say(host(HOST + 1), MonitorCommand::Administer { ticket: 3, request: remove });
    restart(&mut bench);
    assert_eq!(ask_again(&mut bench, 50, add(7, NEW)), Some(Ok(())), "it was granted, and is only answered again");
    assert_eq!(bench.membership().member(DeviceId(7)), None);
    // A refusal is durable before it is answered.
    let of_used = add(8, DiskId(3));
    bench.stalled = true;
    assert_eq!(ask_again(&mut bench, 51, of_used), None);
    while bench.run_command() {}
    bench.stalled = false;
    let refused = |answer: MonitorReply| {
        matches!(answer, MonitorReply::Administered { ticket: 51, result: Err(AdminError::DiskInUse { .. }) })
    };
    assert!(std::iter::from_fn(|| bench.hear(host(HOST))).any(|answer| refused(answer.reply)));
    restart(&mut bench);
    assert_eq!(ask_again(&mut bench, 51, add(8, NEW)), None, "it was refused");
    assert_eq!(bench.membership().member(DeviceId(8)), None);
    assert_eq!(ask_again(&mut bench, 52, add(8, NEW)), Some(Ok(())));
}

fn add(device: u16, disk: DiskId) -> Administration {
    Administration::AddDevice { device: DeviceId(device), disk }
}

#[test]
fn a_device_is_added_and_removed_while_all_goes_on() {
    let mut bench = steady();
    let before = bench.membership().clone();
    assert_eq!(ask(&mut bench, add(5, DiskId(3))), Some(Err(AdminError::DiskInUse { device: DeviceId(3) })));
    assert_eq!(ask(&mut bench, add(4, NEW)), Some(Err(AdminError::DeviceExists { device: DeviceId(4) })));
    assert_eq!(ask(&mut bench, add(7, NEW)), Some(Ok(())));
    assert_eq!(ask(&mut bench, add(7, NEW)), Some(Ok(())), "it is done already");
    assert_eq!((bench.member_state(7), slot(&bench, 7).awaited_disk), (MemberState::Out, Some(NEW)));
    assert_eq!(bench.membership().members[..5], before.members, "nothing has changed for the others");
    put(&mut bench, 7, DiskId(78));
    assert!(matches!(bench.answer_to(device(7)).reply, MonitorReply::JoinRefused(JoinRefused::OtherDisk { .. })));
    put(&mut bench, 7, NEW);
    let all = nodes(&[0, 1, 2, 3, 4, 7], &[HOST]);
    bench.pass_with(SECOND * 3, &all);
    let since = bench.membership().member(DeviceId(7)).map(|member| member.since).expect("it is there");
    bench.say(host(HOST), MonitorCommand::Resynchronised { device: DeviceId(7), since });
    assert_eq!(bench.member_state(7), MemberState::In);
    bench.adopt(volume(2, RaidLevel::Raid1 { copies: 2 }, &[7, 0]));
    let remove = Administration::RemoveDevice { device: DeviceId(7) };
    let holds = AdminError::HoldsVolume { volume: braid_base::VolumeId(2) };
    assert_eq!(ask(&mut bench, remove), Some(Err(holds)));
    bench.adopt(volume(2, RaidLevel::Raid1 { copies: 2 }, &[1, 0]));
    bench.pass_with(SECOND, &all);
    assert!(bench.gets_lease(device(7)));
    assert_eq!(ask(&mut bench, remove), Some(Ok(())));
    assert_eq!(ask(&mut bench, remove), Some(Ok(())), "it is done already");
    assert_eq!(bench.membership().members, before.members);
    bench.renew_in(Epoch(1), device(7));
    assert_eq!(bench.hear(device(7)), None, "the device is unknown");
    bench.restart(config(5));
    assert_eq!(bench.membership().members, before.members);
    assert_eq!(ask(&mut bench, add(7, NEW)), None, "a monitor that has just started has not heard all devices yet");
    bench.pass_with(SECOND * 3, &nodes(&ALL, &[HOST]));
    assert_eq!(slot(&bench, 7).awaited_disk, Some(NEW), "then it is asked again");
}

#[test]
fn a_device_that_is_awaited_or_on_its_way_back_is_removed_like_any() {
    let mut bench = steady();
    for (awaited, ticket) in [(true, 1_000), (false, 2_000)] {
        assert_eq!(ask_again(&mut bench, ticket - 1, add(9, NEW)), Some(Ok(())));
        if !awaited {
            put(&mut bench, 9, NEW);
            bench.pass_with(SECOND * 3, &nodes(&[0, 1, 2, 3, 4, 9], &[HOST]));
            let since = bench.membership().member(DeviceId(9)).map(|member| member.since).expect("it is there");
            // A report about it in the same moment comes too late.
            bench.stalled = true;
            bench.say(host(HOST), MonitorCommand::Resynchronised { device: DeviceId(9), since });
        }
        bench.say(
            host(HOST),
            MonitorCommand::Administer { ticket, request: Administration::RemoveDevice { device: DeviceId(9) } },
        );
        while bench.run_command() {}
        bench.stalled = false;
        bench.pass_with(SECOND, &nodes(&ALL, &[HOST]));
        assert_eq!(bench.membership().member(DeviceId(9)), None);
    }
}

#[test]
fn a_device_may_get_another_disk_in_the_record_that_adds_it() {
    let mut bench = steady();
    let say = |bench: &mut Bench, ticket, request| {
        bench.say(host(HOST), MonitorCommand::Administer { ticket, request });
    };
    bench.stalled = true;
    say(&mut bench, 1_001, Administration::AddSpare { disk: DiskId(90), blocks: 1 });
    // A record is being written: these are decided together after it.
    say(&mut bench, 1_002, add(9, NEW));
    say(&mut bench, 1_003, replace(9, DiskId(78)));
    bench.resume_disk();
    assert_eq!(slot(&bench, 9).awaited_disk, Some(DiskId(78)));
}

#[test]
fn a_volume_is_not_adopted_on_a_device_that_is_being_removed() {
    let mut bench = Bench::of(6);
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &ALL));
    bench.pass_with(SECOND * 3, &nodes(&[0, 1, 2, 3, 4, 5], &[HOST]));
    bench.stalled = true;
    let request = Administration::RemoveDevice { device: DeviceId(5) };
    bench.say(host(HOST), MonitorCommand::Administer { ticket: 1_001, request });
    let volume = volume(2, RaidLevel::Raid1 { copies: 2 }, &[0, 5]);
    let outcome = bench.request(ControlRequest::AdoptVolume { volume });
    assert_eq!(outcome, Err(HostError::NoSuchDevice { device: DeviceId(5) }));
    bench.resume_disk();
    assert_eq!(bench.membership().members.len(), 5);
}

#[test]
fn a_device_beside_one_that_is_no_member_stays_in() {
    let mut bench = Bench::off(config(5));
    // Before the monitor serves, it does not know which devices there are.
    bench.adopt(volume(1, RaidLevel::Raid1 { copies: 2 }, &[0, 7]));
    bench.take(Input::Start);
    bench.silent = vec![DeviceId(0)];
    bench.pass_with(LEASE * 2, &nodes(&ALL, &[HOST]));
    assert_eq!(bench.member_state(0), MemberState::In);
}
