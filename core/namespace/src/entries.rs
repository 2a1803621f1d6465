//! The entries of directories.
//!
//! The *cookie* of an entry is its index among the keys of its directory: a hash of its name (55 bits), then an ordinal (8 bits) among the
//! entries with this hash. An entry keeps its cookie until it is removed, or until its name is given to another inode. Therefore a list
//! can be continued behind any cookie, even one that is gone, and neither skips nor repeats an entry that stays.

use crate::keys;
use crate::records::{Parameters, decode_entry, encode_entry};
use crate::work::{Stop, Work};
use braid_base::{InodeId, limits};
use braid_objects::Key;
use braid_wire::{DirectoryEntry, FIRST_COOKIE, FileAttributes, FileError, FileResult, FileType};
use bytes::Bytes;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// The most entries of a directory whose names have the same hash.
pub const GROUP_MAX: u64 = 256;

pub fn lookup(work: &mut Work, parent: InodeId, name: &Bytes) -> Result<FileResult, Stop> {
    let entry = find(work, parent, name)?.ok_or(FileError::NoSuchName)?;
    Ok(FileResult::Attributes(entry_inode(work, &entry)?))
}

pub fn list(work: &mut Work, inode: InodeId, after: u64, most: u32) -> Result<FileResult, Stop> {
    work.directory(inode)?;
    let most = (most as usize).min(limits::FILE_ENTRIES_MAX);
    let last = keys::name(inode, u64::MAX);
    let from = after.checked_add(1).map(|cookie| keys::name(inode, cookie));
    let (found, more) = work.map.some_of(from, last, most)?;
    let entries = found.iter().map(|(key, value)| decode_entry(*key, value)).collect::<Result<_, _>>()?;
    Ok(FileResult::Entries { entries, more })
}

pub fn find(work: &mut Work, parent: InodeId, name: &Bytes) -> Result<Option<DirectoryEntry>, Stop> {
    work.directory(parent)?;
    Ok(group(work, parent, name)?.entries.into_iter().find(|entry| entry.name == *name))
}

/// The attributes of the inode that an entry refers to. If there is none, the directory is damaged.
pub fn entry_inode(work: &mut Work, entry: &DirectoryEntry) -> Result<FileAttributes, Stop> {
    work.attributes(entry.inode).map_err(|stop| match stop {
        Stop::Fails(FileError::Stale) => Stop::Fails(FileError::Lost),
        other => other,
    })
}

/// Adds an entry for a name that does not exist.
pub fn insert(work: &mut Work, parent: InodeId, name: &Bytes, inode: InodeId, file_type: FileType) -> Result<(), Stop> {
    let Group { first, entries } = group(work, parent, name)?;
    let is_free = |cookie: &u64| entries.iter().all(|entry| entry.cookie != *cookie);
    let cookie = (first..first + GROUP_MAX).find(is_free).ok_or(FileError::DirectoryFull)?;
    // The name is copied, because it outlives the request: a slice would keep the whole frame of the request in memory.
    let name = Bytes::copy_from_slice(name);
    let entry = DirectoryEntry { cookie, inode, file_type, name };
    work.map.put(keys::name(parent, cookie), Some(encode_entry(&entry)));
    count(work, parent, 1, directories(file_type))
}

/// Gives the name of an entry to another inode. Both are directories, or none of them is. The entry keeps its cookie.
pub fn replace(
    work: &mut Work,
    parent: InodeId,
    entry: &DirectoryEntry,
    inode: InodeId,
    file_type: FileType,
) -> Result<(), Stop> {
    let entry_now = DirectoryEntry { inode, file_type, ..entry.clone() };
    work.map.put(keys::name(parent, entry.cookie), Some(encode_entry(&entry_now)));
    count(work, parent, 0, 0)
}

pub fn remove(work: &mut Work, parent: InodeId, entry: &DirectoryEntry) -> Result<(), Stop> {
    work.map.put(keys::name(parent, entry.cookie), None);
    count(work, parent, -1, -directories(entry.file_type))
}

/// The lowest possible cookie of a name.
pub fn first_cookie(parameters: &Parameters, name: &Bytes) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&parameters.hash_key);
    hasher.write(name);
    let hash = hasher.finish() & ((1 << parameters.hash_bits) - 1);
    // Cookies below the first one are left to the hosts.
    hash.max(FIRST_COOKIE / GROUP_MAX) * GROUP_MAX
}

fn directories(file_type: FileType) -> i32 {
    i32::from(file_type == FileType::Directory)
}

/// Changes the number of entries of a directory, and of directories among them. The directory was modified now.
fn count(work: &mut Work, parent: InodeId, entries: i64, directories: i32) -> Result<(), Stop> {
    let mut attributes = work.directory(parent)?;
    attributes.size = attributes.size.checked_add_signed(entries).ok_or(FileError::Lost)?;
    attributes.links = attributes.links.checked_add_signed(directories).ok_or(FileError::Lost)?;
    if directories > 0 && attributes.links > limits::LINKS_MAX && !work.is_decided {
        return Err(FileError::TooManyLinks.into());
    }
    attributes.mtime = work.context.now;
    attributes.ctime = work.context.now;
    work.put_attributes(attributes)
}

/// The entries of a directory whose names have the same hash.
#[derive(Clone, Debug)]
struct Group {
    /// The lowest possible cookie of the group.
    first: u64,
    entries: Vec<DirectoryEntry>,
}

fn group(work: &mut Work, parent: InodeId, name: &Bytes) -> Result<Group, Stop> {
    let first = first_cookie(&work.parameters()?, name);
    let last: Key = keys::name(parent, first + GROUP_MAX - 1);
    let (found, _) = work.map.some_of(Some(keys::name(parent, first)), last, GROUP_MAX as usize)?;
    let entries = found.iter().map(|(key, value)| decode_entry(*key, value)).collect::<Result<_, _>>()?;
    Ok(Group { first, entries })
}
