//! A host: its own RAID controller. Turns hostreads and hostwrites into storage transactions on the devices (shared
//! array, sections 2 and 4).
//!
//! | module | what |
//! | --- | --- |
//! | `host` | the machine: requests in, answers in, timers |
//! | `operation` | what a front end asked for, over all its attempts |
//! | `transaction` | one attempt: the phase machine of a storage transaction |
//! | `ending` | how an attempt ends, and who hears of it |
//! | `abandon` | operations whose user is gone |
//! | `locking` | locks of lock servers, which some orderings need first |
//! | `membership` | who is in, and what becomes of transactions when that changes |
//! | `healing` | what the host lends to its background jobs, and does for them ([`braid_healing`]) |
//! | `mirror` | requests to mirrors, which keep objects in a volume |
//! | `links`, `link` | what is sent to each device: what is to ride on the next request, and what the device may forget |
//! | `request_window` | requests for objects that a device has not answered, and those that were abandoned |
//! | `resolve` | finding out, and making known, how a dead host's transactions ended |
//! | `requests` | what goes to one device and is no storage transaction: `tasks`, `object_requests`, and the graceful `disconnect` |
//! | `ctx` | what the host lends to its parts while they work |
//! | `counters` | what a host has done |
//!
//! ```text
//!                    all accepted        all written                    all confirmed
//!   ─► Reading ───────────────► Writing ────────────► Committed (answered) ─────────► gone
//!        │ refused                 │ refused
//!        ▼                         ▼                       all know
//!      Aborting ◄──────────────────┘    ─────────────────────────────► gone
//!        and the operation tries again, as a new transaction above the stamp it lost to
//!
//!   Writing, Aborting ──► Resolving      when another epoch begins: those decide who have been in since
//! ```

mod abandon;
mod counters;
mod ctx;
mod disconnect;
mod ending;
mod healing;
mod host;
mod link;
mod links;
mod locking;
mod membership;
mod mirror;
mod object_requests;
mod operation;
mod request_window;
mod requests;
mod resolve;
mod tasks;
mod transaction;

pub use braid_healing::MigrationProgress;
pub use braid_locks::client::Acquisition;
pub use counters::HostCounters;
pub use host::{Host, HostConfig};
