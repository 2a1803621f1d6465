//! The work for an operation: its plan, and what follows from the content that was read.

use crate::attribute_volume::BucketWork;
use braid_base::limits;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId, TransactionId};
use braid_blocks::{Linkage, Piece, Want};
use braid_layout::{
    Absences, CheckPlan, CrossCheckPlan, Methods, MovePlan, New, Old, ReadPlan, RecomputePlan, ReconstructError,
    ReconstructPlan, RestorePlan, Share, StripeRows, Unavailable, VolumeDescription, WritePlan,
};
use braid_machine::{HostError, HostOutcome, HostRequest, HostSuccess, JobRequest, ObjectsRequest, VolumeRequest};
use braid_membership::client::MembershipView;
use std::collections::BTreeSet;

/// The work for an operation, with its plan.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Read(ReadPlan),
    /// Find out which blocks hold data.
    Allocation(ReadPlan),
    /// Compare parity with data.
    Check(CheckPlan),
    /// Compute blocks from the others of their stripes.
    Reconstruct(ReconstructPlan),
    Write(WritePlan, New),
    /// Write bytes to the volume's old and new place during a migration; or copy, without new bytes.
    Move(MovePlan, New),
    /// Write to a device what it missed. `None` if it missed nothing here.
    Restore(Option<RestorePlan>),
    /// Find out whether a transaction is complete. The flag: it is known to have written.
    CrossCheck(CrossCheckPlan, TransactionId, bool),
    /// Recompute redundancy. `None` if there is none to write.
    Recompute(Option<RecomputePlan>),
    /// Execute a request to an attribute volume.
    AttributeVolume(BucketWork),
}

/// What follows once everything is read.
#[derive(Clone, Debug)]
pub(crate) enum Conclusion {
    /// The pieces for each device that writes, and the answer once they are written.
    Write(Vec<(usize, Vec<Piece>)>, HostSuccess),
    /// There is nothing to write.
    Answer(HostOutcome),
}

impl Work {
    /// Plans a request about `volume`, with these devices missing. `None` for a request that is not a storage
    /// transaction.
    pub fn plan(
        volume: &VolumeDescription,
        absences: &Absences,
        request: &HostRequest,
    ) -> Option<Result<Work, HostError>> {
        let (layout, absence) = (&volume.layout, &absences.own);
        let block = BLOCK_BYTES as u64;
        let fits = |offset: u64, length: u64| match offset.checked_add(length) {
            Some(end) if end <= volume.bytes => Ok(()),
            _ => Err(HostError::OutOfRange),
        };
        let moves = |length: usize| match length {
            0..=limits::TRANSACTION_BYTES_MAX => Ok(()),
            _ => Err(HostError::OutOfRange),
        };
        let missing = |Unavailable { positions }: Unavailable| unavailable(volume, &positions);
        let read = |offset, length| ReadPlan::new(layout, absence, offset, length).map_err(missing);
        let write = |offset, length, new| match volume.moving {
            None => WritePlan::new(layout, absence, offset, length).map(|plan| Work::Write(plan, new)).map_err(missing),
            Some(_) => {
                MovePlan::write(volume, absences, offset, length).map(|plan| Work::Move(plan, new)).map_err(missing)
            }
        };
        let work =
            match request {
                HostRequest::Volume(VolumeRequest::Read { offset, length, .. }) => moves(*length)
                    .and_then(|()| fits(*offset, *length as u64))
                    .and_then(|()| read(*offset, *length as u64))
                    .map(Work::Read),
                HostRequest::Volume(VolumeRequest::Write { offset, data, .. }) => moves(data.len())
                    .and_then(|()| fits(*offset, data.len() as u64))
                    .and_then(|()| write(*offset, data.len() as u64, New::Data(data.clone()))),
                HostRequest::Volume(VolumeRequest::Zero { offset, length, .. }) => {
                    fits(*offset, *length).and_then(|()| write(*offset, *length, New::Zeros))
                }
                HostRequest::Volume(VolumeRequest::Allocation { range, .. }) => {
                    let (offset, length) = (range.start.saturating_mul(block), range.count.saturating_mul(block));
                    fits(offset, length).and_then(|()| read(offset, length)).map(Work::Allocation)
                }
                HostRequest::Job(JobRequest::Check { stripe, .. }) if *stripe < volume.stripes() => {
                    CheckPlan::new(layout, absence, *stripe).map_err(missing).map(Work::Check)
                }
                HostRequest::Job(JobRequest::CheckRows { rows, .. }) if exists(volume, rows) => {
                    CheckPlan::of_rows(layout, absence, *rows).map_err(missing).map(Work::Check)
                }
                HostRequest::Job(JobRequest::CheckRows { .. }) | HostRequest::Job(JobRequest::Check { .. }) => {
                    Err(HostError::OutOfRange)
                }
                HostRequest::Job(JobRequest::Reconstruct { offset, length, .. }) => fits(*offset, *length as u64)
                    .and_then(|()| match ReconstructPlan::new(layout, absence, *offset, *length as u64) {
                        Ok(plan) => Ok(Work::Reconstruct(plan)),
                        Err(ReconstructError::Unavailable(unavailable)) => Err(missing(unavailable)),
                        Err(_) => Err(HostError::OutOfRange),
                    }),
                HostRequest::Job(JobRequest::Copy { .. }) if volume.moving.is_none() => Err(HostError::NotMoving),
                HostRequest::Job(JobRequest::Copy { blocks, .. }) => {
                    let (offset, length) = (blocks.start.saturating_mul(block), blocks.count.saturating_mul(block));
                    let within = fits(offset, length).and_then(|()| moves(length as usize));
                    within.and_then(|()| {
                        let plan = MovePlan::copy(volume, absences, *blocks).map_err(missing)?;
                        Ok(Work::Move(plan, New::Pieces(Vec::new())))
                    })
                }
                HostRequest::Job(JobRequest::Restore { device, blocks, salvage, .. }) => {
                    match volume.devices.iter().position(|held| held == device) {
                        Some(position) if blocks.end() <= volume.stripes() * layout.stripe_blocks() => {
                            let want = if *salvage { Want::Salvage } else { Want::Data };
                            let plan = RestorePlan::wanting(want, layout, absence, position, *blocks);
                            plan.map_err(missing).map(Work::Restore)
                        }
                        _ => Err(HostError::OutOfRange),
                    }
                }
                HostRequest::Job(JobRequest::CrossCheck { rows, transaction, known, .. }) if exists(volume, rows) => {
                    let plan = CrossCheckPlan::new(layout, absence, *rows).map_err(missing);
                    plan.map(|plan| Work::CrossCheck(plan, *transaction, *known))
                }
                HostRequest::Job(JobRequest::Recompute { rows, .. }) if exists(volume, rows) => {
                    RecomputePlan::new(layout, absence, *rows).map_err(missing).map(Work::Recompute)
                }
                HostRequest::Job(JobRequest::CrossCheck { .. }) | HostRequest::Job(JobRequest::Recompute { .. }) => {
                    Err(HostError::OutOfRange)
                }
                HostRequest::Objects(ObjectsRequest::ExecuteOnVolume { request, .. }) => {
                    BucketWork::plan(volume, absences, request)
                }
                HostRequest::Volume(VolumeRequest::Flush { .. })
                | HostRequest::Objects(ObjectsRequest::Execute { .. } | ObjectsRequest::Await { .. })
                | HostRequest::Array(_)
                | HostRequest::Ranges(_)
                | HostRequest::Job(JobRequest::Scrub { .. } | JobRequest::Migrate { .. }) => return None,
            };
        Some(work.and_then(|work| {
            let listed = |share: &Share| share.reads.len().max(share.prewrites.len()) <= limits::EXTENTS_MAX;
            if work.shares().iter().all(listed) { Ok(work) } else { Err(HostError::OutOfRange) }
        }))
    }

    /// The share of each device.
    pub fn shares(&self) -> &[Share] {
        match self {
            Work::Read(plan) | Work::Allocation(plan) => plan.shares(),
            Work::Check(plan) => plan.shares(),
            Work::Reconstruct(plan) => plan.shares(),
            Work::Write(plan, _) => plan.shares(),
            Work::Move(plan, _) => plan.shares(),
            Work::Restore(plan) => plan.as_ref().map_or(&[], |plan| plan.shares()),
            Work::CrossCheck(plan, ..) => plan.shares(),
            Work::Recompute(plan) => plan.as_ref().map_or(&[], |plan| plan.shares()),
            Work::AttributeVolume(work) => work.shares(),
        }
    }

    /// The kind of content that its reads ask for.
    pub fn want(&self) -> Want {
        match self {
            Work::Allocation(..) => Want::Allocation,
            Work::CrossCheck(..) => Want::Linkage,
            Work::Restore(Some(plan)) => plan.want(),
            _ => Want::Data,
        }
    }

    /// The number of bands of a hostwrite, by method.
    pub(crate) fn methods(&self) -> Methods {
        match self {
            Work::Write(plan, _) => plan.methods(),
            Work::Move(plan, _) => plan.methods(),
            _ => Methods::default(),
        }
    }

    /// The extent of the hostwrite, for the headers of its blocks (shared-array paper, section 5).
    pub fn linkage(&self) -> Linkage {
        let blocks = match self {
            Work::Write(plan, _) => plan.blocks(),
            Work::Move(plan, _) => plan.blocks(),
            Work::Restore(Some(plan)) => plan.blocks(),
            Work::Recompute(Some(plan)) => plan.blocks(),
            Work::AttributeVolume(work) => work.blocks(),
            _ => unreachable!("only writes leave linkage records"),
        };
        Linkage { first: blocks.start, last: blocks.end() - 1 }
    }

    /// Concludes the work, once everything is read: returns what to write or to answer.
    pub(crate) fn conclude(&self, old: &Old) -> Conclusion {
        match self {
            Work::AttributeVolume(work) => work.conclude(old),
            work if work.writes() => Conclusion::Write(work.compute(old), HostSuccess::Done),
            work => Conclusion::Answer(Ok(work.result(old))),
        }
    }

    /// The pieces to write, by device, computed from what was read. Only for work that writes.
    fn compute(&self, old: &Old) -> Vec<(usize, Vec<Piece>)> {
        match self {
            Work::Write(plan, new) => plan.compute(new, old),
            Work::Move(plan, new) => plan.compute(new, old),
            Work::Restore(Some(plan)) => plan.compute(old),
            Work::Recompute(Some(plan)) => plan.compute(old),
            _ => unreachable!("this work writes nothing"),
        }
    }

    pub fn writes(&self) -> bool {
        match self {
            Work::Write(..) | Work::Move(..) | Work::Restore(Some(_)) | Work::Recompute(Some(_)) => true,
            Work::AttributeVolume(work) => work.writes(),
            _ => false,
        }
    }

    /// The result, from what was read. Only for work that only reads.
    pub fn result(&self, old: &Old) -> HostSuccess {
        match self {
            Work::Read(plan) => HostSuccess::Data(plan.assemble(old)),
            Work::Allocation(plan) => HostSuccess::Allocation(plan.allocation(old)),
            Work::Check(plan) => HostSuccess::Checked { matches: plan.matches(old) },
            Work::Reconstruct(plan) => HostSuccess::Data(plan.compute(old)),
            Work::CrossCheck(plan, transaction, known) => {
                HostSuccess::Checked { matches: plan.is_whole(old, *transaction, *known) }
            }
            Work::Write(..) | Work::Move(..) | Work::Restore(_) | Work::Recompute(_) => HostSuccess::Done,
            Work::AttributeVolume(_) => unreachable!("a bucket is always read"),
        }
    }
}

fn exists(volume: &VolumeDescription, rows: &StripeRows) -> bool {
    let unit = BlockRange::new(0, volume.layout.unit_blocks());
    rows.stripe < volume.stripes() && !rows.rows.is_empty() && unit.contains(rows.rows)
}

/// The error that these devices of the volume are unavailable.
pub(crate) fn unavailable(volume: &VolumeDescription, positions: &[usize]) -> HostError {
    HostError::Unavailable { devices: positions.iter().map(|position| volume.device_at(*position)).collect() }
}

/// Plans a request for an array in which no device is missing.
#[cold]
#[inline(never)]
pub(crate) fn plan_whole(volume: &VolumeDescription, request: &HostRequest) -> Result<Work, HostError> {
    Work::plan(volume, &Absences::default(), request).expect("it is a storage transaction")
}

/// Plans a request for the present membership, without the blocks that `damaged` devices have lost.
pub(crate) fn plan(
    view: &MembershipView,
    volume: &VolumeDescription,
    request: &HostRequest,
    damaged: &BTreeSet<DeviceId>,
) -> Result<Work, HostError> {
    let plan = |mut absences: Absences| {
        for ((_, devices), absence) in volume.placements().zip([&mut absences.own, &mut absences.target]) {
            let position = |device: &DeviceId| devices.iter().position(|held| held == device);
            damaged.iter().filter_map(position).for_each(|position| absence.stale(position));
        }
        Work::plan(volume, &absences, request).expect("it is a storage transaction")
    };
    let work = plan(view.absences(volume, false));
    if view.unavailable().is_empty() {
        return work;
    }
    let work = work?;
    let touched = work.shares().iter().map(|share| volume.device_at(share.position));
    let devices: Vec<_> = touched.filter(|device| view.unavailable().contains(device)).collect();
    if devices.is_empty() {
        Ok(work)
    } else if work.writes() {
        Err(HostError::Unavailable { devices })
    } else {
        plan(view.absences(volume, true))
    }
}
