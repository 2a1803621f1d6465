//! Many runs, on all cores.
//!
//! Seeds are taken in their order, and after a failure none above it is begun: so the failure that is reported is that of the
//! lowest seed, however many threads there are.

use crate::options::{Choices, Options};
use crate::report::{Failure, Report};
use crate::storm::run;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

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
}

impl Attack {
    /// Runs them. `on_end` hears of each run that has ended: how many so far, and how many of these failed.
    pub fn run(&self, on_end: impl Fn(u64, u64) + Sync) -> Outcome {
        let end = self.runs.map_or(u64::MAX, |runs| self.seed.saturating_add(runs));
        let progress = Mutex::new(Progress { next: self.seed, end, outcome: Outcome::default() });
        let threads = self.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work(&progress, &on_end));
            }
        });
        let mut outcome = progress.into_inner().expect("runs catch their panics").outcome;
        outcome.failures.sort_by_key(|failure| failure.seed);
        if !self.keep_going {
            outcome.failures.truncate(1);
        }
        outcome
    }

    fn work(&self, progress: &Mutex<Progress>, on_end: &impl Fn(u64, u64)) {
        let lock = || progress.lock().expect("runs catch their panics");
        loop {
            let seed = {
                let mut progress = lock();
                if progress.next >= progress.end || self.until.is_some_and(|until| Instant::now() >= until) {
                    return;
                }
                progress.next += 1;
                progress.next - 1
            };
            let ended = run(Options::chosen(seed, &self.choices), 0);
            let mut progress = lock();
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
