//! What many modules of the checkers use of other crates.

pub use braid_base::{BLOCK_BYTES, DeviceId, InodeId, ObjectId, Rng, Time};
pub use braid_objects::Key;
pub use braid_wire::{
    ActionResult, AttributeName, CommandResult, FileAttributes, FileCommand, FileError, FileResult, FileType, NewInode,
    ObjectCommand,
};
pub use bytes::Bytes;
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt;
