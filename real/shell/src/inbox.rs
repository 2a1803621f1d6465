//! Cuts what a connection brings into frames. Bulk data is shared with the receive buffer, not copied.

use braid_base::{ArrayId, NodeId};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{Frame, Message, WireError};
use bytes::BytesMut;

/// Bytes of a receive buffer: large enough that many small frames come in one system call, small enough that a
/// payload that is kept for long does not hold too much beside itself.
const RECEIVE_BYTES: usize = 64 << 10;
/// With less room than this, a new buffer is better than another short read.
const ROOM_MIN: usize = 8 << 10;

/// Who we are: what an incoming frame must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The array we belong to.
    pub array: ArrayId,
    /// Our name in it.
    pub id: NodeId,
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("it speaks for array {theirs}, this node belongs to {ours}: check the address")]
    OtherArray { theirs: ArrayId, ours: ArrayId },
    #[error("it speaks to {meant}, this is {us}: check the address")]
    NotUs { meant: NodeId, us: NodeId },
    #[error("{found} speaks where {expected} was expected: check the address")]
    OtherPeer { found: NodeId, expected: NodeId },
    #[error("it began a frame and did not go on within {seconds} s")]
    Stalled { seconds: u64 },
}

/// The bytes of one connection that are not yet cut, and who speaks on it.
pub(crate) struct Inbox {
    us: Node,
    peer: Option<NodeId>,
    buffer: BytesMut,
}

impl Inbox {
    /// For a connection to `peer`, or to whoever speaks first.
    pub fn new(us: Node, peer: Option<NodeId>) -> Inbox {
        Inbox { us, peer, buffer: BytesMut::new() }
    }

    /// Who speaks, once known.
    pub fn peer(&self) -> Option<NodeId> {
        self.peer
    }

    /// True if it waits for the rest of a frame, or for the very first one.
    pub fn is_waiting(&self) -> bool {
        self.peer.is_none() || !self.buffer.is_empty()
    }

    /// The buffer, with room for the rest of the frame that has begun, or for many small ones.
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

    /// The next whole message, if there is one, and who sent it.
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
        match self.peer {
            Some(expected) if expected != frame.from => Err(Refused::OtherPeer { found: frame.from, expected }),
            _ => {
                self.peer = Some(frame.from);
                Ok(Some((frame.from, frame.message)))
            }
        }
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

        /// However the network cuts the stream, the frames come out as they went in, and no buffer grows beyond the
        /// frame that it is for.
        #[test]
        fn frames_come_out_as_they_went_in(
            sizes in prop::collection::vec((0..40_usize, any::<u8>()), 1..20),
            cuts in prop::collection::vec(1..30_000_usize, 1..20),
        ) {
            let sent: Vec<Message> = sizes.iter().map(|(blocks, salt)| message(*blocks, *salt)).collect();
            let stream: Vec<u8> = sent.iter().flat_map(|message| encode(message.clone())).collect();
            let mut inbox = Inbox::new(US, None);
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

        /// Whatever is done to one byte of a frame, it is refused or it waits for more; it is never taken.
        #[test]
        fn a_damaged_frame_is_never_taken(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let mut bytes = encode(message(2, 9)).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let mut inbox = Inbox::new(US, Some(PEER));
            inbox.room().extend_from_slice(&bytes);
            prop_assert!(!matches!(inbox.next(), Ok(Some(_))));
        }

        /// Bytes from anywhere are refused or wait for more, and set little aside.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), honest in 0..64_usize) {
            let good = encode(message(1, 1));
            let bytes = [&good[..honest], &bytes[..]].concat();
            let mut inbox = Inbox::new(US, None);
            inbox.room().extend_from_slice(&bytes);
            if let Ok(None) = inbox.next() {
                let room = inbox.room();
                prop_assert!(room.capacity() <= braid_base::limits::FRAME_BYTES_MAX + 2 * RECEIVE_BYTES);
            }
        }
    }
}
