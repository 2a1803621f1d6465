//! A small simulated world for structures: one space of objects, clients that use it, and faults between them.
//!
//! | module | what |
//! | --- | --- |
//! | [`doing`] | the program of a client: an async function |
//! | [`space`] | the objects |
//! | [`world`] | clients and requests in time: delays, lost answers, crashes, clocks; all derived from a seed, which a failure prints |
//! | [`explore`] | the same clients without randomness: every order of their steps, every lost answer and crash within a budget |

#![allow(dead_code, unused_imports)]

pub mod doing;
pub mod explore;
pub mod space;
pub mod world;

pub use braid_base::{ObjectId, Rng, Time};
pub use braid_recipes::idempotency_record::IdempotencyRecord;
pub use braid_recipes::{Answer, Next, Operation, Procedure, RequestFailure};
pub use braid_wire::{Action, AttributeName, ObjectFailure, ObjectRequest};
pub use bytes::Bytes;
pub use doing::{Doing, Me, doing};
pub use explore::{Budget, explore};
pub use space::{Space, one};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::time::Duration;
pub use world::{CALM, Fate, FaultRates, ROUGH, SILENT, World};
