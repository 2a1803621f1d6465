//! The words that every part of Braid shares.
//!
//! Pure: no clock, no socket, no thread, no file. Time, chance and identity come in as arguments.
//!
//! | module | what |
//! | --- | --- |
//! | `buffer` | memory whose address suits direct I/O |
//! | `checksum` | CRC32C, over frames, journal records and blocks |
//! | `counters` | what a node counts, as a struct of numbers |
//! | `extents` | runs of blocks, as few as can be |
//! | `id` | the names of arrays, devices, hosts, objects and transactions |
//! | `limits` | every bound and every default |
//! | `membership` | who is in the array: one membership for each epoch; and which hosts are fenced |
//! | `range` | ranges of blocks |
//! | `range_table` | a table of ranges that may overlap |
//! | `rng` | random numbers from a seed |
//! | `stamp` | stamps: the order in which transactions take effect |
//! | `time` | time, as the world hands it in |
//! | `timers` | one timer a key, the earliest first |
//! | `units` | sizes as people write them |

pub mod buffer;
pub mod checksum;
pub mod counters;
pub mod extents;
pub mod id;
pub mod limits;
pub mod membership;
pub mod range;
pub mod range_table;
pub mod rng;
pub mod stamp;
pub mod time;
pub mod timers;
pub mod units;

pub use buffer::AlignedBuffer;
pub use extents::Extents;
pub use id::{ArrayId, DeviceId, DiskId, Epoch, Generation, LockServerId, NodeId, ObjectId, TransactionId, VolumeId};
pub use membership::{FenceTable, Member, MemberState, Membership};
pub use range::BlockRange;
pub use range_table::RangeTable;
pub use rng::Rng;
pub use stamp::{Stamp, StampSource};
pub use time::{Clock, Now, Time};
pub use timers::Timers;

/// Bytes of a block: the unit of ordering, of headers and of checksums.
pub const BLOCK_BYTES: usize = 4096;
