//! What operations on file systems are about: the record of a file system, and the leases of its metadata servers.
//!
//! A metadata server of a file system, or of one of its shards, is a host that owns it. Its lease says what it does. The process that owned
//! a shard last has the highest generation among those whose leases name the shard.

use braid_base::{FileSystemId, Generation, VolumeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemRecord {
    /// The number of each of its shards.
    pub servers: Vec<FileSystemId>,
    /// Those of its volumes that there are, in the order of their creation.
    pub volumes: Vec<VolumeId>,
    pub state: FileSystemState,
}

/// The life cycle of a file system.
///
/// ```text
///   Creating ──► Ready ──► Deleting ──► no record        Creating ──► Deleting
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemState {
    /// Volumes may be missing, or not formatted. This administrator creates it.
    Creating { by: Generation },
    /// It is served.
    Ready,
    /// No process begins to serve it; volumes may be gone.
    Deleting,
}

/// The lease of a metadata server, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLease {
    pub host: Generation,
    /// The shard that it owns.
    pub file_system: FileSystemId,
    /// It has renewed its lease in time, and its process runs.
    pub is_live: bool,
    /// It answers hosts.
    pub serves: bool,
    /// It begins no further operations on several shards, and none is under way.
    pub quiescent: bool,
}

/// What a check of a file system tells its metadata servers, by a lease of its own for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Announcement {
    /// They are to quiesce.
    Quiesce,
    /// They are to release their shards, until the check is over.
    Check,
}

/// The lease of the process that owned a shard last, among leases in the order of their generations.
pub fn latest_server(leases: &[ServerLease], shard: FileSystemId) -> Option<&ServerLease> {
    leases.iter().rev().find(|lease| lease.file_system == shard)
}
