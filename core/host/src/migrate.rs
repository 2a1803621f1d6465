//! Copying a volume to where it moves to, while its users go on (`docs/healing.md`).
//!
//! ```text
//!   for a region of the volume:  Looking ─────────► Copying ───────────────► the next region
//!                                where does it      what does, in whole
//!                                hold anything?     stripes of the target
//! ```
//!
//! What holds nothing is passed over: nothing lies there on the target, either, but what users have written on both sides since. What can't be
//! read where the volume lies is cut down to single blocks, and named.
//!
//! All that it does are ordinary storage transactions, a few at a time, at the pace of everything that heals. So several hosts may do the
//! same at once, or one again what another has left off.

use crate::ctx::Timer;
use crate::host::Host;
use crate::pace::Throttle;
use braid_base::{BLOCK_BYTES, BlockRange, Now, Time, VolumeId, limits};
use braid_layout::{Layout, VolumeDescription};
use braid_machine::{Effects, HostError, HostOutcome, HostRequest, HostSuccess, MigrationReport, OpId};
use braid_wire::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Copies at a time.
const PARALLEL: usize = 8;
/// Blocks of the volume that are looked at together.
const REGION_BLOCKS: u64 = 1 << 14;
/// Blocks that one transaction copies, more or less: whole stripes of the target, where these are not larger than may be.
const BLOCKS_AT_ONCE: u64 = 256;
const BLOCKS_MAX: u64 = (limits::TRANSACTION_BYTES_MAX / BLOCK_BYTES) as u64;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The most migrations at a time.
const MIGRATIONS_MAX: usize = 16;

/// All volumes that a host copies.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    /// By the request of the front end.
    under_way: BTreeMap<OpId, Migration>,
    /// This host's own requests, for whom, and since when.
    asked: BTreeMap<OpId, (OpId, Errand, Time)>,
}

#[derive(Debug)]
struct Migration {
    volume: VolumeId,
    /// What is before this was looked at.
    looked: u64,
    looking: bool,
    /// What is to be copied of that.
    portions: VecDeque<BlockRange>,
    /// What is being copied.
    copying: Vec<BlockRange>,
    throttle: Throttle,
    /// Bytes a second at most; 0: as everything that heals.
    bytes_per_second: u64,
    /// No more is begun.
    stopped: bool,
    report: MigrationReport,
}

#[derive(Clone, Copy, Debug)]
enum Errand {
    Look(BlockRange),
    Copy(BlockRange),
}

/// How far a host is with copying a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationProgress {
    /// Which volume.
    pub volume: VolumeId,
    /// Everything before this block of the volume is copied, or named as lost.
    pub cursor: u64,
    /// Blocks copied since it was asked for.
    pub copied: u64,
    /// Some could not be read: who goes on must look at them again.
    pub lost: bool,
}

impl Host {
    /// What is being copied.
    pub fn migrating(&self) -> impl Iterator<Item = MigrationProgress> + '_ {
        self.migrations.under_way.values().map(|migration| MigrationProgress {
            volume: migration.volume,
            cursor: migration.cursor(),
            copied: migration.report.copied,
            lost: migration.report.lost > 0,
        })
    }

    pub(crate) fn start_migration(
        &mut self,
        now: Now,
        op: OpId,
        volume: VolumeId,
        from: u64,
        bytes_per_second: u64,
        out: &mut Effects,
    ) {
        let refused = match self.volumes.get(&volume) {
            None => Some(HostError::NoSuchVolume),
            Some(known) if known.moving.is_none() => Some(HostError::NotMoving),
            Some(known) if from > known.blocks() => Some(HostError::OutOfRange),
            Some(_) if self.migrations.under_way.len() >= MIGRATIONS_MAX => Some(HostError::Busy),
            Some(_) => None,
        };
        if let Some(error) = refused {
            return out.reply(op, Err(error));
        }
        let migration = Migration {
            volume,
            looked: from,
            looking: false,
            portions: VecDeque::new(),
            copying: Vec::new(),
            throttle: Throttle::default(),
            bytes_per_second,
            stopped: false,
            report: MigrationReport::default(),
        };
        self.migrations.under_way.insert(op, migration);
        self.migrate_on(now, out);
    }

    /// Ends copying where it is, once what is under way is over.
    pub(crate) fn stop_migrating(&mut self, now: Now, volume: VolumeId, out: &mut Effects) {
        let of_volume = |migration: &&mut Migration| migration.volume == volume;
        self.migrations.under_way.values_mut().filter(of_volume).for_each(|migration| migration.stopped = true);
        self.migrate_on(now, out);
    }

    /// Goes on with every migration, as far as its pace allows.
    pub(crate) fn migrate_on(&mut self, now: Now, out: &mut Effects) {
        for migration in self.migrations.under_way.keys().copied().collect::<Vec<_>>() {
            while self.migrate_more(now, migration, out) {}
        }
    }

    /// Begins with what is next; false if there is nothing to begin now.
    fn migrate_more(&mut self, now: Now, op: OpId, out: &mut Effects) -> bool {
        let Some(migration) = self.migrations.under_way.get(&op) else { return false };
        let effort = self.effort(now, migration.volume, false).with_rate(migration.bytes_per_second);
        let migration = self.migrations.under_way.get_mut(&op).expect("just seen");
        let known = self.volumes.get(&migration.volume).filter(|volume| volume.moving.is_some());
        let done = migration.stopped || known.is_some_and(|volume| migration.is_done(volume));
        if migration.out() == 0 && (done || known.is_none() || self.fenced) {
            let migration = self.migrations.under_way.remove(&op).expect("just seen");
            let outcome = match done {
                true => {
                    let copied_to = migration.cursor();
                    Ok(HostSuccess::Migrated(MigrationReport { copied_to, ..migration.report }))
                }
                false if self.fenced => Err(HostError::Fenced),
                false => Err(HostError::NotMoving),
            };
            out.reply(op, outcome);
            return false;
        }
        let Some(volume) = known.filter(|_| !done && migration.out() < PARALLEL.min(effort.parallel)) else {
            return false;
        };
        let errand = match migration.portions.pop_front() {
            Some(mut blocks) => {
                // Beside users, less at a time; but no part of a stripe of the target, as far as that can be.
                let stripe = volume.moving.as_ref().map_or(1, |target| target.layout.stripe_blocks());
                let most = effort.blocks.checked_next_multiple_of(stripe).unwrap_or(u64::MAX);
                if blocks.count > most {
                    migration.portions.push_front(BlockRange::new(blocks.start + most, blocks.count - most));
                    blocks.count = most;
                }
                if let Err(later) = migration.throttle.begin(now.time, &effort, blocks.count * BLOCK_BYTES as u64) {
                    migration.portions.push_front(blocks);
                    self.timers.set(Timer::Migrate, later);
                    return false;
                }
                migration.copying.push(blocks);
                Errand::Copy(blocks)
            }
            None if migration.looking || migration.looked >= volume.blocks() => return false,
            None => {
                migration.looking = true;
                // A device's part of the answer has at most one extent in each stripe.
                let most = REGION_BLOCKS.min((limits::EXTENTS_MAX as u64 - 1) * volume.layout.stripe_blocks());
                let end = volume.blocks().min(migration.looked + most);
                Errand::Look(BlockRange::between(migration.looked, end))
            }
        };
        let volume = volume.id;
        let request = match errand {
            Errand::Look(range) => HostRequest::Allocation { volume, range },
            Errand::Copy(blocks) => HostRequest::Copy { volume, blocks },
        };
        let own = self.own_operation();
        self.migrations.asked.insert(own, (op, errand, now.time));
        self.on_request(now, own, request, out);
        true
    }

    /// One of its requests has ended; false if the operation was none.
    pub(crate) fn on_copy_answer(&mut self, now: Now, own: OpId, outcome: &HostOutcome) -> bool {
        let Some((op, errand, since)) = self.migrations.asked.remove(&own) else { return false };
        let volume = self.migrations.under_way[&op].volume;
        let effort = self.effort(now, volume, false);
        let migration = self.migrations.under_way.get_mut(&op).expect("it waits for all its requests");
        if let Errand::Copy(_) = errand {
            migration.throttle.ended(now.time, &effort, now.time.since(since));
        }
        let target = self.volumes.get(&migration.volume).and_then(|volume| volume.moving.as_deref());
        let wait = migration.take(target.map(|target| &target.layout), errand, outcome);
        let again = now.time.after(if wait { PAUSE } else { Duration::ZERO });
        // A wait for the pace, or after another failure, does not make this one longer.
        if self.timers.deadline_of(Timer::Migrate).is_none_or(|set| set > again) {
            self.timers.set(Timer::Migrate, again);
        }
        true
    }
}

impl Migration {
    fn out(&self) -> usize {
        self.copying.len() + usize::from(self.looking)
    }

    fn is_done(&self, volume: &VolumeDescription) -> bool {
        self.out() == 0 && self.portions.is_empty() && self.looked >= volume.blocks()
    }

    /// Everything before this was dealt with.
    fn cursor(&self) -> u64 {
        self.copying.iter().chain(&self.portions).map(|blocks| blocks.start).fold(self.looked, u64::min)
    }

    /// What an errand has brought. True if it is to be tried again, later.
    fn take(&mut self, target: Option<&Layout>, errand: Errand, outcome: &HostOutcome) -> bool {
        match errand {
            Errand::Look(range) => {
                self.looking = false;
                let (Ok(HostSuccess::Allocation(runs)), Some(target)) = (outcome, target) else { return true };
                // The answer may end before the range does.
                let mut at = range.start;
                for (count, holds_data) in runs {
                    let run = BlockRange::new(at, *count).intersection(range);
                    at = run.end();
                    if *holds_data {
                        self.plan(target, run, range);
                    }
                }
                self.looked = at;
                at == range.start
            }
            Errand::Copy(blocks) => {
                self.copying.retain(|copying| *copying != blocks);
                match outcome {
                    Ok(_) => self.report.copied += blocks.count,
                    Err(HostError::Device { failure: Failure::Lost { .. }, .. } | HostError::OutOfRange)
                        if blocks.count > 1 =>
                    {
                        let half = blocks.count / 2;
                        self.portions.push_front(BlockRange::new(blocks.start + half, blocks.count - half));
                        self.portions.push_front(BlockRange::new(blocks.start, half));
                    }
                    Err(HostError::Device { failure: Failure::Lost { .. }, .. }) => {
                        self.report.lost += 1;
                        if self.report.lost_blocks.len() < limits::LOST_RUNS_MAX {
                            self.report.lost_blocks.push(blocks.start);
                        }
                    }
                    Err(_) => {
                        self.portions.push_front(blocks);
                        return true;
                    }
                }
                false
            }
        }
    }

    /// Has some blocks of a region copied: cut where stripes of the target begin, so that little of it has to be read.
    fn plan(&mut self, target: &Layout, run: BlockRange, region: BlockRange) {
        let stripe = target.stripe_blocks();
        let step = if stripe > BLOCKS_MAX { BLOCKS_MAX } else { (BLOCKS_AT_ONCE / stripe).max(1) * stripe };
        let mut at = run.start - run.start % stripe.min(step);
        while at < run.end() {
            let end = (at / step + 1) * step;
            let blocks = BlockRange::between(at, end.min(run.end().next_multiple_of(stripe.min(step))));
            let mut blocks = blocks.intersection(region);
            // The run before may have ended in the same stripe.
            if let Some(last) = self.portions.back() {
                blocks = BlockRange::between(blocks.start.max(last.end().min(blocks.end())), blocks.end());
            }
            if !blocks.is_empty() {
                self.portions.push_back(blocks);
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever holds anything is copied, each block once, by no transaction that is too large.
        #[test]
        fn portions_cover_what_holds_anything(
            scheme in prop::sample::select(vec!["raid1:2", "raid5:3+1", "raid5:7+1"]),
            unit in prop::sample::select(vec![1u64, 16, 256]),
            runs in prop::collection::vec((1u64..600, any::<bool>()), 1..30),
            start in 0u64..5000,
        ) {
            let target = Layout::new(scheme.parse().unwrap(), 9, unit).unwrap();
            let all = runs.iter().map(|(count, _)| count).sum();
            let region = BlockRange::new(start, all);
            let mut migration = Migration {
                volume: VolumeId(1), looked: start, looking: true, portions: VecDeque::new(), copying: Vec::new(),
                throttle: Throttle::default(), bytes_per_second: 0, stopped: false, report: MigrationReport::default(),
            };
            let outcome = Ok(HostSuccess::Allocation(runs.clone()));
            prop_assert!(!migration.take(Some(&target), Errand::Look(region), &outcome));
            prop_assert_eq!(migration.looked, region.end());
            let mut reached = 0;
            for portion in &migration.portions {
                prop_assert!(portion.start >= reached && region.contains(*portion) && portion.count <= BLOCKS_MAX);
                reached = portion.end();
            }
            let mut at = start;
            for (count, holds) in runs {
                let run = BlockRange::new(at, count);
                at += count;
                let copied = |block: u64| migration.portions.iter().any(|portion| portion.contains(BlockRange::new(block, 1)));
                prop_assert!(!holds || run.blocks().all(copied), "{run:?} of {:?}", migration.portions);
            }
        }
    }
}
