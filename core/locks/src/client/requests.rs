//! Lock requests of a host: requested, granted, cached, revoked, released. Each is sent again until it is answered.

use super::server_links::ServerLink;
use super::{Ctx, Event, Holder, HolderId, LockClient, LockTimer, Part};
use braid_base::{Backoff, Generation, LockServerId, ObjectId, limits};
use braid_machine::Ignored;
use braid_wire::Rejection;
use braid_wire::locking::{LockAnswer, LockCommand, LockExtent, LockRefusal, LockReply, LockTerm};
use std::collections::{BTreeSet, VecDeque};

/// A lock, from when it is requested until its release is confirmed.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub server: LockServerId,
    object: ObjectId,
    extents: Vec<LockExtent>,
    cached: bool,
    state: RequestState,
    /// Holders that use the lock or wait for it.
    users: BTreeSet<HolderId>,
    /// No further holder may use it: it was revoked, or its lease has expired.
    retired: bool,
    resend: Backoff,
    /// Locks of the same server that do not count when it is requested.
    over: Vec<u64>,
    /// Other locks of the same server that are released together with it.
    beside: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Asked {
        impatient: bool,
    },
    Held,
    /// Held, but the server has restarted since and has not confirmed it yet.
    Reasserting,
    /// Released. The server has not confirmed that.
    Releasing,
}

impl Request {
    /// A lock that is released, together with others.
    fn releasing(cx: &Ctx, server: LockServerId, beside: Vec<u64>) -> Request {
        Request {
            server,
            object: ObjectId(0),
            extents: Vec::new(),
            cached: false,
            state: RequestState::Releasing,
            users: BTreeSet::new(),
            retired: true,
            resend: cx.settings.resend(),
            over: Vec::new(),
            beside,
        }
    }

    pub fn is_held(&self) -> bool {
        matches!(self.state, RequestState::Held | RequestState::Reasserting)
    }

    pub fn is_being_released(&self, object: ObjectId) -> bool {
        self.state == RequestState::Releasing && self.object == object
    }

    /// True if no message about it is outstanding: it is cached and held.
    pub fn is_settled(&self) -> bool {
        self.state == RequestState::Held && self.cached
    }

    /// How the lock is requested of the server's start `heard`.
    fn term(&self, heard: Generation) -> LockTerm {
        match self.state {
            RequestState::Asked { .. } if self.cached => LockTerm::Cached,
            RequestState::Asked { impatient } => LockTerm::Transaction { impatient },
            _ => LockTerm::Held { start: heard, cached: self.cached },
        }
    }

    pub fn extents(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        self.extents.iter().map(|extent| (self.object, *extent))
    }

    /// Asserts that a holder may rely on it.
    pub fn invariants(&self, number: u64, holder: HolderId) {
        assert!(self.users.contains(&holder), "a request knows its users: {number}, {holder:?}");
        assert_ne!(self.state, RequestState::Releasing, "a lock in use is not released: {number}");
    }
}

impl LockClient {
    /// Uses cached locks if they cover all of these extents.
    pub(super) fn use_cached(&mut self, holder: HolderId, object: ObjectId, extents: &[LockExtent]) -> bool {
        let Some(used) = self.cache.covering(object, extents) else { return false };
        for number in &used {
            self.requests.get_mut(number).expect("a cached lock has a request").users.insert(holder);
        }
        self.holders.get_mut(&holder).expect("it needs locks").requests.extend(used);
        self.counters.hits += 1;
        true
    }

    /// Requests a lock from a server. `impatient`: the server is to refuse it if it can't be granted soon.
    pub(super) fn ask(
        &mut self,
        cx: &mut Ctx,
        holder: HolderId,
        server: LockServerId,
        extents: Vec<LockExtent>,
        impatient: bool,
    ) {
        let held = &self.holders[&holder];
        let (object, cached, over) = (held.object, held.caches, held.over.clone());
        if cached {
            self.drop_conflicting(server, object, &extents);
        }
        let number = (cx.number)();
        let request = Request {
            server,
            object,
            extents,
            cached,
            state: RequestState::Asked { impatient },
            users: [holder].into(),
            retired: false,
            resend: cx.settings.resend(),
            over,
            beside: Vec::new(),
        };
        self.requests.insert(number, request);
        let held = self.holders.get_mut(&holder).expect("just seen");
        held.requests.push(number);
        held.asked.insert(number);
        self.send(cx, number);
    }

    /// Sends a request again, as its state demands.
    pub(super) fn resend(&mut self, cx: &mut Ctx, number: u64) {
        self.counters.resent += 1;
        self.send(cx, number);
    }

    fn send(&mut self, cx: &mut Ctx, number: u64) {
        let request = self.requests.get_mut(&number).expect("a request with something to send is known");
        let (server, object, extents) = (request.server, request.object, request.extents.clone());
        let heard = self.links.get(&server).map_or(Generation::default(), |link| link.heard);
        let lock_id = number;
        let command = match (request.state, request.term(heard)) {
            (RequestState::Held, _) => return,
            (RequestState::Releasing, _) => LockCommand::Unlock { lock_id },
            (RequestState::Asked { .. }, _) if !request.over.is_empty() => {
                LockCommand::LockOver { lock_id, object, extents, over: request.over.clone() }
            }
            (_, term) => LockCommand::Lock { lock_id, object, extents, term },
        };
        self.timers.set(LockTimer::Resend(number), cx.now.time.after(request.resend.next_wait()));
        if !request.beside.is_empty() {
            self.links.entry(server).or_default().dropped.extend(&request.beside);
        }
        self.tell(cx, server, command);
    }

    /// A lock server has answered, or revokes locks.
    pub fn on_answer(&mut self, cx: &mut Ctx, server: LockServerId, answer: LockAnswer) {
        self.counters.answers += 1;
        let Some(link) = self.links.get_mut(&server) else { return cx.out.ignore(Ignored::NotAwaited) };
        match answer.reply {
            // Ignored here: the monitor and the devices tell that, too, and only they end a host.
            LockReply::Rejected { rejection: Rejection::Fenced } => return cx.out.ignore(Ignored::NotAwaited),
            // There is room again when other hosts have ended. Unanswered requests are sent again.
            LockReply::Rejected { .. } => return link.crowded = true,
            _ => {}
        }
        link.crowded = false;
        if answer.start < link.heard {
            // A late answer of an earlier start.
            return cx.out.ignore(Ignored::NotAwaited);
        }
        link.last_heard = Some(cx.now.time);
        if answer.start > link.heard {
            let known = std::mem::replace(&mut link.heard, answer.start);
            if known == Generation::default() {
                link.reassert(0);
            } else {
                self.reassert(cx, server);
            }
        }
        match answer.reply {
            LockReply::Heartbeat => {}
            LockReply::Granted { lock_id, waited } => self.on_granted(cx, server, lock_id, waited),
            LockReply::Unlocked { lock_id } => {
                let released = |held: &Request| (held.server, held.state) == (server, RequestState::Releasing);
                if self.requests.get(&lock_id).is_some_and(released) {
                    self.forget(lock_id);
                }
            }
            LockReply::Revoke { lock_ids } => self.on_revoke(cx, server, lock_ids),
            LockReply::Refused { lock_id, refusal } => self.on_refused(cx, server, lock_id, refusal),
            LockReply::Rejected { .. } => unreachable!("dealt with above"),
        }
    }

    /// The server has restarted. It knows nothing of the locks held, nor of requests and releases under way.
    fn reassert(&mut self, cx: &mut Ctx, server: LockServerId) {
        let mut held = 0;
        let mut numbers = Vec::new();
        for (number, request) in self.requests.iter_mut().filter(|(_, request)| request.server == server) {
            if request.is_held() {
                request.state = RequestState::Reasserting;
                held += 1;
            }
            request.resend.reset();
            numbers.push(*number);
        }
        self.link(server).reassert(held);
        for number in numbers {
            self.send(cx, number);
        }
    }

    fn on_granted(&mut self, cx: &mut Ctx, server: LockServerId, number: u64, waited: bool) {
        let Some(request) = self.requests.get_mut(&number) else {
            // A late copy of a request was granted once more.
            return self.release_unknown(cx, server, number);
        };
        if request.server != server {
            // Each server answers for its own locks only.
            return cx.out.ignore(Ignored::NotForUs);
        }
        match request.state {
            RequestState::Asked { .. } => {}
            RequestState::Reasserting => {
                request.state = RequestState::Held;
                self.timers.cancel(LockTimer::Resend(number));
                return self.link(server).heard_again();
            }
            RequestState::Held | RequestState::Releasing => return cx.out.ignore(Ignored::NotAwaited),
        }
        request.state = RequestState::Held;
        let users: Vec<_> = request.users.iter().copied().collect();
        self.timers.cancel(LockTimer::Resend(number));
        self.counters.waits += u64::from(waited);
        self.keep(cx, number);
        for user in users {
            self.holders.get_mut(&user).expect("a request's users are known").asked.remove(&number);
            if waited {
                self.tell_part(user, |holder| Event::Delayed { holder });
            }
            if self.holders[&user].asked.is_empty() {
                self.acquire_next(cx, user);
            }
        }
    }

    /// A server has granted a cached lock that was not requested: the holder has it from now on. False if the holder has locks already, or
    /// the server has restarted since: then the lock is released.
    pub fn adopt(
        &mut self,
        cx: &mut Ctx,
        (server, start): (LockServerId, Generation),
        (part, holder): (Part, u64),
        (number, object, extent): (u64, ObjectId, LockExtent),
    ) -> bool {
        let holder = HolderId { part, number: holder };
        let knows = self.links.get(&server).is_some_and(|link| link.knows_all(start));
        let is_free = !self.holders.contains_key(&holder)
            && !self.requests.contains_key(&number)
            && self.cache.conflicting(object, &[extent]).is_empty()
            && self.cache.covering(object, &[extent]).is_none();
        if !knows || !is_free || !self.local.hold_beside(holder, object, &[extent], |_| false) {
            if !self.requests.contains_key(&number) {
                self.release_unknown(cx, server, number);
            }
            return false;
        }
        let request = Request {
            server,
            object,
            extents: vec![extent],
            cached: true,
            state: RequestState::Held,
            users: [holder].into(),
            retired: false,
            resend: cx.settings.resend(),
            over: Vec::new(),
            beside: Vec::new(),
        };
        self.requests.insert(number, request);
        self.keep(cx, number);
        let (requests, asked, next) = (vec![number], BTreeSet::new(), VecDeque::new());
        let over = Vec::new();
        let held = Holder {
            object,
            caches: true,
            is_impatient: false,
            over,
            requests,
            queued: false,
            asked,
            next,
            has_all: true,
        };
        self.holders.insert(holder, held);
        true
    }

    /// Releases a lock that this host does not know, until the server has confirmed that.
    fn release_unknown(&mut self, cx: &mut Ctx, server: LockServerId, number: u64) {
        if self.requests.len() >= limits::LOCK_REQUESTS_MAX {
            return self.tell(cx, server, LockCommand::Unlock { lock_id: number });
        }
        self.requests.insert(number, Request::releasing(cx, server, Vec::new()));
        self.send(cx, number);
    }

    /// Makes a granted lock available to all holders, if it is to be cached.
    fn keep(&mut self, cx: &mut Ctx, number: u64) {
        let request = &self.requests[&number];
        if !request.cached {
            return;
        }
        if !request.retired {
            self.cache.insert(number, request.object, &request.extents);
        }
        if !cx.settings.lock_lease.is_zero() {
            self.timers.set(LockTimer::CacheLease(number), cx.now.time.after(cx.settings.lock_lease));
        }
    }

    /// Lets no further holder use a lock.
    fn retire(&mut self, number: u64) {
        let request = self.requests.get_mut(&number).expect("only a known request is retired");
        let is_cached = request.cached && !matches!(request.state, RequestState::Asked { .. });
        if !std::mem::replace(&mut request.retired, true) && is_cached {
            self.cache.remove(number, request.object, &request.extents);
        }
    }

    /// Drops idle cached locks of this host that a new request would conflict with, so that the server need not revoke
    /// them.
    fn drop_conflicting(&mut self, server: LockServerId, object: ObjectId, extents: &[LockExtent]) {
        for number in self.cache.conflicting(object, extents) {
            let request = &self.requests[&number];
            if request.server == server && request.users.is_empty() && request.state == RequestState::Held {
                self.drop_idle(number);
            }
        }
    }

    /// The lease of a cached lock has expired.
    pub(super) fn on_lease_expired(&mut self, number: u64) {
        if self.requests[&number].users.is_empty() { self.drop_idle(number) } else { self.retire(number) }
    }

    /// Drops an idle lock. The server is told with the next message.
    fn drop_idle(&mut self, number: u64) {
        self.retire(number);
        let request = self.forget(number);
        self.link(request.server).dropped.push(number);
    }

    /// Releases all cached locks that are not in use, until the servers have confirmed that. Each message names as many
    /// locks as it may.
    pub fn release_cached(&mut self, cx: &mut Ctx) {
        let is_idle = |(_, request): &(&u64, &Request)| request.is_held() && request.users.is_empty();
        let idle = self.requests.iter().filter(is_idle).map(|(number, _)| *number);
        for number in idle.collect::<Vec<_>>() {
            self.drop_idle(number);
        }
        for server in self.links.keys().copied().collect::<Vec<_>>() {
            for numbers in std::mem::take(&mut self.link(server).dropped).chunks(limits::COMMITS_PER_REQUEST_MAX) {
                let (number, beside) = numbers.split_first().expect("a chunk is not empty");
                self.requests.insert(*number, Request::releasing(cx, server, beside.to_vec()));
                self.send(cx, *number);
            }
        }
    }

    fn on_revoke(&mut self, cx: &mut Ctx, server: LockServerId, numbers: Vec<u64>) {
        let mut idle = Vec::new();
        for number in numbers {
            self.counters.revocations += 1;
            let Some(request) = self.requests.get(&number) else {
                // The lock was dropped already, or is unknown.
                idle.push(number);
                continue;
            };
            if request.state == RequestState::Releasing || request.server != server {
                continue;
            }
            let is_cached = request.cached;
            let users: Vec<_> = request.users.iter().copied().collect();
            let in_use = !users.is_empty();
            for user in users {
                self.tell_part(user, |holder| Event::Revoked { holder });
            }
            if !is_cached {
                continue;
            }
            self.retire(number);
            if !in_use {
                self.forget(number);
                idle.push(number);
            }
        }
        if !idle.is_empty() {
            self.tell(cx, server, LockCommand::Yield { lock_ids: idle });
        }
    }

    /// A lock was refused; or, after the server's restart, another host has taken it meanwhile.
    fn on_refused(&mut self, cx: &mut Ctx, server: LockServerId, number: u64, refusal: LockRefusal) {
        let request = self.requests.get(&number).filter(|request| request.server == server);
        let Some(request) = request else { return cx.out.ignore(Ignored::NotAwaited) };
        match request.state {
            RequestState::Held => return cx.out.ignore(Ignored::NotAwaited),
            RequestState::Releasing => {
                self.forget(number);
                return;
            }
            RequestState::Asked { .. } | RequestState::Reasserting => {}
        }
        self.retire(number);
        for user in self.forget(number).users {
            let holder = self.holders.get_mut(&user).expect("a request's users are known");
            holder.requests.retain(|held| *held != number);
            holder.asked.remove(&number);
            let had_all = holder.has_all;
            self.tell_part(user, |holder| match had_all {
                true => Event::Lost { holder },
                false => Event::Denied { holder, refusal },
            });
        }
    }

    /// A holder stops using a lock. Its lock is released unless it is cached or has other users.
    pub(super) fn release_request(&mut self, cx: &mut Ctx, number: u64, holder: HolderId) {
        let request = self.requests.get_mut(&number).expect("a holder's requests are known");
        request.users.remove(&holder);
        if !request.users.is_empty() {
            return;
        }
        let server = request.server;
        if !request.cached || matches!(request.state, RequestState::Asked { .. }) {
            let was = std::mem::replace(&mut request.state, RequestState::Releasing);
            request.resend.reset();
            if was == RequestState::Reasserting {
                self.link(server).heard_again();
            }
            self.send(cx, number);
        } else if request.retired {
            self.forget(number);
            self.tell(cx, server, LockCommand::Yield { lock_ids: vec![number] });
        }
    }

    fn forget(&mut self, number: u64) -> Request {
        self.timers.cancel(LockTimer::Resend(number));
        self.timers.cancel(LockTimer::CacheLease(number));
        let request = self.requests.remove(&number).expect("a request is forgotten once");
        if request.state == RequestState::Reasserting {
            self.link(request.server).heard_again();
        }
        request
    }

    fn link(&mut self, server: LockServerId) -> &mut ServerLink {
        self.links.get_mut(&server).expect("it was asked")
    }
}
