//! Runs in which hosts have a file system mounted, which processes use.

use crate::activity::{Activity, Draw, Feature, Run};
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation};
use crate::drawn_volume::MoreVolume;
use crate::file_checks::{check_files, release_advisory_locks};
use crate::file_options::{FileOptions, ShardOptions};
use crate::file_records::FileSystem;
use crate::file_workload::FileWorkload;
use crate::files;
use crate::options::{Choices, Options};
use crate::prelude::*;

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

/// Hosts have a file system mounted.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub options: FileOptions,
    workload: FileWorkload,
    /// Decides which operations are on files.
    rng: Rng,
}

impl Files {
    pub(crate) fn new(options: FileOptions, events: Rng, share: Rng) -> Files {
        Files { workload: FileWorkload::new(&options, events), options, rng: share }
    }
}

/// What the volume or the devices are used for besides is left to other runs.
const OTHERS: [&str; 6] = ["objects", "attribute-volumes", "volumes", "dead", "damage-degraded", "record-damage"];

impl Feature for Files {
    const NAME: &'static str = "files";
    const KINDS: &'static [&'static str] = &["files", "shards"];
    // In calm runs no host is fenced.
    const NOT_WITH: &'static [&'static str] = &["calm"];
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Files> {
        let is_plain = !options.activities.has_any(&OTHERS);
        let drawn = draw.rng.below(ONE_IN) == 0;
        if !draw.may || !(draw.is_named || drawn && is_plain) {
            return None;
        }
        options.activities.remove(&OTHERS);
        if options.layout.redundancy_units() == 0 {
            // A device that dies would take the file system with it.
            options.set_redundant_layout(2);
        }
        // A full disk ends a metadata server. Damage is placed for one volume only.
        options.without_faults(&[FaultKind::FullDisk, FaultKind::Misdirected]);
        let (devices, rng) = (options.layout.devices(), &mut draw.rng);
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
            shards: draw_shards(options.source("shards"), draw.choices),
        };
        let shards = files.shards.count;
        // Processes of metadata servers are hosts, too.
        if options.activities.has("disconnect") {
            options.settings.hosts_max += 4 * usize::from(shards);
        }
        // What hosts read and write for files has no time-out. A short one would show that.
        if rng.chance(1, 2) {
            let short = options.deadlocks().max(Duration::from_secs(1));
            options.settings.request_timeout = options.settings.request_timeout.min(short);
        }
        // One host uses the volume alone.
        options.hosts = 1 + rng.between(*HOSTS.start(), *HOSTS.end()) as usize;
        options.clients = options.clients.min(3);
        options.operations = rng.between(*OPERATIONS.start(), *OPERATIONS.end());
        options.think_max = Duration::from_millis(THINK_MAX[rng.below(3) as usize]);
        options.stripes = options.stripes.min(2);
        // A volume that moves is in two places.
        let places = u64::from(shards) + u64::from(options.activities.has("migrate"));
        options.device_bytes = options.device_bytes.max(DEVICE_BYTES * places);
        (options.chunks, options.journal_bytes) = (None, None);
        let source = options.source(Files::NAME);
        Some(Files::new(files, source.named("events"), source.named("share")))
    }
}

impl Activity for Files {
    fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        let system = FileSystem::make_on(cluster, first, &self.options.data, self.options.shards);
        let system = system.expect("empty devices have room");
        for _ in 1..cluster.options.hosts {
            let slot = system.add_host(cluster);
            cluster.files.hosts.insert(slot);
        }
        for shard in 0..system.shards.len() {
            let server = system.start_server(cluster, shard);
            // The second slot is for a process that takes over from one that is alive.
            cluster.hosts.push(NodeId::Host(Generation(0)));
            cluster.files.servers.push([server, HostSlot(cluster.hosts.len() - 1)]);
        }
        cluster.files.system = Some(system);
    }

    fn layouts(&self) -> Vec<Layout> {
        vec![self.options.data.layout]
    }

    /// A process of a host that has the file system mounted issues an operation on files, in most cases.
    fn operate(&mut self, run: &mut Run, _rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let files = &run.cluster.files;
        if !files.hosts.contains(&slot) || !self.rng.chance(self.options.share, 100) {
            return false;
        }
        let node = run.cluster.node(slot);
        let call = self.workload.operation(client, &files.open_files(node, client), &files.held_locks(node, client));
        if let FilesRequest::Close { handle } = call.0 {
            run.cluster.files.forget_handle(node, client, handle);
        }
        files::file_operation(&mut run.cluster, slot, client, call);
        true
    }

    fn learn(&mut self, cluster: &Cluster, answered: &PendingOperation) {
        if let Some(operation) = files::file_operation_of(cluster, &answered.record) {
            self.workload.learn(operation);
        }
    }

    fn drain(&mut self, run: &mut Run) {
        release_advisory_locks(&mut run.cluster);
    }

    fn finish(&mut self, run: &mut Run) -> Result<(), Failed> {
        check_files(run)
    }
}

impl Options {
    /// The file system of the run, if it has one.
    pub fn files(&self) -> Option<&FileOptions> {
        self.activity::<Files>().map(|files| &files.options)
    }
}

/// Several in some seeds; if the choices name them, in all.
fn draw_shards(mut rng: Rng, choices: &Choices) -> ShardOptions {
    let drawn = rng.below(SHARDED_ONE_IN) == 0;
    if !choices.may("shards") || !(choices.names("shards") || drawn) {
        return ShardOptions::ONE;
    }
    ShardOptions::draw(&mut rng)
}
