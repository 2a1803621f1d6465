//! What was measured, as rows: one for each metric of each point.

use serde::{Deserialize, Serialize};

/// One number beside the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which part of the figure; empty if it has but one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub panel: String,
    /// Which line.
    pub series: String,
    /// Where on it.
    pub x: f64,
    /// What `x` stands for, where it is no quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What of it.
    pub metric: String,
    /// The mean of the replications.
    pub ours: f64,
    /// Half the width of its 95 % confidence interval.
    pub ci95: Option<f64>,
    /// What the paper states.
    pub paper: Option<f64>,
    /// By which part of the paper's number ours is above it (below, if negative).
    pub difference: Option<f64>,
}

/// A row's number, looked up.
pub fn lookup<'r>(rows: &'r [Row], panel: &str, series: &str, x: f64, metric: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.panel == panel && row.series == series && row.x == x && row.metric == metric)
}
