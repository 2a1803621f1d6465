//! The format of a directory's entry.
//!
//! ```text
//!    bits 63      mark: a client is changing the chain (only in the hash table)
//!         62..32  version: of the chain (in the hash table), or of the entry (in the linked list)
//!         31..0   next: a slot of the linked list, 0: none
//!    8 bytes      object
//!    the rest     name
//! ```

use crate::procedure::RequestFailure;
use crate::request_builder::DAMAGED;
use braid_base::ObjectId;
use bytes::{BufMut, Bytes, BytesMut};
use std::num::NonZeroU32;

pub const NAME_BYTES_MAX: usize = 255;

/// The bytes before the name.
const HEAD_BYTES: usize = 16;

const MARK: u64 = 1 << 63;
pub(super) const VERSION_MAX: u32 = u32::MAX >> 1;

/// A name, and the object that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(super) mark: bool,
    pub(super) version: u32,
    pub(super) next: Option<NonZeroU32>,
    /// The object that the name stands for.
    pub object: ObjectId,
    pub name: Bytes,
}

impl Entry {
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + self.name.len());
        let mark = if self.mark { MARK } else { 0 };
        let next = self.next.map_or(0, NonZeroU32::get);
        bytes.put_u64(mark | u64::from(self.version & VERSION_MAX) << 32 | u64::from(next));
        bytes.put_u64(self.object.0);
        bytes.put_slice(&self.name);
        bytes.freeze()
    }

    /// `None` if there is no entry.
    pub(super) fn decode(bytes: &Bytes) -> Result<Option<Entry>, RequestFailure> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if !(HEAD_BYTES..=HEAD_BYTES + NAME_BYTES_MAX).contains(&bytes.len()) {
            return Err(DAMAGED);
        }
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Some(Entry {
            mark: word(0) & MARK != 0,
            version: (word(0) >> 32) as u32 & VERSION_MAX,
            next: NonZeroU32::new(word(0) as u32),
            object: ObjectId(word(8)),
            name: bytes.slice(HEAD_BYTES..),
        }))
    }

    /// The version after the next change of the chain.
    pub(super) fn next_version(&self) -> u32 {
        (self.version + 1) & VERSION_MAX
    }

    /// The entry without the mark.
    pub(super) fn unmarked(&self) -> Entry {
        Entry { mark: false, ..self.clone() }
    }

    /// The entry with the mark.
    pub(super) fn marked(&self) -> Entry {
        Entry { mark: true, ..self.clone() }
    }

    /// True if the chain is unchanged, even if a client has marked it.
    pub(super) fn same_chain(&self, other: &Entry) -> bool {
        self.unmarked() == other.unmarked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_takes_sixteen_bytes_and_its_name() {
        let name = Bytes::from_static(b"a-name-of-20-letters");
        let entry = Entry { mark: false, version: 1, next: None, object: ObjectId(7), name };
        assert_eq!(entry.encode().len(), 36);
    }

    proptest! {
        #[test]
        fn entries_survive_encoding_and_decoding(mark: bool, version in 0..=VERSION_MAX, next: u32, object: u64, name in prop::collection::vec(any::<u8>(), 0..=NAME_BYTES_MAX)) {
            let entry = Entry { mark, version, next: NonZeroU32::new(next), object: ObjectId(object), name: name.into() };
            prop_assert_eq!(Entry::decode(&entry.encode()), Ok(Some(entry)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Entry::decode(&bytes.into());
        }
    }
}
