//! The terms of the kernel's requests, as the files of an array take them.

use crate::Interruption;
use braid_wire::{FileSystemStatus, Owner};
use rustix::io::Errno;

pub type Result<T> = std::result::Result<T, Errno>;

/// The size of a file system, and what is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceStatus {
    pub status: FileSystemStatus,
    /// About how many more inodes find room, if that is known.
    pub free_inodes: Option<u64>,
}

/// The process that makes a request.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The owner of what it creates.
    pub owner: Owner,
    /// Tells when a signal interrupts it.
    pub interruption: Interruption,
}

/// The number of an open file, which the file system chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpenFile(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteAt {
    Offset(u64),
    /// The end of the file at the moment of the write.
    End,
}
