//! The messages between coordinators and workers, and their bytes. They are datagrams: any of them may be lost, late or doubled.
//!
//! A message is a version, the protocol, the transaction, the coordinator's mark, a kind, and a body. Lists and byte strings have a length of
//! four bytes; numbers are little-endian. What is received is checked against the bounds before anything is allocated.

use crate::codec::{DecodeError, Reader, Writer};
use crate::{Opaque, Payload, Protocol, TransactionName, Verdict};
use bytes::Bytes;

/// The version of the format.
const VERSION: u8 = 1;

/// A message about one transaction. Who coordinates is part of its name, so the receiver knows its own role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message<P: Payload = Opaque> {
    pub protocol: Protocol,
    pub transaction: TransactionName,
    /// From a coordinator: it sends no more requests for its transactions below this sequence, and needs no record of them. From a worker: zero.
    pub settled: u64,
    pub body: Body<P>,
}

/// What a message says. The paper's names are in brackets where they differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body<P: Payload = Opaque> {
    /// Coordinator to worker: do this (UPDATE REQ).
    Update { requests: Vec<P::Request> },
    /// Worker to coordinator: it is done (PrN, PrC), prepared (EP) or committed (1PC), as far as it was not refused.
    Updated { verdicts: Vec<Verdict<P>> },
    /// Coordinator to worker: make it durable.
    Prepare,
    /// Worker to coordinator: it is durable. These verdicts count, because the worker may have evaluated the requests again.
    Prepared { verdicts: Vec<Verdict<P>> },
    /// Worker to coordinator: it knows nothing of the transaction (NOT-PREPARED).
    NotPrepared,
    /// Coordinator to worker: let it take effect.
    Commit,
    /// Coordinator to worker: forget it.
    Abort,
    /// The outcome is durable at the sender (ACKNOWLEDGE): at a worker that was told it (PrN, and aborts), or at a coordinator (1PC).
    Acknowledge,
    /// Worker to coordinator: what became of it?
    Ask,
    /// Worker to coordinator: which transactions are over? It has records that it may drop.
    Inquire,
    /// Coordinator to worker: the answer, which is the mark of the message.
    Settled,
}

impl<P: Payload> Message<P> {
    pub fn encode(&self) -> Bytes {
        let mut to = Writer::default();
        to.byte(VERSION);
        to.byte(self.protocol.number());
        to.name(self.transaction);
        to.number(self.settled);
        to.byte(self.body.kind().0);
        match &self.body {
            Body::Update { requests } => to.list(requests, Writer::value),
            Body::Updated { verdicts } | Body::Prepared { verdicts } => to.list(verdicts, Writer::verdict),
            _ => {}
        }
        to.finish()
    }

    pub fn decode(bytes: Bytes) -> Result<Message<P>, DecodeError> {
        let mut from = Reader::new(bytes);
        if from.byte()? != VERSION {
            return Err(DecodeError);
        }
        let protocol = from.protocol()?;
        let transaction = from.name()?;
        let settled = from.number()?;
        let body = match from.byte()? {
            1 => Body::Update { requests: from.list(Reader::value)? },
            2 => Body::Updated { verdicts: from.list(Reader::verdict)? },
            3 => Body::Prepare,
            4 => Body::Prepared { verdicts: from.list(Reader::verdict)? },
            5 => Body::NotPrepared,
            6 => Body::Commit,
            7 => Body::Abort,
            8 => Body::Acknowledge,
            9 => Body::Ask,
            10 => Body::Inquire,
            11 => Body::Settled,
            _ => return Err(DecodeError),
        };
        from.end()?;
        Ok(Message { protocol, transaction, settled, body })
    }
}

impl<P: Payload> Body<P> {
    /// The number in messages, and the name in traces and tables.
    fn kind(&self) -> (u8, &'static str) {
        match self {
            Body::Update { .. } => (1, "UPDATE"),
            Body::Updated { .. } => (2, "UPDATED"),
            Body::Prepare => (3, "PREPARE"),
            Body::Prepared { .. } => (4, "PREPARED"),
            Body::NotPrepared => (5, "NOT-PREPARED"),
            Body::Commit => (6, "COMMIT"),
            Body::Abort => (7, "ABORT"),
            Body::Acknowledge => (8, "ACKNOWLEDGE"),
            Body::Ask => (9, "ASK"),
            Body::Inquire => (10, "INQUIRE"),
            Body::Settled => (11, "SETTLED"),
        }
    }

    pub fn name(&self) -> &'static str {
        self.kind().1
    }
}
