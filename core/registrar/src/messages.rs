//! What goes into a registrar and comes out, beside the monitor's own inputs and effects.

use braid_leadership::{Answer, CallId, CandidateId, Head, Message};
use braid_machine::ControlRequest;
use bytes::Bytes;

/// Names a read of the record. No two of one process have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordRead(pub u64);

/// The two copies of the record in the registry, as they are written there: empty in a new array, none if the key is missing.
pub type Copies = [Option<Bytes>; 2];

/// What a read of the record shows, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub head: Head,
    pub copies: Copies,
}

/// A write of one copy of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyWrite {
    pub copy: usize,
    pub bytes: Bytes,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// One for the monitor. Messages count only while this one leads; requests are kept for the monitors of later terms.
    Monitor(braid_machine::Input<ControlRequest>),
    /// A call of the candidate has been answered.
    Answer { call: CallId, answer: Answer },
    /// A read of the record has been answered; none if it has failed.
    Record { read: RecordRead, found: Option<Found> },
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
    /// Read `head` and both copies of the record, linearizably and in one transaction.
    ReadRecord { read: RecordRead },
    /// If `head` is `expected`, make it `head`, and in the same transaction write the copy, if there is one.
    Swap { call: CallId, expected: Head, head: Head, write: Option<CopyWrite> },
    /// Say this to another candidate.
    Send { to: CandidateId, message: Message },
}
