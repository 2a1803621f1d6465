//! The reports since the last decision, which the next decision has to take into account.

use braid_base::{DeviceId, DiskId};
use std::collections::{BTreeMap, BTreeSet};

/// What the next decision has to take into account.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewReports {
    /// Returning devices that were reported to be completely resynchronised.
    resynchronised: BTreeSet<DeviceId>,
    /// Disks heard in slots without a recorded disk.
    learned: BTreeMap<DeviceId, DiskId>,
    is_due: bool,
}

impl NewReports {
    /// Asks for a decision.
    pub fn demand(&mut self) {
        self.is_due = true;
    }

    /// True if a decision is due.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    pub fn note_resynchronised(&mut self, device: DeviceId) {
        self.resynchronised.insert(device);
        self.is_due = true;
    }

    pub fn learn(&mut self, device: DeviceId, disk: DiskId) {
        self.learned.insert(device, disk);
        self.is_due = true;
    }

    /// Forgets devices that do not exist any more.
    pub fn retain(&mut self, exists: impl Fn(DeviceId) -> bool) {
        self.learned.retain(|device, _| exists(*device));
        self.resynchronised.retain(|device| exists(*device));
    }

    /// Takes out all reports, for a decision.
    pub fn take(&mut self) -> NewReports {
        std::mem::take(self)
    }

    /// Devices that are completely resynchronised.
    pub fn resynchronised(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.resynchronised.iter().copied()
    }

    /// Disks that are not recorded.
    pub fn learned(&self) -> impl Iterator<Item = (DeviceId, DiskId)> + '_ {
        self.learned.iter().map(|(device, disk)| (*device, *disk))
    }

    /// Asserts that there are not more disks than devices.
    pub fn invariants(&self, devices: usize) {
        assert!(self.learned.len() <= devices);
    }
}
