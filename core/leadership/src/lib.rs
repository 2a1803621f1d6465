//! Leadership among the monitors of several machines. They share a *registry*, such as etcd: a linearizable map with reads and swaps. One key
//! of it, `head`, decides. A monitor leads while its writes replace its own last value; each write is at once proof of life, check, and fence
//! against late writes. `docs/leadership.md` has the rules and the times.
//!
//! ```text
//!                silent for 1.5 s, or no leader: swap ──────────────► Won
//!      ┌─────────┐ ────────────────────────────────────► ┌─────────┐ ─┐ swap every 250 ms, or for a write
//!      │ Standby │                                       │ Leading │  │ Written, Current
//!      └─────────┘ ◄──────────────────────────────────── └─────────┘ ◄┘
//!        │ reads every 250 ms     superseded: Lost,          │
//!        │                        own end in order: Ended    │
//!        └───────────────► Stopped ◄─────────────────────────┘   the registry has gone back
//! ```
//!
//! All of it is pure: [`Candidate::step`] takes an input and the time, and returns effects for its driver. Answers may be late or missing, and
//! calls may take effect after the caller has given them up, or has ended.
//!
//! Invariants, which are asserted:
//!
//! 1. *One swap is under way.* It is repeated until its outcome is definite, and replaces the newest head that is known.
//! 2. *A bound candidate makes no swap.* It is bound by its promises, and for as long as one may last after its start.
//! 3. *A candidate with a swap under way promises nothing.*
//! 4. *A leader knows its own head as the newest.* If it finds another one, it leads no more; if an older one, it stops.
//!
//! What follows: a leader grants no lease later than `doubt` after another one has won, but for the deviation of clocks; a new leader waits for
//! that, and for a lease, before it takes a device for free.
//!
//! | module | what |
//! | --- | --- |
//! | `head` | the value of `head`, and its place in the history |
//! | `times` | all durations |
//! | `messages` | inputs and effects, the registry's answers, messages between candidates |
//! | `chain` | the swap under way, and what its answers mean |
//! | `watch` | reads, and silence counted over them |
//! | `pact` | promises, by which leases go on without the registry |
//! | `leading` | what waits at a leader, and how long it may grant leases |
//! | `candidate` | the machine that joins these |

mod candidate;
mod chain;
mod head;
mod leading;
mod messages;
mod pact;
pub mod times;
mod watch;

pub use candidate::Candidate;
pub use head::{CandidateId, Head, Mark, Nonce};
pub use messages::{Answer, CallId, Effect, Input, Message, QuestionId, WriteId};
pub use times::Times;
