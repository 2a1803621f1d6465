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
//! Owners that have nothing are granted locks in the order in which they ask. An owner that has something waits for locks alone, and passes
//! requests that wait: one of these may wait for what it has. So there is no deadlock that would be none without the order. A lock that does
//! not wait passes them, too: it is refused if another owner has some of it. If another host only keeps that, it gives it back first: this takes
//! a few messages, and the time of two repetitions at most.
//!
//! An exclusive lock over shared ones of the same owner keeps them while it waits. A request that would wait for an
//! owner of this host which waits for its own owner, perhaps through others, is refused. Of two hosts the server knows this if each upgrades
//! something, and wants some of what the other one shares.
//!
//! A request that passed another one may have been granted by what the host kept, and then the server grants the other one as well. So before
//! an owner has a lock, those that have all of theirs are asked once more.

mod owner_locks;

use crate::handles::Handles;
use crate::range_locks::{ADVISORY, RangeLocks, advisory_extent};
use braid_base::{BlockRange, InodeId, Now, limits};
use braid_locks::client::Event;
use braid_machine::{AdvisoryOwner, FilesError, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, OpId};
use braid_wire::{FileError, LockExtent, LockMode, LockRefusal, Patience};
use owner_locks::{Holders, OwnerLocks};
use std::collections::{BTreeMap, BTreeSet};

type Place = (AdvisoryOwner, InodeId);

/// The most pieces that one owner locks of one file: looking for what is missing among them takes a moment at most.
const PIECES_MAX: usize = 4_096;
/// The same, if pieces that could be joined count each.
const LOCKED_MAX: usize = 4 * PIECES_MAX;
/// The byte that stands for the whole file, for `flock`.
const FILE_LOCK: u64 = limits::FILE_BYTES_MAX - 1;

#[derive(Clone, Debug, Default)]
pub struct AdvisoryLocks {
    owners: BTreeMap<Place, OwnerLocks>,
    /// Requests that are not granted, by the number of their holder.
    waiting: BTreeMap<u64, Request>,
    /// Whose holders these are.
    holders: BTreeMap<u64, AdvisoryOwner>,
    /// Holders so far.
    asked: u64,
    ended: Vec<(OpId, HostOutcome)>,
}

#[derive(Clone, Debug)]
struct Request {
    op: OpId,
    place: Place,
    kind: Kind,
    wanted: LockExtent,
    /// What is asked for now, and the owner's holders over which it is.
    missing: Vec<LockExtent>,
    over: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock { waits: bool },
    Test,
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
            Event::Granted { holder } if locks.is_in_doubt(now, holder) || self.has_rivals(now, locks, holder) => {
                let again = self.take_back(now, locks, vec![holder]);
                self.go_on(now, locks, again);
            }
            Event::Granted { holder } => {
                let Some(request) = self.waiting.remove(&holder) else { return true };
                let own = self.owners.get(&request.place);
                let missing = own.map_or(vec![request.wanted], |own| own.missing(request.wanted));
                let next = match missing.iter().all(|extent| extent.uncovered(&request.missing).is_empty()) {
                    true => self.on_covered(now, locks, request, Some(holder)),
                    // The owner has unlocked some meanwhile.
                    false => {
                        self.release(now, locks, holder);
                        vec![request]
                    }
                };
                self.go_on(now, locks, next);
            }
            Event::Delayed { holder } => self.refuse_deadlock(now, locks, holder),
            Event::Denied { holder, refusal } => {
                self.release(now, locks, holder);
                if let Some(request) = self.waiting.remove(&holder) {
                    self.on_denied(&request, refusal);
                }
            }
            Event::Lost { .. } => return false,
            Event::Revoked { .. } => {}
        }
        true
    }

    /// The front end has lost interest in these requests: their waits end.
    pub fn abandon(&mut self, now: Now, locks: &mut RangeLocks, ops: &[OpId]) {
        self.cancel(now, locks, |request| ops.contains(&request.op));
    }

    /// The last open file of an inode is closed: its locks are released, also those that were requested while it was being closed.
    pub fn end_inode(&mut self, now: Now, locks: &mut RangeLocks, inode: InodeId) {
        self.cancel(now, locks, |request| request.place.1 == inode);
        for place in self.owners.keys().filter(|place| place.1 == inode).copied().collect::<Vec<_>>() {
            self.unlock(now, locks, place, BlockRange::new(0, limits::FILE_BYTES_MAX));
        }
    }

    /// The file system is being unmounted: all locks are released.
    pub fn end_all(&mut self, now: Now, locks: &mut RangeLocks, error: &HostError) {
        self.holders.keys().for_each(|holder| locks.release(now, ADVISORY, *holder));
        self.end_waiting(error);
    }

    /// The host is fenced: all locks are lost.
    pub fn take_fenced(&mut self) -> Vec<(OpId, HostOutcome)> {
        self.end_waiting(&HostError::Fenced);
        self.take_ended()
    }

    fn end_waiting(&mut self, error: &HostError) {
        self.owners.clear();
        self.holders.clear();
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
        let known = self.owners.values().map(OwnerLocks::holders).sum::<usize>() + self.waiting.len();
        assert_eq!(known, self.holders.len(), "the owners of all holders are known");
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
            Some(inode) => Ok((owner, inode)),
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
                let is_cut = |own: &OwnerLocks| own.len() >= PIECES_MAX && own.pieces_without(range) > PIECES_MAX;
                if self.owners.get(&place).is_some_and(is_cut) {
                    return Err(too_many());
                }
                self.unlock(now, locks, place, range);
                self.done(op, FilesSuccess::Done);
                Ok(())
            }
            FilesRequest::ReleaseOwner { handle, owner } => {
                let place = place(handle, owner)?;
                self.cancel(now, locks, |request| request.place == place);
                self.unlock(now, locks, place, BlockRange::new(0, limits::FILE_BYTES_MAX));
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
        let wanted = advisory_extent(range, mode);
        let is_in_pieces = |own: &OwnerLocks| {
            own.len() >= PIECES_MAX && (own.len() >= LOCKED_MAX || own.pieces_with(wanted) > PIECES_MAX)
        };
        let is_full = count + self.waiting.len() >= limits::ADVISORY_LOCKS_MAX;
        if is_full || self.owners.get(&place).is_some_and(is_in_pieces) {
            return Err(too_many());
        }
        if range.start == FILE_LOCK && kind != Kind::Test {
            // As `flock` does, also if it is refused: of two that have it shared and want it exclusively, one gets it.
            let cut = self.owners.get_mut(&place).map(|own| own.cut_weak(wanted));
            self.keep(now, locks, place, cut.unwrap_or_default());
        }
        self.go_on(now, locks, vec![Request { op, place, kind, wanted, missing: Vec::new(), over: Vec::new() }]);
        Ok(())
    }

    fn unlock(&mut self, now: Now, locks: &mut RangeLocks, place: Place, range: BlockRange) {
        let Some(own) = self.owners.get_mut(&place) else { return };
        let cut = own.unlock(range);
        self.keep(now, locks, place, cut);
        let again = self.outdated(now, locks, place);
        self.go_on(now, locks, again);
    }

    /// Holders have less than before.
    fn keep(&mut self, now: Now, locks: &mut RangeLocks, place: Place, holders: Holders) {
        for (holder, rest) in holders {
            locks.keep_bytes(now, holder, &rest);
            if rest.is_empty() {
                self.holders.remove(&holder);
            }
        }
        if self.owners.get(&place).is_some_and(OwnerLocks::is_empty) {
            self.owners.remove(&place);
        }
    }

    fn release(&mut self, now: Now, locks: &mut RangeLocks, holder: u64) {
        locks.release(now, ADVISORY, holder);
        self.holders.remove(&holder);
    }

    /// Takes out requests that wait, with what their holders have.
    fn take_back(&mut self, now: Now, locks: &mut RangeLocks, holders: Vec<u64>) -> Vec<Request> {
        let taken = holders.into_iter().filter_map(|holder| {
            let request = self.waiting.remove(&holder)?;
            self.release(now, locks, holder);
            Some(request)
        });
        taken.collect()
    }

    /// Takes out the requests of an owner that have asked for something else than they miss now: they do not wait for each other.
    fn outdated(&mut self, now: Now, locks: &mut RangeLocks, place: Place) -> Vec<Request> {
        let nothing = OwnerLocks::default();
        let own = self.owners.get(&place).unwrap_or(&nothing);
        let is_outdated = |request: &Request| {
            let is_changed =
                || own.missing(request.wanted) != request.missing || own.over(request.wanted) != request.over;
            request.place == place && is_changed()
        };
        let outdated = self.waiting.iter().filter(|(_, request)| is_outdated(request)).map(|(holder, _)| *holder);
        let outdated = outdated.collect();
        self.take_back(now, locks, outdated)
    }

    /// Asks for what requests miss. One that misses nothing ends; others of its owner may then miss less.
    fn go_on(&mut self, now: Now, locks: &mut RangeLocks, mut requests: Vec<Request>) {
        while let Some(mut request) = requests.pop() {
            let (place, nothing) = (request.place, OwnerLocks::default());
            let own = self.owners.get(&place).unwrap_or(&nothing);
            (request.missing, request.over) = (own.missing(request.wanted), own.over(request.wanted));
            if request.missing.is_empty() {
                requests.extend(self.on_covered(now, locks, request, None));
                continue;
            }
            if request.missing.len() > limits::EXTENTS_MAX {
                self.ended.push((request.op, Err(too_many())));
                continue;
            }
            let shared = |extent: &LockExtent| LockExtent { mode: LockMode::Shared, ..*extent };
            let absent = own.missing(shared(&request.wanted));
            let patience = match request.kind {
                Kind::Lock { waits: true } if !request.over.is_empty() => Patience::Upgrade,
                Kind::Lock { waits: true } if self.has_something(place.0) => Patience::ForHeld,
                Kind::Lock { waits: true } => Patience::InTurn,
                Kind::Lock { waits: false } | Kind::Test => Patience::Impatient,
            };
            let mut asked = request.missing.clone();
            if patience == Patience::Upgrade && !absent.is_empty() {
                // The server is told what of it is shared.
                let kept = request.missing.iter().flat_map(|extent| shared(extent).uncovered(&absent));
                asked.extend(kept.take(limits::EXTENTS_MAX - request.missing.len()));
            }
            self.asked += 1;
            self.holders.insert(self.asked, place.0);
            locks.acquire_bytes(now, self.asked, place.1, (asked, request.over.clone()), patience);
            self.waiting.insert(self.asked, request);
        }
    }

    fn has_something(&self, owner: AdvisoryOwner) -> bool {
        self.owners.range((owner, InodeId(0))..).next().is_some_and(|((first, _), _)| *first == owner)
    }

    /// True if another owner of this host has what a request was granted.
    fn has_rivals(&self, now: Now, locks: &mut RangeLocks, holder: u64) -> bool {
        let owner = self.holders.get(&holder);
        owner.is_some() && locks.rivals(now, holder).iter().any(|rival| self.holders.get(rival) != owner)
    }

    /// Refuses a request that would wait in a circle.
    fn refuse_deadlock(&mut self, now: Now, locks: &mut RangeLocks, holder: u64) {
        if self.is_deadlock(now, locks, holder) {
            let refused = self.take_back(now, locks, vec![holder]).into_iter();
            self.ended.extend(refused.map(|request| (request.op, Err(HostError::Files(FilesError::Deadlock)))));
        }
    }

    /// An owner was granted a lock. If another request of it waits, those that have to wait for the lock may close a circle.
    fn refuse_circles(&mut self, now: Now, locks: &mut RangeLocks, owner: AdvisoryOwner, granted: u64) {
        if self.waiting.values().any(|request| request.place.0 == owner) {
            for holder in self.waiting.keys().copied().collect::<Vec<_>>() {
                if locks.rivals(now, holder).contains(&granted) {
                    self.refuse_deadlock(now, locks, holder);
                }
            }
        }
    }

    /// True if a request waits for owners of this host that wait for its own, perhaps through others.
    fn is_deadlock(&self, now: Now, locks: &mut RangeLocks, holder: u64) -> bool {
        let waits = |request: &Request| request.kind == Kind::Lock { waits: true };
        let Some(first) = self.waiting.get(&holder).filter(|first| waits(first)) else { return false };
        let (mut reached, mut seen) = (vec![holder], BTreeSet::new());
        while let Some(next) = reached.pop() {
            let waiting_owner = self.waiting[&next].place.0;
            for owner in locks.rivals(now, next).iter().filter_map(|rival| self.holders.get(rival)) {
                if *owner == first.place.0 && waiting_owner != *owner {
                    return true;
                }
                if *owner != waiting_owner && seen.insert(*owner) {
                    let of_owner = self.waiting.iter().filter(|(_, other)| other.place.0 == *owner && waits(other));
                    reached.extend(of_owner.map(|(other, _)| *other));
                }
            }
        }
        false
    }

    /// The owner has what a request needs, perhaps by this holder. Returns the requests that have to ask again.
    fn on_covered(&mut self, now: Now, locks: &mut RangeLocks, request: Request, by: Option<u64>) -> Vec<Request> {
        let Request { op, place, kind, wanted, missing, .. } = request;
        if kind == Kind::Test {
            by.into_iter().for_each(|holder| self.release(now, locks, holder));
            self.done(op, FilesSuccess::Tested { is_locked: false });
            return Vec::new();
        }
        let is_first = !self.has_something(place.0);
        let own = self.owners.entry(place).or_default();
        let cut = own.lock(wanted, by.map(|holder| (holder, missing)));
        self.keep(now, locks, place, cut);
        self.done(op, FilesSuccess::Done);
        by.into_iter().for_each(|holder| self.refuse_circles(now, locks, place.0, holder));
        let mut again = self.outdated(now, locks, place);
        if is_first {
            // They wait in turn, and pass others from now on.
            let waits = |request: &Request| request.place.0 == place.0 && request.kind == Kind::Lock { waits: true };
            let in_turn = self.waiting.iter().filter(|(_, request)| waits(request)).map(|(holder, _)| *holder);
            let in_turn = in_turn.collect();
            again.extend(self.take_back(now, locks, in_turn));
        }
        again
    }

    fn on_denied(&mut self, request: &Request, refusal: LockRefusal) {
        let error = match (request.kind, refusal) {
            (Kind::Test, LockRefusal::Timeout) => {
                return self.done(request.op, FilesSuccess::Tested { is_locked: true });
            }
            (Kind::Lock { waits: false }, LockRefusal::Timeout) => HostError::Files(FilesError::Locked),
            // An owner of another host upgrades the same bytes.
            (Kind::Lock { waits: true }, LockRefusal::Timeout) => HostError::Files(FilesError::Deadlock),
            (_, LockRefusal::Busy | LockRefusal::Malformed) => too_many(),
        };
        self.ended.push((request.op, Err(error)));
    }

    /// Ends the waits of some requests.
    fn cancel(&mut self, now: Now, locks: &mut RangeLocks, which: impl Fn(&Request) -> bool) {
        let chosen = self.waiting.iter().filter(|(_, request)| which(request)).map(|(holder, _)| *holder);
        let chosen = chosen.collect();
        for request in self.take_back(now, locks, chosen) {
            self.ended.push((request.op, Err(HostError::Abandoned)));
        }
    }

    fn done(&mut self, op: OpId, success: FilesSuccess) {
        self.ended.push((op, Ok(HostSuccess::Files(success))));
    }
}

fn too_many() -> HostError {
    HostError::Files(FilesError::TooManyLocks)
}

/// A range of bytes as the lock server knows it. No file has bytes behind the greatest size.
fn bytes(range: &std::ops::Range<u64>) -> Result<BlockRange, HostError> {
    let bytes = BlockRange::between(range.start, range.end.min(limits::FILE_BYTES_MAX));
    if bytes.is_empty() { Err(HostError::Files(FilesError::Refused(FileError::Malformed))) } else { Ok(bytes) }
}
