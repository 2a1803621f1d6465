//! The embedded control plane: what an array is, and who is using it, durable in the array's folder.
//!
//! ```text
//!   array.json            the description: devices, volumes, how it was created     changed by compare-and-swap
//!   generations           the last host generation given out                        only ever rises
//!   hosts/17.json         the lease of host 17                                      removed at a clean end
//!   hosts/17.heartbeat    when host 17 renewed it last, and what it reports         written by host 17 alone, without the lock
//!   lockd0.state          what lock server 0 must not forget
//!   monitor.state         what the monitor must not forget: who is in the array
//!   monitor.json          where the monitor listens, and what it says of the devices       not durable
//!   events.jsonl          what has happened, for people and for programs that follow it           bounded
//!   scrubs/1.json         how far a scrub of volume 1 is, and what it has found                      not durable
//!   run.json              what `braid up` has started: processes and addresses      not durable, one run's
//!   lock, up.lock         held while something changes; held while `braid up` runs
//!   reserve               room on the file system, kept back for the others         given up when the disk is full
//! ```
//!
//! What is asked of it is what a key-value store with compare-and-swap and leases can do as well, so that another
//! control plane can stand behind the same calls: read and [update](ArrayFolder::update) the description,
//! [take a generation](ArrayFolder::take_generation), renew and release its lease, list
//! [hosts](ArrayFolder::hosts), and say [whom to fence](ArrayFolder::expire).
//!
//! Each file is replaced as a whole (a temporary file, sync, rename, sync of the folder): a crash leaves the old one or
//! the new one. A file that can't be read is never written over.

mod description;
mod error;
mod events;
mod file;
mod folder;
mod hosts;
mod judge;
mod leases;
mod moment;
mod monitor;
mod recovery;
mod reserve;
mod run;
mod scrubs;

pub use description::{
    ArrayDescription, Change, Creation, DeviceEntry, DeviceState, DiskEntry, PlacementEntry, VolumeEntry, VolumeState,
    lock_server_file, parse_array_id, parse_disk,
};
pub use error::ControlError;
pub use events::{Event, EventCursor, EventKind};
pub use folder::{ArrayFolder, Supervision};
pub use hosts::{Ending, Expired, Fence, HostEntry, LeaseReport, LockService, RecoveryReport};
pub use judge::LeaseJudge;
pub use leases::{LEASE_MILLIS_MAX, LEASE_MILLIS_MIN, Leases};
pub use moment::Moment;
pub use monitor::{
    DeviceReport, HealingReport, MonitorEntry, MonitorReport, ReportedState, SpareReport, ThrottleReport, monitor_file,
};
pub use run::{Endpoint, RunningDaemon, RunningSet};
pub use scrubs::{ByteRange, RANGES_MAX, ScrubFindings, ScrubRecord, merged};
