//! The room for names and inodes in the metadata volumes of a file system: what its metadata servers say with their leases. When it is used
//! up, no file can be created, though there may be free space for bytes.

use crate::file_systems::latest_server;
use braid_base::{BLOCK_BYTES, FileSystemId};
use braid_control::{ControlPlane, FileSystemEntry, HostEntry, Moment};

/// A name and its inode take at least so many bytes, with what their leaves have free.
const INODE_BYTES_MIN: u64 = 256;
/// The average tells something if there are so many inodes.
const INODES_MANY: u64 = 1024;

/// The room of one metadata server, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataRoom {
    pub used_bytes: u64,
    /// With so many, names are refused.
    pub bytes: u64,
}

impl MetadataRoom {
    /// That of a server, as its lease says. None if it was not told.
    pub fn of_server(hosts: &[HostEntry], id: FileSystemId) -> Option<MetadataRoom> {
        let counters = &latest_server(hosts, id)?.report.counters;
        let bytes = |name: &str| counters.get(name).map(|blocks| blocks * BLOCK_BYTES as u64);
        let (used_bytes, bytes) = bytes("metadata_room_used_blocks").zip(bytes("metadata_room_blocks"))?;
        Some(MetadataRoom { used_bytes, bytes })
    }

    /// That of all servers of a file system.
    pub fn of(hosts: &[HostEntry], entry: &FileSystemEntry) -> Option<MetadataRoom> {
        entry.servers().into_iter().try_fold(MetadataRoom::default(), |sum, id| {
            let room = MetadataRoom::of_server(hosts, id)?;
            Some(MetadataRoom { used_bytes: sum.used_bytes + room.used_bytes, bytes: sum.bytes + room.bytes })
        })
    }

    /// That of a file system of an array.
    pub async fn look_up(control: &ControlPlane, name: &str) -> Option<MetadataRoom> {
        let description = control.describe().await.ok()?;
        let hosts = control.leases().hosts(Moment::now(), description.leases().host()).await.ok()?;
        MetadataRoom::of(&hosts, description.file_system(name)?)
    }

    /// About how many more inodes find room, if the names are like those that are there.
    pub fn free_inodes(&self, inodes: u64) -> u64 {
        let average = if inodes < INODES_MANY { 0 } else { self.used_bytes / inodes };
        self.bytes.saturating_sub(self.used_bytes) / average.max(INODE_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_inodes_end_with_the_room_and_follow_the_length_of_names() {
        let room = |used_bytes| MetadataRoom { used_bytes, bytes: 10 << 20 };
        assert_eq!(room(10 << 20).free_inodes(50_000), 0);
        assert_eq!(room(0).free_inodes(1), (10 << 20) / INODE_BYTES_MIN);
        assert_eq!(room(5 << 20).free_inodes(5_000), (5 << 20) / ((5 << 20) / 5_000));
    }
}
