//! The stages of a device's recovery, from its return to the end of its rebuild. The monitor appoints the host that executes them, the
//! recovery coordinator (`docs/membership.md`).
//!
//! ```text
//!   Outdated   a volume has changed: waits for the last change of an object under way, which may go by the volume as it was
//!   Survey     the devices that are in list their objects. Every redundant object must belong to a known volume first (the front end
//!              announces volumes). Objects that the returning device lacks are created there; objects of volumes that have moved away
//!              or were deleted are removed. While a volume is on hold, the survey is repeated, and no object is changed: the devices may
//!              know a change of it, and this host does not
//!   ListMissed the devices of its volumes list what was written while the device was out, once they have decided their earlier intents
//!   Resync     these blocks are restored by ordinary storage transactions, a few at a time
//!   Rebuild    absent blocks are restored, if the device has a new disk
//!   Done       the monitor is told, until the membership says so, too
//! ```
//!
//! `who_answers` says which devices are asked, and for which of them each stage waits.

use crate::ctx::{Ctx, Event};
use crate::job::{Job, RecoveryStep};
use crate::placements::{Placement, weight};
use crate::rebuild::PlacementRebuild;
use crate::steps::{Shared, Timer};
use crate::stripe_run::StripeRun;
use crate::throttle::{Throttle, Urgency};
use crate::who_answers::{Question, Worth, asked, witnesses, worth_of_step};
use braid_base::{BlockRange, DeviceId, Epoch, Extents, MemberState, Time, VolumeId, limits};
use braid_machine::{HostError, HostOutcome, HostSuccess};
use braid_wire::{Failure, HealingProgress, Managed, ObjectDescription};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most devices that one host recovers at a time.
const RECOVERIES_MAX: usize = 8;
/// The most steps at a time for one device.
const PARALLEL: usize = 8;
/// The most blocks of the volume that one step restores.
const BLOCKS_AT_ONCE: u64 = 128;
/// The most runs of missed blocks that are held for a volume. If there are more, the closest ones are joined.
const MISSED_MAX: usize = 1 << 16;
/// The resync of missed blocks does not yield to users for this many blocks of the device, so that redundancy is back soon.
const UNTHROTTLED_BLOCKS: u64 = 1 << 16;
/// The wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The wait for commits to reach the device, before it is asked again what is absent.
const LINGER: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default)]
pub(crate) struct Recoveries {
    by_device: BTreeMap<DeviceId, Recovery>,
}

#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub device: DeviceId,
    /// The epoch of its return.
    since: Epoch,
    stage: RecoveryStage,
    /// Steps to be done, or to be repeated.
    pub waiting: VecDeque<RecoveryStep>,
    /// The devices that were in and shared volumes with it when the survey began: they know everything that the device missed.
    there: BTreeSet<DeviceId>,
    pub objects: BTreeMap<DeviceId, Vec<ObjectDescription>>,
    /// Missed blocks that are not yet steps: blocks of the volume, for each of its placements.
    missed: BTreeMap<Placement, Extents>,
    /// The placement that is being rebuilt, and the placements without absent blocks.
    pub rebuilding: Option<PlacementRebuild>,
    pub whole: BTreeSet<Placement>,
    throttle: Throttle,
    pub progress: HealingProgress,
    /// Blocks that can't be restored.
    lost: BTreeSet<(VolumeId, u64)>,
}

/// The stages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryStage {
    Outdated,
    Survey,
    ListMissed,
    Resync,
    Rebuild,
    Done,
}

impl Recoveries {
    pub fn iter(&self) -> impl Iterator<Item = &Recovery> {
        self.by_device.values()
    }

    pub fn get_mut(&mut self, device: DeviceId) -> Option<&mut Recovery> {
        self.by_device.get_mut(&device)
    }

    /// A membership has arrived: begins and ends recoveries by the recovery coordinators in it.
    pub fn on_membership(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        let own = Some(ctx.host);
        let mine = |member_state| matches!(member_state, MemberState::Returning { recovery_coordinator } if recovery_coordinator == own);
        let members: Vec<_> =
            ctx.members().members.iter().filter(|member| mine(member.member_state)).copied().collect();
        self.by_device.retain(|device, recovery| {
            let stays = members.iter().any(|member| (member.device, member.since) == (*device, recovery.since));
            if !stays {
                shared.steps.keep_of_recovery(*device, |_| false);
            }
            stays
        });
        let known: BTreeSet<_> = self.by_device.keys().copied().collect();
        // More devices are recovered when one of these is in, which comes with a new epoch.
        let new = members.into_iter().filter(|member| !known.contains(&member.device));
        for member in new.take(RECOVERIES_MAX.saturating_sub(known.len())) {
            let recovery = self.by_device.entry(member.device);
            let recovery = recovery.or_insert_with(|| Recovery::new(member.device, member.since));
            recovery.survey(ctx);
            recovery.go_on(ctx, shared);
        }
    }

    /// A volume has another placement or ordering: all recoveries begin anew.
    pub fn restart(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        self.by_device.values_mut().for_each(|recovery| recovery.restart(ctx, shared));
    }

    /// The devices that are in, or available, have changed.
    pub fn review(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        self.by_device.values_mut().for_each(|recovery| recovery.review(ctx, shared));
    }
}

impl Recovery {
    fn new(device: DeviceId, since: Epoch) -> Recovery {
        Recovery {
            device,
            since,
            stage: RecoveryStage::Survey,
            waiting: VecDeque::new(),
            there: BTreeSet::new(),
            objects: BTreeMap::new(),
            missed: BTreeMap::new(),
            rebuilding: None,
            whole: BTreeSet::new(),
            throttle: Throttle::default(),
            progress: HealingProgress::default(),
            lost: BTreeSet::new(),
        }
    }

    /// Asserts that it has a step or a timer.
    pub fn invariants(&self, shared: &Shared, leaving: bool) {
        let goes_on = shared.timers.deadline_of(Timer::Recover(self.device)).is_some()
            || shared.steps.of_recovery(self.device).next().is_some();
        assert!(goes_on || leaving || self.stage == RecoveryStage::Done, "every wait has a deadline: {self:?}");
    }

    /// The epoch of the device's return, once it has everything that it missed.
    pub fn done_since(&self) -> Option<Epoch> {
        (self.stage == RecoveryStage::Done).then_some(self.since)
    }

    /// How many blocks of the device remain, once that is known.
    pub fn known_left(&self, shared: &Shared) -> Option<u64> {
        let known = matches!(self.stage, RecoveryStage::Resync | RecoveryStage::Rebuild | RecoveryStage::Done);
        known.then(|| self.left(shared))
    }

    /// The progress, in blocks of the device.
    pub fn progress(&self, shared: &Shared) -> HealingProgress {
        HealingProgress { left: self.left(shared), lost: self.lost.len() as u64, ..self.progress }
    }

    /// Blocks of volumes that could not be restored, because too many blocks of their rows are lost.
    pub fn not_restored(&self) -> impl Iterator<Item = (VolumeId, u64)> {
        self.lost.iter().copied()
    }

    /// Blocks of the device that remain, as far as that is known.
    fn left(&self, shared: &Shared) -> u64 {
        let steps = self.waiting.iter().chain(shared.steps.of_recovery(self.device));
        steps.map(RecoveryStep::weight).sum::<u64>() + self.progress.left
    }

    /// The devices that are in, or available, have changed. A device that is out is not asked any more: each device that is in and shares
    /// its stripes knows as much, and it has lost its votes. If the survey or listing is not complete, it starts over with the devices that are in now.
    fn review(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        let device = self.device;
        let there = witnesses(ctx, device);
        if matches!(self.stage, RecoveryStage::Survey | RecoveryStage::ListMissed) && self.there != there {
            self.stage = RecoveryStage::Survey;
            shared.steps.keep_of_recovery(device, |_| false);
            self.survey(ctx);
        } else {
            let needed = |step: &RecoveryStep| worth_of_step(ctx, device, step) != Worth::Nothing;
            self.waiting.retain(needed);
            shared.steps.keep_of_recovery(device, needed);
        }
        self.go_on(ctx, shared);
    }

    /// What was planned for the device, and partly done, may go by a volume as it was. The administrator that has changed the volume has
    /// told the device, and a change of an object that was under way may have undone that.
    fn restart(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        self.stage = RecoveryStage::Outdated;
        self.waiting.clear();
        self.missed.clear();
        self.whole.clear();
        (self.rebuilding, self.progress.left) = (None, 0);
        // What has been sent may still arrive, and must not follow what the new survey finds to be done.
        shared.steps.keep_of_recovery(self.device, RecoveryStep::changes_objects);
        self.go_on(ctx, shared);
    }

    /// Asks for the objects of the returning device, and of those that may know volumes of it.
    fn survey(&mut self, ctx: &Ctx) {
        let device = self.device;
        let of = asked(ctx, device, Question::Objects).into_iter();
        self.waiting = of.map(|of| RecoveryStep::Survey { of }).collect();
        self.there = witnesses(ctx, device);
        self.objects.clear();
    }

    /// Begins the next steps.
    pub fn go_on(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        loop {
            let out = shared.steps.of_recovery(self.device).count();
            if out >= PARALLEL || self.stage == RecoveryStage::Done || ctx.leaving {
                return;
            }
            let Some(step) = self.next_step(ctx) else {
                if out > 0 || !self.enter_next_stage(ctx, shared) {
                    return;
                }
                continue;
            };
            // In their order, because each assumes that the ones before it are done. A repeated creation would find another object.
            if step.changes_objects() && shared.steps.of_recovery(self.device).any(RecoveryStep::changes_objects) {
                return self.waiting.push_front(step);
            }
            if step.changes_objects() && !ctx.held.is_empty() {
                shared.timers.set(Timer::Recover(self.device), ctx.now.after(PAUSE));
                return self.waiting.push_front(step);
            }
            let step = match step {
                RecoveryStep::Restore { placement, stripes, salvage } => {
                    match self.begin_restore(ctx, shared, placement, stripes) {
                        Some(stripes) => RecoveryStep::Restore { placement, stripes, salvage },
                        None => return self.waiting.push_front(step),
                    }
                }
                other => other,
            };
            let request = step.request(self.device);
            shared.ask(ctx, Job::Recovery(self.device, step), request);
        }
    }

    /// The next step of this stage. Missed blocks become steps one by one, because there may be many.
    fn next_step(&mut self, ctx: &Ctx) -> Option<RecoveryStep> {
        let waiting = self.waiting.pop_front();
        if waiting.is_some() || self.stage != RecoveryStage::Resync {
            return waiting;
        }
        while let Some(mut entry) = self.missed.first_entry() {
            let placement = *entry.key();
            let Some((volume, run)) = ctx.placement(placement).zip(entry.get().from(0).next()) else {
                entry.remove();
                continue;
            };
            let end = volume.stripes() * volume.layout.stripe_blocks();
            let blocks = BlockRange::new(run.start, run.count.min(BLOCKS_AT_ONCE));
            entry.get_mut().remove(blocks);
            let weight = weight(&volume, blocks.count);
            self.progress.left = self.progress.left.saturating_sub(weight);
            let blocks = blocks.intersection(BlockRange::new(0, end));
            if !blocks.is_empty() {
                let stripes = StripeRun { blocks, weight, moves: true };
                return Some(RecoveryStep::Restore { placement, stripes, salvage: false });
            }
        }
        None
    }

    /// Begins a restore, or a part of it as large as the budget allows; the rest becomes the next step. None: it has to wait.
    fn begin_restore(
        &mut self,
        ctx: &Ctx,
        shared: &mut Shared,
        placement: Placement,
        stripes: StripeRun,
    ) -> Option<StripeRun> {
        let budget = shared.budget(ctx, placement.volume, self.urgency());
        let restores =
            shared.steps.of_recovery(self.device).filter(|step| matches!(step, RecoveryStep::Restore { .. }));
        if restores.count() >= budget.parallel.min(PARALLEL) {
            return None;
        }
        let stripe = ctx.placement(placement).map_or(1, |volume| volume.layout.stripe_blocks());
        let (stripes, rest) = stripes.cut(budget.blocks, stripe);
        if let Err(later) = self.throttle.begin(ctx.now, &budget, stripes.bytes()) {
            shared.timers.set(Timer::Recover(self.device), later);
            return None;
        }
        if let Some(stripes) = rest {
            self.waiting.push_front(RecoveryStep::Restore { placement, stripes, salvage: false });
        }
        Some(stripes)
    }

    fn urgency(&self) -> Urgency {
        match self.stage {
            RecoveryStage::Resync if self.progress.done < UNTHROTTLED_BLOCKS => Urgency::ShortResync,
            _ => Urgency::Resync,
        }
    }

    /// A stage is complete: enters the next one. False if there is nothing to do now.
    fn enter_next_stage(&mut self, ctx: &mut Ctx, shared: &mut Shared) -> bool {
        let timer = Timer::Recover(self.device);
        match self.stage {
            RecoveryStage::Outdated => {
                self.stage = RecoveryStage::Survey;
                self.survey(ctx);
            }
            RecoveryStage::Survey => match self.after_survey(ctx, &shared.deleted) {
                Some(steps) => (self.stage, self.waiting) = (RecoveryStage::ListMissed, steps),
                None => {
                    // The front end will announce the volumes that are not known yet, and end the holds.
                    self.survey(ctx);
                    shared.timers.set(timer, ctx.now.after(PAUSE));
                    return false;
                }
            },
            RecoveryStage::ListMissed => {
                let weighed = |(placement, extents): (&Placement, &Extents)| {
                    ctx.placement(*placement).map_or(0, |volume| weight(&volume, extents.blocks()))
                };
                self.progress.left = self.missed.iter().map(weighed).sum();
                self.stage = RecoveryStage::Resync;
            }
            RecoveryStage::Resync => {
                self.progress.left = 0;
                self.stage = RecoveryStage::Rebuild;
            }
            RecoveryStage::Rebuild => match self.next_of_rebuild(ctx) {
                Some(steps) if steps.is_empty() => {
                    shared.timers.set(timer, ctx.now.after(LINGER));
                    return false;
                }
                Some(steps) => self.waiting = steps,
                None => {
                    self.stage = RecoveryStage::Done;
                    // The monitor is told at once, and again until the membership says so.
                    ctx.events.push(Event::Recovered);
                    return false;
                }
            },
            RecoveryStage::Done => return false,
        }
        true
    }

    /// A step that began at `since` has ended.
    pub fn answered(&mut self, ctx: &Ctx, shared: &mut Shared, step: RecoveryStep, since: Time, outcome: HostOutcome) {
        let timer = Timer::Recover(self.device);
        if self.stage == RecoveryStage::Outdated {
            return shared.timers.set(timer, ctx.now);
        }
        if let RecoveryStep::Restore { placement, stripes, .. } = step {
            let budget = shared.budget(ctx, placement.volume, self.urgency());
            self.throttle.ended(ctx.now, &budget, ctx.now.since(since), stripes.bytes());
        }
        if let (RecoveryStep::Restore { placement, stripes, salvage: false }, Err(HostError::Unavailable { devices })) =
            (&step, &outcome)
            && is_given_up(ctx, *placement, devices)
        {
            let (placement, stripes) = (*placement, *stripes);
            self.name_lost(ctx, placement, stripes.blocks);
            self.waiting.push_front(RecoveryStep::Restore { placement, stripes, salvage: true });
            return shared.timers.set(timer, ctx.now);
        }
        match self.take(ctx, step, outcome) {
            Some(again) => {
                match again.changes_objects() {
                    true => self.waiting.push_front(again),
                    false => self.waiting.push_back(again),
                }
                shared.timers.set(timer, ctx.now.after(PAUSE));
            }
            None if shared.timers.deadline_of(timer).is_none() => shared.timers.set(timer, ctx.now),
            None => {}
        }
    }

    /// Processes the outcome of a step. Returns the step if it must be repeated.
    fn take(&mut self, ctx: &Ctx, step: RecoveryStep, outcome: HostOutcome) -> Option<RecoveryStep> {
        match (step, outcome) {
            (RecoveryStep::Survey { of }, Ok(HostSuccess::Managed(Managed::Objects(objects)))) => {
                self.objects.insert(of, objects);
            }
            (RecoveryStep::List { volume, of, .. }, Ok(HostSuccess::Managed(Managed::Missed { extents, next }))) => {
                for (placement, _) in
                    ctx.placements_on(self.device).into_iter().filter(|(placement, _)| placement.volume == volume)
                {
                    let missed = self.missed.entry(placement).or_default();
                    extents.iter().for_each(|extent| missed.insert(*extent));
                    if missed.len() > MISSED_MAX {
                        missed.coarsen(MISSED_MAX / 4 * 3);
                    }
                }
                self.waiting.extend(next.map(|from| RecoveryStep::List { volume, of, from }));
            }
            (
                RecoveryStep::Absent { placement, from },
                Ok(HostSuccess::Managed(Managed::Extents { extents, next })),
            ) => {
                self.on_absent(ctx, (placement, from), &extents, next.is_some());
            }
            (
                RecoveryStep::Allocated { placement, of, range },
                Ok(HostSuccess::Managed(Managed::Extents { extents, next })),
            ) => {
                if let Some(rebuilding) = &mut self.rebuilding {
                    rebuilding.on_allocated(ctx, placement, &extents);
                }
                let on =
                    |from| RecoveryStep::Allocated { placement, of, range: BlockRange::between(from, range.end()) };
                self.waiting.extend(next.map(on));
            }
            (RecoveryStep::Restore { stripes, .. }, Ok(_)) => self.progress.done += stripes.weight,
            (RecoveryStep::Object(_), Ok(_)) => {}
            // The volume was deleted or has moved meanwhile: nothing is missing.
            (RecoveryStep::List { volume, .. }, Err(_)) if !ctx.volumes.contains_key(&volume) => {}
            (
                RecoveryStep::Absent { placement, .. }
                | RecoveryStep::Allocated { placement, .. }
                | RecoveryStep::Restore { placement, .. },
                Err(_),
            ) if ctx.placement(placement).is_none() => {}
            (
                RecoveryStep::Restore { placement, stripes, salvage: false },
                Err(HostError::Device { failure: Failure::Lost { .. }, device }),
            ) if device != self.device => self.on_not_restorable(placement, stripes),
            // The request has too many extents.
            (RecoveryStep::Restore { placement, stripes, salvage: false }, Err(HostError::OutOfRange))
                if stripes.blocks.count > 1 =>
            {
                self.on_not_restorable(placement, stripes);
            }
            // The device has a lease, but this host can't reach it.
            (step, Err(HostError::TimedOut { .. })) if worth_of_step(ctx, self.device, &step) == Worth::Useful => {}
            (step, _) => return Some(step),
        }
        None
    }

    /// Blocks that can't be restored, because other blocks of their rows are lost as well. They are halved down to the single blocks that
    /// can't.
    fn on_not_restorable(&mut self, placement: Placement, stripes: StripeRun) {
        let StripeRun { blocks, weight, moves } = stripes;
        if blocks.count <= 1 {
            if self.lost.len() < limits::LOST_RUNS_MAX {
                self.lost.insert((placement.volume, blocks.start));
            }
            return self.waiting.push_front(RecoveryStep::Restore { placement, stripes, salvage: true });
        }
        let half = blocks.count / 2;
        let parts = [(blocks.start, half), (blocks.start + half, blocks.count - half)];
        for (start, count) in parts {
            let stripes =
                StripeRun { blocks: BlockRange::new(start, count), weight: weight * count / blocks.count, moves };
            self.waiting.push_front(RecoveryStep::Restore { placement, stripes, salvage: false });
        }
    }

    /// Records as lost those of these blocks that lie on the device, in stripes that were given up.
    fn name_lost(&mut self, ctx: &Ctx, placement: Placement, blocks: BlockRange) {
        let Some(volume) = ctx.placement(placement) else { return };
        let is_gone = |place: usize| volume.devices.get(place).is_none_or(|held| !ctx.is_in(*held));
        let layout = volume.layout;
        let is_lost = |block: &u64| {
            let stripe = block / layout.stripe_blocks();
            let data = (0..layout.data_units()).map(|unit| layout.data_unit(stripe, unit).position);
            let redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit).position);
            let gone = data.chain(redundancy).filter(|place| is_gone(*place)).count();
            gone > layout.redundancy_units() && volume.devices.get(layout.locate(*block).position) == Some(&self.device)
        };
        let room = limits::LOST_RUNS_MAX.saturating_sub(self.lost.len());
        let lost: Vec<_> = blocks.blocks().filter(is_lost).take(room).map(|block| (placement.volume, block)).collect();
        self.lost.extend(lost);
    }
}

/// True if these devices are more than a stripe can lose, and none of them is in. The monitor marks so many devices out only when
/// an operator has given up the data on them: it will not come back.
fn is_given_up(ctx: &Ctx, placement: Placement, devices: &[DeviceId]) -> bool {
    let redundancy = ctx.placement(placement).map_or(usize::MAX, |volume| volume.layout.redundancy_units());
    devices.len() > redundancy && !devices.iter().any(|device| ctx.is_in(*device))
}
