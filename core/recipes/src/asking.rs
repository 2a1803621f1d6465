//! Requests as structures need them, what to make of the answers, and what to do when there is none.
//!
//! All comparisons made here are strict: an undefined attribute is equal to no bytes only, so that nothing that others removed comes back.

use crate::procedure::{Answer, Next, RequestFailure};
use braid_base::{ObjectId, Rng};
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute,
    Undefined, When,
};
use bytes::Bytes;
use std::time::Duration;

/// A request on one object, being put together.
pub(crate) struct Asking {
    object: ObjectId,
    commands: Vec<ObjectCommand>,
}

impl Asking {
    pub(crate) fn of(object: ObjectId) -> Asking {
        Asking { object, commands: Vec::new() }
    }

    /// Compares and swaps, and tells the value that was there.
    pub(crate) fn swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> Asking {
        self.swap_when(When::Always, name, compare, swap)
    }

    /// The same, if every comparison before has held.
    pub(crate) fn then_swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> Asking {
        self.swap_when(When::IfSwapped, name, compare, swap)
    }

    fn swap_when(self, when: When, name: AttributeName, compare: &Bytes, swap: &Bytes) -> Asking {
        let (compare, swap) = (compare.clone(), swap.clone());
        self.command(
            when,
            Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: true },
        )
    }

    /// Changes nothing; what follows depends on whether the attribute has this value.
    pub(crate) fn test(self, name: AttributeName, value: &Bytes) -> Asking {
        self.swap(name, value, value)
    }

    /// Sets, if the last command's comparison, too, has held.
    pub(crate) fn with_sets(mut self, sets: Vec<SetAttribute>) -> Asking {
        let last = self.commands.last_mut().expect("it goes with a command");
        (last.sets, last.sets_when) = (sets, When::IfSwapped);
        self
    }

    /// Tells values with the last command.
    pub(crate) fn with_gets(mut self, gets: Vec<AttributeName>) -> Asking {
        self.commands.last_mut().expect("it goes with a command").gets = gets;
        self
    }

    /// What was made elsewhere, and says itself what it depends on.
    pub(crate) fn then(mut self, commands: impl IntoIterator<Item = ObjectCommand>) -> Asking {
        self.commands.extend(commands);
        self
    }

    /// Adds, if every comparison before has held, and tells the value that was there.
    pub(crate) fn then_add(self, name: AttributeName, add: i64) -> Asking {
        self.command(When::IfSwapped, Action::FetchAndAdd { name, add, original: true })
    }

    /// Sets, if every comparison before has held.
    pub(crate) fn then_set(self, sets: Vec<SetAttribute>) -> Asking {
        self.command(When::IfSwapped, Action::Nothing).with_sets(sets)
    }

    /// Tells values, whatever came before.
    pub(crate) fn get(self, gets: Vec<AttributeName>) -> Asking {
        self.command(When::Always, Action::Nothing).with_gets(gets)
    }

    /// Tells values, if every comparison before has held.
    pub(crate) fn then_get(self, gets: Vec<AttributeName>) -> Asking {
        self.command(When::IfSwapped, Action::Nothing).with_gets(gets)
    }

    /// Lists attributes of a page, whatever came before.
    pub(crate) fn list(self, page: u32, after: Option<u32>, most: u32) -> Asking {
        let after = after.map(|number| AttributeName::new(page, number));
        self.command(When::Always, Action::ListAttributes { after, page: Some(page), most })
    }

    fn command(mut self, when: When, action: Action) -> Asking {
        let (sets, gets) = (Vec::new(), Vec::new());
        self.commands.push(ObjectCommand { object: self.object, when, action, sets, sets_when: When::Always, gets });
        self
    }

    pub(crate) fn request(self) -> ObjectRequest {
        ObjectRequest { commands: self.commands }
    }

    pub(crate) fn done<T>(self) -> Next<T> {
        Next::ask(self.request())
    }
}

/// A value for an attribute.
pub(crate) fn set(name: AttributeName, value: &Bytes) -> SetAttribute {
    SetAttribute { name, value: value.clone() }
}

/// What a request brought. It comes off the wire: a command that is not answered as it must be is taken for damage.
pub(crate) struct Results(pub(crate) Vec<CommandResult>);

impl Results {
    /// Whether the compare-and-swap found what it compared with, and what it found. `None` if it was skipped.
    pub(crate) fn compared(&self, command: usize) -> Result<Option<(bool, Bytes)>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Compared { swapped, original: Some(original) } => Ok(Some((*swapped, original.clone()))),
            _ => Err(DAMAGED),
        }
    }

    /// Whether the compare-and-swap was done, and has swapped.
    pub(crate) fn swapped(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(self.compared(command)?.is_some_and(|(swapped, _)| swapped))
    }

    /// What was there before something was added. `None` if that was skipped.
    pub(crate) fn added(&self, command: usize) -> Result<Option<i64>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Added { original: Some(original) } => Ok(Some(*original)),
            _ => Err(DAMAGED),
        }
    }

    /// Whether a command was done at all.
    pub(crate) fn happened(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(!matches!(self.action(command)?, ActionResult::Skipped))
    }

    /// The values told, which are so many.
    pub(crate) fn values(&self, command: usize, count: usize) -> Result<&[Bytes], RequestFailure> {
        let values = &self.0.get(command).ok_or(DAMAGED)?.values;
        if values.len() == count { Ok(values) } else { Err(DAMAGED) }
    }

    /// What was listed: numbers and lengths, and whether there is more.
    pub(crate) fn listed(&self, command: usize) -> Result<(Vec<(u32, u32)>, bool), RequestFailure> {
        match self.action(command)? {
            ActionResult::Attributes { found, more } => {
                Ok((found.iter().map(|(name, length)| (name.number, *length)).collect(), *more))
            }
            _ => Err(DAMAGED),
        }
    }

    /// What became of the commands from this one on.
    pub(crate) fn from(mut self, command: usize) -> Vec<CommandResult> {
        self.0.split_off(command.min(self.0.len()))
    }

    fn action(&self, command: usize) -> Result<&ActionResult, RequestFailure> {
        self.0.get(command).map(|result| &result.action).ok_or(DAMAGED)
    }
}

/// What is found is none of the structure's.
pub(crate) const DAMAGED: RequestFailure = RequestFailure::Refused(ObjectFailure::Lost);

/// What a structure's operation hears.
pub(crate) enum Heard {
    /// It begins, or has slept.
    Nothing,
    /// To a request.
    Results(Results),
    /// To a wait.
    Value,
    /// What was asked may have been done or not; the next request that is answered finds out which.
    Unknown,
}

/// How often a device may say that it has too much under way, or not answer in time, before an operation gives up.
const TRIES_MAX: u32 = 8;

/// How many milliseconds are slept at most instead of a wait that the device has no room for.
const INSTEAD_OF_WAITING_MS: u64 = 50;

/// What all operations have in common: who stays without an answer asks again, some times.
#[derive(Clone, Debug, Default)]
pub(crate) struct CasContext {
    last: Last,
    busy: u32,
    unknown: u32,
    /// True while it is not known whether the operation has taken effect. Whatever ends it then, ends it as [`RequestFailure::Unknown`].
    pub(crate) in_doubt: bool,
}

/// What an operation wanted last.
#[derive(Clone, Debug, Default)]
enum Last {
    #[default]
    Nothing,
    Asked(ObjectRequest),
    Awaited,
    /// It sleeps, as the device had too much under way for this.
    Again(ObjectRequest),
}

pub(crate) type Step<T> = Result<Next<Result<T, RequestFailure>>, RequestFailure>;

impl CasContext {
    /// Takes care of what is the same for all, and has `step` do the rest.
    pub(crate) fn resume<T>(
        &mut self,
        rng: &mut Rng,
        answer: Answer,
        step: impl FnOnce(&mut CasContext, &mut Rng, Heard) -> Step<T>,
    ) -> Next<Result<T, RequestFailure>> {
        let next = match (answer, std::mem::take(&mut self.last)) {
            (Answer::None, Last::Again(request)) => Ok(Next::ask(request)),
            (Answer::RequestFailure(failure), last) => match self.troubled(rng, failure, last) {
                Ok(Some(sleep)) => return Next::Sleep(sleep),
                Ok(None) => step(self, rng, Heard::Unknown),
                Err(failure) => Err(failure),
            },
            (Answer::None, _) => step(self, rng, Heard::Nothing),
            (Answer::Value(_), _) => step(self, rng, Heard::Value),
            (Answer::Results(results), _) => {
                (self.busy, self.unknown) = (0, 0);
                step(self, rng, Heard::Results(Results(results)))
            }
        };
        match &next {
            Ok(Next::Ask { request, .. }) => self.last = Last::Asked(request.clone()),
            Ok(Next::Await { .. }) => self.last = Last::Awaited,
            _ => {}
        }
        match next {
            Ok(next) => next,
            Err(_) if self.in_doubt => Next::Done(Err(RequestFailure::Unknown)),
            Err(failure) => Next::Done(Err(failure)),
        }
    }

    /// How long to sleep, if that helps; nothing if it is to go on without an answer.
    fn troubled(
        &mut self,
        rng: &mut Rng,
        failure: RequestFailure,
        last: Last,
    ) -> Result<Option<Duration>, RequestFailure> {
        match (failure, last) {
            (RequestFailure::Refused(ObjectFailure::Busy), Last::Asked(request)) if self.busy < TRIES_MAX => {
                self.busy += 1;
                self.last = Last::Again(request);
                Ok(Some(Duration::from_millis(rng.between(1, 1 << self.busy))))
            }
            (RequestFailure::Refused(ObjectFailure::Busy), Last::Awaited) => {
                Ok(Some(Duration::from_millis(rng.between(INSTEAD_OF_WAITING_MS / 5, INSTEAD_OF_WAITING_MS))))
            }
            (RequestFailure::Unknown, _) if self.unknown < TRIES_MAX => {
                self.unknown += 1;
                Ok(None)
            }
            (failure, _) => Err(failure),
        }
    }
}
