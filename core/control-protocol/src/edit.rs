//! One replacement of a volume's record: read it, decide, replace it after the version that was read. If the answer is lost, the record is
//! read again, and tells whether the replacement has happened.

use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use crate::record::{Change, CopyRecord, Version, VolumeRecord, VolumeState};
use braid_base::{DeviceId, Generation, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// A transition of a volume's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Puts the volume on hold for a change: `Ready` to `Draining`.
    Hold { to: Change, by: Generation },
    /// All hosts have drained: `Draining` to `Reordering`. From here on the change must be completed.
    Commit { by: Generation },
    /// The devices have the change, or have it no more: `Reordering` to `Ready`, with the description `to`.
    Release { by: Generation, to: braid_layout::VolumeDescription },
    /// Nothing has changed yet: `Draining` to `Ready`, as it was.
    Revert { by: Generation },
    /// Another administrator completes the change.
    TakeOver { from: Generation, by: Generation },
    /// Blocks were copied by the migration that began after this version.
    NoteCopied(CopyRecord),
}

/// Why a transition does not apply to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EditError {
    /// There is no such volume, or it is being created or deleted.
    NotUsable,
    /// The volume is on hold for another administrator.
    Held(Generation),
    /// A migration has begun or ended, or its target does not fit the volume any more.
    Migration,
    /// Not everything is at the target of the migration.
    NotCopied,
    /// A device of the target is not ready.
    NoSuchDevice(DeviceId),
    /// The question of this tag has failed, or has had no answer for long.
    Store(Tag),
}

/// An edit under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordEdit {
    edit: Edit,
    step: Step,
    /// An earlier replacement may have happened, or may still happen.
    is_uncertain: bool,
    /// Lost answers are made up for until then.
    until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Reading(Tag),
    Replacing(Tag, VolumeRecord),
    Pausing(Time),
}

/// The pause after a lost answer.
const PAUSE: Duration = Duration::from_millis(20);

impl RecordEdit {
    pub fn new(edit: Edit, until: Time, questions: &mut Questions) -> RecordEdit {
        let step = Step::Reading(questions.command(Command::Read));
        RecordEdit { edit, step, is_uncertain: false, until }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Pausing(until) => Some(until),
            _ => None,
        }
    }

    pub fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        if let Step::Pausing(until) = self.step
            && until <= now
        {
            self.step = Step::Reading(questions.command(Command::Read));
        }
    }

    /// Handles an answer. Returns the version and the record with the edit, or why it can't be made.
    pub fn on_answer(
        &mut self,
        now: Time,
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) -> Option<Result<(Version, VolumeRecord), EditError>> {
        match (&self.step, answer) {
            (Step::Reading(asked), Answer::Record { version, record, ready_devices }) if *asked == tag => {
                let Some(record) = record.filter(|record| record.is_usable()) else {
                    return Some(Err(EditError::NotUsable));
                };
                if self.is_uncertain && self.edit.has_happened(&record) {
                    return Some(Ok((version, *record)));
                }
                match self.edit.applied_to(version, &record, &ready_devices) {
                    Ok(Some(record)) => {
                        let command = Command::Replace { after: version, record: record.clone() };
                        self.step = Step::Replacing(questions.command(command), record);
                        None
                    }
                    Ok(None) => Some(Ok((version, *record))),
                    Err(error) => Some(Err(error)),
                }
            }
            (Step::Replacing(asked, record), Answer::Replaced { version }) if *asked == tag => {
                Some(Ok((version, record.clone())))
            }
            (Step::Replacing(asked, _), Answer::Superseded) if *asked == tag => {
                self.step = Step::Reading(questions.command(Command::Read));
                None
            }
            (Step::Reading(asked) | Step::Replacing(asked, _), answer) if *asked == tag => {
                self.is_uncertain |= matches!(self.step, Step::Replacing(..));
                if answer != Answer::Unknown || now >= self.until {
                    return Some(Err(EditError::Store(tag)));
                }
                self.step = Step::Pausing(now.after(PAUSE));
                None
            }
            _ => None,
        }
    }
}

impl Edit {
    /// The record of version `after` with the edit; `None` if it has the edit already.
    fn applied_to(
        &self,
        after: Version,
        record: &VolumeRecord,
        ready: &BTreeSet<DeviceId>,
    ) -> Result<Option<VolumeRecord>, EditError> {
        let state = record.state.clone();
        let other = |holder: Option<Generation>| holder.map_or(EditError::NotUsable, EditError::Held);
        Ok(Some(match (self, state) {
            (Edit::Hold { .. }, VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. }) => {
                return Err(EditError::Held(by));
            }
            (Edit::Hold { to, by }, VolumeState::Ready) => {
                if let Change::Move(target) = to
                    && let Some(gone) = target.devices.iter().find(|device| !ready.contains(device))
                {
                    return Err(EditError::NoSuchDevice(*gone));
                }
                if !to.fits(&record.volume) {
                    return Err(EditError::Migration);
                }
                if *to == Change::EndMove && !record.is_copied() {
                    return Err(EditError::NotCopied);
                }
                record.in_state(VolumeState::Draining { to: to.clone(), by: *by })
            }
            (Edit::Commit { by }, VolumeState::Draining { to, by: holder }) if *by == holder => {
                record.in_state(VolumeState::Reordering { to, by: *by })
            }
            (Edit::Release { by, to }, VolumeState::Reordering { by: holder, .. }) if *by == holder => {
                record.ready_as(to, after)
            }
            (Edit::Revert { by }, VolumeState::Draining { by: holder, .. }) if *by == holder => {
                record.in_state(VolumeState::Ready)
            }
            (Edit::TakeOver { from, by }, VolumeState::Reordering { to, by: holder }) if *from == holder => {
                record.in_state(VolumeState::Reordering { to, by: *by })
            }
            (Edit::NoteCopied(noted), _) => match record.copied {
                Some(CopyRecord { begun, copied_to }) if begun == noted.begun => {
                    let state = record.state.clone();
                    match copied_to < noted.copied_to {
                        true => VolumeRecord { copied: Some(*noted), ..record.in_state(state) },
                        false => return Ok(None),
                    }
                }
                _ => return Err(EditError::Migration),
            },
            // What its own commit has decided is not reverted.
            (Edit::Commit { by } | Edit::Revert { by }, VolumeState::Reordering { by: holder, .. })
                if *by == holder =>
            {
                return Ok(None);
            }
            (Edit::TakeOver { by, .. }, VolumeState::Reordering { by: holder, .. }) if *by == holder => {
                return Ok(None);
            }
            _ => return Err(other(record.held_by())),
        }))
    }

    /// True if a record shows that the edit has happened, though its answer was lost.
    fn has_happened(&self, record: &VolumeRecord) -> bool {
        match (self, &record.state) {
            (Edit::Hold { to, by }, VolumeState::Draining { to: held, by: holder }) => to == held && by == holder,
            (Edit::Commit { by } | Edit::TakeOver { by, .. }, VolumeState::Reordering { by: holder, .. }) => {
                by == holder
            }
            (Edit::Release { to, .. }, VolumeState::Ready) => *to == record.volume,
            (Edit::Revert { .. }, VolumeState::Ready) => true,
            _ => false,
        }
    }
}
