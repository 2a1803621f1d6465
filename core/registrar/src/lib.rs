//! A monitor on one of several machines. It joins a [`Candidate`](braid_leadership::Candidate), which decides who leads, and, while this one
//! leads, a [`Monitor`](braid_membership::Monitor) and the store of the array's description and of the leases of hosts.
//! `docs/leadership.md` has the rules.
//!
//! ```text
//!                 Won, all keys are read            Written, Current
//!   ┌───────────┐ ──────────────────────► ┌─────────┐ ◄────────── ┌───────────┐ ◄── answers ─── registry
//!   │ registrar │    whether it may grant │ monitor │             │ candidate │ ─── calls ────►
//!   │           │ ──── requests ────────► │ store   │             │           │
//!   └───────────┘ ◄─── replies ────────── └─────────┘ ──────────► └───────────┘ ◄── pact ─────► candidates
//!        Lost, Ended, Stopped: both are dropped       their writes, their questions
//! ```
//!
//! The registry is the monitor's disk. It has the two copies of the monitor's record under one key each. A read of the disk is a read of both,
//! and a durable write of a copy is a write of the leader. So a monitor whose leader was superseded can record nothing more: its
//! write never ends, and it is dropped. Neither the monitor nor its record knows of this.
//!
//! The store is in the registry, too: one key for each entry of the description and for each lease. It is read when a term begins, and from
//! then on the leader is the only one that writes it. The volumes and the last generation that its monitor must know are from there.
//!
//! So are the machines of the array. One that joins with a token becomes a candidate with the same write.
//!
//! The crate is beside `core/leadership` and `core/membership`, because neither of them needs the other: a candidate does not know what
//! its leader writes, and a monitor in the folder of an array has no candidate.
//!
//! | module | what |
//! | --- | --- |
//! | `messages` | what goes into a registrar and comes out, beside the monitor's own inputs and effects |
//! | `requests` | what processes ask the leader, and its answers |
//! | `entries` | the keys of the registry and their values; what a change of the description writes |
//! | `machines` | the machines of the array, and the tokens by which others join |
//! | `array_store` | the description and the leases for a term, the requests that wait, and what is answered when |
//! | `record_disk` | the monitor's disk: its command under way, and the form of a copy in the registry |
//! | `registrar` | the machine that joins these |

mod array_store;
mod entries;
mod machines;
mod messages;
mod record_disk;
mod registrar;
mod requests;

pub use entries::{Change, Content, EntryError, Key, Keys, LeaseEntry, changes};
pub use machines::{Joining, MachineEntry, Machines, TOKEN_LIFE, check, hash_of};
pub use messages::{Found, Input, Outgoing, ReadId};
pub use record_disk::image;
pub use registrar::Registrar;
pub use requests::{HostLease, Outcome, REPORT_BYTES_MAX, ROLE_BYTES_MAX, Refused, Reply, Request, RequestId};
