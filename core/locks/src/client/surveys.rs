//! Surveys of lock servers: which hosts hold and await which of their locks. A survey is sent again until it is answered or its time is up.

use braid_base::{Backoff, LockServerId, Time};
use braid_wire::LockSurvey;
use braid_wire::locking::LockCommand;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug, Default)]
pub(super) struct Surveys {
    asked: BTreeMap<u64, Asked>,
    /// Those that are over; none: the server was silent.
    over: VecDeque<(u64, Option<LockSurvey>)>,
}

#[derive(Clone, Debug)]
struct Asked {
    server: LockServerId,
    command: LockCommand,
    until: Time,
    resend: Backoff,
}

/// What is to be done about a survey that was not answered.
pub(super) enum Next {
    /// Send it, and look again at a time.
    Send { server: LockServerId, command: LockCommand, again: Time },
    /// It is over.
    GiveUp,
}

impl Surveys {
    pub fn ask(&mut self, ticket: u64, server: LockServerId, command: LockCommand, until: Time, resend: Backoff) {
        self.asked.insert(ticket, Asked { server, command, until, resend });
    }

    /// None if there is no survey of this number.
    pub fn next(&mut self, now: Time, ticket: u64) -> Option<Next> {
        let asked = self.asked.get_mut(&ticket)?;
        if asked.until <= now {
            self.asked.remove(&ticket);
            self.over.push_back((ticket, None));
            return Some(Next::GiveUp);
        }
        let again = now.after(asked.resend.next_wait()).min(asked.until);
        Some(Next::Send { server: asked.server, command: asked.command.clone(), again })
    }

    /// False if this server was not asked.
    pub fn on_answer(&mut self, server: LockServerId, ticket: u64, survey: LockSurvey) -> bool {
        let is_awaited = self.asked.get(&ticket).is_some_and(|asked| asked.server == server);
        if is_awaited {
            self.asked.remove(&ticket);
            self.over.push_back((ticket, Some(survey)));
        }
        is_awaited
    }

    pub fn forget(&mut self, ticket: u64) {
        self.asked.remove(&ticket);
    }

    pub fn pop_over(&mut self) -> Option<(u64, Option<LockSurvey>)> {
        self.over.pop_front()
    }
}
