//! The experiments of `braid sim`: the points of figures, parallel replications, tables beside the papers' numbers, plots, a report.
//!
//! | module | what |
//! | --- | --- |
//! | [`catalogue`] | the experiments |
//! | [`atomics`] | the experiments of the device-atomics paper |
//! | [`commits`] | the experiments of the one-phase-commit paper |
//! | [`range_locks`] | the experiments of the range-lock paper |
//! | [`assumptions`] | the open assumptions of the papers, with alternative readings |
//! | [`paper`] | the numbers that the papers state |
//! | [`experiment`] | the definition of an experiment |
//! | [`mod@run`] | runs an experiment: replications, peaks |
//! | [`rows`] | results as rows |
//! | `testing` | runs experiments for tests of their shapes |
//! | [`output`], [`report`] | result files, and one page of all results |
//!
//! Tables, plots and confidence intervals are in `braid-benchkit`.

pub mod assumptions;
pub mod atomics;
pub mod catalogue;
pub mod commits;
pub mod experiment;
pub mod output;
pub mod paper;
pub mod range_locks;
pub mod report;
pub mod rows;
pub mod run;
#[cfg(test)]
mod testing;

pub use catalogue::{EXPERIMENTS, find};
pub use experiment::{Experiment, Thoroughness};
pub use run::{Request, run};
