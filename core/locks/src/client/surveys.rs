//! Surveys of lock servers: which hosts hold and await which of their locks. A survey is sent again until it is answered or its time is up.

use super::{Ctx, LockClient, LockTimer};
use braid_base::{Backoff, LockServerId, ObjectId, Time};
use braid_machine::Ignored;
use braid_wire::LockSurvey;
use braid_wire::locking::{LockCommand, LockName};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

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

impl LockClient {
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
        let asked = Asked { server, command, until: cx.now.time.after(wait), resend: cx.settings.resend() };
        self.surveys.asked.insert(ticket, asked);
        self.send_survey(cx, ticket);
        ticket
    }

    /// A survey that is over. None of it: the server was silent.
    pub fn pop_surveyed(&mut self) -> Option<(u64, Option<LockSurvey>)> {
        self.surveys.over.pop_front()
    }

    /// Nobody waits for this survey any more.
    pub fn forget_survey(&mut self, ticket: u64) {
        self.surveys.asked.remove(&ticket);
        self.timers.cancel(LockTimer::Resend(ticket));
    }

    /// Sends a survey, or gives it up. False if there is none of this number.
    pub(super) fn send_survey(&mut self, cx: &mut Ctx, ticket: u64) -> bool {
        let Some(asked) = self.surveys.asked.get_mut(&ticket) else { return false };
        if asked.until <= cx.now.time {
            self.forget_survey(ticket);
            self.surveys.over.push_back((ticket, None));
            return true;
        }
        let again = cx.now.time.after(asked.resend.next_wait()).min(asked.until);
        let (server, command) = (asked.server, asked.command.clone());
        self.timers.set(LockTimer::Resend(ticket), again);
        self.tell(cx, server, command);
        true
    }

    pub(super) fn on_surveyed(&mut self, cx: &mut Ctx, server: LockServerId, ticket: u64, survey: LockSurvey) {
        if self.surveys.asked.get(&ticket).is_none_or(|asked| asked.server != server) {
            return cx.out.ignore(Ignored::NotAwaited);
        }
        self.forget_survey(ticket);
        self.surveys.over.push_back((ticket, Some(survey)));
    }
}
