//! What a cluster notes of its devices: their disks, the disks that their slots wait for, starts and deaths.

use super::{Cluster, state_of};
use crate::prelude::*;
use crate::role::{Role, device_of, monitor_of};
use braid_machine::DiskError;
use braid_store::StoreError;

#[derive(Clone, Debug, Default)]
pub struct DeviceNotes {
    pub disks: BTreeMap<DeviceId, DiskId>,
    last_disk: u64,
    /// When devices were last started.
    pub started: BTreeMap<DeviceId, Time>,
    /// A device has restarted.
    pub restarted: bool,
    /// A disk is being replaced, or may still be: no disk may be damaged meanwhile.
    pub replacing: bool,
    /// Devices that have died for good.
    pub dead: BTreeSet<DeviceId>,
    /// Lock servers whose disks were lost.
    pub(crate) lost_lists: BTreeSet<LockServerId>,
}

impl DeviceNotes {
    pub fn disk_of(&self, device: DeviceId) -> DiskId {
        self.disks[&device]
    }

    /// An unused disk name.
    pub fn new_disk(&mut self) -> DiskId {
        self.last_disk += 1;
        DiskId(self.last_disk)
    }

    /// Devices that have stopped because their disks failed. The supervisor of such a process would restart it.
    pub fn broken(&self, world: &World<Role>) -> Vec<DeviceId> {
        let failed = Service::Unusable(StoreError::Disk(DiskError::Failed));
        let is_broken =
            |device: &DeviceId| device_of(world, *device).is_some_and(|machine| *machine.service() == failed);
        self.disks.keys().copied().filter(is_broken).collect()
    }

    /// Devices whose slots wait for another disk than the present one, according to the monitor's record.
    pub(crate) fn awaited_disks(&self, world: &World<Role>) -> Vec<(DeviceId, DiskId)> {
        let Some(monitor) = monitor_of(world) else { return Vec::new() };
        let awaited = monitor.slots().filter_map(|slot| Some((slot.device, slot.awaited_disk?)));
        awaited.filter(|(device, disk)| self.disks.get(device) != Some(disk)).collect()
    }
}

impl Cluster {
    /// Replaces the disk of a device that is down by an empty one.
    pub fn swap_disk(&mut self, device: DeviceId, disk: DiskId) {
        assert!(!self.world.is_up(NodeId::Device(device)), "the device is down");
        let fresh = self.empty_disk(device, disk);
        *self.world.disk_mut(NodeId::Device(device)).expect("devices have disks") = fresh;
    }
}

/// True if a disk is about to be replaced, or a slot waits for a new disk.
pub(crate) fn is_any_disk_changing(cluster: &Cluster) -> bool {
    let Some(monitor) = cluster.monitor() else { return false };
    monitor.slots().any(|slot| slot.next_disk.is_some() || slot.awaited_disk.is_some())
}

/// True if a device is in and has this disk.
pub(crate) fn is_whole_with(cluster: &Cluster, device: DeviceId, disk: DiskId) -> bool {
    let is_in = state_of(cluster, device) == Some(MemberState::In);
    is_in && cluster.device_notes.disks.get(&device) == Some(&disk)
}
