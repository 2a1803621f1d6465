//! The replacement of a device's disk. The store records the disk before the monitor is told of it, so that the place of every disk that fills
//! a slot is known. The monitor decides, and the device follows.
//!
//! ```text
//!   remembering the disk ─► Replace ─► waiting: the device runs on the disk
//!                              └─► refused: forgetting the disk
//! ```
//!
//! The request to the monitor is idempotent. Without an answer it may have its effect later, and the record keeps the disk. If the
//! administrator dies, nothing need be completed: either the monitor has the request, or the disk is one that may fill the slot and does not.

use crate::contract::{Done, Error, Input, Timing};
use crate::device_edit::{DeviceEdit, DeviceRecordEdit};
use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use crate::waiting::Waiting;
use braid_base::{DeviceId, DiskId, Time};
use braid_wire::{AdminError, Administration};
use std::time::Duration;

/// The pause before the monitor is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The disk that is to fill the slot of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextDisk {
    pub disk: DiskId,
    /// The room on it for objects.
    pub blocks: u64,
    /// It is a spare, which the store knows as such.
    pub is_spare: bool,
    /// Data may be lost that nothing can restore.
    pub lose: bool,
    /// The operation waits until the device is rebuilt, not only until it runs on the disk.
    pub until_rebuilt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    device: DeviceId,
    next: NextDisk,
    timing: Timing,
    /// The version in which it has remembered the disk.
    remembered: Option<Version>,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Remembering(DeviceRecordEdit),
    /// The monitor is asked; again until this time if other devices are not in for long enough.
    Asking(Tag, Time),
    /// Are the devices in that the monitor needs? The refusal, and until when.
    CheckingOthers(Tag, Tag, Time),
    Pausing(Time),
    /// The monitor has refused the disk for the reason under this tag.
    Forgetting(DeviceRecordEdit, Tag),
    AwaitingDevice(Box<Waiting>),
    Ended,
}

impl Replacement {
    /// Has another disk fill the slot of a device.
    pub fn of(device: DeviceId, next: NextDisk, timing: Timing) -> Replacement {
        Replacement { device, next, timing, remembered: None, phase: Phase::New }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => {
                let NextDisk { disk, is_spare, .. } = self.next;
                self.phase = Phase::Remembering(self.edit(DeviceEdit::Remember { disk, is_spare }, questions));
            }
            (_, Input::Start) => panic!("a replacement begins once"),
            (Phase::Remembering(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Remembering(editing),
                Some(Ok(version)) => {
                    self.remembered = version;
                    self.ask(questions.after(self.timing.steady), questions);
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Asking(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Yes => self.await_device(questions),
                Answer::Refused(AdminError::NeedsOthers { others }) if questions.now < until => {
                    let devices = others.into_iter().collect();
                    let asked = questions.ask(Question::AreIn { devices });
                    self.phase = Phase::CheckingOthers(asked, tag, until);
                }
                Answer::Refused(_) => self.forget(tag, questions),
                // It may be done later.
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::CheckingOthers(asked, refusal, until), Input::Answer { tag, answer }) if asked == tag => {
                match answer {
                    // The monitor has not seen them in for long enough.
                    Answer::AllIn(_) => {
                        self.phase = Phase::Pausing(until);
                        questions.pause(PAUSE);
                    }
                    _ => self.forget(refusal, questions),
                }
            }
            (Phase::Pausing(until), Input::Wake) => self.ask(until, questions),
            (Phase::Forgetting(mut editing, refusal), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Forgetting(editing, refusal),
                Some(Ok(_)) => questions.end(Err(Error::Refused(refusal))),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::AwaitingDevice(mut waiting), input) => match waiting.step(input, questions) {
                None => self.phase = Phase::AwaitingDevice(waiting),
                Some(end) => questions.end(end.map(|()| Done::Changed)),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn ask(&mut self, until: Time, questions: &mut Questions) {
        let NextDisk { disk, blocks, lose, .. } = self.next;
        let request = Administration::Replace { device: self.device, disk, blocks, lose };
        self.phase = Phase::Asking(questions.ask(Question::Administer { request }), until);
    }

    /// The monitor has refused the request, for the reason under this tag.
    fn forget(&mut self, refusal: Tag, questions: &mut Questions) {
        let edit = DeviceEdit::Forget { disk: self.next.disk, after: self.remembered };
        self.phase = Phase::Forgetting(self.edit(edit, questions), refusal);
    }

    /// The monitor has recorded the disk: the device follows.
    fn await_device(&mut self, questions: &mut Questions) {
        let NextDisk { disk, until_rebuilt: is_whole, .. } = self.next;
        // A rebuild takes as long as it takes.
        let within = if is_whole { Duration::MAX } else { self.timing.device };
        let question = Question::RunsOn { device: self.device, disk, is_whole };
        let waiting = Waiting::new(question, within, &self.timing, questions);
        self.phase = Phase::AwaitingDevice(Box::new(waiting));
    }

    fn edit(&self, edit: DeviceEdit, questions: &mut Questions) -> DeviceRecordEdit {
        DeviceRecordEdit::new(edit, self.timing.store, questions)
    }
}
