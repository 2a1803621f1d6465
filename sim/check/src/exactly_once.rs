//! Counters that are only added to: each addition that was answered has happened once, each of unknown outcome once or not at all.
//!
//! That follows from linearizability, too. But it needs no search, so it holds where that is given up; and what it says is easy to see.

use crate::object_history::{ObjectHistory, ObjectOperation, Outcome};
use braid_base::{DeviceId, ObjectId};
use braid_objects::Key;
use braid_wire::{Action, ActionResult, AttributeName};
use std::collections::{BTreeMap, BTreeSet};

/// An attribute of an object of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counter {
    /// On which device.
    pub device: DeviceId,
    /// Of which object.
    pub object: ObjectId,
    /// Which attribute.
    pub name: AttributeName,
}

/// What additions to a counter can't explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miscounted {
    /// Two additions were answered as if the other had not happened, or one has happened twice in between.
    #[error("{counter:?}: additions overlap:\n  {one}\n  {other}")]
    Overlapping {
        /// Of which counter.
        counter: Counter,
        /// Which found the lower value.
        one: Box<ObjectOperation>,
        /// Which found the higher one.
        other: Box<ObjectOperation>,
    },
    /// What was last seen is less than what was answered.
    #[error("{counter:?} was last seen as {seen}, and additions that were answered make {least}")]
    Lost {
        /// Of which counter.
        counter: Counter,
        /// What was seen.
        seen: i128,
        /// With all that were answered.
        least: i128,
    },
    /// What was last seen is more than all additions together.
    #[error("{counter:?} was last seen as {seen}, and all additions that there were make {most} at most")]
    TooMuch {
        /// Of which counter.
        counter: Counter,
        /// What was seen.
        seen: i128,
        /// With all that may have happened.
        most: i128,
    },
}

/// Looks at every attribute that is only ever added to, by numbers above zero, one in a request, and read. Says how many these are.
pub fn check_counters(history: &ObjectHistory) -> Result<usize, Box<Miscounted>> {
    let counters = counters(history);
    counters.iter().try_for_each(|counter| check_counter(history, *counter))?;
    Ok(counters.len())
}

/// Attributes with additions, of objects that stay, to which nothing else was done.
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
                // It has not happened.
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
    // Who looked while something was still under way need not have seen it.
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
