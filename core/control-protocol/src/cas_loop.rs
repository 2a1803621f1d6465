//! One replacement of a record of the store: read it, decide, replace it after the version that was read. If the answer is lost, the record is
//! read again, and tells whether the replacement has happened.

use crate::contract::{Error, Input};
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

    /// The command that reads the record.
    const READ: Command;

    /// What an answer to that command says; the answer itself if it says nothing.
    fn found(answer: Answer) -> Result<Self::Found, Answer>;

    /// What is to be done with the record. If `is_uncertain`, an earlier replacement may have happened.
    fn next(&self, found: Self::Found, is_uncertain: bool) -> Result<Next<Self>, Error>;

    /// The outcome of a replacement, which made this version.
    fn outcome(made: Self::Made, version: Version) -> Self::Outcome;
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
    Pausing,
}

/// The pause after a lost answer.
const PAUSE: Duration = Duration::from_millis(20);

impl<T: Transition> CasLoop<T> {
    /// Begins. Lost answers are made up for within this time.
    pub fn new(transition: T, within: Duration, questions: &mut Questions) -> CasLoop<T> {
        let (step, until) = (Step::Reading(questions.command(T::READ)), questions.after(within));
        CasLoop { transition, step, is_uncertain: false, until }
    }

    /// Takes an input. Returns the outcome, or why the record can't be changed so.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<T::Outcome, Error>> {
        let (tag, answer) = match (&self.step, input) {
            (Step::Pausing, Input::Wake) => return self.read(questions),
            (Step::Reading(asked), Input::Answer { tag, answer }) if *asked == tag => match T::found(answer) {
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
                Err(answer) => (tag, answer),
            },
            (Step::Replacing(asked, made), Input::Answer { tag, answer }) if *asked == tag => match answer {
                Answer::Replaced { version } => return Some(Ok(T::outcome(made.clone(), version))),
                Answer::Superseded => return self.read(questions),
                answer => {
                    self.is_uncertain = true;
                    (tag, answer)
                }
            },
            _ => return None,
        };
        if answer != Answer::Unknown || questions.now >= self.until {
            return Some(Err(Error::Question(tag)));
        }
        self.step = Step::Pausing;
        questions.pause(PAUSE);
        None
    }

    fn read<E>(&mut self, questions: &mut Questions) -> Option<E> {
        self.step = Step::Reading(questions.command(T::READ));
        None
    }
}
