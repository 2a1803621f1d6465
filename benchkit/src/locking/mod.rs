//! Processes that lock objects: the device-atomics paper's experiment (section 8), and the contention benchmark of its authors.
//!
//! | module | what |
//! | --- | --- |
//! | [`strategy`] | strategies of waiting for a lock |
//! | [`locker`] | a process that locks, works and unlocks, as a state machine |

pub mod locker;
pub mod strategy;

pub use locker::{Counts, Habit, LockAddress, LockOwner, Locker, LockerEvent, Step, Unlock, Work};
pub use strategy::Strategy;
