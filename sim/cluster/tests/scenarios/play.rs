//! The vocabulary of scenarios of file systems: a file system with its servers, and hosts that use it.

use crate::story::*;
use braid_metadata::{Grouping, MetadataServer, MetadataService, NodeState};
use braid_namespace::Placement;
use braid_wire::{AttributeChange, FileAttributes, FileSystemStatus};

/// A file system with its servers and a host that uses it.
pub struct Play {
    pub array: Cluster,
    pub system: FileSystem,
    pub servers: Vec<HostSlot>,
    pub host: HostSlot,
}

/// A file system whose new inodes are in other shards than their names.
pub fn play(count: u8, protocol: Protocol) -> Play {
    play_with(count, protocol, Grouping::Log)
}

pub fn play_with(count: u8, protocol: Protocol, grouping: Grouping) -> Play {
    play_in(options(128), ShardOptions { count, placement: Placement::Spread, protocol, grouping })
}

/// A file system that one process serves.
pub fn one_server() -> Play {
    play_in(options(96), ShardOptions::ONE)
}

/// Five devices of so many MiB.
pub fn options(mib: u64) -> Options {
    Options { device_bytes: mib << 20, ..Options::calm("raid5:4+1", 5, 1, 3) }
}

pub fn play_in(options: Options, shards: ShardOptions) -> Play {
    let (layout, count) = (layout("raid5:4+1", 5, 4), shards.count);
    let (mut array, a, _) = array_of(options);
    let system = FileSystem::make(&mut array, a, (layout, 64), shards).expect("there is room");
    let servers: Vec<HostSlot> = (0..usize::from(count)).map(|shard| system.start_server(&mut array, shard)).collect();
    array.run_for(Duration::from_secs(2));
    let host = system.add_host(&mut array);
    let play = Play { array, system, servers, host };
    (0..usize::from(count)).for_each(|shard| play.serves(shard));
    play
}

impl Play {
    pub fn unmount(&mut self, host: HostSlot) {
        self.array.perform(host, ArrayRequest::Disconnect).expect("the host unmounts the file system");
    }

    /// Unmounts the other host, and checks all.
    pub fn check_without(mut self, host: HostSlot) {
        self.unmount(host);
        self.check();
    }

    pub fn serves(&self, shard: usize) {
        assert_eq!(self.state_of(self.servers[shard]), Some(NodeState::Owns));
        assert_eq!(*self.server(shard).service(), MetadataService::Serving);
    }

    pub fn state_of(&self, server: HostSlot) -> Option<NodeState> {
        self.array.role(server).and_then(Role::metadata_state)
    }

    pub fn server(&self, shard: usize) -> &MetadataServer {
        self.array.role(self.servers[shard]).and_then(Role::metadata_server).expect("it is up")
    }

    /// From now on it is this host that asks.
    pub fn at(&mut self, host: HostSlot) -> &mut Play {
        self.host = host;
        self
    }

    /// Another host.
    pub fn another(&mut self) -> HostSlot {
        self.system.add_host(&mut self.array)
    }

    pub fn ask(&mut self, request: FilesRequest) -> OpId {
        self.system.ask(&mut self.array, self.host, request)
    }

    pub fn finish(&mut self, op: OpId) -> Result<FilesSuccess, HostError> {
        match self.array.finish(op)? {
            HostSuccess::Files(success) => Ok(success),
            other => panic!("not the end of an operation on files: {other:?}"),
        }
    }

    pub fn execute(&mut self, request: FilesRequest) -> Result<FilesSuccess, HostError> {
        let op = self.ask(request);
        self.finish(op)
    }

    pub fn begin(&mut self, command: FileCommand) -> OpId {
        self.ask(FilesRequest::Command(command))
    }

    pub fn begin_at(&mut self, host: HostSlot, command: FileCommand) -> OpId {
        self.system.ask(&mut self.array, host, FilesRequest::Command(command))
    }

    pub fn end(&mut self, op: OpId) -> Result<FileResult, FileError> {
        match self.finish(op) {
            Ok(FilesSuccess::Result(result)) => Ok(result),
            Err(HostError::Files(FilesError::Refused(error))) => Err(error),
            other => panic!("not the end of a command: {other:?}"),
        }
    }

    pub fn run(&mut self, command: FileCommand) -> Result<FileResult, FileError> {
        let op = self.begin(command);
        self.end(op)
    }

    /// Begins commands at the same time, each at the next of these hosts.
    pub fn begin_together(&mut self, hosts: &[HostSlot], commands: impl IntoIterator<Item = FileCommand>) -> Vec<OpId> {
        let asked = commands.into_iter().zip(hosts.iter().cycle());
        asked.map(|(command, host)| self.begin_at(*host, command)).collect()
    }

    /// Runs commands that are all under way at the same time, each at the next of these hosts.
    pub fn run_together(
        &mut self,
        hosts: &[HostSlot],
        commands: impl IntoIterator<Item = FileCommand>,
    ) -> Vec<Result<FileResult, FileError>> {
        let ops = self.begin_together(hosts, commands);
        ops.into_iter().map(|op| self.end(op)).collect()
    }

    /// What was to be created is there.
    pub fn end_created(&mut self, op: OpId, what: impl Display) {
        let created = self.end(op);
        assert!(is_created(&created), "{what}: {created:?}");
    }

    pub fn made(&mut self, parent: InodeId, name: &str, node: NewInode) -> InodeId {
        match self.run(create(parent, name, node)) {
            Ok(FileResult::Created { attributes, is_new: true }) => attributes.inode,
            other => panic!("{name} was not created: {other:?}"),
        }
    }

    pub fn lookup(&mut self, parent: InodeId, name: &str) -> Result<FileAttributes, FileError> {
        match self.run(lookup(parent, name))? {
            FileResult::Attributes(attributes) => Ok(attributes),
            other => panic!("not the answer to a lookup: {other:?}"),
        }
    }

    pub fn status(&mut self) -> FileSystemStatus {
        match self.run(FileCommand::StatFileSystem) {
            Ok(FileResult::FileSystem(status)) => status,
            other => panic!("no status: {other:?}"),
        }
    }

    pub fn crash(&mut self, shard: usize) {
        self.array.crash(self.array.node(self.servers[shard]));
    }

    pub fn start(&mut self, shard: usize) {
        self.servers[shard] = self.system.start_server(&mut self.array, shard);
    }

    pub fn opened(&mut self, inode: InodeId) -> FileHandle {
        match self.execute(FilesRequest::Open { inode }) {
            Ok(FilesSuccess::Opened { handle, .. }) => handle,
            other => panic!("{inode} was not opened: {other:?}"),
        }
    }

    /// Makes and opens a file.
    pub fn begun(&mut self, name: &str) -> FileHandle {
        let inode = self.made(ROOT, name, NewInode::Regular);
        self.opened(inode)
    }

    /// Everything is given back, and the maps of all shards fit together.
    pub fn check(mut self) {
        self.unmount(self.host);
        self.array.crash(self.array.node(self.host));
        self.array.run_for(Duration::from_secs(60));
        for shard in 0..self.servers.len() {
            self.serves(shard);
            self.crash(shard);
        }
        let system = self.system.clone();
        system.check_metadata(&mut self.array).expect("the metadata is whole");
    }
}

pub fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn create(parent: InodeId, name: &str, node: NewInode) -> FileCommand {
    let (name, owner) = (self::name(name), Owner::default());
    FileCommand::Create { parent, name, node, exclusive: true, owner, mode: 0o644 }
}

pub fn unlink(parent: InodeId, name: &str) -> FileCommand {
    FileCommand::Unlink { parent, name: self::name(name) }
}

pub fn remove_directory(parent: InodeId, name: &str) -> FileCommand {
    FileCommand::RemoveDirectory { parent, name: self::name(name) }
}

pub fn link(inode: InodeId, parent: InodeId, name: &str) -> FileCommand {
    FileCommand::Link { inode, parent, name: self::name(name) }
}

pub fn lookup(parent: InodeId, name: &str) -> FileCommand {
    FileCommand::Lookup { parent, name: self::name(name) }
}

pub fn set_mode(inode: InodeId, mode: u16) -> FileCommand {
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    FileCommand::SetAttributes { inode, change }
}

pub fn is_created(result: &Result<FileResult, FileError>) -> bool {
    matches!(result, Ok(FileResult::Created { is_new: true, .. }))
}

pub fn rename(from: (InodeId, &str), to: (InodeId, &str)) -> FileCommand {
    let (name, new_name) = (name(from.1), name(to.1));
    FileCommand::Rename { parent: from.0, name, new_parent: to.0, new_name, no_replace: false }
}

pub const ROOT: InodeId = InodeId::ROOT;
