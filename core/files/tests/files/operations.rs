//! Single operations, one after the other.

use crate::bench::*;
use braid_base::limits;
use braid_files::FileWaits;
use braid_wire::{AttributeChange, FileAttributes, FileError, FileTime, NewTime};

const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);

fn stat(bench: &mut Bench, host: Generation, inode: InodeId) -> FileAttributes {
    match bench.command(host, FileCommand::Stat { inode }) {
        FileResult::Attributes(attributes) => attributes,
        other => panic!("{other:?}"),
    }
}

fn refused(error: FileError) -> HostError {
    HostError::Files(FilesError::Refused(error))
}

#[test]
fn a_host_reads_writes_of_another() {
    let (mut bench, inode, one, two) = Bench::with_shared_file(1);
    bench.write(ONE, one, 0, b"hello");
    assert_eq!(bench.read(TWO, two, 0, 100), b"hello");
    bench.write(TWO, two, 10_000, b"far");
    let mut expected = b"hello".to_vec();
    expected.resize(10_000, 0);
    expected.extend_from_slice(b"far");
    assert_eq!(bench.read(ONE, one, 0, 20_000), expected);
    assert_eq!(stat(&mut bench, ONE, inode).blocks, 2, "the block between is a hole");
    let data = Bytes::from_static(b"end");
    let appended = bench.call(ONE, FilesRequest::Append { handle: one, data });
    assert_eq!(appended, Ok(FilesSuccess::Appended { offset: 10_003, length: 3 }));
    assert_eq!(bench.read(TWO, two, 10_000, 100), b"farend");
    assert_eq!(bench.read(TWO, two, 10_006, 100), b"", "nothing is behind the end");
    let mut found = |offset| bench.call(TWO, FilesRequest::NextData { handle: two, offset });
    let end = 10_006..10_006;
    for (offset, data) in
        [(0, 0..4096), (9, 9..4096), (4096, 8192..10_006), (9000, 9000..10_006), (10_006, end.clone()), (u64::MAX, end)]
    {
        assert_eq!(found(offset), Ok(FilesSuccess::NextData(data)), "{offset}");
    }
    // A run that does not fit into one page of extents: its blocks are in reversed order.
    for block in (10..limits::FILE_EXTENTS_MAX as u64 + 20).rev() {
        bench.write(TWO, two, block * 4096, b"block");
    }
    let found = bench.call(ONE, FilesRequest::NextData { handle: one, offset: 20_000 });
    let end = (limits::FILE_EXTENTS_MAX as u64 + 19) * 4096 + 5;
    assert_eq!(found, Ok(FilesSuccess::NextData(40_960..end)));
    bench.unmount_all();
}

#[test]
fn truncated_bytes_read_as_zeros_when_the_file_grows_again() {
    let (mut bench, inode, one, two) = Bench::with_shared_file(2);
    bench.write(ONE, one, 0, &[7; 9_000]);
    assert_eq!(bench.call(TWO, FilesRequest::Truncate { inode, size: 5_000 }), Ok(FilesSuccess::Done));
    assert_eq!(bench.read(ONE, one, 0, 9_000), [7; 5_000]);
    assert_eq!(bench.call(ONE, FilesRequest::Truncate { inode, size: 6_000 }), Ok(FilesSuccess::Done));
    assert_eq!(bench.read(TWO, two, 4_990, 9_000), [[7; 10].to_vec(), vec![0; 1_000]].concat());
    assert_eq!(bench.call(ONE, FilesRequest::Truncate { inode, size: 10 }), Ok(FilesSuccess::Done));
    bench.write(TWO, two, 12, &[9; 2]);
    let mut expected = vec![7; 10];
    expected.extend([0, 0, 9, 9]);
    assert_eq!(bench.read(ONE, one, 0, 9_000), expected);
    bench.unmount_all();
}

#[test]
fn large_writes_are_cut_and_small_ones_share_a_hostwrite() {
    let mut bench = Bench::new(3, 1, 8192, GOOD);
    let inode = bench.create(ONE, "large");
    let large = bench.open(ONE, inode);
    let content: Vec<u8> = (0..10 << 20).map(|n: u32| (n / 77) as u8).collect();
    bench.write(ONE, large, 3, &content);
    assert_eq!(bench.read(ONE, large, 3, 10 << 20), content);
    assert_eq!(bench.volume.borrow().writes.len(), 3, "10 MiB are three transactions");
    let handles: Vec<_> = (0..20)
        .map(|number| {
            let inode = bench.create(ONE, &number.to_string());
            bench.open(ONE, inode)
        })
        .collect();
    // All have their locks.
    let first = |bench: &mut Bench, from: u64| {
        let write = |handle| FilesRequest::Write { handle, offset: from, data: Bytes::from(vec![1; 4096]) };
        handles.iter().map(|handle| bench.ask(ONE, write(*handle))).collect::<Vec<_>>()
    };
    for op in first(&mut bench, 0) {
        bench.finish(op).expect("written");
    }
    bench.volume.borrow_mut().writes.clear();
    for op in first(&mut bench, 8192) {
        bench.finish(op).expect("written");
    }
    let lengths: Vec<_> = bench.volume.borrow().writes.iter().map(|(_, length)| *length / 4096).collect();
    assert_eq!(lengths, [1, STRIPE_BYTES / 4096, 3], "the first goes alone, the others together");
    bench.unmount_all();
}

#[test]
fn without_space_nothing_shows_and_later_it_works_again() {
    let mut bench = Bench::new(4, 2, 64, GOOD);
    let inode = bench.create(ONE, "a");
    let (one, two) = (bench.open(ONE, inode), bench.open(TWO, inode));
    bench.write(ONE, one, 0, &[1; 4096]);
    let data = Bytes::from(vec![2; 80 * 4096]);
    let written = bench.call(ONE, FilesRequest::Write { handle: one, offset: 100, data });
    assert_eq!(written, Err(refused(FileError::NoSpace)));
    assert_eq!(bench.read(TWO, two, 0, 100_000), [1; 4096]);
    // The first host has all blocks in its allotment.
    bench.write(ONE, one, 0, &[3; 60 * 4096]);
    let op = bench.ask_host(ONE, ArrayRequest::Disconnect);
    bench.finish(op).expect("disconnected");
    bench.write(TWO, two, 60 * 4096, &[4; 4 * 4096]);
    assert_eq!(
        bench.call(TWO, FilesRequest::Append { handle: two, data: Bytes::from_static(b"x") }),
        Err(refused(FileError::NoSpace))
    );
    bench.command(TWO, FileCommand::Unlink { parent: InodeId::ROOT, name: Bytes::from_static(b"a") });
    assert_eq!(bench.read(TWO, two, 60 * 4096 - 1, 3), [3, 4, 4], "an open file needs no name");
    assert_eq!(bench.call(TWO, FilesRequest::Close { handle: two }), Ok(FilesSuccess::Done));
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.server.status().inodes, 1, "the file is gone");
    let closed = bench.call(TWO, FilesRequest::Read { handle: two, offset: 0, length: 1 });
    assert_eq!(closed, Err(HostError::Files(FilesError::NotOpen)));
    let gone = bench.call(TWO, FilesRequest::Open { inode });
    assert_eq!(gone, Err(refused(FileError::Stale)));
    bench.clients.remove(&ONE);
    bench.unmount_all();
    assert_eq!(bench.server.status().free, 64);
}

#[test]
fn a_failed_hostwrite_gives_its_blocks_back() {
    let mut bench = Bench::new(5, 1, 8192, GOOD);
    let inode = bench.create(ONE, "a");
    let one = bench.open(ONE, inode);
    bench.volume.borrow_mut().fails = true;
    let data = Bytes::from_static(b"lost");
    let written = bench.call(ONE, FilesRequest::Write { handle: one, offset: 0, data });
    assert!(matches!(written, Err(HostError::Device { .. })), "{written:?}");
    bench.volume.borrow_mut().fails = false;
    assert_eq!(bench.read(ONE, one, 0, 10), b"");
    bench.write(ONE, one, 0, b"found");
    bench.unmount_all();
    assert_eq!(bench.server.status().free, 8191);
}

#[test]
fn the_time_of_an_overwrite_is_published_in_time() {
    let (mut bench, inode, one, two) = Bench::with_shared_file(6);
    bench.write(ONE, one, 0, b"aaaa");
    let published = |bench: &mut Bench, wait: Duration| {
        bench.pass(Duration::from_millis(10));
        let before = stat(bench, TWO, inode).mtime;
        bench.write(ONE, one, 0, b"bbbb");
        bench.pass(wait);
        before < stat(bench, TWO, inode).mtime
    };
    assert!(!published(&mut bench, Duration::ZERO), "a write waits for no publication");
    assert!(published(&mut bench, Duration::from_millis(1_100)), "within a second");
    bench.write(ONE, one, 0, b"cccc");
    let before = stat(&mut bench, TWO, inode).mtime;
    assert_eq!(bench.call(ONE, FilesRequest::Sync { handle: one }), Ok(FilesSuccess::Done));
    let after = stat(&mut bench, TWO, inode).mtime;
    assert!(before < after, "at a sync");
    bench.write(ONE, one, 0, b"dddd");
    assert_eq!(bench.read(TWO, two, 0, 4), b"dddd");
    let read = stat(&mut bench, TWO, inode).mtime;
    assert!(after < read, "when the lock is revoked");
    bench.write(ONE, one, 0, b"eeee");
    assert!(read < stat(&mut bench, ONE, inode).mtime, "for a question on the same host");
    bench.write(ONE, one, 0, b"ffff");
    let mtime = Some(NewTime::At(FileTime(77)));
    bench.command(
        ONE,
        FileCommand::SetAttributes { inode, change: AttributeChange { mtime, ..AttributeChange::default() } },
    );
    bench.pass(Duration::from_secs(3));
    assert_eq!(stat(&mut bench, TWO, inode).mtime, FileTime(77), "a time that was set stays");
    bench.unmount_all();
}

#[test]
fn an_abandoned_read_leaves_no_hostread() {
    let mut bench = Bench::new(8, 1, 8192, GOOD);
    let inode = bench.create(ONE, "a");
    let file = bench.open(ONE, inode);
    bench.write(ONE, file, 0, b"aaaa");
    bench.volume.borrow_mut().is_held = true;
    let before = bench.volume.borrow().abandoned;
    let read = bench.ask(ONE, FilesRequest::Read { handle: file, offset: 0, length: 4 });
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.clients[&ONE].waits().volume, 1);
    bench.ask_host(ONE, ArrayRequest::Abandon { ops: vec![read] });
    assert_eq!(bench.finish(read), Err(HostError::Abandoned));
    assert_eq!(bench.clients[&ONE].waits().volume, 0);
    assert_eq!(bench.volume.borrow().abandoned - before, 2, "the operation, and its hostread");
    bench.volume.borrow_mut().is_held = false;
    bench.unmount_all();
}

#[test]
fn a_lock_is_not_given_back_while_a_hostwrite_is_under_way() {
    let (mut bench, _, one, two) = Bench::with_shared_file(7);
    bench.write(ONE, one, 0, b"aaaa");
    bench.volume.borrow_mut().is_held = true;
    let write = bench.ask(ONE, FilesRequest::Write { handle: one, offset: 0, data: Bytes::from_static(b"bbbb") });
    let abandon = bench.ask_host(ONE, ArrayRequest::Abandon { ops: vec![write] });
    let read = bench.ask(TWO, FilesRequest::Read { handle: two, offset: 0, length: 4 });
    let waiting = bench.ask(TWO, FilesRequest::Read { handle: two, offset: 0, length: 4 });
    bench.pass(Duration::from_secs(30));
    assert!(!bench.ended.contains_key(&read) && !bench.ended.contains_key(&write));
    let abandon_waiting = bench.ask_host(TWO, ArrayRequest::Abandon { ops: vec![waiting] });
    assert_eq!(bench.finish(waiting), Err(HostError::Abandoned), "one that has written nothing ends at once");
    bench.volume.borrow_mut().is_held = false;
    for op in [abandon, abandon_waiting, write, read] {
        bench.finish(op).expect("it ends");
    }
    assert_eq!(bench.read(TWO, two, 0, 4), b"bbbb");
    bench.unmount_all();
}

#[test]
fn blocks_are_attached_when_their_bytes_are_durable() {
    let mut bench = Bench::new(12, 1, 8192, GOOD);
    let inode = bench.create(ONE, "a");
    let one = bench.open(ONE, inode);
    bench.volume.borrow_mut().is_held = true;
    let attached =
        |bench: &Bench| bench.server.commands.values().any(|command| matches!(command, FileCommand::Attach { .. }));
    let write = bench.ask(ONE, FilesRequest::Write { handle: one, offset: 0, data: Bytes::from_static(b"new") });
    bench.pass(Duration::from_secs(10));
    assert!(!attached(&bench) && !bench.ended.contains_key(&write));
    bench.volume.borrow_mut().is_held = false;
    bench.finish(write).expect("written");
    assert!(attached(&bench), "a write is answered when its blocks are attached");
    bench.unmount_all();
}

#[test]
fn writes_that_make_a_file_longer_go_on_at_the_same_time() {
    let mut bench = Bench::new(13, 1, 8192, GOOD);
    let inode = bench.create(ONE, "a");
    let one = bench.open(ONE, inode);
    bench.write(ONE, one, 0, &[1; STRIPE_BYTES]);
    bench.volume.borrow_mut().is_held = true;
    let data = |byte: u8, length: usize| Bytes::from(vec![byte; length]);
    let write = |number: u8, length| FilesRequest::Write {
        handle: one,
        offset: u64::from(number) * STRIPE_BYTES as u64,
        data: data(number, length),
    };
    // The last one ends within a block, and behind a hole.
    let mut ops: Vec<_> = [1, 2].map(|number| bench.ask(ONE, write(number, STRIPE_BYTES))).into();
    ops.push(bench.ask(ONE, write(4, STRIPE_BYTES + 10)));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.clients[&ONE].waits().volume, 3);
    // These need to know the end.
    ops.push(bench.ask(ONE, FilesRequest::Append { handle: one, data: data(9, 10) }));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.clients[&ONE].waits().volume, 3);
    bench.volume.borrow_mut().is_held = false;
    for op in ops {
        bench.finish(op).expect("written");
    }
    let stripes = [1, 1, 2, 0, 4].map(|byte| vec![byte; STRIPE_BYTES]).concat();
    let expected = [stripes, vec![4; 10], vec![9; 10]].concat();
    assert!(bench.read(ONE, one, 0, 8 * STRIPE_BYTES) == expected);
    bench.unmount_all();
}

#[test]
fn a_new_file_is_opened_and_written_without_a_further_request_about_it() {
    let mut bench = Bench::new(8, 2, 8192, GOOD);
    bench.pass(Duration::from_secs(1));
    bench.server.commands.clear();
    let created = bench.create_open(ONE, "a").expect("it is created");
    let FilesSuccess::Opened { handle: one, attributes } = created else { panic!("{created:?}") };
    bench.write(ONE, one, 0, b"aaaa");
    let commands = bench.server.commands.iter().filter(|((host, _), _)| *host == ONE);
    let asks = commands.filter(|(_, command)| command.only_asks() && **command != FileCommand::Nothing);
    assert_eq!(asks.count(), 0, "{:?}", bench.server.commands);
    // It is open like any other file.
    let two = bench.open(TWO, attributes.inode);
    assert_eq!(bench.read(TWO, two, 0, 10), b"aaaa");
    bench.write(TWO, two, 2, b"bb");
    bench.call(TWO, FilesRequest::Close { handle: two }).expect("closed");
    bench.command(TWO, FileCommand::Unlink { parent: InodeId::ROOT, name: Bytes::from_static(b"a") });
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.read(ONE, one, 0, 10), b"aabb");
    bench.call(ONE, FilesRequest::Close { handle: one }).expect("closed");
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.server.status().inodes, 1, "it is gone");
    assert_eq!(bench.create_open(ONE, "b").is_ok(), bench.create_open(TWO, "b").is_err());
    bench.unmount_all();
}

#[test]
fn a_fenced_host_answers_nothing_else_and_its_allotment_is_returned() {
    let (mut bench, inode, one, two) = Bench::with_shared_file(8);
    bench.write(ONE, one, 0, b"aaaa");
    bench.server.fence([ONE], MonitorReply::Changed);
    // The hole is remembered under a lock that counts no more.
    let read = bench.call(ONE, FilesRequest::Read { handle: one, offset: 4, length: 1 });
    let data = bench.call(ONE, FilesRequest::NextData { handle: one, offset: 0 });
    assert_eq!([read, data], [Err(HostError::Fenced), Err(HostError::Fenced)]);
    let opened = bench.call(ONE, FilesRequest::Open { inode });
    assert_eq!(opened, Err(HostError::Fenced));
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.read(TWO, two, 0, 10), b"aaaa");
    bench.crash(ONE);
    bench.unmount_all();
}

#[test]
fn a_host_that_is_gone_is_fenced_and_gives_way() {
    let (mut bench, _, one, two) = Bench::with_shared_file(9);
    bench.write(ONE, one, 0, b"aaaa");
    let unlink = FileCommand::Unlink { parent: InodeId::ROOT, name: Bytes::from_static(b"a") };
    bench.command(ONE, unlink);
    bench.crash(ONE);
    bench.write(TWO, two, 2, b"bb");
    assert_eq!(bench.read(TWO, two, 0, 10), b"aabb");
    bench.pass(Duration::from_secs(60));
    bench.call(TWO, FilesRequest::Close { handle: two }).expect("closed");
    bench.unmount_all();
    let status = bench.server.status();
    assert_eq!((status.free, status.inodes), (8192, 1), "the orphan and the allotment are returned");
}

#[test]
fn a_restart_of_the_server_is_survived() {
    let (mut bench, _, one, two) = Bench::with_shared_file(10);
    bench.write(ONE, one, 0, b"aaaa");
    let write = bench.ask(ONE, FilesRequest::Write { handle: one, offset: 5_000, data: Bytes::from_static(b"b") });
    bench.restart_server();
    let read = bench.ask(TWO, FilesRequest::Read { handle: two, offset: 0, length: 4 });
    bench.finish(write).expect("written");
    bench.finish(read).expect("read");
    assert_eq!(bench.read(TWO, two, 5_000, 4), b"b");
    bench.unmount_all();
}

#[test]
fn only_files_are_opened_and_commands_about_blocks_are_refused() {
    let mut bench = Bench::new(11, 1, 8192, GOOD);
    let inode = InodeId::ROOT;
    let opened = bench.call(ONE, FilesRequest::Open { inode });
    assert_eq!(opened, Err(refused(FileError::IsADirectory)));
    let mtime = FileTime(0);
    for command in [
        FileCommand::Attach { inode, extents: vec![], size: 0, mtime },
        FileCommand::Reserve { blocks: 1 },
        FileCommand::GiveBack { runs: vec![] },
        FileCommand::Truncate { inode, size: 0 },
        FileCommand::Map { inode, from: 0, most: 1 },
    ] {
        let refused = Err(refused(FileError::Malformed));
        assert_eq!(bench.call(ONE, FilesRequest::Command(command)), refused);
    }
    let truncated = bench.call(ONE, FilesRequest::Truncate { inode, size: 0 });
    assert_eq!(truncated, Err(refused(FileError::IsADirectory)));
    let file = bench.create(ONE, "a");
    let handle = bench.open(ONE, file);
    let data = Bytes::from_static(b"x");
    let written = bench.call(ONE, FilesRequest::Write { handle, offset: u64::MAX, data });
    assert_eq!(written, Err(refused(FileError::TooLarge)));
    assert_eq!(bench.read(ONE, handle, u64::MAX, 5), b"");
    bench.unmount_all();
}

#[test]
fn operations_that_wait_are_bounded_and_shown() {
    let mut bench = Bench::new(1, 1, 8192, GOOD);
    let (a, b) = (bench.create(ONE, "a"), bench.create(ONE, "b"));
    let handle = bench.open(ONE, a);
    bench.write(ONE, handle, 0, b"hello");
    bench.pass(Duration::from_secs(2));
    let waits = |bench: &Bench| bench.clients[&ONE].waits();
    assert_eq!(waits(&bench), FileWaits::default());
    bench.volume.borrow_mut().is_held = true;
    let read = bench.ask(ONE, FilesRequest::Read { handle, offset: 0, length: 5 });
    assert_eq!(waits(&bench), FileWaits { operations: 1, bytes: 5, volume: 1, ..FileWaits::default() });
    bench.volume.borrow_mut().is_held = false;
    bench.finish(read).expect("it is read");
    // The server is silent.
    bench.network.loses = 1;
    bench.ask(ONE, FilesRequest::Command(FileCommand::Stat { inode: a }));
    let open = bench.ask(ONE, FilesRequest::Open { inode: b });
    assert_eq!(waits(&bench), FileWaits { operations: 2, locks: 1, commands: 1, ..FileWaits::default() });
    // Each of these is as long as an operation may be.
    let data = Bytes::from(vec![7; limits::FILE_IO_BYTES_MAX]);
    let write = |data: &Bytes| FilesRequest::Append { handle, data: data.clone() };
    bench.ask(ONE, write(&data));
    let last = bench.ask(ONE, write(&data));
    for _ in 2..limits::FILE_OPERATIONS_BYTES_MAX / limits::FILE_IO_BYTES_MAX {
        bench.ask(ONE, write(&data));
    }
    assert_eq!(waits(&bench).bytes, limits::FILE_OPERATIONS_BYTES_MAX);
    let beyond = bench.ask(ONE, write(&Bytes::from_static(b"x")));
    assert_eq!(bench.finish(beyond), Err(HostError::Busy));
    bench.ask_host(ONE, ArrayRequest::Abandon { ops: vec![last, open] });
    assert_eq!(waits(&bench).bytes, limits::FILE_OPERATIONS_BYTES_MAX - data.len());
    let now = bench.ask(ONE, write(&Bytes::from_static(b"x")));
    assert!(!bench.ended.contains_key(&now), "there is room again");
    for _ in waits(&bench).operations..limits::OPERATIONS_MAX {
        bench.ask(ONE, FilesRequest::Command(FileCommand::Stat { inode: a }));
    }
    assert_eq!(waits(&bench).operations, limits::OPERATIONS_MAX);
    let beyond = bench.ask(ONE, FilesRequest::Command(FileCommand::Stat { inode: a }));
    assert_eq!(bench.finish(beyond), Err(HostError::Busy));
}
