//! Creation of inodes, their links and their removal, and their attributes.

use crate::entries;
use crate::keys;
use crate::records::{Inode, Shards, mark};
use crate::work::{Stop, Work, sum};
use braid_base::{InodeId, ShardId, limits};
use braid_wire::{
    AttributeChange, DirectoryEntry, FileAttributes, FileError, FileResult, FileTime, FileType, NewInode, NewTime,
    Owner,
};
use bytes::Bytes;

/// New inodes in a directory with this mode bit have the directory's group, and directories the bit, too.
const SET_GROUP: u16 = 0o2000;

/// An inode to create.
pub struct New<'a> {
    pub node: &'a NewInode,
    pub owner: Owner,
    pub mode: u16,
}

impl New<'_> {
    /// With what it inherits from its directory.
    pub fn below(mut self, directory: &FileAttributes) -> Self {
        if directory.mode & SET_GROUP != 0 {
            self.owner.gid = directory.owner.gid;
            if matches!(self.node, NewInode::Directory) {
                self.mode |= SET_GROUP;
            }
        }
        self
    }
}

pub fn read_link(work: &mut Work, inode: InodeId) -> Result<FileResult, Stop> {
    let Inode { attributes, target } = work.inode(inode)?;
    match attributes.file_type {
        FileType::SymbolicLink => Ok(FileResult::Target(target)),
        _ => Err(FileError::NotALink.into()),
    }
}

pub fn create(work: &mut Work, parent: InodeId, name: &Bytes, new: New, exclusive: bool) -> Result<FileResult, Stop> {
    if let Some(entry) = find_or_admit(work, parent, name)? {
        if exclusive || *new.node != NewInode::Regular {
            return Err(FileError::Exists.into());
        }
        if entry.file_type == FileType::Directory {
            return Err(FileError::IsADirectory.into());
        }
        let attributes = entries::entry_inode(work, &entry)?;
        return Ok(FileResult::Created { attributes, is_new: false });
    }
    work.grow()?;
    let mut counters = work.counters()?;
    let shards = work.parameters()?.shards;
    let last = if shards == Shards::ONE { limits::INODE_MAX } else { shards.own.base() + MADE - 1 };
    if counters.last_inode >= last {
        return Err(FileError::NoSpace.into());
    }
    counters.last_inode += 1;
    counters.inodes = sum(counters.inodes, 1)?;
    work.put_counters(counters);
    let new = new.below(&work.directory(parent)?);
    let inode = new_inode(InodeId(counters.last_inode), parent, &new, work.context.now);
    work.put_inode(&inode);
    entries::insert(work, parent, name, inode.attributes.inode, inode.attributes.file_type)?;
    Ok(FileResult::Created { attributes: inode.attributes, is_new: true })
}

/// Inodes that a shard makes for names in other shards have this bit in their numbers. Their numbers are chosen before it is decided whether
/// they are made, so they must not be those of other inodes.
pub const MADE: u64 = 1 << (ShardId::SHIFT - 1);

/// An inode with one name; for a directory, this is the second of its links.
pub fn new_inode(inode: InodeId, parent: InodeId, new: &New, now: FileTime) -> Inode {
    let file_type = new.node.file_type();
    let is_directory = file_type == FileType::Directory;
    let target = Bytes::copy_from_slice(new.node.target());
    let attributes = FileAttributes {
        inode,
        file_type,
        mode: new.mode,
        owner: new.owner,
        links: if is_directory { 2 } else { 1 },
        size: target.len() as u64,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        parent: is_directory.then_some(parent),
        device: new.node.device(),
    };
    Inode { attributes, target }
}

pub fn link(work: &mut Work, inode: InodeId, parent: InodeId, name: &Bytes) -> Result<FileResult, Stop> {
    let mut attributes = work.attributes(inode)?;
    if attributes.file_type == FileType::Directory {
        return Err(FileError::LinkToDirectory.into());
    }
    if find_or_admit(work, parent, name)?.is_some() {
        return Err(FileError::Exists.into());
    }
    check_may_gain_name(&attributes)?;
    work.grow()?;
    entries::insert(work, parent, name, inode, attributes.file_type)?;
    attributes.links += 1;
    attributes.ctime = work.context.now;
    work.put_attributes(attributes)?;
    Ok(FileResult::Attributes(attributes))
}

/// Fails if the inode can't have one more name.
pub fn check_may_gain_name(attributes: &FileAttributes) -> Result<(), FileError> {
    match attributes {
        FileAttributes { file_type: FileType::Directory, .. } => Err(FileError::LinkToDirectory),
        // An orphan stays one: a host may just have found out that nobody has it open.
        FileAttributes { links: 0, .. } => Err(FileError::NoSuchName),
        FileAttributes { links: limits::LINKS_MAX.., .. } => Err(FileError::TooManyLinks),
        _ => Ok(()),
    }
}

/// Removes a name: that of a directory, or that of another inode.
pub fn remove(work: &mut Work, parent: InodeId, name: &Bytes, is_directory: bool) -> Result<FileResult, Stop> {
    let entry = entries::find(work, parent, name)?.ok_or(FileError::NoSuchName)?;
    may_replace(is_directory, entry.file_type, || Ok(entries::entry_inode(work, &entry)?.size))?;
    entries::remove(work, parent, &entry)?;
    Ok(FileResult::Removed(lose_name_of(work, &entry)?))
}

pub fn set_attributes(work: &mut Work, inode: InodeId, change: &AttributeChange) -> Result<FileResult, Stop> {
    let mut attributes = work.attributes(inode)?;
    let now = work.context.now;
    let time = |new: NewTime| match new {
        NewTime::Now => now,
        NewTime::At(time) => time,
    };
    attributes.mode = change.mode.unwrap_or(attributes.mode);
    attributes.owner.uid = change.uid.unwrap_or(attributes.owner.uid);
    attributes.owner.gid = change.gid.unwrap_or(attributes.owner.gid);
    attributes.atime = change.atime.map_or(attributes.atime, time);
    attributes.mtime = change.mtime.map_or(attributes.mtime, time);
    attributes.ctime = now;
    work.put_attributes(attributes)?;
    Ok(FileResult::Attributes(attributes))
}

/// Fails if the inode of a name may not give way to another one, or to none: a directory gives way only to a directory, and only if it has
/// no `entries`; any other inode gives way to no directory.
pub fn may_replace(
    is_directory: bool,
    replaced: FileType,
    entries: impl FnOnce() -> Result<u64, Stop>,
) -> Result<(), Stop> {
    match (is_directory, replaced == FileType::Directory) {
        (true, false) => Err(FileError::NotADirectory.into()),
        (false, true) => Err(FileError::IsADirectory.into()),
        (true, true) if entries()? > 0 => Err(FileError::NotEmpty.into()),
        _ => Ok(()),
    }
}

/// The entry of a name, or `None` if the directory may get one: a directory that was removed may not.
pub fn find_or_admit(work: &mut Work, parent: InodeId, name: &Bytes) -> Result<Option<DirectoryEntry>, Stop> {
    let entry = entries::find(work, parent, name)?;
    if work.directory(parent)?.links == 0 {
        return Err(FileError::NoSuchName.into());
    }
    Ok(entry)
}

/// Takes note that the inode of an entry has lost this name.
pub fn lose_name_of(work: &mut Work, entry: &DirectoryEntry) -> Result<FileAttributes, Stop> {
    let attributes = entries::entry_inode(work, entry)?;
    lose_name(work, attributes)
}

/// Takes note that an inode has lost a name. A directory has no other one. An inode without names becomes an orphan, which exists until it is
/// reclaimed.
pub fn lose_name(work: &mut Work, mut attributes: FileAttributes) -> Result<FileAttributes, Stop> {
    attributes.links = match attributes.file_type {
        FileType::Directory => 0,
        _ => attributes.links.checked_sub(1).ok_or(FileError::Lost)?,
    };
    attributes.ctime = work.context.now;
    if attributes.links == 0 {
        work.map.put(keys::reclaim(attributes.inode), Some(mark()));
    }
    work.put_attributes(attributes)?;
    Ok(attributes)
}
