//! An administrator changes one volume while hosts use it, or settles the change of an administrator that has died.

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::device_tasks::holders;
use crate::drain::{Drain, DrainProgress, ShutOut, ShutOutEnd};
use crate::edit::{Edit, EditError, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Change, Version, VolumeRecord, VolumeState};
use crate::telling::{Telling, TellingEnd};
use crate::waiting::{WaitEnd, Waiting};
use braid_base::{Generation, Time};

/// A change of one volume, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Administrator {
    own: Generation,
    task: Work,
    timing: Timing,
    phase: Phase,
    questions: Questions,
}

/// What it is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// To make this change.
    Change(Change),
    /// To complete or revert the change that the volume is on hold for, if its administrator has died.
    Settle,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// It reads the record, until this time.
    Inspecting(Tag, Time),
    /// All devices of the volume must be in, because all of them must be told.
    CheckingMembers(Tag, Change),
    Holding(RecordEdit),
    /// On hold, in state `Draining`: the record, and the version with the hold.
    Held(VolumeRecord, Version, Preparation),
    Committing(RecordEdit),
    /// On hold, in state `Reordering`.
    Telling(Telling),
    /// With an error if the change was undone.
    Releasing(RecordEdit, Option<Error>),
    /// With the error because of which it reverts its own hold.
    Reverting(RecordEdit, Option<Error>),
    /// It judges the administrator that holds the volume.
    Judging(Tag, VolumeRecord, Generation),
    ShuttingOut(ShutOut, Generation),
    TakingOver(RecordEdit),
    Ended,
}

/// The steps between the hold and the commit. If one fails, the hold is reverted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Preparation {
    AwaitingMonitor(Waiting),
    Draining(Drain),
    AwaitingLockServers(Waiting),
    /// A device may have gone out meanwhile.
    CheckingMembers(Tag),
}

impl Administrator {
    /// The administrator `own`, which is going to make this change.
    pub fn changing(own: Generation, change: Change, timing: Timing) -> Administrator {
        Administrator::new(own, Work::Change(change), timing)
    }

    /// The administrator `own`, which is going to complete or revert the change of an administrator that has died, or its own.
    pub fn settling(own: Generation, timing: Timing) -> Administrator {
        Administrator::new(own, Work::Settle, timing)
    }

    fn new(own: Generation, task: Work, timing: Timing) -> Administrator {
        Administrator { own, task, timing, phase: Phase::New, questions: Questions::default() }
    }

    /// The same administrator as a part of an operation, whose questions it continues.
    pub(crate) fn within(self, questions: &mut Questions) -> Administrator {
        Administrator { questions: std::mem::take(questions), ..self }
    }

    /// Its questions, for the operation that it was a part of.
    pub(crate) fn into_questions(self) -> Questions {
        self.questions
    }

    /// The time of the next [`Input::Wake`].
    pub fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => editing.deadline(),
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => editing.deadline(),
            Phase::Held(.., Preparation::AwaitingMonitor(waiting) | Preparation::AwaitingLockServers(waiting)) => {
                waiting.deadline()
            }
            Phase::Held(.., Preparation::Draining(drain)) => drain.deadline(),
            Phase::Telling(telling) => telling.deadline(),
            _ => None,
        }
    }

    /// Takes one input, and returns what follows.
    pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "an administrator begins once");
                self.inspect(now.after(self.timing.store));
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer),
            Input::Wake => self.on_wake(now),
        }
        self.questions.take()
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Unknown if now < until => self.inspect(until),
                answer => self.on_inspected(now, tag, answer),
            },
            Phase::CheckingMembers(asked, change) if asked == tag => match answer {
                Answer::AllIn(_) => {
                    self.phase = Phase::Holding(self.edit(now, Edit::Hold { to: change, by: self.own }))
                }
                Answer::NotIn(_) => self.end(Err(Error::NotIn(tag))),
                _ => self.end(Err(Error::Question(tag))),
            },
            Phase::Held(record, hold, preparation) => {
                self.on_preparation(now, (record, hold, preparation), tag, answer);
            }
            Phase::Telling(mut telling) => {
                let end = telling.on_answer(now, tag, answer, &mut self.questions);
                self.on_telling(now, telling, end);
            }
            Phase::Judging(asked, record, by) if asked == tag => self.on_judged(now, (record, by), tag, answer),
            Phase::ShuttingOut(mut shut_out, from) => match shut_out.on_answer(tag, answer, &mut self.questions) {
                None => self.phase = Phase::ShuttingOut(shut_out, from),
                Some(ShutOutEnd::ShutOut) => {
                    self.phase = Phase::TakingOver(self.edit(now, Edit::TakeOver { from, by: self.own }));
                }
                Some(ShutOutEnd::Lives) => self.end(Ok(Done::Nothing)),
                Some(ShutOutEnd::Failed(tag) | ShutOutEnd::Unknown(tag)) => self.end(Err(Error::Question(tag))),
            },
            phase => self.on_edit_answer(now, phase, tag, answer),
        }
    }

    fn on_edit_answer(&mut self, now: Time, mut phase: Phase, tag: Tag, answer: Answer) {
        let outcome = match &mut phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => {
                editing.on_answer(now, tag, answer, &mut self.questions)
            }
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => {
                editing.on_answer(now, tag, answer, &mut self.questions)
            }
            // The answer to a question that is no longer waited for.
            _ => None,
        };
        match (phase, outcome) {
            (phase, None) => self.phase = phase,
            (Phase::Holding(_), Some(Ok((version, record)))) => self.on_hold(now, version, record),
            (Phase::Committing(_) | Phase::TakingOver(_), Some(Ok((version, record)))) => {
                self.tell(now, version, &record);
            }
            (Phase::Releasing(_, None), Some(Ok(_))) => self.end(Ok(Done::Changed)),
            (Phase::Reverting(_, None), Some(Ok((_, record)))) => {
                // Its administrator lived, and has committed it since.
                let is_reverted = record.state == VolumeState::Ready;
                self.end(Ok(if is_reverted { Done::Reverted } else { Done::Nothing }));
            }
            (Phase::Releasing(_, Some(why)) | Phase::Reverting(_, Some(why)), Some(Ok(_))) => self.end(Err(why)),
            (Phase::Committing(_), Some(Err(EditError::Store(tag)))) => self.revert(now, Some(Error::Question(tag))),
            (_, Some(Err(EditError::Store(tag)))) => self.end(Err(Error::Question(tag))),
            (Phase::Holding(_), Some(Err(error))) => self.end(Err(match error {
                EditError::Held(by) => Error::Held(by),
                EditError::Migration => Error::Migration,
                EditError::NotCopied => Error::NotCopied,
                EditError::NoSuchDevice(device) => Error::NoSuchDevice(device),
                EditError::NotUsable | EditError::NumberUsed | EditError::Store(_) => Error::NotUsable,
            })),
            // Another administrator settles the change, or its own administrator has ended it.
            (Phase::TakingOver(_) | Phase::Reverting(_, None), Some(Err(_))) => self.end(Ok(Done::Nothing)),
            (_, Some(Err(_))) => self.end(Err(Error::Lost)),
            (phase, Some(Ok(_))) => unreachable!("only edits have outcomes: {phase:?}"),
        }
    }

    fn on_wake(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => {
                editing.on_wake(now, &mut self.questions);
            }
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => editing.on_wake(now, &mut self.questions),
            Phase::Held(.., Preparation::AwaitingMonitor(waiting) | Preparation::AwaitingLockServers(waiting)) => {
                waiting.on_wake(now, &mut self.questions);
            }
            Phase::Held(.., Preparation::Draining(drain)) => {
                if let DrainProgress::Late(hosts) = drain.on_wake(now, &mut self.questions) {
                    self.revert(now, Some(Error::NotDrained(hosts)));
                }
            }
            Phase::Telling(telling) => telling.on_wake(now, &mut self.questions),
            _ => {}
        }
    }

    fn inspect(&mut self, until: Time) {
        self.phase = Phase::Inspecting(self.questions.command(Command::Read), until);
    }

    fn on_inspected(&mut self, now: Time, tag: Tag, answer: Answer) {
        let Answer::Record { version, record, .. } = answer else { return self.end(Err(Error::Question(tag))) };
        let usable = record.map(|record| *record).filter(VolumeRecord::is_usable);
        match (self.task.clone(), usable) {
            (Work::Change(_), None) => self.end(Err(Error::NotUsable)),
            (Work::Change(change), Some(record)) => {
                let tag = self.check_members(&record, &change);
                self.phase = Phase::CheckingMembers(tag, change);
            }
            (Work::Settle, None) => self.end(Ok(Done::Nothing)),
            (Work::Settle, Some(record)) => match (record.held_by(), &record.state) {
                (None, _) => self.end(Ok(Done::Nothing)),
                (Some(by), VolumeState::Reordering { .. }) if by == self.own => self.tell(now, version, &record),
                (Some(by), _) if by == self.own => self.revert(now, None),
                (Some(by), _) => self.phase = Phase::Judging(self.questions.command(Command::ListHosts), record, by),
            },
        }
    }

    /// Asks whether all devices are in that hold the volume before or after the change.
    fn check_members(&mut self, record: &VolumeRecord, change: &Change) -> Tag {
        let devices = holders([&record.volume, &change.applied_to(&record.volume)]);
        self.questions.ask(Question::AreIn { devices })
    }

    fn on_hold(&mut self, now: Time, hold: Version, record: VolumeRecord) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("a volume on hold is draining first") };
        let preparation = if let Change::Move(_) = to {
            // From now on the monitor takes the devices of the target into account.
            let (question, until) = (Question::MonitorKnows { version: hold }, now.after(self.timing.monitor));
            Preparation::AwaitingMonitor(Waiting::new(question, &self.timing, until, &mut self.questions))
        } else {
            self.drain(now, hold)
        };
        self.phase = Phase::Held(record, hold, preparation);
    }

    fn drain(&mut self, now: Time, hold: Version) -> Preparation {
        self.questions.push(Effect::Began(Stage::Draining));
        let until = now.after(self.timing.drain);
        Preparation::Draining(Drain::new(hold, until, &mut self.questions))
    }

    fn on_preparation(
        &mut self,
        now: Time,
        (record, hold, preparation): (VolumeRecord, Version, Preparation),
        tag: Tag,
        answer: Answer,
    ) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("nothing is committed yet") };
        let next = match preparation {
            Preparation::AwaitingMonitor(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => Ok(Preparation::AwaitingMonitor(waiting)),
                Some(WaitEnd::Yes) => Ok(self.drain(now, hold)),
                Some(WaitEnd::TimedOut(_)) => Err(Error::MonitorSilent),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => Err(Error::Question(tag)),
            },
            Preparation::Draining(mut drain) => match drain.on_answer(now, tag, answer, &mut self.questions) {
                DrainProgress::Waiting => Ok(Preparation::Draining(drain)),
                DrainProgress::Late(hosts) => Err(Error::NotDrained(hosts)),
                DrainProgress::Failed(tag) => Err(Error::Question(tag)),
                DrainProgress::Drained if to.needs_lock_servers() => {
                    self.questions.push(Effect::Began(Stage::AwaitingLockServers));
                    let (question, until) = (Question::LockServersServe, now.after(self.timing.lock_servers));
                    let waiting = Waiting::new(question, &self.timing, until, &mut self.questions);
                    Ok(Preparation::AwaitingLockServers(waiting))
                }
                DrainProgress::Drained => Ok(Preparation::CheckingMembers(self.check_members(&record, to))),
            },
            Preparation::AwaitingLockServers(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => Ok(Preparation::AwaitingLockServers(waiting)),
                Some(WaitEnd::Yes) => Ok(Preparation::CheckingMembers(self.check_members(&record, to))),
                Some(WaitEnd::TimedOut(tag)) => Err(Error::NoLockServer(tag)),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => Err(Error::Question(tag)),
            },
            Preparation::CheckingMembers(asked) if asked != tag => Ok(Preparation::CheckingMembers(asked)),
            Preparation::CheckingMembers(_) => match answer {
                Answer::AllIn(_) => {
                    self.phase = Phase::Committing(self.edit(now, Edit::Commit { by: self.own }));
                    return;
                }
                Answer::NotIn(_) => Err(Error::NotIn(tag)),
                _ => Err(Error::Question(tag)),
            },
        };
        match next {
            Ok(preparation) => self.phase = Phase::Held(record, hold, preparation),
            Err(why) => self.revert(now, Some(why)),
        }
    }

    /// The hosts are known: is the administrator that holds the volume alive?
    fn on_judged(&mut self, now: Time, (record, by): (VolumeRecord, Generation), tag: Tag, answer: Answer) {
        let Answer::Hosts(hosts) = answer else { return self.end(Err(Error::Question(tag))) };
        if hosts.iter().any(|host| host.is_live && host.host == by) {
            self.end(Ok(Done::Nothing));
        } else if let VolumeState::Draining { .. } = record.state {
            // No device has been told anything, and what it may still write to the store is superseded.
            self.phase = Phase::Reverting(self.edit(now, Edit::Revert { by }), None);
        } else {
            // It may only be suspended: its later requests to devices would belong to a change that is over.
            self.phase = Phase::ShuttingOut(ShutOut::new(by, &mut self.questions), by);
        }
    }

    fn tell(&mut self, now: Time, version: Version, record: &VolumeRecord) {
        self.questions.push(Effect::Began(Stage::TellingDevices));
        let until = now.after(self.timing.in_use);
        self.phase = Phase::Telling(Telling::new(self.own, version, record, until, &mut self.questions));
    }

    fn on_telling(&mut self, now: Time, telling: Telling, end: Option<TellingEnd>) {
        match end {
            None => self.phase = Phase::Telling(telling),
            Some(TellingEnd::Told { volume, undone_for }) => {
                let volume = volume.expect("a change leaves a volume");
                let editing = self.edit(now, Edit::Release { by: self.own, to: volume });
                self.phase = Phase::Releasing(editing, undone_for.map(Error::NoSpace));
            }
            Some(TellingEnd::Lost) => self.end(Err(Error::Lost)),
            Some(TellingEnd::Failed(tag) | TellingEnd::NoSpace(tag)) => self.end(Err(Error::Incomplete(tag))),
        }
    }

    fn edit(&mut self, now: Time, edit: Edit) -> RecordEdit {
        RecordEdit::new(edit, now.after(self.timing.store), &mut self.questions)
    }

    fn revert(&mut self, now: Time, why: Option<Error>) {
        self.phase = Phase::Reverting(self.edit(now, Edit::Revert { by: self.own }), why);
    }

    fn end(&mut self, result: Result<Done, Error>) {
        self.phase = Phase::Ended;
        self.questions.push(Effect::Ended(result));
    }
}
