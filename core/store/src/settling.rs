//! What hosts say is over: what need not be remembered any longer, and when that is put on record.
//!
//! A decision that goes is noted at once, on a batch that goes anyhow. Answers are many more: that they are gone rides on the next request
//! of their host that is put on record, which has its mark. Only if there is none for a while it is a record, one for all that a host has
//! said meanwhile; without it a restart would bring back answers that nobody ever speaks of again.

use crate::answers::{over_len, stretches_of};
use crate::executing::Wait;
use crate::record::Record;
use crate::serving::Serving;
use braid_base::{Generation, Time, TransactionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long it may be that answers are gone, and not on record.
const SAY_WITHIN: Duration = Duration::from_secs(1);

/// Answers that are gone, and that is not on record.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    /// Of hosts: those below their marks, and these.
    hosts: BTreeMap<Generation, Vec<u64>>,
    /// When it is to be, once the clock has been looked at.
    until: Option<Time>,
}

impl Unsaid {
    /// A request of this host is put on record, and with it its mark.
    pub fn is_said(&mut self, host: Generation) {
        if self.hosts.get(&host).is_some_and(Vec::is_empty) {
            self.hosts.remove(&host);
        }
        if self.hosts.is_empty() {
            self.until = None;
        }
    }

    /// A snapshot says all.
    pub fn clear(&mut self) {
        *self = Unsaid::default();
    }

    /// When it is to be put on record; or at once, to begin with: there may be somebody who waits for the room.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        (!self.hosts.is_empty()).then(|| self.until.unwrap_or(now))
    }

    /// The clock has been looked at.
    pub fn observe(&mut self, now: Time) {
        if !self.hosts.is_empty() && self.until.is_none() {
            self.until = Some(now.after(SAY_WITHIN));
        }
    }

    /// True if it may not wait any longer.
    pub fn is_due(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Serving {
    /// See [`Storage::forget`](crate::Storage::forget).
    pub fn forget(&mut self, transaction: TransactionId) {
        self.requests.drop_one(transaction);
        let forgotten = self.state.forget(transaction);
        if forgotten.decision {
            self.journal.hint(&Record::Forget(transaction));
        }
        if forgotten.answer {
            self.unsaid.hosts.entry(transaction.host).or_default().push(transaction.sequence);
        }
    }

    /// See [`Storage::settle`](crate::Storage::settle).
    pub fn settle(&mut self, host: Generation, sequence: u64) {
        self.requests.drop_below(host, sequence);
        let forgotten = self.state.settle(host, sequence);
        if forgotten.decision {
            self.journal.hint(&Record::Settled { host, sequence });
        } else if forgotten.answer {
            self.unsaid.hosts.entry(host).or_default();
        }
    }

    /// Puts on record which requests for objects a host has given up, unless it is there. None of these happens any more; nor, after a crash,
    /// if what is answered from now on has outlived that.
    pub fn note_given_up(&mut self, host: Generation, settled: u64, given_up: &[(u64, u64)]) -> Result<(), Wait> {
        let Some(stretches) = self.state.answers.not_on_record(host, settled, given_up) else { return Ok(()) };
        let length = over_len(stretches.len());
        if self.is_crowded(length) {
            self.journal.urgent = true;
            return Err(Wait::Room);
        }
        let undecided = self.state.intents.len() + self.preparing.len();
        // It may be of a host of which nothing was known.
        let kept = self.kept_room(self.merging_needs()) + 2 * length;
        if !self.journal.has_room(length, false, undecided, kept) {
            self.checkpoint.wanted |= self.journal.has_grown();
            return Err(Wait::Room);
        }
        self.state.answers.over(host, settled, &stretches);
        self.journal.note(&Record::Over { host, settled, stretches });
        self.unwritten.noted = true;
        self.linger();
        Ok(())
    }

    /// Adds to the next batch what is not on record.
    pub fn say_what_is_over(&mut self) {
        for (host, sequences) in std::mem::take(&mut self.unsaid.hosts) {
            let settled = self.state.answers.settled(host);
            let above = sequences.into_iter().filter(|sequence| *sequence >= settled).collect();
            self.journal.hint(&Record::Over { host, settled, stretches: stretches_of(above) });
        }
        self.unsaid.clear();
    }
}
