//! Directories that other hosts have moved. The kernel keeps a directory where its name was looked up last, and so `..` would lead to where it
//! was.
//!
//! Before the kernel follows `..`, it asks for the attributes of the directory, to check permissions. They say what the parent is now. If it
//! is not where the kernel has the directory, the new path is looked up through the mount before the answer: then the kernel moves the
//! directory. A process of its own does that: a process whose thread waits for itself can't be killed.

use crate::{Caller, HostFiles, Result};
use braid_base::{InodeId, limits};
use braid_wire::FileAttributes;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;

/// A program that looks at a path. Its own path is not searched for: that could lead through the mount.
const PROGRAM: &str = "/usr/bin/stat";
/// How long a request waits for the kernel to move a directory: it may be one for which the kernel has locked the new parent.
const MOVED_WITHIN: Duration = Duration::from_secs(1);

/// Where the kernel has directories. It forgets what it has no more memory for.
#[derive(Debug)]
pub struct Parents {
    mount: PathBuf,
    told: Mutex<HashMap<InodeId, FileAttributes>>,
}

impl Parents {
    /// Those of a file system that is mounted there.
    pub fn new(mount: PathBuf) -> Parents {
        Parents { mount, told: Mutex::default() }
    }

    /// The kernel is told what a name leads to.
    pub fn tell(&self, found: &FileAttributes) {
        if found.parent.is_some() {
            self.told.lock().expect("no holder panics").insert(found.inode, *found);
        }
    }

    /// The attributes of a directory that was removed after the kernel had been told of it.
    pub fn removed(&self, inode: InodeId) -> Option<FileAttributes> {
        let told = self.told.lock().expect("no holder panics").get(&inode).copied()?;
        Some(FileAttributes { links: 0, parent: None, ..told })
    }

    pub fn forget(&self, inodes: impl Iterator<Item = InodeId>) {
        let mut told = self.told.lock().expect("no holder panics");
        for inode in inodes {
            told.remove(&inode);
        }
    }

    /// Has the kernel move a directory, if it has it elsewhere. That is tried once for each move.
    pub async fn follow(&self, file_system: &HostFiles, by: &Caller, found: &FileAttributes) {
        let Some(parent) = found.parent else { return };
        let is_elsewhere = |told: &mut FileAttributes| std::mem::replace(told, *found).parent != Some(parent);
        if !self.told.lock().expect("no holder panics").get_mut(&found.inode).is_some_and(is_elsewhere) {
            return;
        }
        let look = async {
            let path = self.mount.join(path(file_system, by, found.inode).await?);
            let mut command = Command::new(PROGRAM);
            command.arg("--").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // Without the program, or if the directory was moved again, the kernel has it where it was.
            let _ = tokio::task::spawn_blocking(move || command.status()).await;
            Result::Ok(())
        };
        let _ = timeout(MOVED_WITHIN, look).await;
    }
}

/// The path of a directory from the root on.
async fn path(file_system: &HostFiles, by: &Caller, mut inode: InodeId) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    while inode != InodeId::ROOT {
        let parent = file_system.attributes(by, inode, None).await?.parent.ok_or(Errno::STALE)?;
        let mut after = 0;
        let name = loop {
            let entries = file_system.read_directory(by, parent, after, limits::FILE_ENTRIES_MAX).await?;
            if let Some(entry) = entries.iter().find(|entry| entry.inode == inode) {
                break entry.name.clone();
            }
            after = entries.last().ok_or(Errno::NOENT)?.cookie;
        };
        path = PathBuf::from(OsStr::from_bytes(&name)).join(path);
        inode = parent;
    }
    Ok(path)
}
