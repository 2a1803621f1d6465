//! Checkers of histories and of arrays at rest. They do not depend on the simulator, so that real clusters can be checked, too.
//!
//! - [`history`] records the operations of clients on volumes; every written value identifies its write.
//! - [`serializable`] decides whether some order of the operations, consistent with real time, explains all values read.
//! - [`parity`] recomputes redundancy from the blocks on the devices.
//! - [`object_history`] records the requests of clients on objects with bytes and attributes; [`partition`] divides it into
//!   independent parts.
//! - [`linearizable`] decides whether some order of these requests, consistent with real time, explains all answers.
//! - [`exactly_once`] adds up the additions to counters.

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
