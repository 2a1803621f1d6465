//! Requests to attribute volumes: each is one storage transaction on one bucket of a volume (`docs/attribute-volumes.md`).
//!
//! ```text
//!   request ─► read and pre-write the bucket ─► work it out ─┬─► write the blocks that change ─► committed: the results
//!                                                            └─► nothing to write, or refused: the pre-writes are given back
//! ```
//!
//! What can only ask is read as any hostread is. All that may go wrong goes wrong as with hostwrites, and is tried again as they are: once what
//! was tried before is known to have left nothing.

use crate::work::{Conclusion, Work, unavailable};
use braid_base::{BLOCK_BYTES, BlockRange};
use braid_layout::{Absences, Old, ReadPlan, Share, UpdatePlan, VolumeDescription};
use braid_machine::{HostError, HostSuccess};
use braid_objects::BucketAddress;
use braid_objects::attribute_volume::{Effect, buckets, carry_out, place_of};
use braid_objects::bucket::{BUCKET_BLOCKS, Blocks};
use braid_wire::{Content, ObjectFailure, ObjectRefusal, ObjectRequest, Piece, WriteMode};
use std::collections::BTreeSet;

/// A request to an attribute volume, and how its bucket is read and written.
#[derive(Clone, Debug)]
pub struct BucketWork {
    request: ObjectRequest,
    place: BucketAddress,
    plan: BucketPlan,
}

#[derive(Clone, Debug)]
enum BucketPlan {
    /// It changes nothing, whatever is there.
    Asks(ReadPlan),
    Changes(Box<UpdatePlan>),
}

impl BucketWork {
    /// The plan for a request to `volume`, with these devices unavailable.
    pub(crate) fn plan(
        volume: &VolumeDescription,
        absences: &Absences,
        request: &ObjectRequest,
    ) -> Result<Work, HostError> {
        // A bucket that is seen in part, or is there in part after a crash, would be worth nothing.
        if volume.mode() != WriteMode::Intent {
            return Err(HostError::Objects(ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume }));
        }
        let place = place_of(request, buckets(volume.blocks())).map_err(HostError::Objects)?;
        let blocks = blocks_of(place);
        let plan = if request.only_asks() {
            let (offset, length) = (blocks.start * BLOCK_BYTES as u64, blocks.count * BLOCK_BYTES as u64);
            ReadPlan::new(&volume.layout, &absences.own, offset, length).map(BucketPlan::Asks)
        } else {
            UpdatePlan::new(volume, absences, blocks).map(|plan| BucketPlan::Changes(Box::new(plan)))
        };
        let plan = plan.map_err(|missing| unavailable(volume, &missing.positions))?;
        Ok(Work::AttributeVolume(BucketWork { request: request.clone(), place, plan }))
    }

    /// What each device has to do.
    pub fn shares(&self) -> &[Share] {
        match &self.plan {
            BucketPlan::Asks(plan) => plan.shares(),
            BucketPlan::Changes(plan) => plan.shares(),
        }
    }

    /// The volume's blocks that it may change.
    pub fn blocks(&self) -> BlockRange {
        blocks_of(self.place)
    }

    /// True if it may change anything.
    pub fn writes(&self) -> bool {
        matches!(self.plan, BucketPlan::Changes(_))
    }

    /// What is to be written, or answered, by what the bucket holds.
    pub(crate) fn conclude(&self, old: &Old) -> Conclusion {
        let (before, plan) = match &self.plan {
            BucketPlan::Asks(plan) => (plan.pieces(old), None),
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

    /// Pieces that cover the bucket, block by block.
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

    /// The other way round, in as few pieces as it takes.
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
