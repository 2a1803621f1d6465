//! The files of an experiment: NAME.csv, NAME.json and a plot for each part of the figure.

use crate::experiment::{Experiment, Thoroughness};
use crate::run::{Request, RunSpeed};
use braid_benchkit::plot::{Plot, plots_of};
use braid_benchkit::rows::Row;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The content of NAME.json: enough to repeat the run and to report it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this format.
    pub schema: u32,
    /// The name of the experiment.
    pub name: String,
    pub title: String,
    /// What the experiment shows.
    pub about: String,
    /// The meaning of `x`.
    pub x: String,
    pub seed: u64,
    /// Whether the run had few points and operations.
    pub quick: bool,
    /// The parameter file that the run started from.
    pub base: String,
    /// The assignments of the command line.
    pub set: Vec<String>,
    /// The number of replications on the command line, if given.
    #[serde(default)]
    pub replications: Option<u64>,
    /// The parameters before the assignments of each point.
    pub parameters: Vec<(String, String)>,
    pub speed: RunSpeed,
    pub rows: Vec<Row>,
}

impl Record {
    /// The record of a run.
    pub fn new(
        experiment: &Experiment,
        request: &Request,
        parameters: Vec<(String, String)>,
        rows: Vec<Row>,
        speed: RunSpeed,
    ) -> Record {
        Record {
            schema: 1,
            name: experiment.name.to_string(),
            title: experiment.title.to_string(),
            about: experiment.about.to_string(),
            x: experiment.x.name.to_string(),
            seed: request.seed,
            quick: request.thoroughness == Thoroughness::Quick,
            base: experiment.base.file().to_string(),
            set: request.assignments.clone(),
            replications: request.replications,
            parameters,
            speed,
            rows,
        }
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        let replications = self.replications.map(|count| format!(" --replications {count}")).unwrap_or_default();
        let without_blanks = |assignment: &str| assignment.split('=').map(str::trim).collect::<Vec<_>>().join("=");
        let set: String = self.set.iter().map(|assignment| format!(" --set {}", without_blanks(assignment))).collect();
        format!("braid sim run {} --seed {}{quick}{replications}{set}", self.name, self.seed)
    }
}

/// Writes the files of an experiment into an existing folder. The CSV does not contain the speed of the run, so that the same seed
/// gives the same file.
pub fn write(dir: &Path, experiment: &Experiment, record: &Record) -> io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let mut put = |name: String, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        written.push(path);
        io::Result::Ok(())
    };
    put(format!("{}.csv", record.name), csv(&record.rows))?;
    let json = serde_json::to_string_pretty(record).expect("records are JSON");
    put(format!("{}.json", record.name), json + "\n")?;
    for Plot { suffix, svg, .. } in plots_of(experiment.title, experiment.x, experiment.plots, &record.rows) {
        put(format!("{}{suffix}.svg", record.name), svg)?;
    }
    Ok(written)
}

/// Rows as comma-separated values.
fn csv(rows: &[Row]) -> String {
    let mut text = "panel,series,x,label,metric,ours,ci95,paper,difference\n".to_string();
    let optional = |value: Option<f64>| value.map(|value| format!("{value:.6}")).unwrap_or_default();
    for row in rows {
        let quoted = |text: &str| if text.contains(',') { format!("\"{text}\"") } else { text.to_string() };
        text.push_str(&format!(
            "{},{},{},{},{},{:.6},{},{},{}\n",
            quoted(&row.panel),
            row.series,
            row.x,
            quoted(row.label.as_deref().unwrap_or_default()),
            row.metric,
            row.ours,
            optional(row.ci95),
            optional(row.paper),
            optional(row.difference)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_benchkit::statistics::Estimate;

    fn row(series: &str, x: f64, ours: f64, paper: Option<f64>) -> Row {
        let difference = paper.map(|paper| ours / paper - 1.0);
        let estimate = Estimate { mean: ours, ci95: Some(0.5) };
        Row { paper, difference, ..Row::new("", series, x, "latency_ms", estimate) }
    }

    #[test]
    fn csv_has_a_line_for_each_row_and_empty_cells_for_what_is_unknown() {
        let text = csv(&[row("none", 4.0, 20.0, None), row("none", 8.0, 33.0, Some(30.0))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], ",none,4,,latency_ms,20.000000,0.500000,,");
        assert_eq!(lines[2], ",none,8,,latency_ms,33.000000,0.500000,30.000000,0.100000");
    }
}
