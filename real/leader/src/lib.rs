//! The monitors of an array on several machines. Each is a *candidate*: a process that leads, or stands by. The one that leads serves devices
//! and hosts over Braid's wire, as a monitor does, and answers processes over HTTP about the description of the array and the leases of
//! hosts. `docs/leadership.md` has the rules.
//!
//! ```text
//!   devices, hosts ── wire ──► ┌───────────┐ ── calls ──► etcd
//!   processes ── HTTP, JSON ─► │ Registrar │
//!   candidates ─ HTTP, JSON ─► └───────────┘ ── HTTP, JSON ──► candidates
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `machine` | a registrar as the machine of a node |
//! | `candidate` | a candidate: its machine, and all that it wants of others |
//! | `server` | the HTTP interface |
//!
//! Its calls, and a client of it, are in `braid_leader_client`.
//!
//! Nothing is encrypted, and no caller is identified yet. So an address that is no loopback address is refused, unless the caller allows it.

mod candidate;
mod machine;
mod server;

pub use candidate::{Candidate, CandidateError, CandidateState, Known, Place, ReportMaker, Shown};
