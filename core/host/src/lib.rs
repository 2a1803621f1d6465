//! A host is a process that turns hostreads and hostwrites into storage transactions on devices
//! ([`braid_transactions`]): it is its own RAID controller.
//!
//! | module | what |
//! | --- | --- |
//! | `host` | the machine: routes requests, answers and timers to the parts that it owns, and handles their events |
//! | `membership` | the host's view of the membership, and its reaction to changes |
//! | `healing` | the host's side of its background jobs ([`braid_healing`]) |
//! | `requests` | requests to one device that are not storage transactions: `tasks`, `object_requests`, and the graceful `disconnect` |
//! | `range_locks` | locks of ranges for programs, under what the client of the lock servers ([`braid_locks::client`]) keeps |
//! | `ctx` | the context that the host passes to its parts |

mod ctx;
mod disconnect;
mod healing;
mod host;
mod membership;
mod object_requests;
mod range_locks;
mod requests;
mod tasks;

pub use braid_base::Acquisition;
pub use braid_healing::MigrationProgress;
pub use braid_transactions::{HostCounters, ObservedDevice};
pub use host::{Host, HostConfig, Short};
