//! The queue of requests that wait for undecided transactions, in the order of their stamps.

use braid_base::{BlockRange, Generation, ObjectId, Stamp, TransactionId, limits};
use braid_blocks::{Content, Want};
use braid_ordering::Policy;
use braid_ordering::WriteMode;
use braid_store::Intent;
use std::collections::{BTreeMap, BTreeSet};

/// A request that was put aside.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its place in the order of transactions.
    pub stamp: Stamp,
    /// The policy of the object's ordering.
    pub policy: &'static Policy,
    pub object: ObjectId,
    /// The blocks that must be free of blockers. For a write these are all that were pre-written, even if it writes
    /// fewer.
    pub blocks: Vec<BlockRange>,
    pub request: WaitingRequest,
}

#[derive(Clone, Debug)]
pub enum WaitingRequest {
    /// A read, or the read half of a read-and-pre-write.
    Read(ReadRequest),
    /// A write with its data.
    Write(Intent, WriteMode),
    /// A column, which is among the executions: it is about to read.
    Execute,
}

/// The parts of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub object: ObjectId,
    pub extents: Vec<BlockRange>,
    /// The part of the blocks that is asked for: content, allocation or linkage records.
    pub want: Want,
    /// Whether the request had to wait for a blocker.
    pub waited: bool,
}

/// The queue. A transaction waits with one request at a time.
#[derive(Clone, Debug, Default)]
pub struct WaitingQueue {
    by_transaction: BTreeMap<TransactionId, Waiting>,
    by_stamp: BTreeSet<(Stamp, TransactionId)>,
    bytes: usize,
}

impl WaitingQueue {
    /// Puts a request aside. False if there is no room.
    pub fn push(&mut self, id: TransactionId, waiting: Waiting) -> bool {
        let bytes = bytes_of(&waiting);
        if self.by_transaction.len() >= limits::WAITING_MAX || self.bytes + bytes > limits::WAITING_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.by_stamp.insert((waiting.stamp, id));
        let before = self.by_transaction.insert(id, waiting);
        assert!(before.is_none(), "a transaction waits with one request at a time");
        true
    }

    pub fn take(&mut self, id: TransactionId) -> Option<Waiting> {
        let waiting = self.by_transaction.remove(&id)?;
        self.by_stamp.remove(&(waiting.stamp, id));
        self.bytes -= bytes_of(&waiting);
        Some(waiting)
    }

    pub fn get(&self, id: TransactionId) -> Option<&Waiting> {
        self.by_transaction.get(&id)
    }

    /// The waiting transactions, by stamp.
    pub fn in_order(&self) -> Vec<TransactionId> {
        self.by_stamp.iter().map(|(_, id)| *id).collect()
    }

    /// The transactions of `host` that wait, with sequences below `end`.
    pub fn of_host_below(&self, host: Generation, end: u64) -> Vec<TransactionId> {
        let first = TransactionId { host, sequence: 0 };
        let last = TransactionId { host, sequence: end };
        self.by_transaction.range(first..last).map(|(id, _)| *id).collect()
    }

    pub fn len(&self) -> usize {
        self.by_transaction.len()
    }
}

/// The memory that a request takes: its data, its lists, and itself.
fn bytes_of(waiting: &Waiting) -> usize {
    let lists = match &waiting.request {
        WaitingRequest::Read(read) => size_of_val(&read.extents[..]),
        WaitingRequest::Write(intent, _) => size_of_val(&intent.pieces[..]) + size_of_val(&intent.participants[..]),
        WaitingRequest::Execute => 0,
    };
    let data = |content: &Content| if let Content::Data(bytes) = content { bytes.len() } else { 0 };
    let content: usize = match &waiting.request {
        WaitingRequest::Write(intent, _) => intent.pieces.iter().map(|piece| data(&piece.content)).sum(),
        _ => 0,
    };
    content + lists + size_of_val(&waiting.blocks[..]) + size_of_val(waiting)
}
