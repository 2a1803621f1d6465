//! The history of a file system: the operations that processes on hosts requested, their times and their outcomes.
//!
//! The bytes that processes write are made of *units* of 128 bytes. A unit contains the [`FileTag`] of its write, and its own number in
//! that write. So every unit that is read identifies the write that it comes from, and which part of it, wherever an append has put it.

use crate::history::{Client, Moment, Moments, Outcome};
use crate::prelude::*;
use braid_base::Generation;
use std::ops::Range;

/// Bytes of a unit. Offsets, lengths and sizes are multiples of it.
pub const UNIT_BYTES: u64 = 128;
/// Bytes of a word, which a unit repeats.
const WORD_BYTES: usize = 16;

/// Identifies a write or append to a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileTag(pub u64);

/// The content of a unit: zeros, or a unit of a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Unit(pub u64);

impl Unit {
    pub const ZEROS: Unit = Unit(0);

    /// The unit of this number in a write.
    pub fn of(tag: FileTag, number: u64) -> Unit {
        Unit(tag.0 << 16 | number)
    }

    /// The tag of the write that it comes from, and its number in that write; zeros for zeros.
    pub fn tag_and_number(self) -> (u64, u64) {
        (self.0 >> 16, self.0 & 0xffff)
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tag, number) = self.tag_and_number();
        if *self == Unit::ZEROS { f.write_str("0") } else { write!(f, "#{tag}.{number}") }
    }
}

/// Bytes that no write can have produced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unit {unit} of what was read holds bytes that were never written: {words:x?}")]
pub struct CorruptUnit {
    pub unit: u64,
    pub words: Vec<(u64, u64)>,
}

impl FileTag {
    /// The bytes of a write with this tag.
    pub fn fill(self, length: u64) -> Bytes {
        assert!(length.is_multiple_of(UNIT_BYTES), "writes have whole units");
        let mut bytes = Vec::with_capacity(length as usize);
        for unit in 0..length / UNIT_BYTES {
            for word in 0..UNIT_BYTES / WORD_BYTES as u64 {
                bytes.extend_from_slice(&Unit::of(self, unit).0.to_le_bytes());
                bytes.extend_from_slice(&(word + 1).to_le_bytes());
            }
        }
        bytes.into()
    }
}

/// The units of bytes that were read from the start of a unit on.
pub fn parse_units(bytes: &[u8]) -> Result<Vec<Unit>, CorruptUnit> {
    let unit = |(number, bytes): (usize, &[u8])| {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let words: Vec<_> = (0..bytes.len() / WORD_BYTES).map(|at| (word(at * 16), word(at * 16 + 8))).collect();
        let first = words.first().map_or(0, |(unit, _)| *unit);
        let is_zero = words.iter().all(|word| *word == (0, 0));
        let is_written = words.iter().zip(1..).all(|(word, number)| *word == (first, number)) && first > 0;
        if bytes.len() as u64 == UNIT_BYTES && (is_zero || is_written) {
            Ok(Unit(first))
        } else {
            Err(CorruptUnit { unit: number as u64, words })
        }
    };
    bytes.chunks(UNIT_BYTES as usize).enumerate().map(unit).collect()
}

/// What a process requested. Open files are named by their inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// A command about names and attributes.
    Command(FileCommand),
    /// Opens the file of this inode.
    Open { inode: InodeId },
    /// Closes it.
    Close { inode: InodeId },
    /// Reads bytes of an open file.
    Read { inode: InodeId, offset: u64, length: u64 },
    /// Writes bytes, which all have this tag.
    Write { inode: InodeId, offset: u64, length: u64, tag: FileTag },
    /// Writes such bytes at the end of the file.
    Append { inode: InodeId, length: u64, tag: FileTag },
    /// Sets the size.
    Truncate { inode: InodeId, size: u64 },
    /// Makes what was written durable.
    Sync { inode: InodeId },
    /// Requests an advisory lock on bytes.
    Lock { inode: InodeId, owner: u64, range: Range<u64>, exclusive: bool, waits: bool },
    /// Gives up the locks that the owner has on bytes.
    Unlock { inode: InodeId, owner: u64, range: Range<u64> },
    /// Whether another owner has a lock that conflicts.
    TestLock { inode: InodeId, owner: u64, range: Range<u64>, exclusive: bool },
}

/// What a process was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileValue {
    Done,
    /// A command succeeded, and its process was not told what its result is: system calls tell less than the metadata server.
    Succeeded,
    Result(FileResult),
    Opened(FileAttributes),
    /// The units that were read.
    Data(Vec<Unit>),
    Written {
        length: u64,
    },
    Appended {
        offset: u64,
        length: u64,
    },
    Tested {
        is_locked: bool,
    },
}

/// Why an operation failed. Nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFailure {
    NotOpen,
    Locked,
    Refused(FileError),
}

/// What a process was answered, or why its operation failed.
pub type FileAnswer = Result<FileValue, FileFailure>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOperation {
    pub client: Client,
    pub action: FileAction,
    pub invoked: Moment,
    pub outcome: Outcome<FileAnswer>,
}

/// Identifies an operation in its history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileOperationId(usize);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileHistory {
    operations: Vec<FileOperation>,
    moments: Moments,
}

impl FileHistory {
    /// Records that a process issues an operation.
    pub fn begin(&mut self, client: Client, now: Time, action: FileAction) -> FileOperationId {
        let invoked = self.moments.next(now);
        self.operations.push(FileOperation { client, action, invoked, outcome: Outcome::Unknown });
        FileOperationId(self.operations.len() - 1)
    }

    /// Records an answer. An operation that ends in any other way keeps its unknown outcome.
    pub fn end(&mut self, id: FileOperationId, now: Time, answer: FileAnswer) {
        let now = self.moments.next(now);
        self.operations[id.0].outcome = Outcome::Answered(now, answer);
    }

    /// Records that no unanswered operation of this host happens from now on.
    pub fn is_kept_out(&mut self, host: Generation, now: Time) {
        let now = self.moments.next(now);
        let of_it = self.operations.iter_mut().filter(|operation| operation.client.host == host.0);
        of_it.for_each(|operation| operation.outcome.is_over(now));
    }

    pub fn operation(&self, id: FileOperationId) -> &FileOperation {
        &self.operations[id.0]
    }

    pub fn operations(&self) -> &[FileOperation] {
        &self.operations
    }
}

impl FileOperation {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&FileAnswer> {
        self.outcome.answer()
    }

    /// When it was answered.
    pub fn ended(&self) -> Option<Moment> {
        self.outcome.answered()
    }

    /// The attributes in its answer.
    pub fn attributes(&self) -> Vec<FileAttributes> {
        match self.answer() {
            Some(Ok(FileValue::Opened(attributes))) => vec![*attributes],
            Some(Ok(FileValue::Result(result))) => match result {
                FileResult::Attributes(attributes)
                | FileResult::Created { attributes, .. }
                | FileResult::Removed(attributes) => vec![*attributes],
                FileResult::Renamed { moved, replaced } => [*moved].into_iter().chain(*replaced).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for FileOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileOperation { client, action, invoked, outcome } = self;
        write!(f, "h{}/{} [{}", client.host, client.number, invoked.number)?;
        match outcome {
            Outcome::Unknown => write!(f, "..] {action:?}: unknown"),
            Outcome::UnknownUntil(until) => write!(f, "..{}] {action:?}: unknown", until.number),
            Outcome::Answered(at, answer) => write!(f, "-{}] {action:?}: {answer:?}", at.number),
            Outcome::Never => write!(f, "] {action:?}: never"),
        }
    }
}
