//! A checker for counters that are only added to: each acknowledged addition has happened exactly once, each addition of unknown
//! outcome at most once.
//!
//! Linearizability implies this. But this check needs no search. So it also judges histories for which the search for an order is
//! abandoned, and its reports are easy to verify.

use crate::history::Outcome;
use crate::object_history::{ObjectHistory, ObjectOperation};
use crate::prelude::*;
use braid_wire::Action;

/// An attribute of an object of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counter {
    pub device: DeviceId,
    pub object: ObjectId,
    pub name: AttributeName,
}

/// A contradiction between a counter's values and its additions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miscounted {
    /// Two additions were answered as if the other had not happened, or one has happened twice in between.
    #[error("{counter:?}: additions overlap:\n  {one}\n  {other}")]
    Overlapping {
        counter: Counter,
        /// The addition that found the lower value.
        one: Box<ObjectOperation>,
        /// The addition that found the higher value.
        other: Box<ObjectOperation>,
    },
    /// The last value read is less than the sum of the acknowledged additions.
    #[error("{counter:?} was last read as {seen}, but acknowledged additions give at least {least}")]
    Lost {
        counter: Counter,
        /// The last value read.
        seen: i128,
        /// The initial value plus all acknowledged additions.
        least: i128,
    },
    /// The last value read is more than the sum of all additions.
    #[error("{counter:?} was last read as {seen}, but all additions together give at most {most}")]
    TooMuch {
        counter: Counter,
        /// The last value read.
        seen: i128,
        /// The initial value plus all additions that may have happened.
        most: i128,
    },
}

/// Checks every attribute that is only read, and only ever added to, by positive numbers, with one addition in a request. Returns the
/// number of such attributes.
pub fn check_counters(history: &ObjectHistory) -> Result<usize, Box<Miscounted>> {
    let counters = counters(history);
    counters.iter().try_for_each(|counter| check_counter(history, *counter))?;
    Ok(counters.len())
}

/// Attributes with additions, of objects that always exist, on which there were no other changes.
fn counters(history: &ObjectHistory) -> Vec<Counter> {
    let (mut added, mut otherwise) = (BTreeSet::new(), BTreeSet::new());
    let (mut unsteady, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for operation in history.operations().iter().filter(|op| op.outcome != Outcome::Never) {
        let device = operation.device;
        devices.insert(device);
        for command in &operation.request.commands {
            let counter = |name| Counter { device, object: command.object, name };
            match &command.action {
                Action::FetchAndAdd { name, add: 1.., .. } if operation.request.commands.len() == 1 => {
                    added.insert(counter(*name));
                }
                Action::FetchAndAdd { name, .. } | Action::CompareAndSwap { name, .. } => {
                    otherwise.insert(counter(*name));
                }
                Action::Create | Action::Remove => drop(unsteady.insert((device, command.object))),
                _ => {}
            }
            otherwise.extend(command.sets.iter().map(|set| counter(set.name)));
        }
    }
    let initial: BTreeMap<DeviceId, _> = devices.into_iter().map(|device| (device, history.initial(device))).collect();
    let stays = |counter: &&Counter| {
        initial[&counter.device].contains_key(&Key::header(counter.object))
            && !unsteady.contains(&(counter.device, counter.object))
    };
    added.difference(&otherwise).filter(stays).copied().collect()
}

fn check_counter(history: &ObjectHistory, counter: Counter) -> Result<(), Box<Miscounted>> {
    let Counter { device, object, name } = counter;
    let here = history.operations().iter().filter(|op| op.device == device && op.outcome != Outcome::Never);
    let first = i128::from(first_value(history, counter));
    let (mut least, mut most) = (first, first);
    let mut spans: Vec<(i128, i128, &ObjectOperation)> = Vec::new();
    let mut seen = None;
    for operation in here {
        for (index, command) in operation.request.commands.iter().enumerate().filter(|(_, c)| c.object == object) {
            let result = match operation.answer() {
                None => None,
                Some(Ok(results)) => Some(&results[index]),
                // The addition has not happened.
                Some(Err(_)) => continue,
            };
            match &command.action {
                Action::FetchAndAdd { name: added, add, .. } if *added == name => {
                    most += i128::from(*add);
                    if let Some(ActionResult::Added { original }) = result.map(|result| &result.action) {
                        least += i128::from(*add);
                        let span = |from: i64| (from.into(), i128::from(from) + i128::from(*add), operation);
                        spans.extend(original.map(span));
                    }
                }
                _ => {}
            }
            let Some(result) = result else { continue };
            for (_, value) in command.gets.iter().zip(&result.values).filter(|(get, _)| **get == name) {
                let value = <[u8; 8]>::try_from(&value[..]).map_or(0, i64::from_be_bytes).into();
                seen = seen.max(Some((operation.invoked.number, value)));
            }
        }
    }
    spans.sort_by_key(|(from, ..)| *from);
    if let Some(pair) = spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        let (one, other) = (Box::new(pair[0].2.clone()), Box::new(pair[1].2.clone()));
        return Err(Box::new(Miscounted::Overlapping { counter, one, other }));
    }
    let Some((number, seen)) = seen else { return Ok(()) };
    if seen > most {
        return Err(Box::new(Miscounted::TooMuch { counter, seen, most }));
    }
    // A read need not have seen additions that were still in progress.
    let over = |op: &ObjectOperation| op.invoked.number == number || op.completed().is_none_or(|at| at.number < number);
    let mut additions = history.operations().iter().filter(|op| op.device == device && adds_to(op, counter));
    if seen < least && additions.all(over) {
        return Err(Box::new(Miscounted::Lost { counter, seen, least }));
    }
    Ok(())
}

fn adds_to(operation: &ObjectOperation, counter: Counter) -> bool {
    operation.request.commands.iter().any(|command| {
        command.object == counter.object
            && matches!(&command.action, Action::FetchAndAdd { name, .. } if *name == counter.name)
    })
}

fn first_value(history: &ObjectHistory, Counter { device, object, name }: Counter) -> i64 {
    let there = history.initial(device);
    let incarnation =
        there.get(&Key::header(object)).map(|header| u64::from_be_bytes(header[..8].try_into().expect("a header")));
    let value = incarnation.and_then(|incarnation| there.get(&Key::attribute(incarnation, name)).cloned());
    value.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok()).map_or(0, i64::from_be_bytes)
}
