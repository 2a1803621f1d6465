//! Many runs, on all cores.
//!
//! Seeds are taken in their order, and after a failure none above it is begun: so the failure that is reported is that of the
//! lowest seed, however many threads there are.
//!
//! A run ends by its bound if nothing else ends it (`RUN_MAX`). Within a step of a machine, or a check, nothing can end it but the end of the
//! process: the thread that began the attack watches for that.

use crate::options::{Choices, Options};
use crate::report::{Failure, Report};
use crate::swarm::{RUN_MAX, run};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Which runs.
#[derive(Clone, Debug)]
pub struct Attack {
    /// The first seed; each run has the next one.
    pub seed: u64,
    /// How many runs, if there is a limit.
    pub runs: Option<u64>,
    /// Begin none after this moment.
    pub until: Option<Instant>,
    /// What is not left to the seeds.
    pub choices: Choices,
    /// How many at once; as many as there are cores, if nothing is said.
    pub threads: Option<NonZero<usize>>,
    /// After a failure go on, and find more.
    pub keep_going: bool,
}

/// What they found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Those that found nothing wrong, together.
    pub sum: Report,
    /// Those that did, in the order of their seeds.
    pub failures: Vec<Failure>,
}

struct Progress {
    next: u64,
    /// No seed from here on.
    end: u64,
    outcome: Outcome,
    /// Threads that have not ended.
    threads: usize,
    /// Seeds under way, and since when.
    running: BTreeMap<u64, Instant>,
}

/// Why no lock is poisoned.
const CATCH: &str = "runs catch their panics";
/// How often runs are looked at.
const WATCH: Duration = Duration::from_secs(1);
/// A run that takes longer is stuck. To judge a long history takes minutes beyond the run's own bound.
const STUCK: Duration = RUN_MAX.real_time.saturating_mul(6);

impl Attack {
    /// Runs them. `on_end` hears of each run that has ended: how many so far, and how many of these failed.
    pub fn run(&self, on_end: impl Fn(u64, u64) + Sync) -> Outcome {
        let end = self.runs.map_or(u64::MAX, |runs| self.seed.saturating_add(runs));
        let threads = self.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let outcome = Outcome::default();
        let progress = Progress { next: self.seed, end, outcome, threads, running: BTreeMap::new() };
        let (progress, ended) = (Mutex::new(progress), Condvar::new());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    self.work(&progress, &on_end);
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

    fn work(&self, progress: &Mutex<Progress>, on_end: &impl Fn(u64, u64)) {
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
            let ended = run(Options::chosen(seed, &self.choices), 0);
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

/// Waits for all threads. A run that has gone on far beyond its bound is within a step or a check that does not end: then the process ends,
/// with the seed.
fn watch(progress: &Mutex<Progress>, ended: &Condvar) {
    let mut progress = progress.lock().expect(CATCH);
    while progress.threads > 0 {
        progress = ended.wait_timeout(progress, WATCH).expect(CATCH).0;
        if let Some((seed, since)) = progress.running.iter().find(|(_, since)| since.elapsed() > STUCK) {
            let took = since.elapsed();
            eprintln!("seed {seed} has taken {took:?}: a step of a machine, or a check, does not come to an end");
            std::process::abort();
        }
    }
}
