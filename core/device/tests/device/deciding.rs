//! The end of transactions on one device, across restarts and after the loss of their hosts (atomicity `implied`).

use crate::bench::*;
use crate::story::{Story, stories, story, tell, tell_of};
use braid_wire::Orphan;

const PREPARED: (&str, &str) = ("a1@0 prepare 5 =8", "a1 accepted, a1 written");

/// A story of an object whose writes take effect on arrival.
fn arriving(parts: &[(&str, &str)]) -> Story {
    tell_of((ARRIVING, Ordering::Timestamp), Bench::new(), parts)
}

#[test]
fn a_commit_that_its_host_declared_over_before_is_forgotten_with_the_resolution() {
    // Its host may send it again, unless it has said that it will not; then, its lease here may have ended, too.
    let settles = ("a settles 2", "a hears of a1");
    for (before, silence, left) in
        [(("pass 0s", ""), "pass 0s", "1"), (settles, "pass 0s", "0"), (settles, "pass 8s", "0")]
    {
        story(&[
            PREPARED,
            before,
            (silence, ""),
            ("b commits a1", ""),
            // The commit becomes durable with a later batch.
            ("pass 1s", "b: a1 is over: Commit"),
            ("b forgets a1", "b: a1 forgotten"),
            ("transactions?", left),
        ]);
    }
}

#[test]
fn a_commit_is_confirmed_once_it_is_durable() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, BLOCK, 8);
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
    prepare(&mut bench, writer, BLOCK, 8);
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
    tell(bench, &[("b1@0 read 5", "b1 has 8")]);
}

#[test]
fn that_nothing_is_absent_is_said_when_it_survives_a_restart() {
    let mut bench = Bench::new();
    let actor = Actor::new(A, 101, bench.stamp(A, 0));
    prepare(&mut bench, actor, BLOCK, 7);
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
        let Ok(Managed::Inspected(inspection)) = bench.manage(B, ticket, Task::Inspect) else {
            panic!("an inspection is answered");
        };
        let counter = |name: &str| inspection.counters.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        ["orphans", "oldest_undecided_millis", "oldest_orphan_millis"].map(|name| counter(name).expect("it is told"))
    };
    assert_eq!(ages(&mut bench, 1), [0, 0, 0]);
    let writer = actor(&bench, A, 1, 0);
    prepare(&mut bench, writer, BLOCK, 1);
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

stories! {
    story;

    fn a_promise_never_to_prepare_is_kept_and_outlives_a_restart():
        "a1@0";
        "b asks a1" => "b: a1: NeverPrepared";
        "a1 pre 5" => "a1: Prewrite TooLate for a1"; // It was delayed, not lost.
        "a1 write 5" => "a1: Write TooLate for a1";
        "restart";
        "a1 pre 5" => "a1: Prewrite TooLate";
        "a1 write 5" => "a1: Write TooLate";

    fn a_retracted_intent_is_undone_and_a_late_copy_of_its_write_refused():
        "a1@0 write 5 =7" => "a1 written";
        "a1 retracts" => "a1 is over: Abort";
        "a1 write 5" => "a1: Write NoPrewrite";

    fn an_intent_that_another_host_knows_of_is_not_retracted():
        "a1@0 write 5 =7" => "a1 written";
        "b asks a1" => "b: a1: Prepared";
        "a1 retracts" => "a1: Prepared";

    fn a_retraction_is_final_and_outlives_a_restart():
        // The first copy waits until such stamps are reserved: after a restart the device knows nothing else of it.
        "a1@0 retracts" => "a1 is over: Abort";
        "a1 retracts" => "a1 is over: Abort";
        "a1 write 5" => "a1: Write NoPrewrite";
        "restart";
        "a1 write 5" => "a1: Write TooLate";

    fn intents_outlive_a_restart_and_can_be_committed_and_aborted():
        "a1@0 prepare 5+2 =4" => "a1 accepted, a1 written";
        "a1 ends";
        "a2@10 prepare 5 =8" => "a2 accepted, a2 written";
        "a3@11 prepare 6 =9" => "a3 accepted, a3 written";
        "restart";
        "b1@2900000 read 5" => "a2 blocks"; // The undecided intent still blocks higher stamps.
        "b commits a2" => "b1 has 8 at last";
        "pass 50ms" => "b: a2 is over: Commit";
        "b2@2900001 read 6" => "a3 blocks";
        "b aborts a3" => "b2 has 4 at last, b: a3 is over: Abort";
        "pass 50ms";
        "restart";
        "b3@3000000 read 5+2" => "b3 has 8 4"; // The decisions outlive another restart.

    fn an_abort_promise_for_a_stamp_of_next_year_is_not_made():
        "a1@31536000000000";
        "b asks a1" => "b: a1: TooFarAhead";
        "a2@0 pre 5" => "a2 accepted"; // Other writers are still admitted.

    fn a_prewrite_that_was_asked_about_is_never_prepared():
        "a1@0 pre 5" => "a1 accepted";
        "b asks a1" => "b: a1: NeverPrepared";
        "a1 write 5" => "a1: Write NoPrewrite";
        "a1 pre 5" => "a1: Prewrite NoPrewrite";

    fn a_recovered_intent_is_not_retracted_for_others_may_know_of_it():
        "a1@0 write 5" => "a1 written";
        "restart";
        "a1 retracts" => "a1: Prepared";

    fn a_prewrite_does_not_outlive_a_restart_and_its_write_is_refused():
        "a1@0 pre 5" => "a1 accepted"; // The floor is above it.
        "restart";
        "a1 write 5" => "a1: Write TooLate";
        "a1 pre 5" => "a1: Prewrite TooLate";

    fn a_read_before_a_restart_still_holds_off_writes_below_it():
        "b1@10 read 5" => "b1 has 0";
        "restart";
        "a1@0 pre 5" => "a1: Prewrite TooLate";

    fn a_decision_is_remembered_until_it_is_settled():
        "a1@0 prepare 5 =8" => "a1 accepted, a1 written";
        "a1 ends";
        "pass 50ms";
        "b asks a1" => "b: a1: Committed";
        "restart";
        "b asks a1" => "b: a1: Committed";
        "a settles 2";
        "transactions?" => "0";
}

stories! {
    arriving;

    fn a_write_refused_for_want_of_its_prewrite_is_refused_for_ever():
        "a1@0 arrive 5"; // The first copy only makes the device reserve such stamps.
        "a1 arrive 5" => "a1: Write NoPrewrite";
        "a1 pre 5" => "a1: Prewrite TooLate for a1";
        "restart"; // Without the reservation, the refusal would not outlive it.
        "a1 pre 5" => "a1: Prewrite TooLate";
}
