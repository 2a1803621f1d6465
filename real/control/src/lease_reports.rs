//! What hosts report with their leases.

use crate::{ByteRange, Origin, Process};
use braid_base::{Generation, quoting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A host that has a lease, live or expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    pub generation: Generation,
    pub process: Process,
    /// Its role, for display.
    pub role: String,
    /// True if it has renewed its lease within the length given by the caller.
    pub live: bool,
    /// True if its lease is over: it is about to be fenced, or it is.
    pub is_over: bool,
    /// True if it has renewed its lease since it took it.
    pub is_renewed: bool,
    /// The time since it last renewed its lease; none if that was in another boot.
    pub silent: Option<Duration>,
    /// The report that it published with its last renewal.
    pub report: LeaseReport,
}

impl HostEntry {
    /// True if it lives, as far as can be said: its lease does, and its process is not known to have ended. One that was killed may still
    /// have a lease.
    pub fn is_alive(&self) -> bool {
        self.live && !self.process.has_ended()
    }

    /// True if its process runs elsewhere: on another machine, or in another container.
    pub fn is_elsewhere(&self) -> bool {
        self.process.is_elsewhere()
    }

    /// True if it goes on as far as is known: it is live, or its lease is not over and its process is not known to have ended. A host that
    /// can't write its renewals goes on, and so does one that is suspended for a while. This is for those who must not act meanwhile.
    pub fn goes_on(&self) -> bool {
        self.live || (!self.is_over && self.silent.is_some() && !self.process.has_ended())
    }
}

/// The hosts that serve others, as far as their leases show, in the same order: those that are live. If nobody has renewed a lease lately,
/// nobody can: the folder can't be written. Then servers are where they were.
pub fn serving(hosts: &[HostEntry]) -> impl Iterator<Item = &HostEntry> {
    let can_renew = hosts.iter().any(|host| host.live && host.is_renewed);
    hosts.iter().filter(move |host| host.live || (!can_renew && !host.is_over && !host.process.is_of_original()))
}

/// What a host reports with each renewal of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReport {
    /// Its metrics, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// The newest revision of the description that it has applied: it has no operation under way on volumes that are on hold there.
    #[serde(default)]
    pub revision: u64,
    /// The resynchronisation that it coordinates, if any.
    #[serde(default, alias = "helps", skip_serializing_if = "Option::is_none")]
    pub coordinates_recovery: Option<RecoveryReport>,
    /// The requests that wait because something is missing, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingReport>,
    /// The number and address, if it is a lock server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_server: Option<LockService>,
    /// The file system and the address, if it is a metadata server that owns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_server: Option<MetadataService>,
    /// The volumes that it serves by NBD, if it is such a server; empty: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<Vec<String>>,
    /// Spaces of which its programs lock ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<String>,
    /// Where a file system is mounted, if it is the host of a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountReport>,
    /// The name of its machine. The folder writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Which process it is. The folder writes it, and hands it out in [`HostEntry::process`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Progress of a host that resynchronises a returning device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReport {
    pub device: u16,
    /// Bytes of volumes that are still to be examined; none while that is being determined.
    pub left: Option<u64>,
    /// Ranges that can't be restored, by volume, as far as known; the first ranges of each volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<u64, Vec<ByteRange>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockService {
    pub id: u16,
    /// Its address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
}

/// A metadata server that owns its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataService {
    pub file_system: u16,
    /// Its address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// True if it answers hosts; otherwise it still reads its journal, or waits for the lease of the owner before.
    #[serde(default)]
    pub serves: bool,
    /// True if it begins no further operations because a check is to begin, and none among several shards is under way here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// The generations of the hosts that it has heard of lately, or that may hold locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<u32>,
    /// True if there are more hosts than fit into the report, so that it lists none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts_cut: bool,
    /// The locks of these hosts, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockCounts {
    pub held: u64,
    /// Those that it waits for.
    pub waiting: u64,
}

/// The requests of a host that wait because something is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingReport {
    /// How many they are.
    pub requests: u64,
    /// How long the oldest has waited, in milliseconds.
    pub longest_millis: u64,
    /// The devices that they need and that are missing; empty if they wait for something else.
    pub devices: Vec<u16>,
}

/// A file system that is mounted in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    pub file_system: u16,
    /// The directory, without symbolic links. Bytes that are not UTF-8 are U+FFFD.
    pub directory: String,
    /// All its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<String>,
}

impl MountReport {
    /// That a file system of this number is mounted there.
    pub fn of(file_system: u16, directory: &Path) -> MountReport {
        let digits = || quoting::digits(directory.as_os_str().as_encoded_bytes());
        let directory_bytes = directory.to_str().is_none().then(digits);
        MountReport { file_system, directory: directory.to_string_lossy().into_owned(), directory_bytes }
    }
}
