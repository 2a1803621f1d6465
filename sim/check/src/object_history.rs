//! The history of object requests: the requests that clients issued on objects with bytes and attributes, their times, and the
//! answers.
//!
//! The objects of each device are independent: nothing orders requests to two devices.

use crate::history::{Client, Moment, Moments, Outcome, write_invocation};
use crate::prelude::*;
use braid_wire::{Action, ObjectAnswer, ObjectFailure, ObjectRefusal, ObjectRequest, When};

/// All objects of a device, in the representation of [`braid_objects`].
pub type Objects = BTreeMap<Key, Bytes>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOperation {
    pub client: Client,
    pub device: DeviceId,
    pub request: ObjectRequest,
    pub invoked: Moment,
    pub outcome: Outcome<ObjectAnswer>,
}

/// Identifies a request in its history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectOperationId(usize);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHistory {
    operations: Vec<ObjectOperation>,
    initial: BTreeMap<DeviceId, Objects>,
    moments: Moments,
}

impl ObjectHistory {
    /// Sets the objects of a device before the first request. Without a call the device is empty.
    pub fn begin_with(&mut self, device: DeviceId, objects: Objects) {
        self.initial.insert(device, objects);
    }

    /// Records that a client issues a request.
    pub fn ask(&mut self, client: Client, now: Time, device: DeviceId, request: ObjectRequest) -> ObjectOperationId {
        let invoked = self.moment(now);
        self.operations.push(ObjectOperation { client, device, request, invoked, outcome: Outcome::Unknown });
        ObjectOperationId(self.operations.len() - 1)
    }

    /// Records the device's answer to a request. A request that ends in any other way keeps its unknown outcome.
    pub fn answered(&mut self, id: ObjectOperationId, now: Time, answer: ObjectAnswer) {
        let now = self.moment(now);
        self.operations[id.0].outcome = Outcome::Answered(now, answer);
    }

    /// Records that a request certainly has not happened and never will.
    pub fn never(&mut self, id: ObjectOperationId) {
        self.operations[id.0].outcome = Outcome::Never;
    }

    /// Records that a request whose outcome is unknown will not happen from now on.
    pub fn is_over(&mut self, id: ObjectOperationId, now: Time) {
        let now = self.moment(now);
        self.operations[id.0].outcome.is_over(now);
    }

    /// Drops all requests to a device whose content is lost.
    pub fn forget(&mut self, device: DeviceId) {
        self.operations.retain(|operation| operation.device != device);
        self.initial.remove(&device);
    }

    /// All requests, in the order of their invocations.
    pub fn operations(&self) -> &[ObjectOperation] {
        &self.operations
    }

    pub fn operation(&self, id: ObjectOperationId) -> &ObjectOperation {
        &self.operations[id.0]
    }

    /// The objects of a device before the first request.
    pub fn initial(&self, device: DeviceId) -> Objects {
        self.initial.get(&device).cloned().unwrap_or_default()
    }

    /// Records a moment after which all later requests come.
    pub fn moment(&mut self, time: Time) -> Moment {
        self.moments.next(time)
    }
}

impl ObjectOperation {
    pub fn completed(&self) -> Option<Moment> {
        self.outcome.answered()
    }

    pub fn answer(&self) -> Option<&ObjectAnswer> {
        self.outcome.answer()
    }

    /// True if the request is known to have changed nothing.
    pub fn changed_nothing(&self) -> bool {
        match &self.outcome {
            Outcome::Never | Outcome::Answered(_, Err(_)) => true,
            _ => self.request.only_asks(),
        }
    }
}

/// Failures that do not depend on the content of the objects: a device may give them to any request.
pub fn is_beyond_the_model(failure: ObjectFailure) -> bool {
    matches!(failure, ObjectFailure::NoSpace | ObjectFailure::Lost | ObjectFailure::Busy)
}

impl fmt::Display for ObjectOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_invocation(f, self.client, self.invoked)?;
        match &self.outcome {
            Outcome::Answered(at, _) => write!(f, "{:>13.6}  ", at.seconds())?,
            Outcome::UnknownUntil(at) => write!(f, "({:>11.6})  ", at.seconds())?,
            Outcome::Unknown => write!(f, "{:>13}  ", "unknown")?,
            Outcome::Never => write!(f, "{:>13}  ", "never")?,
        }
        write!(f, "{}: {}", self.device, RequestText(&self.request))?;
        self.answer().map_or(Ok(()), |answer| write!(f, " -> {}", AnswerText(answer)))
    }
}

/// Formats a request briefly, as in `o3: 1/7 += 2, get 1/8; o3: list if swapped`.
pub struct RequestText<'a>(pub &'a ObjectRequest);

impl fmt::Display for RequestText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.0.commands.iter().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            write_command(f, command)?;
        }
        Ok(())
    }
}

fn write_command(f: &mut fmt::Formatter<'_>, command: &ObjectCommand) -> fmt::Result {
    write!(f, "{}: ", command.object)?;
    match &command.action {
        Action::Nothing => f.write_str("nothing")?,
        Action::Create => f.write_str("create")?,
        Action::Remove => f.write_str("remove")?,
        Action::Read { offset, length } => write!(f, "read {offset}+{length}")?,
        Action::Write { offset, data } => write!(f, "write {offset}+{} {}", data.len(), short(data))?,
        Action::Append { data } => write!(f, "append {} {}", data.len(), short(data))?,
        Action::Truncate { length } => write!(f, "truncate to {length}")?,
        Action::Flush => f.write_str("flush")?,
        Action::Stat => f.write_str("stat")?,
        Action::CompareAndSwap { name, compare, swap, .. } => {
            write!(f, "{} if {} := {}", named(*name), short(compare), short(swap))?;
        }
        Action::FetchAndAdd { name, add, .. } => write!(f, "{} += {add}", named(*name))?,
        Action::ListAttributes { .. } => f.write_str("list attributes")?,
        Action::List { .. } => f.write_str("list objects")?,
    }
    write_when(f, command.when)?;
    for set in &command.sets {
        write!(f, ", {} := {}", named(set.name), short(&set.value))?;
    }
    write_when(f, command.sets_when)?;
    command.gets.iter().try_for_each(|get| write!(f, ", get {}", named(*get)))
}

fn write_when(f: &mut fmt::Formatter<'_>, when: When) -> fmt::Result {
    f.write_str(match when {
        When::Always => "",
        When::IfSwapped => " if swapped",
        When::IfNotSwapped => " if not swapped",
    })
}

/// Formats an answer briefly.
pub struct AnswerText<'a>(pub &'a ObjectAnswer);

impl fmt::Display for AnswerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = match self.0 {
            Ok(results) => results,
            Err(ObjectRefusal { command, failure }) => return write!(f, "refused, {command}: {failure}"),
        };
        for (index, CommandResult { action, values }) in results.iter().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            match action {
                ActionResult::Skipped => f.write_str("skipped")?,
                ActionResult::Done => f.write_str("done")?,
                ActionResult::Created { object } => write!(f, "created {object}")?,
                ActionResult::Data { data } => write!(f, "{} bytes {}", data.len(), short(data))?,
                ActionResult::Appended { offset } => write!(f, "appended at {offset}")?,
                ActionResult::Stat { length, incarnation } => write!(f, "length {length}, incarnation {incarnation}")?,
                ActionResult::Compared { swapped, original } => {
                    f.write_str(if *swapped { "swapped" } else { "not swapped" })?;
                    original.as_ref().map_or(Ok(()), |value| write!(f, ", was {}", short(value)))?;
                }
                ActionResult::Added { original: Some(original) } => write!(f, "was {original}")?,
                ActionResult::Added { original: None } => f.write_str("added")?,
                ActionResult::Attributes { found, more } => {
                    found.iter().try_for_each(|(name, length)| write!(f, "{}:{length} ", named(*name)))?;
                    f.write_str(if *more { "and more" } else { "and no more" })?;
                }
                ActionResult::Objects { found, more } => {
                    found.iter().try_for_each(|object| write!(f, "{object} "))?;
                    f.write_str(if *more { "and more" } else { "and no more" })?;
                }
            }
            values.iter().try_for_each(|value| write!(f, ", got {}", short(value)))?;
        }
        Ok(())
    }
}

fn named(name: AttributeName) -> String {
    format!("{:x}/{}", name.page, name.number)
}

/// A value as a number if it has eight bytes, otherwise its first bytes.
fn short(value: &[u8]) -> String {
    match <[u8; 8]>::try_from(value) {
        Ok(word) => i64::from_be_bytes(word).to_string(),
        Err(_) if value.is_empty() => "nothing".into(),
        Err(_) => format!("\"{}\"", value[..value.len().min(24)].escape_ascii()),
    }
}
