//! The journal's record of a devwrite.

use super::fields::Field;
use crate::block::{Attribution, CHUNK_BLOCKS, WHOLE_CHUNK, chunks};
use braid_base::checksum::crc32c;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, ObjectId};
use braid_journal::{DecodeError, Entry, Payload};
use bytes::{Buf, BufMut, Bytes};

/// A devwrite, as the journal records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IntentRecord {
    pub by: Attribution,
    pub participants: Vec<DeviceId>,
    pub object: ObjectId,
    /// In the order of their first blocks; no two share a block.
    pub pieces: Vec<Part>,
    /// Slots reserved for chunks that have none and are written only in part.
    pub homes: Vec<Home>,
}

/// Some blocks of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub range: BlockRange,
    pub body: Body,
}

/// Where the new content of some blocks is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// A hole has no content.
    Hole,
    /// In the journal, and in memory.
    Inline(Bytes),
    /// In whole slots, from this one on.
    Slots(u32),
    /// Nowhere: the content was in the journal, and was corrupted there.
    Lost,
}

/// The slot reserved for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub chunk: u32,
    pub slot: u32,
}

pub(super) const INTENT: u8 = 1;
pub(super) const APPLIED: u8 = 2;

const PART_HOLE: u8 = 0;
const PART_INLINE: u8 = 1;
const PART_SLOTS: u8 = 2;
const PART_LOST: u8 = 3;

impl IntentRecord {
    /// Bytes of payload in the journal.
    pub fn payload_len(&self) -> usize {
        let inline = |part: &Part| if let Body::Inline(data) = &part.body { data.len() } else { 0 };
        self.pieces.iter().map(inline).sum()
    }

    /// Bytes that it takes in the journal, description and payload. An upper bound, close to the exact number.
    pub fn journal_len(&self) -> u64 {
        let payload = self.payload_len();
        let description = 96
            + 2 * self.participants.len()
            + 21 * self.pieces.len()
            + 8 * self.homes.len()
            + payload / BLOCK_BYTES * 4;
        (description + payload) as u64
    }

    /// Appends the record: as an applied write if `as_applied`, else as an intent.
    pub fn encode(&self, as_applied: bool, to: &mut Vec<u8>) {
        to.put_u8(if as_applied { APPLIED } else { INTENT });
        self.by.put(to);
        self.participants.put(to);
        self.object.put(to);
        to.put_u32_le(self.pieces.len() as u32);
        for part in &self.pieces {
            to.put_u8(match part.body {
                Body::Hole => PART_HOLE,
                Body::Inline(_) => PART_INLINE,
                Body::Slots(_) => PART_SLOTS,
                Body::Lost => PART_LOST,
            });
            part.range.put(to);
            match &part.body {
                Body::Inline(data) => data.chunks_exact(BLOCK_BYTES).for_each(|block| to.put_u32_le(crc32c(block))),
                Body::Slots(first) => to.put_u32_le(*first),
                Body::Hole | Body::Lost => {}
            }
        }
        self.homes.put(to);
    }

    pub fn decode(from: &mut &[u8], payload: &mut Payload) -> Result<IntentRecord, DecodeError> {
        let (by, (participants, object)) = Field::take(from)?;
        let mut pieces = Vec::new();
        let mut behind = 0;
        for _ in 0..from.try_get_u32_le()? {
            let (kind, range): (u8, BlockRange) = Field::take(from)?;
            if range.is_empty() || range.start < behind {
                return Err(DecodeError);
            }
            behind = range.end();
            match kind {
                PART_HOLE => pieces.push(Part { range, body: Body::Hole }),
                PART_LOST => pieces.push(Part { range, body: Body::Lost }),
                PART_SLOTS => {
                    let whole = |at: u64| at.is_multiple_of(CHUNK_BLOCKS);
                    if !whole(range.start) || !whole(range.count) {
                        return Err(DecodeError);
                    }
                    let first = from.try_get_u32_le()?;
                    if range.count / CHUNK_BLOCKS > u64::from(u32::MAX - first) {
                        return Err(DecodeError);
                    }
                    pieces.push(Part { range, body: Body::Slots(first) });
                }
                PART_INLINE => take_inline(range, from, payload, &mut pieces)?,
                _ => return Err(DecodeError),
            }
        }
        Ok(IntentRecord { by, participants, object, pieces, homes: Field::take(from)? })
    }

    /// Moves the whole chunk in the slot `from` to the slot `to`. Without a slot it becomes a hole; the intent is then abandoned.
    pub fn move_chunk(&mut self, from: u32, to: Option<u32>) {
        let holds = |part: &Part| match part.body {
            Body::Slots(first) => (first..first + (part.range.count / CHUNK_BLOCKS) as u32).contains(&from),
            _ => false,
        };
        let index = self.pieces.iter().position(holds).expect("the intent has this slot");
        let Part { range, body: Body::Slots(first) } = self.pieces.remove(index) else { panic!("just seen") };
        let start = range.start + u64::from(from - first) * CHUNK_BLOCKS;
        let moved = BlockRange::new(start, CHUNK_BLOCKS);
        let parts = [
            (BlockRange::between(range.start, start), Body::Slots(first)),
            (moved, to.map_or(Body::Hole, Body::Slots)),
            (BlockRange::between(moved.end(), range.end()), Body::Slots(from + 1)),
        ];
        let parts = parts.into_iter().filter(|(range, _)| !range.is_empty()).map(|(range, body)| Part { range, body });
        self.pieces.splice(index..index, parts);
    }

    /// The slots that hold its whole chunks.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.pieces.iter().flat_map(|part| match part.body {
            Body::Slots(first) => first..first + (part.range.count / CHUNK_BLOCKS) as u32,
            _ => 0..0,
        })
    }

    /// The chunks that the intent changes, each once, and whether it replaces the chunk as a whole.
    pub fn changed_chunks(&self) -> impl Iterator<Item = (u32, bool)> {
        let mut last = None;
        self.pieces
            .iter()
            .flat_map(|part| {
                let slots = matches!(part.body, Body::Slots(_) | Body::Hole);
                chunks(part.range).map(move |(chunk, mask)| (chunk, slots && mask == WHOLE_CHUNK))
            })
            .filter(move |(chunk, _)| last.replace(*chunk) != Some(*chunk))
    }
}

/// An intent to be written into the journal.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub intent: IntentRecord,
    /// The write takes effect at once: snapshots do not repeat it.
    pub applied: bool,
}

impl Entry for Queued {
    fn encode(&self, to: &mut Vec<u8>) {
        self.intent.encode(self.applied, to);
    }

    fn room(&self) -> u64 {
        self.intent.journal_len()
    }

    fn payload_len(&self) -> usize {
        self.intent.payload_len()
    }

    fn is_carried(&self) -> bool {
        !self.applied
    }

    fn payload(&self) -> impl Iterator<Item = &Bytes> {
        self.intent.pieces.iter().filter_map(|part| if let Body::Inline(data) = &part.body { Some(data) } else { None })
    }

    fn payload_mut(&mut self) -> impl Iterator<Item = &mut Bytes> {
        let parts = self.intent.pieces.iter_mut();
        parts.filter_map(|part| if let Body::Inline(data) = &mut part.body { Some(data) } else { None })
    }
}

/// Takes the payload of an inline part. Blocks that are whole stay together as far as possible; damaged blocks become lost parts.
fn take_inline(
    range: BlockRange,
    from: &mut &[u8],
    payload: &mut Payload,
    pieces: &mut Vec<Part>,
) -> Result<(), DecodeError> {
    let data = payload.take(range.count)?;
    let mut start = 0;
    for (index, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
        if crc32c(block) == from.try_get_u32_le()? {
            continue;
        }
        payload.is_damaged();
        push_inline(pieces, range.start, &data, start, index);
        pieces.push(Part { range: BlockRange::new(range.start + index as u64, 1), body: Body::Lost });
        start = index + 1;
    }
    push_inline(pieces, range.start, &data, start, range.count as usize);
    Ok(())
}

fn push_inline(pieces: &mut Vec<Part>, first: u64, data: &Bytes, start: usize, end: usize) {
    if start < end {
        let range = BlockRange::new(first + start as u64, (end - start) as u64);
        pieces.push(Part { range, body: Body::Inline(data.slice(start * BLOCK_BYTES..end * BLOCK_BYTES)) });
    }
}
