//! The options of file systems in swarm runs.

use crate::drawn_volume::MoreVolume;
use crate::prelude::*;
use braid_metadata::{Grouping, Protocol};
use braid_namespace::Placement;

/// The file system of a run, and its users.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// How many of a hundred operations of clients are on files.
    pub share: u64,
    /// How many of a hundred operations on files are about names and attributes; the others are about bytes and locks.
    pub names: u64,
    /// The volume with the bytes of files.
    pub data: MoreVolume,
    /// The mean time between two faults of metadata servers.
    pub every: Duration,
    pub shards: ShardOptions,
}

/// The shards of a file system, and how operations on several of them are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    pub count: u8,
    pub placement: Placement,
    pub protocol: Protocol,
    pub grouping: Grouping,
}

impl ShardOptions {
    /// One metadata server.
    pub const ONE: ShardOptions =
        ShardOptions { count: 1, placement: Placement::Parent, protocol: Protocol::OnePhase, grouping: Grouping::Log };

    /// Several.
    pub(crate) fn draw(rng: &mut Rng) -> ShardOptions {
        ShardOptions {
            count: [2, 2, 3][rng.below(3) as usize],
            placement: [Placement::Parent, Placement::Spread, Placement::Spread][rng.below(3) as usize],
            protocol: Protocol::ALL[rng.below(Protocol::ALL.len() as u64) as usize],
            grouping: Grouping::ALL[rng.below(Grouping::ALL.len() as u64) as usize],
        }
    }
}
