//! What an experiment is: points at which arrays are run, and how they are shown.

use braid_benchkit::plot::{Axis, PlotKind};
use braid_measure::named::Limit;
use braid_measure::{LockParameters, Measured, Named, ParameterError, Parameters};
use braid_wire::Ordering;

/// An experiment.
pub struct Experiment {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Over its plots.
    pub title: &'static str,
    /// What it shows, and what the paper says of that.
    pub about: &'static str,
    /// What it starts from.
    pub base: Base,
    /// What the horizontal values are.
    pub x: Axis,
    /// Where arrays are run.
    pub points: fn(Thoroughness) -> Vec<Point>,
    /// Whether the greatest sustained load of each series is looked for, too.
    pub finds_peaks: bool,
    /// How it is drawn: one plot for each of these, in each panel.
    pub plots: &'static [PlotKind],
    /// What its table on the terminal shows.
    pub metrics: &'static [&'static str],
}

/// A file of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The shared-array paper's baseline.
    SharedArray,
    /// Hardware of today.
    Today,
    /// The device-atomics paper's experiment.
    DeviceAtomics,
}

impl Base {
    /// All of them.
    pub const ALL: [Base; 3] = [Base::SharedArray, Base::Today, Base::DeviceAtomics];

    /// The file's text.
    pub fn text(self) -> &'static str {
        match self {
            Base::SharedArray => include_str!("../parameters/shared-array.toml"),
            Base::Today => include_str!("../parameters/today.toml"),
            Base::DeviceAtomics => include_str!("../parameters/device-atomics.toml"),
        }
    }

    /// The file's name.
    pub fn file(self) -> &'static str {
        match self {
            Base::SharedArray => "shared-array.toml",
            Base::Today => "today.toml",
            Base::DeviceAtomics => "device-atomics.toml",
        }
    }

    /// What it says, with `assignments` made.
    pub fn parameters(self, assignments: &[String]) -> Result<Subject, ParameterError> {
        let base = match self {
            Base::SharedArray | Base::Today => Parameters::parse(self.text()).map(Subject::Array),
            Base::DeviceAtomics => LockParameters::parse(self.text()).map(Subject::Locks),
        };
        let base = base.expect("the files that are built in are sound");
        assignments.iter().try_fold(base, |parameters, assignment| parameters.set(assignment))
    }
}

/// What is run, with all that decides it but the seed.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// An array that serves reads and writes.
    Array(Parameters),
    /// Processes that lock objects.
    Locks(LockParameters),
}

impl Subject {
    /// The same with one of the parameters set: `assignment` is KEY=VALUE.
    pub fn set(&self, assignment: &str) -> Result<Subject, ParameterError> {
        match self {
            Subject::Array(parameters) => parameters.set(assignment).map(Subject::Array),
            Subject::Locks(parameters) => parameters.set(assignment).map(Subject::Locks),
        }
    }

    /// Names and values, in the order of the files.
    pub fn list(&self) -> Vec<(String, String)> {
        match self {
            Subject::Array(parameters) => parameters.list(),
            Subject::Locks(parameters) => parameters.list(),
        }
    }

    /// What each number may be.
    pub fn limits(&self) -> &'static [Limit] {
        match self {
            Subject::Array(_) => Parameters::LIMITS,
            Subject::Locks(_) => LockParameters::LIMITS,
        }
    }

    /// Independent runs of each point.
    pub fn replications(&self) -> u64 {
        match self {
            Subject::Array(parameters) => parameters.run.replications,
            Subject::Locks(parameters) => parameters.run.replications,
        }
    }

    /// Runs it once. Arrays are ordered in one of the five ways.
    pub fn measure(&self, ordering: Option<Ordering>, seed: u64) -> Measured {
        match self {
            Subject::Array(parameters) => {
                braid_measure::measure(parameters, ordering.expect("arrays have an ordering"), seed)
            }
            Subject::Locks(parameters) => braid_measure::locking::measure(parameters, seed),
        }
    }

    /// Short enough for a first look.
    pub fn shorten(&mut self) {
        match self {
            Subject::Array(Parameters { run, .. }) => {
                (run.operations, run.warm_up_operations, run.replications) = (2_500, 500, 2);
            }
            Subject::Locks(LockParameters { run, .. }) => {
                (run.locks_per_process, run.replications) = (200, 2);
            }
        }
    }

    /// Not much longer than that, whatever a point asks for.
    pub fn cut_short(&mut self) {
        match self {
            Subject::Array(Parameters { run, .. }) => run.operations = run.operations.min(10_000),
            Subject::Locks(LockParameters { run, .. }) => run.locks_per_process = run.locks_per_process.min(200),
        }
    }
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// As many points and operations as a figure needs.
    Full,
    /// A first look.
    Quick,
}

/// Where an array is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which part of the figure; empty if it has but one.
    pub panel: String,
    /// Which line.
    pub series: Series,
    /// Where on it.
    pub x: f64,
    /// What `x` stands for, where it is no quantity.
    pub label: Option<String>,
    /// What is different from the base.
    pub assignments: Vec<String>,
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In files and legends.
    pub name: String,
    /// How its array is ordered, if it is one.
    pub ordering: Option<Ordering>,
    /// The series that it is set in relation to, point by point.
    pub reference: Option<String>,
    /// Whether the paper's numbers of that ordering are about it.
    pub in_paper: bool,
}

impl Series {
    /// An ordering as in the paper, in relation to the unprotected protocol.
    pub fn of(ordering: Ordering) -> Series {
        let none = Ordering::None.name().to_string();
        Series {
            name: ordering.name().to_string(),
            ordering: Some(ordering),
            reference: (ordering != Ordering::None).then_some(none),
            in_paper: true,
        }
    }

    /// One of locks.
    pub fn of_locks(name: &str, reference: Option<&str>) -> Series {
        let reference = reference.filter(|reference| *reference != name).map(str::to_string);
        Series { name: name.to_string(), ordering: None, reference, in_paper: false }
    }
}

impl Point {
    /// A point of a figure with one panel.
    pub fn new(ordering: Ordering, x: f64, assignments: impl IntoIterator<Item = String>) -> Point {
        let assignments = assignments.into_iter().collect();
        Point { panel: String::new(), series: Series::of(ordering), x, label: None, assignments }
    }
}
