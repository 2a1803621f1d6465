//! Commands to the one disk that a machine may have.

use bytes::Bytes;

/// Names a disk command; its result carries it. Unique among the commands in flight of one machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DiskTag(pub u64);

/// What a machine wants of its disk. Offsets and lengths are multiples of 512 bytes; data should begin at a multiple of
/// 512 in memory (see `AlignedBuffer`), or the real world copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskCommand {
    /// Reads `length` bytes at `offset`.
    Read {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: usize,
    },
    /// Writes the buffers one after the other from `offset` on. Not durable when done, unless `durable` is set: then it alone
    /// is, as if it had been followed by a sync of its own range.
    Write {
        /// In bytes.
        offset: u64,
        /// What to write.
        data: Vec<Bytes>,
        /// Whether completion means durable.
        durable: bool,
    },
    /// Makes every write durable whose completion the machine had heard of when it emitted this.
    Sync,
    /// Sets space aside, so that later writes to the range can't fail for want of it. Content that is there stays.
    Reserve {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u64,
    },
}

/// How a disk command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskResult {
    /// The bytes read; as many as asked for.
    Read(Result<Bytes, DiskError>),
    /// A write, sync or reservation.
    Done(Result<(), DiskError>),
}

/// What a disk can't do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// No space is left.
    #[error("no space left on the disk")]
    NoSpace,
    /// It can't read or write there.
    #[error("the disk answered with an input/output error")]
    Failed,
}
