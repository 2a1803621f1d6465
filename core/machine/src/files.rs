//! Requests that front ends make to the client of a file system and to its metadata servers, and their outcomes. `braid_wire::files` describes a file system.
//!
//! An inode is named by its number, which a `Lookup` or `Create` returns; a file that is read or written is open, and named by its handle.
//! A handle belongs to one start of the host: when the host is fenced, all of its handles are dead, and the locks of their owners with them.

use crate::{Abandon, HostInput, HostRequest, Input, NoDisk, OpId, Patience};
use braid_base::{FileSystemId, InodeId};
use braid_commit::Protocol;
use braid_wire::{FileAttributes, FileCommand, FileError, FileResult, FileSystemStatus, LockMode, Owner};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// A file that is open on this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileHandle(pub u64);

impl FileHandle {
    /// Handles are below 2 to the power of this: a front end may number its hosts above.
    pub const BITS: u32 = 48;
}

/// The owner of advisory locks on this host, such as a process. The front end numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AdvisoryOwner(pub u64);

/// An operation on a file system. At most [`limits::FILE_IO_BYTES_MAX`](braid_base::limits::FILE_IO_BYTES_MAX) bytes are read or written
/// by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilesRequest {
    /// A command about names and attributes. Commands about blocks and sizes are refused: they belong to the client itself.
    Command(FileCommand),
    /// Creates a regular file whose name must not exist, and opens it: [`FilesSuccess::Opened`]. If it could not be opened at once, it is
    /// created ([`FileResult::Created`]), and to be opened by `Open`.
    Create {
        parent: InodeId,
        name: Bytes,
        owner: Owner,
        /// The permission bits.
        mode: u16,
    },
    /// Opens a regular file, which then exists until it is closed, even without a name.
    Open { inode: InodeId },
    /// Closes a file. Advisory locks stay until their owner releases them.
    Close { handle: FileHandle },
    /// Reads bytes, up to the end of the file.
    Read {
        handle: FileHandle,
        offset: u64,
        /// In bytes.
        length: usize,
    },
    /// As [`FilesRequest::Read`], for a cache of the front end, which may keep the bytes until it is told to drop them
    /// ([`FilesRequest::AwaitRevocation`]). Only a front end that awaits revocations makes such requests.
    ReadPages {
        handle: FileHandle,
        offset: u64,
        /// In bytes.
        length: usize,
    },
    /// Waits until the front end has to drop what it keeps of inodes: [`FilesSuccess::Revoked`]. Each is to be answered by
    /// [`FilesRequest::Dropped`]. One such request is under way at a time.
    AwaitRevocation,
    /// The front end has dropped what it kept of an inode. If it `follows` the inode by an open file, it is told the inode's size when this
    /// host may know it again ([`FilesSuccess::Tail`]), and may keep it until the next revocation. If it was given more meanwhile, it is
    /// answered [`FilesSuccess::Done`], and asked again.
    Dropped { inode: InodeId, follows: Option<FileHandle> },
    /// Asks where the first bytes from an offset on are that are in no hole: [`FilesSuccess::NextData`].
    NextData {
        handle: FileHandle,
        /// In bytes.
        offset: u64,
    },
    /// Asks for the size of an open file, which the front end may keep until the next revocation.
    Follow { handle: FileHandle },
    /// Writes bytes. They are durable when the request is answered, and other operations on all hosts see them as a whole or not at all.
    /// If there is no space for all, as many as possible are written, from the first on.
    Write { handle: FileHandle, offset: u64, data: Bytes },
    /// Writes bytes at the end of the file.
    Append { handle: FileHandle, data: Bytes },
    /// Sets the size. What is added reads as zeros.
    Truncate { inode: InodeId, size: u64 },
    /// Makes the time of the last write durable. Written bytes are durable already.
    Sync { handle: FileHandle },
    /// Locks bytes of a file for an owner, in place of the locks that it has on them (POSIX advisory locks).
    Lock {
        handle: FileHandle,
        owner: AdvisoryOwner,
        /// In bytes. To lock all that may follow, end at `u64::MAX`.
        range: Range<u64>,
        mode: LockMode,
        /// Waits until no other owner has a conflicting lock; [`ArrayRequest::Abandon`](crate::ArrayRequest::Abandon) ends the wait.
        /// Otherwise such a request fails with [`FilesError::Locked`].
        wait: bool,
    },
    /// Releases the locks of an owner on bytes of a file.
    Unlock { handle: FileHandle, owner: AdvisoryOwner, range: Range<u64> },
    /// Finds out whether another owner has a lock that conflicts with this one.
    TestLock { handle: FileHandle, owner: AdvisoryOwner, range: Range<u64>, mode: LockMode },
    /// Releases all locks of an owner on a file, and ends its waits there.
    ReleaseOwner { handle: FileHandle, owner: AdvisoryOwner },
    /// Asks the metadata server of each shard what the shard contains.
    StatShards,
}

/// A request to the metadata server of a file system, or of a shard of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerRequest {
    /// Follows the settings of the file system from now on.
    Follow {
        /// How long a host that is heard may keep a lock that other hosts wait for.
        evict_after: Option<Duration>,
        /// How operations on several shards are committed, if there are several.
        protocol: Protocol,
        /// Whether the server *quiesces*: commands of hosts are ignored, so that those under way, and transactions of other shards, come to
        /// an end. Hosts send their commands again.
        quiesces: bool,
    },
    /// Devices don't answer: hosts may not be able to give back locks, and have more time for it.
    RestartEvictionTimers,
}

/// A request to a host that may have a file system mounted, or serve one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountRequest {
    Host(HostRequest),
    /// An operation on a file system. The client of that file system (`braid_files`) serves it.
    Files {
        file_system: FileSystemId,
        request: FilesRequest,
    },
    /// Refused with [`FilesError::NotMounted`] unless this process owns the file system.
    Server(ServerRequest),
}

impl MountRequest {
    /// How long the request waits.
    pub fn patience(&self) -> Patience {
        match self {
            MountRequest::Host(request) => request.patience(),
            MountRequest::Files { .. } | MountRequest::Server(_) => Patience::Host,
        }
    }
}

impl Input<MountRequest, NoDisk> {
    /// The input of the host, unless it is a request for what is around the host.
    pub fn for_host(self) -> Result<HostInput, (OpId, MountRequest)> {
        match self {
            Input::Request { op, request: MountRequest::Host(request) } => Ok(Input::Request { op, request }),
            Input::Request { op, request } => Err((op, request)),
            Input::Start => Ok(Input::Start),
            Input::Message { to, from, message } => Ok(Input::Message { to, from, message }),
            Input::Wake => Ok(Input::Wake),
        }
    }
}

impl Abandon for MountRequest {
    fn abandon(ops: Vec<OpId>) -> Option<MountRequest> {
        HostRequest::abandon(ops).map(MountRequest::Host)
    }
}

impl<R: Into<HostRequest>> From<R> for MountRequest {
    fn from(request: R) -> MountRequest {
        MountRequest::Host(request.into())
    }
}

/// The result of an operation on a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesSuccess {
    /// The operation is done, without a result.
    Done,
    Result(FileResult),
    Opened {
        handle: FileHandle,
        attributes: FileAttributes,
    },
    /// The bytes read, as buffers in order.
    Data(Vec<Bytes>),
    /// Bytes of a file up to the next hole or its end. If there are none, both ends are its size.
    NextData(Range<u64>),
    /// The front end has to drop what it keeps of these inodes.
    Revoked(Vec<InodeId>),
    /// The size of a file, and its last byte; empty if it has none.
    Tail {
        /// In bytes.
        size: u64,
        last: Bytes,
    },
    /// How many bytes were written: fewer than asked for if the rest has no space.
    Written {
        /// In bytes.
        length: u64,
    },
    Appended {
        /// Where the bytes are.
        offset: u64,
        /// As of [`FilesSuccess::Written`].
        length: u64,
    },
    /// The result of [`FilesRequest::StatShards`], by shard.
    Shards(Vec<FileSystemStatus>),
    /// The result of [`FilesRequest::TestLock`].
    Tested {
        /// Whether another owner has a conflicting lock.
        is_locked: bool,
    },
}

/// Why an operation on a file system failed. Nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// This host has not mounted the file system, or does not serve it.
    #[error("the file system is not mounted on this host")]
    NotMounted,
    #[error("the file is not open: open it first")]
    NotOpen,
    /// Another owner has a conflicting advisory lock.
    #[error("another process has locked it: try again later")]
    Locked,
    /// Another owner waits for this one, perhaps through others, and would be waited for.
    #[error("two processes would wait for each other: unlock something, and try again")]
    Deadlock,
    /// The owner has locked a file in too many pieces, or all owners together have too many locks.
    #[error("too many locks: unlock some")]
    TooManyLocks,
    /// The metadata server refuses the operation.
    #[error(transparent)]
    Refused(#[from] FileError),
}
