//! What each step of a job does: one closed enum for each kind of job, and what the host is asked to execute.

use crate::portion::Portion;
use crate::sides::Side;
use braid_base::{BlockRange, DeviceId, TransactionId, VolumeId};
use braid_layout::StripeRows;
use braid_machine::{HostRequest, OpId};
use braid_wire::Task;

/// Whose step it is, and what it does.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Recovery(DeviceId, RecoveryStep),
    Resync(Interrupted),
    Scrub(ScrubId, ScrubStep),
    Migration(OpId, MigrationStep),
}

/// One thing to do for a returning device.
#[derive(Clone, Debug)]
pub(crate) enum RecoveryStep {
    /// Ask a device for its objects.
    Survey { of: DeviceId },
    /// Have the returning device make, change or remove an object.
    Object(Task),
    /// Ask another device what was missed.
    List { volume: VolumeId, of: DeviceId, from: u64 },
    /// Ask the returning device what is absent.
    Absent { side: Side, from: u64 },
    /// Ask another device where it holds anything.
    Allocated { side: Side, of: DeviceId, range: BlockRange },
    /// Restore blocks of the volume; where that can't be, say that they are lost.
    Restore { side: Side, portion: Portion, salvage: bool },
}

impl RecoveryStep {
    /// What the host is asked.
    pub fn request(&self, device: DeviceId) -> HostRequest {
        let manage = |device, task| HostRequest::Manage { device, task };
        match self {
            RecoveryStep::Survey { of } => manage(*of, Task::ListObjects),
            RecoveryStep::Object(task) => manage(device, task.clone()),
            RecoveryStep::List { volume, of, from } => {
                manage(*of, Task::ListMissed { device, object: volume.object(), from: *from })
            }
            RecoveryStep::Absent { side, from } => {
                manage(device, Task::ListAbsent { object: side.volume.object(), from: *from })
            }
            RecoveryStep::Allocated { side, of, range } => {
                manage(*of, Task::ListAllocated { object: side.volume.object(), range: *range })
            }
            RecoveryStep::Restore { side: Side { volume, target }, portion, salvage } => HostRequest::Restore {
                volume: *volume,
                device,
                blocks: portion.blocks,
                salvage: *salvage,
                target: *target,
            },
        }
    }

    pub fn weight(&self) -> u64 {
        if let RecoveryStep::Restore { portion, .. } = self { portion.weight } else { 0 }
    }
}

/// Names a scrub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ScrubId {
    /// A front end asked for it.
    Asked(OpId),
    /// Of one stripe, since a user met a checksum error there.
    Found(u64),
}

/// One thing to do for a scrub.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScrubStep {
    /// `repaired`: the block that was just written anew for it.
    Check {
        rows: StripeRows,
        attempts: u32,
        repaired: Option<(DeviceId, u64)>,
    },
    /// A block of one of these rows, so many rows from the stripe's first.
    Repair {
        rows: StripeRows,
        row: u64,
        device: DeviceId,
        block: u64,
        attempts: u32,
    },
    Recompute {
        rows: StripeRows,
        attempts: u32,
    },
}

impl ScrubStep {
    /// The first look at some rows.
    pub fn check(rows: StripeRows) -> ScrubStep {
        ScrubStep::Check { rows, attempts: 0, repaired: None }
    }

    /// What the host is asked.
    pub fn request(self, volume: VolumeId) -> HostRequest {
        match self {
            ScrubStep::Check { rows, .. } => HostRequest::CheckRows { volume, rows },
            ScrubStep::Repair { device, block, .. } => {
                let blocks = BlockRange::new(block, 1);
                HostRequest::Restore { volume, device, blocks, salvage: false, target: false }
            }
            ScrubStep::Recompute { rows, .. } => HostRequest::Recompute { volume, rows },
        }
    }
}

/// One thing to do for a migration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MigrationStep {
    Look(BlockRange),
    Copy(BlockRange),
}

/// What was interrupted: all of a transaction that is known to have written, or what one device has heard announced of it.
pub(crate) type Interrupted = (TransactionId, Option<DeviceId>);
