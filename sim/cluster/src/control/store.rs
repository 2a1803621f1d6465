//! The store of the control plane: the records of volumes with one version, and leases. Commands take effect in the order of their arrival. Answers are
//! lost, and commands arrive late, on the way to it.

use super::administrators::{Name, Subject};
use super::leases::LeaseStore;
use super::{ControlPlane, Event};
use crate::cluster::Cluster;
use braid_base::{DeviceId, DiskId, Generation, VolumeId};
use braid_control_protocol::{
    Answer, Change, Command, CopyRecord, DeviceRecord, DeviceState, HostLease, Tag, Version, VolumeRecord, VolumeState,
};
use braid_host_leases::Lease;
use braid_layout::VolumeDescription;
use braid_machine::ControlRequest;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A command whose answer is missing for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);

/// A watch answers after this time.
const WATCHED: Duration = Duration::from_millis(20);

pub(super) struct Store {
    version: Version,
    records: BTreeMap<VolumeId, VolumeRecord>,
    /// Above the numbers of all volumes that there were.
    next_volume: VolumeId,
    devices: BTreeMap<DeviceId, DeviceRecord>,
    /// Above the numbers of all devices that there were.
    next_device: DeviceId,
    pub leases: LeaseStore,
}

impl Store {
    /// A store with these volumes, which are ready. Nothing is recorded of the progress of a migration.
    pub fn new(
        volumes: Vec<VolumeDescription>,
        devices: impl Iterator<Item = (DeviceId, DiskId)>,
        leases: LeaseStore,
    ) -> Store {
        let record = |volume: VolumeDescription| {
            let copied = volume.moving.as_ref().map(|_| CopyRecord { begun: Version(0), copied_to: 0 });
            (volume.id, VolumeRecord { volume, state: VolumeState::Ready, copied })
        };
        let records: BTreeMap<_, _> = volumes.into_iter().map(record).collect();
        let next_volume = VolumeId(records.keys().last().map_or(1, |volume| volume.0 + 1));
        let ready = |(device, disk)| {
            let (disk, others, state) = (Some(disk), BTreeSet::new(), DeviceState::Ready);
            (device, DeviceRecord { disk, others, state })
        };
        let devices: BTreeMap<_, _> = devices.map(ready).collect();
        let next_device = DeviceId(devices.keys().last().map_or(0, |device| device.0 + 1));
        Store { version: Version(1), records, next_volume, devices, next_device, leases }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn records(&self) -> Vec<VolumeRecord> {
        self.records.values().cloned().collect()
    }

    pub fn record(&self, volume: VolumeId) -> Option<&VolumeRecord> {
        self.records.get(&volume)
    }

    /// A disk fills a slot: the record must know it.
    pub fn fill_slot(&mut self, device: DeviceId, disk: DiskId) {
        let record = self.devices.get_mut(&device).expect("devices have records");
        if record.disk != Some(disk) {
            assert!(record.others.remove(&disk), "{device} has {disk}, of which the store does not know");
            record.others.extend(record.disk.replace(disk));
            self.version = Version(self.version.0 + 1);
        }
    }

    /// The records of devices, ascending.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &DeviceRecord)> + '_ {
        self.devices.iter().map(|(device, record)| (*device, record))
    }

    pub fn next_device(&self) -> DeviceId {
        self.next_device
    }

    /// The devices on which an administrator is at work, and that administrator.
    pub fn unsettled_devices(&self) -> impl Iterator<Item = (DeviceId, Generation)> + '_ {
        self.devices().filter_map(|(device, record)| Some((device, record.state.administrator()?)))
    }

    pub fn next_volume(&self) -> VolumeId {
        self.next_volume
    }

    pub fn held_by(&self, volume: VolumeId) -> Option<Generation> {
        self.record(volume)?.held_by()
    }

    /// The volumes on which an administrator is at work, and that administrator.
    pub fn unsettled(&self) -> impl Iterator<Item = (&VolumeRecord, Generation)> + '_ {
        self.records.values().filter_map(|record| Some((record, record.administrator()?)))
    }

    /// Executes a command about a device.
    fn on_device_command(&mut self, device: DeviceId, command: Command) -> Answer {
        match command {
            Command::ReadDevice => Answer::Device {
                version: self.version,
                record: self.devices.get(&device).cloned(),
                is_used: device < self.next_device,
                volumes: self.volumes_on(device),
            },
            Command::ReplaceDevice { after, .. } | Command::RemoveDevice { after } if after != self.version => {
                Answer::Superseded
            }
            Command::ReplaceDevice { record, .. } => {
                self.version = Version(self.version.0 + 1);
                self.next_device = self.next_device.max(DeviceId(device.0 + 1));
                self.devices.insert(device, record);
                Answer::Replaced { version: self.version }
            }
            Command::RemoveDevice { .. } => {
                self.version = Version(self.version.0 + 1);
                self.devices.remove(&device);
                Answer::Replaced { version: self.version }
            }
            other => unreachable!("operations on devices have no volume: {other:?}"),
        }
    }

    /// The volumes that lie on a device, or are about to migrate to it.
    fn volumes_on(&self, device: DeviceId) -> BTreeSet<VolumeId> {
        let is_there = |record: &&VolumeRecord| widest(record).holders().contains(&device);
        self.records.values().filter(is_there).map(|record| record.volume.id).collect()
    }
}

impl Cluster {
    /// Sends a command to the store; in most cases, its answer comes back.
    pub(super) fn send_command(
        &mut self,
        control: &mut ControlPlane,
        (by, subject): (Name, Subject),
        tag: Tag,
        command: Command,
    ) {
        // A watch answers after a while, whatever has happened.
        let way = control.way() + if command == Command::Watch { WATCHED } else { Duration::ZERO };
        let fate = match &control.faults {
            Some(faults) if faults.store_faults > 0 => control.rng.below(1000 / faults.store_faults),
            _ => u64::MAX,
        };
        let unknown = Event::Answer { to: by, tag, answer: Answer::Unknown };
        match fate {
            // The answer is lost, the command is lost, or the command arrives after it was given up.
            0 => {
                self.schedule(control, way, Event::Command { by, subject, command, answered: None });
                self.schedule(control, UNANSWERED, unknown);
                control.count("answers of the store lost");
            }
            1 => self.schedule(control, UNANSWERED, unknown),
            2 => {
                let late = UNANSWERED + Duration::from_millis(control.rng.below(2_000));
                self.schedule(control, late, Event::Command { by, subject, command, answered: None });
                self.schedule(control, UNANSWERED, unknown);
                control.count("commands for the store late");
            }
            _ => self.schedule(control, way, Event::Command { by, subject, command, answered: Some(tag) }),
        }
    }

    /// Executes a command.
    pub(super) fn on_command(&mut self, control: &mut ControlPlane, subject: Subject, command: Command) -> Answer {
        let only_asks = matches!(
            command,
            Command::Read | Command::ReadDevice | Command::Watch | Command::ListHosts | Command::Confirm { .. }
        );
        if !only_asks && control.is_unwritable(self.world.now()) {
            return Answer::Unknown;
        }
        let is_of_device =
            matches!(command, Command::ReadDevice | Command::ReplaceDevice { .. } | Command::RemoveDevice { .. });
        if let Subject::Device(device) = subject
            && is_of_device
        {
            return control.store.on_device_command(device, command);
        }
        let (now, lease, volume) = (self.lease_time(), self.control_lease(), subject.volume());
        match command {
            Command::Read => Answer::Record {
                version: control.store.version,
                record: control.store.record(volume).cloned().map(Box::new),
                ready_devices: self.devices().into_iter().collect(),
                next_volume: control.store.next_volume,
            },
            Command::Replace { after, .. } | Command::Remove { after } | Command::Confirm { version: after }
                if after != control.store.version =>
            {
                Answer::Superseded
            }
            Command::Replace { record, .. } => {
                self.replace_record(control, record);
                Answer::Replaced { version: control.store.version }
            }
            Command::Remove { .. } => {
                let store = &mut control.store;
                store.version = Version(store.version.0 + 1);
                store.records.remove(&volume);
                self.note_record(volume, None);
                Answer::Replaced { version: control.store.version }
            }
            Command::ReadDevice | Command::ReplaceDevice { .. } | Command::RemoveDevice { .. } => {
                unreachable!("operations on devices have no volume")
            }
            Command::ReadFileSystem
            | Command::EnterFileSystem { .. }
            | Command::ReplaceFileSystem { .. }
            | Command::RemoveFileSystem { .. }
            | Command::ListServers => unreachable!("runs with a control plane have no file systems"),
            Command::Confirm { .. } | Command::Watch => Answer::Yes,
            Command::ListHosts => {
                let table = control.store.leases.table();
                let as_seen = |(host, seen): (Generation, &Lease<()>)| HostLease {
                    host,
                    is_live: table.is_live(host, &now, lease),
                    uses_volumes: true,
                    confirmed: seen.heartbeat.confirmed,
                };
                Answer::Hosts(table.leases().map(as_seen).collect())
            }
            Command::EndLease { host } => {
                let mut table = control.store.leases.table();
                let (end, writes) = table.expire_one(host, &now, lease);
                control.store.leases.make(&table, writes);
                Answer::Lease(end)
            }
            Command::ForgetLease { host } => {
                self.forget_leases(control, &[host], usize::MAX);
                Answer::Yes
            }
        }
    }

    fn replace_record(&mut self, control: &mut ControlPlane, record: VolumeRecord) {
        let store = &mut control.store;
        store.version = Version(store.version.0 + 1);
        let volume = record.volume.clone();
        if volume.id == self.volume.id {
            control.orderings.insert(volume.ordering);
            self.options.ordering = volume.ordering;
            self.volume = volume.clone();
        }
        store.next_volume = store.next_volume.max(VolumeId(volume.id.0 + 1));
        store.records.insert(volume.id, record.clone());
        self.note_record(volume.id, Some(&record));
        self.tell_monitor(match record.state {
            VolumeState::Deleting { .. } => ControlRequest::DropVolume { volume: volume.id },
            _ => ControlRequest::AdoptVolume { volume: widest(&record) },
        });
    }

    /// The volumes as the monitor must know them.
    pub(crate) fn volumes_for_monitor(&self) -> Vec<VolumeDescription> {
        match &self.control {
            Some(control) => {
                let is_deleting = |record: &&VolumeRecord| matches!(record.state, VolumeState::Deleting { .. });
                control.store.records.values().filter(|record| !is_deleting(record)).map(widest).collect()
            }
            None => self.volumes(),
        }
    }

    /// A host that is silent for longer is presumed dead.
    pub(super) fn control_lease(&self) -> Duration {
        self.options.settings.host_lease.max(Duration::from_millis(500))
    }
}

/// The volume, including the target of a migration that is about to begin.
fn widest(record: &VolumeRecord) -> VolumeDescription {
    match &record.state {
        VolumeState::Draining { to: to @ Change::Move(_), .. }
        | VolumeState::Reordering { to: to @ Change::Move(_), .. } => to.applied_to(&record.volume),
        _ => record.volume.clone(),
    }
}
