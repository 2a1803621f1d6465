//! Scenarios of a file system: its metadata server and the hosts that use it, while processes and devices fail.

use crate::play::*;
use crate::story::*;
use braid_metadata::NodeState;

impl Play {
    /// A new file with this content, which the host has open.
    fn written(&mut self, data: &[u8]) -> (InodeId, FileHandle) {
        let inode = self.made(ROOT, "a", NewInode::Regular);
        let handle = self.opened(inode);
        self.writes(handle, 0, data);
        (inode, handle)
    }

    fn writes(&mut self, handle: FileHandle, offset: u64, data: &[u8]) {
        let written = self.execute(FilesRequest::Write { handle, offset, data: Bytes::copy_from_slice(data) });
        assert_eq!(written, Ok(FilesSuccess::Written { length: data.len() as u64 }));
    }

    fn reads(&mut self, handle: FileHandle, length: usize) -> Vec<u8> {
        match self.execute(FilesRequest::Read { handle, offset: 0, length }) {
            Ok(FilesSuccess::Data(parts)) => parts.concat(),
            other => panic!("no data: {other:?}"),
        }
    }
}

#[test]
fn files_survive_the_death_of_the_server() {
    let mut play = one_server();
    let (inode, handle) = play.written(&[7; 10_000]);
    let died = play.array.world.now();
    play.crash(0);
    let begun = play.begin(create(ROOT, "b", NewInode::Regular));
    play.start(0);
    play.end_created(begun, "another server serves");
    let pause = play.array.world.now().since(died);
    assert!(pause < Duration::from_secs(7), "the pause was {pause:?}");
    play.serves(0);
    play.writes(handle, 10_000, &[8; 10]);
    let b = play.another();
    let other = play.at(b).opened(inode);
    let expected = [&[7; 10_000][..], &[8; 10]].concat();
    assert_eq!(play.at(b).reads(other, 20_000), expected);
    let again = play.at(b).run(create(ROOT, "b", NewInode::Regular));
    assert_eq!(again, Err(FileError::Exists));
}

#[test]
fn a_file_system_that_was_released_is_served_without_waiting_for_a_lease() {
    let mut play = one_server();
    let server = play.servers[0];
    // Changes are under way when the server ends.
    let asked = play.begin(create(ROOT, "a", NewInode::Regular));
    assert!(
        matches!(play.system.release(&mut play.array, server), Ok(HostSuccess::Ownership(now)) if now.owner.is_none())
    );
    assert_eq!(play.state_of(server), Some(NodeState::Ended(HostError::Disconnecting)));
    let released = play.array.world.now();
    play.start(0);
    play.end_created(asked, "another server serves");
    let pause = play.array.world.now().since(released);
    assert!(pause < Duration::from_secs(2), "the pause was {pause:?}");
    play.serves(0);
}

#[test]
fn a_check_takes_over_and_gives_back() {
    let mut play = one_server();
    let server = play.servers[0];
    play.written(&[7; 10_000]);
    let checker = play.system.start_check(&mut play.array);
    play.array.run_for(A_WHILE);
    assert!(matches!(play.state_of(server), Some(NodeState::Ended(_))));
    let found = play.array.role(checker).and_then(Role::metadata_server).and_then(|server| server.findings());
    assert_eq!(found, Some((Vec::new(), 0)));
    let asked = play.begin(create(ROOT, "b", NewInode::Regular));
    play.system.release(&mut play.array, checker).expect("it owns the file system");
    play.start(0);
    play.end_created(asked, "another server serves");
    play.serves(0);
}

/// Cuts a node off from the devices and the monitor, and from `others`.
fn isolate(array: &mut Cluster, node: NodeId, others: &[NodeId]) {
    let devices = array.devices().into_iter().map(NodeId::Device);
    let all: Vec<NodeId> = devices.chain([NodeId::Monitor]).chain(others.iter().copied()).collect();
    cut_off(array, node, &all);
}

#[test]
fn a_server_that_was_taken_over_and_does_not_hear_of_it_answers_nothing_from_memory() {
    let mut play = one_server();
    let server = play.servers[0];
    let (a, b) = (play.host, play.another());
    let lookup = lookup(ROOT, "a");
    assert_eq!(play.at(b).run(lookup.clone()), Err(FileError::NoSuchName));
    let (old, b_node) = (play.array.node(server), play.array.node(b));
    isolate(&mut play.array, old, &[]);
    play.start(0);
    play.array.world.detour(b_node, NodeId::MetadataServer(play.system.id), old);
    play.at(a).made(ROOT, "a", NewInode::Regular);
    // This host still speaks to the old process, which is alive and has no such name in its memory.
    let asked = play.at(b).begin(lookup);
    play.array.run_for(Duration::from_secs(1));
    play.array.world.end_detours(NodeId::MetadataServer(play.system.id));
    assert!(matches!(play.end(asked), Ok(FileResult::Attributes(_))));
}

#[test]
fn a_host_that_lost_its_lock_and_does_not_hear_of_it_reads_nothing_from_memory() {
    let mut play = one_server();
    let server = play.servers[0];
    let (a, b) = (play.host, play.another());
    let inode = play.at(a).made(ROOT, "a", NewInode::Regular);
    let (handle, other) = (play.at(a).opened(inode), play.at(b).opened(inode));
    assert_eq!(play.at(a).reads(handle, 100), [0; 0]);
    let (node, server) = (play.array.node(a), play.array.node(server));
    isolate(&mut play.array, node, &[server]);
    // It waits until the first host is fenced.
    play.at(b).writes(other, 0, &[7; 100]);
    let asked = play.at(a).ask(FilesRequest::Read { handle, offset: 0, length: 100 });
    play.array.run_for(Duration::from_secs(1));
    play.array.world.network.heal();
    assert_eq!(play.array.finish(asked), Err(HostError::Fenced), "every handle is dead");
    let again = play.at(a).execute(FilesRequest::Read { handle, offset: 0, length: 100 });
    assert_eq!(again, Err(HostError::Fenced));
}

/// A file of which host b's front end keeps a page: a's handle, and b's request that tells what is to be dropped.
fn kept(play: &mut Play) -> ([HostSlot; 2], InodeId, FileHandle, OpId) {
    let (a, b) = (play.host, play.another());
    let (inode, handle) = play.at(a).written(&[7; 100]);
    let other = play.at(b).opened(inode);
    let told = play.at(b).ask(FilesRequest::AwaitRevocation);
    let page = FilesRequest::ReadPages { handle: other, offset: 0, length: 4096 };
    assert_eq!(play.at(b).execute(page), Ok(FilesSuccess::Data(vec![Bytes::from_static(&[7; 100])])));
    ([a, b], inode, handle, told)
}

#[test]
fn a_host_writes_when_others_have_dropped_what_their_front_ends_keep() {
    let mut play = one_server();
    let ([a, b], inode, handle, told) = kept(&mut play);
    let data = Bytes::from_static(&[8; 100]);
    let written = play.at(a).ask(FilesRequest::Write { handle, offset: 0, data });
    let revoked = HostSuccess::Files(FilesSuccess::Revoked(vec![inode]));
    play.array.run_for(A_WHILE);
    assert!(!play.array.requests.is_answered(written), "it is kept elsewhere");
    assert_eq!(play.array.finish(told), Ok(revoked));
    let dropped = FilesRequest::Dropped { inode, follows: None };
    assert_eq!(play.at(b).execute(dropped), Ok(FilesSuccess::Done));
    assert!(play.array.finish(written).is_ok());
}

#[test]
fn a_host_that_is_cut_off_has_its_front_end_drop_all_before_others_write() {
    let mut play = one_server();
    let ([a, b], inode, handle, told) = kept(&mut play);
    let cut = play.array.node(b);
    play.array.world.network.drop_if(move |from, to, _| [from, to].contains(&cut));
    let data = Bytes::from_static(&[8; 100]);
    let written = play.at(a).ask(FilesRequest::Write { handle, offset: 0, data });
    assert!(play.array.finish(written).is_ok(), "b is fenced");
    assert!(play.array.requests.is_answered(told), "b knows only its clock");
    assert_eq!(play.array.finish(told), Ok(HostSuccess::Files(FilesSuccess::Revoked(vec![inode]))));
}
