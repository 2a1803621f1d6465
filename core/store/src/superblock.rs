//! The superblock: the identity of the device, the layout of its parts, and the point in the journal where recovery begins. There are two
//! copies, written one after the other. The space that a checkpoint frees is used only when both are written, so recovery can start from
//! either of them.

use crate::block::{CHUNK_BLOCKS, SLOT_BYTES};
use crate::free_slots::spare_slots;
use crate::journal_format::{Field, Record, structs};
use crate::map::ENTRIES_PER_PAGE;
use crate::{StoreConfig, StoreError};
use braid_base::checksum::crc32c;
use braid_base::{AlignedBuffer, ArrayId, DeviceId, DiskId, Level};
use braid_journal::{Damaged, DecodeError, Found, SECTOR};
use bytes::{Buf, BufMut, Bytes};

/// The newest format that this release knows. A device of a newer one is refused. Each level of an array has a format.
pub const FORMAT: u32 = format_of(Level::KNOWN);
const FORMAT_OF_FIRST_LEVEL: u32 = 5;
/// The oldest format that this release reads.
const OLDEST: u32 = 4;
/// Bytes of a copy of the superblock and of a map page. All parts are aligned to it.
pub(crate) const PAGE: usize = 4096;
/// The smallest size of a device, in bytes.
pub const SIZE_MIN: u64 = 16 << 20;

const MAGIC: [u8; 8] = *b"BraidDev";
/// The offset of the checksum, in this format and all later ones.
const CHECKSUM_AT: usize = SECTOR - 4;
const JOURNAL_MIN: u64 = 4 << 20;
const JOURNAL_MAX: u64 = 32 << 20;
const JOURNAL_OFFSET: u64 = 2 * PAGE as u64;
/// The smallest journal that can hold a batch of each kind at once.
const JOURNAL_LEAST: u64 = 256 << 10;

/// The layout of a device: offsets and lengths of its parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the file or disk when it was formatted.
    pub size: u64,
    /// The first byte of the journal.
    pub journal_offset: u64,
    /// Bytes of the journal.
    pub journal_length: u64,
    /// The first byte of the chunk map's first copy; the second follows it.
    pub map_offset: u64,
    /// Pages of 4 KiB in each copy.
    pub map_pages: u32,
    /// The first byte of slot 0.
    pub data_offset: u64,
    pub slots: u32,
}

structs! {
    Geometry { size, journal_offset, journal_length, map_offset, data_offset, map_pages, slots };
}

/// The superblock of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array that the device belongs to.
    pub array: ArrayId,
    /// The device's number in the array.
    pub device: DeviceId,
    pub geometry: Geometry,
    /// The number of checkpoints, which tells the newer copy.
    pub checkpoint: u64,
    /// The offset in the journal where recovery begins.
    pub tail_offset: u64,
    /// The sequence of the batch at that offset.
    pub tail_sequence: u64,
    /// A secret random number, drawn when the device was formatted. It is part of every batch's seal, so that no content of a block can
    /// be taken for a batch.
    pub nonce: u64,
    /// The disk's name, drawn at random when the device was formatted; not a secret.
    pub disk: DiskId,
    /// The level of the array when it was written. Its format says it; older formats than that of the first level are upgraded.
    pub level: Level,
}

const fn format_of(level: Level) -> u32 {
    FORMAT_OF_FIRST_LEVEL + (level.0 - Level::FIRST.0) as u32
}

impl Geometry {
    /// Divides `size` bytes, with a journal of the default length or of the given one.
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

    /// The offset of a page of the chunk map, in the given copy.
    pub(crate) fn page_offset(&self, copy: u32, page: u32) -> u64 {
        let page = u64::from(copy) * u64::from(self.map_pages) + u64::from(page);
        self.map_offset + page * PAGE as u64
    }

    fn is_sound(&self) -> bool {
        Geometry::new(self.size, Some(self.journal_length)).as_ref() == Ok(self)
    }
}

impl Superblock {
    /// A number that all batches of one store carry. Other content matches it only by a rare chance, because it depends on the nonce,
    /// which is in the superblock only.
    pub(crate) fn seal(&self) -> u32 {
        let mut bytes = self.array.0.to_vec();
        bytes.put_u16_le(self.device.0);
        bytes.put_u64_le(self.nonce);
        crc32c(&bytes)
    }

    /// Reads the journal's records from its tail on.
    pub(crate) fn read_journal(&self, journal: &Bytes) -> Result<Found<Record>, StoreError> {
        let damaged = |Damaged(at)| StoreError::Damaged { part: "journal", offset: self.geometry.journal_offset + at };
        braid_journal::read(journal, self.seal(), self.tail_offset, self.tail_sequence).map_err(damaged)
    }

    /// Finds the superblock in the first 8 KiB of a device.
    pub fn read(start: &[u8]) -> Result<Superblock, StoreError> {
        let copies = [Superblock::decode(start, 0), Superblock::decode(start, PAGE)];
        match copies {
            // A newer release was about to write both: what followed is not known here.
            [Err(newer @ StoreError::NewerFormat { .. }), _] | [_, Err(newer @ StoreError::NewerFormat { .. })] => {
                Err(newer)
            }
            [Ok(first), Ok(second)] if second.checkpoint > first.checkpoint => Ok(second),
            [Ok(first), _] => Ok(first),
            [_, Ok(second)] => Ok(second),
            // The most specific error is returned.
            [Err(first), Err(second)] => Err(match (&first, &second) {
                (StoreError::OlderFormat { .. }, _) => first,
                (_, StoreError::OlderFormat { .. }) => second,
                (StoreError::SuperblockDamaged, _) => first,
                _ => second,
            }),
        }
    }

    /// Decodes the copy at `offset`.
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
            geometry: Geometry::take(&mut from).map_err(|_| StoreError::SuperblockDamaged)?,
            checkpoint: from.get_u64_le(),
            tail_offset: from.get_u64_le(),
            tail_sequence: from.get_u64_le(),
            nonce: from.get_u64_le(),
            disk: DiskId(from.get_u64_le()),
            level: Level(Level::FIRST.0 + found.saturating_sub(FORMAT_OF_FIRST_LEVEL) as u16),
        };
        let in_journal = superblock.tail_offset < superblock.geometry.journal_length
            && superblock.tail_offset.is_multiple_of(SECTOR as u64);
        // Later checkpoints need higher numbers.
        if !superblock.geometry.is_sound() || !in_journal || superblock.checkpoint > u64::MAX / 2 {
            return Err(StoreError::SuperblockDamaged);
        }
        Ok(superblock)
    }

    /// Encodes one copy.
    pub(crate) fn encode(&self) -> Bytes {
        let mut to = MAGIC.to_vec();
        to.put_u32_le(format_of(self.level));
        to.put_u16_le(self.device.0);
        to.put_u16_le(0);
        to.put_slice(&self.array.0);
        self.geometry.put(&mut to);
        to.put_u64_le(self.checkpoint);
        to.put_u64_le(self.tail_offset);
        to.put_u64_le(self.tail_sequence);
        to.put_u64_le(self.nonce);
        to.put_u64_le(self.disk.0);
        let mut page = AlignedBuffer::zeroed(PAGE);
        page[..to.len()].copy_from_slice(&to);
        let checksum = crc32c(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..SECTOR].copy_from_slice(&checksum.to_le_bytes());
        page.freeze()
    }

    /// Refuses a device that is not the configured one.
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
            level: Level::FIRST,
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
        assert_eq!(Superblock::read(&superblock(u64::MAX).encode()), Err(StoreError::SuperblockDamaged), "the last");
        assert_eq!(Superblock::read(&[0; 2 * PAGE]), Err(StoreError::NotBraid));
        assert_eq!(Superblock::read(&[]), Err(StoreError::NotBraid));
    }

    #[test]
    fn batches_of_devices_that_differ_in_their_nonce_alone_have_other_seals() {
        let seal = |nonce| Superblock { nonce, ..superblock(1) }.seal();
        assert_ne!(seal(5), seal(6), "otherwise the content of a block could forge a batch");
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
        assert_eq!(read(3), Err(StoreError::OlderFormat { found: 3, known: FORMAT }));
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
