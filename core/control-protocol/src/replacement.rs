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
use crate::device_edit::{DeviceEdit, DeviceEditError, DeviceRecordEdit};
use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use crate::waiting::{WaitEnd, Waiting};
use braid_base::{DeviceId, DiskId, Time};
use braid_wire::{AdminError, Administration};
use std::time::Duration;

/// The pause before the monitor is asked again, or the device is looked at again.
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

/// A replacement, and its state.
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
    Pausing(Time, Time),
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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Remembering(editing) | Phase::Forgetting(editing, _) => editing.deadline(),
            Phase::Pausing(at, _) => Some(*at),
            Phase::AwaitingDevice(waiting) => waiting.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "a replacement begins once");
                let NextDisk { disk, is_spare, .. } = self.next;
                self.phase = Phase::Remembering(self.edit(now, DeviceEdit::Remember { disk, is_spare }, questions));
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer, questions),
            Input::Wake => self.on_wake(now, questions),
        }
    }

    fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        match &mut self.phase {
            Phase::Remembering(editing) | Phase::Forgetting(editing, _) => editing.on_wake(now, questions),
            Phase::Pausing(at, until) if *at <= now => {
                let until = *until;
                self.ask(until, questions);
            }
            Phase::AwaitingDevice(waiting) => waiting.on_wake(now, questions),
            _ => {}
        }
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Remembering(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Remembering(editing),
                Some(Ok(version)) => {
                    self.remembered = version;
                    self.ask(now.after(self.timing.steady), questions);
                }
                Some(Err(error)) => self.end(Err(error.into()), questions),
            },
            Phase::Asking(asked, until) if asked == tag => match answer {
                Answer::Yes => self.await_device(now, questions),
                Answer::Refused(AdminError::NeedsOthers { others }) if now < until => {
                    let devices = others.into_iter().collect();
                    let asked = questions.ask(Question::AreIn { devices });
                    self.phase = Phase::CheckingOthers(asked, tag, until);
                }
                Answer::Refused(_) => self.forget(now, tag, questions),
                // It may be done later.
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::CheckingOthers(asked, refusal, until) if asked == tag => match answer {
                // The monitor has not seen them in for long enough.
                Answer::AllIn(_) => self.phase = Phase::Pausing(now.after(PAUSE), until),
                _ => self.forget(now, refusal, questions),
            },
            Phase::Forgetting(mut editing, refusal) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Forgetting(editing, refusal),
                Some(Ok(_)) => self.end(Err(Error::Refused(refusal)), questions),
                Some(Err(error)) => self.end(Err(error.into()), questions),
            },
            Phase::AwaitingDevice(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => self.phase = Phase::AwaitingDevice(waiting),
                Some(WaitEnd::Yes) => self.end(Ok(Done::Changed), questions),
                // Another disk was requested for the slot since.
                Some(WaitEnd::Superseded(_)) => self.end(Err(Error::Lost), questions),
                Some(WaitEnd::TimedOut(tag)) => self.end(Err(Error::NotYet(tag)), questions),
                Some(WaitEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn ask(&mut self, until: Time, questions: &mut Questions) {
        let NextDisk { disk, blocks, lose, .. } = self.next;
        let request = Administration::Replace { device: self.device, disk, blocks, lose };
        self.phase = Phase::Asking(questions.ask(Question::Administer { request }), until);
    }

    /// The monitor has refused the request, for the reason under this tag.
    fn forget(&mut self, now: Time, refusal: Tag, questions: &mut Questions) {
        let edit = DeviceEdit::Forget { disk: self.next.disk, after: self.remembered };
        self.phase = Phase::Forgetting(self.edit(now, edit, questions), refusal);
    }

    /// The monitor has recorded the disk: the device follows.
    fn await_device(&mut self, now: Time, questions: &mut Questions) {
        let NextDisk { disk, until_rebuilt: is_whole, .. } = self.next;
        // A rebuild takes as long as it takes.
        let until = if is_whole { Time(u64::MAX) } else { now.after(self.timing.device) };
        let question = Question::RunsOn { device: self.device, disk, is_whole };
        let timing = Timing { pause: PAUSE, ..self.timing };
        let waiting = Waiting::new(question, &timing, until, questions);
        self.phase = Phase::AwaitingDevice(Box::new(waiting));
    }

    fn edit(&mut self, now: Time, edit: DeviceEdit, questions: &mut Questions) -> DeviceRecordEdit {
        DeviceRecordEdit::new(edit, now.after(self.timing.store), questions)
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}

impl From<DeviceEditError> for Error {
    fn from(error: DeviceEditError) -> Error {
        match error {
            DeviceEditError::NoSuchDevice => Error::NoDevice,
            DeviceEditError::NumberUsed => Error::NumberUsed,
            DeviceEditError::HoldsVolumes(volumes) => Error::HoldsVolumes(volumes),
            DeviceEditError::Lost => Error::Lost,
            DeviceEditError::Store(tag) => Error::Question(tag),
        }
    }
}
