//! What most modules use of other crates.

pub use braid_base::limits::Settings;
pub use braid_base::{
    BLOCK_BYTES, BlockRange, Clock, DeviceId, Epoch, Generation, Level, LockServerId, Membership, NodeId, Now,
    ObjectId, Stamp, Time, TransactionId, VolumeId,
};
pub use braid_machine::{EffectsOf, InputOf, Machine};
pub use braid_ordering::{Atomicity, Ordering};
pub use braid_wire::{Command, Message, MonitorCommand};
pub use braid_world::MemoryDisk;
pub use bytes::Bytes;
