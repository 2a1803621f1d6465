//! Lists of directories.

use super::Files;
use super::error::FilesError;
use super::mount::Mount;
use super::path::Walk;
use braid_base::InodeId;
use braid_base::limits::FILE_ENTRIES_MAX;
use braid_wire::{DirectoryEntry, FileCommand, FileResult, FileType};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The entries of a directory, in the order of their cookies, without `.` and `..`. They are fetched in pages of up to 1024.
///
/// An entry that exists during the whole list is returned once, also if others are created and removed meanwhile.
#[derive(Debug)]
pub struct ReadDir {
    files: Files,
    directory: InodeId,
    page: VecDeque<DirectoryEntry>,
    /// The cookie to go on after.
    after: u64,
    has_more: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry(DirectoryEntry);

impl DirEntry {
    /// Its name.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.0.name)
    }

    /// Whether it is a regular file, a directory or a symbolic link.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// The number of the inode.
    pub fn inode(&self) -> u64 {
        self.0.inode.0
    }

    /// Its place in the list, which it keeps until it is removed: [`ReadDir::after`].
    pub fn cookie(&self) -> u64 {
        self.0.cookie
    }
}

impl ReadDir {
    /// The next entry; none at the end. Its deadline is that of the handle which began the list.
    ///
    /// # Errors
    /// [`FilesError::Stale`] if the directory was removed; [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn next(&mut self) -> Result<Option<DirEntry>, FilesError> {
        while self.page.is_empty() && self.has_more {
            let (mount, directory, after) = (self.files.mount.clone(), self.directory, self.after);
            let (page, has_more) = self.files.run(async move { page(&mount, directory, after).await }).await?;
            self.after = page.last().map_or(after, |last| last.cookie);
            self.has_more = has_more && !page.is_empty();
            self.page = page.into();
        }
        Ok(self.page.pop_front().map(DirEntry))
    }

    /// Goes on after the entry with this cookie, or with the first entry after it; 0: with the first entry.
    pub fn after(mut self, cookie: u64) -> ReadDir {
        (self.after, self.has_more) = (cookie, true);
        self.page.clear();
        self
    }
}

impl Files {
    /// Begins a list of a directory.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`].
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, FilesError> {
        let found = self.at_path(path, |mount, path| async move { Walk::new(&mount, &path).resolve(true).await });
        let found = found.await?;
        if found.file_type != FileType::Directory {
            return Err(FilesError::NotADirectory);
        }
        Ok(ReadDir { files: self.clone(), directory: found.inode, page: VecDeque::new(), after: 0, has_more: true })
    }
}

/// Entries of a directory after this cookie, and whether there are more.
pub(super) async fn page(mount: &Mount, inode: InodeId, after: u64) -> Result<(Vec<DirectoryEntry>, bool), FilesError> {
    let read = FileCommand::ReadDirectory { inode, after, most: FILE_ENTRIES_MAX as u32 };
    expected!(mount.command(read).await?, FileResult::Entries { entries, more } => (entries, more))
}
