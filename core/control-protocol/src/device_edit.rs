//! One replacement of a device's record.

use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use crate::record::{DeviceRecord, DeviceState, Version};
use braid_base::{DiskId, Generation, Time, VolumeId};
use std::collections::BTreeSet;
use std::time::Duration;

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
    /// Another administrator is shut out, which has left this state.
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

/// Why a transition does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEditError {
    NoSuchDevice,
    /// Another device has had the number.
    NumberUsed,
    /// These volumes lie on the device.
    HoldsVolumes(Vec<VolumeId>),
    /// Another administrator has begun something since, or ended it.
    Lost,
    /// The question of this tag has failed, or has had no answer for long.
    Store(Tag),
}

/// An edit under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRecordEdit {
    edit: DeviceEdit,
    step: Step,
    /// An earlier replacement may have happened, or may still happen.
    is_uncertain: bool,
    /// Lost answers are made up for until then.
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading(Tag),
    Replacing(Tag),
    Rewriting(Tag),
    Pausing(Time),
}

/// What is to be done with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Replace(DeviceRecord),
    /// It is so already, and is written all the same.
    Rewrite(DeviceRecord),
    Remove,
    /// Nothing: it is so already.
    Done,
}

/// The pause after a lost answer.
const PAUSE: Duration = Duration::from_millis(20);

impl DeviceRecordEdit {
    pub fn new(edit: DeviceEdit, until: Time, questions: &mut Questions) -> DeviceRecordEdit {
        let step = Step::Reading(questions.command(Command::ReadDevice));
        DeviceRecordEdit { edit, step, is_uncertain: false, until }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Pausing(until) => Some(until),
            _ => None,
        }
    }

    pub fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.step = Step::Reading(questions.command(Command::ReadDevice));
        }
    }

    /// Handles an answer. Returns whether the edit is made, and in which version; none if the record had it before.
    pub fn on_answer(
        &mut self,
        now: Time,
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) -> Option<Result<Option<Version>, DeviceEditError>> {
        match (self.step, answer) {
            (Step::Reading(asked) | Step::Replacing(asked) | Step::Rewriting(asked), _) if asked != tag => None,
            (Step::Reading(_), Answer::Device { version, record, is_used, volumes }) => {
                let after = version;
                self.step = match self.next(version, record, is_used, volumes) {
                    Ok(Next::Replace(record)) => {
                        Step::Replacing(questions.command(Command::ReplaceDevice { after, record }))
                    }
                    Ok(Next::Rewrite(record)) => {
                        Step::Rewriting(questions.command(Command::ReplaceDevice { after, record }))
                    }
                    Ok(Next::Remove) => Step::Replacing(questions.command(Command::RemoveDevice { after })),
                    Ok(Next::Done) => return Some(Ok(None)),
                    Err(error) => return Some(Err(error)),
                };
                None
            }
            (Step::Replacing(_), Answer::Replaced { version }) => Some(Ok(Some(version))),
            (Step::Rewriting(_), Answer::Replaced { .. }) => Some(Ok(None)),
            (Step::Replacing(_) | Step::Rewriting(_), Answer::Superseded) => {
                self.step = Step::Reading(questions.command(Command::ReadDevice));
                None
            }
            (Step::Reading(_) | Step::Replacing(_) | Step::Rewriting(_), Answer::Unknown) if now < self.until => {
                self.is_uncertain |= matches!(self.step, Step::Replacing(_));
                self.step = Step::Pausing(now.after(PAUSE));
                None
            }
            (Step::Reading(_) | Step::Replacing(_) | Step::Rewriting(_), _) => Some(Err(DeviceEditError::Store(tag))),
            (Step::Pausing(_), _) => None,
        }
    }

    fn next(
        &self,
        version: Version,
        record: Option<DeviceRecord>,
        is_used: bool,
        volumes: BTreeSet<VolumeId>,
    ) -> Result<Next, DeviceEditError> {
        let Some(record) = record else {
            return match &self.edit {
                DeviceEdit::NotAdded { .. } | DeviceEdit::Removed { .. } if self.is_uncertain => Ok(Next::Done),
                // Its own entry was completed, or undone, by another administrator.
                DeviceEdit::Enter { .. } if self.is_uncertain && is_used => Err(DeviceEditError::Lost),
                DeviceEdit::Enter { .. } if is_used => Err(DeviceEditError::NumberUsed),
                DeviceEdit::Enter { disk, by } => {
                    let (disk, others, state) = (Some(*disk), BTreeSet::new(), DeviceState::Adding { by: *by });
                    Ok(Next::Replace(DeviceRecord { disk, others, state }))
                }
                DeviceEdit::Forget { .. } | DeviceEdit::Remember { .. } => Err(DeviceEditError::NoSuchDevice),
                _ => Err(DeviceEditError::Lost),
            };
        };
        if self.is_uncertain && self.edit.has_happened(&record) {
            return Ok(Next::Done);
        }
        self.edit.applied_to(version, record, volumes)
    }
}

impl DeviceEdit {
    fn applied_to(
        &self,
        version: Version,
        mut record: DeviceRecord,
        volumes: BTreeSet<VolumeId>,
    ) -> Result<Next, DeviceEditError> {
        let state = record.state;
        match *self {
            DeviceEdit::Remember { disk, is_spare } => {
                if is_spare || record.disk == Some(disk) {
                    return Ok(Next::Done);
                }
                let is_new = record.others.insert(disk);
                return Ok(if is_new { Next::Replace(record) } else { Next::Rewrite(record) });
            }
            DeviceEdit::Forget { disk, after } => {
                let is_own = after == Some(version) && record.others.remove(&disk);
                return Ok(if is_own { Next::Replace(record) } else { Next::Done });
            }
            DeviceEdit::Leave { from, .. } if from == state && !volumes.is_empty() => {
                return Err(DeviceEditError::HoldsVolumes(volumes.into_iter().collect()));
            }
            DeviceEdit::Leave { from, by } if from == state => record.state = DeviceState::Removing { by },
            DeviceEdit::TakeOver { from, by } if from == state => record.state = state.taken_over(by),
            DeviceEdit::Added { by } if state == (DeviceState::Adding { by }) => record.state = DeviceState::Ready,
            DeviceEdit::Stay { by } if state == (DeviceState::Removing { by }) => record.state = DeviceState::Ready,
            DeviceEdit::NotAdded { by } if state == (DeviceState::Adding { by }) => return Ok(Next::Remove),
            DeviceEdit::Removed { by } if state == (DeviceState::Removing { by }) => return Ok(Next::Remove),
            _ => return Err(DeviceEditError::Lost),
        }
        Ok(Next::Replace(record))
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
