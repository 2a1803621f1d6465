//! Errors of operations on files.

use crate::error::Error;
use braid_machine::{FilesError as HostFilesError, HostError};
use braid_wire::{FileError, Rejection};
use std::io::ErrorKind;
use std::time::Duration;

/// Why an operation on files failed. The comments name the error of POSIX.
///
/// If [`FilesError::may_have_happened`], the outcome is unknown. After all other errors the operation has had no effect, but for those that
/// are made of several steps: their documentation says so.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// `ENOENT`: the path names nothing, or a directory on it does not exist.
    #[error("{}", FileError::NoSuchName)]
    NotFound,
    /// `EEXIST`: the name exists.
    #[error("{}", FileError::Exists)]
    Exists,
    /// `ENOTDIR`: a directory is needed, also in the middle of a path.
    #[error("{}", FileError::NotADirectory)]
    NotADirectory,
    /// `EISDIR`: a directory is not allowed.
    #[error("{}", FileError::IsADirectory)]
    IsADirectory,
    /// `EINVAL`: a regular file is needed.
    #[error("{}", FileError::NotAFile)]
    NotAFile,
    /// `EINVAL`: a symbolic link is needed.
    #[error("{}", FileError::NotALink)]
    NotALink,
    /// `EPERM`: a directory must not have a second name.
    #[error("{}", FileError::LinkToDirectory)]
    LinkToDirectory,
    /// `ENOTEMPTY`: the directory has entries.
    #[error("{}", FileError::NotEmpty)]
    NotEmpty,
    /// `EINVAL`: a directory would contain itself.
    #[error("{}", FileError::IntoItself)]
    IntoItself,
    /// `EINVAL`: the directory is too deep in the tree for a directory to be moved into it.
    #[error("{}", FileError::TooDeep)]
    TooDeep,
    /// `ELOOP`: the path leads through more than 40 symbolic links.
    #[error("the path leads through more than 40 symbolic links: check whether they lead in a circle")]
    TooManySymbolicLinks,
    /// `ENAMETOOLONG`: a name has more than 255 bytes, or the target of a symbolic link more than 4095.
    #[error("{}", FileError::NameTooLong)]
    NameTooLong,
    /// `EINVAL`: a name that can't exist, or a path that ends in `.` or `..` where a name is needed.
    #[error("{}", FileError::InvalidName)]
    InvalidName,
    /// `EINVAL`: an argument is out of its range, such as permission bits above 0o7777.
    #[error("an argument is invalid: permission bits are at most 0o7777, and a range must not be empty")]
    InvalidArgument,
    /// `EMLINK`: the file has too many names, or the directory too many directories.
    #[error("{}", FileError::TooManyLinks)]
    TooManyLinks,
    /// `EFBIG`: the file would be longer than a file may be.
    #[error("{}", FileError::TooLarge)]
    TooLarge,
    /// `ENOSPC`: the file system is full. Removing still works.
    #[error("{}", FileError::NoSpace)]
    NoSpace,
    /// `ENOSPC`: the directory has as many names with the hash of this one as it may have.
    #[error("{}", FileError::DirectoryFull)]
    DirectoryFull,
    /// `ESTALE`: the directory that was being listed was removed.
    #[error("{}", FileError::Stale)]
    Stale,
    /// `EAGAIN`: another owner has a conflicting lock.
    #[error("another owner has locked these bytes: try again later, or wait with `lock`")]
    Locked,
    /// `EDEADLK`: another owner waits for this one, and would be waited for.
    #[error("two owners would wait for each other: unlock something, and try again")]
    Deadlock,
    /// `ENOLCK`: the owner has locked the file in too many pieces, or the mount has too many locks.
    #[error("too many locks: unlock some")]
    TooManyLocks,
    /// `EBADF`: the file was closed.
    #[error("the file is closed: open it again")]
    NotOpen,
    /// `EBADF`: the file was not opened for reading.
    #[error("the file is not open for reading: open it with `OpenOptions::read`")]
    NotReadable,
    /// `EBADF`: the file was not opened for writing; or it was opened to append, and can't be written elsewhere.
    #[error("the file is not open for this way of writing: open it with `OpenOptions::write` or `append`")]
    NotWritable,
    /// `EIO`: metadata or bytes are damaged.
    #[error(
        "what the file system has there is damaged: `braid fs check` shows the extent, and `braid scrub` repairs bytes"
    )]
    Damaged,
    /// `EAGAIN`: too many operations are in progress.
    #[error("too many operations are in progress: try again later")]
    Busy,
    /// `ETIMEDOUT`: the outcome is unknown.
    #[error(
        "no answer within {waited:?}: the operation may have been executed or not; `braid fs status` shows whether the file system is served"
    )]
    TimedOut {
        /// The deadline.
        waited: Duration,
    },
    /// `EIO`: so many devices are unavailable that the operation is impossible. The outcome of a write is unknown.
    #[error("too many devices are unavailable: `braid status` shows which")]
    Unavailable,
    /// `ESTALE`: the array considered this mount dead, since it was silent for too long, and has fenced it for good. All of its open files
    /// are lost, and so are its locks. Mount again. The outcome of operations that were in progress is unknown.
    #[error(
        "the array has fenced this mount, which was silent for too long: mount the file system again, and open the files again"
    )]
    Fenced,
    /// `ESHUTDOWN`: the mount was closed.
    #[error("the file system is not mounted any more: mount it again")]
    Closed,
    /// Another error of the array.
    #[error(transparent)]
    Array(Error),
    /// An answer does not fit the request. The outcome is unknown.
    #[error("an answer does not fit the request: the metadata server runs another release, or is defective")]
    ProtocolError,
}

impl FilesError {
    /// True if the outcome is unknown: the operation may have been executed or not.
    pub fn may_have_happened(&self) -> bool {
        match self {
            FilesError::TimedOut { .. }
            | FilesError::Unavailable
            | FilesError::Fenced
            | FilesError::Closed
            | FilesError::ProtocolError => true,
            FilesError::Array(error) => error.may_have_happened(),
            _ => false,
        }
    }
}

impl From<HostError> for FilesError {
    fn from(error: HostError) -> FilesError {
        match error {
            HostError::Files(HostFilesError::Refused(error)) => FilesError::from(error),
            HostError::Files(HostFilesError::NotOpen) => FilesError::NotOpen,
            HostError::Files(HostFilesError::Locked) => FilesError::Locked,
            HostError::Files(HostFilesError::Deadlock) => FilesError::Deadlock,
            HostError::Files(HostFilesError::TooManyLocks) => FilesError::TooManyLocks,
            HostError::Files(HostFilesError::NotMounted) | HostError::Stopped | HostError::Disconnecting => {
                FilesError::Closed
            }
            HostError::OutOfRange => FilesError::InvalidArgument,
            error => FilesError::from(Error::from(error)),
        }
    }
}

impl From<Error> for FilesError {
    fn from(error: Error) -> FilesError {
        match error {
            Error::TimedOut { waited } => FilesError::TimedOut { waited },
            Error::Fenced => FilesError::Fenced,
            Error::Closed => FilesError::Closed,
            Error::Busy => FilesError::Busy,
            Error::NoSpace => FilesError::NoSpace,
            Error::Lost => FilesError::Damaged,
            Error::Unavailable { .. } => FilesError::Unavailable,
            Error::ProtocolError => FilesError::ProtocolError,
            error => FilesError::Array(error),
        }
    }
}

impl From<FileError> for FilesError {
    fn from(error: FileError) -> FilesError {
        match error {
            FileError::Stale => FilesError::Stale,
            FileError::NoSuchName => FilesError::NotFound,
            FileError::Exists => FilesError::Exists,
            FileError::NotADirectory => FilesError::NotADirectory,
            FileError::IsADirectory => FilesError::IsADirectory,
            FileError::NotAFile => FilesError::NotAFile,
            FileError::NotALink => FilesError::NotALink,
            FileError::LinkToDirectory => FilesError::LinkToDirectory,
            FileError::NotEmpty => FilesError::NotEmpty,
            FileError::IntoItself => FilesError::IntoItself,
            FileError::TooDeep => FilesError::TooDeep,
            FileError::NameTooLong => FilesError::NameTooLong,
            FileError::InvalidName => FilesError::InvalidName,
            FileError::TooManyLinks => FilesError::TooManyLinks,
            FileError::TooLarge => FilesError::TooLarge,
            FileError::NoSpace => FilesError::NoSpace,
            FileError::DirectoryFull => FilesError::DirectoryFull,
            FileError::Lost => FilesError::Damaged,
            FileError::Busy => FilesError::Busy,
            FileError::Malformed => FilesError::InvalidArgument,
            FileError::Rejected(Rejection::Fenced) => FilesError::Fenced,
            FileError::NotAllotted | FileError::Rejected(_) => FilesError::ProtocolError,
        }
    }
}

impl From<FilesError> for std::io::Error {
    fn from(error: FilesError) -> std::io::Error {
        let kind = match &error {
            FilesError::NotFound => ErrorKind::NotFound,
            FilesError::Exists => ErrorKind::AlreadyExists,
            FilesError::NotADirectory => ErrorKind::NotADirectory,
            FilesError::IsADirectory => ErrorKind::IsADirectory,
            FilesError::NotEmpty => ErrorKind::DirectoryNotEmpty,
            FilesError::NameTooLong => ErrorKind::InvalidFilename,
            FilesError::TooManyLinks => ErrorKind::TooManyLinks,
            FilesError::TooLarge => ErrorKind::FileTooLarge,
            FilesError::NoSpace | FilesError::DirectoryFull => ErrorKind::StorageFull,
            FilesError::Stale | FilesError::Fenced => ErrorKind::StaleNetworkFileHandle,
            FilesError::Locked | FilesError::Busy => ErrorKind::WouldBlock,
            FilesError::TimedOut { .. } => ErrorKind::TimedOut,
            FilesError::Deadlock => ErrorKind::Deadlock,
            FilesError::NotAFile
            | FilesError::NotALink
            | FilesError::IntoItself
            | FilesError::TooDeep
            | FilesError::InvalidName
            | FilesError::InvalidArgument => ErrorKind::InvalidInput,
            FilesError::LinkToDirectory => ErrorKind::PermissionDenied,
            _ => ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}
