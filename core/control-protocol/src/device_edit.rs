//! One replacement of a device's record.

use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use crate::record::DeviceRecord;
use braid_base::{DiskId, Time};
use std::time::Duration;

/// A transition of a device's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEdit {
    /// The disk may fill the slot. A spare is known anyhow.
    Remember { disk: DiskId, is_spare: bool },
    /// The monitor has refused the disk.
    Forget(DiskId),
}

/// Why a transition does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEditError {
    NoSuchDevice,
    /// The question of this tag has failed, or has had no answer for long.
    Store(Tag),
}

/// An edit under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRecordEdit {
    edit: DeviceEdit,
    step: Step,
    /// Lost answers are made up for until then.
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading(Tag),
    Replacing(Tag),
    Pausing(Time),
}

/// The pause after a lost answer.
const PAUSE: Duration = Duration::from_millis(20);

impl DeviceRecordEdit {
    pub fn new(edit: DeviceEdit, until: Time, questions: &mut Questions) -> DeviceRecordEdit {
        DeviceRecordEdit { edit, step: Step::Reading(questions.command(Command::ReadDevice)), until }
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

    /// Handles an answer. Returns whether the edit is made; the record may have had it before.
    pub fn on_answer(
        &mut self,
        now: Time,
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) -> Option<Result<(), DeviceEditError>> {
        match (self.step, answer) {
            (Step::Reading(asked) | Step::Replacing(asked), _) if asked != tag => None,
            (Step::Reading(_), Answer::Device { version, record }) => {
                let Some(record) = record else { return Some(Err(DeviceEditError::NoSuchDevice)) };
                let Some(record) = self.edit.applied_to(record) else { return Some(Ok(())) };
                let command = Command::ReplaceDevice { after: version, record };
                self.step = Step::Replacing(questions.command(command));
                None
            }
            (Step::Replacing(_), Answer::Replaced { .. }) => Some(Ok(())),
            (Step::Replacing(_), Answer::Superseded) => {
                self.step = Step::Reading(questions.command(Command::ReadDevice));
                None
            }
            (Step::Reading(_) | Step::Replacing(_), Answer::Unknown) if now < self.until => {
                self.step = Step::Pausing(now.after(PAUSE));
                None
            }
            (Step::Reading(_) | Step::Replacing(_), _) => Some(Err(DeviceEditError::Store(tag))),
            (Step::Pausing(_), _) => None,
        }
    }
}

impl DeviceEdit {
    /// The record with the edit; none if it has it already.
    fn applied_to(&self, mut record: DeviceRecord) -> Option<DeviceRecord> {
        let is_changed = match self {
            DeviceEdit::Remember { is_spare: true, .. } => false,
            DeviceEdit::Remember { disk, .. } => record.disk != Some(*disk) && record.others.insert(*disk),
            DeviceEdit::Forget(disk) => record.others.remove(disk),
        };
        is_changed.then_some(record)
    }
}
