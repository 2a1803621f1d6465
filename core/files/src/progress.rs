//! What parts tell operations.

use braid_machine::HostError;

/// An event of an operation that waited for a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It can go on.
    Ready(u64),
    /// It can't have what it waited for.
    Failed(u64, HostError),
}
