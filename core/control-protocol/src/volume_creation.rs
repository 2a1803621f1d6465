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
use crate::device_notice::{DeviceNotice, NoticeEnd};
use crate::device_tasks::holders;
use crate::edit::{Edit, EditError, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Version, VolumeRecord, VolumeState};
use crate::turns::{Turn, TurnEnd};
use crate::volume_deletion::Deletion;
use crate::waiting::{WaitEnd, Waiting};
use braid_base::{Generation, Time};
use braid_layout::VolumeDescription;

/// A creation, and its state.
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

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(turn) => turn.deadline(),
            Phase::Entering(editing) | Phase::Finishing(editing) => editing.deadline(),
            Phase::AwaitingMonitor(waiting, ..) | Phase::AwaitingLockServers(waiting) => waiting.deadline(),
            Phase::Notifying(notice, _) => notice.deadline(),
            Phase::Undoing(deletion, _) => deletion.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::Undoing(deletion, why), input) => self.undo(now, *deletion, why, input, questions),
            (Phase::New, Input::Start) => {
                self.until = now.after(self.timing.turn);
                match &self.volume {
                    None => self.inspect(now, questions),
                    Some(volume) => {
                        let devices = holders([&**volume]);
                        self.phase = Phase::CheckingMembers(questions.ask(Question::AreIn { devices }));
                    }
                }
            }
            (_, Input::Start) => panic!("a creation begins once"),
            (phase, Input::Answer { tag, answer }) => self.on_answer(now, phase, tag, answer, questions),
            (phase, Input::Wake) => self.on_wake(now, phase, questions),
        }
    }

    fn on_wake(&mut self, now: Time, mut phase: Phase, questions: &mut Questions) {
        match &mut phase {
            Phase::Waiting(turn) if turn.on_wake(now).is_some() => return self.inspect(now, questions),
            Phase::Entering(editing) | Phase::Finishing(editing) => editing.on_wake(now, questions),
            Phase::AwaitingMonitor(waiting, ..) | Phase::AwaitingLockServers(waiting) => {
                waiting.on_wake(now, questions);
            }
            Phase::Notifying(notice, _) => notice.on_wake(now, questions),
            _ => {}
        }
        self.phase = phase;
    }

    fn on_answer(&mut self, now: Time, phase: Phase, tag: Tag, answer: Answer, questions: &mut Questions) {
        match phase {
            Phase::CheckingMembers(asked) if asked == tag => match answer {
                Answer::AllIn(_) => self.inspect(now, questions),
                Answer::NotIn(_) => self.end(Err(Error::NotIn(tag)), questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Record { version, record, .. } => {
                    self.on_record(now, version, record.map(|record| *record), questions)
                }
                Answer::Unknown if now < until => {
                    self.phase = Phase::Inspecting(questions.command(Command::Read), until);
                }
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Waiting(mut turn) => match turn.on_answer(now, self.until, tag, answer, questions) {
                None => self.phase = Phase::Waiting(turn),
                Some(TurnEnd::Look) => self.inspect(now, questions),
                Some(TurnEnd::Busy(_)) if self.volume.is_none() => self.end(Ok(Done::Nothing), questions),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by)), questions),
                Some(TurnEnd::Over(from)) => self.enter(now, Edit::TakeOver { from, by: self.own }, questions),
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Entering(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Entering(editing),
                Some(Ok((version, record))) => self.await_monitor(now, version, record, questions),
                Some(Err(EditError::Store(tag))) => self.end(Err(Error::Question(tag)), questions),
                Some(Err(EditError::NumberUsed)) => self.end(Err(Error::NumberUsed), questions),
                Some(Err(EditError::NoSuchDevice(device))) => self.end(Err(Error::NoSuchDevice(device)), questions),
                // Another administrator has taken over first.
                Some(Err(_)) => self.inspect(now, questions),
            },
            Phase::AwaitingMonitor(mut waiting, version, record) => match waiting.on_answer(now, tag, &answer) {
                None => self.phase = Phase::AwaitingMonitor(waiting, version, record),
                Some(WaitEnd::Yes) => self.tell(now, version, record, questions),
                Some(WaitEnd::TimedOut(_)) => self.fail(now, Error::MonitorSilent, questions),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => {
                    self.fail(now, Error::Question(tag), questions)
                }
            },
            Phase::Notifying(mut notice, record) => match notice.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Notifying(notice, record),
                Some(NoticeEnd::Confirmed { .. }) => self.await_lock_servers(now, &record, questions),
                Some(NoticeEnd::Lost) => self.end(Err(Error::Lost), questions),
                Some(NoticeEnd::NoSpace(tag)) => self.fail(now, Error::NoSpace(tag), questions),
                Some(NoticeEnd::Failed(tag)) => self.fail(now, Error::Incomplete(tag), questions),
            },
            Phase::AwaitingLockServers(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => self.phase = Phase::AwaitingLockServers(waiting),
                Some(WaitEnd::Yes) => self.finish(now, questions),
                Some(WaitEnd::TimedOut(tag)) => self.fail(now, Error::NoLockServer(tag), questions),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => {
                    self.fail(now, Error::Question(tag), questions)
                }
            },
            Phase::Finishing(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Finishing(editing),
                Some(Ok(_)) => self.end(Ok(Done::Changed), questions),
                // It may be ready.
                Some(Err(EditError::Store(tag))) => self.end(Err(Error::Question(tag)), questions),
                Some(Err(_)) => self.end(Err(Error::Lost), questions),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn inspect(&mut self, now: Time, questions: &mut Questions) {
        let until = now.after(self.timing.store);
        self.phase = Phase::Inspecting(questions.command(Command::Read), until);
    }

    fn on_record(&mut self, now: Time, version: Version, record: Option<VolumeRecord>, questions: &mut Questions) {
        let Some(record) = record else {
            return match self.volume.clone() {
                Some(volume) => self.enter(now, Edit::Enter { volume, by: self.own }, questions),
                None => self.end(Ok(Done::Nothing), questions),
            };
        };
        let is_this = self.volume.as_ref().is_none_or(|volume| **volume == record.volume);
        match record.state {
            _ if !is_this => self.end(Err(Error::NumberUsed), questions),
            VolumeState::Creating { by } if by == self.own => self.await_monitor(now, version, record, questions),
            VolumeState::Creating { by } => self.phase = Phase::Waiting(Turn::new(by, questions)),
            VolumeState::Deleting { .. } if self.volume.is_some() => self.end(Err(Error::Lost), questions),
            // Another administrator has completed it.
            _ => self.end(Ok(Done::Nothing), questions),
        }
    }

    fn enter(&mut self, now: Time, edit: Edit, questions: &mut Questions) {
        self.phase = Phase::Entering(self.edit(now, edit, questions));
    }

    /// The monitor must not take a device out without which the new volume can't be served.
    fn await_monitor(&mut self, now: Time, version: Version, record: VolumeRecord, questions: &mut Questions) {
        let (question, until) = (Question::MonitorKnows { version }, now.after(self.timing.monitor));
        let waiting = Waiting::new(question, &self.timing, until, questions);
        self.phase = Phase::AwaitingMonitor(waiting, version, record);
    }

    fn tell(&mut self, now: Time, version: Version, record: VolumeRecord, questions: &mut Questions) {
        questions.push(Effect::Began(Stage::NotifyingDevices));
        let until = now.after(self.timing.in_use);
        let notice = DeviceNotice::new(self.own, version, &record, until, questions);
        self.phase = Phase::Notifying(notice, record);
    }

    fn await_lock_servers(&mut self, now: Time, record: &VolumeRecord, questions: &mut Questions) {
        if !record.volume.ordering.needs_lock_server() {
            return self.finish(now, questions);
        }
        questions.push(Effect::Began(Stage::AwaitingLockServers));
        let (question, until) = (Question::LockServersServe, now.after(self.timing.lock_servers));
        let waiting = Waiting::new(question, &self.timing, until, questions);
        self.phase = Phase::AwaitingLockServers(waiting);
    }

    fn finish(&mut self, now: Time, questions: &mut Questions) {
        self.phase = Phase::Finishing(self.edit(now, Edit::Finish { by: self.own }, questions));
    }

    /// The creation can't be completed now. What another administrator has begun is undone only if it can never be completed.
    fn fail(&mut self, now: Time, why: Error, questions: &mut Questions) {
        if self.volume.is_none() && !matches!(why, Error::NoSpace(_)) {
            return self.end(Err(why), questions);
        }
        self.undo(now, Deletion::undoing(self.own, self.timing), why, Input::Start, questions);
    }

    /// Gives an input to the deletion that undoes the creation. If it fails, the record says that the volume is being deleted.
    fn undo(&mut self, now: Time, mut deletion: Deletion, why: Error, input: Input, questions: &mut Questions) {
        deletion.step(now, input, questions);
        match questions.ended() {
            None => self.phase = Phase::Undoing(Box::new(deletion), why),
            Some(_) => self.end(Err(why), questions),
        }
    }

    fn edit(&mut self, now: Time, edit: Edit, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(edit, now.after(self.timing.store), questions)
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}
