//! Removed files: their blocks become free when no host has them open.

use crate::bench::*;
use braid_wire::{FileExtent, FileTime, MonitorCommand};

/// The position of the lock of an inode's existence.
const EXISTENCE: u16 = 1;

/// ONE has removed a file of 64 blocks that TWO has open. Also returns how many blocks were free before there was the file.
fn with_open_orphan() -> (Bench, u64) {
    let mut bench = Bench::new();
    let all = bench.free();
    let file = bench.create(ONE, "a");
    bench.fill(ONE, file, 64);
    bench.lock(TWO, 1, file, EXISTENCE, LockMode::Shared);
    bench.run(ONE, unlink("a")).expect("it is removed");
    (bench, all)
}

#[test]
fn an_open_file_lives_until_it_is_closed() {
    let (mut bench, all) = with_open_orphan();
    assert!(matches!(bench.hear_lock(TWO), Some(LockReply::Granted { lock_id: 1, .. })));
    assert!(matches!(bench.hear_lock(TWO), Some(LockReply::Revoke { .. })));
    assert_eq!((bench.free(), bench.server.unlinked_inodes()), (all - 64, 1), "it is open");
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![1] });
    assert_eq!((bench.free(), bench.server.unlinked_inodes()), (all, 0));
}

#[test]
fn orphans_are_found_by_the_next_process() {
    let (mut bench, all) = with_open_orphan();
    bench.restart(Time(0));
    // TWO never says again what it had, and is fenced.
    assert_eq!(bench.free(), all - 64);
    bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
    bench.pass(Duration::from_secs(5));
    assert!(!bench.monitor.is_empty(), "the host that may have it open is to be fenced");
    assert_eq!(bench.free(), all - 64);
}

#[test]
fn open_orphans_do_not_keep_others_from_being_freed() {
    let mut bench = Bench::new();
    let all = bench.free();
    for number in 0..300 {
        let file = bench.create(ONE, &format!("open-{number}"));
        bench.lock(TWO, number, file, EXISTENCE, LockMode::Shared);
    }
    for number in 0..300 {
        bench.run(ONE, unlink(&format!("open-{number}"))).expect("it is removed");
    }
    let file = bench.create(ONE, "a");
    bench.fill(ONE, file, 64);
    bench.run(ONE, unlink("a")).expect("it is removed");
    assert_eq!(bench.server.unlinked_inodes(), 301);
    for _ in 0..5 {
        bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
        bench.say(ONE, LockCommand::Heartbeat { sent: Time(0) });
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!((bench.free(), bench.server.unlinked_inodes()), (all, 300));
}

/// The server has hosts fenced.
fn fence(bench: &mut Bench) -> Vec<Generation> {
    let Some(request) = bench.monitor.pop_front() else { return Vec::new() };
    bench.monitor.clear();
    let MonitorCommand::Fence { ticket, also, .. } = request.command else { panic!("{request:?}") };
    let reply = MonitorReply::Fenced { ticket };
    bench.hear_monitor(MonitorAnswer { membership: None, unavailable: Vec::new(), reply });
    also.into_iter().collect()
}

fn reserve(bench: &mut Bench, host: Generation) {
    let reserved = bench.run(host, FileCommand::Reserve { blocks: 64 });
    assert!(matches!(reserved, Ok(FileResult::Reserved(_))), "{reserved:?}");
}

#[test]
fn the_allotment_of_a_host_that_does_not_appear_becomes_free() {
    let mut bench = Bench::new();
    let all = bench.free();
    reserve(&mut bench, ONE);
    reserve(&mut bench, TWO);
    assert_eq!(bench.free(), all - 128);
    // The owner dies. Neither host had told it what locks it held.
    bench.restart(Time(0));
    let pass = |bench: &mut Bench, seconds: u64| {
        for _ in 0..seconds {
            bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
            bench.pass(Duration::from_secs(1));
        }
    };
    pass(&mut bench, 38);
    assert!(bench.monitor.is_empty(), "it may come yet");
    pass(&mut bench, 3);
    assert!(fence(&mut bench).contains(&ONE));
    assert_eq!(bench.free_of(TWO), all - 64, "that of the other host stays");
}

#[test]
fn the_allotment_of_a_host_that_a_dead_owner_had_fenced_becomes_free() {
    let mut bench = Bench::new();
    let all = bench.free();
    reserve(&mut bench, TWO);
    bench.restart(Time(0));
    bench.hear_of_fence([TWO]);
    assert_eq!(bench.free(), all - 64, "a device may still serve it");
    assert_eq!(fence(&mut bench), [TWO]);
    assert_eq!(bench.free(), all);
}

#[test]
fn a_step_that_the_store_refuses_is_tried_again_later() {
    let (mut bench, all) = with_open_orphan();
    // The disk stands still. Requests wait in the store, and fill its queue.
    bench.stalled = true;
    let mut is_busy = false;
    for host in (200..400).map(Generation) {
        for number in 0..250 {
            let sequence = bench.ask(host, symbolic_link(&format!("{host}-{number}")));
            is_busy |= bench.reply(host, sequence).is_some();
        }
    }
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![1] });
    assert_eq!(bench.server.unlinked_inodes(), 1, "the step ends although the store refuses");
    let steps = bench.server.counters().steps;
    bench.resume_disk();
    bench.pass(Duration::from_secs(3));
    assert!(bench.server.counters().steps > steps);
    assert_eq!((bench.free(), bench.server.unlinked_inodes()), (all, 0));
    assert!(!is_busy, "hosts are not answered from a full queue");
}

/// The position of the lock of an inode's data.
const DATA: u16 = 0;

/// ONE makes a file with two blocks and many extents behind its size, and is gone; TWO has it open.
fn with_tail(bench: &mut Bench) -> InodeId {
    let file = bench.create(ONE, "a");
    let mut at = 0;
    while at < 2 * 1200 {
        let Ok(FileResult::Reserved(runs)) = bench.run(ONE, FileCommand::Reserve { blocks: 64 }) else { panic!() };
        let mut extents = Vec::new();
        for block in runs.iter().flat_map(|run| run.start..run.end()) {
            extents.push(FileExtent { at, blocks: BlockRange::new(block, 1) });
            at += 2;
        }
        let attach = FileCommand::Attach { inode: file, extents, size: at * 4096, mtime: FileTime(1) };
        assert!(matches!(bench.run(ONE, attach), Ok(FileResult::Attached { next: None, .. })));
    }
    bench.lock(TWO, 1, file, EXISTENCE, LockMode::Shared);
    bench.lock(TWO, 2, file, DATA, LockMode::Shared);
    let cut = bench.run(ONE, FileCommand::Truncate { inode: file, size: 3 * 4096 });
    assert!(matches!(cut, Ok(FileResult::Truncated { is_done: false, .. })), "{cut:?}");
    bench.restart(Time(0));
    bench.hold_again(TWO, 1, file, EXISTENCE);
    bench.hold_again(TWO, 2, file, DATA);
    bench.say(TWO, LockCommand::Heartbeat { sent: Time(0) });
    let revoked = std::iter::from_fn(|| bench.hear_lock(TWO)).filter(|reply| matches!(reply, LockReply::Revoke { .. }));
    assert_eq!(revoked.collect::<Vec<_>>(), [LockReply::Revoke { lock_ids: vec![2] }], "only the lock of the data");
    file
}

#[test]
fn the_tail_of_an_open_file_becomes_free() {
    let mut bench = Bench::new();
    let all = bench.free();
    let file = with_tail(&mut bench);
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![2] });
    assert_eq!(bench.free_of(TWO), all - 2);
    assert_eq!(bench.hear_lock(TWO), None, "the file stays open");
    let attributes = bench.lookup(TWO, "a").expect("it exists");
    assert_eq!((attributes.inode, attributes.size, attributes.blocks), (file, 3 * 4096, 2));
    bench.lock(TWO, 3, file, DATA, LockMode::Exclusive);
    assert!(matches!(bench.hear_lock(TWO), Some(LockReply::Granted { lock_id: 3, .. })), "the lock is given back");
}

#[test]
fn a_file_that_loses_its_name_while_its_tail_is_freed_lives_until_it_is_closed() {
    let mut bench = Bench::new();
    let all = bench.free();
    with_tail(&mut bench);
    assert_eq!(bench.server.unlinked_inodes(), 0);
    bench.run(TWO, unlink("a")).expect("it is removed");
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![2] });
    assert_eq!(bench.server.unlinked_inodes(), 1, "it is open");
    assert!(bench.free_of(TWO) < all);
    bench.say(TWO, LockCommand::Yield { lock_ids: vec![1] });
    assert_eq!((bench.free_of(TWO), bench.server.unlinked_inodes()), (all, 0));
}
