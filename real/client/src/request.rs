//! Several commands that are done as one.

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

/// Commands that are done one after the other, as one: in one round trip, all of it or nothing, and never twice. If a command
/// fails, nothing happens. A compare-and-swap that finds another value is no failure; what follows it may depend on it.
///
/// Commands are about the object named last, by [`Request::on`] or by making it. At most 64 commands, 256 KiB to read or write in each,
/// and 512 KiB of data and values in the request or its answer.
///
/// A lock taken, used and given back at once; if somebody else has it, nothing is written:
///
/// ```no_run
/// # use braid_client::{AttributeName, Error, Space};
/// # async fn example(space: Space) -> Result<bool, Error> {
/// const LOCK: AttributeName = AttributeName::new(1, 1);
/// let answers = space
///     .request()
///     .on(17)
///     .compare_and_swap(LOCK, "", "me")
///     .write(0, "what nobody else may write meanwhile").if_swapped()
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

    /// What follows is about the object of this number.
    pub fn on(self, object: u64) -> Request {
        Request { object, ..self }
    }

    /// Makes an object with a number that none ever had; what follows is about it. Answers [`Answers::created`].
    pub fn create(self) -> Request {
        self.on(0).act(Action::Create)
    }

    /// Makes an object of this number; what follows is about it. Answers [`Answers::created`].
    pub fn create_as(self, object: u64) -> Request {
        self.on(object).act(Action::Create)
    }

    /// Removes the object with all that it has.
    pub fn remove(self) -> Request {
        self.act(Action::Remove)
    }

    /// Fails if the object is not there.
    pub fn check(self) -> Request {
        self.act(Action::Nothing)
    }

    /// Reads bytes. Answers [`Answers::data`].
    pub fn read(self, offset: u64, length: u32) -> Request {
        self.act(Action::Read { offset, length })
    }

    /// Writes bytes; the object grows if need be.
    pub fn write(self, offset: u64, data: impl Into<Bytes>) -> Request {
        self.act(Action::Write { offset, data: data.into() })
    }

    /// Writes bytes at the object's end. Answers [`Answers::appended`].
    pub fn append(self, data: impl Into<Bytes>) -> Request {
        self.act(Action::Append { data: data.into() })
    }

    /// Cuts the object off, or has it grow by zeros. At most 4 MiB of data are cut off by one command.
    pub fn truncate(self, length: u64) -> Request {
        self.act(Action::Truncate { length })
    }

    /// How long the object is. Answers [`Answers::stat`].
    pub fn stat(self) -> Request {
        self.act(Action::Stat)
    }

    /// Gets attributes. Answers [`Answers::values`], in this order.
    pub fn get(mut self, names: impl IntoIterator<Item = AttributeName>) -> Request {
        let gets = names.into_iter().collect();
        self.commands.push(ObjectCommand { gets, ..plain(self.object, Action::Nothing) });
        self
    }

    /// Gives an attribute a value; of no bytes: it is undefined from then on.
    pub fn set(mut self, name: AttributeName, value: impl Into<Value>) -> Request {
        let sets = vec![SetAttribute { name, value: value.into().into_bytes() }];
        self.commands.push(ObjectCommand { sets, ..plain(self.object, Action::Nothing) });
        self
    }

    /// Gives an attribute the value `swap` if it has the value `compare`, or is undefined. Answers [`Answers::swapped`].
    pub fn compare_and_swap(self, name: AttributeName, compare: impl Into<Value>, swap: impl Into<Value>) -> Request {
        self.compare(name, compare.into(), swap.into(), Undefined::Matches)
    }

    /// The same, where an undefined attribute equals only a value of no bytes.
    pub fn compare_and_swap_exact(
        self,
        name: AttributeName,
        compare: impl Into<Value>,
        swap: impl Into<Value>,
    ) -> Request {
        self.compare(name, compare.into(), swap.into(), Undefined::IsEmpty)
    }

    /// Adds to a number; an undefined attribute counts as zero. Answers [`Answers::original`].
    pub fn fetch_and_add(self, name: AttributeName, add: i64) -> Request {
        self.act(Action::FetchAndAdd { name, add, original: true })
    }

    /// Any command, for what there is no word here.
    pub fn command(mut self, command: ObjectCommand) -> Request {
        self.commands.push(command);
        self
    }

    /// The last command is done only if every compare-and-swap before it in this request has swapped.
    ///
    /// # Panics
    /// If there is none yet.
    pub fn if_swapped(self) -> Request {
        self.when(When::IfSwapped)
    }

    /// The last command is done only if some compare-and-swap before it in this request has not swapped.
    ///
    /// # Panics
    /// If there is none yet.
    pub fn if_not_swapped(self) -> Request {
        self.when(When::IfNotSwapped)
    }

    /// The same request, which may take so long.
    pub fn within(self, deadline: Duration) -> Request {
        Request { space: self.space.within(deadline), ..self }
    }

    /// Has it done.
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
        self.commands.last_mut().expect("a condition is of the command before it").when = when;
        self
    }
}

/// As [`recipes`](crate::recipes) take it, to be sent with what they ask: to where their structure lies, whatever handle this was made with.
impl From<Request> for ObjectRequest {
    fn from(request: Request) -> ObjectRequest {
        ObjectRequest { commands: request.commands }
    }
}

/// What the commands of a request brought, each by its place in it, from 0. Asked for what that command does not bring, or for a command
/// that was skipped, they have nothing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers(Vec<CommandResult>);

/// As [`recipes`](crate::recipes) hand it back.
impl From<Vec<CommandResult>> for Answers {
    fn from(results: Vec<CommandResult>) -> Answers {
        Answers(results)
    }
}

impl Answers {
    /// True if the command was not done, since its condition did not hold.
    pub fn is_skipped(&self, command: usize) -> bool {
        matches!(self.action(command), Some(ActionResult::Skipped))
    }

    /// True if every compare-and-swap has swapped.
    pub fn all_swapped(&self) -> bool {
        self.0.iter().all(|result| !matches!(result.action, ActionResult::Compared { swapped: false, .. }))
    }

    /// Of a compare-and-swap.
    pub fn swapped(&self, command: usize) -> Option<Swapped> {
        match self.action(command)? {
            ActionResult::Compared { swapped, original } => {
                let original = Value::from(original.clone().unwrap_or_default());
                Some(Swapped { swapped: *swapped, original })
            }
            _ => None,
        }
    }

    /// Of a fetch-and-add: the number that there was.
    pub fn original(&self, command: usize) -> Option<i64> {
        match self.action(command)? {
            ActionResult::Added { original } => *original,
            _ => None,
        }
    }

    /// Of a read.
    pub fn data(&self, command: usize) -> Option<&Bytes> {
        match self.action(command)? {
            ActionResult::Data { data } => Some(data),
            _ => None,
        }
    }

    /// Of a get: the values, as many as were asked for.
    pub fn values(&self, command: usize) -> Vec<Value> {
        self.0.get(command).map_or(Vec::new(), |result| result.values.iter().cloned().map(Value::from).collect())
    }

    /// Of a create: the object's number.
    pub fn created(&self, command: usize) -> Option<u64> {
        match self.action(command)? {
            ActionResult::Created { object: ObjectId(number) } => Some(*number),
            _ => None,
        }
    }

    /// Of an append: where the bytes begin.
    pub fn appended(&self, command: usize) -> Option<u64> {
        match self.action(command)? {
            ActionResult::Appended { offset } => Some(*offset),
            _ => None,
        }
    }

    /// Of a stat.
    pub fn stat(&self, command: usize) -> Option<Stat> {
        match self.action(command)? {
            ActionResult::Stat { length, incarnation } => Some(Stat { length: *length, incarnation: *incarnation }),
            _ => None,
        }
    }

    /// All of it as it came.
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
