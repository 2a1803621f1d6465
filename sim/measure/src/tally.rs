//! Statistics of a run, without its warm-up.

use crate::parameters::Run;
use crate::prelude::*;
use hdrhistogram::Histogram;

/// A saturated array settles within this many events for each operation, and is measured for as many: if locks time out again and
/// again, hardly any operation may complete.
const SATURATED_EVENTS_PER_OPERATION: u64 = 40;

/// Counts and times of a run.
pub struct Tally {
    run: Run,
    backlog_max: u64,
    /// All events, including those of the warm-up.
    pub events: u64,
    asked: u64,
    answered: u64,
    failed: u64,
    /// The backlog has exceeded its limit at some time.
    behind: bool,
    /// The state at the start of the measurement; `None` before.
    start: Option<Edge>,
    /// The first operation to be measured, counted from 1.
    first: u64,
    /// The last operation to be measured.
    last: u64,
    /// After this many events the measurement begins or, if it has begun, ends. Used only for arrays that fell behind.
    patience: u64,
    latencies: Latencies,
    /// The latencies of the first half of the measured operations.
    latency_sum_first: f64,
    end: Option<Edge>,
}

/// The state at the start or the end of the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    at: Time,
    messages: u64,
    totals: Totals,
}

/// Counts of all nodes since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations that had to wait for other operations or be retried.
    pub delayed: u64,
    /// Attempts abandoned because locks could not be acquired in time.
    pub restarts: u64,
    /// Working time of all disk arms together.
    pub disks_busy: Duration,
    /// Working time of all lock servers together.
    pub lock_servers_busy: Duration,
}

/// Latencies of operations.
#[derive(Debug)]
pub struct Latencies {
    /// In microseconds.
    histogram: Histogram<u64>,
    /// In nanoseconds.
    sum: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { histogram: Histogram::new(3).expect("three digits are possible"), sum: 0.0 }
    }
}

impl Latencies {
    pub fn record(&mut self, took: Duration) {
        self.histogram.record(took.as_nanos() as u64 / 1000).expect("the histogram grows");
        self.sum += took.as_nanos() as f64;
    }

    pub fn count(&self) -> f64 {
        self.histogram.len() as f64
    }

    /// The results of a run in which operations had these latencies and nothing else was counted.
    pub fn measured(&self, seconds: f64) -> Measured {
        Measured {
            latency_ms: self.sum / self.count() / 1e6,
            latency_p50_ms: self.histogram.value_at_quantile(0.5) as f64 / 1e3,
            latency_p99_ms: self.histogram.value_at_quantile(0.99) as f64 / 1e3,
            throughput_ops: self.count() / seconds,
            latency_growth: 1.0,
            kept_up: true,
            ..Measured::default()
        }
    }
}

/// The number of servers of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Arms of all disks.
    pub disks: usize,
    pub lock_servers: usize,
}

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Mean latency of an operation, in ms.
    pub latency_ms: f64,
    /// Median latency, in ms.
    pub latency_p50_ms: f64,
    /// Latency of the 99th percentile, in ms.
    pub latency_p99_ms: f64,
    /// Operations a second.
    pub throughput_ops: f64,
    /// Messages for each operation, requests and answers alike.
    pub messages_per_op: f64,
    /// Messages for each operation in which lock servers asked for parts of locks, if the run is one of locks of ranges.
    pub callbacks_per_op: Option<f64>,
    /// Share of the promotions whose range no other host had, if locks were promoted.
    pub kept_fraction: Option<f64>,
    /// Share of operations that had to wait for other operations or be retried.
    pub delayed_fraction: f64,
    /// For each operation, attempts abandoned because locks could not be acquired in time.
    pub restarts_per_op: f64,
    /// Share of time in which the disk of a device works.
    pub disk_utilization: f64,
    /// Share of time in which the processor of a lock server, or of a metadata server, works.
    pub lock_server_utilization: f64,
    /// Mean latency of the second half of the operations, divided by that of the first half.
    pub latency_growth: f64,
    /// False if the backlog exceeded its limit: then all figures describe a saturated array.
    pub kept_up: bool,
    /// Operations that ended with an error.
    pub failed: u64,
    /// All events of the run.
    pub events: u64,
    /// Requests that concern locks, including failed attempts, for each lock acquired, if the run is one of locks on objects.
    pub requests_per_lock: Option<f64>,
    /// Counts of commit protocols, if the run is one of operations on several metadata servers.
    pub commits: Option<CommitCounts>,
}

/// Counts of commit protocols: for each operation, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommitCounts {
    /// Records that a server waits for.
    pub forced_writes: f64,
    /// Records that no server waits for.
    pub unforced_writes: f64,
    /// Writes of logs. Records may share one.
    pub log_writes: f64,
    /// Messages beyond UPDATE and UPDATED.
    pub protocol_messages: f64,
    pub operations_per_transaction: f64,
    /// Of an operation alone: writes, one after the other, until the client is answered.
    pub critical_writes: f64,
    /// Messages beyond UPDATE and UPDATED, one after the other, until the client is answered.
    pub critical_messages: f64,
    /// Writes, one after the other, until the coordinator releases its lock.
    pub writes_under_lock: f64,
    pub messages_under_lock: f64,
}

impl Tally {
    /// Creates an empty tally.
    pub fn new(run: &Run, hosts: u64) -> Tally {
        Tally {
            run: run.clone(),
            backlog_max: run.backlog_per_host * hosts,
            events: 0,
            asked: 0,
            answered: 0,
            failed: 0,
            behind: false,
            start: None,
            first: run.warm_up_operations + 1,
            last: run.warm_up_operations + run.operations,
            patience: u64::MAX,
            latencies: Latencies::default(),
            latency_sum_first: 0.0,
            end: None,
        }
    }

    /// True if the measurement is complete.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// True if the next answer begins or ends the measurement.
    pub fn is_at_edge(&self) -> bool {
        self.begins(self.answered + 1) || self.ends(self.answered + 1)
    }

    fn begins(&self, operation: u64) -> bool {
        self.start.is_none() && (operation >= self.first || self.events > self.patience)
    }

    fn ends(&self, operation: u64) -> bool {
        self.start.is_some() && (operation == self.last || self.events > self.patience)
    }

    fn wait(&mut self) {
        self.patience = self.events + SATURATED_EVENTS_PER_OPERATION * (self.run.operations + self.backlog_max);
    }

    /// True if the backlog is so long that applications issue no further requests. From then on, an array that falls behind shows its
    /// capacity and not the growth of its queues.
    pub fn is_full(&self) -> bool {
        self.asked - self.answered >= self.backlog_max
    }

    /// Counts a request of an application.
    pub fn asked(&mut self) {
        self.asked += 1;
        if self.is_full() && !self.behind {
            // The array is saturated, and everything measured so far was the approach to this state. It has settled when the present
            // backlog is answered.
            self.behind = true;
            self.start = None;
            self.wait();
            self.first = self.answered + self.backlog_max + 1;
            self.last = self.first + self.run.operations - 1;
        }
    }

    /// Counts the answer to an operation; `messages` were received so far. `totals` is used only [at an edge](Tally::is_at_edge).
    pub fn answered(&mut self, now: Time, messages: u64, since: Time, outcome: &HostOutcome, totals: Totals) {
        self.answered += 1;
        let edge = Edge { at: now, messages, totals };
        let ends = self.ends(self.answered);
        if self.begins(self.answered) {
            self.start = Some(edge);
            if self.behind {
                self.wait();
            }
            (self.latencies, self.latency_sum_first, self.failed) = (Latencies::default(), 0.0, 0);
        }
        if self.start.is_none() {
            return;
        }
        self.failed += u64::from(outcome.is_err());
        self.latencies.record(now.since(since));
        if self.latencies.count() <= (self.run.operations / 2) as f64 {
            self.latency_sum_first = self.latencies.sum;
        }
        if ends {
            self.end = Some(edge);
        }
    }

    /// The results of the run.
    pub fn measured(&self, workers: Workers) -> Measured {
        let (start, end) = self.start.zip(self.end).expect("the run is over");
        let count = self.latencies.count();
        let seconds = end.at.since(start.at).as_secs_f64().max(1e-9);
        let half = (self.run.operations / 2) as f64;
        let first = self.latency_sum_first / half;
        let second = (self.latencies.sum - self.latency_sum_first) / (count - half);
        let busy = |end: Duration, start: Duration, workers: usize| {
            (end - start).as_secs_f64() / seconds / workers.max(1) as f64
        };
        let (before, after) = (start.totals, end.totals);
        Measured {
            messages_per_op: (end.messages - start.messages) as f64 / count,
            delayed_fraction: (after.delayed - before.delayed) as f64 / count,
            restarts_per_op: (after.restarts - before.restarts) as f64 / count,
            disk_utilization: busy(after.disks_busy, before.disks_busy, workers.disks),
            lock_server_utilization: busy(after.lock_servers_busy, before.lock_servers_busy, workers.lock_servers),
            latency_growth: if self.behind { f64::INFINITY } else { second / first },
            kept_up: !self.behind,
            failed: self.failed,
            events: self.events,
            ..self.latencies.measured(seconds)
        }
    }
}
