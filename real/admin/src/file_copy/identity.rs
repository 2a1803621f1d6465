//! The identity of a file: the file system that it is in, and its inode there. Paths do not tell, since a file system of an array is reached
//! by commands, by its mounts, by binds of these, and by mounts in other namespaces. The kernel gives each file system a number of its own,
//! and lists under which name it is mounted.

use braid_fuse::MountPoint;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The type of FUSE in `statfs` (`linux/magic.h`).
const FUSE: u64 = 0x6573_5546;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// One of this machine, by its number.
    Local(u64),
    /// One of an array, by the name of its mounts.
    OfArray(String),
    /// It is mounted by a program, and no process sees where. It may be any of an array.
    Unlisted,
}

#[derive(Clone, Debug)]
pub struct Identity {
    pub file_system: FileSystem,
    pub inode: u64,
}

impl Identity {
    /// True if both are one file, or may be.
    pub fn is_same(&self, other: &Identity) -> bool {
        let may_be = |one: &FileSystem, other: &FileSystem| {
            *one == FileSystem::Unlisted && !matches!(other, FileSystem::Local(_))
        };
        let (one, two) = (&self.file_system, &other.file_system);
        self.inode == other.inode && (one == two || may_be(one, two) || may_be(two, one))
    }
}

/// The file systems of this machine that a copy has met, by their numbers.
#[derive(Debug, Default)]
pub struct FileSystems(Mutex<BTreeMap<u64, FileSystem>>);

impl FileSystems {
    /// The identity of a file on this machine. No process behind a mount is asked.
    pub fn identity(&self, metadata: &std::fs::Metadata, path: &Path) -> Identity {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file_system = known.entry(metadata.dev()).or_insert_with(|| find(metadata.dev(), path));
        Identity { file_system: file_system.clone(), inode: metadata.ino() }
    }
}

fn find(device: u64, path: &Path) -> FileSystem {
    match MountPoint::of_device(device) {
        Ok(Some(mounted)) => match mounted.name() {
            Some(name) => FileSystem::OfArray(name.to_string()),
            None => FileSystem::Local(device),
        },
        // Subvolumes of btrfs have numbers that are not listed.
        _ => match rustix::fs::statfs(path) {
            Ok(status) if status.f_type as u64 == FUSE => FileSystem::Unlisted,
            _ => FileSystem::Local(device),
        },
    }
}

/// Directories that a copy has made or filled. If it finds one of them in what it copies, it copies its own result.
#[derive(Debug, Default)]
pub struct Targets(BTreeMap<u64, Vec<Identity>>);

impl Targets {
    pub fn insert(&mut self, identity: Identity) {
        self.0.entry(identity.inode).or_default().push(identity);
    }

    pub fn contains(&self, identity: &Identity) -> bool {
        self.0.get(&identity.inode).is_some_and(|same| same.iter().any(|target| target.is_same(identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_if_their_file_systems_may_be() {
        let array = |name: &str| FileSystem::OfArray(name.to_string());
        let table = [
            (FileSystem::Local(7), FileSystem::Local(7), true),
            (FileSystem::Local(7), FileSystem::Local(8), false),
            (array("home@1"), array("home@1"), true),
            (array("home@1"), array("home@2"), false),
            (array("home@1"), FileSystem::Local(7), false),
            (array("home@1"), FileSystem::Unlisted, true),
            (FileSystem::Unlisted, FileSystem::Unlisted, true),
            (FileSystem::Local(7), FileSystem::Unlisted, false),
        ];
        for (one, other, expected) in table {
            let identity = |file_system: &FileSystem, inode| Identity { file_system: file_system.clone(), inode };
            let (first, second) = (identity(&one, 12), identity(&other, 12));
            assert_eq!((first.is_same(&second), second.is_same(&first)), (expected, expected), "{one:?}, {other:?}");
            assert!(!first.is_same(&identity(&other, 13)));
            let mut targets = Targets::default();
            targets.insert(first);
            assert_eq!(targets.contains(&second), expected);
        }
    }

    #[test]
    fn a_file_of_this_machine_is_in_a_file_system_of_this_machine() {
        let path = std::env::current_exe().expect("it runs");
        let metadata = path.metadata().expect("it exists");
        let identity = FileSystems::default().identity(&metadata, &path);
        assert_eq!((identity.file_system, identity.inode), (FileSystem::Local(metadata.dev()), metadata.ino()));
    }
}
