//! The options of runs in which the ordering of the volume changes, the volume moves, or volumes are created and deleted, while clients use
//! them, and administrators die or are suspended at every step; and of runs with silent hosts.

use crate::prelude::*;

/// How often hosts are silent, and what happens to those that fence them.
#[derive(Clone, Debug)]
pub struct SilenceOptions {
    /// A host may be silent for so many leases.
    pub leases: u32,
    /// Hosts that have ended are fenced after this time, though none was silent.
    pub sweep: Duration,
    /// At so many of a thousand steps, a fencer dies.
    pub deaths: u64,
    /// At so many of a thousand steps, a fencer is suspended.
    pub pauses: u64,
    /// So many of a thousand renewals, and of the questions of fencers, are lost, late or unanswered.
    pub store_faults: u64,
    /// The store can't be written for a while, one of so many times instead of a silent host; 0: never.
    pub outages: u64,
}

/// How often a host changes the volume, and what happens to those that do.
#[derive(Clone, Debug)]
pub struct ChangeOptions {
    pub orderings: bool,
    /// The volume moves.
    pub moves: bool,
    /// The volume grows, too.
    pub grows: bool,
    /// The most bytes of it that a host copies in a second; 0: as many as it can.
    pub copy_rate: u64,
    /// At so many of a thousand steps, an administrator dies.
    pub deaths: u64,
    /// At so many of a thousand steps, an administrator is suspended, up to a few leases.
    pub pauses: u64,
    /// So many of a thousand answers of the store are lost; as many commands are lost, and as many are late. Hosts can't read so many of a
    /// thousand times, nor hear of so many of a thousand steps.
    pub store_faults: u64,
}
