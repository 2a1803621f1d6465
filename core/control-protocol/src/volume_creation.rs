//! The creation of a volume: its record is entered, the devices get their parts, and then hosts may use it. A creation that can't be
//! completed is undone; one whose administrator has died is completed by another one, or its volume is deleted.
//!
//! ```text
//!   inspecting ◄──────► waiting for another administrator that creates the same volume (`turns`)
//!       │ there is no such volume, or its administrator is dead, and fenced
//!       ▼
//!   entering: Creating ─► the monitor knows it ─► notifying: CreateObject ─► lock servers serve ─► finishing: Ready
//!                                  └────────────────────┴────────────────────────┴─► undoing (a deletion)
//! ```

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::device_notice::DeviceNotice;
use crate::device_tasks::holders;
use crate::edit::{Edit, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Version, VolumeRecord, VolumeState};
use crate::turns::{Turn, TurnEnd};
use crate::volume_deletion::Deletion;
use crate::waiting::Waiting;
use braid_base::{Generation, Time};
use braid_layout::VolumeDescription;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    own: Generation,
    /// None if it completes what another administrator has begun.
    volume: Option<Box<VolumeDescription>>,
    timing: Timing,
    /// Other administrators are waited for until then.
    until: Time,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// All devices of the volume must be in.
    CheckingMembers(Tag),
    /// It reads the record, until this time.
    Inspecting(Tag, Time),
    Waiting(Turn),
    Entering(RecordEdit),
    AwaitingMonitor(Waiting, Version, VolumeRecord),
    Notifying(DeviceNotice, VolumeRecord),
    AwaitingLockServers(Waiting),
    Finishing(RecordEdit),
    /// With the error because of which it is undone.
    Undoing(Box<Deletion>, Error),
    Ended,
}

impl Creation {
    /// The creation by `own` of this volume. If its record is there already, in the same words, the creation is continued.
    pub fn of(own: Generation, volume: VolumeDescription, timing: Timing) -> Creation {
        Creation::new(own, Some(Box::new(volume)), timing)
    }

    /// The operation of `own` that completes a creation, if its administrator has died.
    pub fn continuing(own: Generation, timing: Timing) -> Creation {
        Creation::new(own, None, timing)
    }

    fn new(own: Generation, volume: Option<Box<VolumeDescription>>, timing: Timing) -> Creation {
        Creation { own, volume, timing, until: Time(0), phase: Phase::New }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::Undoing(deletion, why), input) => self.undo(*deletion, why, input, questions),
            (Phase::New, Input::Start) => {
                self.until = questions.after(self.timing.turn);
                match &self.volume {
                    None => self.inspect(questions),
                    Some(volume) => {
                        let devices = holders([&**volume]);
                        self.phase = Phase::CheckingMembers(questions.ask(Question::AreIn { devices }));
                    }
                }
            }
            (_, Input::Start) => panic!("a creation begins once"),
            (Phase::CheckingMembers(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::AllIn(_) => self.inspect(questions),
                Answer::NotIn(_) => questions.end(Err(Error::NotIn(tag))),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Inspecting(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Record { version, record, .. } => {
                    self.on_record(version, record.map(|record| *record), questions)
                }
                Answer::Unknown if questions.now < until => {
                    self.phase = Phase::Inspecting(questions.command(Command::Read), until);
                }
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Waiting(mut turn), input) => match turn.step(self.until, input, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(Ok(TurnEnd::Look)) => self.inspect(questions),
                Some(Ok(TurnEnd::Over(from))) => self.enter(Edit::TakeOver { from, by: self.own }, questions),
                Some(Err(Error::Held(_))) if self.volume.is_none() => questions.end(Ok(Done::Nothing)),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Entering(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Entering(editing),
                Some(Ok((version, record))) => self.await_monitor(version, record, questions),
                Some(Err(error @ (Error::Question(_) | Error::NumberUsed | Error::NoSuchDevice(_)))) => {
                    questions.end(Err(error));
                }
                // Another administrator has taken over first.
                Some(Err(_)) => self.inspect(questions),
            },
            (Phase::AwaitingMonitor(mut waiting, version, record), input) => match waiting.step(input, questions) {
                None => self.phase = Phase::AwaitingMonitor(waiting, version, record),
                Some(Ok(())) => self.tell(version, record, questions),
                Some(Err(why)) => self.fail(why, questions),
            },
            (Phase::Notifying(mut notice, record), input) => match notice.step(input, questions) {
                None => self.phase = Phase::Notifying(notice, record),
                Some(Ok(_)) => self.await_lock_servers(&record, questions),
                Some(Err(Error::Lost)) => questions.end(Err(Error::Lost)),
                Some(Err(why)) => self.fail(why, questions),
            },
            (Phase::AwaitingLockServers(mut waiting), input) => match waiting.step(input, questions) {
                None => self.phase = Phase::AwaitingLockServers(waiting),
                Some(Ok(())) => self.finish(questions),
                Some(Err(why)) => self.fail(why, questions),
            },
            (Phase::Finishing(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Finishing(editing),
                Some(Ok(_)) => questions.end(Ok(Done::Changed)),
                // It may be ready.
                Some(Err(error @ Error::Question(_))) => questions.end(Err(error)),
                Some(Err(_)) => questions.end(Err(Error::Lost)),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn inspect(&mut self, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::Read), questions.after(self.timing.store));
    }

    fn on_record(&mut self, version: Version, record: Option<VolumeRecord>, questions: &mut Questions) {
        let Some(record) = record else {
            return match self.volume.clone() {
                Some(volume) => self.enter(Edit::Enter { volume, by: self.own }, questions),
                None => questions.end(Ok(Done::Nothing)),
            };
        };
        let is_this = self.volume.as_ref().is_none_or(|volume| **volume == record.volume);
        match record.state {
            _ if !is_this => questions.end(Err(Error::NumberUsed)),
            VolumeState::Creating { by } if by == self.own => self.await_monitor(version, record, questions),
            VolumeState::Creating { by } => self.phase = Phase::Waiting(Turn::new(by, questions)),
            VolumeState::Deleting { .. } if self.volume.is_some() => questions.end(Err(Error::Lost)),
            // Another administrator has completed it.
            _ => questions.end(Ok(Done::Nothing)),
        }
    }

    fn enter(&mut self, edit: Edit, questions: &mut Questions) {
        self.phase = Phase::Entering(RecordEdit::new(edit, self.timing.store, questions));
    }

    /// The monitor must not take a device out without which the new volume can't be served.
    fn await_monitor(&mut self, version: Version, record: VolumeRecord, questions: &mut Questions) {
        let question = Question::MonitorKnows { version };
        let waiting = Waiting::new(question, self.timing.monitor, &self.timing, questions);
        self.phase = Phase::AwaitingMonitor(waiting, version, record);
    }

    fn tell(&mut self, version: Version, record: VolumeRecord, questions: &mut Questions) {
        let notice = DeviceNotice::new(self.own, version, &record, self.timing.in_use, questions);
        self.phase = Phase::Notifying(notice, record);
    }

    fn await_lock_servers(&mut self, record: &VolumeRecord, questions: &mut Questions) {
        if !record.volume.ordering.needs_lock_server() {
            return self.finish(questions);
        }
        questions.push(Effect::Began(Stage::AwaitingLockServers));
        let (question, within) = (Question::LockServersServe, self.timing.lock_servers);
        self.phase = Phase::AwaitingLockServers(Waiting::new(question, within, &self.timing, questions));
    }

    fn finish(&mut self, questions: &mut Questions) {
        let edit = Edit::Finish { by: self.own };
        self.phase = Phase::Finishing(RecordEdit::new(edit, self.timing.store, questions));
    }

    /// The creation can't be completed now. What another administrator has begun is undone only if it can never be completed.
    fn fail(&mut self, why: Error, questions: &mut Questions) {
        if self.volume.is_none() && !matches!(why, Error::NoSpace(_)) {
            return questions.end(Err(why));
        }
        self.undo(Deletion::undoing(self.own, self.timing), why, Input::Start, questions);
    }

    /// Gives an input to the deletion that undoes the creation. If it fails, the record says that the volume is being deleted.
    fn undo(&mut self, mut deletion: Deletion, why: Error, input: Input, questions: &mut Questions) {
        deletion.step(input, questions);
        match questions.ended() {
            None => self.phase = Phase::Undoing(Box::new(deletion), why),
            Some(_) => questions.end(Err(why)),
        }
    }
}
