//! What an array is: its devices and volumes, and how it was created.

use braid_base::ArrayId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::{Path, PathBuf};

/// The epoch of an array whose devices are all in, as it was created.
pub const FIRST_EPOCH: u32 = 1;

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
    /// Which set of devices is in.
    pub epoch: u32,
    /// False until every device was made: nothing has been served from them yet, and they may be made again.
    pub created: bool,
    /// False until the volumes that it was created with were made.
    pub populated: bool,
    /// The number of the next volume. Numbers are never used again.
    pub next_volume: u64,
    /// The devices.
    pub devices: Vec<DeviceEntry>,
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
    /// What fails together with it. No two units of a stripe are on one of these.
    pub domain: String,
    /// Where it listens when `braid up` does not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
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
    /// `timestamp` or `none`.
    pub ordering: String,
    /// Whether its components are there.
    pub state: VolumeState,
}

/// Whether a volume's components are on all its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Some may not be there yet.
    Creating,
    /// All are there.
    Ready,
    /// Some may be gone already.
    Deleting,
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
}

impl ArrayDescription {
    /// A new array with a name of its own, whose devices are still to be made.
    pub fn new(devices: Vec<DeviceEntry>, creation: Creation) -> ArrayDescription {
        ArrayDescription {
            schema: crate::file::SCHEMA,
            array: ArrayId(uuid::Uuid::new_v4().into_bytes()),
            revision: 0,
            epoch: FIRST_EPOCH,
            created: false,
            populated: false,
            next_volume: 1,
            devices,
            volumes: Vec::new(),
            creation,
        }
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&VolumeEntry> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The same, to change it.
    pub fn volume_mut(&mut self, name: &str) -> Option<&mut VolumeEntry> {
        self.volumes.iter_mut().find(|volume| volume.name == name)
    }

    /// What is wrong with it, if anything: the file may have been edited by hand.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].iter().any(|other| other.id == device.id) {
                return Err(format!("device {} is there twice", device.id));
            }
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            if self.volumes[..index].iter().any(|other| other.name == volume.name || other.id == volume.id) {
                return Err(format!("volume '{}' is there twice", volume.name));
            }
            if volume.id >= self.next_volume {
                return Err(format!("volume '{}' has a number that was not given out", volume.name));
            }
            if let Some(stranger) =
                volume.devices.iter().find(|id| !self.devices.iter().any(|device| device.id == **id))
            {
                return Err(format!("volume '{}' lies on device {stranger}, which is not there", volume.name));
            }
        }
        Ok(())
    }
}

impl DeviceEntry {
    /// Its file, seen from anywhere.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.file)
    }
}

/// Reads the form that [`ArrayId`] is written in.
pub fn parse_array_id(text: &str) -> Option<ArrayId> {
    uuid::Uuid::parse_str(text).ok().map(|uuid| ArrayId(uuid.into_bytes()))
}

fn write_array_id<S: Serializer>(array: &ArrayId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(array)
}

fn read_array_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ArrayId, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_array_id(&text).ok_or_else(|| serde::de::Error::custom(format!("'{text}' is not a UUID")))
}
