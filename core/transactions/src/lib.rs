//! Storage transactions: how hostreads and hostwrites become requests to devices, and how they end (shared array, sections 2 and 4).
//!
//! | module | what |
//! | --- | --- |
//! | `coordinator` | [`Coordinator`]: operations in, outcomes out |
//! | `operations` | what was asked for and is not answered, over all attempts |
//! | `work` | what is to be done for an operation, and by which plan |
//! | `attribute_volume` | requests to replicated attribute volumes |
//! | `transaction` | one attempt: what it knows, and its phase |
//! | `transactions` | all transactions that are not over, and what devices hear of them |
//! | `attempt` | how an attempt goes: locks, reads and pre-writes, writes |
//! | `locking` | locks of lock servers, which some orderings need first |
//! | `refusal` | what devices refuse, or fail to do |
//! | `ending` | how an attempt ends, and who hears of it |
//! | `epoch` | what becomes of transactions when the membership changes |
//! | `resolve`, `resolutions` | finding out how a dead host's transaction ended, or an own one of an earlier epoch, and making it known |
//! | `links` | what is sent to each device: what is to ride on the next request, what the device may forget, and which requests for objects it has not answered |
//! | `ctx` | what the coordinator borrows of its owner, and what it tells: [`Ctx`], [`Event`] |
//! | `counters` | what a coordinator has done |
//!
//! The coordinator knows no host: whoever owns one lends it links, a client of the lock servers and a view of the membership, and passes on what
//! devices answer.
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

mod attempt;
mod attribute_volume;
mod coordinator;
mod counters;
mod ctx;
mod ending;
mod epoch;
mod links;
mod locking;
mod operations;
mod refusal;
mod resolutions;
mod resolve;
mod transaction;
mod transactions;
mod work;

pub use coordinator::{Coordinator, Timer};
pub use counters::TransactionCounters;
pub use ctx::{Ctx, Event, OperationId};
pub use links::{LinkCounters, LinkTimer, Links, Outbound, RequestEnd};
pub use operations::OperationTimer;
