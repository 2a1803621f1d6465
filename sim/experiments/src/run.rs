//! Runs the points of an experiment: replications in parallel, each decided by the seed and its number.

use crate::experiment::{Effort, Experiment, Point};
use crate::statistics::Estimate;
use braid_measure::{Measured, ParameterError, Parameters, measure};
use braid_wire::Ordering;
use indicatif::ProgressBar;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// What the command line asks of every experiment.
#[derive(Clone, Debug)]
pub struct Request {
    /// Decides everything.
    pub seed: u64,
    /// Independent runs of each point, if not as the parameters say.
    pub replications: Option<u64>,
    /// Parameters to be set, as KEY=VALUE.
    pub assignments: Vec<String>,
    /// How thoroughly.
    pub effort: Effort,
}

/// A point, and what its replications showed.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// The point.
    pub point: Point,
    /// One for each replication, in their order.
    pub runs: Vec<Measured>,
    /// The greatest load that was sustained, in hosts and in operations a second, if it was looked for.
    pub peak: Option<Peak>,
}

/// The greatest load that an ordering sustains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// At so many hosts.
    pub hosts: u64,
    /// That is so many operations a second.
    pub throughput: Estimate,
}

/// How fast it went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Runs.
    pub runs: u64,
    /// Events of all runs.
    pub events: u64,
    /// From the first to the last.
    pub took: Duration,
}

/// A load is sustained if this share of it is served.
const SUSTAINED_SHARE: f64 = 0.99;
/// And if operations do not take longer and longer: the second half of a run by this factor at most.
const SUSTAINED_GROWTH: f64 = 1.5;
/// Peaks are looked for among even numbers of hosts up to this.
const PEAK_HOSTS_MAX: u64 = 64;

/// A point that is checked and ready to run.
struct Prepared {
    point: Point,
    parameters: Parameters,
}

/// How many runs an experiment takes, for a progress bar; those that look for peaks not counted.
pub fn runs_of(experiment: &Experiment, request: &Request) -> Result<u64, ParameterError> {
    Ok(prepare(experiment, request)?.iter().map(|prepared| prepared.parameters.run.replications).sum())
}

/// Runs everything that an experiment consists of. The order of threads decides nothing.
pub fn run(
    experiment: &Experiment,
    request: &Request,
    progress: &ProgressBar,
) -> Result<(Vec<Replicated>, Pace), ParameterError> {
    let began = Instant::now();
    let prepared = prepare(experiment, request)?;
    let tasks: Vec<(usize, u64)> = prepared
        .iter()
        .enumerate()
        .flat_map(|(index, prepared)| (0..prepared.parameters.run.replications).map(move |number| (index, number)))
        .collect();
    let measured: Vec<Measured> = tasks
        .par_iter()
        .with_max_len(1)
        .map(|(index, number)| {
            let Prepared { point, parameters } = &prepared[*index];
            let measured = measure(parameters, point.series.ordering, seed_of(request.seed, *number));
            progress.inc(1);
            measured
        })
        .collect();
    let peaks: Vec<Option<(Peak, Pace)>> = prepared
        .par_iter()
        .with_max_len(1)
        .map(|prepared| experiment.finds_peaks.then(|| find_peak(prepared, request.seed)))
        .collect();
    let mut pace = Pace { runs: tasks.len() as u64, events: measured.iter().map(|run| run.events).sum(), ..Pace::default() };
    for (_, of_peak) in peaks.iter().flatten() {
        pace.runs += of_peak.runs;
        pace.events += of_peak.events;
    }
    pace.took = began.elapsed();
    let mut measured = measured.into_iter();
    let replicated = prepared
        .into_iter()
        .zip(peaks)
        .map(|(Prepared { point, parameters }, peak)| {
            let runs = measured.by_ref().take(parameters.run.replications as usize).collect();
            Replicated { point, runs, peak: peak.map(|(peak, _)| peak) }
        })
        .collect();
    Ok((replicated, pace))
}

/// All points with their parameters: whatever is wrong with any of them is said before the first run.
fn prepare(experiment: &Experiment, request: &Request) -> Result<Vec<Prepared>, ParameterError> {
    let mut base = experiment.base.parameters(&[])?;
    if request.effort == Effort::Quick {
        (base.run.operations, base.run.warm_up_operations, base.run.replications) = (2_500, 500, 2);
    }
    for assignment in &request.assignments {
        base = base.set(assignment)?;
    }
    if let Some(replications) = request.replications {
        base = base.set(&format!("run.replications={replications}"))?;
    }
    let points = (experiment.points)(request.effort);
    let prepare = |point: Point| {
        let parameters = point.assignments.iter().try_fold(base.clone(), |parameters, next| parameters.set(next))?;
        Ok(Prepared { point, parameters })
    };
    points.into_iter().map(prepare).collect()
}

/// The same replication has the same seed at every point, so that differences between points are not those of the dice.
fn seed_of(seed: u64, replication: u64) -> u64 {
    braid_measure::dice::Dice::new(seed ^ replication.wrapping_mul(0x9e37_79b9_7f4a_7c15)).below(u64::MAX)
}

/// Halves the range of hosts until the greatest load that is sustained is known.
fn find_peak(prepared: &Prepared, seed: u64) -> (Peak, Pace) {
    let mut pace = Pace::default();
    let mut best = Peak { hosts: 0, throughput: Estimate { mean: 0.0, ci95: None } };
    let (mut least, mut most) = (1, PEAK_HOSTS_MAX / 2);
    while least <= most {
        let middle = (least + most) / 2;
        let runs = at_hosts(prepared, 2 * middle, seed);
        pace.runs += runs.len() as u64;
        pace.events += runs.iter().map(|run| run.events).sum::<u64>();
        let throughput = Estimate::of(&runs.iter().map(|run| run.throughput_ops).collect::<Vec<_>>());
        let mut parameters = prepared.parameters.clone();
        parameters.system.hosts = 2 * middle;
        let growth = runs.iter().map(|run| run.latency_growth).sum::<f64>() / runs.len() as f64;
        if throughput.mean >= SUSTAINED_SHARE * parameters.offered() && growth <= SUSTAINED_GROWTH {
            best = Peak { hosts: 2 * middle, throughput };
            least = middle + 1;
        } else {
            most = middle - 1;
        }
    }
    (best, pace)
}

fn at_hosts(prepared: &Prepared, hosts: u64, seed: u64) -> Vec<Measured> {
    let mut parameters = prepared.parameters.clone();
    parameters.system.hosts = hosts;
    let ordering: Ordering = prepared.point.series.ordering;
    (0..parameters.run.replications).map(|number| measure(&parameters, ordering, seed_of(seed, number))).collect()
}
