//! The error numbers of what the array reports. Programs see nothing else.

use braid_machine::{FilesError, HostError};
use braid_wire::{Failure, FileError};
use rustix::io::Errno;

pub fn of_host(error: &HostError) -> Errno {
    match error {
        HostError::Files(FilesError::Refused(error)) => of_file(*error),
        HostError::Files(FilesError::Locked) => Errno::AGAIN,
        HostError::Files(FilesError::Deadlock) => Errno::DEADLK,
        HostError::Files(FilesError::TooManyLocks) => Errno::NOLCK,
        HostError::Abandoned => Errno::INTR,
        HostError::Busy => Errno::AGAIN,
        HostError::OutOfRange => Errno::INVAL,
        HostError::Device { failure: Failure::NoSpace, .. } => Errno::NOSPC,
        // A fenced host among them: its handles and locks are dead for good.
        _ => Errno::IO,
    }
}

fn of_file(error: FileError) -> Errno {
    match error {
        FileError::Stale => Errno::STALE,
        FileError::NoSuchName => Errno::NOENT,
        FileError::Exists => Errno::EXIST,
        FileError::NotADirectory => Errno::NOTDIR,
        FileError::IsADirectory => Errno::ISDIR,
        FileError::NotAFile | FileError::NotALink | FileError::IntoItself | FileError::InvalidName => Errno::INVAL,
        FileError::LinkToDirectory => Errno::PERM,
        FileError::NotEmpty => Errno::NOTEMPTY,
        FileError::TooDeep => Errno::LOOP,
        FileError::NameTooLong => Errno::NAMETOOLONG,
        FileError::TooManyLinks => Errno::MLINK,
        FileError::TooLarge => Errno::FBIG,
        FileError::NoSpace | FileError::DirectoryFull => Errno::NOSPC,
        FileError::Busy => Errno::AGAIN,
        FileError::Malformed => Errno::INVAL,
        FileError::NotAllotted | FileError::Lost | FileError::Rejected(_) => Errno::IO,
    }
}
