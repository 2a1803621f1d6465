//! A question that is repeated until the answer is yes, or time is up.

use crate::contract::{Error, Input, Timing};
use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use braid_base::Time;
use std::time::Duration;

/// The pause before a device is looked at again.
const DEVICE_PAUSE: Duration = Duration::from_millis(50);

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
    Pausing,
}

impl Waiting {
    pub fn new(question: Question, within: Duration, timing: &Timing, questions: &mut Questions) -> Waiting {
        let step = Step::Asked(questions.ask(question.clone()));
        let pause = if let Question::RunsOn { .. } = question { DEVICE_PAUSE } else { timing.pause };
        let (until, settles) = (questions.after(within), timing.steady);
        Waiting { question, step, pause, until, is_current: false, current_from: None, settles }
    }

    /// Takes an input. Returns how the wait has ended.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<(), Error>> {
        match (self.step, input) {
            (Step::Pausing, Input::Wake) => {
                self.step = Step::Asked(questions.ask(self.question.clone()));
                None
            }
            (Step::Asked(asked), Input::Answer { tag, answer }) if asked == tag => {
                self.on_answer(tag, &answer, questions)
            }
            _ => None,
        }
    }

    fn on_answer(&mut self, tag: Tag, answer: &Answer, questions: &mut Questions) -> Option<Result<(), Error>> {
        let now = questions.now;
        self.is_current |= *answer == Answer::No;
        let current_from = *self.current_from.get_or_insert(now.after(self.settles));
        match (answer, &self.question) {
            (Answer::Yes, _) => Some(Ok(())),
            (Answer::Superseded, question) if self.is_current || now >= current_from => Some(Err(match question {
                // Another disk was requested for its slot since.
                Question::RunsOn { .. } => Error::Lost,
                _ => Error::Question(tag),
            })),
            (Answer::No | Answer::Unknown | Answer::Superseded, question) if now > self.until => {
                Some(Err(match question {
                    Question::MonitorKnows { .. } => Error::MonitorSilent,
                    Question::LockServersServe => Error::NoLockServer(tag),
                    _ => Error::NotYet(tag),
                }))
            }
            (Answer::No | Answer::Unknown | Answer::Superseded, _) => {
                self.step = Step::Pausing;
                questions.pause(self.pause);
                None
            }
            _ => Some(Err(Error::Question(tag))),
        }
    }
}
