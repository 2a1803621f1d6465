//! Batches: what one write brings into the journal. A description (header and records) under one checksum, padded to a
//! sector, then the payload, whose blocks have checksums of their own in the records.
//!
//! Batches are written one at a time, each only when the one before it is durable, and each names that one. So a whole
//! description proves that all batches before it had been durable: damage there is *loss*; damage in the very last is
//! a write that was never answered. Sequences are never used twice, not even those of batches that recovery dropped.

use crate::block::SECTOR;
use crate::record::{Nonsense, Payload, Record};
use crate::{StoreError, Superblock};
use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, BLOCK_BYTES};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeMap;

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

    /// The batch, with its records; the payload is yet to be copied in behind [`BatchHeader::description_len`].
    pub fn encode(&self, seal: u32, records: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::recycled(self.len());
        buffer[..self.description_len()].fill(0);
        let mut to = &mut buffer[..];
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
    fn decode(journal: &[u8], offset: usize, seal: u32) -> Option<BatchHeader> {
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

/// A number that all batches of one store carry, and nothing else does but by a rare chance: it depends on what only the
/// superblock knows.
pub(crate) fn seal_of(superblock: &Superblock) -> u32 {
    let mut bytes = superblock.array.0.to_vec();
    bytes.put_u16_le(superblock.device.0);
    bytes.put_u64_le(superblock.nonce);
    crc32c(&bytes)
}

/// What recovery found in a journal.
#[derive(Debug)]
pub(crate) struct Journey {
    /// The records from the tail on, in order.
    pub records: Vec<Record>,
    /// Where the next batch may go.
    pub head: u64,
    /// The last batch that counts.
    pub last: u64,
    /// The highest sequence seen: the next must be above it and one more, which may have been torn beyond recognition.
    pub highest: u64,
    /// How many of them belong to the batches of the tail's snapshot.
    pub snapshot_records: usize,
    /// Where a whole snapshot begins, other than at the tail: its checkpoint needs only be ended.
    pub snapshot: Option<(u64, u64)>,
}

/// Reads the journal from its tail. `offset` is where that is on the device, for error messages.
pub(crate) fn follow(
    journal: &Bytes,
    seal: u32,
    tail_offset: u64,
    tail_sequence: u64,
    device_offset: u64,
) -> Result<Journey, StoreError> {
    let damaged = |at: u64| StoreError::Damaged { part: "journal", offset: device_offset + at };
    let found: BTreeMap<u64, BatchHeader> = (0..journal.len())
        .step_by(SECTOR)
        .filter_map(|offset| BatchHeader::decode(journal, offset, seal))
        .filter(|header| header.sequence >= tail_sequence)
        .map(|header| (header.sequence, header))
        .collect();
    let (highest, mut last) = found.last_key_value().map(|(at, header)| (*at, *header)).ok_or(damaged(tail_offset))?;
    // The last batch may never have been answered: torn, it does not count. The one before it was durable.
    let torn = match open(journal, &last) {
        Ok((_, whole)) => !whole,
        Err(Nonsense) => return Err(damaged(last.offset)),
    };
    if torn && last.sequence > tail_sequence {
        last = *found.get(&last.previous).ok_or(damaged(last.offset))?;
    }
    let mut chain = vec![last];
    while let Some(first) = chain.last().filter(|first| first.sequence > tail_sequence) {
        let before = found.get(&first.previous).ok_or(damaged(first.offset))?;
        chain.push(*before);
    }
    let tail = chain.last().expect("the last batch is in it");
    if tail.offset != tail_offset {
        return Err(damaged(tail_offset));
    }
    chain.reverse();
    drop_idle_end(&mut chain);
    let last = *chain.last().expect("the tail stays");
    let ended = chain.iter().rposition(|header| header.ends_snapshot).unwrap_or(0);
    let begun = chain[..=ended].iter().rposition(|header| header.begins_snapshot).unwrap_or(0);
    let snapshot = (begun > 0).then(|| (chain[begun].offset, chain[begun].sequence));
    let tails_snapshot = chain.iter().position(|header| header.ends_snapshot).map_or(0, |ended| ended + 1);
    let (mut records, mut snapshot_records) = (Vec::new(), 0);
    for (index, header) in chain.iter().enumerate() {
        records.extend(open(journal, header).map_err(|Nonsense| damaged(header.offset))?.0);
        if index < tails_snapshot {
            snapshot_records = records.len();
        }
    }
    let head = last.offset + last.len() as u64;
    let head = head % journal.len() as u64;
    Ok(Journey { records, snapshot_records, head, last: last.sequence, highest, snapshot })
}

/// Takes off the end what says nothing: a snapshot that did not end, and empty batches. Their room is used again, so
/// that failing time and again while starting, or early in a checkpoint, can't fill the journal.
fn drop_idle_end(chain: &mut Vec<BatchHeader>) {
    let begun = chain.iter().rposition(|header| header.begins_snapshot).filter(|begun| *begun > 0);
    if let Some(begun) = begun
        && !chain[begun..].iter().any(|header| header.ends_snapshot)
    {
        chain.truncate(begun);
    }
    while chain.len() > 1 && chain.last().is_some_and(|header| header.records == 0) {
        chain.pop();
    }
}

/// The records of a batch, and whether its payload is whole.
fn open(journal: &Bytes, header: &BatchHeader) -> Result<(Vec<Record>, bool), Nonsense> {
    let start = header.offset as usize;
    let mut from = &journal[start + HEADER..][..header.records as usize];
    let bytes = journal.slice(start + header.description_len()..start + header.len());
    let mut payload = Payload { bytes, whole: true };
    let mut records = Vec::new();
    while !from.is_empty() {
        records.push(Record::decode(&mut from, &mut payload)?);
    }
    Ok((records, payload.whole))
}
