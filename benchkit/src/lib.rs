//! What simulated experiments (`sim/measure`, `sim/experiments`) and benchmarks of real arrays (`real/bench`) share. It knows neither of the two
//! worlds.
//!
//! | module | what |
//! | --- | --- |
//! | [`locking`] | processes that take locks on objects: the procedure, and the ways of waiting for a lock |
//! | [`rows`] | one measured number, and where it belongs |
//! | [`tables`] | rows as tables |
//! | [`plot`] | rows as plots |
//! | [`statistics`] | means and confidence intervals |

pub mod locking;
pub mod plot;
pub mod rows;
pub mod statistics;
pub mod tables;
