//! The messages in which hosts request locks, reassert them and give them back.

use crate::engine::Acceptance;
use crate::server::{LockServer, LockService};
use crate::sessions::{LockDetails, LockName};
use crate::table::LockState;
use braid_base::{Generation, Now, Time, limits};
use braid_machine::{Effects, Ignored};
use braid_wire::{
    LockCommand, LockMode, LockPart, LockRefusal, LockReply, LockRequest, LockSurvey, LockTerm, Rejection,
};

impl LockServer {
    /// Handles a request of a host that was admitted.
    pub(crate) fn on_command(&mut self, now: Now, request: LockRequest, out: &mut Effects) {
        let LockRequest { host, start, command, .. } = request;
        match command {
            LockCommand::Heartbeat { sent } => self.answer(host, LockReply::Heartbeat { sent }, out),
            LockCommand::Lock { lock_id, object, extents, term } => {
                let in_parts = matches!(term, LockTerm::HeldRange { .. });
                let asked = LockDetails { in_parts, ..LockDetails::whole(object, extents, term) };
                self.on_lock(now, LockName { host, lock_id }, asked, start, out);
            }
            LockCommand::LockRange { lock_id, object, extents, width, ahead, over, patience } => {
                let asked = LockDetails::whole(object, extents, LockTerm::Cached);
                let asked = LockDetails { in_parts: true, width, ahead, over, patience, ..asked };
                self.on_lock(now, LockName { host, lock_id }, asked, start, out);
            }
            LockCommand::Shrink { rest, in_use } => {
                for LockPart { lock_id, extents } in rest {
                    let shrunk = self.engine.shrink(now.time, LockName { host, lock_id }, &extents);
                    self.counters.shrunk += u64::from(shrunk);
                }
                for LockPart { lock_id, extents } in in_use {
                    self.engine.refuse_impatient(now.time, LockName { host, lock_id }, &extents);
                }
                self.tell(out);
            }
            LockCommand::Unlock { lock_id } => {
                self.counters.unlocks += self.give_back(now, host, vec![lock_id], out);
                if self.config.ends_without_locks && self.engine.session(host).is_idle() {
                    self.engine.forget(now.time, host);
                    self.tell(out);
                    self.list.add_ending(host, lock_id);
                } else {
                    self.answer(host, LockReply::Unlocked { lock_id }, out);
                }
            }
            LockCommand::Survey { ticket, from, object, waiting } => {
                let (locks, next) = self.engine.survey(now.time, from, object, waiting);
                let survey = LockSurvey { locks, next, is_recovered: self.service == LockService::Serving };
                self.answer(host, LockReply::Surveyed { ticket, survey }, out);
            }
            LockCommand::Yield { lock_ids } => self.counters.yields += self.give_back(now, host, lock_ids, out),
        }
    }

    /// Returns the number of locks that there were.
    pub(crate) fn give_back(&mut self, now: Now, host: Generation, lock_ids: Vec<u64>, out: &mut Effects) -> u64 {
        let names = lock_ids.into_iter().map(|lock_id| LockName { host, lock_id });
        let given_back = names.filter(|name| self.engine.give_back(now.time, *name)).count();
        self.tell(out);
        given_back as u64
    }

    /// Handles a lock request. `known`: the start of the server that the host assumes.
    fn on_lock(&mut self, now: Now, name: LockName, asked: LockDetails, known: Generation, out: &mut Effects) {
        let LockName { host, lock_id } = name;
        if !is_sound(&asked) {
            return self.refuse(name, LockRefusal::Malformed, out);
        }
        match self.engine.state(name) {
            Some(LockState::Held) => {
                let waited = self.engine.session(host).lock_ids[&lock_id].waited;
                return self.answer_granted(name, waited, out);
            }
            Some(LockState::Waiting) => return self.ignore(Ignored::InProgress, out),
            None => {}
        }
        match asked.term {
            LockTerm::Held { start, cached } => return self.on_held(now, name, &asked, (start, cached), out),
            LockTerm::HeldRange { start } => return self.on_held(now, name, &asked, (start, true), out),
            LockTerm::Transaction { .. } | LockTerm::Cached | LockTerm::Lease => {}
        }
        let is_complete = self.engine.session(host).complete;
        if known != self.config.start && (known != Generation(0) || !is_complete) {
            // The host does not know yet that the server has restarted. If it has to reassert its locks first, the
            // request is deferred; if it has done so, the request is a late copy.
            self.answer(host, LockReply::Heartbeat { sent: Time(0) }, out);
            if is_complete {
                return;
            }
        }
        match self.engine.ask(now.time, name, asked, self.may_grant(host)) {
            Acceptance::Accepted => self.counters.locks += 1,
            Acceptance::InProgress => self.ignore(Ignored::InProgress, out),
            Acceptance::NoRoom => self.refuse(name, LockRefusal::Busy, out),
            Acceptance::Conflicts => unreachable!("it would wait"),
        }
        self.tell(out);
    }

    /// Handles the reassertion of a lock that the host held before the server's restart.
    fn on_held(
        &mut self,
        now: Now,
        name: LockName,
        asked: &LockDetails,
        (start, cached): (Generation, bool),
        out: &mut Effects,
    ) {
        if start != self.config.start {
            return self.ignore(Ignored::Settled, out);
        }
        if !self.recovered.contains(&name.host) {
            // A host that holds locks, and was not in the list, was fenced before the restart.
            return self.answer(name.host, LockReply::Rejected { rejection: Rejection::Fenced }, out);
        }
        if self.engine.session(name.host).complete {
            return self.ignore(Ignored::Settled, out);
        }
        match self.engine.reassert(now.time, name, asked, cached) {
            Acceptance::NoRoom => self.refuse(name, LockRefusal::Busy, out),
            accepted => self.counters.reasserted += u64::from(accepted == Acceptance::Accepted),
        }
        self.tell(out);
        self.fence_pending(now, out);
    }

    /// True if a restarted server would know that this host may hold locks.
    pub(crate) fn may_grant(&self, host: Generation) -> bool {
        self.service == LockService::Serving && self.list.contains(host)
    }

    fn refuse(&mut self, LockName { host, lock_id }: LockName, refusal: LockRefusal, out: &mut Effects) {
        self.counters.refused += 1;
        self.answer(host, LockReply::Refused { lock_id, refusal }, out);
    }
}

fn is_sound(asked: &LockDetails) -> bool {
    let sound = |position: u16| usize::from(position) < limits::DEVICES_MAX;
    let count = asked.extents.len() + asked.ahead.len();
    let is_shared = asked.extents.iter().all(|extent| extent.mode == LockMode::Shared);
    !asked.extents.is_empty()
        && (is_shared || asked.term != LockTerm::Lease)
        && count <= limits::EXTENTS_MAX
        && asked.extents.iter().chain(&asked.ahead).all(|extent| sound(extent.position) && !extent.range.is_empty())
}
