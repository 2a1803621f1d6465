//! The log of a server: a queue of records, and the write under way. Records become durable in order.

use super::parameters::{CommitParameters, Grouping, LogQueue, Unforced};
use crate::prelude::*;

/// A record on its way to the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending<T> {
    pub bytes: u64,
    pub forced: bool,
    /// What is told of it once it is durable.
    pub tag: T,
}

/// The log of a server.
#[derive(Clone, Debug)]
pub struct Log<T> {
    queue: VecDeque<Pending<T>>,
    /// Writes under way, and when each is durable.
    under_way: VecDeque<(Time, Vec<Pending<T>>)>,
    busy: Duration,
    writes: u64,
}

/// The most records in one write.
const SHARED_MAX: usize = 256;

impl<T> Default for Log<T> {
    fn default() -> Log<T> {
        Log { queue: VecDeque::new(), under_way: VecDeque::new(), busy: Duration::ZERO, writes: 0 }
    }
}

impl<T> Log<T> {
    /// Adds a record; returns when the write that begins now ends, if one begins.
    pub fn add(&mut self, now: Time, record: Pending<T>, parameters: &CommitParameters) -> Option<Time> {
        if !record.forced && parameters.log.unforced == Unforced::Free {
            return None;
        }
        self.queue.push_back(record);
        self.begin(now, parameters)
    }

    /// The first write under way is durable: returns its records, and when the next one ends, if one begins.
    pub fn finish(&mut self, now: Time, parameters: &CommitParameters) -> (Vec<Pending<T>>, Option<Time>) {
        let (at, records) = self.under_way.pop_front().expect("a write is under way");
        assert_eq!(at, now, "writes end in order");
        (records, self.begin(now, parameters))
    }

    fn begin(&mut self, now: Time, parameters: &CommitParameters) -> Option<Time> {
        if parameters.log.queue == LogQueue::One && !self.under_way.is_empty() {
            return None;
        }
        let records = self.take(parameters)?;
        let takes = parameters.write_time(records.iter().map(|record| record.bytes).sum());
        // Without a queue, a short write must not overtake a long one.
        let last = self.under_way.back().map_or(now, |(at, _)| *at);
        let at = now.after(takes).max(last);
        self.busy += takes;
        self.writes += 1;
        self.under_way.push_back((at, records));
        Some(at)
    }

    /// The records of the next write.
    fn take(&mut self, parameters: &CommitParameters) -> Option<Vec<Pending<T>>> {
        let is_carried = parameters.log.unforced == Unforced::Carried;
        let first = self.queue.iter().position(|record| record.forced || !is_carried)?;
        let count = match parameters.system.grouping {
            // The record, and what it carries.
            Grouping::None => first + 1,
            Grouping::Log | Grouping::Operations => self.queue.len().min(SHARED_MAX),
        };
        Some(self.queue.drain(..count).collect())
    }

    /// How long the log has written, and how often.
    pub fn totals(&self) -> (Duration, u64) {
        (self.busy, self.writes)
    }
}
