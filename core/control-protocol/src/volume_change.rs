//! The change of one volume while hosts use it; or the recovery of such a change, whose administrator has died.

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::device_notice::{DeviceNotice, NoticeEnd};
use crate::device_tasks::holders;
use crate::drain::{Drain, DrainProgress, FenceEnd, SilentHostFence};
use crate::edit::{Edit, EditError, RecordEdit};
use crate::interface::{Answer, Command, Question, Tag};
use crate::questions::Questions;
use crate::record::{Change, Version, VolumeRecord, VolumeState};
use crate::waiting::{WaitEnd, Waiting};
use braid_base::{Generation, Time};

/// A change of one volume by an administrator, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeChange {
    own: Generation,
    goal: Goal,
    timing: Timing,
    phase: Phase,
}

/// What it is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    /// To make this change.
    Change(Change),
    /// To complete or revert the change that the volume is on hold for, if its administrator has died.
    Recover,
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
    Notifying(DeviceNotice),
    /// With an error if the change was undone.
    Releasing(RecordEdit, Option<Error>),
    /// With the error because of which it reverts its own hold.
    Reverting(RecordEdit, Option<Error>),
    /// It judges the administrator that holds the volume.
    Judging(Tag, VolumeRecord, Generation),
    Fencing(SilentHostFence, Generation),
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

impl VolumeChange {
    /// This change, by the administrator `own`.
    pub fn new(own: Generation, change: Change, timing: Timing) -> VolumeChange {
        VolumeChange::with(own, Goal::Change(change), timing)
    }

    /// The administrator `own` completes or reverts the change of an administrator that has died, or its own.
    pub fn recovering(own: Generation, timing: Timing) -> VolumeChange {
        VolumeChange::with(own, Goal::Recover, timing)
    }

    fn with(own: Generation, goal: Goal, timing: Timing) -> VolumeChange {
        VolumeChange { own, goal, timing, phase: Phase::New }
    }

    /// The time of the next [`Input::Wake`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => editing.deadline(),
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => editing.deadline(),
            Phase::Held(.., Preparation::AwaitingMonitor(waiting) | Preparation::AwaitingLockServers(waiting)) => {
                waiting.deadline()
            }
            Phase::Held(.., Preparation::Draining(drain)) => drain.deadline(),
            Phase::Notifying(notice) => notice.deadline(),
            _ => None,
        }
    }

    /// Takes one input.
    pub(crate) fn step(&mut self, now: Time, input: Input, questions: &mut Questions) {
        match input {
            Input::Start => {
                assert_eq!(self.phase, Phase::New, "an administrator begins once");
                self.inspect(now.after(self.timing.store), questions);
            }
            Input::Answer { tag, answer } => self.on_answer(now, tag, answer, questions),
            Input::Wake => self.on_wake(now, questions),
        }
    }

    fn on_answer(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Inspecting(asked, until) if asked == tag => match answer {
                Answer::Unknown if now < until => self.inspect(until, questions),
                answer => self.on_inspected(now, tag, answer, questions),
            },
            Phase::CheckingMembers(asked, change) if asked == tag => match answer {
                Answer::AllIn(_) => {
                    self.phase = Phase::Holding(self.edit(now, Edit::Hold { to: change, by: self.own }, questions))
                }
                Answer::NotIn(_) => self.end(Err(Error::NotIn(tag)), questions),
                _ => self.end(Err(Error::Question(tag)), questions),
            },
            Phase::Held(record, hold, preparation) => {
                self.on_preparation(now, (record, hold, preparation), tag, answer, questions);
            }
            Phase::Notifying(mut notice) => {
                let end = notice.on_answer(now, tag, answer, questions);
                self.on_notice(now, notice, end, questions);
            }
            Phase::Judging(asked, record, by) if asked == tag => {
                self.on_judged(now, (record, by), tag, answer, questions)
            }
            Phase::Fencing(mut fence, from) => match fence.on_answer(tag, answer, questions) {
                None => self.phase = Phase::Fencing(fence, from),
                Some(FenceEnd::Fenced) => {
                    self.phase = Phase::TakingOver(self.edit(now, Edit::TakeOver { from, by: self.own }, questions));
                }
                Some(FenceEnd::Lives) => self.end(Ok(Done::Nothing), questions),
                Some(FenceEnd::Failed(tag) | FenceEnd::Unknown(tag)) => self.end(Err(Error::Question(tag)), questions),
            },
            phase => self.on_edit_answer(now, phase, tag, answer, questions),
        }
    }

    fn on_edit_answer(&mut self, now: Time, mut phase: Phase, tag: Tag, answer: Answer, questions: &mut Questions) {
        let outcome = match &mut phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => {
                editing.on_answer(now, tag, answer, questions)
            }
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => {
                editing.on_answer(now, tag, answer, questions)
            }
            // The answer to a question that is no longer waited for.
            _ => None,
        };
        match (phase, outcome) {
            (phase, None) => self.phase = phase,
            (Phase::Holding(_), Some(Ok((version, record)))) => self.on_hold(now, version, record, questions),
            (Phase::Committing(_) | Phase::TakingOver(_), Some(Ok((version, record)))) => {
                self.tell(now, version, &record, questions);
            }
            (Phase::Releasing(_, None), Some(Ok(_))) => self.end(Ok(Done::Changed), questions),
            (Phase::Reverting(_, None), Some(Ok((_, record)))) => {
                // Its administrator lived, and has committed it since.
                let is_reverted = record.state == VolumeState::Ready;
                self.end(Ok(if is_reverted { Done::Reverted } else { Done::Nothing }), questions);
            }
            (Phase::Releasing(_, Some(why)) | Phase::Reverting(_, Some(why)), Some(Ok(_))) => {
                self.end(Err(why), questions)
            }
            (Phase::Committing(_), Some(Err(EditError::Store(tag)))) => {
                self.revert(now, Some(Error::Question(tag)), questions)
            }
            (_, Some(Err(EditError::Store(tag)))) => self.end(Err(Error::Question(tag)), questions),
            (Phase::Holding(_), Some(Err(error))) => self.end(
                Err(match error {
                    EditError::Held(by) => Error::Held(by),
                    EditError::Migration => Error::Migration,
                    EditError::NotCopied => Error::NotCopied,
                    EditError::NoSuchDevice(device) => Error::NoSuchDevice(device),
                    EditError::NotUsable | EditError::NumberUsed | EditError::Store(_) => Error::NotUsable,
                }),
                questions,
            ),
            // Another administrator settles the change, or its own administrator has ended it.
            (Phase::TakingOver(_) | Phase::Reverting(_, None), Some(Err(_))) => self.end(Ok(Done::Nothing), questions),
            (_, Some(Err(_))) => self.end(Err(Error::Lost), questions),
            (phase, Some(Ok(_))) => unreachable!("only edits have outcomes: {phase:?}"),
        }
    }

    fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        match &mut self.phase {
            Phase::Holding(editing) | Phase::Committing(editing) | Phase::TakingOver(editing) => {
                editing.on_wake(now, questions);
            }
            Phase::Releasing(editing, _) | Phase::Reverting(editing, _) => editing.on_wake(now, questions),
            Phase::Held(.., Preparation::AwaitingMonitor(waiting) | Preparation::AwaitingLockServers(waiting)) => {
                waiting.on_wake(now, questions);
            }
            Phase::Held(.., Preparation::Draining(drain)) => {
                if let DrainProgress::Late(hosts) = drain.on_wake(now, questions) {
                    self.revert(now, Some(Error::NotDrained(hosts)), questions);
                }
            }
            Phase::Notifying(notice) => notice.on_wake(now, questions),
            _ => {}
        }
    }

    fn inspect(&mut self, until: Time, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::Read), until);
    }

    fn on_inspected(&mut self, now: Time, tag: Tag, answer: Answer, questions: &mut Questions) {
        let Answer::Record { version, record, .. } = answer else {
            return self.end(Err(Error::Question(tag)), questions);
        };
        let usable = record.map(|record| *record).filter(VolumeRecord::is_usable);
        match (self.goal.clone(), usable) {
            (Goal::Change(_), None) => self.end(Err(Error::NotUsable), questions),
            (Goal::Change(change), Some(record)) => {
                let tag = self.check_members(&record, &change, questions);
                self.phase = Phase::CheckingMembers(tag, change);
            }
            (Goal::Recover, None) => self.end(Ok(Done::Nothing), questions),
            (Goal::Recover, Some(record)) => match (record.held_by(), &record.state) {
                (None, _) => self.end(Ok(Done::Nothing), questions),
                (Some(by), VolumeState::Reordering { .. }) if by == self.own => {
                    self.tell(now, version, &record, questions)
                }
                (Some(by), _) if by == self.own => self.revert(now, None, questions),
                (Some(by), _) => self.phase = Phase::Judging(questions.command(Command::ListHosts), record, by),
            },
        }
    }

    /// Asks whether all devices are in that hold the volume before or after the change.
    fn check_members(&mut self, record: &VolumeRecord, change: &Change, questions: &mut Questions) -> Tag {
        let devices = holders([&record.volume, &change.applied_to(&record.volume)]);
        questions.ask(Question::AreIn { devices })
    }

    fn on_hold(&mut self, now: Time, hold: Version, record: VolumeRecord, questions: &mut Questions) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("a volume on hold is draining first") };
        let preparation = if let Change::Move(_) = to {
            // From now on the monitor takes the devices of the target into account.
            let (question, until) = (Question::MonitorKnows { version: hold }, now.after(self.timing.monitor));
            Preparation::AwaitingMonitor(Waiting::new(question, &self.timing, until, questions))
        } else {
            self.drain(now, hold, questions)
        };
        self.phase = Phase::Held(record, hold, preparation);
    }

    fn drain(&mut self, now: Time, hold: Version, questions: &mut Questions) -> Preparation {
        questions.push(Effect::Began(Stage::Draining));
        let until = now.after(self.timing.drain);
        Preparation::Draining(Drain::new(hold, until, questions))
    }

    fn on_preparation(
        &mut self,
        now: Time,
        (record, hold, preparation): (VolumeRecord, Version, Preparation),
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("nothing is committed yet") };
        let next = match preparation {
            Preparation::AwaitingMonitor(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => Ok(Preparation::AwaitingMonitor(waiting)),
                Some(WaitEnd::Yes) => Ok(self.drain(now, hold, questions)),
                Some(WaitEnd::TimedOut(_)) => Err(Error::MonitorSilent),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => Err(Error::Question(tag)),
            },
            Preparation::Draining(mut drain) => match drain.on_answer(now, tag, answer, questions) {
                DrainProgress::Waiting => Ok(Preparation::Draining(drain)),
                DrainProgress::Late(hosts) => Err(Error::NotDrained(hosts)),
                DrainProgress::Failed(tag) => Err(Error::Question(tag)),
                DrainProgress::Drained if to.needs_lock_servers() => {
                    questions.push(Effect::Began(Stage::AwaitingLockServers));
                    let (question, until) = (Question::LockServersServe, now.after(self.timing.lock_servers));
                    let waiting = Waiting::new(question, &self.timing, until, questions);
                    Ok(Preparation::AwaitingLockServers(waiting))
                }
                DrainProgress::Drained => Ok(Preparation::CheckingMembers(self.check_members(&record, to, questions))),
            },
            Preparation::AwaitingLockServers(mut waiting) => match waiting.on_answer(now, tag, &answer) {
                None => Ok(Preparation::AwaitingLockServers(waiting)),
                Some(WaitEnd::Yes) => Ok(Preparation::CheckingMembers(self.check_members(&record, to, questions))),
                Some(WaitEnd::TimedOut(tag)) => Err(Error::NoLockServer(tag)),
                Some(WaitEnd::Superseded(tag) | WaitEnd::Failed(tag)) => Err(Error::Question(tag)),
            },
            Preparation::CheckingMembers(asked) if asked != tag => Ok(Preparation::CheckingMembers(asked)),
            Preparation::CheckingMembers(_) => match answer {
                Answer::AllIn(_) => {
                    self.phase = Phase::Committing(self.edit(now, Edit::Commit { by: self.own }, questions));
                    return;
                }
                Answer::NotIn(_) => Err(Error::NotIn(tag)),
                _ => Err(Error::Question(tag)),
            },
        };
        match next {
            Ok(preparation) => self.phase = Phase::Held(record, hold, preparation),
            Err(why) => self.revert(now, Some(why), questions),
        }
    }

    /// The hosts are known: is the administrator that holds the volume alive?
    fn on_judged(
        &mut self,
        now: Time,
        (record, by): (VolumeRecord, Generation),
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) {
        let Answer::Hosts(hosts) = answer else { return self.end(Err(Error::Question(tag)), questions) };
        if hosts.iter().any(|host| host.is_live && host.host == by) {
            self.end(Ok(Done::Nothing), questions);
        } else if let VolumeState::Draining { .. } = record.state {
            // No device has been told anything, and what it may still write to the store is superseded.
            self.phase = Phase::Reverting(self.edit(now, Edit::Revert { by }, questions), None);
        } else {
            // It may only be suspended: its later requests to devices would belong to a change that is over.
            self.phase = Phase::Fencing(SilentHostFence::new(by, questions), by);
        }
    }

    fn tell(&mut self, now: Time, version: Version, record: &VolumeRecord, questions: &mut Questions) {
        questions.push(Effect::Began(Stage::NotifyingDevices));
        let until = now.after(self.timing.in_use);
        self.phase = Phase::Notifying(DeviceNotice::new(self.own, version, record, until, questions));
    }

    fn on_notice(&mut self, now: Time, notice: DeviceNotice, end: Option<NoticeEnd>, questions: &mut Questions) {
        match end {
            None => self.phase = Phase::Notifying(notice),
            Some(NoticeEnd::Confirmed { volume, undone_for }) => {
                let volume = volume.expect("a change leaves a volume");
                let editing = self.edit(now, Edit::Release { by: self.own, to: volume }, questions);
                self.phase = Phase::Releasing(editing, undone_for.map(Error::NoSpace));
            }
            Some(NoticeEnd::Lost) => self.end(Err(Error::Lost), questions),
            Some(NoticeEnd::Failed(tag) | NoticeEnd::NoSpace(tag)) => self.end(Err(Error::Incomplete(tag)), questions),
        }
    }

    fn edit(&mut self, now: Time, edit: Edit, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(edit, now.after(self.timing.store), questions)
    }

    fn revert(&mut self, now: Time, why: Option<Error>, questions: &mut Questions) {
        self.phase = Phase::Reverting(self.edit(now, Edit::Revert { by: self.own }, questions), why);
    }

    fn end(&mut self, result: Result<Done, Error>, questions: &mut Questions) {
        self.phase = Phase::Ended;
        questions.end(result);
    }
}
