//! What the scheduler wants done, for the device to carry out in the order in which it was decided.

use super::waiting::ReadRequest;
use braid_base::{Clock, Generation, TransactionId};
use braid_machine::Ignored;
use braid_store::Intent;
use braid_wire::{Failure, Refusal, Reply, Step};

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Answer a host.
    Answer { host: Generation, reply: Reply },
    /// Refuse a step of a transaction.
    Refuse { transaction: TransactionId, step: Step, refusal: Refusal },
    /// Tell a transaction's host that a step of it has failed.
    Fail { transaction: TransactionId, step: Step, failure: Failure },
    /// Read, and answer what is there.
    Serve { transaction: TransactionId, step: Step, read: ReadRequest },
    /// Make an intent durable.
    Prepare(Intent),
    /// Write at once.
    Apply(Intent),
    /// Let the intent of a transaction take effect.
    Commit(TransactionId),
    /// Undo the intent of a transaction.
    Abort(TransactionId),
    /// Its record need not be kept any longer.
    Forget(TransactionId),
    /// Make durable that stamps up to this clock may be accepted.
    Reserve { until: Clock },
    /// Let the transaction's host know, with the next answer to it, that its commit is durable.
    Confirm(TransactionId),
    /// Drop what came, and count it.
    Ignore(Ignored),
}
