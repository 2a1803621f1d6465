//! Operations on trees of directories. They are made of many atomic operations.

use super::Files;
use super::directories::page;
use super::error::FilesError;
use super::mount::Mount;
use super::names::old_name;
use braid_base::InodeId;
use braid_wire::{FileCommand, FileType};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;

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
    let (mut directories, mut removals) = (Vec::new(), JoinSet::new());
    loop {
        let entries = match page(mount, inode, 0).await {
            Ok((entries, _)) => entries,
            Err(FilesError::Stale | FilesError::NotFound) => return Ok(directories),
            Err(error) => return Err(error),
        };
        let is_empty = entries.is_empty();
        for entry in entries {
            if entry.file_type == FileType::Directory {
                directories.push(Doomed { parent: inode, name: entry.name, inode: entry.inode, attempts: 0 });
                continue;
            }
            if removals.len() == REMOVALS_MAX {
                removed(removals.join_next().await)?;
            }
            let (mount, command) = (mount.clone(), FileCommand::Unlink { parent: inode, name: entry.name });
            removals.spawn(async move { mount.command(command).await.map(|_| ()) });
        }
        while let Some(joined) = removals.join_next().await {
            removed(Some(joined))?;
        }
        if is_empty || !directories.is_empty() {
            return Ok(directories);
        }
    }
}

/// The outcome of a removal. What another program has removed, or replaced by a directory, is looked at again.
fn removed(joined: Option<Result<Result<(), FilesError>, tokio::task::JoinError>>) -> Result<(), FilesError> {
    match joined {
        Some(Ok(Err(FilesError::NotFound | FilesError::IsADirectory))) | None => Ok(()),
        Some(joined) => joined.unwrap_or(Err(FilesError::Closed)),
    }
}
