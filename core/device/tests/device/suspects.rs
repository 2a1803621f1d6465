//! Interrupted writes on one device, where writes take effect on arrival (atomicity `consistent`).

use crate::bench::*;
use crate::story::{Story, Told, stories, tell_of};
use braid_wire::{Suspect, SuspectBlocks};

const OTHER: BlockRange = BlockRange { start: 9, count: 2 };

fn story(parts: &[(&str, &str)]) -> Story {
    tell_of((ARRIVING, Ordering::Timestamp), Bench::new(), parts)
}

/// What the device tells host B of suspects.
fn suspects(bench: &mut Bench) -> Vec<Suspect> {
    bench.say(B, Command::Heartbeat);
    match bench.heard.remove(&B).and_then(|mut heard| heard.pop_back()).map(|answer| answer.reply) {
        Some(Reply::Heartbeat { suspects, .. }) => suspects,
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_and_announcements_of_a_silent_host_are_named_until_forgotten() {
    let mut told = story(&[
        ("a1@0 pre 5", "a1 accepted"),
        ("a1 arrive 5 =7", "a1 written"),
        ("a2@1 pre 9+2", "a2 accepted"),
        ("b1@2 pre 20", "b1 accepted"),
        ("b1 arrive 20 =8", "b1 written"),
        ("b lives 6s", "b hears of a1 a2"),
    ]);
    let whole = Linkage { first: BLOCK.start, last: BLOCK.start };
    let suspect = |name, blocks| Suspect { transaction: told.actor(name).id, object: ARRIVING, blocks };
    let expected = [suspect("a1", SuspectBlocks::Written(whole)), suspect("a2", SuspectBlocks::Announced(OTHER))];
    assert_eq!(suspects(&mut told.bench), expected);
    told.goes_on(&[
        // Reads to compute parity are refused. Plain reads continue, and so do writes that need no old content.
        ("b2@3000002 update 5", "b2: Prewrite Suspect"),
        ("b3@3000003 update 9+2", "b3: Prewrite Suspect"),
        ("b4@3000004 update 30", "b4 has 0"),
        ("b5@3000005 read 5", "b5 has 7"),
        ("b6@3000006 pre 9+2", "b6 accepted"),
        ("b6 arrive 9+2 =9", "b6 written"),
        // A late write is refused.
        ("a2 arrive 9+2", "a2: Write NoPrewrite"),
        ("b forgets a1", "b: a1 forgotten"),
        ("b forgets a2", "b: a2 forgotten"),
        ("suspects?", "0"),
        ("b7@3000007 update 5", "b7 has 7"),
    ]);
}

#[test]
fn device_locks_that_are_lost_leave_suspects_too() {
    let parts = [
        ("a1@0 pre 5", "a1 accepted"),
        ("b lives 6s", "b hears of a1"),
        ("b1@3000001 update 5", "b1: Prewrite Suspect"),
    ];
    tell_of((LOCKED_ARRIVING, Ordering::DeviceLock), Bench::new(), &parts);
}

#[test]
fn linkage_is_reported_without_data() {
    let Story { mut bench, .. } = story(&[("a1@0 pre 9+2", "a1 accepted"), ("a1 arrive 9+2 =7", "a1 written")]);
    let reader = actor(&bench, B, 1, 5).on(ARRIVING, Ordering::Timestamp);
    let extents = vec![BlockRange::new(OTHER.start - 1, 3)];
    let Some(Reply::Data { pieces, .. }) = bench.ask(B, reader.read_of(extents, Want::Linkage)) else {
        panic!("it is told")
    };
    let linkage = Linkage { first: OTHER.start, last: OTHER.end() - 1 };
    let header = Content::Header { transaction: TransactionId { host: A, sequence: 1 }, linkage };
    let found: Vec<_> =
        pieces.into_iter().flat_map(|piece| piece.range.blocks().map(move |_| piece.content.clone())).collect();
    assert_eq!(found, [Content::Hole, header.clone(), header]);
}

#[test]
fn a_write_of_the_other_kind_is_refused() {
    let kinds = [("a1 arrive 254", OBJECT), ("a1 write 254", ARRIVING)];
    for (write, object) in kinds {
        let parts = [("a1@1 pre 254", "a1 accepted"), (write, "a1: Write Malformed")];
        tell_of((object, Ordering::Timestamp), Bench::new(), &parts);
    }
}

#[test]
fn no_write_on_a_removed_object_is_remembered_once_its_host_is_gone() {
    let mut told =
        story(&[("a1@0 pre 5", "a1 accepted"), ("a1 arrive 5 =7", "a1 written"), ("count commits_remembered", "1")]);
    told.bench.manage(B, 50, Task::RemoveObject { object: ARRIVING }).expect("it is removed");
    told.goes_on(&[("b lives 6s", ""), ("count commits_remembered", "0")]);
}

stories! {
    story;

    fn writes_outlive_a_restart_and_finished_ones_are_not_suspect():
        "a1@0 pre 5" => "a1 accepted";
        "a1 arrive 5 =7" => "a1 written";
        "a2@1 pre 9+2" => "a2 accepted";
        "a2 arrive 9+2 =8" => "a2 written";
        "a is over 2";
        "b1@5 pre 20" => "b1 accepted"; // A request that only rides along becomes durable with the next batch.
        "b1 arrive 20" => "b1 written";
        "pass 200ms";
        "restart";
        "b lives 6s" => "b hears of a1";

    fn a_host_reports_whether_the_write_was_interrupted_or_nothing_was_written():
        "a1@1 pre 10" => "a1 accepted";
        "a interrupts a1" => "a1 is over: Abort";
        "suspects?" => "1";
        "a2@2 pre 20" => "a2 accepted";
        "a aborts a2" => "a2 is over: Abort";
        "suspects?" => "1";
        // The host's lease expired too soon; the host then says that nothing was written.
        "a3@9 pre 9+2" => "a3 accepted";
        "b lives 6s" => "b hears of a1, b hears of a3 a1";
        "suspects?" => "2";
        "a aborts a3" => "a3 is over: Abort";
        "suspects?" => "1";
}
