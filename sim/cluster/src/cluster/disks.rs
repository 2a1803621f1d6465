//! The disks of devices: which one each device has, and which one its slot waits for.

use super::Cluster;
use braid_base::{DeviceId, DiskId, MemberState, Membership, NodeId};
use braid_store::Geometry;

impl Cluster {
    /// Replaces the disk of a device that is down by an empty one.
    pub fn swap_disk(&mut self, device: DeviceId, disk: DiskId) {
        assert!(self.world.machine(NodeId::Device(device)).is_none(), "the device is down");
        let fresh = self.empty_disk(device, disk);
        *self.world.disk_mut(NodeId::Device(device)).expect("devices have disks") = fresh;
    }

    pub fn disk_of(&self, device: DeviceId) -> DiskId {
        self.disks[&device]
    }

    /// True if a device has been started, as a part of the array or not.
    pub(crate) fn has_device(&self, device: DeviceId) -> bool {
        self.disks.contains_key(&device)
    }

    /// True if a device that there is has this disk.
    pub(crate) fn has_disk(&self, device: DeviceId, disk: DiskId) -> bool {
        self.disks.get(&device) == Some(&disk)
    }

    /// Devices whose slots wait for another disk than the present one, according to the monitor's record.
    pub fn awaited_disks(&self) -> Vec<(DeviceId, DiskId)> {
        let Some(monitor) = self.monitor() else { return Vec::new() };
        let awaited = monitor.slots().filter_map(|slot| Some((slot.device, slot.awaited_disk?)));
        awaited.filter(|(device, disk)| self.disks.get(device) != Some(disk)).collect()
    }

    /// True if a disk is about to be replaced, or a slot waits for a new disk.
    pub(crate) fn is_any_disk_changing(&self) -> bool {
        let Some(monitor) = self.monitor() else { return false };
        monitor.slots().any(|slot| slot.next_disk.is_some() || slot.awaited_disk.is_some())
    }

    /// True if a device is in and has this disk.
    pub(crate) fn is_whole_with(&self, device: DeviceId, disk: DiskId) -> bool {
        let is_in = |membership: &Membership| {
            membership.member(device).is_some_and(|member| member.member_state == MemberState::In)
        };
        self.disks.get(&device) == Some(&disk) && self.membership().is_some_and(is_in)
    }

    /// An unused disk name.
    pub fn new_disk(&mut self) -> DiskId {
        self.next_disk += 1;
        DiskId(self.next_disk)
    }

    /// The number of blocks that objects may have on a device's disk.
    pub fn disk_blocks(&self) -> u64 {
        Geometry::room(self.options.device_bytes).expect("devices are large enough")
    }
}
