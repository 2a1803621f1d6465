//! Encoding and decoding of frames, including the checksum.

use crate::{Workload, pattern};
use braid_base::{
    ArrayId, BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, NodeId, ObjectId, Stamp, TransactionId,
};
use braid_blocks::{Content, Linkage, Piece};
use braid_ordering::{Ordering, WriteMode};
use braid_wire::{Answer, Command, Frame, Message, Reply, Request};

const HOST: Generation = Generation(7);
const DEVICE: DeviceId = DeviceId(3);
const TRANSACTION: TransactionId = TransactionId { host: HOST, sequence: 1_000_000 };
const STAMP: Stamp = Stamp { clock: Clock(1_700_000_000_000_000_000), host: HOST };
const OBJECT: ObjectId = ObjectId(1);
const BLOCK: BlockRange = BlockRange { start: 5000, count: 1 };

pub(crate) fn workloads() -> Vec<Workload> {
    let chunk = BlockRange { count: 16, ..BLOCK };
    let bytes = |range: BlockRange| range.count as usize * BLOCK_BYTES;
    vec![
        encode("wire/encode-prewrite", prewrite),
        decode("wire/decode-prewrite", prewrite),
        encode("wire/encode-write-4KiB", write).of_bytes(bytes(BLOCK)),
        decode("wire/decode-write-4KiB", write).of_bytes(bytes(BLOCK)),
        encode("wire/encode-data-4KiB", || data(BLOCK)).of_bytes(bytes(BLOCK)),
        decode("wire/decode-data-4KiB", || data(BLOCK)).of_bytes(bytes(BLOCK)),
        encode("wire/encode-data-64KiB", move || data(chunk)).of_bytes(bytes(chunk)),
        decode("wire/decode-data-64KiB", move || data(chunk)).of_bytes(bytes(chunk)),
    ]
}

fn encode(name: &'static str, frame: impl Fn() -> Frame + 'static) -> Workload {
    Workload::same(name, frame, Frame::encode)
}

fn decode(name: &'static str, frame: impl Fn() -> Frame + 'static) -> Workload {
    let begin = move || frame().encode().to_bytes();
    Workload::new(name, begin, |bytes| bytes.clone(), |_, bytes| Frame::decode(bytes).expect("the frame is valid"))
}

fn prewrite() -> Frame {
    let (transaction, stamp, object, ordering) = (TRANSACTION, STAMP, OBJECT, Ordering::Timestamp);
    let (prewrites, reads) = (vec![BLOCK], vec![BLOCK]);
    request(Command::Prewrite { transaction, stamp, object, ordering, prewrites, reads })
}

fn write() -> Frame {
    let (transaction, stamp, object, ordering) = (TRANSACTION, STAMP, OBJECT, Ordering::Timestamp);
    let (participants, linkage) = (vec![DEVICE, DeviceId(4)], Linkage { first: BLOCK.start, last: BLOCK.start });
    let (mode, pieces) = (WriteMode::Intent, vec![piece(BLOCK)]);
    request(Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces })
}

fn data(range: BlockRange) -> Frame {
    let reply = Reply::Data { transaction: TRANSACTION, waited: false, pieces: vec![piece(range)] };
    let message = Message::Answer(Answer { epoch: Epoch(1), confirmed: vec![TRANSACTION.sequence - 1], reply });
    Frame { array: ArrayId([7; 16]), from: NodeId::Device(DEVICE), to: NodeId::Host(HOST), message }
}

fn piece(range: BlockRange) -> Piece {
    Piece { range, content: Content::Data(pattern(range.count as usize * BLOCK_BYTES)) }
}

fn request(command: Command) -> Frame {
    let (settled, commits) = (TRANSACTION.sequence - 2, vec![TRANSACTION.sequence - 1]);
    let request = Request { host: HOST, epoch: Epoch(1), settled, over: Vec::new(), commits, command };
    let message = Message::Request(request);
    Frame { array: ArrayId([7; 16]), from: NodeId::Host(HOST), to: NodeId::Device(DEVICE), message }
}
