//! The keys of a file system.
//!
//! | kind | of | index | value |
//! | --- | --- | --- | --- |
//! | `FileSystem` | 0 | 0 | the parameters |
//! | `FileSystem` | 0 | 1 | the counters |
//! | `FileSystem` | 0 | 2 | the start of the metadata server, which logs it before it serves |
//! | `FileSystem` | 0 | 3 | the last number of an inode that was made for another shard |
//! | `FileSystem` | 0 | 4 | how many directories were moved to another parent; in the first of several shards |
//! | `FileSystem` | 1 | 256 · giver + receiver | the last transfer of free blocks from one shard to another; in the giver |
//! | `FileSystem` | 2 | 256 · giver + receiver | the number of the last transfer that was received; in the receiver |
//! | `Inode` | inode | 0 | the attributes, and the target of a symbolic link |
//! | `Extent` | inode | its last block in the file | its first block in the volume, and its length |
//! | `Name` | directory | cookie | inode, type and name |
//! | `FreeRun` | 0 | its last block | its length |
//! | `Allotment` | generation of the host | its last block | its length |
//! | `Reclaim` | 0 | inode | nothing |
//! | `Transaction` | 0 | 0 | the next sequence of the transactions that this shard coordinates |
//! | | 1 | sequence | a transaction that this shard coordinates |
//! | | 2 | shard | the mark of a coordinator |
//! | | 256 + shard | sequence | a transaction of that coordinator |
//!
//! Extents and runs are found by their last block, because a view searches forward only: the first key from block b on is that of the
//! extent that contains b, or of the next one.

use braid_base::{Generation, InodeId, ShardId};
use braid_objects::{Key, Kind};
use std::ops::RangeInclusive;

pub const PARAMETERS: Key = Key { kind: Kind::FileSystem, of: 0, index: 0 };
pub const COUNTERS: Key = Key { kind: Kind::FileSystem, of: 0, index: 1 };
pub const OWNER: Key = Key { kind: Kind::FileSystem, of: 0, index: 2 };
pub const LAST_MADE: Key = Key { kind: Kind::FileSystem, of: 0, index: 3 };
pub const MOVES: Key = Key { kind: Kind::FileSystem, of: 0, index: 4 };

const GIVEN: u64 = 1;
const RECEIVED: u64 = 2;

/// The last transfer of free blocks from one shard to another.
pub fn given(giver: ShardId, receiver: ShardId) -> Key {
    Key { kind: Kind::FileSystem, of: GIVEN, index: u64::from(giver.0) << 8 | u64::from(receiver.0) }
}

/// The number of the last transfer from one shard that another one has received.
pub fn received(giver: ShardId, receiver: ShardId) -> Key {
    received_of_given(given(giver, receiver))
}

/// The same, of the shards of a transfer with this key.
pub fn received_of_given(given: Key) -> Key {
    Key { of: RECEIVED, ..given }
}

/// The keys of all transfers.
pub fn all_given() -> RangeInclusive<Key> {
    same_from(Key { kind: Kind::FileSystem, of: GIVEN, index: 0 })
}

pub fn inode(inode: InodeId) -> Key {
    Key { kind: Kind::Inode, of: inode.0, index: 0 }
}

pub fn extent(inode: InodeId, last: u64) -> Key {
    Key { kind: Kind::Extent, of: inode.0, index: last }
}

pub fn name(directory: InodeId, cookie: u64) -> Key {
    Key { kind: Kind::Name, of: directory.0, index: cookie }
}

pub fn reclaim(inode: InodeId) -> Key {
    Key { kind: Kind::Reclaim, of: 0, index: inode.0 }
}

/// The first key of the allotment of a host.
pub fn allotment(host: Generation) -> Key {
    Key { kind: Kind::Allotment, of: u64::from(host.0), index: 0 }
}

/// The keys of the same kind and number, from this one on.
pub fn same_from(key: Key) -> RangeInclusive<Key> {
    key..=Key { index: u64::MAX, ..key }
}

pub fn all(kind: Kind) -> RangeInclusive<Key> {
    Key { kind, of: 0, index: 0 }..=Key { kind, of: u64::MAX, index: u64::MAX }
}
