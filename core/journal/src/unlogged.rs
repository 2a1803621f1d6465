//! Unlogged acknowledgements are answers that a host has acknowledged, but whose removal is not logged yet. They are frequent, and
//! usually need no record: the next logged request of the host carries its settled mark. If there is no such request for a second, one
//! record logs everything that the host has acknowledged in the meantime. Without it a restart would restore answers that no host
//! acknowledges again.

use crate::answers::{Answers, AnswersRecord, intervals_of};
use braid_base::{Generation, Time, TransactionId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the removal of an answer may be unlogged.
const LOG_WITHIN: Duration = Duration::from_secs(1);

/// The unlogged acknowledgements of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Unlogged {
    /// By host: the acknowledged answers above the settled mark. An empty list means that answers below the mark were acknowledged.
    hosts: BTreeMap<Generation, Vec<u64>>,
    /// When they must be logged. Set when the clock is next observed.
    until: Option<Time>,
}

impl Unlogged {
    /// An answer above its host's mark was acknowledged.
    pub fn add(&mut self, name: TransactionId) {
        self.hosts.entry(name.host).or_default().push(name.sequence);
    }

    /// Answers below the host's mark were acknowledged.
    pub fn add_below_mark(&mut self, host: Generation) {
        self.hosts.entry(host).or_default();
    }

    /// A request of this host is logged, and its mark with it.
    pub fn mark_is_logged(&mut self, host: Generation) {
        if self.hosts.get(&host).is_some_and(Vec::is_empty) {
            self.hosts.remove(&host);
        }
        if self.hosts.is_empty() {
            self.until = None;
        }
    }

    /// A snapshot records everything.
    pub fn clear(&mut self) {
        *self = Unlogged::default();
    }

    /// When they must be logged. Before the clock has been observed, this is now: a request may be waiting for the space.
    pub fn deadline(&self, now: Time) -> Option<Time> {
        (!self.hosts.is_empty()).then(|| self.until.unwrap_or(now))
    }

    /// Sets the deadline, if it is not set yet.
    pub fn observe(&mut self, now: Time) {
        if !self.hosts.is_empty() && self.until.is_none() {
            self.until = Some(now.after(LOG_WITHIN));
        }
    }

    /// True if the deadline has passed.
    pub fn is_due(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Takes out what must be logged, by host.
    pub fn take(&mut self, answers: &Answers) -> impl Iterator<Item = AnswersRecord> {
        let hosts = std::mem::take(self).hosts;
        hosts.into_iter().map(|(host, sequences)| {
            let settled = answers.settled(host);
            let above = sequences.into_iter().filter(|sequence| *sequence >= settled).collect();
            AnswersRecord::Over { host, settled, intervals: intervals_of(above) }
        })
    }
}
