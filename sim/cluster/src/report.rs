//! Reports of runs and of failures: the failed check, and the commands that repeat the run.

use crate::options::Choices;
use crate::prelude::*;
use braid_host::HostCounters;
use braid_locks::LockServerCounters;
use braid_machine::Ignored;
use braid_world::{DiskCounts, NetworkCounts};

/// The report of a run without failures, or of several such runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of runs that the report sums up.
    pub runs: u64,
    pub simulated: Duration,
    pub events: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// Successful operations that no fault affected.
    pub quiet: u64,
    /// The duration of the slowest of these.
    pub slowest_quiet: Duration,
    /// For each fault by name, the slowest operation during which it was the only fault, in thousandths of a lease.
    pub pauses: BTreeMap<&'static str, u64>,
    /// The duration of the slowest operation that was answered.
    pub slowest: Duration,
    /// Operations that ended with an error, by its name, or whose host died.
    pub unknown: BTreeMap<&'static str, u64>,
    /// Faults by name, except those of messages.
    pub faults: BTreeMap<String, u64>,
    pub network: NetworkCounts,
    pub disks: DiskCounts,
    /// Inputs that machines ignored, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
    pub hosts: HostCounters,
    /// Counters of lock servers; counts before a loss of power at a disk command are lost.
    pub lock_servers: LockServerCounters,
    pub stores: BTreeMap<&'static str, u64>,
    /// Operations of activities by outcome, including those of the final checks. One request may contain several swaps.
    pub activities: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Histories of names, or of the bytes of a file system, for which the search for an order was abandoned.
    pub files_unjudged: u64,
    /// Steps of the searches for an order.
    pub search_steps: u64,
    /// Runs in which this search was abandoned; the other checks were made.
    pub unjudged: u64,
    /// Identifies the run's trace.
    pub digest: u64,
    /// The last lines of the trace, if any were kept.
    pub trace: Vec<String>,
}

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The name of the check, or `panic`.
    pub check: &'static str,
    pub seed: u64,
    pub ordering: Ordering,
    pub at: Time,
    pub event: u64,
    pub details: String,
    /// The last lines of the trace, if any were kept.
    pub trace: Vec<String>,
}

impl Report {
    /// Adds counts of an activity.
    pub(crate) fn count(&mut self, activity: &'static str, counts: BTreeMap<&'static str, u64>) {
        let all = self.activities.entry(activity).or_default();
        counts.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
    }

    /// An operation took so long, in thousandths of a lease, during this fault alone.
    pub(crate) fn note_pause(&mut self, fault: &'static str, pause: u64) {
        let longest = self.pauses.entry(fault).or_default();
        *longest = pause.max(*longest);
    }

    /// The counts of an activity; none if no run had it.
    pub fn of(&self, activity: &str) -> BTreeMap<&'static str, u64> {
        self.activities.get(activity).cloned().unwrap_or_default()
    }

    /// Adds the figures of another run.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.simulated += other.simulated;
        self.events += other.events;
        self.done += other.done;
        self.quiet += other.quiet;
        self.slowest_quiet = self.slowest_quiet.max(other.slowest_quiet);
        self.slowest = self.slowest.max(other.slowest);
        self.search_steps += other.search_steps;
        self.unjudged += other.unjudged;
        self.files_unjudged += other.files_unjudged;
        other.activities.iter().for_each(|(activity, counts)| self.count(activity, counts.clone()));
        // Independent of the order in which runs end.
        self.digest = self.digest.wrapping_add(other.digest);
        other.unknown.iter().for_each(|(name, count)| *self.unknown.entry(name).or_default() += count);
        other.pauses.iter().for_each(|(name, pause)| self.note_pause(name, *pause));
        other.faults.iter().for_each(|(name, count)| *self.faults.entry(name.clone()).or_default() += count);
        other.ignored.iter().for_each(|(why, count)| *self.ignored.entry(*why).or_default() += count);
        other.stores.iter().for_each(|(name, count)| *self.stores.entry(name).or_default() += count);
        self.hosts.add(&other.hosts);
        self.lock_servers.add(&other.lock_servers);
        self.network.add(&other.network);
        self.disks.add(&other.disks);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { network, disks, .. } = self;
        let simulated = match self.simulated.as_secs_f64() {
            seconds if seconds < 3_600.0 => format!("{seconds:.0} s"),
            seconds => format!("{:.1} h", seconds / 3_600.0),
        };
        writeln!(
            f,
            "{} runs, {simulated} of simulated time, {} events, digest {:016x}",
            self.runs, self.events, self.digest
        )?;
        writeln!(
            f,
            "  operations    {} done in at most {:.1} s; of unknown outcome: {}",
            self.done,
            self.slowest.as_secs_f64(),
            listed(&self.unknown)
        )?;
        writeln!(
            f,
            "  quiet         {} operations with which no fault interfered, done in at most {:.1} s",
            self.quiet,
            self.slowest_quiet.as_secs_f64()
        )?;
        writeln!(f, "  pauses        of thousandths of a lease: {}", listed(&self.pauses))?;
        writeln!(f, "  faults        {}", listed(&self.faults))?;
        writeln!(
            f,
            "  messages      {} sent: {} lost, {} at a cut, {} doubled, {} damaged, {} late, {} overtaken",
            network.sent,
            network.lost,
            network.cut,
            network.doubled,
            network.damaged,
            network.delayed,
            network.reordered
        )?;
        writeln!(
            f,
            "  disks         {} losses of power: {} unsynced writes lost, {} torn, {} kept; {} commands without space, \
             {} reads of unreadable sectors",
            disks.crashes, disks.lost, disks.torn, disks.kept, disks.refused, disks.failed
        )?;
        writeln!(f, "  hosts         {}", listed(&self.hosts.list().into_iter().collect()))?;
        writeln!(f, "  lock servers  {}", listed(&self.lock_servers.list().into_iter().collect()))?;
        writeln!(f, "  stores        {}", listed(&self.stores))?;
        for (activity, counts) in &self.activities {
            writeln!(f, "  {activity:13} {}", listed(counts))?;
        }
        let ignored = self.ignored.iter().map(|(why, count)| (format!("{why:?}"), *count)).collect();
        writeln!(f, "  ignored       {}", listed(&ignored))?;
        write!(
            f,
            "  histories     ordered in {} steps; {} too entangled to judge, and {} of files",
            self.search_steps, self.unjudged, self.files_unjudged
        )
    }
}

/// Counts with their names, the highest first, without zeros.
fn listed<Name: AsRef<str>>(counts: &BTreeMap<Name, u64>) -> String {
    let mut sorted: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_ref(), *count)).collect();
    sorted.retain(|(_, count)| *count > 0);
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words: Vec<String> =
        sorted.into_iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    if words.is_empty() { "none".to_string() } else { words.join(", ") }
}

impl Failure {
    /// The commands that repeat the run: for the verdict, and for the events before it.
    pub fn commands(&self, choices: &Choices) -> (String, String) {
        let seed = self.seed;
        (format!("braid sim attack --seed {seed} --runs 1{choices}"), format!("braid sim replay {seed}{choices}"))
    }
}

impl fmt::Display for Failure {
    /// The failed check and its details.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.0 as f64 / 1e9;
        write!(f, "FAILED {}  seed {}  at {seconds:.6}s  event {}", self.check, self.seed, self.event)?;
        self.details.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
