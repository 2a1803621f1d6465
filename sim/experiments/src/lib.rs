//! The experiments of `braid sim`: points of figures, replications in parallel, tables of ours beside the paper's, plots, a report.
//!
//! | module | what |
//! | --- | --- |
//! | [`catalogue`] | the experiments |
//! | [`atomics`] | those of the device-atomics paper |
//! | [`assumptions`] | what the shared-array paper leaves open, and ways to read it |
//! | [`paper`] | the numbers that it states |
//! | [`experiment`] | what an experiment is |
//! | [`mod@run`] | runs one: replications, peaks |
//! | [`rows`] | what was found |
//! | [`output`], [`report`] | files, and a page of all |
//!
//! Tables, plots and confidence intervals are of `braid-benchkit`.

pub mod assumptions;
pub mod atomics;
pub mod catalogue;
pub mod experiment;
pub mod output;
pub mod paper;
pub mod report;
pub mod rows;
pub mod run;

pub use catalogue::{EXPERIMENTS, find};
pub use experiment::{Experiment, Thoroughness};
pub use run::{Request, run};
