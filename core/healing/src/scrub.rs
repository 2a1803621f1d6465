//! The scrubber is a background job that reads every row of a volume, verifies checksums and redundancy, and repairs what is wrong
//! (`docs/healing.md`).
//!
//! ```text
//!   for the rows of each stripe:  Checking ── all can be read, redundancy matches ───────────────────────► next
//!                                    │ a checksum error ────► Repairing, from the others of its row ──► Checking
//!                                    │                           └── another block is lost: reported; the other rows are checked
//!                                    └ does not match: reported; if requested, Recomputing ──────────────► next
//! ```
//!
//! If a user's request met a checksum error and succeeded without the block, the host scrubs and repairs that stripe without being asked.

use crate::ctx::{Ctx, Event};
use crate::job::{Job, ScrubId, ScrubStep};
use crate::steps::{Shared, Timer};
use crate::throttle::{Throttle, Urgency};
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, Time, VolumeId, limits};
use braid_layout::{StripeRows, VolumeDescription};
use braid_machine::{Finding, Found, HostError, HostOutcome, HostSuccess, OpId, ScrubReport};
use braid_wire::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// The most stripes at a time.
const PARALLEL: usize = 4;
/// How often a step that fails for other reasons is tried again.
const ATTEMPTS: u32 = 3;
/// The wait before another attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// The wait after rows whose devices are unavailable. It is short, so that the scrub soon ends, but lets the host do other work.
const PAUSE_AFTER_SKIPPED: Duration = Duration::from_millis(1);
/// The most scrubs at a time.
const SCRUBS_MAX: usize = 16;
/// The most stripes under repair at a time after errors that users' requests met. Further stripes are repaired when the error is met
/// again.
const STRIPES_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Scrubs {
    under_way: BTreeMap<ScrubId, Scrub>,
}

#[derive(Clone, Debug)]
struct Scrub {
    volume: VolumeId,
    repair: bool,
    recompute: bool,
    next_stripe: u64,
    /// The end of the stripes, exclusive.
    stripes: u64,
    /// Steps that come before the next stripe, and how often each was tried.
    waiting: VecDeque<(ScrubStep, u32)>,
    out: usize,
    throttle: Throttle,
    report: ScrubReport,
}

impl Scrubs {
    /// The scrubs for front ends: the volume, the next stripe to begin, and the end of the range.
    pub fn progress(&self) -> impl Iterator<Item = (VolumeId, u64, u64)> + '_ {
        self.asked().map(|scrub| (scrub.volume, scrub.next_stripe, scrub.stripes))
    }

    fn asked(&self) -> impl Iterator<Item = &Scrub> {
        self.under_way.iter().filter(|(id, _)| matches!(id, ScrubId::Asked(_))).map(|(_, scrub)| scrub)
    }

    pub fn has(&self, id: ScrubId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// Asserts that each scrub knows its steps, and has a step or a timer.
    pub fn invariants(&self, shared: &Shared) {
        for (id, scrub) in &self.under_way {
            let steps = shared.steps.jobs().filter(|job| matches!(job, Job::Scrub(of, ..) if of == id));
            assert_eq!(steps.count(), scrub.out, "a scrub knows its steps: {id:?}");
            let is_set = shared.timers.deadline_of(Timer::Scrub).is_some();
            assert!(scrub.out > 0 || is_set, "every wait has a deadline: {id:?}");
        }
    }

    /// A front end asks to scrub some stripes.
    pub fn start(
        &mut self,
        ctx: &mut Ctx,
        shared: &mut Shared,
        op: OpId,
        volume: VolumeId,
        stripes: Range<u64>,
        (repair, recompute): (bool, bool),
    ) {
        let refused = match ctx.volumes.get(&volume) {
            None => HostError::NoSuchVolume,
            Some(_) if self.asked().count() >= SCRUBS_MAX => HostError::Busy,
            Some(known) => {
                let scrub = Scrub::of(volume, stripes.start, stripes.end.min(known.stripes()));
                self.under_way.insert(ScrubId::Asked(op), Scrub { repair, recompute, ..scrub });
                return self.go_on(ctx, shared);
            }
        };
        ctx.events.push(Event::Ended { op, outcome: Err(refused) });
    }

    /// A user's request met a checksum error in a device's block: the stripe is repaired soon. Nothing happens if it is under repair
    /// already, or if too many others are.
    pub fn start_stripe(
        &mut self,
        ctx: &Ctx,
        shared: &mut Shared,
        volume: &VolumeDescription,
        device: DeviceId,
        block: u64,
    ) {
        let Some(stripe) = stripe_of(volume, device, block) else { return };
        let found = self.under_way.iter().filter(|(id, _)| matches!(id, ScrubId::Found(_)));
        let is_under_way = found.clone().any(|(_, scrub)| scrub.volume == volume.id && scrub.stripes == stripe + 1);
        if is_under_way || found.count() >= STRIPES_MAX {
            return;
        }
        let scrub = Scrub { repair: true, ..Scrub::of(volume.id, stripe, stripe + 1) };
        self.under_way.insert(ScrubId::Found(shared.steps.take_number()), scrub);
        shared.timers.set(Timer::Scrub, ctx.now);
    }

    /// Continues every scrub, as far as its budget allows.
    pub fn go_on(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        self.under_way.retain(|id, scrub| {
            while scrub.begin_next(ctx, shared, *id) {}
            let outcome = scrub.outcome(ctx);
            if let (ScrubId::Asked(op), Some(outcome)) = (*id, &outcome) {
                ctx.events.push(Event::Ended { op, outcome: outcome.clone() });
            }
            outcome.is_none()
        });
    }

    /// A step that began at `since` has ended.
    pub fn answered(
        &mut self,
        ctx: &Ctx,
        shared: &mut Shared,
        (id, step, tried): (ScrubId, ScrubStep, u32),
        since: Time,
        outcome: &HostOutcome,
    ) {
        let scrub = self.under_way.get_mut(&id).expect("a scrub ends after its steps");
        let budget = shared.budget(ctx, scrub.volume, Urgency::Background);
        scrub.out -= 1;
        scrub.throttle.ended(ctx.now, &budget, ctx.now.since(since), 0);
        if let Some(volume) = ctx.volumes.get(&scrub.volume) {
            let before = (scrub.report.lost, scrub.report.repaired);
            scrub.take(volume, (step, tried), outcome);
            shared.counters.corrupt += scrub.report.lost - before.0;
            shared.counters.repaired += scrub.report.repaired - before.1;
        }
        let wait = match outcome {
            Ok(_) | Err(HostError::Device { failure: Failure::Lost { .. }, .. }) => Duration::ZERO,
            Err(HostError::Unavailable { .. }) => PAUSE_AFTER_SKIPPED,
            Err(_) => PAUSE,
        };
        shared.timers.set(Timer::Scrub, ctx.now.after(wait));
    }
}

impl Scrub {
    fn of(volume: VolumeId, next_stripe: u64, stripes: u64) -> Scrub {
        let (waiting, throttle, report) = (VecDeque::new(), Throttle::default(), ScrubReport::default());
        Scrub { volume, repair: false, recompute: false, next_stripe, stripes, waiting, out: 0, throttle, report }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.next_stripe >= self.stripes
    }

    /// The outcome, if the scrub ends now.
    fn outcome(&self, ctx: &Ctx) -> Option<HostOutcome> {
        match ctx.volumes.contains_key(&self.volume) {
            _ if self.out > 0 => None,
            _ if self.is_done() => Some(Ok(HostSuccess::Scrubbed(self.report.clone()))),
            _ if ctx.fenced => Some(Err(HostError::Fenced)),
            false => Some(Err(HostError::NoSuchVolume)),
            true => None,
        }
    }

    /// Begins the next step. False if no step can begin now.
    fn begin_next(&mut self, ctx: &mut Ctx, shared: &mut Shared, id: ScrubId) -> bool {
        let ends = self.outcome(ctx).is_some() || self.is_done();
        let Some(volume) = ctx.volumes.get(&self.volume).filter(|_| !ends) else { return false };
        let budget = shared.budget(ctx, volume.id, Urgency::Background);
        if self.out >= budget.parallel.min(PARALLEL) {
            return false;
        }
        // Further steps for a stripe were admitted with the stripe; but they, too, wait while the job is paused or rests.
        let bytes = if self.waiting.is_empty() { volume.layout.stripe_blocks() * BLOCK_BYTES as u64 } else { 0 };
        if let Err(later) = self.throttle.begin(ctx.now, &budget, bytes) {
            shared.timers.set(Timer::Scrub, later);
            return false;
        }
        let (step, tried) = self.waiting.pop_front().unwrap_or_else(|| {
            let rows = StripeRows { stripe: self.next_stripe, rows: BlockRange::new(0, volume.layout.unit_blocks()) };
            self.next_stripe += 1;
            (ScrubStep::check(rows), 0)
        });
        self.out += 1;
        shared.ask(ctx, Job::Scrub(id, step, tried), step.request(self.volume));
        true
    }

    fn take(&mut self, volume: &VolumeDescription, (step, tried): (ScrubStep, u32), outcome: &HostOutcome) {
        match (step, outcome) {
            (ScrubStep::Check { rows, .. }, Ok(HostSuccess::Checked { matches: true })) => self.count_checked(rows),
            (ScrubStep::Check { rows, .. }, Ok(_)) => {
                self.count_checked(rows);
                self.report.mismatched += 1;
                self.report(Found::Mismatch, bytes_of_rows(volume, rows));
                if self.recompute {
                    self.waiting.push_back((ScrubStep::Recompute { rows }, 0));
                }
            }
            (
                ScrubStep::Check { rows, repaired },
                Err(HostError::Device { device, failure: Failure::Lost { block } }),
            ) => {
                self.count_lost(*device);
                match block_of_volume(volume, *device, *block) {
                    // The repaired block is damaged again: its disk is bad there.
                    Some((row, block)) if repaired == Some((*device, block)) => {
                        self.report.unrepairable += 1;
                        self.report(Found::Lost, BlockRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64));
                        self.check_around(rows, row);
                    }
                    Some((row, block)) if self.repair => {
                        let device = *device;
                        self.waiting.push_front((ScrubStep::Repair { rows, row, device, block }, 0));
                        debug_assert!(rows.rows.blocks().contains(&row), "it was read for these rows");
                    }
                    Some((row, _)) => self.check_around(rows, row),
                    None => self.report.skipped += 1,
                }
            }
            (ScrubStep::Repair { rows, device, block, .. }, Ok(_)) => {
                self.report.repaired += 1;
                self.waiting.push_front((ScrubStep::Check { rows, repaired: Some((device, block)) }, 0));
            }
            // Another block of the row is lost, too. It is counted here, because the row is not checked again.
            (
                ScrubStep::Repair { rows, device, block, .. },
                Err(HostError::Device { device: other, failure: Failure::Lost { block: second } }),
            ) if *other != device => {
                self.count_lost(*other);
                self.report.unrepairable += 1;
                let second = block_of_volume(volume, *other, *second);
                let row = second.map_or(rows.rows.start, |(row, _)| row);
                for (device, block) in [(device, Some(block)), (*other, second.map(|(_, block)| block))] {
                    let held = block.map(|block| (volume.layout.locate(block).position, block));
                    if let Some((position, block)) = held
                        && volume.device_at(position) == device
                    {
                        let bytes = BLOCK_BYTES as u64;
                        self.report(Found::Lost, BlockRange::new(block * bytes, bytes));
                    }
                }
                self.check_around(rows, row);
            }
            (ScrubStep::Recompute { .. }, Ok(_)) => self.report.recomputed += 1,
            // The devices may stay out for longer than a retry would wait.
            (ScrubStep::Check { .. } | ScrubStep::Recompute { .. }, Err(HostError::Unavailable { .. })) => {
                self.report.skipped += 1;
            }
            (step, Err(_)) if tried < ATTEMPTS => self.waiting.push_back((step, tried + 1)),
            (ScrubStep::Repair { rows, row, .. }, Err(_)) => {
                self.report.skipped += 1;
                self.check_around(rows, row);
            }
            (ScrubStep::Check { .. } | ScrubStep::Recompute { .. }, Err(_)) => self.report.skipped += 1,
        }
    }

    fn count_checked(&mut self, rows: StripeRows) {
        self.report.rows += rows.rows.count;
    }

    fn count_lost(&mut self, device: DeviceId) {
        self.report.lost += 1;
        *self.report.lost_of.entry(device).or_default() += 1;
    }

    fn check_around(&mut self, rows: StripeRows, row: u64) {
        let StripeRows { stripe, rows } = rows;
        let parts = [BlockRange::between(rows.start, row.max(rows.start)), BlockRange::between(row + 1, rows.end())];
        for rows in parts.into_iter().filter(|rows| !rows.is_empty()) {
            self.waiting.push_back((ScrubStep::check(StripeRows { stripe, rows }), 0));
        }
    }

    fn report(&mut self, found: Found, bytes: BlockRange) {
        if self.report.findings.len() < limits::LOST_RUNS_MAX {
            self.report.findings.push(Finding { found, offset: bytes.start, length: bytes.count });
        }
    }
}

/// The bytes of the volume in some rows: those of the first data unit only, unless the rows are the whole stripe.
fn bytes_of_rows(volume: &VolumeDescription, rows: StripeRows) -> BlockRange {
    let first = rows.stripe * volume.layout.stripe_blocks() + rows.rows.start;
    let whole = rows.rows.count == volume.layout.unit_blocks();
    let count = if whole { volume.layout.stripe_blocks() } else { rows.rows.count };
    BlockRange::new(first * BLOCK_BYTES as u64, count * BLOCK_BYTES as u64)
}

/// The stripe that a device's block belongs to, if any.
fn stripe_of(volume: &VolumeDescription, device: DeviceId, block: u64) -> Option<u64> {
    let position = volume.devices.iter().position(|held| *held == device)?;
    let stripe = StripeRows::of_component(&volume.layout, position, BlockRange::new(block, 1)).pop()?.stripe;
    (stripe < volume.stripes()).then_some(stripe)
}

/// The row of a device's block, and the block of the volume to restore for it: the block itself, or, for a redundancy block, any block of
/// its row. None if it belongs to no stripe.
fn block_of_volume(volume: &VolumeDescription, device: DeviceId, block: u64) -> Option<(u64, u64)> {
    let layout = &volume.layout;
    let position = volume.devices.iter().position(|held| *held == device)?;
    let rows = StripeRows::of_component(layout, position, BlockRange::new(block, 1)).pop()?;
    let (stripe, row) = (rows.stripe, rows.rows.start);
    let unit = (0..layout.data_units()).find(|unit| layout.data_unit(stripe, *unit).position == position);
    let first = stripe * layout.stripe_blocks() + unit.unwrap_or(0) as u64 * layout.unit_blocks();
    (stripe < volume.stripes()).then_some((row, first + row))
}
