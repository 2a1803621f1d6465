//! The encoding of the parts of records, and of the superblock: numbers are little-endian, a struct is its fields, an enum is a byte and the
//! fields of its variant, and a list is its length in four bytes and its items.

use super::intent::Home;
use super::object::MapExtent;
use super::request::Executed;
use super::{Decision, ObjectRecord};
use crate::block::Attribution;
use braid_base::{
    BlockRange, Clock, DeviceId, Epoch, FenceTable, Generation, Member, MemberState, Membership, ObjectId, Stamp,
    TransactionId, limits,
};
use braid_blocks::Linkage;
use braid_journal::DecodeError;
use braid_object_index::{Root, SlotRef};
use braid_objects::key::KEY_BYTES;
use braid_objects::{Change, Key};
use braid_ordering::{Atomicity, Ordering};
use braid_wire::{ObjectDescription, decode_answer};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;

/// A part of a record.
pub(crate) trait Field: Sized {
    fn put(&self, to: &mut Vec<u8>);

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError>;
}

/// Numbers, and structs around one number.
macro_rules! numbers {
    ($($number:ty: $put:ident, $take:ident, in [$($name:ident),*];)*) => {$(
        impl Field for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.$put(*self);
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(from.$take()?)
            }
        }

        $(impl Field for $name {
            fn put(&self, to: &mut Vec<u8>) {
                self.0.put(to);
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok($name(Field::take(from)?))
            }
        })*
    )*};
}

/// Structs of fields. What is decoded must be sound.
macro_rules! structs {
    ($($name:ident { $($field:ident),* } $(if $is_sound:expr)?;)*) => {$(
        impl Field for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                let value = $name { $($field: Field::take(from)?),* };
                $(
                    let is_sound: fn(&$name) -> bool = $is_sound;
                    if !is_sound(&value) {
                        return Err(DecodeError);
                    }
                )?
                Ok(value)
            }
        }
    )*};
}
pub(crate) use structs;

/// Enums without fields.
macro_rules! enums {
    ($($name:ident { $($byte:literal => $variant:ident),* })*) => {$(
        impl Field for $name {
            fn put(&self, to: &mut Vec<u8>) {
                to.put_u8(match self {
                    $($name::$variant => $byte,)*
                });
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                match from.try_get_u8()? {
                    $($byte => Ok($name::$variant),)*
                    _ => Err(DecodeError),
                }
            }
        }
    )*};
}

/// Lists and sets.
macro_rules! lists {
    ($($list:ty),*) => {$(
        impl Field for $list {
            fn put(&self, to: &mut Vec<u8>) {
                to.put_u32_le(self.len() as u32);
                self.iter().for_each(|item| item.put(to));
            }

            fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
                (0..from.try_get_u32_le()?).map(|_| Field::take(from)).collect()
            }
        }
    )*};
}

numbers! {
    u8: put_u8, try_get_u8, in [];
    u16: put_u16_le, try_get_u16_le, in [DeviceId];
    u32: put_u32_le, try_get_u32_le, in [Epoch, Generation];
    u64: put_u64_le, try_get_u64_le, in [Clock, ObjectId];
}

structs! {
    TransactionId { host, sequence };
    Stamp { clock, host };
    Linkage { first, last };
    Attribution { transaction, stamp, epoch, linkage };
    Decision { by, participants, object };
    Member { device, since, member_state };
    FenceTable { below, except, also };
    // Members are looked up by binary search.
    Membership { epoch, members, fence } if |it| it.members.is_sorted_by(|one, next| one.device < next.device);
    BlockRange { start, count } if |range| range.start.checked_add(range.count).is_some();
    ObjectDescription { object, first, blocks, ordering, redundant, atomicity };
    ObjectRecord { description, extents } if ObjectRecord::is_sound;
    MapExtent { start, count };
    Home { chunk, slot };
    Executed { name, settled, answer, changes };
    Change { key, value };
    Root { first, place };
    SlotRef { slot, length, checksum };
}

enums! {
    Ordering { 0 => Timestamp, 1 => None, 2 => ServerLock, 3 => CallbackLock, 4 => DeviceLock }
    Atomicity { 0 => Implied, 1 => Consistent }
}

lists! {
    Vec<u32>, Vec<BlockRange>, Vec<Member>, Vec<MapExtent>, Vec<Home>, Vec<Change>, Vec<Root>, Vec<(u64, u64)>,
    Vec<(u64, Bytes)>, BTreeSet<Generation>
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl Field for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_u8(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        match from.try_get_u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError),
        }
    }
}

/// The participants of a transaction.
impl Field for Vec<DeviceId> {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_u16_le(self.len() as u16);
        self.iter().for_each(|device| device.put(to));
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let count = usize::from(from.try_get_u16_le()?);
        if count > limits::PARTICIPANTS_MAX {
            return Err(DecodeError);
        }
        (0..count).map(|_| Field::take(from)).collect()
    }
}

impl Field for MemberState {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            MemberState::In => to.put_u8(0),
            MemberState::Returning { recovery_coordinator: None } => to.put_u8(1),
            MemberState::Returning { recovery_coordinator: Some(recovery_coordinator) } => {
                to.put_u8(2);
                recovery_coordinator.put(to);
            }
            MemberState::Out => to.put_u8(3),
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        match from.try_get_u8()? {
            0 => Ok(MemberState::In),
            1 => Ok(MemberState::Returning { recovery_coordinator: None }),
            2 => Ok(MemberState::Returning { recovery_coordinator: Some(Field::take(from)?) }),
            3 => Ok(MemberState::Out),
            _ => Err(DecodeError),
        }
    }
}

impl Field for Key {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_slice(&self.encode());
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let (key, rest) = from.split_first_chunk::<KEY_BYTES>().ok_or(DecodeError)?;
        *from = rest;
        Key::decode(key).ok_or(DecodeError)
    }
}

/// A value, or its absence.
impl Field for Option<Bytes> {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_u32_le(self.as_ref().map_or(0, |value| value.len() as u32 + 1));
        to.put_slice(self.as_deref().unwrap_or_default());
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let Some(length) = from.try_get_u32_le()?.checked_sub(1) else { return Ok(None) };
        let (value, rest) = from.split_at_checked(length as usize).ok_or(DecodeError)?;
        *from = rest;
        Ok(Some(Bytes::copy_from_slice(value)))
    }
}

/// The answer to a request for objects.
impl Field for Bytes {
    fn put(&self, to: &mut Vec<u8>) {
        Some(self.clone()).put(to);
    }

    fn take(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let answer: Option<Bytes> = Field::take(from)?;
        answer.filter(|answer| decode_answer(answer).is_ok()).ok_or(DecodeError)
    }
}
