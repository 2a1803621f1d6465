//! Locks on objects, kept by devices or by a lock manager: the device-atomics paper's experiment (section 8), and the contention benchmark of
//! its authors.
//!
//! | module | what |
//! | --- | --- |
//! | [`manager`] | the lock manager that commits every change |
//! | [`parameters`] | every number that a run depends on |
//! | [`system`] | processes, devices, and the loop that runs them |
//!
//! What a process does, step by step, is in `braid_benchkit::locking`: real processes do the same.

pub mod manager;
pub mod parameters;
pub mod system;

pub use parameters::LockParameters;

use crate::tally::Measured;

/// Runs processes and devices once.
pub fn measure(parameters: &LockParameters, seed: u64) -> Measured {
    system::LockingSystem::new(parameters, seed).run()
}
