//! The pact: how a leader goes on granting leases while the registry is unreachable for all candidates. Each other candidate promises to make
//! no swap for a time. A promise binds from when it is given, and the leader relies on it from when it sent the question, for a shorter time.
//!
//! ```text
//!   leader      ask ├───── relies: 3 s / 1.1 ─────┤
//!   candidate        promise ├──────── 3 s ────────────┤ may swap again
//! ```
//!
//! A candidate refuses if it has read something within the last second: then the leader alone is cut off. It refuses if a swap of its own
//! has an unknown outcome, since that may make it the leader. And it refuses a leader that it knows to have been taken over from, and any
//! leader if it has not read `head` since its start: its former life, or another candidate that has restarted, may have led meanwhile.

use crate::times::{ASKED, RELIED};
use crate::{CandidateId, Message, Nonce};
use braid_base::Time;
use std::collections::{BTreeMap, BTreeSet};

/// The leader's part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pact {
    asked: Option<Time>,
    /// When the latest question was sent to which each candidate has promised.
    promised: BTreeMap<CandidateId, Time>,
}

impl Pact {
    /// When the others are asked next, if the leader has been without the registry since `since`.
    pub fn deadline(&self, since: Time) -> Time {
        self.asked.map_or(since, |asked| asked.after(ASKED).max(since))
    }

    /// The question to each of the others.
    pub fn ask(&mut self, now: Time, term: u64, nonce: Nonce) -> Message {
        self.asked = Some(now);
        Message::Ask { term, nonce, sent: now }
    }

    /// A candidate has promised, as the answer to a question of this time.
    pub fn on_promise(&mut self, now: Time, from: CandidateId, sent: Time) {
        if sent > now {
            return;
        }
        let latest = self.promised.entry(from).or_insert(sent);
        *latest = sent.max(*latest);
    }

    /// Until when these candidates make no swap, if all of them have promised.
    pub fn until(&self, others: &BTreeSet<CandidateId>) -> Option<Time> {
        let promises = others.iter().map(|other| self.promised.get(other).copied());
        // A leader without others relies on having asked.
        let first = promises.chain([self.asked]).reduce(|one, other| Some(one?.min(other?)))??;
        Some(first.after(RELIED))
    }
}
