//! The transitions of a volume's record.
//!
//! The record names the administrator at work by the generation of its host. So a host has one administrator at a time for a volume:
//! one that settles and one of the host's own would take each other's changes for theirs. A lost answer to `Release` shows why: the
//! administrator repeats it, and would end the next change of the same host, before the devices are told.

use crate::cas_loop::{CasLoop, Next, Transition};
use crate::contract::Error;
use crate::interface::{Answer, Command};
use crate::record::{Change, CopyRecord, Version, VolumeRecord, VolumeState};
use braid_base::{DeviceId, Generation, VolumeId};
use braid_layout::VolumeDescription;
use std::collections::BTreeSet;

/// A transition of a volume's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Enters a new volume: from no record to `Creating`.
    Enter { volume: Box<VolumeDescription>, by: Generation },
    /// All devices have the volume: `Creating` to `Ready`.
    Finish { by: Generation },
    /// Puts the volume on hold for a change: `Ready` to `Draining`.
    Hold { to: Change, by: Generation },
    /// All hosts have drained: `Draining` to `Reordering`. From here on the change must be completed.
    Commit { by: Generation },
    /// The devices have the change, or have it no more: `Reordering` to `Ready`, with the description `to`.
    Release { by: Generation, to: VolumeDescription },
    /// Nothing has changed yet: `Draining` to `Ready`, as it was.
    Revert { by: Generation },
    /// Another administrator completes the change or the creation.
    TakeOver { from: Generation, by: Generation },
    /// Blocks were copied by the migration that began after this version.
    NoteCopied(CopyRecord),
    /// Begins to delete the volume on which `from` is at work, and nobody if there is none: to `Deleting`.
    Delete { from: Option<Generation>, by: Generation },
    /// No device has a part of this volume any more: from `Deleting` to no record.
    Remove { by: Generation, record: Box<VolumeRecord> },
}

/// What the store has said of a volume.
pub(crate) struct Found {
    version: Version,
    record: Option<VolumeRecord>,
    ready: BTreeSet<DeviceId>,
    next_volume: VolumeId,
}

/// An edit under way. Its outcome is the version and the record with the edit.
pub(crate) type RecordEdit = CasLoop<Edit>;

impl Transition for Edit {
    type Found = Found;
    /// The record as it will be; as it was, if it is removed.
    type Made = VolumeRecord;
    type Outcome = (Version, VolumeRecord);

    const READ: Command = Command::Read;

    fn found(answer: Answer) -> Result<Found, Answer> {
        match answer {
            Answer::Record { version, record, ready_devices: ready, next_volume } => {
                Ok(Found { version, record: record.map(|record| *record), ready, next_volume })
            }
            answer => Err(answer),
        }
    }

    fn next(&self, found: Found, is_uncertain: bool) -> Result<Next<Edit>, Error> {
        let after = found.version;
        let done = |record| Ok(Next::Done((after, record)));
        match (self, &found.record) {
            (Edit::Remove { record, .. }, None) if is_uncertain => done(VolumeRecord::clone(record)),
            (edit, Some(record)) if is_uncertain && edit.has_happened(record) => done(record.clone()),
            (Edit::Enter { volume, by }, None) if volume.id >= found.next_volume => {
                if let Some(gone) = volume.devices.iter().find(|device| !found.ready.contains(device)) {
                    return Err(Error::NoSuchDevice(*gone));
                }
                let (volume, state) = (VolumeDescription::clone(volume), VolumeState::Creating { by: *by });
                Ok(replaced(after, VolumeRecord { volume, state, copied: None }))
            }
            (Edit::Enter { .. }, _) => Err(Error::NumberUsed),
            (_, None) => Err(Error::NotUsable),
            (edit, Some(record)) if edit.needs_usable() && !record.is_usable() => Err(Error::NotUsable),
            (edit, Some(record)) => edit.applied_to(&found, record),
        }
    }

    fn outcome(record: VolumeRecord, version: Version) -> (Version, VolumeRecord) {
        (version, record)
    }
}

fn replaced(after: Version, record: VolumeRecord) -> Next<Edit> {
    Next::Change(Command::Replace { after, record: record.clone() }, record)
}

impl Edit {
    /// True for edits of volumes that hosts know.
    fn needs_usable(&self) -> bool {
        !matches!(self, Edit::Finish { .. } | Edit::TakeOver { .. } | Edit::Delete { .. } | Edit::Remove { .. })
    }

    /// What becomes of a record with the edit.
    fn applied_to(&self, found: &Found, record: &VolumeRecord) -> Result<Next<Edit>, Error> {
        let (after, state) = (found.version, record.state.clone());
        let done = || Ok(Next::Done((after, record.clone())));
        let changed = match (self, state) {
            (Edit::Finish { by }, VolumeState::Creating { by: holder }) if *by == holder => {
                record.in_state(VolumeState::Ready)
            }
            (Edit::Hold { .. }, VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. }) => {
                return Err(Error::Held(by));
            }
            (Edit::Hold { to, by }, VolumeState::Ready) => {
                if let Change::Move(target) = to
                    && let Some(gone) = target.devices.iter().find(|device| !found.ready.contains(device))
                {
                    return Err(Error::NoSuchDevice(*gone));
                }
                if !to.fits(&record.volume) {
                    return Err(Error::Migration);
                }
                if *to == Change::EndMove && !record.is_copied() {
                    return Err(Error::NotCopied);
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
            (Edit::TakeOver { from, by }, VolumeState::Creating { by: holder }) if *from == holder => {
                record.in_state(VolumeState::Creating { by: *by })
            }
            (Edit::NoteCopied(noted), state) => match record.copied {
                Some(CopyRecord { begun, copied_to }) if begun == noted.begun => match copied_to < noted.copied_to {
                    true => VolumeRecord { copied: Some(*noted), ..record.in_state(state) },
                    false => return done(),
                },
                _ => return Err(Error::Migration),
            },
            (Edit::Delete { from, by }, _) if *from == record.administrator() => record.deleting(*by, after),
            (Edit::Remove { by, .. }, VolumeState::Deleting { by: holder }) if *by == holder => {
                return Ok(Next::Change(Command::Remove { after }, record.clone()));
            }
            // What its own commit has decided is not reverted.
            (Edit::Commit { by } | Edit::Revert { by }, VolumeState::Reordering { by: holder, .. })
                if *by == holder =>
            {
                return done();
            }
            (
                Edit::TakeOver { by, .. },
                VolumeState::Reordering { by: holder, .. } | VolumeState::Creating { by: holder },
            ) if *by == holder => return done(),
            _ => return Err(record.administrator().map_or(Error::NotUsable, Error::Held)),
        };
        Ok(replaced(after, changed))
    }

    /// True if a record shows that the edit has happened, though its answer was lost.
    fn has_happened(&self, record: &VolumeRecord) -> bool {
        match (self, &record.state) {
            (Edit::Enter { volume, by }, VolumeState::Creating { by: holder }) => {
                **volume == record.volume && by == holder
            }
            (Edit::Hold { to, by }, VolumeState::Draining { to: held, by: holder }) => to == held && by == holder,
            (Edit::Commit { by } | Edit::TakeOver { by, .. }, VolumeState::Reordering { by: holder, .. }) => {
                by == holder
            }
            (Edit::TakeOver { by, .. }, VolumeState::Creating { by: holder }) => by == holder,
            (Edit::Delete { by, .. }, VolumeState::Deleting { by: holder }) => by == holder,
            (Edit::Release { to, .. }, VolumeState::Ready) => *to == record.volume,
            (Edit::Revert { .. }, VolumeState::Ready) => true,
            // Another administrator may have begun to change it since.
            (Edit::Finish { .. }, _) => record.is_usable(),
            _ => false,
        }
    }
}
