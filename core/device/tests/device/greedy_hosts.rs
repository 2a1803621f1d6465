//! Hosts that leave transactions undecided, or fill the device's tables, while they live.

use crate::bench::*;
use braid_base::limits::{self};

const GREEDY: Generation = Generation(5);
const OTHER: Generation = Generation(6);
const RANGE: BlockRange = BlockRange { start: 4, count: 2 };

/// Lets time pass, in which both hosts send heartbeats. Returns the transactions that the device names as orphans to the other one.
fn pass_with_both(bench: &mut Bench, span: Duration) -> Vec<u64> {
    let end = bench.now.time.after(span);
    let mut named = Vec::new();
    while bench.now.time < end {
        bench.pass(Settings::default().heartbeat);
        bench.say(GREEDY, Command::Heartbeat);
        bench.say(OTHER, Command::Heartbeat);
        for answer in bench.heard.remove(&OTHER).unwrap_or_default() {
            if let Reply::Heartbeat { orphans, .. } = answer.reply {
                named = orphans.iter().map(|orphan| orphan.transaction.sequence).collect();
            }
        }
        bench.heard.remove(&GREEDY);
    }
    named
}

fn prepare(bench: &mut Bench, actor: Actor, range: BlockRange) {
    assert!(matches!(bench.ask(actor.id.host, actor.prewrite(range)), Some(Reply::Accepted { .. })));
    assert!(matches!(bench.ask(actor.id.host, actor.write(range, 1)), Some(Reply::Written { .. })));
}

#[test]
fn an_intent_that_stays_undecided_for_longer_than_a_lease_is_resolved_though_its_host_lives() {
    let mut bench = Bench::new();
    let lease = Settings::default().host_lease;
    let greedy = Actor::new(GREEDY, 1, bench.stamp(GREEDY, 0));
    prepare(&mut bench, greedy, RANGE);
    assert_eq!(pass_with_both(&mut bench, lease), [], "its host may be about to decide it");
    assert_eq!(pass_with_both(&mut bench, lease), [1]);
    assert_eq!(bench.ask(OTHER, greedy.resolve()), Some(Reply::Vote { transaction: greedy.id, vote: Vote::Prepared }));
    bench.say(OTHER, greedy.decide(Outcome::Abort));
    assert_eq!(bench.hear(OTHER), Some(Reply::Decided { transaction: greedy.id, outcome: Outcome::Abort }));
    assert_eq!((bench.device.orphans(), pass_with_both(&mut bench, lease)), (0, vec![]));
    // The host itself hears how it ended.
    bench.say(GREEDY, greedy.decide(Outcome::Commit));
    assert_eq!(bench.hear(GREEDY), Some(Reply::Decided { transaction: greedy.id, outcome: Outcome::Abort }));
}

#[test]
fn a_pre_write_for_which_others_wait_longer_than_a_lease_is_dropped() {
    let mut bench = Bench::new();
    let lease = Settings::default().host_lease;
    let greedy = Actor::new(GREEDY, 1, bench.stamp(GREEDY, 0));
    let alone = Actor::new(GREEDY, 2, bench.stamp(GREEDY, 1));
    for (actor, range) in [(greedy, RANGE), (alone, BlockRange::new(40, 1))] {
        assert!(matches!(bench.ask(GREEDY, actor.prewrite(range)), Some(Reply::Accepted { .. })));
    }
    let reader = Actor::new(OTHER, 1, bench.stamp(OTHER, 10));
    assert_eq!(bench.ask(OTHER, reader.read(RANGE)), None, "it waits");
    let end = bench.now.time.after(lease * 2);
    while bench.now.time < end {
        bench.pass(Settings::default().heartbeat);
        bench.say(GREEDY, Command::Heartbeat);
        bench.say(OTHER, Command::Heartbeat);
    }
    assert!(matches!(bench.hear(OTHER), Some(Reply::Data { .. })));
    bench.say(GREEDY, greedy.write(RANGE, 7));
    assert_eq!(bench.hear(GREEDY), refused(greedy, Step::Write, Refusal::NoPrewrite), "it begins anew");
    bench.say(GREEDY, alone.write(BlockRange::new(40, 1), 7));
    assert!(matches!(bench.hear(GREEDY), Some(Reply::Written { .. })), "nobody waits for that one");
}

#[test]
fn locks_stay_with_a_host_that_lives() {
    for is_write in [false, true] {
        locks_stay(is_write);
    }
}

/// A host holds locks for longer than a lease: of a read, or of a write that reads first.
fn locks_stay(is_write: bool) {
    let mut bench = Bench::new();
    let locked = |bench: &Bench, host, sequence| {
        Actor::new(host, sequence, bench.stamp(host, sequence as i64)).on(LOCKED, Ordering::DeviceLock)
    };
    let reader = locked(&bench, GREEDY, 1);
    let command = if is_write { reader.read_and_prewrite(RANGE) } else { reader.read(RANGE) };
    assert!(matches!(bench.ask(GREEDY, command), Some(Reply::Data { .. })));
    let end = bench.now.time.after(Settings::default().host_lease * 2);
    let mut sequence = 1;
    while bench.now.time < end {
        sequence += 1;
        let writer = locked(&bench, OTHER, sequence);
        bench.say(OTHER, writer.prewrite(RANGE));
        bench.pass(Settings::default().heartbeat);
        bench.say(GREEDY, Command::Heartbeat);
        bench.say(OTHER, Command::Heartbeat);
        // What the reader finds on other devices has to match.
        let heard = bench.heard.remove(&OTHER).unwrap_or_default();
        assert!(!heard.iter().any(|answer| matches!(answer.reply, Reply::Accepted { .. })), "{heard:?}");
    }
}

#[test]
fn one_host_fills_at_most_half_of_the_table_of_transactions() {
    let mut bench = Bench::new();
    bench.check_every_step = false;
    let half = limits::DEVICE_TRANSACTIONS_MAX as u64 / 2;
    let mut answers = 0;
    for sequence in 0..half + 10 {
        let actor = Actor::new(GREEDY, sequence, bench.stamp(GREEDY, sequence as i64));
        match bench.ask(GREEDY, actor.prewrite(BlockRange::new(sequence % BLOCKS, 1))) {
            Some(Reply::Accepted { .. }) => answers += 1,
            Some(Reply::Refused { refusal: Refusal::Busy, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answers, half);
    let other = Actor::new(OTHER, 1, bench.stamp(OTHER, 1_000_000));
    bench.say(OTHER, other.prewrite(RANGE));
    assert!(matches!(bench.hear(OTHER), Some(Reply::Accepted { .. })), "there is room for others");
    bench.device.store().invariants();
}
