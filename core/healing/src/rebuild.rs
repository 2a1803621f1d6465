//! Rebuild is the last stage of a recovery: it restores the absent blocks of a device whose slot is filled by another disk
//! (`docs/healing.md`).
//!
//! ```text
//!   for each volume:   ListAbsent ─► ListAllocated ──────► Copy ─┐
//!                        ▲           which chunks of a           │
//!                        │           region have content?        │
//!                        └──────── from the region's end on ◄────┘
//!                      nothing absent from the first block on: the next volume
//! ```
//!
//! The device says which blocks are absent. So another host can continue the rebuild, and a block counts as restored only when it is
//! durable on the device. The answers of the other devices about their chunks only determine how large the transactions are.
//!
//! A region is a part of what is absent, so that rebuild workers (`rebuild_worker`) find something to restore beyond it.

use crate::ctx::Ctx;
use crate::job::RecoveryStep;
use crate::placements::Placement;
use crate::recovery_stages::Recovery;
use crate::stripe_run::StripeRun;
use crate::who_answers::{Question, asked};
use braid_base::{BlockRange, DeviceId};
use braid_layout::{StripeRows, VolumeDescription};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The fewest and the most blocks of the device in a region of the recovery coordinator.
const REGION_BLOCKS: RangeInclusive<u64> = 4..=1 << 16;
/// A region is this part of the absent blocks, within these limits.
const REGION_PART: u64 = 4;
/// Blocks of the device that one transaction restores: where there is content, and where there is none.
const BLOCKS_AT_ONCE: u64 = 256;
const HOLES_AT_ONCE: u64 = 1024;

#[derive(Clone, Debug)]
pub(crate) struct PlacementRebuild {
    pub placement: Placement,
    pub phase: RebuildPhase,
}

#[derive(Clone, Debug)]
pub(crate) enum RebuildPhase {
    /// The device lists its absent blocks from this block on.
    ListAbsent { from: u64 },
    /// The other devices list their blocks with content.
    ListAllocated(Region),
    /// Restores are under way. The next region begins at `end`.
    Copy { end: u64 },
}

/// Some absent blocks of the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    /// The absent blocks, in ascending order.
    absent: Vec<BlockRange>,
    /// Blocks near which another device may have content.
    allocated: Vec<BlockRange>,
}

/// How far the recovery coordinator's present region may reach beyond the first absent block, if so many blocks are absent.
pub(crate) fn region_blocks(absent: u64) -> u64 {
    (absent / REGION_PART).clamp(*REGION_BLOCKS.start(), *REGION_BLOCKS.end())
}

impl PlacementRebuild {
    /// The absent blocks of the next region are known: the other devices are asked which of their blocks beside them have content.
    pub fn enter(
        &mut self,
        ctx: &Ctx,
        device: DeviceId,
        volume: &VolumeDescription,
        region: Region,
    ) -> Vec<RecoveryStep> {
        let (placement, range) = (self.placement, region.range_beside(volume));
        self.phase = RebuildPhase::ListAllocated(region);
        let others = asked(ctx, device, Question::Content(placement)).into_iter();
        others.map(|of| RecoveryStep::Allocated { placement, of, range }).collect()
    }

    /// Another device has listed its blocks with content.
    pub fn on_allocated(&mut self, ctx: &Ctx, placement: Placement, extents: &[BlockRange]) {
        if let (true, RebuildPhase::ListAllocated(region), Some(volume)) =
            (self.placement == placement, &mut self.phase, ctx.placement(placement))
        {
            region.add_allocated(&volume, extents);
        }
    }
}

impl Recovery {
    /// The next steps when a phase of the rebuild has ended. None: nothing is absent any more. No steps: the device must be asked again,
    /// later.
    pub(crate) fn next_of_rebuild(&mut self, ctx: &Ctx) -> Option<VecDeque<RecoveryStep>> {
        let placements = ctx.placements_on(self.device);
        let known = |held: &PlacementRebuild| placements.iter().find(|(placement, _)| *placement == held.placement);
        let Some((placement, volume)) = self.rebuilding.as_ref().and_then(known) else {
            let (placement, volume) = placements.into_iter().find(|(placement, _)| !self.whole.contains(placement))?;
            let from = volume.layout.first_block();
            self.rebuilding = Some(PlacementRebuild { placement, phase: RebuildPhase::ListAbsent { from } });
            return Some([RecoveryStep::Absent { placement, from }].into());
        };
        let (placement, start) = (*placement, volume.layout.first_block());
        let rebuilding = self.rebuilding.as_mut().expect("just seen");
        match std::mem::replace(&mut rebuilding.phase, RebuildPhase::ListAbsent { from: start }) {
            // Restores of everything that was absent have ended or are under way: ask again from the first block on.
            RebuildPhase::ListAbsent { from } if from == start => {
                Some([RecoveryStep::Absent { placement, from }].into())
            }
            RebuildPhase::ListAbsent { .. } => Some(VecDeque::new()),
            RebuildPhase::ListAllocated(region) => {
                let end = region.range().end();
                let mut steps = region.restores(placement, volume, self.device);
                rebuilding.phase = RebuildPhase::Copy { end };
                if steps.is_empty() {
                    rebuilding.phase = RebuildPhase::ListAbsent { from: end };
                    steps.push_back(RecoveryStep::Absent { placement, from: end });
                }
                Some(steps)
            }
            RebuildPhase::Copy { end } => {
                rebuilding.phase = RebuildPhase::ListAbsent { from: end };
                Some([RecoveryStep::Absent { placement, from: end }].into())
            }
        }
    }

    /// The returning device has listed its absent blocks of the volume that is being rebuilt: all of them from `from` on, unless
    /// `more` follow.
    pub(crate) fn on_absent(
        &mut self,
        ctx: &Ctx,
        (placement, from): (Placement, u64),
        extents: &[BlockRange],
        more: bool,
    ) {
        let Some(held) = self.rebuilding.as_mut().filter(|held| held.placement == placement) else { return };
        let Some(volume) = ctx.placement(placement) else { return };
        let extents = absent_of(&volume, extents);
        let absent = extents.iter().map(|extent| extent.count).sum();
        if from > volume.layout.first_block() && !more {
            // The others behind the last region were restored by rebuild workers, or written by users.
            self.progress.done += self.progress.left.saturating_sub(absent);
        }
        self.progress.left = absent;
        if extents.is_empty() {
            if from == volume.layout.first_block() {
                self.whole.insert(placement);
                self.rebuilding = None;
            }
            return;
        }
        let region = Region::first_of(&extents);
        self.progress.left = absent.saturating_sub(region.blocks());
        self.waiting.extend(held.enter(ctx, self.device, &volume, region));
    }
}

/// The absent blocks of a placement, of those that the device has listed. Those of the other placement are rebuilt with that placement.
pub(crate) fn absent_of(volume: &VolumeDescription, listed: &[BlockRange]) -> Vec<BlockRange> {
    let extents = listed.iter().map(|extent| extent.intersection(volume.component()));
    extents.filter(|extent| !extent.is_empty()).collect()
}

impl Region {
    /// The number of absent blocks.
    pub fn blocks(&self) -> u64 {
        self.absent.iter().map(|extent| extent.count).sum()
    }

    /// The recovery coordinator's next region: the first absent blocks.
    pub fn first_of(absent: &[BlockRange]) -> Region {
        let start = absent.first().map_or(0, |extent| extent.start);
        let blocks = region_blocks(absent.iter().map(|extent| extent.count).sum());
        Region::within(absent, BlockRange::new(start, blocks))
    }

    pub fn within(absent: &[BlockRange], range: BlockRange) -> Region {
        let parts = absent.iter().map(|extent| extent.intersection(range)).filter(|part| !part.is_empty());
        Region { absent: parts.collect(), allocated: Vec::new() }
    }

    /// All blocks from the first absent one to the last.
    pub fn range(&self) -> BlockRange {
        let first = self.absent.first().map_or(0, |extent| extent.start);
        BlockRange::between(first, self.absent.last().map_or(first, |extent| extent.end()))
    }

    /// The corresponding range on the other devices of the rows. Their units may be one unit further or nearer.
    pub fn range_beside(&self, volume: &VolumeDescription) -> BlockRange {
        let (range, unit) = (self.range(), volume.layout.unit_blocks());
        let end = range.end().saturating_add(unit);
        BlockRange::between(range.start.saturating_sub(unit), end).intersection(volume.component())
    }

    /// Another device may have content in these of its blocks.
    pub fn add_allocated(&mut self, volume: &VolumeDescription, extents: &[BlockRange]) {
        let unit = volume.layout.unit_blocks();
        let near = |extent: &BlockRange| {
            BlockRange::between(extent.start.saturating_sub(unit), extent.end().saturating_add(unit))
        };
        self.allocated.extend(extents.iter().map(near));
    }

    /// The steps that restore the region on a device of the volume.
    pub fn restores(
        self,
        placement: Placement,
        volume: &VolumeDescription,
        device: DeviceId,
    ) -> VecDeque<RecoveryStep> {
        let place = volume.devices.iter().position(|held| *held == device);
        let stripe_runs = self.stripe_runs(volume, place.expect("the device holds a component of the volume"));
        let restore = |stripes| RecoveryStep::Restore { placement, stripes, salvage: false };
        stripe_runs.into_iter().map(restore).collect()
    }

    /// Divides the region into runs of stripes, one for each transaction.
    fn stripe_runs(mut self, volume: &VolumeDescription, position: usize) -> Vec<StripeRun> {
        self.allocated.sort_unstable();
        let mut stripe_runs: Vec<StripeRun> = Vec::new();
        for extent in &self.absent {
            let mut at = extent.start;
            while at < extent.end() {
                let next = self.allocated.iter().find(|run| run.end() > at);
                let moves = next.is_some_and(|run| run.start <= at);
                let end = match next {
                    Some(_) if moves => at + BLOCKS_AT_ONCE,
                    Some(run) => run.start.min(at + HOLES_AT_ONCE),
                    None => at + HOLES_AT_ONCE,
                };
                let end = end.min(extent.end());
                let blocks = stripes_of(volume, position, BlockRange::between(at, end));
                match stripe_runs.last_mut() {
                    // The absent blocks are two parts of one unit.
                    Some(last) if last.blocks.end() >= blocks.end() => {}
                    _ => stripe_runs.push(StripeRun { blocks, weight: end - at, moves }),
                }
                at = end;
            }
        }
        stripe_runs
    }
}

/// The blocks of the volume in all stripes that have units in these blocks of the component at `position`.
fn stripes_of(volume: &VolumeDescription, position: usize, blocks: BlockRange) -> BlockRange {
    let rows = StripeRows::of_component(&volume.layout, position, blocks);
    let stripes = rows.into_iter().map(|rows| rows.stripe).filter(|stripe| *stripe < volume.stripes());
    let (first, last) = stripes.fold((u64::MAX, 0), |(first, last), stripe| (first.min(stripe), last.max(stripe)));
    if first > last {
        return BlockRange::new(0, 0);
    }
    let stripe = volume.layout.stripe_blocks();
    BlockRange::between(first * stripe, (last + 1) * stripe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{DeviceId, VolumeId};
    use braid_layout::{Absence, Layout, RestorePlan};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn volume(scheme: &str, devices: usize, unit: u64, stripes: u64) -> VolumeDescription {
        let layout = Layout::new(scheme.parse().unwrap(), devices, unit).unwrap();
        VolumeDescription::new(
            VolumeId(1),
            stripes * layout.stripe_blocks() * 4096,
            layout,
            (0..devices as u16).map(DeviceId).collect(),
        )
    }

    proptest! {
        /// All absent blocks are restored, whatever the other devices report as allocated; and no transaction is too large.
        #[test]
        fn portions_restore_all_that_is_absent(
            which in 0usize..5, position in 0usize..4, stripes in 1u64..700,
            gaps in prop::collection::vec((1u64..400, 1u64..900), 1..6),
            allocated in prop::collection::vec((0u64..3000, 1u64..500), 0..5),
        ) {
            let (scheme, devices, unit) =
                [("raid5:3+1", 4, 4), ("raid5:2+1", 4, 16), ("raid1:2", 5, 1), ("raid5:2+1", 6, 1), ("raid1:3", 4, 2)][which];
            let volume = volume(scheme, devices, unit, stripes);
            let used = BlockRange::new(0, volume.layout.used_blocks(position, volume.stripes()));
            let mut at = 0;
            let mut absent = Vec::new();
            for (gap, count) in gaps {
                absent.push(BlockRange::new(at + gap, count).intersection(used));
                at += gap + count;
            }
            absent.retain(|extent| !extent.is_empty());
            let mut region = Region::first_of(&absent);
            for (start, count) in allocated {
                region.add_allocated(&volume, &[BlockRange::new(start, count)]);
            }
            let wanted: BTreeSet<u64> = region.absent.iter().flat_map(|extent| extent.blocks()).collect();
            let mut restored = BTreeSet::new();
            for stripes in region.stripe_runs(&volume, position) {
                let plan = RestorePlan::new(&volume.layout, &Absence::none(), position, stripes.blocks).unwrap();
                let shares = plan.map_or(Vec::new(), |plan| plan.shares().to_vec());
                let own = shares.iter().flat_map(|share| &share.prewrites).flat_map(|range| range.blocks());
                let before = restored.len();
                restored.extend(own);
                prop_assert!((restored.len() - before) as u64 <= HOLES_AT_ONCE + 2 * unit);
            }
            prop_assert!(wanted.is_subset(&restored));
        }
    }
}
