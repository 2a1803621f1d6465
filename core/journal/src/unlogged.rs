//! Acknowledged answers whose removal is not logged yet. There are many; that they are gone rides on the next request of their host that
//! is logged, which has its mark. Only if there is none for a while it is a record, one for all that a host has acknowledged meanwhile;
//! without it a restart would bring back answers that nobody ever speaks of again.

use crate::answers::{Answers, AnswersRecord, stretches_of};
use braid_base::{Generation, Time, TransactionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the removal of an answer may be unlogged.
const LOG_WITHIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Unlogged {
    /// Of hosts: those below their marks, and these.
    hosts: BTreeMap<Generation, Vec<u64>>,
    /// When it is to be logged, once the clock has been looked at.
    until: Option<Time>,
}

impl Unlogged {
    /// This answer is gone.
    pub fn add(&mut self, name: TransactionId) {
        self.hosts.entry(name.host).or_default().push(name.sequence);
    }

    /// Those below the host's mark are.
    pub fn add_below_mark(&mut self, host: Generation) {
        self.hosts.entry(host).or_default();
    }

    /// A request of this host is logged, and with it its mark.
    pub fn mark_is_logged(&mut self, host: Generation) {
        if self.hosts.get(&host).is_some_and(Vec::is_empty) {
            self.hosts.remove(&host);
        }
        if self.hosts.is_empty() {
            self.until = None;
        }
    }

    /// A snapshot says all.
    pub fn clear(&mut self) {
        *self = Unlogged::default();
    }

    /// When it is to be logged; or at once, to begin with: a request may be waiting for the room.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        (!self.hosts.is_empty()).then(|| self.until.unwrap_or(now))
    }

    /// The clock has been looked at.
    pub fn observe(&mut self, now: Time) {
        if !self.hosts.is_empty() && self.until.is_none() {
            self.until = Some(now.after(LOG_WITHIN));
        }
    }

    /// True if it may not wait any longer.
    pub fn is_due(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// What is to be logged, by host; nothing is left.
    pub fn take(&mut self, answers: &Answers) -> impl Iterator<Item = AnswersRecord> {
        let hosts = std::mem::take(self).hosts;
        hosts.into_iter().map(|(host, sequences)| {
            let settled = answers.settled(host);
            let above = sequences.into_iter().filter(|sequence| *sequence >= settled).collect();
            AnswersRecord::Over { host, settled, stretches: stretches_of(above) }
        })
    }
}
