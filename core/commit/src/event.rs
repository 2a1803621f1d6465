//! What happens to the protocols of a shard, and how long they wait.

use crate::{Evaluation, Message, Opaque, Payload, RecordKind, TransactionName};
use braid_base::ShardId;
use std::time::Duration;

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<P: Payload = Opaque> {
    /// The requests of `Step::Evaluate` have been evaluated: a finding for each, in order. Their locks are held until `Step::Release`.
    Evaluated { transaction: TransactionName, evaluations: Vec<Evaluation<P>> },
    /// A write of `Step::Log` is durable.
    Logged { transaction: TransactionName, kind: RecordKind },
    /// The owner of another shard sent this.
    Message { from: ShardId, message: Message<P> },
    /// The deadline has passed.
    Wake,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After this much silence a message is sent again. It doubles with each further silence, up to thirty-two times this.
    pub resend: Duration,
    /// After this many silences a transaction that may still be abandoned is abandoned: not one in one-phase commit, nor a prepared worker.
    pub patience: u32,
    /// A worker with records that only keep late requests from being done asks this often which of them it may drop.
    pub tidy: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { resend: Duration::from_millis(250), patience: 6, tidy: Duration::from_secs(10) }
    }
}
