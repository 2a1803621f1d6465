//! The questions of a machine: their tags, and the effects that ask them.

use crate::contract::Effect;
use crate::interface::{Command, Question, Tag};

/// Gives out tags, and collects the effects of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Questions {
    last: u64,
    effects: Vec<Effect>,
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

    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
