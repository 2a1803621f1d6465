//! Columns on one device: what it sends, what it gathers, and how often (the table in `scheduler/columns.rs`).

use crate::bench::*;
use braid_blocks::{Base, Column, ParityRows, Sending, Sent};
use braid_store::CHUNK_BLOCKS;
use braid_wire::Progress;

const A: Generation = Generation(1);
const B: Generation = Generation(2);
/// The device on the bench, and two others.
const US: DeviceId = DEVICES[0];
const ONE: DeviceId = DEVICES[1];
const TWO: DeviceId = DEVICES[2];
const ROW: BlockRange = BlockRange { start: 5, count: 1 };
/// The block of the receiver that our block is added to.
const THERE: u64 = 9;

fn actor(bench: &Bench, sequence: u64, micros: i64) -> Actor {
    Actor::new(A, sequence, bench.stamp(A, micros))
}

fn data(range: BlockRange, fill: u8) -> Piece {
    Piece { range, content: Content::Data(Bytes::from(vec![fill; range.count as usize * BLOCK_BYTES])) }
}

/// Our block gets new content, and its change goes to another device.
fn changes(fill: u8) -> Column {
    let sending = Sending { blocks: ROW, to: ONE, at: THERE, what: Sent::Change };
    Column { pieces: vec![data(ROW, fill)], sends: vec![sending], parity: Vec::new() }
}

/// We compute parity of what two devices send.
fn gathers(base: Base) -> Column {
    let rows = ParityRows { blocks: ROW, base, from: vec![ONE, TWO], own: Vec::new() };
    Column { parity: vec![rows], ..Column::default() }
}

/// We only send our old content.
fn contributes() -> Column {
    let sending = Sending { blocks: ROW, to: ONE, at: THERE, what: Sent::Old };
    Column { sends: vec![sending], ..Column::default() }
}

fn execute(actor: Actor, column: Column) -> Command {
    let participants = if column.writes().is_empty() { vec![ONE, TWO] } else { vec![US, ONE] };
    Command::Execute {
        transaction: actor.id,
        stamp: actor.stamp,
        object: actor.object,
        ordering: actor.ordering,
        participants,
        linkage: Linkage { first: ROW.start, last: ROW.start },
        column: Box::new(column),
    }
}

fn partial(actor: Actor, piece: Piece) -> Partial {
    Partial { epoch: Epoch(1), transaction: actor.id, object: OBJECT, pieces: vec![piece] }
}

fn executing(actor: Actor, progress: Progress) -> Option<Reply> {
    Some(Reply::Executing { transaction: actor.id, progress })
}

/// Writes our block, and commits.
fn fill(bench: &mut Bench, sequence: u64, micros: i64, fill: u8) {
    let writer = actor(bench, sequence, micros);
    assert_eq!(bench.ask(A, writer.write(ROW, fill)), written(writer));
    commit(bench, writer);
}

fn commit(bench: &mut Bench, actor: Actor) {
    bench.say_with(A, vec![actor.id.sequence], Command::Heartbeat);
}

fn read_now(bench: &mut Bench, sequence: u64) -> Vec<u8> {
    let reader = Actor::new(B, sequence, bench.stamp(B, 3_000_000 + sequence as i64));
    fills(&bench.ask(B, reader.read(ROW)).expect("an answer"))
}

fn content_of(partial: &Partial) -> (u64, u8) {
    let [Piece { range, content: Content::Data(bytes) }] = &partial.pieces[..] else { panic!("{partial:?}") };
    (range.start, bytes[0])
}

#[test]
fn a_device_sends_the_change_of_its_block_and_answers_once() {
    let mut bench = Bench::new();
    fill(&mut bench, 1, 0, 0b0011);
    let writer = actor(&bench, 2, 10);
    bench.stalled = true;
    bench.say(A, execute(writer, changes(0b0110)));
    let (to, sent) = bench.partials.pop_front().expect("the change");
    assert_eq!(bench.hear(A), None, "its own part is not durable");
    bench.resume_disk();
    assert_eq!((to, content_of(&sent), sent.transaction), (ONE, (THERE, 0b0101), writer.id));
    assert_eq!((bench.hear(A), bench.hear(A)), (written(writer), None));
    commit(&mut bench, writer);
    assert_eq!(read_now(&mut bench, 1), [0b0110]);
}

#[test]
fn parity_is_the_base_and_one_part_of_each_sender() {
    for (base, expected) in [(Base::Old, 0b1000 ^ 0b0001 ^ 0b0010), (Base::Zeros, 0b0001 ^ 0b0010)] {
        let mut bench = Bench::new();
        fill(&mut bench, 1, 0, 0b1000);
        let writer = actor(&bench, 2, 10);
        bench.say(A, execute(writer, gathers(base)));
        for _ in 0..2 {
            bench.arrive(ONE, partial(writer, data(ROW, 0b0001)));
        }
        // Neither a device that owes nothing nor content for other blocks counts.
        bench.arrive(DEVICES[3], partial(writer, data(ROW, 0b0100)));
        bench.arrive(TWO, partial(writer, data(BlockRange::new(6, 1), 0b0100)));
        assert_eq!(bench.hear(A), None, "a part is missing");
        bench.arrive(TWO, partial(writer, data(ROW, 0b0010)));
        assert_eq!(bench.hear(A), written(writer), "{base:?}");
        commit(&mut bench, writer);
        assert_eq!(read_now(&mut bench, 1), [expected], "{base:?}");
    }
}

#[test]
fn holes_that_are_added_up_are_a_hole() {
    let mut bench = Bench::new();
    let writer = actor(&bench, 1, 0);
    bench.say(A, execute(writer, gathers(Base::Old)));
    for from in [ONE, TWO] {
        bench.arrive(from, partial(writer, Piece { range: ROW, content: Content::Hole }));
    }
    assert_eq!(bench.hear(A), written(writer));
    commit(&mut bench, writer);
    let reader = Actor::new(B, 1, bench.stamp(B, 100));
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, reader.read(ROW)) else { panic!("no data") };
    assert_eq!(pieces, [Piece { range: ROW, content: Content::Hole }]);
}

#[test]
fn a_part_that_comes_before_its_column_is_kept_for_a_second() {
    for late in [false, true] {
        let mut bench = Bench::new();
        let writer = actor(&bench, 1, 1_000);
        bench.arrive(ONE, partial(writer, data(ROW, 1)));
        bench.pass(Duration::from_millis(if late { 1_100 } else { 900 }));
        bench.say(A, execute(writer, gathers(Base::Zeros)));
        bench.arrive(TWO, partial(writer, data(ROW, 2)));
        assert_eq!(bench.hear(A), if late { None } else { written(writer) });
    }
}

#[test]
fn a_repeated_column_is_answered_with_what_is_missing() {
    let mut bench = Bench::new();
    let (below, writer) = (actor(&bench, 1, 0), actor(&bench, 2, 10));
    assert!(matches!(bench.ask(A, below.prewrite(ROW)), Some(Reply::Accepted { .. })));
    bench.say(A, execute(writer, gathers(Base::Old)));
    bench.say(A, execute(writer, gathers(Base::Old)));
    assert_eq!(bench.hear(A), executing(writer, Progress::Waiting), "a lower one may change the base");
    assert!(matches!(bench.ask(A, below.retract()), Some(Reply::Decided { .. })));
    for (from, missing) in [(None, vec![ONE, TWO]), (Some(ONE), vec![TWO])] {
        if let Some(from) = from {
            bench.arrive(from, partial(writer, data(ROW, 1)));
        }
        bench.say(A, execute(writer, gathers(Base::Old)));
        assert_eq!(bench.hear(A), executing(writer, Progress::Gathering { missing }));
    }
}

#[test]
fn a_repeated_answer_equals_the_first() {
    let mut bench = Bench::new();
    fill(&mut bench, 1, 0, 0b0011);
    let (writer, reader) = (actor(&bench, 2, 10), actor(&bench, 3, 20));
    bench.say(A, execute(writer, changes(0b0110)));
    let first = bench.partials.pop_front();
    assert_eq!(bench.hear(A), written(writer));
    bench.say(A, execute(writer, changes(0b0110)));
    assert_eq!((bench.partials.pop_front(), bench.hear(A)), (first.clone(), written(writer)));
    bench.restart();
    bench.partials.clear();
    bench.say(A, execute(writer, changes(0b0110)));
    assert_eq!((bench.partials.pop_front(), bench.hear(A)), (first, written(writer)), "after a restart");
    // Once it is committed, its own change is the content: nothing is sent any more.
    commit(&mut bench, writer);
    bench.say(A, execute(writer, changes(0b0110)));
    assert_eq!((bench.partials.len(), bench.hear(A)), (0, written(writer)));
    // A device that only contributes does so as often as it is asked, and has nothing to say.
    let reader = Actor { stamp: bench.stamp(A, 3_000_000), ..reader };
    for _ in 0..2 {
        bench.say(A, execute(reader, contributes()));
        let sent = bench.partials.pop_front().map(|(_, sent)| content_of(&sent));
        assert_eq!((sent, bench.hear(A)), (Some((THERE, 0b0110)), None));
    }
}

#[test]
fn a_lower_transaction_that_claims_the_parity_meanwhile_comes_first() {
    let mut bench = Bench::new();
    let (writer, below) = (actor(&bench, 1, 20), actor(&bench, 2, 10));
    bench.say(A, execute(writer, gathers(Base::Zeros)));
    bench.arrive(ONE, partial(writer, data(ROW, 1)));
    assert_eq!(bench.ask(A, below.prewrite(ROW)), accepted(below));
    bench.arrive(TWO, partial(writer, data(ROW, 2)));
    assert_eq!(bench.hear(A), None, "it waits for the lower one");
    assert_eq!(bench.ask(A, below.write(ROW, 9)), written(below));
    commit(&mut bench, below);
    let after: Vec<_> = std::iter::from_fn(|| bench.hear(A)).collect();
    assert!(after.contains(&Reply::Written { transaction: writer.id, waited: true }), "{after:?}");
    commit(&mut bench, writer);
    assert_eq!(read_now(&mut bench, 1), [3]);
}

#[test]
fn old_content_is_read_when_no_lower_transaction_may_change_it() {
    let mut bench = Bench::new();
    let (below, writer, too_late) = (actor(&bench, 1, 10), actor(&bench, 2, 20), actor(&bench, 3, 15));
    assert_eq!(bench.ask(A, below.write(ROW, 0b0011)), written(below));
    bench.say(A, execute(writer, contributes()));
    assert_eq!(bench.partials.len(), 0);
    assert!(matches!(bench.hear(A), Some(Reply::Blocked { .. })));
    commit(&mut bench, below);
    assert_eq!(bench.partials.pop_front().map(|(_, sent)| content_of(&sent)), Some((THERE, 0b0011)));
    // What was sent must stay true.
    bench.say(A, too_late.write(ROW, 1));
    assert!(matches!(bench.hear(A), Some(Reply::Refused { refusal: Refusal::TooLate { .. }, .. })));
}

#[test]
fn a_column_that_its_host_retracts_is_forgotten_with_what_it_gathered() {
    let mut bench = Bench::new();
    let writer = actor(&bench, 1, 0);
    bench.say(A, execute(writer, gathers(Base::Zeros)));
    bench.arrive(ONE, partial(writer, data(ROW, 1)));
    assert!(matches!(bench.ask(A, writer.retract()), Some(Reply::Decided { .. })));
    bench.arrive(TWO, partial(writer, data(ROW, 2)));
    bench.say(A, execute(writer, gathers(Base::Zeros)));
    assert_eq!((bench.hear(A), bench.hear(A)), (refused(writer, Step::Execute, Refusal::NoPrewrite), None));
    fill(&mut bench, 2, 10, 7);
    assert_eq!(read_now(&mut bench, 1), [7]);
}

/// When the device is to look for silent hosts, the first input may be the end of a read of its disk. In that step the host's lease ends,
/// before the content is handled.
#[test]
fn a_column_ends_with_its_hosts_lease_though_its_old_content_comes_in_that_step() {
    for (column, claims, orphans) in [(gathers(Base::Old), 1, 0), (changes(0b0110), 1, 1), (contributes(), 0, 0)] {
        let mut bench = Bench::new();
        // A whole chunk is written to its place, and is read from there.
        let before = actor(&bench, 1, 0);
        assert_eq!(bench.ask(A, before.write(BlockRange::new(0, CHUNK_BLOCKS), 0b1000)), written(before));
        commit(&mut bench, before);
        bench.pass(Duration::from_millis(20));
        bench.settle(A, 2);
        let writer = actor(&bench, 2, 10);
        bench.stalled = true;
        bench.say(A, execute(writer, column));
        for from in [ONE, TWO] {
            bench.arrive(from, partial(writer, data(ROW, 1)));
        }
        // Its old content is being read.
        assert_eq!((bench.hear(A), bench.device.transactions().count()), (None, claims));
        bench.pass(Settings::default().host_lease);
        let patrol = bench.device.deadline().expect("it looks for silent hosts");
        bench.suspend(patrol.since(bench.now.time));
        bench.resume_disk();
        assert_eq!(bench.device.sessions().count(), 0, "every lease is over");
        assert_eq!((bench.device.transactions().count(), bench.device.orphans()), (orphans, orphans));
    }
}

#[test]
fn a_new_epoch_ends_what_is_gathered_and_parts_from_before_do_not_count() {
    let mut bench = Bench::with_monitor();
    let writer = actor(&bench, 1, 0);
    bench.say(A, execute(writer, gathers(Base::Zeros)));
    bench.arrive(ONE, partial(writer, data(ROW, 1)));
    let mut next = Membership { epoch: Epoch(2), ..Membership::first(DEVICES) };
    let gone = next.member_mut(DEVICES[3]).expect("a member");
    (gone.member_state, gone.since) = (MemberState::Out, Epoch(2));
    bench.tell(Some(next));
    let again = actor(&bench, 2, 10);
    // From a device that is still in the epoch before.
    bench.arrive(ONE, partial(again, data(ROW, 1)));
    bench.say(A, execute(again, gathers(Base::Zeros)));
    bench.arrive(TWO, Partial { epoch: Epoch(2), ..partial(again, data(ROW, 2)) });
    bench.arrive(DEVICES[3], Partial { epoch: Epoch(2), ..partial(again, data(ROW, 1)) });
    assert_eq!(bench.hear(A), None);
    bench.arrive(ONE, Partial { epoch: Epoch(2), ..partial(again, data(ROW, 1)) });
    assert_eq!(bench.hear(A), written(again));
}

#[test]
fn columns_that_do_not_fit_together_are_refused() {
    let sending = |blocks, to, what| Sending { blocks, to, at: THERE, what };
    let column = |change: &dyn Fn(&mut Column)| {
        let mut column = changes(1);
        change(&mut column);
        column
    };
    let bad = [
        Column::default(),
        column(&|column| column.sends = vec![sending(ROW, US, Sent::New)]),
        column(&|column| column.sends = vec![sending(BlockRange::new(6, 1), ONE, Sent::Change)]),
        column(&|column| column.sends = vec![sending(BlockRange::new(5, 0), ONE, Sent::Old)]),
        column(&|column| column.pieces.push(data(ROW, 2))),
        column(&|column| column.pieces[0].content = Content::Present),
        column(&|column| column.parity = gathers(Base::Old).parity),
        column(&|column| {
            let rows =
                ParityRows { blocks: BlockRange::new(8, 1), base: Base::Old, from: vec![ONE, ONE], own: Vec::new() };
            column.parity = vec![rows];
        }),
        column(&|column| {
            let own = vec![data(BlockRange::new(9, 1), 1)];
            column.parity = vec![ParityRows { blocks: BlockRange::new(8, 1), base: Base::Old, from: vec![ONE], own }];
        }),
    ];
    let mut bench = Bench::new();
    for (sequence, column) in bad.into_iter().enumerate() {
        let writer = actor(&bench, sequence as u64 + 1, sequence as i64);
        let reply = bench.ask(A, execute(writer, column.clone()));
        assert_eq!(reply, failed(writer, Step::Execute, Failure::Malformed), "{column:?}");
        assert_eq!(bench.partials.len(), 0, "{column:?}");
    }
}

#[test]
fn columns_that_would_take_too_much_memory_are_put_off() {
    let mut bench = Bench::new();
    bench.check_every_step = false;
    let mut refused = None;
    // Each takes a quarter of an object in memory, which is what it gathers.
    for sequence in 0..=limits::EXECUTION_BYTES_MAX as u64 / (64 * BLOCK_BYTES as u64) {
        let writer = Actor::new(A, sequence, bench.stamp(A, sequence as i64));
        let rows = ParityRows { blocks: BlockRange::new(0, 64), base: Base::Zeros, from: vec![ONE], own: Vec::new() };
        refused = bench.ask(A, execute(writer, Column { parity: vec![rows], ..Column::default() }));
        if refused.is_some() {
            assert_eq!(sequence, limits::EXECUTION_BYTES_MAX as u64 / (64 * BLOCK_BYTES as u64));
        }
    }
    assert!(matches!(refused, Some(Reply::Refused { refusal: Refusal::Busy, .. })), "{refused:?}");
}
