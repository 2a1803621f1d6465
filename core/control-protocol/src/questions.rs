//! What the machine of an operation asks and tells in a step, and when. The operation lends it to its machine, and that to its parts.

use crate::contract::{Done, Effect, Error};
use crate::interface::{Command, Question, Tag};
use braid_base::Time;
use std::time::Duration;

/// Knows the time of a step, gives out tags, and collects the effects.
#[derive(Debug)]
pub(crate) struct Questions {
    pub now: Time,
    last: Tag,
    effects: Vec<Effect>,
    ended: Option<Result<Done, Error>>,
}

impl Questions {
    /// For a step at this time, when this tag was the last one.
    pub fn new(now: Time, last: Tag) -> Questions {
        Questions { now, last, effects: Vec::new(), ended: None }
    }

    /// The time so long after this step.
    pub fn after(&self, span: Duration) -> Time {
        self.now.after(span)
    }

    /// Asks a question under a fresh tag.
    pub fn ask(&mut self, question: Question) -> Tag {
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
        self.ended = Some(result);
    }

    /// How the part that took a step has ended; none if it goes on.
    pub fn ended(&mut self) -> Option<Result<Done, Error>> {
        self.ended.take()
    }

    /// The last tag, and the effects of a step of the whole operation.
    pub fn into_effects(mut self) -> (Tag, Vec<Effect>) {
        self.effects.extend(self.ended.map(Effect::Ended));
        (self.last, self.effects)
    }
}
