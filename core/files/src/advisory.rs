//! Advisory locks on bytes of files, as POSIX defines them: an owner, such as a process, has at most one lock on a byte. A new lock takes
//! the place of the owner's own locks on its range; unlocking may cut a lock in two.
//!
//! The metadata server knows *holds*: each is a lock request of its own, which is granted, and released, as a whole. What an owner has
//! locked is kept here; it is always covered by its holds. A lock that the holds of its owner cover needs no message. Otherwise what is
//! missing is requested as a further hold.
//!
//! An exclusive lock over shared ones of the same owner that does not wait is granted over them at once, or refused: they stay.
//!
//! A hold of which a part was unlocked, or is only locked shared now, is *trimmed*: what is still locked is requested over it, at once, as
//! further holds; then it is released.
//!
//! Two limits remain:
//!
//! * An exclusive lock that may wait gives shared ones of the same owner up first, so that two owners who both want that do not wait for
//!   each other, and asks for both together. If its wait ends, the shared one is asked for again before that is told. In between another
//!   owner may have had the bytes.
//! * Unlocking does not wait for the server: until it has heard of it, a lock that does not wait may still be refused elsewhere.

mod owner_locks;

use crate::handles::Handles;
use crate::range_locks::{ADVISORY, BytesLock, RangeLocks};
use braid_base::{BlockRange, InodeId, Now, limits};
use braid_locks::client::Event;
use braid_machine::{AdvisoryOwner, FilesError, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, OpId};
use braid_wire::{FileError, LockMode, LockRefusal};
use owner_locks::OwnerLocks;
use std::collections::BTreeMap;

type Place = (InodeId, AdvisoryOwner);

#[derive(Clone, Debug, Default)]
pub struct AdvisoryLocks {
    owners: BTreeMap<Place, OwnerLocks>,
    /// Requests that the server has not granted, by the number of their hold.
    waiting: BTreeMap<u64, Request>,
    /// Holds that were requested so far.
    asked: u64,
    ended: Vec<(OpId, HostOutcome)>,
}

#[derive(Clone, Debug)]
struct Request {
    /// None: the request trims a hold.
    op: Option<OpId>,
    place: Place,
    range: BlockRange,
    mode: LockMode,
    kind: Kind,
    /// The bytes of the hold.
    missing: Vec<BlockRange>,
    /// The owner's shared holds that were given up for it.
    yielded: Vec<BlockRange>,
    /// The owner's holds over which it is asked for.
    over: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Kind {
    Lock {
        waits: bool,
    },
    Test,
    /// What was given up is asked for again; then the request ends with this error.
    Restore(HostError),
    /// What is still locked of a hold.
    Trim,
}

impl AdvisoryLocks {
    pub fn begin(&mut self, now: Now, locks: &mut RangeLocks, handles: &Handles, op: OpId, request: FilesRequest) {
        if let Err(error) = self.try_begin(now, locks, handles, op, request) {
            self.ended.push((op, Err(error)));
        }
    }

    /// A lock event. False if a hold is lost.
    pub fn on_lock(&mut self, now: Now, locks: &mut RangeLocks, event: Event) -> bool {
        match event {
            Event::Granted { holder } => {
                if let Some(request) = self.waiting.remove(&holder) {
                    self.on_granted(now, locks, holder, request);
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
        self.cancel(now, locks, &HostError::Abandoned, |request| request.op.is_some_and(|op| ops.contains(&op)));
    }

    /// The file system is being unmounted: all locks are released.
    pub fn end_all(&mut self, now: Now, locks: &mut RangeLocks, error: &HostError) {
        self.owners.values_mut().for_each(OwnerLocks::clear);
        self.cancel(now, locks, error, |_| true);
        for holder in self.owners.values().flat_map(OwnerLocks::holders) {
            locks.release(now, ADVISORY, holder);
        }
        self.owners.clear();
    }

    /// The host is fenced: all locks are lost.
    pub fn take_fenced(&mut self) -> Vec<(OpId, HostOutcome)> {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.ended.extend(waiting.filter_map(|request| Some((request.op?, Err(HostError::Fenced)))));
        self.owners.clear();
        self.take_ended()
    }

    /// Takes out the outcomes of requests that have ended.
    pub fn take_ended(&mut self) -> Vec<(OpId, HostOutcome)> {
        std::mem::take(&mut self.ended)
    }

    /// The number of requests that the server has not granted.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn invariants(&self) {
        assert!(self.owners.values().all(|own| !own.is_empty()) || !self.waiting.is_empty(), "an owner has something");
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
                if let Some(own) = self.owners.get_mut(&place) {
                    own.unlock(range);
                    self.tidy(now, locks, place);
                }
                self.done(Some(op), FilesSuccess::Done);
                Ok(())
            }
            FilesRequest::ReleaseOwner { handle, owner } => {
                let place = place(handle, owner)?;
                if let Some(own) = self.owners.get_mut(&place) {
                    own.clear();
                }
                self.cancel(now, locks, &HostError::Abandoned, |request| request.place == place);
                self.tidy(now, locks, place);
                self.done(Some(op), FilesSuccess::Done);
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
        if count + self.waiting.len() >= limits::ADVISORY_LOCKS_MAX {
            return Err(HostError::Files(FilesError::Refused(FileError::Busy)));
        }
        let (missing, yielded, over) = (Vec::new(), Vec::new(), Vec::new());
        self.ask_for_missing(now, locks, Request { op: Some(op), place, range, mode, kind, missing, yielded, over });
        Ok(())
    }

    fn ask(&mut self, now: Now, locks: &mut RangeLocks, request: Request) {
        self.asked += 1;
        let (how, mode) = match &request.kind {
            Kind::Lock { waits: true } => (BytesLock::Waiting, request.mode),
            Kind::Restore(_) => (BytesLock::Waiting, LockMode::Shared),
            Kind::Lock { waits: false } | Kind::Test if request.over.is_empty() => (BytesLock::Impatient, request.mode),
            Kind::Lock { waits: false } | Kind::Test | Kind::Trim => {
                (BytesLock::Over(request.over.clone()), request.mode)
            }
        };
        locks.acquire_bytes(now, self.asked, request.place.0, (&request.missing, mode), how);
        self.waiting.insert(self.asked, request);
    }

    fn on_granted(&mut self, now: Now, locks: &mut RangeLocks, holder: u64, request: Request) {
        if matches!(request.kind, Kind::Test) {
            locks.release(now, ADVISORY, holder);
            return self.on_covered(now, locks, request);
        }
        let mode = if matches!(request.kind, Kind::Restore(_)) { LockMode::Shared } else { request.mode };
        let place = request.place;
        let own = self.owners.entry(place).or_default();
        own.hold(holder, request.missing.clone(), mode);
        if matches!(request.kind, Kind::Trim) {
            return self.tidy(now, locks, place);
        }
        if matches!(request.kind, Kind::Lock { .. }) && !own.missing(request.range, request.mode, &[]).is_empty() {
            // Something was unlocked meanwhile.
            return self.ask_for_missing(now, locks, request);
        }
        self.on_covered(now, locks, request);
        // Requests of the same owner do not wait for each other.
        let is_beside = |other: &Request| other.place == place && matches!(other.kind, Kind::Lock { .. });
        let beside: Vec<_> =
            self.waiting.iter().filter(|(_, other)| is_beside(other)).map(|(other, _)| *other).collect();
        for other in beside {
            let other_request = self.waiting.remove(&other).expect("just listed");
            locks.release(now, ADVISORY, other);
            self.ask_for_missing(now, locks, other_request);
        }
    }

    /// Asks for what a request misses now.
    fn ask_for_missing(&mut self, now: Now, locks: &mut RangeLocks, mut request: Request) {
        let own = self.owners.entry(request.place).or_default();
        if matches!(request.kind, Kind::Lock { waits: true }) {
            for (holder, ranges) in own.take_weak(request.range, request.mode) {
                locks.release(now, ADVISORY, holder);
                request.yielded.extend(ranges);
            }
        }
        request.over = own.over(request.range, request.mode);
        if request.over.len() > limits::COMMITS_PER_REQUEST_MAX {
            return self.fail(now, locks, request, HostError::Files(FilesError::Refused(FileError::Busy)));
        }
        request.missing = own.missing(request.range, request.mode, &request.yielded);
        if request.missing.is_empty() {
            self.on_covered(now, locks, request);
        } else {
            self.ask(now, locks, request);
        }
    }

    /// The holds of the owner cover what a request needs.
    fn on_covered(&mut self, now: Now, locks: &mut RangeLocks, request: Request) {
        let Request { op, place, range, mode, kind, .. } = request;
        match kind {
            Kind::Lock { .. } => {
                self.owners.entry(place).or_default().lock(range, mode);
                self.done(op, FilesSuccess::Done);
            }
            Kind::Test => self.done(op, FilesSuccess::Tested { is_locked: false }),
            Kind::Restore(error) => self.ended.extend(op.map(|op| (op, Err(error)))),
            Kind::Trim => {}
        }
        self.tidy(now, locks, place);
    }

    fn on_denied(&mut self, now: Now, locks: &mut RangeLocks, request: Request, refusal: LockRefusal) {
        let own = self.owners.get(&request.place);
        let is_over_others = own.is_some_and(|own| own.over(request.range, request.mode) != request.over);
        let is_at_once = matches!(request.kind, Kind::Lock { .. } | Kind::Test) && !request.over.is_empty();
        if refusal == LockRefusal::Timeout && is_at_once && is_over_others {
            // The owner's locks have changed meanwhile.
            return self.ask_for_missing(now, locks, request);
        }
        match (&request.kind, refusal) {
            // The hold stays as it is, until more of it is unlocked.
            (Kind::Trim, _) => {}
            (Kind::Test, LockRefusal::Timeout) => {
                self.done(request.op, FilesSuccess::Tested { is_locked: true });
                self.tidy(now, locks, request.place);
            }
            (_, LockRefusal::Timeout) => self.fail(now, locks, request, HostError::Files(FilesError::Locked)),
            (_, LockRefusal::Busy | LockRefusal::Malformed) => {
                self.fail(now, locks, request, HostError::Files(FilesError::Refused(FileError::Busy)));
            }
        }
    }

    /// Ends a request that is not granted, when the owner has again what it had given up.
    fn fail(&mut self, now: Now, locks: &mut RangeLocks, mut request: Request, error: HostError) {
        if matches!(request.kind, Kind::Trim) {
            return;
        }
        let own = self.owners.entry(request.place).or_default();
        let missing = own.uncovered(&request.yielded);
        if missing.is_empty() || matches!(request.kind, Kind::Restore(_)) {
            self.ended.extend(request.op.map(|op| (op, Err(error))));
            return self.tidy(now, locks, request.place);
        }
        request.kind = Kind::Restore(error);
        request.missing = missing;
        self.ask(now, locks, request);
    }

    /// Ends the waits of some requests.
    fn cancel(&mut self, now: Now, locks: &mut RangeLocks, error: &HostError, which: impl Fn(&Request) -> bool) {
        let chosen = self.waiting.iter().filter(|(_, request)| which(request)).map(|(holder, _)| *holder);
        for holder in chosen.collect::<Vec<_>>() {
            let request = &self.waiting[&holder];
            // These bytes are still locked, unless the owner has unlocked them meanwhile.
            let own = self.owners.get(&request.place);
            let is_needed = own.is_some_and(|own| !own.uncovered(&request.yielded).is_empty());
            if matches!(request.kind, Kind::Restore(_)) && is_needed {
                continue;
            }
            let request = self.waiting.remove(&holder).expect("just seen");
            locks.release(now, ADVISORY, holder);
            self.fail(now, locks, request, error.clone());
        }
    }

    /// Releases holds that are not needed any more, and trims one of which only a part is.
    fn tidy(&mut self, now: Now, locks: &mut RangeLocks, place: Place) {
        let Some(own) = self.owners.get_mut(&place) else { return };
        for holder in own.take_unused() {
            locks.release(now, ADVISORY, holder);
        }
        if own.is_empty() {
            self.owners.remove(&place);
            return;
        }
        // One after the other: a grant goes on with the next.
        let is_trim = |request: &Request| request.place == place && matches!(request.kind, Kind::Trim);
        if let Some((mode, missing)) = own.excess()
            && !self.waiting.values().any(is_trim)
        {
            let range = BlockRange::between(missing[0].start, missing[missing.len() - 1].end());
            let over = own.touching(range);
            if missing.len() <= limits::EXTENTS_MAX && over.len() <= limits::COMMITS_PER_REQUEST_MAX {
                let (kind, yielded) = (Kind::Trim, Vec::new());
                self.ask(now, locks, Request { op: None, place, range, mode, kind, missing, yielded, over });
            }
        }
    }

    fn done(&mut self, op: Option<OpId>, success: FilesSuccess) {
        self.ended.extend(op.map(|op| (op, Ok(HostSuccess::Files(success)))));
    }
}

/// A range of bytes as the lock server knows it. No file has bytes behind the greatest size.
fn bytes(range: &std::ops::Range<u64>) -> Result<BlockRange, HostError> {
    let bytes = BlockRange::between(range.start, range.end.min(limits::FILE_BYTES_MAX));
    if bytes.is_empty() { Err(HostError::Files(FilesError::Refused(FileError::Malformed))) } else { Ok(bytes) }
}
