//! Range locks, shared and exclusive (shared-array paper, sections 4.2 and 4.3): the lock table, the lock server, and its
//! client.
//!
//! | module | what |
//! | --- | --- |
//! | [`table`] | the table of held and waiting locks: used by lock servers, devices and hosts alike |
//! | [`engine`] | the locks of hosts from the request to their end, and which hosts are to be fenced; calls in, events out |
//! | [`sessions`] | the engine's data on each host |
//! | [`server`] | the lock server's machine: an engine with messages, a disk and the monitor |
//! | [`leased`] | a lock server that serves while its lease runs, and the order of its starts on several machines |
//! | `lock_requests` | the messages in which hosts request locks |
//! | `owner_calls` | the calls of the process that contains the lock server |
//! | `fence_rounds` | fencing of hosts by the monitor |
//! | [`host_list`] | the hosts that may hold locks, on disk |
//! | `counters` | the counters of a lock server |
//! | [`client`] | a host's client: its lock requests, its cached locks, and the turns of its holders |
//!
//! One server serves both kinds of locks: locks of one transaction (ordering `server-lock`), and cached locks, which
//! hosts keep until they are revoked (`callback-lock`). `braid_wire::locking` describes the messages and the duties of
//! hosts.
//!
//! * Every message of a host renews its lease. The monitor fences a silent host before its locks are granted to another
//!   host.
//! * A host that is heard, and does not give back a cached lock that another host waits for, is fenced after a while if the
//!   configuration says so.
//! * Locks are in memory only. The disk holds the list of hosts that may hold locks. After a restart nothing is granted
//!   until each of these hosts has reported its locks again or is fenced.

pub mod client;
mod counters;
pub mod engine;
mod fence_rounds;
pub mod host_list;
pub mod leased;
mod lock_requests;
mod owner_calls;
pub mod server;
pub mod sessions;
pub mod table;

pub use counters::LockServerCounters;
pub use engine::{FenceCause, LockEngine};
pub use fence_rounds::FenceDecision;
pub use host_list::{DISK_BYTES, ListError, empty_list, is_list_lost};
pub use leased::LeasedLockServer;
pub use server::{LockServer, LockServerConfig, LockService};
pub use sessions::LockName;
pub use table::{LockState, LockTable, Locked};
