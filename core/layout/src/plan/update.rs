//! An update is a write whose new content depends on the old: it reads some whole blocks, and then writes those of them that change, in
//! one transaction.
//!
//! All of the blocks are pre-written, with their redundancy, because it is not known yet which of them will change.

use super::moving::MovePlan;
use super::old::Old;
use super::read::ReadPlan;
use super::write::{New, WritePlan};
use super::{Share, Shares};
use crate::{Absences, Layout, Unavailable, UnitAddress, VolumeDescription};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::Piece;
use std::collections::{BTreeMap, BTreeSet};

/// The plan of an update: what to read, what to write, and how the result is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdatePlan {
    read: ReadPlan,
    write: Write,
    shares: Vec<Share>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Here(Layout, WritePlan),
    /// To the present and to the new location of the volume.
    Moving(MovePlan),
}

impl UpdatePlan {
    /// An update of some blocks of the volume, at least one.
    pub fn new(volume: &VolumeDescription, absences: &Absences, blocks: BlockRange) -> Result<UpdatePlan, Unavailable> {
        let (offset, length) = (blocks.start * BLOCK_BYTES as u64, blocks.count * BLOCK_BYTES as u64);
        let read = ReadPlan::new(&volume.layout, &absences.own, offset, length)?;
        let write = match volume.moving {
            None => Write::Here(volume.layout, WritePlan::new(&volume.layout, &absences.own, offset, length)?),
            Some(_) => Write::Moving(MovePlan::write(volume, absences, offset, length)?),
        };
        let mut shares = Shares(match &write {
            Write::Here(_, plan) => plan.shares().to_vec(),
            Write::Moving(plan) => plan.shares().to_vec(),
        });
        for share in read.shares() {
            for range in &share.reads {
                shares.read(UnitAddress { position: share.position, block: range.start }, range.count);
            }
        }
        Ok(UpdatePlan { read, write, shares: shares.0 })
    }

    /// The work of each device. All devices that are read for the write itself, or that write, have pre-writes.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The volume's blocks that it may change.
    pub fn blocks(&self) -> BlockRange {
        match &self.write {
            Write::Here(_, plan) => plan.blocks(),
            Write::Moving(plan) => plan.blocks(),
        }
    }

    /// The old content of its blocks, as pieces that cover them in order, in blocks of the volume.
    pub fn before(&self, old: &Old) -> Vec<Piece> {
        self.read.pieces(old)
    }

    /// The pieces that each device writes, if the new content of the blocks is `after`: pieces that cover them in order. `changed` are
    /// the blocks whose content changes. Each device with pre-writes writes at least one block, because every participant must have an
    /// intent.
    pub fn compute(&self, after: Vec<Piece>, changed: &BTreeSet<u64>, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        let new = New::Pieces(after);
        match &self.write {
            Write::Moving(plan) => plan.compute(&new, old),
            Write::Here(layout, plan) => {
                let needed = rows_of(layout, changed);
                let all = plan.compute(&new, old).into_iter();
                all.map(|(position, pieces)| (position, narrowed(pieces, needed.get(&position)))).collect()
            }
        }
    }
}

/// The blocks, by position, of all rows that contain any of these blocks of the volume.
fn rows_of(layout: &Layout, blocks: &BTreeSet<u64>) -> BTreeMap<usize, BTreeSet<u64>> {
    let mut rows: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for block in blocks {
        let (stripe, row) = (block / layout.stripe_blocks(), block % layout.unit_blocks());
        let data = (0..layout.data_units()).map(|unit| layout.data_unit(stripe, unit));
        let redundancy = (0..layout.redundancy_units()).map(|unit| layout.redundancy_unit(stripe, unit));
        for place in data.chain(redundancy) {
            rows.entry(place.position).or_default().insert(place.block + row);
        }
    }
    rows
}

/// The parts of a device's pieces that are among these blocks; its first block, if none are.
fn narrowed(pieces: Vec<Piece>, needed: Option<&BTreeSet<u64>>) -> Vec<Piece> {
    let is_needed = |block: &u64| needed.is_some_and(|needed| needed.contains(block));
    let mut kept: Vec<Piece> = Vec::new();
    for piece in &pieces {
        let mut run: Option<BlockRange> = None;
        for block in piece.range.blocks().filter(is_needed) {
            match &mut run {
                Some(run) if run.end() == block => run.count += 1,
                _ => kept.extend(run.replace(BlockRange::new(block, 1)).map(|run| piece.clip(run))),
            }
        }
        kept.extend(run.map(|run| piece.clip(run)));
    }
    if kept.is_empty() {
        kept.extend(pieces.first().map(|first| first.clip(BlockRange::new(first.range.start, 1))));
    }
    kept
}
