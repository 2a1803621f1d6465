//! What the kernel keeps of files, although all of them are opened for direct I/O: sendfile, splice and mapped memory read through its pages,
//! and go no further than to the size that it knows.
//!
//! | what the kernel does (Linux 6.18) | what follows |
//! | --- | --- |
//! | a READ for pages has no lock owner; its pages are locked from before the request until after the answer | an invalidation that begins after the READ came waits for it, and drops what it has read |
//! | an invalidation unmaps pages from private mappings, but for those that the program has changed | old mappings show new bytes |
//! | a size that was told once is not asked for by sendfile; only a stored byte makes it greater | a host whose kernel has pages follows the size |
//! | a short answer makes the size smaller, unless the inode has changed since the READ was sent | see [`KernelCache::check`] |
//! | answers to read-ahead are applied in the order in which they are written | a short answer follows those for lower offsets |

use crate::device::Notifier;
use crate::{OpenFile, Result};
use braid_base::InodeId;
use futures_util::future::join_all;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

const PAGE_BYTES: u64 = 4096;
/// How often pages between READs are dropped before all are.
const ROUNDS_MAX: usize = 8;
/// How long the kernel's size of a file stays too small because READs wait for a device.
const READS_WAIT: Duration = Duration::from_secs(1);
/// Offsets of refused reads that are remembered for an inode.
const REFUSED_MAX: usize = 64;

/// The inodes that are open for reading, and what the kernel keeps of them. There are at most as many as open files.
#[derive(Debug)]
pub struct KernelCache {
    notifier: Notifier,
    inodes: Mutex<HashMap<InodeId, Known>>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Files that are open for reading.
    readers: BTreeSet<OpenFile>,
    /// Pages were read: the kernel may use its own size.
    has_pages: bool,
    /// Rises when the kernel begins to drop pages or to learn a size.
    version: u64,
    /// READs for pages that are not answered, by their number.
    reading: BTreeMap<u64, Reading>,
    /// Where READs were refused because the kernel would not have learned the size from them.
    refused: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    offset: u64,
    length: u64,
    /// The version when the request came.
    version: u64,
}

impl KernelCache {
    pub(crate) fn new(notifier: Notifier) -> KernelCache {
        KernelCache { notifier, inodes: Mutex::default(), answered: Notify::new() }
    }

    /// A file is open for reading.
    pub(crate) fn opened(&self, inode: InodeId, file: OpenFile) {
        self.lock().entry(inode).or_default().readers.insert(file);
    }

    pub(crate) fn closed(&self, inode: InodeId, file: OpenFile) {
        let mut inodes = self.lock();
        let Some(known) = inodes.get_mut(&inode) else { return };
        known.readers.remove(&file);
        if known.readers.is_empty() && known.reading.is_empty() {
            inodes.remove(&inode);
        }
    }

    /// A READ for pages has come. True if it is the first of the inode.
    pub(crate) fn begin(&self, inode: InodeId, unique: u64, (offset, length): (u64, u64)) -> bool {
        let mut inodes = self.lock();
        let known = inodes.entry(inode).or_default();
        known.reading.insert(unique, Reading { offset, length, version: known.version });
        !std::mem::replace(&mut known.has_pages, true)
    }

    /// Waits until a READ that reaches the end of the file may be answered, and finds out whether the kernel will learn the size from it. If
    /// not, it is refused: for read-ahead, the kernel repeats it page by page. A page that was refused once is answered.
    pub(crate) async fn check(&self, inode: InodeId, unique: u64, (read, length): (usize, usize)) -> Result<()> {
        // Nothing of it is in the file. An answer would change the inode, so that a READ of the last page comes too late.
        if read == 0 && length as u64 > PAGE_BYTES {
            return Err(Errno::IO);
        }
        loop {
            let answered = self.answered.notified();
            {
                let mut inodes = self.lock();
                let Some(known) = inodes.get_mut(&inode) else { return Ok(()) };
                let Some(reading) = known.reading.get(&unique).copied() else { return Ok(()) };
                if !known.reading.values().any(|other| other.offset < reading.offset) {
                    let is_page = length as u64 <= PAGE_BYTES;
                    if reading.version == known.version || is_page && known.refused.remove(&reading.offset) {
                        return Ok(());
                    }
                    if known.refused.len() >= REFUSED_MAX {
                        known.refused.pop_first();
                    }
                    if is_page {
                        known.refused.insert(reading.offset);
                    }
                    return Err(Errno::IO);
                }
            }
            answered.await;
        }
    }

    /// A READ for pages is answered.
    pub(crate) fn end(&self, inode: InodeId, unique: u64) {
        let mut inodes = self.lock();
        if let Some(known) = inodes.get_mut(&inode) {
            known.reading.remove(&unique);
            if known.readers.is_empty() && known.reading.is_empty() {
                inodes.remove(&inode);
            }
        }
        drop(inodes);
        self.answered.notify_waiters();
    }

    /// An open file by which the size of an inode is followed, if the kernel may use it.
    pub(crate) fn follower(&self, inode: InodeId) -> Option<OpenFile> {
        let inodes = self.lock();
        let known = inodes.get(&inode).filter(|known| known.has_pages)?;
        known.readers.first().copied()
    }

    /// Drops all pages of an inode. The kernel would wait for READs of pages, which may take as long as the array is unavailable, and a thread that waits so can't be
    /// killed. So first the pages between such READs are dropped; theirs can't be read before they are answered.
    pub(crate) async fn drop_pages(&self, inode: InodeId) {
        for _ in 0..ROUNDS_MAX {
            let between = self.between_reads(inode);
            if between.is_empty() {
                break;
            }
            join_all(between.into_iter().map(|range| self.invalidate(inode, range))).await;
            self.await_reads(inode).await;
        }
        self.invalidate(inode, (0, 0)).await;
    }

    /// Drops the pages of a range of bytes. It waits for READs of them.
    async fn invalidate(&self, inode: InodeId, range: (u64, u64)) {
        let notifier = self.notifier.clone();
        self.changes(inode);
        let dropped = tokio::task::spawn_blocking(move || notifier.invalidate_inode(inode, Some(range))).await;
        if let Ok(Err(error)) = dropped {
            tracing::warn!("the kernel does not drop pages of inode {inode}: {error}");
        }
    }

    /// Drops the pages of all inodes: their host is lost.
    pub(crate) async fn drop_all(&self) {
        let inodes: Vec<_> = self.lock().keys().copied().collect();
        for inode in inodes {
            self.drop_pages(inode).await;
        }
    }

    /// As [`KernelCache::lengthen`], after the READs that have come: the kernel would not learn a smaller size from their answers.
    pub(crate) async fn lengthen_after_reads(&self, inode: InodeId, size: u64, last: u8) {
        // Those that take longer are refused if their answers are short.
        let _ = timeout(READS_WAIT, self.await_reads(inode)).await;
        self.lengthen(inode, size, last).await;
    }

    /// The file is at least so long. It waits for READs of the last page.
    pub(crate) async fn lengthen(&self, inode: InodeId, size: u64, last: u8) {
        let notifier = self.notifier.clone();
        self.changes(inode);
        // The page that the byte is stored in has nothing else: read-ahead would stop there.
        let page = (size - 1) / PAGE_BYTES * PAGE_BYTES;
        let tell = move || {
            notifier.lengthen(inode, size, last)?;
            notifier.invalidate_inode(inode, Some((page, PAGE_BYTES)))
        };
        let told = tokio::task::spawn_blocking(tell).await;
        if let Ok(Err(error)) = told {
            tracing::warn!("the kernel does not take the size of inode {inode}: {error}");
        }
    }

    /// Waits until the READs for pages of an inode that have come are answered.
    async fn await_reads(&self, inode: InodeId) {
        let last = self.lock().get(&inode).and_then(|known| known.reading.keys().copied().max());
        loop {
            let answered = self.answered.notified();
            let first = self.lock().get(&inode).and_then(|known| known.reading.keys().copied().min());
            if first.is_none() || first > last {
                return;
            }
            answered.await;
        }
    }

    /// The ranges of bytes between READs that are not answered; none without such READs.
    fn between_reads(&self, inode: InodeId) -> Vec<(u64, u64)> {
        let inodes = self.lock();
        let Some(known) = inodes.get(&inode).filter(|known| !known.reading.is_empty()) else { return Vec::new() };
        let mut reads: Vec<_> = known.reading.values().map(|reading| (reading.offset, reading.length)).collect();
        reads.sort_unstable();
        reads.push((i64::MAX as u64, 0));
        let (mut between, mut end) = (Vec::new(), 0);
        for (offset, length) in reads {
            if offset > end {
                between.push((end, offset - end));
            }
            end = end.max(offset.saturating_add(length).next_multiple_of(PAGE_BYTES));
        }
        between
    }

    fn changes(&self, inode: InodeId) {
        if let Some(known) = self.lock().get_mut(&inode) {
            known.version += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InodeId, Known>> {
        self.inodes.lock().expect("no holder panics")
    }
}
