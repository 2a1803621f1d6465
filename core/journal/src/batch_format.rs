//! A batch is the unit in which the journal is written: a description (header and records) with a checksum, padded to a sector, followed
//! by the payload. The records contain checksums of the payload's blocks. What is left of the last physical sector is written as zeros: for a
//! write of a part of it, the rest would have to be read first.
//!
//! Only one batch is written at a time, when its predecessor is durable, and each batch names its predecessor. Therefore a valid
//! description proves that all earlier batches had been durable: damage in those is *loss*, whereas damage in the last batch of all is a
//! write that was never answered. Sequences are never reused, not even those of batches that recovery discarded.

use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, BLOCK_BYTES};
use bytes::{Buf, BufMut};

/// The unit of atomic writes of a disk: a crash may leave some sectors of a write old and others new.
pub const SECTOR: usize = 512;

const MAGIC: [u8; 8] = *b"BraidJnl";
/// Bytes of a batch before its records.
pub(crate) const HEADER: usize = 64;

/// The header of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Increases from batch to batch, with gaps.
    pub sequence: u64,
    /// The sequence of the preceding batch.
    pub previous: u64,
    /// The offset of the batch in the journal.
    pub offset: u64,
    /// Bytes of the records.
    pub records: u32,
    /// Blocks of the payload.
    pub payload: u32,
    /// The batch is the first of a snapshot.
    pub begins_snapshot: bool,
    /// The batch is the last of a snapshot.
    pub ends_snapshot: bool,
}

const BEGINS_SNAPSHOT: u32 = 1;
const ENDS_SNAPSHOT: u32 = 2;

impl BatchHeader {
    /// Bytes before the payload.
    pub fn description_len(&self) -> usize {
        (HEADER + self.records as usize).next_multiple_of(SECTOR)
    }

    /// Bytes of the whole batch.
    pub fn len(&self) -> usize {
        self.description_len() + self.payload as usize * BLOCK_BYTES
    }

    /// Encodes the header and the records, in a buffer of this capacity. The caller appends the payload.
    pub fn encode(&self, seal: u32, records: &[u8], capacity: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::with_capacity(capacity);
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

    /// Decodes the batch at `offset` of the journal; `None` if there is no valid description.
    pub fn decode(journal: &[u8], offset: usize, seal: u32) -> Option<BatchHeader> {
        let bytes = &journal[offset..];
        if bytes.len() < SECTOR || bytes[..8] != MAGIC {
            return None;
        }
        let mut from = &bytes[8..];
        let (sequence, previous, at) = (from.get_u64_le(), from.get_u64_le(), from.get_u64_le());
        let (records, payload) = (from.get_u32_le(), from.get_u32_le());
        let ours = from.get_u32_le() == seal && at == offset as u64;
        let flags = from.get_u32_le();
        let (begins_snapshot, ends_snapshot) = (flags & BEGINS_SNAPSHOT != 0, flags & ENDS_SNAPSHOT != 0);
        let header = BatchHeader { sequence, previous, offset: at, records, payload, begins_snapshot, ends_snapshot };
        let room = header.records as u64 + u64::from(header.payload) * BLOCK_BYTES as u64;
        if !ours || room > bytes.len() as u64 || header.len() > bytes.len() || header.previous >= header.sequence
            // No journal lives so long. Later batches need higher sequences.
            || header.sequence > u64::MAX / 2
        {
            return None;
        }
        let checksum = u32::from_le_bytes(bytes[HEADER - 4..HEADER].try_into().expect("four bytes"));
        // The checksum was computed with zeros in its own field.
        let mut description = bytes[..HEADER + header.records as usize].to_vec();
        description[HEADER - 4..HEADER].fill(0);
        (crc32c(&description) == checksum).then_some(header)
    }
}

/// The empty batch at the start of a new journal. `seal` is a random number that all batches of one journal carry, so that other data is
/// not mistaken for a batch.
pub fn first_batch(seal: u32) -> AlignedBuffer {
    let first = BatchHeader { sequence: 1, begins_snapshot: true, ends_snapshot: true, ..BatchHeader::default() };
    first.encode(seal, &[], first.len())
}
