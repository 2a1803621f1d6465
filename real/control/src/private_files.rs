//! Files and folders that are private to their owner, and which others are not to be used.

use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

pub const FILE_MODE: u32 = 0o600;
pub const FOLDER_MODE: u32 = 0o700;
/// What group and others need in order to change a file.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Why a file or folder is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Group or others may write it.
    #[error("can be changed by other users (mode {mode:04o}), who could make the array overwrite any file")]
    WritableByOthers { mode: u32 },
    /// Its owner is another user, who could change it at any time.
    #[error("belongs to user {owner}, and this process runs as user {user}")]
    OtherOwner { owner: u32, user: u32 },
}

impl Distrust {
    /// Why this process must not use a file or folder with this mode and owner; none if it may.
    pub(crate) fn of(mode: u32, owner: u32, user: u32) -> Option<Distrust> {
        // The superuser can change everything anyway.
        if owner != user && owner != 0 {
            return Some(Distrust::OtherOwner { owner, user });
        }
        (mode & WRITE_OF_OTHERS != 0).then_some(Distrust::WritableByOthers { mode })
    }
}

/// Why this process must not use this file or folder; none if it may.
pub(crate) fn distrust(found: &Metadata) -> Option<Distrust> {
    Distrust::of(found.mode() & 0o7777, found.uid(), rustix::process::geteuid().as_raw())
}

/// Creates a folder that is private to its owner, unless it exists. Missing folders above it are created as usual.
pub fn create_private_folder(path: &Path) -> std::io::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// The options for creating a file that is private to its owner.
pub fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.mode(FILE_MODE);
    options
}
