//! Commands that a machine gives to its disk. A machine has at most one disk.

use crate::Never;
use bytes::Bytes;
use std::fmt::Debug;

/// Whether a machine has a disk.
pub trait Disk: Clone + Copy + Debug {
    type Command: Clone + Debug;
    type Result: Clone + Debug;

    fn command(command: Self::Command) -> DiskCommand;
    /// The result for the machine; none if it has no disk.
    fn result(result: DiskResult) -> Option<Self::Result>;
    /// The result as the disk gave it.
    fn recorded(result: &Self::Result) -> &DiskResult;
}

/// A machine with a disk.
#[derive(Clone, Copy, Debug)]
pub enum OneDisk {}

/// A machine without one: it gives no commands, and is handed no results.
#[derive(Clone, Copy, Debug)]
pub enum NoDisk {}

impl Disk for OneDisk {
    type Command = DiskCommand;
    type Result = DiskResult;

    fn command(command: DiskCommand) -> DiskCommand {
        command
    }

    fn result(result: DiskResult) -> Option<DiskResult> {
        Some(result)
    }

    fn recorded(result: &DiskResult) -> &DiskResult {
        result
    }
}

impl Disk for NoDisk {
    type Command = Never;
    type Result = Never;

    fn command(command: Never) -> DiskCommand {
        match command {}
    }

    fn result(_: DiskResult) -> Option<Never> {
        None
    }

    fn recorded(result: &Never) -> &DiskResult {
        match *result {}
    }
}

/// Identifies a disk command in its result. Unique among the commands in flight of one machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskTag(pub u64);

/// A disk command. Offsets and lengths are multiples of 512 bytes. Data should be aligned to 512 bytes in memory (see `AlignedBuffer`);
/// otherwise the real disk copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskCommand {
    /// Reads `length` bytes at `offset`.
    Read {
        /// The first byte.
        offset: u64,
        length: usize,
    },
    /// Writes the buffers one after the other from `offset` on. The write is durable on completion only if `durable` is set, as if a sync
    /// of this range alone had followed; otherwise a later [`DiskCommand::Sync`] makes it durable.
    Write {
        /// The first byte.
        offset: u64,
        data: Vec<Bytes>,
        /// Whether completion means that the write is durable.
        durable: bool,
    },
    /// Makes all writes durable whose completion the machine had received when it issued this command.
    Sync,
    /// Allocates space, so that later writes to the range can't fail for lack of it. Existing content is kept.
    Reserve {
        /// The first byte.
        offset: u64,
        length: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskResult {
    /// The bytes read, as many as asked for.
    Read(Result<Bytes, DiskError>),
    /// The result of a write, sync or reservation.
    Done(Result<(), DiskError>),
}

/// Why a disk command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    #[error("no space left on the disk")]
    NoSpace,
    #[error("the disk returned an input/output error")]
    Failed,
}
