//! Tests of the experiments: every experiment in a very short form, the same seed twice, and invalid requests.

use braid_experiments::experiment::{Base, Experiment, Thoroughness};
use braid_experiments::output::{Record, write};
use braid_experiments::rows::rows_of;
use braid_experiments::run::{Request, plan, run};
use braid_experiments::{EXPERIMENTS, find, report};
use indicatif::ProgressBar;
use std::path::PathBuf;

/// A request so short that all experiments together take seconds.
fn request(seed: u64) -> Request {
    request_of(find("shared-array-fig6").expect("the experiment is listed"), seed)
}

fn request_of(experiment: &Experiment, seed: u64) -> Request {
    let assignments = match experiment.base {
        Base::SharedArray | Base::Today => "run.operations=100 run.warm_up_operations=20",
        Base::OnePhaseCommit => "run.operations=20",
        Base::RangeLocks | Base::RangeLocksToday => "run.files=2",
        Base::DeviceAtomics => "run.locks_per_process=5",
    };
    let assignments = assignments.split(' ').map(str::to_string).collect();
    Request { seed, replications: Some(2), assignments, thoroughness: Thoroughness::Quick }
}

fn record(experiment: &Experiment, seed: u64) -> Record {
    let request = request_of(experiment, seed);
    let plan = plan(experiment, &request).expect("the points are valid");
    let parameters = plan.base().list();
    let (replicated, speed) = run(plan, &request, &ProgressBar::hidden());
    Record::new(experiment, &request, parameters, rows_of(experiment, &replicated), speed)
}

/// A folder for one test.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("braid-experiments-{}-{name}", std::process::id()));
    std::fs::create_dir(&dir).expect("the folder is new");
    dir
}

#[test]
fn every_experiment_runs_and_is_reported() {
    let dir = folder("all");
    for experiment in EXPERIMENTS.iter().filter(|experiment| experiment.name != "scale") {
        let record = record(experiment, 1);
        for metric in experiment.metrics {
            assert!(record.rows.iter().any(|row| row.metric == *metric), "{}: {metric}", experiment.name);
        }
        let sound = record.rows.iter().all(|row| row.ours.is_finite());
        assert!(sound, "{}: {:?}", experiment.name, record.rows.iter().find(|row| !row.ours.is_finite()));
        let written = write(&dir, experiment, &record).expect("the folder takes files");
        let panels = record.rows.iter().map(|row| &row.panel).collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(written.len(), 2 + experiment.plots.len() * panels, "{}", experiment.name);
        let text =
            std::fs::read_to_string(dir.join(format!("{}.json", experiment.name))).expect("the file was written");
        let again: Record = serde_json::from_str(&text).expect("records can be read");
        assert_eq!((again.rows.len(), &again.name), (record.rows.len(), &record.name));
    }
    let page = std::fs::read_to_string(report::write(&dir).expect("there are results")).expect("the file was written");
    for experiment in EXPERIMENTS.iter().filter(|experiment| experiment.name != "scale") {
        assert!(page.contains(&format!("<section id=\"{}\">", experiment.name)), "{}", experiment.name);
    }
    assert!(!page.contains("src=") && !page.contains("url("), "the page must not need other files");
    std::fs::remove_dir_all(dir).expect("the folder belongs to this test");
}

#[test]
fn one_seed_gives_one_file() {
    let experiment = find("shared-array-fig11").expect("the experiment is listed");
    let csv = |seed: u64, name: &str| {
        let dir = folder(name);
        write(&dir, experiment, &record(experiment, seed)).expect("the folder takes files");
        let text = std::fs::read_to_string(dir.join("shared-array-fig11.csv")).expect("the file was written");
        std::fs::remove_dir_all(dir).expect("the folder belongs to this test");
        text
    };
    let first = csv(7, "first");
    assert_eq!(first, csv(7, "second"));
    assert_ne!(first, csv(8, "third"));
}

#[test]
fn the_user_chooses_the_length_and_number_of_runs() {
    let scale = find("scale").expect("the experiment is listed");
    let points = (scale.points)(Thoroughness::Quick).len() as u64;
    let runs = |replications, assignments: &[&str]| {
        let assignments = assignments.iter().map(|text| text.to_string()).collect();
        plan(scale, &Request { seed: 1, replications, assignments, thoroughness: Thoroughness::Quick })
            .expect("the points are valid")
            .runs()
    };
    assert_eq!(runs(None, &[]), 2 * points);
    assert_eq!(runs(Some(7), &[]), 7 * points);
    assert_eq!(runs(None, &["run.replications=3"]), 3 * points);
    let figure = find("shared-array-fig11").expect("the experiment is listed");
    let record = record(figure, 4);
    assert_eq!(
        record.command(),
        "braid sim run shared-array-fig11 --seed 4 --quick --replications 2 --set run.operations=100 --set run.warm_up_operations=20"
    );
}

#[test]
fn bad_requests_are_refused_before_anything_runs() {
    let experiment = find("shared-array-fig6").expect("the experiment is listed");
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut request = request(1);
        change(&mut request);
        plan(experiment, &request).err().expect("it can't be").to_string()
    };
    assert!(refused(&|request| request.replications = Some(0)).contains("from 1 to 1000"));
    assert!(refused(&|request| request.assignments.push("disk.speed=3".to_string())).contains("choose one of"));
    assert!(
        refused(&|request| request.assignments.push("workload.read_fraction=2".to_string())).contains("from 0 to 1")
    );
    let varied = refused(&|request| request.assignments.push("system.hosts = 32".to_string()));
    assert!(varied.contains("system.hosts is set by the experiment shared-array-fig6 itself"), "{varied}");
    assert!(refused(&|request| request.assignments.push("run.operations=1".to_string())).contains("from 100 to"));
    assert!(find("shared-array-fig7").is_none());
    let empty = folder("empty");
    assert!(report::write(&empty).expect_err("the folder is empty").to_string().contains("braid sim run"));
    std::fs::write(empty.join("shared-array-fig6.json"), "{}").expect("the folder takes files");
    assert!(report::write(&empty).expect_err("that is no record").to_string().contains("is not a result of"));
    std::fs::remove_dir_all(empty).expect("the folder belongs to this test");
}
