//! A frame carries one message between two nodes of an array, with a checksum over header, description and payload.
//!
//! ```text
//!   0  magic "BRAD"            4      32  from: kind, 3 zeros, number                  8
//!   4  version                 2      40  to: likewise                                     8
//!   6  features (none yet)     2      48  zeros: reserved for authentication               8
//!   8  description bytes       4      56  CRC32C over the frame, this field as zeros       4
//!  12  payload bytes           4      60  zeros                                            4
//!  16  array id               16      64  description, then payload
//! ```
//!
//! Kinds of nodes: 1 host, 2 device, 3 lock server, 4 monitor, 5 metadata server. All numbers are little endian. The payload is the bulk data that the
//! description refers to, joined in order.

use crate::codec::{Reader, Wire, Writer};
use crate::message::Message;
use braid_base::{ArrayId, DeviceId, FileSystemId, Generation, LockServerId, NodeId, limits};
use bytes::Bytes;

pub(crate) use crate::codec::VERSION_OF_LEVELS;
pub use crate::codec::{VERSION, VERSION_LOWEST, WireError};

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"BRAD";
/// Bytes of a frame before its description.
pub const HEADER_BYTES: usize = 64;
const CRC_AT: usize = 56;
/// The usual upper bound of header and description of a small request or answer: the buffer is allocated with this capacity, so that it
/// need not grow.
const USUAL_HEAD_BYTES: usize = 256;

/// A message with its sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The array of both nodes.
    pub array: ArrayId,
    pub from: NodeId,
    pub to: NodeId,
    pub message: Message,
}

/// A frame ready for a vectored write of these parts, in order.
#[derive(Clone, Debug)]
pub struct EncodedFrame {
    /// Header and description.
    pub head: Bytes,
    /// The bulk data, in the buffers in which the sender had it.
    pub payload: Vec<Bytes>,
}

/// What the header of a frame says about the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the whole frame, header included; at most [`limits::FRAME_BYTES_MAX`].
    pub frame_bytes: usize,
    /// Bytes of bulk data at its end. A message refers to the frame's memory only for these.
    pub payload_bytes: usize,
    /// The array that the frame belongs to.
    pub array: ArrayId,
}

impl Frame {
    /// Encodes the frame in the newest version.
    pub fn encode(&self) -> EncodedFrame {
        self.encode_as(VERSION)
    }

    /// Encodes the frame in a version that this release speaks. Bulk data is shared, not copied.
    pub fn encode_as(&self, version: u16) -> EncodedFrame {
        let mut writer = Writer { version, description: Vec::with_capacity(USUAL_HEAD_BYTES), payload: Vec::new() };
        writer.description.resize(HEADER_BYTES, 0);
        self.message.put(&mut writer);
        let Writer { description: mut head, payload, .. } = writer;
        let payload_bytes: usize = payload.iter().map(Bytes::len).sum();
        let description_bytes = head.len() - HEADER_BYTES;
        assert!(head.len() + payload_bytes <= limits::FRAME_BYTES_MAX, "a frame we make ourselves fits");

        head[0..4].copy_from_slice(&MAGIC);
        head[4..6].copy_from_slice(&version.to_le_bytes());
        head[8..12].copy_from_slice(&(description_bytes as u32).to_le_bytes());
        head[12..16].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
        head[16..32].copy_from_slice(&self.array.0);
        head[32..40].copy_from_slice(&node_bytes(self.from));
        head[40..48].copy_from_slice(&node_bytes(self.to));
        let crc = checksum(std::iter::once(&head[..]).chain(payload.iter().map(|bytes| &bytes[..])));
        head[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        EncodedFrame { head: Bytes::from(head), payload }
    }

    /// Reads the header at the beginning of `bytes`; `None` if there are too few bytes yet.
    pub fn header(bytes: &[u8]) -> Result<Option<FrameHeader>, WireError> {
        let known = bytes.len().min(4);
        if bytes[..known] != MAGIC[..known] {
            return Err(WireError::NotBraid);
        }
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let version = version_of(bytes);
        let features = u16::from_le_bytes([bytes[6], bytes[7]]);
        if !(VERSION_LOWEST..=VERSION).contains(&version) || features != 0 {
            return Err(WireError::Version { version, features });
        }
        let payload_bytes = number(bytes, 12) as usize;
        let frame_bytes = HEADER_BYTES + number(bytes, 8) as usize + payload_bytes;
        if frame_bytes > limits::FRAME_BYTES_MAX {
            return Err(WireError::FrameTooLong { bytes: frame_bytes });
        }
        let array = ArrayId(bytes[16..32].try_into().expect("sixteen bytes"));
        Ok(Some(FrameHeader { frame_bytes, payload_bytes, array }))
    }

    /// Decodes one whole frame. Bulk data is shared with `bytes`, not copied.
    pub fn decode(bytes: Bytes) -> Result<Frame, WireError> {
        let header = Frame::header(&bytes)?.ok_or(WireError::Truncated)?;
        if bytes.len() < header.frame_bytes {
            return Err(WireError::Truncated);
        }
        if bytes.len() > header.frame_bytes {
            return Err(WireError::Trailing);
        }
        let stated = number(&bytes, CRC_AT);
        let parts = [&bytes[..CRC_AT], &[0; 4], &bytes[CRC_AT + 4..]];
        if checksum(parts.into_iter()) != stated {
            return Err(WireError::Checksum);
        }
        let (from, to) = (node(&bytes[32..40])?, node(&bytes[40..48])?);
        let payload_at = header.frame_bytes - number(&bytes, 12) as usize;
        let (description, payload) = (&bytes[HEADER_BYTES..payload_at], bytes.slice(payload_at..));
        let mut reader = Reader { version: version_of(&bytes), description, payload };
        let message = Message::take(&mut reader)?;
        if !reader.description.is_empty() || !reader.payload.is_empty() {
            return Err(WireError::Trailing);
        }
        Ok(Frame { array: header.array, from, to, message })
    }
}

impl EncodedFrame {
    /// Bytes of the whole frame.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.iter().map(Bytes::len).sum::<usize>()
    }

    /// Never true: a frame has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// All parts, copied into one buffer.
    pub fn to_bytes(&self) -> Bytes {
        let mut joined = Vec::with_capacity(self.len());
        joined.extend_from_slice(&self.head);
        for part in &self.payload {
            joined.extend_from_slice(part);
        }
        joined.into()
    }
}

fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

fn node_bytes(node: NodeId) -> [u8; 8] {
    let (kind, number) = match node {
        NodeId::Host(generation) => (1, generation.0),
        NodeId::Device(device) => (2, u32::from(device.0)),
        NodeId::LockServer(server) => (3, u32::from(server.0)),
        NodeId::Monitor => (4, 0),
        NodeId::MetadataServer(file_system) => (5, u32::from(file_system.0)),
    };
    let mut bytes = [kind, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn node(bytes: &[u8]) -> Result<NodeId, WireError> {
    match (bytes[0], number(bytes, 4)) {
        (1, number) => Ok(NodeId::Host(Generation(number))),
        (2, number) if number <= u32::from(u16::MAX) => Ok(NodeId::Device(DeviceId(number as u16))),
        (3, number) if number <= u32::from(u16::MAX) => Ok(NodeId::LockServer(LockServerId(number as u16))),
        (4, 0) => Ok(NodeId::Monitor),
        (5, number) if number <= u32::from(u16::MAX) => Ok(NodeId::MetadataServer(FileSystemId(number as u16))),
        _ => Err(WireError::BadValue { what: "node" }),
    }
}

fn version_of(header: &[u8]) -> u16 {
    u16::from_le_bytes([header[4], header[5]])
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
