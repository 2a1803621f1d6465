//! Which devices depend on each other: those that have units of one stripe. All but one of them must be there.

use braid_base::{DeviceId, VolumeId, limits};
use braid_layout::VolumeDescription;
use std::collections::BTreeMap;

/// The volumes that do without any one of their devices.
#[derive(Debug, Default)]
pub(crate) struct Stripes(BTreeMap<VolumeId, VolumeDescription>);

impl Stripes {
    /// Takes in a volume, or the new description of one. False if there are too many.
    pub fn adopt(&mut self, volume: VolumeDescription) -> bool {
        let redundant = volume.layout.redundancy_units() > 0;
        if !redundant {
            self.drop(volume.id);
            return true;
        }
        let room = self.0.len() < limits::OBJECTS_MAX || self.0.contains_key(&volume.id);
        if room {
            self.0.insert(volume.id, volume);
        }
        room
    }

    /// Forgets a volume.
    pub fn drop(&mut self, volume: VolumeId) {
        self.0.remove(&volume);
    }

    /// True if `device` has units of redundant volumes, and all devices that share a stripe with it are `present`.
    pub fn can_do_without(&self, device: DeviceId, present: impl Fn(DeviceId) -> bool) -> bool {
        let mut found = false;
        for volume in self.0.values() {
            let Some(position) = volume.devices.iter().position(|other| *other == device) else { continue };
            found = true;
            let needed = |(other, device): (usize, &DeviceId)| {
                other == position || present(*device) || !volume.layout.share_a_stripe(position, other)
            };
            if !volume.devices.iter().enumerate().all(needed) {
                return false;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Atomicity, Layout, Scheme};
    use braid_wire::Ordering;

    fn volume(id: u64, scheme: Scheme, devices: &[u16]) -> VolumeDescription {
        VolumeDescription {
            id: VolumeId(id),
            bytes: 1 << 20,
            layout: Layout::new(scheme, devices.len(), 16).expect("it can be laid so"),
            devices: devices.iter().copied().map(DeviceId).collect(),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
        }
    }

    #[test]
    fn a_device_can_be_missed_if_all_volumes_of_it_can_do_without() {
        let mut stripes = Stripes::default();
        let all = |_| true;
        let but = |gone: u16| move |device| device != DeviceId(gone);
        stripes.adopt(volume(1, Scheme::Raid0 { data: 3 }, &[0, 1, 2]));
        assert!(!stripes.can_do_without(DeviceId(0), all), "nothing is gained");
        // Two groups of three.
        stripes.adopt(volume(2, Scheme::Raid5 { data: 2 }, &[0, 1, 2, 3, 4, 5]));
        assert!(stripes.can_do_without(DeviceId(0), all));
        assert!(stripes.can_do_without(DeviceId(0), but(3)) && !stripes.can_do_without(DeviceId(0), but(2)));
        assert!(stripes.can_do_without(DeviceId(0), but(0)), "it is not there itself");
        stripes.adopt(volume(3, Scheme::Raid1 { copies: 2 }, &[3, 0]));
        assert!(!stripes.can_do_without(DeviceId(0), but(3)) && stripes.can_do_without(DeviceId(1), but(3)));
        assert!(!stripes.can_do_without(DeviceId(6), all), "it has nothing");
        stripes.drop(VolumeId(3));
        assert!(stripes.can_do_without(DeviceId(0), but(3)));
        stripes.adopt(volume(2, Scheme::Raid0 { data: 6 }, &[0, 1, 2, 3, 4, 5]));
        assert!(!stripes.can_do_without(DeviceId(0), all), "its description is a new one");
    }
}
