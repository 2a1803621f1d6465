//! A storage transaction is one attempt to carry out a hostread or hostwrite on the devices of its stripes. This crate
//! turns hostreads and hostwrites into requests to devices, and completes their transactions (shared-array paper,
//! sections 2 and 4).
//!
//! | module | what |
//! | --- | --- |
//! | `coordinator` | [`Coordinator`]: takes operations, and returns their outcomes |
//! | `operations` | operations that are not answered, over all their attempts |
//! | `work` | the work for an operation, and the plan for it |
//! | `attribute_volume` | requests to replicated attribute volumes |
//! | `transaction` | one attempt: its data and its phase |
//! | `transactions` | all transactions that are not over, and the messages about them to devices |
//! | `attempt` | the course of an attempt: locks, reads and pre-writes, writes |
//! | `execution` | writes that the devices execute together |
//! | `locking` | locks of lock servers, which some orderings need first |
//! | `retry` | retries of operations, and their back-off |
//! | `refusal` | refusals and failures of devices |
//! | `contention` | where and how often attempts were refused lately |
//! | `cuts` | pairs of devices that did not reach each other lately |
//! | `ending` | the end of an attempt, and the messages about it |
//! | `epoch` | the effects of a new membership on transactions |
//! | `resolve`, `resolutions` | resolving transactions: of dead hosts, and the host's own of an earlier epoch |
//! | `links` | the links to devices: messages that ride on requests, the settled mark, and requests for objects that are not answered |
//! | `ctx` | the context that the coordinator borrows from its owner, and its events: [`Ctx`], [`Event`] |
//! | `counters` | the counters of a host |
//!
//! The coordinator does not know the host. Its owner lends it the links, a client of the lock servers and a view of the
//! membership, and passes on the answers of devices.
//!
//! ```text
//!                    all accepted        all written                    all confirmed
//!   ─► Reading ───────────────► Writing ────────────► Committed (answered) ─────────► gone
//!        │ refused                 │ refused
//!        ▼                         ▼                       all know
//!      Aborting ◄──────────────────┘    ─────────────────────────────► gone
//!        and the operation is retried, as a new transaction above the stamp it lost to
//!
//!   ─► Executing instead of both, if the devices do the work together: see `docs/parallel-raid.md`
//!
//!   Executing, Writing, Aborting ──► Resolving      when another epoch begins: the devices that have been in since decide
//! ```

mod attempt;
mod attribute_volume;
mod contention;
mod coordinator;
mod counters;
mod ctx;
mod cuts;
mod ending;
mod epoch;
mod execution;
mod links;
mod locking;
mod operations;
mod refusal;
mod resolutions;
mod resolve;
mod retry;
mod transaction;
mod transactions;
mod work;

pub use coordinator::{Abandoned, Coordinator, Timer, refused_for_space, waiting};
pub use counters::HostCounters;
pub use ctx::{Ctx, Event, OperationId};
pub use links::{LinkTimer, Links, ObservedDevice, Outbound, RequestEnd};
pub use operations::OperationTimer;
