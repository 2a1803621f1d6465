//! Structures that programs on many machines share, built on objects with atomic attributes (device atomics, sections 6 and 7), with no lock
//! manager. Pure: each operation is a [`Procedure`] that says what to ask of the device next; who drives it does the asking and the
//! waiting. `docs/recipes/` has a page for each, with its algorithm and what it guarantees.
//!
//! | module | what |
//! | --- | --- |
//! | [`procedure`] | what all of them have in common |
//! | [`lock`] | one writer or many readers |
//! | [`counter`] | tickets: one after the other, in the order in which they came |
//! | [`failover`] | one leader, and others that take over when it stands still |
//! | [`fence`] | how a device refuses late writes |
//! | [`lease`] | how lost holders are found out |
//! | [`idempotency_record`] | word that an operation has happened |
//! | [`directory`] | names and the objects that they stand for |
//! | [`list`] | a linked list without locks |
//! | [`queue`] | items to work on, each claimed by one at a time |
//! | `asking` | requests as structures need them, and what to make of the answers |
//! | `edit`, `holding` | compare-and-swap loops on one attribute; one with a number and at most one holder |

mod asking;
pub mod counter;
pub mod directory;
mod edit;
pub mod failover;
pub mod fence;
mod holding;
pub mod idempotency_record;
pub mod lease;
pub mod list;
pub mod lock;
pub mod procedure;
pub mod queue;

pub use procedure::{Answer, Next, Procedure, RequestFailure};
