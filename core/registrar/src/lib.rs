//! A monitor on one of several machines. It joins a [`Candidate`](braid_leadership::Candidate), which decides who leads, and a
//! [`Monitor`](braid_membership::Monitor), which there is while this one leads. `docs/leadership.md` has the rules.
//!
//! ```text
//!                 Won ──► a monitor begins          Written, Current
//!   ┌───────────┐ ──────────────────────► ┌─────────┐ ◄────────── ┌───────────┐ ◄── answers ─── registry
//!   │ registrar │    whether it may grant │ monitor │             │ candidate │ ─── calls ────►
//!   └───────────┘ ◄────────────────────── └─────────┘ ──────────► └───────────┘ ◄── pact ─────► candidates
//!        Lost, Ended, Stopped: it is dropped          its disk's writes, its questions
//! ```
//!
//! The registry is the monitor's disk. It has the two copies of the monitor's record under one key each. A read of the disk is a read of both,
//! and a durable write of a copy is a write of the leader. So a monitor whose leader was superseded can record nothing more: its
//! write never ends, and it is dropped. Neither the monitor nor its record knows of this.
//!
//! The crate is beside `core/leadership` and `core/membership`, because neither of them needs the other: a candidate does not know what
//! its leader writes, and a monitor in the folder of an array has no candidate.
//!
//! | module | what |
//! | --- | --- |
//! | `messages` | what goes into a registrar and comes out, beside the monitor's own inputs and effects |
//! | `record_disk` | the monitor's disk: its command under way, and the form of a copy in the registry |
//! | `registrar` | the machine that joins these |

mod messages;
mod record_disk;
mod registrar;

pub use messages::{Copies, CopyWrite, Found, Input, Outgoing, RecordRead};
pub use registrar::Registrar;
