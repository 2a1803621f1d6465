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

    /// The next whole message, if there is one.
    pub fn next(&mut self) -> Result<Option<Message>, Refused> {
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
                Ok(Some(frame.message))
            }
        }
    }
}
