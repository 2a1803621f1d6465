//! A block in its slot: 4096 bytes of data, followed by a header of one sector that names the object, the block and the transaction that
//! wrote it. Both are read and written by one contiguous command of [`STRIDE`] bytes, so a header costs no I/O of its own.
//!
//! A *place* is the number of a stride in the data area: `slot * 16 + block within the chunk`. Neighbouring places are neighbours on the
//! disk, across slots too.

use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, BLOCK_BYTES, BlockRange, Epoch, Generation, ObjectId, Stamp, TransactionId};
use braid_blocks::Linkage;
use braid_journal::SECTOR;
use bytes::BufMut;

/// Bytes of a block with its header.
pub(crate) const STRIDE: usize = BLOCK_BYTES + SECTOR;
/// Blocks of a chunk, and places of a slot.
pub const CHUNK_BLOCKS: u64 = 16;
/// The mask of all blocks of a chunk, one bit each.
pub(crate) const WHOLE_CHUNK: u16 = u16::MAX;
/// Bytes of a slot: a chunk with its headers.
pub(crate) const SLOT_BYTES: u64 = CHUNK_BLOCKS * STRIDE as u64;

const MAGIC: u32 = u32::from_le_bytes(*b"BrBl");
const FLAG_LOST: u32 = 1;
/// Bytes of the header's fields before their checksum.
const FIELDS: usize = 76;

/// The transaction that wrote a block, its stamp and epoch, and the hostwrite that the block was part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub transaction: TransactionId,
    pub stamp: Stamp,
    pub epoch: Epoch,
    pub linkage: Linkage,
}

pub(crate) fn places_of(slot: u32) -> BlockRange {
    BlockRange::new(u64::from(slot) * CHUNK_BLOCKS, CHUNK_BLOCKS)
}

/// The chunks that `range` touches, each with the mask of its blocks that are in the range; none if it is empty.
pub(crate) fn chunks(range: BlockRange) -> impl Iterator<Item = (u32, u16)> {
    let first = range.start / CHUNK_BLOCKS;
    let last = if range.is_empty() { first } else { range.end().div_ceil(CHUNK_BLOCKS) };
    (first..last).map(move |chunk| {
        let first = chunk * CHUNK_BLOCKS;
        let part = BlockRange::new(first, CHUNK_BLOCKS).intersection(range);
        let ones = WHOLE_CHUNK >> (CHUNK_BLOCKS - part.count);
        (chunk as u32, ones << (part.start - first))
    })
}

/// Writes the header into the zeros that follow the data in `stride`. A `lost` block has no data: reads of it fail until it is
/// overwritten.
pub(crate) fn seal(stride: &mut [u8], object: ObjectId, block: u64, by: &Attribution, lost: bool) {
    let mut header = &mut stride[BLOCK_BYTES..];
    header.put_u32_le(MAGIC);
    header.put_u32_le(if lost { FLAG_LOST } else { 0 });
    header.put_u64_le(object.0);
    header.put_u64_le(block);
    header.put_u64_le(by.stamp.clock.0);
    header.put_u32_le(by.stamp.host.0);
    header.put_u32_le(by.transaction.host.0);
    header.put_u64_le(by.transaction.sequence);
    header.put_u64_le(by.linkage.first);
    header.put_u64_le(by.linkage.last);
    header.put_u32_le(by.epoch.0);
    let checksum = crc32c(&stride[..BLOCK_BYTES + FIELDS]);
    stride[BLOCK_BYTES + FIELDS..][..4].copy_from_slice(&checksum.to_le_bytes());
}

/// True if `stride` holds the content of this very block, undamaged.
pub(crate) fn holds(stride: &[u8], object: ObjectId, block: u64) -> bool {
    let word = |at: usize| u32::from_le_bytes(stride[BLOCK_BYTES + at..][..4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(stride[BLOCK_BYTES + at..][..8].try_into().expect("eight bytes"));
    word(0) == MAGIC
        && word(4) == 0
        && long(8) == object.0
        && long(16) == block
        && word(FIELDS) == crc32c(&stride[..BLOCK_BYTES + FIELDS])
}

/// The transaction that wrote the block in `stride`, and the hostwrite's extent. `stride` must hold a valid block.
pub(crate) fn source(stride: &[u8]) -> (TransactionId, Linkage) {
    let word = |at: usize| u32::from_le_bytes(stride[BLOCK_BYTES + at..][..4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(stride[BLOCK_BYTES + at..][..8].try_into().expect("eight bytes"));
    let transaction = TransactionId { host: Generation(word(36)), sequence: long(40) };
    (transaction, Linkage { first: long(48), last: long(56) })
}

/// A buffer for the blocks of `data`, which begin with block `first`, each followed by its header.
pub(crate) fn interleave(data: &[u8], object: ObjectId, first: u64, by: &Attribution) -> AlignedBuffer {
    let blocks = data.len() / BLOCK_BYTES;
    let mut buffer = AlignedBuffer::with_capacity(blocks * STRIDE);
    for (index, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
        buffer.append(block);
        buffer.append_zeros(STRIDE - BLOCK_BYTES);
        seal(&mut buffer[index * STRIDE..], object, first + index as u64, by, false);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Clock;

    fn by() -> Attribution {
        Attribution {
            transaction: TransactionId { host: Generation(3), sequence: 9 },
            stamp: Stamp { clock: Clock(77), host: Generation(3) },
            epoch: Epoch(2),
            linkage: Linkage { first: 5, last: 8 },
        }
    }

    #[test]
    fn a_block_is_known_by_its_object_and_number_and_by_every_bit() {
        let buffer = interleave(&[7; BLOCK_BYTES], ObjectId(4), 11, &by());
        assert!(holds(&buffer, ObjectId(4), 11));
        assert_eq!(source(&buffer), (by().transaction, by().linkage));
        assert!(!holds(&buffer, ObjectId(5), 11));
        assert!(!holds(&buffer, ObjectId(4), 12));
        for at in [0, 4095, 4096, 4100, BLOCK_BYTES + FIELDS - 1, BLOCK_BYTES + FIELDS] {
            let mut rotten = buffer.to_vec();
            rotten[at] ^= 1;
            assert!(!holds(&rotten, ObjectId(4), 11), "byte {at}");
        }
    }

    #[test]
    fn a_lost_block_holds_nothing() {
        let mut stride = vec![0; STRIDE];
        seal(&mut stride, ObjectId(4), 11, &by(), true);
        assert!(!holds(&stride, ObjectId(4), 11));
    }

    #[test]
    fn a_range_is_cut_at_chunks() {
        assert_eq!(chunks(BlockRange::new(14, 0)).count(), 0);
        let cut: Vec<_> = chunks(BlockRange::new(14, 20)).collect();
        assert_eq!(cut, [(0, 0xc000), (1, 0xffff), (2, 0x0003)]);
    }
}
