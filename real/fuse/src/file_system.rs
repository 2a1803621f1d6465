//! The interface between the FUSE front end and what it serves.

use crate::Interruption;
use crate::kernel_cache::KernelCache;
use braid_base::InodeId;
use braid_machine::AdvisoryOwner;
use braid_wire::{AttributeChange, DirectoryEntry, FileAttributes, FileSystemStatus, LockMode, NewInode, Owner};
use bytes::Bytes;
use rustix::io::Errno;
use std::convert::Infallible;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Errno>;

/// An operation on a file system.
pub trait Outcome<T>: Future<Output = Result<T>> + Send {}

impl<T, F: Future<Output = Result<T>> + Send> Outcome<T> for F {}

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

/// A file system. Inodes have numbers; the root is [`InodeId::ROOT`]. Names are bytes, never empty, without a slash or a zero byte.
///
/// The kernel checks permissions, by the attributes. It applies the umask, and resolves `.` and `..`. When an operation has succeeded,
/// its effect is visible to every operation that begins later, on any host.
///
/// An operation that waits for others should listen to its caller's interruption, and fail with EINTR.
pub trait FileSystem: Send + Sync + 'static {
    /// True if a request for bytes that has waited for so long is to fail: devices are missing that requests need.
    fn has_waited_enough(&self, _waited: Duration) -> bool {
        false
    }

    /// The inode of a name.
    fn lookup(&self, by: &Caller, parent: InodeId, name: Bytes) -> impl Outcome<FileAttributes>;

    /// The attributes of an inode. `through`: the open file by which a program asks, if it does.
    fn attributes(&self, by: &Caller, inode: InodeId, through: Option<OpenFile>) -> impl Outcome<FileAttributes>;

    /// Sets attributes, and the size of a regular file; returns the attributes then. `through`: the open file by which a program asks, if it
    /// does.
    fn set_attributes(
        &self,
        by: &Caller,
        inode: InodeId,
        through: Option<OpenFile>,
        change: AttributeChange,
        size: Option<u64>,
    ) -> impl Outcome<FileAttributes>;

    /// The target of a symbolic link.
    fn read_link(&self, by: &Caller, inode: InodeId) -> impl Outcome<Bytes>;

    /// Creates an inode, whose owner is the caller. The name must not exist.
    fn make(&self, by: &Caller, at: Place, node: NewInode, mode: u16) -> impl Outcome<FileAttributes>;

    /// Creates a regular file, whose owner is the caller, and opens it if that can be done at once. The name must not exist.
    fn create(&self, by: &Caller, at: Place, mode: u16) -> impl Outcome<(FileAttributes, Option<OpenFile>)> {
        async move { Ok((self.make(by, at, NewInode::Regular, mode).await?, None)) }
    }

    /// Gives a file a further name.
    fn link(&self, by: &Caller, inode: InodeId, parent: InodeId, name: Bytes) -> impl Outcome<FileAttributes>;

    /// Removes a name that is not a directory's.
    fn unlink(&self, by: &Caller, parent: InodeId, name: Bytes) -> impl Outcome<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, by: &Caller, parent: InodeId, name: Bytes) -> impl Outcome<()>;

    /// Moves a name. `no_replace`: fails if the new name exists.
    fn rename(&self, by: &Caller, from: Place, to: Place, no_replace: bool) -> impl Outcome<()>;

    /// Entries of a directory without `.` and `..`, ascending by cookie, after this cookie (zero: all), at most as many as stated. Cookies
    /// are at least [`braid_wire::FIRST_COOKIE`] and below 2^63. Only at the end of the directory there are none.
    fn read_directory(&self, by: &Caller, inode: InodeId, after: u64, most: usize)
    -> impl Outcome<Vec<DirectoryEntry>>;

    /// The size of the file system, and what is free.
    fn status(&self, by: &Caller) -> impl Outcome<SpaceStatus>;

    /// Opens a regular file. It exists until it is closed, even without a name.
    fn open(&self, by: &Caller, inode: InodeId) -> impl Outcome<OpenFile>;

    /// Closes a file. No later operation uses it.
    fn close(&self, by: &Caller, file: OpenFile) -> impl Outcome<()>;

    /// Reads bytes, fewer only at the end of the file. The buffers are to be joined. `for_pages`: for pages that the kernel keeps until
    /// [`FileSystem::keep_coherent`] drops them.
    fn read(&self, by: &Caller, file: OpenFile, at: (u64, usize), for_pages: bool) -> impl Outcome<Vec<Bytes>>;

    /// The first bytes from an offset on that are in no hole, up to the next hole. If there are none, both ends are the file's size.
    fn next_data(&self, by: &Caller, file: OpenFile, offset: u64) -> impl Outcome<Range<u64>>;

    /// The size of a file and its last byte, if it has one. The kernel may keep the size until [`FileSystem::keep_coherent`] has it
    /// replaced.
    fn tail(&self, by: &Caller, file: OpenFile) -> impl Outcome<(u64, Option<u8>)>;

    /// Drops what the kernel keeps of files before other hosts change them. It runs while the mount is served.
    fn keep_coherent(&self, kernel: &KernelCache) -> impl Future<Output = Infallible> + Send;

    /// Writes bytes, and returns how many.
    fn write(&self, by: &Caller, file: OpenFile, at: WriteAt, data: Bytes) -> impl Outcome<usize>;

    /// Makes the content and the attributes of a file durable.
    fn sync(&self, by: &Caller, file: OpenFile) -> impl Outcome<()>;

    /// Locks bytes for an owner, in place of the locks that it has on them. `waits`: until no other owner has a conflicting lock.
    fn lock(&self, by: &Caller, at: LockPlace, mode: LockMode, waits: bool) -> impl Outcome<()>;

    fn unlock(&self, by: &Caller, at: LockPlace) -> impl Outcome<()>;

    /// Finds out whether another owner has a conflicting lock.
    fn test_lock(&self, by: &Caller, at: LockPlace, mode: LockMode) -> impl Outcome<bool>;

    /// Releases all locks of an owner on the inode of a file, and ends its waits there.
    fn release_owner(&self, by: &Caller, file: OpenFile, owner: AdvisoryOwner) -> impl Outcome<()>;
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

/// Where a write begins.
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
