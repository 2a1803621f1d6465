//! What an experiment is: points at which arrays are run, and how they are shown.

use braid_measure::{ParameterError, Parameters};
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
    pub points: fn(Effort) -> Vec<Point>,
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
}

impl Base {
    /// The file's text.
    pub fn text(self) -> &'static str {
        match self {
            Base::SharedArray => include_str!("../parameters/shared-array.toml"),
            Base::Today => include_str!("../parameters/today.toml"),
        }
    }

    /// The file's name.
    pub fn file(self) -> &'static str {
        match self {
            Base::SharedArray => "shared-array.toml",
            Base::Today => "today.toml",
        }
    }

    /// What it says, with `assignments` made.
    pub fn parameters(self, assignments: &[String]) -> Result<Parameters, ParameterError> {
        let base = Parameters::parse(self.text()).expect("the files that are built in are sound");
        assignments.iter().try_fold(base, |parameters, assignment| parameters.set(assignment))
    }
}

/// What is measured along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// In files.
    pub name: &'static str,
    /// For people, with the unit.
    pub title: &'static str,
}

/// A plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotKind {
    /// Added to the experiment's name, where there are several.
    pub suffix: &'static str,
    /// Which metric is along x; none: the points' own values.
    pub x: Option<Axis>,
    /// Which metric goes up.
    pub y: Axis,
    /// Whether that axis is logarithmic.
    pub logarithmic: bool,
    /// Above it, points are left out.
    pub y_most: Option<f64>,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
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
    /// What it runs.
    pub ordering: Ordering,
    /// Whether the paper's numbers of that ordering are about it.
    pub in_paper: bool,
}

impl Series {
    /// An ordering as in the paper.
    pub fn of(ordering: Ordering) -> Series {
        Series { name: ordering.name().to_string(), ordering, in_paper: true }
    }
}

impl Point {
    /// A point of a figure with one panel.
    pub fn new(ordering: Ordering, x: f64, assignments: impl IntoIterator<Item = String>) -> Point {
        let assignments = assignments.into_iter().collect();
        Point { panel: String::new(), series: Series::of(ordering), x, label: None, assignments }
    }
}
