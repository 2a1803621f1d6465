//! Functions that all structures use: they build requests and interpret answers.
//!
//! All comparisons are strict: an undefined attribute equals only a value of no bytes. So no structure restores an attribute that another
//! client has removed.

use crate::procedure::RequestFailure;
use braid_base::ObjectId;
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectFailure, ObjectRequest, SetAttribute,
    Undefined, When,
};
use bytes::Bytes;

#[derive(Clone)]
pub(crate) struct RequestBuilder {
    object: ObjectId,
    commands: Vec<ObjectCommand>,
}

impl RequestBuilder {
    pub(crate) fn of(object: ObjectId) -> RequestBuilder {
        RequestBuilder { object, commands: Vec::new() }
    }

    /// Compares and swaps, and returns the value that was there.
    pub(crate) fn swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        self.swap_when(When::Always, name, compare, swap)
    }

    /// The same, if all comparisons before have held.
    pub(crate) fn then_swap(self, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        self.swap_when(When::IfSwapped, name, compare, swap)
    }

    fn swap_when(self, when: When, name: AttributeName, compare: &Bytes, swap: &Bytes) -> RequestBuilder {
        let (compare, swap) = (compare.clone(), swap.clone());
        self.command(
            when,
            Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: true },
        )
    }

    /// Changes nothing; later commands depend on whether the attribute has this value.
    pub(crate) fn test(self, name: AttributeName, value: &Bytes) -> RequestBuilder {
        self.swap(name, value, value)
    }

    /// Sets attributes if the last command's comparison has held, too.
    pub(crate) fn with_sets(mut self, sets: Vec<SetAttribute>) -> RequestBuilder {
        let last = self.commands.last_mut().expect("it belongs to a command");
        (last.sets, last.sets_when) = (sets, When::IfSwapped);
        self
    }

    /// Reads attributes with the last command.
    pub(crate) fn with_gets(mut self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.commands.last_mut().expect("it belongs to a command").gets = gets;
        self
    }

    /// Appends commands that state their own conditions.
    pub(crate) fn then(mut self, commands: impl IntoIterator<Item = ObjectCommand>) -> RequestBuilder {
        self.commands.extend(commands);
        self
    }

    /// Adds if all comparisons before have held, and returns the value that was there.
    pub(crate) fn then_add(self, name: AttributeName, add: i64) -> RequestBuilder {
        self.command(When::IfSwapped, Action::FetchAndAdd { name, add, original: true })
    }

    /// Sets attributes if all comparisons before have held.
    pub(crate) fn then_set(self, sets: Vec<SetAttribute>) -> RequestBuilder {
        self.command(When::IfSwapped, Action::Nothing).with_sets(sets)
    }

    /// Reads attributes unconditionally.
    pub(crate) fn get(self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.command(When::Always, Action::Nothing).with_gets(gets)
    }

    /// Reads attributes if all comparisons before have held.
    pub(crate) fn then_get(self, gets: Vec<AttributeName>) -> RequestBuilder {
        self.command(When::IfSwapped, Action::Nothing).with_gets(gets)
    }

    /// Lists attributes of a page unconditionally.
    pub(crate) fn list(self, page: u32, after: Option<u32>, most: u32) -> RequestBuilder {
        let after = after.map(|number| AttributeName::new(page, number));
        self.command(When::Always, Action::ListAttributes { after, page: Some(page), most })
    }

    fn command(mut self, when: When, action: Action) -> RequestBuilder {
        let (sets, gets) = (Vec::new(), Vec::new());
        self.commands.push(ObjectCommand { object: self.object, when, action, sets, sets_when: When::Always, gets });
        self
    }

    pub(crate) fn request(self) -> ObjectRequest {
        ObjectRequest { commands: self.commands }
    }
}

/// A command part that sets an attribute.
pub(crate) fn set(name: AttributeName, value: &Bytes) -> SetAttribute {
    SetAttribute { name, value: value.clone() }
}

/// The results of a request. They come from the network: a result that does not fit its command counts as damage.
pub(crate) struct Results(pub(crate) Vec<CommandResult>);

impl Results {
    /// Whether the compare-and-swap found the expected value, and the value found. `None` if it was skipped.
    pub(crate) fn compared(&self, command: usize) -> Result<Option<(bool, Bytes)>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Compared { swapped, original: Some(original) } => Ok(Some((*swapped, original.clone()))),
            _ => Err(DAMAGED),
        }
    }

    /// True if the compare-and-swap was executed and has swapped.
    pub(crate) fn swapped(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(self.compared(command)?.is_some_and(|(swapped, _)| swapped))
    }

    /// The value before an addition. `None` if it was skipped.
    pub(crate) fn added(&self, command: usize) -> Result<Option<i64>, RequestFailure> {
        match self.action(command)? {
            ActionResult::Skipped => Ok(None),
            ActionResult::Added { original: Some(original) } => Ok(Some(*original)),
            _ => Err(DAMAGED),
        }
    }

    /// True if a command was executed.
    pub(crate) fn happened(&self, command: usize) -> Result<bool, RequestFailure> {
        Ok(!matches!(self.action(command)?, ActionResult::Skipped))
    }

    /// The values that were read; an error if there are not `count` of them.
    pub(crate) fn values(&self, command: usize, count: usize) -> Result<&[Bytes], RequestFailure> {
        let values = &self.0.get(command).ok_or(DAMAGED)?.values;
        if values.len() == count { Ok(values) } else { Err(DAMAGED) }
    }

    /// The listed attributes: numbers and lengths, and whether there are more.
    pub(crate) fn listed(&self, command: usize) -> Result<(Vec<(u32, u32)>, bool), RequestFailure> {
        match self.action(command)? {
            ActionResult::Attributes { found, more } => {
                Ok((found.iter().map(|(name, length)| (name.number, *length)).collect(), *more))
            }
            _ => Err(DAMAGED),
        }
    }

    pub(crate) fn from(mut self, command: usize) -> Vec<CommandResult> {
        self.0.split_off(command.min(self.0.len()))
    }

    fn action(&self, command: usize) -> Result<&ActionResult, RequestFailure> {
        self.0.get(command).map(|result| &result.action).ok_or(DAMAGED)
    }
}

/// The attributes do not contain what the structure stores there.
pub(crate) const DAMAGED: RequestFailure = RequestFailure::Refused(ObjectFailure::Lost);
