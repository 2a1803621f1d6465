//! The outcomes of requests to a host.

use crate::{FilesSuccess, HostError};
use braid_base::{DeviceId, Membership, Ownership};
use braid_wire::{CommandResult, LockSurvey, Managed};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The outcome of a request.
pub type HostOutcome = Result<HostSuccess, HostError>;

/// The result of a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSuccess {
    /// The bytes read, as buffers that together are as long as asked for.
    Data(Vec<Bytes>),
    /// The request is done, without a result.
    Done,
    /// Runs of blocks from the start of the range on: their lengths, and whether they have content.
    Allocation(Vec<(u64, bool)>),
    /// Whether the redundancy matches, or an interrupted hostwrite is whole.
    Checked {
        /// True if it does.
        matches: bool,
    },
    /// The result of the device's task.
    Managed(Managed),
    Scrubbed(ScrubReport),
    Migrated(MigrationReport),
    Objects(Vec<CommandResult>),
    /// The value of an attribute.
    Value(Bytes),
    /// The ownership of the file system, after the change that was requested.
    Ownership(Ownership),
    /// The membership, as the monitor knows it.
    Membership(Membership),
    Files(FilesSuccess),
    /// The ranges are locked, under this number. `kept`: if a lock was promoted or demoted, no other program had it in between.
    RangeLocked {
        lock: u64,
        kept: bool,
    },
    /// Some of the locks of a lock server.
    LocksSurveyed(LockSurvey),
}

/// How far a migration has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationReport {
    /// All blocks of the volume before this one were copied: the volume's end, unless the migration was stopped.
    pub copied_to: u64,
    /// How many blocks were copied. The others have no content.
    pub copied: u64,
    /// How many blocks can't be read at the old location, and were therefore not copied.
    pub lost: u64,
    /// The first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX) of these, as blocks of the volume.
    pub lost_blocks: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Rows that were compared.
    pub rows: u64,
    /// Blocks that were lost, and those of each device among them.
    pub lost: u64,
    pub lost_of: BTreeMap<DeviceId, u64>,
    /// Lost blocks that were written again.
    pub repaired: u64,
    /// Rows in which too much is lost to reconstruct it.
    pub unrepairable: u64,
    /// How often redundancy did not match the data.
    pub mismatched: u64,
    /// How often redundancy was recomputed.
    pub recomputed: u64,
    /// Stripes, or parts of stripes, that could not be compared.
    pub skipped: u64,
    /// What was not repaired: the first [`limits::LOST_RUNS_MAX`](braid_base::limits::LOST_RUNS_MAX) findings.
    pub findings: Vec<Finding>,
}

/// A defect of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub found: Found,
    /// The first byte of the volume.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

/// The kinds of defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes are lost.
    Lost,
    /// The redundancy of the stripe of these bytes does not match.
    Mismatch,
}
