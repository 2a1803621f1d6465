//! Runs experiments for the tests of their shapes.

use crate::experiment::{Experiment, Point, Thoroughness};
use crate::rows::rows_of;
use crate::run::{Request, plan, run};
use braid_benchkit::rows::{Row, lookup};
use indicatif::ProgressBar;

/// The results of an experiment.
pub struct Results(Vec<Row>);

impl Results {
    /// Runs the points that `keep` names, with seed 1 and assignments that are separated by blanks.
    pub fn of(
        experiment: &Experiment,
        thoroughness: Thoroughness,
        replications: u64,
        assignments: &str,
        keep: impl Fn(&Point) -> bool,
    ) -> Results {
        let assignments = assignments.split_whitespace().map(str::to_string).collect();
        let request = Request { seed: 1, replications: Some(replications), assignments, thoroughness };
        let plan = plan(experiment, &request).expect("the points are valid").only(keep);
        Results(rows_of(experiment, &run(plan, &request, &ProgressBar::hidden()).0))
    }

    /// The mean of a metric at a point.
    pub fn value(&self, panel: &str, series: &str, x: f64, metric: &str) -> f64 {
        lookup(&self.0, panel, series, x, metric).unwrap_or_else(|| panic!("{panel} {series} {x} {metric}")).ours
    }
}
