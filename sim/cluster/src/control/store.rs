//! The store of the control plane: the bytes of a description with a version, and leases. What commands do with the description is the code of real arrays
//! (`braid_description`). Commands take effect in the order of their arrival. Answers are lost, and commands arrive late, on the way to it.

use super::leases::{LeaseStore, Report};
use super::processes::Name;
use super::{ControlPlane, Event};
use crate::cluster::{ARRAY, Cluster};
use crate::volumes;
use braid_base::{DeviceId, DiskId, Generation, VolumeId};
use braid_control_protocol::{
    self as protocol, Answer, Command, DeviceRecord, HostLease, ServerLease, Tag, Version, VolumeRecord,
};
use braid_description::{
    Applied, ArrayDescription, Creation, DeviceEntry, DeviceState, DiskEntry, Refusal, Subject, VolumeEntry,
    VolumeState,
};
use braid_host_leases::Lease;
use braid_layout::VolumeDescription;
use braid_machine::ControlRequest;
use std::collections::BTreeMap;
use std::time::Duration;

/// A command whose answer is missing for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);

/// A watch answers after this time.
const WATCHED: Duration = Duration::from_millis(20);

/// File systems of the run have higher numbers: the others are those of other activities.
pub(super) const LAST_FILE_SYSTEM: u16 = 100;

pub(super) struct Store {
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
        volumes: Vec<VolumeDescription>,
        devices: impl Iterator<Item = (DeviceId, DiskId)>,
        leases: LeaseStore,
    ) -> Store {
        let ready = |(device, disk)| DeviceEntry { state: DeviceState::Ready, ..device_entry(device, disk) };
        let mut description = ArrayDescription::new(ARRAY, devices.map(ready).collect(), creation());
        let ready = |volume: &VolumeDescription| VolumeEntry { state: VolumeState::Ready, ..volume_entry(volume) };
        description.volumes = volumes.iter().map(ready).collect();
        (description.created, description.populated, description.revision) = (true, true, 1);
        description.last_file_system = LAST_FILE_SYSTEM;
        let highest = volumes.iter().map(|volume| volume.id.0).max();
        description.next_volume = highest.map_or(1, |volume| volume + 1);
        let (bytes, records, devices) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut store = Store { bytes, description: description.clone(), records, devices, leases };
        store.put(&description);
        store
    }

    /// Stores the bytes of a description.
    fn put(&mut self, description: &ArrayDescription) {
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

    pub fn next_volume(&self) -> VolumeId {
        VolumeId(self.description.next_volume)
    }

    pub fn held_by(&self, volume: VolumeId) -> Option<Generation> {
        self.record(volume)?.held_by()
    }

    /// The volumes on which an administrator is at work, and that administrator.
    pub fn unsettled(&self) -> impl Iterator<Item = (&VolumeRecord, Generation)> + '_ {
        self.records.values().filter_map(|record| Some((record, record.administrator()?)))
    }
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

/// The parameters of an array's creation, which say nothing here.
fn creation() -> Creation {
    Creation {
        devices: 0,
        size: 0,
        layout: String::new(),
        unit: 0,
        volumes: Vec::new(),
        file_system: None,
        lock_servers: 0,
        lock_acquisition: String::new(),
        lease_millis: 0,
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
    pub(super) fn on_command(&mut self, control: &mut ControlPlane, subject: &Subject, command: Command) -> Answer {
        let only_asks = matches!(
            command,
            Command::Read | Command::ReadDevice | Command::Watch | Command::ListHosts | Command::Confirm { .. }
        );
        if !only_asks && control.is_unwritable(self.world.now()) {
            return Answer::Unknown;
        }
        let (now, lease) = (self.lease_time(), self.control_lease());
        match command {
            Command::ListServers => {
                let table = control.store.leases.table();
                let as_seen = |(host, seen): (Generation, &Lease<Report>)| {
                    let report = seen.heartbeat.report.clone()?;
                    Some(ServerLease { is_live: table.is_live(host, &now, lease), ..report })
                };
                let leases = table.leases().filter_map(as_seen).collect();
                let file_system = subject.file_system(&control.store.description).map(|entry| entry.id());
                let announced = file_system.map(|id| control.announced(id, &now, lease).collect());
                Answer::Servers { leases, announced: announced.unwrap_or_default() }
            }
            Command::Watch => Answer::Yes,
            Command::ListHosts => {
                let table = control.store.leases.table();
                let as_seen = |(host, seen): (Generation, &Lease<Report>)| HostLease {
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
            command => self.execute(control, subject, command),
        }
    }

    /// Executes a command about the description, and stores the next one.
    fn execute(&mut self, control: &mut ControlPlane, subject: &Subject, command: Command) -> Answer {
        let replaced = match &command {
            Command::Replace { record, .. } => Some(record.clone()),
            _ => None,
        };
        let Applied { answer, next } = match control.store.description.apply(subject, command) {
            Ok(applied) => applied,
            // The names of the volumes of a file system are free only for the host that creates it.
            Err(Refusal::NameOfFileSystem { .. } | Refusal::VolumeExists { .. } | Refusal::VolumeInTheWay { .. }) => {
                control.count("name of a volume refused");
                return Answer::Failed;
            }
            Err(refusal) => panic!("there is room for everything: {refusal}"),
        };
        let Some(next) = next else { return answer };
        control.store.put(&next);
        if let Some(volume) = subject.volume() {
            let record = control.store.record(volume).cloned();
            assert_eq!(record, replaced, "the store has what was written");
            self.follow_record(control, volume, record.as_ref());
        }
        answer
    }

    /// The record of a volume was replaced, or removed.
    fn follow_record(&mut self, control: &mut ControlPlane, volume: VolumeId, record: Option<&VolumeRecord>) {
        if let Some(record) = record.filter(|_| volume == self.volume.id) {
            control.orderings.insert(record.volume.ordering);
            self.options.ordering = record.volume.ordering;
            self.volume = record.volume.clone();
        }
        self.note_record(volume, record);
        self.files.disturb(self.time());
        let Some(record) = record else { return };
        volumes::tell_monitor(
            self,
            match record.state {
                protocol::VolumeState::Deleting { .. } => ControlRequest::DropVolume { volume },
                _ => ControlRequest::AdoptVolume { volume: record.widest() },
            },
        );
    }

    /// The volumes as the monitor must know them.
    pub(crate) fn volumes_for_monitor(&self) -> Vec<VolumeDescription> {
        match &self.control {
            Some(control) => {
                let is_deleting =
                    |record: &&VolumeRecord| matches!(record.state, protocol::VolumeState::Deleting { .. });
                let records = control.store.records.values().filter(|record| !is_deleting(record));
                records.map(VolumeRecord::widest).collect()
            }
            None => self.volumes(),
        }
    }

    /// A host that is silent for longer is presumed dead.
    pub(super) fn control_lease(&self) -> Duration {
        self.options.settings.host_lease.max(Duration::from_millis(500))
    }
}
