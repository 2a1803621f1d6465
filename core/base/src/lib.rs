//! The basic types of Braid, which every other crate uses.
//!
//! The crate is pure: it has no clock, socket, thread or file. Time and random seeds are arguments.
//!
//! | module | what |
//! | --- | --- |
//! | `backoff` | waits before retries, which double up to a limit |
//! | `buffer` | memory that is aligned for direct I/O |
//! | `checksum` | CRC32C, the checksum of frames, journal records and blocks |
//! | `counters` | event counters of a node |
//! | `encoded` | values that the messages and records of others carry |
//! | `extents` | a set of blocks, as the smallest number of runs |
//! | `id` | identifiers of arrays, devices, hosts, file systems, objects and transactions |
//! | `level` | the level of an array: which formats and fields its programs may use |
//! | `limits` | all bounds and default settings |
//! | `membership` | the members and the fenced hosts of an array, in one epoch |
//! | `names` | enums whose variants have names |
//! | `ownership` | which host owns a file system, and since when |
//! | `pause` | whether a machine that decides by silence was paused itself |
//! | `quoting` | names and paths in text |
//! | `range` | a range of blocks |
//! | `range_division` | which lock servers grant a range of a space, and how locks of several are acquired |
//! | `range_table` | a table of ranges that may overlap |
//! | `response_time` | how long one waits for the next answer, as a mean over time |
//! | `rng` | pseudo-random numbers from a seed |
//! | `stamp` | stamps: the order in which transactions take effect |
//! | `text_table` | rows of cells as text |
//! | `time` | readings of the monotonic clock and of the wall clock |
//! | `timers` | deadlines by key, earliest first |
//! | `units` | sizes as text, such as `64KiB` |

pub mod backoff;
pub mod buffer;
pub mod checksum;
pub mod counters;
pub mod encoded;
pub mod extents;
pub mod id;
pub mod level;
pub mod limits;
pub mod membership;
mod names;
pub mod ownership;
pub mod pause;
pub mod quoting;
pub mod range;
pub mod range_division;
pub mod range_table;
pub mod response_time;
pub mod rng;
pub mod stamp;
pub mod text_table;
pub mod time;
pub mod timers;
pub mod units;

pub use backoff::Backoff;
pub use buffer::AlignedBuffer;
pub use encoded::Encoded;
pub use extents::Extents;
pub use id::{
    ArrayId, DeviceId, DiskId, Epoch, FileSystemId, Generation, InodeId, LockServerId, NodeId, ObjectId, ShardId,
    TransactionId, VolumeId,
};
pub use level::Level;
pub use membership::{FenceTable, Member, MemberState, Membership};
pub use ownership::Ownership;
pub use pause::was_paused;
pub use range::BlockRange;
pub use range_division::{Acquisition, Callbacks, RangeDivision};
pub use range_table::RangeTable;
pub use response_time::ResponseTime;
pub use rng::Rng;
pub use stamp::{HEAD_START_MAX, Stamp, StampSource};
pub use time::{Clock, Now, Time};
pub use timers::Timers;

/// Bytes of a block: the unit of ordering, of headers and of checksums.
pub const BLOCK_BYTES: usize = 4096;
