//! Hostreads and hostwrites of the file system's volume. Here alone requests for bytes are made of the host.
//!
//! All of them have [endless patience](Patience::Endless): they end when their outcome is known. So their users know three ends: success, a
//! failure after which nothing has happened and nothing will, and a fence. Until then the operation keeps its locks and its blocks. A
//! request that the host has no room for is made again later.

use braid_base::limits::Settings;
use braid_base::{BLOCK_BYTES, Backoff, BlockRange, Time, Timers, VolumeId};
use braid_machine::{
    ArrayRequest, HostError, HostOutcome, HostRequest, HostSuccess, OpId, Part, Patience, VolumeRequest,
};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The part that made a request, which gets the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOwner {
    /// The request of this index of an operation.
    Operation { op: u64, index: usize },
    /// A batch of new blocks.
    Batch(u64),
}

/// The result of a request: the bytes read, none for a write.
pub type IoResult = Result<Vec<Bytes>, HostError>;

/// What follows from the host's answer.
#[derive(Clone, Debug)]
pub enum IoEnd {
    Ended(IoOwner, IoResult),
    Fenced,
    /// The request is made again later, or nobody waits for it.
    Nothing,
}

#[derive(Clone, Debug)]
pub struct VolumeIo {
    volume: VolumeId,
    next: OpId,
    pending: BTreeMap<OpId, Io>,
    /// When requests are made again.
    timers: Timers<OpId>,
    settings: Settings,
    asked: Vec<(OpId, HostRequest)>,
}

#[derive(Clone, Debug)]
struct Io {
    owner: IoOwner,
    request: VolumeRequest,
    again: Backoff,
}

impl VolumeIo {
    /// For the client of a file system, or of a shard of it.
    pub fn new(volume: VolumeId, part: Part, settings: Settings) -> VolumeIo {
        let (next, asked) = (OpId { part, number: 0 }, Vec::new());
        VolumeIo { volume, next, pending: BTreeMap::new(), timers: Timers::default(), settings, asked }
    }

    pub fn read(&mut self, owner: IoOwner, offset: u64, length: usize) {
        self.ask(owner, VolumeRequest::Read { volume: self.volume, offset, length, patience: Patience::Endless });
    }

    pub fn write(&mut self, owner: IoOwner, offset: u64, data: Bytes) {
        self.ask(owner, VolumeRequest::Write { volume: self.volume, offset, data, patience: Patience::Endless });
    }

    pub fn write_blocks(&mut self, owner: IoOwner, blocks: BlockRange, data: Bytes) {
        assert_eq!(data.len() as u64, blocks.count * BLOCK_BYTES as u64, "the bytes fill their blocks");
        self.write(owner, blocks.start * BLOCK_BYTES as u64, data);
    }

    /// An operation that only reads has ended. Its hostreads take no place among those of the host any more.
    pub fn abandon_reads(&mut self, op: u64) {
        let is_of = |io: &Io| matches!(io.owner, IoOwner::Operation { op: owner, .. } if owner == op);
        let ops: Vec<OpId> = self.pending.extract_if(.., |_, io| is_of(io)).map(|(op, _)| op).collect();
        ops.iter().for_each(|op| self.timers.cancel(*op));
        if !ops.is_empty() {
            let op = self.take_op();
            self.asked.push((op, ArrayRequest::Abandon { ops }.into()));
        }
    }

    /// True if this is a request of this part.
    pub fn is_own(&self, op: OpId) -> bool {
        op.part == self.next.part
    }

    pub fn on_outcome(&mut self, now: Time, op: OpId, outcome: HostOutcome) -> IoEnd {
        if outcome == Err(HostError::Fenced) {
            return IoEnd::Fenced;
        }
        let Some(io) = self.pending.get_mut(&op) else { return IoEnd::Nothing };
        let result = match outcome {
            Ok(HostSuccess::Data(data)) => Ok(data),
            Ok(_) => Ok(Vec::new()),
            Err(HostError::Busy) => {
                self.timers.set(op, now.after(io.again.next_wait()));
                return IoEnd::Nothing;
            }
            Err(error) => {
                assert!(!matches!(error, HostError::TimedOut { .. }), "endless patience waits for the outcome");
                Err(error)
            }
        };
        let io = self.pending.remove(&op).expect("just seen");
        IoEnd::Ended(io.owner, result)
    }

    /// The number of hostreads and hostwrites under way.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn deadline(&self) -> Option<Time> {
        self.timers.next().map(|(time, _)| time)
    }

    /// Handles all timers that are due.
    pub fn wake(&mut self, now: Time) {
        while let Some(op) = self.timers.pop_due(now) {
            self.asked.push((op, self.pending[&op].request.clone().into()));
        }
    }

    /// Takes out the requests to make of the host.
    pub fn take_asked(&mut self) -> Vec<(OpId, HostRequest)> {
        std::mem::take(&mut self.asked)
    }

    fn ask(&mut self, owner: IoOwner, request: VolumeRequest) {
        let op = self.take_op();
        self.pending.insert(op, Io { owner, request: request.clone(), again: self.settings.backoff() });
        self.asked.push((op, request.into()));
    }

    fn take_op(&mut self) -> OpId {
        let op = self.next;
        self.next.number += 1;
        op
    }
}
