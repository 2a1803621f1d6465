//! The grammar of hostile messages: any message of any node, with values that are likely to matter.
//!
//! A value that is drawn at random from all values is refused at once. So most values are those that the machine has used itself, or that
//! are near: the present epoch, the stamps of the moment, the transactions under way. Others are the first, the last, or any.
//!
//! | module | messages |
//! | --- | --- |
//! | `grammar` | numbers, names of nodes, blocks; which node sends what |
//! | `blocks` | between hosts and devices, and between devices |
//! | `control` | to and from the monitor and the lock servers |
//! | `files` | to and from metadata servers; requests for objects |
//! | `shards` | between metadata servers |

mod blocks;
mod control;
mod files;
mod shards;

use crate::choices::Choices;
use crate::known::{Known, KnownTransaction};
use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, DiskId, Epoch, FileSystemId, Generation, InodeId, LockServerId, NodeId,
    ObjectId, Stamp, Time, TransactionId, VolumeId,
};
use braid_blocks::{Content, Linkage, Piece};
use braid_ordering::{Atomicity, Ordering, WriteMode};
use braid_wire::{Frame, Message};
use bytes::Bytes;

/// Composes messages.
#[derive(Clone, Debug)]
pub struct Grammar {
    pub choices: Choices,
    pub known: Known,
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Answer,
    LockRequest,
    LockAnswer,
    MonitorRequest,
    MonitorAnswer,
    Partial,
    FileRequest,
    FileAnswer,
    Shard,
}

const KINDS: [Kind; 10] = [
    Kind::Request,
    Kind::Answer,
    Kind::LockRequest,
    Kind::LockAnswer,
    Kind::MonitorRequest,
    Kind::MonitorAnswer,
    Kind::Partial,
    Kind::FileRequest,
    Kind::FileAnswer,
    Kind::Shard,
];

impl Grammar {
    pub fn new(choices: Choices, known: Known) -> Grammar {
        Grammar { choices, known }
    }

    /// A message to a node, and its sender. Most are of kinds that the node handles, from nodes that may send them. None if the message has
    /// no valid frame, so that no connection would pass it on.
    pub fn message(&mut self, to: NodeId) -> Option<(NodeId, Message)> {
        let usual: &[Kind] = match to {
            NodeId::Device(_) => {
                &[Kind::Request, Kind::Request, Kind::Request, Kind::Request, Kind::Partial, Kind::MonitorAnswer]
            }
            NodeId::Host(_) => &[Kind::Answer, Kind::Answer, Kind::Answer, Kind::LockAnswer, Kind::MonitorAnswer],
            NodeId::LockServer(_) => &[Kind::LockRequest, Kind::LockRequest, Kind::LockRequest, Kind::MonitorAnswer],
            NodeId::Monitor => &[Kind::MonitorRequest],
            NodeId::MetadataServer(_) => {
                &[Kind::FileRequest, Kind::FileRequest, Kind::Shard, Kind::LockRequest, Kind::MonitorAnswer]
            }
        };
        let kind = if self.choices.chance(4) { self.choices.pick(&KINDS) } else { self.choices.pick(usual) };
        let host = self.generation();
        let usual_sender = match kind {
            Kind::Request | Kind::LockRequest | Kind::FileRequest => NodeId::Host(host),
            Kind::Answer | Kind::Partial => NodeId::Device(self.device()),
            Kind::LockAnswer => NodeId::LockServer(LockServerId(self.choices.below(2) as u16)),
            Kind::MonitorRequest if self.choices.chance(50) => NodeId::Host(host),
            Kind::MonitorRequest => NodeId::Device(self.device()),
            Kind::MonitorAnswer => NodeId::Monitor,
            Kind::FileAnswer => NodeId::MetadataServer(FileSystemId(3)),
            Kind::Shard => NodeId::MetadataServer(FileSystemId(4)),
        };
        let from = if self.choices.chance(4) { self.node() } else { usual_sender };
        let message = match kind {
            Kind::Request => Message::Request(self.request(host)),
            Kind::Answer => Message::Answer(self.answer()),
            Kind::LockRequest => Message::LockRequest(self.lock_request(host)),
            Kind::LockAnswer => Message::LockAnswer(self.lock_answer()),
            Kind::MonitorRequest => Message::MonitorRequest(self.monitor_request(from)),
            Kind::MonitorAnswer => Message::MonitorAnswer(self.monitor_answer()),
            Kind::Partial => Message::Partial(self.partial()),
            Kind::FileRequest => Message::FileRequest(self.file_request(host)),
            Kind::FileAnswer => Message::FileAnswer(self.file_answer()),
            Kind::Shard => Message::Shard(self.shard_message()),
        };
        legal(from, to, message)
    }

    /// Any node.
    pub fn node(&mut self) -> NodeId {
        match self.choices.below(5) {
            0 => NodeId::Host(self.generation()),
            1 => NodeId::Device(self.device()),
            2 => NodeId::LockServer(LockServerId(self.choices.pick(&[0, 1, 15, 16, u16::MAX]))),
            3 => NodeId::Monitor,
            _ => NodeId::MetadataServer(FileSystemId(self.choices.pick(&[0, 3, u16::MAX]))),
        }
    }

    /// Usually a number of this size; sometimes an extreme one.
    pub fn number(&mut self, usual: u64) -> u64 {
        if !self.choices.chance(6) {
            return self.choices.below(usual.max(1));
        }
        let any = self.choices.any();
        self.choices.pick(&[
            0,
            1,
            usual,
            usual.saturating_add(1),
            u64::from(u32::MAX),
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
            any,
        ])
    }

    pub fn generation(&mut self) -> Generation {
        if self.choices.chance(5) {
            let any = self.choices.any() as u32;
            return Generation(self.choices.pick(&[0, 1, 900, 1_000_000, u32::MAX - 1, u32::MAX, any]));
        }
        self.choices.pick(&[Generation(4), Generation(5), Generation(6), self.known.own_host])
    }

    pub fn device(&mut self) -> DeviceId {
        let number = if self.choices.chance(5) {
            self.choices.pick(&[7, 1023, 1024, u16::MAX])
        } else {
            self.choices.below(4) as u16
        };
        DeviceId(number)
    }

    pub fn devices(&mut self) -> Vec<DeviceId> {
        (0..self.choices.below(5)).map(|_| self.device()).collect()
    }

    pub fn disk(&mut self) -> DiskId {
        DiskId(if self.choices.chance(10) { self.number(9) } else { 100 + self.choices.below(4) })
    }

    pub fn epoch(&mut self) -> Epoch {
        let present = self.known.epoch.0;
        if !self.choices.chance(10) {
            return self.known.epoch;
        }
        let near = [0, 1, present.saturating_sub(1), present.saturating_add(1), present.saturating_add(2)];
        let far = [u32::MAX - 15, u32::MAX - 1, u32::MAX];
        Epoch(if self.choices.chance(5) { self.choices.pick(&far) } else { self.choices.pick(&near) })
    }

    pub fn time(&mut self) -> Time {
        let now = self.known.now.time.0;
        let sent = self.known.sent.back().copied().unwrap_or(Time(now));
        if self.choices.chance(70) { sent } else { Time(self.choices.pick(&[0, now, now.saturating_add(1), u64::MAX])) }
    }

    pub fn clock(&mut self) -> Clock {
        let now = self.known.now.clock.0;
        if self.choices.chance(6) {
            return Clock(self.choices.pick(&[0, 1, now.saturating_add(6_000_000_000), u64::MAX / 2, u64::MAX]));
        }
        Clock(now.saturating_add(self.choices.below(40_000)).saturating_sub(20_000))
    }

    pub fn stamp(&mut self) -> Stamp {
        Stamp { clock: self.clock(), host: self.generation() }
    }

    pub fn object(&mut self) -> ObjectId {
        if self.choices.chance(8) {
            return ObjectId(self.number(9));
        }
        let objects: Vec<ObjectId> = self.known.objects.keys().copied().collect();
        if objects.is_empty() { ObjectId(1) } else { self.choices.pick(&objects) }
    }

    pub fn volume(&mut self) -> VolumeId {
        VolumeId(self.number(4))
    }

    pub fn inode(&mut self) -> InodeId {
        InodeId(self.number(12))
    }

    pub fn ordering(&mut self) -> Ordering {
        self.choices.pick(&Ordering::ALL)
    }

    /// The ordering of an object, as a rule.
    pub fn ordering_of(&mut self, object: ObjectId) -> Ordering {
        let any = self.ordering();
        if self.choices.chance(4) { any } else { self.known.objects.get(&object).copied().unwrap_or(any) }
    }

    pub fn atomicity(&mut self) -> Atomicity {
        self.choices.pick(&[Atomicity::Implied, Atomicity::Consistent])
    }

    pub fn mode(&mut self) -> WriteMode {
        self.choices.pick(&[WriteMode::Intent, WriteMode::Intent, WriteMode::Immediate])
    }

    /// Blocks of an object. Few, and near to each other, so that transactions meet.
    pub fn range(&mut self) -> BlockRange {
        if self.choices.chance(5) {
            let (start, count) = (self.number(self.known.blocks), self.number(80));
            return BlockRange { start, count };
        }
        let start = self.choices.below(24);
        let count = if self.choices.chance(10) { 16 } else { 1 + self.choices.below(3) };
        BlockRange { start, count }
    }

    /// Ascending ranges, as a rule.
    pub fn ranges(&mut self) -> Vec<BlockRange> {
        let count = if self.choices.chance(20) { self.choices.below(5) } else { 1 };
        let mut ranges: Vec<BlockRange> = (0..count).map(|_| self.range()).collect();
        if self.choices.chance(90) {
            ranges.sort_by_key(|range| range.start);
            ranges.dedup_by(|next, range| next.start < range.start.saturating_add(range.count));
        }
        ranges
    }

    pub fn linkage(&mut self) -> Linkage {
        let (first, last) = (self.number(30), self.number(30));
        if self.choices.chance(95) {
            Linkage { first: first.min(last), last: first.max(last) }
        } else {
            Linkage { first, last }
        }
    }

    /// A transaction that is known, as a rule.
    pub fn transaction(&mut self) -> KnownTransaction {
        let known = self.known.transactions.len() as u64;
        if known > 0 && self.choices.chance(75) {
            let at = self.choices.below(known) as usize;
            return self.known.transactions[at].clone();
        }
        let host = self.generation();
        let object = self.object();
        let sequence = self.number(200);
        let transaction = KnownTransaction {
            id: TransactionId { host, sequence },
            stamp: Stamp { clock: self.clock(), host },
            object,
            ordering: self.ordering_of(object),
            ranges: self.ranges(),
        };
        self.known.note_transaction(transaction.clone());
        transaction
    }

    pub fn transaction_id(&mut self) -> TransactionId {
        self.transaction().id
    }

    /// Content for some of these ranges, as a rule for all.
    pub fn pieces(&mut self, ranges: &[BlockRange]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for range in ranges {
            if self.choices.chance(3) {
                continue;
            }
            // No frame is that large.
            let range = if range.count > 64 { BlockRange { count: 64, ..*range } } else { *range };
            pieces.push(Piece { range, content: self.content(range) });
        }
        pieces
    }

    pub fn content(&mut self, range: BlockRange) -> Content {
        match self.choices.below(12) {
            0..=7 => {
                Content::Data(Bytes::from(vec![self.choices.below(256) as u8; range.count as usize * BLOCK_BYTES]))
            }
            8 | 9 => Content::Hole,
            10 => Content::Lost,
            _ if self.choices.chance(50) => Content::Present,
            _ => Content::Header {
                transaction: TransactionId { host: self.generation(), sequence: 1 },
                linkage: self.linkage(),
            },
        }
    }

    /// Some sequence numbers of transactions that are known, ascending as a rule.
    pub fn sequences(&mut self) -> Vec<u64> {
        if !self.choices.chance(30) {
            return Vec::new();
        }
        let mut sequences: Vec<u64> = (0..self.choices.below(4)).map(|_| self.transaction().id.sequence).collect();
        if self.choices.chance(90) {
            sequences.sort_unstable();
            sequences.dedup();
        }
        sequences
    }

    pub fn ticket(&mut self) -> u64 {
        let known: Vec<u64> = self.known.tickets.iter().copied().collect();
        if !known.is_empty() && self.choices.chance(60) { self.choices.pick(&known) } else { self.number(300) }
    }

    pub fn bytes(&mut self, most: u64) -> Bytes {
        let length = self.choices.below(most + 1) as usize;
        Bytes::from(vec![self.choices.below(256) as u8; length])
    }
}

/// The message as its receiver decodes it; none if it has no valid frame.
pub fn legal(from: NodeId, to: NodeId, message: Message) -> Option<(NodeId, Message)> {
    let frame = Frame { array: braid_base::ArrayId([7; 16]), from, to, message };
    let decoded = Frame::decode(frame.encode().to_bytes()).ok()?;
    Some((decoded.from, decoded.message))
}
