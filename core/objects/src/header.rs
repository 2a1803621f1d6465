//! The commands on whole objects: create, remove, stat and list.

use crate::evaluate::{EvaluationError, Work, words};
use crate::key::Key;
use braid_base::{ObjectId, limits};
use braid_wire::{ActionResult, ObjectFailure};
use bytes::Bytes;

/// Bytes of an object's header, and of the record of the last incarnation and number given out: two numbers of eight bytes, big-endian.
pub(crate) const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub incarnation: u64,
    pub length: u64,
}

impl Work<'_> {
    /// Creates an object. A number that the device chooses is higher than all that it ever chose or was asked for.
    pub fn create(&mut self, wished: ObjectId) -> Result<ObjectId, EvaluationError> {
        let last = self.map.get(Key::LAST_GIVEN)?;
        let (incarnation, number) = last.map_or(Ok((0, 0)), |value| two_words(&value))?;
        let next = |last: u64| last.checked_add(1).ok_or(ObjectFailure::NoSpace);
        let object = if wished.0 == 0 { ObjectId(next(number)?) } else { wished };
        if self.map.get(Key::header(object))?.is_some() {
            return Err(ObjectFailure::ObjectExists.into());
        }
        let incarnation = next(incarnation)?;
        self.map.put(Key::LAST_GIVEN, Some(words(&[incarnation, number.max(object.0)])));
        self.put_header(object, Header { incarnation, length: 0 });
        self.made = Some(object);
        Ok(object)
    }

    pub fn list(&mut self, after: ObjectId, most: u32) -> Result<ActionResult, EvaluationError> {
        let most = (most as usize).min(limits::OBJECT_LIST_MAX);
        let from = after.0.checked_add(1).map(|number| Key::header(ObjectId(number)));
        let (found, more) = self.map.some_of(from, Key::header(ObjectId(u64::MAX)), most)?;
        self.tell(found.len() * size_of::<ObjectId>())?;
        Ok(ActionResult::Objects { found: found.into_iter().map(|(key, _)| ObjectId(key.of)).collect(), more })
    }

    pub fn header(&mut self, object: ObjectId) -> Result<Header, EvaluationError> {
        let value = self.map.get(Key::header(object))?.ok_or(ObjectFailure::NoSuchObject)?;
        let (incarnation, length) = two_words(&value)?;
        if length > limits::OBJECT_BYTES_MAX {
            return Err(ObjectFailure::Lost.into());
        }
        Ok(Header { incarnation, length })
    }

    pub fn put_header(&mut self, object: ObjectId, header: Header) {
        self.map.put(Key::header(object), Some(words(&[header.incarnation, header.length])));
    }
}

/// Decodes two numbers. The store verifies checksums; nevertheless, an invalid value is a failure of the request and not a panic.
fn two_words(value: &Bytes) -> Result<(u64, u64), ObjectFailure> {
    let value: [u8; HEADER_BYTES] = value[..].try_into().map_err(|_| ObjectFailure::Lost)?;
    let both = u128::from_be_bytes(value);
    Ok(((both >> 64) as u64, both as u64))
}
