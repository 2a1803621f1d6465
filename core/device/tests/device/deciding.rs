//! The end of transactions on one device, across restarts and after the loss of their hosts (atomicity `implied`).

use crate::bench::*;
use braid_wire::Orphan;

const A: Generation = Generation(1);
const B: Generation = Generation(2);
const BLOCK: BlockRange = BlockRange { start: 5, count: 1 };

fn prepare(bench: &mut Bench, actor: Actor, fill: u8) {
    bench.ask(actor.id.host, actor.prewrite(BLOCK));
    assert_eq!(bench.ask(actor.id.host, actor.write(BLOCK, fill)), written(actor));
}

fn vote_on(bench: &mut Bench, actor: Actor) -> Vote {
    match bench.ask(B, actor.resolve()) {
        Some(Reply::Vote { vote, .. }) => vote,
        other => panic!("{other:?}"),
    }
}

fn read_now(bench: &mut Bench, sequence: u64) -> Vec<u8> {
    // Well above the floor after a restart.
    let reader = actor(bench, B, sequence, 3_000_000 + sequence as i64);
    fills(&bench.ask(B, reader.read(BLOCK)).expect("an answer"))
}

#[test]
fn a_commit_that_its_host_declared_over_before_is_forgotten_with_the_resolution() {
    for (settled, silent) in [(false, false), (true, false), (true, true)] {
        let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
        prepare(&mut bench, writer, 1);
        if settled {
            bench.settle(A, 2);
        }
        if silent {
            // Its lease here ends.
            bench.pass(Settings::default().host_lease * 2);
        }
        bench.say(B, writer.decide(Outcome::Commit));
        // The commit becomes durable with a later batch.
        bench.pass(Duration::from_secs(1));
        let decided = Reply::Decided { transaction: writer.id, outcome: Outcome::Commit };
        assert_eq!(bench.hear(B), Some(decided), "settled: {settled}");
        bench.say(B, Command::Forget { transaction: writer.id });
        assert_eq!(bench.hear(B), Some(Reply::Forgotten { transaction: writer.id }));
        // Its host may send it again, unless it has said that it will not.
        assert_eq!(bench.device.transactions().count(), usize::from(!settled));
    }
}

#[test]
fn a_promise_never_to_prepare_is_kept() {
    for restarted in [false, true] {
        let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
        assert_eq!(vote_on(&mut bench, writer), Vote::NeverPrepared);
        if restarted {
            bench.restart();
        }
        // The pre-write was delayed, not lost.
        for (command, expected) in [(writer.prewrite(BLOCK), Step::Prewrite), (writer.write(BLOCK, 1), Step::Write)] {
            let Some(Reply::Refused { step, refusal, .. }) = bench.ask(A, command) else { panic!("it is refused") };
            assert!(step == expected && matches!(refusal, Refusal::TooLate { .. }), "{step:?} {refusal:?}");
        }
    }
}

#[test]
fn an_abort_promise_for_a_stamp_of_next_year_is_not_made() {
    let mut bench = Bench::new();
    let year = 365 * 86_400 * 1_000_000;
    let writer = actor(&bench, A, 1, year);
    assert!(matches!(vote_on(&mut bench, writer), Vote::TooFarAhead { .. }));
    let other = actor(&bench, A, 2, 0);
    bench.say(A, other.prewrite(BLOCK));
    assert!(matches!(bench.hear(A), Some(Reply::Accepted { .. })), "other writers are still admitted");
}

#[test]
fn a_prewrite_that_was_asked_about_is_never_prepared() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.ask(A, writer.prewrite(BLOCK));
    assert_eq!(vote_on(&mut bench, writer), Vote::NeverPrepared);
    assert!(matches!(bench.ask(A, writer.write(BLOCK, 1)), Some(Reply::Refused { step: Step::Write, .. })));
    assert!(matches!(bench.ask(A, writer.prewrite(BLOCK)), Some(Reply::Refused { step: Step::Prewrite, .. })));
}

#[test]
fn a_write_refused_for_want_of_its_prewrite_is_refused_for_ever() {
    for restarted in [false, true] {
        let mut bench = Bench::new();
        let writer = actor(&bench, A, 1, 0).on(ARRIVING, Ordering::Timestamp);
        let write = writer.write_as(WriteMode::Immediate, BLOCK, 1);
        // The first copy only makes the device reserve such stamps. Without the reservation, the refusal would not
        // outlive a restart.
        assert_eq!(bench.ask(A, write.clone()), None);
        assert!(matches!(bench.ask(A, write), Some(Reply::Refused { step: Step::Write, .. })));
        if restarted {
            bench.restart();
        }
        assert!(matches!(bench.ask(A, writer.prewrite(BLOCK)), Some(Reply::Refused { step: Step::Prewrite, .. })));
    }
}

#[test]
fn a_retraction_outlives_a_restart() {
    for restarted in [false, true] {
        let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
        // The first copy waits until such stamps are reserved: after a restart the device knows nothing else of it.
        bench.say(A, writer.retract());
        bench.run_disk();
        bench.say(A, writer.retract());
        let reply = Reply::Decided { transaction: writer.id, outcome: Outcome::Abort };
        assert_eq!(bench.hear(A), Some(reply));
        while bench.hear(A).is_some() {}
        if restarted {
            bench.restart();
        }
        let reply = bench.ask(A, writer.write(BLOCK, 1));
        assert!(matches!(reply, Some(Reply::Refused { step: Step::Write, .. })), "{reply:?}");
    }
}

#[test]
fn a_recovered_intent_is_not_retracted_for_others_may_know_of_it() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.say(A, writer.write(BLOCK, 1));
    bench.run_disk();
    assert!(matches!(bench.hear(A), Some(Reply::Written { .. })));
    bench.restart();
    assert_eq!(bench.ask(A, writer.retract()), Some(Reply::Vote { transaction: writer.id, vote: Vote::Prepared }));
}

#[test]
fn an_intent_outlives_a_restart_and_can_be_decided_either_way() {
    for (outcome, expected) in [(Outcome::Commit, 8), (Outcome::Abort, 4)] {
        let (mut bench, [before]) = Bench::new().with_actors([(A, 1, 0)]);
        prepare(&mut bench, before, 4);
        bench.say_with(A, vec![1], Command::Heartbeat);
        let writer = actor(&bench, A, 2, 10);
        prepare(&mut bench, writer, 8);
        bench.restart();
        let reader = actor(&bench, B, 1, 2_900_000);
        assert_eq!(bench.ask(B, reader.read(BLOCK)), None, "the undecided intent still blocks higher stamps");
        bench.say(B, writer.decide(outcome));
        let answers: Vec<_> = std::iter::from_fn(|| bench.hear(B)).collect();
        let data = answers.iter().find(|reply| matches!(reply, Reply::Data { .. }));
        assert_eq!(fills(data.expect("released")), [expected]);
        bench.pass(Duration::from_millis(50));
        bench.restart();
        assert_eq!(read_now(&mut bench, 9), [expected], "the decision outlives another restart");
    }
}

#[test]
fn a_prewrite_does_not_outlive_a_restart_and_its_write_is_refused() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.say(A, writer.prewrite(BLOCK));
    bench.restart();
    assert!(matches!(bench.ask(A, writer.write(BLOCK, 1)), Some(Reply::Refused { step: Step::Write, .. })));
    bench.say(A, writer.prewrite(BLOCK));
    assert!(matches!(bench.hear(A), Some(Reply::Refused { step: Step::Prewrite, .. })), "the floor is above it");
}

#[test]
fn a_read_before_a_restart_still_holds_off_writes_below_it() {
    let (mut bench, [late, reader]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    assert_eq!(fills(&bench.ask(B, reader.read(BLOCK)).expect("an answer")), [0]);
    bench.restart();
    assert!(matches!(bench.ask(A, late.prewrite(BLOCK)), Some(Reply::Refused { step: Step::Prewrite, .. })));
}

#[test]
fn a_decision_is_remembered_until_it_is_settled() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, 8);
    bench.say_with(A, vec![1], Command::Heartbeat);
    bench.pass(Duration::from_millis(50));
    assert_eq!(vote_on(&mut bench, writer), Vote::Committed);
    bench.restart();
    assert_eq!(vote_on(&mut bench, writer), Vote::Committed);
    bench.settle(A, 2);
    assert_eq!(bench.device.transactions().count(), 0, "settled transactions are forgotten");
}

#[test]
fn a_commit_is_confirmed_once_it_is_durable() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, 8);
    bench.stalled = true;
    bench.say_with(A, vec![1], Command::Heartbeat);
    bench.pass(Duration::from_millis(50));
    bench.say(A, Command::Heartbeat);
    let confirmed = |bench: &mut Bench| -> Vec<u64> {
        let heard = bench.heard.entry(A).or_default();
        heard.drain(..).flat_map(|answer| answer.confirmed).collect()
    };
    assert!(confirmed(&mut bench).is_empty());
    bench.resume_disk();
    bench.say(A, Command::Heartbeat);
    assert_eq!(confirmed(&mut bench), [1]);
}

#[test]
fn undecided_writes_of_a_silent_host_are_named_to_the_others() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, 8);
    let mut named = Vec::new();
    for heartbeat in 0..12 {
        bench.pass(Duration::from_millis(500));
        bench.say(B, Command::Heartbeat);
        let answers = bench.heard.entry(B).or_default().drain(..);
        for answer in answers {
            if let Reply::Heartbeat { orphans, .. } = answer.reply {
                assert!(heartbeat >= 7 || orphans.is_empty(), "not named before the host's lease expires");
                named = orphans;
            }
        }
    }
    let [Orphan { transaction, stamp, participants }] = &named[..] else { panic!("{named:?}") };
    assert_eq!((*transaction, *stamp), (writer.id, writer.stamp));
    assert_eq!(participants.len(), 2);
    // Another host resolves it.
    bench.say(B, writer.decide(Outcome::Commit));
    bench.pass(Duration::from_millis(50));
    bench.say(B, Command::Forget { transaction: writer.id });
    bench.heard.clear();
    bench.say(B, Command::Heartbeat);
    let answer = bench.heard.entry(B).or_default().pop_front().expect("an answer");
    assert_eq!(answer.reply, Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false });
    assert_eq!(read_now(&mut bench, 1), [8]);
}

#[test]
fn that_nothing_is_absent_is_said_when_it_survives_a_restart() {
    let mut bench = Bench::new();
    let actor = Actor::new(A, 101, bench.stamp(A, 0));
    prepare(&mut bench, actor, 7);
    bench.stalled = true;
    let task = Task::ListAbsent { object: OBJECT, from: 0 };
    bench.say_with(A, vec![101], Command::Manage { ticket: 50, task });
    assert_eq!(bench.hear(A), None, "the commit may have restored the last block");
    bench.resume_disk();
    let reply = bench.hear(A);
    let Some(Reply::Managed { result: Ok(Managed::Extents { extents, next: None }), .. }) = &reply else {
        panic!("{reply:?}")
    };
    assert!(extents.is_empty());
}

#[test]
fn an_inspection_tells_for_how_long_a_transaction_has_been_undecided() {
    let mut bench = Bench::new();
    let ages = |bench: &mut Bench, ticket: u64| {
        bench.say(B, Command::Manage { ticket, task: Task::Inspect });
        let Some(Reply::Managed { result: Ok(Managed::Inspected(inspection)), .. }) = bench.hear(B) else {
            panic!("an inspection is answered");
        };
        let counter = |name: &str| inspection.counters.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        ["orphans", "oldest_undecided_millis", "oldest_orphan_millis"].map(|name| counter(name).expect("it is told"))
    };
    assert_eq!(ages(&mut bench, 1), [0, 0, 0]);
    let writer = actor(&bench, A, 1, 0);
    prepare(&mut bench, writer, 1);
    bench.pass(Duration::from_secs(2));
    let [orphans, undecided, orphan] = ages(&mut bench, 2);
    assert!(orphans == 0 && (2_000..2_100).contains(&undecided) && orphan == 0, "{orphans} {undecided} {orphan}");
    bench.pass(Duration::from_secs(8));
    let [orphans, undecided, orphan] = ages(&mut bench, 3);
    assert!(orphans == 1 && undecided == orphan && (10_000..10_100).contains(&orphan), "its host is silent: {orphan}");
    bench.say(B, writer.decide(Outcome::Abort));
    bench.pass(Duration::from_secs(1));
    let decided = Reply::Decided { transaction: writer.id, outcome: Outcome::Abort };
    assert_eq!(bench.hear(B), Some(decided));
    assert_eq!(ages(&mut bench, 4), [0, 0, 0]);
}
