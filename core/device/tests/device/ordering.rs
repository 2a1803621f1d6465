//! Timestamp ordering on one device, rule by rule (shared-array paper, figure 4, and where the paper leaves a choice).

use crate::bench::*;
use crate::story::{Told, sent_to, stories, story, tell, tell_of};

#[test]
fn an_old_copy_of_a_granted_request_costs_no_prewrite() {
    let mut bench = Bench::new();
    let (other, near) = (actor(&bench, B, 1, 10), BlockRange { start: BLOCK.start + 1, count: 1 });
    let writer = actor(&bench, A, 1, 0);
    let request = writer.prewrite_reading(BLOCK, vec![near]);
    assert!(matches!(bench.ask(A, request.clone()), Some(Reply::Data { .. })));
    bench.ask(B, other.prewrite(near));
    bench.ask(B, other.write(near, 2));
    assert_eq!(bench.ask(A, request), refused(writer, Step::Prewrite, Refusal::TooLate { seen: other.stamp }));
    assert_eq!(bench.ask(A, writer.write(BLOCK, 1)), written(writer));
}

#[test]
fn a_stamp_far_ahead_of_the_clock_is_refused() {
    let mut told = story(&[]);
    told.goes_on(&[("a1@6000000 read 5", "a1: Read TooFarAhead"), ("a2@4900000 read 5", "a2 has 0")]);
    let clock = told.bench.now.clock;
    let reply = told.bench.ask(A, told.actor("a1").read(BLOCK));
    assert_eq!(reply, refused(told.actor("a1"), Step::Read, Refusal::TooFarAhead { clock }));
}

/// Reads by a host whose stamps do not come from its clock.
fn read_at(bench: &mut Bench, sequence: u64, clock: Clock) -> Option<Reply> {
    let actor = Actor::new(A, sequence, Stamp { clock, host: A });
    bench.ask(A, actor.read(BLOCK))
}

fn read_ahead(bench: &mut Bench, sequence: u64, ahead: Duration) -> Option<Reply> {
    let clock = bench.now.clock.ahead(ahead);
    read_at(bench, sequence, clock)
}

fn is_too_far_ahead(reply: Option<Reply>) -> bool {
    matches!(reply, Some(Reply::Refused { refusal: Refusal::TooFarAhead { .. }, .. }))
}

#[test]
fn whatever_was_accepted_before_the_clock_stepped_back_can_be_gone_above() {
    let hour = Duration::from_secs(3_600);
    for restarted in [false, true] {
        let mut bench = Bench::new();
        let right = bench.now.clock;
        bench.now.clock = right.ahead(hour);
        let story = [("b1@0 prepare 5", "b1 accepted, b1 written"), ("b1 ends", ""), ("pass 1s", "")];
        let mut bench = tell(bench, &story).bench;
        bench.now.clock = right;
        if restarted {
            bench.restart();
        }
        let (now, mut sequence) = (actor(&bench, A, 1, 0), 1);
        let Some(Reply::Refused { refusal: Refusal::TooLate { mut seen }, .. }) = bench.ask(A, now.read(BLOCK)) else {
            panic!("not refused, though the write has a later stamp")
        };
        for _ in 0..20 {
            // A stamp just above the refusing one, as hosts take it, a moment later.
            bench.pass(Duration::from_micros(10));
            sequence += 1;
            let clock = Clock(seen.clock.0 + 1);
            let reply = read_at(&mut bench, sequence, clock);
            assert!(matches!(reply, Some(Reply::Data { .. })), "restarted: {restarted}, {reply:?}");
            seen.clock = clock;
        }
        let beyond = right.ahead(hour * 2);
        assert!(is_too_far_ahead(read_at(&mut bench, sequence + 1, beyond)), "a wrong clock is still refused");
    }
}

#[test]
fn stamps_at_the_limit_do_not_carry_the_limit_ahead_nor_do_restarts() {
    let mut bench = Bench::new();
    let limit = Duration::from_secs(5);
    for sequence in 1..200 {
        bench.pass(Duration::from_millis(1));
        if sequence % 20 == 0 {
            bench.restart();
        }
        let most = bench.now.clock.ahead(limit);
        assert!(!is_too_far_ahead(read_at(&mut bench, 2 * sequence, most)));
        let more = Clock(most.0 + 1);
        assert!(is_too_far_ahead(read_at(&mut bench, 2 * sequence + 1, more)), "round {sequence}");
    }
}

#[test]
fn a_clock_that_goes_on_catches_up_with_the_limit() {
    let mut bench = Bench::new();
    let right = bench.now.clock;
    bench.now.clock = right.ahead(Duration::from_secs(60));
    assert!(!is_too_far_ahead(read_ahead(&mut bench, 1, Duration::ZERO)));
    bench.now.clock = right;
    let second = Duration::from_secs(1);
    assert!(!is_too_far_ahead(read_ahead(&mut bench, 2, second * 60)));
    bench.pass(second * 120);
    assert!(is_too_far_ahead(read_ahead(&mut bench, 3, second * 6)), "the limit advances half as fast as the clock");
    assert!(!is_too_far_ahead(read_ahead(&mut bench, 4, second * 5)));
}

#[test]
fn bad_requests_get_a_clear_no() {
    let (mut bench, [whole]) = Bench::new().with_actors([(A, 1, 0)]);
    let fail = |failure| failed(whole, Step::Read, failure);
    assert_eq!(bench.ask(A, whole.read(BlockRange::new(BLOCKS, 1))), fail(Failure::OutOfRange));
    assert_eq!(bench.ask(A, whole.read(BlockRange::new(0, 0))), fail(Failure::Malformed));
    let absent = whole.on(braid_base::ObjectId(77), Ordering::Timestamp);
    assert_eq!(bench.ask(A, absent.read(BLOCK)), fail(Failure::NoSuchObject));
    // A write of other blocks than were pre-written.
    bench.ask(A, whole.prewrite(BLOCK));
    assert_eq!(bench.ask(A, whole.write(BlockRange::new(5, 2), 1)), failed(whole, Step::Write, Failure::Malformed));
    // A write whose participants leave out this device.
    let elsewhere = actor(&bench, A, 4, 4);
    bench.ask(A, elsewhere.prewrite(BLOCK));
    let reply = bench.ask(A, sent_to(elsewhere.write(BLOCK, 7), &[1]));
    assert_eq!(reply, failed(elsewhere, Step::Write, Failure::Malformed));
    // A write without pieces.
    let partly = actor(&bench, A, 3, 5);
    bench.ask(A, partly.prewrite(BLOCK));
    let mut nothing = partly.write(BLOCK, 1);
    if let Command::Write { pieces, .. } = &mut nothing {
        pieces.clear();
    }
    assert_eq!(bench.ask(A, nothing), failed(partly, Step::Write, Failure::Malformed));
    // A host that assumes another ordering of the object.
    let other = actor(&bench, A, 2, 10);
    bench.say(A, other.on(UNORDERED, Ordering::Timestamp).write_as(WriteMode::Immediate, BLOCK, 1));
    assert_eq!(bench.hear(A), failed(other, Step::Write, Failure::WrongOrdering));
}

#[test]
fn without_ordering_a_write_takes_effect_at_once() {
    // Stamps do not matter.
    let parts = [("a1@0 arrive 5 =6", "a1 written"), ("b1@-50 read 5", "b1 has 6")];
    tell_of((UNORDERED, Ordering::None), Bench::new(), &parts);
}

#[test]
fn allocation_is_reported_without_data() {
    let mut bench = story(&[("a1@0 prepare 5 =7", "a1 accepted, a1 written"), ("a1 ends", "")]).bench;
    let asker = actor(&bench, B, 1, 10);
    let asked = asker.read_of(vec![BlockRange::new(0, 16)], Want::Allocation);
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, asked) else { panic!("an answer") };
    let present: Vec<_> =
        pieces.iter().filter(|piece| piece.content == Content::Present).map(|piece| piece.range).collect();
    assert_eq!(present, [BLOCK]);
}

stories! {
    story;

    fn a_read_below_the_last_write_is_refused_with_the_stamp_to_exceed():
        "a1@10 prepare 5 =7" => "a1 accepted, a1 written";
        // The intent counts though it is undecided: its host may have answered its user already.
        "b1@0 read 5" => "b1: Read TooLate for a1";
        "a1 ends";
        "b1 read 5" => "b1: Read TooLate for a1";

    fn a_prewrite_below_the_last_read_is_refused():
        "b1@10 read 5" => "b1 has 0";
        "a1@0 pre 5" => "a1: Prewrite TooLate for b1";
        "a1 write 5" => "a1: Write TooLate for b1"; // It is too late without its pre-write, too.

    fn a_read_above_a_prewrite_waits_for_it_and_sees_its_commit():
        "a1@0 pre 5" => "a1 accepted";
        "b1@10 read 5";
        // An intent still counts as its pre-write. Its host is told that a request waits.
        "a1 write 5 =9" => "a1 written, a1 blocks";
        "c commits a1" => "b1 has 9 at last";
        "pass 50ms" => "c: a1 is over: Commit";

    fn a_read_below_a_prewrite_goes_ahead():
        "a1@10 pre 5" => "a1 accepted";
        "b1@0 read 5" => "b1 has 0";

    fn waiting_requests_are_served_in_the_order_of_their_stamps():
        "a1@0 pre 5" => "a1 accepted";
        "c1@20 read 5";
        "b1@10 update 5";
        // The higher request waits for the lower pre-write.
        "a aborts a1" => "a1 is over: Abort, b1 has 0 at last";
        "b aborts b1" => "b1 is over: Abort, c1 has 0 at last";

    fn repeated_requests_are_answered_as_the_first_time():
        "a1@0 pre 5" => "a1 accepted";
        "a1 pre 5" => "a1 accepted";
        "a1 write 5 =3" => "a1 written";
        "a1 write 5 =3" => "a1 written";
        "a commits a1";
        "pass 50ms" => "a1 is over: Commit";
        "a commits a1" => "a1 is over: Commit";
        "a aborts a1" => "a1 is over: Commit"; // A late abort never undoes a commit.

    fn a_write_is_not_answered_before_its_intent_is_durable():
        "a1@0 pre 5" => "a1 accepted";
        "stall";
        "a1 write 5 =3";
        "b asks a1"; // The vote waits, too.
        "resume" => "a1 written, b: a1: Prepared";

    fn settled_transactions_hold_nothing_and_their_late_copies_are_dropped():
        "a1@0 pre 5" => "a1 accepted";
        "b1@10 read 5";
        "a settles 2" => "b1 has 0 at last";
        "a1 prepare 5";
        "transactions?" => "0";

    fn a_silent_hosts_prewrites_end_with_its_lease():
        "a1@0 pre 5" => "a1 accepted";
        "b1@10 read 5";
        "b lives 6s" => "b1 has 0 at last";
        "a1 write 5" => "a1: Write TooLate for b1"; // A late write is refused after the host's silence.

    fn a_part_of_what_was_prewritten_may_be_written_and_the_rest_stays_as_it_was():
        "a1@0 prepare 5 =7" => "a1 accepted, a1 written";
        "a1 ends";
        "a2@20 update 4+4" => "a2 has 0 7 0 0";
        "a2 write 6 =9" => "a2 written";
        "b1@10 pre 7" => "b1: Prewrite TooLate for a2"; // Blocks that were announced and not written count as accessed.
        "c1@30 read 4+4" => "a2 blocks"; // The read waits for the decision on all announced blocks.
        "a2 ends" => "c1 has 0 7 9 0 at last";

    fn a_write_of_a_part_waits_for_earlier_requests_anywhere_in_its_prewritten_range():
        "a1@0 pre 7" => "a1 accepted";
        "b1@10 pre 4+4" => "b1 accepted";
        // A lower transaction holds one of the announced blocks. The invariants are checked while it waits.
        "b1 write 4 =9";
        "a1 write 7 =1" => "a1 written, a1 blocks";
        "a1 ends" => "b1 written at last";
}
