//! Device-served locks, and writes under the locks of a lock server.

use crate::bench::*;

const A: Generation = Generation(1);
const B: Generation = Generation(2);
const C: Generation = Generation(3);
const BLOCK: BlockRange = BlockRange { start: 4, count: 1 };

fn locker(bench: &Bench, host: Generation, sequence: u64, micros: i64) -> Actor {
    Actor::new(host, sequence, bench.stamp(host, micros)).on(LOCKED, Ordering::DeviceLock)
}

/// A device, and transactions that lock.
fn lockers<const N: usize>(actors: [(Generation, u64, i64); N]) -> (Bench, [Actor; N]) {
    let (bench, actors) = Bench::new().with_actors(actors);
    (bench, actors.map(|actor| actor.on(LOCKED, Ordering::DeviceLock)))
}

fn served(bench: &Bench, host: Generation, sequence: u64, micros: i64) -> Actor {
    Actor::new(host, sequence, bench.stamp(host, micros)).on(SERVED, Ordering::ServerLock)
}

/// Locks, writes and commits.
fn write(bench: &mut Bench, writer: Actor, fill: u8) {
    assert_eq!(bench.ask(writer.id.host, writer.prewrite(BLOCK)), accepted(writer));
    assert_eq!(bench.ask(writer.id.host, writer.write(BLOCK, fill)), written(writer));
    bench.say_with(writer.id.host, vec![writer.id.sequence], Command::Heartbeat);
}

#[test]
fn readers_share_and_a_writer_waits_for_the_last_of_them() {
    let (mut bench, [first, second, writer]) = lockers([(A, 1, 0), (B, 1, 1), (C, 1, 2)]);
    bench.say(A, first.read(BLOCK));
    bench.say(B, second.read(BLOCK));
    assert_eq!(fills(&bench.hear(A).expect("shared")), [0]);
    assert_eq!(fills(&bench.hear(B).expect("shared")), [0]);
    assert_eq!(bench.ask(C, writer.prewrite(BLOCK)), None, "two readers hold the lock");
    assert_eq!(bench.hear(A), Some(Reply::Blocked { transaction: first.id }), "told to unlock soon");
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(C), None, "one reader holds the lock");
    bench.say_with(B, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(C), Some(Reply::Accepted { transaction: writer.id, waited: true }));
}

#[test]
fn no_request_overtakes_one_that_waits_for_the_same_blocks() {
    let (mut bench, [reader, writer, late]) = lockers([(A, 1, 0), (B, 1, 1), (C, 1, 2)]);
    bench.say(A, reader.read(BLOCK));
    bench.say(B, writer.prewrite(BLOCK));
    bench.say(C, late.read(BLOCK));
    bench.hear(A);
    assert_eq!(bench.hear(C), None, "a late reader waits behind the writer");
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(B), Some(Reply::Accepted { transaction: writer.id, waited: true }));
    bench.say(B, writer.decide(Outcome::Abort));
    assert_eq!(fills(&bench.hear(C).expect("granted after the writer")), [0]);
}

#[test]
fn a_lock_that_can_not_be_had_in_time_is_refused_and_leaves_no_place_in_the_queue() {
    let (mut bench, [holder, waiter, third]) = lockers([(A, 1, 0), (B, 1, 1), (C, 1, 2)]);
    bench.say(A, holder.prewrite(BLOCK));
    bench.say(B, waiter.read_and_prewrite(BLOCK));
    bench.pass(Duration::from_millis(49));
    assert_eq!(bench.hear(B), None);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.hear(B), refused(waiter, Step::Prewrite, Refusal::LockTimeout));
    assert_eq!(bench.ask(B, waiter.read_and_prewrite(BLOCK)), refused(waiter, Step::Prewrite, Refusal::NoPrewrite));
    bench.say(A, holder.decide(Outcome::Abort));
    assert_eq!(bench.ask(C, third.prewrite(BLOCK)), accepted(third));
}

#[test]
fn a_late_copy_of_a_read_does_not_lock_again() {
    let (mut bench, [reader, writer]) = lockers([(A, 1, 0), (B, 1, 1)]);
    bench.say(A, reader.read(BLOCK));
    bench.say_with(A, vec![1], Command::Heartbeat);
    bench.say(A, reader.read(BLOCK));
    assert_eq!(bench.ask(B, writer.prewrite(BLOCK)), accepted(writer));
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
fn the_locks_of_a_silent_host_are_given_to_others_and_it_can_do_nothing_with_them_any_more() {
    let (mut bench, [silent]) = lockers([(A, 1, 0)]);
    bench.ask(A, silent.prewrite(BLOCK));
    bench.pass(Duration::from_secs(6));
    let next = locker(&bench, B, 1, 0);
    write(&mut bench, next, 7);
    // A late copy is below the floor.
    let reply = bench.ask(A, silent.prewrite(BLOCK));
    assert!(matches!(reply, Some(Reply::Refused { refusal: Refusal::TooLate { .. }, .. })), "{reply:?}");
    assert!(matches!(bench.ask(A, silent.write(BLOCK, 1)), Some(Reply::Refused { refusal: Refusal::NoPrewrite, .. })));
}

#[test]
fn after_a_restart_only_intents_hold_their_locks() {
    let (mut bench, [writer, reader]) = lockers([(A, 1, 0), (B, 1, 1)]);
    bench.say(A, writer.prewrite(BLOCK));
    bench.say(A, writer.write(BLOCK, 5));
    bench.say(B, reader.read(BlockRange::new(9, 1)));
    bench.restart();
    let later = 2_000_000;
    let (blocked, free) = (locker(&bench, C, 1, later), locker(&bench, C, 2, later + 1));
    assert_eq!(bench.ask(C, blocked.read(BLOCK)), None, "the recovered intent holds its lock");
    assert_eq!(bench.ask(C, free.prewrite(BlockRange::new(9, 1))), accepted(free));
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(fills(&bench.hear(C).expect("it is committed")), [5]);
}

/// Without the refusal, a transaction that lost its lock on another device in a restart would read here what was written
/// after its read there.
#[test]
fn a_read_below_the_last_write_is_refused() {
    let (mut bench, [early, writer]) = lockers([(A, 1, 0), (B, 1, 1)]);
    write(&mut bench, writer, 3);
    assert_eq!(bench.ask(A, early.read(BLOCK)), refused(early, Step::Read, Refusal::TooLate { seen: writer.stamp }));
}

#[test]
fn without_a_lock_nothing_is_written() {
    let (mut bench, [writer, reader]) = lockers([(A, 1, 0), (B, 1, 1)]);
    bench.say(B, reader.read(BlockRange::new(9, 1)));
    for (mode, object) in [(WriteMode::Intent, LOCKED), (WriteMode::Immediate, LOCKED_ARRIVING)] {
        bench.say(A, writer.on(object, Ordering::DeviceLock).write_as(mode, BLOCK, 1));
        assert!(matches!(bench.hear(A), Some(Reply::Refused { refusal: Refusal::NoPrewrite, .. })), "{mode:?}");
    }
}

#[test]
fn a_write_that_waits_for_no_decision_unlocks_when_it_is_durable() {
    let mut bench = Bench::new();
    let arriving = |actor: Actor| actor.on(LOCKED_ARRIVING, Ordering::DeviceLock);
    let (writer, reader) = (arriving(locker(&bench, A, 1, 0)), arriving(locker(&bench, B, 1, 1)));
    bench.say(A, writer.prewrite(BLOCK));
    bench.stalled = true;
    bench.say(A, writer.write_as(WriteMode::Immediate, BLOCK, 8));
    assert_eq!(bench.ask(B, reader.read(BLOCK)), None);
    bench.resume_disk();
    assert_eq!(fills(&bench.hear(B).expect("it is durable")), [8]);
}

#[test]
fn under_a_servers_lock_a_write_needs_no_announcement_but_must_be_above_the_last() {
    let mut bench = Bench::new();
    let (first, late, next) = (served(&bench, A, 1, 10), served(&bench, B, 1, 5), served(&bench, C, 1, 20));
    assert_eq!(bench.ask(A, first.write(BLOCK, 1)), written(first));
    assert_eq!(bench.ask(B, late.write(BLOCK, 2)), refused(late, Step::Write, Refusal::TooLate { seen: first.stamp }));
    assert_eq!(bench.ask(C, next.write(BLOCK, 3)), None, "the commit of the first has not arrived");
    assert_eq!(bench.hear(A), Some(Reply::Blocked { transaction: first.id }));
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(C), Some(Reply::Written { transaction: next.id, waited: true }));
    bench.say_with(C, vec![1], Command::Heartbeat);
    let reader = served(&bench, B, 2, 0);
    assert_eq!(fills(&bench.ask(B, reader.read(BLOCK)).expect("reads are admitted by lock, not by stamp")), [3]);
}

#[test]
fn an_abort_promise_holds_under_a_lock_server_s_lock() {
    let mut bench = Bench::new();
    let lost = served(&bench, A, 1, 0);
    assert!(matches!(bench.ask(B, lost.resolve()), Some(Reply::Vote { .. })));
    bench.restart();
    bench.say(A, lost.write(BLOCK, 1));
    assert!(matches!(bench.hear(A), Some(Reply::Refused { refusal: Refusal::TooLate { .. }, .. })));
}

#[test]
fn the_ordering_of_an_object_changes_only_while_it_is_unused() {
    let (mut bench, [holder]) = lockers([(A, 1, 0)]);
    bench.ask(A, holder.read(BLOCK));
    let task = Task::SetOrdering { object: LOCKED, ordering: Ordering::Timestamp };
    bench.say(B, Command::Manage { ticket: 8, task: task.clone() });
    assert_eq!(bench.hear(B), Some(Reply::Managed { ticket: 8, result: Err(Failure::InUse) }));
    bench.say_with(A, vec![1], Command::Heartbeat);
    for ticket in [9, 10] {
        bench.say(B, Command::Manage { ticket, task: task.clone() });
        assert_eq!(bench.hear(B), Some(Reply::Managed { ticket, result: Ok(Managed::Done) }));
    }
    bench.restart();
    let old = locker(&bench, A, 2, 10);
    assert_eq!(bench.ask(A, old.read(BLOCK)), failed(old, Step::Read, Failure::WrongOrdering));
    let new = old.on(LOCKED, Ordering::Timestamp);
    bench.say(A, new.read(BlockRange::new(BLOCKS - 1, 1)));
    bench.now.clock = bench.now.clock.ahead(Duration::from_secs(2));
    let none = Task::SetOrdering { object: UNORDERED, ordering: Ordering::None };
    bench.say(B, Command::Manage { ticket: 11, task: none });
    assert_eq!(bench.hear(B), Some(Reply::Managed { ticket: 11, result: Ok(Managed::Done) }));
}
