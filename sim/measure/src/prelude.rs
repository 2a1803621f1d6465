//! What many modules of the models use of other crates.

pub use braid_base::{BLOCK_BYTES, DeviceId, Generation, Membership, NodeId, Now, ObjectId, Rng, Time};
pub use braid_device::Device;
pub use braid_host::Host;
pub use braid_machine::{DiskCommand, DiskTag, Effects, HostOutcome, OpId};
pub use braid_ordering::Ordering;
pub use braid_wire::{LockReply, ObjectDescription};
pub use braid_world::LocalClock;
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, VecDeque};
pub use std::time::Duration;
