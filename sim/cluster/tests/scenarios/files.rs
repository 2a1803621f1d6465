//! Scenarios of a file system: its metadata server and the hosts that use it, while processes and devices fail.

use crate::shards::{self, ROOT, lookup, unlink};
use crate::story::*;
use braid_metadata::{MetadataService, NodeState};

/// Five devices, with a file system that one process serves.
fn array() -> (Cluster, FileSystem, HostSlot) {
    let options = Options { device_bytes: 96 << 20, ..Options::calm("raid5:4+1", 5, 1, 3) };
    let layout = Options::calm("raid5:4+1", 5, 4, 1).layout;
    let (mut array, a, _) = array_of(options);
    let file_system = FileSystem::make(&mut array, a, (layout, 64), ShardOptions::ONE).expect("there is room");
    let server = file_system.start_server(&mut array, 0);
    array.run_for(Duration::from_secs(2));
    serves(&array, server);
    (array, file_system, server)
}

pub fn serves(array: &Cluster, server: HostSlot) {
    assert_eq!(array.role(server).and_then(Role::metadata_state), Some(NodeState::Owns));
    let server = array.role(server).and_then(Role::metadata_server);
    assert!(server.is_some_and(|server| *server.service() == MetadataService::Serving));
}

fn create(name: &str) -> FileCommand {
    shards::create(ROOT, name, NewInode::Regular)
}

fn made(array: &mut Cluster, host: HostSlot, file_system: &FileSystem, name: &str) -> InodeId {
    match file_system.command(array, host, create(name)) {
        Ok(FileResult::Created { attributes, is_new: true }) => attributes.inode,
        other => panic!("{name} was not created: {other:?}"),
    }
}

fn open(array: &mut Cluster, host: HostSlot, file_system: &FileSystem, inode: InodeId) -> FileHandle {
    match file_system.execute(array, host, FilesRequest::Open { inode }) {
        Ok(FilesSuccess::Opened { handle, .. }) => handle,
        other => panic!("{inode:?} was not opened: {other:?}"),
    }
}

fn write(array: &mut Cluster, host: HostSlot, file_system: &FileSystem, handle: FileHandle, offset: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let written = file_system.execute(array, host, FilesRequest::Write { handle, offset, data: data.clone() });
    assert_eq!(written, Ok(FilesSuccess::Written { length: data.len() as u64 }));
}

/// A new file with this content, which the host has open.
fn written(array: &mut Cluster, host: HostSlot, file_system: &FileSystem, data: &[u8]) -> (InodeId, FileHandle) {
    let inode = made(array, host, file_system, "a");
    let handle = open(array, host, file_system, inode);
    write(array, host, file_system, handle, 0, data);
    (inode, handle)
}

fn read(array: &mut Cluster, host: HostSlot, file_system: &FileSystem, handle: FileHandle, length: usize) -> Vec<u8> {
    match file_system.execute(array, host, FilesRequest::Read { handle, offset: 0, length }) {
        Ok(FilesSuccess::Data(parts)) => parts.concat(),
        other => panic!("no data: {other:?}"),
    }
}

#[test]
fn hosts_read_writes_of_each_other() {
    let (mut array, file_system, _) = array();
    let (a, b) = (file_system.add_host(&mut array), file_system.add_host(&mut array));
    let (inode, handle) = written(&mut array, a, &file_system, &[7; 10_000]);
    let other = open(&mut array, b, &file_system, inode);
    assert_eq!(read(&mut array, b, &file_system, other, 20_000), [7; 10_000]);
    write(&mut array, b, &file_system, other, 5_000, &[8; 10_000]);
    let expected = [&[7; 5_000][..], &[8; 10_000]].concat();
    assert_eq!(read(&mut array, a, &file_system, handle, 20_000), expected, "nobody caches bytes that changed");
}

#[test]
fn files_survive_the_death_of_the_server() {
    let (mut array, file_system, server) = array();
    let a = file_system.add_host(&mut array);
    let (inode, handle) = written(&mut array, a, &file_system, &[7; 10_000]);
    let died = array.world.now();
    array.crash(array.node(server));
    let begun = file_system.ask(&mut array, a, FilesRequest::Command(create("b")));
    let next = file_system.start_server(&mut array, 0);
    let created = array.finish(begun);
    assert!(matches!(created, Ok(HostSuccess::Files(_))), "{created:?}");
    let pause = array.world.now().since(died);
    assert!(pause < Duration::from_secs(7), "the pause was {pause:?}");
    serves(&array, next);
    write(&mut array, a, &file_system, handle, 10_000, &[8; 10]);
    let b = file_system.add_host(&mut array);
    let other = open(&mut array, b, &file_system, inode);
    let expected = [&[7; 10_000][..], &[8; 10]].concat();
    assert_eq!(read(&mut array, b, &file_system, other, 20_000), expected);
    let again = file_system.command(&mut array, b, create("b"));
    assert_eq!(again, Err(HostError::Files(FilesError::Refused(FileError::Exists))));
}

#[test]
fn a_server_that_was_taken_over_answers_nothing_more() {
    let (mut array, file_system, server) = array();
    let a = file_system.add_host(&mut array);
    made(&mut array, a, &file_system, "a");
    // The old process is alive; hosts still reach it until the new one is named.
    let next = file_system.start_server(&mut array, 0);
    array.run_for(A_WHILE);
    serves(&array, next);
    let state = array.role(server).and_then(Role::metadata_state);
    assert!(matches!(state, Some(NodeState::Ended(_))), "{state:?}");
    made(&mut array, a, &file_system, "b");
}

#[test]
fn a_file_system_that_was_released_is_served_without_waiting_for_a_lease() {
    let (mut array, file_system, server) = array();
    let a = file_system.add_host(&mut array);
    // Changes are under way when the server ends.
    let asked = file_system.ask(&mut array, a, FilesRequest::Command(create("a")));
    assert!(matches!(file_system.release(&mut array, server), Ok(HostSuccess::Ownership(now)) if now.owner.is_none()));
    assert_eq!(array.role(server).and_then(Role::metadata_state), Some(NodeState::Ended(HostError::Disconnecting)));
    let released = array.world.now();
    let next = file_system.start_server(&mut array, 0);
    assert!(matches!(array.finish(asked), Ok(HostSuccess::Files(_))));
    let pause = array.world.now().since(released);
    assert!(pause < Duration::from_secs(2), "the pause was {pause:?}");
    serves(&array, next);
}

#[test]
fn a_check_takes_over_and_gives_back() {
    let (mut array, file_system, server) = array();
    let a = file_system.add_host(&mut array);
    written(&mut array, a, &file_system, &[7; 10_000]);
    let checker = file_system.start_check(&mut array);
    array.run_for(A_WHILE);
    assert!(matches!(array.role(server).and_then(Role::metadata_state), Some(NodeState::Ended(_))));
    let found = array.role(checker).and_then(Role::metadata_server).and_then(|server| server.findings());
    assert_eq!(found, Some((Vec::new(), 0)));
    let asked = file_system.ask(&mut array, a, FilesRequest::Command(create("b")));
    file_system.release(&mut array, checker).expect("it owns the file system");
    let next = file_system.start_server(&mut array, 0);
    let created = array.finish(asked);
    assert!(matches!(created, Ok(HostSuccess::Files(_))), "{created:?}");
    serves(&array, next);
}

#[test]
fn of_two_processes_that_take_over_at_once_one_ends() {
    let (mut array, file_system, server) = array();
    array.crash(array.node(server));
    let (one, other) = (file_system.start_server(&mut array, 0), file_system.start_server(&mut array, 0));
    array.run_for(A_WHILE);
    let owners = [one, other].map(|slot| array.role(slot).and_then(Role::metadata_state) == Some(NodeState::Owns));
    assert_eq!(owners.iter().filter(|owns| **owns).count(), 1, "{owners:?}");
}

#[test]
fn the_blocks_of_a_host_that_died_come_back() {
    let (mut array, file_system, _) = array();
    let (a, b) = (file_system.add_host(&mut array), file_system.add_host(&mut array));
    let free = |array: &mut Cluster| match file_system.command(array, b, FileCommand::StatFileSystem) {
        Ok(FileResult::FileSystem(status)) => (status.free, status.allotted),
        other => panic!("no status: {other:?}"),
    };
    let all = free(&mut array).0;
    written(&mut array, a, &file_system, &[7; 4096]);
    assert!(free(&mut array).1 > 0, "the host has an allotment");
    array.crash(array.node(a));
    array.run_for(Duration::from_secs(60));
    assert_eq!(free(&mut array), (all - 1, 0));
}

#[test]
fn a_removed_file_is_read_until_it_is_closed() {
    let (mut array, file_system, server) = array();
    let (a, b) = (file_system.add_host(&mut array), file_system.add_host(&mut array));
    let (_, handle) = written(&mut array, a, &file_system, &[7; 5_000]);
    file_system.command(&mut array, b, unlink(ROOT, "a")).expect("it is removed");
    array.run_for(A_WHILE);
    assert_eq!(read(&mut array, a, &file_system, handle, 20_000), [7; 5_000]);
    assert_eq!(array.role(server).and_then(Role::metadata_server).map(|server| server.unlinked_inodes()), Some(1));
    file_system.execute(&mut array, a, FilesRequest::Close { handle }).expect("it is closed");
    array.run_for(Duration::from_secs(2));
    assert_eq!(array.role(server).and_then(Role::metadata_server).map(|server| server.unlinked_inodes()), Some(0));
}

#[test]
fn files_survive_any_device() {
    let (mut array, file_system, _) = array();
    let a = file_system.add_host(&mut array);
    let (_, handle) = written(&mut array, a, &file_system, &[7; 50_000]);
    for number in 0..5 {
        array.crash(device(number));
        made(&mut array, a, &file_system, &format!("without-{number}"));
        assert_eq!(read(&mut array, a, &file_system, handle, 50_000), [7; 50_000]);
        array.restart_device(DeviceId(number));
        array.run_for(Duration::from_secs(30));
    }
}

/// Cuts a node off from the devices and the monitor, and from `others`.
fn isolate(array: &mut Cluster, node: NodeId, others: &[NodeId]) {
    let devices = array.devices().into_iter().map(NodeId::Device);
    let all: Vec<NodeId> = devices.chain([NodeId::Monitor]).chain(others.iter().copied()).collect();
    cut_off(array, node, &all);
}

#[test]
fn a_server_that_was_taken_over_and_does_not_hear_of_it_answers_nothing_from_memory() {
    let (mut array, file_system, server) = array();
    let (a, b) = (file_system.add_host(&mut array), file_system.add_host(&mut array));
    let lookup = lookup(ROOT, "a");
    let refused = Err(HostError::Files(FilesError::Refused(FileError::NoSuchName)));
    assert_eq!(file_system.command(&mut array, b, lookup.clone()), refused);
    let (old, b_node) = (array.node(server), array.node(b));
    isolate(&mut array, old, &[]);
    file_system.start_server(&mut array, 0);
    array.world.detour(b_node, NodeId::MetadataServer(file_system.id), old);
    made(&mut array, a, &file_system, "a");
    // This host still speaks to the old process, which is alive and has no such name in its memory.
    let asked = file_system.ask(&mut array, b, FilesRequest::Command(lookup));
    array.run_for(Duration::from_secs(1));
    array.world.end_detours(NodeId::MetadataServer(file_system.id));
    let found = array.finish(asked);
    assert!(matches!(found, Ok(HostSuccess::Files(FilesSuccess::Result(FileResult::Attributes(_))))), "{found:?}");
}

#[test]
fn a_host_that_lost_its_lock_and_does_not_hear_of_it_reads_nothing_from_memory() {
    let (mut array, file_system, server) = array();
    let (a, b) = (file_system.add_host(&mut array), file_system.add_host(&mut array));
    let inode = made(&mut array, a, &file_system, "a");
    let (handle, other) = (open(&mut array, a, &file_system, inode), open(&mut array, b, &file_system, inode));
    assert_eq!(read(&mut array, a, &file_system, handle, 100), [0; 0]);
    let (node, server) = (array.node(a), array.node(server));
    isolate(&mut array, node, &[server]);
    // It waits until the first host is fenced.
    write(&mut array, b, &file_system, other, 0, &[7; 100]);
    let asked = file_system.ask(&mut array, a, FilesRequest::Read { handle, offset: 0, length: 100 });
    array.run_for(Duration::from_secs(1));
    array.world.network.heal();
    assert_eq!(array.finish(asked), Err(HostError::Fenced), "every handle is dead");
    let again = file_system.execute(&mut array, a, FilesRequest::Read { handle, offset: 0, length: 100 });
    assert_eq!(again, Err(HostError::Fenced));
}

/// A file of which host b's front end keeps a page: a's handle, and b's request that tells what is to be dropped.
fn kept(array: &mut Cluster, file_system: &FileSystem) -> ([HostSlot; 2], InodeId, FileHandle, OpId) {
    let [a, b] = [0, 1].map(|_| file_system.add_host(array));
    let (inode, handle) = written(array, a, file_system, &[7; 100]);
    let other = open(array, b, file_system, inode);
    let told = file_system.ask(array, b, FilesRequest::AwaitRevocation);
    let page = FilesRequest::ReadPages { handle: other, offset: 0, length: 4096 };
    assert_eq!(file_system.execute(array, b, page), Ok(FilesSuccess::Data(vec![Bytes::from_static(&[7; 100])])));
    ([a, b], inode, handle, told)
}

#[test]
fn a_host_writes_when_others_have_dropped_what_their_front_ends_keep() {
    let (mut array, file_system, _) = array();
    let ([a, b], inode, handle, told) = kept(&mut array, &file_system);
    let data = Bytes::from_static(&[8; 100]);
    let written = file_system.ask(&mut array, a, FilesRequest::Write { handle, offset: 0, data });
    let revoked = HostSuccess::Files(FilesSuccess::Revoked(vec![inode]));
    array.run_for(A_WHILE);
    assert!(!array.requests.is_answered(written), "it is kept elsewhere");
    assert_eq!(array.finish(told), Ok(revoked));
    let dropped = FilesRequest::Dropped { inode, follows: None };
    assert_eq!(file_system.execute(&mut array, b, dropped), Ok(FilesSuccess::Done));
    assert!(array.finish(written).is_ok());
}

#[test]
fn a_host_that_is_cut_off_has_its_front_end_drop_all_before_others_write() {
    let (mut array, file_system, _) = array();
    let ([a, b], inode, handle, told) = kept(&mut array, &file_system);
    let cut = array.node(b);
    array.world.network.drop_if(move |from, to, _| [from, to].contains(&cut));
    let data = Bytes::from_static(&[8; 100]);
    let written = file_system.ask(&mut array, a, FilesRequest::Write { handle, offset: 0, data });
    assert!(array.finish(written).is_ok(), "b is fenced");
    assert!(array.requests.is_answered(told), "b knows only its clock");
    assert_eq!(array.finish(told), Ok(HostSuccess::Files(FilesSuccess::Revoked(vec![inode]))));
}
