//! Operations on names and attributes.

use super::Files;
use super::error::FilesError;
use super::metadata::{FileSystemSpace, Metadata, file_time};
use super::mount::Mount;
use super::path::Walk;
use braid_base::InodeId;
use braid_wire::{AttributeChange, FileCommand, FileResult, FileType, NewInode, NewTime};
use bytes::Bytes;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The permission bits of new files.
pub(super) const FILE_MODE: u16 = 0o644;
/// The permission bits of new directories.
pub(super) const DIRECTORY_MODE: u16 = 0o755;
/// The permission bits of symbolic links, which nobody looks at.
const LINK_MODE: u16 = 0o777;

impl Files {
    /// The attributes of what the path names, or of the target if that is a symbolic link.
    ///
    /// # Errors
    /// [`FilesError::NotFound`], [`FilesError::NotADirectory`], [`FilesError::TooManySymbolicLinks`], as for every path.
    pub async fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, FilesError> {
        self.at_path(path, |mount, path| async move { stat(&mount, &path, true).await }).await
    }

    /// The attributes of what the path names, without following a symbolic link at its end.
    ///
    /// # Errors
    /// Those of [`Files::metadata`].
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, FilesError> {
        self.at_path(path, |mount, path| async move { stat(&mount, &path, false).await }).await
    }

    /// Creates an empty file, and fails if the name exists. This is cheaper than to open and close it.
    ///
    /// # Errors
    /// [`FilesError::Exists`], also for a symbolic link; [`FilesError::NoSpace`].
    pub async fn create_file(&self, path: impl AsRef<Path>) -> Result<Metadata, FilesError> {
        self.create(path, NewInode::Regular, FILE_MODE).await
    }

    /// Creates a directory, whose permission bits are 0o755.
    ///
    /// # Errors
    /// [`FilesError::Exists`]; [`FilesError::NotFound`] if its parent does not exist.
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        self.create(path, NewInode::Directory, DIRECTORY_MODE).await.map(|_| ())
    }

    /// Creates a symbolic link with this target, which need not exist.
    ///
    /// # Errors
    /// [`FilesError::Exists`]; [`FilesError::NameTooLong`] if the target has more than 4095 bytes; [`FilesError::InvalidName`] if it is
    /// empty.
    pub async fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), FilesError> {
        let target = Bytes::copy_from_slice(target.as_ref().as_os_str().as_bytes());
        self.create(link, NewInode::SymbolicLink { target }, LINK_MODE).await.map(|_| ())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FilesError::NotALink`].
    pub async fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, FilesError> {
        let target = self.at_path(path, |mount, path| async move {
            let found = Walk::new(&mount, &path).resolve(false).await?;
            mount.read_link(found.inode).await
        });
        Ok(PathBuf::from(OsString::from_vec(target.await?.to_vec())))
    }

    /// Gives a file a further name. A symbolic link at the end of `original` is not followed: it gets the further name itself.
    ///
    /// # Errors
    /// [`FilesError::Exists`]; [`FilesError::LinkToDirectory`]; [`FilesError::TooManyLinks`].
    pub async fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), FilesError> {
        let link = link.as_ref().to_path_buf();
        let linked = self.at_path(original, move |mount, path| {
            let link = link.clone();
            async move {
                let inode = Walk::new(&mount, &path).resolve(false).await?.inode;
                let (parent, name) = new_name(&mount, &link, false).await?;
                mount.command(FileCommand::Link { inode, parent, name }).await
            }
        });
        linked.await.map(|_| ())
    }

    /// Removes a name of a file or symbolic link. The file exists until its last name is removed and no mount has it open.
    ///
    /// # Errors
    /// [`FilesError::NotFound`]; [`FilesError::IsADirectory`].
    pub async fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let removed = self.at_path(path, |mount, path| async move {
            let (parent, name, slash) = old_name(&mount, &path).await?;
            if slash && mount.lookup(parent, name.clone()).await?.file_type != FileType::Directory {
                return Err(FilesError::NotADirectory);
            }
            mount.command(FileCommand::Unlink { parent, name }).await
        });
        removed.await.map(|_| ())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FilesError::NotEmpty`]; [`FilesError::NotADirectory`]; [`FilesError::InvalidName`] for the root.
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let removed = self.at_path(path, |mount, path| async move {
            let (parent, name, _) = old_name(&mount, &path).await?;
            mount.command(FileCommand::RemoveDirectory { parent, name }).await
        });
        removed.await.map(|_| ())
    }

    /// Moves a name. If the new name exists, it is replaced, in the same moment: a file or symbolic link by another one, an empty directory
    /// by a directory. If both names are of the same file, nothing happens.
    ///
    /// # Errors
    /// [`FilesError::NotEmpty`], [`FilesError::IsADirectory`] and [`FilesError::NotADirectory`] if the new name can't be replaced;
    /// [`FilesError::IntoItself`].
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), FilesError> {
        self.move_name(from, to, false).await
    }

    /// Moves a name, and fails if the new name exists.
    ///
    /// # Errors
    /// [`FilesError::Exists`]; otherwise those of [`Files::rename`].
    pub async fn rename_no_replace(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), FilesError> {
        self.move_name(from, to, true).await
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// [`FilesError::InvalidArgument`] if they are above 0o7777.
    pub async fn set_permissions(&self, path: impl AsRef<Path>, mode: u16) -> Result<(), FilesError> {
        self.set(path, AttributeChange { mode: Some(mode), ..AttributeChange::default() }).await
    }

    /// Sets the times of the last access and of the last write; `None` leaves one as it is. They are kept in nanoseconds.
    ///
    /// # Errors
    /// Those of [`Files::metadata`].
    pub async fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), FilesError> {
        let at = |time: Option<SystemTime>| time.map(|time| NewTime::At(file_time(time)));
        let (atime, mtime) = (at(accessed), at(modified));
        self.set(path, AttributeChange { atime, mtime, ..AttributeChange::default() }).await
    }

    /// The space of the file system.
    ///
    /// # Errors
    /// [`FilesError::TimedOut`] while no metadata server answers.
    pub async fn space(&self) -> Result<FileSystemSpace, FilesError> {
        let mount = self.mount.clone();
        self.run(async move {
            let status = mount.command(FileCommand::StatFileSystem).await?;
            expected!(status, FileResult::FileSystem(status) => status.into())
        })
        .await
    }

    async fn create(&self, path: impl AsRef<Path>, node: NewInode, mode: u16) -> Result<Metadata, FilesError> {
        let owner = self.owner;
        self.at_path(path, move |mount, path| {
            let node = node.clone();
            async move {
                let name = new_name(&mount, &path, node == NewInode::Directory).await?;
                let (attributes, _) = mount.create(name, node, true, (owner, mode)).await?;
                Ok(attributes.into())
            }
        })
        .await
    }

    async fn set(&self, path: impl AsRef<Path>, change: AttributeChange) -> Result<(), FilesError> {
        let set = self.at_path(path, move |mount, path| async move {
            let inode = Walk::new(&mount, &path).resolve(true).await?.inode;
            mount.command(FileCommand::SetAttributes { inode, change }).await
        });
        set.await.map(|_| ())
    }

    async fn move_name(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        no_replace: bool,
    ) -> Result<(), FilesError> {
        let to = to.as_ref().to_path_buf();
        let moved = self.at_path(from, move |mount, path| {
            let to = to.clone();
            async move {
                let (parent, name, slash) = old_name(&mount, &path).await?;
                let (new_parent, new_name, new_slash) = old_name(&mount, &to).await?;
                if (slash || new_slash) && mount.lookup(parent, name.clone()).await?.file_type != FileType::Directory {
                    return Err(FilesError::NotADirectory);
                }
                mount.command(FileCommand::Rename { parent, name, new_parent, new_name, no_replace }).await
            }
        });
        moved.await.map(|_| ())
    }
}

async fn stat(mount: &Mount, path: &Path, follows: bool) -> Result<Metadata, FilesError> {
    let found = Walk::new(mount, path).resolve(follows).await?;
    // The size and the times are those after the last write of this mount.
    Ok(mount.stat(found.inode).await?.into())
}

/// The directory and the name that a path ends with, which may exist; and whether it ends in a slash.
pub(super) async fn old_name(mount: &Mount, path: &Path) -> Result<(InodeId, Bytes, bool), FilesError> {
    let mut walk = Walk::new(mount, path);
    let name = walk.last_component().await?.ok_or(FilesError::InvalidName)?;
    Ok((walk.at, name, walk.ends_in_slash))
}

/// The directory and the name that a path ends with, which is to be created.
async fn new_name(mount: &Mount, path: &Path, for_directory: bool) -> Result<(InodeId, Bytes), FilesError> {
    let mut walk = Walk::new(mount, path);
    match walk.last_component().await? {
        // Only directories have such paths.
        None => Err(FilesError::Exists),
        Some(_) if walk.ends_in_slash && !for_directory => Err(FilesError::IsADirectory),
        Some(name) => Ok((walk.at, name)),
    }
}
