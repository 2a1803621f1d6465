//! Timestamp ordering on one device, rule by rule (shared-array paper, figure 4, and where the paper leaves a choice).

use crate::bench::*;

const A: Generation = Generation(1);
const B: Generation = Generation(2);
const C: Generation = Generation(3);
const BLOCK: BlockRange = BlockRange { start: 5, count: 1 };

/// Makes a transaction's durable intent.
fn prepare(bench: &mut Bench, actor: Actor, fill: u8) {
    assert_eq!(bench.ask(actor.id.host, actor.prewrite(BLOCK)), accepted(actor));
    assert_eq!(bench.ask(actor.id.host, actor.write(BLOCK, fill)), written(actor));
}

fn too_late(actor: Actor, step: Step, seen: Actor) -> Option<Reply> {
    refused(actor, step, Refusal::TooLate { seen: seen.stamp })
}

#[test]
fn a_committed_write_is_read_and_an_unwritten_block_is_a_hole() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, 7);
    bench.say_with(A, vec![1], Command::Heartbeat);
    let reader = actor(&bench, B, 1, 10);
    assert_eq!(fills(&bench.ask(B, reader.read(BlockRange::new(4, 3))).expect("an answer")), [0, 7, 0]);
}

#[test]
fn a_read_below_the_last_write_is_refused_with_the_stamp_to_exceed() {
    let (mut bench, [late, writer]) = Bench::new().with_actors([(B, 1, 0), (A, 1, 10)]);
    prepare(&mut bench, writer, 7);
    // The intent counts though it is undecided: its host may have answered its user already.
    assert_eq!(bench.ask(B, late.read(BLOCK)), too_late(late, Step::Read, writer));
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.ask(B, late.read(BLOCK)), too_late(late, Step::Read, writer));
}

#[test]
fn a_prewrite_below_the_last_read_is_refused() {
    let (mut bench, [late, reader]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    bench.say(B, reader.read(BLOCK));
    assert_eq!(bench.ask(A, late.prewrite(BLOCK)), too_late(late, Step::Prewrite, reader));
    bench.say(A, late.write(BLOCK, 1));
    assert_eq!(bench.hear(A), too_late(late, Step::Write, reader), "it is too late without its pre-write, too");
}

#[test]
fn a_read_above_a_prewrite_waits_for_it_and_sees_its_outcome() {
    for (outcome, expected) in [(Outcome::Commit, 9), (Outcome::Abort, 0)] {
        let (mut bench, [writer, reader]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
        bench.ask(A, writer.prewrite(BLOCK));
        assert_eq!(bench.ask(B, reader.read(BLOCK)), None);
        assert_eq!(bench.ask(A, writer.write(BLOCK, 9)), written(writer));
        assert_eq!(bench.hear(A), Some(Reply::Blocked { transaction: writer.id }), "told that a request waits");
        assert_eq!(bench.hear(B), None, "an intent still counts as its pre-write");
        bench.say(C, writer.decide(outcome));
        assert_eq!(fills(&bench.hear(B).expect("resumed")), [expected]);
    }
}

#[test]
fn a_read_below_a_prewrite_goes_ahead() {
    let (mut bench, [reader, writer]) = Bench::new().with_actors([(B, 1, 0), (A, 1, 10)]);
    bench.say(A, writer.prewrite(BLOCK));
    assert_eq!(fills(&bench.ask(B, reader.read(BLOCK)).expect("an answer")), [0]);
}

#[test]
fn a_transactions_own_prewrite_does_not_block_its_own_read() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    assert_eq!(fills(&bench.ask(A, writer.read_and_prewrite(BLOCK)).expect("an answer")), [0]);
}

#[test]
fn a_write_waits_for_lower_prewrites_and_they_take_effect_in_order() {
    let (mut bench, [first, second]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    bench.say(A, first.prewrite(BLOCK));
    bench.say(B, second.prewrite(BLOCK));
    bench.hear(A);
    bench.hear(B);
    assert_eq!(bench.ask(B, second.write(BLOCK, 2)), None, "the lower transaction is undecided");
    assert_eq!(bench.ask(A, first.write(BLOCK, 1)), written(first));
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(B), Some(Reply::Written { transaction: second.id, waited: true }));
    bench.say_with(B, vec![1], Command::Heartbeat);
    let reader = actor(&bench, C, 1, 20);
    assert_eq!(fills(&bench.ask(C, reader.read(BLOCK)).expect("an answer")), [2]);
}

#[test]
fn waiting_requests_are_served_in_the_order_of_their_stamps() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.ask(A, writer.prewrite(BLOCK));
    let (middle, later) = (actor(&bench, B, 1, 10), actor(&bench, C, 1, 20));
    bench.say(C, later.read(BLOCK));
    bench.say(B, middle.read_and_prewrite(BLOCK));
    bench.say(A, writer.decide(Outcome::Abort));
    assert_eq!(fills(&bench.hear(B).expect("the lower stamp is served")), [0]);
    assert_eq!(bench.hear(C), None, "the higher request waits for the lower pre-write");
    bench.say(B, middle.decide(Outcome::Abort));
    assert_eq!(fills(&bench.hear(C).expect("served after the lower one")), [0]);
}

#[test]
fn repeated_requests_are_answered_as_the_first_time() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    for (command, answer) in [(writer.prewrite(BLOCK), accepted(writer)), (writer.write(BLOCK, 3), written(writer))] {
        bench.say(A, command.clone());
        assert_eq!((bench.ask(A, command), bench.hear(A)), (answer.clone(), answer));
    }
    let decided = Some(Reply::Decided { transaction: writer.id, outcome: Outcome::Commit });
    for outcome in [Outcome::Commit, Outcome::Commit, Outcome::Abort] {
        bench.say(A, writer.decide(outcome));
        bench.pass(Duration::from_millis(50));
        assert_eq!(bench.hear(A), decided, "a late abort never undoes a commit");
    }
}

#[test]
fn an_old_copy_of_a_granted_request_costs_no_prewrite() {
    let mut bench = Bench::new();
    let (other, near) = (actor(&bench, B, 1, 10), BlockRange { start: BLOCK.start + 1, count: 1 });
    let writer = actor(&bench, A, 1, 0);
    let request = writer.prewrite_reading(BLOCK, vec![near]);
    assert!(matches!(bench.ask(A, request.clone()), Some(Reply::Data { .. })));
    bench.ask(B, other.prewrite(near));
    bench.ask(B, other.write(near, 2));
    assert_eq!(bench.ask(A, request), too_late(writer, Step::Prewrite, other));
    assert_eq!(bench.ask(A, writer.write(BLOCK, 1)), written(writer));
}

#[test]
fn a_write_is_not_answered_before_its_intent_is_durable() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.ask(A, writer.prewrite(BLOCK));
    bench.stalled = true;
    assert_eq!(bench.ask(A, writer.write(BLOCK, 3)), None);
    assert_eq!(bench.ask(B, writer.resolve()), None, "the vote waits, too");
    bench.resume_disk();
    assert_eq!(bench.hear(A), written(writer));
    assert!(matches!(bench.hear(B), Some(Reply::Vote { vote: braid_wire::Vote::Prepared, .. })));
}

#[test]
fn a_stamp_far_ahead_of_the_clock_is_refused() {
    let (mut bench, [ahead]) = Bench::new().with_actors([(A, 1, 6_000_000)]);
    bench.say(A, ahead.read(BLOCK));
    assert_eq!(bench.hear(A), refused(ahead, Step::Read, Refusal::TooFarAhead { clock: bench.now.clock }));
    let nearly = actor(&bench, A, 2, 4_900_000);
    assert!(matches!(bench.ask(A, nearly.read(BLOCK)), Some(Reply::Data { .. })));
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
        let writer = actor(&bench, B, 1, 0);
        prepare(&mut bench, writer, 1);
        bench.say(B, writer.decide(Outcome::Commit));
        bench.pass(Duration::from_secs(1));
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
fn a_device_with_a_clock_of_the_year_2500_accepts_no_stamp() {
    let mut bench = Bench::new();
    let right = bench.now.clock;
    bench.now.clock = Clock(16_725_225_600_000_000_000);
    assert!(is_too_far_ahead(read_ahead(&mut bench, 1, Duration::ZERO)));
    bench.now.clock = right;
    assert!(matches!(read_at(&mut bench, 2, right), Some(Reply::Data { .. })));
}

#[test]
fn settled_transactions_hold_nothing_and_their_late_copies_are_dropped() {
    let (mut bench, [writer, reader]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    bench.ask(A, writer.prewrite(BLOCK));
    assert_eq!(bench.ask(B, reader.read(BLOCK)), None);
    bench.settle(A, 2);
    assert_eq!(fills(&bench.hear(B).expect("released")), [0]);
    bench.say(A, writer.prewrite(BLOCK));
    assert_eq!(bench.ask(A, writer.write(BLOCK, 1)), None);
    assert_eq!(bench.device.transactions().count(), 0);
}

#[test]
fn a_silent_hosts_prewrites_end_with_its_lease() {
    let (mut bench, [writer, reader]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    bench.ask(A, writer.prewrite(BLOCK));
    bench.say(B, reader.read(BLOCK));
    for _ in 0..12 {
        bench.pass(Duration::from_millis(500));
        bench.say(B, Command::Heartbeat);
    }
    assert_eq!(fills(&bench.hear(B).expect("released")), [0]);
    bench.say(A, writer.write(BLOCK, 1));
    assert_eq!(
        bench.hear(A),
        too_late(writer, Step::Write, reader),
        "a late write is refused after the host's silence"
    );
}

#[test]
fn a_part_of_what_was_prewritten_may_be_written_and_the_rest_stays_as_it_was() {
    let (mut bench, [first]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, first, 7);
    bench.say_with(A, vec![1], Command::Heartbeat);
    let (part, late) = (actor(&bench, A, 2, 20), actor(&bench, B, 1, 10));
    assert_eq!(fills(&bench.ask(A, part.read_and_prewrite(BlockRange::new(4, 4))).expect("an answer")), [0, 7, 0, 0]);
    assert_eq!(bench.ask(A, part.write(BlockRange::new(6, 1), 9)), written(part));
    // Blocks that were announced and not written count as accessed.
    assert_eq!(bench.ask(B, late.prewrite(BlockRange::new(7, 1))), too_late(late, Step::Prewrite, part));
    let reader = actor(&bench, C, 1, 30);
    bench.say(C, reader.read(BlockRange::new(4, 4)));
    assert_eq!(bench.hear(C), None, "the read waits for the decision on all announced blocks");
    bench.say_with(A, vec![2], Command::Heartbeat);
    assert_eq!(fills(&bench.hear(C).expect("an answer")), [0, 7, 9, 0]);
}

#[test]
fn a_write_of_a_part_waits_for_earlier_requests_anywhere_in_its_prewritten_range() {
    let (mut bench, [lower, part]) = Bench::new().with_actors([(A, 1, 0), (B, 1, 10)]);
    assert_eq!(bench.ask(A, lower.prewrite(BlockRange::new(7, 1))), accepted(lower));
    assert_eq!(bench.ask(B, part.prewrite(BlockRange::new(4, 4))), accepted(part));
    // The invariants are checked while it waits.
    bench.say(B, part.write(BlockRange::new(4, 1), 9));
    assert_eq!(bench.hear(B), None, "a lower transaction holds one of the announced blocks");
    assert_eq!(bench.ask(A, lower.write(BlockRange::new(7, 1), 1)), written(lower));
    bench.say_with(A, vec![1], Command::Heartbeat);
    assert_eq!(bench.hear(B), Some(Reply::Written { transaction: part.id, waited: true }));
}

#[test]
fn bad_requests_get_a_clear_no() {
    let (mut bench, [whole]) = Bench::new().with_actors([(A, 1, 0)]);
    let fail = |failure| failed(whole, Step::Read, failure);
    assert_eq!(bench.ask(A, whole.read(BlockRange::new(crate::bench::BLOCKS, 1))), fail(Failure::OutOfRange));
    assert_eq!(bench.ask(A, whole.read(BlockRange::new(0, 0))), fail(Failure::Malformed));
    let absent = whole.on(braid_base::ObjectId(77), Ordering::Timestamp);
    assert_eq!(bench.ask(A, absent.read(BLOCK)), fail(Failure::NoSuchObject));
    // A write of other blocks than were pre-written.
    bench.ask(A, whole.prewrite(BLOCK));
    assert_eq!(bench.ask(A, whole.write(BlockRange::new(5, 2), 1)), failed(whole, Step::Write, Failure::Malformed));
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
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    bench.say(A, writer.on(UNORDERED, Ordering::None).write_as(WriteMode::Immediate, BLOCK, 6));
    assert_eq!(bench.hear(A), written(writer));
    let earlier = actor(&bench, B, 1, -50).on(UNORDERED, Ordering::None);
    assert_eq!(fills(&bench.ask(B, earlier.read(BLOCK)).expect("stamps do not matter")), [6]);
}

#[test]
fn allocation_is_reported_without_data() {
    let (mut bench, [writer]) = Bench::new().with_actors([(A, 1, 0)]);
    prepare(&mut bench, writer, 7);
    bench.say_with(A, vec![1], Command::Heartbeat);
    let asker = actor(&bench, B, 1, 10);
    let asked = asker.read_of(vec![BlockRange::new(0, 16)], Want::Allocation);
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, asked) else { panic!("an answer") };
    let present: Vec<_> =
        pieces.iter().filter(|piece| piece.content == Content::Present).map(|piece| piece.range).collect();
    assert_eq!(present, [BLOCK]);
}
