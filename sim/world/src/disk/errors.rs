//! Failing writes and syncs: a single failure, or permanent failures of some sectors. Also the damage that a loss of power does to
//! neighbours of sectors that were being written, where the physical sector of the disk is larger than 512 bytes.
//!
//! This module draws from a random source of its own, so that runs without these faults are unchanged.

use super::{Disk, DiskError, DiskResult, SECTOR_BYTES, extent, joined};
use braid_base::Rng;
use braid_machine::DiskCommand;
use std::collections::BTreeSet;
use std::ops::Range;

/// The failures to come.
#[derive(Clone, Debug)]
pub(super) struct Errors {
    rng: Rng,
    writes: u32,
    syncs: u32,
    /// Byte ranges in which every write fails.
    bad: Vec<Range<u64>>,
}

impl Default for Errors {
    fn default() -> Self {
        Errors { rng: Rng::new(0xbad), writes: 0, syncs: 0, bad: Vec::new() }
    }
}

impl Errors {
    pub(super) fn end(&mut self) {
        (self.writes, self.syncs) = (0, 0);
        self.bad.clear();
    }
}

impl Disk {
    /// Makes the next write fail.
    pub fn fail_write(&mut self) {
        self.errors.writes += 1;
    }

    /// Makes the next sync fail.
    pub fn fail_sync(&mut self) {
        self.errors.syncs += 1;
    }

    /// Makes every later write of any of these bytes fail.
    pub fn spoil(&mut self, bytes: Range<u64>) {
        self.errors.bad.push(bytes);
    }

    /// The number of byte ranges in which writes fail.
    pub fn spoilt(&self) -> usize {
        self.errors.bad.len()
    }

    /// Sets the physical sector size: the number of bytes that the disk writes at once.
    pub fn set_physical_sector(&mut self, bytes: u64) {
        assert!(bytes.is_multiple_of(SECTOR_BYTES as u64), "whole sectors");
        self.physical_sector = bytes;
    }

    /// From this byte on, a loss of power damages no neighbours of sectors that were being written.
    pub fn set_hurt_before(&mut self, byte: u64) {
        self.hurt_before = byte;
    }

    /// Puts a page cache in front of the disk: after a failed write, readers see the new content until power fails, and no later sync
    /// covers that write.
    pub fn set_cached(&mut self) {
        self.cached = true;
    }

    /// Ends the machine without a loss of power: commands in flight complete.
    pub fn stop(&mut self) {
        let tags: Vec<_> = self.in_flight.keys().copied().collect();
        tags.into_iter().for_each(|tag| drop(self.complete(tag)));
        self.crash_point = None;
    }

    pub(super) fn fails(&mut self, command: &DiskCommand) -> bool {
        let once = match command {
            DiskCommand::Write { .. } => &mut self.errors.writes,
            DiskCommand::Sync => &mut self.errors.syncs,
            DiskCommand::Read { .. } | DiskCommand::Reserve { .. } => return false,
        };
        if *once > 0 {
            *once -= 1;
            return true;
        }
        let is_bad = |(start, length, _): (u64, u64, bool)| {
            self.errors.bad.iter().any(|bad| bad.start < start + length && start < bad.end)
        };
        extent(command).is_some_and(is_bad)
    }

    /// Makes a write or a sync fail. All of a failed write may be there or nothing, and it is not durable.
    pub(super) fn fail(&mut self, command: DiskCommand, covers: &BTreeSet<u64>) -> DiskResult {
        self.counts.failed_writes += 1;
        match command {
            DiskCommand::Write { offset, data, .. } if self.cached || self.errors.rng.chance(1, 2) => {
                let write = self.next_write;
                // A lack of space does not matter here.
                let _ = self.write(offset, &joined(&data), false);
                if self.cached {
                    self.uncovered.remove(&write);
                }
            }
            DiskCommand::Sync if self.cached => self.uncovered.retain(|write| !covers.contains(write)),
            _ => {}
        }
        DiskResult::Done(Err(DiskError::Failed))
    }

    /// The sectors that share a physical sector with a write in flight and are not written by it.
    pub(super) fn neighbours_in_flight(&self) -> BTreeSet<u64> {
        let at_once = self.physical_sector / SECTOR_BYTES as u64;
        if at_once == 1 {
            return BTreeSet::new();
        }
        let (mut written, mut touched) = (BTreeSet::new(), BTreeSet::new());
        for (start, length, _) in self.in_flight.values().filter_map(|flying| extent(&flying.command)).filter(|at| at.2)
        {
            let sectors = start / SECTOR_BYTES as u64..(start + length) / SECTOR_BYTES as u64;
            touched.extend(sectors.start / at_once * at_once..sectors.end.next_multiple_of(at_once));
            written.extend(sectors);
        }
        touched.difference(&written).copied().collect()
    }

    /// After a loss of power: each of these sectors may hold content that was never written.
    pub(super) fn hurt_neighbours(&mut self, sectors: &BTreeSet<u64>) {
        for sector in sectors {
            if self.may_hurt(*sector) && self.content.get(*sector).is_some() && self.errors.rng.chance(1, 4) {
                let garbage = std::array::from_fn(|_| self.errors.rng.next_u64() as u8);
                self.content.insert(*sector, garbage);
                self.counts.hurt += 1;
            }
        }
    }

    /// True only for bytes before that limit, where no redundancy protects the content: damaged neighbours of blocks in their places
    /// count as corruption, and belong to that fault.
    fn may_hurt(&self, sector: u64) -> bool {
        sector * (SECTOR_BYTES as u64) < self.hurt_before
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiskOptions;
    use super::*;
    use braid_machine::DiskTag;

    fn disk() -> Disk {
        Disk::new(DiskOptions::default(), Rng::new(3))
    }

    fn write(offset: u64, byte: u8, sectors: usize, durable: bool) -> DiskCommand {
        DiskCommand::Write { offset, data: vec![vec![byte; sectors * SECTOR_BYTES].into()], durable }
    }

    fn run(disk: &mut Disk, command: DiskCommand) -> DiskResult {
        disk.issue(DiskTag(1), command);
        disk.complete(DiskTag(1))
    }

    const FAILED: DiskResult = DiskResult::Done(Err(DiskError::Failed));
    const DONE: DiskResult = DiskResult::Done(Ok(()));

    #[test]
    fn a_write_or_sync_fails_once_and_a_bad_place_for_ever() {
        let mut disk = disk();
        disk.fail_write();
        disk.fail_sync();
        assert_eq!(run(&mut disk, write(0, 1, 2, true)), FAILED);
        assert_eq!(run(&mut disk, write(0, 1, 2, true)), DONE);
        assert_eq!(run(&mut disk, DiskCommand::Sync), FAILED);
        assert_eq!(run(&mut disk, DiskCommand::Sync), DONE);
        disk.spoil(4096..4608);
        for _ in 0..3 {
            assert_eq!(run(&mut disk, write(0, 2, 9, false)), FAILED);
            assert_eq!(run(&mut disk, write(4608, 2, 9, false)), DONE);
        }
        disk.heal();
        assert_eq!(run(&mut disk, write(0, 2, 9, false)), DONE);
        assert_eq!(disk.counts().failed_writes, 5);
    }

    #[test]
    fn a_failed_writeback_is_read_until_a_loss_of_power_and_covered_by_no_sync() {
        for durable in [false, true] {
            let mut disk = disk();
            disk.set_cached();
            disk.set_keeps(super::super::Keeps::Nothing);
            assert_eq!(run(&mut disk, write(0, 1, 1, true)), DONE);
            match durable {
                true => disk.fail_write(),
                false => disk.fail_sync(),
            }
            assert_eq!(run(&mut disk, write(0, 2, 1, durable)), if durable { FAILED } else { DONE });
            assert_eq!(run(&mut disk, DiskCommand::Sync), if durable { DONE } else { FAILED });
            assert_eq!(run(&mut disk, DiskCommand::Sync), DONE);
            disk.stop();
            assert_eq!(disk.peek(0, 512), [2; 512], "readers see the cached content");
            disk.crash();
            assert_eq!(disk.peek(0, 512), [1; 512], "the content never reached the disk");
        }
    }

    #[test]
    fn a_loss_of_power_may_hurt_the_sectors_beside_those_in_flight() {
        let mut hurt = 0;
        for seed in 0..32 {
            let mut disk = Disk::new(DiskOptions::default(), Rng::new(seed));
            disk.set_physical_sector(4096);
            disk.set_hurt_before(1 << 20);
            disk.errors.rng = Rng::new(seed);
            assert_eq!(run(&mut disk, write(0, 1, 24, true)), DONE);
            disk.issue(DiskTag(2), write(4096 + 512, 2, 2, true));
            disk.crash();
            assert_eq!([disk.peek(0, 4096), disk.peek(8192, 4096)], [[1; 4096], [1; 4096]]);
            let beside = [disk.peek(4096, 512), disk.peek(4096 + 1536, 512)];
            hurt += beside.iter().filter(|bytes| bytes[..] != [1; 512]).count();
        }
        assert!(hurt > 4, "{hurt}");
    }
}
