//! Columns on one device: what it sends, what it gathers, and how often (the table in `scheduler/columns.rs`).

use crate::bench::*;
use crate::story::{stories, story};
use braid_blocks::{Base, Column, ParityRows, Sending, Sent};
use braid_store::CHUNK_BLOCKS;

/// The device on the bench, and two others.
const US: DeviceId = DEVICES[0];
const ONE: DeviceId = DEVICES[1];
const TWO: DeviceId = DEVICES[2];
/// The block of the receiver that our block is added to.
const THERE: u64 = 9;

fn actor(bench: &Bench, sequence: u64, micros: i64) -> Actor {
    Actor::new(A, sequence, bench.stamp(A, micros))
}

fn data(range: BlockRange, fill: u8) -> Piece {
    Piece { range, content: filled(range, fill) }
}

/// Our block gets new content, and its change goes to another device.
pub fn changes(fill: u8) -> Column {
    let sending = Sending { blocks: BLOCK, to: ONE, at: THERE, what: Sent::Change };
    Column { pieces: vec![data(BLOCK, fill)], sends: vec![sending], parity: Vec::new() }
}

/// We compute parity of what two devices send.
pub fn gathers(base: Base) -> Column {
    let rows = ParityRows { blocks: BLOCK, base, from: vec![ONE, TWO], own: Vec::new() };
    Column { parity: vec![rows], ..Column::default() }
}

/// We only send our old content.
pub fn contributes() -> Column {
    let sending = Sending { blocks: BLOCK, to: ONE, at: THERE, what: Sent::Old };
    Column { sends: vec![sending], ..Column::default() }
}

pub fn execute(actor: Actor, column: Column) -> Command {
    let participants = if column.writes().is_empty() { vec![ONE, TWO] } else { vec![US, ONE] };
    Command::Execute {
        transaction: actor.id,
        stamp: actor.stamp,
        object: actor.object,
        ordering: actor.ordering,
        participants,
        linkage: Linkage { first: BLOCK.start, last: BLOCK.start },
        column: Box::new(column),
    }
}

fn partial(actor: Actor, piece: Piece) -> Partial {
    Partial { epoch: Epoch(1), transaction: actor.id, object: OBJECT, pieces: vec![piece] }
}

fn commit(bench: &mut Bench, actor: Actor) {
    bench.say_with(A, vec![actor.id.sequence], Command::Heartbeat);
}

pub fn content_of(partial: &Partial) -> (u64, u8) {
    let [Piece { range, content: Content::Data(bytes) }] = &partial.pieces[..] else { panic!("{partial:?}") };
    (range.start, bytes[0])
}

#[test]
fn holes_that_are_added_up_are_a_hole() {
    let mut bench = Bench::new();
    let writer = actor(&bench, 1, 0);
    bench.say(A, execute(writer, gathers(Base::Old)));
    for from in [ONE, TWO] {
        bench.arrive(from, partial(writer, Piece { range: BLOCK, content: Content::Hole }));
    }
    assert_eq!(bench.hear(A), written(writer));
    commit(&mut bench, writer);
    let reader = Actor::new(B, 1, bench.stamp(B, 100));
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, reader.read(BLOCK)) else { panic!("no data") };
    assert_eq!(pieces, [Piece { range: BLOCK, content: Content::Hole }]);
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
            bench.arrive(from, partial(writer, data(BLOCK, 1)));
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
    bench.arrive(ONE, partial(writer, data(BLOCK, 1)));
    bench.enter(|membership| stands(membership, 3, MemberState::Out));
    let again = actor(&bench, 2, 10);
    // From a device that is still in the epoch before.
    bench.arrive(ONE, partial(again, data(BLOCK, 1)));
    bench.say(A, execute(again, gathers(Base::Zeros)));
    bench.arrive(TWO, Partial { epoch: Epoch(2), ..partial(again, data(BLOCK, 2)) });
    bench.arrive(DEVICES[3], Partial { epoch: Epoch(2), ..partial(again, data(BLOCK, 1)) });
    assert_eq!(bench.hear(A), None);
    bench.arrive(ONE, Partial { epoch: Epoch(2), ..partial(again, data(BLOCK, 1)) });
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
        column(&|column| column.sends = vec![sending(BLOCK, US, Sent::New)]),
        column(&|column| column.sends = vec![sending(BlockRange::new(6, 1), ONE, Sent::Change)]),
        column(&|column| column.sends = vec![sending(BlockRange::new(5, 0), ONE, Sent::Old)]),
        column(&|column| column.pieces.push(data(BLOCK, 2))),
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

stories! {
    story;

    fn a_device_sends_the_change_of_its_block_and_answers_once():
        "a1@0 write 5 =3" => "a1 written";
        "a1 ends";
        "stall";
        "a2@10 changes =6" => "sends 5 at 9 of a2 to 1"; // Its own part is not durable.
        "resume" => "a2 written";
        "a2 ends";
        "b1@3000001 read 5" => "b1 has 6";

    fn parity_is_the_base_and_one_part_of_each_sender():
        "a1@0 write 5 =8" => "a1 written";
        "a1 ends";
        "a2@10 gathers old";
        "1 sends a2 =1";
        "1 sends a2 =1";
        "3 sends a2 =4"; // Neither a device that owes nothing nor content for other blocks counts.
        "2 sends a2 =4 for 6";
        "2 sends a2 =2" => "a2 written";
        "a2 ends";
        "b1@3000001 read 5" => "b1 has 11";

    fn a_part_that_comes_before_its_column_is_kept_for_a_second():
        "a1@1000";
        "1 sends a1 =1";
        "pass 900ms";
        "a1 gathers zeros";
        "2 sends a1 =2" => "a1 written";
        "a1 ends";
        "a2@1000";
        "1 sends a2 =1";
        "pass 1100ms";
        "a2 gathers zeros";
        "2 sends a2 =2";

    fn a_repeated_column_is_answered_with_what_is_missing():
        "a1@0 pre 5" => "a1 accepted";
        "a2@10 gathers old";
        "a2 gathers old" => "a2 waits"; // A lower one may change the base.
        "a1 retracts" => "a1 is over: Abort";
        "a2 gathers old" => "a2 lacks 1 2";
        "1 sends a2 =1";
        "a2 gathers old" => "a2 lacks 2";

    fn a_repeated_answer_equals_the_first():
        "a1@0 write 5 =3" => "a1 written";
        "a1 ends";
        "a2@10 changes =6" => "sends 5 at 9 of a2 to 1, a2 written";
        "a2 changes =6" => "sends 5 at 9 of a2 to 1, a2 written";
        "restart";
        "a2 changes =6" => "sends 5 at 9 of a2 to 1, a2 written";
        "a2 ends"; // Once it is committed, its own change is the content: nothing is sent any more.
        "a2 changes =6" => "a2 written";
        // A device that only contributes does so as often as it is asked, and has nothing to say.
        "a3@3000000 contributes" => "sends 6 at 9 of a3 to 1";
        "a3 contributes" => "sends 6 at 9 of a3 to 1";

    fn a_lower_transaction_that_claims_the_parity_meanwhile_comes_first():
        "a1@20 gathers zeros";
        "1 sends a1 =1";
        "a2@10 pre 5" => "a2 accepted";
        "2 sends a1 =2"; // It waits for the lower one.
        "a2 write 5 =9" => "a2 written, a2 blocks";
        "a2 ends" => "a1 written at last";
        "a1 ends";
        "b1@3000001 read 5" => "b1 has 3";

    fn old_content_is_read_when_no_lower_transaction_may_change_it():
        "a1@10 write 5 =3" => "a1 written";
        "a3@15";
        "a2@20 contributes" => "a1 blocks";
        "a1 ends" => "sends 3 at 9 of a2 to 1";
        "a3 write 5" => "a3: Write TooLate for a2"; // What was sent must stay true.

    fn a_column_that_its_host_retracts_is_forgotten_with_what_it_gathered():
        "a1@0 gathers zeros";
        "1 sends a1 =1";
        "a1 retracts" => "a1 is over: Abort";
        "2 sends a1 =2";
        "a1 gathers zeros" => "a1: Execute NoPrewrite";
        "a2@10 write 5 =7" => "a2 written";
        "a2 ends";
        "b1@3000001 read 5" => "b1 has 7";
}
