//! A journal: a log of records in a ring of sectors. It knows neither the records nor the disk: its owner encodes the former and writes
//! the latter. A device's store keeps one; so may any machine that answers when its log is durable.
//!
//! What must hold:
//! 1. *One batch at a time*: a batch is written when the one before it is durable, and names that one. So only the last can be torn.
//! 2. *Group commit*: what comes while a batch is in flight goes with the next one.
//! 3. *There is room for decisions*: an entry is let in only if the ring has room for it, its decision and the next snapshot.
//! 4. *A snapshot frees the ring*: it repeats what older records still say; then recovery begins with it.
//! 5. *A request is done once*: its answer is logged with its effect, and kept until its client says that it knows it.
//!
//! ```text
//!   entries ─┐
//!   notes ───┼─► batch in flight ─► durable: what was to follow, follows
//!   snapshot ┘        │
//!                     ▼        tail                    head
//!            ring: ───────────┬┴────────┬───────┬─────┬┴───────────
//!                     free    │ snapshot│ batch │ …   │    free
//! ```
//!
//! | file | what it knows |
//! | --- | --- |
//! | `journal` | what waits for the next batch, and what follows when it is durable |
//! | `ring` | where the next batch goes, and how much room there is |
//! | `batch` | the form of a batch on the disk |
//! | `reading` | the records that a start finds |
//! | `record` | what an owner's records must be able to do |
//! | `answers`, `unlogged` | answers kept for clients; acknowledged ones whose removal is not logged yet |

mod answers;
mod batch;
mod journal;
mod reading;
mod record;
mod ring;
mod unlogged;

pub use answers::{AnswerRoom, Answers, AnswersRecord, Known, bytes_max, over_len, stretches_of};
pub use batch::{SECTOR, first_batch};
pub use journal::{Assembled, Carried, Flight, Journal};
pub use reading::{Damaged, Found, read};
pub use record::{DecodeError, Entry, Payload, Record};
pub use unlogged::Unlogged;
