//! A metadata volume that fills up.

use crate::bench::*;

/// More than any volume of this bench has room for.
const MOST: usize = 200_000;

#[test]
fn a_full_volume_refuses_new_names_and_takes_removals() {
    let mut bench = Bench::new();
    let first = fill(&mut bench);
    assert!(first > 9_000, "there is no room after {first} files");
    assert!(bench.server.room().refuses_names(), "and the server says so");
    // A file that exists can still be written.
    let inode = bench.lookup(ONE, &name(0)).expect("it was created first").inode;
    bench.fill(ONE, inode, 100);
    for number in 0..first {
        let removed = run(&mut bench, unlink(&name(number)));
        assert!(removed.is_ok(), "file {number} is not removed: {removed:?}");
    }
    bench.pass(Duration::from_secs(1));
    let second = fill(&mut bench);
    assert!(second > first / 10 * 9, "{first} files, and after their removal {second}");
}

#[test]
fn a_shard_that_refuses_names_still_takes_extents() {
    let mut bench = Bench::of_shards(2);
    fill(&mut bench);
    let inode = bench.lookup(ONE, &name(0)).expect("it was created first").inode;
    bench.fill(ONE, inode, 100);
    let truncated = run(&mut bench, FileCommand::Truncate { inode, size: 5 });
    assert!(truncated.is_ok(), "{truncated:?}");
}

/// Creates files until there is no room. Returns how many.
fn fill(bench: &mut Bench) -> usize {
    for number in 0..MOST {
        match run(bench, create(&name(number))) {
            Ok(_) => {}
            Err(FileError::NoSpace) => return number,
            Err(other) => panic!("file {number} is refused: {other:?}"),
        }
    }
    panic!("the volume is never full")
}

/// A request may wait for a merge of the index, or several.
fn run(bench: &mut Bench, command: FileCommand) -> FileReply {
    let sequence = bench.ask(ONE, command);
    for _ in 0..10 {
        if let Some(reply) = bench.reply(ONE, sequence) {
            return reply;
        }
        bench.pass(Duration::from_millis(1));
    }
    panic!("request {sequence} is not answered")
}

fn name(number: usize) -> String {
    format!("file-{number:08}")
}
