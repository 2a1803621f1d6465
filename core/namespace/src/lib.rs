//! The namespace of a file system: names, inodes, extents and free blocks, in one ordered map (that of [`braid_objects`], with kinds of
//! keys of its own).
//!
//! [`evaluate()`] executes a command of a host: it reads the map through a [`View`](braid_objects::View) and returns the answer and the
//! changes. The metadata server logs both in one record. Commands are evaluated one after the other, each on a map with the changes of all
//! earlier ones. Therefore every command is atomic, and needs no locks.
//!
//! | module | what |
//! | --- | --- |
//! | [`keys`] | the keys of the map |
//! | `records` | the values of the map, and their versions |
//! | `work` | a command under evaluation: the map with its changes so far |
//! | [`mod@evaluate`] | the evaluation of a command |
//! | `entries` | entries of directories: search, insertion, lists |
//! | `inodes` | creation, links, removal, attributes |
//! | `rename` | renaming |
//! | [`plan`] | with several shards: which of them a command concerns |
//! | [`parts`] | what one shard does in an operation on several shards |
//! | `extents` | extents of files: map, attach, truncate |
//! | `runs` | sets of disjoint runs of blocks |
//! | `space` | free blocks and allotments |
//! | [`transfers`] | with several shards: free blocks that one gives to another |
//! | [`reclaim`] | what the server does by itself: it frees the blocks of removed files, and the allotments of hosts that are gone |
//! | [`mod@format`] | the changes that make an empty file system, or give it more blocks |
//! | [`check`] | a check of a whole file system |
//!
//! Invariants, which [`check`] verifies:
//! 1. Each block of the volume is in exactly one of: an extent, a free run, an allotment, a transfer that is not received yet.
//! 2. Each entry refers to an inode. The number of links of an inode is the number of its entries; for a directory, it is two more than the
//!    number of directories in it. A directory has one entry, the root has none.
//! 3. From each directory with an entry, the parents lead to the root.
//! 4. An inode without links (an *orphan*), and one with extents behind its size, is listed for reclaim.
//! 5. The counters are right.
//!
//! Blocks that a command frees may be reserved by the next one. This is safe although their new owner writes to them outside the log: it
//! hears of the reservation only when that is durable, and then the earlier command is durable, too.

pub mod check;
mod entries;
pub mod evaluate;
mod extents;
pub mod format;
mod inodes;
pub mod keys;
pub mod parts;
pub mod plan;
pub mod reclaim;
mod records;
mod rename;
mod runs;
mod space;
pub mod transfers;
mod work;

pub use evaluate::{CHANGED_BYTES_MAX, CHANGES_MAX, Evaluation, evaluate};
pub use format::{format, grow};
pub use records::{Parameters, Placement, Shards, sum_of_counters};
pub use work::Context;
