//! How a file is opened.

use super::Files;
use super::error::FilesError;
use super::file::{Access, File};
use super::mount::{Mount, OpenFile};
use super::names::FILE_MODE;
use super::path::Walk;
use braid_machine::FilesRequest;
use braid_wire::{FileAttributes, FileType, NewInode, Owner};
use std::path::Path;

/// How to open a file. Without any option, it is opened for nothing but its metadata and locks.
///
/// ```
/// use braid_client::OpenOptions;
/// let log = OpenOptions::new().append(true).create(true).mode(0o600);
/// # let _ = log;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    access: Access,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u16,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { access: Access::default(), truncate: false, create: false, create_new: false, mode: FILE_MODE }
    }
}

impl OpenOptions {
    /// No option is set.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether the file can be read.
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.access.read = read;
        self
    }

    /// Whether the file can be written.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.access.write = write;
        self
    }

    /// Whether bytes can be appended, and only that, unless [`OpenOptions::write`] is set too.
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.access.append = append;
        self
    }

    /// Whether the file is made empty when it is opened. It needs [`OpenOptions::write`].
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Whether the file is created if it does not exist.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Whether the file is created, and opening fails if the name exists, even if it is that of a symbolic link.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// The permission bits of a file that is created; 0o644 by default.
    pub fn mode(mut self, mode: u16) -> OpenOptions {
        self.mode = mode;
        self
    }
}

impl Files {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`FilesError::NotFound`]; [`FilesError::Exists`] with [`OpenOptions::create_new`]; [`FilesError::IsADirectory`];
    /// [`FilesError::NotWritable`] if it is to be truncated, but not written.
    pub async fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, FilesError> {
        let access = options.access;
        if options.truncate && !access.write {
            return Err(FilesError::NotWritable);
        }
        let owner = self.owner;
        let opened =
            self.at_path(path, move |mount, path| async move { open(&mount, &path, options, owner).await }).await?;
        Ok(File::new(self.clone(), opened, access))
    }
}

async fn open(mount: &Mount, path: &Path, options: OpenOptions, owner: Owner) -> Result<OpenFile, FilesError> {
    let (found, is_new) = if options.create || options.create_new {
        create(mount, path, options, owner).await?
    } else {
        (Walk::new(mount, path).resolve(true).await?, false)
    };
    if found.file_type == FileType::Directory {
        return Err(FilesError::IsADirectory);
    }
    // If it was removed meanwhile, the path is resolved again.
    let (open, attributes) = mount.open(found.inode).await?;
    if options.truncate && !is_new && attributes.size > 0 {
        mount.ask_for_nothing(FilesRequest::Truncate { inode: found.inode, size: 0 }).await?;
    }
    Ok(open)
}

/// The file that the path names, which is created if there is none.
async fn create(
    mount: &Mount,
    path: &Path,
    options: OpenOptions,
    owner: Owner,
) -> Result<(FileAttributes, bool), FilesError> {
    let mut walk = Walk::new(mount, path);
    loop {
        let name = match walk.last_component().await? {
            Some(name) if !walk.ends_in_slash => name,
            Some(_) => return Err(FilesError::IsADirectory),
            None if options.create_new => return Err(FilesError::Exists),
            None => return Err(FilesError::IsADirectory),
        };
        match mount.create((walk.at, name), NewInode::Regular, options.create_new, (owner, options.mode)).await {
            Ok((found, false)) if found.file_type == FileType::SymbolicLink => walk.follow(found.inode).await?,
            // It is a directory, or was a moment ago.
            Err(FilesError::Exists) if !options.create_new => return Err(FilesError::IsADirectory),
            outcome => return outcome,
        }
    }
}
