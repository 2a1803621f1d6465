//! Checkers: what must hold of a history and of an array at rest. They touch no simulator, so that real clusters can be held to
//! the same.
//!
//! * [`history`] records what clients asked and saw; every written value names its write.
//! * [`serializable`] decides whether some order of the operations, true to real time, explains all that was seen.
//! * [`parity`] recomputes redundancy from blocks as they lie on the devices.

pub mod history;
pub mod parity;
pub mod serializable;

pub use history::{Action, Cells, Client, Garbage, History, Operation, OperationId, Run, Tag};
pub use parity::{ParityError, check_stripe, reconstruct};
pub use serializable::{Promise, Verdict, Violation, check};
