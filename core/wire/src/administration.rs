//! What an operator asks of the array's monitor, by way of any host (`docs/healing.md`). Each is durable when it is answered, and changes
//! nothing when it is asked again.

use braid_base::{DeviceId, DiskId, Epoch, VolumeId, limits};

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Administration {
    /// A device is to go out, as soon as the rest can do without it, and to stay out.
    Fail {
        /// Which.
        device: DeviceId,
    },
    /// A device may come back; if its disk was to be replaced and the other one has not come yet, with the disk that it had.
    Readmit {
        /// Which.
        device: DeviceId,
    },
    /// Another, empty disk takes a device's slot.
    Replace {
        /// The slot.
        device: DeviceId,
        /// The disk.
        disk: DiskId,
        /// Blocks that objects on that disk may have together.
        blocks: u64,
        /// Whether what lies there may be lost, where nothing makes up for it: of volumes without redundancy; and if the device is dead, of
        /// stripes in which too many others are missing as well.
        lose: bool,
    },
    /// A disk stands by, for the slot of a device that stays out.
    AddSpare {
        /// The disk.
        disk: DiskId,
        /// Blocks that objects on it may have together.
        blocks: u64,
    },
    /// A disk stands by no longer.
    RemoveSpare {
        /// The disk.
        disk: DiskId,
    },
    /// How fast devices are resynchronised.
    RecoveryThrottle(RecoveryThrottle),
    /// The array has one more device, which fills its slot with this disk. Nothing lies on it until a volume is made there, or moved.
    AddDevice {
        /// Its number, which no device has.
        device: DeviceId,
        /// Its disk, which must be without a past.
        disk: DiskId,
    },
    /// The array has a device no more. No volume may lie there.
    RemoveDevice {
        /// Which.
        device: DeviceId,
    },
}

/// How fast devices are resynchronised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecoveryThrottle {
    /// Bytes a second, on the device that is brought them; zero: as fast as it goes.
    pub bytes_per_second: u64,
    /// Per cent of its time that a recovery coordinator works while users have requests under way, where these would feel it; from 100 on, it gives way to
    /// nobody; zero: what is usual.
    pub share: u8,
    /// Not at all, for now.
    pub paused: bool,
}

/// Why something is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The array has no such device.
    #[error("the array has no such device")]
    NoSuchDevice,
    /// The rest can't do without it.
    #[error("the array can't do without the device now: {} must come back first", list(others))]
    NeedsOthers {
        /// These would have to be in.
        others: Vec<DeviceId>,
    },
    /// No redundant volume lies on it: to take it out would only make its volumes fail.
    #[error("no volume that could do without the device lies on it: stop it, or replace its disk")]
    NothingGained,
    /// It is a device's already.
    #[error("the disk is that of device {device}: take one that is not in use")]
    DiskInUse {
        /// Whose.
        device: DeviceId,
    },
    /// It would not hold what lies on the slot.
    #[error("the disk is too small: it has room for {blocks} blocks of 4096 bytes, and {needed} lie on the device")]
    TooSmall {
        /// What it holds.
        blocks: u64,
        /// What it would have to.
        needed: u64,
    },
    /// A volume has no redundancy.
    #[error("volume {} has no redundancy: what of it lies on the device would be lost, for good", volume.0)]
    WouldLose {
        /// Which; the first of them.
        volume: VolumeId,
    },
    /// Too many at once.
    #[error("too many disks are being replaced already: wait for some of them")]
    TooManyChanges,
    /// There is no room to remember more.
    #[error("there are {} spares already, and can't be more", limits::SPARES_MAX)]
    TooManySpares,
    /// No disk of that name stands by.
    #[error("no such disk stands by")]
    NoSuchSpare,
    /// Another disk fills the slot of that number.
    #[error("device {device} is there already")]
    DeviceExists {
        /// Which.
        device: DeviceId,
    },
    /// There is no room for more.
    #[error("there are {} devices already, and can't be more", limits::DEVICES_MAX)]
    TooManyDevices,
    /// A volume lies there.
    #[error("volume {} lies on it: move that first, or delete it", volume.0)]
    HoldsVolume {
        /// Which; the first of them.
        volume: VolumeId,
    },
}

/// Why a device may not serve, whatever it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum JoinRefused {
    /// Another disk fills its slot.
    #[error("disk {expected} belongs here, not this one: bring that one back, or have this one replace it")]
    OtherDisk {
        /// Which.
        expected: DiskId,
    },
    /// It is to replace another, and has lived in the array before.
    #[error("this disk has been in use (until epoch {epoch}): make it anew before it takes another's place")]
    Used {
        /// The last epoch that it lived by.
        epoch: Epoch,
    },
}

fn list(devices: &[DeviceId]) -> String {
    devices.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(", ")
}
