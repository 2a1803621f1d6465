//! Executes many runs on all cores.
//!
//! Seeds are taken in order, and after a failure no higher seed is started. So the failure that is reported is that of the lowest
//! seed, whatever the number of threads.
//!
//! A bound (`RUN_MAX`) ends runs that do not end by themselves. If a step of a machine or a check does not end, only the end of the process
//! can end it: the thread that started the attack watches for this case.

use crate::options::{Choices, Options};
use crate::prelude::*;
use crate::report::{Failure, Report};
use crate::swarm::{RUN_MAX, run_with};
use braid_check::FileHistory;
use std::num::NonZero;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Instant;

/// The runs to be executed.
#[derive(Clone, Debug)]
pub struct Attack {
    /// The first seed; each further run uses the next number.
    pub seed: u64,
    /// The number of runs, if it is limited.
    pub runs: Option<u64>,
    /// No run is started after this time.
    pub until: Option<Instant>,
    /// The choices that override the seeds.
    pub choices: Choices,
    /// The number of concurrent runs; by default the number of cores.
    pub threads: Option<NonZero<usize>>,
    /// Whether to continue after a failure.
    pub keep_going: bool,
}

/// The results of an attack.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The reports of all runs without failures, added up.
    pub sum: Report,
    /// The failures, in the order of their seeds.
    pub failures: Vec<Failure>,
}

struct Progress {
    next: u64,
    /// No seed from this one on is started.
    end: u64,
    outcome: Outcome,
    /// Threads that have not ended.
    threads: usize,
    /// Seeds in progress, and when they were started.
    running: BTreeMap<u64, Instant>,
}

/// Why no mutex is poisoned.
const CATCH: &str = "runs catch their panics";
/// How often runs are examined.
const WATCH: Duration = Duration::from_secs(1);
/// A run that takes longer is stuck. Checking a long history may take minutes beyond the run's own bound.
const STUCK: Duration = RUN_MAX.real_time.saturating_mul(6);

impl Attack {
    /// Executes the runs. `on_end` is called at the end of each run with the number of runs and of failures so far.
    pub fn run(&self, on_end: impl Fn(u64, u64) + Sync) -> Outcome {
        self.run_with(on_end, |_, _| ())
    }

    /// The same. `on_history` gets the history of the file system of each run, with its seed.
    pub fn run_with(&self, on_end: impl Fn(u64, u64) + Sync, on_history: impl Fn(u64, &FileHistory) + Sync) -> Outcome {
        let end = self.runs.map_or(u64::MAX, |runs| self.seed.saturating_add(runs));
        let threads = self.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let outcome = Outcome::default();
        let progress = Progress { next: self.seed, end, outcome, threads, running: BTreeMap::new() };
        let (progress, ended) = (Mutex::new(progress), Condvar::new());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    self.work(&progress, &on_end, &on_history);
                    progress.lock().expect(CATCH).threads -= 1;
                    ended.notify_one();
                });
            }
            watch(&progress, &ended);
        });
        let mut outcome = progress.into_inner().expect(CATCH).outcome;
        outcome.failures.sort_by_key(|failure| failure.seed);
        if !self.keep_going {
            outcome.failures.truncate(1);
        }
        outcome
    }

    fn work(&self, progress: &Mutex<Progress>, on_end: &impl Fn(u64, u64), on_history: &impl Fn(u64, &FileHistory)) {
        let lock = || progress.lock().expect(CATCH);
        loop {
            let seed = {
                let mut progress = lock();
                if progress.next >= progress.end || self.until.is_some_and(|until| Instant::now() >= until) {
                    return;
                }
                progress.next += 1;
                let seed = progress.next - 1;
                progress.running.insert(seed, Instant::now());
                seed
            };
            let ended = run_with(Options::chosen(seed, &self.choices), 0, |history| on_history(seed, history));
            let mut progress = lock();
            progress.running.remove(&seed);
            match ended {
                Ok(report) => progress.outcome.sum.add(&report),
                Err(failure) => {
                    if !self.keep_going {
                        progress.end = progress.end.min(seed);
                    }
                    progress.outcome.failures.push(*failure);
                }
            }
            let failed = progress.outcome.failures.len() as u64;
            on_end(progress.outcome.sum.runs + failed, failed);
        }
    }
}

/// Waits for all threads. If a run exceeds its bound by far, it is inside a step or a check that does not end: then the process ends
/// and reports the seed.
fn watch(progress: &Mutex<Progress>, ended: &Condvar) {
    let mut progress = progress.lock().expect(CATCH);
    while progress.threads > 0 {
        progress = ended.wait_timeout(progress, WATCH).expect(CATCH).0;
        if let Some((seed, since)) = progress.running.iter().find(|(_, since)| since.elapsed() > STUCK) {
            let took = since.elapsed();
            eprintln!("seed {seed} has run for {took:?}: a step of a machine or a check does not terminate");
            std::process::abort();
        }
    }
}
