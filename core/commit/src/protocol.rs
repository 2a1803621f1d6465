//! The four commit protocols by name.

use serde::{Deserialize, Serialize};

/// A commit protocol. Each transaction names its own, so that a file system may change it while transactions are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// Two-phase commit, which presumes nothing (`prn`).
    PresumeNothing,
    /// Two-phase commit, in which a transaction without a record was committed (`prc`).
    PresumeCommit,
    /// Presumed commit; a worker prepares as soon as it has done what it is asked for (`early_prepare`).
    EarlyPrepare,
    /// One-phase commit: the worker commits as soon as it has done what it is asked for (`one_phase`).
    OnePhase,
}

braid_base::names!(Protocol { PresumeNothing => "prn", PresumeCommit => "prc", EarlyPrepare => "ep", OnePhase => "1pc" });

impl Protocol {
    /// The protocol to use if this one is chosen and there are that many workers: one-phase commit has one worker, whose commit decides.
    pub fn with_workers(self, workers: usize) -> Protocol {
        match self {
            Protocol::OnePhase if workers > 1 => Protocol::EarlyPrepare,
            protocol => protocol,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Protocol::PresumeNothing => 1,
            Protocol::PresumeCommit => 2,
            Protocol::EarlyPrepare => 3,
            Protocol::OnePhase => 4,
        }
    }

    pub(crate) fn of_number(number: u8) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
    }
}
