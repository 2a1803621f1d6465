//! Which disk fills each slot, and what operators ask for (`docs/healing.md`).
//!
//! ```text
//!              Replace, slot in              it is out                the disk renews
//!   Settled ───────────────────► Leaving ─────────────► Awaited ─────────────────────► Settled, returning
//!              Replace, slot out: at once ────────────► Awaited
//! ```
//!
//! A disk is put on record before its first lease. What is asked for is checked when the next record is made, and answered when that
//! is durable.

use braid_base::{DeviceId, DiskId, Epoch};
use braid_wire::{HealingProgress, JoinRefused};

/// The most slots that wait for another disk.
pub(crate) const CHANGES_MAX: usize = 64;

/// What is on record of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The disk that fills it; none before the first one has been heard of.
    pub disk: Option<DiskId>,
    /// An operator has taken it out.
    pub held: bool,
    pub change: Change,
    /// The latest epoch that the disk was heard to live by; while another one is awaited, of the disk before. It has had that epoch, so
    /// it is an older copy if it says an earlier one, or none.
    pub lived_by: Epoch,
}

/// Whether another disk is to fill a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    #[default]
    Settled,
    /// This one, as soon as the slot is out.
    Leaving { to: DiskId },
    /// It fills the slot, but has never been heard of. The one before it could still come back.
    Awaited { before: Option<DiskId> },
}

/// A slot, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShown {
    /// The slot.
    pub device: DeviceId,
    /// The disk that fills it; none before the first one has been heard of.
    pub disk: Option<DiskId>,
    /// The disk that is to fill it as soon as it is out.
    pub leaves_to: Option<DiskId>,
    /// The disk that should be brought there, if it is not there yet.
    pub awaits: Option<DiskId>,
    /// An operator has taken it out.
    pub held: bool,
    /// Why what was last heard there may not serve.
    pub join_refused: Option<JoinRefused>,
    /// How far it is, while it is returning, as its recovery coordinator last said.
    pub progress: Option<HealingProgress>,
}

impl Slot {
    /// True if it is to go out as soon as that can be.
    pub fn is_to_leave(&self) -> bool {
        self.held || matches!(self.change, Change::Leaving { .. })
    }

    /// True if it is, or is going to be, or could again become, the slot's disk.
    pub fn involves(&self, disk: DiskId) -> bool {
        let other = match self.change {
            Change::Settled => None,
            Change::Leaving { to } => Some(to),
            Change::Awaited { before } => before,
        };
        self.disk == Some(disk) || other == Some(disk)
    }

    /// The slot is out: another disk fills it from now on.
    pub fn hand_over(&mut self, to: DiskId) {
        // The one that is awaited has never been there: what was before it is still what could come back.
        let before = if let Change::Awaited { before } = self.change { before } else { self.disk };
        *self = Slot { disk: Some(to), held: false, change: Change::Awaited { before }, ..*self };
    }

    /// Why this disk, which has lived up to `epoch`, may not serve here.
    pub fn objects_to(&self, disk: DiskId, epoch: Epoch) -> Option<JoinRefused> {
        match (self.disk, self.change) {
            (Some(expected), _) if expected != disk => Some(JoinRefused::OtherDisk { expected }),
            (_, Change::Awaited { .. }) if epoch > Epoch(0) => Some(JoinRefused::Used { epoch }),
            _ => None,
        }
    }
}
