//! A storage device: keeps concurrent hosts apart by timestamp ordering (shared array, section 4.5), and makes every
//! devwrite a durable intent until its transaction is decided (atomicity `implied`, `docs/invariants.md`).
//!
//! | module | what |
//! | --- | --- |
//! | [`device`] | the machine: who may speak, and where each message goes |
//! | `scheduler` | decides what becomes of transactions: stamps, locks, what waits, and how each ends |
//! | `decisions` | carries out what the scheduler has decided |
//! | `tasks` | making, changing and removing objects, what others missed, counters |
//! | `tickets` | what the store is doing for whom |
//! | `objects` | objects that hold bytes and attributes |
//! | `membership` | the lease, and the epoch that the device lives by |
//! | `sessions` | the hosts' leases, and what is owed to each host |
//!
//! Where the paper leaves a choice, or this differs from it:
//!
//! * Writes wait for lower pre-writes and intents on their blocks, as in figure 4, instead of being applied on arrival
//!   (section 4.5.2). So intents are made, and committed, in the order of their stamps on each block, and a queued
//!   read of one range is not overtaken. The price is buffering, bounded by
//!   `limits::WAITING_BYTES_MAX`, in the rare case of a blind write behind a lower pre-write.
//! * An intent raises `wts` at once, not at its commit. Its host may have answered its user by then, and a host whose
//!   clock lags must not read the old content after that.
//! * Stamps up to a bound are accepted only once that bound is durable. After a restart it is the floor.

mod decisions;
pub mod device;
mod membership;
mod objects;
mod scheduler;
mod sessions;
mod tasks;
mod tickets;

pub use device::{Device, DeviceConfig, Service};
pub use scheduler::stamps;
pub use scheduler::transactions::{State, TransactionView};
