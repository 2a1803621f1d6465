//! A little world for structures: one space of objects, clients that work on it, and all that can go wrong between them.
//!
//! | module | what |
//! | --- | --- |
//! | [`doing`] | what a client does: one procedure after the other |
//! | [`space`] | the objects |
//! | [`world`] | clients and requests in time: delays, lost answers, deaths, clocks; all decided by a seed, which a failure prints |
//! | [`explore`] | the same clients without random source: every order of their steps, every loss and death within a budget |

#![allow(dead_code, unused_imports)]

pub mod doing;
pub mod explore;
pub mod space;
pub mod world;

pub use doing::{Doing, Moment, ask, late, over, run, sleep};
pub use explore::{Budget, explore, explore_from};
pub use space::Space;
pub use world::{CALM, FaultRates, ROUGH, SILENT, World};
