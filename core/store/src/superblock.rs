//! The superblock: whose device this is, where its parts lie, and where recovery begins. Two copies, written one after
//! the other; what they free is used only when both are written, so either of them is good enough to start from.

use crate::block::{CHUNK_BLOCKS, SLOT_BYTES};
use crate::map::ENTRIES_PER_PAGE;
use crate::record::Record;
use crate::slots::spare_slots;
use crate::{StoreConfig, StoreError};
use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, ArrayId, DeviceId, DiskId};
use braid_journal::{Damaged, Found, SECTOR};
use bytes::{Buf, BufMut, Bytes};

/// The format that this release writes. A device of a newer one is refused, never guessed at.
pub const FORMAT: u32 = 5;
/// The oldest one that it reads.
const OLDEST: u32 = 2;
/// Bytes of a copy of the superblock, of a map page, and what all parts are aligned to.
pub(crate) const PAGE: usize = 4096;
/// The least that a device can have.
pub const SIZE_MIN: u64 = 16 << 20;

const MAGIC: [u8; 8] = *b"BraidDev";
/// Where the checksum stands, in this format and in all to come.
const CHECKSUM_AT: usize = SECTOR - 4;
const JOURNAL_MIN: u64 = 4 << 20;
const JOURNAL_MAX: u64 = 32 << 20;
const JOURNAL_OFFSET: u64 = 2 * PAGE as u64;
/// The least journal that still holds a batch of each kind at once.
const JOURNAL_LEAST: u64 = 256 << 10;

/// Where the parts of a device lie, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the file or disk when it was made.
    pub size: u64,
    /// The first byte of the journal.
    pub journal_offset: u64,
    /// Its length.
    pub journal_length: u64,
    /// The first byte of the chunk map's first copy; the second follows it.
    pub map_offset: u64,
    /// Pages of 4 KiB in each copy.
    pub map_pages: u32,
    /// The first byte of slot 0.
    pub data_offset: u64,
    /// How many slots there are.
    pub slots: u32,
}

/// A device's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array that it belongs to.
    pub array: ArrayId,
    /// Its number in there.
    pub device: DeviceId,
    /// Where its parts lie.
    pub geometry: Geometry,
    /// Counts checkpoints.
    pub checkpoint: u64,
    /// Where in the journal, counted from its start, recovery begins.
    pub tail_offset: u64,
    /// The sequence of the batch there.
    pub tail_sequence: u64,
    /// Drawn when the device was made, and told to nobody: part of every batch's seal, so that no content of a block can pass
    /// for a batch.
    pub nonce: u64,
    /// Which disk this is: drawn when the device was made, too, but no secret. Zero if it was made before disks had names.
    pub disk: DiskId,
}

impl Geometry {
    /// Cuts up `size` bytes, with a journal of the usual length or of the given one.
    pub(crate) fn new(size: u64, journal: Option<u64>) -> Result<Geometry, StoreError> {
        let journal_length = journal.unwrap_or((size / 16).clamp(JOURNAL_MIN, JOURNAL_MAX)) / PAGE as u64 * PAGE as u64;
        if size < SIZE_MIN || journal_length < JOURNAL_LEAST || journal_length > size / 2 {
            return Err(StoreError::TooSmall { min: SIZE_MIN });
        }
        let map_offset = JOURNAL_OFFSET + journal_length;
        let room = (size - map_offset) / SLOT_BYTES;
        let map_pages = u32::try_from(room.div_ceil(ENTRIES_PER_PAGE as u64)).unwrap_or(u32::MAX / PAGE as u32);
        let data_offset = map_offset + 2 * u64::from(map_pages) * PAGE as u64;
        let slots = ((size - data_offset) / SLOT_BYTES).min(u64::from(map_pages) * ENTRIES_PER_PAGE as u64);
        Ok(Geometry {
            size,
            journal_offset: JOURNAL_OFFSET,
            journal_length,
            map_offset,
            map_pages,
            data_offset,
            slots: u32::try_from(slots).unwrap_or(u32::MAX - 1).min(u32::MAX - 1),
        })
    }

    /// Blocks that objects may have together on a new device of `size` bytes.
    pub fn room(size: u64) -> Result<u64, StoreError> {
        let slots = Geometry::new(size, None)?.slots;
        Ok(u64::from(slots.saturating_sub(spare_slots(slots))) * CHUNK_BLOCKS)
    }

    /// Where a page of the chunk map is, in either copy.
    pub(crate) fn page_offset(&self, copy: u32, page: u32) -> u64 {
        let page = u64::from(copy) * u64::from(self.map_pages) + u64::from(page);
        self.map_offset + page * PAGE as u64
    }

    fn is_sound(&self) -> bool {
        Geometry::new(self.size, Some(self.journal_length)).as_ref() == Ok(self)
    }
}

impl Superblock {
    /// A number that all batches of one store carry, and nothing else does but by a rare chance: it depends on what only the
    /// superblock knows.
    pub(crate) fn seal(&self) -> u32 {
        let mut bytes = self.array.0.to_vec();
        bytes.put_u16_le(self.device.0);
        bytes.put_u64_le(self.nonce);
        crc32c(&bytes)
    }

    /// What the journal says from its tail on.
    pub(crate) fn read_journal(&self, journal: &Bytes) -> Result<Found<Record>, StoreError> {
        let damaged = |Damaged(at)| StoreError::Damaged { part: "journal", offset: self.geometry.journal_offset + at };
        braid_journal::read(journal, self.seal(), self.tail_offset, self.tail_sequence).map_err(damaged)
    }

    /// Finds the superblock in a device's first 8 KiB.
    pub fn read(start: &[u8]) -> Result<Superblock, StoreError> {
        let copies = [Superblock::decode(start, 0), Superblock::decode(start, PAGE)];
        match copies {
            [Ok(first), Ok(second)] if second.checkpoint > first.checkpoint => Ok(second),
            [Ok(first), _] => Ok(first),
            [_, Ok(second)] => Ok(second),
            // What says most about why comes first.
            [Err(first), Err(second)] => Err(match (&first, &second) {
                (StoreError::NewerFormat { .. }, _) => first,
                (_, StoreError::NewerFormat { .. }) => second,
                (StoreError::OlderFormat { .. }, _) => first,
                (_, StoreError::OlderFormat { .. }) => second,
                (StoreError::SuperblockDamaged, _) => first,
                _ => second,
            }),
        }
    }

    /// The copy at `offset`.
    pub(crate) fn decode(start: &[u8], offset: usize) -> Result<Superblock, StoreError> {
        let sector = start.get(offset..offset + SECTOR).ok_or(StoreError::NotBraid)?;
        if sector[..8] != MAGIC {
            return Err(StoreError::NotBraid);
        }
        let checksum = u32::from_le_bytes(sector[CHECKSUM_AT..].try_into().expect("four bytes"));
        if crc32c(&sector[..CHECKSUM_AT]) != checksum {
            return Err(StoreError::SuperblockDamaged);
        }
        let mut from = &sector[8..];
        let found = from.get_u32_le();
        if found > FORMAT {
            return Err(StoreError::NewerFormat { found, known: FORMAT });
        }
        if found < OLDEST {
            return Err(StoreError::OlderFormat { found, known: FORMAT });
        }
        let device = DeviceId(from.get_u16_le());
        from.advance(2);
        let mut array = [0; 16];
        from.copy_to_slice(&mut array);
        let superblock = Superblock {
            array: ArrayId(array),
            device,
            geometry: Geometry {
                size: from.get_u64_le(),
                journal_offset: from.get_u64_le(),
                journal_length: from.get_u64_le(),
                map_offset: from.get_u64_le(),
                data_offset: from.get_u64_le(),
                map_pages: from.get_u32_le(),
                slots: from.get_u32_le(),
            },
            checkpoint: from.get_u64_le(),
            tail_offset: from.get_u64_le(),
            tail_sequence: from.get_u64_le(),
            nonce: from.get_u64_le(),
            disk: DiskId(from.get_u64_le()),
        };
        let in_journal = superblock.tail_offset < superblock.geometry.journal_length
            && superblock.tail_offset.is_multiple_of(SECTOR as u64);
        if !superblock.geometry.is_sound() || !in_journal {
            return Err(StoreError::SuperblockDamaged);
        }
        Ok(superblock)
    }

    /// One copy.
    pub(crate) fn encode(&self) -> Bytes {
        let mut page = AlignedBuffer::zeroed(PAGE);
        let mut to = &mut page[..];
        to.put_slice(&MAGIC);
        to.put_u32_le(FORMAT);
        to.put_u16_le(self.device.0);
        to.put_u16_le(0);
        to.put_slice(&self.array.0);
        to.put_u64_le(self.geometry.size);
        to.put_u64_le(self.geometry.journal_offset);
        to.put_u64_le(self.geometry.journal_length);
        to.put_u64_le(self.geometry.map_offset);
        to.put_u64_le(self.geometry.data_offset);
        to.put_u32_le(self.geometry.map_pages);
        to.put_u32_le(self.geometry.slots);
        to.put_u64_le(self.checkpoint);
        to.put_u64_le(self.tail_offset);
        to.put_u64_le(self.tail_sequence);
        to.put_u64_le(self.nonce);
        to.put_u64_le(self.disk.0);
        let checksum = crc32c(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..SECTOR].copy_from_slice(&checksum.to_le_bytes());
        page.freeze()
    }

    /// Refuses a device that is not the one asked for.
    pub(crate) fn belongs_to(&self, config: &StoreConfig) -> Result<(), StoreError> {
        if self.array != config.array {
            return Err(StoreError::OtherArray { found: self.array, expected: config.array });
        }
        if self.device != config.device {
            return Err(StoreError::OtherDevice { found: self.device, expected: config.device });
        }
        if config.size < self.geometry.size {
            return Err(StoreError::Truncated { found: config.size, expected: self.geometry.size });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(checkpoint: u64) -> Superblock {
        Superblock {
            array: ArrayId([7; 16]),
            device: DeviceId(3),
            geometry: Geometry::new(64 << 20, None).expect("it is large enough"),
            checkpoint,
            tail_offset: 512,
            tail_sequence: 40,
            nonce: 5,
            disk: DiskId(6),
        }
    }

    #[test]
    fn the_newest_whole_copy_counts() {
        let mut start = [superblock(8).encode(), superblock(9).encode()].concat();
        assert_eq!(Superblock::read(&start), Ok(superblock(9)));
        start[PAGE + 40] ^= 1;
        assert_eq!(Superblock::read(&start), Ok(superblock(8)));
        start[40] ^= 1;
        assert_eq!(Superblock::read(&start), Err(StoreError::SuperblockDamaged));
        assert_eq!(Superblock::read(&[0; 2 * PAGE]), Err(StoreError::NotBraid));
        assert_eq!(Superblock::read(&[]), Err(StoreError::NotBraid));
    }

    #[test]
    fn batches_of_devices_that_differ_in_their_nonce_alone_have_other_seals() {
        let seal = |nonce| Superblock { nonce, ..superblock(1) }.seal();
        assert_ne!(seal(5), seal(6), "else whoever writes blocks could forge a batch");
        let read = Superblock::read(&[superblock(1).encode(), superblock(1).encode()].concat());
        assert_eq!(read.map(|superblock| (superblock.nonce, superblock.disk)), Ok((5, DiskId(6))));
    }

    #[test]
    fn another_format_is_refused_by_name() {
        let read = |format: u8| {
            let mut copy = superblock(1).encode().to_vec();
            copy[8] = format;
            let checksum = crc32c(&copy[..CHECKSUM_AT]).to_le_bytes();
            copy[CHECKSUM_AT..SECTOR].copy_from_slice(&checksum);
            Superblock::read(&copy)
        };
        assert_eq!(read(9), Err(StoreError::NewerFormat { found: 9, known: FORMAT }));
        assert_eq!(read(1), Err(StoreError::OlderFormat { found: 1, known: FORMAT }));
    }

    #[test]
    fn the_parts_lie_side_by_side_within_the_device() {
        for size in [SIZE_MIN, 17 << 20, 64 << 20, 1 << 30, 1 << 40, 64 << 40] {
            let geometry = Geometry::new(size, None).expect("it is large enough");
            assert!(geometry.data_offset + u64::from(geometry.slots) * SLOT_BYTES <= size);
            assert!(u64::from(geometry.slots) <= u64::from(geometry.map_pages) * ENTRIES_PER_PAGE as u64);
            assert!(geometry.is_sound());
        }
        assert_eq!(Geometry::new(SIZE_MIN - 1, None), Err(StoreError::TooSmall { min: SIZE_MIN }));
    }
}
