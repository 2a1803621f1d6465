//! The steps of jobs: an enum for each kind of job, and the host request that executes each step.

use crate::placements::Placement;
use crate::stripe_run::StripeRun;
use braid_base::{BlockRange, DeviceId, TransactionId, VolumeId};
use braid_layout::StripeRows;
use braid_machine::{ArrayRequest, HostRequest, JobRequest, OpId};
use braid_wire::Task;

/// A step, with the job that it belongs to.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Recovery(DeviceId, RecoveryStep),
    Resync(Interrupted),
    /// With the number of attempts before.
    Scrub(ScrubId, ScrubStep, u32),
    Migration(OpId, MigrationStep),
}

/// A step of a recovery, at its coordinator or at a rebuild worker.
#[derive(Clone, Debug)]
pub(crate) enum RecoveryStep {
    /// Lists the objects of a device.
    Survey { of: DeviceId },
    /// Makes the returning device create, change or remove an object.
    Object(Task),
    /// Asks another device what the returning device missed.
    List { volume: VolumeId, of: DeviceId, from: u64 },
    /// Asks the returning device which blocks are absent.
    Absent { placement: Placement, from: u64 },
    /// Asks another device which of its blocks have content.
    Allocated { placement: Placement, of: DeviceId, range: BlockRange },
    /// Restores blocks of the volume. With `salvage`, blocks that can't be restored are written as lost.
    Restore { placement: Placement, stripes: StripeRun, salvage: bool },
}

impl RecoveryStep {
    /// The host request that executes the step.
    pub fn request(&self, device: DeviceId) -> HostRequest {
        let manage = |device, task| ArrayRequest::Manage { device, task }.into();
        match self {
            RecoveryStep::Survey { of } => manage(*of, Task::ListObjects),
            RecoveryStep::Object(task) => manage(device, task.clone()),
            RecoveryStep::List { volume, of, from } => {
                manage(*of, Task::ListMissed { device, object: volume.object(), from: *from })
            }
            RecoveryStep::Absent { placement, from } => {
                manage(device, Task::ListAbsent { object: placement.volume.object(), from: *from })
            }
            RecoveryStep::Allocated { placement, of, range } => {
                manage(*of, Task::ListAllocated { object: placement.volume.object(), range: *range })
            }
            RecoveryStep::Restore { placement: Placement { volume, target }, stripes, salvage } => {
                let (volume, blocks) = (*volume, stripes.blocks);
                JobRequest::Restore { volume, device, blocks, salvage: *salvage, target: *target }.into()
            }
        }
    }

    /// True if it makes the returning device create, change or remove an object.
    pub fn changes_objects(&self) -> bool {
        matches!(self, RecoveryStep::Object(_))
    }

    /// True if it creates or changes an object of this volume. A removal is repeated without harm.
    pub fn shapes(&self, volume: VolumeId) -> bool {
        let (RecoveryStep::Object(Task::CreateObject { object, .. })
        | RecoveryStep::Object(Task::ResizeObject { object, .. })
        | RecoveryStep::Object(Task::SetOrdering { object, .. })) = self
        else {
            return false;
        };
        *object == volume.object()
    }

    pub fn weight(&self) -> u64 {
        if let RecoveryStep::Restore { stripes, .. } = self { stripes.weight } else { 0 }
    }
}

/// The name of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ScrubId {
    /// A scrub that a front end asked for.
    Asked(OpId),
    /// A repair of one stripe, because a user's request met a checksum error there.
    Found(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ScrubStep {
    /// Reads and verifies rows. `repaired`: the block that was rewritten just before.
    Check { rows: StripeRows, repaired: Option<(DeviceId, u64)> },
    /// Rewrites a block from the others of its row. `row` counts from the stripe's first row.
    Repair { rows: StripeRows, row: u64, device: DeviceId, block: u64 },
    /// Computes the redundancy anew.
    Recompute { rows: StripeRows },
}

impl ScrubStep {
    /// The first check of some rows.
    pub fn check(rows: StripeRows) -> ScrubStep {
        ScrubStep::Check { rows, repaired: None }
    }

    /// The host request that executes the step.
    pub fn request(self, volume: VolumeId) -> JobRequest {
        match self {
            ScrubStep::Check { rows, .. } => JobRequest::CheckRows { volume, rows },
            ScrubStep::Repair { device, block, .. } => {
                let blocks = BlockRange::new(block, 1);
                JobRequest::Restore { volume, device, blocks, salvage: false, target: false }
            }
            ScrubStep::Recompute { rows } => JobRequest::Recompute { volume, rows },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MigrationStep {
    Look(BlockRange),
    Copy(BlockRange),
}

/// The subject of a parity resync: the whole transaction, or, with a device, only the blocks that a pre-write announced to that device.
pub(crate) type Interrupted = (TransactionId, Option<DeviceId>);
