//! A whole array inside a simulated world: devices, hosts, clients and faults.
//!
//! - [`cluster`] is an array, and has the operations that scenarios consist of: write, read, crash. `building` makes it and starts its nodes
//!   again, `replies` judges answers, `scenario_time` lets time pass, and `at_rest` and `leaks` check it at the end.
//! - [`swarm`] runs one seed: options, a swarm run under faults, healing, then every check.
//! - `activities` lists what happens in a run beside clients and the faults of the world; each activity has a file of its own.
//! - [`matrix`] makes each node of a tiny array lose power at each of its steps.
//! - [`metadata_matrix`] makes a metadata server lose power at each of its steps.
//! - [`attack`] runs many seeds; the program `planted` proves that they find the bugs in `bugs/`.
//!
//! ```text
//!   seed ─► Options ─► swarm run (clients work, faults happen) ─► heal ─► everything answers, nothing is left undecided
//!                                                                └─► parity right, history serializable
//! ```
//!
//! The cut: a cluster owns the world and its nodes. What is more than that belongs to parts with few fields, each of which the cluster or
//! the run owns as one field, or which an activity owns. Parts are told the world and the time, and return what follows.
//!
//! - `control` is the control plane. It is lent what it sees for each step, and returns actions; `cluster::controlled` carries them out.
//!   What scenarios and activities have it do, they have an operator at a host do (`cluster::operator`).
//! - `file_records` records one file system: its servers, the hosts that have it mounted, its history and its locks. [`FileSystem`]
//!   describes it, and makes machines for it (`files`, `file_checks`).
//! - `metadata_processes` owns the life of metadata servers in a run.
//! - `ownership_history` judges what hosts are told of owners; `undecided_requests` finds out what became of abandoned requests on objects;
//!   `sniffer` checks that a repeated answer is the same.
//! - Checks at rest read the cluster, and change nothing but the time.

mod activities;
mod activity;
mod activity_choices;
mod at_rest;
pub mod attack;
mod attribute_volumes;
mod availability;
mod building;
mod candidacy;
mod candidates;
pub mod cluster;
mod control;
pub mod crash_table;
mod damage_places;
mod degraded;
mod disk_properties;
mod drawn_array;
mod drawn_volume;
mod exclusion;
mod failed;
mod fault_injection;
mod fences;
mod file_checks;
mod file_options;
mod file_records;
mod file_use;
mod file_workload;
mod files;
mod graceful_disconnect;
mod hosts;
mod leader_clients;
mod leaders;
mod leaks;
pub mod matrix;
mod member_state;
pub mod metadata_matrix;
mod metadata_processes;
mod more_volumes;
mod moving;
mod moving_lock_server;
mod nodes;
mod object_requests;
pub mod object_workload;
mod objects;
mod one_fault_at_a_time;
pub mod options;
mod ownership_history;
mod permanent_failures;
mod prelude;
mod range_checks;
mod range_programs;
mod ranges;
mod reconnects;
mod record_damage;
mod replies;
pub mod report;
mod role;
mod scenario_time;
mod sites;
mod sniffer;
mod surveyor;
mod suspensions;
pub mod swarm;
mod take_overs;
mod undecided_requests;
mod volumes;
pub mod workload;

pub use cluster::{Cluster, Failed, HostSlot};
pub use file_options::ShardOptions;
pub use file_records::{FileSystem, FileSystemShard};
pub use moving_lock_server::MovingLockServer;
pub use options::{Choices, Kind, Options};
pub use report::{Failure, Report};
pub use role::Role;
pub use swarm::run;
