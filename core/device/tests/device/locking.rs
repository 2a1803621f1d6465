//! Device-served locks, and writes under the locks of a lock server.

use crate::bench::*;
use crate::story::{Story, stories, tell_of};

const ARRIVING_LOCKED: (ObjectId, Ordering) = (LOCKED_ARRIVING, Ordering::DeviceLock);

/// A story of transactions that lock.
fn locked(parts: &[(&str, &str)]) -> Story {
    tell_of((LOCKED, Ordering::DeviceLock), Bench::new(), parts)
}

/// A story of transactions under locks of a lock server.
fn served(parts: &[(&str, &str)]) -> Story {
    tell_of((SERVED, Ordering::ServerLock), Bench::new(), parts)
}

fn locker(bench: &Bench, host: Generation, sequence: u64, micros: i64) -> Actor {
    Actor::new(host, sequence, bench.stamp(host, micros)).on(LOCKED, Ordering::DeviceLock)
}

#[test]
fn reads_that_are_over_are_not_remembered_without_end_while_an_earlier_transaction_is_not() {
    let mut bench = Bench::new();
    // The host's settled mark stays below all of them.
    let readers: Vec<_> = (1..=5_000).map(|sequence| locker(&bench, A, sequence, sequence as i64)).collect();
    for some in readers.chunks(100) {
        for reader in some {
            assert_eq!(fills(&bench.ask(A, reader.read(BLOCK)).expect("shared")), [0]);
        }
        let over: Vec<u64> = some.iter().map(|reader| reader.id.sequence).collect();
        bench.say_with(A, over.clone(), Command::Heartbeat);
        bench.say_over(A, over);
    }
    assert!(bench.device.transactions().count() < 4_100);
    assert_eq!(bench.device.locks(), 0);
    for copy in [readers[0], readers[3_000], readers[4_999]] {
        bench.say(A, copy.read(BLOCK));
        // A transaction that is remembered as over is refused again: its first refusal may have been lost.
        let refused = |refusal| matches!(refusal, Refusal::TooLate { .. } | Refusal::NoPrewrite);
        let answer = bench.hear(A).expect("each copy is answered");
        assert!(matches!(answer, Reply::Refused { refusal, .. } if refused(refusal)), "{answer:?}");
        assert_eq!(bench.device.locks(), 0, "a late copy does not lock again");
    }
    let next = locker(&bench, B, 1, 20_000);
    assert_eq!(bench.ask(B, next.prewrite(BLOCK)), accepted(next));
}

#[test]
fn without_a_lock_nothing_is_written() {
    locked(&[("b1@1 read 9", "b1 has 0"), ("a1@0 write 4", "a1: Write NoPrewrite")]);
    let arrives = [("b1@1 read 9", "b1 has 0"), ("a1@0 arrive 4", "a1: Write NoPrewrite")];
    tell_of(ARRIVING_LOCKED, Bench::new(), &arrives);
}

#[test]
fn a_write_that_waits_for_no_decision_unlocks_when_it_is_durable() {
    let parts = [
        ("a1@0 pre 4", "a1 accepted"),
        ("stall", ""),
        ("a1 arrive 4 =8", ""),
        ("b1@1 read 4", ""),
        ("resume", "a1 written, b1 has 8 at last"),
    ];
    tell_of(ARRIVING_LOCKED, Bench::new(), &parts);
}

#[test]
fn the_ordering_of_an_object_changes_only_while_it_is_unused() {
    let mut bench = locked(&[("a1@0 read 4", "a1 has 0")]).bench;
    let task = Task::SetOrdering { object: LOCKED, ordering: Ordering::Timestamp };
    assert_eq!(bench.manage(B, 8, task.clone()), Err(Failure::InUse));
    bench.say_with(A, vec![1], Command::Heartbeat);
    for ticket in [9, 10] {
        assert_eq!(bench.manage(B, ticket, task.clone()), Ok(Managed::Done));
    }
    bench.restart();
    let old = locker(&bench, A, 2, 10);
    assert_eq!(bench.ask(A, old.read(BLOCK)), failed(old, Step::Read, Failure::WrongOrdering));
    let new = old.on(LOCKED, Ordering::Timestamp);
    bench.say(A, new.read(BlockRange::new(BLOCKS - 1, 1)));
    bench.now.clock = bench.now.clock.ahead(Duration::from_secs(2));
    let none = Task::SetOrdering { object: UNORDERED, ordering: Ordering::None };
    assert_eq!(bench.manage(B, 11, none), Ok(Managed::Done));
}

stories! {
    locked;

    fn no_request_overtakes_one_that_waits_for_the_same_blocks():
        "a1@0 read 4" => "a1 has 0";
        "b1@1 pre 4" => "a1 blocks";
        "c1@2 read 4"; // A late reader waits behind the writer.
        "a1 ends" => "b1 accepted at last";
        "b aborts b1" => "b1 is over: Abort, c1 has 0 at last";

    fn a_lock_that_can_not_be_had_in_time_is_refused_and_leaves_no_place_in_the_queue():
        "a1@0 pre 4" => "a1 accepted";
        "b1@1 update 4";
        "pass 49ms";
        "pass 1ms" => "b1: Prewrite LockTimeout";
        "b1 update 4" => "b1: Prewrite NoPrewrite";
        "a aborts a1" => "a1 is over: Abort";
        "c1@2 pre 4" => "c1 accepted";

    fn a_late_copy_of_a_read_does_not_lock_again():
        "a1@0 read 4" => "a1 has 0";
        "a1 ends";
        "a1 read 4" => "a1: Read NoPrewrite";
        "b1@1 pre 4" => "b1 accepted";

    fn the_locks_of_a_silent_host_are_given_to_others_and_it_can_do_nothing_with_them_any_more():
        "a1@0 pre 4" => "a1 accepted";
        "pass 6s";
        "b1@0 prepare 4 =7" => "b1 accepted, b1 written";
        "b1 ends";
        "a1 pre 4" => "a1: Prewrite TooLate for b1"; // A late copy is below the floor.
        "a1 write 4" => "a1: Write NoPrewrite";

    fn after_a_restart_only_intents_hold_their_locks():
        "a1@0 prepare 4 =5" => "a1 accepted, a1 written";
        "b1@1 read 9" => "b1 has 0";
        "restart";
        "c1@2000000 read 4" => "a1 blocks"; // The recovered intent holds its lock.
        "c2@2000001 pre 9" => "c2 accepted";
        "a1 ends" => "c1 has 5 at last";

    /// Without the refusal, a transaction that lost its lock on another device in a restart would read here what was written
    /// after its read there.
    fn a_read_below_the_last_write_is_refused():
        "b1@1 prepare 4 =3" => "b1 accepted, b1 written";
        "b1 ends";
        "a1@0 read 4" => "a1: Read TooLate for b1";
}

stories! {
    served;

    fn under_a_servers_lock_a_write_needs_no_announcement_but_must_be_above_the_last():
        "a1@10 write 4 =1" => "a1 written";
        "b1@5 write 4 =2" => "b1: Write TooLate for a1";
        "c1@20 write 4 =3" => "a1 blocks"; // The commit of the first has not arrived.
        "a1 ends" => "c1 written at last";
        "c1 ends";
        "b2@0 read 4" => "b2 has 3"; // Reads are admitted by lock, not by stamp.

    fn an_abort_promise_holds_under_a_lock_server_s_lock():
        "a1@0";
        "b asks a1" => "b: a1: NeverPrepared";
        "restart";
        "a1 write 4" => "a1: Write TooLate";
}
