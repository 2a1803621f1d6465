//! A transaction among metadata servers: its name, its operations, and what becomes of each of them. What an operation changes is opaque
//! here: it was computed by the server that embeds the protocol, and only that server reads it.

use braid_base::ShardId;
use bytes::Bytes;
use std::fmt;

use crate::Protocol;

/// The name of a transaction. It names the shard that coordinates, and not its present owner: another process that takes over the shard
/// continues under the same name. A name is never used again: an operation that is tried again gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionName {
    /// The coordinator.
    pub shard: ShardId,
    pub sequence: u64,
}

impl fmt::Debug for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.shard, self.sequence)
    }
}

/// What a coordinator commits. Its server holds the locks of the coordinator's parts before the transaction begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub protocol: Protocol,
    /// The other servers, in the order in which they are asked: one after the other, so that locks are taken in that order. They are
    /// distinct, and the coordinator is not among them. One-phase commit has exactly one.
    pub workers: Vec<ShardId>,
    /// One operation, or with one worker several. Each of these is committed or refused by itself.
    pub operations: Vec<Operation>,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The coordinator's part: what it changes, its locks, who is answered.
    pub own: Bytes,
    /// What each worker is asked for, in the order of the workers.
    pub requests: Vec<Bytes>,
}

/// What a worker's server has found about one operation. It holds the locks of what it changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Evaluation {
    Accepted { changes: Bytes, answer: Bytes },
    Refused { reason: Bytes },
}

/// What the coordinator hears about one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Accepted { answer: Bytes },
    Refused { reason: Bytes },
}

/// The end of an operation at the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The coordinator's part, as it was given.
    pub own: Bytes,
    /// The answers of the workers, in their order.
    pub result: Result<Vec<Bytes>, Refusal>,
}

/// Why an operation was not committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A worker has refused it.
    ByWorker { worker: ShardId, reason: Bytes },
    /// A worker was silent for too long, or has restarted. The operation has changed nothing, and may be tried again under a new name.
    Abandoned,
}

impl Evaluation {
    pub fn verdict(&self) -> Verdict {
        match self {
            Evaluation::Accepted { answer, .. } => Verdict::Accepted { answer: answer.clone() },
            Evaluation::Refused { reason } => Verdict::Refused { reason: reason.clone() },
        }
    }
}

impl Verdict {
    pub fn is_accepted(&self) -> bool {
        matches!(self, Verdict::Accepted { .. })
    }
}
