//! The daemons of an array. Nothing here prints, or parses arguments.
//!
//! | module | what |
//! | --- | --- |
//! | [`device`] | the device daemon |
//! | [`lockd`] | the lock server daemon: its state, its lease |
//! | [`mds`] | the metadata server daemon: owns a file system, and serves it |
//! | [`mount`] | the daemon of a mount: a host that serves a file system in a directory |
//! | [`mounts`] | the mounts of this machine: starting their daemons, unmounting |
//! | [`monitord`] | the monitor daemon: its state, the volumes that it must know |
//! | [`candidate`] | the monitor of an array on several machines |
//! | [`front_end`] | an NBD server and the host behind it |
//! | [`exports`] | the volumes that the NBD server exports |
//! | [`supervisor`] | keeps the monitor, devices, servers and nodes running, each in a process or a task |
//! | [`node`] | some devices, a host and its NBD server in one process |
//! | [`up`] | a whole array on this machine: what `braid up` runs |
//! | [`daemon`] | the common parts of devices, lock servers and the monitor |
//! | [`membership_events`] | derives events and rates from successive reports of the monitor |
//! | [`recording`] | recordings of daemons, and their replay |
//! | [`published_metrics`] | devices and servers whose state other tasks can read while they run |

#[cfg(feature = "cluster")]
pub mod candidate;
#[cfg(not(feature = "cluster"))]
#[path = "no_candidate.rs"]
pub mod candidate;
pub mod daemon;
pub mod device;
pub mod exports;
pub mod front_end;
pub mod lockd;
pub mod mds;
pub mod membership_events;
pub mod monitord;
pub mod mount;
pub mod mounts;
pub mod node;
pub mod published_metrics;
pub mod recording;
pub mod supervisor;
pub mod up;
