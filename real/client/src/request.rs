//! A request: several commands that are executed atomically.

use crate::error::{Error, RequestError};
use crate::object::{Stat, Swapped};
use crate::space::{Space, plain};
use crate::value::Value;
use braid_base::ObjectId;
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest, SetAttribute, Undefined, When,
};
use bytes::Bytes;
use std::time::Duration;

/// Commands that are executed one after the other, atomically: in one round trip, all of them or none, and never twice. If a command fails,
/// no command has an effect. A compare-and-swap that finds another value is no failure; later commands can depend on it
/// ([`Request::if_swapped`]). Such conditions are an extension of the device-atomics paper, which leaves them out (section 5).
///
/// A command concerns the object that was named last, by [`Request::on`] or by creating it. A request may have at most 64 commands, 256 KiB
/// to read or write in each, and 512 KiB of data and values in the request or its answer.
///
/// Example: take a lock, write, and release the lock in one request. If another client holds the lock, nothing is written:
///
/// ```no_run
/// # use braid_client::{AttributeName, Error, Space};
/// # async fn example(space: Space) -> Result<bool, Error> {
/// const LOCK: AttributeName = AttributeName::new(1, 1);
/// let answers = space
///     .request()
///     .on(17)
///     .compare_and_swap(LOCK, "", "me")
///     .write(0, "only while I hold the lock").if_swapped()
///     .set(LOCK, "").if_swapped()
///     .send()
///     .await?;
/// # Ok(
/// answers.all_swapped()
/// # )
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before it is sent"]
pub struct Request {
    space: Space,
    object: u64,
    commands: Vec<ObjectCommand>,
}

impl Request {
    pub(crate) fn new(space: Space) -> Request {
        Request { space, object: 0, commands: Vec::new() }
    }

    /// Later commands concern the object with this number.
    pub fn on(self, object: u64) -> Request {
        Request { object, ..self }
    }

    /// Creates an object with a number that the device chooses; later commands concern it. Result: [`Answers::created`].
    pub fn create(self) -> Request {
        self.on(0).act(Action::Create)
    }

    /// Creates an object with this number; later commands concern it. Result: [`Answers::created`].
    pub fn create_as(self, object: u64) -> Request {
        self.on(object).act(Action::Create)
    }

    /// Removes the object with its bytes and attributes.
    pub fn remove(self) -> Request {
        self.act(Action::Remove)
    }

    /// Fails with `ObjectFailure::NoSuchObject` if the object does not exist.
    pub fn check(self) -> Request {
        self.act(Action::Nothing)
    }

    /// Reads up to `length` bytes at `offset`; fewer if the object ends before. Result: [`Answers::data`].
    pub fn read(self, offset: u64, length: u32) -> Request {
        self.act(Action::Read { offset, length })
    }

    /// Writes bytes at `offset`, which is in bytes. The object grows if necessary.
    pub fn write(self, offset: u64, data: impl Into<Bytes>) -> Request {
        self.act(Action::Write { offset, data: data.into() })
    }

    /// Appends bytes to the object. Result: [`Answers::appended`].
    pub fn append(self, data: impl Into<Bytes>) -> Request {
        self.act(Action::Append { data: data.into() })
    }

    /// Sets the length of the object, in bytes: cuts it off, or extends it by zeros. One command cuts off at most 4 MiB of data
    /// (`ObjectFailure::CutsTooMuch`).
    pub fn truncate(self, length: u64) -> Request {
        self.act(Action::Truncate { length })
    }

    /// Reads the object's length and incarnation. Result: [`Answers::stat`].
    pub fn stat(self) -> Request {
        self.act(Action::Stat)
    }

    /// Reads attributes. Result: [`Answers::values`], in this order.
    pub fn get(mut self, names: impl IntoIterator<Item = AttributeName>) -> Request {
        let gets = names.into_iter().collect();
        self.commands.push(ObjectCommand { gets, ..plain(self.object, Action::Nothing) });
        self
    }

    /// Sets an attribute. A value of no bytes makes it undefined.
    pub fn set(mut self, name: AttributeName, value: impl Into<Value>) -> Request {
        let sets = vec![SetAttribute { name, value: value.into().into_bytes() }];
        self.commands.push(ObjectCommand { sets, ..plain(self.object, Action::Nothing) });
        self
    }

    /// Sets an attribute to `swap` if its value is `compare`, or if it is undefined. Result: [`Answers::swapped`].
    pub fn compare_and_swap(self, name: AttributeName, compare: impl Into<Value>, swap: impl Into<Value>) -> Request {
        self.compare(name, compare.into(), swap.into(), Undefined::Matches)
    }

    /// The same as [`Request::compare_and_swap`], but an undefined attribute equals only the value of no bytes.
    pub fn compare_and_swap_exact(
        self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Request {
        self.compare(name, compare.into(), swap.into(), Undefined::IsEmpty)
    }

    /// Adds to an attribute that is a number of eight bytes; an undefined one counts as zero. Result: [`Answers::original`].
    pub fn fetch_and_add(self, name: AttributeName, add: i64) -> Request {
        self.act(Action::FetchAndAdd { name, add, original: true })
    }

    /// Appends a command that was built elsewhere, for what this type has no method for.
    pub fn command(mut self, command: ObjectCommand) -> Request {
        self.commands.push(command);
        self
    }

    /// The last command is executed only if every compare-and-swap before it in this request has swapped.
    ///
    /// # Panics
    /// If there is no command yet.
    pub fn if_swapped(self) -> Request {
        self.when(When::IfSwapped)
    }

    /// The same request with another deadline.
    pub fn within(self, deadline: Duration) -> Request {
        Request { space: self.space.within(deadline), ..self }
    }

    /// Sends the request and waits for its answer.
    ///
    /// # Errors
    /// The [`RequestError`] names the command that failed. Errors that concern the whole request are `ObjectFailure::Malformed` if it exceeds
    /// the limits, `ObjectFailure::NotTogether` and `ObjectFailure::NotInAttributeVolume` on attribute volumes, and those of the connection.
    pub async fn send(self) -> Result<Answers, RequestError> {
        let Request { space, commands, .. } = self;
        space.send(ObjectRequest { commands }).await
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    fn act(mut self, action: Action) -> Request {
        self.commands.push(plain(self.object, action));
        self
    }

    fn compare(self, name: AttributeName, compare: Value, swap: Value, undefined: Undefined) -> Request {
        let (compare, swap) = (compare.into_bytes(), swap.into_bytes());
        self.act(Action::CompareAndSwap { name, compare, swap, undefined, original: true })
    }

    fn when(mut self, when: When) -> Request {
        self.commands.last_mut().expect("a condition follows a command").when = when;
        self
    }
}

/// Converts a request for use with [`recipes`](crate::recipes). It is then sent to the space of the structure, whatever handle made it.
impl From<Request> for ObjectRequest {
    fn from(request: Request) -> ObjectRequest {
        ObjectRequest { commands: request.commands }
    }
}

/// The results of the commands of a request. A command is addressed by its index, from 0. The methods return none (or an empty list) for a
/// command that was skipped, or that has a result of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers(Vec<CommandResult>);

/// Converts the results that [`recipes`](crate::recipes) return.
impl From<Vec<CommandResult>> for Answers {
    fn from(results: Vec<CommandResult>) -> Answers {
        Answers(results)
    }
}

impl Answers {
    /// True if every compare-and-swap has swapped.
    pub fn all_swapped(&self) -> bool {
        self.0.iter().all(|result| !matches!(result.action, ActionResult::Compared { swapped: false, .. }))
    }

    /// The result of a compare-and-swap.
    pub fn swapped(&self, command: usize) -> Option<Swapped> {
        match self.action(command)? {
            ActionResult::Compared { swapped, original } => {
                let original = Value::from(original.clone().unwrap_or_default());
                Some(Swapped { swapped: *swapped, original })
            }
            _ => None,
        }
    }

    /// The result of a fetch-and-add: the number before the addition.
    pub fn original(&self, command: usize) -> Option<i64> {
        let ActionResult::Added { original } = self.action(command)? else { return None };
        *original
    }

    /// The result of a read.
    pub fn data(&self, command: usize) -> Option<&Bytes> {
        let ActionResult::Data { data } = self.action(command)? else { return None };
        Some(data)
    }

    /// The results of [`Request::get`]: as many values as attributes were named.
    pub fn values(&self, command: usize) -> Vec<Value> {
        self.0.get(command).map_or(Vec::new(), |result| result.values.iter().cloned().map(Value::from).collect())
    }

    /// The result of a create: the object's number.
    pub fn created(&self, command: usize) -> Option<u64> {
        let ActionResult::Created { object: ObjectId(number) } = self.action(command)? else { return None };
        Some(*number)
    }

    /// The result of an append: the offset at which the bytes begin.
    pub fn appended(&self, command: usize) -> Option<u64> {
        let ActionResult::Appended { offset } = self.action(command)? else { return None };
        Some(*offset)
    }

    /// The result of [`Request::stat`].
    pub fn stat(&self, command: usize) -> Option<Stat> {
        let ActionResult::Stat { length, incarnation } = self.action(command)? else { return None };
        Some(Stat { length: *length, incarnation: *incarnation })
    }

    /// All results, as the device sent them.
    pub fn into_results(self) -> Vec<CommandResult> {
        self.0
    }

    pub(crate) fn one(&self) -> Result<&CommandResult, Error> {
        self.0.first().ok_or(Error::ProtocolError)
    }

    fn action(&self, command: usize) -> Option<&ActionResult> {
        Some(&self.0.get(command)?.action)
    }
}
