//! The description itself: its devices and volumes, and the parameters it was created with.

use crate::file_systems::{self, FileSystemEntry};
use crate::format::{SCHEMA, SCHEMA_OF_GROWTH, schema_of};
use crate::volumes::{Change, VolumeEntry, VolumeState};
use braid_base::{Acquisition, ArrayId, Callbacks, DiskId, Level, LockServerId, RangeDivision};
use braid_host_leases::{LEASE_MILLIS_DEFAULT, Leases};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::{Component, Path, PathBuf};

/// The array's description: the content of `array.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayDescription {
    pub schema: u64,
    #[serde(serialize_with = "write_array_id", deserialize_with = "read_array_id")]
    pub array: ArrayId,
    /// The level of the array, as far as the control plane has heard: what the description may name.
    #[serde(default, skip_serializing_if = "Level::is_first")]
    pub level: Level,
    /// Incremented by every change of this description.
    pub revision: u64,
    /// False until every device has been made. Until then no data has been served, and the devices may be made again.
    pub created: bool,
    /// False until the volumes requested at creation have been made.
    pub populated: bool,
    /// The number of the next volume. Numbers are never reused.
    pub next_volume: u64,
    /// The number of the next device, unless a device of the array has a higher number. Numbers are never reused.
    #[serde(default)]
    pub next_device: u16,
    pub devices: Vec<DeviceEntry>,
    /// Spares: disks that stand by to fill the slot of a device that stays out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<DiskEntry>,
    pub volumes: Vec<VolumeEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<FileSystemEntry>,
    /// The number of the last file system. Numbers are never reused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_file_system: u16,
    /// Programs lock ranges, so that the lock servers are started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locks_ranges: bool,
    /// The parameters of the array's creation.
    pub creation: Creation,
}

/// One device of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    pub id: u16,
    /// Its file or raw disk; relative to the array's folder unless it begins with `/`.
    pub file: PathBuf,
    /// Its raw size in bytes.
    pub size: u64,
    /// The name of the disk in that file; absent until the disk has been made.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "disk_or_none")]
    pub disk: Option<DiskId>,
    /// The failure domain: devices in one domain fail together. No two units of a stripe lie in the same domain.
    pub domain: String,
    /// Its address, if it is not started by `braid up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default)]
    pub state: DeviceState,
    /// The generation of the host that adds or removes it. Absent otherwise, and if an older release has begun that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// Disks that are to fill its slot, or that filled it before. The device is started on the disk that fills the slot according to the
    /// monitor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<DiskEntry>,
}

/// Whether the monitor's membership contains a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// Being added: its disk has been made, and the membership may not contain it yet.
    Adding,
    /// The membership contains it.
    #[default]
    Ready,
    /// Being removed: no volume lies on it, and the membership may no longer contain it.
    Removing,
}

/// A disk that does not fill a slot: a spare, or another disk of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskEntry {
    /// Its file or raw disk; relative to the array's folder unless it begins with `/`.
    pub file: PathBuf,
    /// Its raw size in bytes.
    pub size: u64,
    #[serde(with = "disk_name")]
    pub disk: DiskId,
}

/// The parameters of the array's creation. Later invocations of `braid up` must not ask for different ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// The number of devices.
    pub devices: u16,
    /// The size of each device in bytes.
    pub size: u64,
    /// The layout of the volumes.
    pub layout: String,
    /// Bytes in a stripe unit.
    pub unit: u64,
    /// Name and size in bytes of each volume.
    pub volumes: Vec<(String, u64)>,
    /// The name of the file system that was created with the array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The number of lock servers, which are started if a volume's ordering needs them.
    #[serde(default = "one")]
    pub lock_servers: u16,
    /// How hosts acquire locks from several lock servers.
    #[serde(default)]
    pub lock_acquisition: Acquisition,
    /// How the lock servers divide the ranges of a space.
    #[serde(default, skip_serializing_if = "is_default")]
    pub range_division: RangeDivision,
    /// Which hosts a lock server calls on to give back ranges.
    #[serde(default, skip_serializing_if = "is_default")]
    pub callbacks: Callbacks,
    /// The lease in milliseconds: a node that is silent for longer is presumed dead.
    #[serde(default = "default_lease")]
    pub lease_millis: u64,
}

fn default_lease() -> u64 {
    LEASE_MILLIS_DEFAULT
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> u16 {
    1
}

impl ArrayDescription {
    /// The schema that a release must know to read this description.
    pub fn needed_schema(&self) -> u64 {
        let grows = |volume: &VolumeEntry| match &volume.state {
            VolumeState::Draining { to, .. } | VolumeState::Reordering { to, .. } => matches!(to, Change::Grow(_)),
            _ => false,
        };
        match self.level {
            Level::FIRST if self.volumes.iter().any(grows) => SCHEMA_OF_GROWTH,
            Level::FIRST => SCHEMA,
            level => schema_of(level),
        }
    }

    /// A new array, whose devices are still to be made.
    pub fn new(array: ArrayId, devices: Vec<DeviceEntry>, creation: Creation) -> ArrayDescription {
        ArrayDescription {
            schema: SCHEMA,
            array,
            level: Level::FIRST,
            revision: 0,
            created: false,
            populated: false,
            next_volume: 1,
            next_device: 0,
            devices,
            spares: Vec::new(),
            volumes: Vec::new(),
            file_systems: Vec::new(),
            last_file_system: 0,
            locks_ranges: false,
            creation,
        }
    }

    /// The leases of its nodes.
    pub fn leases(&self) -> Leases {
        Leases::of_millis(self.creation.lease_millis)
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&VolumeEntry> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    pub fn volume_mut(&mut self, name: &str) -> Option<&mut VolumeEntry> {
        self.volumes.iter_mut().find(|volume| volume.name == name)
    }

    /// The device of this number.
    pub fn device(&self, id: u16) -> Option<&DeviceEntry> {
        self.devices.iter().find(|device| device.id == id)
    }

    pub fn device_mut(&mut self, id: u16) -> Option<&mut DeviceEntry> {
        self.devices.iter_mut().find(|device| device.id == id)
    }

    /// The volumes that lie on this device, or are migrating or about to migrate to it.
    pub fn volumes_on(&self, id: u16) -> impl Iterator<Item = &VolumeEntry> {
        self.volumes.iter().filter(move |volume| volume.has_to_do_with(id))
    }

    /// The devices that new volumes may lie on.
    pub fn ready_devices(&self) -> impl Iterator<Item = &DeviceEntry> {
        self.devices.iter().filter(|device| device.state == DeviceState::Ready)
    }

    /// A number that no device has had.
    pub fn unused_device(&self) -> u16 {
        let above = self.devices.iter().map(|device| device.id.saturating_add(1)).max().unwrap_or(0);
        self.next_device.max(above)
    }

    /// Records that another disk fills a device's slot: one of the device's other disks, or a spare. The previous disk joins the device's
    /// other disks. Returns false if no such disk is known.
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

    /// The files of all disks, as the description names them.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let others = self.devices.iter().flat_map(|device| &device.others);
        let disks = others.chain(&self.spares).map(|disk| disk.file.as_path());
        self.devices.iter().map(|device| device.file.as_path()).chain(disks)
    }

    /// The lock servers, whether or not an ordering needs them.
    pub fn lock_servers(&self) -> impl Iterator<Item = LockServerId> + use<> {
        (0..self.creation.lock_servers).map(LockServerId)
    }

    /// Checks the description for contradictions, because the file may have been edited by hand. Returns what is wrong.
    pub fn check(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].iter().any(|other| other.id == device.id) {
                return Err(format!("device {} appears twice", device.id));
            }
            // Until all devices are made, their files are overwritten.
            if !self.created && !device.lies_in_folder() {
                let file = device.file.display();
                return Err(format!("device {} is to be made as {file}, which is not in the folder", device.id));
            }
        }
        let disks =
            self.devices.iter().filter_map(|device| device.disk).chain(self.spares.iter().map(|spare| spare.disk));
        let disks: Vec<_> = disks.collect();
        if let Some(twice) = disks.iter().enumerate().find(|(index, disk)| disks[..*index].contains(disk)) {
            return Err(format!("disk {} appears twice", twice.1));
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            if self.volumes[..index].iter().any(|other| other.name == volume.name || other.id == volume.id) {
                return Err(format!("volume '{}' appears twice", volume.name));
            }
            if volume.id >= self.next_volume {
                return Err(format!(
                    "volume '{}' has number {}, but next_volume is {}",
                    volume.name, volume.id, self.next_volume
                ));
            }
            let target = volume.moving.iter().flat_map(|target| &target.devices);
            let mut devices = volume.devices.iter().chain(target);
            if let Some(stranger) = devices.find(|id| !self.devices.iter().any(|device| device.id == **id)) {
                return Err(format!("volume '{}' lies on device {stranger}, which does not exist", volume.name));
            }
        }
        file_systems::check(self)
    }
}

impl DeviceEntry {
    /// A device with a file in the array's folder, and a failure domain of its own.
    pub fn new(id: u16, size: u64) -> DeviceEntry {
        DeviceEntry {
            id,
            file: format!("device-{id}.braid").into(),
            size,
            disk: None,
            domain: format!("device-{id}"),
            address: None,
            state: DeviceState::Ready,
            by: None,
            others: Vec::new(),
        }
    }

    /// True if its file is one in the array's folder itself: only then may it be made, overwritten or removed because the description says
    /// so.
    pub fn lies_in_folder(&self) -> bool {
        lies_in_folder(&self.file)
    }

    /// Adds a disk to the device's other disks. A bounded number is kept, enough to revert a replacement.
    pub fn remember(&mut self, disk: DiskEntry) {
        self.others.retain(|other| other.disk != disk.disk);
        self.others.push(disk);
        let surplus = self.others.len().saturating_sub(OTHERS_MAX);
        self.others.drain(..surplus);
    }

    /// Its file, resolved against the array's folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }
}

impl DiskEntry {
    /// Its file, resolved against the array's folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }
}

/// The most other disks that are kept for a device.
const OTHERS_MAX: usize = 4;

/// True if a file of the description is one in the array's folder itself. Only such files are made, overwritten or removed on the word of
/// the description; others are opened if they contain a device of this array.
pub fn lies_in_folder(file: &Path) -> bool {
    let mut parts = file.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

/// Parses the text form of an [`ArrayId`].
pub fn parse_array_id(text: &str) -> Option<ArrayId> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let array = ArrayId(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes());
    let lower = text.to_ascii_lowercase();
    [array.to_string(), array.to_string().replace('-', "")].contains(&lower).then_some(array)
}

/// Parses the text form of a disk's name.
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
            file: format!("device-{id}").into(),
            disk: Some(DiskId(u64::from(id) + 1)),
            ..DeviceEntry::new(id, 1 << 20)
        };
        let creation = Creation {
            devices: 2,
            size: 1 << 20,
            layout: "raid1:2".into(),
            unit: 65_536,
            volumes: Vec::new(),
            file_system: None,
            lock_servers: 1,
            lock_acquisition: Acquisition::Ordered,
            range_division: RangeDivision::default(),
            callbacks: Callbacks::default(),
            lease_millis: LEASE_MILLIS_DEFAULT,
        };
        ArrayDescription::new(ArrayId([7; 16]), vec![device(0), device(3)], creation)
    }

    #[test]
    fn a_slot_is_filled_by_its_own_next_disk_or_by_a_spare_and_the_one_before_is_kept_in_mind() {
        let mut array = description();
        assert!(!array.fill_slot(3, DiskId(70)), "the disk is unknown");
        array.device_mut(3).unwrap().remember(disk(70));
        array.spares = vec![disk(80), disk(90)];
        assert!(array.fill_slot(3, DiskId(70)) && array.fill_slot(3, DiskId(90)));
        let device = array.device(3).unwrap();
        assert_eq!(
            (device.disk, device.file.as_path(), device.size),
            (Some(DiskId(90)), Path::new("disk-90"), 90 << 20)
        );
        let names = |others: &[DiskEntry]| others.iter().map(|other| other.disk.0).collect::<Vec<_>>();
        assert_eq!((names(&device.others), names(&array.spares), array.files().count()), (vec![4, 70], vec![80], 5));
        assert!(array.fill_slot(3, DiskId(4)), "the first one is back");
        assert_eq!(array.device(3).unwrap().file, Path::new("device-3"));
        assert_eq!(array.check(), Ok(()));
        (10..20).for_each(|number| array.device_mut(3).unwrap().remember(disk(number)));
        assert_eq!(names(&array.device(3).unwrap().others), [16, 17, 18, 19]);
        array.spares.push(disk(1));
        assert!(array.check().is_err(), "device 0 has the same disk");
        array.spares.clear();
        array.device_mut(3).unwrap().file = "/etc/passwd".into();
        assert!(array.check().is_err_and(|reason| reason.contains("/etc/passwd")), "it would be overwritten");
        array.created = true;
        assert_eq!(array.check(), Ok(()), "it is only opened");
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

    #[test]
    fn a_division_that_divides_nothing_is_refused_where_it_is_read() {
        let read = |text: &str| serde_json::from_str::<RangeDivision>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#""hash:64KiB""#), Ok(RangeDivision::Hash(64 << 10)));
        assert_eq!(serde_json::to_string(&RangeDivision::default()).unwrap(), r#""round-robin:1MiB""#);
        assert!(read(r#""round-robin:0""#).is_err_and(|error| error.contains("is not space, round-robin:SIZE")));
    }
}
