//! The keys of objects, bytes and attributes in the map. A metadata server keeps a file system in such a map; its keys have kinds of
//! their own, so that no command on objects, and no garbage collection of theirs, concerns them.
//!
//! An object's number is used only in the key of its header. All other keys contain the object's *incarnation*, a number that no other
//! object of the map has or had. Therefore an object that is removed and created again is empty at once, even if the garbage collection
//! of its former incarnation is not complete.

use braid_base::ObjectId;
use braid_wire::AttributeName;

/// Bytes of an encoded key.
pub const KEY_BYTES: usize = 17;
/// Bytes of an object under one key.
pub const PIECE_BYTES: u64 = 4096;

/// A key of the map. Keys, and their encodings, are ordered by their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the key refers to.
    pub kind: Kind,
    /// The object's number for headers, its incarnation for all other keys of objects.
    pub of: u64,
    /// The index among the keys of the same kind and object.
    pub index: u64,
}

/// What a key refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The record of the last incarnation and number given out.
    Last = 1,
    /// An object's header, by number: its incarnation and length.
    Header = 2,
    /// An incarnation that has ended, and of which keys may be left.
    Ended = 3,
    /// A piece of an object's bytes: at most [`PIECE_BYTES`], followed by zeros.
    Piece = 4,
    Attribute = 5,
    /// The parameters and counters of a file system.
    FileSystem = 6,
    Inode = 7,
    /// An extent of an inode, by its last block in the file.
    Extent = 8,
    /// An entry of a directory, by its cookie.
    Name = 9,
    /// A run of free blocks, by its last block.
    FreeRun = 10,
    /// A run of blocks allotted to a host, by its last block.
    Allotment = 11,
    /// An inode of which blocks are to be freed.
    Reclaim = 12,
    /// A record of a transaction among metadata servers.
    Transaction = 13,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::Last,
        Kind::Header,
        Kind::Ended,
        Kind::Piece,
        Kind::Attribute,
        Kind::FileSystem,
        Kind::Inode,
        Kind::Extent,
        Kind::Name,
        Kind::FreeRun,
        Kind::Allotment,
        Kind::Reclaim,
        Kind::Transaction,
    ];

    /// The next kind in the order of keys.
    pub fn next(self) -> Option<Kind> {
        Kind::decode(self as u8 + 1)
    }

    fn decode(byte: u8) -> Option<Kind> {
        let kind = Kind::ALL.get(usize::from(byte).checked_sub(1)?).copied();
        assert!(kind.is_none_or(|kind| kind as u8 == byte), "the table of kinds is in their order");
        kind
    }
}

impl Key {
    /// The lowest key.
    pub const FIRST: Key = Key { kind: Kind::Last, of: 0, index: 0 };

    /// The record of the last incarnation and number given out.
    pub const LAST_GIVEN: Key = Key::FIRST;

    /// An object's header.
    pub const fn header(object: ObjectId) -> Key {
        Key { kind: Kind::Header, of: object.0, index: 0 }
    }

    /// The record that an incarnation has ended.
    pub const fn ended(incarnation: u64) -> Key {
        Key { kind: Kind::Ended, of: incarnation, index: 0 }
    }

    /// A piece of an object's bytes, counted from 0.
    pub const fn piece(incarnation: u64, piece: u64) -> Key {
        Key { kind: Kind::Piece, of: incarnation, index: piece }
    }

    pub const fn attribute(incarnation: u64, name: AttributeName) -> Key {
        Key { kind: Kind::Attribute, of: incarnation, index: (name.page as u64) << 32 | name.number as u64 }
    }

    /// The next possible key of this kind.
    pub fn after(self) -> Option<Key> {
        match self.index.checked_add(1) {
            Some(index) => Some(Key { index, ..self }),
            None => self.of.checked_add(1).map(|of| Key { of, index: 0, ..self }),
        }
    }

    pub const fn attribute_name(self) -> AttributeName {
        AttributeName::new((self.index >> 32) as u32, self.index as u32)
    }

    /// Encodes the key. Encodings have the same order as keys.
    pub fn encode(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.of.to_be_bytes());
        bytes[9..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// Decodes a key; `None` if it is invalid.
    pub fn decode(bytes: &[u8; KEY_BYTES]) -> Option<Key> {
        let kind = Kind::decode(bytes[0])?;
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Some(Key { kind, of: word(1), index: word(9) })
    }
}
