//! The deletion of a volume: hosts forget it, then its parts on the devices are removed, then its record. A deletion that was begun is
//! completed, by its administrator or by another one.
//!
//! ```text
//!   inspecting ◄──────► waiting for another administrator (`turns`)
//!       │ nobody is at work on the volume, or a dead administrator, which is fenced
//!       ▼
//!   marking: Deleting ─► draining: every host has forgotten it ─► notifying: RemoveObject ─► removing: no record
//! ```

use crate::contract::{Done, Error, Input, Timing};
use crate::device_notice::DeviceNotice;
use crate::device_tasks::holders;
use crate::drain::Drain;
use crate::edit::{Edit, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Version, VolumeRecord, VolumeState};
use crate::turns::{Turn, TurnEnd};
use braid_base::{Generation, Time};

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

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => {
                self.until = questions.after(self.timing.turn);
                match self.goal {
                    Goal::Undo => self.mark(Some(self.own), false, questions),
                    Goal::Delete | Goal::Continue => self.inspect(questions),
                }
            }
            (_, Input::Start) => panic!("a deletion begins once"),
            (Phase::Inspecting(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Record { version, record, .. } => {
                    self.on_record(version, record.map(|record| *record), questions)
                }
                Answer::Unknown if questions.now < until => {
                    self.phase = Phase::Inspecting(questions.command(Command::Read), until);
                }
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::CheckingMembers(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::AllIn(_) => self.mark(None, true, questions),
                Answer::NotIn(_) => questions.end(Err(Error::NotIn(tag))),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Waiting(mut turn, record), input) => match turn.step(self.until, input, questions) {
                None => self.phase = Phase::Waiting(turn, record),
                Some(Ok(TurnEnd::Look)) => self.inspect(questions),
                Some(Ok(TurnEnd::Over(by))) => {
                    let is_known = !matches!(record.state, VolumeState::Creating { .. });
                    self.mark(Some(by), is_known, questions);
                }
                Some(Err(Error::Held(_))) if self.goal == Goal::Continue => questions.end(Ok(Done::Nothing)),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Marking(mut editing, is_known), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Marking(editing, is_known),
                Some(Ok((version, record))) if is_known => self.drain(version, record, questions),
                Some(Ok((version, record))) => self.tell(version, record, questions),
                Some(Err(error @ Error::Question(_))) => questions.end(Err(error)),
                Some(Err(_)) if self.goal == Goal::Undo => questions.end(Err(Error::Lost)),
                // Another administrator has begun something since.
                Some(Err(_)) => self.inspect(questions),
            },
            (Phase::Draining(mut drain, version, record), input) => match drain.step(input, questions) {
                None => self.phase = Phase::Draining(drain, version, record),
                Some(Ok(())) => self.tell(version, record, questions),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Notifying(mut notice, record), input) => match notice.step(input, questions) {
                None => self.phase = Phase::Notifying(notice, record),
                Some(Ok(_)) => {
                    let edit = Edit::Remove { by: self.own, record: Box::new(record) };
                    self.phase = Phase::Removing(RecordEdit::new(edit, self.timing.store, questions));
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Removing(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Removing(editing),
                Some(Ok(_)) => questions.end(Ok(Done::Changed)),
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
        let is_deleting = |record: &VolumeRecord| matches!(record.state, VolumeState::Deleting { .. });
        let Some(record) = record.filter(|record| self.goal == Goal::Delete || is_deleting(record)) else {
            return questions.end(if self.goal == Goal::Delete { Err(Error::NotUsable) } else { Ok(Done::Nothing) });
        };
        match record.administrator() {
            None => {
                let devices = holders([&record.volume]);
                self.phase = Phase::CheckingMembers(questions.ask(Question::AreIn { devices }));
            }
            Some(by) if by == self.own && is_deleting(&record) => self.drain(version, record, questions),
            Some(by) if by == self.own => {
                let is_known = !matches!(record.state, VolumeState::Creating { .. });
                self.mark(Some(by), is_known, questions);
            }
            Some(by) => self.phase = Phase::Waiting(Turn::new(by, questions), record),
        }
    }

    fn mark(&mut self, from: Option<Generation>, is_known: bool, questions: &mut Questions) {
        let edit = Edit::Delete { from, by: self.own };
        self.phase = Phase::Marking(RecordEdit::new(edit, self.timing.store, questions), is_known);
    }

    fn drain(&mut self, version: Version, record: VolumeRecord, questions: &mut Questions) {
        self.phase = Phase::Draining(Drain::new(version, self.timing.drain, questions), version, record);
    }

    fn tell(&mut self, version: Version, record: VolumeRecord, questions: &mut Questions) {
        let notice = DeviceNotice::new(self.own, version, &record, self.timing.in_use, questions);
        self.phase = Phase::Notifying(notice, record);
    }
}
