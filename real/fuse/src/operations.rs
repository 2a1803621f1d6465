//! What programs ask of the files of an array: each operation is one request to the client of the file system.
//!
//! Inodes have numbers; the root is [`InodeId::ROOT`]. Names are bytes, never empty, without a slash or a zero byte. The kernel checks
//! permissions, by the attributes. It applies the umask, and resolves `.` and `..`. When an operation has succeeded, its effect is visible to
//! every operation that begins later, on any host.

use crate::files::HostFiles;
use crate::terms::{Caller, OpenFile, Result, SpaceStatus, WriteAt};
use braid_base::{InodeId, limits};
use braid_machine::{FilesRequest, FilesSuccess};
use braid_wire::{AttributeChange, DirectoryEntry, FileAttributes, FileCommand, FileResult};
use bytes::Bytes;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl HostFiles {
    /// True if a request for bytes that has waited for so long is to fail: devices are missing that requests need.
    pub(crate) fn has_waited_enough(&self, waited: Duration) -> bool {
        self.limit.is_some_and(|limit| waited >= limit) && self.lacks_devices.load(Ordering::Relaxed)
    }

    /// Performs a command about a name, and returns the attributes of the inode that it leads to.
    pub(crate) async fn entry(&self, by: &Caller, command: FileCommand) -> Result<FileAttributes> {
        attributes_in(self.of_names(by, command).await?)
    }

    /// The attributes of an inode. `through`: the open file by which a program asks, if it does.
    pub(crate) async fn attributes(
        &self,
        by: &Caller,
        inode: InodeId,
        through: Option<OpenFile>,
    ) -> Result<FileAttributes> {
        attributes_in(self.call_through(by, through, FilesRequest::Command(FileCommand::Stat { inode })).await?)
    }

    /// Sets attributes, and the size of a regular file; returns the attributes then. `through`: the open file by which a program asks, if it
    /// does.
    pub(crate) async fn set_attributes(
        &self,
        by: &Caller,
        inode: InodeId,
        through: Option<OpenFile>,
        change: AttributeChange,
        size: Option<u64>,
    ) -> Result<FileAttributes> {
        if let Some(size) = size {
            self.call_through(by, through, FilesRequest::Truncate { inode, size }).await?;
        }
        if change == AttributeChange::default() {
            return self.attributes(by, inode, through).await;
        }
        let request = FilesRequest::Command(FileCommand::SetAttributes { inode, change });
        attributes_in(self.call_through(by, through, request).await?)
    }

    /// Creates a regular file, whose owner is the caller, and opens it if that can be done at once. The name must not exist.
    pub(crate) async fn create(
        &self,
        by: &Caller,
        (parent, name): (InodeId, Bytes),
        mode: u16,
    ) -> Result<(FileAttributes, Option<OpenFile>)> {
        let request = FilesRequest::Create { parent, name, owner: by.owner, mode };
        match self.call_of_names(by, request).await? {
            (host, FilesSuccess::Opened { handle, attributes }) => Ok((attributes, Some(host.open_file(handle)))),
            (_, created) => Ok((attributes_in(created)?, None)),
        }
    }

    /// Entries of a directory without `.` and `..`, ascending by cookie, after this cookie (zero: all), at most as many as stated. Cookies
    /// are at least [`braid_wire::FIRST_COOKIE`] and below 2^63. Only at the end of the directory there are none.
    pub(crate) async fn read_directory(
        &self,
        by: &Caller,
        inode: InodeId,
        after: u64,
        most: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let most = most.min(limits::FILE_ENTRIES_MAX) as u32;
        match result_in(self.of_names(by, FileCommand::ReadDirectory { inode, after, most }).await?) {
            FileResult::Entries { entries, .. } => Ok(entries),
            _ => Err(wrong_result()),
        }
    }

    /// The size of the file system, and what is free.
    pub(crate) async fn status(&self, by: &Caller) -> Result<SpaceStatus> {
        let FileResult::FileSystem(status) = self.command(by, FileCommand::StatFileSystem).await? else {
            return Err(wrong_result());
        };
        Ok(SpaceStatus { status, free_inodes: self.room.0(status.inodes).await })
    }

    /// Opens a regular file. It exists until it is closed, even without a name.
    pub(crate) async fn open(&self, by: &Caller, inode: InodeId) -> Result<OpenFile> {
        match self.call_any(by, FilesRequest::Open { inode }).await? {
            (host, FilesSuccess::Opened { handle, .. }) => Ok(host.open_file(handle)),
            (_, other) => unreachable!("a host answers an open with a handle, not {other:?}"),
        }
    }

    /// Reads bytes, fewer only at the end of the file. The buffers are to be joined. `for_pages`: for pages that the kernel keeps until
    /// [`keep_coherent`](crate::revocations::keep_coherent) drops them.
    pub(crate) async fn read(
        &self,
        by: &Caller,
        file: OpenFile,
        (offset, length): (u64, usize),
        for_pages: bool,
    ) -> Result<Vec<Bytes>> {
        let request = |handle| match for_pages {
            true => FilesRequest::ReadPages { handle, offset, length },
            false => FilesRequest::Read { handle, offset, length },
        };
        match self.call_file(by, file, request).await? {
            FilesSuccess::Data(data) => Ok(data),
            other => unreachable!("a host answers a read with data, not {other:?}"),
        }
    }

    /// The first bytes from an offset on that are in no hole, up to the next hole. If there are none, both ends are the file's size.
    pub(crate) async fn next_data(&self, by: &Caller, file: OpenFile, offset: u64) -> Result<Range<u64>> {
        match self.call_file(by, file, |handle| FilesRequest::NextData { handle, offset }).await? {
            FilesSuccess::NextData(data) => Ok(data),
            other => unreachable!("a host answers with the data, not {other:?}"),
        }
    }

    /// The size of a file and its last byte, if it has one. The kernel may keep the size until it is replaced.
    pub(crate) async fn tail(&self, by: &Caller, file: OpenFile) -> Result<(u64, Option<u8>)> {
        match self.call_file(by, file, |handle| FilesRequest::Follow { handle }).await? {
            FilesSuccess::Tail { size, last } => Ok((size, last.last().copied())),
            other => unreachable!("a host answers with the size, not {other:?}"),
        }
    }

    /// Writes bytes, and returns how many.
    pub(crate) async fn write(&self, by: &Caller, file: OpenFile, at: WriteAt, data: Bytes) -> Result<usize> {
        let request = |handle| match at {
            WriteAt::Offset(offset) => FilesRequest::Write { handle, offset, data },
            WriteAt::End => FilesRequest::Append { handle, data },
        };
        match self.call_file(by, file, request).await? {
            FilesSuccess::Written { length } | FilesSuccess::Appended { length, .. } => Ok(length as usize),
            other => unreachable!("a host answers a write with its length, not {other:?}"),
        }
    }
}

pub(crate) fn result_in(success: FilesSuccess) -> FileResult {
    match success {
        FilesSuccess::Result(result) => result,
        other => unreachable!("a host answers a command with its result, not {other:?}"),
    }
}

fn attributes_in(success: FilesSuccess) -> Result<FileAttributes> {
    match result_in(success) {
        FileResult::Attributes(attributes) | FileResult::Created { attributes, .. } => Ok(attributes),
        _ => Err(wrong_result()),
    }
}

/// A metadata server has answered a command with the result of another.
pub(crate) fn wrong_result() -> Errno {
    Errno::IO
}
