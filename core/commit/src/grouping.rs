//! How a server combines what it commits for several operations at once.

use serde::{Deserialize, Serialize};
use std::fmt;

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

impl Grouping {
    pub const ALL: [Grouping; 3] = [Grouping::None, Grouping::Log, Grouping::Operations];

    /// The name in commands, files and figures.
    pub fn name(self) -> &'static str {
        match self {
            Grouping::None => "none",
            Grouping::Log => "log",
            Grouping::Operations => "operations",
        }
    }

    pub fn from_name(name: &str) -> Option<Grouping> {
        Grouping::ALL.into_iter().find(|grouping| grouping.name() == name)
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
