//! One replacement of a record of the store: read it, decide, replace it after the version that was read. If the answer is lost, the record is
//! read again, and tells whether the replacement has happened.

use crate::interface::{Answer, Command, Tag};
use crate::questions::Questions;
use crate::record::Version;
use braid_base::Time;
use std::time::Duration;

/// What is to become of a record.
pub(crate) trait Transition {
    /// What the store says of the record.
    type Found;
    /// What is remembered of a replacement until it is answered.
    type Made: Clone;
    type Outcome;
    type Error;

    /// The command that reads the record.
    const READ: Command;

    /// What an answer to that command says; the answer itself if it says nothing.
    fn found(answer: Answer) -> Result<Self::Found, Answer>;

    /// What is to be done with the record. If `is_uncertain`, an earlier replacement may have happened.
    fn next(&self, found: Self::Found, is_uncertain: bool) -> Result<Next<Self>, Self::Error>;

    /// The outcome of a replacement, which made this version.
    fn outcome(made: Self::Made, version: Version) -> Self::Outcome;

    /// The question of this tag has failed, or has had no answer for long.
    fn unanswered(tag: Tag) -> Self::Error;
}

/// What is to be done with a record.
pub(crate) enum Next<T: Transition + ?Sized> {
    Change(Command, T::Made),
    /// Nothing: it is so already.
    Done(T::Outcome),
}

/// A replacement under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CasLoop<T: Transition> {
    transition: T,
    step: Step<T::Made>,
    /// An earlier replacement may have happened, or may still happen.
    is_uncertain: bool,
    /// Lost answers are made up for until then.
    until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step<M> {
    Reading(Tag),
    Replacing(Tag, M),
    Pausing(Time),
}

/// The pause after a lost answer.
const PAUSE: Duration = Duration::from_millis(20);

impl<T: Transition> CasLoop<T> {
    pub fn new(transition: T, until: Time, questions: &mut Questions) -> CasLoop<T> {
        CasLoop { transition, step: Step::Reading(questions.command(T::READ)), is_uncertain: false, until }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Pausing(until) => Some(until),
            _ => None,
        }
    }

    pub fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.step = Step::Reading(questions.command(T::READ));
        }
    }

    /// Handles an answer. Returns the outcome, or why the record can't be changed so.
    pub fn on_answer(
        &mut self,
        now: Time,
        tag: Tag,
        answer: Answer,
        questions: &mut Questions,
    ) -> Option<Result<T::Outcome, T::Error>> {
        let answer = match &self.step {
            Step::Reading(asked) if *asked == tag => match T::found(answer) {
                Ok(found) => {
                    match self.transition.next(found, self.is_uncertain) {
                        Ok(Next::Change(command, made)) => {
                            self.step = Step::Replacing(questions.command(command), made);
                        }
                        Ok(Next::Done(outcome)) => return Some(Ok(outcome)),
                        Err(error) => return Some(Err(error)),
                    }
                    return None;
                }
                Err(answer) => answer,
            },
            Step::Replacing(asked, made) if *asked == tag => match answer {
                Answer::Replaced { version } => return Some(Ok(T::outcome(made.clone(), version))),
                Answer::Superseded => {
                    self.step = Step::Reading(questions.command(T::READ));
                    return None;
                }
                answer => {
                    self.is_uncertain = true;
                    answer
                }
            },
            _ => return None,
        };
        if answer != Answer::Unknown || now >= self.until {
            return Some(Err(T::unanswered(tag)));
        }
        self.step = Step::Pausing(now.after(PAUSE));
        None
    }
}
