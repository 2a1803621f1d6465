//! The commands on attributes: compare-and-swap, fetch-and-add, set, get and list.

use crate::evaluate::{EvaluationError, Work, words};
use crate::header::Header;
use crate::key::Key;
use braid_base::{ObjectId, limits};
use braid_wire::{ActionResult, AttributeName, ObjectFailure, Undefined};
use bytes::Bytes;

impl Work<'_> {
    pub fn compare_and_swap(
        &mut self,
        header: Header,
        name: AttributeName,
        compare: &Bytes,
        swap: &Bytes,
        undefined: Undefined,
        original: bool,
    ) -> Result<ActionResult, EvaluationError> {
        let value = self.map.get(Key::attribute(header.incarnation, name))?.unwrap_or_default();
        let swapped = value == *compare || value.is_empty() && undefined == Undefined::Matches;
        if swapped {
            self.set(header.incarnation, name, swap);
        }
        self.all_swapped &= swapped;
        if original {
            self.tell(value.len())?;
        }
        Ok(ActionResult::Compared { swapped, original: original.then_some(value) })
    }

    pub fn fetch_and_add(
        &mut self,
        header: Header,
        name: AttributeName,
        add: i64,
        original: bool,
    ) -> Result<ActionResult, EvaluationError> {
        let value = self.map.get(Key::attribute(header.incarnation, name))?.unwrap_or_default();
        let number = match <[u8; 8]>::try_from(&value[..]) {
            Ok(number) => i64::from_be_bytes(number),
            Err(_) if value.is_empty() => 0,
            Err(_) => return Err(ObjectFailure::NotANumber { length: value.len() as u32 }.into()),
        };
        let sum = number.checked_add(add).ok_or(ObjectFailure::Overflow)?;
        self.set(header.incarnation, name, &words(&[sum as u64]));
        Ok(ActionResult::Added { original: original.then_some(number) })
    }

    /// Sets an attribute. The value is copied, because it outlives the request: a slice would keep the whole frame of the request in
    /// memory.
    pub fn set(&mut self, incarnation: u64, name: AttributeName, value: &Bytes) {
        let value = (!value.is_empty()).then(|| Bytes::copy_from_slice(value));
        self.map.put(Key::attribute(incarnation, name), value);
    }

    /// The values of some attributes. Undefined ones are empty.
    pub fn values(&mut self, object: ObjectId, names: &[AttributeName]) -> Result<Vec<Bytes>, EvaluationError> {
        let header = self.header(object)?;
        let kept = names.iter().filter(|name| !name.is_reserved());
        let mut kept = self.map.get_all(kept.map(|name| Key::attribute(header.incarnation, *name)))?.into_iter();
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            let value = match *name {
                AttributeName::OBJECT_LENGTH => words(&[header.length]),
                AttributeName::OBJECT_LIFE => words(&[header.incarnation]),
                name if name.is_reserved() => Bytes::new(),
                _ => kept.next().expect("a value for each stored attribute").unwrap_or_default(),
            };
            self.tell(value.len())?;
            values.push(value);
        }
        Ok(values)
    }

    pub fn list_attributes(
        &mut self,
        header: Header,
        after: Option<AttributeName>,
        page: Option<u32>,
        most: u32,
    ) -> Result<ActionResult, EvaluationError> {
        let most = (most as usize).min(limits::OBJECT_LIST_MAX);
        let (first, last) = page.map_or((0, u32::MAX), |page| (page, page));
        let first = Key::attribute(header.incarnation, AttributeName::new(first, 0));
        let last = Key::attribute(header.incarnation, AttributeName::new(last, u32::MAX));
        let from = match after {
            None => Some(first),
            Some(after) => {
                let next = Key::attribute(header.incarnation, after).index.checked_add(1);
                next.map(|index| Key { index, ..first }.max(first))
            }
        };
        let (found, more) = self.map.some_of(from, last, most)?;
        self.tell(found.len() * (size_of::<AttributeName>() + size_of::<u32>()))?;
        let named = |(key, value): (Key, Bytes)| (key.attribute_name(), value.len() as u32);
        Ok(ActionResult::Attributes { found: found.into_iter().map(named).collect(), more })
    }
}
