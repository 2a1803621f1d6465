//! What the kernel keeps of files, although all of them are opened for direct I/O: sendfile, splice and mapped memory read through its pages,
//! and go no further than to the size that it knows.
//!
//! | what the kernel does (Linux 6.18) | what follows |
//! | --- | --- |
//! | a READ for pages has no lock owner; its pages are locked from before the request until after the answer | an invalidation that begins after the READ came waits for it, and drops what it has read |
//! | an invalidation unmaps pages from private mappings, but for those that the program has changed | old mappings show new bytes |
//! | a size that was told once is not asked for by sendfile; only a stored byte makes it greater | a host whose kernel has pages follows the size |
//! | attributes in an answer are discarded if an invalidation began after the kernel had asked, and are applied when the program's process runs; `lseek` takes the size from the inode | the kernel is told a greater size before the answer, and nothing when it has one that is no smaller |
//! | a short answer makes the size smaller, unless the inode has changed since the READ was sent | see [`KernelCache::check`] |
//! | no request is sent for what lies behind the size, also by asynchronous reads (libaio, io_uring) | the size of a file that stays open is followed, too, a little later ([`KernelCache::next_long_open`]) |
//! | after an asynchronous write that failed behind the size, the kernel sets the size | it is told the size before ([`KernelCache::before_failure`]) |
//! | answers to read-ahead are applied in the order in which they are written | a short answer follows those for lower offsets |

use crate::device::Notifier;
use crate::kernel_size::KernelSize;
use crate::{OpenFile, Result};
use braid_base::InodeId;
use futures_util::future::join_all;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until, timeout};

const PAGE_BYTES: u64 = 4096;
/// How often pages between READs are dropped before all are.
const ROUNDS_MAX: usize = 8;
/// How long the kernel's size of a file stays too small because READs wait for a device.
const READS_WAIT: Duration = Duration::from_secs(1);
/// How often the requests that have come are waited for. When there are always some, the last of them count as asked later.
const TURNS_MAX: usize = 64;
/// A file that stays open for longer is followed, although nothing of it was read through pages. Most files are closed sooner.
const OPEN_FOR: Duration = Duration::from_millis(100);
/// Offsets of refused reads that are remembered for an inode.
const REFUSED_MAX: usize = 1024;

/// The inodes that are open for reading, and what the kernel keeps of them. There are at most as many as open files.
#[derive(Debug)]
pub struct KernelCache {
    notifier: Notifier,
    inodes: Mutex<HashMap<InodeId, Known>>,
    answered: Notify,
    /// Inodes whose size is to be looked at, with the time.
    open: Mutex<VecDeque<(Instant, InodeId)>>,
    has_opened: Notify,
    /// The number of the last request for attributes.
    asked: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    readers: BTreeSet<OpenFile>,
    /// Pages were read: the kernel may use its own size.
    has_pages: bool,
    /// It was open for long enough to be followed.
    is_watched: bool,
    /// Its size is to be looked at: however often it is opened until then, once.
    is_listed: bool,
    /// Files through which a write has failed, with the size that the kernel was told then.
    failed: BTreeMap<OpenFile, u64>,
    /// Rises when the kernel begins to drop pages or to learn a size.
    version: u64,
    /// Rises when all has come that it had asked before.
    settled: u64,
    /// It is doing so: it may have discarded already what it had asked.
    changing: u32,
    /// READs for pages that are not answered, by their number.
    reading: BTreeMap<u64, Reading>,
    /// The last request of which attributes were answered.
    answered: u64,
    /// Where READs were refused because the kernel would not have learned the size from them.
    refused: BTreeSet<u64>,
    size: KernelSize,
}

/// When a request came that may be answered with attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    number: u64,
    /// What an answer is about.
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    offset: u64,
    length: u64,
    /// What the answer is about; none if the kernel was learning something when the request came: it may have been sent before.
    asked: Option<u64>,
}

impl Known {
    /// What an answer is about that the kernel asks for now.
    fn asked(&self) -> u64 {
        self.version + self.settled
    }

    fn is_unused(&self) -> bool {
        self.readers.is_empty() && self.reading.is_empty() && self.failed.is_empty() && self.changing == 0
    }

    /// A READ is refused. The kernel repeats its pages, of which those from the end of the file on are short.
    fn refuse(&mut self, end: u64, length: u64) {
        for page in (end / PAGE_BYTES..(end + length).div_ceil(PAGE_BYTES)).take(REFUSED_MAX) {
            self.refused.insert(page * PAGE_BYTES);
        }
        while self.refused.len() > REFUSED_MAX {
            self.refused.pop_first();
        }
    }

    /// True if the kernel takes the attributes in the answer.
    fn learns(&self, asked: Asked) -> bool {
        self.changing == 0 && self.asked() == asked.version
    }
}

impl KernelCache {
    pub(crate) fn new(notifier: Notifier) -> KernelCache {
        KernelCache {
            notifier,
            inodes: Mutex::default(),
            answered: Notify::new(),
            open: Mutex::default(),
            has_opened: Notify::new(),
            asked: AtomicU64::new(0),
        }
    }

    pub(crate) fn opened(&self, inode: InodeId, file: OpenFile) {
        self.lock().entry(inode).or_default().readers.insert(file);
        self.look_later(inode);
    }

    /// The size of an inode is to be looked at in a while, if it is open then.
    pub(crate) fn look_later(&self, inode: InodeId) {
        let is_new = |known: &mut Known| !std::mem::replace(&mut known.is_listed, true);
        if self.is_looked_at(inode) && self.lock().get_mut(&inode).is_some_and(is_new) {
            self.open.lock().expect("no holder panics").push_back((Instant::now() + OPEN_FOR, inode));
            self.has_opened.notify_one();
        }
    }

    /// True if the size of an inode is followed only because files are open.
    fn is_looked_at(&self, inode: InodeId) -> bool {
        self.lock().get(&inode).is_some_and(|known| !known.has_pages && !known.readers.is_empty())
    }

    /// Waits for a file that has been open for a while, or whose size may have changed a while ago. If this is dropped, none is forgotten.
    pub(crate) async fn next_long_open(&self) -> (InodeId, OpenFile) {
        loop {
            let opened = self.has_opened.notified();
            let next = self.open.lock().expect("no holder panics").front().copied();
            match next {
                None => opened.await,
                Some((at, inode)) => {
                    sleep_until(at).await;
                    self.open.lock().expect("no holder panics").pop_front();
                    let is_looked_at = self.is_looked_at(inode);
                    let mut inodes = self.lock();
                    let Some(known) = inodes.get_mut(&inode) else { continue };
                    known.is_listed = false;
                    if let Some(file) = known.readers.first().filter(|_| is_looked_at) {
                        known.is_watched = true;
                        return (inode, *file);
                    }
                }
            }
        }
    }

    pub(crate) fn closed(&self, inode: InodeId, file: OpenFile) {
        let mut inodes = self.lock();
        let Some(known) = inodes.get_mut(&inode) else { return };
        known.readers.remove(&file);
        known.failed.remove(&file);
        if known.is_unused() {
            inodes.remove(&inode);
        }
    }

    /// A request has come whose answer may have attributes of this inode.
    pub(crate) fn ask(&self, inode: InodeId) -> Asked {
        self.ask_again(Asked { number: 0, version: self.lock().get(&inode).map_or(0, Known::asked) })
    }

    /// The attributes for the answer are asked for once more.
    pub(crate) fn ask_again(&self, asked: Asked) -> Asked {
        Asked { number: self.asked.fetch_add(1, Ordering::Relaxed) + 1, ..asked }
    }

    /// True if attributes of a later request were answered: those of this one may be older, and the kernel would not notice.
    pub(crate) fn is_overtaken(&self, inode: InodeId, asked: Asked) -> bool {
        self.lock().get(&inode).is_some_and(|known| known.answered > asked.number)
    }

    /// Attributes of an inode are answered. `of_inode`: the request was about this inode.
    pub(crate) fn told(&self, inode: InodeId, size: u64, asked: Asked, of_inode: bool) {
        if let Some(known) = self.lock().get_mut(&inode) {
            known.answered = known.answered.max(asked.number);
            known.size.told(size, of_inode && known.learns(asked));
        }
    }

    /// A program on this mount has written up to here.
    pub(crate) fn wrote(&self, inode: InodeId, end: u64) {
        if let Some(known) = self.lock().get_mut(&inode) {
            // The kernel discards attributes that it asked for before, and learns no size from READs.
            known.version += 1;
            known.size.wrote(end);
        }
    }

    /// A write through this file has failed. If it was asynchronous and ended behind what the kernel takes for the end of the file, the
    /// kernel sets the size that it knows, and would cut off what another host has appended: so it learns the size before it has the answer.
    pub(crate) async fn before_failure(&self, inode: InodeId, file: OpenFile, size: u64, last: u8) {
        self.lengthen(inode, size, last).await;
        self.lock().entry(inode).or_default().failed.insert(file, size);
    }

    /// True if the kernel sets a size by itself, since a write through this file has failed.
    pub(crate) fn is_set_by_kernel(&self, inode: InodeId, file: OpenFile, size: u64) -> bool {
        self.lock().get_mut(&inode).and_then(|known| known.failed.remove(&file)) == Some(size)
    }

    /// The open file by which the kernel is to learn that a file is so long, before it is told so by attributes; none if these will do. They
    /// don't if the kernel discards them, or if another program's process may still apply an answer from before: the kernel applies it when
    /// that process runs.
    pub(crate) fn lags(&self, inode: InodeId, asked: Asked, size: u64) -> Option<OpenFile> {
        let lags =
            |known: &Known| known.size.at_least() < size && (known.size.at_most() <= size || !known.learns(asked));
        let is_short = self.lock().get(&inode).is_some_and(lags);
        if !is_short {
            return None;
        }
        let inodes = self.lock();
        let known = inodes.get(&inode).filter(|known| known.has_pages || known.is_watched)?;
        known.readers.first().copied()
    }

    /// A READ for pages has come. True if it is the first of the inode.
    pub(crate) fn begin(&self, inode: InodeId, unique: u64, (offset, length): (u64, u64)) -> bool {
        let mut inodes = self.lock();
        let known = inodes.entry(inode).or_default();
        let asked = (known.changing == 0).then(|| known.asked());
        known.reading.insert(unique, Reading { offset, length, asked });
        !std::mem::replace(&mut known.has_pages, true)
    }

    /// Waits until a READ that reaches the end of the file may be answered, and finds out whether the kernel will learn the size from it. If
    /// not, it is refused: for read-ahead, the kernel repeats it page by page. A page that was refused once is answered, since the program
    /// would get the second refusal.
    pub(crate) async fn check(&self, inode: InodeId, unique: u64, (read, length): (usize, usize)) -> Result<()> {
        loop {
            let answered = self.answered.notified();
            {
                let mut inodes = self.lock();
                let Some(known) = inodes.get_mut(&inode) else { return Ok(()) };
                let Some(reading) = known.reading.get(&unique).copied() else { return Ok(()) };
                let (is_page, end) = (length as u64 <= PAGE_BYTES, reading.offset + read as u64);
                // Nothing of it is in the file. An answer would change the inode, so that a READ of the last page comes too late.
                if read == 0 && !is_page {
                    known.refuse(end, length as u64);
                    return Err(Errno::IO);
                }
                if !known.reading.values().any(|other| other.offset < reading.offset) {
                    if known.changing == 0 && reading.asked == Some(known.asked()) {
                        known.size.ended(end);
                        return Ok(());
                    }
                    // The kernel takes the file to be no longer, or has refused the page before.
                    if known.size.at_most() <= end || is_page && known.refused.remove(&reading.offset) {
                        return Ok(());
                    }
                    known.refuse(end, (length - read) as u64);
                    // Without read-ahead before, the program gets the refusal, and repeats the call.
                    return Err(if is_page { Errno::INTR } else { Errno::IO });
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
            if known.is_unused() {
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
        let change = self.changes(inode);
        let dropped = tokio::task::spawn_blocking(move || notifier.invalidate_inode(inode, Some(range))).await;
        self.await_requests().await;
        drop(change);
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
        match self.lock().get_mut(&inode) {
            // An invalidation would have the kernel discard what it is being told.
            Some(known) if known.size.at_least() >= size => return,
            Some(known) => {
                known.size.begin_lengthening(size);
                // A program that finds the page with the byte alone reads it without read-ahead.
                known.refuse(size - 1, 1);
            }
            None => {}
        }
        let notifier = self.notifier.clone();
        let change = self.changes(inode);
        // The page that the byte is stored in has nothing else: read-ahead would stop there.
        let page = (size - 1) / PAGE_BYTES * PAGE_BYTES;
        let tell = move || {
            notifier.lengthen(inode, size, last)?;
            notifier.invalidate_inode(inode, Some((page, PAGE_BYTES)))
        };
        let told = tokio::task::spawn_blocking(tell).await;
        if let Some(known) = self.lock().get_mut(&inode) {
            known.size.end_lengthening();
        }
        self.await_requests().await;
        drop(change);
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

    /// The kernel has dropped pages or learned a size. What it had asked before may still be on its way.
    async fn await_requests(&self) {
        for _ in 0..TURNS_MAX {
            if !self.notifier.has_requests() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    fn changes(&self, inode: InodeId) -> Change<'_> {
        let mut inodes = self.lock();
        let known = inodes.entry(inode).or_default();
        known.version += 1;
        known.changing += 1;
        Change { cache: self, inode }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InodeId, Known>> {
        self.inodes.lock().expect("no holder panics")
    }
}

/// The kernel is dropping pages, or learning a size, until this is dropped.
struct Change<'a> {
    cache: &'a KernelCache,
    inode: InodeId,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut inodes = self.cache.lock();
        let known = inodes.get_mut(&self.inode).expect("it stays while it changes");
        known.settled += 1;
        known.changing -= 1;
        known.size.give_up_lengthening();
        if known.is_unused() {
            inodes.remove(&self.inode);
        }
    }
}
