//! What is new since something was last decided.

use braid_base::{DeviceId, DiskId};
use std::collections::{BTreeMap, BTreeSet};

/// What the next decision is to take up.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Returning devices of which it was said that they have what they missed.
    caught_up: BTreeSet<DeviceId>,
    /// Disks heard of in slots of which nothing is on record.
    learned: BTreeMap<DeviceId, DiskId>,
    is_due: bool,
}

impl Findings {
    /// There may be something to decide.
    pub fn demand(&mut self) {
        self.is_due = true;
    }

    /// True if there may be something to decide.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    pub fn catch_up(&mut self, device: DeviceId) {
        self.caught_up.insert(device);
        self.is_due = true;
    }

    pub fn learn(&mut self, device: DeviceId, disk: DiskId) {
        self.learned.insert(device, disk);
        self.is_due = true;
    }

    /// Forgets devices that there are no more.
    pub fn retain(&mut self, exists: impl Fn(DeviceId) -> bool) {
        self.learned.retain(|device, _| exists(*device));
        self.caught_up.retain(|device| exists(*device));
    }

    /// It is decided now.
    pub fn take(&mut self) -> Findings {
        std::mem::take(self)
    }

    /// Devices that have what they missed.
    pub fn caught_up(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.caught_up.iter().copied()
    }

    /// Disks of which nothing is on record.
    pub fn learned(&self) -> impl Iterator<Item = (DeviceId, DiskId)> + '_ {
        self.learned.iter().map(|(device, disk)| (*device, *disk))
    }

    /// Asserts that no more disks are known than there are devices.
    pub fn invariants(&self, devices: usize) {
        assert!(self.learned.len() <= devices);
    }
}
