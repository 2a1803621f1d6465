//! The decisions of the scheduler. The device carries them out in the order in which they were made.

use super::waiting::ReadRequest;
use braid_base::{Clock, DeviceId, Generation, TransactionId};
use braid_machine::Ignored;
use braid_store::Intent;
use braid_wire::{Failure, Partial, Refusal, Reply, Step};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Send a reply to a host.
    Answer { host: Generation, reply: Reply },
    /// Refuse a step of a transaction.
    Refuse { transaction: TransactionId, step: Step, refusal: Refusal },
    /// Tell a transaction's host that a step of it has failed.
    Fail { transaction: TransactionId, step: Step, failure: Failure },
    /// Read, and answer with the content.
    Serve { transaction: TransactionId, step: Step, read: ReadRequest },
    /// Send another device what it is owed.
    Send { to: DeviceId, partial: Partial },
    /// Make an intent durable.
    Prepare(Intent),
    /// Write at once, without an intent.
    Apply(Intent),
    /// Let the intent of a transaction take effect.
    Commit(TransactionId),
    /// Undo the intent of a transaction.
    Abort(TransactionId),
    /// Drop the record of a transaction that is over.
    Forget(TransactionId),
    /// Keep the record of a commit that all participants have, only for the transaction's host.
    KeepForHost(TransactionId),
    /// Reserve durably: stamps up to this clock may be accepted.
    Reserve { until: Clock },
    /// Confirm a durable commit to the transaction's host, with the next answer to it.
    Confirm(TransactionId),
    /// Drop the message, and count it.
    Ignore(Ignored),
}
