//! A disk in memory. Each sector of a write may or may not survive a crash until it is synced. Commands end in any order. Two overlapping
//! commands in flight, at least one of them a write, are a bug of the store.

use crate::protocol::*;
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use braid_store::Geometry;

const SECTOR: u64 = 512;

#[derive(Clone, Default)]
pub struct TestDisk {
    /// Sectors that survive a crash. A sector that was never written is zero.
    durable: BTreeMap<u64, Bytes>,
    /// Later contents of each sector, oldest first, by the number of the write.
    unsynced: BTreeMap<u64, Vec<(u64, Bytes)>>,
    /// Numbers of writes that have ended and are not synced.
    ended: Vec<u64>,
    in_flight: Vec<InFlight>,
    next_write: u64,
    /// Reserved bytes from the start on, and the most bytes that can be reserved.
    reserved: u64,
    pub space: u64,
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub reserves_refused: u64,
    /// Reads do not end.
    pub hold_reads: bool,
    /// Writes from this offset on do not end.
    pub hold_writes_from: u64,
    /// Reads of the sectors at these offsets fail, once for each element.
    pub failing_reads: Vec<u64>,
    /// Reads of these sectors fail until they are written.
    unreadable: BTreeSet<u64>,
    /// Every write to any of these bytes fails.
    pub bad: Vec<Range<u64>>,
    /// (from, count): the next `count` writes that begin at or behind `from` fail.
    pub failing_writes: (u64, u64),
    pub writes_failed: u64,
}

#[derive(Clone)]
struct InFlight {
    tag: DiskTag,
    command: DiskCommand,
    /// The number of a write.
    number: u64,
    /// The writes that a sync covers.
    covers: Vec<u64>,
}

impl TestDisk {
    pub fn formatted(writes: Vec<(u64, Bytes)>) -> TestDisk {
        let mut disk = TestDisk { next_write: 1, space: u64::MAX, hold_writes_from: u64::MAX, ..Default::default() };
        for (offset, bytes) in writes {
            disk.put(offset, &bytes);
        }
        disk
    }

    /// Changes the disk's content without a command.
    pub fn put(&mut self, offset: u64, bytes: &Bytes) {
        assert!((bytes.len() as u64 | offset).is_multiple_of(SECTOR), "whole sectors");
        for (sector, at) in (offset / SECTOR..).zip((0..bytes.len()).step_by(SECTOR as usize)) {
            self.durable.insert(sector, bytes.slice(at..at + SECTOR as usize));
            self.unreadable.remove(&sector);
        }
    }

    /// Makes the sector at `offset` unreadable.
    pub fn break_at(&mut self, offset: u64) {
        self.unreadable.insert(offset / SECTOR);
    }

    pub fn get(&self, offset: u64, length: usize) -> Vec<u8> {
        (offset / SECTOR..(offset + length as u64) / SECTOR).flat_map(|sector| self.sector(sector)).collect()
    }

    /// The parts of the device, as its superblock has them.
    pub fn geometry(&self) -> Geometry {
        Superblock::read(&self.get(0, 8192)).expect("it is whole").geometry
    }

    /// Flips a bit.
    pub fn corrupt(&mut self, offset: u64) {
        let sector = offset / SECTOR;
        let mut bytes = self.sector(sector).to_vec();
        bytes[(offset % SECTOR) as usize] ^= 0x10;
        self.durable.insert(sector, bytes.into());
    }

    /// The offsets of sectors that begin with these bytes.
    pub fn find(&self, magic: &[u8]) -> Vec<u64> {
        self.durable.iter().filter(|(_, bytes)| bytes.starts_with(magic)).map(|(sector, _)| sector * SECTOR).collect()
    }

    fn sector(&self, sector: u64) -> Bytes {
        let newest = self.unsynced.get(&sector).and_then(|versions| versions.last()).map(|(_, bytes)| bytes);
        newest.or_else(|| self.durable.get(&sector)).cloned().unwrap_or(Bytes::from_static(&[0; SECTOR as usize]))
    }

    pub fn submit(&mut self, tag: DiskTag, command: DiskCommand) {
        let mut flight = InFlight { tag, command, number: 0, covers: Vec::new() };
        let (start, end, writes) = extent(&flight.command);
        for other in &self.in_flight {
            let (other_start, other_end, other_writes) = extent(&other.command);
            let overlap = start < other_end && other_start < end;
            assert!(!overlap || !(writes || other_writes), "{:?} overlaps {:?}", flight.command, other.command);
            assert_ne!(tag, other.tag, "tags are unique");
        }
        match &flight.command {
            DiskCommand::Write { offset, data, .. } => {
                self.writes += 1;
                assert!(end <= self.reserved, "no space was reserved for a write at {offset}");
                flight.number = self.next_write;
                self.next_write += 1;
                let mut sector = offset / SECTOR;
                for part in data {
                    assert!((part.len() as u64 | offset).is_multiple_of(SECTOR), "whole sectors");
                    for at in (0..part.len()).step_by(SECTOR as usize) {
                        let version = (flight.number, part.slice(at..at + SECTOR as usize));
                        self.unsynced.entry(sector).or_default().push(version);
                        self.unreadable.remove(&sector);
                        sector += 1;
                    }
                }
            }
            DiskCommand::Read { .. } => self.reads += 1,
            DiskCommand::Sync => {
                self.syncs += 1;
                flight.covers = self.ended.clone();
            }
            _ => {}
        }
        self.in_flight.push(flight);
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Ends one of the commands in flight.
    pub fn end_one(&mut self, rng: &mut Rng) -> Option<(DiskTag, DiskResult)> {
        let held = |flight: &InFlight| match &flight.command {
            DiskCommand::Read { .. } => self.hold_reads,
            DiskCommand::Write { offset, .. } => *offset >= self.hold_writes_from,
            _ => false,
        };
        let may_end: Vec<usize> = (0..self.in_flight.len()).filter(|at| !held(&self.in_flight[*at])).collect();
        if may_end.is_empty() {
            return None;
        }
        let flight = self.in_flight.swap_remove(may_end[rng.below(may_end.len() as u64) as usize]);
        let result = match flight.command {
            DiskCommand::Read { offset, length } => {
                let fails = self.failing_reads.iter().position(|at| (offset..offset + length as u64).contains(at));
                let sectors = offset / SECTOR..(offset + length as u64).div_ceil(SECTOR);
                match fails {
                    _ if self.unreadable.range(sectors).next().is_some() => DiskResult::Read(Err(DiskError::Failed)),
                    Some(at) => {
                        self.failing_reads.remove(at);
                        DiskResult::Read(Err(DiskError::Failed))
                    }
                    None => DiskResult::Read(Ok(self.get(offset, length).into())),
                }
            }
            DiskCommand::Write { .. } if self.write_fails(&flight.command) => {
                self.writes_failed += 1;
                DiskResult::Done(Err(DiskError::Failed))
            }
            DiskCommand::Write { durable, .. } => {
                self.ended.push(flight.number);
                if durable {
                    let (start, end, _) = extent(&flight.command);
                    let sectors: Vec<u64> = (start / SECTOR..end / SECTOR).collect();
                    self.settle(&sectors, &[flight.number]);
                }
                DiskResult::Done(Ok(()))
            }
            DiskCommand::Sync => {
                let sectors: Vec<u64> = self.unsynced.keys().copied().collect();
                self.settle(&sectors, &flight.covers);
                self.ended.retain(|number| !flight.covers.contains(number));
                DiskResult::Done(Ok(()))
            }
            DiskCommand::Reserve { offset, length } => {
                assert!(offset <= self.reserved, "reserved space has no gaps");
                if offset + length > self.space.max(self.reserved) {
                    self.reserves_refused += 1;
                    DiskResult::Done(Err(DiskError::NoSpace))
                } else {
                    self.reserved = self.reserved.max(offset + length);
                    DiskResult::Done(Ok(()))
                }
            }
        };
        Some((flight.tag, result))
    }

    fn write_fails(&mut self, command: &DiskCommand) -> bool {
        let (start, end, _) = extent(command);
        let (from, left) = self.failing_writes;
        if start >= from && left > 0 {
            self.failing_writes.1 -= 1;
            return true;
        }
        self.bad.iter().any(|bad| start < bad.end && bad.start < end)
    }

    /// The contents that these writes gave to these sectors become durable.
    fn settle(&mut self, sectors: &[u64], numbers: &[u64]) {
        for sector in sectors {
            let Some(versions) = self.unsynced.get_mut(sector) else { continue };
            let Some(last) = versions.iter().rposition(|(number, _)| numbers.contains(number)) else { continue };
            let (_, bytes) = versions.drain(..=last).next_back().expect("the last is in it");
            self.durable.insert(*sector, bytes);
            if versions.is_empty() {
                self.unsynced.remove(sector);
            }
        }
    }

    /// The power fails: each sector keeps any version since the last sync.
    pub fn crash(&mut self, rng: &mut Rng) {
        // Sometimes no unsynced write survives, or all do: the extremes find most bugs.
        let mood = rng.below(4);
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            let kept = match mood {
                0 => 0,
                1 => versions.len(),
                _ => rng.below(versions.len() as u64 + 1) as usize,
            };
            if kept > 0 {
                self.durable.insert(sector, versions[kept - 1].1.clone());
            }
        }
        self.in_flight.clear();
        self.ended.clear();
    }

    /// The power fails, and no unsynced write survives.
    pub fn crash_hard(&mut self) {
        self.unsynced.clear();
        self.in_flight.clear();
        self.ended.clear();
    }
}

fn extent(command: &DiskCommand) -> (u64, u64, bool) {
    match command {
        DiskCommand::Read { offset, length } => (*offset, offset + *length as u64, false),
        DiskCommand::Write { offset, data, .. } => {
            (*offset, offset + data.iter().map(|part| part.len() as u64).sum::<u64>(), true)
        }
        DiskCommand::Sync | DiskCommand::Reserve { .. } => (0, 0, false),
    }
}
