//! How a server combines what it commits for several operations at once.

use serde::{Deserialize, Serialize};

/// What operations that are under way at the same time share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Grouping {
    /// Nothing: each operation has its own transaction, and each record of the log is a write of its own.
    None,
    /// Records that wait while a write of the log is under way share the next one.
    Log,
    /// The same; and operations that wait while a transaction with their worker is under way become one transaction.
    Operations,
}

braid_base::names!(Grouping { None => "none", Log => "log", Operations => "operations" });
