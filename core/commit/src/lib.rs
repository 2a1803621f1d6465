//! Commit protocols among metadata servers: an operation whose parts lie on several shards takes effect on all of them or on none, also if
//! servers crash and messages are lost. Source: "One Phase Commit: A Low Overhead Atomic Commitment Protocol for Scalable Metadata Services"
//! (Congiu, Grawinkel, Narasimhamurthy, Brinkmann), called *the one-phase-commit paper* here. `docs/commit-protocols.md` compares in detail.
//!
//! ```text
//!              server of shard 0                                   server of shard 1
//!   client ──► locks, evaluation ─► Commits::begin                 Commits ─► Step::Evaluate: locks, evaluation
//!   client ◄── Step::Answer ◄────── Commits ──── Message ────────► Commits ◄─ Event::Evaluated
//!              journal ◄─────────── Step::Log    (Body::Update …)  Step::Log ─► journal
//!              journal ───────────► Event::Logged                  …
//! ```
//!
//! The *coordinator* is the shard whose server got the request; the others are *workers*. The server that embeds this crate evaluates
//! operations, holds locks, writes the journal and sends messages; what it has carried is opaque here ([`Payload`]), typed in memory, and
//! encoded only in messages and records. [`Commits`] is the pure machine of one shard for both roles. It takes an [`Event`] at a time, and
//! returns [`Step`]s:
//!
//! ```text
//!   Commits::new(shard: ShardId, timing: Timing) -> Commits
//!   restore(&mut self, key: RecordKey, record: Record)                       each record of the map, after a restart; then
//!   recover(&mut self, now: Time, out: &mut Vec<Step>)                       once, also if there is no record
//!   begin(&mut self, now: Time, transaction: Transaction, out: &mut Vec<Step>) -> Result<TransactionName, Busy>
//!   step(&mut self, now: Time, event: Event, out: &mut Vec<Step>)
//!   deadline(&self) -> Option<Time>                                          when to give it Event::Wake
//! ```
//!
//! | protocol | forced writes: coordinator; worker (not forced) | messages beyond UPDATE, UPDATED | locks released; client answered |
//! | --- | --- | --- | --- |
//! | `prn` | Begun, Prepared, Committed (Ended); Prepared, Committed | PREPARE, PREPARED, COMMIT, ACKNOWLEDGE | own Committed; ACKNOWLEDGE |
//! | `prc` | Begun, Prepared, Committed; Prepared (Committed) | PREPARE, PREPARED, COMMIT | own Committed |
//! | `early_prepare` | as `prc` | COMMIT | own Committed |
//! | `one_phase` | Begun with redo, Committed; Committed (Ended) | ACKNOWLEDGE | UPDATED |
//!
//! What the server promises, and what the protocols rely on:
//!
//! 1. *Log order is lock order.* Writes take effect in the order of [`Step::Log`]; after a crash some first part of them is there. One-phase
//!    commit releases locks before the commit is durable: whatever is done under them afterwards is behind it in the journal.
//! 2. *What is read is durable.* Whoever sees a change, in an answer or in a lock, waits until the change is durable.
//! 3. *A redo evaluates nothing.* A coordinator's part says what its keys become, and is computed under its locks before
//!    [`Commits::begin`].
//! 4. *At most one process owns a shard*, and what it finds in the journal is final. So nobody reads the journal of another shard, and
//!    nobody fences a silent worker: a request is sent again, under the same name, to whoever owns the shard by then.
//! 5. *Recovery takes locks, and then serves*: [`Commits::restore`] for each record, [`Commits::recover`], the steps [`Step::Hold`], then
//!    everything else, questions of other servers among it. No server waits for another one before it serves.
//!
//! What the protocols promise: all servers decide the same for each operation; an answer is never reversed; each operation takes effect at
//! most once; when all servers are back, every transaction ends and no record is left but [`RecordKey::Next`] and [`RecordKey::Mark`].
//!
//! | module | what |
//! | --- | --- |
//! | [`protocol`] | the protocols by name |
//! | [`grouping`] | how operations share transactions and writes, by name |
//! | [`transaction`] | operations, verdicts, outcomes |
//! | [`payload`] | what the server has the protocols carry |
//! | [`message`] | messages, and their bytes |
//! | [`record`] | records, and their bytes |
//! | [`event`] | events, and time-outs |
//! | [`step`] | steps for the server |
//! | [`commits`] | the machine of a shard |
//! | `prn`, `prc`, `early_prepare`, `one_phase` | the protocols: what each role does, beside the paper |
//! | `two_phase` | what the protocols with two phases have in common |
//! | `coordinator`, `worker` | one transaction at either role: phases, and the moves that the protocols are made of |
//! | `codec` | the bytes that messages and records share |

mod codec;
pub mod commits;
mod coordinator;
mod early_prepare;
pub mod event;
pub mod grouping;
pub mod message;
mod one_phase;
pub mod payload;
mod prc;
mod prn;
pub mod protocol;
pub mod record;
pub mod step;
pub mod transaction;
mod two_phase;
mod worker;

pub use codec::DecodeError;
pub use commits::{Busy, Commits};
pub use event::{Event, Timing};
pub use grouping::Grouping;
pub use message::{Body, Message};
pub use payload::{Content, Opaque, Payload};
pub use protocol::Protocol;
pub use record::{CoordinatorRecord, CoordinatorStage, Record, RecordKey, WorkerRecord, WorkerStage};
pub use step::{LogWrite, RecordKind, Step};
pub use transaction::{Evaluation, Operation, Outcome, Refusal, Transaction, TransactionName, Verdict};
