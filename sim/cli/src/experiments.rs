//! The commands `braid sim list`, `run` and `report`: the experiments of the papers on modelled hardware.

use crate::attack::bar;
use crate::failure::Failure;
use braid_benchkit::tables::{tables, text};
use braid_experiments::experiment::{Base, Experiment, Thoroughness};
use braid_experiments::output::Record;
use braid_experiments::report::{self, ReportError};
use braid_experiments::rows::rows_of;
use braid_experiments::run::{Request, RunSpeed, plan, run};
use braid_experiments::{EXPERIMENTS, find};
use braid_measure::ParameterError;
use braid_terminal::{Common, output};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The folder of the results.
const RESULTS: &str = "braid-sim";

#[derive(clap::Args)]
pub struct List {
    /// List the parameters of the papers' baselines and their allowed values instead
    #[arg(long)]
    parameters: bool,
}

#[derive(clap::Args)]
pub struct Run {
    /// The experiments to run; `braid sim list` shows their names
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Run all experiments
    #[arg(long)]
    all: bool,
    /// The seed, which determines all random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Independent runs of each point, at least 1 [default: run.replications]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1000))]
    replications: Option<u64>,
    /// Set a parameter that the experiment does not set itself; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE")]
    assignments: Vec<String>,
    /// A quick look: few points, operations and replications
    #[arg(long)]
    quick: bool,
    /// The folder for the results, which must not exist yet [default: braid-sim/NAME, or braid-sim/all]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Report {
    /// A folder that `run` has written, or the one that contains such folders [default: braid-sim]
    #[arg(value_name = "DIR", conflicts_with = "out")]
    dir: Option<PathBuf>,
    /// The same, named as for `run`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn list(arguments: &List, common: &Common) -> Result<ExitCode, Failure> {
    if arguments.parameters {
        return list_parameters(common);
    }
    let json = || {
        let one = |experiment: &Experiment| {
            json!({"name": experiment.name, "title": experiment.title, "about": experiment.about, "x": experiment.x.name,
                   "parameters": experiment.base.file()})
        };
        json!({"schema": 2, "experiments": EXPERIMENTS.iter().map(one).collect::<Vec<_>>()})
    };
    let rows = || EXPERIMENTS.iter().map(|one| vec![one.name.to_string(), one.title.to_string()]).collect::<Vec<_>>();
    output::print(common.json, json, || output::table(&rows()));
    Ok(ExitCode::SUCCESS)
}

fn list_parameters(common: &Common) -> Result<ExitCode, Failure> {
    let mut listed = Vec::new();
    for base in [Base::SharedArray, Base::DeviceAtomics, Base::OnePhaseCommit] {
        let subject = base.parameters(&[]).map_err(failure)?;
        for (name, value) in subject.list() {
            let allowed =
                subject.limits_of(&name).map_or("a word; an error message lists the choices".to_string(), |limits| {
                    format!("{} to {}", limits.start(), limits.end())
                });
            listed.push((base.file(), name, value, allowed));
        }
    }
    let json = || {
        let one = |(file, name, value, allowed): &(&str, String, String, String)| json!({"allowed": allowed, "file": file, "name": name, "value": value});
        json!({"schema": 2, "parameters": listed.iter().map(one).collect::<Vec<_>>()})
    };
    let rows = || {
        let one = |(file, name, value, allowed): &(&str, String, String, String)| {
            vec![name.clone(), value.clone(), allowed.clone(), file.to_string()]
        };
        listed.iter().map(one).collect::<Vec<_>>()
    };
    output::print(common.json, json, || output::table(&rows()));
    Ok(ExitCode::SUCCESS)
}

pub fn execute_run(arguments: &Run, common: &Common) -> Result<ExitCode, Failure> {
    let experiments = chosen(arguments)?;
    let request = Request {
        seed: arguments.seed,
        replications: arguments.replications,
        assignments: arguments.assignments.clone(),
        thoroughness: if arguments.quick { Thoroughness::Quick } else { Thoroughness::Full },
    };
    // All errors in the request are reported before anything is created.
    let plans = experiments
        .iter()
        .map(|experiment| plan(experiment, &request))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failure)?;
    let dir = folder(arguments, &experiments)?;
    std::fs::create_dir_all(&dir).map_err(|error| cannot_write(&dir, &error))?;
    let progress = bar(plans.iter().map(|plan| plan.runs()).sum(), "{wide_bar} {pos}/{len} runs, {eta} left: {msg}");
    let mut records = Vec::new();
    for (experiment, plan) in experiments.into_iter().zip(plans) {
        progress.set_message(experiment.name);
        let parameters = plan.base().list();
        let (replicated, speed) = run(plan, &request, &progress);
        let rows = rows_of(experiment, &replicated);
        let record = Record::new(experiment, &request, parameters, rows, speed);
        let written = braid_experiments::output::write(&dir, experiment, &record);
        written.map_err(|error| cannot_write(&dir, &error))?;
        if !common.json {
            let tables = text(&tables(experiment.metrics, experiment.x.title, &record.rows));
            let RunSpeed { runs, events, seconds, .. } = speed;
            let rate = events as f64 / seconds;
            let speed = format!("{runs} runs, {events} events in {seconds:.1} s: {rate:.0} a second");
            progress.suspend(|| {
                output::print(false, || json!(null), || format!("{}\n{speed}\n\n{tables}", experiment.title))
            });
        }
        records.push(record);
    }
    progress.finish_and_clear();
    let json = || json!({"schema": 2, "dir": dir, "results": records});
    output::print(common.json, json, || {
        format!("The results are in {0}; `braid sim report {0}` makes a page of them\n", dir.display())
    });
    Ok(ExitCode::SUCCESS)
}

fn chosen(arguments: &Run) -> Result<Vec<&'static Experiment>, Failure> {
    if arguments.all {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let mut experiments: Vec<&Experiment> = Vec::new();
    for name in &arguments.names {
        let experiment = find(name).ok_or_else(|| {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            Failure::usage("no-such-experiment", format!("there is no experiment '{name}'"))
                .hint(format!("choose one of {}", names.join(", ")))
        })?;
        // An experiment that is named twice is run once.
        if !experiments.iter().any(|known| known.name == experiment.name) {
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

fn folder(arguments: &Run, experiments: &[&Experiment]) -> Result<PathBuf, Failure> {
    let one = match experiments {
        [one] => one.name,
        _ => "all",
    };
    let dir = arguments.out.clone().unwrap_or_else(|| Path::new(RESULTS).join(one));
    if dir.exists() {
        return Err(Failure::usage("exists", format!("{} exists already", dir.display()))
            .hint("choose another folder with --out, or remove this one"));
    }
    Ok(dir)
}

pub fn execute_report(arguments: &Report, common: &Common) -> Result<ExitCode, Failure> {
    let dir = arguments.dir.as_ref().or(arguments.out.as_ref()).map_or(Path::new(RESULTS), PathBuf::as_path);
    let path = report::write(dir).map_err(|error| match &error {
        ReportError::Empty { .. } => Failure::unreachable("no-results", error.to_string()),
        ReportError::File { .. } | ReportError::NotOurs { .. } => Failure::failed("report", error.to_string()),
    })?;
    output::print(common.json, || json!({"schema": 2, "report": path}), || format!("{}\n", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn failure(error: ParameterError) -> Failure {
    match error {
        ParameterError::Unknown { key, names } => {
            Failure::usage("no-such-parameter", format!("there is no parameter '{key}'"))
                .hint(format!("choose one of {}", names.join(", ")))
        }
        error => Failure::usage("parameter", error.to_string()),
    }
}

fn cannot_write(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::failed("output", format!("{}: {error}", dir.display()))
}
