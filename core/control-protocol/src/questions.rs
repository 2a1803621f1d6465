//! What the machine of an operation asks and tells in a step. The operation lends it to its machine, and that to its parts.

use crate::contract::{Done, Effect, Error};
use crate::interface::{Command, Question, Tag};

/// Gives out tags, and collects the effects of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Questions {
    last: u64,
    effects: Vec<Effect>,
    ended: Option<Result<Done, Error>>,
}

impl Questions {
    /// Asks a question under a fresh tag.
    pub fn ask(&mut self, question: Question) -> Tag {
        self.last += 1;
        let tag = Tag(self.last);
        self.effects.push(Effect::Ask { tag, question });
        tag
    }

    /// The same for a command for the store.
    pub fn command(&mut self, command: Command) -> Tag {
        self.ask(Question::Store(command))
    }

    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The machine has ended.
    pub fn end(&mut self, result: Result<Done, Error>) {
        self.ended = Some(result);
    }

    /// How the part that took a step has ended; none if it goes on.
    pub fn ended(&mut self) -> Option<Result<Done, Error>> {
        self.ended.take()
    }

    /// The effects of a step of the whole operation.
    pub fn take(&mut self) -> Vec<Effect> {
        self.effects.extend(self.ended.take().map(Effect::Ended));
        std::mem::take(&mut self.effects)
    }
}
