//! The store of the control plane: the bytes of a description with a version, and leases. What commands do with the description is the code of real arrays
//! (`braid_description`).

use super::leases::LeaseStore;
use crate::prelude::*;
use braid_base::ArrayId;
use braid_control_protocol::{self as protocol, DeviceRecord, Version, VolumeRecord};
use braid_description::{ArrayDescription, Creation, DeviceEntry, DeviceState, DiskEntry, VolumeEntry, VolumeState};

/// File systems of the run have higher numbers: the others are those of other activities.
pub(super) const LAST_FILE_SYSTEM: u16 = 100;

pub(crate) struct Store {
    /// What is stored; the rest is what these bytes say.
    bytes: Vec<u8>,
    description: ArrayDescription,
    records: BTreeMap<VolumeId, VolumeRecord>,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    pub leases: LeaseStore,
}

impl Store {
    /// A store with these volumes, which are ready. Nothing is recorded of the progress of a migration.
    pub fn new(
        array: ArrayId,
        volumes: &[VolumeDescription],
        devices: Vec<(DeviceId, DiskId)>,
        leases: LeaseStore,
    ) -> Store {
        let devices = devices.into_iter().map(|(device, disk)| (device, Some(disk))).collect();
        let description = ready_description(array, volumes, devices);
        let (bytes, records, devices) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut store = Store { bytes, description: description.clone(), records, devices, leases };
        store.put(&description);
        store
    }

    pub fn put(&mut self, description: &ArrayDescription) {
        self.bytes = braid_description::format(description).expect("a description has a JSON form");
        self.description = braid_description::parse(&self.bytes).expect("our own description can be read");
        assert_eq!(self.description, *description, "the bytes say something else");
        self.description.check().unwrap_or_else(|reason| panic!("{reason}"));
        let record = |entry: &VolumeEntry| {
            (VolumeId(entry.id), braid_description::record(entry).expect("an entry can be understood"))
        };
        self.records = self.description.volumes.iter().map(record).collect();
        let record = |device: &DeviceEntry| (DeviceId(device.id), braid_description::device_record(device));
        self.devices = self.description.devices.iter().map(record).collect();
    }

    pub fn description(&self) -> &ArrayDescription {
        &self.description
    }

    /// The volume of this name, if hosts may use it.
    pub fn volume_named(&self, name: &str) -> Option<VolumeDescription> {
        let record = self.record(VolumeId(self.description.volume(name)?.id))?;
        record.is_usable().then(|| record.volume.clone())
    }

    pub fn version(&self) -> Version {
        Version(self.description.revision)
    }

    pub fn records(&self) -> Vec<VolumeRecord> {
        self.records.values().cloned().collect()
    }

    pub fn record(&self, volume: VolumeId) -> Option<&VolumeRecord> {
        self.records.get(&volume)
    }

    /// A disk fills a slot: the record must know it.
    pub fn fill_slot(&mut self, device: DeviceId, disk: DiskId) {
        if self.devices[&device].disk != Some(disk) {
            let filled = self.description.changed(|description| Ok::<_, ()>(description.fill_slot(device.0, disk)));
            let (is_known, next) = filled.expect("it does not fail");
            assert!(is_known, "{device} has {disk}, of which the store does not know");
            self.put(&next);
        }
    }

    /// The records of devices, ascending.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &DeviceRecord)> + '_ {
        self.devices.iter().map(|(device, record)| (*device, record))
    }

    /// A number that no device has had.
    pub fn next_device(&self) -> DeviceId {
        DeviceId(self.description.unused_device())
    }

    /// The devices on which an administrator is at work, and that administrator.
    pub fn unsettled_devices(&self) -> impl Iterator<Item = (DeviceId, Generation)> + '_ {
        self.devices().filter_map(|(device, record)| Some((device, record.state.administrator()?)))
    }

    /// The volumes as the monitor must know them.
    pub fn volumes_for_monitor(&self) -> Vec<VolumeDescription> {
        let is_deleting = |record: &&VolumeRecord| matches!(record.state, protocol::VolumeState::Deleting { .. });
        self.records.values().filter(|record| !is_deleting(record)).map(VolumeRecord::widest).collect()
    }

    pub fn next_volume(&self) -> VolumeId {
        VolumeId(self.description.next_volume)
    }

    /// The volumes on which an administrator is at work, and that administrator.
    pub fn unsettled(&self) -> impl Iterator<Item = (&VolumeRecord, Generation)> + '_ {
        self.records.values().filter_map(|record| Some((record, record.administrator()?)))
    }

    /// An administrator is at work on something, or has died.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled().next().is_some() || self.unsettled_devices().next().is_some()
    }
}

/// The description of an array with these volumes and devices, which are ready.
pub(crate) fn ready_description(
    array: ArrayId,
    volumes: &[VolumeDescription],
    devices: Vec<(DeviceId, Option<DiskId>)>,
) -> ArrayDescription {
    let ready = |(device, disk): (DeviceId, Option<DiskId>)| {
        let entry = device_entry(device, disk.unwrap_or_default());
        DeviceEntry { state: DeviceState::Ready, disk, ..entry }
    };
    let mut description = ArrayDescription::new(array, devices.into_iter().map(ready).collect(), Creation::default());
    description.volumes = volumes.iter().map(ready_entry).collect();
    (description.created, description.populated, description.revision) = (true, true, 1);
    description.last_file_system = LAST_FILE_SYSTEM;
    let highest = volumes.iter().map(|volume| volume.id.0).max();
    description.next_volume = highest.map_or(1, |volume| volume + 1);
    description
}

/// The entry of a volume that is ready.
pub(crate) fn ready_entry(volume: &VolumeDescription) -> VolumeEntry {
    VolumeEntry { state: VolumeState::Ready, ..volume_entry(volume) }
}

/// The entry of a volume that is created.
pub(crate) fn volume_entry(volume: &VolumeDescription) -> VolumeEntry {
    VolumeEntry::new(format!("v{}", volume.id.0), volume)
}

/// The entry of a device that is added.
pub(crate) fn device_entry(device: DeviceId, disk: DiskId) -> DeviceEntry {
    let DiskEntry { file, size, disk } = disk_entry(disk);
    let domain = device.to_string();
    let (disk, state, others) = (Some(disk), DeviceState::Adding, Vec::new());
    DeviceEntry { id: device.0, file, size, disk, domain, address: None, state, by: None, others }
}

/// The entry of a disk. Its file and its size say nothing here.
pub(crate) fn disk_entry(disk: DiskId) -> DiskEntry {
    DiskEntry { file: disk.to_string().into(), size: 0, disk }
}
