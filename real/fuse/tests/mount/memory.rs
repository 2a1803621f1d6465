//! A file system in memory, which implements what the front end may rely on in the plainest way.

use braid_base::InodeId;
use braid_fuse::{
    Caller, FileSystem, KernelCache, LockPlace, LockRange, OpenFile, Place, Result, SpaceStatus, WriteAt,
};
use braid_machine::AdvisoryOwner;
use braid_wire::{
    AttributeChange, DirectoryEntry, FIRST_COOKIE, FileAttributes, FileSystemStatus, FileTime, FileType, LockMode,
    NewInode, NewTime, Owner, SpecialType,
};
use bytes::Bytes;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
    unlocked: Notify,
    /// How often a request began to wait for a lock.
    pub waits: Arc<AtomicUsize>,
    /// So many times, a name that is looked up is not there yet: as if another host created it just after.
    pub late: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<InodeId, Node>,
    open: BTreeMap<OpenFile, InodeId>,
    locks: Vec<Lock>,
    numbers: u64,
}

struct Node {
    attributes: FileAttributes,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Entries(BTreeMap<u64, DirectoryEntry>),
    Target(Bytes),
    Special(SpecialType),
}

struct Lock {
    inode: InodeId,
    owner: AdvisoryOwner,
    is_of_file: bool,
    range: Range<u64>,
    mode: LockMode,
}

impl Memory {
    pub fn new(owner: Owner) -> Memory {
        let memory = Memory::default();
        memory.state().add(Content::Entries(BTreeMap::new()), owner, 0o755, None);
        memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn try_lock(&self, file: OpenFile, owner: AdvisoryOwner, range: &LockRange, mode: Option<LockMode>) -> Result<()> {
        let mut state = self.state();
        if let Some(mode) = mode
            && state.is_locked(file, owner, range, mode)?
        {
            return Err(Errno::AGAIN);
        }
        let inode = state.inode(file)?;
        let (is_of_file, range) = plain(range);
        let is_own = |lock: &Lock| lock.inode == inode && lock.owner == owner && lock.is_of_file == is_of_file;
        let (own, others) = std::mem::take(&mut state.locks).into_iter().partition(is_own);
        state.locks = others;
        for lock in own {
            let around =
                [lock.range.start..lock.range.end.min(range.start), lock.range.start.max(range.end)..lock.range.end];
            for rest in around.into_iter().filter(|rest| !rest.is_empty()) {
                state.locks.push(Lock { range: rest, ..lock });
            }
        }
        if let Some(mode) = mode {
            state.locks.push(Lock { inode, owner, is_of_file, range, mode });
        }
        drop(state);
        self.unlocked.notify_waiters();
        Ok(())
    }
}

impl State {
    fn add(&mut self, content: Content, owner: Owner, mode: u16, parent: Option<InodeId>) -> FileAttributes {
        self.numbers += 1;
        let inode = InodeId(self.numbers);
        let file_type = match &content {
            Content::Bytes(_) => FileType::Regular,
            Content::Entries(_) => FileType::Directory,
            Content::Target(_) => FileType::SymbolicLink,
            Content::Special(special) => FileType::Special(*special),
        };
        let is_directory = file_type == FileType::Directory;
        let attributes = FileAttributes {
            inode,
            file_type,
            mode,
            owner,
            links: 1 + u32::from(is_directory),
            size: 0,
            blocks: 0,
            atime: now(),
            mtime: now(),
            ctime: now(),
            parent: is_directory.then_some(parent.unwrap_or(inode)),
            device: 0,
        };
        self.nodes.insert(inode, Node { attributes, content });
        attributes
    }

    fn node(&mut self, inode: InodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(Errno::STALE)
    }

    fn attributes(&mut self, inode: InodeId) -> Result<FileAttributes> {
        let node = self.node(inode)?;
        let size = match &node.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Entries(entries) => entries.len(),
            Content::Target(target) => target.len(),
            Content::Special(_) => 0,
        };
        Ok(FileAttributes { size: size as u64, blocks: (size as u64).div_ceil(4096), ..node.attributes })
    }

    fn entries(&mut self, inode: InodeId) -> Result<&mut BTreeMap<u64, DirectoryEntry>> {
        match &mut self.node(inode)?.content {
            Content::Entries(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entry(&mut self, parent: InodeId, name: &Bytes) -> Result<DirectoryEntry> {
        let found = self.entries(parent)?.values().find(|entry| entry.name == *name).cloned();
        found.ok_or(Errno::NOENT)
    }

    fn add_entry(&mut self, parent: InodeId, name: Bytes, inode: InodeId) -> Result<()> {
        self.numbers += 1;
        let cookie = FIRST_COOKIE + self.numbers;
        let file_type = self.node(inode)?.attributes.file_type;
        self.entries(parent)?.insert(cookie, DirectoryEntry { cookie, inode, file_type, name });
        Ok(())
    }

    /// Removes a name, and the inode if it has no other and is not open.
    fn remove(&mut self, parent: InodeId, name: &Bytes, of_directory: bool) -> Result<()> {
        let entry = self.entry(parent, name)?;
        let is_directory = entry.file_type == FileType::Directory;
        if is_directory != of_directory {
            return Err(if is_directory { Errno::ISDIR } else { Errno::NOTDIR });
        }
        if is_directory && !self.entries(entry.inode)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.entries(parent)?.remove(&entry.cookie);
        let attributes = &mut self.node(entry.inode)?.attributes;
        attributes.links -= if is_directory { 2 } else { 1 };
        self.forget(entry.inode)
    }

    fn forget(&mut self, inode: InodeId) -> Result<()> {
        if self.node(inode)?.attributes.links == 0 && !self.open.values().any(|open| *open == inode) {
            self.nodes.remove(&inode);
        }
        Ok(())
    }

    fn inode(&self, file: OpenFile) -> Result<InodeId> {
        self.open.get(&file).copied().ok_or(Errno::IO)
    }

    fn bytes(&mut self, file: OpenFile) -> Result<&mut Vec<u8>> {
        let inode = self.inode(file)?;
        match &mut self.node(inode)?.content {
            Content::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::INVAL),
        }
    }

    fn is_locked(&self, file: OpenFile, owner: AdvisoryOwner, range: &LockRange, mode: LockMode) -> Result<bool> {
        let inode = self.inode(file)?;
        let (is_of_file, range) = plain(range);
        let conflicts = |lock: &Lock| {
            lock.inode == inode
                && lock.owner != owner
                && lock.is_of_file == is_of_file
                && (mode == LockMode::Exclusive || lock.mode == LockMode::Exclusive)
                && lock.range.start < range.end
                && range.start < lock.range.end
        };
        Ok(self.locks.iter().any(conflicts))
    }
}

fn plain(range: &LockRange) -> (bool, Range<u64>) {
    match range {
        LockRange::File => (true, 0..1),
        LockRange::Bytes(range) => (false, range.clone()),
    }
}

fn now() -> FileTime {
    FileTime(SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_nanos() as i64)
}

impl FileSystem for Memory {
    async fn lookup(&self, _: &Caller, parent: InodeId, name: Bytes) -> Result<FileAttributes> {
        if self.late.try_update(Ordering::SeqCst, Ordering::SeqCst, |late| late.checked_sub(1)).is_ok() {
            return Err(Errno::NOENT);
        }
        let mut state = self.state();
        let entry = state.entry(parent, &name)?;
        state.attributes(entry.inode)
    }

    async fn attributes(&self, _: &Caller, inode: InodeId, _: Option<OpenFile>) -> Result<FileAttributes> {
        self.state().attributes(inode)
    }

    async fn set_attributes(
        &self,
        _: &Caller,
        inode: InodeId,
        _: Option<OpenFile>,
        change: AttributeChange,
        size: Option<u64>,
    ) -> Result<FileAttributes> {
        let mut state = self.state();
        let node = state.node(inode)?;
        if let (Some(size), Content::Bytes(bytes)) = (size, &mut node.content) {
            bytes.resize(size as usize, 0);
        }
        let attributes = &mut node.attributes;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.owner.uid = change.uid.unwrap_or(attributes.owner.uid);
        attributes.owner.gid = change.gid.unwrap_or(attributes.owner.gid);
        let time = |time| match time {
            NewTime::Now => now(),
            NewTime::At(time) => time,
        };
        attributes.atime = change.atime.map_or(attributes.atime, time);
        attributes.mtime = change.mtime.map_or(attributes.mtime, time);
        attributes.ctime = now();
        state.attributes(inode)
    }

    async fn read_link(&self, _: &Caller, inode: InodeId) -> Result<Bytes> {
        match &self.state().node(inode)?.content {
            Content::Target(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    async fn make(&self, by: &Caller, (parent, name): Place, node: NewInode, mode: u16) -> Result<FileAttributes> {
        let mut state = self.state();
        if state.entry(parent, &name).is_ok() {
            return Err(Errno::EXIST);
        }
        let content = match node {
            NewInode::Regular => Content::Bytes(Vec::new()),
            NewInode::Directory => Content::Entries(BTreeMap::new()),
            NewInode::SymbolicLink { target } => Content::Target(target),
            NewInode::Special { special, .. } => Content::Special(special),
        };
        let attributes = state.add(content, by.owner, mode, Some(parent));
        state.add_entry(parent, name, attributes.inode)?;
        state.attributes(attributes.inode)
    }

    async fn link(&self, _: &Caller, inode: InodeId, parent: InodeId, name: Bytes) -> Result<FileAttributes> {
        let mut state = self.state();
        if state.entry(parent, &name).is_ok() {
            return Err(Errno::EXIST);
        }
        state.add_entry(parent, name, inode)?;
        state.node(inode)?.attributes.links += 1;
        state.attributes(inode)
    }

    async fn unlink(&self, _: &Caller, parent: InodeId, name: Bytes) -> Result<()> {
        self.state().remove(parent, &name, false)
    }

    async fn remove_directory(&self, _: &Caller, parent: InodeId, name: Bytes) -> Result<()> {
        self.state().remove(parent, &name, true)
    }

    async fn rename(&self, _: &Caller, from: Place, to: Place, no_replace: bool) -> Result<()> {
        let ((parent, name), (new_parent, new_name)) = (from, to);
        let mut state = self.state();
        let moved = state.entry(parent, &name)?;
        if state.entry(new_parent, &new_name).is_ok() {
            if no_replace {
                return Err(Errno::EXIST);
            }
            state.remove(new_parent, &new_name, moved.file_type == FileType::Directory)?;
        }
        state.entries(parent)?.remove(&moved.cookie);
        if let Some(parent) = &mut state.node(moved.inode)?.attributes.parent {
            *parent = new_parent;
        }
        state.add_entry(new_parent, new_name, moved.inode)
    }

    async fn read_directory(&self, _: &Caller, inode: InodeId, after: u64, most: usize) -> Result<Vec<DirectoryEntry>> {
        Ok(self.state().entries(inode)?.range(after + 1..).take(most).map(|(_, entry)| entry.clone()).collect())
    }

    async fn status(&self, _: &Caller) -> Result<SpaceStatus> {
        let status = FileSystemStatus { blocks: 1000, free: 900, allotted: 0, inodes: self.state().nodes.len() as u64 };
        Ok(SpaceStatus { status, free_inodes: None })
    }

    async fn open(&self, _: &Caller, inode: InodeId) -> Result<OpenFile> {
        let mut state = self.state();
        state.node(inode)?;
        state.numbers += 1;
        let file = OpenFile(state.numbers);
        state.open.insert(file, inode);
        Ok(file)
    }

    async fn close(&self, _: &Caller, file: OpenFile) -> Result<()> {
        let mut state = self.state();
        let inode = state.open.remove(&file).ok_or(Errno::IO)?;
        state.forget(inode)
    }

    async fn read(&self, _: &Caller, file: OpenFile, (offset, length): (u64, usize), _: bool) -> Result<Vec<Bytes>> {
        let mut state = self.state();
        let bytes = state.bytes(file)?;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + length);
        // Two buffers, which the front end is to join.
        let middle = start.midpoint(end);
        Ok(vec![Bytes::copy_from_slice(&bytes[start..middle]), Bytes::copy_from_slice(&bytes[middle..end])])
    }

    async fn next_data(&self, _: &Caller, file: OpenFile, offset: u64) -> Result<Range<u64>> {
        let size = self.state().bytes(file)?.len() as u64;
        Ok(offset.min(size)..size)
    }

    async fn tail(&self, _: &Caller, file: OpenFile) -> Result<(u64, Option<u8>)> {
        let mut state = self.state();
        let bytes = state.bytes(file)?;
        Ok((bytes.len() as u64, bytes.last().copied()))
    }

    async fn keep_coherent(&self, _: &KernelCache) -> Infallible {
        std::future::pending().await
    }

    async fn write(&self, _: &Caller, file: OpenFile, at: WriteAt, data: Bytes) -> Result<usize> {
        let mut state = self.state();
        let bytes = state.bytes(file)?;
        let offset = match at {
            WriteAt::Offset(offset) => offset as usize,
            WriteAt::End => bytes.len(),
        };
        let end = offset + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(&data);
        Ok(data.len())
    }

    async fn sync(&self, _: &Caller, file: OpenFile) -> Result<()> {
        self.state().bytes(file).map(|_| ())
    }

    async fn lock(&self, by: &Caller, (file, owner, range): LockPlace, mode: LockMode, waits: bool) -> Result<()> {
        loop {
            let mut unlocked = std::pin::pin!(self.unlocked.notified());
            unlocked.as_mut().enable();
            match self.try_lock(file, owner, &range, Some(mode)) {
                Err(Errno::AGAIN) if waits => {}
                locked => return locked,
            }
            self.waits.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                () = unlocked => {}
                () = by.interruption.wait() => return Err(Errno::INTR),
            }
        }
    }

    async fn unlock(&self, _: &Caller, (file, owner, range): LockPlace) -> Result<()> {
        self.try_lock(file, owner, &range, None)
    }

    async fn test_lock(&self, _: &Caller, (file, owner, range): LockPlace, mode: LockMode) -> Result<bool> {
        self.state().is_locked(file, owner, &range, mode)
    }

    async fn release_owner(&self, _: &Caller, file: OpenFile, owner: AdvisoryOwner) -> Result<()> {
        self.try_lock(file, owner, &LockRange::Bytes(0..u64::MAX), None)?;
        self.try_lock(file, owner, &LockRange::File, None)
    }
}
