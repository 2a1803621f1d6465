//! A restarted lock server knows no locks, only the hosts that may hold some.

use crate::bench::*;
use braid_locks::ListError;
use braid_machine::{DiskError, DiskResult, DiskTag};

/// Both hosts hold locks, then the server restarts.
fn restarted() -> Bench {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), LockTerm::Cached);
    bench.lock(TWO, 1, Exclusive, (8, 8), PATIENT);
    bench.restart();
    assert_eq!(bench.server.service(), LockService::Recovering);
    bench
}

fn hold(bench: &mut Bench, to: u32, host: Generation, lock_id: u64, mode: LockMode, range: (u64, u64), cached: bool) {
    let term = LockTerm::Held { start: Generation(to), cached };
    let command = LockCommand::Lock { lock_id, object: OBJECT, extents: extents(mode, &[range]), term };
    bench.say_to(Generation(1), host, command);
}

fn lock(lock_id: u64, range: (u64, u64)) -> LockCommand {
    LockCommand::Lock { lock_id, object: OBJECT, extents: extents(Exclusive, &[range]), term: PATIENT }
}

#[test]
fn without_its_list_a_server_waits_for_all_possible_holders_also_after_another_restart() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), LockTerm::Cached);
    bench.lose_list(&[ONE, TWO]);
    assert_eq!(bench.server.service(), LockService::Recovering);
    // The list was written at once.
    bench.restart();
    assert_eq!(bench.server.service(), LockService::Recovering);
    bench.say_to(Generation(0), THREE, lock(1, (0, 8)));
    hold(&mut bench, 3, ONE, 1, Exclusive, (0, 8), true);
    assert_eq!(bench.hear(ONE), granted(1, false));
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.hear(THREE), None, "the other host has not spoken");
    bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.server.service(), LockService::Serving);
    assert_eq!((bench.hear(ONE), bench.hear(THREE)), (BEAT, None));
    assert_eq!(bench.hear(ONE), revoke(&[1]), "another host waits for its lock");
    assert_eq!(bench.server.counters().reasserted, 1);
}

#[test]
fn hosts_that_say_nothing_are_fenced_before_anything_is_granted() {
    let mut bench = restarted();
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    bench.lock(ONE, 2, Exclusive, (8, 8), PATIENT);
    bench.pass_with(settings().host_lease, &[ONE]);
    assert!(bench.fences.is_empty());
    bench.pass_with(Duration::from_secs(1), &[ONE]);
    assert!(bench.fences.iter().all(|(_, hosts)| *hosts == [TWO]));
    bench.hear(ONE);
    assert_eq!(bench.hear(ONE), None);
    bench.fence_all();
    assert_eq!(bench.hear(ONE), granted(2, false));
    // Fenced hosts are not waited for after the next restart, and their reassertions are rejected.
    bench.restart();
    hold(&mut bench, 3, TWO, 1, Exclusive, (8, 8), false);
    assert_eq!(bench.hear(TWO), Some(LockReply::Rejected { rejection: Rejection::Fenced }));
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.server.service(), LockService::Serving);
}

#[test]
fn a_host_that_does_not_know_of_the_restart_learns_of_it_and_gets_no_lock_yet() {
    let mut bench = restarted();
    bench.say_to(Generation(0), ONE, lock(5, (50, 1)));
    bench.say_to(Generation(1), ONE, lock(6, (60, 1)));
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (BEAT, BEAT));
    bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.server.service(), LockService::Recovering, "the host has not reasserted its locks");
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (granted(5, false), granted(6, false)));
    // The host has reasserted its locks, so a request with the earlier start must be a late copy.
    bench.say_to(Generation(1), ONE, lock(7, (70, 1)));
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (BEAT, BEAT));
    assert_eq!(bench.server.engine().lock_ids().count(), 2);
}

#[test]
fn a_duplicate_lock_request_does_not_replace_a_reported_lock() {
    let mut bench = restarted();
    bench.say_to(Generation(1), ONE, lock(1, (0, 8)));
    hold(&mut bench, 2, ONE, 1, Exclusive, (0, 8), true);
    bench.say_to(Generation(1), ONE, lock(1, (0, 8)));
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
    let heard: Vec<_> = std::iter::from_fn(|| bench.hear(ONE)).collect();
    let granted = || granted(1, false).expect("a grant");
    assert_eq!(
        heard,
        [LockReply::Heartbeat { sent: Time(0) }, granted(), granted(), LockReply::Heartbeat { sent: Time(0) }]
    );
    assert_eq!(bench.server.engine().lock_ids().count(), 1);
}

/// Late copies: to another start, or from before the host had reasserted everything.
#[test]
fn late_copies_of_requests_for_held_locks_are_ignored() {
    let mut bench = restarted();
    hold(&mut bench, 1, ONE, 1, Exclusive, (0, 8), true);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    hold(&mut bench, 2, ONE, 1, Exclusive, (0, 8), true);
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (BEAT, None));
    assert_eq!(bench.server.engine().lock_ids().count(), 0);
    bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
    // Also when the host has been forgotten since: it is not rejected as fenced.
    bench.pass(settings().host_lease * 2);
    hold(&mut bench, 2, ONE, 1, Exclusive, (0, 8), true);
    assert_eq!(bench.hear(ONE), None);
}

#[test]
fn of_two_hosts_that_say_they_hold_the_same_the_second_is_fenced() {
    let mut bench = restarted();
    hold(&mut bench, 2, ONE, 1, Shared, (0, 8), true);
    hold(&mut bench, 2, TWO, 1, Exclusive, (0, 8), true);
    assert_eq!(bench.hear(TWO), None);
    assert!(bench.fences.iter().all(|(_, hosts)| *hosts == [TWO]) && bench.fences.len() == 1);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    assert_eq!(bench.server.service(), LockService::Recovering);
    bench.fence_all();
    // What the second has read may be kept for a lease.
    bench.pass_with(settings().host_lease * 2, &[ONE]);
    assert_eq!(bench.server.service(), LockService::Serving);
}

#[test]
fn answers_of_the_monitor_to_an_earlier_start_do_not_count() {
    let mut bench = restarted();
    bench.pass(settings().host_lease * 2);
    let late = std::mem::take(&mut bench.fences);
    bench.restart();
    bench.pass(settings().host_lease * 2);
    for (ticket, _) in late {
        bench.fenced(ticket);
    }
    assert_eq!(bench.server.service(), LockService::Recovering);
    bench.fence_all();
    assert_eq!(bench.server.service(), LockService::Serving);
}

#[test]
fn a_server_whose_disk_fails_stops() {
    let mut bench = Bench::new();
    bench.stalled = true;
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.take(Input::DiskDone { tag: DiskTag(1), result: DiskResult::Done(Err(DiskError::Failed)) });
    assert_eq!(bench.server.service(), LockService::Unusable(ListError::Disk(DiskError::Failed)));
    assert_eq!(bench.server.deadline(), None);
    let mut effects = Effects::new();
    bench.server.step(bench.now, Input::Wake, &mut effects);
    assert!(effects.is_empty() && bench.hear(ONE).is_none());
}

#[test]
fn a_host_that_has_ended_keeps_nobody_waiting_after_a_restart() {
    let mut bench = Bench::of_files();
    bench.lock(ONE, 1, Shared, (0, 8), PATIENT);
    bench.lock(TWO, 1, Shared, (0, 8), PATIENT);
    while bench.hear(ONE).is_some() {}
    bench.stalled = true;
    bench.unlock(ONE, 1);
    assert_eq!(bench.hear(ONE), None, "the list on disk still names it");
    bench.stalled = false;
    bench.run_disk();
    assert_eq!(bench.hear(ONE), Some(LockReply::Unlocked { lock_id: 1 }));
    bench.unlock(TWO, 1);
    bench.restart();
    assert_eq!(bench.server.service(), LockService::Serving, "no host has to reassert anything");
}
