//! Batches: what one write brings into the journal. A description (header and records) under one checksum, padded to a
//! sector, then the payload, whose blocks have checksums of their own in the records.
//!
//! Batches are written one at a time, each only when the one before it is durable, and each names that one. So a whole
//! description proves that all batches before it had been durable: damage there is *loss*; damage in the very last is
//! a write that was never answered. Sequences are never used twice, not even those of batches that recovery dropped.

use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, BLOCK_BYTES};
use bytes::{Buf, BufMut};

/// What devices read and write at once, and may tear between.
pub const SECTOR: usize = 512;

const MAGIC: [u8; 8] = *b"BraidJnl";
/// Bytes before the records.
pub(crate) const HEADER: usize = 64;

/// A batch's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Counts batches, with gaps.
    pub sequence: u64,
    /// The sequence of the batch before it.
    pub previous: u64,
    /// Where it begins, counted from the journal's start.
    pub offset: u64,
    /// Bytes of its records.
    pub records: u32,
    /// Blocks of its payload.
    pub payload: u32,
    /// A snapshot begins with it.
    pub begins_snapshot: bool,
    /// A snapshot ends in it.
    pub ends_snapshot: bool,
}

const BEGINS_SNAPSHOT: u32 = 1;
const ENDS_SNAPSHOT: u32 = 2;

impl BatchHeader {
    /// Bytes up to the payload.
    pub fn description_len(&self) -> usize {
        (HEADER + self.records as usize).next_multiple_of(SECTOR)
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.description_len() + self.payload as usize * BLOCK_BYTES
    }

    /// The batch, with its records; the payload is yet to be appended.
    pub fn encode(&self, seal: u32, records: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::with_capacity(self.len());
        let mut to = buffer.append_zeros(self.description_len());
        to.put_slice(&MAGIC);
        to.put_u64_le(self.sequence);
        to.put_u64_le(self.previous);
        to.put_u64_le(self.offset);
        to.put_u32_le(self.records);
        to.put_u32_le(self.payload);
        to.put_u32_le(seal);
        let begins = if self.begins_snapshot { BEGINS_SNAPSHOT } else { 0 };
        let ends = if self.ends_snapshot { ENDS_SNAPSHOT } else { 0 };
        to.put_u32_le(begins | ends);
        buffer[HEADER..HEADER + records.len()].copy_from_slice(records);
        let checksum = crc32c(&buffer[..HEADER + records.len()]);
        buffer[HEADER - 4..HEADER].copy_from_slice(&checksum.to_le_bytes());
        buffer
    }

    /// The batch that begins at `offset` of the journal, if its description is whole.
    pub fn decode(journal: &[u8], offset: usize, seal: u32) -> Option<BatchHeader> {
        let bytes = &journal[offset..];
        if bytes.len() < SECTOR || bytes[..8] != MAGIC {
            return None;
        }
        let mut from = &bytes[8..];
        let mut header = BatchHeader {
            sequence: from.get_u64_le(),
            previous: from.get_u64_le(),
            offset: from.get_u64_le(),
            records: from.get_u32_le(),
            payload: from.get_u32_le(),
            begins_snapshot: false,
            ends_snapshot: false,
        };
        let ours = from.get_u32_le() == seal && header.offset == offset as u64;
        let flags = from.get_u32_le();
        header.begins_snapshot = flags & BEGINS_SNAPSHOT != 0;
        header.ends_snapshot = flags & ENDS_SNAPSHOT != 0;
        let room = header.records as u64 + u64::from(header.payload) * BLOCK_BYTES as u64;
        if !ours || room > bytes.len() as u64 || header.len() > bytes.len() || header.previous >= header.sequence {
            return None;
        }
        let checksum = u32::from_le_bytes(bytes[HEADER - 4..HEADER].try_into().expect("four bytes"));
        // The checksum was taken with zeros in its own place.
        let mut description = bytes[..HEADER + header.records as usize].to_vec();
        description[HEADER - 4..HEADER].fill(0);
        (crc32c(&description) == checksum).then_some(header)
    }
}

/// An empty batch, which a journal begins with; `seal` is what all batches of one journal carry, and nothing else does but by a rare
/// chance.
pub fn first_batch(seal: u32) -> AlignedBuffer {
    let first = BatchHeader {
        sequence: 1,
        previous: 0,
        offset: 0,
        records: 0,
        payload: 0,
        begins_snapshot: true,
        ends_snapshot: true,
    };
    first.encode(seal, &[])
}
