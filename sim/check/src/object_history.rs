//! What clients had done on objects that hold bytes and attributes, when, and what they were answered.
//!
//! Each device's objects are a world of their own: nothing orders what happens on two of them.

use crate::history::{Client, Moment};
use braid_base::{DeviceId, Time};
use braid_objects::Key;
use braid_wire::{
    Action, ActionResult, AttributeName, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal,
    ObjectRequest, When,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// All that there is on a device, as [`braid_objects`] keeps it.
pub type Objects = BTreeMap<Key, Bytes>;

/// How a request ended, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody knows: it has happened, or will at some time, or never.
    Unknown,
    /// Likewise, but after this moment it does not happen any more: who asked is kept out, or has taken leave.
    UnknownUntil(Moment),
    /// Nothing of it has happened, nor will.
    Never,
    /// It has happened, or was refused by what it found, between its invocation and now.
    Answered(Moment, ObjectAnswer),
}

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOperation {
    /// Who.
    pub client: Client,
    /// Where.
    pub device: DeviceId,
    /// What.
    pub request: ObjectRequest,
    /// When it was asked for.
    pub invoked: Moment,
    /// What became of it.
    pub outcome: Outcome,
}

/// Names a request in its history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectOperationId(usize);

/// All requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHistory {
    operations: Vec<ObjectOperation>,
    initial: BTreeMap<DeviceId, Objects>,
    moments: u64,
}

impl ObjectHistory {
    /// What was on a device before the first request; nothing, unless it is said.
    pub fn begin_with(&mut self, device: DeviceId, objects: Objects) {
        self.initial.insert(device, objects);
    }

    /// A client asks for something.
    pub fn ask(&mut self, client: Client, now: Time, device: DeviceId, request: ObjectRequest) -> ObjectOperationId {
        let invoked = self.moment(now);
        self.operations.push(ObjectOperation { client, device, request, invoked, outcome: Outcome::Unknown });
        ObjectOperationId(self.operations.len() - 1)
    }

    /// It is answered by the device. What ends in any other way is left as it is: nobody knows what became of it.
    pub fn answered(&mut self, id: ObjectOperationId, now: Time, answer: ObjectAnswer) {
        let now = self.moment(now);
        self.operations[id.0].outcome = Outcome::Answered(now, answer);
    }

    /// It is certain that nothing of it has happened, nor will.
    pub fn never(&mut self, id: ObjectOperationId) {
        self.operations[id.0].outcome = Outcome::Never;
    }

    /// Whatever this host has asked for on a device, and was not answered, will not happen any more.
    pub fn is_kept_out(&mut self, host: u32, device: DeviceId, now: Time) {
        let now = self.moment(now);
        let of_it = |op: &&mut ObjectOperation| op.client.host == host && op.device == device;
        for operation in self.operations.iter_mut().filter(of_it) {
            if operation.outcome == Outcome::Unknown {
                operation.outcome = Outcome::UnknownUntil(now);
            }
        }
    }

    /// If nobody knows what became of it, it has happened by now or will not.
    pub fn is_over(&mut self, id: ObjectOperationId, now: Time) {
        let now = self.moment(now);
        let outcome = &mut self.operations[id.0].outcome;
        if *outcome == Outcome::Unknown {
            *outcome = Outcome::UnknownUntil(now);
        }
    }

    /// Nothing that was asked of a device counts any more: what it held is lost.
    pub fn forget(&mut self, device: DeviceId) {
        self.operations.retain(|operation| operation.device != device);
        self.initial.remove(&device);
    }

    /// All requests, in the order in which they were asked for.
    pub fn operations(&self) -> &[ObjectOperation] {
        &self.operations
    }

    /// One of them.
    pub fn operation(&self, id: ObjectOperationId) -> &ObjectOperation {
        &self.operations[id.0]
    }

    /// What was on a device before the first.
    pub fn initial(&self, device: DeviceId) -> Objects {
        self.initial.get(&device).cloned().unwrap_or_default()
    }

    /// Something happens that what is asked for later comes after.
    pub fn moment(&mut self, time: Time) -> Moment {
        self.moments += 1;
        Moment { number: self.moments, time }
    }
}

impl ObjectOperation {
    /// When it was answered, if it was.
    pub fn completed(&self) -> Option<Moment> {
        match self.outcome {
            Outcome::Answered(at, _) => Some(at),
            _ => None,
        }
    }

    /// What it was answered, if it was.
    pub fn answer(&self) -> Option<&ObjectAnswer> {
        match &self.outcome {
            Outcome::Answered(_, answer) => Some(answer),
            _ => None,
        }
    }

    /// True if it is known to have changed nothing.
    pub fn changed_nothing(&self) -> bool {
        match &self.outcome {
            Outcome::Never | Outcome::Answered(_, Err(_)) => true,
            _ => self.request.only_asks(),
        }
    }
}

/// Refusals that have nothing to do with what the objects hold: a device may give them to any request.
pub fn is_beyond_the_model(failure: ObjectFailure) -> bool {
    matches!(failure, ObjectFailure::NoSpace | ObjectFailure::Lost | ObjectFailure::Busy)
}

impl fmt::Display for ObjectOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |moment: Moment| moment.time.0 as f64 / 1e9;
        let client = format!("h{}.{}", self.client.host, self.client.number);
        write!(f, "{client:<8} {:>13.6} to ", seconds(self.invoked))?;
        match &self.outcome {
            Outcome::Answered(at, _) => write!(f, "{:>13.6}  ", seconds(*at))?,
            Outcome::UnknownUntil(at) => write!(f, "({:>11.6})  ", seconds(*at))?,
            Outcome::Unknown => write!(f, "{:>13}  ", "unknown")?,
            Outcome::Never => write!(f, "{:>13}  ", "never")?,
        }
        write!(f, "{}: {}", self.device, Told(&self.request))?;
        self.answer().map_or(Ok(()), |answer| write!(f, " -> {}", ToldAnswer(answer)))
    }
}

/// A request in short, as in `o3: 1/7 += 2, get 1/8; o3: list if swapped`.
pub struct Told<'a>(pub &'a ObjectRequest);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.0.commands.iter().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            tell_command(f, command)?;
        }
        Ok(())
    }
}

fn tell_command(f: &mut fmt::Formatter<'_>, command: &ObjectCommand) -> fmt::Result {
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
    tell_when(f, command.when)?;
    for set in &command.sets {
        write!(f, ", {} := {}", named(set.name), short(&set.value))?;
    }
    tell_when(f, command.sets_when)?;
    command.gets.iter().try_for_each(|get| write!(f, ", get {}", named(*get)))
}

fn tell_when(f: &mut fmt::Formatter<'_>, when: When) -> fmt::Result {
    f.write_str(match when {
        When::Always => "",
        When::IfSwapped => " if swapped",
        When::IfNotSwapped => " if not swapped",
    })
}

/// An answer in short.
pub struct ToldAnswer<'a>(pub &'a ObjectAnswer);

impl fmt::Display for ToldAnswer<'_> {
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

/// A value as a number, if it has eight bytes, or its first ones.
fn short(value: &[u8]) -> String {
    match <[u8; 8]>::try_from(value) {
        Ok(word) => i64::from_be_bytes(word).to_string(),
        Err(_) if value.is_empty() => "nothing".into(),
        Err(_) => format!("\"{}\"", value[..value.len().min(24)].escape_ascii()),
    }
}
