//! Range locks, shared and exclusive (shared array, sections 4.2 and 4.3): the table of them, the lock server, and its client.
//!
//! | module | what |
//! | --- | --- |
//! | [`table`] | who holds and who waits for which blocks: serves lock servers, devices and hosts alike |
//! | [`server`] | the lock server's machine: who may speak, and where each message goes |
//! | `claiming` | lock, unlock, revoke |
//! | `fencing` | keeping out hosts that are silent |
//! | [`sessions`] | what the server knows of each host |
//! | [`host_list`] | the hosts that may hold locks, on disk |
//! | `counters` | what a lock server has done |
//! | [`client`] | a host's client: its lock requests, its cached locks, and the turns of its holders |
//!
//! One server serves both kinds of locks: those for one transaction (ordering `server-lock`), and those that hosts keep until
//! they are revoked (`callback-lock`). The messages are in `braid_wire::locking`, with what hosts have to do.
//!
//! * A host's lease is renewed by whatever it says. A silent one is fenced, by the monitor, before anybody gets what it held.
//! * Claims are in memory only. On disk is the list of hosts that may hold some: after a restart nothing is granted until each of
//!   them has said again what it holds, or is fenced.

mod claiming;
pub mod client;
mod counters;
mod fencing;
pub mod host_list;
pub mod server;
pub mod sessions;
pub mod table;

pub use counters::LockServerCounters;
pub use host_list::{DISK_BYTES, ListError};
pub use server::{LockServer, LockServerConfig, LockService};
pub use sessions::LockName;
pub use table::{LockState, LockTable, Locked};
