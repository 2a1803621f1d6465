//! A host's client of the lock servers (shared-array paper, sections 4.2 and 4.3). It requests the locks that a holder needs,
//! caches them where the ordering says so, and releases them.
//!
//! ```text
//!   for itself   ask ─► granted ─► … the holder … ─► unlock ─► unlocked
//!   cached       wait for other holders here ─► cached already?  yes ──────────► … the holder …
//!                                               no ─► ask ─► granted ─► cached ─► … the holder …
//!                                                            cached ─► called back, or its lease expired ─► idle ─► released
//! ```
//!
//! Several parts of an owner may lock: its transactions, a cache of pages, a table of open files. Each is a [`Part`],
//! numbers its holders as it likes, borrows the client as [`PartLocks`], and receives the events of its own holders
//! only. A holder requests everything that it needs once, and gets all of it or nothing.
//!
//! Where locks are cached, a server knows hosts, not holders. So a local table keeps the holders of one host apart; a
//! holder takes all its locks there at once. A holder uses cached locks of a server only if they cover all that it
//! needs from that server, and goes to the servers in the order of their numbers. So every holder waits only for
//! holders ahead of it, and there are no deadlocks.
//!
//! A revoked lock is used by no further holder, so that the host that waits for it is not starved.

mod cache;
mod foresight;
mod request;
mod requests;
mod server_links;
mod stripe_hashing;
mod surveys;
mod wanted;

pub use braid_base::Acquisition;
pub use wanted::{Part, Retention, Wanted};

use crate::engine::CHECKED_MAX;
use crate::table::{LockTable, Locked};
use braid_base::limits::Settings;
use braid_base::{Generation, LockServerId, Now, ObjectId, Time, Timers};
use braid_machine::HostEffects;
use braid_wire::LockSurvey;
use braid_wire::locking::{LockCommand, LockExtent, LockName, LockRefusal, Patience};
use cache::Cache;
use request::{Request, RequestState};
use server_links::ServerLink;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use stripe_hashing::{by_division, by_server};
use surveys::{Next, Surveys};
use wanted::HolderId;

/// A host's client of the lock servers.
#[derive(Clone, Debug, Default)]
pub struct LockClient {
    config: LockClientConfig,
    holders: BTreeMap<HolderId, Holder>,
    requests: BTreeMap<u64, Request>,
    /// The extents of cached locks that any holder may use.
    cache: Cache,
    /// Locks that are kept in parts, and of which other hosts want some that are in use here.
    leaving: BTreeSet<u64>,
    links: BTreeMap<LockServerId, ServerLink>,
    /// Keeps the holders of cached locks apart.
    local: LockTable<HolderId>,
    /// Holders whose turn has come in `local`.
    turns: VecDeque<HolderId>,
    surveys: Surveys,
    timers: Timers<LockTimer>,
    /// Events that the parts have not taken out yet.
    events: VecDeque<(Part, Event)>,
    counters: LockClientCounters,
}

/// Configuration of a client.
#[derive(Clone, Debug, Default)]
pub struct LockClientConfig {
    pub host: Generation,
    /// All lock servers of the array.
    pub servers: Vec<LockServerId>,
    /// How locks of several servers are acquired.
    pub acquisition: Acquisition,
}

/// The context of the client, borrowed from its owner.
pub struct Ctx<'a> {
    pub now: Now,
    /// Time-outs, intervals and limits.
    pub settings: &'a Settings,
    /// Numbers a request. No number is used twice.
    pub number: &'a mut dyn FnMut() -> u64,
    /// The effects of this step.
    pub out: &'a mut HostEffects,
}

/// The client, as used by one part of its owner.
#[derive(Debug)]
pub struct PartLocks<'a> {
    client: &'a mut LockClient,
    part: Part,
}

/// An event about a holder, for its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All locks that the holder needs are granted.
    Granted { holder: u64 },
    /// The holder has to wait for another holder or host, or had to.
    Delayed { holder: u64 },
    /// The holder is not granted its locks. Its part has to release it.
    Denied { holder: u64, refusal: LockRefusal },
    /// The holder had all its locks, but a restarted lock server does not know one of them any more: another host may
    /// have it.
    Lost { holder: u64 },
    /// Another host waits for a lock of the holder, or for what the lock stands for.
    Revoked { holder: u64 },
}

/// The reason why a holder does not have its locks yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A lock server has no room for this host.
    Crowded(LockServerId),
    /// A lock server does not answer.
    Silent(LockServerId),
    /// Other holders or hosts have them.
    Contended,
}

braid_base::counters! {
    pub struct LockClientCounters;
    /// Messages sent to lock servers, heartbeats included.
    requests,
    /// Messages received from lock servers.
    answers,
    /// Requests sent again because no answer came.
    resent,
    /// Lock requests that had to wait for another host.
    waits,
    /// Needs for locks of one server that cached locks covered in full.
    hits,
    /// Cached locks that a lock server called back.
    revocations,
    /// Calls on this host's node group for ranges of which it has nothing.
    vain_recalls,
}

/// A holder that has requested locks.
#[derive(Clone, Debug)]
struct Holder {
    object: ObjectId,
    retention: Retention,
    patience: Patience,
    /// The requests whose locks it uses or waits for.
    requests: Vec<u64>,
    /// It waits for other holders of this host.
    queued: bool,
    /// The requests that are not granted yet.
    asked: BTreeSet<u64>,
    /// The locks that it still has to request, by server.
    next: VecDeque<(LockServerId, Vec<LockExtent>)>,
    /// All its locks are granted.
    has_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LockTimer {
    /// A lock server has not answered a request or a survey.
    Resend(u64),
    /// A cached lock's lease has expired.
    CacheLease(u64),
    /// The next heartbeat to a lock server is due.
    Heartbeat(LockServerId),
}

impl Holder {
    /// A holder that has requested nothing yet.
    fn new(object: ObjectId, retention: Retention) -> Holder {
        let (requests, asked, next) = (Vec::new(), BTreeSet::new(), VecDeque::new());
        let patience = Patience::InTurn;
        Holder { object, retention, patience, requests, queued: false, asked, next, has_all: false }
    }

    /// Asserts that it holds nothing that this host was not granted, by each server which has granted it something.
    fn check_covered(&self, extents: &[LockExtent], requests: &BTreeMap<u64, Request>) {
        let requests = || self.requests.iter().map(|number| &requests[number]);
        let servers: BTreeSet<_> = requests().map(|request| request.server).collect();
        for (server, extent) in servers.iter().flat_map(|server| extents.iter().map(move |extent| (server, extent))) {
            let granted = requests().filter(|request| request.server == *server && request.is_held());
            let left = extent.uncovered(granted.flat_map(|request| &request.extents));
            assert!(left.is_empty(), "a holder has what {server} has not granted: {left:?}");
        }
    }
}

impl LockClient {
    /// A client without locks.
    pub fn new(config: LockClientConfig) -> LockClient {
        LockClient { config, ..LockClient::default() }
    }

    /// True if the array has lock servers.
    pub fn has_servers(&self) -> bool {
        !self.config.servers.is_empty()
    }

    pub fn counters(&self) -> &LockClientCounters {
        &self.counters
    }

    /// The client for one part of its owner.
    pub fn of_part(&mut self, part: Part) -> PartLocks<'_> {
        PartLocks { client: self, part }
    }

    fn tell_part(&mut self, holder: HolderId, event: impl FnOnce(u64) -> Event) {
        self.events.push_back((holder.part, event(holder.number)));
    }

    /// When [`LockClient::wake`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// Handles the first timer that is due.
    pub fn wake(&mut self, cx: &mut Ctx) {
        match self.timers.pop_due(cx.now.time) {
            Some(LockTimer::Resend(number)) => self.resend(cx, number),
            Some(LockTimer::CacheLease(number)) => self.on_lease_expired(number),
            // Heartbeats keep the host's lease at a lock server alive even if the host holds nothing there. A restarted
            // server fences all silent hosts, since it does not know what they hold.
            Some(LockTimer::Heartbeat(server)) => self.tell(cx, server, LockCommand::Heartbeat { sent: cx.now.time }),
            None => {}
        }
    }

    fn acquire(&mut self, cx: &mut Ctx, holder: HolderId, wanted: Wanted) {
        let Wanted { object, extents, unit_blocks, retention, patience, over } = wanted;
        if retention.is_of_ranges() {
            // Every lock server hears of this host from now on: one that has lost its list of hosts takes all that use lock servers for
            // holders of its locks, and has those fenced that say nothing.
            for server in self.config.servers.clone() {
                if !self.links.contains_key(&server) {
                    self.tell(cx, server, LockCommand::Heartbeat { sent: cx.now.time });
                }
            }
        }
        let run = unit_blocks * cx.settings.stripes_per_lock_server;
        let next = match retention.is_of_ranges() {
            true => by_division(&self.config.servers, cx.settings.range_division, object, &extents),
            false => by_server(&self.config.servers, run, object, &extents),
        };
        let queued = retention.caches() && !self.lock_locally(holder, object, &extents, (&over, patience));
        let new = Holder { patience, queued, next, ..Holder::new(object, retention) };
        let before = self.holders.insert(holder, new);
        assert!(before.is_none(), "a holder asks once: {holder:?}");
        if !queued {
            self.acquire_next(cx, holder);
        } else if patience == Patience::Impatient {
            // It waits for holders alone that have what they need.
            let refusal = LockRefusal::Timeout;
            self.tell_part(holder, |holder| Event::Denied { holder, refusal });
        } else {
            self.tell_part(holder, |holder| Event::Delayed { holder });
        }
        // Others may have come to wait for these before, when it was not known that they would be replaced.
        let replaced = over.into_iter().map(|number| HolderId { part: holder.part, number });
        for holder in replaced.filter(|holder| self.local.wanted(*holder)).collect::<Vec<_>>() {
            self.tell_part(holder, |holder| Event::Revoked { holder });
        }
    }

    /// Locks the extents among the holders of this host. Locks of the holders `over` in the same part do not count. Who does not wait in turn
    /// passes those that wait, here or for a server. False if it has to wait: then the others are told.
    fn lock_locally(
        &mut self,
        holder: HolderId,
        object: ObjectId,
        extents: &[LockExtent],
        (over, patience): (&[u64], Patience),
    ) -> bool {
        let LockClient { local, holders, .. } = self;
        let passes = patience != Patience::InTurn;
        let belongs = |other: HolderId| {
            other.part == holder.part && (over.contains(&other.number) || (passes && !holders[&other].has_all))
        };
        let locked = match over {
            [] if !passes => local.lock(holder, object, extents),
            _ => local.lock_beside(holder, object, extents, belongs, passes),
        };
        match locked {
            Locked::Granted => true,
            Locked::Waits { blockers } => {
                // Who promotes was here first, and keeps what it has.
                for blocker in blockers.into_iter().filter(|held| !self.local.is_behind_promotion(holder, *held)) {
                    if self.holders[&blocker].retention.width().is_some() {
                        self.events.push_back((blocker.part, Event::Revoked { holder: blocker.number }));
                    }
                }
                false
            }
        }
    }

    /// Requests the locks of the next server, or of all servers. If none is left, and all are granted, the holder has
    /// its locks.
    fn acquire_next(&mut self, cx: &mut Ctx, holder: HolderId) {
        let at_once = self.config.servers.len() > 1 && self.config.acquisition == Acquisition::Timeout;
        loop {
            let held = self.holders.get_mut(&holder).expect("it needs locks");
            let (object, caches, patience) = (held.object, held.retention.caches(), held.patience);
            let in_parts = held.retention.width().is_some();
            let Some((server, extents)) = held.next.pop_front() else { break };
            if caches && self.use_cached(cx, holder, (server, object), &extents) {
                continue;
            }
            let goes_on = (at_once || patience == Patience::Impatient) && !caches;
            let of_one = if goes_on { Patience::Impatient } else { Patience::InTurn };
            self.ask(cx, holder, server, extents, if in_parts { patience } else { of_one });
            if !goes_on {
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
        // First among the holders here: a part of a lock that another host wants is given back when no holder here uses it.
        if held.retention.caches() {
            let mut granted = Vec::new();
            self.local.release(holder, &mut granted);
            self.turns.extend(granted);
        }
        for number in held.requests {
            self.release_request(cx, number, holder);
        }
    }

    /// Continues with the next holder whose turn has come among those of this host. False if there is none.
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
        let silent = |server: &LockServerId| self.links.get(server).is_none_or(|link| link.is_silent(now, settings));
        let asked = self.holders.get(&holder).into_iter().flat_map(|held| &held.asked);
        let servers = || asked.clone().map(|number| self.requests[number].server);
        let crowded = |server: &LockServerId| self.links.get(server).is_some_and(|link| link.crowded);
        if let Some(server) = servers().find(crowded) {
            return Obstacle::Crowded(server);
        }
        servers().filter(silent).min().map_or(Obstacle::Contended, Obstacle::Silent)
    }

    /// When the next server comes into doubt, if it answers no heartbeat before. It presumes a host dead that it has not heard for a lease, and
    /// has it fenced if others want its locks.
    pub fn in_doubt_at(&self, settings: &Settings) -> Option<Time> {
        self.links.values().filter(|link| !link.doubted).filter_map(|link| link.in_doubt_at(settings)).min()
    }

    /// A server that has come into doubt since this was called last.
    pub fn take_doubted(&mut self, now: Now, settings: &Settings) -> Option<LockServerId> {
        let mut links = self.links.iter_mut().filter(|(_, link)| !link.doubted && link.is_in_doubt(now, settings));
        let (server, link) = links.next()?;
        link.doubted = true;
        Some(*server)
    }

    /// A server that is in doubt, among those that grant these ranges.
    pub fn doubted(&self, cx: &Ctx, object: ObjectId, extents: &[LockExtent]) -> Option<LockServerId> {
        let servers = by_division(&self.config.servers, cx.settings.range_division, object, extents);
        let is_doubted =
            |server: &LockServerId| self.links.get(server)?.is_in_doubt(cx.now, cx.settings).then_some(*server);
        servers.iter().find_map(|(server, _)| is_doubted(server))
    }

    /// Asks a server for some of its locks, and waits for so long. Returns the number under which [`LockClient::pop_surveyed`] has the answer.
    pub fn survey(
        &mut self,
        cx: &mut Ctx,
        server: LockServerId,
        (from, object, waiting): (LockName, Option<ObjectId>, bool),
        wait: Duration,
    ) -> u64 {
        let ticket = (cx.number)();
        let command = LockCommand::Survey { ticket, from, object, waiting };
        self.surveys.ask(ticket, server, command, cx.now.time.after(wait), cx.settings.resend());
        self.send_survey(cx, ticket);
        ticket
    }

    /// A survey that is over. None of it: the server was silent.
    pub fn pop_surveyed(&mut self) -> Option<(u64, Option<LockSurvey>)> {
        self.surveys.pop_over()
    }

    /// No request waits for this survey any more.
    pub fn forget_survey(&mut self, ticket: u64) {
        self.surveys.forget(ticket);
        self.timers.cancel(LockTimer::Resend(ticket));
    }

    /// Sends a survey, or gives it up. False if there is none of this number.
    fn send_survey(&mut self, cx: &mut Ctx, ticket: u64) -> bool {
        match self.surveys.next(cx.now.time, ticket) {
            None => return false,
            Some(Next::GiveUp) => self.timers.cancel(LockTimer::Resend(ticket)),
            Some(Next::Send { server, command, again }) => {
                self.timers.set(LockTimer::Resend(ticket), again);
                self.tell(cx, server, command);
            }
        }
        true
    }

    /// The locks that this host holds, as far as it knows. No other host may hold them, unless this host is fenced.
    /// Several servers may grant the same range: then it is held if all do. Leases are not among them: a server lets those of a silent host lapse.
    pub fn held(&self) -> impl Iterator<Item = (LockServerId, ObjectId, LockExtent)> + '_ {
        let held = self.requests.values().filter(|request| request.is_held() && request.retention != Retention::Leased);
        held.flat_map(|request| request.extents.iter().map(|extent| (request.server, request.object, *extent)))
    }

    /// The same with the numbers of the locks, as far as the latest start of each server that has answered has granted them.
    pub fn confirmed(&self) -> impl Iterator<Item = (LockServerId, Generation, u64, &[LockExtent])> {
        let is_kept = |request: &Request| request.state == RequestState::Held && request.retention != Retention::Leased;
        let held = self.requests.iter().filter(move |(_, request)| is_kept(request));
        held.map(|(number, request)| (request.server, self.links[&request.server].heard, *number, &request.extents[..]))
    }

    /// What the holders of one part hold that have all their locks, and are kept apart here; and what they have as leases, which is so if true.
    pub fn locked(&self, part: Part) -> impl Iterator<Item = (u64, ObjectId, Vec<LockExtent>, bool)> {
        let locked = self.holders(part).filter(|(_, has_all)| *has_all);
        locked.filter_map(move |(number, _)| {
            let holder = HolderId { part, number };
            if let Some((object, extents)) = self.local.extents(holder) {
                return Some((number, object, extents.to_vec(), false));
            }
            let Holder { object, requests, retention, .. } = &self.holders[&holder];
            let extents = requests.iter().flat_map(|request| &self.requests[request].extents).copied();
            (*retention == Retention::Leased).then(|| (number, *object, extents.collect(), true))
        })
    }

    /// The number of locks held, requested or being released.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// True if the lock servers have answered every request and every release.
    pub fn is_settled(&self) -> bool {
        self.requests.values().all(Request::is_settled)
    }

    /// The holders of one part, and whether all their locks are granted.
    pub fn holders(&self, part: Part) -> impl Iterator<Item = (u64, bool)> + '_ {
        let of_part = HolderId { part, number: 0 }..=HolderId { part, number: u64::MAX };
        self.holders.range(of_part).map(|(holder, held)| (holder.number, held.has_all))
    }

    /// Asserts that holders and requests know each other, and that a holder's last grant gives it all its locks.
    pub fn invariants(&self) {
        self.local.invariants();
        assert!(
            self.events.is_empty() && self.turns.is_empty(),
            "every event and every turn is handled within its step"
        );
        for (holder, held) in &self.holders {
            assert_ne!(
                held.has_all,
                held.queued || !held.asked.is_empty(),
                "a holder has all its locks when nothing is missing: {holder:?}"
            );
            for number in &held.requests {
                let request = self.requests.get(number).expect("a holder's requests are known");
                request.invariants(*number, *holder);
            }
            if held.has_all && held.retention.width().is_some() && held.requests.len() <= CHECKED_MAX {
                let (_, extents) = self.local.extents(*holder).expect("the holders of one host are kept apart");
                held.check_covered(extents, &self.requests);
            }
        }
    }
}

impl PartLocks<'_> {
    /// True if the array has lock servers.
    pub fn has_servers(&self) -> bool {
        self.client.has_servers()
    }

    /// Takes out the next event of this part.
    pub fn pop_event(&mut self) -> Option<Event> {
        let next = self.client.events.iter().position(|(part, _)| *part == self.part)?;
        self.client.events.remove(next).map(|(_, event)| event)
    }

    /// Requests the locks that a holder needs. [`Event::Granted`] reports when it has them.
    pub fn acquire(&mut self, cx: &mut Ctx, number: u64, wanted: Wanted) {
        self.client.acquire(cx, self.holder(number), wanted);
    }

    /// Releases a holder's locks. Does nothing if it has requested none.
    pub fn release(&mut self, cx: &mut Ctx, number: u64) {
        self.client.release(cx, self.holder(number));
    }

    /// A holder of locks that are kept in parts keeps less of them: these extents, each within one of its own, and as strong at most.
    pub fn shrink(&mut self, cx: &mut Ctx, number: u64, rest: &[LockExtent]) {
        let (holder, client) = (self.holder(number), &mut *self.client);
        let mut granted = Vec::new();
        let is_less = client.local.shrink(holder, rest, &mut granted);
        assert!(is_less, "a holder keeps a part of what it holds: {holder:?}");
        client.turns.extend(granted);
        for number in client.holders[&holder].requests.clone() {
            let request = &client.requests[&number];
            if rest.iter().any(|extent| request.extents.iter().any(|other| other.range.overlaps(extent.range))) {
                if !request.parts.recalled.is_empty() {
                    client.give_back_recalled(cx, number);
                }
            } else {
                let held = client.holders.get_mut(&holder).expect("just seen");
                held.requests.retain(|other| *other != number);
                client.release_request(cx, number, holder);
            }
        }
    }

    /// Drops what is kept of these extents of an object, and not in use: holders are not likely to want it again.
    pub fn drop_kept(&mut self, object: ObjectId, extents: &[LockExtent]) {
        for server in self.client.config.servers.clone() {
            self.client.drop_conflicting(server, object, extents);
        }
    }

    /// The reason why a holder does not have its locks yet.
    pub fn obstacle(&self, now: Time, settings: &Settings, number: u64) -> Obstacle {
        self.client.obstacle(now, settings, self.holder(number))
    }

    /// The other holders of this part that have all their locks, and conflict with what this one has or waits for.
    pub fn rivals(&self, number: u64) -> Vec<u64> {
        let holder = self.holder(number);
        let Some((object, extents)) = self.client.local.extents(holder) else { return Vec::new() };
        let others = self.client.local.holders(object, extents).into_iter();
        let is_rival =
            |other: &HolderId| *other != holder && other.part == self.part && self.client.holders[other].has_all;
        others.filter(is_rival).map(|other| other.number).collect()
    }

    /// True if a holder has a lock that this server has granted.
    pub fn relies_on(&self, number: u64, server: LockServerId) -> bool {
        self.granted_by(number).any(|other| other == server)
    }

    /// A server in doubt that has granted a lock which a holder has.
    pub fn doubted(&self, cx: &Ctx, number: u64) -> Option<LockServerId> {
        let is_doubted = |server: &LockServerId| self.client.links[server].is_in_doubt(cx.now, cx.settings);
        self.granted_by(number).find(is_doubted)
    }

    fn granted_by(&self, number: u64) -> impl Iterator<Item = LockServerId> {
        let requests = self.client.holders.get(&self.holder(number)).into_iter().flat_map(|holder| &holder.requests);
        let held = requests.map(|request| &self.client.requests[request]).filter(|request| request.is_held());
        held.map(|request| request.server)
    }

    /// The same, for a shorter time.
    pub fn reborrow(&mut self) -> PartLocks<'_> {
        PartLocks { client: self.client, part: self.part }
    }

    fn holder(&self, number: u64) -> HolderId {
        HolderId { part: self.part, number }
    }
}
