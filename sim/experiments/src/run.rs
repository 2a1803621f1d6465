//! Runs the points of an experiment: parallel replications, each determined by the seed and its number.

use crate::experiment::{Experiment, Point, Subject, Thoroughness};
use braid_benchkit::statistics::Estimate;
use braid_measure::{Measured, ParameterError};
use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The request of the command line, which applies to every experiment.
#[derive(Clone, Debug)]
pub struct Request {
    pub seed: u64,
    /// Independent runs of each point, if not as the parameters say.
    pub replications: Option<u64>,
    /// Assignments of parameters, as KEY=VALUE.
    pub assignments: Vec<String>,
    pub thoroughness: Thoroughness,
}

/// A point with the results of its replications.
#[derive(Clone, Debug)]
pub struct Replicated {
    pub point: Point,
    /// One result for each replication, in order.
    pub runs: Vec<Measured>,
    /// The peak load, if it was determined.
    pub peak: Option<Peak>,
}

/// The largest load that an ordering sustains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The number of hosts that issue the load.
    pub hosts: u64,
    /// The throughput, in operations a second.
    pub throughput: Estimate,
}

/// The speed of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSpeed {
    /// Runs of arrays.
    pub runs: u64,
    pub events: u64,
    /// The time from the first run to the last, in seconds.
    pub seconds: f64,
    /// Threads that shared the work.
    pub threads: usize,
}

impl RunSpeed {
    fn count(&mut self, runs: &[Measured]) {
        self.runs += runs.len() as u64;
        self.events += runs.iter().map(|run| run.events).sum::<u64>();
    }
}

/// A load is sustained if this share of it is served …
const SUSTAINED_SHARE: f64 = 0.99;
/// … and if latency does not grow steadily: that of the second half of a run is at most this factor above that of the first.
const SUSTAINED_GROWTH: f64 = 1.5;
/// The largest number of hosts in the search for a peak, which tries even numbers only.
const PEAK_HOSTS_MAX: u64 = 64;

/// A point that is checked and ready to run.
struct Prepared {
    point: Point,
    subject: Subject,
}

/// An experiment that is checked and ready to run.
pub struct Plan {
    base: Subject,
    finds_peaks: bool,
    prepared: Vec<Prepared>,
}

/// Checks all points, so that an error in any of them is reported before the first run.
pub fn plan(experiment: &Experiment, request: &Request) -> Result<Plan, ParameterError> {
    let mut base = experiment.base.parameters(&[])?;
    if request.thoroughness == Thoroughness::Quick {
        base.shorten();
    }
    for assignment in &request.assignments {
        base = base.set(assignment)?;
    }
    if let Some(replications) = request.replications {
        base = base.set(&format!("run.replications={replications}"))?;
    }
    let points = (experiment.points)(request.thoroughness);
    let asked: Vec<&str> = request.assignments.iter().map(|assignment| key_of(assignment)).collect();
    refuse_what_is_varied(experiment, &points, &asked)?;
    // The user's assignments take precedence over the experiment for the length and the number of runs.
    let is_decided = |key: &str| asked.contains(&key) || (key == "run.replications" && request.replications.is_some());
    let prepare = |point: Point| {
        let own = point.assignments.iter().filter(|assignment| !is_decided(key_of(assignment)));
        let mut subject = own.into_iter().try_fold(base.clone(), |subject, next| subject.set(next))?;
        let says_how_long = ["run.operations", "run.locks_per_process", "run.files"].iter().any(|key| is_decided(key));
        if request.thoroughness == Thoroughness::Quick && !says_how_long {
            subject.cut_short();
        }
        Ok(Prepared { point, subject })
    };
    let prepared = points.into_iter().map(prepare).collect::<Result<_, ParameterError>>()?;
    Ok(Plan { base, finds_peaks: experiment.finds_peaks(), prepared })
}

/// Rejects assignments of parameters that the experiment sets itself: its points would not match their names.
fn refuse_what_is_varied(experiment: &Experiment, points: &[Point], asked: &[&str]) -> Result<(), ParameterError> {
    let own = |key: &&&str| points.iter().flat_map(|point| &point.assignments).any(|own| key_of(own) == **key);
    match asked.iter().filter(|key| !key.starts_with("run.")).find(own) {
        Some(key) => Err(ParameterError::Together(format!(
            "{key} is set by the experiment {} itself; leave it out, or choose another experiment",
            experiment.name
        ))),
        None => Ok(()),
    }
}

/// The name in KEY=VALUE.
fn key_of(assignment: &str) -> &str {
    assignment.split_once('=').map_or(assignment, |(key, _)| key).trim()
}

impl Plan {
    /// The parameters before the assignments of each point.
    pub fn base(&self) -> &Subject {
        &self.base
    }

    /// Keeps only some points.
    pub fn only(mut self, keep: impl Fn(&Point) -> bool) -> Plan {
        self.prepared.retain(|prepared| keep(&prepared.point));
        self
    }

    /// The number of runs; an estimate if peaks are determined.
    pub fn runs(&self) -> u64 {
        let of = |prepared: &Prepared| prepared.subject.replications();
        let measured: u64 = self.prepared.iter().map(of).sum();
        if self.finds_peaks { measured * (1 + u64::from((PEAK_HOSTS_MAX / 2).ilog2())) } else { measured }
    }
}

/// Runs all points. The order of threads does not affect the results.
pub fn run(plan: Plan, request: &Request, progress: &ProgressBar) -> (Vec<Replicated>, RunSpeed) {
    let began = Instant::now();
    let Plan { prepared, finds_peaks, .. } = plan;
    let tasks: Vec<(usize, u64)> = prepared
        .iter()
        .enumerate()
        .flat_map(|(index, prepared)| (0..prepared.subject.replications()).map(move |number| (index, number)))
        .collect();
    let measured: Vec<Measured> = tasks
        .par_iter()
        .with_max_len(1)
        .map(|(index, number)| {
            let Prepared { point, subject } = &prepared[*index];
            let measured = subject.measure(point.series.ordering, seed_of(request.seed, *number));
            progress.inc(1);
            measured
        })
        .collect();
    let peaks: Vec<Option<(Peak, RunSpeed)>> = prepared
        .par_iter()
        .with_max_len(1)
        .map(|prepared| finds_peaks.then(|| find_peak(prepared, request.seed, progress)))
        .collect();
    let mut speed = RunSpeed::default();
    speed.count(&measured);
    for (_, of_peak) in peaks.iter().flatten() {
        speed.runs += of_peak.runs;
        speed.events += of_peak.events;
    }
    (speed.seconds, speed.threads) = (began.elapsed().as_secs_f64(), rayon::current_num_threads());
    let mut measured = measured.into_iter();
    let replicated = prepared
        .into_iter()
        .zip(peaks)
        .map(|(Prepared { point, subject }, peak)| {
            let runs = measured.by_ref().take(subject.replications() as usize).collect();
            Replicated { point, runs, peak: peak.map(|(peak, _)| peak) }
        })
        .collect();
    (replicated, speed)
}

/// A replication has the same seed at every point, so that points do not differ because of the random source.
fn seed_of(seed: u64, replication: u64) -> u64 {
    braid_measure::sampler::Sampler::new(seed ^ replication.wrapping_mul(0x9e37_79b9_7f4a_7c15)).below(u64::MAX)
}

/// Finds the peak load by bisection over the number of hosts.
fn find_peak(prepared: &Prepared, seed: u64, progress: &ProgressBar) -> (Peak, RunSpeed) {
    let mut speed = RunSpeed::default();
    let mut best = Peak { hosts: 0, throughput: Estimate { mean: 0.0, ci95: None } };
    let (mut least, mut most) = (1, PEAK_HOSTS_MAX / 2);
    while least <= most {
        let middle = (least + most) / 2;
        let (runs, offered) = at_hosts(prepared, 2 * middle, seed);
        progress.inc(runs.len() as u64);
        speed.count(&runs);
        let throughput = Estimate::of(&runs.iter().map(|run| run.throughput_ops).collect::<Vec<_>>());
        let growth = runs.iter().map(|run| run.latency_growth).sum::<f64>() / runs.len() as f64;
        if throughput.mean >= SUSTAINED_SHARE * offered && growth <= SUSTAINED_GROWTH {
            best = Peak { hosts: 2 * middle, throughput };
            least = middle + 1;
        } else {
            most = middle - 1;
        }
    }
    (best, speed)
}

/// Runs an array with this many hosts; returns the results and the offered load.
fn at_hosts(prepared: &Prepared, hosts: u64, seed: u64) -> (Vec<Measured>, f64) {
    let Subject::Array(mut parameters) = prepared.subject.clone() else {
        panic!("only arrays have a load that is asked for")
    };
    parameters.system.hosts = hosts;
    let (offered, subject) = (parameters.offered(), Subject::Array(parameters));
    let ordering = prepared.point.series.ordering;
    let runs = (0..subject.replications()).map(|number| subject.measure(ordering, seed_of(seed, number))).collect();
    (runs, offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_the_user_hold_at_every_point() {
        let scale = crate::find("scale").expect("the experiment is listed");
        for thoroughness in [Thoroughness::Full, Thoroughness::Quick] {
            let assignments = vec!["run.operations = 70000".to_string(), "run.backlog_per_host=50".to_string()];
            let request = Request { seed: 1, replications: Some(3), assignments, thoroughness };
            for prepared in plan(scale, &request).expect("the points are valid").prepared {
                let Subject::Array(parameters) = prepared.subject else { panic!("the experiment is about arrays") };
                let run = parameters.run;
                assert_eq!((run.operations, run.backlog_per_host, run.replications), (70_000, 50, 3));
            }
        }
    }
}
