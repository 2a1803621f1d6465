//! Going through all rows of a volume, to find what has rotted before it is needed, and to mend it (`docs/healing.md`).
//!
//! ```text
//!   for the rows of each stripe:  Checking ── all can be read, redundancy matches ───────────────────────► next
//!                                    │ a block is lost ──► Mending, from the others of its row ──► Checking
//!                                    │                        └── another one is lost, too: named, the rest of the rows is checked
//!                                    └ does not match: named; if asked, Recomputing ─────────────────────► next
//! ```
//!
//! All that it does are ordinary storage transactions, a few at a time, at the pace of everything that heals.
//!
//! Where a user's request met rot, and could do without, the host does the same by itself for the stripe.

use crate::ctx::Timer;
use crate::host::Host;
use crate::pace::Throttle;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, Now, Time, VolumeId, limits};
use braid_layout::{StripeRows, VolumeDescription};
use braid_machine::{Effects, Finding, Found, HostError, HostOutcome, HostRequest, HostSuccess, OpId, ScrubReport};
use braid_wire::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// Stripes that are looked at at a time.
const PARALLEL: usize = 4;
/// What fails for other reasons is tried so often.
const ATTEMPTS: u32 = 3;
/// The wait before another attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// The most scrubs at a time.
const SCRUBS_MAX: usize = 16;
/// The most stripes that are mended at a time because of what users met there. Others are when somebody meets it again.
const STRIPES_MAX: usize = 16;

/// All that a host goes through.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    /// By the request of the front end, or one of this host's own.
    under_way: BTreeMap<OpId, Scrub>,
    /// This host's own requests, for whom, and since when.
    asked: BTreeMap<OpId, (OpId, Errand, Time)>,
}

#[derive(Debug)]
struct Scrub {
    volume: VolumeId,
    repair: bool,
    recompute: bool,
    next_stripe: u64,
    /// The one behind the last.
    stripes: u64,
    /// What comes before the next stripe.
    errands: VecDeque<Errand>,
    out: usize,
    throttle: Throttle,
    report: ScrubReport,
}

#[derive(Clone, Copy, Debug)]
enum Errand {
    /// `mended`: the block that was just written anew for it.
    Check {
        rows: StripeRows,
        attempts: u32,
        mended: Option<(DeviceId, u64)>,
    },
    /// A block of one of these rows, so many rows from the stripe's first.
    Mend {
        rows: StripeRows,
        row: u64,
        device: DeviceId,
        block: u64,
        attempts: u32,
    },
    Recompute {
        rows: StripeRows,
        attempts: u32,
    },
}

impl Host {
    /// What is being scrubbed, the first stripe that has not been begun, and where that ends.
    pub fn scrubbing(&self) -> impl Iterator<Item = (VolumeId, u64, u64)> + '_ {
        let asked = self.scrubs.under_way.iter().filter(|(op, _)| !Host::is_own(**op)).map(|(_, scrub)| scrub);
        asked.map(|scrub| (scrub.volume, scrub.next_stripe, scrub.stripes))
    }

    pub(crate) fn start_scrub(
        &mut self,
        now: Now,
        op: OpId,
        volume: VolumeId,
        stripes: Range<u64>,
        (repair, recompute): (bool, bool),
        out: &mut Effects,
    ) {
        let Some(known) = self.volumes.get(&volume) else {
            return out.reply(op, Err(HostError::NoSuchVolume));
        };
        if self.scrubs.under_way.keys().filter(|op| !Host::is_own(**op)).count() >= SCRUBS_MAX {
            return out.reply(op, Err(HostError::Busy));
        }
        let scrub = Scrub { repair, recompute, ..Scrub::of(volume, stripes.start, stripes.end.min(known.stripes())) };
        self.scrubs.under_way.insert(op, scrub);
        self.scrub_on(now, out);
    }

    /// A device has lost a block that a request asked for: the stripe is mended soon.
    pub(crate) fn mend_rot(&mut self, now: Now, volume: &VolumeDescription, device: DeviceId, block: u64) {
        let Some(stripe) = stripe_of(volume, device, block) else { return };
        let own = self.scrubs.under_way.iter().filter(|(op, _)| Host::is_own(**op));
        let is_under_way = own.clone().any(|(_, scrub)| scrub.volume == volume.id && scrub.stripes == stripe + 1);
        if is_under_way || own.count() >= STRIPES_MAX {
            return;
        }
        let op = self.own_operation();
        self.scrubs.under_way.insert(op, Scrub { repair: true, ..Scrub::of(volume.id, stripe, stripe + 1) });
        self.timers.set(Timer::Scrub, now.time);
    }

    /// Goes on with every scrub, as far as its pace allows.
    pub(crate) fn scrub_on(&mut self, now: Now, out: &mut Effects) {
        for scrub in self.scrubs.under_way.keys().copied().collect::<Vec<_>>() {
            while self.scrub_more(now, scrub, out) {}
        }
    }

    /// Begins with what is next; false if there is nothing to begin now.
    fn scrub_more(&mut self, now: Now, op: OpId, out: &mut Effects) -> bool {
        let Some(scrubbed) = self.scrubs.under_way.get(&op).map(|scrub| scrub.volume) else { return false };
        let effort = self.effort(now, scrubbed, false);
        let Some(scrub) = self.scrubs.under_way.get_mut(&op) else { return false };
        let volume = self.volumes.get(&scrub.volume).cloned();
        let done = scrub.errands.is_empty() && scrub.next_stripe >= scrub.stripes;
        if scrub.out == 0 && (done || volume.is_none() || self.fenced) {
            let scrub = self.scrubs.under_way.remove(&op).expect("just seen");
            if Host::is_own(op) {
                return false;
            }
            let outcome = match done {
                true => Ok(HostSuccess::Scrubbed(scrub.report)),
                false if self.fenced => Err(HostError::Fenced),
                false => Err(HostError::NoSuchVolume),
            };
            out.reply(op, outcome);
            return false;
        }
        let Some(volume) = volume.filter(|_| !done && scrub.out < effort.parallel.min(PARALLEL)) else { return false };
        // What follows from a stripe was let through with it; but nothing goes on while everything is to wait.
        let bytes = if scrub.errands.is_empty() { volume.layout.stripe_blocks() * BLOCK_BYTES as u64 } else { 0 };
        if let Err(later) = scrub.throttle.begin(now.time, &effort, bytes) {
            self.timers.set(Timer::Scrub, later);
            return false;
        }
        let errand = match scrub.errands.pop_front() {
            Some(errand) => errand,
            None => {
                let rows =
                    StripeRows { stripe: scrub.next_stripe, rows: BlockRange::new(0, volume.layout.unit_blocks()) };
                scrub.next_stripe += 1;
                Errand::check(rows)
            }
        };
        scrub.out += 1;
        let volume = volume.id;
        let request = match errand {
            Errand::Check { rows, .. } => HostRequest::CheckRows { volume, rows },
            Errand::Mend { device, block, .. } => {
                let blocks = BlockRange::new(block, 1);
                HostRequest::Restore { volume, device, blocks, salvage: false, target: false }
            }
            Errand::Recompute { rows, .. } => HostRequest::Recompute { volume, rows },
        };
        let own = self.own_operation();
        self.scrubs.asked.insert(own, (op, errand, now.time));
        self.on_request(now, own, request, out);
        true
    }

    /// One of its requests has ended; false if the operation was none.
    pub(crate) fn on_scrub_answer(&mut self, now: Now, own: OpId, outcome: &HostOutcome) -> bool {
        let Some((op, errand, since)) = self.scrubs.asked.remove(&own) else { return false };
        let effort = self.effort(now, self.scrubs.under_way[&op].volume, false);
        let scrub = self.scrubs.under_way.get_mut(&op).expect("it waits for all its requests");
        scrub.out -= 1;
        scrub.throttle.ended(now.time, &effort, now.time.since(since));
        if let Some(volume) = self.volumes.get(&scrub.volume) {
            let before = (scrub.report.lost, scrub.report.repaired);
            scrub.take(volume, errand, outcome);
            self.counters.rot_found += scrub.report.lost - before.0;
            self.counters.rot_repaired += scrub.report.repaired - before.1;
        }
        let is_in_the_way =
            |error: &HostError| !matches!(error, HostError::Device { failure: Failure::Lost { .. }, .. });
        let wait = if outcome.as_ref().is_err_and(is_in_the_way) { PAUSE } else { Duration::ZERO };
        self.timers.set(Timer::Scrub, now.time.after(wait));
        true
    }
}

impl Errand {
    /// The first look at some rows.
    fn check(rows: StripeRows) -> Errand {
        Errand::Check { rows, attempts: 0, mended: None }
    }
}

impl Scrub {
    fn of(volume: VolumeId, next_stripe: u64, stripes: u64) -> Scrub {
        let (errands, throttle, report) = (VecDeque::new(), Throttle::default(), ScrubReport::default());
        Scrub { volume, repair: false, recompute: false, next_stripe, stripes, errands, out: 0, throttle, report }
    }

    fn take(&mut self, volume: &VolumeDescription, errand: Errand, outcome: &HostOutcome) {
        match (errand, outcome) {
            (Errand::Check { rows, .. }, Ok(HostSuccess::Checked { matches: true })) => self.count_checked(rows),
            (Errand::Check { rows, .. }, Ok(_)) => {
                self.count_checked(rows);
                self.report.mismatched += 1;
                self.name(Found::Mismatch, bytes_of_rows(volume, rows));
                if self.recompute {
                    self.errands.push_back(Errand::Recompute { rows, attempts: 0 });
                }
            }
            (
                Errand::Check { rows, mended, .. },
                Err(HostError::Device { device, failure: Failure::Lost { block } }),
            ) => {
                self.report.lost += 1;
                match block_of_volume(volume, *device, *block) {
                    // It does not stay where it is written: its disk is no good there.
                    Some((row, block)) if mended == Some((*device, block)) => {
                        self.report.unrepairable += 1;
                        self.name(Found::Lost, BlockRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64));
                        self.check_around(rows, row);
                    }
                    Some((row, block)) if self.repair => {
                        let device = *device;
                        self.errands.push_front(Errand::Mend { rows, row, device, block, attempts: 0 });
                        debug_assert!(rows.rows.blocks().contains(&row), "it was read for these rows");
                    }
                    Some((row, _)) => self.check_around(rows, row),
                    None => self.report.skipped += 1,
                }
            }
            (Errand::Mend { rows, device, block, .. }, Ok(_)) => {
                self.report.repaired += 1;
                self.errands.push_front(Errand::Check { rows, attempts: 0, mended: Some((device, block)) });
            }
            // Another one of its row is lost, too. That one is found again by itself only if its row were checked: it is not.
            (
                Errand::Mend { rows, device, block, .. },
                Err(HostError::Device { device: other, failure: Failure::Lost { block: second } }),
            ) if *other != device => {
                self.report.lost += 1;
                self.report.unrepairable += 1;
                let second = block_of_volume(volume, *other, *second);
                let row = second.map_or(rows.rows.start, |(row, _)| row);
                for (device, block) in [(device, Some(block)), (*other, second.map(|(_, block)| block))] {
                    let held = block.map(|block| (volume.layout.locate(block).position, block));
                    if let Some((position, block)) = held
                        && volume.device_at(position) == device
                    {
                        let bytes = BLOCK_BYTES as u64;
                        self.name(Found::Lost, BlockRange::new(block * bytes, bytes));
                    }
                }
                self.check_around(rows, row);
            }
            (Errand::Recompute { .. }, Ok(_)) => self.report.recomputed += 1,
            (Errand::Check { rows, attempts, mended }, Err(_)) if attempts < ATTEMPTS => {
                self.errands.push_back(Errand::Check { rows, attempts: attempts + 1, mended });
            }
            (Errand::Mend { rows, row, device, block, attempts }, Err(_)) if attempts < ATTEMPTS => {
                self.errands.push_back(Errand::Mend { rows, row, device, block, attempts: attempts + 1 });
            }
            (Errand::Recompute { rows, attempts }, Err(_)) if attempts < ATTEMPTS => {
                self.errands.push_back(Errand::Recompute { rows, attempts: attempts + 1 });
            }
            (Errand::Mend { rows, row, .. }, Err(_)) => {
                self.report.skipped += 1;
                self.check_around(rows, row);
            }
            (Errand::Check { .. } | Errand::Recompute { .. }, Err(_)) => self.report.skipped += 1,
        }
    }

    fn count_checked(&mut self, rows: StripeRows) {
        self.report.rows += rows.rows.count;
    }

    /// Goes on with the other rows of some.
    fn check_around(&mut self, rows: StripeRows, row: u64) {
        let StripeRows { stripe, rows } = rows;
        let parts = [BlockRange::between(rows.start, row.max(rows.start)), BlockRange::between(row + 1, rows.end())];
        for rows in parts.into_iter().filter(|rows| !rows.is_empty()) {
            self.errands.push_back(Errand::check(StripeRows { stripe, rows }));
        }
    }

    fn name(&mut self, found: Found, bytes: BlockRange) {
        if self.report.findings.len() < limits::LOST_RUNS_MAX {
            self.report.findings.push(Finding { found, offset: bytes.start, length: bytes.count });
        }
    }
}

/// The bytes of the volume that lie in some rows: of its first unit. The others lie a unit further each.
fn bytes_of_rows(volume: &VolumeDescription, rows: StripeRows) -> BlockRange {
    let first = rows.stripe * volume.layout.stripe_blocks() + rows.rows.start;
    let whole = rows.rows.count == volume.layout.unit_blocks();
    let count = if whole { volume.layout.stripe_blocks() } else { rows.rows.count };
    BlockRange::new(first * BLOCK_BYTES as u64, count * BLOCK_BYTES as u64)
}

/// The stripe that a device's block is of, if any.
fn stripe_of(volume: &VolumeDescription, device: DeviceId, block: u64) -> Option<u64> {
    let position = volume.devices.iter().position(|held| *held == device)?;
    let stripe = StripeRows::of_component(&volume.layout, position, BlockRange::new(block, 1)).pop()?.stripe;
    (stripe < volume.stripes()).then_some(stripe)
}

/// The row that a device's block is in, and a block of the volume of which just that one is written with: itself, or, of redundancy,
/// any of its row. None if it is of no stripe.
fn block_of_volume(volume: &VolumeDescription, device: DeviceId, block: u64) -> Option<(u64, u64)> {
    let layout = &volume.layout;
    let position = volume.devices.iter().position(|held| *held == device)?;
    let rows = StripeRows::of_component(layout, position, BlockRange::new(block, 1)).pop()?;
    let (stripe, row) = (rows.stripe, rows.rows.start);
    let unit = (0..layout.data_units()).find(|unit| layout.data_unit(stripe, *unit).position == position);
    let first = stripe * layout.stripe_blocks() + unit.unwrap_or(0) as u64 * layout.unit_blocks();
    (stripe < volume.stripes()).then_some((row, first + row))
}
