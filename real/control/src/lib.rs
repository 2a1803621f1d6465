//! The embedded control plane: a folder of files that durably holds an array's description, its host generations and its host leases.
//!
//! ```text
//!   array.json            the description: devices, volumes, how it was created     changed by compare-and-swap
//!   generations           the last host generation given out                        only ever rises
//!   hosts/17.json         the lease of host 17                                      removed when the host disconnects
//!   hosts/17.renewals     when host 17 last renewed its lease, and its report       written by host 17 alone, without the lock
//!   hosts/17.end          host 17 is asked to end                                   for processes that can't be signalled
//!   lockd0.state          durable state of lock server 0
//!   monitor.state         durable state of the monitor: the membership
//!   monitor.json          the monitor's address and its report on the devices       not durable
//!   events.jsonl          log of events, for operators and tools                    bounded
//!   scrubs/1.json         progress and findings of the last scrub of volume 1       not durable
//!   run.json              processes and addresses started by `braid up`             not durable, of one run
//!   lock, up.lock         held while a file changes; held while `braid up` runs
//!   roles.json            roles that hosts have had                                for fencing by name
//!   reserve               file system space reserved for the other files            released when the disk is full
//! ```
//!
//! Processes use it through [`ControlPlane`]. That asks only for what a key-value store with compare-and-swap and leases offers, so that
//! another control plane can answer the same calls: read the description and [replace](ControlPlane::replace) it after a version,
//! [take a generation](HostLeases::take_generation), renew and release its lease, list the [hosts](HostLeases::hosts), and end
//! [expired leases](HostLeases::expire), which returns the generations to fence. What only a folder of this machine has is in
//! [`LocalFolder`]: its path, sockets and locks, the processes of the array that run here, and the restoration of lost files.
//!
//! An array on several machines has these calls from the leading monitor ([`Cluster`]). The folder of a machine then has `cluster.json` in
//! place of the description and the leases.
//!
//! Each file is replaced as a whole (write a temporary file, sync it, rename it, sync the folder): a crash leaves either the old
//! or the new content. A file that can't be read is never overwritten. Only the array's owner can read the files, and a folder that others
//! can change is refused (`trust`). The names of files are in `paths`.

mod changes;
mod cluster;
mod control_plane;
mod description_file;
mod error;
mod event_log;
pub mod event_texts;
mod file;
mod folder;
mod folder_changes;
mod host_leases;
mod lease_reports;
mod lost_files;
mod moment;
mod monitor;
mod paths;
mod private_files;
mod process;
mod renewals;
mod reserve;
mod roles;
mod run;
mod scrubs;
mod shell_word;
mod supervision;
mod trust;

pub use braid_description::{
    ArrayDescription, Change, Creation, DeviceEntry, DeviceState, DiskEntry, FileSystemEntry, FileSystemState,
    PlacementEntry, ShardsEntry, VolumeEntry, VolumeState, WhenUnavailable, parse_array_id, parse_disk,
};
pub use braid_host_leases::{LEASE_MILLIS_MAX, LEASE_MILLIS_MIN, Leases};
pub use braid_registrar::MachineEntry;
pub use changes::removed;
pub use cluster::{AGENT, Cluster, ClusterFile, HOLDER, Live, MonitorRole, MonitorSays, SCHEMA as CLUSTER_SCHEMA};
pub use control_plane::{ControlPlane, HostLeases, Overview};
pub use description_file::{Stored, new_array_id};
pub use error::{ControlError, LockHolder};
pub use event_log::{Event, EventCursor, EventKind, unix_millis_now, utc_now};
pub use folder::{LocalFolder, Refusal};
pub use folder_changes::until_next;
pub use lease_reports::{
    HostEntry, LeaseReport, LockCounts, LockService, MetadataService, MountReport, RecoveryReport, WaitingReport,
    serving,
};
pub use lost_files::require_kinds;
pub use moment::Moment;
pub use monitor::{
    DeviceReport, FileSystemReport, HealingReport, MonitorEntry, MonitorReport, ReportedState, SpareReport,
    ThrottleReport, UpgradeReport, monitor_file,
};
pub use paths::{CLUSTER, SOCKETS, folder_around, lock_server_file};
pub use private_files::{Distrust, FILE_MODE, FOLDER_MODE, create_private_folder, private_file};
pub use process::{NotTold, Origin, Process};
pub use run::{Endpoint, RunningDaemon, RunningSet};
pub use scrubs::{ByteRange, RANGES_MAX, ScrubFindings, ScrubRecord, merged};
pub use shell_word::shell_word;
pub use supervision::{Original, Supervision, killed_supervisor};
pub use trust::LooseMode;
