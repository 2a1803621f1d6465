//! Measured results as rows: one for each metric of each point.

use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// One measured number beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The part of the figure; empty if the figure has one part.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub panel: String,
    pub series: String,
    /// The horizontal value.
    pub x: f64,
    /// The meaning of `x`, where it is not a quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub metric: String,
    /// The mean of the replications.
    pub ours: f64,
    /// Half the width of its 95 % confidence interval.
    pub ci95: Option<f64>,
    /// The number that the paper states.
    pub paper: Option<f64>,
    /// The relative difference from the paper's number (negative if ours is smaller).
    pub difference: Option<f64>,
}

impl Row {
    /// A measured number, without one of a paper.
    pub fn new(panel: &str, series: &str, x: f64, metric: &str, Estimate { mean: ours, ci95 }: Estimate) -> Row {
        let (panel, series, metric) = (panel.to_string(), series.to_string(), metric.to_string());
        Row { panel, series, x, label: None, metric, ours, ci95, paper: None, difference: None }
    }
}

/// Finds a row and returns its number.
pub fn lookup<'r>(rows: &'r [Row], panel: &str, series: &str, x: f64, metric: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.panel == panel && row.series == series && row.x == x && row.metric == metric)
}
