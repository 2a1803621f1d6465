//! The deletion of a volume: hosts forget it, then its parts on the devices are removed, then its record. A deletion that was begun is
//! completed, by its administrator or by another one.
//!
//! ```text
//!   inspecting ◄──────► waiting for another administrator (`turns`)
//!       │ nobody is at work on the volume, or a dead administrator, which is fenced
//!       ▼
//!   marking: Deleting ─► draining: every host has forgotten it ─► notifying: RemoveObject ─► removing: no record
//! ```

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::device_notice::{DeviceNotice, NoticeEnd};
use crate::device_tasks::holders;
use crate::drain::{Drain, DrainProgress};
use crate::edit::{Edit, EditError, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Version, VolumeRecord, VolumeState};
use crate::turns::{Turn, TurnEnd};
use braid_base::{Generation, Time};

/// A deletion, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    own: Generation,
    goal: Goal,
    timing: Timing,
    /// Other administrators are waited for until then.
    until: Time,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To delete the volume, whatever its state is.
    Delete,
    /// To complete a deletion that has begun.
    Continue,
    /// To undo the own creation of the volume, which no host knows.
    Undo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// It reads the record, until this time.
    Inspecting(Tag, Time),
    /// All devices of the volume must be in.
    CheckingMembers(Tag),
    Waiting(Turn, VolumeRecord),
    /// True if hosts may know the volume.
    Marking(RecordEdit, bool),
    Draining(Drain, Version, VolumeRecord),
    Notifying(DeviceNotice, VolumeRecord),
    Removing(RecordEdit),
    Ended,
}

impl Deletion {
    /// The deletion by `own` of a volume.
    pub fn of(own: Generation, timing: Timing) -> Deletion {
        Deletion::new(own, Goal::Delete, timing)
    }

    /// The operation of `own` that completes a deletion, if its administrator has died.
    pub fn continuing(own: Generation, timing: Timing) -> Deletion {
        Deletion::new(own, Goal::Continue, timing)
    }

    /// The end of a creation of `own` that can't be completed.
    pub(crate) fn undoing(own: Generation, timing: Timing) -> Deletion {
        Deletion::new(own, Goal::Undo, timing)
    }

    fn new(own: Generation, goal: Goal, timing: Timing) -> Deletion {
        Deletion { own, goal, timing, until: Time(0), phase: Phase::New }
    }

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(turn, _) => turn.deadline(),
            Phase::Marking(editing, _) | Phase::Removing(editing) => editing.deadline(),
            Phase::Draining(drain, ..) => drain.deadline(),
            Phase::Notifying(notice, _) => notice.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "a deletion begins once");
                self.until = now.after(self.timing.turn);
                match self.goal {
                    Goal::Undo => self.mark(now, Some(self.own), false, questions),
                    Goal::Delete | Goal::Continue => self.inspect(now, questions),
                }
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer, questions),
            Input::Wake => self.on_wake(now, questions),
        }
    }

    fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        match &mut self.phase {
            Phase::Waiting(turn, _) if turn.on_wake(now).is_some() => self.inspect(now, questions),
            Phase::Marking(editing, _) | Phase::Removing(editing) => editing.on_wake(now, questions),
            Phase::Draining(drain, ..) => {
                if let DrainProgress::Late(hosts) = drain.on_wake(now, questions) {
                    self.end(Err(Error::NotDrained(hosts)), questions);
                }
            }
            Phase::Notifying(notice, _) => notice.on_wake(now, questions),
            _ => {}
        }
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Record { version, record, .. } => {
                    self.on_record(now, version, record.map(|record| *record), questions)
                }
                Answer::Unknown if now < until => self.phase = Phase::Inspecting(self.read(questions), until),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::CheckingMembers(asked) if asked == tag => match answer {
                Answer::AllIn(_) => self.mark(now, None, true, questions),
                Answer::NotIn(_) => self.end(Err(Error::NotIn(tag)), questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Waiting(mut turn, record) => match turn.on_answer(now, self.until, tag, answer, questions) {
                None => self.phase = Phase::Waiting(turn, record),
                Some(TurnEnd::Look) => self.inspect(now, questions),
                Some(TurnEnd::Busy(_)) if self.goal == Goal::Continue => self.end(Ok(Done::Nothing), questions),
                Some(TurnEnd::Busy(by)) => self.end(Err(Error::Held(by)), questions),
                Some(TurnEnd::Over(by)) => {
                    let is_known = !matches!(record.state, VolumeState::Creating { .. });
                    self.mark(now, Some(by), is_known, questions);
                }
                Some(TurnEnd::Failed(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Marking(mut editing, is_known) => {
                match editing.on_answer(now, tag, answer, questions) {
                    None => self.phase = Phase::Marking(editing, is_known),
                    Some(Ok((version, record))) if is_known => self.drain(now, version, record, questions),
                    Some(Ok((version, record))) => self.tell(now, version, record, questions),
                    Some(Err(EditError::Store(tag))) => self.end(Err(Error::Question(tag)), questions),
                    Some(Err(_)) if self.goal == Goal::Undo => self.end(Err(Error::Lost), questions),
                    // Another administrator has begun something since.
                    Some(Err(_)) => self.inspect(now, questions),
                }
            }
            Phase::Draining(mut drain, version, record) => match drain.on_answer(now, tag, answer, questions) {
                DrainProgress::Waiting => self.phase = Phase::Draining(drain, version, record),
                DrainProgress::Drained => self.tell(now, version, record, questions),
                DrainProgress::Late(hosts) => self.end(Err(Error::NotDrained(hosts)), questions),
                DrainProgress::Failed(tag) => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Notifying(mut notice, record) => match notice.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Notifying(notice, record),
                Some(NoticeEnd::Confirmed { .. }) => {
                    let edit = Edit::Remove { by: self.own, record: Box::new(record) };
                    self.phase = Phase::Removing(self.edit(now, edit, questions));
                }
                Some(NoticeEnd::Lost) => self.end(Err(Error::Lost), questions),
                Some(NoticeEnd::Failed(tag) | NoticeEnd::NoSpace(tag)) => {
                    self.end(Err(Error::Incomplete(tag)), questions);
                }
            },
            Phase::Removing(mut editing) => match editing.on_answer(now, tag, answer, questions) {
                None => self.phase = Phase::Removing(editing),
                Some(Ok(_)) => self.end(Ok(Done::Changed), questions),
                Some(Err(EditError::Store(tag))) => self.end(Err(Error::Question(tag)), questions),
                Some(Err(_)) => self.end(Err(Error::Lost), questions),
            },
            // The answer to a question that is no longer waited for.
            phase => self.phase = phase,
        }
    }

    fn read(&mut self, questions: &mut Questions) -> Tag {
        questions.command(Command::Read)
    }

    fn inspect(&mut self, now: Time, questions: &mut Questions) {
        self.phase = Phase::Inspecting(self.read(questions), now.after(self.timing.store));
    }

    fn on_record(&mut self, now: Time, version: Version, record: Option<VolumeRecord>, questions: &mut Questions) {
        let is_deleting = |record: &VolumeRecord| matches!(record.state, VolumeState::Deleting { .. });
        let Some(record) = record.filter(|record| self.goal == Goal::Delete || is_deleting(record)) else {
            return self
                .end(if self.goal == Goal::Delete { Err(Error::NotUsable) } else { Ok(Done::Nothing) }, questions);
        };
        match record.administrator() {
            None => {
                let devices = holders([&record.volume]);
                self.phase = Phase::CheckingMembers(questions.ask(Question::AreIn { devices }));
            }
            Some(by) if by == self.own && is_deleting(&record) => self.drain(now, version, record, questions),
            Some(by) if by == self.own => {
                let is_known = !matches!(record.state, VolumeState::Creating { .. });
                self.mark(now, Some(by), is_known, questions);
            }
            Some(by) => self.phase = Phase::Waiting(Turn::new(by, questions), record),
        }
    }

    fn mark(&mut self, now: Time, from: Option<Generation>, is_known: bool, questions: &mut Questions) {
        let editing = self.edit(now, Edit::Delete { from, by: self.own }, questions);
        self.phase = Phase::Marking(editing, is_known);
    }

    fn drain(&mut self, now: Time, version: Version, record: VolumeRecord, questions: &mut Questions) {
        questions.push(Effect::Began(Stage::Draining));
        let drain = Drain::new(version, now.after(self.timing.drain), questions);
        self.phase = Phase::Draining(drain, version, record);
    }

    fn tell(&mut self, now: Time, version: Version, record: VolumeRecord, questions: &mut Questions) {
        questions.push(Effect::Began(Stage::NotifyingDevices));
        let until = now.after(self.timing.in_use);
        let notice = DeviceNotice::new(self.own, version, &record, until, questions);
        self.phase = Phase::Notifying(notice, record);
    }

    fn edit(&mut self, now: Time, edit: Edit, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(edit, now.after(self.timing.store), questions)
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}
