//! Attribute volumes: attributes that survive the loss of a device, since they are kept in a volume (`docs/attribute-volumes.md`).
//!
//! The volume is a table of *buckets* of a fixed size, and a request is one storage transaction on one of them: what was read goes in here,
//! and what is to be written comes out.
//!
//! | an object | its attributes | so one request may touch |
//! | --- | --- | --- |
//! | below 2^63 | are all in one bucket, which others may share | any attributes of one object; not more of them than fit into 128 KiB |
//! | from 2^63 on | are dealt to the buckets by number, whatever their page | attributes of one object and number; as many as the volume holds |
//!
//! Every object of an attribute volume is there from the first, and for ever: its incarnation is its number, and it has no bytes. So nothing is
//! kept of it but its attributes, and an attribute volume need not be made: it is any volume that was never written.

use crate::bucket::{BUCKET_BLOCKS, Blocks, BucketAddress, BucketError, Entries, Full, decode, encode};
use crate::evaluate::{Evaluation, evaluate};
use crate::key::{Key, Kind};
use crate::view::{Obstacle, View, apply};
use braid_base::ObjectId;
use braid_wire::{
    Action, AttributeName, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest,
};
use bytes::Bytes;
use std::ops::RangeInclusive;

/// Objects from here on have their attributes spread over all buckets.
pub const SPREAD: ObjectId = ObjectId(1 << 63);

/// How many buckets a volume of so many blocks has.
pub fn buckets(blocks: u64) -> u64 {
    blocks / BUCKET_BLOCKS as u64
}

/// Where a request's attributes lie, if an attribute volume of so many buckets takes it. This does not depend on what is there, nor on whether two
/// attributes happen to share a bucket: a request that is taken by one attribute volume is taken by all.
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
    // What names no attribute is answered the same everywhere.
    let group = all.unwrap_or(Group { object: ObjectId(0), number: 0 });
    let hash = mixed(mixed(group.object.0) ^ u64::from(group.number));
    let bucket = (u128::from(hash) * u128::from(buckets)) >> 64;
    Ok(BucketAddress { bucket: bucket as u64, buckets })
}

/// Attributes that lie together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Group {
    object: ObjectId,
    /// Zero for all numbers of an object that is not spread.
    number: u32,
}

/// The groups of the attributes that a command names.
fn groups(command: &ObjectCommand) -> Result<Vec<Group>, ObjectFailure> {
    let is_spread = command.object >= SPREAD;
    let named = match &command.action {
        Action::CompareAndSwap { name, .. } | Action::FetchAndAdd { name, .. } => Some(*name),
        Action::ListAttributes { .. } if is_spread => return Err(ObjectFailure::NotTogether),
        Action::ListAttributes { .. } => Some(AttributeName::new(0, 0)),
        Action::Nothing | Action::Flush | Action::Stat => None,
        // Which is there already.
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
    // What is known of an object without being kept lies nowhere.
    let names = names.filter(|name| !name.is_reserved());
    let group = |name: AttributeName| Group { object: command.object, number: if is_spread { name.number } else { 0 } };
    Ok(names.map(group).collect())
}

/// Spreads what is alike (the finalizer of SplitMix64). On record in every attribute volume: it can't be changed.
fn mixed(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What a request does to its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is to be written.
    Nothing(ObjectAnswer),
    /// The bucket is to hold this from now on, and then these are the results.
    Write(Box<Blocks>, Vec<CommandResult>),
}

/// Works a request out on its bucket.
pub fn carry_out(request: &ObjectRequest, place: BucketAddress, before: &Blocks) -> Effect {
    let refuse = |command, failure| Effect::Nothing(Err(ObjectRefusal { command, failure }));
    let mut entries = match decode(place, before) {
        Ok(entries) => entries,
        Err(BucketError::Foreign) => return refuse(0, ObjectFailure::NotAnAttributeVolume),
        Err(BucketError::Damaged) => return refuse(0, ObjectFailure::Lost),
    };
    let evaluation = evaluate(request, &mut OfBucket(&entries)).expect("all of a bucket is in memory");
    let Evaluation { answer, changes, .. } = evaluation;
    let Ok(results) = answer else { return Effect::Nothing(answer) };
    // What only asks writes nothing, though the blocks might be encoded otherwise: with holes for zeros, say.
    if changes.is_empty() {
        return Effect::Nothing(Ok(results));
    }
    apply(&changes, &mut entries);
    match encode(place, &entries) {
        Ok(after) if after == *before => Effect::Nothing(Ok(results)),
        Ok(after) => Effect::Write(Box::new(after), results),
        // All of it together is too much: so it fails where it ends.
        Err(Full) => refuse(request.commands.len().saturating_sub(1) as u32, ObjectFailure::NoSpace),
    }
}

/// A bucket as a request sees it: every object is there, but for zero, which names none.
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
