//! File systems of a cluster: their two volumes, their metadata servers, and hosts that have them mounted.

use crate::cluster::{ARRAY, Cluster, HostSlot};
use crate::file_options::{FileOptions, ShardOptions};
use crate::more_volume::MoreVolume;
use crate::role::Role;
use braid_base::{BLOCK_BYTES, FileSystemId, Generation, NodeId, ShardId, Time, VolumeId};
use braid_files::{FileClient, FileClientConfig};
use braid_host::Host;
use braid_layout::{Layout, VolumeDescription};
use braid_machine::{
    ArrayRequest, FilesRequest, FilesSuccess, HostError, HostOutcome, HostSuccess, MountRequest, OpId, Patience,
    VolumeRequest,
};
use braid_metadata::{MetadataNode, MetadataServer, MetadataServerConfig, NodeState, VOLUME_BYTES_MIN};
use braid_namespace::{Parameters, Shards};
use braid_ordering::Ordering;
use braid_wire::{FileCommand, FileResult, Owner, OwnershipRequest};

/// The only real file system of a cluster; its further shards have the numbers behind. Those of lower numbers are imaginary ([`crate::take_overs`]).
const FILE_SYSTEM: FileSystemId = FileSystemId(64);

/// A file system.
#[derive(Clone, Debug)]
pub struct FileSystem {
    pub id: FileSystemId,
    /// Its shards, each with a metadata server.
    pub shards: Vec<FileSystemShard>,
    pub options: ShardOptions,
    /// The volume with the bytes of its files.
    pub data: VolumeDescription,
}

/// A shard of a file system.
#[derive(Clone, Debug)]
pub struct FileSystemShard {
    /// The name of its metadata server.
    pub id: FileSystemId,
    /// The volume of its metadata.
    pub metadata: VolumeDescription,
}

impl FileSystem {
    /// The names of the metadata servers.
    fn names(&self) -> Vec<FileSystemId> {
        self.shards.iter().map(|shard| shard.id).collect()
    }

    /// What hosts send to the server of a shard is sent to this.
    pub fn service(&self, shard: usize) -> NodeId {
        NodeId::MetadataServer(self.shards[shard].id)
    }
}

impl Cluster {
    /// Makes a file system on new volumes: its metadata in two copies, its bytes on `layout`. No metadata server runs yet.
    pub fn make_file_system(&mut self, by: HostSlot, layout: Layout, stripes: u64) -> Result<FileSystem, HostError> {
        let ordering = Ordering::Timestamp;
        self.make_file_system_on(by, &MoreVolume { layout, first: 0, ordering, stripes }, ShardOptions::ONE)
    }

    /// The same, with such shards.
    pub fn make_sharded_file_system(
        &mut self,
        by: HostSlot,
        layout: Layout,
        stripes: u64,
        shards: ShardOptions,
    ) -> Result<FileSystem, HostError> {
        let ordering = Ordering::Timestamp;
        self.make_file_system_on(by, &MoreVolume { layout, first: 0, ordering, stripes }, shards)
    }

    /// The same, with its bytes on such a volume.
    pub(crate) fn make_file_system_on(
        &mut self,
        by: HostSlot,
        data: &MoreVolume,
        options: ShardOptions,
    ) -> Result<FileSystem, HostError> {
        let of_two = Layout::new("raid1:2".parse().expect("a level"), 2, 256).expect("a layout on two devices");
        let mirrored = VOLUME_BYTES_MIN.div_ceil(of_two.stripe_blocks() * BLOCK_BYTES as u64);
        let ordering = Ordering::Timestamp;
        let mut shards = Vec::new();
        for number in 0..u16::from(options.count) {
            let first = number % self.devices().len() as u16;
            self.make_volume(by, &MoreVolume { layout: of_two, first, ordering, stripes: mirrored })?;
            let metadata = self.others.last().expect("it was made").clone();
            shards.push(FileSystemShard { id: FileSystemId(FILE_SYSTEM.0 + number), metadata });
        }
        self.make_volume(by, data)?;
        let data = self.others.last().expect("it was made").clone();
        for FileSystemShard { id, metadata } in &shards {
            let nonce = self.rng.next_u64();
            let writes = braid_metadata::format(ARRAY, *id, metadata.bytes, nonce).expect("it is large enough");
            for (offset, data) in writes {
                let write = VolumeRequest::Write { volume: metadata.id, offset, data, patience: Patience::Host };
                let asked = self.ask(by, write);
                self.finish(asked)?;
            }
        }
        Ok(FileSystem { id: FILE_SYSTEM, shards, options, data })
    }

    /// Starts a process for the metadata server of a file system, which takes over from the one before. What hosts send to the metadata
    /// server reaches the new process.
    pub fn start_metadata_server(&mut self, file_system: &FileSystem) -> HostSlot {
        self.start_shard_server(file_system, 0)
    }

    /// The same for one of several shards.
    pub fn start_shard_server(&mut self, file_system: &FileSystem, shard: usize) -> HostSlot {
        let role = self.metadata_role_of(file_system, shard);
        let slot = self.add_host_in(role);
        self.world.set_service(file_system.service(shard), self.node(slot));
        slot
    }

    /// Starts a process that takes over a file system to check it.
    pub fn start_check_of_files(&mut self, file_system: &FileSystem) -> HostSlot {
        let role = self.role_of_metadata_process(file_system, 0, true);
        self.add_host_in(role)
    }

    /// A process that owns its file system ends its server, and releases the file system.
    pub fn release_file_system(&mut self, slot: HostSlot, file_system: &FileSystem) -> HostOutcome {
        let Some(Role::Metadata(node)) = self.world.machine(self.node(slot)) else { panic!("it is down") };
        let since = node.owns_since().expect("it owns the file system");
        let request = OwnershipRequest::Release { since };
        let asked = self.ask(slot, ArrayRequest::Ownership { file_system: file_system.id, request });
        self.finish(asked)
    }

    /// The machine of a metadata server, around the next host.
    pub(crate) fn metadata_role_of(&self, file_system: &FileSystem, shard: usize) -> impl FnOnce(Host) -> Role + use<> {
        self.role_of_metadata_process(file_system, shard, false)
    }

    fn role_of_metadata_process(
        &self,
        file_system: &FileSystem,
        shard: usize,
        checks: bool,
    ) -> impl FnOnce(Host) -> Role + use<> {
        let FileSystem { options, data, .. } = file_system;
        let FileSystemShard { id, metadata } = file_system.shards[shard].clone();
        let generation = Generation(self.next_generation);
        let config = MetadataServerConfig {
            array: ARRAY,
            file_system: id,
            generation,
            start: generation,
            volume_bytes: metadata.bytes,
            peers: file_system.names(),
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
            settings: self.options.settings.clone(),
        };
        move |host| {
            let node = MetadataNode::new(host, metadata.id, config);
            Role::Metadata(Box::new(if checks { node.that_checks() } else { node }))
        }
    }

    /// Adds a host that has a file system mounted.
    pub fn add_file_host(&mut self, file_system: &FileSystem) -> HostSlot {
        let role = self.file_host_role_of(file_system);
        self.add_host_in(role)
    }

    /// The machine of a host that has a file system mounted, around the next host.
    pub(crate) fn file_host_role_of(&self, file_system: &FileSystem) -> impl FnOnce(Host) -> Role + use<> {
        let FileSystem { id, data, .. } = file_system;
        let config = FileClientConfig {
            file_system: *id,
            shards: file_system.names(),
            host: Generation(self.next_generation),
            volume: data.id,
            stripe_bytes: data.layout.stripe_blocks() as usize * BLOCK_BYTES,
            settings: self.options.settings.clone(),
        };
        move |host| Role::FileHost(Box::new(FileClient::new(host, config)))
    }

    /// How many blocks are reserved for the host of this process, and not used.
    pub fn idle_blocks(&self, slot: HostSlot) -> u64 {
        match self.world.machine(self.node(slot)) {
            Some(Role::FileHost(host)) => host.allotted().map(|run| run.count).sum(),
            _ => 0,
        }
    }

    /// The metadata server of a process, if it owns the file system.
    pub fn metadata_server(&self, slot: HostSlot) -> Option<&MetadataServer> {
        match self.world.machine(self.node(slot))? {
            Role::Metadata(node) => node.server(),
            _ => None,
        }
    }

    /// Whether a process owns its file system; `None` while it is down.
    pub fn metadata_state(&self, slot: HostSlot) -> Option<NodeState> {
        match self.world.machine(self.node(slot))? {
            Role::Metadata(node) => Some(node.state()),
            _ => None,
        }
    }

    /// Begins an operation on files.
    pub fn ask_files(&mut self, slot: HostSlot, file_system: &FileSystem, request: FilesRequest) -> OpId {
        self.ask(slot, MountRequest::Files { file_system: file_system.id, request })
    }

    /// Executes an operation on files.
    pub fn files(
        &mut self,
        slot: HostSlot,
        file_system: &FileSystem,
        request: FilesRequest,
    ) -> Result<FilesSuccess, HostError> {
        let asked = self.ask_files(slot, file_system, request);
        match self.finish(asked)? {
            HostSuccess::Files(success) => Ok(success),
            other => panic!("not the result of an operation on files: {other:?}"),
        }
    }

    /// Executes a command on names and attributes.
    pub fn file_command(
        &mut self,
        slot: HostSlot,
        file_system: &FileSystem,
        command: FileCommand,
    ) -> Result<FileResult, HostError> {
        match self.files(slot, file_system, FilesRequest::Command(command))? {
            FilesSuccess::Result(result) => Ok(result),
            other => panic!("not the result of a command: {other:?}"),
        }
    }
}

/// The file system of a swarm run.
impl Cluster {
    /// Makes the file system, and starts its hosts and its first metadata server.
    pub(crate) fn begin_files(&mut self, by: HostSlot, files: &FileOptions) {
        let system = self.make_file_system_on(by, &files.data, files.shards).expect("empty devices have room");
        for _ in 1..self.options.hosts {
            let slot = self.add_file_host(&system);
            self.files.hosts.insert(slot);
        }
        for shard in 0..system.shards.len() {
            let server = self.start_shard_server(&system, shard);
            // The second slot is for a process that takes over from one that is alive.
            self.hosts.push(NodeId::Host(Generation(0)));
            self.files.servers.push([server, HostSlot(self.hosts.len() - 1)]);
        }
        self.files.system = Some(system);
    }

    pub(crate) fn file_host_role(&self) -> impl FnOnce(Host) -> Role + use<> {
        self.file_host_role_of(self.files.system.as_ref().expect("there is a file system"))
    }

    /// The machine of a metadata server in this slot.
    pub(crate) fn metadata_role(&self, slot: HostSlot) -> impl FnOnce(Host) -> Role + use<> {
        let (system, shard) = self.shard_of(slot);
        self.metadata_role_of(system, shard)
    }

    /// What the processes in this slot serve as.
    pub(crate) fn server_name_of(&self, slot: HostSlot) -> NodeId {
        let (system, shard) = self.shard_of(slot);
        system.service(shard)
    }

    fn shard_of(&self, slot: HostSlot) -> (&FileSystem, usize) {
        let shard = self.files.servers.iter().position(|slots| slots.contains(&slot)).expect("it is of a server");
        (self.files.system.as_ref().expect("there is a file system"), shard)
    }

    /// True for the volumes of the file system.
    pub(crate) fn is_of_files(&self, volume: VolumeId) -> bool {
        let is_of = |system: &FileSystem| {
            system.data.id == volume || system.shards.iter().any(|shard| shard.metadata.id == volume)
        };
        self.files.system.as_ref().is_some_and(is_of)
    }
}
