//! The inbox of a connection divides the received bytes into frames. Bulk data shares the receive buffer and is not copied.

use crate::routes::Side;
use braid_base::{ArrayId, NodeId};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{Frame, Message, WireError};
use bytes::BytesMut;

/// Bytes of a receive buffer: large enough for many small frames per system call, small enough that a payload that is kept for long does
/// not keep too much unused memory alive.
const RECEIVE_BYTES: usize = 64 << 10;
/// If less room than this is left, a new buffer is better than another short read.
const ROOM_MIN: usize = 8 << 10;

/// This node, as incoming frames must address it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub array: ArrayId,
    pub id: NodeId,
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Wire(#[from] WireError),
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
    #[error("it stalled within a frame for {seconds} s")]
    Stalled { seconds: u64 },
}

/// The received bytes of one connection that are not yet decoded, and the node at its other end.
pub(crate) struct Inbox {
    us: Node,
    peer: Option<NodeId>,
    side: Side,
    buffer: BytesMut,
}

impl Inbox {
    /// For a connection to `peer`, or to whichever node sends the first frame.
    pub fn new(us: Node, peer: Option<NodeId>, side: Side) -> Inbox {
        Inbox { us, peer, side, buffer: BytesMut::new() }
    }

    /// This node, as the peer addresses it.
    pub fn us(&self) -> Node {
        self.us
    }

    /// The node at the other end, once known.
    pub fn peer(&self) -> Option<NodeId> {
        self.peer
    }

    /// True if it waits for the rest of a frame, or for the first frame.
    pub fn is_waiting(&self) -> bool {
        self.peer.is_none() || !self.buffer.is_empty()
    }

    /// The receive buffer, with room for the rest of the current frame, or for many small frames.
    pub fn room(&mut self) -> &mut BytesMut {
        let missing = match Frame::header(&self.buffer) {
            Ok(Some(header)) => header.frame_bytes.saturating_sub(self.buffer.len()),
            _ => HEADER_BYTES,
        };
        let room = self.buffer.capacity() - self.buffer.len();
        if room < missing.max(ROOM_MIN) {
            self.buffer.reserve(missing.max(RECEIVE_BYTES));
        }
        &mut self.buffer
    }

    /// The next complete message and its sender, if there is one.
    pub fn next(&mut self) -> Result<Option<(NodeId, Message)>, Refused> {
        let Some(header) = Frame::header(&self.buffer)? else { return Ok(None) };
        if header.array != self.us.array {
            return Err(Refused::OtherArray { theirs: header.array, ours: self.us.array });
        }
        if self.buffer.len() < header.frame_bytes {
            return Ok(None);
        }
        let frame = Frame::decode(self.buffer.split_to(header.frame_bytes).freeze())?;
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
                Ok(Some((frame.from, frame.message)))
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
    use braid_base::{BlockRange, DeviceId, Epoch, Generation};
    use braid_wire::{Answer, Content, Piece, Reply};
    use bytes::{BufMut, Bytes};
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

    fn encode(message: Message) -> Bytes {
        Frame { array: US.array, from: PEER, to: US.id, message }.encode().to_bytes()
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
            let mut inbox = Inbox::new(US, None, Side::Made);
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
            prop_assert!(!inbox.is_waiting());
        }

        /// If any byte of a frame is changed, the frame is refused or more bytes are awaited; it is never accepted.
        #[test]
        fn a_damaged_frame_is_never_taken(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = encode(message(2, 9)).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let mut inbox = Inbox::new(US, Some(PEER), Side::Made);
            inbox.room().extend_from_slice(&bytes);
            prop_assert!(!matches!(inbox.next(), Ok(Some(_))));
        }

        /// Arbitrary bytes are refused or more are awaited, and they allocate little memory.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), honest in 0..64_usize) {
            let good = encode(message(1, 1));
            let bytes = [&good[..honest], &bytes[..]].concat();
            let mut inbox = Inbox::new(US, None, Side::Made);
            inbox.room().extend_from_slice(&bytes);
            if let Ok(None) = inbox.next() {
                let room = inbox.room();
                prop_assert!(room.capacity() <= braid_base::limits::FRAME_BYTES_MAX + 2 * RECEIVE_BYTES);
            }
        }
    }
}
