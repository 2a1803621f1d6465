//! Crashes at every disk command: what was answered is there afterwards, and no block is lost.

use crate::bench::*;

/// Creates files, and removes every third one, until the disk has executed so many commands; then the process dies. Returns the names
/// that must be there, and those that must not. Names of requests that were not answered are in neither list.
fn crashed_after(mut commands: usize) -> (Bench, Vec<String>, Vec<String>) {
    let mut bench = Bench::new();
    bench.stalled = true;
    let (mut made, mut removed) = (Vec::new(), Vec::new());
    let mut answers = |bench: &mut Bench, sequence: u64| {
        for _ in 0..3 {
            if commands > 0 && bench.run_one() {
                commands -= 1;
            }
        }
        bench.reply(ONE, sequence).is_some()
    };
    for number in 0..24 {
        let name = format!("file-{number}");
        let sequence = bench.ask(ONE, create(&name));
        if !answers(&mut bench, sequence) {
            continue;
        }
        if number % 3 > 0 {
            made.push(name);
            continue;
        }
        let sequence = bench.ask(ONE, unlink(&name));
        if answers(&mut bench, sequence) {
            removed.push(name);
        }
    }
    bench.restart(Time(0));
    (bench, made, removed)
}

#[test]
fn an_answered_command_survives_a_crash_at_any_disk_command() {
    let mut answered = 0;
    for commands in 0..80 {
        let (mut bench, made, removed) = crashed_after(commands);
        answered = made.len() + removed.len();
        for name in made {
            assert!(bench.lookup(ONE, &name).is_ok(), "{name} is lost after {commands} commands");
        }
        for name in removed {
            assert!(bench.lookup(ONE, &name).is_err(), "{name} is back after {commands} commands");
        }
        assert_eq!(
            (bench.free(), bench.server.unlinked_inodes()),
            (crate::bench::BLOCKS, 0),
            "after {commands} commands"
        );
        assert!(matches!(bench.run(ONE, create("new")), Ok(FileResult::Created { .. })));
    }
    assert!(answered > 10, "the last runs answer most requests, and not {answered}");
}

#[test]
fn blocks_of_a_volume_that_has_grown_are_added_once() {
    let mut bench = Bench::new();
    let inode = bench.create(ONE, "a");
    bench.fill(ONE, inode, 100);
    let before = bench.free();
    for (blocks, free) in [(BLOCKS + 1_000, before + 1_000), (BLOCKS + 1_000, before + 1_000), (BLOCKS, before + 1_000)]
    {
        bench.blocks = blocks;
        bench.restart(Time(0));
        assert_eq!(bench.free(), free);
        assert_eq!(bench.check(), (Vec::new(), 0));
    }
}
