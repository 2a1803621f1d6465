//! The client of a file system: a machine that wraps a host, and serves operations on files.
//!
//! The bytes of files are in blocks of a volume, which hosts read and write themselves. Names, sizes and extents are with the file system's
//! metadata server (`braid_wire::files` describes the messages), which also grants the locks.
//!
//! | module | what |
//! | --- | --- |
//! | `client` | the machine: routes inputs to the host, and to the part for a shard |
//! | `unmounted` | a host without a mounted file system, for the same front ends |
//! | `shard` | the part for one shard of the file system, with all that follow |
//! | `files` | the parts that serve operations on files |
//! | `operations` | the operations: opening, reading, writing, truncating, commands |
//! | `inodes` | the inodes in use: who has the data lock, and what is remembered under it |
//! | `block_map` | the extents of an inode, as far as they are known |
//! | `handles` | open files, and the locks on their existence |
//! | `allotment` | the free blocks that are reserved for this host |
//! | `packer` | first writes of blocks: small ones are written together |
//! | `volume_io` | hostreads and hostwrites |
//! | `advisory` | advisory locks of programs |
//! | `unmounting` | the end of a mount: everything is given back, in order |
//! | `metadata_link` | commands to the metadata server, each until it is answered |
//! | `range_locks` | the locks that the metadata server grants |
//! | `progress` | what parts tell operations |
//!
//! Rules:
//!
//! * Bytes are durable before the extent of their blocks is attached, and both before the write is answered.
//! * The first write of a block fills all of it, so that a file never shows what a free block held before.
//! * Bytes, extents and size change under the exclusive data lock of the inode, and are read under a shared one. Nothing that was learnt
//!   under a lock is used without it. There is no cache of bytes.
//! * An operation that has sent a hostwrite keeps its locks and blocks until the outcome is known.
//! * To give a lock back, no other lock is needed.
//! * A fenced host answers nothing but that it is fenced.

mod advisory;
mod allotment;
mod block_map;
mod client;
mod files;
mod handles;
mod inodes;
mod metadata_link;
mod operations;
mod packer;
mod progress;
mod range_locks;
mod shard;
mod unmounted;
mod unmounting;
mod volume_io;

pub use client::{FileClient, FileClientConfig, FileWaits};
pub use unmounted::Unmounted;
