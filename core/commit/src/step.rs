//! What a server has to do next: the steps that the protocols return. They are done in order; none of them is waited for.

use crate::{Message, Outcome, Record, RecordKey, TransactionName};
use braid_base::ShardId;
use bytes::Bytes;

/// A step for the server that embeds the protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// After a restart: take the locks of these parts again, before new requests are served. Nobody else holds any of them.
    Hold { transaction: TransactionName, parts: Parts },
    /// Take the locks of these requests, and compute what they change, without letting it take effect. `Event::Evaluated` follows, with
    /// refusals if that takes too long.
    Evaluate { transaction: TransactionName, requests: Vec<Bytes> },
    /// Add this to the journal, in one record. What it changes is visible in the server's memory from now on.
    Log(LogWrite),
    /// Send a message to the present owner of a shard.
    Send { to: ShardId, message: Message },
    /// Release the locks of the transaction, or stop waiting for them. If it has none, there is nothing to do.
    Release { transaction: TransactionName },
    /// Answer whoever has asked for these operations.
    Answer { transaction: TransactionName, outcomes: Vec<Outcome> },
}

/// The parts of a transaction at one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Parts {
    /// `Operation::own` of each operation.
    Coordinator(Vec<Bytes>),
    /// The changes of each accepted operation.
    Worker(Vec<Bytes>),
}

impl Parts {
    pub fn list(&self) -> &[Bytes] {
        match self {
            Parts::Coordinator(parts) | Parts::Worker(parts) => parts,
        }
    }
}

/// A write to the journal: whole or absent after a crash, and present only if all earlier ones are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogWrite {
    pub transaction: TransactionName,
    pub kind: RecordKind,
    /// Records to put, or to remove.
    pub records: Vec<(RecordKey, Option<Record>)>,
    /// The changes that take effect with this write: the parts of the operations that are committed.
    pub applies: Option<Parts>,
    /// At the coordinator, when it is decided: the end of each operation. The answers to clients are kept with this write, as those of
    /// local operations are; [`Step::Answer`] says when they may be sent. An abandoned operation has no answer: it is tried again.
    pub outcomes: Vec<Outcome>,
    /// Whether the protocol waits for it. A write that is not forced may wait until others are written; `Event::Logged` may follow, and is
    /// ignored.
    pub forced: bool,
}

/// What a write to the journal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    Begun,
    Prepared,
    Committed,
    Aborted,
    Ended,
    /// Only drops records of transactions that are over.
    Dropped,
}
