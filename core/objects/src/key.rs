//! How objects, bytes and attributes are named in the map.
//!
//! An object's number names only its header; all else goes by the object's *incarnation*, which no other object of the map has or had. So an
//! object that is removed and made again begins empty at once, whatever is left to be garbage-collected of the former.

use braid_base::ObjectId;
use braid_wire::AttributeName;

/// Bytes of a key in its encoded form.
pub const KEY_BYTES: usize = 17;
/// Bytes of an object under one key.
pub const PIECE_BYTES: u64 = 4096;

/// A name in the map. Keys are in the order of their fields, and so are their encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What it names.
    pub kind: Kind,
    /// Whose: an object's number (headers) or incarnation (all else).
    pub of: u64,
    /// Which of them.
    pub index: u64,
}

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The last incarnation and number that were given out.
    Last = 1,
    /// An object, by number: its incarnation and length.
    Header = 2,
    /// An incarnation that is over, and of which something may be left.
    Ended = 3,
    /// A piece of an object's bytes: at most [`PIECE_BYTES`], zeros behind.
    Piece = 4,
    /// An attribute.
    Attribute = 5,
}

impl Key {
    /// Before all others.
    pub const FIRST: Key = Key { kind: Kind::Last, of: 0, index: 0 };

    /// The last incarnation and number given out.
    pub const LAST_GIVEN: Key = Key::FIRST;

    /// An object's header.
    pub const fn header(object: ObjectId) -> Key {
        Key { kind: Kind::Header, of: object.0, index: 0 }
    }

    /// That an incarnation is over.
    pub const fn ended(incarnation: u64) -> Key {
        Key { kind: Kind::Ended, of: incarnation, index: 0 }
    }

    /// A piece of an object's bytes, counted from 0.
    pub const fn piece(incarnation: u64, piece: u64) -> Key {
        Key { kind: Kind::Piece, of: incarnation, index: piece }
    }

    /// An attribute.
    pub const fn attribute(incarnation: u64, name: AttributeName) -> Key {
        Key { kind: Kind::Attribute, of: incarnation, index: (name.page as u64) << 32 | name.number as u64 }
    }

    /// The next key that there could be of this kind.
    pub fn after(self) -> Option<Key> {
        match self.index.checked_add(1) {
            Some(index) => Some(Key { index, ..self }),
            None => self.of.checked_add(1).map(|of| Key { of, index: 0, ..self }),
        }
    }

    /// The attribute's name, of a key that names one.
    pub const fn attribute_name(self) -> AttributeName {
        AttributeName::new((self.index >> 32) as u32, self.index as u32)
    }

    /// The key as bytes, which are in the same order.
    pub fn encode(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.of.to_be_bytes());
        bytes[9..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// The key of these bytes, if they are one.
    pub fn decode(bytes: &[u8; KEY_BYTES]) -> Option<Key> {
        let kind = match bytes[0] {
            1 => Kind::Last,
            2 => Kind::Header,
            3 => Kind::Ended,
            4 => Kind::Piece,
            5 => Kind::Attribute,
            _ => return None,
        };
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Key { kind, of: word(1), index: word(9) })
    }
}
