//! Records of requests for objects: their changes and answers, and the roots of the object index.

use crate::block::SLOT_BYTES;
use braid_base::TransactionId;
use braid_journal::DecodeError;
use braid_object_index::{Root, SlotRef};
use braid_objects::key::KEY_BYTES;
use braid_objects::{Change, Key};
use braid_wire::decode_answer;
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;

/// An executed request for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executed {
    pub name: TransactionId,
    /// The host's mark when the request was executed.
    pub settled: u64,
    /// The encoded answer.
    pub answer: Bytes,
    pub changes: Vec<Change>,
}

/// Bytes of a change in a record, besides its value.
const CHANGE_BYTES: usize = KEY_BYTES + 4;

impl Executed {
    /// Bytes that it takes in the journal. An upper bound, close to the exact number.
    pub fn journal_len(&self) -> u64 {
        40 + self.answer.len() as u64 + changes_len(&self.changes)
    }
}

/// Bytes that changes take in the journal. An upper bound, close to the exact number.
pub(crate) fn changes_len(changes: &[Change]) -> u64 {
    let value = |change: &Change| CHANGE_BYTES + change.value.as_ref().map_or(0, Bytes::len);
    8 + changes.iter().map(value).sum::<usize>() as u64
}

/// Bytes of a root in a record.
const ROOT_BYTES: u64 = KEY_BYTES as u64 + 12;

/// Bytes that so many roots take in the journal.
pub(crate) fn roots_len(roots: u64) -> u64 {
    5 + roots * ROOT_BYTES
}

/// Encodes what follows the name of the request.
pub(crate) fn put_executed(to: &mut Vec<u8>, executed: &Executed) {
    to.put_u64_le(executed.settled);
    put_value(to, Some(&executed.answer));
    put_changes(to, &executed.changes);
}

pub(crate) fn take_executed(name: TransactionId, from: &mut &[u8]) -> Result<Executed, DecodeError> {
    Ok(Executed { name, settled: from.try_get_u64_le()?, answer: take_answer(from)?, changes: take_changes(from)? })
}

pub(crate) fn put_answers(to: &mut Vec<u8>, kept: &[(u64, Bytes)]) {
    to.put_u32_le(kept.len() as u32);
    for (sequence, answer) in kept {
        to.put_u64_le(*sequence);
        put_value(to, Some(answer));
    }
}

pub(crate) fn take_answers(from: &mut &[u8]) -> Result<Vec<(u64, Bytes)>, DecodeError> {
    (0..from.try_get_u32_le()?).map(|_| Ok((from.try_get_u64_le()?, take_answer(from)?))).collect()
}

fn take_answer(from: &mut &[u8]) -> Result<Bytes, DecodeError> {
    take_value(from)?.filter(|answer| decode_answer(answer).is_ok()).ok_or(DecodeError)
}

pub(crate) fn put_changes(to: &mut Vec<u8>, changes: &[Change]) {
    to.put_u32_le(changes.len() as u32);
    for Change { key, value } in changes {
        to.put_slice(&key.encode());
        put_value(to, value.as_ref());
    }
}

pub(crate) fn take_changes(from: &mut &[u8]) -> Result<Vec<Change>, DecodeError> {
    (0..from.try_get_u32_le()?).map(|_| Ok(Change { key: take_key(from)?, value: take_value(from)? })).collect()
}

pub(crate) fn put_roots(to: &mut Vec<u8>, roots: &[Root]) {
    to.put_u32_le(roots.len() as u32);
    for Root { first, place } in roots {
        to.put_slice(&first.encode());
        to.put_u32_le(place.slot);
        to.put_u32_le(place.length);
        to.put_u32_le(place.checksum);
    }
}

pub(crate) fn take_roots(from: &mut &[u8]) -> Result<Vec<Root>, DecodeError> {
    let take = |from: &mut &[u8]| {
        let first = take_key(from)?;
        let (slot, length, checksum) = (from.try_get_u32_le()?, from.try_get_u32_le()?, from.try_get_u32_le()?);
        let fits = u64::from(length) <= SLOT_BYTES;
        fits.then_some(Root { first, place: SlotRef { slot, length, checksum } }).ok_or(DecodeError)
    };
    let roots: Vec<Root> = (0..from.try_get_u32_le()?).map(|_| take(from)).collect::<Result<_, DecodeError>>()?;
    let slots: BTreeSet<u32> = roots.iter().map(|root| root.place.slot).collect();
    if slots.len() == roots.len() { Ok(roots) } else { Err(DecodeError) }
}

/// Encodes a value, or its absence.
fn put_value(to: &mut Vec<u8>, value: Option<&Bytes>) {
    to.put_u32_le(value.map_or(0, |value| value.len() as u32 + 1));
    to.put_slice(value.map_or(&[], |value| value));
}

fn take_value(from: &mut &[u8]) -> Result<Option<Bytes>, DecodeError> {
    let Some(length) = from.try_get_u32_le()?.checked_sub(1) else { return Ok(None) };
    let (value, rest) = from.split_at_checked(length as usize).ok_or(DecodeError)?;
    *from = rest;
    Ok(Some(Bytes::copy_from_slice(value)))
}

fn take_key(from: &mut &[u8]) -> Result<Key, DecodeError> {
    let (key, rest) = from.split_first_chunk::<KEY_BYTES>().ok_or(DecodeError)?;
    *from = rest;
    Key::decode(key).ok_or(DecodeError)
}
