//! Processes that take locks on objects: the device-atomics paper's experiment (section 8), and the contention benchmark of its authors.
//!
//! | module | what |
//! | --- | --- |
//! | [`strategy`] | how to wait for a lock |
//! | [`locker`] | a process that locks, works and unlocks: what it asks for, step by step |

pub mod locker;
pub mod strategy;

pub use locker::{Counts, Habit, Heard, LockAddress, LockOwner, Locker, Step, Unlock, Work};
pub use strategy::Strategy;
