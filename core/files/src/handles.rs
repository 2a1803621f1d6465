//! The open files of this host, and the locks on the existence of their inodes.
//!
//! An inode without a name exists as long as any host holds its existence lock, shared. A host holds it while it has the file open, and
//! for each operation: so no block of an inode is given to another file while an operation may still write there. The lock is cached. A
//! host that is asked to give it back does so when it uses the inode no more.

use crate::progress::Progress;
use crate::range_locks::{EXISTENCE, RangeLocks};
use braid_base::{InodeId, Now, ShardId, limits};
use braid_locks::client::Event;
use braid_machine::{FileHandle, FilesError, HostError};
use braid_wire::{FileError, LockMode};
use std::collections::BTreeMap;

/// Where a handle names the shard of its file. Front ends have the bits from [`FileHandle::BITS`] on.
const SHARD_SHIFT: u32 = FileHandle::BITS - 8;

#[derive(Clone, Debug, Default)]
pub struct Handles {
    by_number: BTreeMap<u64, InodeId>,
    /// The last handle that was given out.
    given: u64,
    files: BTreeMap<InodeId, OpenFile>,
    progress: Vec<Progress>,
}

#[derive(Clone, Debug, Default)]
struct OpenFile {
    handles: usize,
    /// Operations that use the inode.
    operations: usize,
    is_held: bool,
    waiting: Vec<u64>,
}

impl Handles {
    /// The handles of a shard's files. Their numbers name the shard, so that an operation on one finds its way.
    pub fn of(shard: ShardId) -> Handles {
        Handles { given: u64::from(shard.0) << SHARD_SHIFT, ..Handles::default() }
    }

    /// The shard of an open file.
    pub fn shard_of(handle: FileHandle) -> ShardId {
        ShardId((handle.0 >> SHARD_SHIFT) as u8)
    }

    /// The inode of an open file.
    pub fn inode(&self, handle: FileHandle) -> Option<InodeId> {
        self.by_number.get(&handle.0).copied()
    }

    /// True if there is room for another handle.
    pub fn may_open(&self) -> bool {
        self.by_number.len() < limits::FILE_HANDLES_MAX
    }

    /// Opens a new file, with the lock of its existence.
    pub fn open_new(&mut self, inode: InodeId) -> FileHandle {
        let file = OpenFile { is_held: true, ..OpenFile::default() };
        assert!(self.files.insert(inode, file).is_none(), "nobody has used a new inode");
        self.open(inode)
    }

    /// Opens a file whose existence an operation holds.
    pub fn open(&mut self, inode: InodeId) -> FileHandle {
        let file = self.files.get_mut(&inode).filter(|file| file.is_held).expect("the operation holds it");
        file.handles += 1;
        self.given += 1;
        self.by_number.insert(self.given, inode);
        FileHandle(self.given)
    }

    /// Closes a file whose existence an operation holds. Returns true if no file of the inode is open any more.
    pub fn close(&mut self, handle: FileHandle) -> bool {
        let inode = self.by_number.remove(&handle.0).expect("it is open");
        let file = self.files.get_mut(&inode).expect("it is open");
        file.handles -= 1;
        file.handles == 0
    }

    /// True if files of the inode are open.
    pub fn is_open(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.handles > 0)
    }

    /// An operation uses an inode, so that it keeps existing. False if it has to wait for the lock.
    pub fn hold(&mut self, now: Now, locks: &mut RangeLocks, op: u64, inode: InodeId) -> bool {
        let is_new = !self.files.contains_key(&inode);
        let file = self.files.entry(inode).or_default();
        file.operations += 1;
        if !file.is_held {
            file.waiting.push(op);
        }
        let is_held = file.is_held;
        if is_new {
            locks.acquire_inode(now, EXISTENCE, inode, LockMode::Shared);
        }
        is_held
    }

    /// An operation that has called [`Handles::hold`] has ended.
    pub fn let_go(&mut self, now: Now, locks: &mut RangeLocks, op: u64, inode: InodeId) {
        let file = self.files.get_mut(&inode).expect("an operation holds it");
        file.operations -= 1;
        file.waiting.retain(|waiting| *waiting != op);
        if file.operations == 0 && file.handles == 0 {
            self.files.remove(&inode);
            locks.release(now, EXISTENCE, inode.0);
        }
    }

    /// A lock event. False if a lock that was held is lost.
    pub fn on_lock(&mut self, event: Event) -> bool {
        match event {
            Event::Granted { holder } => {
                if let Some(file) = self.files.get_mut(&InodeId(holder)) {
                    file.is_held = true;
                    self.progress.extend(std::mem::take(&mut file.waiting).into_iter().map(Progress::Ready));
                }
            }
            Event::Denied { holder, .. } => {
                let waiting = self.files.get(&InodeId(holder)).map(|file| file.waiting.clone());
                let busy = HostError::Files(FilesError::Refused(FileError::Busy));
                let failed = waiting.into_iter().flatten().map(|op| Progress::Failed(op, busy.clone()));
                self.progress.extend(failed);
            }
            Event::Lost { .. } => return false,
            // It is in use: the lock client gives it back when it is released.
            Event::Revoked { .. } | Event::Delayed { .. } => {}
        }
        true
    }

    /// Takes out what operations are to be told.
    pub fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }

    /// The number of operations that wait for the lock of an existence.
    pub fn waiting(&self) -> usize {
        self.files.values().map(|file| file.waiting.len()).sum()
    }

    pub fn all(&self) -> Vec<FileHandle> {
        self.by_number.keys().map(|number| FileHandle(*number)).collect()
    }

    pub fn invariants(&self) {
        let handles: usize = self.files.values().map(|file| file.handles).sum();
        assert_eq!(handles, self.by_number.len(), "handles are counted");
        assert!(self.files.values().all(|file| file.is_held || file.handles == 0), "an open file exists");
        assert!(self.progress.is_empty(), "operations are told in the same step");
    }
}
