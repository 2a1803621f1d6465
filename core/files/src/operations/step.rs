//! What all kinds of operations share: the parts that they use, what they are told, and how far they have come.

use crate::allotment::Allotment;
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::metadata_link::{Asker, MetadataLink};
use crate::packer::Packer;
use crate::progress::Progress;
use crate::range_locks::RangeLocks;
use crate::volume_io::{IoResult, VolumeIo};
use braid_base::{BLOCK_BYTES, BlockRange, InodeId, Now};
use braid_machine::{FilesError, FilesSuccess, HostError};
use braid_wire::{FileCommand, FileError, FileReply, FileTime, LockMode};

pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// The parts that operations use.
pub struct Parts<'a> {
    pub now: Now,
    pub link: &'a mut MetadataLink,
    pub locks: &'a mut RangeLocks,
    pub inodes: &'a mut Inodes,
    pub handles: &'a mut Handles,
    pub allotment: &'a mut Allotment,
    pub packer: &'a mut Packer,
    pub io: &'a mut VolumeIo,
    /// What parts have told operations.
    pub progress: &'a mut Vec<Progress>,
}

/// How far an operation has come.
#[derive(Clone, Debug)]
pub enum Step {
    Waits,
    Done(FilesSuccess),
    Failed(HostError),
}

/// Something that an operation waited for has ended.
#[derive(Clone, Debug)]
pub enum Input {
    Reply(FileReply),
    Io {
        index: usize,
        result: IoResult,
    },
    Blocks(Result<Vec<BlockRange>, HostError>),
    /// A part has what the operation waited for.
    Ready,
}

impl Parts<'_> {
    /// Enters an inode for an operation that has not entered. True if the operation is admitted.
    pub fn enter(&mut self, op: u64, inode: InodeId, mode: LockMode) -> bool {
        self.enter_by(op, (inode, mode, false))
    }

    /// As [`Parts::enter`], to read for the front end's cache.
    pub fn enter_to_fill(&mut self, op: u64, inode: InodeId) -> bool {
        self.enter_by(op, (inode, LockMode::Shared, true))
    }

    fn enter_by(&mut self, op: u64, to: (InodeId, LockMode, bool)) -> bool {
        if !self.inodes.has_entered(op) {
            self.inodes.enter(self.now, self.locks, self.link, op, to);
        }
        self.inodes.is_admitted(op)
    }

    /// An operation has made a file longer. If another host waits for the data lock, its front end may keep the old size: the operation
    /// ends when that host has had the lock. True if nobody waits.
    pub fn announce(&mut self, op: u64, inode: InodeId) -> bool {
        if !self.inodes.is_wanted(inode) {
            return true;
        }
        self.inodes.leave(self.now, self.locks, self.link, op);
        self.enter(op, inode, LockMode::Exclusive)
    }

    pub fn send(&mut self, op: u64, command: FileCommand) {
        self.link.send(self.now.time, Asker::Operation(op), command);
    }

    /// The time of a write that happens now.
    pub fn file_time(&self) -> FileTime {
        FileTime(i64::try_from(self.now.clock.0).unwrap_or(i64::MAX))
    }
}

impl Step {
    pub fn refused(error: FileError) -> Step {
        Step::Failed(HostError::Files(FilesError::Refused(error)))
    }
}

/// The blocks of a range of bytes.
pub fn blocks_of(start: u64, end: u64) -> BlockRange {
    BlockRange::between(start / BLOCK, end.div_ceil(BLOCK))
}
