//! Administration requests are changes that an operator asks of the array's monitor, through any host (`docs/healing.md`). A request is
//! durable when it is answered, and idempotent.

use crate::declarations::wire;
use braid_base::{DeviceId, DiskId, Epoch, Generation, Level, VolumeId, limits};
use serde::{Deserialize, Serialize};

wire! {
    /// A change that an operator asks for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Administration {
        /// Takes a device out, as soon as the other devices can serve without it, and keeps it out.
        Fail { device: DeviceId } = 1,
        /// Allows a device to come back. If its disk was to be replaced, and the new disk has not joined yet, the device comes back with
        /// its old disk.
        Readmit { device: DeviceId } = 2,
        /// Fills a device's slot with another, empty disk.
        Replace {
            /// The device whose slot it is.
            device: DeviceId,
            /// The new disk.
            disk: DiskId,
            /// How many blocks the objects on the new disk may have together.
            blocks: u64,
            /// Whether data may be lost that nothing can restore: data of volumes without redundancy, and, if the device is dead, data of
            /// stripes in which too many other devices are missing as well.
            lose: bool,
        } = 3,
        /// Adds a spare, which fills the slot of a device that stays out.
        AddSpare {
            disk: DiskId,
            /// How many blocks the objects on the disk may have together.
            blocks: u64,
        } = 4,
        /// Removes a spare.
        RemoveSpare { disk: DiskId } = 5,
        /// Sets the recovery throttle: how fast devices are resynchronised.
        RecoveryThrottle(throttle: RecoveryThrottle) = 6,
        /// Adds a device to the array, with this disk in its slot. The device is empty until a volume is created on it or moved to it.
        AddDevice {
            /// The number of the device, which no device has yet.
            device: DeviceId,
            /// Its disk, which must never have been used.
            disk: DiskId,
        } = 7,
        /// Removes a device from the array. No volume may use it.
        RemoveDevice { device: DeviceId } = 8,
        /// Raises the level of the array, so that its programs may use the formats of a new release. There is no way back.
        RaiseLevel { level: Level } = 9,
    }

    /// The recovery throttle: how fast devices are resynchronised.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct RecoveryThrottle {
        /// Bytes a second, for each device that is resynchronised; zero: no limit.
        pub bytes_per_second: u64,
        /// Per cent of its time that a recovery coordinator works while users have requests under way that it may slow down. From 100 on,
        /// it does not yield to users; zero: the default.
        pub share: u8,
        /// True while resynchronisation is paused.
        pub paused: bool,
    }
}

impl RecoveryThrottle {
    /// The default share, in per cent.
    pub const SHARE_DEFAULT: u8 = 25;
    /// The bytes of a device that a resync restores in a second beside users, if no share is set: this many, or a third of its rate
    /// without users if that is more.
    pub const RESYNC_RATE: u64 = 40 << 20;
}

wire! {
    /// Why the monitor refuses a change.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum AdminError {
        #[error("the array has no such device")]
        NoSuchDevice = 1,
        #[error("the array can't serve without the device now: bring {} back first", list(others))]
        NeedsOthers {
            /// The devices that would have to be in.
            others: Vec<DeviceId>,
        } = 2,
        #[error(
            "no redundant volume uses the device, so that taking it out would only make its volumes fail: stop it, or replace its disk"
        )]
        NothingGained = 3,
        #[error("the disk is in use by device {device}: choose one that is not in use")]
        DiskInUse {
            /// The device in whose slot it is.
            device: DeviceId,
        } = 4,
        #[error(
            "the disk is too small: it has room for {blocks} blocks of 4096 bytes, and the device has {needed}: choose a larger one"
        )]
        TooSmall {
            /// Blocks that the disk can hold.
            blocks: u64,
            /// Blocks that it would have to hold.
            needed: u64,
        } = 5,
        #[error("volume {} has no redundancy: its data on the device would be lost for good", volume.0)]
        WouldLose {
            /// The first such volume.
            volume: VolumeId,
        } = 6,
        #[error("there are {} spares already, the most that an array may have: remove one first", limits::SPARES_MAX)]
        TooManySpares = 7,
        #[error("the array has no such spare")]
        NoSuchSpare = 8,
        #[error("too many disks are being replaced already: wait until some of them are done")]
        TooManyChanges = 9,
        #[error("device {device} exists already")]
        DeviceExists { device: DeviceId } = 10,
        #[error("there are {} devices already, the most that an array may have", limits::DEVICES_MAX)]
        TooManyDevices = 11,
        #[error("volume {} uses the device: move or delete the volume first", volume.0)]
        HoldsVolume {
            /// The first such volume.
            volume: VolumeId,
        } = 12,
        #[error(
            "the level is not known to {}: restart these with the new release first",
            older(devices, hosts, *lock_servers)
        )]
        LevelUnknown {
            /// The devices whose programs do not know the level, or have not said so.
            devices: Vec<DeviceId>,
            /// Hosts likewise.
            hosts: Vec<Generation>,
            /// How many lock servers likewise.
            lock_servers: u16,
        } = 13,
    }

    /// Why a device may not join the array, whatever its content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum JoinRefused {
        #[error("{} belongs in this slot: bring that disk back, or replace it with this one", named(*expected))]
        OtherDisk {
            /// The disk that belongs there; zero if its name is not told.
            expected: DiskId,
        } = 1,
        #[error("this disk has been in use (until epoch {epoch}): make it anew before it replaces another disk")]
        Used {
            /// The last epoch that the disk adopted.
            epoch: Epoch,
        } = 2,
    }
}

impl JoinRefused {
    /// The same without the name of a disk.
    pub fn without_names(self) -> JoinRefused {
        match self {
            JoinRefused::OtherDisk { .. } => JoinRefused::OtherDisk { expected: DiskId::default() },
            other => other,
        }
    }
}

fn named(disk: DiskId) -> String {
    if disk == DiskId::default() { "another disk".to_string() } else { format!("disk {disk}") }
}

/// The programs of an older release, in words; if there are none, it is the monitor itself.
fn older(devices: &[DeviceId], hosts: &[Generation], lock_servers: u16) -> String {
    let hosts: Vec<_> = hosts.iter().map(Generation::to_string).collect();
    let kinds = [("devices", list(devices)), ("hosts", hosts.join(", ")), ("lock servers", lock_servers.to_string())];
    let named = kinds.iter().filter(|(_, which)| !which.is_empty() && which != "0");
    let named: Vec<_> = named.map(|(kind, which)| format!("{kind} {which}")).collect();
    if named.is_empty() { "the monitor".to_string() } else { named.join(", ") }
}

fn list(devices: &[DeviceId]) -> String {
    devices.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(", ")
}
