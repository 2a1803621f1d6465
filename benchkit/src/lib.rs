//! Code shared by simulated experiments (`sim/measure`, `sim/experiments`) and benchmarks of real arrays (`real/bench`). It depends
//! on neither.
//!
//! | module | what |
//! | --- | --- |
//! | [`locking`] | processes that lock objects: their steps, and strategies of waiting for a lock |
//! | [`rows`] | measured numbers with their series and point |
//! | [`tables`] | rows as tables |
//! | [`plot`] | rows as plots |
//! | [`statistics`] | means and medians, and their confidence intervals |

pub mod locking;
pub mod plot;
pub mod rows;
pub mod statistics;
pub mod tables;
