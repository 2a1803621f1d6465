//! Checkers: what must hold of a history and of an array at rest. They touch no simulator, so that real clusters can be held to
//! the same.
//!
//! * [`history`] records what clients asked and saw; every written value names its write.
//! * [`serializable`] decides whether some order of the operations, true to real time, explains all that was seen.
//! * [`parity`] recomputes redundancy from blocks as they lie on the devices.
//! * [`object_history`] records what clients had done on objects that hold bytes and attributes; [`partition`] cuts it into what has to do
//!   with each other.
//! * [`linearizable`] decides whether some order of these requests, true to real time, explains all that was answered.
//! * [`exactly_once`] adds up what was added to counters.

pub mod exactly_once;
pub mod history;
pub mod linearizable;
pub mod object_history;
pub mod parity;
pub mod partition;
pub mod serializable;

pub use exactly_once::{Counter, Miscounted, check_counters};
pub use history::{Action, Cells, Client, CorruptCell, History, Moment, Operation, OperationId, Run, Tag};
pub use linearizable::{Contradiction, Linearizability, check_objects, count_outcomes};
pub use object_history::{ObjectHistory, ObjectOperation, ObjectOperationId, Objects, Outcome, is_beyond_the_model};
pub use parity::{ParityError, check_stripe, reconstruct};
pub use serializable::{Promise, Verdict, Violation, check};
