//! The inbox of a connection divides the received bytes into frames. Bulk data shares the receive buffer and is not copied.
//!
//! The memory of a receive buffer is charged to the peer until the last message that refers to it is dropped. A peer that holds too much
//! loses its messages with bulk data, as if they were lost on the way: the protocols send them again. Others still arrive, among them those
//! by which it releases what it holds.

use crate::budget::{Account, Charge};
use crate::routes::Side;
use braid_base::{ArrayId, NodeId};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{Disagreement, Frame, FrameHeader, Hello, Message, WireError};
use bytes::{Buf, Bytes, BytesMut};
use std::sync::Arc;

/// Bytes of a receive buffer: large enough for many small frames per system call, small enough that a payload that is kept for long does
/// not keep too much unused memory alive.
const RECEIVE_BYTES: usize = 64 << 10;
/// The same before the first frame: connections that say nothing must not cost much.
const FIRST_BYTES: usize = 4 << 10;
/// If less room than this is left, a new buffer is better than another short read.
const ROOM_MIN: usize = 8 << 10;

/// This node, as incoming frames must address it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub array: ArrayId,
    pub id: NodeId,
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Received {
    pub to: NodeId,
    pub from: NodeId,
    pub message: Message,
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    #[error("it belongs to array {theirs}, this node to {ours}: check the address")]
    OtherArray { theirs: ArrayId, ours: ArrayId },
    #[error("it addresses {meant}, this is {us}: check the address")]
    NotUs { meant: NodeId, us: NodeId },
    #[error("it is {found}, but {expected} was expected: check the address")]
    OtherPeer { found: NodeId, expected: NodeId },
    #[error("a {from} does not send a {to} such a message over this connection")]
    NotItsPart { from: &'static str, to: &'static str },
    #[error("{node} has another connection, which is in use")]
    Taken { node: NodeId },
    #[error("a frame of {bytes} bytes was not complete in time")]
    Stalled { bytes: usize },
    #[error("it has not read for {seconds} s")]
    DoesNotRead { seconds: u64 },
    #[error("there are too many connections")]
    TooMany,
}

/// The received bytes of one connection that are not yet decoded, and the node at its other end.
pub(crate) struct Inbox {
    us: Node,
    peer: Option<NodeId>,
    side: Side,
    account: Account,
    buffer: BytesMut,
    /// Charges the allocation of the buffer. Each message that refers to it has a clone.
    memory: Option<Arc<Charge>>,
    /// Bytes of a frame to discard, because there is no memory for it.
    discarding: usize,
    /// Messages that were discarded, since this was asked last.
    discarded: usize,
}

/// A frame, and the memory that it is in.
struct Kept {
    frame: Bytes,
    /// Dropped after the frame.
    _memory: Arc<Charge>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

impl Inbox {
    /// For a connection to `peer`, or to whichever node sends the first frame.
    pub fn new(us: Node, peer: Option<NodeId>, side: Side, account: Account) -> Inbox {
        let buffer = BytesMut::new();
        Inbox { us, peer, side, account, buffer, memory: None, discarding: 0, discarded: 0 }
    }

    /// This node, as the peer addresses it.
    pub fn us(&self) -> Node {
        self.us
    }

    /// The node at the other end, once known.
    pub fn peer(&self) -> Option<NodeId> {
        self.peer
    }

    /// The node at the other end of a pipe has said who it is.
    pub fn identify(&mut self, peer: NodeId) {
        self.peer = Some(peer);
    }

    /// The frame whose rest it waits for: its length, or that of a header if that has not arrived; zero if it waits for no rest.
    pub fn unfinished(&self) -> usize {
        match Frame::header(&self.buffer) {
            _ if self.discarding > 0 => self.discarding,
            _ if self.buffer.is_empty() => 0,
            Ok(Some(header)) => header.frame_bytes,
            _ => HEADER_BYTES,
        }
    }

    /// How many messages were discarded since this was asked last.
    pub fn take_discarded(&mut self) -> usize {
        std::mem::take(&mut self.discarded)
    }

    /// The receive buffer, with room for the rest of the current frame, or for many small frames. Memory is allocated only if the peer may
    /// hold it. For a peer that has not identified itself, the room grows with what has arrived: a header alone reserves nothing.
    pub fn room(&mut self) -> &mut BytesMut {
        let is_known = self.peer.is_some();
        let usual = if is_known { RECEIVE_BYTES } else { FIRST_BYTES };
        let header = Frame::header(&self.buffer).ok().flatten().filter(|_| self.discarding == 0);
        let missing = header.map_or(HEADER_BYTES, |header| header.frame_bytes.saturating_sub(self.buffer.len()));
        let room = self.buffer.capacity() - self.buffer.len();
        let least = ROOM_MIN.min(usual / 2);
        let (enough, wanted) = match (self.side, is_known) {
            (Side::Accepted, false) => (missing.min(least), missing.min(self.buffer.len().max(usual))),
            _ => (missing.max(least), missing),
        };
        if room >= enough {
            return &mut self.buffer;
        }
        match header {
            Some(header) if wanted > usual && !self.may_hold(wanted) => {
                self.discard(header);
                if self.buffer.capacity() < least {
                    self.allocate(usual);
                }
            }
            _ => self.allocate(wanted.max(usual)),
        }
        &mut self.buffer
    }

    /// True if the peer may hold so many bytes more. What was asked for is not limited here.
    fn may_hold(&self, bytes: usize) -> bool {
        match (self.side, self.peer) {
            (Side::Made, _) => true,
            (Side::Accepted, Some(_)) => self.account.has_room_for(bytes),
            (Side::Accepted, None) => self.account.has_room_for_a_stranger(bytes),
        }
    }

    /// Discards the frame at the front of the buffer, of which a part has arrived.
    fn discard(&mut self, header: FrameHeader) {
        self.discarded += 1;
        self.discarding = header.frame_bytes - self.buffer.len();
        self.buffer.clear();
    }

    /// Makes room for so many bytes more. Memory that no message refers to is used again.
    fn allocate(&mut self, room: usize) {
        let needed = self.buffer.len() + room;
        if let Some(memory) = &self.memory
            && Arc::strong_count(memory) == 1
            && memory.bytes() >= needed
            && memory.bytes() - self.buffer.capacity() >= self.buffer.len()
        {
            return self.buffer.reserve(room);
        }
        let mut charge = self.account.charge(needed);
        let mut buffer = BytesMut::with_capacity(needed);
        buffer.extend_from_slice(&self.buffer);
        charge.resize(buffer.capacity());
        (self.buffer, self.memory) = (buffer, Some(Arc::new(charge)));
    }

    /// Releases the buffer if it is empty. A connection that is silent needs none.
    pub fn release(&mut self) {
        if self.buffer.is_empty() {
            (self.buffer, self.memory) = (BytesMut::new(), None);
        }
    }

    /// The hello of the node at the other end, with which a connection begins, once it is complete.
    pub fn hello(&mut self) -> Result<Option<Hello>, Refused> {
        let Some((hello, bytes)) = Hello::decode(&self.buffer)? else { return Ok(None) };
        self.of_our_array(hello.array)?;
        self.buffer.advance(bytes);
        Ok(Some(hello))
    }

    fn of_our_array(&self, theirs: ArrayId) -> Result<(), Refused> {
        let ours = self.us.array;
        if theirs == ours { Ok(()) } else { Err(Refused::OtherArray { theirs, ours }) }
    }

    /// The next complete message and its sender, if there is one.
    pub fn next(&mut self) -> Result<Option<(NodeId, Message)>, Refused> {
        if self.discarding > 0 {
            let here = self.discarding.min(self.buffer.len());
            self.buffer.advance(here);
            self.discarding -= here;
        }
        loop {
            let Some(header) = Frame::header(&self.buffer)? else { return Ok(None) };
            self.of_our_array(header.array)?;
            if self.buffer.len() < header.frame_bytes {
                return Ok(None);
            }
            // What was received counts already.
            if header.payload_bytes > 0 && !self.may_hold(0) {
                self.discarded += 1;
                self.buffer.advance(header.frame_bytes);
                continue;
            }
            return self.decode(header).map(Some);
        }
    }

    fn decode(&mut self, header: FrameHeader) -> Result<(NodeId, Message), Refused> {
        let mut frame = self.buffer.split_to(header.frame_bytes).freeze();
        if let Some(memory) = self.memory.as_ref().filter(|_| header.payload_bytes > 0) {
            frame = Bytes::from_owner(Kept { frame, _memory: memory.clone() });
        }
        let frame = Frame::decode(frame)?;
        if frame.to != self.us.id {
            return Err(Refused::NotUs { meant: frame.to, us: self.us.id });
        }
        if !frame.message.is_allowed(frame.from, frame.to)
            || frame.message.is_by_caller() != (self.side == Side::Accepted)
        {
            return Err(Refused::NotItsPart { from: kind(frame.from), to: kind(frame.to) });
        }
        match self.peer {
            Some(expected) if expected != frame.from => Err(Refused::OtherPeer { found: frame.from, expected }),
            _ => {
                self.peer = Some(frame.from);
                Ok((frame.from, frame.message))
            }
        }
    }
}

fn kind(node: NodeId) -> &'static str {
    match node {
        NodeId::Host(_) => "host",
        NodeId::Device(_) => "device",
        NodeId::LockServer(_) => "lock server",
        NodeId::Monitor => "monitor",
        NodeId::MetadataServer(_) => "metadata server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BUDGET_MIN, Budget, leaked};
    use braid_base::{BlockRange, DeviceId, Epoch, Generation};
    use braid_blocks::{Content, Piece};
    use braid_wire::{Answer, Reply};
    use braid_wire::{Command, Partial, Request};
    use bytes::BufMut;
    use proptest::prelude::*;

    const US: Node = Node { array: ArrayId([1; 16]), id: NodeId::Host(Generation(4)) };
    const PEER: NodeId = NodeId::Device(DeviceId(2));

    fn message(blocks: usize, salt: u8) -> Message {
        let range = BlockRange::new(u64::from(salt), blocks as u64);
        let content = Content::Data(Bytes::from(vec![salt; blocks * 4096]));
        let transaction = braid_base::TransactionId { host: Generation(4), sequence: 1 };
        let reply = Reply::Data { transaction, waited: false, pieces: vec![Piece { range, content }] };
        Message::Answer(Answer { epoch: Epoch(1), confirmed: Vec::new(), reply })
    }

    fn account() -> Account {
        Account::new(Budget::process())
    }

    fn encode(message: Message) -> Bytes {
        Frame { array: US.array, from: PEER, to: US.id, message }.encode().to_bytes()
    }

    /// A device's inbox for a connection of another device, within the smallest budget.
    fn inbox(budget: &'static Budget) -> Inbox {
        Inbox::new(Node { id: PEER, ..US }, None, Side::Accepted, Account::new(budget))
    }

    fn encode_to_peer(from: NodeId, message: Message) -> Bytes {
        Frame { array: US.array, from, to: PEER, message }.encode().to_bytes()
    }

    fn partial(blocks: usize) -> Message {
        let transaction = braid_base::TransactionId { host: Generation(4), sequence: 1 };
        let (epoch, object, range) = (Epoch(1), braid_base::ObjectId(1), BlockRange::new(0, blocks as u64));
        let content = Content::Data(Bytes::from(vec![7; blocks * 4096]));
        Message::Partial(Partial { epoch, transaction, object, pieces: vec![Piece { range, content }] })
    }

    fn receive(inbox: &mut Inbox, mut bytes: &[u8]) -> Vec<Message> {
        let mut received = Vec::new();
        while !bytes.is_empty() {
            let room = inbox.room();
            let count = (room.capacity() - room.len()).min(bytes.len());
            room.put_slice(&bytes[..count]);
            bytes = &bytes[count..];
            while let Some((_, message)) = inbox.next().expect("valid") {
                received.push(message);
            }
        }
        received
    }

    #[test]
    fn a_peer_whose_messages_are_kept_loses_further_ones_until_they_are_dropped() {
        let (budget, from) = (leaked(BUDGET_MIN), NodeId::Device(DeviceId(9)));
        let mut inbox = inbox(budget);
        let (large, small, empty) =
            (encode_to_peer(from, partial(256)), encode_to_peer(from, partial(1)), encode_to_peer(from, partial(0)));
        let mut kept = Vec::new();
        for round in 0..1000 {
            let frame = if round % 2 == 0 { &large } else { &small };
            kept.extend(receive(&mut inbox, frame));
            // Messages without content always arrive.
            assert_eq!(receive(&mut inbox, &empty).len(), 1, "round {round}");
        }
        let held = kept.len();
        assert!((40..140).contains(&held), "{held}");
        assert_eq!(inbox.take_discarded(), 1000 - held);
        assert!(budget.used() <= BUDGET_MIN / 2 + 2 * RECEIVE_BYTES as u64, "{}", budget.used());
        assert!(receive(&mut inbox, &large).is_empty());
        drop(kept);
        assert_eq!(receive(&mut inbox, &large).len(), 1);
        inbox.release();
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn unfinished_frames_of_many_peers_stay_within_the_budget() {
        let (budget, from) = (leaked(BUDGET_MIN), NodeId::Device(DeviceId(9)));
        let frame = encode_to_peer(from, partial(2000));
        let mut inboxes: Vec<_> = (0..64).map(|_| inbox(budget)).collect();
        for inbox in &mut inboxes {
            assert!(receive(inbox, &frame[..frame.len() - 1]).is_empty());
        }
        assert!(budget.used() <= BUDGET_MIN / 2 + 64 * 2 * FIRST_BYTES as u64, "{}", budget.used());
        drop(inboxes.split_off(48));
        // A header alone reserves little.
        let mut headers: Vec<_> = (0..64).map(|_| inbox(budget)).collect();
        let before = budget.used();
        for inbox in &mut headers {
            assert!(receive(inbox, &frame[..HEADER_BYTES + 100]).is_empty());
            inbox.room();
        }
        assert!(budget.used() - before <= 64 * 2 * FIRST_BYTES as u64, "{}", budget.used() - before);
        drop(headers);
        // An honest peer still gets its frames through, one after the other.
        let mut honest = inbox(budget);
        let host = NodeId::Host(Generation(4));
        let (over, commits) = (Vec::new(), Vec::new());
        let request =
            Request { host: Generation(4), epoch: Epoch(1), settled: 0, over, commits, command: Command::Heartbeat };
        assert_eq!(receive(&mut honest, &encode_to_peer(host, Message::Request(request))).len(), 1);
        for inbox in &mut inboxes {
            // What was discarded is not taken for the beginning of the next frame.
            let received = receive(inbox, &[&frame[frame.len() - 1..], &encode_to_peer(from, partial(0))].concat());
            assert!(matches!(received.len(), 1 | 2));
        }
    }

    #[test]
    fn a_frame_whose_memory_is_reserved_arrives_although_others_take_the_rest() {
        let (budget, from) = (leaked(BUDGET_MIN), NodeId::Device(DeviceId(9)));
        let mut inbox = inbox(budget);
        let frame = encode_to_peer(from, partial(2000));
        assert_eq!(receive(&mut inbox, &encode_to_peer(from, partial(0))).len(), 1);
        assert!(receive(&mut inbox, &frame[..100_000]).is_empty());
        inbox.room();
        let others = Account::new(budget).charge(BUDGET_MIN as usize / 2);
        inbox.room();
        assert_eq!((inbox.take_discarded(), inbox.unfinished()), (0, frame.len()));
        drop(others);
        assert_eq!(receive(&mut inbox, &frame[100_000..]).len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However the network divides the stream, the frames are decoded as they were encoded, and no buffer grows beyond the frame that
        /// it is for.
        #[test]
        fn frames_come_out_as_they_went_in(
            sizes in prop::collection::vec((0..40_usize, any::<u8>()), 1..20),
            cuts in prop::collection::vec(1..30_000_usize, 1..20),
        ) {
            let sent: Vec<Message> = sizes.iter().map(|(blocks, salt)| message(*blocks, *salt)).collect();
            let stream: Vec<u8> = sent.iter().flat_map(|message| encode(message.clone())).collect();
            let mut inbox = Inbox::new(US, None, Side::Made, account());
            let mut came = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let room = inbox.room();
                let free = room.capacity() - room.len();
                prop_assert!(free > 0 && free <= 40 * 4096 + RECEIVE_BYTES);
                let count = (*cut).min(free).min(rest.len());
                room.put_slice(&rest[..count]);
                rest = &rest[count..];
                while let Some((_, message)) = inbox.next().expect("valid") {
                    came.push(message);
                }
            }
            prop_assert_eq!(came, sent);
            prop_assert_eq!(inbox.peer(), Some(PEER));
            prop_assert_eq!(inbox.unfinished(), 0);
        }

        /// If any byte of a frame is changed, the frame is refused or more bytes are awaited; it is never accepted.
        #[test]
        fn a_damaged_frame_is_never_taken(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = encode(message(2, 9)).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let mut inbox = Inbox::new(US, Some(PEER), Side::Made, account());
            inbox.room().extend_from_slice(&bytes);
            prop_assert!(!matches!(inbox.next(), Ok(Some(_))));
        }

        /// Arbitrary bytes are refused or more are awaited, and they allocate little memory.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), honest in 0..64_usize) {
            let good = encode(message(1, 1));
            let bytes = [&good[..honest], &bytes[..]].concat();
            let mut inbox = Inbox::new(US, None, Side::Made, account());
            inbox.room().extend_from_slice(&bytes);
            if let Ok(None) = inbox.next() {
                let room = inbox.room();
                prop_assert!(room.capacity() <= braid_base::limits::FRAME_BYTES_MAX + 2 * RECEIVE_BYTES);
            }
        }
    }
}
