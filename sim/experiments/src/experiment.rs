//! The definition of an experiment: the points at which arrays are run, and their presentation.

use braid_benchkit::plot::{Axis, PlotKind};
use braid_measure::locking::system::LockingSystem;
use braid_measure::range_locks::system::RangeSystem;
use braid_measure::{
    CommitParameters, Limits, LockParameters, Measured, Named, ParameterError, Parameters, RangeParameters, Sections,
};
use braid_ordering::Ordering;

pub(crate) const THROUGHPUT: Axis = Axis { name: "throughput_ops", title: "throughput (operations/s)" };

pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The title of its plots.
    pub title: &'static str,
    /// What the experiment shows, and what the paper says about it.
    pub about: &'static str,
    /// The parameters that it starts from.
    pub base: Base,
    pub x: Axis,
    /// The points at which arrays are run.
    pub points: fn(Thoroughness) -> Vec<Point>,
    /// The plots: one of each kind for each panel.
    pub plots: &'static [PlotKind],
    /// The metrics of the table on the terminal.
    pub metrics: &'static [&'static str],
}

impl Experiment {
    /// Whether the peak load of each series is determined, too.
    pub fn finds_peaks(&self) -> bool {
        self.metrics.contains(&"peak_ops")
    }
}

/// A parameter file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The shared-array paper's baseline.
    SharedArray,
    /// Today's hardware.
    Today,
    /// The device-atomics paper's experiment.
    DeviceAtomics,
    /// The one-phase-commit paper's experiment.
    OnePhaseCommit,
    /// The range-lock paper's experiment.
    RangeLocks,
    /// The same on today's hardware.
    RangeLocksToday,
}

impl Base {
    pub const ALL: [Base; 6] = [
        Base::SharedArray,
        Base::Today,
        Base::DeviceAtomics,
        Base::OnePhaseCommit,
        Base::RangeLocks,
        Base::RangeLocksToday,
    ];

    /// The name of the file, and its text.
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Base::SharedArray => ("shared-array.toml", include_str!("../parameters/shared-array.toml")),
            Base::Today => ("today.toml", include_str!("../parameters/today.toml")),
            Base::DeviceAtomics => ("device-atomics.toml", include_str!("../parameters/device-atomics.toml")),
            Base::OnePhaseCommit => ("one-phase-commit.toml", include_str!("../parameters/one-phase-commit.toml")),
            Base::RangeLocks => ("range-locks.toml", include_str!("../parameters/range-locks.toml")),
            Base::RangeLocksToday => ("range-locks-today.toml", include_str!("../parameters/range-locks-today.toml")),
        }
    }

    pub fn text(self) -> &'static str {
        self.source().1
    }

    pub fn file(self) -> &'static str {
        self.source().0
    }

    /// The parameters of the file, with `assignments` applied.
    pub fn parameters(self, assignments: &[String]) -> Result<Subject, ParameterError> {
        let base = match self {
            Base::SharedArray | Base::Today => Parameters::parse(self.text()).map(Subject::Array),
            Base::DeviceAtomics => LockParameters::parse(self.text()).map(Subject::Locks),
            Base::OnePhaseCommit => CommitParameters::parse(self.text()).map(Subject::Commits),
            Base::RangeLocks | Base::RangeLocksToday => RangeParameters::parse(self.text()).map(Subject::Ranges),
        };
        let base = base.expect("the built-in files are valid");
        assignments.iter().try_fold(base, |parameters, assignment| parameters.set(assignment))
    }
}

/// The subject of a run, with all that determines it except the seed.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// An array that serves reads and writes.
    Array(Parameters),
    /// Processes that lock objects.
    Locks(LockParameters),
    /// Metadata servers with operations that span several of them.
    Commits(CommitParameters),
    /// Clients that lock ranges of files.
    Ranges(RangeParameters),
}

/// The same of each kind of parameters.
macro_rules! of_any {
    ($subject:expr, $parameters:ident => $value:expr) => {
        match $subject {
            Subject::Array($parameters) => $value,
            Subject::Locks($parameters) => $value,
            Subject::Commits($parameters) => $value,
            Subject::Ranges($parameters) => $value,
        }
    };
}

impl Subject {
    /// The same with one parameter changed: `assignment` is KEY=VALUE.
    pub fn set(&self, assignment: &str) -> Result<Subject, ParameterError> {
        match self {
            Subject::Array(parameters) => parameters.set(assignment).map(Subject::Array),
            Subject::Locks(parameters) => parameters.set(assignment).map(Subject::Locks),
            Subject::Commits(parameters) => parameters.set(assignment).map(Subject::Commits),
            Subject::Ranges(parameters) => parameters.set(assignment).map(Subject::Ranges),
        }
    }

    /// Names and values, in the order of the files.
    pub fn list(&self) -> Vec<(String, String)> {
        of_any!(self, parameters => parameters.list())
    }

    /// The limits of the number with this name; none for a word.
    pub fn limits_of(&self, name: &str) -> Option<&'static Limits> {
        of_any!(self, parameters => parameters.limits_of(name))
    }

    /// Independent runs of each point.
    pub fn replications(&self) -> u64 {
        of_any!(self, parameters => parameters.run.replications)
    }

    /// Runs the subject once. Arrays need an ordering.
    pub fn measure(&self, ordering: Option<Ordering>, seed: u64) -> Measured {
        match self {
            Subject::Array(parameters) => {
                braid_measure::measure(parameters, ordering.expect("arrays have an ordering"), seed)
            }
            Subject::Locks(parameters) => LockingSystem::new(parameters, seed).run(),
            Subject::Commits(parameters) => braid_measure::commits::measure(parameters, seed),
            Subject::Ranges(parameters) => RangeSystem::new(parameters, seed).run(),
        }
    }

    /// Shortens the run for a quick look.
    pub fn shorten(&mut self) {
        match self {
            Subject::Array(Parameters { run, .. }) => {
                (run.operations, run.warm_up_operations, run.replications) = (2_500, 500, 2);
            }
            Subject::Locks(LockParameters { run, .. }) => {
                (run.locks_per_process, run.replications) = (200, 2);
            }
            Subject::Commits(CommitParameters { run, .. }) => run.replications = 2,
            Subject::Ranges(RangeParameters { run, .. }) => (run.files, run.replications) = (20, 2),
        }
    }

    /// Limits the run to little more than that, whatever a point sets.
    pub fn cut_short(&mut self) {
        match self {
            Subject::Array(Parameters { run, .. }) => run.operations = run.operations.min(10_000),
            Subject::Locks(LockParameters { run, .. }) => run.locks_per_process = run.locks_per_process.min(200),
            Subject::Commits(CommitParameters { run, .. }) => run.operations = run.operations.min(1000),
            Subject::Ranges(RangeParameters { run, .. }) => run.files = run.files.min(20),
        }
    }
}

/// How thorough a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// As many points and operations as a figure needs.
    Full,
    /// A quick look.
    Quick,
}

impl Thoroughness {
    /// The list that applies: a full one, or the quick one.
    pub fn of<'a, T>(self, full: &'a [T], quick: &'a [T]) -> &'a [T] {
        if self == Thoroughness::Full { full } else { quick }
    }
}

/// A point at which an array is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The part of the figure; empty if the figure has one part.
    pub panel: String,
    pub series: Series,
    /// The horizontal value.
    pub x: f64,
    /// The meaning of `x`, where it is not a quantity.
    pub label: Option<String>,
    /// The parameters that differ from the base.
    pub assignments: Vec<String>,
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in files and legends.
    pub name: String,
    /// The ordering, if the subject is an array.
    pub ordering: Option<Ordering>,
    /// The series with which it is compared, point by point.
    pub reference: Option<String>,
    /// Whether the paper's numbers of that ordering, or of the protocol of that name, apply to it.
    pub in_paper: bool,
}

impl Series {
    /// A series of the paper's ordering, compared with the unprotected protocol.
    pub fn of(ordering: Ordering) -> Series {
        let none = Ordering::None.name().to_string();
        Series {
            name: ordering.name().to_string(),
            ordering: Some(ordering),
            reference: (ordering != Ordering::None).then_some(none),
            in_paper: true,
        }
    }

    /// A series of an experiment on locks.
    pub fn of_locks(name: &str, reference: Option<&str>) -> Series {
        let reference = reference.filter(|reference| *reference != name).map(str::to_string);
        Series { name: name.to_string(), ordering: None, reference, in_paper: false }
    }

    /// A series of an experiment on commit protocols, which the paper has, too.
    pub fn of_commits(name: &str, reference: Option<&str>) -> Series {
        Series { in_paper: true, ..Series::of_locks(name, reference) }
    }
}

impl Point {
    /// A point of a panel (empty if there is only one), with assignments that are separated by blanks.
    pub fn of(panel: &str, series: Series, x: f64, assignments: &str) -> Point {
        let assignments = assignments.split_whitespace().map(str::to_string).collect();
        Point { panel: panel.to_string(), series, x, label: None, assignments }
    }
}
