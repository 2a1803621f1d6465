//! What goes into a registrar and comes out, beside the monitor's own inputs and effects.

use crate::entries::{Change, Keys};
use crate::requests::{Outcome, Request, RequestId};
use braid_leadership::{Answer, CallId, CandidateId, Head, Message};
use braid_machine::Never;

/// Names a read of all keys. No two of one process have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// What a read of all keys shows, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub head: Head,
    /// All others.
    pub keys: Keys,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// One for the monitor. It counts only while this one leads.
    Monitor(braid_machine::Input<Never>),
    /// A process asks something.
    Request { id: RequestId, request: Request },
    /// A call of the candidate has been answered.
    Answer { call: CallId, answer: Answer },
    /// A read of all keys has been answered; none if it has failed.
    Found { read: ReadId, found: Option<Found> },
    /// Another candidate says something.
    Message { from: CandidateId, message: Message },
    /// It is to end its term in order, if it leads.
    Resign,
}

/// What the environment does for a step, beside the effects of the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Read `head`, linearizably.
    Read { call: CallId },
    /// Read `head` and all other keys, linearizably and in one transaction.
    ReadAll { read: ReadId },
    /// If `head` is `expected`, make it `head`, and in the same transaction make the changes.
    Swap { call: CallId, expected: Head, head: Head, changes: Vec<Change> },
    /// Say this to another candidate.
    Send { to: CandidateId, message: Message },
    /// Answer a request.
    Reply { id: RequestId, outcome: Outcome },
}
