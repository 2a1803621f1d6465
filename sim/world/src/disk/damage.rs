//! Damage of a medium: flipped bits, unreadable sectors, misdirected writes.
//!
//! The disk knows no stripes, so the owner of the world says where damage may occur. Each damaged sector remembers its right content:
//! it counts as damaged until it is written again, and [`Disk::heal`] restores all damaged sectors. Only sectors whose content is on
//! the medium are damaged.

use super::{Disk, SECTOR_BYTES, Sector, sectors};
use std::collections::BTreeSet;
use std::ops::Range;

/// One damaged sector.
#[derive(Clone, Debug)]
pub(super) struct BadSector {
    /// The content that the sector should have.
    right: Sector,
    unreadable: bool,
}

/// A write that will be misdirected.
#[derive(Clone, Debug)]
pub(super) struct MisdirectedWrite {
    /// The bytes that it will not reach.
    meant: Range<u64>,
    /// The first byte that it will overwrite instead.
    hit: u64,
}

impl Disk {
    /// Flips a bit of one sector within these bytes, and returns the sector; `None` if no sector there can be corrupted.
    pub fn corrupt(&mut self, bytes: Range<u64>) -> Option<u64> {
        let sector = self.choose(bytes)?;
        let bit = self.rng.below(SECTOR_BYTES as u64 * 8) as usize;
        let content = self.content.get_mut(sector)?;
        let right = *content;
        content[bit / 8] ^= 1 << (bit % 8);
        self.bad_sectors.insert(sector, BadSector { right, unreadable: false });
        self.counts.rotten += 1;
        Some(sector)
    }

    /// Flips this bit of a byte whose sector is on the medium and undamaged.
    pub fn flip(&mut self, byte: u64, bit: u32) {
        let sector = byte / SECTOR_BYTES as u64;
        let content = self.content.get_mut(sector).expect("something was written there");
        let right = *content;
        content[(byte % SECTOR_BYTES as u64) as usize] ^= 1 << bit;
        self.bad_sectors.insert(sector, BadSector { right, unreadable: false });
        self.counts.rotten += 1;
    }

    /// Makes one sector within these bytes unreadable until it is written, and returns the sector.
    pub fn lose(&mut self, bytes: Range<u64>) -> Option<u64> {
        let sector = self.choose(bytes)?;
        let right = *self.content.get(sector)?;
        self.bad_sectors.insert(sector, BadSector { right, unreadable: true });
        self.counts.unreadable += 1;
        Some(sector)
    }

    /// Misdirects the next write that covers all of `meant`: its bytes for `meant` land from `hit` on, though the disk reports success.
    /// Both ranges must be whole sectors and must not overlap.
    pub fn misdirect(&mut self, meant: Range<u64>, hit: u64) {
        let sector = SECTOR_BYTES as u64;
        let whole = [meant.start, meant.end, hit].iter().all(|at| at.is_multiple_of(sector));
        assert!(whole && meant.start < meant.end, "only whole sectors are misdirected");
        assert!(
            hit + (meant.end - meant.start) <= meant.start || meant.end <= hit,
            "a misdirected write must not overlap its target"
        );
        self.misdirected =
            Some(MisdirectedWrite { meant: meant.start / sector..meant.end / sector, hit: hit / sector });
    }

    /// True if any of these bytes is not what was written, or is unreadable.
    pub fn is_hurt(&self, bytes: Range<u64>) -> bool {
        self.bad_sectors.range(sectors_of(bytes)).next().is_some()
    }

    /// True if any sector is damaged.
    pub fn is_any_hurt(&self) -> bool {
        !self.bad_sectors.is_empty()
    }

    /// Restores the content of all damaged sectors, ends all faults of writes, and removes the limit of space.
    pub fn heal(&mut self) {
        self.end_faults();
        for (sector, bad_sector) in std::mem::take(&mut self.bad_sectors) {
            self.content.insert(sector, bad_sector.right);
        }
        for unsynced in self.unsynced.values_mut() {
            if let Some(bad_sector) = unsynced.bad_sector.take() {
                unsynced.base = bad_sector.right;
            }
        }
    }

    /// Ends all faults of writes and removes the limit of space; damaged sectors stay damaged until they are written.
    pub fn end_faults(&mut self) {
        self.misdirected = None;
        self.errors.end();
        self.full = false;
        self.options.space = None;
    }

    pub(super) fn is_readable(&self, offset: u64, length: usize) -> bool {
        !self.bad_sectors.range(sectors_of(offset..offset + length as u64)).any(|(_, bad_sector)| bad_sector.unreadable)
    }

    /// The sectors of this write that it does not reach because it is misdirected.
    pub(super) fn stray(&mut self, offset: u64, data: &[u8]) -> BTreeSet<u64> {
        let written = sectors_of(offset..offset + data.len() as u64);
        let covers = |misdirected: &mut MisdirectedWrite| {
            written.start <= misdirected.meant.start && misdirected.meant.end <= written.end
        };
        let Some(MisdirectedWrite { meant, hit }) = self.misdirected.take_if(covers) else { return BTreeSet::new() };
        let settled = |sector: &u64| !self.unsynced.contains_key(sector);
        if !meant.clone().chain(hit..hit + (meant.end - meant.start)).all(|sector| settled(&sector)) {
            return BTreeSet::new();
        }
        self.counts.misdirected += 1;
        for (sector, bytes) in sectors(offset, data).filter(|(sector, _)| meant.contains(sector)) {
            let victim = hit + (sector - meant.start);
            let before = self.content.insert(victim, bytes).unwrap_or([0; SECTOR_BYTES]);
            self.hurt(victim, before);
            if self.content.get(sector).is_none() {
                self.content.insert(sector, [0; SECTOR_BYTES]);
            }
            self.bad_sectors.insert(sector, BadSector { right: bytes, unreadable: false });
        }
        meant.collect()
    }

    /// Records that a sector is damaged and what it should hold; earlier damage of the sector counts only for that content.
    fn hurt(&mut self, sector: u64, before: Sector) {
        let right = self.bad_sectors.get(&sector).map_or(before, |bad_sector| bad_sector.right);
        self.bad_sectors.insert(sector, BadSector { right, unreadable: false });
    }

    /// Chooses a sector that has content, is undamaged, and has no write in flight.
    fn choose(&mut self, bytes: Range<u64>) -> Option<u64> {
        let sound = |sector: &u64| !self.bad_sectors.contains_key(sector) && !self.unsynced.contains_key(sector);
        let candidates: Vec<u64> = self.content.written(sectors_of(bytes)).filter(sound).collect();
        (!candidates.is_empty()).then(|| candidates[self.rng.below(candidates.len() as u64) as usize])
    }
}

fn sectors_of(bytes: Range<u64>) -> Range<u64> {
    bytes.start / SECTOR_BYTES as u64..bytes.end.div_ceil(SECTOR_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::super::DiskOptions;
    use super::*;
    use braid_base::Rng;
    use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag};

    fn disk(seed: u64) -> Disk {
        let mut disk = Disk::new(DiskOptions::default(), Rng::new(seed));
        disk.preload(0, &[7; 16 * SECTOR_BYTES]);
        disk
    }

    fn read(disk: &mut Disk, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        disk.issue(DiskTag(1), DiskCommand::Read { offset, length });
        match disk.complete(DiskTag(1)) {
            DiskResult::Read(bytes) => bytes.map(|bytes| bytes.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn write(disk: &mut Disk, offset: u64, byte: u8, sectors: usize, durable: bool) {
        let data = vec![vec![byte; sectors * SECTOR_BYTES].into()];
        disk.issue(DiskTag(2), DiskCommand::Write { offset, data, durable });
        assert_eq!(disk.complete(DiskTag(2)), DiskResult::Done(Ok(())));
    }

    #[test]
    fn corruption_flips_one_bit_at_its_address_and_healing_flips_it_back() {
        for seed in 0..32 {
            let mut disk = disk(seed);
            let sector = disk.corrupt(1024..2048).unwrap();
            assert!((2..4).contains(&sector));
            let flipped: u32 = disk.peek(0, 8192).iter().map(|byte| (byte ^ 7).count_ones()).sum();
            assert_eq!(flipped, 1);
            assert!(disk.is_hurt(1024..2048) && !disk.is_hurt(0..1024) && !disk.is_hurt(2048..8192));
            disk.heal();
            assert_eq!(disk.peek(0, 8192), [7; 8192]);
            assert!(!disk.is_any_hurt());
        }
        assert_eq!(disk(0).corrupt(1 << 20..2 << 20), None);
    }

    #[test]
    fn a_sector_that_cannot_be_read_can_be_written_and_is_well_then() {
        let mut disk = disk(3);
        disk.lose(512..1024).unwrap();
        assert_eq!(read(&mut disk, 0, 4096), Err(DiskError::Failed));
        assert_eq!(read(&mut disk, 1024, 512), Ok(vec![7; 512]));
        write(&mut disk, 512, 9, 1, true);
        assert_eq!(read(&mut disk, 512, 512), Ok(vec![9; 512]));
        assert_eq!((disk.counts().unreadable, disk.counts().failed), (1, 1));
    }

    #[test]
    fn blocks_that_a_loss_of_power_reverts_are_as_damaged_as_before() {
        let (mut back, mut kept) = (false, false);
        for seed in 0..64 {
            let mut disk = disk(seed);
            disk.lose(512..1024).unwrap();
            write(&mut disk, 512, 9, 1, false);
            assert!(!disk.is_any_hurt());
            disk.crash();
            match read(&mut disk, 512, 512) {
                Err(DiskError::Failed) => back = true,
                Ok(bytes) => kept |= bytes == [9; 512],
                other => panic!("{other:?}"),
            }
        }
        assert!(back && kept);
    }

    #[test]
    fn a_misdirected_write_leaves_its_address_unchanged_and_overwrites_another() {
        let mut disk = disk(5);
        disk.misdirect(1024..2048, 4096);
        write(&mut disk, 0, 8, 2, true);
        assert_eq!(disk.counts().misdirected, 0, "only a write of the whole range is misdirected");
        write(&mut disk, 512, 9, 5, true);
        assert_eq!(
            disk.peek(0, 3584),
            [vec![8; 512], vec![9; 512], vec![7; 1024], vec![9; 1024], vec![7; 512]].concat()
        );
        assert_eq!(disk.peek(4096, 1536), [vec![9; 1024], vec![7; 512]].concat());
        write(&mut disk, 512, 6, 5, true);
        assert_eq!((disk.peek(512, 2560), disk.counts().misdirected), (vec![6; 2560], 1), "once");
        disk.heal();
        assert_eq!(disk.peek(4096, 1536), vec![7; 1536]);
    }
}
