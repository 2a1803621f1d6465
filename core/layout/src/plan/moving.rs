//! Plans of a migrating volume: each write goes to the present and to the new location, and existing content is copied to the new one.
//! Each plan is one transaction, so that a hostwrite takes effect in both locations or in neither.
//!
//! Each location has a plan of its own. A device that is on both rings has both components as different blocks of one object, and
//! therefore one share. The new location receives whole blocks, as they are after the hostwrite at the present location; its own old
//! content is only read to update its redundancy, which always matches what was copied so far.

use super::old::Old;
use super::read::ReadPlan;
use super::write::{New, WritePlan};
use super::{Methods, Share};
use crate::{Absences, Unavailable, VolumeDescription};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::Piece;

/// The plan of a hostwrite to a migrating volume, or of copying some of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovePlan {
    source: Source,
    target: WritePlan,
    /// For each position of the target's ring, the position among all holders.
    positions: Vec<usize>,
    shares: Vec<Share>,
}

/// Where the content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Write(WritePlan),
    Copy(ReadPlan),
}

impl MovePlan {
    /// A write of `length` bytes at `offset`, within the volume, which must be migrating.
    pub fn write(
        volume: &VolumeDescription,
        absences: &Absences,
        offset: u64,
        length: u64,
    ) -> Result<MovePlan, Unavailable> {
        let plan = WritePlan::new(&volume.layout, &absences.own, offset, length)?;
        MovePlan::new(volume, absences, plan.blocks(), Source::Write(plan))
    }

    /// Copies blocks of the volume, which must be migrating.
    pub fn copy(volume: &VolumeDescription, absences: &Absences, blocks: BlockRange) -> Result<MovePlan, Unavailable> {
        let bytes = BLOCK_BYTES as u64;
        let plan = ReadPlan::new(&volume.layout, &absences.own, blocks.start * bytes, blocks.count * bytes)?;
        MovePlan::new(volume, absences, blocks, Source::Copy(plan))
    }

    fn new(
        volume: &VolumeDescription,
        absences: &Absences,
        blocks: BlockRange,
        source: Source,
    ) -> Result<MovePlan, Unavailable> {
        let layout = &volume.moving.as_ref().expect("the volume is migrating").layout;
        let positions = volume.target_positions();
        let bytes = BLOCK_BYTES as u64;
        let target = WritePlan::new(layout, &absences.target, blocks.start * bytes, blocks.count * bytes);
        let target = target.map_err(|unavailable| Unavailable {
            positions: unavailable.positions.into_iter().map(|position| positions[position]).collect(),
        })?;
        let mut shares = match &source {
            Source::Write(plan) => plan.shares().to_vec(),
            Source::Copy(plan) => plan.shares().to_vec(),
        };
        for share in target.shares() {
            let position = positions[share.position];
            match shares.binary_search_by_key(&position, |held| held.position) {
                Err(index) => shares.insert(index, Share { position, ..share.clone() }),
                Ok(index) => {
                    let held = &mut shares[index];
                    for (ranges, more) in [(&mut held.prewrites, &share.prewrites), (&mut held.reads, &share.reads)] {
                        // The two components are disjoint: one is entirely after the other.
                        ranges.extend(more);
                        ranges.sort_unstable();
                    }
                }
            }
        }
        Ok(MovePlan { source, target, positions, shares })
    }

    /// The work of each holder.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks that the plan touches.
    pub fn blocks(&self) -> BlockRange {
        self.target.blocks()
    }

    /// How many bands use each method, in both locations.
    pub fn methods(&self) -> Methods {
        let mut sum = self.target.methods();
        if let Source::Write(plan) = &self.source {
            let more = plan.methods();
            (sum.full, sum.large, sum.small) = (sum.full + more.full, sum.large + more.large, sum.small + more.small);
        }
        sum
    }

    /// The pieces that each holder writes, in both locations. For a copy, `new` is ignored.
    pub fn compute(&self, new: &New, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        let (mut all, content) = match &self.source {
            Source::Write(plan) => (plan.compute(new, old), plan.content(new, old)),
            Source::Copy(plan) => (Vec::new(), plan.pieces(old)),
        };
        for (position, pieces) in self.target.compute(&New::Pieces(content), &old.seen_from(&self.positions)) {
            let position = self.positions[position];
            match all.binary_search_by_key(&position, |(held, _)| *held) {
                Err(index) => all.insert(index, (position, pieces)),
                Ok(index) => {
                    let held = &mut all[index].1;
                    held.extend(pieces);
                    held.sort_by_key(|piece| piece.range.start);
                }
            }
        }
        all
    }
}
