//! Locks on objects, kept by devices or by a lock manager: the device-atomics paper's experiment (section 8), and the contention benchmark of
//! its authors.
//!
//! | module | what |
//! | --- | --- |
//! | [`strategy`] | how to wait for a lock |
//! | [`locker`] | a process that locks, works and unlocks: what it asks for, step by step |
//! | [`manager`] | the lock manager that commits every change |
//! | [`parameters`] | every number that a run depends on |
//! | [`system`] | processes, devices, and the loop that runs them |

pub mod locker;
pub mod manager;
pub mod parameters;
pub mod strategy;
pub mod system;

pub use locker::{Counts, Habit, Heard, Keeper, Locker, Place, Step, Unlock, Work};
pub use parameters::LockParameters;
pub use strategy::Strategy;

use crate::tally::Measured;

/// Runs processes and devices once.
pub fn measure(parameters: &LockParameters, seed: u64) -> Measured {
    system::LockingSystem::new(parameters, seed).run()
}
