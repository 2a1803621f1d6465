//! A host's client of the lock servers (shared array, sections 4.2 and 4.3): how a holder gets its locks, keeps them, and gives them back.
//!
//! ```text
//!   for itself   ask ─► granted ─► … the holder … ─► unlock ─► unlocked
//!   cached       wait for other holders here ─► cached already?  yes ──────────► … the holder …
//!                                               no ─► ask ─► granted ─► cached ─► … the holder …
//!                                                            cached ─► called back, or its lease expired ─► idle ─► released
//! ```
//!
//! Several parts of an owner may lock: its transactions, a cache of pages, a table of open files. Each is a [`Part`], and numbers its holders as
//! it likes; it borrows the client as [`PartLocks`], and hears of its own holders alone. A holder asks once for all that it needs, and has all
//! or nothing.
//!
//! Where locks are cached, a server knows hosts, not holders; so the holders of one host are kept apart by a table of its own, from which
//! each takes all its locks at once. One uses cached locks of a server only when they cover all that it needs there, and takes servers in
//! the order of their numbers. So every holder waits only for holders ahead of it, and there are no deadlocks.
//!
//! A lock that was called back is used by no further holder, so that the one who called it back is not starved.

mod cache;
mod requests;
mod servers;

use crate::table::{LockTable, Locked};
use braid_base::limits::Settings;
use braid_base::{Generation, LockServerId, Now, ObjectId, Time, Timers};
use braid_machine::Effects;
use braid_wire::locking::{LockCommand, LockExtent, LockRefusal};
use cache::Cache;
use requests::Request;
use servers::{ServerLink, by_server};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A host's client of the lock servers.
#[derive(Debug)]
pub struct LockClient {
    config: LockClientConfig,
    holders: BTreeMap<HolderId, Holder>,
    requests: BTreeMap<u64, Request>,
    /// Of the locks that are held, those that any holder may use.
    cache: Cache,
    links: BTreeMap<LockServerId, ServerLink>,
    /// Holders of cached locks among themselves.
    local: LockTable<HolderId>,
    /// Holders that have come to their turn in `local`.
    turns: VecDeque<HolderId>,
    timers: Timers<LockTimer>,
    /// What the parts have not been told yet.
    events: VecDeque<(Part, Event)>,
    counters: LockClientCounters,
}

/// How a client is to run.
#[derive(Clone, Debug)]
pub struct LockClientConfig {
    /// Whose it is.
    pub host: Generation,
    /// All lock servers of the array.
    pub servers: Vec<LockServerId>,
    /// How locks of several servers are acquired.
    pub acquisition: Acquisition,
}

/// How a holder gets its locks of several lock servers without deadlock (shared array, section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Acquisition {
    /// One server after the other, in the order of their numbers: no deadlock, but a round trip for each.
    #[default]
    Ordered,
    /// All servers at once; one that can't grant in time refuses, and everything is given back and tried again.
    Timeout,
}

/// What the client borrows of its owner.
pub struct Ctx<'a> {
    /// The time.
    pub now: Now,
    /// Waits and spans.
    pub settings: &'a Settings,
    /// Gives a request its number. No two are ever the same.
    pub number: &'a mut dyn FnMut() -> u64,
    /// Where requests go.
    pub out: &'a mut Effects,
}

/// A part of the owner that has holders: the owner gives each of its parts another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part(pub u8);

/// Names a holder among those of all parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct HolderId {
    part: Part,
    /// What the part calls it.
    number: u64,
}

/// The client, as one part of its owner uses it.
#[derive(Debug)]
pub struct PartLocks<'a> {
    client: &'a mut LockClient,
    part: Part,
}

/// What a holder needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// On which object.
    pub object: ObjectId,
    /// What to lock.
    pub extents: Vec<LockExtent>,
    /// Blocks of a stripe unit: lock servers share out stripes.
    pub unit_blocks: u64,
    /// Whether the locks are kept for later holders, until they are called back.
    pub caches: bool,
}

/// What a part is told of its holders, by the numbers that it gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A holder has all that it needs.
    Granted {
        /// Which.
        holder: u64,
    },
    /// A holder has to wait for another one, or had to.
    Delayed {
        /// Which.
        holder: u64,
    },
    /// A holder does not get what it needs. Its part is to release it.
    Denied {
        /// Which.
        holder: u64,
        /// Why.
        refusal: LockRefusal,
    },
    /// A holder had all that it needs, and a lock server that has restarted does not know of it any more: others may have it.
    Lost {
        /// Which.
        holder: u64,
    },
    /// Another host waits for what a holder has.
    Revoked {
        /// Which.
        holder: u64,
    },
}

/// Why a holder has not got its locks yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A lock server has no room for this host.
    Crowded(LockServerId),
    /// A lock server does not answer.
    Silent(LockServerId),
    /// Others have them.
    Contended,
}

braid_base::counters! {
    /// What a client has done.
    pub struct LockClientCounters;
    /// Messages sent to lock servers, heartbeats included.
    requests,
    /// Messages that came from lock servers.
    answers,
    /// Requests sent again for want of an answer.
    resent,
    /// Locks that somebody else had.
    waits,
    /// Locks of one server that were all found cached.
    hits,
    /// Locks that a lock server called back.
    revocations,
}

/// One that has asked for locks.
#[derive(Clone, Debug)]
struct Holder {
    object: ObjectId,
    caches: bool,
    /// Requests that it uses or waits for.
    requests: Vec<u64>,
    /// It waits for other holders here.
    queued: bool,
    /// Requests that are not granted yet.
    asked: BTreeSet<u64>,
    /// What is to be asked for after that.
    next: VecDeque<(LockServerId, Vec<LockExtent>)>,
    /// Everything has been granted.
    has_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LockTimer {
    /// A lock server has not answered a request.
    Resend(u64),
    /// A cached lock's lease has expired.
    CacheLease(u64),
    /// It is time to be heard again by a lock server.
    Heartbeat(LockServerId),
}

impl LockClient {
    /// One that holds nothing.
    pub fn new(config: LockClientConfig) -> LockClient {
        LockClient {
            config,
            holders: BTreeMap::new(),
            requests: BTreeMap::new(),
            cache: Cache::default(),
            links: BTreeMap::new(),
            local: LockTable::new(),
            turns: VecDeque::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
            counters: LockClientCounters::default(),
        }
    }

    /// True if the array has lock servers.
    pub fn has_servers(&self) -> bool {
        !self.config.servers.is_empty()
    }

    /// What it has done.
    pub fn counters(&self) -> &LockClientCounters {
        &self.counters
    }

    /// The client, as this part of its owner uses it.
    pub fn of_part(&mut self, part: Part) -> PartLocks<'_> {
        PartLocks { client: self, part }
    }

    fn tell_part(&mut self, holder: HolderId, event: impl FnOnce(u64) -> Event) {
        self.events.push_back((holder.part, event(holder.number)));
    }

    /// When [`LockClient::wake`] has something to do.
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// Does the first thing that is due.
    pub fn wake(&mut self, cx: &mut Ctx) {
        match self.timers.pop_due(cx.now.time) {
            Some(LockTimer::Resend(number)) => self.resend(cx, number),
            Some(LockTimer::CacheLease(number)) => self.on_lease_expired(number),
            // The host's lease at a lock server is kept alive also while nothing is held there: after a restart the server has all hosts
            // fenced that are silent, since it does not know what they hold.
            Some(LockTimer::Heartbeat(server)) => self.tell(cx, server, LockCommand::Heartbeat),
            None => {}
        }
    }

    fn acquire(&mut self, cx: &mut Ctx, holder: HolderId, wanted: Wanted) {
        let Wanted { object, extents, unit_blocks, caches } = wanted;
        let run = unit_blocks * cx.settings.stripes_per_lock_server;
        let next = by_server(&self.config.servers, run, object, &extents);
        let queued = caches && self.local.lock(holder, object, &extents) != Locked::Granted;
        let (requests, asked) = (Vec::new(), BTreeSet::new());
        let before =
            self.holders.insert(holder, Holder { object, caches, requests, queued, asked, next, has_all: false });
        assert!(before.is_none(), "a holder asks once: {holder:?}");
        if queued {
            self.tell_part(holder, |holder| Event::Delayed { holder });
        } else {
            self.acquire_next(cx, holder);
        }
    }

    /// Asks the next server, or all of them, or none if no lock is missing any more.
    fn acquire_next(&mut self, cx: &mut Ctx, holder: HolderId) {
        let at_once = self.config.servers.len() > 1 && self.config.acquisition == Acquisition::Timeout;
        loop {
            let held = self.holders.get_mut(&holder).expect("it needs locks");
            let (object, caches) = (held.object, held.caches);
            let Some((server, extents)) = held.next.pop_front() else { break };
            if caches && self.use_cached(holder, object, &extents) {
                continue;
            }
            let impatient = at_once && !caches;
            self.ask(cx, holder, server, extents, impatient);
            if !impatient {
                return;
            }
        }
        let held = self.holders.get_mut(&holder).expect("just seen");
        if held.asked.is_empty() {
            held.has_all = true;
            self.tell_part(holder, |holder| Event::Granted { holder });
        }
    }

    fn release(&mut self, cx: &mut Ctx, holder: HolderId) {
        let Some(held) = self.holders.remove(&holder) else { return };
        for number in held.requests {
            self.release_request(cx, number, holder);
        }
        if held.caches {
            let mut granted = Vec::new();
            self.local.release(holder, &mut granted);
            self.turns.extend(granted);
        }
    }

    /// On with the next holder whose turn has come among those of this host; false if there is none.
    pub fn take_turn(&mut self, cx: &mut Ctx) -> bool {
        let Some(holder) = self.turns.pop_front() else { return false };
        if let Some(held) = self.holders.get_mut(&holder)
            && std::mem::take(&mut held.queued)
        {
            self.acquire_next(cx, holder);
        }
        true
    }

    fn obstacle(&self, now: Time, settings: &Settings, holder: HolderId) -> Obstacle {
        let silent = |server: &LockServerId| {
            let heard = self.links.get(server).and_then(|link| link.last_heard);
            heard.is_none_or(|heard| now.since(heard) > settings.host_lease)
        };
        let asked = self.holders.get(&holder).into_iter().flat_map(|held| &held.asked);
        let servers = || asked.clone().map(|number| self.requests[number].server);
        let crowded = |server: &LockServerId| self.links.get(server).is_some_and(|link| link.crowded);
        if let Some(server) = servers().find(crowded) {
            return Obstacle::Crowded(server);
        }
        servers().filter(silent).min().map_or(Obstacle::Contended, Obstacle::Silent)
    }

    /// What it holds of lock servers, as far as it knows. No other host may hold that, unless devices keep this host out.
    pub fn held(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.requests.values().filter(|request| request.is_held()).flat_map(Request::extents)
    }

    /// How many locks are held, asked for, or being released.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// True if nothing was asked of a lock server, or released, that it has not answered.
    pub fn is_settled(&self) -> bool {
        self.requests.values().all(Request::is_settled)
    }

    /// The holders of one part that have asked for locks, and whether they have all that they need.
    pub fn holders(&self, part: Part) -> impl Iterator<Item = (u64, bool)> + '_ {
        let of_part = HolderId { part, number: 0 }..=HolderId { part, number: u64::MAX };
        self.holders.range(of_part).map(|(holder, held)| (holder.number, held.has_all))
    }

    /// Asserts that holders and requests know each other, and that the last grant ends the waiting.
    pub fn invariants(&self) {
        self.local.invariants();
        assert!(self.events.is_empty() && self.turns.is_empty(), "every part is told at once, and whoever can goes on");
        for (holder, held) in &self.holders {
            assert_ne!(
                held.has_all,
                held.queued || !held.asked.is_empty(),
                "the last grant ends the locking: {holder:?}"
            );
            for number in &held.requests {
                let request = self.requests.get(number).expect("a holder's requests are known");
                request.invariants(*number, *holder);
            }
        }
    }
}

impl PartLocks<'_> {
    /// True if the array has lock servers.
    pub fn has_servers(&self) -> bool {
        self.client.has_servers()
    }

    /// Takes out what this part has not been told yet.
    pub fn pop_event(&mut self) -> Option<Event> {
        let next = self.client.events.iter().position(|(part, _)| *part == self.part)?;
        self.client.events.remove(next).map(|(_, event)| event)
    }

    /// Gets a holder the locks that it needs; [`Event::Granted`] tells when it has them.
    pub fn acquire(&mut self, cx: &mut Ctx, number: u64, wanted: Wanted) {
        self.client.acquire(cx, self.holder(number), wanted);
    }

    /// A holder needs its locks no longer; nothing if it has asked for none.
    pub fn release(&mut self, cx: &mut Ctx, number: u64) {
        self.client.release(cx, self.holder(number));
    }

    /// Why a holder has not got its locks yet.
    pub fn obstacle(&self, now: Time, settings: &Settings, number: u64) -> Obstacle {
        self.client.obstacle(now, settings, self.holder(number))
    }

    fn holder(&self, number: u64) -> HolderId {
        HolderId { part: self.part, number }
    }
}
