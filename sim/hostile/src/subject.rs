//! The machines that hostile messages are sent to, each with its configuration and its disk.

use crate::choices::Choices;
use crate::prelude::*;
use braid_base::{ArrayId, DiskId, FileSystemId, ShardId};
use braid_device::{Device, DeviceConfig, Service};
use braid_host::{Acquisition, Host, HostConfig};
use braid_layout::{Layout, SitePolicy, VolumeDescription};
use braid_locks::{LockServer, LockServerConfig, LockService};
use braid_machine::one_type::{step_as, step_server};
use braid_machine::{ControlRequest, HostRequest, OneDisk};
use braid_membership::{Monitor, MonitorConfig, MonitorError, MonitorService};
use braid_metadata::{
    Grouping, MetadataServer, MetadataServerConfig, MetadataService, Protocol, VOLUME_BYTES_MIN, format,
};
use braid_namespace::{Parameters, Placement, Shards};
use braid_store::{Store, StoreConfig};
use braid_wire::Owner;

/// The roles of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Device,
    Monitor,
    LockServer,
    MetadataServer,
    Host,
}

impl Role {
    pub const ALL: [Role; 5] = [Role::Device, Role::Monitor, Role::LockServer, Role::MetadataServer, Role::Host];

    /// The name of the node.
    pub fn node(self) -> NodeId {
        match self {
            Role::Device => NodeId::Device(DeviceId(0)),
            Role::Monitor => NodeId::Monitor,
            Role::LockServer => NodeId::LockServer(LockServerId(0)),
            Role::MetadataServer => NodeId::MetadataServer(FILE_SYSTEM),
            Role::Host => NodeId::Host(HOST),
        }
    }
}

/// A machine.
pub(crate) enum Subject {
    Device(Box<Device>),
    Monitor(Box<Monitor>),
    LockServer(Box<LockServer>),
    /// With the generation of its host.
    MetadataServer(Box<MetadataServer>, Generation),
    Host(Box<Host>),
}

pub(crate) const HOST: Generation = Generation(7);
const ARRAY: ArrayId = ArrayId([7; 16]);
const FILE_SYSTEM: FileSystemId = FileSystemId(3);
const DEVICE_BYTES: u64 = 16 << 20;
const METADATA_BYTES: u64 = VOLUME_BYTES_MIN;
pub(crate) const DEVICES: u16 = 4;
pub(crate) const VOLUME_BLOCKS: u64 = 128;

/// Settings with tables of several sizes.
pub(crate) fn settings(choices: &mut Choices) -> Settings {
    Settings {
        device_transactions_max: choices.pick(&[65_536, 6, 40]),
        hosts_max: choices.pick(&[1024, 1024, 3]),
        object_memory: 1 << 20,
        ..Settings::default()
    }
}

/// The disk of a machine that is new.
pub(crate) fn disk(role: Role) -> MemoryDisk {
    match role {
        Role::Device => device_disk(DeviceId(0)),
        Role::Monitor => MemoryDisk::new(braid_membership::DISK_BYTES),
        Role::LockServer => MemoryDisk::new(braid_locks::DISK_BYTES),
        Role::MetadataServer => {
            let parts = format(ARRAY, FILE_SYSTEM, METADATA_BYTES, 77).expect("the volume is large enough");
            MemoryDisk::with(METADATA_BYTES, parts)
        }
        Role::Host => MemoryDisk::new(0),
    }
}

pub(crate) fn device_disk(device: DeviceId) -> MemoryDisk {
    let config = store_config(device);
    let name = DiskId(100 + u64::from(device.0));
    MemoryDisk::with(DEVICE_BYTES, Store::format(&config, name, 77).expect("the size is valid"))
}

fn store_config(device: DeviceId) -> StoreConfig {
    StoreConfig { array: ARRAY, device, size: DEVICE_BYTES }
}

pub(crate) fn device(device: DeviceId, settings: Settings) -> Device {
    Device::new(DeviceConfig { store: store_config(device), membership: None, settings, holder: None })
}

pub(crate) fn host(settings: Settings, volumes: Vec<VolumeDescription>, seed: u64) -> Host {
    Host::new(HostConfig {
        generation: HOST,
        membership: None,
        devices: (0..DEVICES).map(DeviceId).collect(),
        lock_servers: vec![LockServerId(0), LockServerId(1)],
        acquisition: Acquisition::Ordered,
        volumes,
        held: Default::default(),
        settings,
        seed,
    })
}

/// A volume for each ordering and each level.
pub(crate) fn volumes() -> Vec<VolumeDescription> {
    let mut volumes = Vec::new();
    for (level, devices) in [("raid5:2+1", 0..4), ("raid1:2", 0..2), ("raid0:2", 2..4), ("raid1:3", 0..3)] {
        for ordering in Ordering::ALL {
            volumes.push(volume(volumes.len() as u64 + 1, level, devices.clone(), ordering, Atomicity::Implied));
        }
    }
    let number = volumes.len() as u64 + 1;
    volumes.push(volume(number, "raid5:2+1", 0..3, Ordering::Timestamp, Atomicity::Consistent));
    volumes.push(volume(number + 1, "raid1:2", 1..3, Ordering::DeviceLock, Atomicity::Consistent));
    let devices_compute = VolumeDescription {
        parity_site: SitePolicy::AtParity,
        ..volume(number + 2, "raid5:2+1", 0..3, Ordering::Timestamp, Atomicity::Implied)
    };
    volumes.push(devices_compute);
    volumes
}

pub(crate) fn volume(
    number: u64,
    level: &str,
    devices: std::ops::Range<u16>,
    ordering: Ordering,
    atomicity: Atomicity,
) -> VolumeDescription {
    let level = level.parse().expect("it is a level");
    let devices: Vec<DeviceId> = devices.map(DeviceId).collect();
    VolumeDescription {
        ordering,
        atomicity,
        ..VolumeDescription::new(
            VolumeId(number),
            VOLUME_BLOCKS * BLOCK_BYTES as u64,
            Layout::new(level, devices.len(), 4).expect("it can be laid so"),
            devices,
        )
    }
}

impl Subject {
    /// A machine that is off. `start` counts its starts.
    pub fn new(role: Role, start: u32, settings: Settings) -> Subject {
        match role {
            Role::Device => Subject::Device(Box::new(device(DeviceId(0), settings))),
            Role::Monitor => {
                let devices = (0..DEVICES).map(DeviceId).collect();
                let config =
                    MonitorConfig { array: ARRAY, devices, last_generation: Generation(1_000), term: None, settings };
                Subject::Monitor(Box::new(Monitor::new(config)))
            }
            Role::LockServer => {
                let config =
                    LockServerConfig::of_volumes(LockServerId(0), Generation(start), Default::default(), settings);
                Subject::LockServer(Box::new(LockServer::new(config)))
            }
            Role::MetadataServer => {
                let parameters = Parameters {
                    blocks: 512,
                    stripe_blocks: 16,
                    hash_key: [7; 16],
                    hash_bits: Parameters::HASH_BITS_MAX,
                    shards: Shards { own: ShardId::FIRST, count: 2, placement: Placement::Spread },
                };
                let config = MetadataServerConfig {
                    array: ARRAY,
                    file_system: FILE_SYSTEM,
                    generation: Generation(500 + start),
                    start: Generation(start),
                    volume_bytes: METADATA_BYTES,
                    peers: vec![FILE_SYSTEM, FileSystemId(4)],
                    commit_protocol: Protocol::OnePhase,
                    grouping: Grouping::Operations,
                    parameters,
                    root: Owner::default(),
                    serve_from: Time(0),
                    settings,
                };
                let generation = config.generation;
                Subject::MetadataServer(Box::new(MetadataServer::new(config)), generation)
            }
            Role::Host => Subject::Host(Box::new(host(settings, volumes(), u64::from(start)))),
        }
    }

    /// Asserts that the machine has not given up: its disk is sound. True if the monitor has told it that its record is old, or that
    /// its host is fenced, which it can't judge.
    pub fn is_misled(&self) -> bool {
        match self {
            Subject::Device(device) => {
                assert!(!matches!(device.service(), Service::Unusable(_)), "{:?}", device.service());
            }
            Subject::Monitor(monitor) => match monitor.service() {
                MonitorService::Unusable(MonitorError::Behind { .. }) => return true,
                service => assert!(!matches!(service, MonitorService::Unusable(_)), "{service:?}"),
            },
            Subject::LockServer(server) => {
                assert!(!matches!(server.service(), LockService::Unusable(_)), "{:?}", server.service());
            }
            Subject::MetadataServer(server, generation) => {
                assert!(!matches!(server.service(), MetadataService::Unusable(_)), "{:?}", server.service());
                return server.is_fenced(*generation);
            }
            Subject::Host(_) => {}
        }
        false
    }

    /// True if the machine serves.
    pub fn serves(&self) -> bool {
        match self {
            Subject::Device(device) => *device.service() == Service::Serving,
            Subject::Monitor(monitor) => monitor.service() == MonitorService::Serving,
            Subject::LockServer(server) => matches!(server.service(), LockService::Serving | LockService::Recovering),
            Subject::MetadataServer(server, _) => *server.service() == MetadataService::Serving,
            Subject::Host(_) => true,
        }
    }
}

/// A request of an honest front end.
#[derive(Clone, Debug)]
pub(crate) enum HonestRequest {
    Host(HostRequest),
    Monitor(ControlRequest),
}

impl Machine for Subject {
    type Request = HonestRequest;
    /// Whether the request succeeded.
    type Outcome = bool;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: InputOf<Self>, out: &mut EffectsOf<Self>) {
        match self {
            Subject::Device(machine) => step_server(&mut **machine, now, input, out),
            Subject::LockServer(machine) => step_server(&mut **machine, now, input, out),
            Subject::MetadataServer(machine, _) => step_server(&mut **machine, now, input, out),
            Subject::Monitor(machine) => {
                step_as(&mut **machine, now, input, out, HonestRequest::into_monitor, |outcome| outcome.is_ok())
            }
            Subject::Host(machine) => {
                step_as(&mut **machine, now, input, out, HonestRequest::into_host, |outcome| outcome.is_ok())
            }
        }
    }

    braid_machine::held_machine!(Subject { Device, Monitor, LockServer, MetadataServer, Host });
}

impl HonestRequest {
    fn into_host(self) -> HostRequest {
        let HonestRequest::Host(request) = self else { panic!("a host is not asked for {self:?}") };
        request
    }

    fn into_monitor(self) -> ControlRequest {
        let HonestRequest::Monitor(request) = self else { panic!("a monitor is not asked for {self:?}") };
        request
    }
}
