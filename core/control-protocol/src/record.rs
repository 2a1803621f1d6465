//! What the control plane records of a volume: its description, and the state of a change under way; and of a device.

use braid_base::{DiskId, Generation};
pub use braid_host_leases::Version;
use braid_layout::{Placement, VolumeDescription};
use braid_ordering::Ordering;
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub volume: VolumeDescription,
    pub state: VolumeState,
    /// The progress of its migration: there exactly while the volume has a target.
    pub copied: Option<CopyRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// The disk that the device is started on; none until it has been made.
    pub disk: Option<DiskId>,
    /// Disks that may fill the slot, or that filled it before.
    pub others: BTreeSet<DiskId>,
    pub state: DeviceState,
}

/// Whether the monitor's membership contains a device.
///
/// ```text
///   Adding ──► Ready ──► Removing ──► no record        Adding ──► Removing: the addition was abandoned
///      └─► no record        └─► Ready                  the monitor has refused the request
/// ```
///
/// In each state but `Ready`, one administrator is at work on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// The membership may not contain it yet.
    Adding { by: Generation },
    /// The membership contains it.
    Ready,
    /// No volume lies on it, and the membership may no longer contain it.
    Removing { by: Generation },
}

/// The progress of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// Names the migration: the version after which it began. Another migration of the volume has another one, even to the same target.
    pub begun: Version,
    /// All blocks of the volume below this one have been copied.
    pub copied_to: u64,
}

/// The life cycle of a volume.
///
/// ```text
///   Creating ──► Ready ──► Draining ──► Reordering ──► Ready         Draining ──► Ready: the change was reverted
///                  └─────► Deleting ──► no record                    Creating ──► Deleting: the creation was undone
/// ```
///
/// In each state but `Ready`, one administrator is at work on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// Components may be missing on some devices. No host knows the volume.
    Creating { by: Generation },
    /// All components exist.
    Ready,
    /// On hold, and nothing has changed yet: hosts end their operations and begin none.
    Draining { to: Change, by: Generation },
    /// On hold, and all hosts have drained: devices may have been told.
    Reordering { to: Change, by: Generation },
    /// Components may be gone from some devices, when all hosts have drained. Hosts forget the volume.
    Deleting { by: Generation },
}

/// A change that is made while the volume is on hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the ordering of its requests.
    Ordering(Ordering),
    /// Begins a migration.
    Move(Placement),
    /// Ends a migration: the volume lies at the target alone.
    EndMove,
    /// Abandons a migration: the volume lies at its source alone.
    GiveUpMove,
    /// Grows the volume to this many bytes. What is added reads as zeros.
    Grow(u64),
}

impl DeviceState {
    /// The administrator that is at work on the device.
    pub fn administrator(self) -> Option<Generation> {
        match self {
            DeviceState::Adding { by } | DeviceState::Removing { by } => Some(by),
            DeviceState::Ready => None,
        }
    }

    /// The same state, with this administrator at work.
    pub(crate) fn taken_over(self, by: Generation) -> DeviceState {
        match self {
            DeviceState::Adding { .. } => DeviceState::Adding { by },
            DeviceState::Ready => DeviceState::Ready,
            DeviceState::Removing { .. } => DeviceState::Removing { by },
        }
    }
}

impl VolumeRecord {
    /// The administrator that holds the volume, if it is on hold.
    pub fn held_by(&self) -> Option<Generation> {
        match self.state {
            VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. } => Some(by),
            VolumeState::Creating { .. } | VolumeState::Ready | VolumeState::Deleting { .. } => None,
        }
    }

    /// The administrator that is at work on the volume: it holds, creates or deletes it.
    pub fn administrator(&self) -> Option<Generation> {
        match self.state {
            VolumeState::Creating { by } | VolumeState::Deleting { by } => Some(by),
            _ => self.held_by(),
        }
    }

    /// True if hosts know the volume: it is ready or on hold.
    pub fn is_usable(&self) -> bool {
        self.state == VolumeState::Ready || self.held_by().is_some()
    }

    /// The volume, including the target of a migration that is about to begin.
    pub fn widest(&self) -> VolumeDescription {
        match &self.state {
            VolumeState::Draining { to: to @ Change::Move(_), .. }
            | VolumeState::Reordering { to: to @ Change::Move(_), .. } => to.applied_to(&self.volume),
            _ => self.volume.clone(),
        }
    }

    /// The same volume in this state.
    pub(crate) fn in_state(&self, state: VolumeState) -> VolumeRecord {
        VolumeRecord { volume: self.volume.clone(), state, copied: self.copied }
    }

    /// The ready volume with this description, replaced after version `after`.
    pub(crate) fn ready_as(&self, volume: &VolumeDescription, after: Version) -> VolumeRecord {
        let copied = match &volume.moving {
            None => None,
            // An undone end of a migration: what was copied is still there.
            Some(_) if volume.moving == self.volume.moving => self.copied,
            Some(_) => Some(CopyRecord { begun: after, copied_to: 0 }),
        };
        VolumeRecord { volume: volume.clone(), state: VolumeState::Ready, copied }
    }

    /// The volume that is being deleted, replaced after version `after`. Devices that were told of a migration have their part of it.
    pub(crate) fn deleting(&self, by: Generation, after: Version) -> VolumeRecord {
        let volume = match &self.state {
            VolumeState::Reordering { to: to @ Change::Move(_), .. } => to.applied_to(&self.volume),
            _ => self.volume.clone(),
        };
        let unknown = CopyRecord { begun: after, copied_to: 0 };
        let copied = volume.moving.as_ref().map(|_| self.copied.unwrap_or(unknown));
        VolumeRecord { volume, state: VolumeState::Deleting { by }, copied }
    }

    /// What devices hold of the volume before and after the step that is under way, if they may have been told of it.
    pub(crate) fn told(&self) -> Option<(Option<VolumeDescription>, Option<VolumeDescription>)> {
        let volume = || Some(self.volume.clone());
        match &self.state {
            VolumeState::Creating { .. } => Some((None, volume())),
            VolumeState::Reordering { to, .. } => Some((volume(), Some(to.applied_to(&self.volume)))),
            VolumeState::Deleting { .. } => Some((volume(), None)),
            VolumeState::Ready | VolumeState::Draining { .. } => None,
        }
    }

    /// True if everything is at the target of its migration.
    pub(crate) fn is_copied(&self) -> bool {
        self.copied.is_some_and(|copied| copied.copied_to >= self.volume.blocks())
    }
}

impl Change {
    /// The description of a volume after this change.
    pub fn applied_to(&self, volume: &VolumeDescription) -> VolumeDescription {
        let before = volume.clone();
        match self {
            Change::Ordering(ordering) => VolumeDescription { ordering: *ordering, ..before },
            Change::Move(target) => VolumeDescription { moving: Some(Box::new(target.clone())), ..before },
            Change::EndMove => volume.target().unwrap_or(before),
            Change::GiveUpMove => VolumeDescription { moving: None, ..before },
            Change::Grow(bytes) => VolumeDescription { bytes: *bytes, ..before },
        }
    }

    /// True if the change fits the volume: one migration at a time, to a place that the volume does not use, with an ordering that keeps
    /// copies and writes apart, and no change of the ordering or the size meanwhile. A volume does not shrink.
    pub(crate) fn fits(&self, volume: &VolumeDescription) -> bool {
        match self {
            Change::Ordering(_) => volume.moving.is_none(),
            Change::Move(_) => {
                let is_ordered = volume.ordering != Ordering::None;
                volume.moving.is_none() && is_ordered && self.applied_to(volume).check().is_ok()
            }
            Change::EndMove | Change::GiveUpMove => volume.moving.is_some(),
            Change::Grow(bytes) => {
                volume.moving.is_none() && *bytes > volume.bytes && self.applied_to(volume).check().is_ok()
            }
        }
    }

    /// True if hosts need the lock servers after this change, and perhaps not before.
    pub(crate) fn needs_lock_servers(&self) -> bool {
        matches!(self, Change::Ordering(ordering) if ordering.needs_lock_server())
    }
}
