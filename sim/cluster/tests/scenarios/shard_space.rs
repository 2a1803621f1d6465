//! Scenarios of the free blocks of a file system with several shards: no shard is full while another one has space.

use crate::play::*;
use crate::story::*;

/// The blocks of the file system, of which each shard has the same part at first.
const BLOCKS: u64 = 1024;
const FULL: Result<FilesSuccess, HostError> = Err(HostError::Files(FilesError::Refused(FileError::NoSpace)));

impl Play {
    /// Makes an inode in this shard, with any name in the directory.
    fn made_in(&mut self, shard: u8, parent: InodeId, node: &NewInode) -> (String, InodeId) {
        for number in 0.. {
            let name = format!("{node:?}-{number}");
            let inode = self.made(parent, &name, node.clone());
            if inode.shard() == ShardId(shard) {
                return (name, inode);
            }
        }
        unreachable!("new inodes are in all shards but that of the directory")
    }

    /// Makes and opens a file in the second shard, with its name in the root.
    fn file(&mut self) -> (String, FileHandle) {
        let (name, inode) = self.made_in(1, ROOT, &NewInode::Regular);
        (name, self.opened(inode))
    }

    fn begin_write(&mut self, handle: FileHandle, from: u64, blocks: u64) -> OpId {
        let data = Bytes::from(vec![7; (blocks * BLOCK) as usize]);
        self.ask(FilesRequest::Write { handle, offset: from * BLOCK, data })
    }

    fn write(&mut self, handle: FileHandle, from: u64, blocks: u64) -> Result<FilesSuccess, HostError> {
        let op = self.begin_write(handle, from, blocks);
        self.finish(op)
    }

    /// Fills the file system with one file, whose shard has a part of the blocks only.
    fn fill(&mut self, handle: FileHandle) {
        for from in (0..BLOCKS).step_by(128) {
            assert_eq!(self.write(handle, from, 128), Ok(FilesSuccess::Written { length: 128 * BLOCK }), "from {from}");
        }
        assert_eq!(self.write(handle, BLOCKS, 1), FULL);
        assert_eq!(self.status().free, 0);
    }
}

fn space(message: &Message) -> Option<&ShardBody> {
    match message {
        Message::Shard(ShardMessage { body, .. })
            if matches!(body, ShardBody::SpaceRequest { .. } | ShardBody::SpaceTransfer { .. }) =>
        {
            Some(body)
        }
        _ => None,
    }
}

/// Whether a message has blocks for another shard.
fn gives(message: &Message) -> bool {
    matches!(space(message), Some(ShardBody::SpaceTransfer { runs, .. }) if !runs.is_empty())
}

#[test]
fn a_file_may_have_all_blocks_of_all_shards() {
    for count in [2, 3] {
        let mut play = play(count, Protocol::OnePhase);
        let (name, handle) = play.file();
        assert_eq!((play.status().blocks, play.status().free), (BLOCKS, BLOCKS));
        play.fill(handle);
        play.run(unlink(ROOT, &name)).expect("a full file system can be emptied");
        play.execute(FilesRequest::Close { handle }).expect("it is closed");
        play.array.run_for(A_WHILE);
        let status = play.status();
        assert_eq!(status.free + status.allotted, BLOCKS);
        // Now all blocks are of the second shard. A file in the first one gets them.
        let (_, directory) = play.made_in(1, ROOT, &NewInode::Directory);
        let (_, inode) = play.made_in(0, directory, &NewInode::Regular);
        let handle = play.opened(inode);
        play.fill(handle);
        play.check();
    }
}

#[test]
fn a_transfer_that_is_lost_late_or_doubled_takes_effect_once() {
    let mut play = play(3, Protocol::OnePhase);
    let (_, handle) = play.file();
    let mut number = 0;
    play.array.world.network.set_rule(move |_, _, message| {
        if space(message).is_none() {
            return Verdict::Pass;
        }
        number += 1;
        match number % 4 {
            0 => Verdict::Drop,
            1 => Verdict::Double,
            2 => Verdict::Delay(Duration::from_secs(3)),
            _ => Verdict::Pass,
        }
    });
    play.fill(handle);
    play.array.world.network.heal();
    play.array.run_for(A_WHILE);
    assert_eq!(play.status().free, 0);
    play.check();
}

#[test]
fn blocks_in_transit_arrive_whichever_server_dies() {
    for dies in [vec![1], vec![0], vec![0, 1]] {
        for is_lost in [false, true] {
            let mut play = play(2, Protocol::OnePhase);
            let (_, handle) = play.file();
            let verdict = if is_lost { Verdict::Drop } else { Verdict::Pass };
            let given = judge(&mut play.array, verdict, |_, _, message| gives(message));
            let op = play.begin_write(handle, 0, 600);
            while given.get() == 0 {
                play.array.run_for(Duration::from_micros(20));
            }
            dies.iter().for_each(|shard| play.crash(*shard));
            play.array.world.network.heal();
            dies.iter().for_each(|shard| play.start(*shard));
            let written = play.finish(op);
            assert_eq!(written, Ok(FilesSuccess::Written { length: 600 * BLOCK }), "{dies:?}, lost: {is_lost}");
            play.check();
        }
    }
}

#[test]
fn a_server_that_begins_asks_for_what_its_shard_has_not_received() {
    let mut play = play(2, Protocol::OnePhase);
    let (_, handle) = play.file();
    let free = play.status().free;
    play.array.world.network.drop_if(|_, _, message| gives(message));
    play.begin_write(handle, 0, 600);
    play.array.run_for(Duration::from_secs(1));
    let lacking = play.status();
    assert!(lacking.free + lacking.allotted < free, "blocks are in transit");
    // The host that needed them is gone, too.
    play.array.crash(play.array.node(play.host));
    play.crash(1);
    play.array.world.network.heal();
    play.start(1);
    play.array.run_for(Duration::from_secs(60));
    play.host = play.another();
    let found = play.status();
    assert_eq!((found.free, found.allotted), (BLOCKS, 0), "what was written is not attached");
    play.check();
}

#[test]
fn no_mount_hears_that_a_file_system_is_full_while_a_server_is_silent() {
    let mut play = play(3, Protocol::OnePhase);
    let (_, handle) = play.file();
    play.crash(2);
    // The blocks of the third shard are the first that are asked for.
    let thirds = 2 * (BLOCKS / 3);
    let begun = play.array.world.now();
    assert_eq!(play.write(handle, 0, thirds), Ok(FilesSuccess::Written { length: thirds * BLOCK }));
    let took = play.array.world.now().since(begun);
    assert!(took < Duration::from_secs(3), "a silent server is passed by: {took:?}");
    let op = play.begin_write(handle, thirds, 200);
    play.array.run_for(Duration::from_secs(20));
    play.start(2);
    assert_eq!(play.finish(op), Ok(FilesSuccess::Written { length: 200 * BLOCK }));
    play.check();
}

/// A host that has blocks in its allotment, and does not use them, and another one that fills the file system block by block. Returns how
/// many blocks that one wrote, and how many the first one has used.
fn starve(play: &mut Play, before: impl FnOnce(&mut Play, HostSlot)) -> (u64, u64, Duration) {
    let (idler, handle) = (play.host, play.begun("a"));
    for from in 0..3 {
        assert_eq!(play.write(handle, from * 80, 80), Ok(FilesSuccess::Written { length: 80 * BLOCK }));
    }
    assert!(play.array.role(idler).map_or(0, Role::idle_blocks) > 0, "blocks are reserved, and not used");
    before(play, idler);
    play.host = play.another();
    let handle = play.begun("b");
    let mut written = 0;
    loop {
        let begun = play.array.world.now();
        match play.write(handle, written, 1) {
            Ok(_) => written += 1,
            full => {
                assert_eq!(full, FULL);
                return (written, 240, play.array.world.now().since(begun));
            }
        }
    }
}

#[test]
fn a_host_that_does_not_answer_keeps_its_blocks_and_is_waited_for_once() {
    let mut play = play(1, Protocol::OnePhase);
    let mut kept = 0;
    let (written, used, took) = starve(&mut play, |play, idler| {
        kept = play.array.role(idler).map_or(0, Role::idle_blocks);
        let node = play.array.node(idler);
        play.array.world.network.set_rule(move |_, to, message| match (to == node, message) {
            (true, Message::LockAnswer(answer)) if matches!(answer.reply, LockReply::Revoke { .. }) => Verdict::Drop,
            _ => Verdict::Pass,
        });
    });
    assert_eq!(written + used + kept, BLOCKS);
    assert!(took <= Duration::from_secs(3), "{took:?}");
    let handle = play.begun("c");
    let begun = play.array.world.now();
    assert_eq!(play.write(handle, 0, 1), FULL);
    assert!(play.array.world.now().since(begun) < Duration::from_millis(500), "it is not waited for again");
    play.array.world.network.heal();
    play.array.run_for(A_WHILE);
    assert_eq!(play.write(handle, 0, kept), Ok(FilesSuccess::Written { length: kept * BLOCK }), "now it is heard");
    play.check();
}

#[test]
fn of_two_hosts_that_starve_one_gets_what_both_have_gathered() {
    let mut play = play(1, Protocol::OnePhase);
    let handle = play.begun("a");
    assert_eq!(play.write(handle, 0, BLOCKS - 100), Ok(FilesSuccess::Written { length: (BLOCKS - 100) * BLOCK }));
    let first = play.begin_write(handle, BLOCKS, 80);
    play.host = play.another();
    let handle = play.begun("b");
    let second = play.begin_write(handle, 0, 80);
    let ends = [play.finish(first), play.finish(second)];
    let written = Ok(FilesSuccess::Written { length: 80 * BLOCK });
    assert!(ends.contains(&written) && ends.contains(&FULL), "{ends:?}");
    play.check();
}
