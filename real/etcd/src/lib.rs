//! etcd as the registry of an array on several machines. Monitors speak to it, and nothing else does. Two of its calls are used, `Range` and
//! `Txn`: no watches, no leases, and no clock of etcd. What is decided by them is in [`braid_leadership`] and `docs/leadership.md`.
//!
//! ```text
//!   Registrar ── Outgoing ──► Calls ── a task for each ──► Registry ── one member at a time ──► etcd
//!             ◄── Input ──── (after 500 ms `Failed`)
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `messages` | the messages of the two calls |
//! | `members` | the members of etcd, and which one is asked |
//! | `registry` | the keys of one array: reads and swaps |
//! | `head_value` | the value of `head` |
//! | `calls` | the calls of a registrar, each in a task of its own |
//!
//! What is written beside `head`, a swap writes in the same transaction. No call is made twice here: an error does not say that a call had no
//! effect, so it is the candidate that repeats a swap until its outcome is definite.

mod calls;
mod head_value;
mod members;
mod messages;
mod registry;

pub use calls::Calls;
pub use registry::{Registry, RegistryError, Swapped};
