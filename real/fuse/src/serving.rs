//! What each request of the kernel asks of the file system.

use crate::abi::{F_RDLCK, F_UNLCK, F_WRLCK, FileLock, LseekIn, SEEK_DATA, SEEK_HOLE, SetattrIn, flag};
use crate::decode::{LockRequest, Operation};
use crate::encode::{Listing, Reply, file_time, type_bits};
use crate::kernel_cache::{Asked, KernelCache};
use crate::lock_owners::LockOwners;
use crate::moved::Parents;
use crate::negotiation::IO_BYTES_MAX;
use crate::operations::wrong_result;
use crate::{Caller, HostFiles, OpenFile, Result, WriteAt};
use braid_base::{InodeId, limits};
use braid_machine::{AdvisoryOwner, FileHandle, FilesRequest, FilesSuccess};
use braid_wire::{
    AttributeChange, FIRST_COOKIE, FileAttributes, FileCommand, FileResult, FileType, LockMode, NewInode, NewTime,
    SpecialType,
};
use bytes::Bytes;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;
use tokio::time::timeout;

/// The bits of a mode that are no permissions.
const TYPE_BITS: u32 = 0o170_000;
const PERMISSIONS: u32 = 0o7777;
/// The permissions of symbolic links are never checked.
const LINK_MODE: u16 = 0o777;
const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;
const OWNER_READS: u16 = 0o400;
const OWNER_WRITES: u16 = 0o200;
/// How often a file is created or opened while others remove and create it.
const CREATE_ATTEMPTS: u32 = 16;
/// How often attributes are asked for again because later ones were answered meanwhile.
const OVERTAKEN_MAX: usize = 8;
/// How long attributes wait for the kernel to learn the size.
const SIZE_WITHIN: Duration = Duration::from_secs(1);
/// The cookies of `.` and `..`.
const SELF_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;
/// Locks of whole files, by `flock`, are locks on the last byte that a file can have. Locks by `fcntl` end before it, so that the kinds do
/// not conflict.
const FILE_LOCK: Range<u64> = limits::FILE_BYTES_MAX - 1..limits::FILE_BYTES_MAX;

#[derive(Debug)]
pub struct Serving<'a> {
    pub file_system: &'a HostFiles,
    pub owners: LockOwners,
    pub kernel: &'a KernelCache,
    pub parents: &'a Parents,
}

impl Serving<'_> {
    /// Serves the request of this number. The kernel cache is told by the caller when a read for pages is answered.
    pub async fn serve(&self, by: &Caller, inode: InodeId, unique: u64, operation: Operation) -> Reply {
        let asked = self.kernel.ask(inode);
        let mut served = match operation {
            Operation::Read { handle, offset, length, for_pages: true } => {
                self.read_pages(by, (inode, unique), OpenFile(handle), offset, length as usize).await
            }
            operation => self.try_serve(by, inode, operation).await,
        };
        match &mut served {
            Ok(Reply::Entry(found)) => {
                self.parents.tell(found);
                self.tell_size(by, (inode, asked), found).await;
            }
            Ok(Reply::Created(found, _)) => self.tell_size(by, (inode, asked), found).await,
            Ok(Reply::Attributes(found)) => {
                self.parents.follow(self.file_system, by, found).await;
                self.tell_size(by, (inode, asked), found).await;
            }
            _ => {}
        }
        served.unwrap_or_else(Reply::Error)
    }

    /// The kernel is about to be told attributes. If it will discard them, and may take the file to be shorter, it learns the size otherwise:
    /// a program that has asked for the size reads up to there through pages.
    async fn tell_size(&self, by: &Caller, (of, mut asked): (InodeId, Asked), found: &mut FileAttributes) {
        let inode = found.inode;
        for _ in 0..OVERTAKEN_MAX {
            if !self.kernel.is_overtaken(inode, asked) {
                break;
            }
            asked = self.kernel.ask_again(asked);
            let Ok(newer) = self.file_system.attributes(by, inode, None).await else { break };
            *found = newer;
        }
        if let Some(file) = self.kernel.lags(inode, asked, found.size) {
            let look = async {
                if let Ok((size, Some(last))) = self.file_system.tail(by, file).await {
                    self.kernel.lengthen(inode, size, last).await;
                }
            };
            // The host of the last writer may be away.
            let _ = timeout(SIZE_WITHIN, look).await;
        }
        self.kernel.told(inode, found.size, asked, of == inode);
    }

    /// Reads for pages that the kernel keeps.
    async fn read_pages(
        &self,
        by: &Caller,
        (inode, unique): (InodeId, u64),
        file: OpenFile,
        offset: u64,
        length: usize,
    ) -> Result<Reply> {
        let is_first = self.kernel.begin(inode, unique, (offset, length as u64));
        if length > IO_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        // The size may have changed since the kernel learned it. From now on it is followed.
        if is_first
            && let (size, Some(last)) = self.file_system.tail(by, file).await?
            && !(offset..offset.saturating_add(length as u64)).contains(&(size - 1))
        {
            self.kernel.lengthen(inode, size, last).await;
        }
        let data = self.file_system.read(by, file, (offset, length), true).await?;
        let read = data.iter().map(Bytes::len).sum::<usize>();
        if read < length {
            self.kernel.check(inode, unique, (read, length)).await?;
        }
        Ok(Reply::Data(data))
    }

    /// A file was opened with these flags.
    fn opened(&self, inode: InodeId, file: OpenFile, flags: u32) {
        let flags = OFlags::from_bits_retain(flags);
        if !flags.contains(OFlags::WRONLY) {
            self.kernel.opened(inode, file);
        }
        if flags.contains(OFlags::TRUNC) {
            self.kernel.told(inode, 0, self.kernel.ask(inode), false);
        }
    }

    /// The kernel has had another answer, since the program that asked is ending. Nobody has what was opened. `changes_bytes`: the kernel has
    /// not learned that bytes may be others now.
    pub async fn end_without_program(&self, inode: InodeId, reply: Reply, changes_bytes: bool) {
        let (inode, opened) = match reply {
            Reply::Opened(handle) => (inode, Some(handle)),
            Reply::Created(attributes, handle) => (attributes.inode, Some(handle)),
            _ => (inode, None),
        };
        if changes_bytes && let Some(file) = self.kernel.follower(inode) {
            self.kernel.drop_pages(inode).await;
            if let Ok((size, Some(last))) = self.file_system.tail(&Caller::default(), file).await {
                self.kernel.lengthen_after_reads(inode, size, last).await;
            }
        }
        if let Some(handle) = opened {
            // The file is closed all the same.
            let _ = self.serve_file(&Caller::default(), inode, Operation::Release(handle)).await;
        }
    }

    async fn try_serve(&self, by: &Caller, inode: InodeId, operation: Operation) -> Result<Reply> {
        let fs = self.file_system;
        // Creates an inode, whose owner is the caller. The name must not exist.
        let make = |name, node, mode| {
            let (parent, owner) = (inode, by.owner);
            FileCommand::Create { parent, name, node, exclusive: true, owner, mode }
        };
        let reply = match operation {
            Operation::Lookup(name) => Reply::Entry(fs.entry(by, FileCommand::Lookup { parent: inode, name }).await?),
            Operation::GetAttributes(handle) => match fs.attributes(by, inode, handle.map(OpenFile)).await {
                // A directory that was removed stays open, and has no names any more.
                Err(Errno::STALE) => Reply::Attributes(self.parents.removed(inode).ok_or(Errno::STALE)?),
                found => Reply::Attributes(found?),
            },
            Operation::SetAttributes(change) => {
                let through = (change.valid & flag::FATTR_FH != 0).then_some(OpenFile(change.fh));
                let (change, size) = change_of(&change);
                if let (Some(file), Some(size)) = (through, size)
                    && self.kernel.is_set_by_kernel(inode, file, size)
                {
                    return Ok(Reply::Attributes(fs.attributes(by, inode, through).await?));
                }
                Reply::Attributes(fs.set_attributes(by, inode, through, change, size).await?)
            }
            Operation::ReadLink => match fs.command(by, FileCommand::ReadLink { inode }).await? {
                FileResult::Target(target) => Reply::Data(vec![target]),
                _ => return Err(wrong_result()),
            },
            Operation::SymbolicLink { name, target } => {
                Reply::Entry(fs.entry(by, make(name, NewInode::SymbolicLink { target }, LINK_MODE)).await?)
            }
            Operation::MakeNode { mode, device, name } => {
                Reply::Entry(fs.entry(by, make(name, node(mode, device)?, permissions(mode))).await?)
            }
            Operation::MakeDirectory { mode, name } => {
                Reply::Entry(fs.entry(by, make(name, NewInode::Directory, permissions(mode))).await?)
            }
            Operation::Unlink(name) => done(fs.of_names(by, FileCommand::Unlink { parent: inode, name }).await)?,
            Operation::RemoveDirectory(name) => {
                done(fs.of_names(by, FileCommand::RemoveDirectory { parent: inode, name }).await)?
            }
            Operation::Rename { new_parent, flags, name, new_name } => {
                let no_replace = RenameFlags::NOREPLACE.bits();
                if flags & !no_replace != 0 {
                    return Err(Errno::INVAL);
                }
                let (parent, new_parent, no_replace) = (inode, InodeId(new_parent), flags == no_replace);
                done(fs.of_names(by, FileCommand::Rename { parent, name, new_parent, new_name, no_replace }).await)?
            }
            Operation::Link { inode: linked, name } => {
                let link = FileCommand::Link { inode: InodeId(linked), parent: inode, name };
                Reply::Entry(fs.entry(by, link).await?)
            }
            Operation::OpenDirectory => Reply::DirectoryOpened,
            Operation::ReadDirectory { offset, room } => self.read_directory(by, inode, offset, room).await?,
            Operation::ListAttributes(0) => Reply::NoAttributes,
            Operation::ListAttributes(_) => Reply::Data(Vec::new()),
            Operation::ReleaseDirectory | Operation::SyncDirectory => Reply::Done,
            Operation::StatFileSystem => Reply::Status(fs.status(by).await?),
            operation => self.serve_file(by, inode, operation).await?,
        };
        Ok(reply)
    }

    /// Requests about open files.
    async fn serve_file(&self, by: &Caller, inode: InodeId, operation: Operation) -> Result<Reply> {
        let fs = self.file_system;
        let reply = match operation {
            Operation::Open(flags) => {
                let file = self.open(by, inode, flags).await?;
                self.opened(inode, file, flags);
                Reply::Opened(file.0)
            }
            Operation::Create { flags, mode, name } => self.create(by, inode, flags, mode, name).await?,
            Operation::Read { handle, offset, length, .. } => {
                let length = length as usize;
                if length > IO_BYTES_MAX {
                    return Err(Errno::INVAL);
                }
                Reply::Data(fs.read(by, OpenFile(handle), (offset, length), false).await?)
            }
            Operation::Seek(LseekIn { fh, offset, whence, .. }) => {
                let data = fs.next_data(by, OpenFile(fh), offset).await?;
                Reply::Found(match whence {
                    SEEK_HOLE if offset < data.start => offset,
                    SEEK_DATA | SEEK_HOLE if data.is_empty() => return Err(Errno::NXIO),
                    SEEK_DATA => data.start,
                    SEEK_HOLE => data.end,
                    _ => return Err(Errno::INVAL),
                })
            }
            Operation::Write { handle, offset, flags, loses_privileges, data } => {
                // The offset of an append is what the kernel takes for the end of the file.
                let at = if flags & OFlags::APPEND.bits() != 0 { WriteAt::End } else { WriteAt::Offset(offset) };
                let length = data.len();
                let file = OpenFile(handle);
                let written = match loses_privileges {
                    true => self.write_without_privileges(by, inode, file, at, data).await,
                    false => fs.write(by, file, at, data).await,
                };
                if written.is_err() {
                    self.before_failure(inode, file).await;
                }
                let written = written?;
                assert!(written <= length, "no more is written than there was");
                self.kernel.wrote(inode, offset + written as u64);
                Reply::Written(written as u32)
            }
            Operation::Sync(handle) => done(fs.call_file(by, OpenFile(handle), sync).await)?,
            Operation::Flush { handle, owner } => {
                let (file, owner) = (OpenFile(handle), AdvisoryOwner(owner));
                // Who sees that the file is closed sees the time of its last write. The bytes themselves are durable.
                let _ = fs.call_file(by, file, sync).await;
                self.owners.remove(file, owner);
                // Another thread may wait for a lock still: as on Linux, that wait goes on.
                done(fs.call_file(by, file, unlock(owner, 0..FILE_LOCK.start)).await)?
            }
            Operation::Release(handle) => {
                let file = OpenFile(handle);
                self.kernel.closed(inode, file);
                for owner in self.owners.take(file) {
                    // The file is closed all the same.
                    let _ = fs.call_file(by, file, |handle| FilesRequest::ReleaseOwner { handle, owner }).await;
                }
                done(fs.call_file(by, file, close).await)?
            }
            Operation::TestLock(lock) => self.test_lock(by, lock).await?,
            Operation::SetLock { lock, waits } => self.set_lock(by, lock, waits).await?,
            _ => return Err(Errno::NOSYS),
        };
        Ok(reply)
    }

    /// Writes for a program that must not leave privileges to those who execute the file.
    async fn write_without_privileges(
        &self,
        by: &Caller,
        inode: InodeId,
        file: OpenFile,
        at: WriteAt,
        data: Bytes,
    ) -> Result<usize> {
        let fs = self.file_system;
        let (written, found) = tokio::join!(fs.write(by, file, at, data), fs.attributes(by, inode, Some(file)));
        let mode = found?.mode;
        let kept = mode & !privileges(mode);
        if kept != mode {
            let change = AttributeChange { mode: Some(kept), ..AttributeChange::default() };
            fs.set_attributes(by, inode, Some(file), change, None).await?;
        }
        written
    }

    /// A write has failed: before the kernel hears of it, it learns how long the file is.
    async fn before_failure(&self, inode: InodeId, file: OpenFile) {
        let by = &Caller::default();
        let look = async {
            let (size, last) = match self.file_system.tail(by, file).await {
                Ok(tail) => tail,
                // Its last byte can't be read now. The kernel drops it anyhow.
                Err(_) => (self.file_system.attributes(by, inode, Some(file)).await?.size, Some(0)),
            };
            if let Some(last) = last.filter(|_| size > 0) {
                self.kernel.before_failure(inode, file, size, last).await;
            }
            Ok::<_, Errno>(())
        };
        // If the host of the last writer is unavailable, too, the size is not known to anybody.
        let _ = timeout(SIZE_WITHIN, look).await;
    }

    async fn open(&self, by: &Caller, inode: InodeId, flags: u32) -> Result<OpenFile> {
        let fs = self.file_system;
        let file = fs.open(by, inode).await?;
        if flags & OFlags::TRUNC.bits() != 0
            && let Err(error) = fs.set_attributes(by, inode, Some(file), AttributeChange::default(), Some(0)).await
        {
            let _ = fs.call_file(by, file, close).await;
            return Err(error);
        }
        Ok(file)
    }

    /// Creates a file and opens it. The kernel has not found the name. If another host has created it since, its file is opened; if another
    /// host removes the file before it is open, the next is created.
    async fn create(&self, by: &Caller, parent: InodeId, flags: u32, mode: u32, name: Bytes) -> Result<Reply> {
        let fs = self.file_system;
        for _ in 0..CREATE_ATTEMPTS {
            let made = fs.create(by, (parent, name.clone()), permissions(mode)).await;
            let (attributes, opened) = match made {
                Err(Errno::EXIST) if flags & OFlags::EXCL.bits() == 0 => {
                    match fs.entry(by, FileCommand::Lookup { parent, name: name.clone() }).await {
                        Ok(found) if may_open(by, &found, flags) => (found, self.open(by, found.inode, flags).await),
                        // The kernel looks the name up, and checks the permissions.
                        Ok(_) => return Err(Errno::STALE),
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
                Ok((attributes, Some(file))) => (attributes, Ok(file)),
                Ok((attributes, None)) => (attributes, fs.open(by, attributes.inode).await),
            };
            match opened {
                Err(Errno::STALE) => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    self.opened(attributes.inode, file, flags);
                    return Ok(Reply::Created(attributes, file.0));
                }
            }
        }
        Err(Errno::STALE)
    }

    async fn read_directory(&self, by: &Caller, inode: InodeId, offset: u64, room: u32) -> Result<Reply> {
        let mut listing = Listing::new((room as usize).min(IO_BYTES_MAX));
        if offset < PARENT_COOKIE {
            let found = self.file_system.attributes(by, inode, None).await;
            // There is no name in a directory that is gone.
            let found = found.map_err(|error| if error == Errno::STALE { Errno::NOENT } else { error })?;
            let parent = found.parent.unwrap_or(inode);
            let of_self = (SELF_COOKIE, inode, &b"."[..]);
            for (cookie, inode, name) in [of_self, (PARENT_COOKIE, parent, &b".."[..])] {
                if offset < cookie && !listing.push(inode, cookie, FileType::Directory, name) {
                    return Ok(Reply::Directory(listing.finish()));
                }
            }
        }
        let after = if offset < FIRST_COOKIE { 0 } else { offset };
        let most = listing.most().min(limits::FILE_ENTRIES_MAX);
        if most > 0 {
            for entry in self.file_system.read_directory(by, inode, after, most).await? {
                if !listing.push(entry.inode, entry.cookie, entry.file_type, &entry.name) {
                    break;
                }
            }
        }
        Ok(Reply::Directory(listing.finish()))
    }

    async fn test_lock(&self, by: &Caller, request: LockRequest) -> Result<Reply> {
        let (owner, mode, range) = (AdvisoryOwner(request.owner), mode(request.lock.kind)?, range(&request)?);
        let test = |handle| FilesRequest::TestLock { handle, owner, range, mode };
        let is_locked = match self.file_system.call_file(by, OpenFile(request.handle), test).await? {
            FilesSuccess::Tested { is_locked } => is_locked,
            other => unreachable!("a host answers a test of a lock with its result, not {other:?}"),
        };
        // What is known is that the range is locked; neither by whom nor how.
        let kind = if is_locked { F_WRLCK } else { F_UNLCK };
        Ok(Reply::Lock(FileLock { kind, pid: 0, ..request.lock }))
    }

    async fn set_lock(&self, by: &Caller, request: LockRequest, waits: bool) -> Result<Reply> {
        let (fs, file, owner) = (self.file_system, OpenFile(request.handle), AdvisoryOwner(request.owner));
        let range = range(&request);
        if request.lock.kind == F_UNLCK {
            // Where nothing can be locked, nothing is.
            let Ok(range) = range else { return Ok(Reply::Done) };
            return done(fs.call_file(by, file, unlock(owner, range)).await);
        }
        let mode = mode(request.lock.kind)?;
        self.owners.add(file, owner)?;
        let range = range?;
        done(fs.call_file(by, file, |handle| FilesRequest::Lock { handle, owner, range, mode, wait: waits }).await)
    }
}

fn sync(handle: FileHandle) -> FilesRequest {
    FilesRequest::Sync { handle }
}

fn close(handle: FileHandle) -> FilesRequest {
    FilesRequest::Close { handle }
}

fn unlock(owner: AdvisoryOwner, range: Range<u64>) -> impl FnOnce(FileHandle) -> FilesRequest {
    move |handle| FilesRequest::Unlock { handle, owner, range }
}

fn done<T>(result: Result<T>) -> Result<Reply> {
    result.map(|_| Reply::Done)
}

/// True if the caller surely may open the file: it is its owner, and the owner may.
fn may_open(by: &Caller, file: &FileAttributes, flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    let reads = if flags.contains(OFlags::WRONLY) { 0 } else { OWNER_READS };
    let writes = if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) { OWNER_WRITES } else { 0 };
    let needed = reads | writes;
    file.file_type == FileType::Regular && file.owner.uid == by.owner.uid && file.mode & needed == needed
}

/// The inode to create, by the type in its mode.
fn node(mode: u32, device: u32) -> Result<NewInode> {
    let kind = mode & TYPE_BITS;
    if kind == 0 || kind == type_bits(FileType::Regular) {
        return Ok(NewInode::Regular);
    }
    let special = SpecialType::ALL.into_iter().find(|special| kind == type_bits(FileType::Special(*special)));
    let special = special.ok_or(Errno::INVAL)?;
    Ok(NewInode::Special { special, device: if special.is_device() { device } else { 0 } })
}

/// The bits of a mode that give privileges to those who execute the file.
fn privileges(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTES != 0 { SET_GROUP } else { 0 };
    SET_USER | group
}

fn permissions(mode: u32) -> u16 {
    (mode & PERMISSIONS) as u16
}

/// The attributes to set, and the size.
fn change_of(change: &SetattrIn) -> (AttributeChange, Option<u64>) {
    let has = |flag: u32| change.valid & flag != 0;
    let time = |at, now, seconds, nanoseconds| match (has(at), has(now)) {
        (_, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At(file_time(seconds, nanoseconds))),
        (false, false) => None,
    };
    let attributes = AttributeChange {
        mode: has(flag::FATTR_MODE).then(|| permissions(change.mode)),
        uid: has(flag::FATTR_UID).then_some(change.uid),
        gid: has(flag::FATTR_GID).then_some(change.gid),
        atime: time(flag::FATTR_ATIME, flag::FATTR_ATIME_NOW, change.atime, change.atimensec),
        mtime: time(flag::FATTR_MTIME, flag::FATTR_MTIME_NOW, change.mtime, change.mtimensec),
    };
    (attributes, has(flag::FATTR_SIZE).then_some(change.size))
}

/// The bytes to lock. Bytes behind the longest file can't be locked.
fn range(request: &LockRequest) -> Result<Range<u64>> {
    let FileLock { start, end, .. } = request.lock;
    match request.flags & flag::FUSE_LK_FLOCK != 0 {
        true => Ok(FILE_LOCK),
        // The kernel names the last byte.
        false if start < FILE_LOCK.start => Ok(start..end.saturating_add(1).min(FILE_LOCK.start)),
        false => Err(Errno::INVAL),
    }
}

fn mode(kind: u32) -> Result<LockMode> {
    match kind {
        F_RDLCK => Ok(LockMode::Shared),
        F_WRLCK => Ok(LockMode::Exclusive),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::attributes;
    use braid_wire::Owner;

    #[test]
    fn only_the_owner_opens_without_the_kernels_check() {
        let owner = Owner { uid: 12, gid: 12 };
        let file = |file_type, mode| FileAttributes { file_type, mode, owner, ..attributes() };
        let by = |uid| Caller { owner: Owner { uid, gid: 12 }, ..Caller::default() };
        let flags = |flags: OFlags| flags.bits();
        let regular = |mode| file(FileType::Regular, mode);
        assert!(may_open(&by(12), &regular(0o600), flags(OFlags::RDWR | OFlags::TRUNC)));
        assert!(may_open(&by(12), &regular(0o400), flags(OFlags::RDONLY)));
        assert!(may_open(&by(12), &regular(0o200), flags(OFlags::WRONLY)));
        assert!(!may_open(&by(12), &regular(0o400), flags(OFlags::RDONLY | OFlags::TRUNC)));
        assert!(!may_open(&by(12), &regular(0o477), flags(OFlags::RDWR)));
        assert!(!may_open(&by(12), &regular(0o277), flags(OFlags::RDWR)));
        assert!(!may_open(&by(0), &regular(0o777), flags(OFlags::RDONLY)));
        assert!(!may_open(&by(12), &file(FileType::SymbolicLink, 0o777), flags(OFlags::RDONLY)));
    }
}
