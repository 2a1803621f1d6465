//! Data structures that programs on many machines share. They are built on objects with atomic attributes (device-atomics paper, sections 6
//! to 8) and need no lock manager. The crate is pure: each operation is a [`Procedure`], which returns the next request to the device. Its
//! driver sends the requests and waits. `docs/recipes/` has a page for each structure, with its algorithm and guarantees.
//!
//! | module | what |
//! | --- | --- |
//! | [`procedure`] | the interface of all operations |
//! | [`lock`] | a lock for one writer or many readers |
//! | [`counter`] | a delivery counter: exclusive use in the order of tickets |
//! | [`failover`] | fail-over: one leader, and backups that take over when it fails |
//! | [`fencing_token`] | fencing tokens, with which a device refuses late writes |
//! | [`lease`] | leases, by which lost holders are detected |
//! | [`idempotency_record`] | a record that an operation has taken effect |
//! | [`directory`] | a hash table of names and the objects that they stand for |
//! | [`list`] | a linked list without locks |
//! | [`queue`] | a work queue, each item claimed by one consumer at a time |
//! | `request_builder` | building requests, and interpreting their answers |
//! | `requester` | making requests: repeated if they are not answered |
//! | `cas_loop`, `hold_word` | compare-and-swap loops on one attribute; the attribute of a number and at most one holder |

mod cas_loop;
pub mod counter;
pub mod directory;
pub mod failover;
pub mod fencing_token;
mod hold_word;
pub mod idempotency_record;
pub mod lease;
pub mod list;
pub mod lock;
pub mod procedure;
pub mod queue;
mod request_builder;
mod requester;

pub use procedure::{Answer, Next, Operation, Procedure, RequestFailure};
