//! How a cluster is built, with its nodes; and how nodes are started again.

use crate::candidates::Candidates;
use crate::cluster::{ARRAY, Cluster, HostSlot, VOLUME, monitors};
use crate::cluster::{DeviceNotes, Generations, Observed, Requests};
use crate::control::store;
use crate::file_records::FileRecords;
use crate::options::Options;
use crate::ownership_history::OwnershipHistory;
use crate::prelude::*;
use crate::role::{Role, is_served};
use crate::undecided_requests::UndecidedRequests;
use crate::{damage_places, hosts, volumes};
use braid_check::{History, ObjectHistory};
use braid_device::DeviceConfig;
use braid_locks::{DISK_BYTES, LeasedLockServer, LockServerConfig, is_list_lost};
use braid_membership::MonitorConfig;
use braid_metadata::Purpose;
use braid_registrar::Content;
use braid_store::{Medium, Store, StoreConfig};
use braid_world::DiskOptions;

/// The monitor takes all generations up to this one to be given out: the control plane of a run gives out a few hundred.
const LAST_GENERATION: Generation = Generation(1 << 20);
/// From the start of an array to leases of its devices: candidates that start make no swap for 3.3 s, and devices without a lease wait for 5.5 s.
const UNTIL_ONE_LEADS: Duration = Duration::from_secs(11);

impl Cluster {
    /// Creates an array of empty devices, all up, with its volume and the hosts that `options` ask for.
    pub fn new(options: Options, trace: Trace) -> Cluster {
        let mut rng = options.source("cluster");
        let world = World::new(ARRAY, rng.next_u64(), braid_world::NetworkOptions::clean(), trace);
        let layout = options.layout;
        let volume = VolumeDescription {
            ordering: options.ordering,
            atomicity: options.atomicity,
            ..VolumeDescription::new(
                VOLUME,
                options.stripes * layout.stripe_blocks() * BLOCK_BYTES as u64,
                layout,
                (0..layout.devices() as u16).map(DeviceId).collect(),
            )
        };
        let mut cluster = Cluster {
            world,
            history: History::default(),
            objects: ObjectHistory::default(),
            options,
            volume,
            others: Vec::new(),
            removed: Vec::new(),
            hosts: Vec::new(),
            control: None,
            candidates: None,
            requests: Requests::default(),
            generations: Generations::default(),
            device_notes: DeviceNotes::default(),
            observed: Observed::default(),
            rng,
            sniffer: Rc::default(),
            files: FileRecords::default(),
            ownership: OwnershipHistory::default(),
            undecided: UndecidedRequests::default(),
            turned: false,
            gives_up: false,
        };
        match cluster.options.activities.0.iter().map(|choice| choice.candidates).sum() {
            0 => {
                add_monitor(&mut cluster);
                cluster.world.watch(NodeId::Monitor);
            }
            count => add_candidates(&mut cluster, count),
        }
        for device in cluster.devices() {
            cluster.add_device(device);
        }
        for server in cluster.lock_servers() {
            add_lock_server(&mut cluster, server);
        }
        if cluster.candidates.is_some() {
            cluster.run_for(UNTIL_ONE_LEADS);
        }
        let first = cluster.add_host();
        for device in cluster.volume.devices.clone() {
            let (object, blocks) = (VOLUME.object(), cluster.volume.component_blocks());
            let (ordering, redundant) = (cluster.options.ordering, layout.redundancy_units() > 0);
            let atomicity = cluster.options.atomicity;
            let task = Task::CreateObject { object, first: 0, blocks, ordering, redundant, atomicity, absent: 0 };
            let asked = cluster.ask(first, ArrayRequest::Manage { device, task });
            cluster.finish(asked).expect("an empty device takes an object");
        }
        let options = cluster.options.clone();
        options.prepare(&mut cluster, first);
        while cluster.hosts.len() < cluster.options.hosts {
            cluster.add_host();
        }
        cluster
    }

    pub fn add_host(&mut self) -> HostSlot {
        let clock = hosts::clock(self);
        self.add_host_with(clock)
    }

    /// Adds a host with these clocks.
    pub fn add_host_with(&mut self, clock: LocalClock) -> HostSlot {
        let node = hosts::new_host(self, clock);
        self.hosts.push(node);
        HostSlot(self.hosts.len() - 1)
    }

    /// Starts a new generation in a host's slot; the old host must be down.
    pub fn replace_host(&mut self, slot: HostSlot, clock: LocalClock) {
        let earlier = self.hosts[slot.0];
        assert!(!self.world.is_up(earlier), "the old host is down");
        self.hosts[slot.0] = if self.files.hosts.contains(&slot) {
            let role = self.files.mounted().host_role(self);
            hosts::new_host_in(self, clock, role)
        } else if let Some((system, shard)) = self.files.shard_of(slot) {
            let (role, service) = (system.process_role(self, shard, Purpose::Serves), system.service(shard));
            let node = hosts::new_host_in(self, clock, role);
            self.world.speak_for(service, node);
            node
        } else {
            hosts::new_host(self, clock)
        };
        self.world.succeed(self.hosts[slot.0], earlier);
    }

    /// Starts a device with an empty disk, which need not be part of the array yet.
    pub fn add_device(&mut self, device: DeviceId) {
        let disk = self.device_notes.new_disk();
        let disk = self.empty_disk(device, disk);
        let machine = new_device(self, device);
        let clock = hosts::clock(self);
        self.world.add(NodeId::Device(device), machine, Some(disk), clock);
    }

    /// Creates a disk with this name for a device, as it is before the first start of the device.
    pub fn empty_disk(&mut self, device: DeviceId, disk: DiskId) -> Disk {
        self.device_notes.disks.insert(device, disk);
        let config = store_config(self, device);
        let fresh =
            Store::format_with(&config, disk, 77, self.options.journal_bytes).expect("devices are large enough");
        let superblock = fresh.iter().find(|(offset, _)| *offset == 0).expect("a device begins with its superblock");
        let space = self.options.chunks.map(|chunks| damage_places::space_for(&superblock.1, chunks));
        let mut disk = Disk::new(DiskOptions { space, ..DiskOptions::default() }, self.rng.fork());
        fresh.iter().for_each(|(offset, bytes)| disk.preload(*offset, bytes));
        let Medium { physical_sector, cached } = self.options.medium;
        disk.set_physical_sector(physical_sector.into());
        disk.set_hurt_before(damage_places::map_offset(&superblock.1));
        if cached {
            disk.set_cached();
        }
        disk
    }

    /// Starts a device that is down, with the content of its disk.
    pub fn restart_device(&mut self, device: DeviceId) {
        self.device_notes.restarted = true;
        self.device_notes.started.insert(device, self.world.now());
        let machine = new_device(self, device);
        self.world.start(NodeId::Device(device), machine);
    }

    /// Starts a lock server that is down, with the content of its disk.
    pub fn restart_lock_server(&mut self, server: LockServerId) {
        let machine = new_lock_server(self, server);
        self.world.start(NodeId::LockServer(server), machine);
    }

    /// Starts the monitor, which must be down, with the content of its disk.
    pub fn restart_monitor(&mut self) {
        let machine = new_monitor(self);
        self.world.start(NodeId::Monitor, machine);
        volumes::tell_monitor_of_volume(self);
    }
}

/// Starts a node that is down, with the content of its disk.
pub(crate) fn restart(cluster: &mut Cluster, node: NodeId) {
    match node {
        NodeId::Device(device) => cluster.restart_device(device),
        NodeId::LockServer(server) => cluster.restart_lock_server(server),
        NodeId::Monitor => cluster.restart_monitor(),
        NodeId::MetadataServer(_) => restart_candidate(cluster, node),
        NodeId::Host(_) => unreachable!("a host returns as a new generation"),
    }
}

pub(super) fn add_monitor(cluster: &mut Cluster) {
    let disk = Disk::new(DiskOptions::default(), cluster.rng.fork());
    let (machine, clock) = (new_monitor(cluster), hosts::clock(cluster));
    cluster.world.add(NodeId::Monitor, machine, Some(disk), clock);
    volumes::tell_monitor_of_volume(cluster);
}

fn new_monitor(cluster: &Cluster) -> Role {
    Role::Monitor(Box::new(Monitor::new(monitor_config(cluster))))
}

fn monitor_config(cluster: &Cluster) -> MonitorConfig {
    let (devices, settings) = (cluster.devices(), cluster.options.settings.clone());
    MonitorConfig { array: ARRAY, devices, last_generation: LAST_GENERATION, term: None, settings }
}

/// Adds so many candidates in place of the monitor.
fn add_candidates(cluster: &mut Cluster, count: u16) {
    let devices = cluster.devices().into_iter().map(|device| (device, None)).collect();
    let description = store::ready_description(ARRAY, &cluster.volumes(), devices);
    let (registry, clients) = (cluster.options.source("registry"), cluster.options.source("leader-clients"));
    let content = Content::new(description, LAST_GENERATION);
    let mut candidates = Candidates::new(count, &content, registry, clients);
    candidates.begin(&mut cluster.world);
    cluster.candidates = Some(Box::new(candidates));
    let nodes = monitors(cluster);
    for node in nodes.iter().copied() {
        let (clock, disk) = (hosts::clock(cluster), Disk::new(DiskOptions::default(), cluster.rng.fork()));
        let machine = new_candidate(cluster, node, clock.now(cluster.world.now()).time);
        cluster.world.add(node, machine, Some(disk), clock);
        cluster.world.watch(node);
    }
    cluster.world.set_group(NodeId::Monitor, nodes);
}

fn restart_candidate(cluster: &mut Cluster, node: NodeId) {
    let local = cluster.world.local(node).expect("the node is in the world").time;
    let machine = new_candidate(cluster, node, local);
    cluster.world.start(node, machine);
}

fn new_candidate(cluster: &mut Cluster, node: NodeId, local: Time) -> Role {
    let config = monitor_config(cluster);
    let candidates = cluster.candidates.as_mut().expect("there are candidates");
    Role::Candidate(Box::new(candidates.start(local, node, config)))
}

pub(super) fn add_lock_server(cluster: &mut Cluster, server: LockServerId) {
    let disk = Disk::new(DiskOptions::default(), cluster.rng.fork());
    let (machine, clock) = (new_lock_server(cluster, server), hosts::clock(cluster));
    cluster.world.add(NodeId::LockServer(server), machine, Some(disk), clock);
}

fn new_lock_server(cluster: &mut Cluster, id: LockServerId) -> Role {
    let (start, settings) = (hosts::fresh_generation(cluster), cluster.options.settings.clone());
    let config = LockServerConfig::of_volumes(id, start, unlisted(cluster, id), settings);
    Role::LockServer(Box::new(LeasedLockServer::endless(config)))
}

/// The hosts that may hold locks of a lock server whose disk was lost: all but those that are fenced, or live and have never sent a lock
/// server a request.
fn unlisted(cluster: &Cluster, id: LockServerId) -> BTreeSet<Generation> {
    let is_lost = |disk: &Disk| is_list_lost(&disk.peek(0, DISK_BYTES as usize));
    let was_lost = cluster.device_notes.lost_lists.contains(&id);
    if !was_lost || !cluster.world.disk(NodeId::LockServer(id)).is_some_and(is_lost) {
        return BTreeSet::new();
    }
    let may_hold = |host: &Generation| {
        let known = cluster.world.machine(NodeId::Host(*host)).and_then(Role::host);
        // One that is being fenced may still be served.
        let is_refused = cluster.membership().is_some_and(|membership| membership.fence.refuses(*host));
        let is_fenced = is_refused && !is_served(&cluster.world, &cluster.devices(), *host);
        !is_fenced && known.is_none_or(|host| host.locks().counters().requests > 0)
    };
    cluster.generations.all.iter().copied().filter(may_hold).collect()
}

fn new_device(cluster: &Cluster, device: DeviceId) -> Role {
    let (store, settings) = (store_config(cluster, device), cluster.options.settings.clone());
    // Each start is another process.
    let holder = cluster.candidates.is_some().then(|| cluster.world.now().0);
    let config = DeviceConfig { store, membership: None, settings, holder };
    Role::Device(Box::new(Device::on(cluster.options.medium, config)))
}

fn store_config(cluster: &Cluster, device: DeviceId) -> StoreConfig {
    StoreConfig { array: ARRAY, device, size: cluster.options.device_bytes }
}
