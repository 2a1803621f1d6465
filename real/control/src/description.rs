//! What an array is: its devices and volumes, and how it was created.

use crate::leases::{LEASE_MILLIS_DEFAULT, Leases};
use braid_base::{ArrayId, DiskId, LockServerId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// The array's description, as it stands in `array.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayDescription {
    pub(crate) schema: u64,
    /// Names the array.
    #[serde(serialize_with = "write_array_id", deserialize_with = "read_array_id")]
    pub array: ArrayId,
    /// Rises with every change of this description.
    pub revision: u64,
    /// False until every device was made: nothing has been served from them yet, and they may be made again.
    pub created: bool,
    /// False until the volumes that it was created with were made.
    pub populated: bool,
    /// The number of the next volume. Numbers are never used again.
    pub next_volume: u64,
    /// The number of the next device, unless one that is there has a higher one. Numbers are never used again.
    #[serde(default)]
    pub next_device: u16,
    /// The devices.
    pub devices: Vec<DeviceEntry>,
    /// Disks that stand by for the slot of a device that stays out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<DiskEntry>,
    /// The volumes.
    pub volumes: Vec<VolumeEntry>,
    /// What was asked for when the array was created.
    pub creation: Creation,
}

/// One device of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Its number.
    pub id: u16,
    /// Its file or raw disk; relative to the array's folder unless it begins with `/`.
    pub file: PathBuf,
    /// Its raw size in bytes.
    pub size: u64,
    /// The name of the disk in that file; none before it has been made.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "disk_or_none")]
    pub disk: Option<DiskId>,
    /// What fails together with it. No two units of a stripe are on one of these.
    pub domain: String,
    /// Where it listens when `braid up` does not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether the monitor knows of it.
    #[serde(default)]
    pub state: DeviceState,
    /// Disks that are to take its place, or had it before: the device is started on the one of which the monitor says that it fills the slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<DiskEntry>,
}

/// Whether a device is on the monitor's record, or is going to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// It may not be, yet. Its disk has been made.
    Adding,
    /// It is.
    #[default]
    Ready,
    /// It may not be, any more. No volume lies on it.
    Removing,
}

/// A disk without a slot of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskEntry {
    /// Its file or raw disk; relative to the array's folder unless it begins with `/`.
    pub file: PathBuf,
    /// Its raw size in bytes.
    pub size: u64,
    /// Its name.
    #[serde(with = "disk_name")]
    pub disk: DiskId,
}

/// One volume of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeEntry {
    /// What people call it.
    pub name: String,
    /// Its number; its component on each device is the object of the same number.
    pub id: u64,
    /// Its usable size.
    pub bytes: u64,
    /// Such as `raid5:4+1`.
    pub layout: String,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// The devices that it lies on, in ring order.
    pub devices: Vec<u16>,
    /// How its requests are ordered: `timestamp`, `device-lock`, …
    pub ordering: String,
    /// What a failure may leave of a write: `implied` or `consistent`.
    #[serde(default = "implied")]
    pub atomicity: String,
    /// It is an attribute volume: it keeps attributes of objects, and nobody's blocks.
    #[serde(default, alias = "mirror", skip_serializing_if = "is_false")]
    pub attribute_volume: bool,
    /// Where its components begin in their objects, in blocks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_block: u64,
    /// Where it moves to, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<PlacementEntry>,
    /// Whether its components are there, and all ordered so.
    pub state: VolumeState,
}

/// Where a volume moves to, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementEntry {
    /// As of a volume.
    pub layout: String,
    /// As of a volume.
    pub unit: u64,
    /// As of a volume.
    pub devices: Vec<u16>,
    /// As of a volume.
    pub first_block: u64,
    /// What is before this block of the volume was copied; from time to time.
    #[serde(default)]
    pub copied_to: u64,
}

/// What is changed while a volume is on hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// How its requests are ordered.
    Ordering(String),
    /// From now on it moves.
    Move(PlacementEntry),
    /// It lies where it has moved to, and nowhere else.
    EndMove,
    /// It lies where it was, and nowhere else.
    GiveUpMove,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Ordering(to) => f.write_str(to),
            Change::Move(to) => write!(f, "a move to {}", to.layout),
            Change::EndMove => f.write_str("where it moved to"),
            Change::GiveUpMove => f.write_str("where it was"),
        }
    }
}

impl VolumeEntry {
    /// The same after a change, ready.
    pub fn changed(&self, change: &Change) -> VolumeEntry {
        let mut changed = VolumeEntry { state: VolumeState::Ready, ..self.clone() };
        match change {
            Change::Ordering(to) => changed.ordering.clone_from(to),
            Change::Move(to) => changed.moving = Some(to.clone()),
            Change::GiveUpMove => changed.moving = None,
            Change::EndMove => {
                if let Some(PlacementEntry { layout, unit, devices, first_block, .. }) = changed.moving.take() {
                    (changed.layout, changed.unit) = (layout, unit);
                    (changed.devices, changed.first_block) = (devices, first_block);
                }
            }
        }
        changed
    }

    /// True if it lies on this device, moves there, or is going to.
    pub fn has_to_do_with(&self, device: u16) -> bool {
        let target = match &self.state {
            VolumeState::Draining { to: Change::Move(target), .. }
            | VolumeState::Reordering { to: Change::Move(target), .. } => Some(target),
            _ => None,
        };
        let targets = self.moving.iter().chain(target).flat_map(|target| &target.devices);
        self.devices.iter().chain(targets).any(|other| *other == device)
    }

    /// Its state in a word, for programs.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            VolumeState::Ready if self.moving.is_some() => "moving",
            _ => self.state.name(),
        }
    }
}

/// Whether a volume's components are on all its devices, and ordered in one way.
///
/// ```text
///   Creating ──► Ready ──► Draining ──► Reordering ──► Ready         Draining ──► Ready: it was given up
///                  └─────► Deleting
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Some may not be there yet.
    Creating,
    /// All are there.
    Ready,
    /// Hosts are to end what they have begun, and to begin nothing: its ordering, or where it lies, is going to change. Nothing
    /// has changed yet.
    Draining {
        /// What is going to change.
        to: Change,
        /// The generation of the host that is changing it. If that dies, whoever runs the array takes it back.
        by: u32,
    },
    /// All hosts have drained. Some devices may have been changed already.
    Reordering {
        /// What changes.
        to: Change,
        /// As in `Draining`; but what has begun is brought to its end.
        by: u32,
    },
    /// Some may be gone already.
    Deleting,
}

impl VolumeState {
    /// True if hosts are to begin nothing until it is ready again.
    pub fn is_on_hold(&self) -> bool {
        matches!(self, VolumeState::Draining { .. } | VolumeState::Reordering { .. })
    }

    /// In a word, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            VolumeState::Creating => "creating",
            VolumeState::Ready => "ready",
            VolumeState::Draining { .. } => "draining",
            VolumeState::Reordering { .. } => "reordering",
            VolumeState::Deleting => "deleting",
        }
    }
}

/// What an array was created with; what is asked for later must not differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// How many devices.
    pub devices: u16,
    /// Bytes of each.
    pub size: u64,
    /// Of the volumes.
    pub layout: String,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// Name and bytes of each volume.
    pub volumes: Vec<(String, u64)>,
    /// How many lock servers share the work, if a volume's ordering needs any.
    #[serde(default = "one")]
    pub lock_servers: u16,
    /// How hosts get locks at several of them: `ordered` or `timeout`.
    #[serde(default = "ordered")]
    pub lock_acquisition: String,
    /// How long a node may be silent until the others go on without it, in milliseconds.
    #[serde(default = "default_lease")]
    pub lease_millis: u64,
}

fn default_lease() -> u64 {
    LEASE_MILLIS_DEFAULT
}

fn implied() -> String {
    "implied".to_string()
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn one() -> u16 {
    1
}

fn ordered() -> String {
    "ordered".to_string()
}

impl ArrayDescription {
    /// A new array with a name of its own, whose devices are still to be made.
    pub fn new(devices: Vec<DeviceEntry>, creation: Creation) -> ArrayDescription {
        ArrayDescription {
            schema: crate::file::SCHEMA,
            array: ArrayId(uuid::Uuid::new_v4().into_bytes()),
            revision: 0,
            created: false,
            populated: false,
            next_volume: 1,
            next_device: 0,
            devices,
            spares: Vec::new(),
            volumes: Vec::new(),
            creation,
        }
    }

    /// How long its nodes may be silent.
    pub fn leases(&self) -> Leases {
        Leases::of_millis(self.creation.lease_millis)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&VolumeEntry> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The same, to change it.
    pub fn volume_mut(&mut self, name: &str) -> Option<&mut VolumeEntry> {
        self.volumes.iter_mut().find(|volume| volume.name == name)
    }

    /// The device of this number.
    pub fn device(&self, id: u16) -> Option<&DeviceEntry> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// The same, to change it.
    pub fn device_mut(&mut self, id: u16) -> Option<&mut DeviceEntry> {
        self.devices.iter_mut().find(|device| device.id == id)
    }

    /// The devices that new volumes can lie on.
    pub fn ready_devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.devices.iter().filter(|device| device.state == DeviceState::Ready)
    }

    /// A number that no device has had.
    pub fn unused_device(&self) -> u16 {
        let above = self.devices.iter().map(|device| device.id.saturating_add(1)).max().unwrap_or(0);
        self.next_device.max(above)
    }

    /// Another disk fills a device's slot: one that it knows as its own, or a spare. The one before it is kept in mind. False if no such disk
    /// is known.
    pub fn fill_slot(&mut self, id: u16, disk: DiskId) -> bool {
        let spare = self.spares.iter().position(|spare| spare.disk == disk);
        let Some(device) = self.devices.iter_mut().find(|device| device.id == id) else { return false };
        let next = match (device.others.iter().position(|other| other.disk == disk), spare) {
            (Some(other), _) => device.others.remove(other),
            (None, Some(spare)) => self.spares.remove(spare),
            (None, None) => return false,
        };
        let file = std::mem::replace(&mut device.file, next.file);
        let before = device.disk.replace(next.disk).map(|disk| DiskEntry { file, size: device.size, disk });
        device.size = next.size;
        before.into_iter().for_each(|before| device.remember(before));
        true
    }

    /// The lock servers, whether or not they are needed.
    pub fn lock_servers(&self) -> impl Iterator<Item = LockServerId> + use<> {
        (0..self.creation.lock_servers).map(LockServerId)
    }

    /// What is wrong with it, if anything: the file may have been edited by hand.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].iter().any(|other| other.id == device.id) {
                return Err(format!("device {} is there twice", device.id));
            }
        }
        let disks =
            self.devices.iter().filter_map(|device| device.disk).chain(self.spares.iter().map(|spare| spare.disk));
        let disks: Vec<_> = disks.collect();
        if let Some(twice) = disks.iter().enumerate().find(|(index, disk)| disks[..*index].contains(disk)) {
            return Err(format!("disk {} is there twice", twice.1));
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            if self.volumes[..index].iter().any(|other| other.name == volume.name || other.id == volume.id) {
                return Err(format!("volume '{}' is there twice", volume.name));
            }
            if volume.id >= self.next_volume {
                return Err(format!("volume '{}' has a number that was not given out", volume.name));
            }
            let target = volume.moving.iter().flat_map(|target| &target.devices);
            let mut devices = volume.devices.iter().chain(target);
            if let Some(stranger) = devices.find(|id| !self.devices.iter().any(|device| device.id == **id)) {
                return Err(format!("volume '{}' lies on device {stranger}, which is not there", volume.name));
            }
        }
        Ok(())
    }
}

impl DeviceEntry {
    /// One of its disks beside that which it has. So many are kept in mind that a change can be taken back.
    pub fn remember(&mut self, disk: DiskEntry) {
        self.others.retain(|other| other.disk != disk.disk);
        self.others.push(disk);
        let surplus = self.others.len().saturating_sub(OTHERS_MAX);
        self.others.drain(..surplus);
    }

    /// Its file, seen from anywhere.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }
}

impl DiskEntry {
    /// Its file, seen from anywhere.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }
}

/// The most disks of a device that are known besides the one that it has.
const OTHERS_MAX: usize = 4;

/// Where a lock server keeps what it must not forget: a file in the array's folder.
pub fn lock_server_file(server: LockServerId) -> PathBuf {
    format!("lockd{}.state", server.0).into()
}

/// Reads the form that [`ArrayId`] is written in.
pub fn parse_array_id(text: &str) -> Option<ArrayId> {
    uuid::Uuid::parse_str(text).ok().map(|uuid| ArrayId(uuid.into_bytes()))
}

/// Reads the form in which a disk's name is written.
pub fn parse_disk(text: &str) -> Option<DiskId> {
    u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16).map(DiskId)
}

mod disk_name {
    use super::*;

    pub fn serialize<S: Serializer>(disk: &DiskId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(disk)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DiskId, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_disk(&text).ok_or_else(|| serde::de::Error::custom(format!("'{text}' does not name a disk")))
    }
}

mod disk_or_none {
    use super::*;

    pub fn serialize<S: Serializer>(disk: &Option<DiskId>, serializer: S) -> Result<S::Ok, S::Error> {
        disk_name::serialize(&disk.unwrap_or_default(), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DiskId>, D::Error> {
        disk_name::deserialize(deserializer).map(Some)
    }
}

fn write_array_id<S: Serializer>(array: &ArrayId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(array)
}

fn read_array_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ArrayId, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_array_id(&text).ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a UUID")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u64) -> DiskEntry {
        DiskEntry { file: format!("disk-{number}").into(), size: number << 20, disk: DiskId(number) }
    }

    fn description() -> ArrayDescription {
        let device = |id: u16| DeviceEntry {
            id,
            file: format!("device-{id}").into(),
            size: 1 << 20,
            disk: Some(DiskId(u64::from(id) + 1)),
            domain: format!("device-{id}"),
            address: None,
            state: DeviceState::Ready,
            others: Vec::new(),
        };
        let creation = Creation {
            devices: 2,
            size: 1 << 20,
            layout: "raid1:2".into(),
            unit: 65_536,
            volumes: Vec::new(),
            lock_servers: 1,
            lock_acquisition: ordered(),
            lease_millis: LEASE_MILLIS_DEFAULT,
        };
        ArrayDescription::new(vec![device(0), device(3)], creation)
    }

    #[test]
    fn a_slot_is_filled_by_its_own_next_disk_or_by_a_spare_and_the_one_before_is_kept_in_mind() {
        let mut array = description();
        assert!(!array.fill_slot(3, DiskId(70)), "nobody knows that disk");
        array.device_mut(3).unwrap().remember(disk(70));
        array.spares = vec![disk(80), disk(90)];
        assert!(array.fill_slot(3, DiskId(70)) && array.fill_slot(3, DiskId(90)));
        let device = array.device(3).unwrap();
        assert_eq!(
            (device.disk, device.file.as_path(), device.size),
            (Some(DiskId(90)), Path::new("disk-90"), 90 << 20)
        );
        let names = |others: &[DiskEntry]| others.iter().map(|other| other.disk.0).collect::<Vec<_>>();
        assert_eq!((names(&device.others), names(&array.spares)), (vec![4, 70], vec![80]));
        assert!(array.fill_slot(3, DiskId(4)), "the first one is back");
        assert_eq!(array.device(3).unwrap().file, Path::new("device-3"));
        assert_eq!(array.check(), Ok(()));
        (10..20).for_each(|number| array.device_mut(3).unwrap().remember(disk(number)));
        assert_eq!(names(&array.device(3).unwrap().others), [16, 17, 18, 19]);
        array.spares.push(disk(1));
        assert!(array.check().is_err(), "it is that of device 0");
    }

    #[test]
    fn numbers_of_devices_are_not_used_again_and_disks_have_names_in_the_file() {
        let mut array = description();
        assert_eq!(array.unused_device(), 4);
        array.next_device = 9;
        array.device_mut(0).unwrap().disk = None;
        array.device_mut(3).unwrap().remember(disk(70));
        let text = serde_json::to_string(&array).unwrap();
        assert!(text.contains(r#""disk":"0000000000000046""#), "{text}");
        assert_eq!(serde_json::from_str::<ArrayDescription>(&text).unwrap(), array);
        assert!(serde_json::from_str::<ArrayDescription>(&text.replace("0000000000000046", "46")).is_err());
        assert_eq!(array.unused_device(), 9);
    }
}
