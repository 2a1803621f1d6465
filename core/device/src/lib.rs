//! A storage device is the machine that serves block ranges of objects from one disk. It isolates concurrent hosts by
//! timestamp ordering (shared-array paper, section 4.5). Each devwrite is a durable intent until its transaction is
//! decided (atomicity `implied`, `docs/invariants.md`).
//!
//! | module | what |
//! | --- | --- |
//! | [`device`] | the machine: checks who may speak, and routes each message |
//! | `scheduler` | decides about transactions: stamps, locks, waiting requests, and how each transaction ends |
//! | `decisions` | carries out the scheduler's decisions |
//! | `tasks` | creation, change and removal of objects; lists of missed writes; counters |
//! | `tickets` | the store operations under way, and what follows each |
//! | `objects` | objects that hold bytes and attributes |
//! | `membership` | the device's lease and its epoch |
//! | `sessions` | the leases of hosts, and the confirmations that each host is owed |
//!
//! Deviations from the paper, and decisions that it leaves open:
//!
//! * Writes wait for pre-writes and intents with lower stamps on their blocks, as in figure 4, instead of being applied
//!   on arrival (section 4.5.2). So the intents of a block are made, and committed, in the order of their stamps, and no
//!   later write overtakes a queued read of a range. The price is that a blind write behind an earlier pre-write must be
//!   buffered, which is rare; `limits::WAITING_BYTES_MAX` bounds the buffers.
//! * An intent raises `wts` at once, not at its commit. The host may already have answered its user, and a host whose
//!   clock lags must not read the old content after that.
//! * The device accepts a stamp only if it has made a bound durable that the stamp does not exceed. After a restart, the
//!   bound is the floor.

mod decisions;
pub mod device;
mod membership;
mod objects;
mod scheduler;
mod sessions;
mod tasks;
mod tickets;

pub use device::{Device, DeviceConfig, Service};
pub use scheduler::stamp_table;
pub use scheduler::transactions::{State, TransactionView};
