//! Locks of ranges for programs (range-lock paper, section 3). A program locks ranges of an object, shared or exclusive; the object need not
//! exist anywhere. Lock servers know this host only: it keeps what it was granted (*datalocks*) until another host wants it, and locks parts
//! of that for its programs without a message (*childlocks*).
//!
//! ```text
//!   Lock                    ─► Locked (lock)          at once if this host keeps the ranges, or no other host does
//!   Lock over a lock        ─► Locked (new lock)      promoted or demoted: the old lock is over
//!   AwaitRecall (lock)      ─► Recalled (lock)        another program, here or elsewhere, wants some of it
//!   Unlock (lock)           ─► Done
//! ```
//!
//! A lock that is being promoted yields to others that want it, so that two programs that promote do not wait for each other. The answer
//! says so: `kept` is false, and what the program knew of the ranges may have changed.

use braid_base::{ObjectId, Time, limits};
use braid_locks::client::{Ctx, Event, LockClient, Obstacle, Part, PartLocks, Retention, Wanted};
use braid_machine::{HostError, HostSuccess, OpId, RangesRequest};
use braid_wire::LockExtent;
use std::collections::BTreeMap;
use std::time::Duration;

/// The part of the host whose lock holders are programs.
const PROGRAMS: Part = Part(1);

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
}

#[derive(Clone, Debug)]
struct RangeLock {
    /// The request that waits for it. None: it is locked.
    asked: Option<Asked>,
    /// Somebody else wants some of it.
    is_recalled: bool,
    /// Requests that wait for that.
    listeners: Vec<OpId>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    op: OpId,
    since: Time,
    /// When it is refused; none: it waits for ever.
    until: Option<Time>,
    /// The lock that is promoted or demoted.
    over: Option<u64>,
    /// No other program had the ranges of that lock since.
    kept: bool,
}

impl Locks {
    pub fn start(&mut self, cx: &mut Ctx, op: OpId, request: RangesRequest) {
        let programs = self.client.of_part(PROGRAMS);
        match request {
            RangesRequest::Lock { object, extents, over, width, wait } => {
                let wanted = Wanted::new(object, extents, Retention::CachedInParts { width });
                self.ranges.lock(programs, cx, op, wanted, over, wait);
            }
            RangesRequest::Unlock { lock } => self.ranges.unlock(programs, cx, op, lock),
            RangesRequest::AwaitRecall { lock } => self.ranges.await_recall(cx, op, lock),
        }
        self.on_events(cx);
    }

    /// Handles the events of the client that concern programs.
    pub fn on_events(&mut self, cx: &mut Ctx) {
        self.ranges.on_events(self.client.of_part(PROGRAMS), cx);
    }

    /// Refuses the lock requests that have waited for as long as they may.
    pub fn wake(&mut self, cx: &mut Ctx) {
        self.ranges.wake(self.client.of_part(PROGRAMS), cx);
        self.on_events(cx);
    }

    /// The users of these requests are gone.
    pub fn abandon(&mut self, cx: &mut Ctx, ops: &[OpId]) {
        self.ranges.end(self.client.of_part(PROGRAMS), cx, &HostError::Abandoned, |asked| {
            asked.is_some_and(|asked| ops.contains(&asked.op))
        });
        self.on_events(cx);
    }

    /// The host is fenced, or disconnects: all locks are over.
    pub fn end_all(&mut self, cx: &mut Ctx, why: &HostError) {
        self.ranges.end(self.client.of_part(PROGRAMS), cx, why, |_| true);
        self.on_events(cx);
    }

    /// Asserts that programs and the client agree on which locks are locked.
    pub fn invariants(&self) {
        self.client.invariants();
        let known = self.ranges.locks.iter().map(|(lock, range)| (*lock, range.asked.is_none()));
        assert!(known.eq(self.client.holders(PROGRAMS)), "locks of programs are those of the client");
    }
}

impl RangeLocks {
    /// When [`Locks::wake`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.locks.values().filter_map(|lock| lock.asked?.until).min()
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
        let is_over_held = |over| self.locks.get(&over).is_some_and(|lock: &RangeLock| lock.asked.is_none());
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
        let (now, until) = (cx.now.time, wait.map(|wait| cx.now.time.after(wait)));
        let asked = Some(Asked { op, since: now, until, over, kept: true });
        self.locks.insert(self.last, RangeLock { asked, is_recalled: false, listeners: Vec::new() });
        programs.acquire(cx, self.last, Wanted { over: over.into_iter().collect(), ..wanted });
    }

    fn unlock(&mut self, programs: PartLocks, cx: &mut Ctx, op: OpId, lock: u64) {
        let result = match self.locks.contains_key(&lock) {
            true => Ok(HostSuccess::Done),
            false => Err(HostError::NoSuchLock),
        };
        self.remove(programs, cx, lock, &HostError::NoSuchLock);
        cx.out.reply(op, result);
    }

    fn await_recall(&mut self, cx: &mut Ctx, op: OpId, lock: u64) {
        match self.locks.get_mut(&lock) {
            Some(known) if known.is_recalled => cx.out.reply(op, Ok(HostSuccess::Done)),
            Some(known) if known.listeners.len() < limits::OPERATIONS_MAX => known.listeners.push(op),
            Some(_) => cx.out.reply(op, Err(HostError::Busy)),
            None => cx.out.reply(op, Err(HostError::NoSuchLock)),
        }
    }

    fn on_events(&mut self, mut programs: PartLocks, cx: &mut Ctx) {
        while let Some(event) = programs.pop_event() {
            match event {
                Event::Granted { holder } => self.on_granted(programs.reborrow(), cx, holder),
                Event::Delayed { .. } => {}
                Event::Revoked { holder } => self.on_recalled(programs.reborrow(), cx, holder),
                Event::Denied { holder, .. } => self.remove(programs.reborrow(), cx, holder, &HostError::Busy),
                Event::Lost { holder } => self.remove(programs.reborrow(), cx, holder, &HostError::LockLost),
            }
        }
    }

    fn on_granted(&mut self, programs: PartLocks, cx: &mut Ctx, lock: u64) {
        let granted = self.locks.get_mut(&lock).expect("a program asked for it");
        let Asked { op, over, kept, .. } = granted.asked.take().expect("it is granted once");
        cx.out.reply(op, Ok(HostSuccess::RangeLocked { lock, kept }));
        if let Some(over) = over {
            self.remove(programs, cx, over, &HostError::NoSuchLock);
        }
    }

    /// Others want some of a lock. If it is being promoted, they get it.
    fn on_recalled(&mut self, programs: PartLocks, cx: &mut Ctx, lock: u64) {
        let Some(recalled) = self.locks.get_mut(&lock) else { return };
        recalled.is_recalled = true;
        for op in std::mem::take(&mut recalled.listeners) {
            cx.out.reply(op, Ok(HostSuccess::Done));
        }
        let mut asked = self.locks.values_mut().filter_map(|other| other.asked.as_mut());
        if let Some(promoting) = asked.find(|asked| asked.over == Some(lock)) {
            (promoting.over, promoting.kept) = (None, false);
            self.remove(programs, cx, lock, &HostError::NoSuchLock);
        }
    }

    fn wake(&mut self, mut programs: PartLocks, cx: &mut Ctx) {
        let is_due = |lock: &RangeLock| lock.asked.is_some_and(|asked| asked.until.is_some_and(|at| at <= cx.now.time));
        let due: Vec<_> = self.locks.iter().filter(|(_, lock)| is_due(lock)).map(|(number, _)| *number).collect();
        for lock in due {
            let asked = self.locks[&lock].asked.expect("it is due");
            let waited = cx.now.time.since(asked.since);
            let why = match programs.obstacle(cx.now.time, cx.settings, lock) {
                Obstacle::Silent(server) => HostError::LockServerSilent { server, waited },
                Obstacle::Crowded(_) => HostError::Busy,
                Obstacle::Contended => HostError::RangeTaken { waited },
            };
            self.remove(programs.reborrow(), cx, lock, &why);
        }
    }

    fn end(&mut self, mut programs: PartLocks, cx: &mut Ctx, why: &HostError, ends: impl Fn(Option<Asked>) -> bool) {
        let ending: Vec<_> =
            self.locks.iter().filter(|(_, lock)| ends(lock.asked)).map(|(number, _)| *number).collect();
        for lock in ending {
            self.remove(programs.reborrow(), cx, lock, why);
        }
    }

    /// Ends a lock, and answers those who wait for it or for its recall.
    fn remove(&mut self, mut programs: PartLocks, cx: &mut Ctx, lock: u64, why: &HostError) {
        let Some(ended) = self.locks.remove(&lock) else { return };
        let asked = ended.asked.map(|asked| asked.op);
        for op in asked.into_iter().chain(ended.listeners) {
            cx.out.reply(op, Err(why.clone()));
        }
        programs.release(cx, lock);
    }
}

/// The object whose ranges are locked under a name. Two names have the same object with a probability of 2⁻⁶³: then they delay each other.
pub fn object_of_name(name: &str) -> ObjectId {
    // FNV-1a: the same on every host, for ever.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    ObjectId(hash | 1 << 63)
}

/// True if programs may lock such extents.
fn is_sound(extents: &[LockExtent]) -> bool {
    (1..=braid_wire::LOCK_PART_EXTENTS_MAX).contains(&extents.len()) && extents.iter().all(|it| !it.range.is_empty())
}
