//! Locks on objects, kept by devices or by a lock manager: the device-atomics paper's experiment (section 8), and the contention
//! benchmark of its authors.
//!
//! | module | what |
//! | --- | --- |
//! | [`manager`] | the lock manager that commits every change |
//! | [`parameters`] | all numbers that determine a run |
//! | [`system`] | processes, devices, and the loop that runs them |
//!
//! The steps of a process are in `braid_benchkit::locking`: real processes use the same code.

pub mod manager;
pub mod parameters;
pub mod system;

pub use parameters::LockParameters;
