//! Interrupted writes on one device, where writes take effect on arrival (atomicity `consistent`).

use crate::bench::*;
use braid_wire::{Suspect, SuspectBlocks};

const A: Generation = Generation(1);
const B: Generation = Generation(2);
const BLOCK: BlockRange = BlockRange { start: 5, count: 1 };
const OTHER: BlockRange = BlockRange { start: 9, count: 2 };

fn actor(bench: &Bench, host: Generation, sequence: u64, micros: i64) -> Actor {
    Actor::new(host, sequence, bench.stamp(host, micros)).on(ARRIVING, Ordering::Timestamp)
}

/// Well above the floor after a restart.
fn late(bench: &Bench, sequence: u64) -> Actor {
    actor(bench, B, sequence, 3_000_000 + sequence as i64)
}

fn announce(bench: &mut Bench, actor: Actor, range: BlockRange) {
    assert_eq!(bench.ask(actor.id.host, actor.prewrite(range)), accepted(actor));
}

fn write(bench: &mut Bench, actor: Actor, range: BlockRange, fill: u8) {
    announce(bench, actor, range);
    assert_eq!(bench.ask(actor.id.host, actor.write_as(WriteMode::Immediate, range, fill)), written(actor));
}

/// Lets six seconds pass in which only host B speaks. Returns the suspects that it is told at their end.
fn outlive_a(bench: &mut Bench) -> Vec<Suspect> {
    let mut named = Vec::new();
    for _ in 0..12 {
        bench.pass(Duration::from_millis(500));
        bench.say(B, Command::Heartbeat);
        for answer in bench.heard.entry(B).or_default().drain(..) {
            if let Reply::Heartbeat { suspects, .. } = answer.reply {
                named = suspects;
            }
        }
    }
    named
}

fn refusal(bench: &mut Bench, actor: Actor, command: Command) -> Option<Refusal> {
    match bench.ask(actor.id.host, command) {
        Some(Reply::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    }
}

#[test]
fn writes_and_announcements_of_a_silent_host_are_named_until_forgotten() {
    let mut bench = Bench::new();
    let (written, announced, over) = (actor(&bench, A, 1, 0), actor(&bench, A, 2, 1), actor(&bench, B, 1, 2));
    write(&mut bench, written, BLOCK, 7);
    announce(&mut bench, announced, OTHER);
    write(&mut bench, over, BlockRange::new(20, 1), 8);
    let whole = Linkage { first: BLOCK.start, last: BLOCK.start };
    let expected = [
        Suspect { transaction: written.id, object: ARRIVING, blocks: SuspectBlocks::Written(whole) },
        Suspect { transaction: announced.id, object: ARRIVING, blocks: SuspectBlocks::Announced(OTHER) },
    ];
    assert_eq!(outlive_a(&mut bench), expected);
    // Reads to compute parity are refused. Plain reads continue, and so do writes that need no old content.
    for (sequence, range) in [(2, BLOCK), (3, OTHER)] {
        let small = late(&bench, sequence);
        assert_eq!(refusal(&mut bench, small, small.read_and_prewrite(range)), Some(Refusal::Suspect));
    }
    let elsewhere = late(&bench, 4);
    assert_eq!(refusal(&mut bench, elsewhere, elsewhere.read_and_prewrite(BlockRange::new(30, 1))), None);
    let reader = late(&bench, 5);
    assert_eq!(fills(&bench.ask(B, reader.read(BLOCK)).expect("an answer")), [7]);
    let blind = late(&bench, 6);
    write(&mut bench, blind, OTHER, 9);
    // A late write is refused.
    let stray = refusal(&mut bench, announced, announced.write_as(WriteMode::Immediate, OTHER, 1));
    assert_eq!(stray, Some(Refusal::NoPrewrite));
    for transaction in [written.id, announced.id] {
        assert_eq!(bench.ask(B, Command::Forget { transaction }), Some(Reply::Forgotten { transaction }));
    }
    assert_eq!(bench.device.suspects(), 0);
    let small = late(&bench, 7);
    assert_eq!(refusal(&mut bench, small, small.read_and_prewrite(BLOCK)), None);
}

#[test]
fn writes_outlive_a_restart_and_finished_ones_are_not_suspect() {
    let mut bench = Bench::new();
    let (open, over) = (actor(&bench, A, 1, 0), actor(&bench, A, 2, 1));
    write(&mut bench, open, BLOCK, 7);
    write(&mut bench, over, OTHER, 8);
    bench.say_over(A, vec![2]);
    // A request that only rides along becomes durable with the next batch.
    let next = actor(&bench, B, 1, 5);
    write(&mut bench, next, BlockRange::new(20, 1), 1);
    bench.pass(Duration::from_millis(200));
    bench.restart();
    let named = outlive_a(&mut bench);
    assert!(named.iter().any(|suspect| suspect.transaction == open.id), "{named:?}");
    assert!(named.iter().all(|suspect| suspect.transaction != over.id), "{named:?}");
}

#[test]
fn a_host_reports_whether_the_write_was_interrupted_or_nothing_was_written() {
    let mut bench = Bench::new();
    for (sequence, outcome, suspects) in [(1, Outcome::Interrupted, 1), (2, Outcome::Abort, 1)] {
        let actor = actor(&bench, A, sequence, sequence as i64);
        announce(&mut bench, actor, BlockRange::new(sequence * 10, 1));
        bench.say(A, actor.decide(outcome));
        assert_eq!(bench.hear(A), Some(Reply::Decided { transaction: actor.id, outcome: Outcome::Abort }));
        assert_eq!(bench.device.suspects(), suspects, "{outcome:?}");
    }
    // The host's lease expired too soon; the host then says that nothing was written.
    let silent = actor(&bench, A, 3, 9);
    announce(&mut bench, silent, OTHER);
    outlive_a(&mut bench);
    assert_eq!(bench.device.suspects(), 2);
    bench.say(A, silent.decide(Outcome::Abort));
    assert_eq!(bench.device.suspects(), 1);
}

#[test]
fn device_locks_that_are_lost_leave_suspects_too() {
    let mut bench = Bench::new();
    let writer = actor(&bench, A, 1, 0).on(LOCKED_ARRIVING, Ordering::DeviceLock);
    announce(&mut bench, writer, BLOCK);
    let named = outlive_a(&mut bench);
    assert_eq!(named.len(), 1);
    let small = late(&bench, 1).on(LOCKED_ARRIVING, Ordering::DeviceLock);
    assert_eq!(refusal(&mut bench, small, small.read_and_prewrite(BLOCK)), Some(Refusal::Suspect));
}

#[test]
fn linkage_is_reported_without_data() {
    let mut bench = Bench::new();
    let writer = actor(&bench, A, 1, 0);
    write(&mut bench, writer, OTHER, 7);
    let reader = actor(&bench, B, 1, 5);
    let extents = vec![BlockRange::new(OTHER.start - 1, 3)];
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, reader.read_of(extents, Want::Linkage)) else {
        panic!("it is told")
    };
    let linkage = Linkage { first: OTHER.start, last: OTHER.end() - 1 };
    let header = Content::Header { transaction: writer.id, linkage };
    let found: Vec<_> =
        pieces.into_iter().flat_map(|piece| piece.range.blocks().map(move |_| piece.content.clone())).collect();
    assert_eq!(found, [Content::Hole, header.clone(), header]);
}

#[test]
fn a_write_of_the_other_kind_is_refused() {
    let mut bench = Bench::new();
    for (sequence, object, mode) in [(1, OBJECT, WriteMode::Immediate), (2, ARRIVING, WriteMode::Intent)] {
        let actor = actor(&bench, A, sequence, sequence as i64).on(object, Ordering::Timestamp);
        announce(&mut bench, actor, BlockRange::new(BLOCKS - 2, 1));
        bench.say(A, actor.write_as(mode, BlockRange::new(BLOCKS - 2, 1), 1));
        assert_eq!(bench.hear(A), failed(actor, Step::Write, Failure::Malformed), "{mode:?}");
    }
}

#[test]
fn no_write_on_a_removed_object_is_remembered_once_its_host_is_gone() {
    let mut bench = Bench::new();
    let one = actor(&bench, A, 1, 0);
    write(&mut bench, one, BLOCK, 7);
    assert_eq!(bench.counter("commits_remembered"), 1);
    let task = Task::RemoveObject { object: ARRIVING };
    assert!(matches!(bench.ask(B, Command::Manage { ticket: 50, task }), Some(Reply::Managed { result: Ok(_), .. })));
    assert_eq!(outlive_a(&mut bench), []);
    assert_eq!(bench.counter("commits_remembered"), 0);
}
