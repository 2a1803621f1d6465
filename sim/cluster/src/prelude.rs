//! What many modules of the simulator use of other crates.

pub use braid_base::limits::Settings;
pub use braid_base::{
    BLOCK_BYTES, BlockRange, DeviceId, DiskId, Epoch, FileSystemId, Generation, InodeId, LockServerId, MemberState,
    Membership, NodeId, Now, ObjectId, Rng, Time, VolumeId,
};
pub use braid_control_protocol::HoldingHost;
pub use braid_description::Subject;
pub use braid_device::{Device, Service};
pub use braid_host::Host;
pub use braid_layout::{Layout, RaidLevel, SitePolicy, VolumeDescription};
pub use braid_machine::{
    ArrayRequest, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, JobRequest, MountRequest, OpId,
    Patience, VolumeRequest,
};
pub use braid_membership::Monitor;
pub use braid_metadata::NodeState;
pub use braid_ordering::{Atomicity, Ordering};
pub use braid_wire::{Administration, AttributeName, FileResult, ObjectCommand, OwnershipRequest, Task};
pub use braid_world::{Disk, Fault, FaultKind, LocalClock, Trace, World, WorldEvent};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt;
pub use std::rc::Rc;
pub use std::time::Duration;
