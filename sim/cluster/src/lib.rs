//! A whole array inside a simulated world: devices, hosts, clients, and what goes wrong.
//!
//! * [`cluster`] builds an array and has the words that scenarios are told in: write, read, crash, restart, settle, check.
//! * [`storm`] runs one seed: options, a storm under faults, healing, then every check.
//! * [`attack`](../attack/index.html) runs many seeds; `planted` proves that they find the bugs in `bugs/`.
//!
//! ```text
//!   seed ─► Options ─► storm (clients work, faults happen) ─► heal ─► everything answers, nothing is left undecided
//!                                                                └─► parity right, history serializable
//! ```

pub mod cluster;
mod exclusion;
pub mod options;
mod role;
pub mod storm;
mod surveyor;
pub mod workload;

pub use cluster::{Cluster, Failed, HostSlot};
pub use options::Options;
pub use role::Role;
pub use storm::{Failure, Report, run};
