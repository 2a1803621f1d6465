//! Lock, unlock, recall: what becomes of claims.
//!
//! Every claim in the table is in its host's session, and the other way round. A kept claim that is held while somebody waits for
//! it is being recalled.

use crate::server::{LockServer, LockService, Timer};
use crate::sessions::{Claim, ClaimName, ClaimRequest};
use crate::table::{Asked, LockState};
use braid_base::{Generation, Now, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{LockRefusal, LockReply, LockTerm, Rejection};

impl LockServer {
    /// `known` is the start of the server that the host takes this for.
    pub(crate) fn on_lock(
        &mut self,
        now: Now,
        name: ClaimName,
        asked: ClaimRequest,
        known: Generation,
        out: &mut Effects,
    ) {
        let ClaimName { host, claim } = name;
        if !is_sound(&asked) {
            return self.refuse(name, LockRefusal::Malformed, out);
        }
        let session = &self.sessions[&host];
        match self.table.state(name) {
            Some(LockState::Held) => {
                let waited = session.claims[&claim].waited;
                return self.answer(host, LockReply::Granted { claim, waited }, out);
            }
            Some(LockState::Waiting) => return self.ignore(Ignored::InProgress, out),
            None => {}
        }
        if let LockTerm::Held { start, kept } = asked.term {
            return self.on_held(now, name, asked, start, kept, out);
        }
        if known != self.config.start && (known != Generation(0) || !session.complete) {
            // It does not know yet that the server has started again. If it has to say first what it holds, this is deferred; if it
            // has said it, this comes late.
            let complete = session.complete;
            self.answer(host, LockReply::Heartbeat, out);
            if complete {
                return;
            }
        }
        let session = &self.sessions[&host];
        if session.deferred.iter().any(|(deferred, _)| *deferred == claim) {
            return self.ignore(Ignored::InProgress, out);
        }
        if self.table.len() >= limits::CLAIMS_MAX || session.deferred.len() >= limits::OPERATIONS_MAX {
            return self.refuse(name, LockRefusal::Busy, out);
        }
        self.counters.locks += 1;
        if self.service == LockService::Serving && session.listed && self.list.contains(host) {
            return self.ask(now, name, asked, out);
        }
        let session = self.sessions.get_mut(&host).expect("it was just admitted");
        session.deferred.push((claim, asked));
        session.listed = true;
        self.list_is_stale = true;
    }

    /// Says again what it held before the server's restart.
    fn on_held(
        &mut self,
        now: Now,
        name: ClaimName,
        asked: ClaimRequest,
        start: Generation,
        kept: bool,
        out: &mut Effects,
    ) {
        let session = self.sessions.get_mut(&name.host).expect("it was just admitted");
        if start != self.config.start {
            return self.ignore(Ignored::Settled, out);
        }
        if !self.recovered.contains(&name.host) {
            // Who holds something, and was not in the list, was fenced before the restart.
            return self.answer(name.host, LockReply::Rejected { rejection: Rejection::Fenced }, out);
        }
        if session.complete {
            return self.ignore(Ignored::Settled, out);
        }
        if self.table.len() >= limits::CLAIMS_MAX {
            return self.refuse(name, LockRefusal::Busy, out);
        }
        if !self.table.hold(name, asked.object, &asked.extents) {
            // One of two hosts is wrong about what it holds, and may be writing.
            self.fencing.doom(name.host);
            return self.fence_doomed(now, out);
        }
        // A late copy of how it was first asked for may have come before.
        session.deferred.retain(|(claim, _)| *claim != name.claim);
        session.claims.insert(name.claim, Claim { kept, waited: false });
        self.counters.reasserted += 1;
        self.answer(name.host, LockReply::Granted { claim: name.claim, waited: false }, out);
    }

    fn ask(&mut self, now: Now, name: ClaimName, asked: ClaimRequest, out: &mut Effects) {
        let asking = self.table.lock(name, asked.object, &asked.extents);
        let waited = asking != Asked::Granted;
        let kept = asked.term == LockTerm::Kept;
        let session = self.sessions.get_mut(&name.host).expect("who asks has a session");
        session.claims.insert(name.claim, Claim { kept, waited });
        match asking {
            Asked::Granted => self.answer(name.host, LockReply::Granted { claim: name.claim, waited }, out),
            Asked::Waits { blockers } => {
                self.counters.waits += 1;
                if asked.term == (LockTerm::Transaction { impatient: true }) {
                    self.timers.set(Timer::Impatient(name), now.time.after(self.config.settings.lock_timeout));
                }
                self.want_back(now, &blockers, out);
            }
        }
    }

    /// Asks for what hosts wanted when they could not be granted anything yet, as far as they can now.
    pub(crate) fn ask_deferred(&mut self, now: Now, out: &mut Effects) {
        if self.service != LockService::Serving {
            return;
        }
        let listed =
            self.sessions.iter().filter(|(host, session)| !session.deferred.is_empty() && self.list.contains(**host));
        let hosts: Vec<_> = listed.map(|(host, _)| *host).collect();
        for host in hosts {
            let session = self.sessions.get_mut(&host).expect("just listed");
            for (claim, asked) in std::mem::take(&mut session.deferred) {
                self.ask(now, ClaimName { host, claim }, asked, out);
            }
        }
    }

    /// Takes back a claim, held or not; false if there is none of that name. Those who waited for it are served.
    pub(crate) fn give_back(&mut self, now: Now, name: ClaimName, out: &mut Effects) -> bool {
        let Some(session) = self.sessions.get_mut(&name.host) else { return false };
        if session.claims.remove(&name.claim).is_none() {
            let before = session.deferred.len();
            session.deferred.retain(|(claim, _)| *claim != name.claim);
            return session.deferred.len() < before;
        }
        self.timers.cancel(Timer::Impatient(name));
        let mut granted = Vec::new();
        self.table.release(name, &mut granted);
        self.tell_granted(now, &granted, out);
        true
    }

    /// Takes back all claims of a host at once: none may be granted to it because another of its own is gone.
    pub(crate) fn give_back_all(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("it is there");
        let claims: Vec<_> = std::mem::take(&mut session.claims).into_keys().collect();
        let mut granted = Vec::new();
        for claim in claims {
            let name = ClaimName { host, claim };
            self.timers.cancel(Timer::Impatient(name));
            self.table.release(name, &mut granted);
        }
        granted.retain(|next| next.host != host);
        self.tell_granted(now, &granted, out);
    }

    fn tell_granted(&mut self, now: Now, granted: &[ClaimName], out: &mut Effects) {
        for next in granted {
            self.timers.cancel(Timer::Impatient(*next));
            self.answer(next.host, LockReply::Granted { claim: next.claim, waited: true }, out);
            // The next in the queue wants it already.
            if self.table.wanted(*next) {
                self.want_back(now, &[*next], out);
            }
        }
    }

    /// Somebody waits for these claims: recalls those that are kept, and later the others, too.
    fn want_back(&mut self, now: Now, claims: &[ClaimName], out: &mut Effects) {
        for of_host in claims.chunk_by(|one, other| one.host == other.host) {
            let host = of_host[0].host;
            let session = self.sessions.get_mut(&host).expect("who holds something has a session");
            session.wanted_at = Some(now.time);
            let new = of_host.iter().map(|name| name.claim).filter(|claim| session.wanted.insert(*claim));
            let new: Vec<_> = new.collect();
            let kept = new.into_iter().filter(|claim| session.claims[claim].kept).collect();
            if self.timers.deadline_of(Timer::Recall(host)).is_none() {
                self.timers.set(Timer::Recall(host), now.time.after(self.config.settings.resend_min));
            }
            self.recall(host, kept, out);
        }
    }

    /// Recalls again what a host has not given back: the recall was lost, or its answer, or the host has it in use. Or it knows
    /// nothing of the claim, which a late message brought about.
    pub(crate) fn recall_again(&mut self, now: Now, host: Generation, out: &mut Effects) {
        let session = self.sessions.get_mut(&host).expect("the timer ends with the session");
        session.wanted.retain(|claim| self.table.wanted(ClaimName { host, claim: *claim }));
        if !session.wanted.is_empty() {
            self.timers.set(Timer::Recall(host), now.time.after(self.config.settings.resend_min));
            let claims = session.wanted.iter().copied().collect();
            self.recall(host, claims, out);
        }
    }

    fn recall(&mut self, host: Generation, claims: Vec<u64>, out: &mut Effects) {
        if self.fencing.is_doomed(host) {
            return;
        }
        self.counters.recalls += claims.len() as u64;
        for batch in claims.chunks(limits::COMMITS_PER_REQUEST_MAX) {
            self.answer(host, LockReply::Recall { claims: batch.to_vec() }, out);
        }
    }

    /// It has waited for as long as it wanted to.
    pub(crate) fn on_impatient(&mut self, now: Now, name: ClaimName, out: &mut Effects) {
        assert_eq!(self.table.state(name), Some(LockState::Waiting), "a granted claim has no timer: {name:?}");
        self.give_back(now, name, out);
        self.counters.timeouts += 1;
        let reply = LockReply::Refused { claim: name.claim, refusal: LockRefusal::Timeout };
        self.answer(name.host, reply, out);
    }

    fn refuse(&mut self, ClaimName { host, claim }: ClaimName, refusal: LockRefusal, out: &mut Effects) {
        self.counters.refused += 1;
        self.answer(host, LockReply::Refused { claim, refusal }, out);
    }
}

fn is_sound(asked: &ClaimRequest) -> bool {
    let sound = |position: u16| usize::from(position) < limits::DEVICES_MAX;
    let count = asked.extents.len();
    (1..=limits::EXTENTS_MAX).contains(&count)
        && asked.extents.iter().all(|extent| sound(extent.position) && !extent.range.is_empty())
}
