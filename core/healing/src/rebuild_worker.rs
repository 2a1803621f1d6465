//! A rebuild worker is a host that restores absent blocks of a returning device while another host coordinates the recovery
//! (`docs/healing.md`, Rebuild). It makes rebuilds faster where the coordinator's processor or link is the bottleneck.
//!
//! ```text
//!   present           absent blocks of the device
//!   ────────┬──────────────────────┬─────────────────────────────────────────┐
//!           │ recovery coordinator │                      ◄── rebuild worker │
//!           └──────────────────────┴─────────────────────────────────────────┘
//! ```
//!
//! Restores are ordinary storage transactions, so any host may execute them at any time. A worker does nothing else: the coordinator alone
//! surveys the device, writes blocks that can't be restored as lost, and decides that nothing is absent any more.
//!
//! The coordinator restores the first absent blocks, upwards. A worker begins at a place that depends on its generation, and restores
//! downwards. So each of them usually continues in blocks that no other host restores at that moment. Where several do, they restore the same
//! content.

use crate::ctx::Ctx;
use crate::job::{Job, RecoveryStep};
use crate::placements::Placement;
use crate::rebuild::{PlacementRebuild, RebuildPhase, Region, absent_of, region_blocks};
use crate::steps::{Shared, Timer};
use crate::throttle::Urgency;
use crate::who_answers::{Worth, worth_of_step};
use braid_base::{BlockRange, DeviceId, Epoch, Generation, MemberState};
use braid_machine::{HostOutcome, HostSuccess};
use braid_ordering::Ordering;
use braid_wire::Managed;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most devices on which one host works at a time.
const DEVICES_MAX: usize = 8;
/// The most steps at a time for one device. Several hosts may work on it.
const PARALLEL: usize = 4;
/// The fewest and the most blocks of the device in a region of a worker.
const REGION_BLOCKS: (u64, u64) = (4, 1 << 13);
/// A region is this part of an absent extent, within these limits.
const REGION_PART: u64 = 16;
/// The wait when there is nothing to do, or a step has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The wait for commits to reach the device, before it is asked again what is absent.
const LINGER: Duration = Duration::from_millis(20);

/// All returning devices on which this host works for another recovery coordinator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workers {
    by_device: BTreeMap<DeviceId, RebuildWorker>,
}

/// The work on one device.
#[derive(Clone, Debug)]
pub(crate) struct RebuildWorker {
    device: DeviceId,
    /// The epoch of its return.
    since: Epoch,
    /// Placements to be asked about before the next pause.
    placements: Vec<Placement>,
    /// The placement on which it works, and the steps to be done there.
    rebuilding: Option<PlacementRebuild>,
    waiting: VecDeque<RecoveryStep>,
    /// It goes on with what is absent just below this block; at first, this is 0.
    below: u64,
}

impl Workers {
    /// A membership has arrived: ends the work on devices that do not need it any more, or that this host is to coordinate itself.
    pub fn end_unneeded(&mut self, ctx: &Ctx, shared: &mut Shared) {
        self.by_device.retain(|device, worker| {
            let stays = may_need_work(ctx).any(|(other, since)| (other, since) == (*device, worker.since));
            if !stays {
                shared.steps.keep_of_recovery(*device, |_| false);
            }
            stays
        });
    }

    /// Begins to work on devices that have returned.
    pub fn begin(&mut self, ctx: &Ctx, shared: &mut Shared) {
        let new: Vec<_> = may_need_work(ctx).filter(|(device, _)| !self.by_device.contains_key(device)).collect();
        for (device, since) in new.into_iter().take(DEVICES_MAX.saturating_sub(self.by_device.len())) {
            let worker = RebuildWorker {
                device,
                since,
                placements: Vec::new(),
                rebuilding: None,
                waiting: VecDeque::new(),
                below: 0,
            };
            // A device that has missed little is in before the pause has passed.
            self.by_device.entry(device).or_insert(worker).pause(ctx, shared);
        }
    }

    /// The devices that are in, or available, have changed: those that are not available any more are not waited for.
    pub fn review(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        for worker in self.by_device.values_mut() {
            let needed = |step: &RecoveryStep| worth_of_step(ctx, worker.device, step) != Worth::Nothing;
            worker.waiting.retain(needed);
            shared.steps.keep_of_recovery(worker.device, needed);
        }
        self.by_device.values_mut().for_each(|worker| worker.go_on_unless_pausing(ctx, shared));
    }

    pub fn get_mut(&mut self, device: DeviceId) -> Option<&mut RebuildWorker> {
        self.by_device.get_mut(&device)
    }

    pub fn has(&self, device: DeviceId) -> bool {
        self.by_device.contains_key(&device)
    }

    /// Asserts that each has a step or a timer.
    pub fn invariants(&self, shared: &Shared, leaving: bool) {
        for device in self.by_device.keys() {
            let goes_on = shared.timers.deadline_of(Timer::Recover(*device)).is_some()
                || shared.steps.of_recovery(*device).next().is_some();
            assert!(goes_on || leaving, "every wait has a deadline: {self:?}");
        }
    }
}

/// The returning devices that other hosts coordinate, and the epochs of their return.
fn may_need_work(ctx: &Ctx) -> impl Iterator<Item = (DeviceId, Epoch)> {
    let others = |member_state| match member_state {
        MemberState::Returning { recovery_coordinator } => recovery_coordinator.is_some_and(|host| host != ctx.host),
        MemberState::In | MemberState::Out => false,
    };
    let members = ctx.members().members.iter().filter(move |member| others(member.member_state));
    members.map(|member| (member.device, member.since))
}

impl RebuildWorker {
    /// Begins the next steps.
    pub fn go_on(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        while !ctx.leaving {
            let under_way = shared.steps.of_recovery(self.device).count();
            if under_way >= PARALLEL {
                return;
            }
            if self.waiting.is_empty() {
                if under_way > 0 {
                    return;
                }
                if !self.enter_next_phase(ctx) {
                    return self.pause(ctx, shared);
                }
            }
            if !self.may_work(ctx, shared) {
                return self.pause(ctx, shared);
            }
            if let Some(step) = self.waiting.pop_front() {
                let request = step.request(self.device);
                shared.ask(ctx, Job::Recovery(self.device, step), request);
            }
        }
    }

    fn go_on_unless_pausing(&mut self, ctx: &mut Ctx, shared: &mut Shared) {
        if shared.timers.deadline_of(Timer::Recover(self.device)).is_none() {
            self.go_on(ctx, shared);
        }
    }

    /// Workers leave the array to users, and an operator's limits to the coordinator.
    fn may_work(&self, ctx: &Ctx, shared: &Shared) -> bool {
        let volume = self.rebuilding.as_ref().map(|rebuilding| rebuilding.placement.volume);
        !ctx.fenced && volume.is_some_and(|volume| shared.budget(ctx, volume, Urgency::Resync).is_unlimited())
    }

    /// A phase has ended: enters the next one. False if there is nothing to do now.
    fn enter_next_phase(&mut self, ctx: &Ctx) -> bool {
        if let Some(PlacementRebuild { placement, phase }) = &mut self.rebuilding
            && let Some(volume) = ctx.placement(*placement)
        {
            let (placement, first) = (*placement, volume.layout.first_block());
            match std::mem::replace(phase, RebuildPhase::ListAbsent { from: first }) {
                RebuildPhase::ListAllocated(region) => {
                    *phase = RebuildPhase::Copy { end: region.range().end() };
                    self.waiting = region.restores(placement, &volume, self.device);
                    return true;
                }
                RebuildPhase::Copy { .. } => {
                    self.waiting.push_back(RecoveryStep::Absent { placement, from: first });
                    return true;
                }
                // Nothing is absent there that is left to workers.
                RebuildPhase::ListAbsent { .. } => {}
            }
        }
        (self.rebuilding, self.below) = (None, 0);
        let next = std::iter::from_fn(|| self.placements.pop());
        let Some((placement, volume)) = next.filter_map(|next| Some((next, ctx.placement(next)?))).next() else {
            return false;
        };
        let from = volume.layout.first_block();
        self.rebuilding = Some(PlacementRebuild { placement, phase: RebuildPhase::ListAbsent { from } });
        self.waiting.push_back(RecoveryStep::Absent { placement, from });
        true
    }

    /// Has nothing to do, may do nothing, or has failed: begins anew later. The restores under way end.
    fn pause(&mut self, ctx: &Ctx, shared: &mut Shared) {
        self.waiting.clear();
        (self.rebuilding, self.below) = (None, 0);
        // Restores of a volume without ordering could undo writes of the host that uses it.
        let placements = ctx.placements_on(self.device).into_iter();
        let ordered = placements.filter(|(_, volume)| volume.ordering != Ordering::None);
        self.placements = ordered.map(|(placement, _)| placement).collect();
        shared.steps.keep_of_recovery(self.device, |step| matches!(step, RecoveryStep::Restore { .. }));
        shared.timers.set(Timer::Recover(self.device), ctx.now.after(PAUSE));
    }

    /// A step has ended. What can't be restored is left to the coordinator.
    pub fn answered(&mut self, ctx: &Ctx, shared: &mut Shared, step: RecoveryStep, outcome: HostOutcome) {
        match (step, outcome) {
            (RecoveryStep::Absent { placement, .. }, Ok(HostSuccess::Managed(Managed::Extents { extents, .. }))) => {
                self.on_absent(ctx, shared, placement, &extents);
            }
            (
                RecoveryStep::Allocated { placement, of, range },
                Ok(HostSuccess::Managed(Managed::Extents { extents, next })),
            ) => {
                if let Some(rebuilding) = &mut self.rebuilding {
                    rebuilding.on_allocated(ctx, placement, &extents);
                }
                let rest = |from| BlockRange::between(from, range.end());
                self.waiting.extend(next.map(|from| RecoveryStep::Allocated { placement, of, range: rest(from) }));
            }
            (RecoveryStep::Restore { .. }, Ok(_)) => {}
            // For example, the coordinator has not created the object yet.
            _ => return self.pause(ctx, shared),
        }
        let timer = Timer::Recover(self.device);
        if shared.timers.deadline_of(timer).is_none() {
            shared.timers.set(timer, ctx.now);
        }
    }

    /// The device has listed its absent blocks.
    fn on_absent(&mut self, ctx: &Ctx, shared: &mut Shared, placement: Placement, listed: &[BlockRange]) {
        let Some(held) = self.rebuilding.as_mut().filter(|held| held.placement == placement) else { return };
        let Some(volume) = ctx.placement(placement) else { return };
        let absent = absent_of(&volume, listed);
        if let Some(range) = next_range(&absent, self.below, ctx.host) {
            self.below = range.start;
            self.waiting.extend(held.enter(ctx, self.device, &volume, Region::within(&absent, range)));
        } else if self.below > 0 {
            // Another place is chosen when the last commits have reached the device.
            (self.below, held.phase) = (0, RebuildPhase::Copy { end: 0 });
            shared.timers.set(Timer::Recover(self.device), ctx.now.after(LINGER));
        }
    }
}

/// The blocks to be restored next: those just below `below`, or, if that is 0, somewhere in the largest absent extent, depending on the
/// host. None if nothing is absent there, or if all of it is left to the recovery coordinator.
fn next_range(absent: &[BlockRange], below: u64, host: Generation) -> Option<BlockRange> {
    let total = absent.iter().map(|extent| extent.count).sum();
    let coordinators_end = absent.first()?.start + region_blocks(total);
    let free = absent.iter().map(|extent| BlockRange::between(extent.start.max(coordinators_end), extent.end()));
    let mut free = free.filter(|extent| !extent.is_empty());
    let (extent, end) = if below > 0 {
        (free.find(|extent| extent.start < below && below <= extent.end())?, below)
    } else {
        let largest = free.max_by_key(|extent| extent.count)?;
        (largest, largest.end() - distance_from_end(largest.count, host))
    };
    let blocks = (extent.count / REGION_PART).clamp(REGION_BLOCKS.0, REGION_BLOCKS.1);
    Some(BlockRange::between(extent.start.max(end.saturating_sub(blocks)), end))
}

/// How far from the end of an absent extent a host begins: in its second half, because the coordinator may come to the first one soon.
/// Multiples of the golden ratio keep hosts with successive generations far apart.
fn distance_from_end(blocks: u64, host: Generation) -> u64 {
    let place = host.0.wrapping_mul(0x9e37_79b9);
    ((u128::from(blocks / 2) * u128::from(place)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Workers take absent blocks only, stay out of the coordinator's region, and leave nothing else.
        #[test]
        fn workers_restore_all_that_is_not_left_to_the_coordinator(
            gaps in prop::collection::vec((0u64..4000, 1u64..30_000), 1..8), hosts in prop::collection::vec(0u32..100, 1..4),
        ) {
            let mut at = 0;
            let mut absent = Vec::new();
            for (gap, count) in gaps {
                absent.push(BlockRange::new(at + gap + 1, count));
                at += gap + 1 + count;
            }
            let mut below = vec![0; hosts.len()];
            let mut idle = 0;
            for turn in 0.. {
                let total = absent.iter().map(|extent| extent.count).sum();
                let coordinators = BlockRange::new(absent[0].start, region_blocks(total));
                let which = turn % hosts.len();
                match next_range(&absent, below[which], Generation(hosts[which])) {
                    Some(range) => {
                        prop_assert!(!range.is_empty() && range.count <= REGION_BLOCKS.1);
                        prop_assert!(absent.iter().any(|extent| extent.contains(range)), "{range:?} of {absent:?}");
                        prop_assert!(!range.overlaps(coordinators));
                        absent = absent.iter().flat_map(|extent| {
                            [BlockRange::between(extent.start, extent.end().min(range.start).max(extent.start)),
                             BlockRange::between(extent.start.max(range.end()), extent.end())]
                        }).filter(|extent| !extent.is_empty()).collect();
                        (below[which], idle) = (range.start, 0);
                    }
                    None if below[which] > 0 => below[which] = 0,
                    None => idle += 1,
                }
                if idle > hosts.len() {
                    break;
                }
            }
            let total = absent.iter().map(|extent| extent.count).sum();
            let coordinators = BlockRange::new(absent[0].start, region_blocks(total));
            prop_assert!(absent.iter().all(|extent| coordinators.contains(*extent)), "{absent:?}");
        }
    }

    #[test]
    fn workers_of_different_hosts_begin_at_different_places() {
        let absent = [BlockRange::new(1000, 1 << 20)];
        for first in 0..100 {
            let hosts = (first..first + 8).map(Generation);
            let mut begins: Vec<_> = hosts.map(|host| next_range(&absent, 0, host).unwrap().end()).collect();
            begins.sort_unstable();
            assert!(begins.windows(2).all(|pair| pair[1] - pair[0] > 20_000), "{begins:?}");
            assert!(begins[0] > 1000 + (1 << 19) && begins[7] <= absent[0].end(), "{begins:?}");
        }
    }
}
