//! Strategies that generate arbitrary object requests and answers.

use crate::any::{number, object};
use braid_wire::*;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn request() -> impl Strategy<Value = ObjectRequest> {
    vec(command(), 0..4).prop_map(|commands| ObjectRequest { commands })
}

pub fn answer() -> impl Strategy<Value = ObjectAnswer> {
    let result = (action_result(), vec(value(), 0..4)).prop_map(|(action, values)| CommandResult { action, values });
    let refusal = (any::<u32>(), failure()).prop_map(|(command, failure)| ObjectRefusal { command, failure });
    prop_oneof![4 => vec(result, 0..4).prop_map(Ok), 1 => refusal.prop_map(Err)]
}

fn command() -> impl Strategy<Value = ObjectCommand> {
    let set = (name(), value()).prop_map(|(name, value)| SetAttribute { name, value });
    (object(), when(), action(), vec(set, 0..4), when(), vec(name(), 0..4)).prop_map(
        |(object, when, action, sets, sets_when, gets)| ObjectCommand { object, when, action, sets, sets_when, gets },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let undefined = prop_oneof![Just(Undefined::Matches), Just(Undefined::IsEmpty)];
    prop_oneof![
        Just(Action::Nothing),
        Just(Action::Create),
        Just(Action::Remove),
        (number(), any::<u32>()).prop_map(|(offset, length)| Action::Read { offset, length }),
        (number(), value()).prop_map(|(offset, data)| Action::Write { offset, data }),
        value().prop_map(|data| Action::Append { data }),
        number().prop_map(|length| Action::Truncate { length }),
        Just(Action::Flush),
        Just(Action::Stat),
        (name(), value(), value(), undefined, any::<bool>()).prop_map(|(name, compare, swap, undefined, original)| {
            Action::CompareAndSwap { name, compare, swap, undefined, original }
        }),
        (name(), any::<i64>(), any::<bool>()).prop_map(|(name, add, original)| Action::FetchAndAdd {
            name,
            add,
            original
        }),
        (prop::option::of(name()), prop::option::of(any::<u32>()), any::<u32>())
            .prop_map(|(after, page, most)| Action::ListAttributes { after, page, most }),
        (object(), any::<u32>()).prop_map(|(after, most)| Action::List { after, most }),
    ]
}

fn action_result() -> impl Strategy<Value = ActionResult> {
    prop_oneof![
        Just(ActionResult::Skipped),
        Just(ActionResult::Done),
        object().prop_map(|object| ActionResult::Created { object }),
        value().prop_map(|data| ActionResult::Data { data }),
        number().prop_map(|offset| ActionResult::Appended { offset }),
        (number(), number()).prop_map(|(length, incarnation)| ActionResult::Stat { length, incarnation }),
        (any::<bool>(), prop::option::of(value()))
            .prop_map(|(swapped, original)| ActionResult::Compared { swapped, original }),
        prop::option::of(any::<i64>()).prop_map(|original| ActionResult::Added { original }),
        (vec((name(), any::<u32>()), 0..4), any::<bool>())
            .prop_map(|(found, more)| ActionResult::Attributes { found, more }),
        (vec(object(), 0..4), any::<bool>()).prop_map(|(found, more)| ActionResult::Objects { found, more }),
    ]
}

pub fn failure() -> impl Strategy<Value = ObjectFailure> {
    prop_oneof![
        Just(ObjectFailure::NoSuchObject),
        Just(ObjectFailure::ObjectExists),
        any::<u32>().prop_map(|length| ObjectFailure::NotANumber { length }),
        Just(ObjectFailure::Overflow),
        any::<u32>().prop_map(|length| ObjectFailure::ValueTooLong { length }),
        any::<u32>().prop_map(|page| ObjectFailure::ReservedPage { page }),
        Just(ObjectFailure::TooLong),
        Just(ObjectFailure::NoSpace),
        Just(ObjectFailure::Lost),
        Just(ObjectFailure::Busy),
        Just(ObjectFailure::Malformed),
        Just(ObjectFailure::NotTogether),
        Just(ObjectFailure::CutsTooMuch),
        Just(ObjectFailure::NotInAttributeVolume),
        Just(ObjectFailure::NotAnAttributeVolume),
        Just(ObjectFailure::NumberTooHigh),
    ]
}

pub fn name() -> impl Strategy<Value = AttributeName> {
    let number = || prop_oneof![0..4u32, any::<u32>()];
    (number(), number()).prop_map(|(page, number)| AttributeName { page, number })
}

/// Mostly short values, and some on both sides of the length from which on a value is in the payload.
pub fn value() -> impl Strategy<Value = Bytes> {
    let length = prop_oneof![3 => Just(0usize), 12 => 1..40usize, 1 => 1020..1030usize, 1 => 1030..3000usize];
    (length, any::<u8>()).prop_map(|(length, first)| (0..length).map(|at| first ^ at as u8).collect())
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![Just(When::Always), Just(When::IfSwapped), Just(When::IfNotSwapped)]
}

/// Ascending, disjoint intervals: the first sequence number, and the one after the last.
pub fn intervals() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((1..1_u64 << 60, 1..1_u64 << 8), 0..4).prop_map(|steps| {
        let mut behind = 0;
        let interval = |(gap, length): (u64, u64)| {
            let first = behind + gap;
            behind = first + length;
            (first, behind)
        };
        steps.into_iter().map(interval).collect()
    })
}
