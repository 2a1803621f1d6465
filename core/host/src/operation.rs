//! What a front end asked for: its plan, and how its attempts have gone so far.

use braid_base::limits;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, Time};
use braid_layout::{Absence, CheckPlan, New, Old, ReadPlan, ReconstructPlan, Share, VolumeDescription, WritePlan};
use braid_machine::{HostError, HostRequest, HostSuccess, OpId};
use braid_wire::{Linkage, Want};
use std::rc::Rc;

/// A request of a front end that is not yet answered.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Whom to answer.
    pub op: OpId,
    /// On which volume.
    pub volume: Rc<VolumeDescription>,
    /// What to do.
    pub work: Rc<Work>,
    /// When it was asked.
    pub since: Time,
    /// How often in a row it was refused.
    pub refusals: u32,
    /// Its transaction under way, by sequence; none while it backs off.
    pub attempt: Option<u64>,
    /// Whether somebody was in the way of any of its attempts.
    pub delayed: bool,
}

/// What is to be done, and by which plan.
#[derive(Clone, Debug)]
pub enum Work {
    /// Bring bytes.
    Read(ReadPlan),
    /// Tell where there is data.
    Allocation(BlockRange, ReadPlan),
    /// Compare parity with data.
    Check(CheckPlan),
    /// Compute blocks from the others of their stripe.
    Reconstruct(ReconstructPlan),
    /// Put bytes.
    Write(WritePlan, New),
}

impl Work {
    /// The plan for a request about `volume`; `None` for one that is no storage transaction.
    pub fn plan(volume: &VolumeDescription, request: HostRequest) -> Option<Result<Work, HostError>> {
        let (layout, absence) = (&volume.layout, &Absence::none());
        let there = "nothing is away";
        let fits = |offset: u64, length: u64| match offset.checked_add(length) {
            Some(end) if end <= volume.bytes => Ok(()),
            _ => Err(HostError::OutOfRange),
        };
        let moves = |length: usize| match length {
            0..=limits::TRANSACTION_BYTES_MAX => Ok(()),
            _ => Err(HostError::OutOfRange),
        };
        let work = match request {
            HostRequest::Read { offset, length, .. } => moves(length)
                .and_then(|()| fits(offset, length as u64))
                .map(|()| Work::Read(ReadPlan::new(layout, absence, offset, length as u64).expect(there))),
            HostRequest::Write { offset, data, .. } => moves(data.len())
                .and_then(|()| fits(offset, data.len() as u64))
                .map(|()| WritePlan::new(layout, absence, offset, data.len() as u64).expect(there))
                .map(|plan| Work::Write(plan, New::Data(data))),
            HostRequest::Zero { offset, length, .. } => fits(offset, length)
                .map(|()| WritePlan::new(layout, absence, offset, length).expect(there))
                .map(|plan| Work::Write(plan, New::Zeros)),
            HostRequest::Allocation { range, .. } => {
                let block = BLOCK_BYTES as u64;
                let offset = range.start.saturating_mul(block);
                fits(offset, range.count.saturating_mul(block)).map(|()| Work::allocation(volume, range))
            }
            HostRequest::Check { stripe, .. } if stripe < volume.stripes() => {
                Ok(Work::Check(CheckPlan::new(layout, absence, stripe).expect(there)))
            }
            HostRequest::Check { .. } => Err(HostError::OutOfRange),
            HostRequest::Reconstruct { offset, length, .. } => fits(offset, length as u64).and_then(|()| {
                let plan = ReconstructPlan::new(layout, absence, offset, length as u64);
                let plan = plan.map_err(|_| HostError::OutOfRange)?;
                Ok(Work::Reconstruct(plan))
            }),
            HostRequest::AdoptVolume { .. }
            | HostRequest::DropVolume { .. }
            | HostRequest::Flush { .. }
            | HostRequest::Manage { .. } => return None,
        };
        Some(work.and_then(|work| {
            let listed = |share: &Share| share.reads.len().max(share.prewrites.len()) <= limits::EXTENTS_MAX;
            if work.shares().iter().all(listed) { Ok(work) } else { Err(HostError::OutOfRange) }
        }))
    }

    /// The plan to tell where `range` has data.
    pub fn allocation(volume: &VolumeDescription, range: BlockRange) -> Work {
        let block = BLOCK_BYTES as u64;
        let plan = ReadPlan::new(&volume.layout, &Absence::none(), range.start * block, range.count * block);
        Work::Allocation(range, plan.expect("nothing is away"))
    }

    /// What each device has to do.
    pub fn shares(&self) -> &[Share] {
        match self {
            Work::Read(plan) | Work::Allocation(_, plan) => plan.shares(),
            Work::Check(plan) => plan.shares(),
            Work::Reconstruct(plan) => plan.shares(),
            Work::Write(plan, _) => plan.shares(),
        }
    }

    /// What its reads are to bring.
    pub fn want(&self) -> Want {
        if matches!(self, Work::Allocation(..)) { Want::Allocation } else { Want::Data }
    }

    /// The hostwrite's extent, for the headers of its blocks (shared array, section 5).
    pub fn linkage(&self) -> Linkage {
        match self {
            Work::Write(plan, _) => {
                let blocks = plan.blocks();
                Linkage { first: blocks.start, last: blocks.end() - 1 }
            }
            _ => unreachable!("only writes leave linkage records"),
        }
    }

    /// True if it changes anything.
    pub fn writes(&self) -> bool {
        matches!(self, Work::Write(..))
    }

    /// The result, from what was read; for work that only reads.
    pub fn result(&self, old: &Old) -> HostSuccess {
        match self {
            Work::Read(plan) => HostSuccess::Data(plan.assemble(old)),
            Work::Allocation(_, plan) => HostSuccess::Allocation(plan.allocation(old)),
            Work::Check(plan) => HostSuccess::Checked { matches: plan.matches(old) },
            Work::Reconstruct(plan) => HostSuccess::Data(plan.compute(old)),
            Work::Write(..) => HostSuccess::Done,
        }
    }
}

/// A share with the device that stands at its position.
pub fn devices_of(volume: &VolumeDescription, shares: &[Share]) -> Vec<DeviceId> {
    shares.iter().map(|share| volume.device_at(share.position)).collect()
}
