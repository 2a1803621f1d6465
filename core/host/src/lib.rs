//! A host: its own RAID controller. Its coordinator turns hostreads and hostwrites into storage transactions on the devices
//! ([`braid_transactions`]).
//!
//! | module | what |
//! | --- | --- |
//! | `host` | the machine: requests and answers in, timers; it owns the parts, and passes on what they tell |
//! | `membership` | who is in, and what follows when that changes |
//! | `healing` | what the host lends to its background jobs, and does for them ([`braid_healing`]) |
//! | `requests` | what goes to one device and is no storage transaction: `tasks`, `object_requests`, and the graceful `disconnect` |
//! | `ctx` | what the host lends to its parts while they work |
//! | `counters` | what a host has done |

mod counters;
mod ctx;
mod disconnect;
mod healing;
mod host;
mod membership;
mod object_requests;
mod requests;
mod tasks;

pub use braid_healing::MigrationProgress;
pub use braid_locks::client::Acquisition;
pub use counters::HostCounters;
pub use host::{Host, HostConfig};
