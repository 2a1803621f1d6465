//! Rebuilds the monitor's record from the devices' journals, when the record is lost or is an old copy (`docs/membership.md`).
//!
//! Each device durably keeps the membership that it adopted last, and serves in no other epoch. So the highest epoch among all devices is
//! the last one in which anything was written, and its membership says which devices are complete. Later epochs, which the monitor decided
//! but no device adopted, were never served in, so leaving them out loses nothing.

use crate::monitor_record::Recorded;
use crate::owners::Owners;
use crate::slot_record::{Change, Slot};
use crate::{MonitorError, monitor_record};
use braid_base::{ArrayId, DeviceId, DiskId, Epoch, FenceTable, Generation, Level, MemberState, Membership};
use std::collections::{BTreeMap, BTreeSet};

/// The new record's epoch is this far above the highest one found. The lost monitor may have told hosts of epochs that no device adopted,
/// and a device that was not read may have adopted them: none of these numbers is used again.
pub const EPOCH_MARGIN: u32 = 1 << 20;

/// What the disk of one device says. The device does not serve meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTestimony {
    pub device: DeviceId,
    /// The name of its disk.
    pub disk: DiskId,
    /// The membership that it adopted last; none if it never adopted one.
    pub membership: Option<Membership>,
    /// The level that its superblock has.
    pub level: Level,
}

/// What is known, and what the operator accepts.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub array: ArrayId,
    /// The devices that the array's description names, and the disk of each; none if it names no disk.
    pub devices: BTreeMap<DeviceId, Option<DiskId>>,
    /// The disks that were read.
    pub heard: Vec<DeviceTestimony>,
    /// An epoch that each device is known to have had, from older copies of the record or from what the monitor showed.
    pub lived_by: BTreeMap<DeviceId, Epoch>,
    /// The level that the array's description has.
    pub level: Level,
    /// Devices that the operator gives up. Their disks are never let in again.
    pub without: BTreeSet<DeviceId>,
    /// Above the generation of every host that was ever started. All hosts below are fenced, since the lost monitor may have fenced any of
    /// them.
    pub hosts_below: Generation,
}

/// Why no record is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryRefused {
    #[error("none of the devices that were read has ever adopted a membership")]
    NothingAdopted,
    #[error("not all devices could be read, and the missing ones may hold later writes: {}", list(devices))]
    Missing {
        /// The devices that were not read.
        devices: Vec<DeviceId>,
    },
    #[error("the disk of device {device} is an old copy: it has epoch {found}, but the device once had epoch {known}")]
    Outdated {
        device: DeviceId,
        /// The epoch of its disk.
        found: Epoch,
        /// An epoch that the device is known to have had.
        known: Epoch,
    },
    /// Two devices know different memberships of the same epoch, so their disks do not belong to one history.
    #[error("devices {first} and {second} know different memberships of epoch {epoch}")]
    Disagreement {
        epoch: Epoch,
        first: DeviceId,
        /// The other device.
        second: DeviceId,
    },
    #[error("the disk of device {device} is {found}, but {expected} fills its slot")]
    OtherDisk {
        device: DeviceId,
        /// The disk that was read.
        found: DiskId,
        /// The disk that the description names.
        expected: DiskId,
    },
    #[error("two disks were read as device {device}")]
    Twice { device: DeviceId },
    #[error("the devices have epoch {newest}, and there are not enough epochs above it")]
    NoEpochs {
        /// The highest epoch that was found.
        newest: Epoch,
    },
}

/// A rebuilt record.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredRecord {
    recorded: Recorded,
    /// The highest epoch that a device has adopted.
    pub newest: Epoch,
    /// Devices that were given up: their disks are not let in again.
    pub left_out: Vec<DeviceId>,
}

impl RecoveredRecord {
    /// The membership with which the monitor begins.
    pub fn membership(&self) -> &Membership {
        &self.recorded.membership
    }

    /// The epoch that the device's disk must at least have, to be let in.
    pub fn lived_by(&self, device: DeviceId) -> Epoch {
        self.recorded.slot(device).lived_by
    }

    /// The content of a monitor's disk with this record.
    pub fn disk_image(&self) -> Vec<u8> {
        braid_two_copy_record::disk_image(&self.recorded)
    }
}

/// The content of a monitor's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    /// The array that it belongs to.
    pub array: ArrayId,
    /// The membership; of epoch zero if nothing was written yet.
    pub membership: Membership,
    /// The latest epoch that each device was heard to have.
    pub lived_by: BTreeMap<DeviceId, Epoch>,
}

impl RecordSummary {
    /// Reads the bytes of a monitor's disk.
    pub fn read(disk: &[u8]) -> Result<RecordSummary, MonitorError> {
        if disk.len() as u64 != monitor_record::DISK_BYTES {
            return Err(MonitorError::Damaged);
        }
        let Recorded { array, membership, slots, .. } = braid_two_copy_record::read_image::<Recorded>(disk)?;
        let lived_by = slots.iter().map(|(device, slot)| (*device, slot.lived_by)).collect();
        Ok(RecordSummary { array, membership, lived_by })
    }

    /// True if the record is not older than what the devices say: a monitor with this record lets all of them in.
    pub fn is_up_to_date<'a>(&self, heard: impl IntoIterator<Item = &'a DeviceTestimony>) -> bool {
        let newest = heard.into_iter().map(DeviceTestimony::epoch).max().unwrap_or_default();
        self.membership.epoch > Epoch(0) && self.membership.epoch >= newest
    }
}

impl DeviceTestimony {
    /// The epoch of the disk; zero if it never adopted any.
    pub fn epoch(&self) -> Epoch {
        self.membership.as_ref().map_or(Epoch(0), |membership| membership.epoch)
    }
}

/// Rebuilds the record, or returns the reason why that would not be safe.
pub fn recover(evidence: &Evidence) -> Result<RecoveredRecord, RecoveryRefused> {
    let heard = heard(evidence)?;
    let newest = agree(&heard)?;
    let is_needed = |device: &DeviceId| !evidence.without.contains(device) && !heard.contains_key(device);
    let missing: Vec<DeviceId> = evidence.devices.keys().copied().filter(is_needed).collect();
    if !missing.is_empty() {
        return Err(RecoveryRefused::Missing { devices: missing });
    }
    // A device that the description does not name has been removed: that is decided before its entry is deleted.
    let members = newest.members.iter().filter(|member| evidence.devices.contains_key(&member.device));
    let too_high = RecoveryRefused::NoEpochs { newest: newest.epoch };
    let epoch = newest.epoch.0.checked_add(EPOCH_MARGIN).filter(|epoch| epoch.checked_add(EPOCH_MARGIN).is_some());
    let epoch = Epoch(epoch.ok_or(too_high)?);
    // All hosts that exist are fenced by this number. What the fence of the lost record says of later ones does not count: no host has been
    // fenced before it existed, other than by a message that should not have been accepted.
    let fence = FenceTable { below: evidence.hosts_below, ..FenceTable::default() };
    let mut membership = Membership { epoch, members: members.copied().collect(), fence };
    let mut slots = BTreeMap::new();
    for member in &mut membership.members {
        let device = member.device;
        match &mut member.member_state {
            // It is not read from, and is not resynchronised any more.
            MemberState::Returning { .. } if !heard.contains_key(&device) => {
                (member.member_state, member.since) = (MemberState::Out, epoch);
            }
            // The coordinator is fenced, like all hosts before.
            MemberState::Returning { recovery_coordinator } => *recovery_coordinator = None,
            MemberState::In | MemberState::Out => {}
        }
        let slot = match heard.get(&device) {
            Some(testimony) => {
                let found = testimony.epoch();
                let since = if member.member_state == MemberState::In { member.since } else { Epoch(0) };
                let known = since.max(evidence.lived_by.get(&device).copied().unwrap_or_default());
                if found < known {
                    return Err(RecoveryRefused::Outdated { device, found, known });
                }
                // An empty disk that waits outside must not adopt an epoch in which it is out: it would then be refused as used.
                let is_awaited = member.member_state == MemberState::Out && found == Epoch(0);
                let change = if is_awaited { Change::Awaited { before: None } } else { Change::None };
                Slot { disk: Some(testimony.disk), change, lived_by: found, ..Slot::default() }
            }
            None => Slot {
                disk: evidence.devices[&device],
                // No disk has adopted that epoch, so only an empty disk, as a replacement, is let in.
                lived_by: Epoch(epoch.0 - 1),
                ..Slot::default()
            },
        };
        slots.insert(device, slot);
    }
    let left_out = evidence.without.iter().copied().filter(|device| slots.contains_key(device)).collect();
    // All hosts are fenced, so no file system has an owner.
    let owners = Owners::none_as_of(epoch);
    let level = evidence.heard.iter().map(|heard| heard.level).fold(evidence.level, Level::max);
    let recorded = Recorded { slots, owners, level, ..Recorded::of(evidence.array, membership) };
    Ok(RecoveredRecord { recorded, newest: newest.epoch, left_out })
}

/// The disks that count, by device.
fn heard(evidence: &Evidence) -> Result<BTreeMap<DeviceId, &DeviceTestimony>, RecoveryRefused> {
    let mut heard = BTreeMap::new();
    for testimony in &evidence.heard {
        let DeviceTestimony { device, disk: found, .. } = *testimony;
        if evidence.without.contains(&device) {
            continue;
        }
        if let Some(Some(expected)) = evidence.devices.get(&device).copied()
            && expected != found
        {
            return Err(RecoveryRefused::OtherDisk { device, found, expected });
        }
        if heard.insert(device, testimony).is_some() {
            return Err(RecoveryRefused::Twice { device });
        }
    }
    Ok(heard)
}

/// The newest membership that any device has adopted; an error if two devices differ about an epoch.
fn agree<'a>(heard: &BTreeMap<DeviceId, &'a DeviceTestimony>) -> Result<&'a Membership, RecoveryRefused> {
    let mut known: BTreeMap<Epoch, (DeviceId, &'a Membership)> = BTreeMap::new();
    for (device, testimony) in heard {
        let Some(membership) = &testimony.membership else { continue };
        let (first, same) = known.entry(membership.epoch).or_insert((*device, membership));
        if *same != membership {
            return Err(RecoveryRefused::Disagreement { epoch: membership.epoch, first: *first, second: *device });
        }
    }
    known.pop_last().map(|(_, (_, membership))| membership).ok_or(RecoveryRefused::NothingAdopted)
}

fn list(devices: &[DeviceId]) -> String {
    devices.iter().map(DeviceId::to_string).collect::<Vec<_>>().join(", ")
}
