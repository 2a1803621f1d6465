//! An open file.

use super::Files;
use super::error::FilesError;
use super::metadata::Metadata;
use super::mount::OpenFile;
use super::open::OpenOptions;
use braid_base::limits::FILE_IO_BYTES_MAX;
use braid_machine::{FilesRequest, FilesSuccess};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open file. Clones refer to the same open file. It is closed by [`File::close`], or in the background when the last clone is dropped.
///
/// An open file stays readable and writable after its names are removed.
///
/// A read of up to 64 MiB sees other writes of up to 64 MiB as a whole or not at all, on all mounts. A longer read or write is made of parts
/// of 64 MiB, one after the other; each has the deadline of the handle.
///
/// Written bytes are durable when the call returns. If this mount or the whole array fails *during* a write, each of its transactions of up to
/// 4 MiB has taken effect as a whole or not at all.
#[derive(Clone, Debug)]
pub struct File {
    pub(super) files: Files,
    pub(super) open: Arc<OpenFile>,
    access: Access,
}

/// What may be done with an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub read: bool,
    pub write: bool,
    pub append: bool,
}

impl File {
    pub(super) fn new(files: Files, open: OpenFile, access: Access) -> File {
        File { files, open: Arc::new(open), access }
    }

    /// The same open file with another deadline for calls.
    pub fn within(&self, deadline: Duration) -> File {
        File { files: self.files.within(deadline), ..self.clone() }
    }

    /// Reads up to `length` bytes at `offset`: fewer only if the file ends there. Holes read as zeros.
    ///
    /// # Errors
    /// [`FilesError::NotReadable`]; [`FilesError::Unavailable`] or [`FilesError::TimedOut`] while too many devices are unavailable.
    pub async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes, FilesError> {
        if !self.access.read {
            return Err(FilesError::NotReadable);
        }
        let mut all = BytesMut::new();
        loop {
            let part = (length - all.len()).min(FILE_IO_BYTES_MAX);
            let offset = offset.saturating_add(all.len() as u64);
            let read = self.ask(FilesRequest::Read { handle: self.open.handle, offset, length: part }).await?;
            let FilesSuccess::Data(mut data) = read else { return Err(FilesError::ProtocolError) };
            if all.is_empty() && part == length && data.len() == 1 {
                return Ok(data.remove(0));
            }
            let count: usize = data.iter().map(Bytes::len).sum();
            all.reserve(count);
            data.iter().for_each(|buffer| all.extend_from_slice(buffer));
            if count < part || all.len() == length {
                return Ok(all.freeze());
            }
        }
    }

    /// The first bytes from `offset` on that are in no hole, up to the next hole. If there are none, both ends are the length of the file.
    ///
    /// # Errors
    /// [`FilesError::NotReadable`]; [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn next_data(&self, offset: u64) -> Result<Range<u64>, FilesError> {
        if !self.access.read {
            return Err(FilesError::NotReadable);
        }
        let next = FilesRequest::NextData { handle: self.open.handle, offset };
        expected!(self.ask(next).await?, FilesSuccess::NextData(data) => data)
    }

    /// Writes bytes at `offset`. The file grows if necessary; a gap reads as zeros.
    ///
    /// # Errors
    /// [`FilesError::NotWritable`]; [`FilesError::TooLarge`]. After [`FilesError::NoSpace`], and after errors that leave the outcome unknown,
    /// some of the bytes may be written.
    pub async fn write_at(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), FilesError> {
        if !self.access.write {
            return Err(FilesError::NotWritable);
        }
        let (mut offset, mut data) = (offset, data.into());
        while !data.is_empty() {
            let part = data.slice(..data.len().min(FILE_IO_BYTES_MAX));
            match self.ask(FilesRequest::Write { handle: self.open.handle, offset, data: part }).await? {
                FilesSuccess::Written { length: 0 } => return Err(FilesError::NoSpace),
                FilesSuccess::Written { length } if length <= data.len() as u64 => {
                    offset += length;
                    // What had no space fails in the next round, unless there is space by then.
                    let _ = data.split_to(length as usize);
                }
                _ => return Err(FilesError::ProtocolError),
            }
        }
        Ok(())
    }

    /// Writes bytes at the end of the file, and returns their offset. Concurrent appends, of all mounts, do not overwrite each other.
    ///
    /// Up to 64 MiB are appended contiguously. Between the parts of a longer append there may be appends of others.
    ///
    /// # Errors
    /// The same as those of [`File::write_at`].
    pub async fn append(&self, data: impl Into<Bytes>) -> Result<u64, FilesError> {
        if !self.access.write && !self.access.append {
            return Err(FilesError::NotWritable);
        }
        let (mut data, mut first) = (data.into(), None);
        loop {
            let part = data.slice(..data.len().min(FILE_IO_BYTES_MAX));
            let asked = part.len() as u64;
            match self.ask(FilesRequest::Append { handle: self.open.handle, data: part }).await? {
                FilesSuccess::Appended { length, .. } if length < asked => return Err(FilesError::NoSpace),
                FilesSuccess::Appended { offset, length } if length == asked => {
                    let _ = data.split_to(length as usize);
                    let first = *first.get_or_insert(offset);
                    if data.is_empty() {
                        return Ok(first);
                    }
                }
                _ => return Err(FilesError::ProtocolError),
            }
        }
    }

    /// Sets the length, in bytes. What is added reads as zeros, and takes no space.
    ///
    /// # Errors
    /// [`FilesError::NotWritable`]; [`FilesError::TooLarge`].
    pub async fn set_len(&self, length: u64) -> Result<(), FilesError> {
        if !self.access.write {
            return Err(FilesError::NotWritable);
        }
        self.ask(FilesRequest::Truncate { inode: self.open.inode, size: length }).await.map(|_| ())
    }

    /// Makes the time of the last write durable. Bytes, length and names are durable already.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn sync_all(&self) -> Result<(), FilesError> {
        self.ask(FilesRequest::Sync { handle: self.open.handle }).await.map(|_| ())
    }

    /// The attributes of the file.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn metadata(&self) -> Result<Metadata, FilesError> {
        let open = self.open.clone();
        self.files.run(async move { Ok(open.mount.stat(open.inode).await?.into()) }).await
    }

    /// Releases the locks that were taken through this open file, and closes it, for all clones. Later calls end with
    /// [`FilesError::NotOpen`].
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers; the file is closed when one does.
    pub async fn close(&self) -> Result<(), FilesError> {
        let open = self.open.clone();
        // It goes on even if nobody waits for it.
        let closing = self.files.mount.runtime.spawn(async move { open.close().await });
        self.files.run(async move { closing.await.unwrap_or(Err(FilesError::Closed)) }).await
    }

    pub(super) async fn ask(&self, request: FilesRequest) -> Result<FilesSuccess, FilesError> {
        let open = self.open.clone();
        self.files.run(async move { open.mount.ask(request).await }).await
    }
}

impl Files {
    /// The content of a file.
    ///
    /// # Errors
    /// Those of [`Files::open`] and [`File::read_at`].
    pub async fn read(&self, path: impl AsRef<Path>) -> Result<Bytes, FilesError> {
        let file = self.open(path, OpenOptions::new().read(true)).await?;
        let content = file.read_at(0, usize::MAX).await;
        file.close().await.and(content)
    }

    /// Makes bytes the content of a file, which is created if it does not exist. This is not atomic: another mount may see the file empty,
    /// or with some of the bytes. To replace a file atomically, write another one, and [`rename`](Files::rename) it.
    ///
    /// # Errors
    /// Those of [`Files::open`] and [`File::write_at`].
    pub async fn write(&self, path: impl AsRef<Path>, data: impl Into<Bytes>) -> Result<(), FilesError> {
        let file = self.open(path, OpenOptions::new().write(true).create(true).truncate(true)).await?;
        let written = file.write_at(0, data).await;
        file.close().await.and(written)
    }
}
