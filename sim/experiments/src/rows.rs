//! The results of an experiment as rows: one for each metric of each point.

use crate::experiment::{Experiment, Point};
use crate::paper;
use crate::run::Replicated;
use braid_benchkit::rows::Row;
use braid_benchkit::statistics::Estimate;
use braid_measure::Measured;
use braid_measure::tally::CommitCounts;

type Reading = (&'static str, fn(&Measured) -> f64);

/// The metrics that are read from each run.
const READINGS: &[Reading] = &[
    ("latency_ms", |run| run.latency_ms),
    ("latency_p50_ms", |run| run.latency_p50_ms),
    ("latency_p99_ms", |run| run.latency_p99_ms),
    ("throughput_ops", |run| run.throughput_ops),
    ("messages_per_op", |run| run.messages_per_op),
    ("callbacks_per_op", |run| run.callbacks_per_op.unwrap_or(f64::NAN)),
    ("kept_fraction", |run| run.kept_fraction.unwrap_or(f64::NAN)),
    ("delayed_fraction", |run| run.delayed_fraction),
    ("restarts_per_op", |run| run.restarts_per_op),
    ("disk_utilization", |run| run.disk_utilization),
    ("lock_server_utilization", |run| run.lock_server_utilization),
    ("failed_ops", |run| run.failed as f64),
    ("requests_per_lock", |run| run.requests_per_lock.unwrap_or(f64::NAN)),
    // As the contention benchmark defines it: two requests are needed for each lock.
    ("efficiency", |run| run.requests_per_lock.map_or(f64::NAN, |requests| 2.0 / requests)),
    ("forced_writes", |run| of_commits(run, |counts| counts.forced_writes)),
    ("unforced_writes", |run| of_commits(run, |counts| counts.unforced_writes)),
    ("critical_writes", |run| of_commits(run, |counts| counts.critical_writes)),
    ("protocol_messages", |run| of_commits(run, |counts| counts.protocol_messages)),
    ("critical_messages", |run| of_commits(run, |counts| counts.critical_messages)),
    ("writes_under_lock", |run| of_commits(run, |counts| counts.writes_under_lock)),
    ("messages_under_lock", |run| of_commits(run, |counts| counts.messages_under_lock)),
    ("log_writes", |run| of_commits(run, |counts| counts.log_writes)),
    ("operations_per_transaction", |run| of_commits(run, |counts| counts.operations_per_transaction)),
    ("processor_utilization", |run| run.commits.map_or(f64::NAN, |_| run.lock_server_utilization)),
    ("kept_up", |run| f64::from(u8::from(run.kept_up))),
];

/// A count of commit protocols, if the run has them.
fn of_commits(run: &Measured, reading: fn(&CommitCounts) -> f64) -> f64 {
    run.commits.as_ref().map_or(f64::NAN, reading)
}

/// The rows of an experiment: measured values, and their relation to those of the reference series at the same point.
pub fn rows_of(experiment: &Experiment, replicated: &[Replicated]) -> Vec<Row> {
    let mut rows = Vec::new();
    for found in replicated {
        let in_paper = found.point.series.in_paper;
        let mut push = |metric: &str, estimate: Estimate, paper: Option<f64>| {
            // Values that are not numbers, such as a share of nothing, get no row.
            if !estimate.mean.is_finite() {
                return;
            }
            let paper = paper.filter(|_| in_paper);
            let difference = paper.filter(|paper| *paper != 0.0).map(|paper| estimate.mean / paper - 1.0);
            let ci95 = estimate.ci95.filter(|ci95| ci95.is_finite());
            let Point { panel, series, x, label, .. } = &found.point;
            let row = Row::new(panel, &series.name, *x, metric, Estimate { ci95, ..estimate });
            rows.push(Row { label: label.clone(), paper, difference, ..row });
        };
        let name = &found.point.series.name;
        let stated = |metric: &str| paper::stated_value(experiment.name, name, found.point.x, metric);
        for (metric, reading) in READINGS {
            let values: Vec<f64> = found.runs.iter().map(reading).collect();
            push(metric, Estimate::of(&values), stated(metric));
        }
        if let Some(peak) = found.peak {
            push("peak_ops", peak.throughput, stated("peak_ops"));
            push("peak_hosts", Estimate { mean: peak.hosts as f64, ci95: None }, None);
        }
        let at_same_point = |other: &&Replicated| {
            (&other.point.panel, other.point.x) == (&found.point.panel, found.point.x)
                && Some(&other.point.series.name) == found.point.series.reference.as_ref()
        };
        let Some(reference) = replicated.iter().find(at_same_point) else { continue };
        // Replications are compared in pairs of the same seed, so that the effect of the random source on both cancels out.
        let pairs = || found.runs.iter().zip(&reference.runs);
        if found.point.series.ordering.is_none() {
            let ratios: Vec<f64> = pairs().map(|(own, other)| own.throughput_ops / other.throughput_ops).collect();
            push("throughput_ratio", Estimate::of(&ratios), stated("throughput_ratio"));
            continue;
        }
        let derived = |metric| paper::derived_value(experiment.name, name, metric);
        let ratios: Vec<f64> = pairs().map(|(own, none)| own.latency_ms / none.latency_ms).collect();
        push("latency_ratio", Estimate::of(&ratios), derived("latency_ratio"));
        let extra: Vec<f64> = pairs().map(|(own, none)| own.messages_per_op - none.messages_per_op).collect();
        push("extra_messages", Estimate::of(&extra), derived("extra_messages"));
        if let (Some(own), Some(none)) = (found.peak, reference.peak) {
            let ratio = own.throughput.mean / none.throughput.mean;
            push("peak_ratio", Estimate { mean: ratio, ci95: None }, derived("peak_ratio"));
        }
    }
    rows
}
