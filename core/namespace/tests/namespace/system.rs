//! A file system in a plain map, and words for its commands.

pub use braid_base::{BlockRange, Generation, InodeId, Rng, limits};
pub use braid_namespace::check::{Check, Finding, Windows};
pub use braid_namespace::reclaim::{Step, drop_host, hosts, listed, reclaim};
pub use braid_namespace::{Context, Evaluation, Parameters, Shards, evaluate, format};
pub use braid_objects::map_access::apply;
pub use braid_objects::{Key, Kind, NotHere, Obstacle, View};
use braid_wire::*;
pub use braid_wire::{FileError, NewInode};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::ops::RangeInclusive;

pub type Map = BTreeMap<Key, Bytes>;

pub const ROOT: InodeId = InodeId::ROOT;
pub const BLOCK: u64 = 4096;

/// A file system whose clock advances with each command.
#[derive(Clone)]
pub struct System {
    pub map: Map,
    pub now: i64,
    pub is_nearly_full: bool,
}

impl System {
    pub fn new(blocks: u64) -> System {
        System::with(&parameters(blocks, 55))
    }

    pub fn with(parameters: &Parameters) -> System {
        let mut map = Map::new();
        apply(&format(parameters, Owner::default(), 0o755, FileTime(0)), &mut map);
        System { map, now: 0, is_nearly_full: false }
    }

    pub fn context(&self, host: u32) -> Context {
        Context { host: Generation(host), now: FileTime(self.now), is_nearly_full: self.is_nearly_full }
    }

    /// Executes a command of host 1.
    pub fn run(&mut self, command: FileCommand) -> FileReply {
        self.run_for(1, command)
    }

    pub fn run_for(&mut self, host: u32, command: FileCommand) -> FileReply {
        self.now += 1;
        let context = self.context(host);
        let Evaluation { answer, changes, .. } = evaluate(&command, context, &mut self.map).expect("all is in memory");
        assert!(answer.is_ok() || changes.is_empty(), "a command that fails changes nothing");
        apply(&changes, &mut self.map);
        answer
    }

    /// A step of reclaiming: true if it was the last one.
    pub fn reclaim(&mut self, inode: InodeId) -> bool {
        let step = reclaim(inode, &mut self.map).expect("all is in memory");
        self.take(step)
    }

    pub fn drop_host(&mut self, host: u32) -> bool {
        let step = drop_host(Generation(host), &mut self.map).expect("all is in memory");
        self.take(step)
    }

    fn take(&mut self, step: Step) -> bool {
        apply(&step.changes, &mut self.map);
        step.is_done.expect("no damage")
    }

    /// Does all that a server does by itself.
    pub fn settle(&mut self) {
        for inode in self.listed() {
            while !self.reclaim(inode) {}
        }
        for host in hosts(&mut self.map, None, usize::MAX).expect("no damage") {
            while !self.drop_host(host.0) {}
        }
    }

    pub fn listed(&mut self) -> Vec<InodeId> {
        listed(&mut self.map, None, usize::MAX).expect("no damage")
    }

    pub fn findings(&mut self) -> Vec<Finding> {
        let mut check = Check::new(Windows { inodes: 3 + self.map.len() / 50, blocks: 70 });
        while !check.step(&mut self.map, 10).expect("all is in memory") {}
        assert_eq!(check.findings().1, 0, "all findings are listed");
        check.findings().0.to_vec()
    }

    pub fn status(&mut self) -> FileSystemStatus {
        match self.run(FileCommand::StatFileSystem) {
            Ok(FileResult::FileSystem(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, parent: InodeId, name: &str, node: NewInode) -> InodeId {
        match self.run(create(parent, name, node, true)) {
            Ok(FileResult::Created { attributes, is_new: true }) => attributes.inode,
            other => panic!("{other:?}"),
        }
    }

    pub fn file(&mut self, name: &str) -> InodeId {
        self.create(ROOT, name, NewInode::Regular)
    }

    pub fn directory(&mut self, parent: InodeId, name: &str) -> InodeId {
        self.create(parent, name, NewInode::Directory)
    }

    pub fn attributes(&mut self, inode: InodeId) -> FileAttributes {
        match self.run(FileCommand::Stat { inode }) {
            Ok(FileResult::Attributes(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }

    pub fn reserve(&mut self, blocks: u64) -> Vec<BlockRange> {
        match self.run(FileCommand::Reserve { blocks }) {
            Ok(FileResult::Reserved(runs)) => runs,
            other => panic!("{other:?}"),
        }
    }

    pub fn extents(&mut self, inode: InodeId) -> Vec<FileExtent> {
        match self.run(FileCommand::Map { inode, from: 0, most: u32::MAX }) {
            Ok(FileResult::Extents { extents, more: false, .. }) => extents,
            other => panic!("{other:?}"),
        }
    }

    /// A list of a directory, read with answers of at most `most` entries.
    pub fn list(&mut self, inode: InodeId, most: u32) -> Vec<DirectoryEntry> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (entries, more) = self.list_after(inode, after, most);
            after = entries.last().map_or(after, |entry: &DirectoryEntry| entry.cookie);
            all.extend(entries);
            if !more {
                return all;
            }
        }
    }

    pub fn list_after(&mut self, inode: InodeId, after: u64, most: u32) -> (Vec<DirectoryEntry>, bool) {
        match self.run(FileCommand::ReadDirectory { inode, after, most }) {
            Ok(FileResult::Entries { entries, more }) => (entries, more),
            other => panic!("{other:?}"),
        }
    }
}

pub fn parameters(blocks: u64, hash_bits: u8) -> Parameters {
    Parameters { blocks, stripe_blocks: 8, hash_key: *b"sixteen bytes...", hash_bits, shards: Shards::ONE }
}

pub fn name(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn create(parent: InodeId, called: &str, node: NewInode, exclusive: bool) -> FileCommand {
    FileCommand::Create { parent, name: name(called), node, exclusive, owner: Owner { uid: 7, gid: 8 }, mode: 0o644 }
}

pub fn lookup(parent: InodeId, called: &str) -> FileCommand {
    FileCommand::Lookup { parent, name: name(called) }
}

pub fn link(inode: InodeId, parent: InodeId, called: &str) -> FileCommand {
    FileCommand::Link { inode, parent, name: name(called) }
}

pub fn unlink(parent: InodeId, called: &str) -> FileCommand {
    FileCommand::Unlink { parent, name: name(called) }
}

pub fn remove_directory(parent: InodeId, called: &str) -> FileCommand {
    FileCommand::RemoveDirectory { parent, name: name(called) }
}

pub fn rename(parent: InodeId, from: &str, new_parent: InodeId, to: &str) -> FileCommand {
    let (name, new_name) = (name(from), name(to));
    FileCommand::Rename { parent, name, new_parent, new_name, no_replace: false }
}

pub fn extent(at: u64, start: u64, count: u64) -> FileExtent {
    FileExtent { at, blocks: BlockRange::new(start, count) }
}

/// Extents that end with the file.
pub fn attach(inode: InodeId, extents: Vec<FileExtent>) -> FileCommand {
    let size = extents.last().map_or(0, FileExtent::end) * BLOCK;
    FileCommand::Attach { inode, extents, size, mtime: FileTime(5) }
}

pub fn truncate(inode: InodeId, size: u64) -> FileCommand {
    FileCommand::Truncate { inode, size }
}

pub fn inode_key(inode: InodeId) -> Key {
    Key { kind: Kind::Inode, of: inode.0, index: 0 }
}

/// Changes some bytes of a value.
pub fn overwrite(system: &mut System, key: Key, at: usize, bytes: &[u8]) {
    let mut value = system.map[&key].to_vec();
    value[at..at + bytes.len()].copy_from_slice(bytes);
    system.map.insert(key, value.into());
}
