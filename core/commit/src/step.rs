//! What a server has to do next: the steps that the protocols return. They are done in order; none of them is waited for.

use crate::{Message, Opaque, Outcome, Payload, Record, RecordKey, TransactionName};
use braid_base::ShardId;

/// A step for the server that embeds the protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<P: Payload = Opaque> {
    /// After a restart: take the locks of these parts again, before new requests are served. No other transaction has any of them. They are the
    /// coordinator's own parts, or the changes of a worker.
    Hold { transaction: TransactionName, own: Vec<P::Own>, changes: Vec<P::Changes> },
    /// Take the locks of these requests, and compute what they change, without letting it take effect. `Event::Evaluated` follows, with
    /// refusals if that takes too long.
    Evaluate { transaction: TransactionName, requests: Vec<P::Request> },
    /// Add this to the journal, in one record. What it changes is visible in the server's memory from now on.
    Log(LogWrite<P>),
    /// Send a message to the present owner of a shard.
    Send { to: ShardId, message: Message<P> },
    /// Release the locks of the transaction, or stop waiting for them. If it has none, there is nothing to do.
    Release { transaction: TransactionName },
    /// Answer whoever has asked for these operations.
    Answer { transaction: TransactionName, outcomes: Vec<Outcome<P>> },
}

/// A write to the journal: whole or absent after a crash, and present only if all earlier ones are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogWrite<P: Payload = Opaque> {
    pub transaction: TransactionName,
    pub kind: RecordKind,
    /// Records to put, or to remove.
    pub records: Vec<(RecordKey, Option<Record<P>>)>,
    /// At a worker: the changes that take effect with this write.
    pub changes: Vec<P::Changes>,
    /// At the coordinator, when it is decided: the end of each operation. Its own parts of those that are committed take effect with this
    /// write. The answers to clients are kept with it, as those of local operations are; [`Step::Answer`] says when they may be sent. An
    /// abandoned operation has no answer: it is tried again.
    pub outcomes: Vec<Outcome<P>>,
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
