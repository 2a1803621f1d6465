//! Hosts that leave transactions undecided, or fill the device's tables, while they live.

use crate::bench::*;
use crate::story::{stories, story};
use braid_base::limits::{self};

const GREEDY: Generation = Generation(5);
const OTHER: Generation = Generation(6);
const RANGE: BlockRange = BlockRange { start: 4, count: 2 };

/// A host holds locks for longer than a lease: of a read, or of a write that reads first.
#[test]
fn locks_stay_with_a_host_that_lives() {
    for is_write in [false, true] {
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

stories! {
    story;

    fn an_intent_that_stays_undecided_for_longer_than_a_lease_is_resolved_though_its_host_lives():
        "a1@0 prepare 4+2" => "a1 accepted, a1 written";
        "a b live 4s"; // Its host may be about to decide it.
        "a b live 4s" => "a hears of a1, b hears of a1";
        "b asks a1" => "b: a1: Prepared";
        "b aborts a1" => "b: a1 is over: Abort";
        "orphans?" => "0";
        "a b live 4s";
        "a commits a1" => "a1 is over: Abort"; // The host itself hears how it ended.

    fn a_pre_write_for_which_others_wait_longer_than_a_lease_is_dropped():
        "a1@0 pre 4+2" => "a1 accepted";
        "a2@1 pre 40" => "a2 accepted";
        "b1@10 read 4+2";
        "a b live 8s" => "b1 has 0 0 at last";
        "a1 write 4+2 =7" => "a1: Write NoPrewrite"; // It begins anew.
        "a2 write 40 =7" => "a2 written"; // No transaction waits for that one.
}
