//! Lock requests of a host: requested, granted, cached, revoked or recalled in parts, released. Each is sent again until it is answered.

use super::foresight::{Foresight, Seen};
use super::request::{Parts, Request, RequestState, whole, without};
use super::server_links::ServerLink;
use super::wanted::HolderId;
use super::{Ctx, Event, Holder, LockClient, LockTimer, Part, Retention};
use braid_base::{Generation, LockServerId, ObjectId, Time, limits};
use braid_machine::Ignored;
use braid_wire::Rejection;
use braid_wire::locking::{
    LOCK_PART_EXTENTS_MAX, LOCK_PARTS_MAX, LockAnswer, LockCommand, LockExtent, LockPart, LockRefusal, LockReply,
    LockTerm, Patience,
};

/// A host keeps as many locks as there may be extents at a lock server, divided by this. Programs that lock one range after the other, and
/// never the same again, must not fill the table.
const KEPT_SHARE: usize = 16;

impl LockClient {
    /// Uses cached locks if they cover all of these extents.
    pub(super) fn use_cached(
        &mut self,
        cx: &Ctx,
        holder: HolderId,
        (server, object): (LockServerId, ObjectId),
        extents: &[LockExtent],
    ) -> bool {
        let is_in_parts = self.holders[&holder].retention.width().is_some();
        if is_in_parts && self.links.get(&server).is_some_and(|link| link.is_in_doubt(cx.now, cx.settings)) {
            return false;
        }
        let Some(used) = self.cache.covering((server, object), extents) else { return false };
        for number in &used {
            let request = self.requests.get_mut(number).expect("a cached lock has a request");
            request.users.insert(holder);
            request.note_use(extents);
        }
        self.holders.get_mut(&holder).expect("it needs locks").requests.extend(used);
        self.counters.hits += 1;
        true
    }

    /// Requests a lock from a server.
    pub(super) fn ask(
        &mut self,
        cx: &mut Ctx,
        holder: HolderId,
        server: LockServerId,
        extents: Vec<LockExtent>,
        patience: Patience,
    ) {
        let held = &self.holders[&holder];
        let (object, retention, mut over) = (held.object, held.retention, Vec::new());
        if matches!(retention, Retention::Cached | Retention::Leased) {
            self.drop_conflicting(server, object, &extents);
        } else if retention.caches() {
            if self.requests.len() >= cx.settings.lock_extents_max / KEPT_SHARE {
                self.drop_oldest(1);
            }
            // Holders of this host are kept apart here. Another host that wants one of these meanwhile gets it.
            over = self.in_parts(server, object, &extents);
        }
        let beyond = match (retention.width(), &extents[..]) {
            (Some(most @ 1..), [extent]) if !self.cache.is_recalled(object, cx.now.time) => {
                let (cache, servers) = (&self.cache, &self.config.servers[..]);
                Seen { cache, servers, division: cx.settings.range_division }.foresee(server, object, extent, most)
            }
            _ => Foresight::default(),
        };
        let number = (cx.number)();
        let request = Request::new(cx.settings.resend(), server, object, extents, RequestState::Asked { patience });
        let parts = Parts { beyond, ..Parts::default() };
        let request = Request { retention, users: [holder].into(), over, parts, ..request };
        self.requests.insert(number, request);
        let held = self.holders.get_mut(&holder).expect("just seen");
        held.requests.push(number);
        held.asked.insert(number);
        self.send(cx, number);
        if retention.width().is_some() {
            // Those that pass others do not wait for it, also if they came before it asked.
            let mut granted = Vec::new();
            self.local.let_pass(holder, |other| other.part == holder.part, &mut granted);
            self.turns.extend(granted);
        }
    }

    /// Sends a request again, as its state demands.
    pub(super) fn resend(&mut self, cx: &mut Ctx, number: u64) {
        self.counters.resent += 1;
        if !self.send_survey(cx, number) {
            self.send(cx, number);
        }
    }

    fn send(&mut self, cx: &mut Ctx, number: u64) {
        let request = self.requests.get_mut(&number).expect("a request with something to send is known");
        let (server, object, extents) = (request.server, request.object, request.extents.clone());
        let heard = self.links.get(&server).map_or(Generation::default(), |link| link.heard);
        let lock_id = number;
        let command = match (request.state, request.term(heard)) {
            (RequestState::Held, _) => return,
            (RequestState::Releasing, _) => LockCommand::Unlock { lock_id },
            (RequestState::Asked { patience }, LockTerm::Cached) if request.retention.width().is_some() => {
                let (Foresight { width, ahead }, over) = (request.parts.beyond.clone(), request.over.clone());
                LockCommand::LockRange { lock_id, object, extents, width, ahead, over, patience }
            }
            (_, term) => LockCommand::Lock { lock_id, object, extents, term },
        };
        self.timers.set(LockTimer::Resend(number), cx.now.time.after(request.resend.next_wait()));
        if !request.beside.is_empty() {
            self.links.get_mut(&server).expect("it has granted what is dropped").dropped.extend(&request.beside);
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
        let was_in_doubt = link.is_in_doubt(cx.now, cx.settings);
        link.on_heard(cx.now.time, if let LockReply::Heartbeat { sent } = answer.reply { sent } else { Time(0) });
        let (is_new, is_first) = (answer.start > link.heard, link.heard == Generation::default());
        if was_in_doubt || (is_new && !is_first) {
            self.end_leases(cx, server);
        }
        let link = self.links.get_mut(&server).expect("just seen");
        if is_new {
            let known = std::mem::replace(&mut link.heard, answer.start);
            if known == Generation::default() {
                link.reassert(0);
            } else {
                self.reassert(cx, server);
            }
        }
        match answer.reply {
            LockReply::Heartbeat { .. } => {}
            LockReply::Granted { lock_id, waited } => self.on_granted(cx, server, lock_id, None, waited),
            LockReply::GrantedRange { lock_id, extents, waited } => {
                self.on_granted(cx, server, lock_id, Some(extents), waited);
            }
            LockReply::Recall { wanted, asks } => self.on_recall(cx, server, wanted, asks),
            LockReply::RecallGroup { object, extents } => {
                let held = self.in_parts(server, object, &extents).into_iter();
                let wanted: Vec<_> = held.map(|lock_id| LockPart { lock_id, extents: extents.clone() }).collect();
                self.counters.vain_recalls += u64::from(wanted.is_empty());
                self.on_recall(cx, server, wanted, false);
            }
            LockReply::Unlocked { lock_id } => {
                let released = |held: &Request| (held.server, held.state) == (server, RequestState::Releasing);
                if self.requests.get(&lock_id).is_some_and(released) {
                    self.forget(lock_id);
                }
            }
            LockReply::Revoke { lock_ids } => self.on_revoke(cx, server, lock_ids),
            LockReply::Surveyed { ticket, survey } => match self.surveys.on_answer(server, ticket, survey) {
                true => self.timers.cancel(LockTimer::Resend(ticket)),
                false => cx.out.ignore(Ignored::NotAwaited),
            },
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

    /// `extents`: what was granted of a lock that is kept in parts.
    fn on_granted(
        &mut self,
        cx: &mut Ctx,
        server: LockServerId,
        number: u64,
        extents: Option<Vec<LockExtent>>,
        waited: bool,
    ) {
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
        if let Some(granted) = extents {
            let asked = std::mem::replace(&mut request.extents, granted);
            request.parts.unused = without(&whole(&request.extents), &whole(&asked));
        }
        let over = std::mem::take(&mut request.over);
        let users: Vec<_> = request.users.iter().copied().collect();
        self.timers.cancel(LockTimer::Resend(number));
        self.counters.waits += u64::from(waited);
        let in_parts = request.retention.width().is_some();
        self.keep(cx, number);
        if in_parts {
            self.drop_promoted(number, over);
        }
        for user in users {
            self.holders.get_mut(&user).expect("a request's users are known").asked.remove(&number);
            if waited {
                self.tell_part(user, |holder| Event::Delayed { holder });
            }
            if self.holders[&user].asked.is_empty() {
                self.acquire_next(cx, user);
            }
        }
        if self.requests.get(&number).is_some_and(|request| !request.parts.recalled.is_empty()) {
            self.give_back_recalled(cx, number);
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
            && self.cache.conflicting((server, object), &[extent]).is_empty()
            && self.cache.covering((server, object), &[extent]).is_none();
        if !knows || !is_free || !self.local.hold_beside(holder, object, &[extent], |_| false) {
            if !self.requests.contains_key(&number) {
                self.release_unknown(cx, server, number);
            }
            return false;
        }
        let request = Request::new(cx.settings.resend(), server, object, vec![extent], RequestState::Held);
        let request = Request { retention: Retention::Cached, users: [holder].into(), ..request };
        self.requests.insert(number, request);
        self.keep(cx, number);
        let held = Holder { requests: vec![number], has_all: true, ..Holder::new(object, Retention::Cached) };
        self.holders.insert(holder, held);
        true
    }

    /// Releases a lock that this host does not know, until the server has confirmed that.
    fn release_unknown(&mut self, cx: &mut Ctx, server: LockServerId, number: u64) {
        if self.requests.len() >= limits::LOCK_REQUESTS_MAX {
            return self.tell(cx, server, LockCommand::Unlock { lock_id: number });
        }
        self.requests.insert(number, Request::releasing(cx.settings.resend(), server, Vec::new()));
        self.send(cx, number);
    }

    /// Makes a granted lock available to all holders, if it is to be cached.
    fn keep(&mut self, cx: &mut Ctx, number: u64) {
        let request = &self.requests[&number];
        if !request.cached() {
            return;
        }
        self.update_cache(number);
        let ends = self.requests[&number].retention == Retention::Cached && !cx.settings.lock_lease.is_zero();
        if ends {
            self.timers.set(LockTimer::CacheLease(number), cx.now.time.after(cx.settings.lock_lease));
        }
    }

    /// The cache has what any holder may use of a lock: nothing of one that is retired, and nothing that was recalled.
    pub(super) fn update_cache(&mut self, number: u64) {
        let request = self.requests.get_mut(&number).expect("only a known request is cached");
        let is_cached = request.cached() && request.is_held() && !request.retired;
        let usable = if is_cached { without(&request.extents, &request.parts.recalled) } else { Vec::new() };
        if usable != request.usable {
            let place = (request.server, request.object);
            self.cache.remove(number, place, &request.usable);
            self.cache.insert(number, place, &usable);
            request.usable = usable;
        }
    }

    /// Lets no further holder use a lock.
    pub(super) fn retire(&mut self, number: u64) {
        self.requests.get_mut(&number).expect("only a known request is retired").retired = true;
        self.update_cache(number);
    }

    /// Drops idle cached locks of this host that a new request would conflict with, so that the server need not revoke
    /// them.
    pub(super) fn drop_conflicting(&mut self, server: LockServerId, object: ObjectId, extents: &[LockExtent]) {
        for number in self.cache.conflicting((server, object), extents) {
            let request = &self.requests[&number];
            if request.users.is_empty() && request.state == RequestState::Held {
                self.drop_idle(number);
            }
        }
    }

    /// The lease of a cached lock has expired.
    pub(super) fn on_lease_expired(&mut self, number: u64) {
        if self.requests[&number].users.is_empty() { self.drop_idle(number) } else { self.retire(number) }
    }

    /// Drops an idle lock. The server is told with the next message.
    pub(super) fn drop_idle(&mut self, number: u64) {
        self.retire(number);
        let request = self.forget(number);
        self.link(request.server).dropped.push(number);
    }

    /// Drops so many locks that are kept and that no holder uses, those that were requested first.
    fn drop_oldest(&mut self, count: usize) {
        let is_idle = |request: &Request| request.is_settled() && request.users.is_empty();
        let idle = self.requests.iter().filter(|(_, request)| is_idle(request)).map(|(number, _)| *number);
        idle.take(count).collect::<Vec<_>>().into_iter().for_each(|number| self.drop_idle(number));
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
                self.requests.insert(*number, Request::releasing(cx.settings.resend(), server, beside.to_vec()));
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
            if request.retention == Retention::Leased {
                self.end_request(number, LockRefusal::Timeout);
                idle.push(number);
                continue;
            }
            let is_cached = request.cached();
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
        if refusal == LockRefusal::Busy && request.retention.width().is_some() {
            // This host may have taken the room itself. It is there when the program tries again.
            self.drop_oldest(limits::COMMITS_PER_REQUEST_MAX);
        }
        self.end_request(number, refusal);
    }

    /// The server may have let the leases of this host lapse, or has restarted: it may grant what conflicts with them.
    pub fn end_leases(&mut self, cx: &mut Ctx, server: LockServerId) {
        let is_lease = |request: &Request| request.server == server && request.retention == Retention::Leased;
        let leases = self.requests.iter().filter(|(_, request)| is_lease(request)).map(|(number, _)| *number);
        for number in leases.collect::<Vec<_>>() {
            self.end_request(number, LockRefusal::Timeout);
            self.release_unknown(cx, server, number);
        }
    }

    /// A lock, or the request for it, is over. Its users are told.
    fn end_request(&mut self, number: u64, refusal: LockRefusal) {
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
        let is_over = request.retired && request.users.is_empty();
        if !request.parts.recalled.is_empty() && !is_over && request.is_held() {
            return self.give_back_recalled(cx, number);
        }
        if !request.users.is_empty() {
            return;
        }
        let server = request.server;
        if !request.cached() || matches!(request.state, RequestState::Asked { .. }) {
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

    pub(super) fn forget(&mut self, number: u64) -> Request {
        self.timers.cancel(LockTimer::Resend(number));
        self.timers.cancel(LockTimer::CacheLease(number));
        self.leaving.remove(&number);
        let request = self.requests.remove(&number).expect("a request is forgotten once");
        if request.state == RequestState::Reasserting {
            self.link(request.server).heard_again();
        }
        request
    }

    fn link(&mut self, server: LockServerId) -> &mut ServerLink {
        self.links.get_mut(&server).expect("it was asked")
    }

    /// The locks that this host keeps in parts and that conflict with these extents.
    pub(super) fn in_parts(&self, server: LockServerId, object: ObjectId, extents: &[LockExtent]) -> Vec<u64> {
        let is_meant = |number: &u64| {
            let request = &self.requests[number];
            request.server == server && request.is_held() && request.retention.width().is_some()
        };
        let conflicts = |number: &u64| self.requests[number].conflicts(object, extents);
        let cached = self.cache.conflicting((server, object), extents);
        let leaving = self.leaving.iter().filter(|number| conflicts(number)).copied();
        cached.into_iter().chain(leaving).filter(is_meant).take(limits::COMMITS_PER_REQUEST_MAX).collect()
    }

    /// A lock was granted over these: those that it covers are not needed any more.
    pub(super) fn drop_promoted(&mut self, number: u64, over: Vec<u64>) {
        for weaker in over {
            let stronger = &self.requests[&number].extents;
            let Some(request) = self.requests.get(&weaker) else { continue };
            if request.is_held() && request.extents.iter().all(|part| stronger.iter().any(|whole| whole.covers(part))) {
                match request.users.is_empty() {
                    true => self.drop_idle(weaker),
                    false => self.retire(weaker),
                }
            }
        }
    }

    /// Other hosts want parts of locks. `asks`: the server wants to know at once what of it is in use.
    pub(super) fn on_recall(&mut self, cx: &mut Ctx, server: LockServerId, wanted: Vec<LockPart>, asks: bool) {
        let (mut rest, mut in_use) = (Vec::new(), Vec::new());
        for LockPart { lock_id, extents } in wanted {
            self.counters.revocations += 1;
            let Some(request) = self.requests.get_mut(&lock_id) else {
                // The lock was dropped already, or is unknown.
                rest.push(LockPart { lock_id, extents: Vec::new() });
                continue;
            };
            // Nothing is wanted of one that waits at the server: it is only asked whether it is known here.
            if request.server != server || request.retention.width().is_none() || extents.is_empty() {
                continue;
            }
            let is_new = |extent: &LockExtent| !request.parts.recalled.contains(extent);
            let mut new: Vec<_> = extents.into_iter().filter(is_new).collect();
            // What was foreseen here is wanted there.
            if new.iter().any(|wanted| request.parts.unused.iter().any(|unused| unused.conflicts(wanted))) {
                new.append(&mut request.parts.unused);
            }
            request.parts.recalled.extend(new);
            self.cache.note_recall(request.object, cx.now.time);
            let is_shattered = request.parts.recalled.len() > LOCK_PART_EXTENTS_MAX;
            self.leaving.insert(lock_id);
            for user in self.users_of(lock_id, &self.requests[&lock_id].parts.recalled) {
                self.tell_part(user, |holder| Event::Revoked { holder });
            }
            match is_shattered {
                true => self.retire(lock_id),
                false => self.update_cache(lock_id),
            }
            rest.extend(self.shrink(lock_id));
            in_use.extend(self.in_use(lock_id).filter(|part| asks && !part.extents.is_empty()));
        }
        let mut rest = rest.chunks(LOCK_PARTS_MAX);
        while let Some(rest) = rest.next().or((!in_use.is_empty()).then_some(&[])) {
            let in_use = std::mem::take(&mut in_use);
            self.tell(cx, server, LockCommand::Shrink { rest: rest.to_vec(), in_use });
        }
    }

    /// A holder has stopped using a lock of which other hosts want a part, or the lock was granted after that.
    pub(super) fn give_back_recalled(&mut self, cx: &mut Ctx, number: u64) {
        let server = self.requests[&number].server;
        if let Some(rest) = self.shrink(number) {
            self.tell(cx, server, LockCommand::Shrink { rest: vec![rest], in_use: Vec::new() });
        }
    }

    /// Gives up what was recalled of a lock and no holder here uses. Returns what is kept of the lock, if the server is to be told.
    fn shrink(&mut self, number: u64) -> Option<LockPart> {
        let request = &self.requests[&number];
        if !request.is_held() {
            return None;
        }
        let is_idle = |extent: &LockExtent| self.users_of(number, &[*extent]).is_empty();
        let (goes, stays): (Vec<_>, Vec<_>) = request.parts.recalled.iter().copied().partition(is_idle);
        let rest = without(&request.extents, &goes);
        let is_used = !request.users.is_empty();
        // If the server asks again for what was given back, it may have no room for the pieces.
        let is_over = !is_used && (request.retired || rest == request.extents);
        let most = if is_used { limits::EXTENTS_MAX } else { LOCK_PART_EXTENTS_MAX };
        if is_over || rest.is_empty() || rest.len() > most {
            self.retire(number);
            if is_used {
                // It is given back with its last user.
                return None;
            }
            self.forget(number);
            return Some(LockPart { lock_id: number, extents: Vec::new() });
        }
        if goes.is_empty() {
            return None;
        }
        if stays.is_empty() {
            self.leaving.remove(&number);
        }
        let request = self.requests.get_mut(&number).expect("just seen");
        (request.extents, request.parts.recalled) = (rest.clone(), stays);
        Some(LockPart { lock_id: number, extents: rest })
    }

    /// What was recalled of a lock that is held, and was not given back since it is in use.
    fn in_use(&self, number: u64) -> Option<LockPart> {
        let request = self.requests.get(&number).filter(|request| request.is_held())?;
        let is_used = |extent: &LockExtent| !self.users_of(number, &[*extent]).is_empty();
        let recalled = request.parts.recalled.iter().copied().filter(is_used);
        Some(LockPart { lock_id: number, extents: recalled.take(LOCK_PART_EXTENTS_MAX).collect() })
    }

    /// The users of a lock that hold what conflicts with these extents, among the holders here.
    fn users_of(&self, number: u64, extents: &[LockExtent]) -> Vec<HolderId> {
        let Request { object, users, .. } = &self.requests[&number];
        let holders = self.local.holders(*object, extents).into_iter();
        holders.filter(|holder| users.contains(holder)).collect()
    }
}
