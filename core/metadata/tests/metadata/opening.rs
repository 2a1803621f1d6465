//! Files that are created and opened by one command.

use crate::bench::*;
use braid_wire::{OPENS, opening_locks};

/// The number of a lock by which a host makes itself known, and the inode that it is on.
const KNOWN: (u64, InodeId) = (1, InodeId(1));

/// A bench with hosts that hold a lock each, as mounts do.
fn bench() -> Bench {
    let mut bench = Bench::new();
    for host in [ONE, TWO] {
        bench.lock(host, KNOWN.0, KNOWN.1, DATA_LOCK, LockMode::Shared);
        assert!(matches!(bench.hear_lock(host), Some(LockReply::Granted { .. })));
    }
    bench
}

fn create_open(name: &str) -> FileCommand {
    let mut command = create(name);
    if let FileCommand::Create { mode, .. } = &mut command {
        *mode |= OPENS;
    }
    command
}

#[test]
fn a_host_that_opens_what_it_creates_has_the_locks_of_an_open_file() {
    let mut bench = bench();
    let sequence = bench.ask(ONE, create_open("a"));
    let Some(Ok(FileResult::Opened(made))) = bench.reply(ONE, sequence) else { panic!("it is opened") };
    assert_eq!(made.mode, 0o644);
    let [existence, data] = opening_locks(sequence);
    bench.lock(TWO, 2, made.inode, DATA_LOCK, LockMode::Shared);
    assert_eq!(bench.hear_lock(ONE), Some(LockReply::Revoke { lock_ids: vec![data] }));
    assert_eq!(bench.hear_lock(TWO), None);
    bench.run(TWO, unlink("a")).expect("it is removed");
    assert_eq!(bench.hear_lock(ONE), Some(LockReply::Revoke { lock_ids: vec![existence] }));
    assert_eq!(bench.server.unlinked_inodes(), 1, "it is open");
    bench.say(ONE, LockCommand::Yield { lock_ids: vec![data] });
    assert!(matches!(bench.hear_lock(TWO), Some(LockReply::Granted { lock_id: 2, .. })));
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![2] });
    bench.say(ONE, LockCommand::Yield { lock_ids: vec![existence] });
    assert_eq!(bench.server.unlinked_inodes(), 0);
}

#[test]
fn a_command_that_comes_again_opens_only_what_its_host_holds() {
    let mut bench = bench();
    let sequence = bench.ask(ONE, create_open("a"));
    let first = bench.reply(ONE, sequence).expect("it is answered");
    bench.send(ONE, sequence, 0, create_open("a"));
    assert_eq!(bench.reply(ONE, sequence), Some(first), "the locks are still held");
    bench.say(ONE, LockCommand::Yield { lock_ids: opening_locks(sequence)[1..].to_vec() });
    bench.send(ONE, sequence, 0, create_open("a"));
    assert!(matches!(bench.reply(ONE, sequence), Some(Ok(FileResult::Created { is_new: true, .. }))));
    bench.restart(Time(0));
    bench.lock(ONE, 3, KNOWN.1, DATA_LOCK, LockMode::Shared);
    bench.send(ONE, sequence, 0, create_open("a"));
    assert!(matches!(bench.reply(ONE, sequence), Some(Ok(FileResult::Created { is_new: true, .. }))));
}

#[test]
fn a_host_that_is_not_known_gets_no_locks_and_an_existing_name_is_refused() {
    let mut bench = Bench::new();
    assert!(matches!(bench.run(ONE, create_open("a")), Ok(FileResult::Created { is_new: true, .. })));
    assert_eq!(bench.run(ONE, create_open("a")), Err(FileError::Exists));
    let mut again = create_open("b");
    if let FileCommand::Create { exclusive, .. } = &mut again {
        *exclusive = false;
    }
    assert_eq!(bench.run(ONE, again), Err(FileError::Malformed));
}
