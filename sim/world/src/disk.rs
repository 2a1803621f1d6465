//! A simulated disk of 512-byte sectors. After a loss of power it holds everything that it had promised to keep. The random source
//! decides which other writes remain.
//!
//! - A write takes effect when it completes. Until a sync covers it, a loss of power may lose it, keep it, or keep some of its sectors.
//!   A sector is never torn.
//! - A `Sync` covers exactly the writes of whose completion the machine had been told when it emitted the sync.
//! - A `durable` write is on the medium when it completes. It makes no other write durable.
//! - Commands in flight when power fails may have been done, not done, or done in part.
//! - Two overlapping commands in flight, at least one of which is a write, are a bug of the machine and end the run.
//!
//! Faults beyond that are in `damage` (corrupt sectors, misdirected writes) and `errors` (failing writes and syncs).

mod damage;
mod errors;
mod medium;

use crate::disk::damage::{BadSector, MisdirectedWrite};
use crate::disk::errors::Errors;
use crate::disk::medium::Medium;
use braid_base::Rng;
use braid_machine::{DiskCommand, DiskError, DiskResult, DiskTag};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// The unit that a disk writes completely or not at all.
pub const SECTOR_BYTES: usize = 512;
/// The unit in which space is allocated, as in a file system.
const PAGE_BYTES: u64 = 4096;

const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

type Sector = [u8; SECTOR_BYTES];

/// How fast and how large a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The shortest time that a command takes.
    pub latency_min: Duration,
    /// The longest time that a command takes.
    pub latency_max: Duration,
    /// If set, the space of the disk in bytes: beyond it, reservations and writes to unallocated pages fail for lack of space.
    pub space: Option<u64>,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { latency_min: Duration::from_micros(20), latency_max: Duration::from_micros(400), space: None }
    }
}

/// A point at which power is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// After the machine has emitted this many more writes; the last of them is in flight.
    Write(u64),
    /// After the machine has emitted this many more syncs; the last of them is in flight.
    Sync(u64),
}

/// Which writes that were not synced survive a loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// The random source decides for each write: nothing, everything, or some sectors.
    #[default]
    Random,
    Nothing,
    Everything,
}

#[derive(Clone, Debug)]
pub struct Disk {
    options: DiskOptions,
    rng: Rng,
    slowdown: u32,
    /// The content that reads see; sectors that are missing here read as zeros.
    content: Medium,
    /// Sectors with writes that no sync has covered: the content that is certainly on the medium, then the content of each later write.
    unsynced: BTreeMap<u64, Unsynced>,
    in_flight: BTreeMap<DiskTag, Flying>,
    /// Completed writes that no sync has covered yet.
    uncovered: BTreeSet<u64>,
    next_write: u64,
    pages_used: BTreeSet<u64>,
    full: bool,
    crash_point: Option<CrashPoint>,
    keeps: Keeps,
    bad_sectors: BTreeMap<u64, BadSector>,
    misdirected: Option<MisdirectedWrite>,
    errors: Errors,
    /// The unit in which the disk writes physically, and the page cache that hides failed writes, if it has one.
    physical_sector: u64,
    cached: bool,
    hurt_before: u64,
    counts: DiskCounts,
}

braid_base::counters! {
    /// Counts of a disk's faults.
    pub struct DiskCounts;

    /// Losses of power.
    crashes,
    /// Writes that were not synced when power failed, and were lost completely.
    lost,
    /// Writes that were not synced when power failed, and of which some sectors remain.
    torn,
    /// Writes that were not synced when power failed, and remain.
    kept,
    /// Sectors in which a bit flipped.
    rotten,
    /// Sectors that became unreadable.
    unreadable,
    /// Misdirected writes.
    misdirected,
    /// Commands that failed for lack of space.
    refused,
    /// Reads that failed at an unreadable sector.
    failed,
    /// Writes and syncs that failed.
    failed_writes,
    /// Sectors that were damaged because power failed while a neighbour was written.
    hurt,
}

#[derive(Clone, Debug)]
struct Unsynced {
    base: Sector,
    /// The damage of the sector before these writes.
    bad_sector: Option<BadSector>,
    writes: Vec<(u64, Sector)>,
}

#[derive(Clone, Debug)]
struct Flying {
    command: DiskCommand,
    /// Of a sync: the completed writes that it covers.
    covers: BTreeSet<u64>,
}

impl Disk {
    /// Creates an empty disk with a random source of its own.
    pub fn new(options: DiskOptions, rng: Rng) -> Disk {
        Disk {
            options,
            rng,
            slowdown: 1,
            content: Medium::default(),
            unsynced: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            uncovered: BTreeSet::new(),
            next_write: 0,
            pages_used: BTreeSet::new(),
            full: false,
            crash_point: None,
            keeps: Keeps::Random,
            bad_sectors: BTreeMap::new(),
            misdirected: None,
            errors: Errors::default(),
            physical_sector: SECTOR_BYTES as u64,
            cached: false,
            hurt_before: 0,
            counts: DiskCounts::default(),
        }
    }

    /// Stores durable content, as a tool does before the machine first starts.
    pub fn preload(&mut self, offset: u64, data: &[u8]) {
        let used = pages(offset, data.len() as u64);
        self.pages_used.extend(used.clone());
        if offset.is_multiple_of(PAGE_BYTES) && data.chunks(PAGE_BYTES as usize).all(|page| *page == ZEROS) {
            self.content.wipe(used);
        } else {
            for (sector, bytes) in sectors(offset, data) {
                self.content.insert(sector, bytes);
            }
        }
    }

    /// Multiplies the duration of every later command.
    pub fn slow_down(&mut self, times: u32) {
        self.slowdown = times.max(1);
    }

    /// Makes power fail at `point`. Only one point is kept; it is dropped once it is reached, or when power fails for another reason.
    pub fn crash_at(&mut self, point: CrashPoint) {
        self.crash_point = Some(point);
    }

    /// Cancels the planned loss of power.
    pub fn spare(&mut self) {
        self.crash_point = None;
    }

    /// Sets what later losses of power leave of writes that were not synced.
    pub fn set_keeps(&mut self, keeps: Keeps) {
        self.keeps = keeps;
    }

    /// If `full`, only space that is already allocated can be used; otherwise, as much as the options say.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// True if no command is in flight and everything that was written is durable.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.unsynced.is_empty()
    }

    pub fn counts(&self) -> DiskCounts {
        self.counts
    }

    /// Where the sectors of a range begin that were ever written.
    pub fn written(&self, bytes: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let sector_bytes = SECTOR_BYTES as u64;
        let sectors = bytes.start / sector_bytes..bytes.end.div_ceil(sector_bytes);
        self.content.written(sectors).map(move |sector| sector * sector_bytes)
    }

    /// The content that a read would return now, for checkers and tools.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        self.content.read(offset / SECTOR_BYTES as u64, length)
    }

    /// Accepts a command. Returns how long it takes, and whether power fails now.
    pub fn issue(&mut self, tag: DiskTag, command: DiskCommand) -> (Duration, bool) {
        self.check(tag, &command);
        let fails = match (&mut self.crash_point, &command) {
            (Some(CrashPoint::Write(left)), DiskCommand::Write { .. })
            | (Some(CrashPoint::Sync(left)), DiskCommand::Sync) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            _ => false,
        };
        let covers = match command {
            DiskCommand::Sync => self.uncovered.clone(),
            _ => BTreeSet::new(),
        };
        self.in_flight.insert(tag, Flying { command, covers });
        let (low, high) = (self.options.latency_min.as_nanos() as u64, self.options.latency_max.as_nanos() as u64);
        (Duration::from_nanos(self.rng.between(low, high)) * self.slowdown, fails)
    }

    /// Executes a command that was issued, and returns its result.
    pub fn complete(&mut self, tag: DiskTag) -> DiskResult {
        let Flying { command, covers } = self.in_flight.remove(&tag).expect("a command completes once");
        if self.fails(&command) {
            return self.fail(command, &covers);
        }
        match command {
            DiskCommand::Read { offset, length } if !self.is_readable(offset, length) => {
                self.counts.failed += 1;
                DiskResult::Read(Err(DiskError::Failed))
            }
            DiskCommand::Read { offset, length } => DiskResult::Read(Ok(self.peek(offset, length).into())),
            DiskCommand::Write { offset, data, durable } => {
                DiskResult::Done(self.write(offset, &joined(&data), durable))
            }
            DiskCommand::Sync => {
                self.cover(&covers);
                DiskResult::Done(Ok(()))
            }
            DiskCommand::Reserve { offset, length } => DiskResult::Done(self.take_space(offset, length)),
        }
    }

    /// Makes power fail: writes that are unsynced or in flight are kept, lost, or kept in part.
    pub fn crash(&mut self) {
        self.counts.crashes += 1;
        self.crash_point = None;
        let neighbours = self.neighbours_in_flight();
        for (_, flying) in std::mem::take(&mut self.in_flight) {
            match flying.command {
                // As if it had completed unnoticed; the random source below decides what remains of it.
                DiskCommand::Write { offset, data, .. } => {
                    let _ = self.write(offset, &joined(&data), false);
                }
                DiskCommand::Reserve { offset, length } if self.rng.chance(1, 2) => {
                    let _ = self.take_space(offset, length);
                }
                _ => {}
            }
        }
        self.uncovered.clear();
        let mood = match self.keeps {
            Keeps::Random => self.rng.below(4),
            Keeps::Nothing => 0,
            Keeps::Everything => 1,
        };
        // For each write: whether any of its sectors remains, and whether any is lost.
        let mut fates: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        for (sector, Unsynced { base, bad_sector, writes }) in std::mem::take(&mut self.unsynced) {
            let kept = match mood {
                0 => 0,
                1 => writes.len(),
                _ => self.rng.below(writes.len() as u64 + 1) as usize,
            };
            for (number, (write, _)) in writes.iter().enumerate() {
                let fate = fates.entry(*write).or_default();
                if number < kept { fate.0 = true } else { fate.1 = true }
            }
            let content = if kept == 0 { base } else { writes[kept - 1].1 };
            if let (0, Some(bad_sector)) = (kept, bad_sector) {
                self.bad_sectors.insert(sector, bad_sector);
            }
            self.content.insert(sector, content);
        }
        self.hurt_neighbours(&neighbours);
        for fate in fates.into_values() {
            match fate {
                (true, true) => self.counts.torn += 1,
                (true, false) => self.counts.kept += 1,
                _ => self.counts.lost += 1,
            }
        }
    }

    fn check(&self, tag: DiskTag, command: &DiskCommand) {
        assert!(!self.in_flight.contains_key(&tag), "{tag:?} names a command in flight already");
        if let Some((offset, length, _)) = extent(command) {
            let whole = offset.is_multiple_of(SECTOR_BYTES as u64) && length.is_multiple_of(SECTOR_BYTES as u64);
            assert!(whole && length > 0, "a disk command covers whole sectors: {offset}+{length}");
        }
        for (other_tag, other) in &self.in_flight {
            if let (Some((a, a_length, a_writes)), Some((b, b_length, b_writes))) =
                (extent(command), extent(&other.command))
            {
                let overlap = a < b + b_length && b < a + a_length;
                assert!(
                    !(overlap && (a_writes || b_writes)),
                    "commands in flight overlap: {tag:?} {a}+{a_length} and {other_tag:?} {b}+{b_length}"
                );
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), DiskError> {
        self.take_space(offset, data.len() as u64)?;
        let strayed = self.stray(offset, data);
        let write = self.next_write;
        self.next_write += 1;
        for (sector, bytes) in sectors(offset, data).filter(|(sector, _)| !strayed.contains(sector)) {
            let before = self.content.insert(sector, bytes).unwrap_or([0; SECTOR_BYTES]);
            let bad_sector = self.bad_sectors.remove(&sector);
            if durable {
                self.unsynced.remove(&sector);
            } else {
                let fresh = Unsynced { base: before, bad_sector, writes: Vec::new() };
                self.unsynced.entry(sector).or_insert(fresh).writes.push((write, bytes));
            }
        }
        if !durable {
            self.uncovered.insert(write);
        }
        Ok(())
    }

    fn cover(&mut self, covered: &BTreeSet<u64>) {
        self.uncovered.retain(|write| !covered.contains(write));
        self.unsynced.retain(|_, unsynced| {
            if let Some(last) = unsynced.writes.iter().rposition(|(write, _)| covered.contains(write)) {
                (unsynced.base, unsynced.bad_sector) = (unsynced.writes[last].1, None);
                unsynced.writes.drain(..=last);
            }
            !unsynced.writes.is_empty()
        });
    }

    fn take_space(&mut self, offset: u64, length: u64) -> Result<(), DiskError> {
        let new = pages(offset, length).filter(|page| !self.pages_used.contains(page)).count() as u64;
        let beyond = |space: u64| (self.pages_used.len() as u64 + new) * PAGE_BYTES > space;
        if new > 0 && (self.full || self.options.space.is_some_and(beyond)) {
            self.counts.refused += 1;
            return Err(DiskError::NoSpace);
        }
        self.pages_used.extend(pages(offset, length));
        Ok(())
    }
}

/// Offset, length, and whether the command writes; `None` for commands that may overlap others.
fn extent(command: &DiskCommand) -> Option<(u64, u64, bool)> {
    match command {
        DiskCommand::Read { offset, length } => Some((*offset, *length as u64, false)),
        DiskCommand::Write { offset, data, .. } => {
            Some((*offset, data.iter().map(|part| part.len() as u64).sum(), true))
        }
        DiskCommand::Sync | DiskCommand::Reserve { .. } => None,
    }
}

fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, Sector)> + '_ {
    let first = offset / SECTOR_BYTES as u64;
    data.chunks(SECTOR_BYTES).enumerate().map(move |(index, chunk)| {
        let mut sector = [0; SECTOR_BYTES];
        sector[..chunk.len()].copy_from_slice(chunk);
        (first + index as u64, sector)
    })
}

fn pages(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / PAGE_BYTES..(offset + length).div_ceil(PAGE_BYTES)
}

fn joined(parts: &[Bytes]) -> Bytes {
    match parts {
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> Disk {
        Disk::new(DiskOptions::default(), Rng::new(seed))
    }

    fn write(offset: u64, byte: u8, sectors: usize, durable: bool) -> DiskCommand {
        DiskCommand::Write { offset, data: vec![vec![byte; sectors * SECTOR_BYTES].into()], durable }
    }

    fn run(disk: &mut Disk, tag: u64, command: DiskCommand) -> DiskResult {
        disk.issue(DiskTag(tag), command);
        disk.complete(DiskTag(tag))
    }

    #[test]
    fn a_sync_covers_what_had_completed_before_it_was_emitted_and_no_more() {
        let mut lost_later_write = false;
        for seed in 0..64 {
            let mut disk = disk(seed);
            run(&mut disk, 1, write(0, 1, 2, false));
            disk.issue(DiskTag(2), write(4096, 2, 1, false));
            disk.issue(DiskTag(3), DiskCommand::Sync);
            disk.complete(DiskTag(2));
            disk.complete(DiskTag(3));
            disk.crash();
            assert_eq!(disk.peek(0, 1024), [1; 1024], "seed {seed}");
            lost_later_write |= disk.peek(4096, 512) == [0; 512];
        }
        assert!(lost_later_write, "a write that completes after the sync was emitted is not covered by it");
    }

    #[test]
    fn a_durable_write_stays_and_covers_nothing_else() {
        let mut lost_other = false;
        for seed in 0..64 {
            let mut disk = disk(seed);
            run(&mut disk, 1, write(4096, 2, 1, false));
            run(&mut disk, 2, write(0, 1, 1, true));
            disk.crash();
            assert_eq!(disk.peek(0, 512), [1; 512]);
            lost_other |= disk.peek(4096, 512) == [0; 512];
        }
        assert!(lost_other);
    }

    #[test]
    fn an_unsynced_overwrite_leaves_old_or_new_sectors_and_sometimes_both() {
        let (mut torn, mut kept, mut lost) = (false, false, false);
        for seed in 0..64 {
            let mut disk = disk(seed);
            run(&mut disk, 1, write(0, 1, 2, true));
            disk.issue(DiskTag(2), write(0, 2, 2, seed % 2 == 0));
            disk.crash();
            match (disk.peek(0, 512)[0], disk.peek(512, 512)[0]) {
                (1, 1) => lost = true,
                (2, 2) => kept = true,
                (1, 2) | (2, 1) => torn = true,
                other => panic!("neither old nor new: {other:?}"),
            }
        }
        assert!(torn && kept && lost);
    }

    #[test]
    fn a_loss_of_power_counts_what_became_of_each_write() {
        let mut sum = DiskCounts::default();
        for seed in 0..64 {
            let mut disk = disk(seed);
            run(&mut disk, 1, write(0, 1, 4, false));
            run(&mut disk, 2, write(8192, 1, 4, false));
            disk.crash();
            let found = |offset| disk.peek(offset, 4 * SECTOR_BYTES).iter().filter(|byte| **byte == 1).count();
            let torn = [found(0), found(8192)].iter().filter(|there| ![0, 4 * SECTOR_BYTES].contains(*there)).count();
            assert_eq!(disk.counts().torn, torn as u64, "seed {seed}");
            sum.add(&disk.counts());
        }
        assert_eq!((sum.crashes, sum.lost + sum.torn + sum.kept), (64, 128));
        assert!(sum.lost > 10 && sum.torn > 10 && sum.kept > 10, "{sum:?}");
    }

    #[test]
    fn a_disk_keeps_nothing_or_everything_as_configured() {
        for (keeps, byte) in [(Keeps::Nothing, 0), (Keeps::Everything, 1)] {
            for seed in 0..8 {
                let mut disk = disk(seed);
                disk.set_keeps(keeps);
                run(&mut disk, 1, write(0, 1, 2, false));
                disk.issue(DiskTag(2), write(4096, 1, 2, true));
                disk.crash();
                assert_eq!([disk.peek(0, 1024), disk.peek(4096, 1024)], [[byte; 1024], [byte; 1024]], "{keeps:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "commands in flight overlap")]
    fn overlapping_commands_in_flight_end_the_run() {
        let mut disk = disk(0);
        disk.issue(DiskTag(1), write(0, 1, 2, false));
        disk.issue(DiskTag(2), DiskCommand::Read { offset: 512, length: 512 });
    }

    #[test]
    fn a_full_disk_takes_overwrites_and_what_was_reserved() {
        let mut disk = Disk::new(DiskOptions { space: Some(8192), ..DiskOptions::default() }, Rng::new(1));
        assert_eq!(run(&mut disk, 1, DiskCommand::Reserve { offset: 0, length: 8192 }), DiskResult::Done(Ok(())));
        assert_eq!(run(&mut disk, 2, write(4096, 1, 1, false)), DiskResult::Done(Ok(())));
        assert_eq!(run(&mut disk, 3, write(8192, 1, 1, false)), DiskResult::Done(Err(DiskError::NoSpace)));
        assert_eq!(disk.counts().refused, 1);
    }

    #[test]
    fn a_disk_may_be_full_for_a_while() {
        let mut disk = disk(1);
        run(&mut disk, 1, DiskCommand::Reserve { offset: 0, length: 8192 });
        disk.set_full(true);
        assert_eq!(run(&mut disk, 2, write(4096, 1, 1, false)), DiskResult::Done(Ok(())));
        assert_eq!(run(&mut disk, 3, write(8192, 1, 1, false)), DiskResult::Done(Err(DiskError::NoSpace)));
        disk.set_full(false);
        assert_eq!(run(&mut disk, 4, write(8192, 1, 1, false)), DiskResult::Done(Ok(())));
    }

    #[test]
    fn power_fails_at_the_chosen_command() {
        let mut disk = disk(0);
        disk.crash_at(CrashPoint::Write(2));
        assert!(!disk.issue(DiskTag(1), write(0, 1, 1, false)).1);
        assert!(!disk.issue(DiskTag(2), DiskCommand::Sync).1);
        assert!(disk.issue(DiskTag(3), write(512, 1, 1, false)).1);
    }
}
