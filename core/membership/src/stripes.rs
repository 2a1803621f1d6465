//! The content of each device, and the dependence among devices that hold units of the same stripe: no more devices of a stripe may be
//! missing than the stripe has redundancy units.

use braid_base::{DeviceId, VolumeId, limits};
use braid_layout::VolumeDescription;
use std::collections::{BTreeMap, BTreeSet};

/// A disk is allocated in chunks of this many blocks.
const CHUNK_BLOCKS: u64 = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Stripes(BTreeMap<VolumeId, VolumeDescription>);

impl Stripes {
    /// Adds a volume, or replaces its description. False if there are too many.
    pub fn adopt(&mut self, volume: VolumeDescription) -> bool {
        let room = self.0.len() < limits::OBJECTS_MAX || self.0.contains_key(&volume.id);
        if room {
            self.0.insert(volume.id, volume);
        }
        room
    }

    pub fn drop(&mut self, volume: VolumeId) {
        self.0.remove(&volume);
    }

    /// True if `device` has units of redundant volumes.
    pub fn is_protected(&self, device: DeviceId) -> bool {
        self.of(device).any(|volume| volume.layout.redundancy_units() > 0)
    }

    /// The devices because of which `device` cannot be marked out: of each of its stripes that would then lack too many units, the devices
    /// that are not `present`. A stripe may lack as many devices as it has redundancy units.
    pub fn needed_beside(&self, device: DeviceId, present: impl Fn(DeviceId) -> bool) -> Vec<DeviceId> {
        let stripes = self.stripes_of(device);
        let missing = stripes.filter_map(|(_, redundancy, others)| {
            let missing: Vec<_> = others.into_iter().filter(|other| !present(*other)).collect();
            (missing.len() >= redundancy).then_some(missing)
        });
        let needed: BTreeSet<DeviceId> = missing.flatten().collect();
        needed.into_iter().collect()
    }

    /// The stripes of redundant volumes with a unit on `device`: the volume, its redundancy units, and the other devices of the stripe.
    fn stripes_of(&self, device: DeviceId) -> impl Iterator<Item = (VolumeId, usize, Vec<DeviceId>)> {
        // During a migration, both the old and the new placement count: the volume may soon have only the new one, and writes go to both.
        let placements = self.of(device).flat_map(|volume| volume.placements().map(|placed| (volume.id, placed)));
        let redundant = placements.filter(|(_, (layout, _))| layout.redundancy_units() > 0);
        redundant.flat_map(move |(volume, (layout, devices))| {
            let stripes = layout.stripes_of_the_ring().map(move |stripe| stripe.map(|place| devices[place]));
            let with_it = stripes.filter(move |stripe| stripe.clone().any(|held| held == device));
            with_it
                .map(move |stripe| (volume, layout.redundancy_units(), stripe.filter(|held| *held != device).collect()))
        })
    }

    /// Some volume with blocks on `device`.
    pub fn any_on(&self, device: DeviceId) -> Option<VolumeId> {
        self.of(device).map(|volume| volume.id).next()
    }

    /// Some volume without redundancy with blocks on `device`.
    pub fn unprotected_on(&self, device: DeviceId) -> Option<VolumeId> {
        self.of(device).find(|volume| volume.layout.redundancy_units() == 0).map(|volume| volume.id)
    }

    /// The capacity that a disk needs for the components on `device`, in blocks: each component takes whole chunks.
    pub fn blocks_on(&self, device: DeviceId) -> u64 {
        let object = |volume: &VolumeDescription| volume.object_on(device).map_or(0, |range| range.count);
        self.of(device).map(|volume| object(volume).next_multiple_of(CHUNK_BLOCKS)).sum()
    }

    /// The volumes with blocks on a device, or moving there.
    fn of(&self, device: DeviceId) -> impl Iterator<Item = &VolumeDescription> {
        self.0.values().filter(move |volume| volume.object_on(device).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Layout, RaidLevel};

    fn volume(id: u64, scheme: RaidLevel, devices: &[u16]) -> VolumeDescription {
        VolumeDescription::new(
            VolumeId(id),
            1 << 20,
            Layout::new(scheme, devices.len(), 16).expect("the layout is valid"),
            devices.iter().copied().map(DeviceId).collect(),
        )
    }

    #[test]
    fn stripes_of_a_device_are_known() {
        let mut stripes = Stripes::default();
        // Volumes of 256 blocks: 6 stripes on the first three, 86 blocks in 96; 256 blocks on each of the two copies.
        stripes.adopt(volume(1, RaidLevel::Raid5 { data: 3 }, &[0, 1, 2, 3]));
        stripes.adopt(volume(2, RaidLevel::Raid1 { copies: 2 }, &[3, 4]));
        assert_eq!([0, 3, 4, 5].map(|device| stripes.blocks_on(DeviceId(device))), [96, 96 + 256, 256, 0]);
        assert_eq!(stripes.unprotected_on(DeviceId(3)), None);
        stripes.adopt(volume(3, RaidLevel::Raid0 { data: 2 }, &[3, 5]));
        assert_eq!(stripes.unprotected_on(DeviceId(3)), Some(VolumeId(3)));
        assert!(!stripes.is_protected(DeviceId(5)) && stripes.is_protected(DeviceId(3)));
        assert_eq!(stripes.needed_beside(DeviceId(3), |device| device == DeviceId(1)), [0, 2, 4].map(DeviceId));
        assert_eq!(stripes.needed_beside(DeviceId(5), |_| false), []);
    }
}
