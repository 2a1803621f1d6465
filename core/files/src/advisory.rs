//! Advisory locks on bytes of files, as POSIX defines them: an owner, such as a process, has at most one lock on a byte. A new lock takes
//! the place of the owner's own locks on its range; unlocking may cut a lock in two.
//!
//! The metadata server knows hosts, not owners. What it grants, the host *keeps* when it is unlocked, until another host wants it or the file
//! is closed. Within that, owners lock without a message (range-lock paper: datalocks, and childlocks below them).
//!
//! ```text
//!   lock ─► the owner has it already ─────────────────────────────────────────────────────► locked
//!       └─► what is missing, as a holder of the lock client ─► other owners here? ─► kept? ──┘ no: a message
//!   unlock ─► its holders keep less ─► what another host wants, and no owner here has, is given back
//! ```
//!
//! What another host wants is given back as soon as no owner here has it: those that wait for it queue behind the other host. So each host has
//! its turn.
//!
//! A lock that does not wait is refused if another owner has it. If another host only keeps it, that gives it back first: so such a lock may
//! take a few messages, and the time of two repetitions at most. An exclusive lock over shared ones of the same owner that does not wait is
//! granted over them, or refused: they stay.
//!
//! One limit remains: an exclusive lock that may wait gives shared ones of the same owner up first, so that two owners who both want that do
//! not wait for each other. If its wait ends, the shared one is asked for again before that is told. In between another owner may have had the
//! bytes.

mod owner_locks;

use crate::handles::Handles;
use crate::range_locks::{ADVISORY, RangeLocks, advisory_extent};
use braid_base::{BlockRange, InodeId, Now, limits};
use braid_locks::client::Event;
use braid_machine::{AdvisoryOwner, FilesError, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, OpId};
use braid_wire::{FileError, LockExtent, LockMode, LockRefusal};
use owner_locks::{Holders, OwnerLocks};
use std::collections::BTreeMap;

type Place = (InodeId, AdvisoryOwner);

/// The most pieces that one owner locks of one file: looking for what is missing among them takes a moment at most.
const PIECES_MAX: usize = 4_096;

#[derive(Clone, Debug, Default)]
pub struct AdvisoryLocks {
    owners: BTreeMap<Place, OwnerLocks>,
    /// Requests that are not granted, by the number of their holder.
    waiting: BTreeMap<u64, Request>,
    /// Holders so far.
    asked: u64,
    ended: Vec<(OpId, HostOutcome)>,
}

#[derive(Clone, Debug)]
struct Request {
    op: OpId,
    place: Place,
    kind: Kind,
    wanted: Vec<LockExtent>,
    /// What is asked for now, and the owner's holders over which it is.
    missing: Vec<LockExtent>,
    over: Vec<u64>,
    /// What was granted for it before.
    granted: Holders,
    /// The owner's shared locks that were given up for it.
    yielded: Vec<LockExtent>,
}

#[derive(Clone, Debug)]
enum Kind {
    Lock {
        waits: bool,
    },
    Test,
    /// What was given up is asked for again; then the request ends with this error.
    Restore(HostError),
}

impl AdvisoryLocks {
    pub fn begin(&mut self, now: Now, locks: &mut RangeLocks, handles: &Handles, op: OpId, request: FilesRequest) {
        if let Err(error) = self.try_begin(now, locks, handles, op, request) {
            self.ended.push((op, Err(error)));
        }
    }

    /// A lock event. False if a lock is lost.
    pub fn on_lock(&mut self, now: Now, locks: &mut RangeLocks, event: Event) -> bool {
        match event {
            // The grant may be from before the server had this host fenced. If it is not fenced, it is granted again.
            Event::Granted { holder } if locks.is_in_doubt(now, holder) => self.ask_again(now, locks, vec![holder]),
            Event::Granted { holder } => {
                if let Some(mut request) = self.waiting.remove(&holder) {
                    request.granted.push((holder, std::mem::take(&mut request.missing)));
                    self.go_on(now, locks, request);
                }
            }
            Event::Denied { holder, refusal } => {
                locks.release(now, ADVISORY, holder);
                if let Some(request) = self.waiting.remove(&holder) {
                    self.on_denied(now, locks, request, refusal);
                }
            }
            Event::Lost { .. } => return false,
            Event::Delayed { .. } | Event::Revoked { .. } => {}
        }
        true
    }

    /// The front end has lost interest in these requests: their waits end.
    pub fn abandon(&mut self, now: Now, locks: &mut RangeLocks, ops: &[OpId]) {
        self.cancel(now, locks, |request| ops.contains(&request.op));
    }

    /// The file system is being unmounted: all locks are released.
    pub fn end_all(&mut self, now: Now, locks: &mut RangeLocks, error: &HostError) {
        let owned = self.owners.values().flat_map(OwnerLocks::holders);
        let granted = self.waiting.values().flat_map(|request| &request.granted).map(|(holder, _)| *holder);
        for holder in owned.chain(granted).chain(self.waiting.keys().copied()) {
            locks.release(now, ADVISORY, holder);
        }
        self.end_waiting(error);
    }

    /// The host is fenced: all locks are lost.
    pub fn take_fenced(&mut self) -> Vec<(OpId, HostOutcome)> {
        self.end_waiting(&HostError::Fenced);
        self.take_ended()
    }

    fn end_waiting(&mut self, error: &HostError) {
        self.owners.clear();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.ended.extend(waiting.map(|request| (request.op, Err(error.clone()))));
    }

    /// Takes out the outcomes of requests that have ended.
    pub fn take_ended(&mut self) -> Vec<(OpId, HostOutcome)> {
        std::mem::take(&mut self.ended)
    }

    /// The number of requests that are not granted.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn invariants(&self) {
        assert!(self.owners.values().all(|own| !own.is_empty()), "an owner has something");
    }

    fn try_begin(
        &mut self,
        now: Now,
        locks: &mut RangeLocks,
        handles: &Handles,
        op: OpId,
        request: FilesRequest,
    ) -> Result<(), HostError> {
        let place = |handle, owner| match handles.inode(handle) {
            Some(inode) => Ok((inode, owner)),
            None => Err(HostError::Files(FilesError::NotOpen)),
        };
        match request {
            FilesRequest::Lock { handle, owner, range, mode, wait } => {
                let (place, range) = (place(handle, owner)?, bytes(&range)?);
                self.request(now, locks, op, place, (range, mode), Kind::Lock { waits: wait })
            }
            FilesRequest::TestLock { handle, owner, range, mode } => {
                let (place, range) = (place(handle, owner)?, bytes(&range)?);
                self.request(now, locks, op, place, (range, mode), Kind::Test)
            }
            FilesRequest::Unlock { handle, owner, range } => {
                let (place, range) = (place(handle, owner)?, bytes(&range)?);
                let is_cut = |own: &OwnerLocks| own.len() >= PIECES_MAX && own.is_cut_by(range);
                if self.owners.get(&place).is_some_and(is_cut) {
                    return Err(busy());
                }
                self.unlock(now, locks, place, range);
                self.done(op, FilesSuccess::Done);
                Ok(())
            }
            FilesRequest::ReleaseOwner { handle, owner } => {
                let place = place(handle, owner)?;
                self.unlock(now, locks, place, BlockRange::new(0, limits::FILE_BYTES_MAX));
                self.cancel(now, locks, |request| request.place == place);
                self.done(op, FilesSuccess::Done);
                Ok(())
            }
            _ => unreachable!("other operations are served by their own part"),
        }
    }

    /// Locks or tests a range.
    fn request(
        &mut self,
        now: Now,
        locks: &mut RangeLocks,
        op: OpId,
        place: Place,
        (range, mode): (BlockRange, LockMode),
        kind: Kind,
    ) -> Result<(), HostError> {
        let count: usize = self.owners.values().map(OwnerLocks::len).sum();
        let is_in_pieces = self.owners.get(&place).is_some_and(|own| own.len() >= PIECES_MAX);
        if is_in_pieces || count + self.waiting.len() >= limits::ADVISORY_LOCKS_MAX {
            return Err(busy());
        }
        let (missing, over, granted, yielded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let wanted = vec![advisory_extent(range, mode)];
        self.go_on(now, locks, Request { op, place, kind, wanted, missing, over, granted, yielded });
        Ok(())
    }

    fn unlock(&mut self, now: Now, locks: &mut RangeLocks, place: Place, range: BlockRange) {
        let Some(own) = self.owners.get_mut(&place) else { return self.forget_yielded(now, locks, place, range) };
        let cut = own.unlock(range);
        self.keep(now, locks, place, cut);
        self.forget_yielded(now, locks, place, range);
    }

    /// What was given up is unlocked: it is not asked for again.
    fn forget_yielded(&mut self, now: Now, locks: &mut RangeLocks, place: Place, range: BlockRange) {
        let other = advisory_extent(range, LockMode::Exclusive);
        let mut restoring = Vec::new();
        for (holder, request) in self.waiting.iter_mut().filter(|(_, request)| request.place == place) {
            let is_restoring = matches!(request.kind, Kind::Restore(_));
            let yielded = if is_restoring { &mut request.wanted } else { &mut request.yielded };
            *yielded = std::mem::take(yielded).into_iter().flat_map(|extent| extent.without(&other)).collect();
            restoring.extend(is_restoring.then_some(*holder));
        }
        self.ask_again(now, locks, restoring);
    }

    /// Asks for what these requests miss now.
    fn ask_again(&mut self, now: Now, locks: &mut RangeLocks, holders: Vec<u64>) {
        for holder in holders {
            if let Some(request) = self.waiting.remove(&holder) {
                locks.release(now, ADVISORY, holder);
                self.go_on(now, locks, request);
            }
        }
    }

    /// Holders have less than before.
    fn keep(&mut self, now: Now, locks: &mut RangeLocks, place: Place, holders: Holders) {
        for (holder, rest) in holders {
            locks.keep_bytes(now, holder, &rest);
        }
        if self.owners.get(&place).is_some_and(OwnerLocks::is_empty) {
            self.owners.remove(&place);
        }
    }

    /// Asks for what a request misses. If that is nothing, it ends.
    fn go_on(&mut self, now: Now, locks: &mut RangeLocks, mut request: Request) {
        let place = request.place;
        let mut own = self.owners.remove(&place).unwrap_or_default();
        let mut cut = Vec::new();
        if matches!(request.kind, Kind::Lock { waits: true }) {
            for extent in &request.wanted {
                request.yielded.extend(own.weak(*extent).map(|(_, weak)| weak));
                cut.extend(own.cut_weak(*extent));
            }
        }
        request.missing = own.missing(&request.wanted, &request.granted);
        request.over = over(&own, &request);
        self.owners.insert(place, own);
        self.keep(now, locks, place, cut);
        if request.missing.is_empty() {
            return self.on_covered(now, locks, request);
        }
        if request.missing.len() > limits::EXTENTS_MAX {
            return self.fail(now, locks, request, busy());
        }
        self.asked += 1;
        let waits = matches!(request.kind, Kind::Lock { waits: true } | Kind::Restore(_));
        let over = (!waits).then(|| request.over.clone());
        locks.acquire_bytes(now, self.asked, place.0, request.missing.clone(), over);
        self.waiting.insert(self.asked, request);
    }

    /// The owner has what a request needs.
    fn on_covered(&mut self, now: Now, locks: &mut RangeLocks, request: Request) {
        let Request { op, place, kind, wanted, granted, .. } = request;
        match kind {
            Kind::Lock { .. } => {
                let own = self.owners.entry(place).or_default();
                let cut = own.lock(wanted[0], granted);
                self.keep(now, locks, place, cut);
                self.done(op, FilesSuccess::Done);
                // Requests of the same owner do not wait for each other.
                let is_beside = |other: &Request| {
                    let overlaps = |missing: &LockExtent| missing.range.overlaps(wanted[0].range);
                    let may_have = matches!(other.kind, Kind::Lock { .. } | Kind::Restore(_));
                    other.place == place && may_have && other.missing.iter().any(overlaps)
                };
                let beside = self.waiting.iter().filter(|(_, other)| is_beside(other)).map(|(other, _)| *other);
                self.ask_again(now, locks, beside.collect());
            }
            Kind::Test => {
                granted.iter().for_each(|(holder, _)| locks.release(now, ADVISORY, *holder));
                self.done(op, FilesSuccess::Tested { is_locked: false });
            }
            Kind::Restore(error) => {
                if !granted.is_empty() {
                    self.owners.entry(place).or_default().add(granted);
                }
                self.ended.push((op, Err(error)));
            }
        }
    }

    fn on_denied(&mut self, now: Now, locks: &mut RangeLocks, request: Request, refusal: LockRefusal) {
        let has_changed = self.owners.get(&request.place).is_some_and(|own| over(own, &request) != request.over);
        match (&request.kind, refusal) {
            // The owner's own locks were in the way.
            (Kind::Lock { .. } | Kind::Test, LockRefusal::Timeout) if has_changed => self.go_on(now, locks, request),
            (Kind::Test, LockRefusal::Timeout) => {
                request.granted.iter().for_each(|(holder, _)| locks.release(now, ADVISORY, *holder));
                self.done(request.op, FilesSuccess::Tested { is_locked: true });
            }
            (_, LockRefusal::Timeout) => self.fail(now, locks, request, HostError::Files(FilesError::Locked)),
            (_, LockRefusal::Busy | LockRefusal::Malformed) => {
                self.fail(now, locks, request, busy());
            }
        }
    }

    /// Ends a request that is not granted, when the owner has again what it had given up.
    fn fail(&mut self, now: Now, locks: &mut RangeLocks, mut request: Request, error: HostError) {
        std::mem::take(&mut request.granted).iter().for_each(|(holder, _)| locks.release(now, ADVISORY, *holder));
        match request.kind {
            Kind::Restore(error) => self.ended.push((request.op, Err(error))),
            Kind::Lock { .. } | Kind::Test => {
                (request.kind, request.wanted) = (Kind::Restore(error), std::mem::take(&mut request.yielded));
                self.go_on(now, locks, request);
            }
        }
    }

    /// Ends the waits of some requests.
    fn cancel(&mut self, now: Now, locks: &mut RangeLocks, which: impl Fn(&Request) -> bool) {
        let is_chosen = |request: &Request| which(request) && !matches!(request.kind, Kind::Restore(_));
        let chosen = self.waiting.iter().filter(|(_, request)| is_chosen(request)).map(|(holder, _)| *holder);
        for holder in chosen.collect::<Vec<_>>() {
            let request = self.waiting.remove(&holder).expect("just seen");
            locks.release(now, ADVISORY, holder);
            self.fail(now, locks, request, HostError::Abandoned);
        }
    }

    fn done(&mut self, op: OpId, success: FilesSuccess) {
        self.ended.push((op, Ok(HostSuccess::Files(success))));
    }
}

fn busy() -> HostError {
    HostError::Files(FilesError::Refused(FileError::Busy))
}

/// The owner's holders of what is too weak for a request.
fn over(own: &OwnerLocks, request: &Request) -> Vec<u64> {
    request.wanted.iter().flat_map(|extent| own.weak(*extent)).map(|(holder, _)| holder).collect()
}

/// A range of bytes as the lock server knows it. No file has bytes behind the greatest size.
fn bytes(range: &std::ops::Range<u64>) -> Result<BlockRange, HostError> {
    let bytes = BlockRange::between(range.start, range.end.min(limits::FILE_BYTES_MAX));
    if bytes.is_empty() { Err(HostError::Files(FilesError::Refused(FileError::Malformed))) } else { Ok(bytes) }
}
