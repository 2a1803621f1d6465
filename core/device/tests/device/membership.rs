//! Leases and epochs, and their effects on transactions under way (`docs/membership.md`). The tests play the monitor.

use crate::bench::*;
use crate::story::{Story, Told, sent_to, stories, tell, tell_of};

const RANGE: BlockRange = BlockRange { start: 3, count: 2 };
const LEASE: Duration = Duration::from_secs(4);
const MOMENT: Duration = Duration::from_millis(1);
/// An object without redundancy: the other devices can't decide without this one.
const PLAIN: ObjectId = ObjectId(9);
/// The other devices have continued without the device, and now it is back.
const RETURNED: (&str, &str) = ("enter 0:returning", "");
const PREPARED: (&str, &str) = ("a101@0 prepare 3+2 =7", "a101 accepted, a101 written");

fn monitored(parts: &[(&str, &str)]) -> Story {
    tell(Bench::with_monitor(), parts)
}

/// The next epoch after the device's, in which device 3 is out.
fn without_another(bench: &Bench) -> Membership {
    let mut membership = bench.device.membership().expect("a membership is adopted").clone();
    membership.epoch = membership.epoch.next();
    stands(&mut membership, 3, MemberState::Out);
    membership
}

/// A story in which there is also an object without redundancy.
fn with_plain(object: ObjectId, parts: &[(&str, &str)]) -> Story {
    let mut bench = Bench::with_monitor();
    bench.manage(A, 50, creation(PLAIN, BLOCKS, Ordering::Timestamp, false)).expect("it is created");
    tell_of((object, Ordering::Timestamp), bench, parts)
}

fn vote(bench: &mut Bench, actor: Actor) -> Vote {
    match bench.ask(B, actor.resolve()) {
        Some(Reply::Vote { vote, .. }) => vote,
        other => panic!("not an answer about missed writes: {other:?}"),
    }
}

#[test]
fn stamps_that_others_have_accepted_are_accepted() {
    let mut bench = Bench::with_monitor();
    let hour = Duration::from_secs(3_600);
    let told = bench.now.clock.ahead(hour);
    let reader = |sequence, clock| Actor::new(A, sequence, Stamp { clock, host: A });
    let other = Actor::new(B, 1, Stamp { clock: told, host: B });
    let refused = bench.ask(A, reader(1, told).read(RANGE));
    assert!(matches!(refused, Some(Reply::Refused { refusal: Refusal::TooFarAhead { .. }, .. })), "{refused:?}");
    assert!(matches!(vote(&mut bench, other), Vote::TooFarAhead { .. }), "no abort promise is made");
    bench.told_stamps = told;
    bench.pass_with_lease(Duration::from_millis(500));
    assert!(matches!(bench.ask(A, reader(2, told).read(RANGE)), Some(Reply::Data { .. })));
    assert_eq!(vote(&mut bench, other), Vote::NeverPrepared, "now an abort promise is made");
    let refused = bench.ask(A, reader(3, told.ahead(hour)).read(RANGE));
    assert!(matches!(refused, Some(Reply::Refused { refusal: Refusal::TooFarAhead { .. }, .. })), "{refused:?}");
    // After a restart, too, the device reports what it has accepted.
    bench.restart();
    let last = bench.renewals.back().expect("the device asks for a lease");
    assert!(matches!(last.command, MonitorCommand::Renew { stamps, .. } if stamps >= told), "{last:?}");
}

#[test]
fn a_lease_runs_from_when_it_was_asked_for_however_late_the_answer_is() {
    let mut bench = Bench::with_monitor();
    let asked = bench.now.time;
    bench.pass(LEASE - MOMENT);
    assert!(bench.device.has_lease(bench.now.time));
    bench.tell_late(None, asked);
    bench.pass(MOMENT);
    assert!(!bench.device.has_lease(bench.now.time), "the lease counts from the request");
    bench.pass(Duration::from_secs(1));
    let later = bench.asked;
    bench.pass(Duration::from_secs(1));
    bench.tell_late(None, later);
    // Answers may overtake each other. Some may be for an earlier run of the device, with another clock, or with the
    // same times.
    bench.tell_late(None, asked);
    bench.tell_late(None, later.after(Duration::from_secs(1_000)));
    bench.tell_late(None, later.after(MOMENT));
    bench.pass(LEASE - bench.now.time.since(later) - MOMENT);
    assert!(bench.device.has_lease(bench.now.time));
    bench.pass(MOMENT);
    assert!(!bench.device.has_lease(bench.now.time));
}

#[test]
fn a_lease_is_as_long_as_the_monitor_says_and_is_renewed_in_time() {
    let mut bench = Bench::with_monitor();
    bench.pass_with_lease(LEASE);
    bench.pass(LEASE);
    assert!(!bench.device.has_lease(bench.now.time));
    let (asked, short) = (bench.asked, LEASE / 4);
    bench.tell_lease(None, asked, short);
    assert!(bench.device.has_lease(asked.after(short - Duration::from_nanos(1))));
    assert!(!bench.device.has_lease(asked.after(short)), "the monitor's length counts, though the settings allow more");
    let renewals = bench.renewals.len();
    bench.pass(short);
    assert!(bench.renewals.len() >= renewals + 4, "several requests for a lease may be lost");
    // The lease is not longer than the device's own settings allow.
    let asked = bench.asked;
    bench.tell_lease(None, asked, 9 * LEASE);
    assert!(!bench.device.has_lease(asked.after(LEASE)));
}

#[test]
fn without_a_lease_no_request_is_served_and_nothing_is_changed() {
    let mut bench = Bench::with_monitor();
    let writer = Actor::new(A, 1, bench.stamp(A, 0));
    prepare(&mut bench, writer, RANGE, 7);
    bench.pass(LEASE + MOMENT * 100);
    bench.renewals.clear();
    let actor = Actor::new(A, 2, bench.stamp(A, 0));
    for command in [
        actor.read(RANGE),
        actor.prewrite(RANGE),
        actor.write(RANGE, 1),
        writer.decide(Outcome::Abort),
        writer.resolve(),
        Command::Forget { transaction: writer.id },
        Command::Manage { ticket: 5, task: Task::RemoveObject { object: OBJECT } },
    ] {
        bench.say_with(A, vec![1], command.clone());
        assert_eq!(bench.hear(A), None, "{command:?}");
    }
    assert!(!bench.renewals.is_empty(), "the device asks for a lease");
    bench.say_with(A, vec![1], Command::Heartbeat);
    let rejection = Rejection::WrongEpoch { current: EPOCH };
    assert_eq!(bench.hear(A), Some(Reply::Rejected { rejection }), "the device shows only that it is reachable");
    bench.tell(None);
    assert_eq!(vote(&mut bench, writer), Vote::Prepared, "commits that rode on requests are ignored, too");
}

#[test]
fn inspections_are_answered_with_or_without_a_lease() {
    let mut bench = Bench::with_monitor();
    bench.pass(LEASE * 2);
    for (ticket, epoch) in [(1, EPOCH), (2, Epoch(77))] {
        bench.epoch = epoch;
        bench.say(A, Command::Manage { ticket, task: Task::Inspect });
        assert!(matches!(bench.hear(A), Some(Reply::Managed { result: Ok(_), .. })));
    }
    assert_eq!(bench.ask(A, Command::Manage { ticket: 3, task: Task::ListObjects }), None);
}

#[test]
fn a_new_device_serves_no_request_before_it_knows_the_membership() {
    let mut bench = Bench::started(true);
    let actor = Actor::new(A, 1, bench.stamp(A, 0));
    assert_eq!(bench.epoch_told(), Some(Epoch(0)));
    bench.tell(None);
    bench.say(A, actor.read(RANGE));
    assert!(bench.heard.is_empty() && !bench.device.has_lease(bench.now.time));
    bench.renewals.clear();
    bench.pass(Duration::from_millis(100));
    assert!(!bench.renewals.is_empty(), "the device soon asks again");
    bench.tell(Some(Membership::first(DEVICES)));
    assert!(bench.device.has_lease(bench.now.time));
}

/// The disk may be an older one: the monitor compares what it holds with the record, and decides whether the device may
/// serve.
#[test]
fn a_membership_is_taken_over_with_a_lease_that_was_asked_for_in_this_life_and_with_nothing_else() {
    let mut bench = Bench::with_monitor();
    bench.pass(MOMENT * 100);
    let before = bench.now.time;
    bench.renewals.clear();
    let second = without_another(&bench);
    let mut third = second.clone();
    third.epoch = second.epoch.next();
    for (news, renewals) in [(&second, 1), (&second, 1), (&third, 2), (&second, 2)] {
        bench.tell_only(news);
        let reports = (bench.epoch_told(), bench.renewals.len());
        assert_eq!(reports, (Some(EPOCH), renewals), "one report for each newer membership");
    }
    bench.pass(MOMENT);
    bench.restart();
    bench.tell_late(Some(third.clone()), before);
    assert_eq!(bench.device.membership().map(|membership| membership.epoch), Some(EPOCH));
    assert!(!bench.device.has_lease(bench.now.time), "the lease was granted before the restart");
    bench.tell(Some(third.clone()));
    assert_eq!(bench.device.membership(), Some(&third));
    assert!(bench.device.has_lease(bench.now.time));
}

fn says_it_is_of_no_use(bench: &Bench) -> bool {
    let last = bench.renewals.back().expect("the device renews its lease");
    matches!(&last.command, MonitorCommand::Renew { silent, .. } if *silent == [DeviceId(0)])
}

#[test]
fn a_device_that_hears_nothing_from_the_monitor_reports_itself_unusable_until_it_does() {
    let mut bench = Bench::with_monitor();
    bench.pass_with_lease(Duration::from_secs(10));
    assert!(!says_it_is_of_no_use(&bench));
    bench.pass(Duration::from_millis(600));
    assert!(!says_it_is_of_no_use(&bench), "an answer may still arrive");
    bench.pass(Duration::from_millis(200));
    assert!(says_it_is_of_no_use(&bench));
    bench.pass(Duration::from_secs(2));
    assert!(says_it_is_of_no_use(&bench));
    let renewals = bench.renewals.len();
    bench.tell_only(&bench.device.membership().expect("a membership is adopted").clone());
    // The device reports once, and not as unreachable: no lease came for the last report.
    assert!(bench.renewals.len() == renewals + 1 && !says_it_is_of_no_use(&bench));
    // The same holds from its start.
    bench.restart();
    assert!(!says_it_is_of_no_use(&bench));
    bench.pass(Duration::from_millis(800));
    assert!(says_it_is_of_no_use(&bench));
}

#[test]
fn a_new_epoch_takes_effect_once_it_is_durable_and_nothing_is_served_meanwhile() {
    let mut bench = Bench::with_monitor();
    let reader = Actor::new(A, 1, bench.stamp(A, 0));
    bench.stalled = true;
    bench.renewals.clear();
    let membership = without_another(&bench);
    bench.tell(Some(membership.clone()));
    for epoch in [EPOCH, membership.epoch] {
        bench.epoch = epoch;
        assert_eq!(bench.ask(A, reader.read(RANGE)), None, "{epoch}");
    }
    assert!(!bench.device.has_lease(bench.now.time));
    let is_old = |request: &MonitorRequest| request.epoch == EPOCH;
    assert!(bench.renewals.iter().all(is_old), "the epoch is not reported before it is durable");
    bench.resume_disk();
    assert_eq!(bench.epoch_told(), Some(membership.epoch), "and is reported at once then");
    assert!(matches!(bench.ask(A, reader.read(RANGE)), Some(Reply::Data { .. })));
    bench.restart();
    assert_eq!(bench.device.membership(), Some(&membership));
    assert!(!bench.device.has_lease(bench.now.time), "a lease does not outlive a restart");
}

#[test]
fn a_membership_of_an_earlier_epoch_or_the_same_is_ignored() {
    let mut bench = Bench::with_monitor();
    let first = bench.device.membership().expect("a membership is adopted").clone();
    let second = without_another(&bench);
    bench.tell(Some(second.clone()));
    let mut other = second.clone();
    stands(&mut other, 2, MemberState::Out);
    for late in [first, other] {
        bench.tell(Some(late));
        assert_eq!(bench.device.membership(), Some(&second));
    }
}

#[test]
fn requests_of_another_epoch_are_refused_with_the_right_one() {
    let mut bench = Bench::with_monitor();
    bench.enter(|membership| stands(membership, 3, MemberState::Out));
    let wrong = Reply::Rejected { rejection: Rejection::WrongEpoch { current: Epoch(2) } };
    for epoch in [0, 1, 3] {
        bench.renewals.clear();
        bench.pass(Duration::from_millis(100));
        bench.epoch = Epoch(epoch);
        let actor = Actor::new(A, 1, bench.stamp(A, 0));
        for command in [Command::Heartbeat, actor.prewrite(RANGE), actor.resolve()] {
            bench.say_with(A, vec![1], command);
            assert_eq!(bench.hear(A), Some(wrong.clone()));
        }
        assert_eq!(bench.renewals.len(), usize::from(epoch > 2), "a later epoch makes the device ask: {epoch}");
    }
}

#[test]
fn announced_writes_are_dropped_when_the_members_change() {
    for object in [(OBJECT, Ordering::Timestamp), (LOCKED, Ordering::DeviceLock)] {
        println!("{object:?}");
        let parts = [
            ("a1@0 pre 3+2", "a1 accepted"),
            // Another transaction waits for it, to write or to read.
            ("b1@10 read 3+2", ""),
            ("enter 3:out", ""),
            ("a1 write 3+2", "a1: Write NoPrewrite"),
            ("waiting?", "0"),
            ("locks?", "0"),
            // It is not blocked any more.
            ("b2@20 read 3+2", "b2 has 0 0"),
        ];
        tell_of(object, Bench::with_monitor(), &parts);
    }
}

#[test]
fn a_fenced_host_is_refused_now_and_after_a_restart_and_blocks_no_request() {
    // Every request in every epoch is rejected.
    let refused = [
        ("epoch 1", ""),
        ("a1 write 3+2", "a: Fenced"),
        ("epoch 2", ""),
        ("a1 write 3+2", "a: Fenced"),
        ("a beats", "a: Fenced"),
    ];
    let mut told = monitored(&[
        ("a1@0 pre 3+2", "a1 accepted"),
        // The read waits for the announced write.
        ("b1@10 read 3+2", ""),
        ("fence a", "b1 has 0 0 at last"),
    ]);
    for restart in [&[][..], &[("restart", ""), ("tell", "")]] {
        told.goes_on(restart);
        assert!(told.bench.device.keeps_out(A) && !told.bench.device.keeps_out(B));
        told.goes_on(&refused);
    }
}

#[test]
fn after_an_absence_only_transactions_without_other_participants_are_left_undecided() {
    with_plain(
        OBJECT,
        &[
            PREPARED,
            RETURNED,
            // The other devices have decided it.
            ("b asks a101", "b: a101: NeverPrepared"),
            // A late commit of a forgotten transaction changes nothing.
            ("b commits a101", "b: a101 is over: Commit"),
            ("enter 0:in", ""),
            ("b3@3000000 read 3+2", "b3 has 0 0"),
        ],
    );
    // No device decides it without this one.
    with_plain(PLAIN, &[PREPARED, RETURNED, ("b asks a101", "b: a101: Prepared")]);
}

#[test]
fn no_commit_on_a_removed_object_is_remembered_after_an_absence() {
    let mut told = monitored(&[
        PREPARED,
        ("a commits a101", ""),
        ("lease 100ms", "a101 is over: Commit"),
        ("count commits_remembered", "1"),
    ]);
    told.bench.manage(A, 50, Task::RemoveObject { object: OBJECT }).expect("it is removed");
    // No host has it forgotten.
    told.goes_on(&[RETURNED, ("count commits_remembered", "0")]);
}

/// Otherwise the returning device could be in before the decision, and later be the only one of the two that is in.
#[test]
fn missed_blocks_are_not_listed_before_earlier_intents_are_decided() {
    let mut told = monitored(&[PREPARED, ("enter 1:out", ""), ("enter 1:returning", "")]);
    let list = || Task::ListMissed { device: DeviceId(1), object: OBJECT, from: 0 };
    let missed = told.bench.manage(B, 1, list());
    assert_eq!(missed, Err(Failure::Busy), "device 1 took part in it, and has no vote any more");
    told.goes_on(&[("a commits a101", ""), ("lease 100ms", "a101 is over: Commit")]);
    let missed = told.bench.manage(B, 2, list());
    assert!(matches!(&missed, Ok(Managed::Missed { extents, .. }) if *extents == [RANGE]), "{missed:?}");
}

#[test]
fn a_device_names_fenced_hosts_until_nothing_of_theirs_is_undecided() {
    let named = |told: &Story| match &told.bench.renewals.back().expect("the device renews its lease").command {
        MonitorCommand::Renew { undecided, .. } => undecided.clone(),
        other => panic!("not a renewal: {other:?}"),
    };
    let mut told = with_plain(OBJECT, &[PREPARED]);
    // No other device decides a transaction without redundancy.
    let plain = Actor::new(A, 102, told.bench.stamp(A, 1)).on(PLAIN, Ordering::Timestamp);
    prepare(&mut told.bench, plain, RANGE, 8);
    let other = Actor::new(B, 101, told.bench.stamp(B, 0)).on(LOCKED, Ordering::DeviceLock);
    prepare(&mut told.bench, other, RANGE, 9);
    assert_eq!(named(&told), []);
    told.goes_on(&[("fence a", "")]);
    assert_eq!((named(&told), told.bench.epoch_told()), (vec![A], Some(told.bench.epoch)));
    // It is reported until the decision is durable.
    told.goes_on(&[("stall", ""), ("b commits a101", ""), ("pass 500ms", "")]);
    assert_eq!(named(&told), [A]);
    told.goes_on(&[("resume", "b: a101 is over: Commit")]);
    assert_eq!(named(&told), [], "the decision is reported at once");
}

/// What the device tells host A of other hosts' users.
fn is_busy(bench: &mut Bench) -> bool {
    bench.heard.clear();
    bench.say(A, Command::Heartbeat);
    match bench.heard.get_mut(&A).and_then(|answers| answers.pop_back()).map(|answer| answer.reply) {
        Some(Reply::Heartbeat { busy, .. }) => busy,
        other => panic!("not an answer to a heartbeat: {other:?}"),
    }
}

/// Otherwise recovery coordinators and rebuild workers would yield to each other.
#[test]
fn restores_do_not_count_as_work_for_users() {
    let mut bench = Bench::with_monitor();
    let later = Duration::from_secs(1);
    let mut sequence = 0;
    let mut read = |bench: &mut Bench, start| {
        sequence += 1;
        let reader = Actor::new(B, sequence, bench.stamp(B, 0));
        bench.heard.clear();
        assert!(matches!(bench.ask(B, reader.read(BlockRange::new(start, 4))), Some(Reply::Data { .. })));
    };
    assert!(!is_busy(&mut bench));
    read(&mut bench, 100);
    assert!(is_busy(&mut bench), "nothing is known of a restore");
    bench.pass_with_lease(later);
    assert!(!is_busy(&mut bench));
    let task = Task::ListAllocated { object: OBJECT, range: BlockRange::new(64, 64) };
    bench.say(B, Command::Manage { ticket: 1, task });
    for start in [62, 100, 126] {
        read(&mut bench, start);
        assert!(!is_busy(&mut bench), "a restore reads near {start}");
    }
    read(&mut bench, 128);
    assert!(is_busy(&mut bench), "the host's users read elsewhere");
    for _ in 0..11 {
        bench.pass_with_lease(later);
        bench.say(B, Command::Heartbeat);
    }
    read(&mut bench, 100);
    assert!(is_busy(&mut bench), "the restore has ended");
}

#[test]
fn a_returning_device_takes_writes_of_several_devices_for_work_for_users() {
    let mut bench = Bench::with_monitor();
    bench.enter(|membership| stands(membership, 0, MemberState::Out));
    bench.enter(|membership| stands(membership, 0, MemberState::Returning { recovery_coordinator: None }));
    let write = |bench: &mut Bench, sequence, participants: &[u16]| {
        let writer = Actor::new(B, sequence, bench.stamp(B, sequence as i64));
        bench.heard.clear();
        assert_eq!(bench.ask(B, writer.prewrite(RANGE)), accepted(writer));
        assert!(matches!(bench.ask(B, sent_to(writer.write(RANGE, 7), participants)), Some(Reply::Written { .. })));
        bench.say(B, writer.decide(Outcome::Abort));
    };
    write(&mut bench, 1, &[0]);
    assert!(!is_busy(&mut bench), "a restore writes this device alone");
    write(&mut bench, 2, &[1, 0]);
    assert!(is_busy(&mut bench));
}

stories! {
    monitored;

    fn announced_writes_stay_when_only_hosts_are_fenced():
        "a1@0 pre 3+2" => "a1 accepted";
        "fence b";
        "a1 write 3+2" => "a1 written";

    fn a_returning_device_is_written_and_not_read_until_it_is_in():
        "b1@0 read 3+2" => "b1 has 0 0"; // The device has served before.
        "enter 0:returning";
        "a1@1 read 3+2" => "a1: Read Absent";
        "a1 update 3+2" => "a1: Prewrite Absent";
        "a1 prepare 3+2 =7" => "a1 accepted, a1 written";
        "a1 ends";
        "lease 1s";
        "restart";
        "tell";
        "a2@2000000 read 3+2" => "a2: Read Absent";
        "enter 0:in";
        "a3@3000000 read 3+2" => "a3 has 7 7";

    fn a_device_that_is_out_serves_no_request_whatever_lease_it_has():
        "enter 0:out";
        "a1@0 read 3+2";
        "leased?" => "no";

    /// A recovery coordinator restores blocks in such a transaction: the device alone knows that they are restored.
    fn an_intent_without_other_participants_outlives_an_absence():
        "a1@0 pre 3+2" => "a1 accepted";
        "a1 write-alone 3+2" => "a1 written";
        "enter 0:returning";
        "b asks a1" => "b: a1: Prepared";

    fn leases_of_hosts_run_out_while_the_monitor_renews_that_of_the_device():
        "a1@0 pre 3+2" => "a1 accepted";
        "lease 8s";
        "a1 write 3+2" => "a1: Write TooLate for a1";
}
