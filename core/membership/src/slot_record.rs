//! A slot's record: which disk fills it, and which changes an operator has requested (`docs/healing.md`).
//!
//! ```text
//!              Replace, slot in            the slot is out              the disk asks for a lease
//!   None ──────────────────────► Leaving ─────────────► Awaited ─────────────────────► None, returning
//!              Replace, slot out: at once ────────────► Awaited
//! ```
//!
//! A disk is recorded before it gets its first lease. An operator's request is checked when the next record is made, and answered when that
//! record is durable.

use braid_base::{DeviceId, DiskId, Epoch};
use braid_wire::{HealingProgress, JoinRefused};

/// The most slots that may wait for another disk at a time.
pub(crate) const CHANGES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The disk that fills it; none before the first one has been heard.
    pub disk: Option<DiskId>,
    /// An operator has taken the slot out.
    pub kept_out: bool,
    pub change: Change,
    /// The latest epoch that the disk was heard to have; while another disk is awaited, the previous disk's. The disk has adopted that
    /// epoch durably, so a disk that reports an earlier epoch, or none, is an older copy.
    pub lived_by: Epoch,
}

/// Whether the slot is to get another disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    #[default]
    None,
    /// This disk, as soon as the slot is out.
    Leaving { to: DiskId },
    /// The slot's disk has never been heard. The previous disk could still return.
    Awaited { before: Option<DiskId> },
}

/// The state of a slot, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShown {
    pub device: DeviceId,
    /// The disk that fills it; none before the first one has been heard.
    pub disk: Option<DiskId>,
    /// The disk that fills it as soon as the slot is out.
    pub next_disk: Option<DiskId>,
    /// The disk that is recorded for the slot, if it was never heard there.
    pub awaited_disk: Option<DiskId>,
    /// An operator has taken the slot out.
    pub kept_out: bool,
    /// Why the disk that was last heard there may not serve.
    pub join_refused: Option<JoinRefused>,
    /// The progress of its resync or rebuild while it is returning, as its recovery coordinator last reported it.
    pub progress: Option<HealingProgress>,
}

impl Slot {
    /// True if it is to go out as soon as possible.
    pub fn is_to_leave(&self) -> bool {
        self.kept_out || matches!(self.change, Change::Leaving { .. })
    }

    /// True if the disk fills the slot, is about to fill it, or could return to it.
    pub fn involves(&self, disk: DiskId) -> bool {
        let other = match self.change {
            Change::None => None,
            Change::Leaving { to } => Some(to),
            Change::Awaited { before } => before,
        };
        self.disk == Some(disk) || other == Some(disk)
    }

    /// The slot is out: the disk `to` fills it from now on.
    pub fn hand_over(&mut self, to: DiskId) {
        // An awaited disk has never been there, so the disk before it is still the one that could return.
        let before = if let Change::Awaited { before } = self.change { before } else { self.disk };
        *self = Slot { disk: Some(to), kept_out: false, change: Change::Awaited { before }, ..*self };
    }

    /// Why this disk, whose latest epoch is `epoch`, may not serve here; none if it may.
    pub fn objects_to(&self, disk: DiskId, epoch: Epoch) -> Option<JoinRefused> {
        match (self.disk, self.change) {
            (Some(expected), _) if expected != disk => Some(JoinRefused::OtherDisk { expected }),
            (_, Change::Awaited { .. }) if epoch > Epoch(0) => Some(JoinRefused::Used { epoch }),
            _ => None,
        }
    }
}
