//! Strategies that generate arbitrary messages, and what is kept in journals.

use braid_wire::fuzzing::{any_file_reply, any_frame, any_object_answer};
use braid_wire::{FileReply, Frame, ObjectAnswer};
use proptest::collection::vec;
use proptest::prelude::*;

/// More than the longest message needs, as a rule.
const CHOICES: usize = 300;

pub fn frame() -> impl Strategy<Value = Frame> {
    vec(any::<u64>(), 0..CHOICES).prop_map(|choices| any_frame(&choices))
}

pub fn object_answer() -> impl Strategy<Value = ObjectAnswer> {
    vec(any::<u64>(), 0..CHOICES).prop_map(|choices| any_object_answer(&choices))
}

pub fn file_reply() -> impl Strategy<Value = FileReply> {
    vec(any::<u64>(), 0..CHOICES).prop_map(|choices| any_file_reply(&choices))
}
