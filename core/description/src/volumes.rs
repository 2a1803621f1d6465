//! Entries of volumes, and the changes of them that are under way.

use crate::array::is_default;
use crate::unavailable::WhenUnavailable;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One volume of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeEntry {
    pub name: String,
    /// Its number; its component on each device is the object of the same number.
    pub id: u64,
    /// Its usable size in bytes.
    pub bytes: u64,
    /// The layout, such as `raid5:4+1`.
    pub layout: String,
    /// Bytes in a stripe unit.
    pub unit: u64,
    /// The devices that it lies on, in ring order.
    pub devices: Vec<u16>,
    /// The ordering of its requests: `timestamp`, `device-lock`, …
    pub ordering: String,
    /// Its atomicity, which determines what a failure may leave of a write: `implied` or `consistent`.
    #[serde(default = "implied")]
    pub atomicity: String,
    /// Where its parity is computed: `originator`, `at-parity` or `adaptive`.
    #[serde(default = "originator", skip_serializing_if = "is_originator")]
    pub parity_site: String,
    /// What requests do while devices are missing that they need; absent for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<WhenUnavailable>,
    /// True for an attribute volume: it holds attributes of objects, and no blocks of users.
    #[serde(default, alias = "mirror", skip_serializing_if = "is_default")]
    pub attribute_volume: bool,
    /// The first block of its components within their objects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_block: u64,
    /// The target of its migration, while one is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<PlacementEntry>,
    /// Whether its components exist on all devices and have the same ordering.
    pub state: VolumeState,
    /// The generation of the host that creates or deletes it. Absent if an older release has begun that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
}

/// The target of a migration, and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementEntry {
    /// The layout, as in [`VolumeEntry`].
    pub layout: String,
    /// Bytes in a stripe unit.
    pub unit: u64,
    /// The devices, in ring order.
    pub devices: Vec<u16>,
    /// The first block of the components within their objects.
    pub first_block: u64,
    /// All blocks of the volume below this one have been copied. Updated from time to time.
    #[serde(default)]
    pub copied_to: u64,
    /// The revision after which the migration began: it names the migration. 0 for migrations that an older release has begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub begun: u64,
}

/// A change that is made while a volume is on hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Sets the ordering of its requests.
    Ordering(String),
    /// Begins a migration.
    Move(PlacementEntry),
    /// Ends a migration: the volume lies at the target alone.
    EndMove,
    /// Abandons a migration: the volume lies at its source alone.
    GiveUpMove,
    /// Grows the volume to this many bytes.
    Grow(u64),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Ordering(to) => f.write_str(to),
            Change::Move(to) => write!(f, "a move to {}", to.layout),
            Change::EndMove => f.write_str("where it moved to"),
            Change::GiveUpMove => f.write_str("where it was"),
            Change::Grow(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

impl VolumeEntry {
    /// What requests do while devices are missing that they need.
    pub fn unavailable(&self) -> WhenUnavailable {
        self.unavailable.unwrap_or(WhenUnavailable::DEFAULT)
    }

    /// True if the volume lies on this device, or is migrating or about to migrate to it.
    pub fn has_to_do_with(&self, device: u16) -> bool {
        let target = match &self.state {
            VolumeState::Draining { to: Change::Move(target), .. }
            | VolumeState::Reordering { to: Change::Move(target), .. } => Some(target),
            _ => None,
        };
        let targets = self.moving.iter().chain(target).flat_map(|target| &target.devices);
        self.devices.iter().chain(targets).any(|other| *other == device)
    }

    /// The name of its state, for programs.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            VolumeState::Ready if self.moving.is_some() => "moving",
            _ => self.state.name(),
        }
    }
}

/// The life cycle of a volume.
///
/// ```text
///   Creating ──► Ready ──► Draining ──► Reordering ──► Ready         Draining ──► Ready: the change was abandoned
///                  └─────► Deleting
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Components may be missing on some devices.
    Creating,
    /// All components exist.
    Ready,
    /// The volume is on hold for a change of its ordering or placement: hosts end their operations on it and begin none. Nothing
    /// has changed yet.
    Draining {
        /// The change that will be made.
        to: Change,
        /// The generation of the host that makes the change. If that host dies, the process that runs the array reverts to `Ready`.
        by: u32,
    },
    /// All hosts have drained. The change may have been applied on some devices.
    Reordering {
        /// The change that is being made.
        to: Change,
        /// As in `Draining`; but if that host dies, the change is completed.
        by: u32,
    },
    /// Components may be gone from some devices.
    Deleting,
}

impl VolumeState {
    /// True if hosts must not begin an operation until the volume is ready again.
    pub fn is_on_hold(&self) -> bool {
        matches!(self, VolumeState::Draining { .. } | VolumeState::Reordering { .. })
    }

    /// The name of the state, for programs.
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

fn originator() -> String {
    "originator".to_string()
}

fn is_originator(site: &str) -> bool {
    site == "originator"
}

fn implied() -> String {
    "implied".to_string()
}
