//! File systems of a cluster: their two volumes, their metadata servers, and hosts that have them mounted.

use crate::cluster::{ARRAY, Cluster, HostSlot, Record};
use crate::drawn_volume::MoreVolume;
use crate::file_options::ShardOptions;
use crate::file_records::{FileCall, FileSystem, FileSystemShard};
use crate::prelude::*;
use crate::role::Role;
use crate::{hosts, volumes};
use braid_base::ShardId;
use braid_check::FileOperation;
use braid_files::{FileClient, FileClientConfig};
use braid_metadata::{MetadataNode, MetadataServerConfig, Purpose, VOLUME_BYTES_MIN};
use braid_namespace::{Parameters, Shards};
use braid_wire::Owner;

/// The only real file system of a cluster; its further shards have the numbers behind. Those of lower numbers are imaginary ([`crate::take_overs`]).
const FILE_SYSTEM: FileSystemId = FileSystemId(64);

impl FileSystem {
    /// Makes a file system with such shards on new volumes: its metadata in two copies, its bytes on `layout`. No metadata server runs yet.
    pub fn make(
        cluster: &mut Cluster,
        by: HostSlot,
        (layout, stripes): (Layout, u64),
        shards: ShardOptions,
    ) -> Result<FileSystem, HostError> {
        let ordering = Ordering::Timestamp;
        FileSystem::make_on(cluster, by, &MoreVolume { layout, first: 0, ordering, stripes }, shards)
    }

    /// The same, with its bytes on such a volume.
    pub(crate) fn make_on(
        cluster: &mut Cluster,
        by: HostSlot,
        data: &MoreVolume,
        options: ShardOptions,
    ) -> Result<FileSystem, HostError> {
        let of_two = Layout::new("raid1:2".parse().expect("a level"), 2, 256).expect("a layout on two devices");
        let mirrored = VOLUME_BYTES_MIN.div_ceil(of_two.stripe_blocks() * BLOCK_BYTES as u64);
        let ordering = Ordering::Timestamp;
        let mut shards = Vec::new();
        for number in 0..u16::from(options.count) {
            let first = number % cluster.devices().len() as u16;
            volumes::make_volume(cluster, by, &MoreVolume { layout: of_two, first, ordering, stripes: mirrored })?;
            let metadata = cluster.others.last().expect("it was made").clone();
            shards.push(FileSystemShard { id: FileSystemId(FILE_SYSTEM.0 + number), metadata });
        }
        volumes::make_volume(cluster, by, data)?;
        let data = cluster.others.last().expect("it was made").clone();
        for FileSystemShard { id, metadata } in &shards {
            let nonce = cluster.rng.next_u64();
            let writes = braid_metadata::format(ARRAY, *id, metadata.bytes, nonce).expect("it is large enough");
            for (offset, data) in writes {
                let write = VolumeRequest::Write { volume: metadata.id, offset, data, patience: Patience::Host };
                cluster.perform(by, write)?;
            }
        }
        Ok(FileSystem { id: FILE_SYSTEM, shards, options, data })
    }

    /// Starts a process for the metadata server of a shard, which takes over from the one before. What hosts send to the metadata server
    /// reaches the new process.
    pub fn start_server(&self, cluster: &mut Cluster, shard: usize) -> HostSlot {
        let role = self.process_role(cluster, shard, Purpose::Serves);
        let slot = hosts::add_host_in(cluster, role);
        cluster.world.set_service(self.service(shard), cluster.node(slot));
        slot
    }

    /// Starts a process that takes over the file system to check it.
    pub fn start_check(&self, cluster: &mut Cluster) -> HostSlot {
        let role = self.process_role(cluster, 0, Purpose::Checks);
        hosts::add_host_in(cluster, role)
    }

    /// A process that owns the file system ends its server, and releases the file system.
    pub fn release(&self, cluster: &mut Cluster, slot: HostSlot) -> HostOutcome {
        let Some(Role::Metadata(node)) = cluster.world.machine(cluster.node(slot)) else { panic!("it is down") };
        let since = node.owns_since().expect("it owns the file system");
        let request = OwnershipRequest::Release { since };
        cluster.perform(slot, ArrayRequest::Ownership { file_system: self.id, request })
    }

    /// The machine of a process that owns a shard for this purpose, around the next host.
    pub(crate) fn process_role(
        &self,
        cluster: &Cluster,
        shard: usize,
        purpose: Purpose,
    ) -> impl FnOnce(HoldingHost<Host>, Generation) -> Role + use<> {
        let FileSystem { options, data, .. } = self;
        let FileSystemShard { id, metadata } = self.shards[shard].clone();
        let config = MetadataServerConfig {
            array: ARRAY,
            file_system: id,
            generation: Generation(0),
            start: Generation(0),
            volume_bytes: metadata.bytes,
            peers: self.names(),
            commit_protocol: options.protocol,
            grouping: options.grouping,
            parameters: Parameters {
                blocks: data.bytes / BLOCK_BYTES as u64,
                stripe_blocks: data.layout.stripe_blocks(),
                hash_key: [11; 16],
                hash_bits: Parameters::HASH_BITS_MAX,
                shards: Shards { own: ShardId(shard as u8), count: options.count, placement: options.placement },
            },
            root: Owner::default(),
            serve_from: Time(0),
            settings: cluster.options.settings.clone(),
        };
        move |host, generation| {
            let config = MetadataServerConfig { generation, start: generation, ..config };
            let node = MetadataNode::new(host, metadata.id, config);
            Role::Metadata(Box::new(match purpose {
                Purpose::Serves => node,
                Purpose::Checks => node.for_check(),
                Purpose::Collects { most } => node.for_export(most),
            }))
        }
    }

    /// Adds a host that has the file system mounted.
    pub fn add_host(&self, cluster: &mut Cluster) -> HostSlot {
        let role = self.host_role(cluster);
        hosts::add_host_in(cluster, role)
    }

    /// The machine of a host that has the file system mounted, around the next host.
    pub(crate) fn host_role(&self, cluster: &Cluster) -> impl FnOnce(HoldingHost<Host>, Generation) -> Role + use<> {
        let FileSystem { id, data, .. } = self;
        let config = FileClientConfig {
            file_system: *id,
            shards: self.names(),
            host: Generation(0),
            volume: data.id,
            stripe_bytes: data.layout.stripe_blocks() as usize * BLOCK_BYTES,
            settings: cluster.options.settings.clone(),
        };
        move |host, own| Role::FileHost(Box::new(FileClient::new(host, FileClientConfig { host: own, ..config })))
    }

    /// Begins an operation.
    pub fn ask(&self, cluster: &mut Cluster, slot: HostSlot, request: FilesRequest) -> OpId {
        cluster.ask(slot, MountRequest::Files { file_system: self.id, request })
    }
}

/// A process issues an operation on files.
pub(crate) fn file_operation(
    cluster: &mut Cluster,
    slot: HostSlot,
    client: usize,
    (request, action): FileCall,
) -> OpId {
    let (now, node, file_system) = (cluster.world.now(), cluster.node(slot), cluster.files.mounted().id);
    let id = cluster.files.begin(now, (node, client), &action);
    cluster.begin(slot, client, MountRequest::Files { file_system, request }, Record::Files(id))
}

/// The operation on files that a request was, once it is answered.
pub(crate) fn file_operation_of<'c>(cluster: &'c Cluster, record: &Record) -> Option<&'c FileOperation> {
    match record {
        Record::Files(id) => Some(cluster.files.history.operation(*id)),
        _ => None,
    }
}
