//! The records of the protocols. They are keys of the server's map, and not entries of a journal: a later record of a transaction replaces
//! the earlier one, the end of a transaction removes it, and checkpoints and recovery carry what is undecided without knowing it. Each record
//! names its protocol.

use crate::codec::{DecodeError, Reader, Writer};
use crate::{Opaque, Operation, Payload, Protocol, TransactionName, Verdict};
use braid_base::ShardId;
use bytes::Bytes;

/// The version of the format.
const VERSION: u8 = 1;

/// The key of a record in the map of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The next sequence of the transactions that this shard coordinates.
    Next,
    /// A transaction that this shard coordinates.
    Coordinated(u64),
    /// What this shard knows as a worker of the transactions of a coordinator.
    Mark(ShardId),
    /// A transaction of which this shard is a worker.
    Worked(TransactionName),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record<P: Payload = Opaque> {
    /// The next sequence. It is written with the record that begins a transaction, so that a name is not used again.
    Next(u64),
    Coordinated(CoordinatorRecord<P>),
    /// The worker does nothing for transactions below, unless it has a record of them.
    Mark(u64),
    Worked(WorkerRecord<P>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoordinatorRecord<P: Payload = Opaque> {
    pub protocol: Protocol,
    pub stage: CoordinatorStage,
    pub workers: Vec<ShardId>,
    /// The operations, as far as the stage needs them.
    pub operations: Vec<Operation<P>>,
}

/// How far a transaction is at its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoordinatorStage {
    /// STARTED. With 1PC this record has the operations, for redo.
    Begun,
    /// PREPARED, with the operations.
    Prepared,
    /// COMMITTED, and workers may not know yet (PrN). With the other protocols nothing is left to do, and the record is removed.
    Committed,
    /// ABORTED, and workers may not know yet.
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRecord<P: Payload = Opaque> {
    pub protocol: Protocol,
    pub stage: WorkerStage,
    /// What takes effect with the commit: the changes of each accepted operation (only when prepared).
    pub changes: Vec<P::Changes>,
    /// What the coordinator was told, as far as it may have to be told again.
    pub verdicts: Vec<Verdict<P>>,
}

/// How far a transaction is at a worker. Records of the last three stages only keep a late request from being done again; the mark of the
/// coordinator ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerStage {
    Prepared,
    /// COMMITTED. With 1PC the coordinator may still need it.
    Committed,
    Aborted,
    /// ENDED (1PC): the coordinator has committed, too.
    Ended,
}

impl<P: Payload> Record<P> {
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::default();
        to.byte(VERSION);
        match self {
            Record::Next(next) => {
                to.byte(1);
                to.number(*next);
            }
            Record::Mark(settled) => {
                to.byte(2);
                to.number(*settled);
            }
            Record::Coordinated(record) => {
                to.byte(3);
                to.byte(record.protocol.number());
                to.byte(record.stage as u8);
                to.list(&record.workers, Writer::shard);
                to.list(&record.operations, Writer::operation);
            }
            Record::Worked(record) => {
                to.byte(4);
                to.byte(record.protocol.number());
                to.byte(record.stage as u8);
                to.list(&record.changes, Writer::value);
                to.list(&record.verdicts, Writer::verdict);
            }
        }
        to.finish()
    }

    pub fn decode(bytes: Bytes) -> Result<Record<P>, DecodeError> {
        let mut from = Reader::new(bytes);
        if from.byte()? != VERSION {
            return Err(DecodeError);
        }
        let record = match from.byte()? {
            1 => Record::Next(from.number()?),
            2 => Record::Mark(from.number()?),
            3 => Record::Coordinated(CoordinatorRecord {
                protocol: from.protocol()?,
                stage: match from.byte()? {
                    0 => CoordinatorStage::Begun,
                    1 => CoordinatorStage::Prepared,
                    2 => CoordinatorStage::Committed,
                    3 => CoordinatorStage::Aborted,
                    _ => return Err(DecodeError),
                },
                workers: from.list(Reader::shard)?,
                operations: from.list(Reader::operation)?,
            }),
            4 => Record::Worked(WorkerRecord {
                protocol: from.protocol()?,
                stage: match from.byte()? {
                    0 => WorkerStage::Prepared,
                    1 => WorkerStage::Committed,
                    2 => WorkerStage::Aborted,
                    3 => WorkerStage::Ended,
                    _ => return Err(DecodeError),
                },
                changes: from.list(Reader::value)?,
                verdicts: from.list(Reader::verdict)?,
            }),
            _ => return Err(DecodeError),
        };
        from.end()?;
        if let Record::Coordinated(CoordinatorRecord { workers, operations, .. }) = &record
            && operations.iter().any(|operation| operation.requests.len() != workers.len())
        {
            // Each worker is sent its own request of each operation.
            return Err(DecodeError);
        }
        Ok(record)
    }
}
