//! A whole array inside a simulated world: devices, hosts, clients, and what goes wrong.
//!
//! * [`cluster`] builds an array and has the words that scenarios are told in: write, read, crash, restart, settle, check.
//! * [`storm`] runs one seed: options, a storm under faults, healing, then every check.
//! * [`matrix`] lets each node of a tiny array lose power at each of its steps.
//! * [`attack`] runs many seeds; the program `planted` proves that they find the bugs in `bugs/`.
//!
//! ```text
//!   seed ─► Options ─► storm (clients work, faults happen) ─► heal ─► everything answers, nothing is left undecided
//!                                                                └─► parity right, history serializable
//! ```

pub mod attack;
mod availability;
mod calm;
pub mod cluster;
pub mod crash_table;
mod damage;
mod deaths;
mod degraded;
mod exclusion;
mod hosts;
mod leaving;
pub mod matrix;
mod mirrors;
mod moving;
pub mod object_wishes;
mod objects;
pub mod options;
mod records;
pub mod report;
mod role;
mod standing;
pub mod storm;
mod surveyor;
pub mod volumes;
mod weather;
pub mod workload;

pub use cluster::{Cluster, Failed, HostSlot};
pub use options::{Choices, Options};
pub use report::{Failure, Report};
pub use role::Role;
pub use storm::run;
