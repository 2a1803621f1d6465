//! A notice to the devices: a step of a change, a creation or a deletion, which is repeated until it is done.
//!
//! The epoch must be the same before the first device is told and after the last has answered. A device that was out and returned meanwhile
//! was resynchronised by a host that knows the volume as it was before the change: it is told again. Devices need not be in: one that
//! returns is told, too, and its recovery does not get beyond its survey while a coordinator has a volume on hold. So the recovery neither
//! ends nor undoes what the device is told before its coordinator knows the change. Nor can a recovery end while the others have a part of
//! a volume that hosts do not know; and it leaves alone what the device has of such a volume, which may be about to be created. So a
//! deletion, and the end of a creation that can't be completed, tell each device, also one that was unavailable, when it is back.
//!
//! Before devices are told again, the administrator confirms that it still holds the volume. That spares requests which the devices would
//! refuse; they refuse those of a fenced host.

use crate::contract::{Effect, Error, Input, Stage};
use crate::device_tasks::{DeviceTasks, TaskProgress, holders};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Version, VolumeRecord};
use braid_base::{Epoch, Generation, Time};
use braid_layout::VolumeDescription;
use std::time::Duration;

/// The wait before devices that are in use, or not in, are looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// The devices of a volume are being notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNotice {
    own: Generation,
    /// A version in which the administrator holds the volume.
    version: Version,
    /// The volume before and after; none before its creation, and none after its deletion.
    from: Option<VolumeDescription>,
    to: Option<VolumeDescription>,
    /// The volume is being created: if a device has no space, that is undone by another step.
    is_new: bool,
    tasks: DeviceTasks,
    /// A device had too little space for the change: all are told to undo it.
    undone_for: Option<Tag>,
    step: Step,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Which epoch is it?
    Checking(Tag),
    /// Tasks are under way.
    Notifying(Epoch),
    /// All have answered. Is it still that epoch?
    CheckingAgain(Tag, Epoch),
    Pausing,
    Confirming(Tag),
    Reading(Tag),
}

/// What the devices hold in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// The volume; none if it is deleted.
    pub volume: Option<VolumeDescription>,
    /// The change is undone, because a device had too little space for it.
    pub undone_for: Option<Tag>,
}

impl DeviceNotice {
    /// Tells the devices of a volume that `own` changes, creates or deletes. Those in use are asked again within this time.
    pub fn new(
        own: Generation,
        version: Version,
        record: &VolumeRecord,
        within: Duration,
        questions: &mut Questions,
    ) -> DeviceNotice {
        questions.push(Effect::Began(Stage::NotifyingDevices));
        let Some((from, to)) = record.told() else {
            panic!("devices are told when the store says that the volume is being changed, created or deleted")
        };
        assert_eq!(record.administrator(), Some(own), "devices are told by the administrator that holds the volume");
        let (is_new, until) = (from.is_none(), questions.after(within));
        let tasks = DeviceTasks::new(from.as_ref(), to.as_ref(), until);
        let step = Step::Checking(ask_members(&from, &to, questions));
        DeviceNotice { own, version, from, to, is_new, tasks, undone_for: None, step, until }
    }

    /// Takes an input. Returns how the notice has ended.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<Confirmed, Error>> {
        let (tag, answer) = match input {
            Input::Answer { tag, answer } => (tag, answer),
            Input::Wake if matches!(self.step, Step::Pausing) => {
                self.step = Step::Confirming(questions.command(Command::Confirm { version: self.version }));
                return None;
            }
            _ => return None,
        };
        match (self.step, answer) {
            (Step::Notifying(epoch), answer) => {
                let is_task = self.tasks.on_answer(questions.now, tag, &answer);
                return is_task.then(|| self.progress(epoch, questions)).flatten();
            }
            (
                Step::Checking(asked) | Step::CheckingAgain(asked, _) | Step::Confirming(asked) | Step::Reading(asked),
                _,
            ) if asked != tag => {}
            (Step::Checking(_), Answer::AllIn(epoch) | Answer::NotIn(epoch)) => {
                self.step = Step::Notifying(epoch);
                self.tasks.send(questions);
                return self.progress(epoch, questions);
            }
            (Step::CheckingAgain(_, before), Answer::AllIn(epoch) | Answer::NotIn(epoch)) if epoch == before => {
                return Some(Ok(Confirmed { volume: self.to.clone(), undone_for: self.undone_for }));
            }
            (Step::CheckingAgain(..), _) => {
                self.tasks = DeviceTasks::new(self.from.as_ref(), self.to.as_ref(), self.until);
                self.pause(questions);
            }
            (Step::Confirming(_), Answer::Yes) => self.check(questions),
            // Perhaps something else has changed.
            (Step::Confirming(_), _) => self.step = Step::Reading(questions.command(Command::Read)),
            (Step::Reading(_), Answer::Record { version, record, .. }) => {
                let is_own = |record: &VolumeRecord| record.administrator() == Some(self.own);
                if !record.is_some_and(|record| is_own(&record) && record.told().is_some()) {
                    return Some(Err(Error::Lost));
                }
                self.version = version;
                self.check(questions);
            }
            (Step::Checking(_) | Step::Reading(_), Answer::Unknown) if questions.now < self.until => {
                self.pause(questions);
            }
            (Step::Checking(_) | Step::Reading(_), _) => return Some(Err(Error::Incomplete(tag))),
            (Step::Pausing, _) => {}
        }
        None
    }

    fn pause(&mut self, questions: &mut Questions) {
        self.step = Step::Pausing;
        questions.pause(PAUSE);
    }

    fn check(&mut self, questions: &mut Questions) {
        self.step = Step::Checking(ask_members(&self.from, &self.to, questions));
    }

    fn progress(&mut self, epoch: Epoch, questions: &mut Questions) -> Option<Result<Confirmed, Error>> {
        match self.tasks.progress() {
            TaskProgress::Waiting => {}
            TaskProgress::Again => self.pause(questions),
            TaskProgress::Done => {
                self.step = Step::CheckingAgain(ask_members(&self.from, &self.to, questions), epoch);
            }
            // A new volume is undone by another step.
            TaskProgress::Failed(failure) if failure.no_space && self.is_new => {
                return Some(Err(Error::NoSpace(failure.tag)));
            }
            TaskProgress::Failed(failure) if failure.no_space && self.undone_for.is_none() => {
                self.undone_for = Some(failure.tag);
                std::mem::swap(&mut self.from, &mut self.to);
                self.tasks = DeviceTasks::new(self.from.as_ref(), self.to.as_ref(), self.until);
                self.check(questions);
            }
            TaskProgress::Failed(failure) => return Some(Err(Error::Incomplete(failure.tag))),
        }
        None
    }
}

/// Asks for the epoch, and whether all devices are in that are told.
fn ask_members(from: &Option<VolumeDescription>, to: &Option<VolumeDescription>, questions: &mut Questions) -> Tag {
    questions.ask(Question::AreIn { devices: holders(from.iter().chain(to)) })
}
