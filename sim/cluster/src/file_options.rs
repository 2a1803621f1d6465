//! File systems in swarm runs: which runs have one, and of which kind.

use crate::options::{Choices, Options};
use crate::volumes::MoreVolume;
use braid_base::Rng;
use braid_layout::{Layout, RaidLevel};
use braid_metadata::{Grouping, Protocol};
use braid_namespace::Placement;
use braid_ordering::{Atomicity, Ordering};
use braid_world::FaultKind;
use std::time::Duration;

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

    /// Several in some seeds; if the choices name them, in all.
    fn draw(mut rng: Rng, choices: &Choices) -> ShardOptions {
        let kind = FaultKind::Shards;
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let drawn = rng.below(SHARDED_ONE_IN) == 0;
        if !choices.kinds().contains(&kind) || !(named || drawn) {
            return ShardOptions::ONE;
        }
        ShardOptions {
            count: [2, 2, 3][rng.below(3) as usize],
            placement: [Placement::Parent, Placement::Spread, Placement::Spread][rng.below(3) as usize],
            protocol: Protocol::ALL[rng.below(Protocol::ALL.len() as u64) as usize],
            grouping: Grouping::ALL[rng.below(Grouping::ALL.len() as u64) as usize],
        }
    }
}

/// One run of so many has a file system.
const ONE_IN: u64 = 8;
/// One file system of so many has several shards.
const SHARDED_ONE_IN: u64 = 2;
/// Blocks of 4 KiB for the bytes of files: enough for some hosts, or soon full.
const BLOCKS: [u64; 3] = [600, 4_096, 4_096];
/// A device has room for a copy of the metadata, and its part of the bytes.
const DEVICE_BYTES: u64 = 64 << 20;
/// The check of a history must end: its search takes long if there are many operations of unknown outcome.
const OPERATIONS: std::ops::RangeInclusive<u64> = 150..=450;
/// The longest think time of a process, in milliseconds: operations are spread over the faults.
const THINK_MAX: [u64; 3] = [5, 50, 300];
/// Hosts that have the file system mounted.
const HOSTS: std::ops::RangeInclusive<u64> = 2..=4;

impl Options {
    /// Gives some seeds a file system; if the choices name it, all seeds in which there can be one.
    pub(crate) fn with_files(mut self, choices: &Choices) -> Options {
        let kind = FaultKind::Files;
        let named = [kind, FaultKind::Shards].iter().any(|it| choices.only.contains(it) || choices.also.contains(it));
        // A metadata server needs complete writes. In calm runs no host is fenced.
        let may = (choices.kinds().contains(&kind) || choices.only.contains(&FaultKind::Shards))
            && self.atomicity == Atomicity::Implied
            && !self.faults.has(FaultKind::Calm);
        // What the volume or the devices are used for besides is left to other runs.
        let is_plain = !self.moves
            && self.objects.is_none()
            && self.attribute_volume.is_none()
            && self.more_volumes.is_empty()
            && self.dying.is_empty()
            && self.damage_degraded.is_none()
            && self.record_damage.is_none();
        let rng = &mut self.source("files");
        let drawn = rng.below(ONE_IN) == 0;
        if !may || !(named || drawn && is_plain) {
            return self;
        }
        if self.layout.redundancy_units() == 0 {
            // A device that dies would take the file system with it.
            let scheme: RaidLevel = "raid5:2+1".parse().expect("a scheme that there is");
            self.layout = Layout::new(scheme, 3, self.layout.unit_blocks()).expect("a ring that is wide enough");
        }
        // A full disk ends a metadata server. Damage is placed for one volume only.
        self.faults.weights.retain(|kind, _| ![FaultKind::FullDisk, FaultKind::Misdirected].contains(kind));
        let devices = self.layout.devices();
        let scheme = if devices >= 3 && rng.chance(3, 4) { "raid5:2+1" } else { "raid1:2" };
        let scheme: RaidLevel = scheme.parse().expect("a scheme that there is");
        let unit_blocks = [1, 4, 16][rng.below(3) as usize];
        let layout = Layout::new(scheme, scheme.width(), unit_blocks).expect("a ring that is wide enough");
        let stripes = BLOCKS[rng.below(3) as usize].div_ceil(layout.stripe_blocks());
        let first = rng.below(devices as u64) as u16;
        let files = FileOptions {
            share: [60, 90, 97][rng.below(3) as usize],
            names: [20, 50, 80][rng.below(3) as usize],
            data: MoreVolume { layout, first, ordering: Ordering::Timestamp, stripes },
            every: Duration::from_millis([400, 2_000, 6_000][rng.below(3) as usize]),
            shards: ShardOptions::draw(self.source("shards"), choices),
        };
        let shards = files.shards.count;
        // Processes of metadata servers are hosts, too.
        if self.disconnects.is_some() {
            self.settings.hosts_max += 4 * usize::from(shards);
        }
        // What hosts read and write for files has no time-out. A short one would show that.
        if rng.chance(1, 2) {
            let short = self.deadlocks().max(Duration::from_secs(1));
            self.settings.request_timeout = self.settings.request_timeout.min(short);
        }
        // One host uses the volume alone.
        let hosts = 1 + rng.between(*HOSTS.start(), *HOSTS.end()) as usize;
        Options {
            files: Some(files),
            hosts,
            clients: self.clients.min(3),
            operations: rng.between(*OPERATIONS.start(), *OPERATIONS.end()),
            think_max: Duration::from_millis(THINK_MAX[rng.below(3) as usize]),
            stripes: self.stripes.min(2),
            device_bytes: self.device_bytes.max(DEVICE_BYTES * u64::from(shards)),
            chunks: None,
            journal_bytes: None,
            moves: false,
            objects: None,
            attribute_volume: None,
            more_volumes: Vec::new(),
            dying: Vec::new(),
            damage_degraded: None,
            record_damage: None,
            ..self
        }
    }
}
