//! The terms of the kernel's requests, as the files of an array take them.

use crate::Interruption;
use braid_base::InodeId;
use braid_machine::AdvisoryOwner;
use braid_wire::{FileSystemStatus, Owner};
use bytes::Bytes;
use rustix::io::Errno;
use std::ops::Range;

pub type Result<T> = std::result::Result<T, Errno>;

/// A name in a directory.
pub type Place = (InodeId, Bytes);

/// The open file by which an owner locks, the owner, and what it locks.
pub type LockPlace = (OpenFile, AdvisoryOwner, LockRange);

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

/// What an advisory lock is on. Both kinds of locks do not conflict with each other; their owners have different numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockRange {
    /// Bytes of the file, by `fcntl`. To the end of the file: ends at `u64::MAX`.
    Bytes(Range<u64>),
    /// The file, by `flock`.
    File,
}
