//! Identifiers of arrays, devices, hosts, file systems, objects, volumes and transactions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How numbers are displayed: behind a letter that says what they identify.
macro_rules! displayed {
    ($($id:ident as $format:literal,)*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    )*};
}

displayed! {
    DeviceId as "d{}",
    DiskId as "{:016x}",
    LockServerId as "l{}",
    FileSystemId as "f{}",
    ShardId as "s{}",
    InodeId as "i{}",
    Generation as "h{}",
    ObjectId as "o{}",
    Epoch as "e{}",
}

/// Identifies an array: sixteen random bytes, chosen when the array is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArrayId(pub [u8; 16]);

impl fmt::Debug for ArrayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ArrayId {
    /// The usual form of a UUID: 8-4-4-4-12 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Identifies a device in its array. The number names a slot, which different disks may fill one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DeviceId(pub u16);

/// Identifies a disk. The number is drawn at random when the disk is formatted, and is never used again. Zero is a disk that was
/// formatted before disks had identifiers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct DiskId(pub u64);

/// Identifies a lock server in its array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LockServerId(pub u16);

/// Identifies a file system in its array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileSystemId(pub u16);

/// Identifies a shard of a file system's namespace: one metadata server at a time owns it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardId(pub u8);

/// Identifies an inode in its file system. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory.
    pub const ROOT: InodeId = InodeId(1);
}

impl InodeId {
    /// The shard of the inode, which is in the upper bits of its number.
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> ShardId::SHIFT) as u8)
    }
}

impl ShardId {
    /// The shard of the root directory, and the only one of a file system with one metadata server.
    pub const FIRST: ShardId = ShardId(0);
    /// The number of a shard is above this bit in the numbers of its inodes.
    pub const SHIFT: u32 = 48;

    /// The number below the first inode of the shard.
    pub fn base(self) -> u64 {
        u64::from(self.0) << ShardId::SHIFT
    }
}

/// Identifies one start of one host process. The control plane issues each generation once, so that it also identifies the host in
/// stamps, requests and linkage records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Generation(pub u32);

/// A participant in the protocols.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum NodeId {
    Host(Generation),
    Device(DeviceId),
    LockServer(LockServerId),
    Monitor,
    /// The metadata server of a file system.
    MetadataServer(FileSystemId),
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeId::Host(generation) => fmt::Display::fmt(generation, f),
            NodeId::Device(device) => fmt::Display::fmt(device, f),
            NodeId::LockServer(server) => fmt::Display::fmt(server, f),
            NodeId::Monitor => f.write_str("monitor"),
            NodeId::MetadataServer(file_system) => fmt::Display::fmt(file_system, f),
        }
    }
}

/// Identifies an object on a device. The components of a volume have the volume's number on every device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectId(pub u64);

/// Identifies a volume. Its component on each device is the object of the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct VolumeId(pub u64);

impl VolumeId {
    /// The object that is the volume's component on each of its devices.
    pub fn object(self) -> ObjectId {
        ObjectId(self.0)
    }
}

/// The number of a [`Membership`](crate::Membership). Requests and answers of any other epoch than the receiver's are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Identifies a storage transaction by the host that began it and a sequence number of that host. A stamp alone would not identify it,
/// because clocks can step back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TransactionId {
    /// The host that began it.
    pub host: Generation,
    /// Counts the transactions of that host, from 1.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.host, self.sequence)
    }
}
