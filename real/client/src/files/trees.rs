//! Operations on trees of directories. They are made of many atomic operations.

use super::Files;
use super::directories::page;
use super::error::FilesError;
use super::mount::Mount;
use super::names::old_name;
use braid_base::InodeId;
use braid_wire::{DirectoryEntry, FileCommand, FileType};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::path::{Path, PathBuf};

/// How many names of a directory are removed at a time.
const REMOVALS_MAX: usize = 32;
/// How often a directory is emptied again because others create files in it.
const ATTEMPTS_MAX: usize = 16;

/// A directory that is being removed with everything in it.
struct Doomed {
    parent: InodeId,
    name: Bytes,
    inode: InodeId,
    attempts: usize,
}

impl Files {
    /// Creates a directory, and those on the path to it that do not exist. Each step has the deadline of the handle.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`] or [`FilesError::Exists`] if something on the path is no directory.
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let path = path.as_ref();
        match self.create_one(path).await {
            Err(FilesError::NotFound) => {}
            outcome => return outcome,
        }
        let mut prefix = PathBuf::new();
        for component in path.components() {
            prefix.push(component);
            self.create_one(&prefix).await?;
        }
        Ok(())
    }

    /// Creates a directory unless it exists.
    async fn create_one(&self, path: &Path) -> Result<(), FilesError> {
        match self.create_dir(path).await {
            Err(FilesError::Exists) if self.metadata(path).await?.is_dir() => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes a directory and everything in it. Symbolic links are removed, and not followed. Each step has the deadline of the handle.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`]; [`FilesError::InvalidName`] for the root; [`FilesError::NotEmpty`] if others keep creating files in it.
    /// After an error, part of it may be removed.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let located = self.at_path(path, |mount, path| async move {
            let (parent, name, _) = old_name(&mount, &path).await?;
            let found = mount.lookup(parent, name.clone()).await?;
            let FileType::Directory = found.file_type else { return Err(FilesError::NotADirectory) };
            Ok((parent, name, found.inode))
        });
        let (parent, name, inode) = located.await?;
        let mut stack = vec![Doomed { parent, name, inode, attempts: 0 }];
        while let Some(directory) = stack.last_mut() {
            let (mount, inode) = (self.mount.clone(), directory.inode);
            let inner = self.run(async move { remove_names(&mount, inode).await }).await?;
            if !inner.is_empty() {
                stack.extend(inner);
                continue;
            }
            let (mount, parent, name) = (self.mount.clone(), directory.parent, directory.name.clone());
            let removal = FileCommand::RemoveDirectory { parent, name };
            match self.run(async move { mount.command(removal).await }).await {
                Ok(_) | Err(FilesError::NotFound) => {
                    stack.pop();
                }
                Err(FilesError::NotEmpty) if directory.attempts < ATTEMPTS_MAX => directory.attempts += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Removes the files and symbolic links of a directory's first page, and returns the directories there.
async fn remove_names(mount: &Mount, inode: InodeId) -> Result<Vec<Doomed>, FilesError> {
    loop {
        let entries = match page(mount, inode, 0).await {
            Ok((entries, _)) => entries,
            Err(FilesError::Stale | FilesError::NotFound) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let is_empty = entries.is_empty();
        let is_directory = |entry: &DirectoryEntry| entry.file_type == FileType::Directory;
        let (directories, names): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_directory);
        let remove = |entry: DirectoryEntry| mount.command(FileCommand::Unlink { parent: inode, name: entry.name });
        let mut removals = stream::iter(names).map(remove).buffer_unordered(REMOVALS_MAX);
        while let Some(removed) = removals.next().await {
            match removed {
                // What another program has removed, or replaced by a directory, is looked at again.
                Ok(_) | Err(FilesError::NotFound | FilesError::IsADirectory) => {}
                Err(error) => return Err(error),
            }
        }
        if is_empty || !directories.is_empty() {
            let doomed =
                |DirectoryEntry { name, inode: it, .. }| Doomed { parent: inode, name, inode: it, attempts: 0 };
            return Ok(directories.into_iter().map(doomed).collect());
        }
    }
}
