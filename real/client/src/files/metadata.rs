//! What a file system says about a file, and about itself.

use braid_base::BLOCK_BYTES;
use braid_wire::{FileAttributes, FileSystemStatus, FileTime, FileType};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The attributes of a file, directory or symbolic link, as they were at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(FileAttributes);

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSystemSpace {
    /// The bytes that all files may have together.
    pub size: u64,
    /// Bytes that no file has, and no mount has reserved.
    pub free: u64,
    /// Bytes that mounts have reserved for their next writes.
    pub reserved: u64,
    /// Files, directories and symbolic links.
    pub inodes: u64,
}

impl Metadata {
    /// Whether it is a regular file, a directory or a symbolic link.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// True if it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// True if it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// True if it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::SymbolicLink
    }

    /// The length of a file, or of a symbolic link's target, in bytes; the number of entries of a directory.
    #[expect(clippy::len_without_is_empty, reason = "as in std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The bytes that the file occupies, which holes do not.
    pub fn allocated(&self) -> u64 {
        self.0.blocks * BLOCK_BYTES as u64
    }

    /// The number of the inode, which no other one ever has in this file system.
    pub fn inode(&self) -> u64 {
        self.0.inode.0
    }

    /// The permission bits, at most 0o7777. They are kept for programs that enforce them: this library does not.
    pub fn mode(&self) -> u16 {
        self.0.mode
    }

    /// The number of the user that owns it.
    pub fn uid(&self) -> u32 {
        self.0.owner.uid
    }

    /// The number of the group that owns it.
    pub fn gid(&self) -> u32 {
        self.0.owner.gid
    }

    /// The number of names. A directory has two, and one for each directory in it.
    pub fn links(&self) -> u32 {
        self.0.links
    }

    /// The time of access that was set last. Reading does not change it.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// The time of the last write to a file, or of the last change of the names in a directory.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// The time of the last change of bytes or attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }
}

impl From<FileAttributes> for Metadata {
    fn from(attributes: FileAttributes) -> Metadata {
        Metadata(attributes)
    }
}

impl From<FileSystemStatus> for FileSystemSpace {
    fn from(status: FileSystemStatus) -> FileSystemSpace {
        let FileSystemStatus { blocks, free, allotted, inodes } = status;
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
        FileSystemSpace { size: bytes(blocks), free: bytes(free), reserved: bytes(allotted), inodes }
    }
}

fn system_time(FileTime(nanos): FileTime) -> SystemTime {
    let span = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 { UNIX_EPOCH - span } else { UNIX_EPOCH + span }
}

/// The time as files carry it: the nearest one that they can carry, between the years 1677 and 2262.
pub(crate) fn file_time(time: SystemTime) -> FileTime {
    let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    FileTime(match time.duration_since(UNIX_EPOCH) {
        Ok(span) => nanos(span),
        Err(before) => -nanos(before.duration()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_after_are_kept() {
        for nanos in [0, 1, -1, i64::MAX, -i64::MAX, 1_700_000_000_123_456_789] {
            assert_eq!(file_time(system_time(FileTime(nanos))), FileTime(nanos));
        }
        assert_eq!(file_time(UNIX_EPOCH + Duration::from_secs(1 << 40)), FileTime(i64::MAX));
    }
}
