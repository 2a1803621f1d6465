//! A migration copies a volume to its target while users continue (`docs/healing.md`).
//!
//! ```text
//!   for a region of the volume:  Looking ────────────► Copying ───────────────► the next region
//!                                which blocks have     these blocks, in whole
//!                                content?              stripes of the target
//! ```
//!
//! Blocks without content are skipped: the target has no content there either, except content that users have since written to both
//! placements. If a run of blocks can't be read from the source, it is halved, down to single blocks. Unreadable blocks are reported as lost.
//!
//! Several hosts may copy the same volume at the same time, and a host may continue where another host stopped.

use crate::ctx::{Ctx, Event};
use crate::job::{Job, MigrationStep};
use crate::steps::{Shared, Timer};
use crate::throttle::{Throttle, Urgency};
use braid_base::{BLOCK_BYTES, BlockRange, Time, VolumeId, limits};
use braid_layout::{Layout, VolumeDescription};
use braid_machine::{
    HostError, HostOutcome, HostRequest, HostSuccess, JobRequest, MigrationReport, OpId, Patience, VolumeRequest,
};
use braid_wire::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most copies at a time.
const PARALLEL: usize = 8;
/// Blocks of the volume that one look covers.
const REGION_BLOCKS: u64 = 1 << 14;
/// Blocks that one transaction copies, approximately: whole stripes of the target, if these are not larger than the maximum.
const BLOCKS_AT_ONCE: u64 = 256;
const BLOCKS_MAX: u64 = (limits::TRANSACTION_BYTES_MAX / BLOCK_BYTES) as u64;
/// The wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The most migrations at a time.
const MIGRATIONS_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Migrations {
    /// By the request of the front end.
    under_way: BTreeMap<OpId, Migration>,
}

#[derive(Clone, Debug)]
struct Migration {
    volume: VolumeId,
    /// All blocks before this one were looked at.
    looked: u64,
    looking: bool,
    /// Blocks with content that are still to be copied.
    portions: VecDeque<BlockRange>,
    /// Blocks that are being copied.
    copying: Vec<BlockRange>,
    throttle: Throttle,
    /// The most bytes a second; 0: the rate of the recovery throttle.
    bytes_per_second: u64,
    /// No further step begins.
    stopped: bool,
    report: MigrationReport,
}

/// The progress of copying a volume at one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationProgress {
    pub volume: VolumeId,
    /// Every block before this one is copied, or reported as lost.
    pub cursor: u64,
    /// Blocks copied since the front end asked.
    pub copied: u64,
    /// Some blocks could not be read: a host that continues must try them again.
    pub lost: bool,
}

impl Migrations {
    pub fn progress(&self) -> impl Iterator<Item = MigrationProgress> + '_ {
        self.under_way.values().map(|migration| MigrationProgress {
            volume: migration.volume,
            cursor: migration.cursor(),
            copied: migration.report.copied,
            lost: migration.report.lost > 0,
        })
    }

    pub fn has(&self, op: OpId) -> bool {
        self.under_way.contains_key(&op)
    }

    /// Asserts that each migration knows its steps, and has a step or a timer.
    pub fn invariants(&self, shared: &Shared) {
        for (op, migration) in &self.under_way {
            let steps = shared.steps.jobs().filter(|job| matches!(job, Job::Migration(of, _) if of == op));
            assert_eq!(steps.count(), migration.out(), "a migration knows its steps: {op:?}");
            let is_set = shared.timers.deadline_of(Timer::Migrate).is_some();
            assert!(migration.out() > 0 || is_set, "every wait has a deadline: {op:?}");
        }
    }

    /// A front end asks to copy a volume from a block on.
    pub fn start(
        &mut self,
        ctx: &mut Ctx,
        shared: &mut Shared,
        op: OpId,
        volume: VolumeId,
        from: u64,
        bytes_per_second: u64,
    ) {
        let refused = match ctx.volumes.get(&volume) {
            None => Some(HostError::NoSuchVolume),
            Some(known) if known.moving.is_none() => Some(HostError::NotMoving),
            Some(known) if from > known.blocks() => Some(HostError::OutOfRange),
            Some(_) if self.under_way.len() >= MIGRATIONS_MAX => Some(HostError::Busy),
            Some(_) => None,
        };
        if let Some(error) = refused {
            return ctx.events.push(Event::Ended { op, outcome: Err(error) });
        }
        self.under_way.insert(op, Migration { bytes_per_second, ..Migration::new(volume, from) });
        self.go_on(ctx, shared);
    }

    /// Ends copying at its present position, when the steps under way have ended.
    pub fn stop(&mut self, ctx: &mut Ctx, shared: &mut Shared, volume: VolumeId) {
        let of_volume = |migration: &&mut Migration| migration.volume == volume;
        self.under_way.values_mut().filter(of_volume).for_each(|migration| migration.stopped = true);
        self.go_on(ctx, shared);
    }

    /// Continues every migration, as far as its budget allows.
    pub fn go_on(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        self.under_way.retain(|op, migration| {
            while migration.begin_next(ctx, shared, *op) {}
            let outcome = migration.outcome(ctx);
            let goes_on = outcome.is_none();
            ctx.events.extend(outcome.map(|outcome| Event::Ended { op: *op, outcome }));
            goes_on
        });
    }

    /// A step that began at `since` has ended.
    pub fn answered(
        &mut self,
        ctx: &Ctx,
        shared: &mut Shared,
        (op, step): (OpId, MigrationStep),
        since: Time,
        outcome: &HostOutcome,
    ) {
        let migration = self.under_way.get_mut(&op).expect("a migration ends after its steps");
        if let MigrationStep::Copy(_) = step {
            let budget = shared.budget(ctx, migration.volume, Urgency::Background);
            migration.throttle.ended(ctx.now, &budget, ctx.now.since(since), 0);
        }
        let target = ctx.volumes.get(&migration.volume).and_then(|volume| volume.moving.as_deref());
        let wait = migration.take(target.map(|target| &target.layout), step, outcome);
        let again = ctx.now.after(if wait { PAUSE } else { Duration::ZERO });
        // A timer that was set for the throttle or after another failure is not postponed.
        if shared.timers.deadline_of(Timer::Migrate).is_none_or(|set| set > again) {
            shared.timers.set(Timer::Migrate, again);
        }
    }
}

impl Migration {
    fn new(volume: VolumeId, from: u64) -> Migration {
        Migration {
            volume,
            looked: from,
            looking: false,
            portions: VecDeque::new(),
            copying: Vec::new(),
            throttle: Throttle::default(),
            bytes_per_second: 0,
            stopped: false,
            report: MigrationReport::default(),
        }
    }

    /// The volume, if it still moves.
    fn moving<'a>(&self, ctx: &Ctx<'a>) -> Option<&'a VolumeDescription> {
        ctx.volumes.get(&self.volume).map(|volume| &**volume).filter(|volume| volume.moving.is_some())
    }

    /// The outcome, if the migration ends now.
    fn outcome(&self, ctx: &Ctx) -> Option<HostOutcome> {
        let moving = self.moving(ctx);
        match moving.is_some() {
            _ if self.out() > 0 => None,
            _ if self.stopped || moving.is_some_and(|volume| self.is_done(volume)) => {
                let report = MigrationReport { copied_to: self.cursor(), ..self.report.clone() };
                Some(Ok(HostSuccess::Migrated(report)))
            }
            _ if ctx.fenced => Some(Err(HostError::Fenced)),
            false => Some(Err(HostError::NotMoving)),
            true => None,
        }
    }

    /// Begins the next step. False if no step can begin now.
    fn begin_next(&mut self, ctx: &mut Ctx, shared: &mut Shared, op: OpId) -> bool {
        let ends = self.stopped || self.outcome(ctx).is_some();
        let Some(volume) = self.moving(ctx).filter(|_| !ends) else { return false };
        let budget = shared.budget(ctx, self.volume, Urgency::Background).with_rate(self.bytes_per_second);
        if self.out() >= PARALLEL.min(budget.parallel) {
            return false;
        }
        let (step, request) = match self.portions.pop_front() {
            Some(mut blocks) => {
                // While users are there, portions are smaller; but they remain whole stripes of the target if possible.
                let stripe = volume.moving.as_ref().map_or(1, |target| target.layout.stripe_blocks());
                let most = budget.blocks.checked_next_multiple_of(stripe).unwrap_or(u64::MAX);
                if blocks.count > most {
                    self.portions.push_front(BlockRange::new(blocks.start + most, blocks.count - most));
                    blocks.count = most;
                }
                if let Err(later) = self.throttle.begin(ctx.now, &budget, blocks.count * BLOCK_BYTES as u64) {
                    self.portions.push_front(blocks);
                    shared.timers.set(Timer::Migrate, later);
                    return false;
                }
                self.copying.push(blocks);
                (MigrationStep::Copy(blocks), HostRequest::from(JobRequest::Copy { volume: self.volume, blocks }))
            }
            None if self.looking || self.looked >= volume.blocks() => return false,
            None => {
                self.looking = true;
                // The answer of a device has at most one extent for each stripe.
                let most = REGION_BLOCKS.min((limits::EXTENTS_MAX as u64 - 1) * volume.layout.stripe_blocks());
                let end = volume.blocks().min(self.looked + most);
                let range = BlockRange::between(self.looked, end);
                (
                    MigrationStep::Look(range),
                    VolumeRequest::Allocation { volume: self.volume, range, patience: Patience::Host }.into(),
                )
            }
        };
        shared.ask(ctx, Job::Migration(op, step), request);
        true
    }

    fn out(&self) -> usize {
        self.copying.len() + usize::from(self.looking)
    }

    fn is_done(&self, volume: &VolumeDescription) -> bool {
        self.out() == 0 && self.portions.is_empty() && self.looked >= volume.blocks()
    }

    /// Every block before this one is copied, or reported as lost.
    fn cursor(&self) -> u64 {
        self.copying.iter().chain(&self.portions).map(|blocks| blocks.start).fold(self.looked, u64::min)
    }

    /// Processes the outcome of a step. Returns true if the step must be tried again later.
    fn take(&mut self, target: Option<&Layout>, step: MigrationStep, outcome: &HostOutcome) -> bool {
        match step {
            MigrationStep::Look(range) => {
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
            MigrationStep::Copy(blocks) => {
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

    /// Plans copies of blocks in a region. They are cut at the target's stripe boundaries, so that little of its stripes has to be read.
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
        /// All blocks with content are copied, each once, in transactions that are not too large.
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
            let mut migration = Migration { looking: true, ..Migration::new(VolumeId(1), start) };
            let outcome = Ok(HostSuccess::Allocation(runs.clone()));
            prop_assert!(!migration.take(Some(&target), MigrationStep::Look(region), &outcome));
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
