//! A question that is repeated until the answer is yes, or time is up.

use crate::contract::Timing;
use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use braid_base::Time;
use std::time::Duration;

/// Such a question, and when it is asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    question: Question,
    step: Step,
    pause: Duration,
    until: Time,
    /// The answer may be about something earlier, until it has been no, or until this time.
    is_current: bool,
    current_from: Option<Time>,
    settles: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Asked(Tag),
    Pausing(Time),
}

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    Yes,
    /// Something else is awaited now.
    Superseded(Tag),
    /// Time is up. This was the last question.
    TimedOut(Tag),
    /// The question of this tag has failed.
    Failed(Tag),
}

impl Waiting {
    pub fn new(question: Question, timing: &Timing, until: Time, questions: &mut Questions) -> Waiting {
        let step = Step::Asked(questions.ask(question.clone()));
        let (pause, settles) = (timing.pause, timing.steady);
        Waiting { question, step, pause, until, is_current: false, current_from: None, settles }
    }

    pub fn deadline(&self) -> Option<Time> {
        match self.step {
            Step::Asked(_) => None,
            Step::Pausing(until) => Some(until),
        }
    }

    pub fn on_wake(&mut self, now: Time, questions: &mut Questions) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.step = Step::Asked(questions.ask(self.question.clone()));
        }
    }

    pub fn on_answer(&mut self, now: Time, tag: Tag, answer: &Answer) -> Option<WaitEnd> {
        if self.step != Step::Asked(tag) {
            return None;
        }
        self.is_current |= *answer == Answer::No;
        let current_from = *self.current_from.get_or_insert(now.after(self.settles));
        match answer {
            Answer::Yes => Some(WaitEnd::Yes),
            Answer::Superseded if self.is_current || now >= current_from => Some(WaitEnd::Superseded(tag)),
            Answer::No | Answer::Unknown | Answer::Superseded if now > self.until => Some(WaitEnd::TimedOut(tag)),
            Answer::No | Answer::Unknown | Answer::Superseded => {
                self.step = Step::Pausing(now.after(self.pause));
                None
            }
            _ => Some(WaitEnd::Failed(tag)),
        }
    }
}
