//! An attribute volume stores the attributes of objects in a volume of copies, so that they survive the loss of a device
//! (`docs/attribute-volumes.md`).
//!
//! The volume is an array of *buckets* of a fixed size. A request is one storage transaction on one bucket: this module computes the new
//! content of the bucket from the old.
//!
//! | an object | its attributes | so one request may touch |
//! | --- | --- | --- |
//! | below 2^63 | are all in one bucket, which other objects may share | any attributes of one object, which must fit into 128 KiB together |
//! | from 2^63 on | are distributed over the buckets by number, regardless of their page | attributes of one object and one number; altogether as many as fit into the volume |
//!
//! Every object of an attribute volume always exists: its incarnation is its number, and it has no bytes. Therefore only attributes are
//! stored, and an attribute volume need not be formatted: any volume that was never written is one.

use crate::bucket::{BUCKET_BLOCKS, Blocks, BucketAddress, BucketError, Entries, Full, decode, encode};
use crate::evaluate::{Evaluation, evaluate};
use crate::key::{Key, Kind};
use crate::map_access::{Obstacle, View, apply};
use braid_base::{ObjectId, Rng};
use braid_wire::{
    Action, AttributeName, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest,
};
use bytes::Bytes;
use std::ops::RangeInclusive;

/// The first object whose attributes are spread over all buckets.
pub const FIRST_SPREAD_OBJECT: ObjectId = ObjectId(1 << 63);

/// The number of buckets in a volume of this many blocks.
pub fn buckets(blocks: u64) -> u64 {
    blocks / BUCKET_BLOCKS as u64
}

/// The bucket of a request, if an attribute volume of this many buckets accepts it. Whether it does depends neither on the content nor on
/// whether two attributes happen to share a bucket: a request that one attribute volume accepts is accepted by all.
pub fn place_of(request: &ObjectRequest, buckets: u64) -> Result<BucketAddress, ObjectRefusal> {
    request.check()?;
    if buckets == 0 {
        return Err(ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume });
    }
    let mut all = None;
    for (command, number) in request.commands.iter().zip(0..) {
        let refusal = |failure| ObjectRefusal { command: number, failure };
        for group in groups(command).map_err(refusal)? {
            if *all.get_or_insert(group) != group {
                return Err(refusal(ObjectFailure::NotTogether));
            }
        }
    }
    // A request without attributes has the same answer in every bucket.
    let group = all.unwrap_or(Group { object: ObjectId(0), number: 0 });
    let hash = mixed(mixed(group.object.0) ^ u64::from(group.number));
    let bucket = (u128::from(hash) * u128::from(buckets)) >> 64;
    Ok(BucketAddress { bucket: bucket as u64, buckets })
}

/// Attributes that are always in the same bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    object: ObjectId,
    /// Zero for all attributes of an object that is not spread.
    number: u32,
}

/// The groups of the attributes that a command uses.
fn groups(command: &ObjectCommand) -> Result<Vec<Group>, ObjectFailure> {
    let is_spread = command.object >= FIRST_SPREAD_OBJECT;
    let named = match &command.action {
        Action::CompareAndSwap { name, .. } | Action::FetchAndAdd { name, .. } => Some(*name),
        Action::ListAttributes { .. } if is_spread => return Err(ObjectFailure::NotTogether),
        Action::ListAttributes { .. } => Some(AttributeName::new(0, 0)),
        Action::Nothing | Action::Flush | Action::Stat => None,
        // The object exists already, so that evaluation reports a failure.
        Action::Create if command.object.0 != 0 => None,
        Action::Create
        | Action::Remove
        | Action::Read { .. }
        | Action::Write { .. }
        | Action::Append { .. }
        | Action::Truncate { .. }
        | Action::List { .. } => return Err(ObjectFailure::NotInAttributeVolume),
    };
    let names = named.into_iter().chain(command.sets.iter().map(|set| set.name)).chain(command.gets.iter().copied());
    // Reserved attributes are computed, not stored, and belong to no bucket.
    let names = names.filter(|name| !name.is_reserved());
    let group = |name: AttributeName| Group { object: command.object, number: if is_spread { name.number } else { 0 } };
    Ok(names.map(group).collect())
}

/// A hash (the finalizer of SplitMix64). It determines the location of attributes in all existing volumes, and can't be changed.
fn mixed(word: u64) -> u64 {
    Rng::new(word).next_u64()
}

/// The effect of a request on its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is to be written; this is the answer.
    Nothing(ObjectAnswer),
    /// The new content of the bucket, and the results once it is written.
    Write(Box<Blocks>, Vec<CommandResult>),
}

/// Evaluates a request on its bucket.
pub fn carry_out(request: &ObjectRequest, place: BucketAddress, before: &Blocks) -> Effect {
    let refuse = |command, failure| Effect::Nothing(Err(ObjectRefusal { command, failure }));
    let mut entries = match decode(place, before) {
        Ok(entries) => entries,
        Err(BucketError::Foreign) => return refuse(0, ObjectFailure::NotAnAttributeVolume),
        Err(BucketError::Damaged) => return refuse(0, ObjectFailure::Lost),
    };
    let evaluation = evaluate(request, &mut OfBucket(&entries)).expect("a bucket is entirely in memory");
    let Evaluation { answer, changes, .. } = evaluation;
    let Ok(results) = answer else { return Effect::Nothing(answer) };
    // A request without changes writes nothing, even if the blocks would be encoded differently, such as with holes for zeros.
    if changes.is_empty() {
        return Effect::Nothing(Ok(results));
    }
    apply(&changes, &mut entries);
    match encode(place, &entries) {
        Ok(after) if after == *before => Effect::Nothing(Ok(results)),
        Ok(after) => Effect::Write(Box::new(after), results),
        // The changes together exceed the bucket: the failure is that of the last command.
        Err(Full) => refuse(request.commands.len().saturating_sub(1) as u32, ObjectFailure::NoSpace),
    }
}

/// A bucket as a view: every object exists except number zero, which is not a valid number.
struct OfBucket<'a>(&'a Entries);

impl View for OfBucket<'_> {
    fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        Ok(match key.kind {
            Kind::Header if key.of == 0 => None,
            Kind::Header => Some([key.of.to_be_bytes(), [0; 8]].concat().into()),
            _ => self.0.get(&key).cloned(),
        })
    }

    fn first(&mut self, keys: RangeInclusive<Key>) -> Result<Option<(Key, Bytes)>, Obstacle> {
        Ok(self.0.range(keys).next().map(|(key, value)| (*key, value.clone())))
    }
}
