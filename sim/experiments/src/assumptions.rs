//! The open assumptions of the papers' baselines, with alternative readings of each: the files in `sim/experiments/assumptions`.

use crate::experiment::{Base, Point, Thoroughness};
use serde::Deserialize;

/// A parameter that a paper does not specify.
#[derive(Debug, Deserialize)]
pub struct Assumption {
    pub name: String,
    /// The readings: the name of each, and the parameters that it sets, separated by blanks. The first is the baseline.
    pub readings: Vec<(String, String)>,
}

/// The open assumptions of the paper that has these parameters.
pub fn open(base: Base) -> Vec<Assumption> {
    #[derive(Deserialize)]
    struct Assumptions {
        assumption: Vec<Assumption>,
    }
    let text = match base {
        Base::SharedArray | Base::Today => include_str!("../assumptions/shared-array.toml"),
        Base::DeviceAtomics => include_str!("../assumptions/device-atomics.toml"),
        Base::OnePhaseCommit => include_str!("../assumptions/one-phase-commit.toml"),
        Base::RangeLocks | Base::RangeLocksToday => include_str!("../assumptions/range-locks.toml"),
    };
    toml::from_str::<Assumptions>(text).expect("the built-in files are valid").assumption
}

/// A panel for each assumption, and a horizontal value for each reading, or only for the first two: at each, the points of the baseline, which
/// `of` makes, with what the reading sets.
pub fn points(base: Base, thoroughness: Thoroughness, of: impl Fn() -> Vec<Point>) -> Vec<Point> {
    let mut points = Vec::new();
    for Assumption { name, readings } in open(base) {
        let chosen = thoroughness.of(&readings, &readings[..2]);
        for (index, (label, assignments)) in chosen.iter().enumerate() {
            for mut point in of() {
                point.assignments.extend(assignments.split_whitespace().map(str::to_string));
                points.push(Point { panel: name.clone(), label: Some(label.clone()), x: index as f64, ..point });
            }
        }
    }
    points
}
