//! Whose turn it is: a volume or device that another administrator creates, changes or deletes is left to it while it lives. When it is dead, it is
//! fenced, so that nothing that it has sent takes effect later.

use crate::drain::{FenceEnd, SilentHostFence};
use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use braid_base::{Generation, Time};
use std::time::Duration;

/// The pause before the record is read again.
const PAUSE: Duration = Duration::from_millis(50);

/// The wait for another administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    by: Generation,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Judging(Tag),
    /// It lives: the record is to be read again then.
    Pausing(Time),
    Fencing(SilentHostFence),
}

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The record is to be read again.
    Look,
    /// The administrator is at work, and time is up.
    Busy(Generation),
    /// It is dead, and fenced.
    Over(Generation),
    /// The question of this tag has failed.
    Failed(Tag),
}

impl Turn {
    pub fn new(by: Generation, questions: &mut Questions) -> Turn {
        Turn { by, step: Step::Judging(questions.command(Command::ListHosts)) }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Pausing(at) => Some(at),
            _ => None,
        }
    }

    pub fn on_wake(&self, now: Time) -> Option<TurnEnd> {
        self.deadline().is_some_and(|at| at <= now).then_some(TurnEnd::Look)
    }

    /// Handles an answer. The administrator is waited for until the time given.
    pub fn on_answer(
        &mut self,
        now: Time,
        until: Time,
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) -> Option<TurnEnd> {
        match (&mut self.step, answer) {
            (Step::Judging(asked), answer) if *asked == tag => match answer {
                Answer::Hosts(hosts) if hosts.iter().any(|host| host.is_live && host.host == self.by) => {
                    return self.pause(now, until);
                }
                Answer::Hosts(_) => self.step = Step::Fencing(SilentHostFence::new(self.by, questions)),
                _ => return Some(TurnEnd::Failed(tag)),
            },
            (Step::Fencing(fence), answer) => match fence.on_answer(tag, answer, questions) {
                None => {}
                Some(FenceEnd::Fenced) => return Some(TurnEnd::Over(self.by)),
                Some(FenceEnd::Lives) => return self.pause(now, until),
                Some(FenceEnd::Failed(tag) | FenceEnd::Unknown(tag)) => return Some(TurnEnd::Failed(tag)),
            },
            _ => {}
        }
        None
    }

    fn pause(&mut self, now: Time, until: Time) -> Option<TurnEnd> {
        if now >= until {
            return Some(TurnEnd::Busy(self.by));
        }
        self.step = Step::Pausing(now.after(PAUSE));
        None
    }
}
