//! A transaction among metadata servers: its name, its operations, and what becomes of each of them. What an operation changes is opaque
//! here: it was computed by the server that embeds the protocol, and only that server knows it ([`Payload`]).

use crate::{Opaque, Payload, Protocol};
use braid_base::ShardId;
use std::fmt;

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
pub struct Transaction<P: Payload = Opaque> {
    pub protocol: Protocol,
    /// The other servers, in the order in which they are asked: one after the other, so that locks are taken in that order. They are
    /// distinct, and the coordinator is not among them. One-phase commit has exactly one.
    pub workers: Vec<ShardId>,
    /// One operation, or with one worker several. Each of these is committed or refused by itself.
    pub operations: Vec<Operation<P>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation<P: Payload = Opaque> {
    pub own: P::Own,
    /// What each worker is asked for, in the order of the workers.
    pub requests: Vec<P::Request>,
}

/// What a worker's server has found about one operation. It holds the locks of what it changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Evaluation<P: Payload = Opaque> {
    Accepted { changes: P::Changes, answer: P::Answer },
    Refused { reason: P::Reason },
}

/// What the coordinator hears about one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict<P: Payload = Opaque> {
    Accepted { answer: P::Answer },
    Refused { reason: P::Reason },
}

/// The end of an operation at the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outcome<P: Payload = Opaque> {
    /// The coordinator's part, as it was given.
    pub own: P::Own,
    /// The answers of the workers, in their order.
    pub result: Result<Vec<P::Answer>, Refusal<P>>,
}

/// Why an operation was not committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal<P: Payload = Opaque> {
    /// A worker has refused it.
    ByWorker { worker: ShardId, reason: P::Reason },
    /// A worker was silent for too long, or has restarted. The operation has changed nothing, and may be tried again under a new name.
    Abandoned,
}

impl<P: Payload> Evaluation<P> {
    pub fn verdict(&self) -> Verdict<P> {
        match self {
            Evaluation::Accepted { answer, .. } => Verdict::Accepted { answer: answer.clone() },
            Evaluation::Refused { reason } => Verdict::Refused { reason: reason.clone() },
        }
    }
}

impl<P: Payload> Verdict<P> {
    pub fn is_accepted(&self) -> bool {
        matches!(self, Verdict::Accepted { .. })
    }
}
