//! The change of one volume while hosts use it; or the recovery of such a change, whose administrator has died.

use crate::contract::{Done, Effect, Error, Input, Stage, Timing};
use crate::device_notice::{Confirmed, DeviceNotice};
use crate::device_tasks::holders;
use crate::drain::{Drain, FenceEnd, SilentHostFence};
use crate::edit::{Edit, RecordEdit};
use crate::interface::{Answer, Command, HostLease, Question, Tag};
use crate::questions::Questions;
use crate::record::{Change, Version, VolumeRecord, VolumeState};
use crate::waiting::Waiting;
use braid_base::{Generation, Time};

/// A change of one volume by an administrator, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeChange {
    own: Generation,
    goal: Goal,
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    Change(Change),
    /// To complete or revert the change for which this administrator holds the volume, if it has died.
    Recover(Generation),
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

    /// The administrator `own` completes or reverts the change of `from`, which has died or is `own`. A hold of another one, which began
    /// meanwhile, is left alone.
    pub fn recovering(own: Generation, from: Generation, timing: Timing) -> VolumeChange {
        VolumeChange::with(own, Goal::Recover(from), timing)
    }

    fn with(own: Generation, goal: Goal, timing: Timing) -> VolumeChange {
        VolumeChange { own, goal, timing, phase: Phase::New }
    }

    pub(crate) fn step(&mut self, input: Input, questions: &mut Questions) {
        match (std::mem::replace(&mut self.phase, Phase::Ended), input) {
            (Phase::New, Input::Start) => self.inspect(questions.after(self.timing.store), questions),
            (_, Input::Start) => panic!("an administrator begins once"),
            (Phase::Inspecting(asked, until), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Record { version, record, .. } => {
                    self.on_record(version, record.map(|record| *record), questions)
                }
                Answer::Unknown if questions.now < until => self.inspect(until, questions),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::CheckingMembers(asked, to), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::AllIn(_) => self.phase = Phase::Holding(self.edit(Edit::Hold { to, by: self.own }, questions)),
                Answer::NotIn(_) => questions.end(Err(Error::NotIn(tag))),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Holding(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Holding(editing),
                Some(Ok((version, record))) => self.on_hold(version, record, questions),
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Held(record, hold, preparation), input) => {
                self.on_preparation((record, hold, preparation), input, questions);
            }
            (Phase::Committing(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Committing(editing),
                Some(Ok((version, record))) => self.tell(version, &record, questions),
                Some(Err(error @ Error::Question(_))) => self.revert(Some(error), questions),
                Some(Err(_)) => questions.end(Err(Error::Lost)),
            },
            (Phase::Notifying(mut notice), input) => match notice.step(input, questions) {
                None => self.phase = Phase::Notifying(notice),
                Some(Ok(Confirmed { volume, undone_for })) => {
                    let to = volume.expect("a change leaves a volume");
                    let editing = self.edit(Edit::Release { by: self.own, to }, questions);
                    self.phase = Phase::Releasing(editing, undone_for.map(Error::NoSpace));
                }
                Some(Err(error)) => questions.end(Err(error)),
            },
            (Phase::Releasing(mut editing, why), input) => match editing.step(input, questions) {
                None => self.phase = Phase::Releasing(editing, why),
                Some(Ok(_)) => questions.end(why.map_or(Ok(Done::Changed), Err)),
                Some(Err(error @ Error::Question(_))) => questions.end(Err(error)),
                Some(Err(_)) => questions.end(Err(Error::Lost)),
            },
            (Phase::Reverting(mut editing, why), input) => match (editing.step(input, questions), why) {
                (None, why) => self.phase = Phase::Reverting(editing, why),
                (Some(Ok(_)), Some(why)) => questions.end(Err(why)),
                (Some(Ok((_, record))), None) => {
                    // Its administrator lived, and has committed it since.
                    let is_reverted = record.state == VolumeState::Ready;
                    questions.end(Ok(if is_reverted { Done::Reverted } else { Done::Nothing }));
                }
                (Some(Err(error @ Error::Question(_))), _) => questions.end(Err(error)),
                // Another administrator settles the change, or its own administrator has ended it.
                (Some(Err(_)), None) => questions.end(Ok(Done::Nothing)),
                (Some(Err(_)), Some(_)) => questions.end(Err(Error::Lost)),
            },
            (Phase::Judging(asked, record, by), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::Hosts(hosts) => self.on_judged((record, by), &hosts, questions),
                _ => questions.end(Err(Error::Question(tag))),
            },
            (Phase::Fencing(mut fence, from), Input::Answer { tag, answer }) => {
                match fence.on_answer(tag, answer, questions) {
                    None => self.phase = Phase::Fencing(fence, from),
                    Some(FenceEnd::Fenced) => {
                        self.phase = Phase::TakingOver(self.edit(Edit::TakeOver { from, by: self.own }, questions));
                    }
                    Some(FenceEnd::Lives) => questions.end(Ok(Done::Nothing)),
                    Some(FenceEnd::Failed(tag) | FenceEnd::Unknown(tag)) => questions.end(Err(Error::Question(tag))),
                }
            }
            (Phase::TakingOver(mut editing), input) => match editing.step(input, questions) {
                None => self.phase = Phase::TakingOver(editing),
                Some(Ok((version, record))) => self.tell(version, &record, questions),
                Some(Err(error @ Error::Question(_))) => questions.end(Err(error)),
                // Another administrator settles the change, or its own administrator has ended it.
                Some(Err(_)) => questions.end(Ok(Done::Nothing)),
            },
            // The answer to a question that is no longer waited for.
            (phase, _) => self.phase = phase,
        }
    }

    fn inspect(&mut self, until: Time, questions: &mut Questions) {
        self.phase = Phase::Inspecting(questions.command(Command::Read), until);
    }

    fn on_record(&mut self, version: Version, record: Option<VolumeRecord>, questions: &mut Questions) {
        match (self.goal.clone(), record.filter(VolumeRecord::is_usable)) {
            (Goal::Change(_), None) => questions.end(Err(Error::NotUsable)),
            (Goal::Change(change), Some(record)) => {
                let tag = check_members(&record, &change, questions);
                self.phase = Phase::CheckingMembers(tag, change);
            }
            (Goal::Recover(from), Some(record)) if record.held_by() == Some(from) => match &record.state {
                VolumeState::Reordering { .. } if from == self.own => self.tell(version, &record, questions),
                _ if from == self.own => self.revert(None, questions),
                _ => self.phase = Phase::Judging(questions.command(Command::ListHosts), record, from),
            },
            (Goal::Recover(_), _) => questions.end(Ok(Done::Nothing)),
        }
    }

    fn on_hold(&mut self, hold: Version, record: VolumeRecord, questions: &mut Questions) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("a volume on hold is draining first") };
        let preparation = if let Change::Move(_) = to {
            // From now on the monitor takes the devices of the target into account.
            let (question, within) = (Question::MonitorKnows { version: hold }, self.timing.monitor);
            Preparation::AwaitingMonitor(Waiting::new(question, within, &self.timing, questions))
        } else {
            Preparation::Draining(Drain::new(hold, self.timing.drain, questions))
        };
        self.phase = Phase::Held(record, hold, preparation);
    }

    fn on_preparation(
        &mut self,
        (record, hold, preparation): (VolumeRecord, Version, Preparation),
        input: Input,
        questions: &mut Questions,
    ) {
        let VolumeState::Draining { to, .. } = &record.state else { panic!("nothing is committed yet") };
        let next = match (preparation, input) {
            (Preparation::AwaitingMonitor(mut waiting), input) => match waiting.step(input, questions) {
                None => Ok(Preparation::AwaitingMonitor(waiting)),
                Some(Ok(())) => Ok(Preparation::Draining(Drain::new(hold, self.timing.drain, questions))),
                Some(Err(why)) => Err(why),
            },
            (Preparation::Draining(mut drain), input) => match drain.step(input, questions) {
                None => Ok(Preparation::Draining(drain)),
                Some(Ok(())) if to.needs_lock_servers() => {
                    questions.push(Effect::Began(Stage::AwaitingLockServers));
                    let (question, within) = (Question::LockServersServe, self.timing.lock_servers);
                    Ok(Preparation::AwaitingLockServers(Waiting::new(question, within, &self.timing, questions)))
                }
                Some(Ok(())) => Ok(Preparation::CheckingMembers(check_members(&record, to, questions))),
                Some(Err(why)) => Err(why),
            },
            (Preparation::AwaitingLockServers(mut waiting), input) => match waiting.step(input, questions) {
                None => Ok(Preparation::AwaitingLockServers(waiting)),
                Some(Ok(())) => Ok(Preparation::CheckingMembers(check_members(&record, to, questions))),
                Some(Err(why)) => Err(why),
            },
            (Preparation::CheckingMembers(asked), Input::Answer { tag, answer }) if asked == tag => match answer {
                Answer::AllIn(_) => {
                    self.phase = Phase::Committing(self.edit(Edit::Commit { by: self.own }, questions));
                    return;
                }
                Answer::NotIn(_) => Err(Error::NotIn(tag)),
                _ => Err(Error::Question(tag)),
            },
            (preparation, _) => Ok(preparation),
        };
        match next {
            Ok(preparation) => self.phase = Phase::Held(record, hold, preparation),
            Err(why) => self.revert(Some(why), questions),
        }
    }

    /// The hosts are known: is the administrator that holds the volume alive?
    fn on_judged(&mut self, (record, by): (VolumeRecord, Generation), hosts: &[HostLease], questions: &mut Questions) {
        if hosts.iter().any(|host| host.is_live && host.host == by) {
            questions.end(Ok(Done::Nothing));
        } else if let VolumeState::Draining { .. } = record.state {
            // No device has been told anything, and what it may still write to the store is superseded.
            self.phase = Phase::Reverting(self.edit(Edit::Revert { by }, questions), None);
        } else {
            // It may only be suspended: its later requests to devices would belong to a change that is over.
            self.phase = Phase::Fencing(SilentHostFence::new(by, questions), by);
        }
    }

    fn tell(&mut self, version: Version, record: &VolumeRecord, questions: &mut Questions) {
        self.phase = Phase::Notifying(DeviceNotice::new(self.own, version, record, self.timing.in_use, questions));
    }

    fn edit(&self, edit: Edit, questions: &mut Questions) -> RecordEdit {
        RecordEdit::new(edit, self.timing.store, questions)
    }

    fn revert(&mut self, why: Option<Error>, questions: &mut Questions) {
        self.phase = Phase::Reverting(self.edit(Edit::Revert { by: self.own }, questions), why);
    }
}

/// Asks whether all devices are in that hold the volume before or after the change.
fn check_members(record: &VolumeRecord, change: &Change, questions: &mut Questions) -> Tag {
    let devices = holders([&record.volume, &change.applied_to(&record.volume)]);
    questions.ask(Question::AreIn { devices })
}
