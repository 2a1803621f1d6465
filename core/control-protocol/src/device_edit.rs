//! The transitions of a device's record.

use crate::cas_loop::{CasLoop, Next, Transition};
use crate::contract::Error;
use crate::interface::{Answer, Command};
use crate::record::{DeviceRecord, DeviceState, Version};
use braid_base::{DiskId, Generation, VolumeId};
use std::collections::BTreeSet;

/// A transition of a device's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEdit {
    /// The disk may fill the slot. A spare is known anyhow. If the record knows the disk, it is written again: then another administrator
    /// that has remembered the disk does not forget it.
    Remember { disk: DiskId, is_spare: bool },
    /// The monitor has refused the disk, which this administrator has entered in this version; nothing is forgotten if it has not, or if
    /// anything has changed since.
    Forget { disk: DiskId, after: Option<Version> },
    /// Enters a new device with this disk: from no record to `Adding`.
    Enter { disk: DiskId, by: Generation },
    /// No volume lies on the device, and none may from now on: from this state to `Removing`.
    Leave { from: DeviceState, by: Generation },
    /// Another administrator is fenced, which has left this state.
    TakeOver { from: DeviceState, by: Generation },
    /// The monitor has the device: `Adding` to `Ready`.
    Added { by: Generation },
    /// The monitor has refused it: `Adding` to no record.
    NotAdded { by: Generation },
    /// The monitor has it no more: `Removing` to no record.
    Removed { by: Generation },
    /// The monitor has refused to remove it: `Removing` to `Ready`.
    Stay { by: Generation },
}

/// What the store has said of a device.
pub(crate) struct Found {
    after: Version,
    record: Option<DeviceRecord>,
    is_used: bool,
    volumes: BTreeSet<VolumeId>,
}

/// An edit under way. Its outcome is the version in which the edit is made; none if the record had it before.
pub(crate) type DeviceRecordEdit = CasLoop<DeviceEdit>;

impl Transition for DeviceEdit {
    type Found = Found;
    /// False if the record had the edit before, and is written all the same.
    type Made = bool;
    type Outcome = Option<Version>;

    const READ: Command = Command::ReadDevice;

    fn found(answer: Answer) -> Result<Found, Answer> {
        match answer {
            Answer::Device { version, record, is_used, volumes } => {
                Ok(Found { after: version, record, is_used, volumes })
            }
            answer => Err(answer),
        }
    }

    fn next(&self, found: Found, is_uncertain: bool) -> Result<Next<DeviceEdit>, Error> {
        let Found { after, record, is_used, volumes } = found;
        let Some(record) = record else {
            return match self {
                DeviceEdit::NotAdded { .. } | DeviceEdit::Removed { .. } if is_uncertain => Ok(Next::Done(None)),
                // Its own entry was completed, or undone, by another administrator.
                DeviceEdit::Enter { .. } if is_uncertain && is_used => Err(Error::Lost),
                DeviceEdit::Enter { .. } if is_used => Err(Error::NumberUsed),
                DeviceEdit::Enter { disk, by } => {
                    let (disk, others, state) = (Some(*disk), BTreeSet::new(), DeviceState::Adding { by: *by });
                    Ok(replaced(after, DeviceRecord { disk, others, state }))
                }
                DeviceEdit::Forget { .. } | DeviceEdit::Remember { .. } => Err(Error::NoDevice),
                _ => Err(Error::Lost),
            };
        };
        if is_uncertain && self.has_happened(&record) {
            return Ok(Next::Done(None));
        }
        self.applied_to(after, record, volumes)
    }

    fn outcome(is_new: bool, version: Version) -> Option<Version> {
        is_new.then_some(version)
    }
}

fn replaced(after: Version, record: DeviceRecord) -> Next<DeviceEdit> {
    Next::Change(Command::ReplaceDevice { after, record }, true)
}

impl DeviceEdit {
    fn applied_to(
        &self,
        after: Version,
        mut record: DeviceRecord,
        volumes: BTreeSet<VolumeId>,
    ) -> Result<Next<DeviceEdit>, Error> {
        let state = record.state;
        match *self {
            DeviceEdit::Remember { disk, is_spare } => {
                if is_spare || record.disk == Some(disk) {
                    return Ok(Next::Done(None));
                }
                let is_new = record.others.insert(disk);
                return Ok(Next::Change(Command::ReplaceDevice { after, record }, is_new));
            }
            DeviceEdit::Forget { disk, after: entered } => {
                let is_own = entered == Some(after) && record.others.remove(&disk);
                return Ok(if is_own { replaced(after, record) } else { Next::Done(None) });
            }
            DeviceEdit::Leave { from, .. } if from == state && !volumes.is_empty() => {
                return Err(Error::HoldsVolumes(volumes.into_iter().collect()));
            }
            DeviceEdit::Leave { from, by } if from == state => record.state = DeviceState::Removing { by },
            DeviceEdit::TakeOver { from, by } if from == state => record.state = state.taken_over(by),
            DeviceEdit::Added { by } if state == (DeviceState::Adding { by }) => record.state = DeviceState::Ready,
            DeviceEdit::Stay { by } if state == (DeviceState::Removing { by }) => record.state = DeviceState::Ready,
            DeviceEdit::NotAdded { by } if state == (DeviceState::Adding { by }) => {
                return Ok(Next::Change(Command::RemoveDevice { after }, true));
            }
            DeviceEdit::Removed { by } if state == (DeviceState::Removing { by }) => {
                return Ok(Next::Change(Command::RemoveDevice { after }, true));
            }
            _ => return Err(Error::Lost),
        }
        Ok(replaced(after, record))
    }

    /// True if a record shows that the edit has happened, though its answer was lost.
    fn has_happened(&self, record: &DeviceRecord) -> bool {
        match *self {
            DeviceEdit::Enter { disk, by } => record.disk == Some(disk) && record.state == (DeviceState::Adding { by }),
            DeviceEdit::Leave { by, .. } => record.state == (DeviceState::Removing { by }),
            DeviceEdit::TakeOver { from, by } => record.state == from.taken_over(by),
            // Another administrator may have begun to remove it since.
            DeviceEdit::Added { .. } => !matches!(record.state, DeviceState::Adding { .. }),
            DeviceEdit::Stay { .. } => record.state == DeviceState::Ready,
            _ => false,
        }
    }
}
