//! Whose turn it is: a volume or device that another administrator creates, changes or deletes is left to it while it lives. When it is dead, it is
//! fenced, so that nothing that it has sent takes effect later.

use crate::contract::{Error, Input};
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
    /// It lives: the record is to be read again after a while.
    Pausing,
    Fencing(SilentHostFence),
}

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The record is to be read again.
    Look,
    /// It is dead, and fenced.
    Over(Generation),
}

impl Turn {
    pub fn new(by: Generation, questions: &mut Questions) -> Turn {
        Turn { by, step: Step::Judging(questions.command(Command::ListHosts)) }
    }

    /// Takes an input. The administrator is waited for until the time given.
    pub fn step(&mut self, until: Time, input: Input, questions: &mut Questions) -> Option<Result<TurnEnd, Error>> {
        match (&mut self.step, input) {
            (Step::Pausing, Input::Wake) => Some(Ok(TurnEnd::Look)),
            (Step::Judging(asked), Input::Answer { tag, answer }) if *asked == tag => match answer {
                Answer::Hosts(hosts) if hosts.iter().any(|host| host.is_live && host.host == self.by) => {
                    self.pause(until, questions)
                }
                Answer::Hosts(_) => {
                    self.step = Step::Fencing(SilentHostFence::new(self.by, questions));
                    None
                }
                _ => Some(Err(Error::Question(tag))),
            },
            (Step::Fencing(fence), Input::Answer { tag, answer }) => match fence.on_answer(tag, answer, questions)? {
                FenceEnd::Fenced => Some(Ok(TurnEnd::Over(self.by))),
                FenceEnd::Lives => self.pause(until, questions),
                FenceEnd::Failed(tag) | FenceEnd::Unknown(tag) => Some(Err(Error::Question(tag))),
            },
            _ => None,
        }
    }

    /// Pauses, or ends when time is up.
    fn pause(&mut self, until: Time, questions: &mut Questions) -> Option<Result<TurnEnd, Error>> {
        if questions.now >= until {
            return Some(Err(Error::Held(self.by)));
        }
        self.step = Step::Pausing;
        questions.pause(PAUSE);
        None
    }
}
