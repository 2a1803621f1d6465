//! Requests to attribute volumes. Each is one storage transaction on one bucket of a volume
//! (`docs/attribute-volumes.md`).
//!
//! ```text
//!   request ─► read and pre-write the bucket ─► execute it ─┬─► write the blocks that change ─► committed: the results
//!                                                           └─► nothing to write, or refused: the pre-writes are aborted
//! ```
//!
//! A request that only asks is executed as a hostread. Failures are handled as for hostwrites. A request is retried
//! only when its earlier attempt is known to have had no effect.

use crate::work::{Conclusion, Work, unavailable};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_blocks::{Content, Piece};
use braid_layout::{Absences, Old, ReadPlan, Share, UpdatePlan, VolumeDescription};
use braid_machine::{HostError, HostSuccess};
use braid_objects::BucketAddress;
use braid_objects::attribute_volume::{Effect, buckets, carry_out, place_of};
use braid_objects::bucket::{BUCKET_BLOCKS, Blocks};
use braid_ordering::WriteMode;
use braid_wire::{ObjectFailure, ObjectRefusal, ObjectRequest};
use std::collections::BTreeSet;

/// A request to an attribute volume, and the plan to read and write its bucket.
#[derive(Clone, Debug)]
pub struct BucketWork {
    request: ObjectRequest,
    place: BucketAddress,
    plan: BucketPlan,
}

#[derive(Clone, Debug)]
enum BucketPlan {
    /// The request changes nothing, whatever the bucket holds.
    Reads(ReadPlan),
    Changes(Box<UpdatePlan>),
}

impl BucketWork {
    /// Plans a request to `volume` with these devices missing.
    pub(crate) fn plan(
        volume: &VolumeDescription,
        absences: &Absences,
        request: &ObjectRequest,
    ) -> Result<Work, HostError> {
        // Buckets need intents: a bucket that is seen in part, or is written in part after a crash, is useless.
        if volume.mode() != WriteMode::Intent {
            return Err(HostError::Objects(ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume }));
        }
        let place = place_of(request, buckets(volume.blocks())).map_err(HostError::Objects)?;
        let blocks = blocks_of(place);
        let plan = if request.only_asks() {
            let (offset, length) = (blocks.start * BLOCK_BYTES as u64, blocks.count * BLOCK_BYTES as u64);
            ReadPlan::new(&volume.layout, &absences.own, offset, length).map(BucketPlan::Reads)
        } else {
            UpdatePlan::new(volume, absences, blocks).map(|plan| BucketPlan::Changes(Box::new(plan)))
        };
        let plan = plan.map_err(|missing| unavailable(volume, &missing.positions))?;
        Ok(Work::AttributeVolume(BucketWork { request: request.clone(), place, plan }))
    }

    /// The share of each device.
    pub fn shares(&self) -> &[Share] {
        match &self.plan {
            BucketPlan::Reads(plan) => plan.shares(),
            BucketPlan::Changes(plan) => plan.shares(),
        }
    }

    /// The blocks of the volume that the request may change.
    pub fn blocks(&self) -> BlockRange {
        blocks_of(self.place)
    }

    pub fn writes(&self) -> bool {
        matches!(self.plan, BucketPlan::Changes(_))
    }

    /// Executes the request on the content of the bucket: returns what to write or to answer.
    pub(crate) fn conclude(&self, old: &Old) -> Conclusion {
        let (before, plan) = match &self.plan {
            BucketPlan::Reads(plan) => (plan.pieces(old), None),
            BucketPlan::Changes(plan) => (plan.before(old), Some(plan)),
        };
        let before = self.cut(before);
        match (carry_out(&self.request, self.place, &before), plan) {
            (Effect::Nothing(answer), _) => {
                Conclusion::Answer(answer.map(HostSuccess::Objects).map_err(HostError::Objects))
            }
            (Effect::Write(after, results), Some(plan)) => {
                let differs = |index: &usize| before[*index] != after[*index];
                let start = self.blocks().start;
                let changed: BTreeSet<u64> =
                    (0..BUCKET_BLOCKS).filter(differs).map(|index| start + index as u64).collect();
                Conclusion::Write(plan.compute(self.pieces(&after), &changed, old), HostSuccess::Objects(results))
            }
            (Effect::Write(..), None) => unreachable!("what only asks changes nothing"),
        }
    }

    /// Cuts pieces that cover the bucket into blocks.
    fn cut(&self, pieces: Vec<Piece>) -> Blocks {
        let mut blocks = Blocks::default();
        for Piece { range, content } in pieces {
            let Content::Data(mut data) = content else { continue };
            for block in range.blocks() {
                blocks[(block - self.blocks().start) as usize] = Some(data.split_to(BLOCK_BYTES));
            }
        }
        blocks
    }

    /// Joins blocks to as few pieces as possible.
    fn pieces(&self, blocks: &Blocks) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut start = self.blocks().start;
        for run in blocks.chunk_by(|one, next| one.is_some() == next.is_some()) {
            let range = BlockRange::new(start, run.len() as u64);
            let content = match run {
                [None, ..] => Content::Hole,
                [Some(block)] => Content::Data(block.clone()),
                run => Content::Data(run.iter().flatten().flatten().copied().collect()),
            };
            pieces.push(Piece { range, content });
            start = range.end();
        }
        pieces
    }
}

fn blocks_of(place: BucketAddress) -> BlockRange {
    BlockRange::new(place.bucket * BUCKET_BLOCKS as u64, BUCKET_BLOCKS as u64)
}
