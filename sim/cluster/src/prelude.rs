//! What many modules of the simulator use of other crates.

pub use braid_base::{
    BLOCK_BYTES, DeviceId, DiskId, Epoch, FileSystemId, Generation, LockServerId, MemberState, Membership, NodeId,
    ObjectId, Rng, Time, VolumeId,
};
pub use braid_host::Host;
pub use braid_layout::{Layout, RaidLevel, VolumeDescription};
pub use braid_machine::{
    ArrayRequest, FilesRequest, HostError, HostOutcome, HostSuccess, JobRequest, OpId, Patience, VolumeRequest,
};
pub use braid_ordering::Atomicity;
pub use braid_world::{Fault, FaultKind, LocalClock, World, WorldEvent};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt;
pub use std::time::Duration;
