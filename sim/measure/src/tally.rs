//! What is seen of a run, warm-up left out.

use crate::parameters::Run;
use braid_base::Time;
use braid_machine::HostOutcome;
use hdrhistogram::Histogram;
use std::time::Duration;

/// An array that fell behind settles within so many events for each operation, and is measured for as many: locks that time out
/// again and again may leave hardly any operation to be answered.
const SATURATED_EVENTS_PER_OPERATION: u64 = 40;

/// Counts and times of a run.
pub struct Tally {
    run: Run,
    backlog_max: u64,
    /// Everything that happened, warm-up included.
    pub events: u64,
    asked: u64,
    answered: u64,
    failed: u64,
    /// Too much was waiting at some time.
    behind: bool,
    /// As things stood when what is measured began; none before.
    start: Option<Edge>,
    /// The operation that is the first to be measured, counted from 1.
    first: u64,
    /// The last.
    last: u64,
    /// After so many events what is measured begins or, if it has begun, ends: only for arrays that fell behind.
    patience: u64,
    latencies: Histogram<u64>,
    latency_sum: f64,
    /// The same of the first half of what is measured.
    latency_sum_first: f64,
    end: Option<Edge>,
}

/// How things stood when what is measured began or ended.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    at: Time,
    messages: u64,
    totals: Totals,
}

/// What nodes have counted since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Operations that had to wait for others or to begin anew.
    pub delayed: u64,
    /// Attempts given up because of locks that could not be had in time.
    pub restarts: u64,
    /// How long disks have worked, all arms together.
    pub disks_busy: Duration,
    /// How long lock servers have worked.
    pub lock_servers_busy: Duration,
}

/// How many share the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Arms of all disks.
    pub disks: usize,
    /// Lock servers.
    pub lock_servers: usize,
}

/// What one run showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Mean time of an operation, in ms.
    pub latency_ms: f64,
    /// Half of the operations took less.
    pub latency_p50_ms: f64,
    /// All but one in a hundred took less.
    pub latency_p99_ms: f64,
    /// Operations a second.
    pub throughput_ops: f64,
    /// Messages, requests and answers alike.
    pub messages_per_op: f64,
    /// Share of operations that had to wait for others or to begin anew.
    pub delayed_fraction: f64,
    /// Attempts given up because of locks that could not be had in time, for each operation.
    pub restarts_per_op: f64,
    /// Share of time in which a device's disk works.
    pub disk_utilization: f64,
    /// The same of a lock server's processor.
    pub lock_server_utilization: f64,
    /// By how much the second half of the operations took longer than the first.
    pub latency_growth: f64,
    /// False if the backlog grew beyond its limit: then everything here is about a saturated array.
    pub kept_up: bool,
    /// Operations that ended in an error.
    pub failed: u64,
    /// All events of the run.
    pub events: u64,
    /// Where objects were locked.
    pub locks: Option<LockCounts>,
}

/// What is counted where operations are locks that are taken, used and given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockCounts {
    /// Requests about locks, attempts and all, for each lock that was had.
    pub requests_per_lock: f64,
}

impl LockCounts {
    /// By the contention benchmark: two requests for each lock are all that is needed.
    pub fn efficiency(&self) -> f64 {
        2.0 / self.requests_per_lock
    }
}

impl Tally {
    /// Nothing seen yet.
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
            latencies: Histogram::new(3).expect("three digits are possible"),
            latency_sum: 0.0,
            latency_sum_first: 0.0,
            end: None,
        }
    }

    /// True when all that was to be measured is.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// True if the next answer begins or ends what is measured.
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

    /// True if so much waits that applications ask for no more: from there on, an array that does not keep up shows what it can do,
    /// and not how its queues grow.
    pub fn is_full(&self) -> bool {
        self.asked - self.answered >= self.backlog_max
    }

    /// An application asked for something.
    pub fn asked(&mut self) {
        self.asked += 1;
        if self.is_full() && !self.behind {
            // Whatever was seen so far, in the warm-up or not, is an array on its way here. When all that waits now is answered, it
            // has settled.
            self.behind = true;
            self.start = None;
            self.wait();
            self.first = self.answered + self.backlog_max + 1;
            self.last = self.first + self.run.operations - 1;
        }
    }

    /// An operation was answered; so many messages were received until now. What nodes have counted is looked at only [at an edge](Tally::is_at_edge).
    pub fn answered(&mut self, now: Time, messages: u64, since: Time, outcome: &HostOutcome, totals: Totals) {
        self.answered += 1;
        let edge = Edge { at: now, messages, totals };
        let ends = self.ends(self.answered);
        if self.begins(self.answered) {
            self.start = Some(edge);
            if self.behind {
                self.wait();
            }
            self.latencies.clear();
            (self.latency_sum, self.latency_sum_first, self.failed) = (0.0, 0.0, 0);
        }
        if self.start.is_none() {
            return;
        }
        let took = now.since(since).as_nanos() as u64;
        self.failed += u64::from(outcome.is_err());
        self.latencies.record(took / 1000).expect("the histogram grows");
        self.latency_sum += took as f64;
        if self.latencies.len() <= self.run.operations / 2 {
            self.latency_sum_first += took as f64;
        }
        if ends {
            self.end = Some(edge);
        }
    }

    /// What the run showed.
    pub fn measured(&self, workers: Workers) -> Measured {
        let (start, end) = self.start.zip(self.end).expect("the run is over");
        let count = self.latencies.len() as f64;
        let seconds = end.at.since(start.at).as_secs_f64().max(1e-9);
        let half = (self.run.operations / 2) as f64;
        let first = self.latency_sum_first / half;
        let second = (self.latency_sum - self.latency_sum_first) / (count - half);
        let busy = |end: Duration, start: Duration, workers: usize| {
            (end - start).as_secs_f64() / seconds / workers.max(1) as f64
        };
        let (before, after) = (start.totals, end.totals);
        Measured {
            latency_ms: self.latency_sum / count / 1e6,
            latency_p50_ms: self.latencies.value_at_quantile(0.5) as f64 / 1e3,
            latency_p99_ms: self.latencies.value_at_quantile(0.99) as f64 / 1e3,
            throughput_ops: count / seconds,
            messages_per_op: (end.messages - start.messages) as f64 / count,
            delayed_fraction: (after.delayed - before.delayed) as f64 / count,
            restarts_per_op: (after.restarts - before.restarts) as f64 / count,
            disk_utilization: busy(after.disks_busy, before.disks_busy, workers.disks),
            lock_server_utilization: busy(after.lock_servers_busy, before.lock_servers_busy, workers.lock_servers),
            latency_growth: if self.behind { f64::INFINITY } else { second / first },
            kept_up: !self.behind,
            failed: self.failed,
            events: self.events,
            locks: None,
        }
    }
}
