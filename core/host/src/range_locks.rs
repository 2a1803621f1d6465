//! Locks of ranges for programs (range-lock paper, section 3). A program locks ranges of an object, shared or exclusive; the object need not
//! exist anywhere. Lock servers know this host only: it keeps what it was granted (*datalocks*) until another host wants it, and locks parts
//! of that for its programs without a message (*childlocks*).
//!
//! ```text
//!   Lock                    ─► Locked (lock)          at once if this host keeps the ranges, or no other host does
//!   Lock over a lock        ─► Locked (new lock)      promoted or demoted: the old lock is over
//!   Lease                   ─► Locked (lock)          shared, at once or not at all; lost when another program wants what conflicts with it
//!   AwaitRecall (lock)      ─► Recalled (lock)        another program, here or elsewhere, wants some of it
//!   Confirm (lock)          ─► Done                   it is still there; it is answered at once
//!   Unlock (lock)           ─► Done
//!   Survey (lock server)    ─► LocksSurveyed           some of the locks that it has, of all hosts
//! ```
//!
//! A lock is lost if its server does not know it any more after a restart, or answered no heartbeat of most of a lease: then it may presume this
//! host dead. The same if this host is fenced. What other servers have granted for it stays until the program unlocks: until then it may not have
//! noticed.
//!
//! A lock that is being promoted yields to others that wanted it before, so that two programs that promote do not wait for each other. The answer
//! says so: `kept` is false, and what the program knew of the ranges may have changed. The first of them keeps what it has.

use crate::ctx::Timer;
use braid_base::limits::{self, Settings};
use braid_base::{LockServerId, Time, Timers};
use braid_locks::client::{Ctx, Event, LockClient, Obstacle, Part, PartLocks, Retention, Wanted};
use braid_machine::{HostError, HostSuccess, OpId, RangesRequest};
use braid_wire::{LockExtent, LockMode, LockRefusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The part of the host whose lock holders are programs.
pub(crate) const PROGRAMS: Part = Part(1);

/// The client of the lock servers, and the part of the host that locks ranges for programs.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    pub client: LockClient,
    pub ranges: RangeLocks,
}

/// The locks of programs on this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLocks {
    locks: BTreeMap<u64, RangeLock>,
    last: u64,
    /// When requests have waited for as long as they may.
    timers: Timers<u64>,
    /// Surveys of lock servers, by their numbers.
    surveys: BTreeMap<u64, Survey>,
}

#[derive(Clone, Copy, Debug)]
struct Survey {
    op: OpId,
    server: LockServerId,
    since: Time,
}

#[derive(Clone, Debug)]
struct RangeLock {
    /// The request that waits for it. None: it is locked.
    asked: Option<Asked>,
    /// Why it is lost, since the program was told or not.
    lost: Option<HostError>,
    /// Another program wants some of it, and no request was answered with that.
    is_recalled: bool,
    /// Requests that wait for that.
    listeners: Vec<OpId>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    op: OpId,
    since: Time,
    /// The lock that is promoted or demoted.
    over: Option<u64>,
    /// No other program had the ranges of that lock since.
    kept: bool,
}

impl Locks {
    pub fn start(&mut self, cx: &mut Ctx, op: OpId, request: RangesRequest) {
        let silent = match &request {
            RangesRequest::Lock { object, extents, .. } | RangesRequest::Lease { object, extents, .. }
                if is_sound(extents) =>
            {
                self.client.doubted(cx, *object, extents)
            }
            _ => None,
        };
        let programs = self.client.of_part(PROGRAMS);
        match (request, silent) {
            (RangesRequest::Lock { .. } | RangesRequest::Lease { .. }, Some(server)) => {
                let waited = cx.settings.host_lease;
                cx.out.reply(op, Err(HostError::LockServerSilent { server, waited }));
            }
            (RangesRequest::Lock { object, extents, over, width, wait }, None) => {
                let wanted = Wanted::new(object, extents, Retention::CachedInParts { width });
                self.ranges.lock(programs, cx, op, wanted, over, wait);
            }
            (RangesRequest::Lease { object, extents, wait }, None) => {
                let shared = |extent: LockExtent| LockExtent { mode: LockMode::Shared, ..extent };
                let extents = extents.into_iter().map(shared).collect();
                self.ranges.lock(programs, cx, op, Wanted::new(object, extents, Retention::Leased), None, Some(wait));
            }
            (RangesRequest::Unlock { lock }, _) => self.ranges.unlock(programs, cx, op, lock),
            (RangesRequest::Confirm { lock }, _) => self.ranges.confirm(&programs, cx, op, lock),
            (RangesRequest::AwaitRecall { lock }, _) => self.ranges.await_recall(cx, op, lock),
            (RangesRequest::Survey { server, from, object, waiting, wait }, _) => {
                if self.ranges.surveys.len() >= limits::OPERATIONS_MAX {
                    return cx.out.reply(op, Err(HostError::Busy));
                }
                let ticket = self.client.survey(cx, server, (from, object, waiting), wait);
                self.ranges.surveys.insert(ticket, Survey { op, server, since: cx.now.time });
            }
        }
        self.on_events(cx);
    }

    /// Handles the events of the client that concern programs.
    pub fn on_events(&mut self, cx: &mut Ctx) {
        while let Some((ticket, survey)) = self.client.pop_surveyed() {
            let Survey { op, server, since } = self.ranges.surveys.remove(&ticket).expect("a survey is over once");
            let silent = HostError::LockServerSilent { server, waited: cx.now.time.since(since) };
            cx.out.reply(op, survey.map(HostSuccess::LocksSurveyed).ok_or(silent));
        }
        self.ranges.on_events(self.client.of_part(PROGRAMS), cx);
    }

    /// The next timer of the client, or the time for [`Locks::wake`].
    pub fn next_timer(&self, settings: &Settings) -> Option<(Time, Timer)> {
        let client = self.client.deadline().map(|time| (time, Timer::Locks));
        if self.ranges.locks.is_empty() {
            return client;
        }
        let impatient = self.ranges.timers.next().map(|(time, _)| time);
        let doubt = self.client.in_doubt_at(settings);
        let own = impatient.into_iter().chain(doubt).min();
        client.into_iter().chain(own.map(|time| (time, Timer::Ranges))).min()
    }

    /// Refuses the lock requests that have waited for as long as they may, and ends locks that are in doubt.
    pub fn wake(&mut self, cx: &mut Ctx) {
        self.ranges.refuse_overdue(self.client.of_part(PROGRAMS), cx);
        while let Some(server) = self.client.take_doubted(cx.now, cx.settings) {
            self.client.end_leases(cx, server);
            let programs = self.client.of_part(PROGRAMS);
            let lost = self.ranges.locks.keys().filter(|lock| programs.relies_on(**lock, server));
            let lost: BTreeSet<_> = lost.copied().collect();
            let silent = HostError::LockServerSilent { server, waited: cx.settings.host_lease };
            // Those that wait for other servers were not told that they have it.
            let waits = |lock, range: &RangeLock| lost.contains(&lock) && !range.is_locked();
            self.ranges.end(self.client.of_part(PROGRAMS), cx, &silent, waits);
            lost.iter().for_each(|lock| self.ranges.lose(cx, *lock, &HostError::LockLost));
        }
        self.on_events(cx);
    }

    /// The users of these requests are gone.
    pub fn abandon(&mut self, cx: &mut Ctx, ops: &[OpId]) {
        let is_meant = |_, lock: &RangeLock| lock.asked.is_some_and(|asked| ops.contains(&asked.op));
        self.ranges.end(self.client.of_part(PROGRAMS), cx, &HostError::Abandoned, is_meant);
        self.end_surveys(cx, &HostError::Abandoned, |op| ops.contains(&op));
        self.on_events(cx);
    }

    /// The host is fenced: nothing is granted any more, and all locks are lost.
    pub fn lose_all(&mut self, cx: &mut Ctx) {
        self.ranges.end(self.client.of_part(PROGRAMS), cx, &HostError::Fenced, |_, lock| !lock.is_locked());
        let locked: Vec<_> = self.ranges.locks.keys().copied().collect();
        locked.into_iter().for_each(|lock| self.ranges.lose(cx, lock, &HostError::Fenced));
        self.end_surveys(cx, &HostError::Fenced, |_| true);
        self.on_events(cx);
    }

    /// The host disconnects: all locks are over.
    pub fn end_all(&mut self, cx: &mut Ctx, why: &HostError) {
        self.ranges.end(self.client.of_part(PROGRAMS), cx, why, |_, _| true);
        self.end_surveys(cx, why, |_| true);
        self.on_events(cx);
    }

    fn end_surveys(&mut self, cx: &mut Ctx, why: &HostError, ends: impl Fn(OpId) -> bool) {
        for (ticket, Survey { op, .. }) in self.ranges.surveys.extract_if(.., |_, survey| ends(survey.op)) {
            self.client.forget_survey(ticket);
            cx.out.reply(op, Err(why.clone()));
        }
    }

    /// Asserts that programs and the client agree on which locks are locked.
    pub fn invariants(&self) {
        self.client.invariants();
        if self.ranges.locks.is_empty() {
            return;
        }
        let known = self.ranges.locks.iter().map(|(lock, range)| (*lock, range.asked.is_none()));
        assert!(known.eq(self.client.holders(PROGRAMS)), "locks of programs are those of the client");
    }
}

impl RangeLock {
    fn is_locked(&self) -> bool {
        self.asked.is_none()
    }
}

impl RangeLocks {
    /// True if the program was told, or will be, that its lock is lost. It may not have unlocked it yet.
    pub fn is_lost(&self, lock: u64) -> bool {
        self.locks.get(&lock).is_some_and(|lock| lock.lost.is_some())
    }

    fn lock(
        &mut self,
        mut programs: PartLocks,
        cx: &mut Ctx,
        op: OpId,
        wanted: Wanted,
        over: Option<u64>,
        wait: Option<Duration>,
    ) {
        let is_over_held =
            |over| self.locks.get(&over).is_some_and(|it: &RangeLock| it.is_locked() && it.lost.is_none());
        if !programs.has_servers() {
            return cx.out.reply(op, Err(HostError::NoLockServer));
        }
        if self.locks.len() >= limits::OPERATIONS_MAX {
            return cx.out.reply(op, Err(HostError::Busy));
        }
        if !is_sound(&wanted.extents) {
            return cx.out.reply(op, Err(HostError::OutOfRange));
        }
        if over.is_some_and(|over| !is_over_held(over)) {
            return cx.out.reply(op, Err(HostError::NoSuchLock));
        }
        self.last += 1;
        if let Some(wait) = wait {
            self.timers.set(self.last, cx.now.time.after(wait));
        }
        let asked = Some(Asked { op, since: cx.now.time, over, kept: true });
        let lock = RangeLock { asked, lost: None, is_recalled: false, listeners: Vec::new() };
        self.locks.insert(self.last, lock);
        programs.acquire(cx, self.last, Wanted { over: over.into_iter().collect(), ..wanted });
    }

    fn unlock(&mut self, programs: PartLocks, cx: &mut Ctx, op: OpId, lock: u64) {
        let result = match self.locks.get(&lock) {
            Some(known) => known.lost.clone().map_or(Ok(HostSuccess::Done), Err),
            None => Err(HostError::NoSuchLock),
        };
        self.remove(programs, cx, lock, &HostError::NoSuchLock);
        cx.out.reply(op, result);
    }

    fn confirm(&self, programs: &PartLocks, cx: &mut Ctx, op: OpId, lock: u64) {
        let result = match self.locks.get(&lock).filter(|known| known.is_locked()) {
            Some(RangeLock { lost: Some(why), .. }) => Err(why.clone()),
            Some(_) if programs.doubted(cx, lock).is_some() => Err(HostError::LockLost),
            Some(_) => Ok(HostSuccess::Done),
            None => Err(HostError::NoSuchLock),
        };
        cx.out.reply(op, result);
    }

    fn await_recall(&mut self, cx: &mut Ctx, op: OpId, lock: u64) {
        let Some(known) = self.locks.get_mut(&lock) else {
            return cx.out.reply(op, Err(HostError::NoSuchLock));
        };
        if let Some(why) = &known.lost {
            cx.out.reply(op, Err(why.clone()));
        } else if std::mem::take(&mut known.is_recalled) {
            cx.out.reply(op, Ok(HostSuccess::Done));
        } else if known.listeners.len() < limits::OPERATIONS_MAX {
            known.listeners.push(op);
        } else {
            cx.out.reply(op, Err(HostError::Busy));
        }
    }

    fn on_events(&mut self, mut programs: PartLocks, cx: &mut Ctx) {
        while let Some(event) = programs.pop_event() {
            match event {
                Event::Granted { holder } => self.on_granted(programs.reborrow(), cx, holder),
                Event::Delayed { .. } => {}
                Event::Revoked { holder } => self.on_recalled(programs.reborrow(), cx, holder),
                Event::Denied { holder, refusal } => {
                    let asked = self.locks.get(&holder).and_then(|lock| lock.asked);
                    let waited = asked.map_or(Duration::ZERO, |asked| cx.now.time.since(asked.since));
                    let is_taken = refusal == LockRefusal::Timeout;
                    let why = if is_taken { HostError::RangeTaken { waited } } else { HostError::Busy };
                    self.remove(programs.reborrow(), cx, holder, &why);
                }
                Event::Lost { holder } => self.lose(cx, holder, &HostError::LockLost),
            }
        }
    }

    fn on_granted(&mut self, programs: PartLocks, cx: &mut Ctx, lock: u64) {
        if let Some(server) = programs.doubted(cx, lock) {
            // Its answer may be late: it may presume this host dead by now.
            let silent = HostError::LockServerSilent { server, waited: cx.settings.host_lease };
            return self.remove(programs, cx, lock, &silent);
        }
        let granted = self.locks.get_mut(&lock).expect("a program asked for it");
        let Asked { op, over, kept, .. } = granted.asked.take().expect("it is granted once");
        self.timers.cancel(lock);
        cx.out.reply(op, Ok(HostSuccess::RangeLocked { lock, kept }));
        if let Some(over) = over {
            self.remove(programs, cx, over, &HostError::NoSuchLock);
        }
    }

    /// Others want some of a lock. If it is being promoted, they get it.
    fn on_recalled(&mut self, programs: PartLocks, cx: &mut Ctx, lock: u64) {
        let Some(recalled) = self.locks.get_mut(&lock) else { return };
        recalled.is_recalled = recalled.listeners.is_empty();
        for op in std::mem::take(&mut recalled.listeners) {
            cx.out.reply(op, Ok(HostSuccess::Done));
        }
        let mut asked = self.locks.values_mut().filter_map(|other| other.asked.as_mut());
        if let Some(promoting) = asked.find(|asked| asked.over == Some(lock)) {
            (promoting.over, promoting.kept) = (None, false);
            self.remove(programs, cx, lock, &HostError::NoSuchLock);
        }
    }

    /// A lock is lost. Its program is told, and unlocks when it relies on it no more.
    fn lose(&mut self, cx: &mut Ctx, lock: u64, why: &HostError) {
        let Some(lost) = self.locks.get_mut(&lock).filter(|lost| lost.is_locked() && lost.lost.is_none()) else {
            return;
        };
        lost.lost = Some(why.clone());
        for op in std::mem::take(&mut lost.listeners) {
            cx.out.reply(op, Err(why.clone()));
        }
        let promoting = self.locks.values_mut().filter_map(|other| other.asked.as_mut());
        promoting.filter(|asked| asked.over == Some(lock)).for_each(|asked| asked.kept = false);
    }

    fn refuse_overdue(&mut self, mut programs: PartLocks, cx: &mut Ctx) {
        while let Some(lock) = self.timers.pop_due(cx.now.time) {
            let waited = cx.now.time.since(self.locks[&lock].asked.expect("what is locked has no timer").since);
            let why = match programs.obstacle(cx.now.time, cx.settings, lock) {
                Obstacle::Silent(server) => HostError::LockServerSilent { server, waited },
                Obstacle::Crowded(_) => HostError::Busy,
                Obstacle::Contended => HostError::RangeTaken { waited },
            };
            self.remove(programs.reborrow(), cx, lock, &why);
        }
    }

    fn end(&mut self, mut programs: PartLocks, cx: &mut Ctx, why: &HostError, ends: impl Fn(u64, &RangeLock) -> bool) {
        let ending = self.locks.iter().filter(|(number, lock)| ends(**number, lock)).map(|(number, _)| *number);
        let ending: Vec<_> = ending.collect();
        for lock in ending {
            self.remove(programs.reborrow(), cx, lock, why);
        }
    }

    /// Ends a lock, and answers those who wait for it or for its recall.
    fn remove(&mut self, mut programs: PartLocks, cx: &mut Ctx, lock: u64, why: &HostError) {
        let Some(ended) = self.locks.remove(&lock) else { return };
        self.timers.cancel(lock);
        let asked = ended.asked.map(|asked| asked.op);
        for op in asked.into_iter().chain(ended.listeners) {
            cx.out.reply(op, Err(why.clone()));
        }
        programs.release(cx, lock);
    }
}

/// True if programs may lock such extents.
fn is_sound(extents: &[LockExtent]) -> bool {
    (1..=braid_wire::LOCK_PART_EXTENTS_MAX).contains(&extents.len()) && extents.iter().all(|it| !it.range.is_empty())
}
