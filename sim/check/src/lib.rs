//! Checkers of histories and of arrays at rest. They do not depend on the simulator, so that real clusters can be checked, too.
//!
//! - [`history`] records the operations of clients on volumes; every written value identifies its write.
//! - [`serializable`] decides whether some order of the operations, consistent with real time, explains all values read.
//! - [`parity`] recomputes redundancy from the blocks on the devices.
//! - [`object_history`] records the requests of clients on objects with bytes and attributes; [`partition`] divides it into
//!   independent parts.
//! - [`linearizable`] decides whether some order of these requests, consistent with real time, explains all answers.
//! - [`file_history`] records the operations of processes on file systems.
//! - [`file_names`] and [`file_bytes`] decide whether some order of them explains all answers about names, and the bytes of each file;
//!   both use the search in `file_search`. `file_json` writes histories as JSON.
//! - [`range_history`] decides whether programs that locked ranges excluded each other.
//! - [`exactly_once`] adds up the additions to counters.

pub mod exactly_once;
pub mod file_bytes;
pub mod file_history;
mod file_json;
pub mod file_names;
mod file_search;
#[cfg(test)]
mod file_tests;
pub mod history;
pub mod linearizable;
pub mod object_history;
pub mod parity;
pub mod partition;
mod prelude;
pub mod range_history;
pub mod serializable;

pub use exactly_once::{Counter, Miscounted, check_counters};
pub use file_bytes::check_bytes;
pub use file_history::{
    FileAction, FileAnswer, FileFailure, FileHistory, FileOperation, FileOperationId, FileTag, FileValue, UNIT_BYTES,
    Unit, parse_units,
};
pub use file_json::file_line;
pub use file_names::{FileVerdict, check_names};
pub use history::{Action, Cells, Client, CorruptCell, History, Moment, Operation, OperationId, Outcome, Run, Tag};
pub use linearizable::{Contradiction, Linearizability, check_objects, count_outcomes};
pub use object_history::{ObjectHistory, ObjectOperation, ObjectOperationId, Objects, is_beyond_the_model};
pub use parity::{ParityError, check_stripe, reconstruct};
pub use range_history::{RangeHistory, check_ranges};
pub use serializable::{Promise, Verdict, Violation, check};
