//! Lock, unlock, wait and revoke.

use crate::bench::*;

fn unlocked(lock_id: u64) -> Option<LockReply> {
    Some(LockReply::Unlocked { lock_id })
}

#[test]
fn repeated_requests_are_answered_as_the_first() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    assert_eq!((bench.hear(ONE), bench.hear(ONE)), (granted(1, false), granted(1, false)));
    bench.lock(TWO, 7, Exclusive, (0, 8), PATIENT);
    bench.lock(TWO, 7, Exclusive, (0, 8), PATIENT);
    assert_eq!(bench.server.engine().lock_ids().count(), 2);
    bench.unlock(ONE, 1);
    bench.unlock(ONE, 1);
    bench.hear(ONE);
    assert_eq!(bench.hear(ONE), unlocked(1));
    bench.lock(TWO, 7, Exclusive, (0, 8), PATIENT);
    assert_eq!((bench.hear(TWO), bench.hear(TWO), bench.hear(TWO)), (granted(7, true), granted(7, true), None));
    assert_eq!((bench.server.counters().locks, bench.server.counters().unlocks), (2, 1));
}

#[test]
fn no_lock_is_granted_before_its_host_is_on_the_disk() {
    let mut bench = Bench::new();
    bench.stalled = true;
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(ONE, 2, Exclusive, (8, 8), PATIENT);
    bench.lock(TWO, 1, Exclusive, (16, 8), PATIENT);
    bench.lock(TWO, 2, Exclusive, (24, 8), PATIENT);
    bench.unlock(TWO, 1);
    assert_eq!((bench.hear(ONE), bench.hear(TWO)), (None, unlocked(1)));
    bench.stalled = false;
    bench.run_disk();
    assert_eq!((bench.hear(ONE), bench.hear(ONE), bench.hear(ONE)), (granted(1, false), granted(2, false), None));
    assert_eq!((bench.hear(TWO), bench.hear(TWO)), (granted(2, false), None));
    // The second host came while the list with the first was being written.
    assert_eq!(bench.server.counters().list_writes, 2);
    bench.lock(TWO, 3, Exclusive, (32, 8), PATIENT);
    assert_eq!(bench.server.counters().list_writes, 2);
}

#[test]
fn cached_locks_are_revoked_until_they_are_returned() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Shared, (0, 8), LockTerm::Cached);
    bench.lock(ONE, 2, Shared, (8, 8), LockTerm::Cached);
    bench.lock(ONE, 3, Shared, (16, 8), LockTerm::Cached);
    bench.lock(TWO, 1, Shared, (0, 24), LockTerm::Cached);
    assert_eq!(bench.hear(TWO), granted(1, false));
    for lock_id in 1..=3 {
        assert_eq!(bench.hear(ONE), granted(lock_id, false));
    }
    bench.lock(THREE, 1, Exclusive, (4, 8), LockTerm::Cached);
    assert_eq!((bench.hear(ONE), bench.hear(TWO)), (revoke(&[1, 2]), revoke(&[1])));
    bench.pass(settings().resend_min);
    assert_eq!((bench.hear(ONE), bench.hear(TWO)), (revoke(&[1, 2]), revoke(&[1])));
    bench.say(ONE, LockCommand::Yield { lock_ids: vec![1, 2] });
    bench.pass(settings().resend_min);
    assert_eq!((bench.hear(ONE), bench.hear(TWO)), (None, revoke(&[1])));
    let dropped = LockRequest {
        host: TWO,
        start: bench.start,
        dropped: vec![1],
        command: LockCommand::Heartbeat { sent: Time(0) },
    };
    bench.request(dropped);
    assert_eq!(bench.hear(THREE), granted(1, true));
    bench.pass(settings().resend_min * 4);
    assert_eq!((bench.hear(TWO), bench.hear(TWO), bench.hear(THREE)), (BEAT, None, None));
    let counters = bench.server.counters();
    assert_eq!((counters.yields, counters.dropped, counters.revocations), (2, 1, 7));
}

#[test]
fn locks_over_each_other_are_reported_to_a_restarted_server() {
    let mut bench = Bench::new();
    bench.lock(ONE, 1, Shared, (0, 8), PATIENT);
    bench.restart();
    let old = Generation(bench.start.0 - 1);
    for (lock_id, mode) in [(1, Shared), (2, Exclusive)] {
        let (extents, term) = (extents(mode, &[(0, 8)]), LockTerm::Held { start: bench.start, cached: false });
        bench.say_to(old, ONE, LockCommand::Lock { lock_id, object: OBJECT, extents, term });
        assert_eq!(bench.hear(ONE), granted(lock_id, false));
    }
    let (extents, over) = (extents(Exclusive, &[(20, 1)]), vec![1]);
    let (width, ahead, patience) = (0, Vec::new(), Patience::Impatient);
    let command = LockCommand::LockRange { lock_id: 3, object: OBJECT, extents, width, ahead, over, patience };
    bench.say_to(old, ONE, command);
    assert_eq!(bench.hear(ONE), BEAT, "a late copy, or one that comes too early");
    assert!(bench.fences.is_empty());
}
