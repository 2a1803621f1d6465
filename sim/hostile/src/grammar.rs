//! The grammar of hostile messages: any message of any node, with values that are likely to matter.
//!
//! A value that is drawn at random from all values is refused at once. So most values are those that the machine has used itself, or that
//! are near: the present epoch, the stamps of the moment, the transactions under way. Others are the first, the last, or any. The structure
//! of messages is that of the codec ([`Any`]); the grammar is the [`Source`] of their values, by type and field. What one message says of a
//! transaction fits together: its stamp, its object, its blocks.
//!
//! | module | what |
//! | --- | --- |
//! | `commits` | messages of the commit protocols, which travel as bytes; and memberships that may follow the present one |
//! | `frequencies` | how often each variant, flag and optional value is chosen |

mod commits;
mod frequencies;

use crate::choices::Choices;
use crate::known::{Known, KnownTransaction};
use crate::prelude::*;
use braid_base::{DiskId, FileSystemId};
use braid_wire::any::{Any, Source};
use braid_wire::{Answer, FileCommand, Frame, Reply};

/// Composes messages.
#[derive(Clone, Debug)]
pub struct Grammar {
    pub choices: Choices,
    pub known: Known,
    /// The receiver of the message that is being composed.
    to: NodeId,
    about: KnownTransaction,
    /// How many of that transaction's ranges it has named.
    named: usize,
    /// It is about an object that holds bytes and attributes.
    is_of_attributes: bool,
}

impl Grammar {
    pub fn new(choices: Choices, known: Known) -> Grammar {
        let about = KnownTransaction {
            id: TransactionId { host: known.own_host, sequence: 0 },
            stamp: Stamp { clock: known.now.clock, host: known.own_host },
            object: ObjectId(1),
            ordering: Ordering::Timestamp,
            ranges: Vec::new(),
        };
        Grammar { choices, known, to: NodeId::Monitor, about, named: 0, is_of_attributes: false }
    }

    /// A message to a node, and its sender. Most are of kinds that the node handles, from nodes that may send them. None if the message has
    /// no valid frame, so that no connection would pass it on.
    pub fn message(&mut self, to: NodeId) -> Option<(NodeId, Message)> {
        self.to = to;
        let mut message: Message = self.any();
        let sender = self.usual_sender(&message);
        let from = if self.choices.chance(4) { self.node() } else { sender };
        self.make_sensible(&mut message, from);
        legal(from, to, message)
    }

    /// Any value, about one transaction.
    fn any<T: Any>(&mut self) -> T {
        self.about = self.known_transaction();
        (self.named, self.is_of_attributes) = (0, false);
        T::any(self, "")
    }

    fn usual_sender(&mut self, message: &Message) -> NodeId {
        match message {
            Message::Request(request) => NodeId::Host(request.host),
            Message::LockRequest(request) => NodeId::Host(request.host),
            Message::FileRequest(request) => NodeId::Host(request.host),
            Message::Answer(_) | Message::Partial(_) => NodeId::Device(self.device()),
            Message::LockAnswer(_) => NodeId::LockServer(LockServerId(self.choices.below(2) as u16)),
            Message::MonitorRequest(_) if self.choices.chance(50) => NodeId::Host(self.generation()),
            Message::MonitorRequest(_) => NodeId::Device(self.device()),
            Message::MonitorAnswer(_) => NodeId::Monitor,
            Message::FileAnswer(_) => NodeId::MetadataServer(FileSystemId(3)),
            Message::Shard(_) => NodeId::MetadataServer(FileSystemId(4)),
        }
    }

    /// What an honest sender observes, as a rule: lists ascend, and a transaction belongs to the host that sends it.
    fn make_sensible(&mut self, message: &mut Message, from: NodeId) {
        if self.choices.chance(8) {
            return;
        }
        match message {
            Message::Request(request) => {
                if let Command::Read { transaction, .. }
                | Command::Prewrite { transaction, .. }
                | Command::Write { transaction, .. }
                | Command::Execute { transaction, .. }
                | Command::Retract { transaction, .. } = &request.command
                {
                    request.host = transaction.host;
                }
                request.over.sort_unstable();
                request.commits.sort_unstable();
            }
            Message::FileRequest(request) => {
                request.sequence = request.sequence.max(request.settled).min(u64::MAX - 1);
                if let FileCommand::Attach { extents, .. } = &mut request.command {
                    extents.sort_by_key(|extent| extent.at);
                }
            }
            Message::MonitorRequest(request) => {
                if let MonitorCommand::Renew { disk, .. } = &mut request.command {
                    let NodeId::Device(device) = from else { return *disk = None };
                    *disk = Some(DiskId(100 + u64::from(device.0)));
                }
            }
            Message::MonitorAnswer(answer) if answer.membership.is_some() => {
                answer.membership = Some(self.membership());
            }
            _ => {}
        }
    }

    /// An answer that is wrong in one respect: what a device that lies makes of its true answer.
    pub fn lie(&mut self, truth: Answer) -> Answer {
        let Answer { epoch, confirmed, reply } = truth;
        let other: Answer = self.any();
        match self.choices.below(10) {
            0 => return other,
            1 => return Answer { epoch: other.epoch, confirmed, reply },
            2 => return Answer { epoch, confirmed: other.confirmed, reply },
            _ => {}
        }
        let reply = match reply {
            Reply::Data { transaction, waited, mut pieces } => {
                for piece in &mut pieces {
                    match self.choices.below(4) {
                        0 => {}
                        1 => piece.range = self.fresh_range(),
                        _ => {
                            self.about.ranges = vec![piece.range];
                            piece.content = braid_blocks::Piece::any(self, "pieces").content;
                        }
                    }
                }
                Reply::Data { transaction, waited, pieces }
            }
            Reply::Heartbeat { .. } => Reply::Heartbeat {
                orphans: Any::any(self, "orphans"),
                suspects: Any::any(self, "suspects"),
                busy: self.choices.chance(50),
            },
            // It says that it has written, and has not; or the reverse.
            Reply::Refused { transaction, .. } | Reply::Failed { transaction, .. } => {
                Reply::Written { transaction, waited: false }
            }
            Reply::Written { transaction, .. } if self.choices.chance(30) => {
                Reply::Refused { transaction, step: braid_wire::Step::Write, refusal: Any::any(self, "refusal") }
            }
            Reply::Vote { transaction, .. } => Reply::Vote { transaction, vote: Any::any(self, "vote") },
            Reply::Managed { ticket, .. } => Reply::Managed { ticket, result: Ok(Any::any(self, "result")) },
            Reply::Objects { sequence, .. } => Reply::Objects { sequence, answer: Any::any(self, "answer") },
            honest if self.choices.chance(50) => honest,
            _ => other.reply,
        };
        Answer { epoch, confirmed, reply }
    }

    /// Any node.
    fn node(&mut self) -> NodeId {
        match self.choices.below(5) {
            0 => NodeId::Host(self.generation()),
            1 => NodeId::Device(self.device()),
            2 => NodeId::LockServer(LockServerId(self.choices.pick(&[0, 1, 15, 16, u16::MAX]))),
            3 => NodeId::Monitor,
            _ => NodeId::MetadataServer(FileSystemId(self.choices.pick(&[0, 3, u16::MAX]))),
        }
    }

    /// Usually a number of this size; sometimes an extreme one.
    fn number_near(&mut self, usual: u64) -> u64 {
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

    fn disk(&mut self) -> DiskId {
        DiskId(if self.choices.chance(10) { self.number_near(9) } else { 100 + self.choices.below(4) })
    }

    fn epoch(&mut self) -> Epoch {
        let present = self.known.epoch.0;
        if !self.choices.chance(10) {
            return self.known.epoch;
        }
        let near = [0, 1, present.saturating_sub(1), present.saturating_add(1), present.saturating_add(2)];
        let far = [u32::MAX - 15, u32::MAX - 1, u32::MAX];
        Epoch(if self.choices.chance(5) { self.choices.pick(&far) } else { self.choices.pick(&near) })
    }

    fn time(&mut self) -> Time {
        let now = self.known.now.time.0;
        let sent = self.known.sent.back().copied().unwrap_or(Time(now));
        if self.choices.chance(70) { sent } else { Time(self.choices.pick(&[0, now, now.saturating_add(1), u64::MAX])) }
    }

    fn fresh_clock(&mut self) -> Clock {
        let now = self.known.now.clock.0;
        if self.choices.chance(6) {
            return Clock(self.choices.pick(&[0, 1, now.saturating_add(6_000_000_000), u64::MAX / 2, u64::MAX]));
        }
        Clock(now.saturating_add(self.choices.below(40_000)).saturating_sub(20_000))
    }

    fn object(&mut self) -> ObjectId {
        if self.choices.chance(8) {
            return ObjectId(self.number_near(9));
        }
        let objects: Vec<ObjectId> = self.known.objects.keys().copied().collect();
        if objects.is_empty() { ObjectId(1) } else { self.choices.pick(&objects) }
    }

    /// The ordering of an object, as a rule.
    fn ordering_of(&mut self, object: ObjectId) -> Ordering {
        let any = self.choices.pick(&Ordering::ALL);
        if self.choices.chance(4) { any } else { self.known.objects.get(&object).copied().unwrap_or(any) }
    }

    /// Blocks of an object. Few, and near to each other, so that transactions meet.
    fn fresh_range(&mut self) -> BlockRange {
        if self.choices.chance(5) {
            let (start, count) = (self.number_near(self.known.blocks), self.number_near(80));
            return BlockRange { start, count };
        }
        let start = self.choices.below(24);
        let count = if self.choices.chance(10) { 16 } else { 1 + self.choices.below(3) };
        BlockRange { start, count }
    }

    /// Ascending ranges, as a rule.
    fn fresh_ranges(&mut self) -> Vec<BlockRange> {
        let count = if self.choices.chance(20) { self.choices.below(5) } else { 1 };
        let mut ranges: Vec<BlockRange> = (0..count).map(|_| self.fresh_range()).collect();
        if self.choices.chance(90) {
            ranges.sort_by_key(|range| range.start);
            ranges.dedup_by(|next, range| next.start < range.start.saturating_add(range.count));
        }
        ranges
    }

    /// A transaction that is known, as a rule.
    fn known_transaction(&mut self) -> KnownTransaction {
        let known = self.known.transactions.len() as u64;
        if known > 0 && self.choices.chance(75) {
            let at = self.choices.below(known) as usize;
            return self.known.transactions[at].clone();
        }
        let (host, object) = (self.generation(), self.object());
        let transaction = KnownTransaction {
            id: TransactionId { host, sequence: self.number_near(200) },
            stamp: Stamp { clock: self.fresh_clock(), host },
            object,
            ordering: self.ordering_of(object),
            ranges: self.fresh_ranges(),
        };
        self.known.note_transaction(transaction.clone());
        transaction
    }

    /// A number that identifies a request of the machine, as a rule.
    pub fn ticket(&mut self, usual: u64) -> u64 {
        let known: Vec<u64> = self.known.tickets.iter().copied().collect();
        if !known.is_empty() && self.choices.chance(60) { self.choices.pick(&known) } else { self.number_near(usual) }
    }

    fn some_bytes(&mut self, most: u64) -> Bytes {
        let length = self.choices.below(most + 1) as usize;
        Bytes::from(vec![self.choices.below(256) as u8; length])
    }
}

impl Source for Grammar {
    fn below(&mut self, bound: u64) -> u64 {
        self.choices.below(bound)
    }

    fn number(&mut self, kind: &'static str, field: &'static str) -> u64 {
        match (kind, field) {
            ("Generation", "start") if self.choices.chance(90) => self.known.start.0.into(),
            ("Generation", _) => self.generation().0.into(),
            ("DeviceId", _) => self.device().0.into(),
            ("DiskId", _) => self.disk().0,
            ("Epoch", "since") if self.choices.chance(50) => 1,
            ("Epoch", _) => self.epoch().0.into(),
            ("Time", "sent") if self.to == NodeId::Monitor && self.choices.chance(90) => self.known.now.time.0,
            ("Time", _) => self.time().0,
            ("Clock", _) => self.fresh_clock().0,
            ("ObjectId", _) if self.is_of_attributes => self.number_near(5),
            ("ObjectId", _) if self.choices.chance(90) => self.about.object.0,
            ("ObjectId", _) => self.object().0,
            ("InodeId", "parent" | "new_parent") if self.choices.chance(70) => 1,
            // Some are of another shard.
            ("InodeId", _) => self.number_near(12) | if self.choices.chance(20) { 1 << 56 } else { 0 },
            ("ShardId", _) if self.choices.chance(95) => 1,
            ("ShardId", _) => self.choices.pick(&[0, 1, 7, 8, u8::MAX]).into(),
            ("Duration", _) if self.choices.chance(90) => 4_000_000_000,
            ("Duration", _) => self.number_near(1 << 40),
            (_, "over" | "commits" | "confirmed") => self.known_transaction().id.sequence,
            (_, "settled") => {
                if self.choices.chance(20) {
                    self.number_near(120)
                } else {
                    0
                }
            }
            (_, "ticket" | "sequence") => self.ticket(100),
            ("u64", "number" | "lock_id" | "lock_ids") => self.ticket(12),
            (_, "page") if self.choices.chance(95) => self.choices.below(2),
            (_, "position") if self.choices.chance(95) => self.choices.below(3),
            ("u32", "number") | (_, "round" | "received" | "moves" | "bad_slots" | "file_system") => {
                self.number_near(4)
            }
            (_, "first") => self.number_near(4).saturating_mul(16),
            (_, "last") => self.number_near(30).saturating_add(48),
            (_, "blocks" | "absent" | "at") => self.number_near(64),
            ("u32" | "u64", "offset" | "length") => self.number_near(9_000),
            (_, "size" | "bytes_per_second") => self.number_near(1 << 20),
            (_, "patience") => self.number_near(5_000),
            ("u16", "mode") => {
                self.number_near(0o777) | if self.choices.chance(50) { braid_wire::OPENS.into() } else { 0 }
            }
            _ => self.number_near(99),
        }
    }

    fn variant(&mut self, kind: &'static str, variants: &[&'static str]) -> usize {
        let index_of = |wanted: &str| variants.iter().position(|variant| *variant == wanted).expect("it is a variant");
        if kind == "Ordering" {
            let ordering = self.ordering_of(self.about.object);
            return index_of(&format!("{ordering:?}"));
        }
        if kind == "Message" && !self.choices.chance(4) {
            return index_of(self.choices.pick(frequencies::usual_messages(self.to)));
        }
        let weights: Vec<u64> = variants.iter().map(|variant| frequencies::weight(kind, variant)).collect();
        let mut drawn = self.choices.below(weights.iter().sum());
        let chosen = weights.iter().position(|weight| {
            let is_here = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_here
        });
        let chosen = chosen.expect("it is below the sum");
        if matches!((kind, variants[chosen]), ("Command" | "Reply", "Objects" | "Await" | "Changed")) {
            self.is_of_attributes = true;
        }
        chosen
    }

    fn is_there(&mut self, field: &'static str) -> bool {
        self.choices.chance(frequencies::per_cent(field))
    }

    fn length(&mut self, field: &'static str) -> u64 {
        match field {
            "extents" | "prewrites" | "pieces" if self.choices.chance(85) => self.about.ranges.len() as u64,
            "reads" | "over" | "commits" | "confirmed" | "silent" | "dropped" | "abandoned" | "undecided"
            | "except" | "also" | "unavailable"
                if self.choices.chance(75) =>
            {
                0
            }
            _ => self.choices.below(5),
        }
    }

    fn bytes(&mut self, field: &'static str) -> Bytes {
        match field {
            "name" | "new_name" if self.choices.chance(95) => {
                let names: [&[u8]; 6] = [b"a", b"b", b"c", b"long name", b".", b"x/y"];
                Bytes::from_static(self.choices.pick(&names))
            }
            "name" | "new_name" => self.some_bytes(260),
            "message" if self.choices.chance(85) => self.commit_message().encode(),
            "data" => self.some_bytes(5_000),
            "value" | "target" | "message" => self.some_bytes(60),
            _ => self.some_bytes(9),
        }
    }

    fn transaction(&mut self) -> TransactionId {
        (self.about, self.named) = (self.known_transaction(), 0);
        self.about.id
    }

    fn stamp(&mut self) -> Stamp {
        if self.choices.chance(95) {
            return self.about.stamp;
        }
        Stamp { clock: self.fresh_clock(), host: self.generation() }
    }

    /// The next range of the transaction, as a rule.
    fn range(&mut self, _field: &'static str) -> BlockRange {
        let next = self.about.ranges.get(self.named % self.about.ranges.len().max(1)).copied();
        self.named += 1;
        next.filter(|_| self.choices.chance(90)).unwrap_or_else(|| self.fresh_range())
    }

    /// No frame has more data than some blocks.
    fn data_range(&mut self) -> BlockRange {
        let range = self.range("data");
        BlockRange { count: range.count.min(64), ..range }
    }
}

/// The message as its receiver decodes it; none if it has no valid frame.
pub fn legal(from: NodeId, to: NodeId, message: Message) -> Option<(NodeId, Message)> {
    let frame = Frame { array: braid_base::ArrayId([7; 16]), from, to, message };
    let decoded = Frame::decode(frame.encode().to_bytes()).ok()?;
    Some((decoded.from, decoded.message))
}
