//! What the machine of an operation asks and tells in a step, and when. The operation lends it to its machine, and that to its parts.

use crate::contract::{Done, Effect, Error};
use crate::interface::{Command, Question, Tag};
use braid_base::Time;
use std::time::Duration;

/// Knows the time of a step, gives out tags, and collects the effects.
#[derive(Debug)]
pub(crate) struct Questions {
    pub now: Time,
    /// When the operation is woken. An operation that asks a question waits for its answer instead, unless it says otherwise.
    deadline: Option<Time>,
    last: Tag,
    effects: Vec<Effect>,
    ended: Option<Result<Done, Error>>,
}

impl Questions {
    /// For a step at this time, when this was the deadline, and this tag the last one.
    pub fn new(now: Time, deadline: Option<Time>, last: Tag) -> Questions {
        Questions { now, deadline, last, effects: Vec::new(), ended: None }
    }

    /// The time so long after this step.
    pub fn after(&self, span: Duration) -> Time {
        self.now.after(span)
    }

    /// The operation is woken then.
    pub fn wake_at(&mut self, at: Time) {
        self.deadline = Some(at);
    }

    /// The operation is woken so long after this step.
    pub fn pause(&mut self, span: Duration) {
        self.wake_at(self.after(span));
    }

    /// Asks a question under a fresh tag.
    pub fn ask(&mut self, question: Question) -> Tag {
        self.deadline = None;
        self.last.0 += 1;
        self.effects.push(Effect::Ask { tag: self.last, question });
        self.last
    }

    /// The same for a command for the store.
    pub fn command(&mut self, command: Command) -> Tag {
        self.ask(Question::Store(command))
    }

    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub fn end(&mut self, result: Result<Done, Error>) {
        (self.ended, self.deadline) = (Some(result), None);
    }

    /// How the part that took a step has ended; none if it goes on.
    pub fn ended(&mut self) -> Option<Result<Done, Error>> {
        self.ended.take()
    }

    /// The deadline, the last tag, and the effects of a step of the whole operation.
    pub fn into_effects(mut self) -> (Option<Time>, Tag, Vec<Effect>) {
        self.effects.extend(self.ended.map(Effect::Ended));
        (self.deadline, self.last, self.effects)
    }
}
