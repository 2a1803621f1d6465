//! A journal is a circular log of records. This crate knows neither the content of the records nor the disk: its owner
//! encodes the records and writes the batches. The store of a device uses a journal, as can any machine that must answer only when its
//! log is durable.
//!
//! Invariants:
//! 1. *One batch at a time*: a batch is written when its predecessor is durable, and names it. Therefore only the last one can be
//!    incomplete.
//! 2. *Group commit*: records that arrive while a batch is in flight are written in the next one.
//! 3. *There is space for decisions*: an entry is admitted only if the log has space for it, its decision and the next snapshot.
//! 4. *A snapshot frees the log*: it repeats the older records that are still needed; then recovery begins with it.
//! 5. *A request is executed once*: its answer is logged together with its effect, and kept until its client acknowledges it.
//!
//! ```text
//!   entries ─┐
//!   notes ───┼─► batch in flight ─► durable: their requests are completed
//!   snapshot ┘        │
//!                     ▼        tail                    head
//!             log: ───────────┬┴────────┬───────┬─────┬┴───────────
//!                     free    │ snapshot│ batch │ …   │    free
//! ```
//!
//! | file | content |
//! | --- | --- |
//! | `journal` | records that wait for the next batch, and what to do when it is durable |
//! | `circular_log` | the position of the next batch, and the free space |
//! | `batch_format` | the format of a batch on the disk |
//! | `reading` | the records that recovery finds |
//! | `codec` | the traits that an owner's records implement |
//! | `answers`, `unlogged` | answers stored for clients; acknowledged answers whose removal is not logged yet |

mod answers;
mod batch_format;
mod circular_log;
mod codec;
mod journal;
mod reading;
mod unlogged;

pub use answers::{AnswerRoom, Answers, AnswersRecord, Known, bytes_max, intervals_of, over_len};
pub use batch_format::{SECTOR, first_batch};
pub use codec::{DecodeError, Entry, Payload, Record};
pub use journal::{Assembled, Carried, Flight, Journal};
pub use reading::{Damaged, Found, read};
pub use unlogged::Unlogged;
