//! The inodes that this host uses: for each, the data lock as this host holds it, and what may be remembered under
//! it.
//!
//! ```text
//!   enter ─► queued ─► admitted (the data lock covers it) ─► its range is locked here ─► … ─► leave
//!                 data lock: free ─► asked ─► held ─► revoked, nobody admitted ─► time of last write published ─► free
//! ```
//!
//! The data lock keeps hosts apart, and the table of ranges the operations of this host. Operations are admitted in the order in which they
//! came. Once the data lock is revoked nobody is admitted; it is given back when those who were admitted have left. To give it back needs no
//! other lock. A data lock that was granted admits all who waited for it, even if it was revoked meanwhile, so that everybody's turn comes.

use crate::block_map::{BlockMap, Segment};
use crate::metadata_link::{Asker, MetadataLink};
use crate::progress::Progress;
use crate::range_locks::{DATA, RangeLocks};
use braid_base::{BlockRange, InodeId, Now, ObjectId, Time, Timers, limits};
use braid_locks::client::Event;
use braid_locks::{LockState, LockTable, Locked};
use braid_machine::{FilesError, HostError};
use braid_wire::{FileCommand, FileError, FileExtent, FileReply, FileResult, FileTime, LockExtent, LockMode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long the time of a write that only overwrites may remain unpublished.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(1);
/// How long a read for the front end's cache waits while the cache is being dropped. Dropping usually takes less. If it does not, it may be
/// waiting for this read.
const DROPPED_WITHIN: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Default)]
pub struct Inodes {
    by_id: BTreeMap<InodeId, Inode>,
    /// Operations that have entered.
    users: BTreeMap<u64, User>,
    /// Keeps the admitted operations of this host apart.
    ranges: LockTable<u64>,
    /// When times are published at the latest.
    timers: Timers<InodeId>,
    /// Maps that were begun so far.
    maps: u64,
    /// The extents in all maps.
    cached: usize,
    /// Inodes whose bytes the front end has to drop, and was not told yet.
    revocations: Vec<InodeId>,
    /// Inodes of which the front end's cache has something that it was not told to drop.
    given: BTreeSet<InodeId>,
    /// When reads for the cache of an inode that is being dropped are admitted.
    late: Timers<InodeId>,
    /// The front end has ended, and keeps nothing any more.
    has_no_cache: bool,
    progress: Vec<Progress>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    data_lock: DataLock,
    is_revoked: bool,
    /// Files of this host are open: the data lock is kept while it is idle.
    is_open: bool,
    queue: VecDeque<u64>,
    admitted: usize,
    map: BlockMap,
    /// Changes when the map is forgotten, so that pages that were asked for before are not taken in.
    map_number: u64,
    /// Pages under way, by their first block, and the operations that wait for them.
    pages: BTreeMap<u64, Vec<u64>>,
    mtime: Publication,
    kept: Kept,
}

/// What the front end's cache has of an inode. It has something only while the data lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kept {
    #[default]
    Nothing,
    /// Bytes, or the size.
    Given,
    /// It is dropping all. `is_given_more`: it was given something meanwhile, so that it has to drop that, too.
    Dropping { is_given_more: bool },
}

/// The time of the last write, as far as the server does not know it.
#[derive(Clone, Debug, Default)]
struct Publication {
    unpublished: Option<FileTime>,
    is_sent: bool,
    /// Operations that wait for what is sent.
    waiting: Vec<u64>,
    /// Operations that wait for what is to be sent next.
    next: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DataLock {
    #[default]
    Free,
    Asked(LockMode),
    Held(LockMode),
}

#[derive(Clone, Debug)]
struct User {
    inode: InodeId,
    mode: LockMode,
    is_admitted: bool,
    /// It reads for the front end's cache.
    fills: bool,
    range: Option<BlockRange>,
}

impl Inodes {
    /// An operation is going to read (shared) or change (exclusive) an inode, or to read for the front end's cache (`fills`). When it is
    /// admitted, it is ready.
    pub fn enter(
        &mut self,
        now: Now,
        locks: &mut RangeLocks,
        link: &mut MetadataLink,
        op: u64,
        (inode, mode, fills): (InodeId, LockMode, bool),
    ) {
        let user = User { inode, mode, is_admitted: false, fills, range: None };
        self.maps += 1;
        let map_number = self.maps;
        let known = self.by_id.entry(inode).or_insert_with(|| Inode::new(map_number));
        known.queue.push_back(op);
        if fills && matches!(known.kept, Kept::Dropping { .. }) && self.late.deadline_of(inode).is_none() {
            self.late.set(inode, now.time.after(DROPPED_WITHIN));
        }
        assert!(self.users.insert(op, user).is_none(), "an operation enters once");
        self.advance(now, locks, link, inode);
    }

    /// True if the front end was given nothing since it was told to drop all.
    pub fn has_dropped_all(&self, inode: InodeId) -> bool {
        self.by_id.get(&inode).is_none_or(|known| known.kept != Kept::Dropping { is_given_more: true })
    }

    /// The front end has dropped what it was told to drop. If it was given more meanwhile, it is told again.
    pub fn on_dropped(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, inode: InodeId) {
        let Some(known) = self.by_id.get_mut(&inode) else { return };
        let Kept::Dropping { is_given_more } = known.kept else { return };
        known.kept = Kept::Nothing;
        if is_given_more {
            self.give(inode);
        }
        self.late.cancel(inode);
        self.advance(now, locks, link, inode);
    }

    /// The front end ends. It keeps nothing any more, and answers no revocation.
    pub fn end_cache(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink) {
        self.has_no_cache = true;
        self.revocations.clear();
        self.given.clear();
        for inode in self.by_id.keys().copied().collect::<Vec<_>>() {
            self.late.cancel(inode);
            self.inode(inode).kept = Kept::Nothing;
            self.advance(now, locks, link, inode);
        }
    }

    /// Takes out the inodes that the front end has to drop.
    pub fn take_revocations(&mut self) -> Vec<InodeId> {
        std::mem::take(&mut self.revocations)
    }

    /// True if another host waits for the data lock.
    pub fn is_wanted(&self, inode: InodeId) -> bool {
        self.by_id.get(&inode).is_some_and(|known| known.is_revoked)
    }

    /// True if the operation has entered.
    pub fn has_entered(&self, op: u64) -> bool {
        self.users.contains_key(&op)
    }

    pub fn is_admitted(&self, op: u64) -> bool {
        self.users.get(&op).is_some_and(|user| user.is_admitted)
    }

    /// An operation has ended. Does nothing if it has not entered.
    pub fn leave(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, op: u64) {
        let Some(user) = self.users.remove(&op) else { return };
        self.unlock(op);
        let inode = self.inode(user.inode);
        if user.is_admitted {
            inode.admitted -= 1;
        } else {
            inode.queue.retain(|queued| *queued != op);
        }
        inode.pages.values_mut().for_each(|waiting| waiting.retain(|waiting| *waiting != op));
        self.advance(now, locks, link, user.inode);
    }

    /// Locks a range of blocks among the operations of this host, in place of the range that the operation has. False if it has to wait.
    pub fn lock(&mut self, op: u64, range: BlockRange) -> bool {
        let user = &self.users[&op];
        assert!(user.is_admitted, "only an admitted operation locks blocks");
        if user.range.is_some_and(|held| held.contains(range)) {
            return self.ranges.state(op) == Some(LockState::Held);
        }
        let (inode, mode) = (user.inode, user.mode);
        self.unlock(op);
        self.users.get_mut(&op).expect("just seen").range = Some(range);
        self.ranges.lock(op, ObjectId(inode.0), &[LockExtent { position: 0, range, mode }]) == Locked::Granted
    }

    /// What is known of an inode's extents and size. If it is not known from a block on, the operation waits for a page.
    pub fn known<R>(
        &mut self,
        now: Time,
        link: &mut MetadataLink,
        op: u64,
        look: impl FnOnce(&BlockMap) -> Result<R, u64>,
    ) -> Option<R> {
        let inode = self.users[&op].inode;
        let found = look(&self.inode(inode).map);
        found.map_err(|unknown| self.load(now, link, op, unknown)).ok()
    }

    /// The size of an inode in bytes. If it is not known, the operation waits for a page from this block on.
    pub fn size(&mut self, now: Time, link: &mut MetadataLink, op: u64, at: u64) -> Option<u64> {
        self.known(now, link, op, |map| map.size().ok_or(at))
    }

    /// Where blocks are. If it is not known, the operation waits for a page.
    pub fn find(&mut self, now: Time, link: &mut MetadataLink, op: u64, range: BlockRange) -> Option<Vec<Segment>> {
        self.known(now, link, op, |map| map.find(range))
    }

    /// Extents were attached to an inode. It has this size now.
    pub fn on_attached(&mut self, inode: InodeId, extents: &[FileExtent], size: u64, mtime: FileTime) {
        let known = self.inode(inode);
        let before = known.map.len();
        extents.iter().for_each(|extent| known.map.set(*extent));
        known.map.set_size(known.map.size().unwrap_or(0).max(size));
        if known.mtime.unpublished.is_some_and(|time| time <= mtime) {
            known.mtime.unpublished = None;
        }
        self.cached = self.cached + self.by_id[&inode].map.len() - before;
    }

    /// An inode was truncated to this size.
    pub fn on_truncated(&mut self, inode: InodeId, size: u64, end: u64) {
        let known = self.inode(inode);
        let before = known.map.len();
        known.map.cut(end);
        known.map.set_size(size);
        known.mtime.unpublished = None;
        self.cached = self.cached + self.by_id[&inode].map.len() - before;
    }

    /// Blocks of an inode were overwritten in place.
    pub fn on_overwritten(&mut self, now: Time, inode: InodeId, mtime: FileTime) {
        let known = self.inode(inode);
        known.mtime.unpublished = known.mtime.unpublished.max(Some(mtime));
        if self.timers.deadline_of(inode).is_none() {
            self.timers.set(inode, now.after(PUBLISHED_WITHIN));
        }
    }

    /// Publishes the time of the last write. False if the operation has to wait for that.
    pub fn publish(&mut self, now: Time, link: &mut MetadataLink, op: u64, inode: InodeId) -> bool {
        let Some(known) = self.by_id.get_mut(&inode) else { return true };
        match (known.mtime.is_sent, known.mtime.unpublished) {
            (false, None) => return true,
            (true, None) => known.mtime.waiting.push(op),
            (true, Some(_)) => known.mtime.next.push(op),
            (false, Some(_)) => {
                known.mtime.waiting.push(op);
                known.send_mtime(now, link, inode);
            }
        }
        false
    }

    /// A file of this host is open.
    pub fn set_open(&mut self, inode: InodeId) {
        self.maps += 1;
        let map_number = self.maps;
        self.by_id.entry(inode).or_insert_with(|| Inode::new(map_number)).is_open = true;
    }

    /// No file of this host is open any more.
    pub fn set_closed(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, inode: InodeId) {
        if let Some(known) = self.by_id.get_mut(&inode) {
            known.is_open = false;
            self.advance(now, locks, link, inode);
        }
    }

    /// A new file is open. This host has its data lock: there are no bytes and no extents.
    pub fn open_new(&mut self, inode: InodeId) {
        self.maps += 1;
        let mut known = Inode::new(self.maps);
        known.is_open = true;
        known.data_lock = DataLock::Held(LockMode::Exclusive);
        known.map.cut(0);
        known.map.set_size(0);
        assert!(self.by_id.insert(inode, known).is_none(), "nobody has used a new inode");
    }

    /// A lock event. False if a lock that was held is lost.
    pub fn on_lock(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, event: Event) -> bool {
        let (Event::Granted { holder }
        | Event::Delayed { holder }
        | Event::Denied { holder, .. }
        | Event::Lost { holder }
        | Event::Revoked { holder }) = event;
        let inode = InodeId(holder);
        let Some(known) = self.by_id.get_mut(&inode) else { return true };
        match (event, known.data_lock) {
            (Event::Lost { .. }, _) => return false,
            (Event::Granted { .. }, DataLock::Asked(mode)) => {
                known.data_lock = DataLock::Held(mode);
                self.admit(inode);
            }
            (Event::Revoked { .. }, DataLock::Asked(_) | DataLock::Held(_)) => known.is_revoked = true,
            (Event::Denied { .. }, DataLock::Asked(_)) => {
                known.data_lock = DataLock::Free;
                locks.release(now, DATA, holder);
                for op in self.inode(inode).queue.clone() {
                    self.progress.push(Progress::Failed(op, refused(FileError::Busy)));
                }
                return true;
            }
            _ => {}
        }
        self.advance(now, locks, link, inode);
        true
    }

    /// The server has answered `Map`.
    pub fn on_page(&mut self, inode: InodeId, from: u64, number: u64, reply: FileReply) {
        let Some(known) = self.by_id.get_mut(&inode) else { return };
        let waiting = known.pages.remove(&from).unwrap_or_default();
        let before = known.map.len();
        let error = match reply {
            // Forgotten meanwhile: those who wait ask again.
            _ if known.map_number != number => None,
            Ok(FileResult::Extents { extents, more, size }) => {
                (!known.map.take_page(from, &extents, more, size)).then_some(FileError::Lost)
            }
            Ok(_) => Some(FileError::Lost),
            Err(error) => Some(error),
        };
        self.cached = self.cached + self.by_id[&inode].map.len() - before;
        self.progress.extend(waiting.into_iter().map(|op| match error {
            None => Progress::Ready(op),
            Some(error) => Progress::Failed(op, refused(error)),
        }));
        self.forget_maps(inode);
    }

    /// The server has answered a publication. If it refuses, the inode is gone, and nobody will ask for the time.
    pub fn on_published(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, inode: InodeId) {
        let Some(known) = self.by_id.get_mut(&inode) else { return };
        known.mtime.is_sent = false;
        let waiting = std::mem::take(&mut known.mtime.waiting);
        known.mtime.waiting = std::mem::take(&mut known.mtime.next);
        if !known.mtime.waiting.is_empty() {
            known.send_mtime(now.time, link, inode);
        }
        self.progress.extend(waiting.into_iter().map(Progress::Ready));
        self.advance(now, locks, link, inode);
    }

    pub fn deadline(&self, link: &MetadataLink) -> Option<Time> {
        let timers = [self.timers.next(), self.late.next()].into_iter().flatten().map(|(time, _)| time);
        let of_cache = (!self.given.is_empty()).then(|| [link.confirm_at(), Some(lease_end(link))]);
        timers.chain(of_cache.into_iter().flatten().flatten()).min()
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, now: Time, link: &mut MetadataLink) {
        while let Some(inode) = self.timers.pop_due(now) {
            let Some(known) = self.by_id.get_mut(&inode) else { continue };
            match (known.mtime.is_sent, known.mtime.unpublished) {
                (_, None) => {}
                (false, Some(_)) => known.send_mtime(now, link, inode),
                (true, Some(_)) => self.timers.set(inode, now.after(PUBLISHED_WITHIN)),
            }
        }
        while let Some(inode) = self.late.pop_due(now) {
            self.admit_late(inode);
        }
        if !self.given.is_empty() {
            self.keep_cache(now, link);
        }
    }

    /// The front end's cache may be used while no other host can have the data locks. It would show old bytes of a host that is fenced, and
    /// does not hear of it.
    fn keep_cache(&mut self, now: Time, link: &mut MetadataLink) {
        if link.confirm_at().is_some_and(|at| at <= now) {
            link.confirm(now);
        }
        if lease_end(link) <= now {
            for inode in std::mem::take(&mut self.given) {
                self.revoke(now, inode);
            }
        }
    }

    /// Takes out what operations are to be told.
    pub fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }

    /// The number of operations that wait for a data lock, or for others of this host.
    pub fn waiting(&self) -> usize {
        let queued: usize = self.by_id.values().map(|known| known.queue.len()).sum();
        queued + self.ranges.states().filter(|(_, state)| *state == LockState::Waiting).count()
    }

    /// True if no inode is in use, so that no data lock is held.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn invariants(&self) {
        self.ranges.invariants();
        assert!(self.progress.is_empty(), "operations are told in the same step");
        for (inode, known) in &self.by_id {
            assert_eq!(known.kept == Kept::Given, self.given.contains(inode), "what was given is listed: {inode}");
            let held = matches!(known.data_lock, DataLock::Held(_));
            assert!(held || known.kept == Kept::Nothing, "the cache is empty without the lock: {inode}");
            assert!(held || known.admitted == 0, "nobody uses an inode without its lock: {inode}");
            assert!(held || known.map.size().is_none(), "nothing is remembered without the lock: {inode}");
            assert!(
                held || known.mtime.unpublished.is_none(),
                "times are published before the lock is released: {inode}"
            );
            assert!(
                known.is_open || known.data_lock != DataLock::Free || !known.queue.is_empty(),
                "{inode} is forgotten"
            );
        }
        let cached: usize = self.by_id.values().map(|known| known.map.len()).sum();
        assert_eq!(self.cached, cached, "cached extents are counted");
    }

    fn inode(&mut self, inode: InodeId) -> &mut Inode {
        self.by_id.get_mut(&inode).expect("an inode in use is known")
    }

    fn unlock(&mut self, op: u64) {
        let mut granted = Vec::new();
        self.ranges.release(op, &mut granted);
        self.progress.extend(granted.into_iter().map(Progress::Ready));
    }

    /// Admits those at the head of the queue whom the data lock covers.
    fn admit(&mut self, inode: InodeId) {
        let DataLock::Held(mode) = self.inode(inode).data_lock else { return };
        while let Some(op) = self.inode(inode).queue.front().copied() {
            let known = self.by_id.get_mut(&inode).expect("an inode in use is known");
            let user = self.users.get_mut(&op).expect("who is queued has entered");
            if mode == LockMode::Shared && user.mode == LockMode::Exclusive {
                return;
            }
            user.is_admitted = true;
            known.admitted += 1;
            known.queue.pop_front();
            let gives = user.fills && !self.has_no_cache;
            self.progress.push(Progress::Ready(op));
            if gives {
                self.give(inode);
            }
        }
    }

    /// Admits reads for the cache while it is being dropped, which may wait for them. The data lock is still held.
    fn admit_late(&mut self, inode: InodeId) {
        let Some(known) = self.by_id.get_mut(&inode) else { return };
        if !matches!(known.kept, Kept::Dropping { .. }) {
            return;
        }
        for op in std::mem::take(&mut known.queue) {
            let known = self.by_id.get_mut(&inode).expect("an inode in use is known");
            let user = self.users.get_mut(&op).expect("who is queued has entered");
            if !user.fills {
                known.queue.push_back(op);
                continue;
            }
            user.is_admitted = true;
            known.admitted += 1;
            self.give(inode);
            self.progress.push(Progress::Ready(op));
        }
    }

    /// Goes on with the data lock as far as possible.
    fn advance(&mut self, now: Now, locks: &mut RangeLocks, link: &mut MetadataLink, inode: InodeId) {
        let Some(known) = self.by_id.get_mut(&inode) else { return };
        match known.data_lock {
            DataLock::Held(_) => {
                let is_dropping = matches!(known.kept, Kept::Dropping { .. });
                if !known.is_revoked && !is_dropping {
                    self.admit(inode);
                }
                let known = self.inode(inode);
                // Somebody waits: here for a stronger data lock, or elsewhere.
                let is_wanted = known.is_revoked || !known.queue.is_empty() || !known.is_open;
                if !is_wanted || known.admitted > 0 {
                    return;
                }
                if known.mtime.is_sent || known.mtime.unpublished.is_some() {
                    return known.send_mtime(now.time, link, inode);
                }
                match known.kept {
                    Kept::Nothing => self.release(now, locks, inode),
                    Kept::Given => return self.revoke(now.time, inode),
                    Kept::Dropping { .. } => return,
                }
            }
            DataLock::Asked(_) if known.queue.is_empty() => self.release(now, locks, inode),
            DataLock::Asked(_) => return,
            DataLock::Free => {}
        }
        let known = &self.by_id[&inode];
        if !known.queue.is_empty() {
            let wants_exclusive = known.queue.iter().any(|op| self.users[op].mode == LockMode::Exclusive);
            let mode = if wants_exclusive { LockMode::Exclusive } else { LockMode::Shared };
            self.inode(inode).data_lock = DataLock::Asked(mode);
            locks.acquire_inode(now, DATA, inode, mode);
        } else if !known.is_open {
            self.timers.cancel(inode);
            self.late.cancel(inode);
            self.by_id.remove(&inode);
        }
    }

    /// The front end's cache gets something.
    fn give(&mut self, inode: InodeId) {
        let known = self.inode(inode);
        known.kept = match known.kept {
            Kept::Nothing | Kept::Given => Kept::Given,
            Kept::Dropping { .. } => Kept::Dropping { is_given_more: true },
        };
        if known.kept == Kept::Given {
            self.given.insert(inode);
        }
    }

    /// The front end has to drop what it was given.
    fn revoke(&mut self, now: Time, inode: InodeId) {
        self.inode(inode).kept = Kept::Dropping { is_given_more: false };
        self.given.remove(&inode);
        // Those who fill the cache may be what it waits for, also if they came before.
        let users = &self.users;
        if self.by_id[&inode].queue.iter().any(|op| users[op].fills) {
            self.late.set(inode, now.after(DROPPED_WITHIN));
        }
        self.revocations.push(inode);
    }

    /// Gives the data lock back, and forgets what was known under it.
    fn release(&mut self, now: Now, locks: &mut RangeLocks, inode: InodeId) {
        self.maps += 1;
        let map_number = self.maps;
        let known = self.inode(inode);
        let before = known.map.len();
        known.data_lock = DataLock::Free;
        known.is_revoked = false;
        known.map.clear();
        known.map_number = map_number;
        known.pages.clear();
        self.cached -= before;
        locks.release(now, DATA, inode.0);
    }

    fn load(&mut self, now: Time, link: &mut MetadataLink, op: u64, from: u64) {
        let inode = self.users[&op].inode;
        let known = self.inode(inode);
        let number = known.map_number;
        let is_first = !known.pages.contains_key(&from);
        known.pages.entry(from).or_default().push(op);
        if is_first {
            let command = FileCommand::Map { inode, from, most: limits::FILE_EXTENTS_MAX as u32 };
            link.send(now, Asker::Map { inode, from, number }, command);
        }
    }

    /// Forgets extents if there are too many: first those of other inodes than this one.
    fn forget_maps(&mut self, of: InodeId) {
        if self.cached <= limits::EXTENTS_CACHED_MAX {
            return;
        }
        let others = self.by_id.keys().copied().filter(|inode| *inode != of);
        for inode in others.chain([of]).collect::<Vec<_>>() {
            if self.cached > limits::EXTENTS_CACHED_MAX {
                self.maps += 1;
                let map_number = self.maps;
                let known = self.inode(inode);
                let before = known.map.len();
                known.map.clear_extents();
                known.map_number = map_number;
                self.cached -= before;
            }
        }
    }
}

impl Inode {
    fn new(map_number: u64) -> Inode {
        Inode { map_number, ..Inode::default() }
    }

    /// Sends the time of the last write, if it is not sent already.
    fn send_mtime(&mut self, now: Time, link: &mut MetadataLink, inode: InodeId) {
        if !self.mtime.is_sent
            && let Some(mtime) = self.mtime.unpublished.take()
        {
            self.mtime.is_sent = true;
            let command = FileCommand::Attach { inode, extents: Vec::new(), size: 0, mtime };
            link.send(now, Asker::Publish(inode), command);
        }
    }
}

/// When the front end's cache has to be empty, unless the server answers before.
fn lease_end(link: &MetadataLink) -> Time {
    link.confirmed_until().unwrap_or(Time(0))
}

fn refused(error: FileError) -> HostError {
    HostError::Files(FilesError::Refused(error))
}
