//! First writes of blocks: takes blocks from the allotment, and writes those of small writes together.
//!
//! Small writes that are under way together get blocks next to each other, which one hostwrite fills: at most a stripe, so that a full
//! stripe needs no old data to compute its parity. A write that comes alone is not delayed. Those that come while a batch is being written
//! share the next one. A write of a stripe or more waits for nobody.

use crate::allotment::Allotment;
use crate::progress::Progress;
use crate::volume_io::{IoOwner, IoResult, VolumeIo};
use braid_base::{BLOCK_BYTES, BlockRange, limits};
use braid_machine::HostError;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug, Default)]
pub struct Packer {
    /// The most blocks in a batch.
    batch_blocks: u64,
    waiting: VecDeque<Item>,
    batches: BTreeMap<u64, Batch>,
    /// The batch of small writes that is being written.
    packed: Option<u64>,
    next_batch: u64,
    /// Writes that have ended: the operation, and its blocks in order.
    ended: Vec<(u64, Result<Vec<BlockRange>, HostError>)>,
}

/// New blocks of an operation, which has reserved as many.
#[derive(Clone, Debug)]
struct Item {
    op: u64,
    blocks: u64,
    data: Vec<Bytes>,
}

#[derive(Clone, Debug)]
struct Batch {
    /// The operations and their numbers of blocks, in order.
    items: Vec<(u64, u64)>,
    runs: Vec<BlockRange>,
    pending: usize,
    error: Option<HostError>,
}

impl Packer {
    pub fn new(stripe_blocks: u64) -> Packer {
        let most = (limits::TRANSACTION_BYTES_MAX / BLOCK_BYTES) as u64;
        Packer { batch_blocks: stripe_blocks.clamp(1, most), ..Packer::default() }
    }

    /// Writes new blocks of an operation. The bytes fill them.
    pub fn write(&mut self, io: &mut VolumeIo, allotment: &mut Allotment, op: u64, data: Vec<Bytes>) {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let item = Item { op, blocks: (bytes / BLOCK_BYTES) as u64, data };
        if item.blocks >= self.batch_blocks {
            self.begin(io, allotment, vec![item]);
        } else {
            self.waiting.push_back(item);
        }
    }

    /// Begins the next batch of small writes, unless one is being written. Called at the end of each step.
    pub fn flush(&mut self, io: &mut VolumeIo, allotment: &mut Allotment) {
        if self.packed.is_some() || self.waiting.is_empty() {
            return;
        }
        let (mut items, mut blocks) = (Vec::new(), 0);
        while let Some(item) = self.waiting.pop_front_if(|item| blocks + item.blocks <= self.batch_blocks) {
            blocks += item.blocks;
            items.push(item);
        }
        self.packed = Some(self.begin(io, allotment, items));
    }

    /// A hostwrite of a batch has ended.
    pub fn on_written(
        &mut self,
        allotment: &mut Allotment,
        number: u64,
        result: IoResult,
        progress: &mut Vec<Progress>,
    ) {
        let batch = self.batches.get_mut(&number).expect("a batch is known until all of it is written");
        batch.pending -= 1;
        batch.error = batch.error.take().or(result.err());
        if batch.pending > 0 {
            return;
        }
        let batch = self.batches.remove(&number).expect("just seen");
        if self.packed == Some(number) {
            self.packed = None;
        }
        match batch.error {
            None => self.ended.extend(divide(batch.items, &batch.runs).into_iter().map(|(op, runs)| (op, Ok(runs)))),
            Some(error) => {
                allotment.put_back(&batch.runs, progress);
                self.ended.extend(batch.items.into_iter().map(|(op, _)| (op, Err(error.clone()))));
            }
        }
    }

    /// Takes out the writes that have ended.
    pub fn take_ended(&mut self) -> Vec<(u64, Result<Vec<BlockRange>, HostError>)> {
        std::mem::take(&mut self.ended)
    }

    pub fn invariants(&self) {
        assert!(self.waiting.is_empty() || self.packed.is_some(), "a write that comes alone is not delayed");
        assert!(self.batches.values().all(|batch| batch.pending > 0), "a batch under way waits for something");
    }

    fn begin(&mut self, io: &mut VolumeIo, allotment: &mut Allotment, items: Vec<Item>) -> u64 {
        let number = self.next_batch;
        self.next_batch += 1;
        let runs = allotment.take(items.iter().map(|item| item.op));
        let mut data = join(items.iter().flat_map(|item| item.data.iter().cloned()).collect());
        for run in &runs {
            let bytes = data.split_to(run.count as usize * BLOCK_BYTES);
            io.write_blocks(IoOwner::Batch(number), *run, bytes);
        }
        assert!(data.is_empty(), "there is a block for all bytes");
        let items = items.iter().map(|item| (item.op, item.blocks)).collect();
        self.batches.insert(number, Batch { items, pending: runs.len(), runs, error: None });
        number
    }
}

/// Divides runs of blocks among operations, in order.
fn divide(items: Vec<(u64, u64)>, runs: &[BlockRange]) -> Vec<(u64, Vec<BlockRange>)> {
    let mut left: VecDeque<BlockRange> = runs.iter().copied().collect();
    let share = |(op, mut blocks): (u64, u64)| {
        let mut own = Vec::new();
        while blocks > 0 {
            let run = left.front_mut().expect("there is a block for all bytes");
            let count = blocks.min(run.count);
            own.push(BlockRange::new(run.start, count));
            *run = BlockRange::new(run.start + count, run.count - count);
            blocks -= count;
            left.pop_front_if(|run| run.is_empty());
        }
        (op, own)
    };
    items.into_iter().map(share).collect()
}

fn join(mut buffers: Vec<Bytes>) -> Bytes {
    if buffers.len() == 1 {
        return buffers.remove(0);
    }
    let mut joined = BytesMut::with_capacity(buffers.iter().map(Bytes::len).sum());
    buffers.iter().for_each(|buffer| joined.extend_from_slice(buffer));
    joined.freeze()
}
