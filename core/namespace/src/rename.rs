//! Renaming: a name moves from one directory to another, or within one, and may replace another name.

use crate::entries;
use crate::inodes::{find_or_admit, lose_name_of, may_replace};
use crate::work::{Stop, Work};
use braid_base::{InodeId, limits};
use braid_wire::{FileAttributes, FileError, FileResult, FileType};
use bytes::Bytes;

/// Moves the name `from` to the name `to`; each is a directory and a name in it.
pub fn rename(
    work: &mut Work,
    from: (InodeId, &Bytes),
    to: (InodeId, &Bytes),
    no_replace: bool,
) -> Result<FileResult, Stop> {
    let source = entries::find(work, from.0, from.1)?.ok_or(FileError::NoSuchName)?;
    let target = find_or_admit(work, to.0, to.1)?;
    let is_directory = source.file_type == FileType::Directory;
    if is_directory && from.0 != to.0 {
        check_no_cycle(work, source.inode, to.0)?;
    }
    match &target {
        Some(_) if no_replace => return Err(FileError::Exists.into()),
        Some(target) if target.inode == source.inode => {
            let moved = entries::entry_inode(work, &source)?;
            return Ok(FileResult::Renamed { moved, replaced: None });
        }
        Some(target) => may_replace(is_directory, target.file_type, || Ok(entries::entry_inode(work, target)?.size))?,
        None => {}
    }
    work.grow()?;
    entries::remove(work, from.0, &source)?;
    let replaced = match &target {
        Some(target) => {
            entries::replace(work, to.0, target, source.inode, source.file_type)?;
            Some(lose_name_of(work, target)?)
        }
        None => {
            entries::insert(work, to.0, to.1, source.inode, source.file_type)?;
            None
        }
    };
    // The attributes are read only now: the inode may be one of the two directories.
    let attributes = entries::entry_inode(work, &source)?;
    let parent = is_directory.then_some(to.0);
    let moved = FileAttributes { parent, ctime: work.context.now, ..attributes };
    work.put_attributes(moved)?;
    Ok(FileResult::Renamed { moved, replaced })
}

/// A directory must not become a descendant of itself.
fn check_no_cycle(work: &mut Work, moved: InodeId, new_parent: InodeId) -> Result<(), Stop> {
    let mut ancestor = new_parent;
    for _ in 0..limits::DIRECTORY_DEPTH_MAX {
        if ancestor == moved {
            return Err(FileError::IntoItself.into());
        }
        if ancestor == InodeId::ROOT {
            return Ok(());
        }
        ancestor = work.directory(ancestor)?.parent.ok_or(FileError::Lost)?;
    }
    Err(FileError::TooDeep.into())
}
